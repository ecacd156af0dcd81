//! `carrack tune` as a process: with records of transfers that read from slow storage, and with planted ones.
//!
//! The former are skipped, with their reason, where mounts are not allowed.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::common::CARRACK;
use crate::common::process::{assert_exit, assert_says, json, run, talk};
use crate::common::sshd::Sshd;
use crate::common::storage_double::StorageDouble;
use crate::common::tree::noise;

const DAY_S: u64 = 86_400;

/// A thread reads 5 MiB per second, and 16 can at once: the files take 7 s to 14 s, from eight threads on.
const SLOW: &str = "delay=200:read:count=all";

const FILES: usize = 12;
const FILE_BYTES: usize = 48 << 20;

/// Returns slow storage with some files of 1 MiB to 64 MiB in `from`.
fn double() -> Option<StorageDouble> {
    StorageDouble::start(&["--direct", "--threads", "16", "--rule", SLOW], |root| {
        fs::create_dir(root.join("from")).unwrap();
        for number in 0..FILES {
            fs::write(root.join(format!("from/{number}")), noise(FILE_BYTES + number)).unwrap();
        }
    })
}

fn here() -> String {
    rustix::system::uname().nodename().to_str().unwrap().to_lowercase()
}

/// Runs `carrack tune` with the records in a directory.
#[track_caller]
fn tune(state: &Path, arguments: &[&str]) -> Output {
    run(Command::new(CARRACK).arg("tune").args(arguments).env("XDG_STATE_HOME", state))
}

#[test]
fn a_copy_leaves_what_it_has_found_out() {
    let Some(double) = double() else { return };
    let (state, svg) = (double.local("state"), double.local("a.svg"));
    let copy = |more: &[&str]| {
        let mut command = Command::new(CARRACK);
        command
            .args(["cp", "-r", "--no-journal"])
            .args(more)
            .arg(double.path("from"))
            .arg(double.local("to"));
        assert_exit(&run(command.env("XDG_STATE_HOME", &state)), 0);
    };
    copy(&["--dry-run"]);
    assert!(!state.join("carrack/tuner").exists());
    copy(&[]);
    let here = here();
    let shown = tune(&state, &["show", &here, &here, "--json", "--svg", svg.to_str().unwrap()]);
    assert_exit(&shown, 0);
    let record = json(&shown).remove(0);
    assert_eq!((&record["source"], &record["size"]), (&here.into(), &"mixed".into()));
    let points = record["curves"]["readers"].as_array().unwrap();
    assert!(points.len() >= 2 && points[0]["bytes_per_s"].as_f64().unwrap() > 1e6, "{record}");
    let present = points.iter().find(|point| point["present"] == true).unwrap();
    assert_eq!(present["value"], record["values"]["readers"]);
    assert!(fs::read_to_string(svg).unwrap().contains("the present value"));
    double.ask("clear");
}

/// The record is kept at the end that reads, regardless of the initiator.
#[test]
fn a_session_that_reads_remembers_its_caller() {
    let (Some(sshd), Some(double)) = (Sshd::start(), double()) else { return };
    let (far_carrack, far_state) = (double.local("far-carrack"), double.local("far-state"));
    let script = format!("#!/bin/sh\nXDG_STATE_HOME='{}' exec '{CARRACK}' \"$@\"\n", far_state.display());
    fs::write(&far_carrack, script).unwrap();
    fs::set_permissions(&far_carrack, fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = Command::new(CARRACK);
    command.args(["cp", "-r", "--remote-carrack"]).arg(&far_carrack);
    command.arg(format!("carrack-test:{}", double.path("from").display())).arg(double.local("to"));
    command.env("CARRACK_SSH", sshd.ssh()).env("XDG_STATE_HOME", double.local("state"));
    assert_exit(&run(&mut command), 0);
    assert!(!double.local("state/carrack/tuner").exists());
    let shown = tune(&far_state, &["show", &here(), "127.0.0.1", "--json"]);
    assert_exit(&shown, 0);
    let record = json(&shown).remove(0);
    assert_eq!((&record["source"], &record["sink"]), (&here().into(), &"127.0.0.1".into()));
    double.ask("clear");
}

/// A user's records.
struct State {
    directory: tempfile::TempDir,
}

impl State {
    fn new() -> State {
        State { directory: tempfile::tempdir().unwrap() }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.directory.path().join(path)
    }

    #[track_caller]
    fn tune(&self, arguments: &[&str]) -> Output {
        tune(&self.path("state"), arguments)
    }

    /// Plants a record of large files, this number of days old.
    fn plant(&self, source: &str, sink: &str, days: u64) {
        let now_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let point = |value: u32, rate: f64| {
            serde_json::json!({
                "value": value, "rates": {"read": rate, "sent": rate, "written": rate}, "variance": 1e12, "loss": 0.0,
                "samples": 5, "at": {"secs": 1, "nanos": 0}, "is_current": true
            })
        };
        let content = serde_json::json!({
            "version": 1,
            "workload": {"source": source, "sink": sink, "size": "large"},
            "record": {
                "at_s": now_s - days * DAY_S,
                "values": {"readers": 16, "streams": 2, "writers": 8},
                "is_settled": true,
                "session": {"secs": 20, "nanos": 0},
                "bytes_per_s": 190_000_000,
                "curves": {"readers": [point(8, 100e6), point(16, 190e6)], "streams": [], "writers": []}
            }
        });
        let directory = self.path("state/carrack/tuner");
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join(file_name(source, sink)), content.to_string()).unwrap();
    }
}

/// Returns the name that `tuner_store.rs` gives the file.
fn file_name(source: &str, sink: &str) -> String {
    let mut hasher = blake3::Hasher::new_derive_key("carrack 2026 tuner workload v1");
    for site in [source, sink] {
        hasher.update(&(site.len() as u64).to_le_bytes()).update(site.as_bytes());
    }
    hasher.update(b"large");
    format!("{}.json", &hasher.finalize().to_hex()[..32])
}

fn printed(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn files(directory: &Path) -> usize {
    fs::read_dir(directory).unwrap().count()
}

#[test]
fn nothing_known_is_said_with_a_hint() {
    let state = State::new();
    for words in [&["show"][..], &["show", "--json"], &["forget"]] {
        let output = state.tune(words);
        assert_exit(&output, 3);
        assert_says(&output, &["nothing is known of transfers\n", "hint: a transfer of 5 s or more"]);
        assert!(output.stdout.is_empty());
    }
    // A record of a month ago is not used, but can be forgotten.
    state.plant("here", "dtn1", 31);
    assert_exit(&state.tune(&["show"]), 3);
    assert_exit(&state.tune(&["forget"]), 0);
    for words in [&[][..], &["turn"], &["show", "a", "b", "c"]] {
        assert_exit(&state.tune(words), 2);
    }
    let mut homeless = Command::new(CARRACK);
    homeless.args(["tune", "show"]).env_remove("HOME").env("XDG_STATE_HOME", "");
    let homeless = run(&mut homeless);
    assert_exit(&homeless, 3);
    assert_says(&homeless, &["hint: set HOME or XDG_STATE_HOME"]);
}

#[test]
fn the_only_workload_is_shown_in_three_forms() {
    let state = State::new();
    state.plant("here", "dtn1", 29);
    let svg = state.path("a.svg");
    let output = state.tune(&["show", "--svg", svg.to_str().unwrap()]);
    assert_exit(&output, 0);
    let table = printed(&output);
    assert!(table.starts_with("here → dtn1, files of 64 MiB and more on the average, found 20"), "{table}");
    assert!(table.contains("\nsettled at 16 readers, 2 streams, 8 writers: 190.0 MB/s\n"), "{table}");
    assert!(table.contains("\n*       16  190.0  1.0        5\n"), "{table}");
    let picture = fs::read_to_string(&svg).unwrap();
    assert!(picture.contains("here → dtn1, large files") && picture.contains("readers: 16<"), "{picture}");

    let object = json(&state.tune(&["show", "--json"])).remove(0);
    assert_eq!((&object["source"], &object["sink"]), (&"here".into(), &"dtn1".into()));
    assert_eq!((&object["values"]["writers"], &object["bytes_per_s"]), (&8.into(), &190_000_000.into()));
    assert_eq!(object["curves"]["readers"][1]["present"], true);

    let nowhere = state.tune(&["show", "--svg", "/nowhere/a.svg"]);
    assert_exit(&nowhere, 1);
    assert_says(&nowhere, &["/nowhere/a.svg"]);
    assert!(!nowhere.stdout.is_empty());
}

#[test]
fn many_are_listed_and_those_between_sites_shown() {
    let state = State::new();
    for (source, sink) in [("here", "dtn1"), ("here", "dtn2:99"), ("dtn1", "here")] {
        state.plant(source, sink, 0);
    }
    let list = printed(&state.tune(&["show"]));
    assert_eq!(list.lines().count(), 4, "{list}");
    assert!(list.starts_with("SOURCE  SINK "), "{list}");
    let some = printed(&state.tune(&["show", "HERE"]));
    assert_eq!(some.matches(" → ").count(), 2, "{some}");
    let one = state.tune(&["show", "here", "carrack://me@dtn2:99", "--json"]);
    assert_eq!(json(&one).len(), 1);
    let none = state.tune(&["show", "here", "dtn2"]);
    assert_exit(&none, 3);
    assert_says(&none, &["nothing is known of transfers from here to dtn2\n", "hint: `carrack tune show`"]);

    let forgotten = state.tune(&["forget", "here", "dtn1"]);
    assert_exit(&forgotten, 0);
    assert_eq!(talk(&forgotten), "carrack: workloads forgotten: 1\n");
    assert_eq!(files(&state.path("state/carrack/tuner")), 2);
    assert_exit(&state.tune(&["forget"]), 0);
    assert_eq!(files(&state.path("state/carrack/tuner")), 0);
}
