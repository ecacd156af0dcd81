//! `carrack forecast` as a process: from a file, and from a real Prometheus where one is installed.

use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::common::process::{assert_exit, assert_says, json, run};
use crate::common::{CARRACK, skip};

const DAY_S: i64 = 86_400;

fn now_s() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64
}

/// Returns a load that is high in the second half of each day, with noise that is the same in each run.
fn load(at_s: i64) -> f64 {
    let noise = (at_s / 60 * 7919 % 101) as f64 / 500.0;
    if at_s.rem_euclid(DAY_S) >= DAY_S / 2 { 0.7 + noise } else { 0.05 + noise }
}

#[track_caller]
fn forecast(arguments: &[&str]) -> Output {
    run(Command::new(CARRACK).arg("forecast").args(arguments))
}

fn csv(directory: &Path) -> String {
    let mut text = "time,target,load\n".to_owned();
    let now_s = now_s();
    for at_s in (now_s - 10 * DAY_S..now_s).step_by(300) {
        writeln!(text, "{at_s},fs/a,{}", load(at_s)).unwrap();
    }
    let path = directory.join("load.csv");
    fs::write(&path, text).unwrap();
    path.into_os_string().into_string().unwrap()
}

#[test]
fn a_file_is_foretold_in_three_forms() {
    let dir = tempfile::tempdir().unwrap();
    let (csv, svg) = (csv(dir.path()), dir.path().join("a.svg"));
    let known = ["fs", "--csv", &csv, "--capacity", "1"];
    let output = forecast(&[&known[..], &["--svg", svg.to_str().unwrap()]].concat());
    assert_exit(&output, 0);
    let table = String::from_utf8(output.stdout).unwrap();
    assert!(table.starts_with("fs: 10.0 days of history, 100 % of it measured; can bear 1.000\n"), "{table}");
    assert!(table.contains("next day   by ") && table.contains(": MAE 0."), "{table}");
    let picture = fs::read_to_string(svg).unwrap();
    assert!(picture.contains("<polygon") && picture.contains("fs: load, measured and expected"));

    let output = forecast(&[&known[..], &["--json"]].concat());
    let object = json(&output).remove(0);
    assert_eq!((&object["unit"], &object["capacity"]), (&serde_json::Value::Null, &1.0.into()));
    for hour in object["hours"].as_array().unwrap() {
        let (start_s, expected) = (hour["start"].as_i64().unwrap(), hour["load"].as_f64().unwrap());
        let middle = load(start_s + 1800);
        assert!((expected - middle).abs() < 0.3, "{start_s}: {expected} for {middle}");
    }
}

#[test]
fn nothing_known_is_said_with_a_hint() {
    let output = forecast(&["fs"]);
    assert_exit(&output, 3);
    assert_says(&output, &["nothing is known of the load of fs", "hint: name --csv FILE"]);
    let output = forecast(&["fs", "--prometheus", "http://127.0.0.1:1", "--preset", "ceph"]);
    assert_exit(&output, 3);
    assert_says(&output, &["Prometheus at http://127.0.0.1:1:", "hint: is it running"]);
    let output = forecast(&["fs", "--csv", "/nowhere"]);
    assert_exit(&output, 3);
    assert_says(&output, &["/nowhere"]);
    assert_exit(&forecast(&["fs", "--prometheus", "http://127.0.0.1:1"]), 2);
}

/// A real server, which ends on drop.
struct Prometheus {
    dir: tempfile::TempDir,
    url: String,
}

const TESTBED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testbed/prometheus");

impl Prometheus {
    /// Starts a server with a history in OpenMetrics; `None` where it is not installed.
    fn knowing(history: &str) -> Option<Prometheus> {
        let found = Command::new(TESTBED).arg("binary").output().unwrap();
        if !found.status.success() {
            skip(&String::from_utf8_lossy(&found.stderr));
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("history.om");
        fs::write(&file, history).unwrap();
        let mut up = Command::new(TESTBED);
        up.arg("up").arg("--dir").arg(dir.path().join("prometheus")).arg("--history").arg(file);
        let up = up.env("CARRACK_TESTBED_LIFETIME_S", "600").output().unwrap();
        assert!(up.status.success(), "{}", String::from_utf8_lossy(&up.stderr));
        Some(Prometheus { dir, url: String::from_utf8(up.stdout).unwrap().trim().to_owned() })
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = Command::new(TESTBED).arg("down").arg(self.dir.path().join("prometheus")).status();
    }
}

/// Returns counters of two targets, as an exporter on a Lustre server has them: the first has a load in parts
/// of 1 GB/s, the second none.
fn counters(days: i64) -> String {
    let mut text = String::new();
    let now_s = now_s() / 60 * 60;
    let of = |ost: &str| format!("{{component=\"ost\",target=\"lfs01-{ost}\",instance=\"oss1:9169\"}}");
    for (metric, per_s) in [("lustre_read_bytes", 1e9), ("lustre_read_samples", 1e3)] {
        writeln!(text, "# TYPE {metric} counter").unwrap();
        let mut counter = 0.0;
        for at_s in (now_s - days * DAY_S..=now_s).step_by(60) {
            counter += load(at_s) * per_s * 60.0;
            writeln!(text, "{metric}_total{} {counter:.0} {at_s}", of("OST0000")).unwrap();
        }
        for at_s in (now_s - days * DAY_S..=now_s).step_by(60) {
            writeln!(text, "{metric}_total{} 5 {at_s}", of("OST0001")).unwrap();
        }
    }
    text + "# EOF\n"
}

#[test]
fn a_real_prometheus_is_asked() {
    let Some(server) = Prometheus::knowing(&counters(6)) else { return };
    let asked = |name: &str| {
        let known = ["--prometheus", &server.url, "--preset", "lustre_exporter", "--json"];
        let output = forecast(&[&[name], &known[..]].concat());
        assert_exit(&output, 0);
        json(&output).remove(0)
    };
    let object = asked("lfs01/OST0000");
    let days = object["history"]["days"].as_f64().unwrap();
    assert!((5.9..6.1).contains(&days), "{days} days");
    let capacity = object["capacity"].as_f64().unwrap();
    assert!((0.75e9..0.95e9).contains(&capacity), "{capacity}");
    for hour in object["hours"].as_array().unwrap() {
        let (start_s, expected) = (hour["start"].as_i64().unwrap(), hour["load"].as_f64().unwrap() / 1e9);
        // The noise is 0.1 on average.
        let middle = if (start_s + 1800).rem_euclid(DAY_S) >= DAY_S / 2 { 0.8 } else { 0.15 };
        assert!((expected - middle).abs() < 0.15, "{start_s}: {expected} for {middle}");
    }
    let both = asked("lfs01");
    assert_eq!(both["targets"], 2);
    // The capacity of an idle target is unknown: 100 MB/s at least.
    assert!((both["capacity"].as_f64().unwrap() - (capacity + 100e6) / 2.0).abs() < 1e6);
    let output = forecast(&["lfs02", "--prometheus", &server.url, "--preset", "lustre_exporter"]);
    assert_exit(&output, 3);
    assert_says(&output, &["no load of lfs02 was measured", "lfs01/OST0000, lfs01/OST0001"]);
    let wrong = server.url.clone();
    let config = server.dir.path().join("a.toml");
    let text = format!(
        "[sharing.health]\nprometheus = \"{wrong}\"\nread_bytes = \"rate(\"\ntarget_name = \"{{x}}\"\n"
    );
    fs::write(&config, text).unwrap();
    let output = forecast(&["lfs01", "--config", config.to_str().unwrap()]);
    assert_exit(&output, 3);
    assert_says(&output, &["refuses the query rate(: ", "parse error", "hint: try the query"]);
}
