//! The wiring of the command: arguments to exit code, the session over an ssh stand-in, signals.
//!
//! The stand-in runs the far command here, in another directory, as ssh does: host first, then the command's words.

#![allow(clippy::unwrap_used)] // Also in helpers.

mod book;
mod common;

use std::fs;
use std::ops::Deref;
use std::path::Path;
use std::process::{Command, Output};

use rustix::process::Signal;

use common::process::{Running, assert_exit, assert_says, json, run, talk, wait_for};
use common::tree::{assert_same, plant};
use common::{CARRACK, Places};

/// The least that `--object-size` takes.
const OBJECT_BYTES_MIN: usize = 128 << 10;

/// The near place is where commands run, the far one the home on the other host.
struct World(Places);

impl Deref for World {
    type Target = Places;

    fn deref(&self) -> &Places {
        &self.0
    }
}

impl World {
    fn new() -> World {
        World(Places::new())
    }

    /// An ssh that runs the far command here.
    fn working_ssh(&self) -> String {
        self.script("working", &format!("shift; cd '{}' && exec sh -c \"$*\"", self.far("").display()))
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(CARRACK);
        command.args(arguments).current_dir(self.near("")).env("CARRACK_SSH", self.working_ssh());
        command
    }

    #[track_caller]
    fn run(&self, arguments: &[&str]) -> Output {
        run(&mut self.command(arguments))
    }

    /// With the far carrack named.
    #[track_caller]
    fn copy(&self, arguments: &[&str]) -> Output {
        self.run(&[&["cp", "--remote-carrack", CARRACK][..], arguments].concat())
    }
}

#[test]
fn nonsense_is_a_usage_error_with_a_hint() {
    let world = World::new();
    for arguments in
        [&["cp", "g:a", "i", "h:b"][..], &["cp", "-ohost:a", "b"], &["cp", "--buffer", "1MiB", "a", "b"]]
    {
        let output = world.run(arguments);
        assert_exit(&output, 2);
        assert!(output.stdout.is_empty());
    }
    assert!(talk(&world.run(&["cp", "g:a", "i", "h:b"])).contains("\nhint: run carrack once for each host"));
}

/// What a directory gets that no source gives a mode: as mkdir(1) makes it.
#[test]
fn a_destination_that_is_made_has_the_users_umask() {
    use std::os::unix::fs::PermissionsExt;
    let world = World::new();
    std::fs::write(world.near("a"), "a").unwrap();
    std::fs::write(world.near("b"), "b").unwrap();
    for (umask, mode) in [("027", 0o750), ("077", 0o700)] {
        let script = format!("umask {umask}; exec \"$0\" cp a b new{umask}/");
        let mut shell = Command::new("sh");
        let ended = shell.args(["-c", &script, CARRACK]).current_dir(world.near("")).output().unwrap();
        assert_exit(&ended, 0);
        let made = std::fs::metadata(world.near(&format!("new{umask}"))).unwrap();
        assert_eq!(made.permissions().mode() & 0o7777, mode);
    }
}

#[test]
fn a_tree_within_this_host() {
    let world = World::new();
    plant(&world.near("tree"));
    let output = world.run(&["cp", "-r", "tree", "copy"]);
    assert_exit(&output, 0);
    assert!(output.stdout.is_empty());
    assert!(talk(&output).starts_with("carrack: copied 4 files"), "{}", talk(&output));
    assert_same(&world.near("tree"), &world.near("copy"));
}

/// A thread that has read some of a file lets others go on with it: also when as many files are open as may be (128), and more wait.
#[test]
fn more_large_files_than_may_be_open() {
    let world = World::new();
    let from = world.near("from");
    fs::create_dir(&from).unwrap();
    for number in 0..150 {
        // More than a thread reads in a row, which is 16 objects; no holes, which are not read.
        fs::write(from.join(number.to_string()), vec![7; 17 * OBJECT_BYTES_MIN + number]).unwrap();
    }
    assert_exit(&world.run(&["cp", "-r", "--object-size", "128KiB", "from", "to"]), 0);
    assert_same(&from, &world.near("to"));
}

#[test]
fn a_tree_to_the_far_host_and_back() {
    let world = World::new();
    plant(&world.near("tree"));
    let there = world.copy(&["-r", "tree", "localhost:"]);
    assert_exit(&there, 0);
    assert_same(&world.near("tree"), &world.far("tree"));
    assert_says(&there, &["data travelled private over 2 connections, sealed with aes-256-gcm"]);
    let back = world.copy(&["-r", "localhost:tree/", "back"]);
    assert_exit(&back, 0);
    assert_same(&world.near("tree"), &world.near("back"));
}

#[test]
fn looking_making_and_removing_here_and_over_ssh() {
    let world = World::new();
    for (prefix, place) in [("", world.near("")), ("localhost:", world.far(""))] {
        let at = |path: &str| format!("{prefix}{path}");
        let go = |command: &str, more: &[&str]| {
            world.run(&[&[command, "--remote-carrack", CARRACK][..], more].concat())
        };
        assert_exit(&go("mkdir", &["-p", &at("d/e")]), 0);
        fs::write(place.join("d/f"), "12345").unwrap();
        let listed = go("ls", &[&at("d")]);
        assert_exit(&listed, 0);
        let mut names: Vec<&[u8]> = listed.stdout.split_inclusive(|&byte| byte == b'\n').collect();
        names.sort_unstable();
        assert_eq!(names, [b"e\n", b"f\n"]);
        let stat = go("stat", &["--json", &at("d/f"), &at("none")]);
        assert_exit(&stat, 1);
        assert_eq!((json(&stat).len(), &json(&stat)[0]["size_bytes"]), (1, &5.into()));
        assert_says(&stat, &["none: No such file or directory"]);
        assert_exit(&go("rm", &["-r", &at("d")]), 2);
        assert_exit(&go("rm", &["--yes", &at("d")]), 3);
        assert_exit(&go("rm", &["--yes", "-r", &at("d")]), 0);
        assert!(!place.join("d").exists());
    }
    let listed = world.run(&["ls"]);
    assert_exit(&listed, 0);
    let silent = world.script("silent", "exit 255");
    let lost = run(world.command(&["ls", "localhost:"]).env("CARRACK_SSH", silent));
    assert_exit(&lost, 3);
    assert_says(&lost, &["silent could not connect to localhost"]);
}

/// ssh's rule: nothing of a directory is created with more than the umask lets.
#[test]
fn the_umask_of_the_far_end_holds_for_directories() {
    use std::os::unix::fs::PermissionsExt;
    let world = World::new();
    let strict = world.script(
        "strict",
        &format!("umask 077; shift; cd '{}' && exec sh -c \"$*\"", world.far("").display()),
    );
    let words = ["mkdir", "--remote-carrack", CARRACK, "localhost:d"];
    assert_exit(&run(world.command(&words).env("CARRACK_SSH", strict)), 0);
    assert_eq!(fs::metadata(world.far("d")).unwrap().permissions().mode() & 0o777, 0o700);
}

#[test]
fn json_ends_with_the_summary() {
    let world = World::new();
    plant(&world.near("tree"));
    let output = world.copy(&["-r", "--json", "--checksum", "blake3", "tree", "localhost:"]);
    assert_exit(&output, 0);
    let events = json(&output);
    let of = |name: &str| events.iter().filter(|event| event["event"] == name).count();
    assert_eq!((of("connected"), of("file_digest"), of("summary")), (1, 4, 1));
    let last = events.last().unwrap();
    assert_eq!((&last["event"], &last["exit_code"]), (&"summary".into(), &0.into()));
    assert!(talk(&output).is_empty(), "{}", talk(&output));
}

#[test]
fn a_manifest_holds_each_files_digest() {
    let world = World::new();
    plant(&world.near("tree"));
    let output = world.copy(&["-r", "--manifest", "sums", "tree", "localhost:copy"]);
    assert_exit(&output, 0);
    let sums = fs::read_to_string(world.near("sums")).unwrap();
    let big = blake3::hash(&fs::read(world.near("tree/big")).unwrap()).to_hex();
    assert!(sums.contains(&format!("{big}  big\n")), "{sums}");
    assert_eq!(sums.lines().count(), 4);
    assert_says(&output, &["can't find 1 file by its name"]);
}

#[test]
fn a_dry_run_lists_and_copies_nothing() {
    let world = World::new();
    plant(&world.near("tree"));
    let output = world.copy(&["-rn", "tree", "localhost:copy"]);
    assert_exit(&output, 0);
    assert!(output.stdout.split(|&b| b == b'\n').any(|line| line.ends_with(b"big")));
    assert!(!world.far("copy").exists());
}

#[test]
fn what_is_missing_is_named() {
    let world = World::new();
    fs::write(world.near("a"), "a").unwrap();
    fs::create_dir(world.near("to")).unwrap();
    let some = world.run(&["cp", "a", "missing", "to"]);
    assert_exit(&some, 1);
    assert_says(&some, &["missing"]);
    assert!(world.near("to/a").exists());
    assert_exit(&world.run(&["cp", "missing", "to"]), 3);
}

#[test]
fn ssh_explains_why_nobody_answers() {
    let world = World::new();
    fs::write(world.near("a"), "a").unwrap();
    for (script, words) in [("exit 255", "could not connect to h"), ("exit 127", "was not found on h")] {
        // Reads first: a far shell lives long enough to be spoken to.
        let ssh = world.script("broken", &format!("head -c 16 >/dev/null; {script}"));
        let mut command = world.command(&["cp", "--ssh", &ssh, "a", "h:"]);
        let output = run(command.env("CARRACK_SSH", "false"));
        assert_exit(&output, 3);
        assert_says(&output, &[words, "\nhint: "]);
    }
}

#[test]
fn a_signal_ends_it_and_its_ssh() {
    let world = World::new();
    fs::write(world.near("a"), "a").unwrap();
    let pid_file = world.near("pid");
    let script = format!("echo $$ >'{0}.new'; mv '{0}.new' '{0}'; exec sleep 1000", pid_file.display());
    let ssh = world.script("silent", &script);
    let running = Running::start(&mut world.command(&["cp", "--ssh", &ssh, "a", "h:"]));
    wait_for("ssh", || pid_file.exists().then_some(()));
    running.signal(Signal::TERM);
    assert_exit(&running.end(), 130);
    let ssh_pid = fs::read_to_string(&pid_file).unwrap();
    assert!(!Path::new("/proc").join(ssh_pid.trim()).exists());
}

#[test]
fn nobody_at_the_other_end_of_a_session_is_no_crash() {
    let output = World::new().run(&["session"]);
    assert_exit(&output, 3);
    assert!(talk(&output).is_empty(), "{}", talk(&output));
}

#[test]
fn what_storage_cannot_do_is_said_once() {
    let world = World::new();
    for name in ["one", "two"] {
        fs::create_dir_all(world.near("tree")).unwrap();
        fs::write(world.near("tree").join(name), vec![7; 3 << 20]).unwrap();
    }
    let output = world.copy(&["-r", "--stripe=4:1MiB", "tree", "far:striped"]);
    assert_exit(&output, 0);
    assert_eq!(talk(&output).matches("can't be striped").count(), 1, "{}", talk(&output));
    assert_same(&world.near("tree"), &world.far("striped"));
    // What asks for less than that is content with what there is.
    let output = world.copy(&["-r", "--stripe=auto", "tree", "far:auto"]);
    assert_exit(&output, 0);
    assert!(!talk(&output).contains("stripe"), "{}", talk(&output));
}

#[test]
fn targets_are_told_in_a_table_and_as_json() {
    let world = World::new();
    fs::write(world.near("f"), vec![7; 3 << 20]).unwrap();
    let output = world.copy(&["-v", "--max-inflight-per-target=2", "f", "far:g"]);
    assert_exit(&output, 0);
    for words in ["source targets:", "sink targets:", "3.0 MiB"] {
        assert!(talk(&output).contains(words), "{words}: {}", talk(&output));
    }
    let output = world.copy(&["--json", "--max-inflight-per-target=2", "f", "far:h"]);
    assert_exit(&output, 0);
    let sides: Vec<String> = String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter(|line| line["event"] == "targets" && line["targets"][0]["bytes"] == 3 << 20)
        .map(|line| line["side"].as_str().unwrap_or_default().to_owned())
        .collect();
    assert!(["source", "sink"].iter().all(|side| sides.iter().any(|told| told == side)), "{sides:?}");
}
