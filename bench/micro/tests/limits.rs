//! `limits` from its command line, with sizes that take no time: every measurement works on this machine.

use std::fs;
use std::process::{Command, Output};

use serde_json::Value;

const TINY: [&str; 14] = [
    "--files",
    "3",
    "--file-size",
    "300000",
    "--block-size",
    "64KiB",
    "--small-files",
    "150",
    "--small-size",
    "100",
    "--repetitions",
    "2",
    "--work-dir",
    "/dev/shm",
];

fn limits(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_limits")).args(arguments).output().expect("the program runs")
}

fn with<'a>(first: &[&'a str], more: &[&'a str]) -> Vec<&'a str> {
    [first, more].concat()
}

#[test]
fn measures_everything_and_says_so() {
    let scratch = tempfile::tempdir().unwrap();
    let json = scratch.path().join("limits.json").into_os_string().into_string().unwrap();
    let output = limits(&with(&TINY, &["--json", &json]));
    let report: Value = serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
    let rows = report["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 30);
    for row in rows {
        // The kernel may lack bbr; all other measurements work on every Linux that carrack supports.
        if row["problem"].is_null() {
            assert_eq!(row["runs"].as_array().unwrap().len(), 2, "{row}");
        } else {
            assert!(row["problem"].as_str().unwrap().contains("bbr"), "{row}");
        }
    }
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("## Small files\n"), "{text}");

    let results = concat!(env!("CARGO_MANIFEST_DIR"), "/../results.json");
    let again = limits(&["--from", &json, "--compare", results]);
    let again = String::from_utf8(again.stdout).unwrap();
    assert!(again.starts_with(&text), "{again}");
    assert!(again.contains("## carrack beside the limits"), "{again}");
}

/// The first run of each compares the copy with the source.
#[test]
fn two_streams_share_one_file() {
    let size = ["--files", "1", "--file-size", "1000003", "--block-size", "64KiB", "--small-files", "1"];
    let output = limits(&with(&size, &["--repetitions", "1", "--only", "2 streams, cubic"]));
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text.matches("2 streams, cubic |").count(), 6, "{text}");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn measures_only_what_is_asked_for() {
    let output = limits(&with(&TINY, &["--only", "statx"]));
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text.matches("\n| statx, ").count(), 2, "{text}");
    assert!(!text.contains("memcpy"), "{text}");
    assert!(output.status.success());
}

#[test]
fn refuses_what_does_not_fit_and_what_is_not_there() {
    for (arguments, words) in [
        (&["--files", "10000", "--file-size", "1TiB"][..], "hint: --file-size"),
        (&["--only", "teleport"], "nothing has these words"),
        (&["--compare", "/nonexistent"], "/nonexistent"),
    ] {
        let output = limits(arguments);
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && text.contains(words), "{text}");
    }
}
