//! Settings that tune themselves: reading from storage with a long service time that serves many requests at
//! a time.
//!
//! Skipped, with its reason, where mounts are not allowed.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use crate::common::CARRACK;
use crate::common::process::{assert_exit, assert_says, run, talk};
use crate::common::storage_double::StorageDouble;
use crate::common::tree::{assert_same, noise};

/// The time of each read, however many there are: a thread reads 10 MiB per second.
const SLOW: &str = "delay=100:read:count=all";
const SERVED_AT_ONCE: &str = "128";

const FILES: usize = 12;
const FILE_BYTES: usize = 48 << 20;

fn double() -> Option<StorageDouble> {
    let options = ["--direct", "--threads", SERVED_AT_ONCE, "--rule", SLOW];
    StorageDouble::start(&options, |root| {
        fs::create_dir(root.join("from")).unwrap();
        for number in 0..FILES {
            fs::write(root.join(format!("from/{number}")), noise(FILE_BYTES + number)).unwrap();
        }
    })
}

fn copy(double: &StorageDouble, more: &[&str]) -> Output {
    let mut command = Command::new(CARRACK);
    command
        .args(["cp", "-r", "-v", "--no-journal"])
        .args(more)
        .arg(double.path("from"))
        .arg(double.local("to"))
        .env("XDG_STATE_HOME", double.local("state"));
    run(&mut command)
}

#[test]
fn readers_are_added_while_they_bring_something() {
    let Some(double) = double() else { return };
    let output = copy(&double, &[]);
    assert_exit(&output, 0);
    assert_says(&output, &["tuner: ", "reading is the bottleneck", "readers brought", ": kept"]);
    double.ask("clear");
    assert_same(&double.path("from"), &double.local("to"));
}

/// A bundle's files are opened one after the other. If that takes long, the bundle ends before it is full, so
/// that its files arrive meanwhile, and several threads share the work.
#[test]
fn a_bundle_that_takes_long_is_cut() {
    let options = ["--threads", SERVED_AT_ONCE, "--rule", "delay=20:open:count=all"];
    let few = |root: &Path| {
        fs::create_dir(root.join("from")).unwrap();
        (0..100).for_each(|number| {
            fs::write(root.join(format!("from/{number}")), noise(4_000 + number)).unwrap()
        });
    };
    let Some(double) = StorageDouble::start(&options, few) else { return };
    let output = copy(&double, &["--json"]);
    assert_exit(&output, 0);
    let text = String::from_utf8_lossy(&output.stdout);
    let done = text.lines().filter_map(|line| {
        let event: serde_json::Value = serde_json::from_str(line).unwrap();
        (event["event"] == "progress").then(|| event["entries_done"].as_u64().unwrap())
    });
    assert!(done.clone().any(|done| (1..100).contains(&done)), "{:?}", done.collect::<Vec<_>>());
    double.ask("clear");
    assert_same(&double.path("from"), &double.local("to"));
}

#[test]
fn what_the_user_has_chosen_stays() {
    let Some(double) = double() else { return };
    for more in [&["--tune", "off"][..], &["--io-threads", "40", "--streams", "2"]] {
        let output = copy(&double, more);
        assert_exit(&output, 0);
        assert!(!talk(&output).contains("readers"), "{}", talk(&output));
        double.ask("clear");
        fs::remove_dir_all(double.local("to")).unwrap();
    }
}
