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
    let has_servers = targets.iter().any(|target| target.server.is_some());
    let mut headings = vec!["<target", ">moved", ">normal", ">recent", ">limit", ">congested"];
    if has_servers {
        headings.push("<server");
    }
    let mut table = TextTable::headed(&headings);
    for target in targets.iter().take(SHOWN_MAX) {
        let mut cells = vec![
            escape(target.label.as_bytes()).to_string(),
            size::format_size(target.bytes).to_string(),
            time(target.normal_us),
            time(target.recent_us),
            if target.limit == 0 { "-".to_owned() } else { target.limit.to_string() },
            format!("{}x", target.avoided_count),
        ];
        if has_servers {
            cells.push(escape(target.server.as_deref().unwrap_or("-").as_bytes()).to_string());
        }
        let cells: Vec<&dyn std::fmt::Display> =
            cells.iter().map(|cell| cell as &dyn std::fmt::Display).collect();
        table.row(&cells);
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
        assert!(!table[2].contains('\x1b') && !table[0].contains("server"));
        let of_server = TargetReport { server: Some("10.0.0.2@tcp".into()), ..target("OST0002") };
        let table = lines(FailureSide::Source, &[of_server, target("OST0003")]);
        assert!(table[0].ends_with("server") && table[1].ends_with("10.0.0.2@tcp"), "{table:?}");
        let many = lines(FailureSide::Sink, &vec![target("x"); 100]);
        assert!(many.len() == SHOWN_MAX + 2 && many[SHOWN_MAX + 1].contains("36 more"));
    }
}
