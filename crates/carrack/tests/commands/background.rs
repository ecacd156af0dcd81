//! The register of a user's copies: `carrack cp --background`, and `transfers`, `status`, `log`, `wait`,
//! `cancel` and `resume` of copies.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use rustix::process::{Pid, Signal, kill_process};

use crate::common::CARRACK;
use crate::common::process::{assert_exit, assert_says, json, run, wait_for};
use crate::common::tree::noise;

const FILE_BYTES: usize = 6_000_000;
/// Options by which the file takes seconds.
const SLOW: [&str; 2] = ["--bwlimit", "1MB"];

/// A home directory, with a file to copy.
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

    /// Runs carrack; no process that is left has its output files open.
    fn carrack(&self, arguments: &[&str]) -> Output {
        run(&mut self.command(arguments))
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(CARRACK);
        command.args(arguments).current_dir(self.0.path());
        for name in ["HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR"] {
            command.env(name, self.0.path());
        }
        command
    }

    fn start(&self, more: &[&str]) -> Output {
        self.carrack(&[&["cp", "--background"], more, &["file", "copy"]].concat())
    }

    /// Starts a copy and returns its ID.
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
    assert!(String::from_utf8_lossy(&listed.stdout).contains(&id[..12]), "{listed:?}");
    let again = home.start(&SLOW);
    assert_exit(&again, 3);
    assert_says(&again, &["runs already", "carrack cancel"]);

    let ended = home.carrack(&["wait", &id]);
    assert_exit(&ended, 0);
    assert_says(&ended, &["copied 1 file"]);
    assert!(home.is_whole());
    assert!(home.status(&id).starts_with(&format!("{id}  done\n")));
    assert_eq!(home.carrack(&["resume"]).stdout, b"", "nothing is left to go on with");
    // The copy is over, and may be started again.
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
    // Its parent is gone: the process that adopts it may reap it late.
    wait_for("its end", || home.status(&id).starts_with(&format!("{id}  killed\n")).then_some(()));
    let waited = home.carrack(&["wait", &id]);
    assert_exit(&waited, 3);
    assert_says(&waited, &["was killed", "carrack resume"]);
    assert_exit(&home.carrack(&["resume", &id]), 0);
    assert!(home.is_whole());
}

#[test]
fn copies_in_the_foreground_are_listed_too() {
    let home = Home::new();
    let listed = |arguments: &[&str]| {
        let listed = home.carrack(arguments);
        assert_exit(&listed, 0);
        String::from_utf8(listed.stdout).unwrap()
    };
    assert_eq!(
        (listed(&["transfers"]), listed(&["status"])),
        ("no transfers\n".into(), "no transfers\n".into())
    );
    assert_exit(&home.carrack(&["cp", "--label", "the first", "file", "copy"]), 0);
    assert_exit(&home.carrack(&["cp", "-n", "file", "listed only"]), 0);
    assert_exit(&home.carrack(&["cp", "file", "no/such/directory/copy"]), 3);
    assert_exit(&home.carrack(&["cp", "--stop-at", "4s", "--bwlimit", "1MB", "file", "other"]), 124);
    let text = listed(&["transfers"]);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 3, "{text}");
    let (latest, first) =
        if lines[1].contains("to other") { (lines[1], lines[2]) } else { (lines[2], lines[1]) };
    assert!(
        latest.contains("out of time")
            && first.contains("done")
            && first.ends_with("file to copy  (the first)"),
        "{text}"
    );
    assert_eq!(listed(&["status"]), "no transfers\n");

    let copies = json(&home.carrack(&["transfers", "--json"]));
    let copy = copies.iter().find(|copy| copy["label"] == "the first").unwrap();
    assert_eq!(
        (&copy["exit"], &copy["bytes_done"], &copy["state"]),
        (&0.into(), &FILE_BYTES.into(), &"done".into())
    );
    let id = copy["id"].as_str().unwrap();
    assert!(first.starts_with(&id[..12]), "{text}");
    let shown = home.status(&id[..12]);
    assert!(shown.contains("label        the first") && shown.contains("log          /"), "{shown}");
    assert!(listed(&["log", id]).contains("copied 1 file"));
    assert_exit(&home.carrack(&["wait", id]), 0);
    assert_says(&home.carrack(&["pause", id]), &["no copy waits", "carrack cancel"]);
    assert_says(&home.carrack(&["resume", id]), &["there is no copy"]);
    // The stopped copy resumes.
    let other = copies.iter().find(|copy| copy["destination"] == "other").unwrap()["id"].as_str().unwrap();
    assert!(listed(&["log", other]).contains("--stop-at"));
    assert_exit(&home.carrack(&["retry", other]), 0);
    assert!(home.status(other).starts_with(&format!("{other}  done\n")));
}

/// Input from a pipe is gone when the command runs again, or in another process: without its patterns the
/// sync would delete the files that they keep.
#[test]
fn what_comes_by_a_pipe_is_no_part_of_another_run() {
    let home = Home::new();
    fs::create_dir_all(home.path("kept")).unwrap();
    fs::write(home.path("kept/precious"), "x").unwrap();
    fs::create_dir(home.path("tree")).unwrap();
    fs::write(home.path("tree/file"), noise(FILE_BYTES)).unwrap();
    let sync = |more: &[&str]| {
        let words = [&["sync", "--delete", "--filter-from", "-"], more, &["tree/", "kept"]].concat();
        let mut command = home.command(&words);
        command.stdin(fs::File::open(home.path("patterns")).unwrap());
        run(&mut command)
    };
    fs::write(home.path("patterns"), "precious\n").unwrap();
    let refused = sync(&["--background"]);
    assert_exit(&refused, 2);
    assert_says(&refused, &["--filter-from", "a pipe"]);
    assert_exit(&sync(&["--bwlimit", "1MB", "--timeout", "1"]), 124);
    let copies = json(&home.carrack(&["transfers", "--json"]));
    let again = home.carrack(&["resume", copies[0]["id"].as_str().unwrap()]);
    assert_exit(&again, 3);
    assert_says(&again, &["not kept"]);
    assert!(home.path("kept/precious").exists());
}

/// The process has ended without a record of its end.
#[test]
fn one_that_is_dead_does_not_run() {
    let home = Home::new();
    let mut copying = home.command(&["cp", "--bwlimit", "1MB", "file", "copy"]).spawn().unwrap();
    let id = wait_for("its note", || {
        let running = json(&home.carrack(&["status", "--json"]));
        Some(running.first()?["id"].as_str()?.to_owned())
    });
    copying.kill().unwrap();
    wait_for("its end", || home.status(&id).starts_with(&format!("{id}  killed\n")).then_some(()));
    assert_exit(&home.carrack(&["wait", &id]), 3);
    copying.wait().unwrap();
}

#[test]
fn the_beginning_of_several_ids_is_none() {
    let home = Home::new();
    assert_exit(&home.carrack(&["cp", "file", "copy"]), 0);
    let notes = home.path("carrack/transfers");
    let note = fs::read_dir(&notes).unwrap().map(|entry| entry.unwrap().path());
    let note = note.into_iter().find(|path| path.extension().is_some_and(|kind| kind == "json")).unwrap();
    let id = note.file_stem().unwrap().to_str().unwrap().to_owned();
    let other = format!("{}{}", &id[..31], if id.ends_with('0') { '1' } else { '0' });
    let text = fs::read_to_string(&note).unwrap().replace(&id, &other);
    fs::write(notes.join(format!("{other}.json")), text).unwrap();
    fs::write(notes.join(format!("{id}.old.json")), "{}").unwrap();
    for command in ["status", "log", "wait", "cancel", "pause"] {
        assert_says(&home.carrack(&[command, &id[..12]]), &["is the beginning of several copies"]);
    }
    assert!(home.status(&id).starts_with(&id));
    assert_says(&home.carrack(&["status", "0123456789ab"]), &["there is no transfer 0123456789ab"]);
}

#[test]
fn a_secret_is_not_kept() {
    let home = Home::new();
    assert_exit(&home.carrack(&["cp", "--token", "a.secret.b", "file", "copy"]), 0);
    let copies = json(&home.carrack(&["transfers", "--json"]));
    assert_eq!((copies.len(), &copies[0]["arguments"]), (1, &serde_json::json!([])));
    assert!(!copies[0].to_string().contains("secret"));
}

#[test]
fn one_with_a_terminal_is_waited_for_and_ended_too() {
    let home = Home::new();
    let mut command = home.command(&["cp", "--bwlimit", "1MB", "file", "copy"]);
    let mut copying = command.stderr(std::process::Stdio::null()).spawn().unwrap();
    let id = wait_for("its note", || {
        let running = json(&home.carrack(&["status", "--json"]));
        Some(running.first()?["id"].as_str()?.to_owned())
    });
    assert_exit(&home.carrack(&["cancel", &id]), 0);
    assert_exit(&home.carrack(&["wait", &id]), 130);
    assert_eq!(copying.wait().unwrap().code(), Some(130));
}
