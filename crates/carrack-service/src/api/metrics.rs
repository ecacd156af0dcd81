//! Storage targets in the text format of Prometheus (exposition format 0.0.4).

use std::fmt::Write;

use carrack_plan::grants::SharedTargetStatus;

/// The format's content type.
pub(super) const CONTENT_TYPE: &str = "text/plain; version=0.0.4";

/// A gauge's name, its help, and its value of a target.
type Gauge = (&'static str, &'static str, fn(&SharedTargetStatus) -> Option<f64>);

const GAUGES: [Gauge; 6] = [
    ("carrack_target_users", "Transfers that use the target now.", |target| Some(users(target) as f64)),
    ("carrack_target_users_max", "Transfers that may use it at a time.", |target| {
        Some(target.users_max as f64)
    }),
    ("carrack_target_waiting", "Transfers that wait for it.", |target| Some(target.waiting.len() as f64)),
    ("carrack_target_waiting_seconds_max", "How long the first of them has waited.", |target| {
        Some(target.waiting.first().map_or(0.0, |first| first.waits_ms as f64 / 1e3))
    }),
    ("carrack_target_load_ratio", "Part of the target that computation uses.", |target| target.load),
    (
        "carrack_target_load_expected_ratio",
        "Part of the target that computation is expected to use.",
        |target| target.load_expected,
    ),
];

/// Formats all targets, and the bytes that were moved from or to each.
pub(super) fn text(targets: &[SharedTargetStatus], moved_bytes: &[(String, u64)]) -> String {
    let mut text = String::new();
    for (name, help, value) in GAUGES {
        let samples = targets.iter().filter_map(|target| Some((&*target.target, value(target)?)));
        write_family(&mut text, name, "gauge", help, samples);
    }
    let moved = moved_bytes.iter().map(|(target, bytes)| (&**target, *bytes as f64));
    let help = "Bytes that transfers told they moved from or to the target.";
    write_family(&mut text, "carrack_target_moved_bytes_total", "counter", help, moved);
    text
}

fn write_family<'a>(
    text: &mut String,
    name: &str,
    kind: &str,
    help: &str,
    samples: impl Iterator<Item = (&'a str, f64)>,
) {
    // Writing to a string does not fail.
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    for (target, value) in samples {
        let _ = writeln!(text, "{name}{{target=\"{}\"}} {value}", label(target));
    }
}

fn users(target: &SharedTargetStatus) -> usize {
    target.holders.iter().filter(|holder| holder.starts_in_us == 0).count()
}

fn label(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use carrack_plan::grants::{ViewOfHolder, WaitingClientView};

    use super::*;

    #[test]
    fn each_family_has_its_type_and_a_line_a_target() {
        let holder = ViewOfHolder {
            client: "a".to_owned(),
            class: String::new(),
            starts_in_us: 0,
            ends_in_us: 9,
            bytes: 0,
        };
        let waiting = WaitingClientView { client: "b".to_owned(), class: String::new(), waits_ms: 1_500 };
        let target = SharedTargetStatus {
            target: "fs/\"x\\".to_owned(),
            load: Some(0.25),
            load_expected: None,
            users_max: 2,
            burst_ms: 500,
            holders: vec![holder.clone(), ViewOfHolder { starts_in_us: 5, ..holder }],
            waiting: vec![waiting],
        };
        let text = text(&[target], &[("fs/y".to_owned(), 7)]);
        for line in [
            "# TYPE carrack_target_users gauge",
            r#"carrack_target_users{target="fs/\"x\\"} 1"#,
            r#"carrack_target_waiting_seconds_max{target="fs/\"x\\"} 1.5"#,
            r#"carrack_target_load_ratio{target="fs/\"x\\"} 0.25"#,
            r#"carrack_target_moved_bytes_total{target="fs/y"} 7"#,
        ] {
            assert!(text.lines().any(|own| own == line), "{line}\n{text}");
        }
        assert!(!text.contains("load_expected_ratio{"), "{text}");
    }
}
