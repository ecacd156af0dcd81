//! `carrack cp --background`, and `status`, `wait`, `cancel` and `resume` of such a copy.
#![allow(clippy::unwrap_used)]

mod common;

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use common::CARRACK;
use common::process::{assert_exit, assert_says, json, run, wait_for};
use common::tree::noise;
use rustix::process::{Pid, Signal, kill_process};

const FILE_BYTES: usize = 6_000_000;
/// The file takes seconds.
const SLOW: [&str; 2] = ["--bwlimit", "1MB"];

/// A home, and a file to copy in it.
struct Home(tempfile::TempDir);

impl Home {
    fn new() -> Home {
        let home = Home(tempfile::tempdir().unwrap());
        fs::write(home.path("file"), noise(FILE_BYTES)).unwrap();
        home
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Its end leaves no process that has its files open.
    fn carrack(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(CARRACK);
        command.args(arguments).current_dir(self.0.path());
        for name in ["HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR"] {
            command.env(name, self.0.path());
        }
        run(&mut command)
    }

    fn start(&self, more: &[&str]) -> Output {
        self.carrack(&[&["cp", "--background"], more, &["file", "copy"]].concat())
    }

    /// One that is under way; its ID.
    #[track_caller]
    fn started(&self, more: &[&str]) -> String {
        let started = self.start(more);
        assert_exit(&started, 0);
        let id = String::from_utf8(started.stdout).unwrap().trim().to_owned();
        assert_eq!(id.len(), 32, "{id}");
        id
    }

    fn status(&self, id: &str) -> String {
        let status = self.carrack(&["status", id]);
        assert_exit(&status, 0);
        String::from_utf8(status.stdout).unwrap()
    }

    fn pid_of(&self, id: &str) -> Pid {
        let told = json(&self.carrack(&["status", "--json", id]));
        Pid::from_raw(told[0]["process"]["pid"].as_i64().unwrap() as i32).unwrap()
    }

    fn is_whole(&self) -> bool {
        fs::read(self.path("copy")).is_ok_and(|copy| copy == noise(FILE_BYTES))
    }
}

#[test]
fn a_copy_goes_on_without_its_command() {
    let home = Home::new();
    let id = home.started(&SLOW);
    assert!(!home.is_whole(), "it takes seconds");
    let shown = home.status(&id[..6]);
    assert!(shown.starts_with(&format!("{id}  running")) && shown.contains("to           copy"), "{shown}");
    let listed = home.carrack(&["status"]);
    assert_exit(&listed, 0);
    assert!(String::from_utf8_lossy(&listed.stdout).contains(&id), "{listed:?}");
    let again = home.start(&SLOW);
    assert_exit(&again, 3);
    assert_says(&again, &["runs in the background already", "carrack cancel"]);

    let ended = home.carrack(&["wait", &id]);
    assert_exit(&ended, 0);
    assert_says(&ended, &["copied 1 file"]);
    assert!(home.is_whole());
    assert!(home.status(&id).starts_with(&format!("{id}  done\n")));
    assert_eq!(home.carrack(&["resume"]).stdout, b"", "nothing is left to go on with");
    // It is over, and may be begun again.
    assert_exit(&home.start(&[]), 0);
}

#[test]
fn what_cannot_begin_says_so_at_once() {
    let home = Home::new();
    let wrong = home.carrack(&["cp", "--background", "missing", "copy"]);
    assert_exit(&wrong, 3);
    assert_says(&wrong, &["missing"]);
    let usage = home.carrack(&["cp", "--background", "file"]);
    assert_exit(&usage, 2);
    assert!(usage.stdout.is_empty());
}

#[test]
fn it_can_be_ended() {
    let home = Home::new();
    let id = home.started(&SLOW);
    assert_exit(&home.carrack(&["cancel", &id]), 0);
    assert_exit(&home.carrack(&["wait", &id]), 130);
    assert!(home.status(&id).starts_with(&format!("{id}  interrupted\n")));
    assert!(!home.path("copy").exists());
    let over = home.carrack(&["cancel", &id]);
    assert_exit(&over, 3);
    assert_says(&over, &["is over"]);
}

#[test]
fn one_that_was_killed_is_resumed() {
    let home = Home::new();
    let id = home.started(&SLOW);
    kill_process(home.pid_of(&id), Signal::KILL).unwrap();
    // It has no parent any more: whoever takes it in its place may take its time.
    wait_for("its end", || home.status(&id).starts_with(&format!("{id}  killed\n")).then_some(()));
    let waited = home.carrack(&["wait", &id]);
    assert_exit(&waited, 3);
    assert_says(&waited, &["was killed", "carrack resume"]);
    assert_exit(&home.carrack(&["resume", &id]), 0);
    assert!(home.is_whole());
}
