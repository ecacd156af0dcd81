//! File systems that the scripts of `testbed/` start and mount, to copy to and from.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::process::{Running, assert_exit, json, run};
use super::tree::{assert_same, noise};
use super::{CARRACK, skip};

/// Time after which the servers end on their own, if a test program was killed; longer tests set it in the
/// environment.
const LIFETIME_S: &str = "600";

/// Longest copy: each request goes through several processes, all of which wait for their turns on a busy
/// machine.
const COPIES_WITHIN: Duration = Duration::from_secs(240);

/// A mounted file system; on drop it is unmounted and its servers end.
pub struct FileSystem {
    kind: &'static str,
    root: tempfile::TempDir,
    is_up: AtomicBool,
    is_hung: AtomicBool,
}

impl Drop for FileSystem {
    fn drop(&mut self) {
        if !self.is_up.load(Relaxed) {
            return;
        }
        let down = self.script(&["down"], &[]);
        // A second panic would hide the first.
        if !std::thread::panicking() {
            down.unwrap_or_else(|why| panic!("{} does not end: {why}", self.kind));
        }
    }
}

impl FileSystem {
    /// Runs `testbed/KIND up`; `None`, with a printed reason, where it can't run.
    #[track_caller]
    pub fn start(kind: &'static str, options: &[&str]) -> Option<FileSystem> {
        FileSystem::start_in(tempfile::tempdir().unwrap(), kind, options)
    }

    /// Runs it in a given directory.
    #[track_caller]
    pub fn start_in(root: tempfile::TempDir, kind: &'static str, options: &[&str]) -> Option<FileSystem> {
        let file_system =
            FileSystem { kind, root, is_up: AtomicBool::new(false), is_hung: AtomicBool::new(false) };
        match file_system.script(&["up"], options) {
            Ok(_) => {
                file_system.is_up.store(true, Relaxed);
                Some(file_system)
            }
            Err(reason) => {
                skip(&format!("no {kind} to test with: {reason}"));
                None
            }
        }
    }

    /// Returns the output of one of the script's actions.
    pub fn script(&self, action: &[&str], words: &[&str]) -> Result<String, String> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testbed").join(self.kind);
        let mut command = Command::new(script);
        command.args(action).arg(self.beneath("")).args(words).stdin(Stdio::null());
        if std::env::var_os("CARRACK_TESTBED_LIFETIME_S").is_none() {
            command.env("CARRACK_TESTBED_LIFETIME_S", LIFETIME_S);
        }
        // The doubles are built into the command's directory.
        for (variable, program) in [
            ("CARRACK_TESTBED_LUSTRE", "carrack-testbed-lustre"),
            ("CARRACK_TESTBED_STORAGE", "carrack-testbed-storage"),
        ] {
            command.env(variable, Path::new(CARRACK).with_file_name(program));
        }
        succeed(command.output())
    }

    /// Returns a path in the directory of its files, and those of its servers.
    pub fn beneath(&self, path: &str) -> PathBuf {
        self.root.path().join("testbed").join(path)
    }

    /// Returns a path in the file system.
    pub fn path(&self, path: &str) -> PathBuf {
        self.beneath("mnt").join(path)
    }

    /// Returns a path on this host's own file system.
    pub fn local(&self, path: &str) -> PathBuf {
        self.root.path().join(path)
    }

    /// Copies with the command under test, which must succeed without a failure.
    #[track_caller]
    pub fn copy(&self, arguments: &[impl AsRef<OsStr>]) {
        let mut command = Command::new(CARRACK);
        command.args(["cp", "-r"]).args(arguments).current_dir(self.root.path());
        match Running::start(&mut command).try_end_within(COPIES_WITHIN) {
            Ok(output) => assert_exit(&output, 0),
            Err(running) => self.end_hung(running),
        }
    }

    /// Ends a hung file system: a process that waits for its reply can't be killed before.
    #[track_caller]
    fn end_hung(&self, running: Running) {
        let waits_in = running.waits_in();
        let is_asking = waits_in.iter().any(|call| call.contains("request_wait_answer"));
        self.is_hung.store(is_asking, Relaxed);
        self.is_up.store(false, Relaxed);
        let down = self.script(&["down"], &["--hung"]);
        drop(running);
        panic!("a copy does not end; its threads are in {waits_in:?}, {} ended: {down:?}", self.kind);
    }

    /// Runs a test in a file system, and once more in a fresh one if its client has left a copy's requests
    /// unanswered: that can't be the fault of the command.
    #[track_caller]
    pub fn try_twice(start: impl Fn() -> Option<FileSystem>, test: impl Fn(&FileSystem)) {
        let Some(first) = start() else { return };
        let Err(panic) = catch_unwind(AssertUnwindSafe(|| test(&first))) else { return };
        if !first.is_hung.load(Relaxed) {
            resume_unwind(panic);
        }
        eprintln!("{} has hung; once more", first.kind);
        if let Some(second) = start() {
            test(&second);
        }
    }

    /// Copies a tree that `plant` makes in and out again, and compares it each time; then other contents
    /// replace some.
    #[track_caller]
    pub fn takes_and_gives_back(&self, plant: impl Fn(&Path)) {
        self.takes_and_gives_back_as(plant, assert_same);
    }

    /// Does the same for file systems that can't keep everything: `assert_alike` has the comparison.
    #[track_caller]
    pub fn takes_and_gives_back_as(&self, plant: impl Fn(&Path), assert_alike: impl Fn(&Path, &Path)) {
        let (tree, back) = (self.local("tree"), self.local("back"));
        plant(&tree);
        plant_large(&tree, 0);
        self.copy(&[&tree, &self.path("tree")]);
        assert_alike(&tree, &self.path("tree"));
        self.copy(&[&self.path("tree"), &back]);
        assert_alike(&tree, &back);

        plant_large(&tree, 1);
        self.copy(&[Path::new("tree/large"), &self.path("tree")]);
        assert_alike(&tree.join("large"), &self.path("tree/large"));
    }

    /// Returns the output of a program about a path in it.
    #[track_caller]
    pub fn ask(&self, program: &str, arguments: &[&str], path: &str) -> String {
        succeed(Command::new(program).args(arguments).arg(self.path(path)).stdin(Stdio::null()).output())
            .unwrap()
    }
}

/// Plants files of many objects, whose sizes end within a stripe, an object and a block.
pub fn plant_large(root: &Path, seed: usize) {
    fs::create_dir_all(root.join("large")).unwrap();
    for bytes in [5_000_001, 12 << 20, 33_333_333] {
        fs::write(root.join("large").join(bytes.to_string()), noise(bytes + seed)).unwrap();
    }
}

/// Returns the output; if the program failed, its error.
fn succeed(output: io::Result<Output>) -> Result<String, String> {
    match output {
        Ok(output) if output.status.success() => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        Ok(output) => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        Err(error) => Err(error.to_string()),
    }
}

// Layouts.

/// Returns the report of `carrack layout --json` on a file.
#[track_caller]
pub fn layout(path: &Path) -> Layout {
    layout_with(path, &[])
}

/// Returns the same, with additions to the environment.
#[track_caller]
pub fn layout_with(path: &Path, environment: &[(&str, PathBuf)]) -> Layout {
    let mut command = Command::new(CARRACK);
    command.args(["layout", "--json"]).arg(path).envs(environment.iter().cloned());
    let output = run(&mut command);
    assert_exit(&output, 0);
    let [said] = &json(&output)[..] else { panic!("one file, one line") };
    let number = |name: &str| said[name].as_u64();
    let targets = said["targets"].as_array().unwrap().iter();
    let bytes_on = |target: &serde_json::Value| {
        (target["target"].as_str().unwrap().to_owned(), target["bytes"].as_u64().unwrap())
    };
    Layout {
        file_system: said["file_system"].as_str().unwrap().to_owned(),
        stripe_bytes: number("stripe_size"),
        stripe_count: number("stripe_count"),
        bytes_on: targets.map(bytes_on).filter(|(_, bytes)| *bytes > 0).collect(),
    }
}

/// A file's layout, as the command reports it.
#[derive(Debug, PartialEq, Eq)]
pub struct Layout {
    pub file_system: String,
    pub stripe_bytes: Option<u64>,
    pub stripe_count: Option<u64>,
    /// By the targets' names; only targets with bytes.
    pub bytes_on: BTreeMap<String, u64>,
}
