//! The storage targets of a transfer as a table for people.

use std::time::Duration;

use carrack_model::{FailureSide, TargetReport, escape};

use crate::size;
use crate::views::table::TextTable;

/// Most targets of one end that are shown one by one.
const SHOWN_MAX: usize = 64;

/// Returns a table of one end's targets, a line each; empty without targets.
pub fn lines(side: FailureSide, targets: &[TargetReport]) -> Vec<String> {
    if targets.is_empty() {
        return Vec::new();
    }
    let what = if side == FailureSide::Source { "source" } else { "sink" };
    let mut table = TextTable::headed(&["<target", ">moved", ">normal", ">recent", ">limit", ">congested"]);
    for target in targets.iter().take(SHOWN_MAX) {
        table.row(&[
            &escape(target.label.as_bytes()),
            &size::format_size(target.bytes),
            &time(target.normal_us),
            &time(target.recent_us),
            &if target.limit == 0 { "-".to_owned() } else { target.limit.to_string() },
            &format_args!("{}x", target.avoided_count),
        ]);
    }
    let mut lines: Vec<String> =
        table.lines().map(|line| format!("carrack: {what} targets: {line}")).collect();
    if targets.len() > SHOWN_MAX {
        lines.push(format!("carrack: {what} targets: … and {} more", targets.len() - SHOWN_MAX));
    }
    lines
}

/// Formats the time of one object of 1 MiB.
fn time(us: u64) -> String {
    match us {
        0 => "-".to_owned(),
        us => format!("{:.1?}", Duration::from_micros(us)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(label: &str) -> TargetReport {
        TargetReport {
            label: label.into(),
            bytes: 3 << 20,
            normal_us: 64_000,
            recent_us: 1_100_000,
            limit: 8,
            avoided_count: 2,
            ..TargetReport::default()
        }
    }

    #[test]
    fn a_line_for_each_target() {
        assert!(lines(FailureSide::Source, &[]).is_empty());
        let table = lines(FailureSide::Source, &[target("OST0001"), target("a\x1b")]);
        assert_eq!(table.len(), 3);
        for word in ["source targets", "OST0001", "3.0 MiB", "64.0ms", "1.1s", "8", "2x"] {
            assert!(table[1].contains(word), "{word}: {}", table[1]);
        }
        assert!(!table[2].contains('\x1b'));
        let many = lines(FailureSide::Sink, &vec![target("x"); 100]);
        assert!(many.len() == SHOWN_MAX + 2 && many[SHOWN_MAX + 1].contains("36 more"));
    }
}
