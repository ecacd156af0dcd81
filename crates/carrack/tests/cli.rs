//! The wiring of the command: arguments to exit code, the session over an ssh stand-in, signals.
//!
//! The stand-in runs the far command here, in another directory, as ssh does: host first, then the command's words.

#![allow(clippy::unwrap_used)] // Also in the helpers of tests.

use std::ffi::OsStr;
use std::fs;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

const CARRACK: &str = env!("CARGO_BIN_EXE_carrack");

/// Directories for one test: `near`, where commands run, and `far`, the home on the other host.
struct World {
    root: tempfile::TempDir,
}

impl World {
    fn new() -> World {
        let root = tempfile::tempdir().unwrap();
        for name in ["near", "far"] {
            fs::create_dir(root.path().join(name)).unwrap();
        }
        World { root }
    }

    fn near(&self, path: &str) -> PathBuf {
        self.root.path().join("near").join(path)
    }

    fn far(&self, path: &str) -> PathBuf {
        self.root.path().join("far").join(path)
    }

    /// An ssh that does `script` with the host as `$1` and the command behind it.
    fn ssh(&self, name: &str, script: &str) -> String {
        let path = self.root.path().join(name);
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path.into_os_string().into_string().unwrap()
    }

    fn working_ssh(&self) -> String {
        self.ssh("working", &format!("shift; cd '{}' && exec sh -c \"$*\"", self.far("").display()))
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(CARRACK);
        command.args(arguments).current_dir(self.near("")).env("CARRACK_SSH", self.working_ssh());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// With the far carrack named.
    fn copy(&self, arguments: &[&str]) -> Output {
        self.run(&[&["cp", "--remote-carrack", CARRACK][..], arguments].concat())
    }
}

/// A tree with what makes trees hard: sizes around the object's, empty things, links, odd names.
fn plant(root: &Path) {
    fs::create_dir_all(root.join("empty")).unwrap();
    fs::create_dir_all(root.join("sub/deep")).unwrap();
    let big: Vec<u8> = (0..3_000_000u32).map(|i| (i % 251) as u8).collect();
    fs::write(root.join("big"), &big).unwrap();
    fs::write(root.join("sub/small"), b"small").unwrap();
    fs::write(root.join("sub/deep/none"), b"").unwrap();
    fs::write(root.join(OsStr::from_bytes(b"sub/odd\n\xff")), b"odd").unwrap();
    fs::set_permissions(root.join("sub/small"), fs::Permissions::from_mode(0o640)).unwrap();
    std::os::unix::fs::symlink("sub/small", root.join("link")).unwrap();
}

/// Every path beneath a directory with type, mode, time and contents.
fn census(root: &Path) -> Vec<(PathBuf, u32, i64, i64, Vec<u8>)> {
    let mut found = Vec::new();
    let mut waiting = vec![root.to_owned()];
    while let Some(path) = waiting.pop() {
        let metadata = fs::symlink_metadata(&path).unwrap();
        let contents = match () {
            _ if metadata.is_symlink() => fs::read_link(&path).unwrap().as_os_str().as_bytes().to_vec(),
            _ if metadata.is_file() => fs::read(&path).unwrap(),
            _ => Vec::new(),
        };
        if metadata.is_dir() {
            waiting.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
        let (mtime, mtime_ns) =
            if metadata.is_symlink() { (0, 0) } else { (metadata.mtime(), metadata.mtime_nsec()) };
        let name = path.strip_prefix(root).unwrap().to_owned();
        found.push((name, metadata.mode(), mtime, mtime_ns, contents));
    }
    found.sort();
    found
}

fn talk(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[track_caller]
fn assert_exit(output: &Output, code: i32) {
    assert_eq!(output.status.code(), Some(code), "{}", talk(output));
}

fn json(output: &Output) -> Vec<serde_json::Value> {
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn nonsense_is_a_usage_error_with_a_hint() {
    let world = World::new();
    for arguments in
        [&["cp", "g:a", "h:b"][..], &["cp", "-ohost:a", "b"], &["cp", "--buffer", "1MiB", "a", "b"]]
    {
        let output = world.run(arguments);
        assert_exit(&output, 2);
        assert!(output.stdout.is_empty());
    }
    assert!(talk(&world.run(&["cp", "g:a", "h:b"])).contains("\nhint: third-party transfers"));
}

#[test]
fn a_tree_within_this_host() {
    let world = World::new();
    plant(&world.near("tree"));
    let output = world.run(&["cp", "-r", "tree", "copy"]);
    assert_exit(&output, 0);
    assert!(output.stdout.is_empty());
    assert!(talk(&output).starts_with("carrack: copied 4 files"), "{}", talk(&output));
    assert_eq!(census(&world.near("tree")), census(&world.near("copy")));
}

#[test]
fn a_tree_to_the_far_host_and_back() {
    let world = World::new();
    plant(&world.near("tree"));
    let there = world.copy(&["-r", "tree", "localhost:"]);
    assert_exit(&there, 0);
    assert_eq!(census(&world.near("tree")), census(&world.far("tree")));
    assert!(talk(&there).contains("data travelled in clear over 2 connections"), "{}", talk(&there));
    let back = world.copy(&["-r", "localhost:tree/", "back"]);
    assert_exit(&back, 0);
    assert_eq!(census(&world.near("tree")), census(&world.near("back")));
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
    assert!(talk(&output).contains("can't find 1 file by its name"), "{}", talk(&output));
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
    assert!(talk(&some).contains("missing"), "{}", talk(&some));
    assert!(world.near("to/a").exists());
    assert_exit(&world.run(&["cp", "missing", "to"]), 3);
}

#[test]
fn ssh_explains_why_nobody_answers() {
    let world = World::new();
    fs::write(world.near("a"), "a").unwrap();
    for (script, words) in [("exit 255", "could not connect to h"), ("exit 127", "was not found on h")] {
        let ssh = world.ssh("broken", script);
        let output =
            world.command(&["cp", "a", "h:"]).env("CARRACK_SSH", "false").args(["--ssh", &ssh]).output();
        let output = output.unwrap();
        assert_exit(&output, 3);
        assert!(talk(&output).contains(words) && talk(&output).contains("\nhint: "), "{}", talk(&output));
    }
}

/// Waits for a process that should end soon.
fn end_of(mut child: Child) -> Option<i32> {
    let deadline = Instant::now() + Duration::from_secs(20);
    while Instant::now() < deadline {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code();
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    child.kill().unwrap();
    panic!("it does not end");
}

#[test]
fn a_signal_ends_it_and_its_ssh() {
    let world = World::new();
    fs::write(world.near("a"), "a").unwrap();
    let pid_file = world.near("pid");
    let ssh = world.ssh(
        "silent",
        &format!("echo $$ >'{0}.new'; mv '{0}.new' '{0}'; exec sleep 1000", pid_file.display()),
    );
    let child = world.command(&["cp", "--ssh", &ssh, "a", "h:"]).spawn().unwrap();
    while !pid_file.exists() {
        std::thread::sleep(Duration::from_millis(10));
    }
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    assert_eq!(end_of(child), Some(130));
    let ssh_pid = fs::read_to_string(&pid_file).unwrap();
    assert!(!Path::new("/proc").join(ssh_pid.trim()).exists());
}

#[test]
fn nobody_at_the_other_end_of_a_session_is_no_crash() {
    let world = World::new();
    let mut child = world.command(&["session"]).spawn().unwrap();
    let mut said = Vec::new();
    child.stderr.take().unwrap().read_to_end(&mut said).unwrap();
    assert!(said.is_empty(), "{}", String::from_utf8_lossy(&said));
    assert!(end_of(child).is_some());
}
