//! Processes with a time limit, and their output.

use std::fs::{self, File};
use std::io::{Read, Seek};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use super::CARRACK;

/// Many times the duration of any step on a slow machine that other processes use too.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// Calls `look` until it returns a value.
#[track_caller]
pub fn wait_for<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    wait_at_most(PATIENCE, what, look)
}

/// Calls `look` for at most this time.
#[track_caller]
pub fn wait_at_most<T>(patience: Duration, what: &str, look: impl FnMut() -> Option<T>) -> T {
    try_for(patience, look).unwrap_or_else(|| panic!("in vain: {what}"))
}

/// Calls `look` until it returns a value, for at most this time.
fn try_for<T>(patience: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + patience;
    loop {
        match look() {
            None if Instant::now() < deadline => thread::sleep(Duration::from_millis(5)),
            seen => return seen,
        }
    }
}

/// A process, which is killed on drop. It writes to files, so that processes which inherit its pipes can't
/// delay its end.
pub struct Running {
    child: Child,
    stdout: File,
    stderr: File,
}

impl Drop for Running {
    fn drop(&mut self) {
        // It fails only for a process that has ended.
        let _ = self.child.kill().and_then(|()| self.child.wait());
    }
}

impl Running {
    pub fn start(command: &mut Command) -> Running {
        let (stdout, stderr) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
        if command.get_envs().all(|(name, _)| name != "HOME" && name != "XDG_STATE_HOME") {
            // Transfers that fail on purpose must not be listed for the user of the tests.
            command.env("XDG_STATE_HOME", "/dev/null/state");
        }
        command.stdin(Stdio::null());
        command.stdout(stdout.try_clone().unwrap()).stderr(stderr.try_clone().unwrap());
        Running { child: command.spawn().unwrap(), stdout, stderr }
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Signals the process group, as a terminal does; the process must lead its group.
    pub fn signal_group(&self, signal: Signal) {
        kill_process_group(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits until stderr has these words.
    #[track_caller]
    pub fn wait_for_words(&self, words: &str) {
        self.wait_for_words_in(&self.stderr, words);
    }

    /// Waits until stdout has these words.
    #[track_caller]
    pub fn wait_for_report(&self, words: &str) {
        self.wait_for_words_in(&self.stdout, words);
    }

    /// Panics with what the process said in place of these words.
    #[track_caller]
    fn wait_for_words_in(&self, file: &File, words: &str) {
        try_for(PATIENCE, || said(file).contains(words).then_some(()))
            .unwrap_or_else(|| panic!("in vain: {words}, but:\n{}", said(&self.stderr)));
    }

    #[track_caller]
    pub fn end(self) -> Output {
        self.end_within(PATIENCE)
    }

    #[track_caller]
    pub fn end_within(self, patience: Duration) -> Output {
        self.try_end_within(patience).unwrap_or_else(|_| panic!("in vain: its end"))
    }

    /// Waits for its end; returns the process if it has not ended by then.
    pub fn try_end_within(mut self, patience: Duration) -> Result<Output, Running> {
        let deadline = Instant::now() + patience;
        loop {
            match self.child.try_wait().unwrap() {
                Some(status) => return Ok(self.output(status)),
                None if Instant::now() < deadline => thread::sleep(Duration::from_millis(5)),
                None => return Err(self),
            }
        }
    }

    /// Returns the kernel's wait channel of each thread.
    pub fn waits_in(&self) -> Vec<String> {
        let threads = fs::read_dir(format!("/proc/{}/task", self.id())).unwrap();
        threads.filter_map(|thread| fs::read_to_string(thread.ok()?.path().join("wchan")).ok()).collect()
    }

    fn output(&mut self, status: ExitStatus) -> Output {
        Output { status, stdout: contents(&mut self.stdout), stderr: contents(&mut self.stderr) }
    }
}

/// Reads at an offset: the file's own offset is the process's and must stay.
fn said(file: &File) -> String {
    let mut said = vec![0; file.metadata().unwrap().len() as usize];
    file.read_exact_at(&mut said, 0).unwrap();
    String::from_utf8_lossy(&said).into_owned()
}

/// Rewinds the file: the process, which shares the offset, writes no more.
fn contents(file: &mut File) -> Vec<u8> {
    let mut bytes = Vec::new();
    file.rewind().unwrap();
    file.read_to_end(&mut bytes).unwrap();
    bytes
}

/// A daemon with a configuration of its own. It is killed on drop, and its output is shown if the test fails.
pub struct Serving {
    child: Child,
    log: PathBuf,
}

impl Drop for Serving {
    fn drop(&mut self) {
        // It fails only for a process that has ended.
        let _ = self.child.kill().and_then(|()| self.child.wait());
        if thread::panicking() {
            eprintln!("{}", fs::read_to_string(&self.log).unwrap_or_default());
        }
    }
}

impl Serving {
    /// Starts a daemon; its output is appended to `log`.
    pub fn start(config: &Path, log: &Path) -> Serving {
        Serving::start_with(config, log, &[])
    }

    /// Starts a daemon with these variables.
    pub fn start_with(config: &Path, log: &Path, variables: &[(&str, &str)]) -> Serving {
        let said = fs::OpenOptions::new().append(true).create(true).open(log).unwrap();
        let mut command = Command::new(CARRACK);
        command.args(["serve", "--config"]).arg(config).stdin(Stdio::null());
        command.envs(variables.iter().copied());
        let child = command.stdout(Stdio::null()).stderr(said).spawn().unwrap();
        Serving { child, log: log.to_path_buf() }
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Ends the daemon with a signal, and waits for its end.
    pub fn end_by(mut self, signal: Signal) {
        self.signal(signal);
        self.child.wait().unwrap();
    }
}

/// Runs a command to its end.
#[track_caller]
pub fn run(command: &mut Command) -> Output {
    Running::start(command).end()
}

/// Returns its output to people.
pub fn talk(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[track_caller]
pub fn assert_exit(output: &Output, code: i32) {
    let printed = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(code), "{}\nIt printed:\n{printed:.4000}", talk(output));
}

#[track_caller]
pub fn assert_says(output: &Output, words: &[&str]) {
    for words in words {
        assert!(talk(output).contains(words), "{words:?} is not in:\n{}", talk(output));
    }
}

/// Returns the events of `--json`; each line must be one.
pub fn json(output: &Output) -> Vec<serde_json::Value> {
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}
