//! Output on request and at regular times, and the end of a transfer whose storage does not answer: requests
//! hang in the double of `testbed/storage` until they are released.

use std::fs;
use std::process::Command;

use rustix::process::Signal;

use crate::common::CARRACK;
use crate::common::process::{Running, assert_exit, assert_says, json, wait_for};
use crate::common::storage_double::StorageDouble;
use crate::common::tree::{assert_same, noise};

/// Starts a copy of a file to the double, or from it, in which a request hangs.
#[track_caller]
fn hanging(rule: &str, options: &[&str]) -> Option<(StorageDouble, Running)> {
    let plant = |root: &std::path::Path| fs::write(root.join("stored"), noise(300_000)).unwrap();
    let double = StorageDouble::start(&[], plant)?;
    fs::write(double.local("large"), noise(3_000_001)).unwrap();
    double.ask(&format!("rule hang:{rule}"));
    let mut command = Command::new(CARRACK);
    command.args(options);
    match options[0] {
        "verify" => command.args([double.local("first/stored"), double.path("stored")]),
        _ if rule.starts_with("read") => command.args([double.path("stored"), double.local("copy")]),
        _ => command.args([double.local("large"), double.path("copy")]),
    };
    let running = Running::start(&mut command);
    wait_for("a hanging request", || double.ask("rules").contains("hanging 1").then_some(()));
    Some((double, running))
}

#[test]
fn a_signal_shows_the_status() {
    let Some((double, running)) = hanging("write:path=copy", &["cp"]) else { return };
    running.signal(Signal::USR1);
    running.wait_for_words("carrack: after 0:");
    running.signal(Signal::USR2);
    running.wait_for_words("carrack: SIGUSR2: all messages are shown");
    running.signal(Signal::USR2);
    running.wait_for_words("carrack: SIGUSR2: as before");
    double.ask("clear");
    let output = running.end();
    assert_exit(&output, 0);
    assert_same(&double.local("large"), &double.path("copy"));
}

#[test]
fn a_signal_is_an_event_for_programs() {
    let Some((double, running)) = hanging("write:path=copy", &["cp", "--json"]) else { return };
    running.wait_for_report("\"event\":\"progress\"");
    running.signal(Signal::USR1);
    running.signal(Signal::USR2);
    double.ask("clear");
    let output = running.end();
    assert_exit(&output, 0);
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(json(&output).pop().unwrap()["event"], "summary");
}

#[test]
fn a_comparison_shows_its_status_too() {
    let Some((double, running)) = hanging("read:path=stored", &["verify"]) else { return };
    running.signal(Signal::USR1);
    running.wait_for_words("carrack: after 0:");
    running.signal(Signal::USR2);
    double.ask("clear");
    let output = running.end();
    assert_exit(&output, 0);
    assert_says(&output, &["0 entries are equal (0 B), 0 differ or could not be compared"]);
}

#[test]
fn a_batch_job_shows_the_status_at_its_interval() {
    let Some((double, running)) = hanging("write:path=copy", &["cp", "--stats", "1"]) else { return };
    running.wait_for_words("carrack: after 0:01: ");
    running.wait_for_words("carrack: after 0:02: ");
    double.ask("clear");
    assert_exit(&running.end(), 0);
}

#[test]
fn a_short_job_shows_no_status() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("a"), "a").unwrap();
    let mut command = Command::new(CARRACK);
    let output =
        Running::start(command.arg("cp").arg(directory.path().join("a")).arg(directory.path().join("b")));
    let output = output.end();
    assert_exit(&output, 0);
    assert!(!String::from_utf8_lossy(&output.stderr).contains("carrack: after"));
}

#[test]
fn storage_that_does_not_answer_is_named_and_what_comes_later_too() {
    let Some((double, running)) = hanging("write:path=copy", &["cp", "-v"]) else { return };
    running.wait_for_words(" (destination) has not answered for 10 s (");
    double.ask("clear");
    let output = running.end();
    assert_exit(&output, 0);
    assert_same(&double.local("large"), &double.path("copy"));
}

#[test]
fn programs_learn_of_storage_that_does_not_answer() {
    let Some((double, running)) = hanging("read:path=stored", &["cp", "--json"]) else { return };
    running.wait_for_report("\"event\":\"storage_delay\"");
    double.ask("clear");
    let output = running.end();
    assert_exit(&output, 0);
    let events = json(&output);
    let delays: Vec<_> = events.iter().filter(|event| event["event"] == "storage_delay").collect();
    assert_eq!(delays[0]["side"], "source", "{delays:?}");
    assert!(delays[0]["requests"].as_u64() >= Some(1), "{delays:?}");
    assert!(delays[0]["age_s"].as_u64() >= Some(10), "{delays:?}");
    assert!(delays[0]["target"].as_str().unwrap().contains("/mnt"), "{delays:?}");
}

/// Returns true once the process has nothing left but threads in requests that hang: its first thread has
/// ended.
fn is_ending(running: &Running) -> bool {
    let status = fs::read_to_string(format!("/proc/{}/status", running.id()));
    status.map_or(true, |status| status.contains("State:\tZ"))
}

#[test]
fn an_interrupted_copy_says_what_it_waits_for_and_a_second_signal_ends_it() {
    let Some((double, running)) = hanging("write:path=copy", &["cp"]) else { return };
    running.signal(Signal::TERM);
    running.wait_for_words("interrupted, waits for ");
    running.wait_for_words("/mnt");
    running.wait_for_words("another signal ends it at once");
    assert!(!is_ending(&running));
    running.signal(Signal::TERM);
    wait_for("the end of all other threads", || is_ending(&running).then_some(()));
    // The kernel waits for a FUSE request that was sent.
    double.ask("clear");
    assert_exit(&running.end(), 130);
    let mut again = Command::new(CARRACK);
    let output = Running::start(again.arg("cp").args([double.local("large"), double.path("copy")])).end();
    assert_exit(&output, 0);
    assert_same(&double.local("large"), &double.path("copy"));
}

#[test]
fn an_interrupted_copy_ends_by_itself_once_its_storage_answers() {
    let Some((double, running)) = hanging("write:path=copy", &["cp"]) else { return };
    running.signal(Signal::TERM);
    running.wait_for_words("interrupted, waits for ");
    double.ask("clear");
    assert_exit(&running.end(), 130);
}
