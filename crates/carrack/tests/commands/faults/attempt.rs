//! One command from its start to its end: faults hit it, and it must not hang.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::fault::{Fault, Part};
use super::injector::{Injector, Now};
use super::plan::Plan;
use super::processes;
use super::promises::RETRIES;
use super::set::Set;
use super::stage::Stage;

/// More than any command takes here, with any faults.
const DEADLINE: Duration = Duration::from_secs(60);

/// Time after which a user would end a command that waits without a limit for a reply that never comes.
const USERS_PATIENCE: Duration = Duration::from_secs(3);

/// Time after which the processes of an ended attempt are gone.
const FAREWELL: Duration = Duration::from_secs(15);

const TICK: Duration = Duration::from_millis(5);

/// Ticks between two searches for the processes of the attempt.
const CENSUS_TICKS: usize = 10;

/// The end of a command.
pub struct Ended {
    pub status: ExitStatus,
    pub seconds: f64,
    /// Bytes through the network; within one host, written bytes.
    pub moved: u64,
    /// True if it was killed because it hung, which is its fault.
    pub hung: bool,
    /// True if it was killed while it waited, without a promise to end.
    pub given_up: bool,
    /// The faults that hit it.
    pub hits: Vec<Fault>,
    /// True if a fault hit before the session was established.
    pub hit_early: bool,
    pub stdout: String,
    pub stderr: String,
}

pub struct Attempt<'a> {
    pub number: usize,
    pub plan: &'a Plan,
    pub stage: &'a mut Stage,
    pub set: &'a mut Set,
    pub injector: &'a mut Injector,
    /// Processes of the attempt, whose end is awaited.
    pub seen: &'a mut BTreeSet<i32>,
}

/// A running command, which is killed on drop.
struct Command(Child);

impl Drop for Command {
    fn drop(&mut self) {
        // It fails only for a process that has ended.
        let _ = self.0.kill().and_then(|()| self.0.wait());
    }
}

/// The state of a running command.
struct Watch {
    caller: i32,
    began: Instant,
    connected: Option<Instant>,
    ticks: usize,
    /// Counters of the network and of the injector at the beginning.
    moved_before: u64,
    hits_before: usize,
    /// Bytes that the caller wrote.
    written: u64,
    hung: bool,
    given_up: bool,
    hit_early: bool,
}

impl Attempt<'_> {
    pub fn run(mut self) -> Ended {
        let mut command = self.start();
        let mut watch = Watch {
            caller: command.0.id() as i32,
            began: Instant::now(),
            connected: None,
            ticks: 0,
            moved_before: self.stage.network.moved(),
            hits_before: self.injector.hits.len(),
            written: 0,
            hung: false,
            given_up: false,
            hit_early: false,
        };
        let status = loop {
            if let Some(status) = command.0.try_wait().unwrap() {
                break status;
            }
            self.tick(&mut watch);
            thread::sleep(TICK);
        };
        self.injector.end_attempt(self.stage);
        Ended {
            status,
            seconds: watch.began.elapsed().as_secs_f64(),
            moved: self.moved(&watch),
            hung: watch.hung,
            given_up: watch.given_up,
            hit_early: watch.hit_early,
            hits: self.injector.hits[watch.hits_before..].to_vec(),
            stdout: self.said("stdout"),
            stderr: self.said("stderr"),
        }
    }

    fn tick(&mut self, watch: &mut Watch) {
        watch.written = processes::written(watch.caller).unwrap_or(watch.written);
        if watch.connected.is_none() && self.said("stdout").contains("\"connected\"") {
            watch.connected = Some(Instant::now());
        }
        let now = Now {
            attempt: self.number,
            caller: watch.caller,
            since_start: watch.began.elapsed(),
            since_connected: watch.connected.map(|at| at.elapsed()),
            passed: self.moved(watch),
        };
        self.injector.tick(&now, self.stage, self.set);
        watch.hit_early |= watch.connected.is_none() && self.injector.hits.len() > watch.hits_before;
        if self.plan.has(Fault::Full) && self.stage.sink_is_full() {
            self.injector.is_full();
        }
        if watch.ticks.is_multiple_of(CENSUS_TICKS) {
            self.look_around(watch.caller);
        }
        watch.ticks += 1;
        watch.given_up = self.user_gives_up(&self.injector.hits[watch.hits_before..], watch.began);
        watch.hung = watch.began.elapsed() > DEADLINE;
        if watch.given_up || watch.hung {
            self.note_where_it_hangs(watch.caller);
            processes::signal(watch.caller, Signal::KILL);
        }
    }

    /// Returns the bytes moved in this attempt.
    fn moved(&self, watch: &Watch) -> u64 {
        match self.plan.way.is_far() {
            true => self.stage.network.moved() - watch.moved_before,
            false => watch.written,
        }
    }

    fn start(&self) -> Command {
        let file = |kind| File::create(self.stage.path(&format!("attempt-{}.{kind}", self.number))).unwrap();
        let mut command = self.stage.command(self.plan);
        command.stdin(Stdio::null()).stdout(file("stdout")).stderr(file("stderr")).process_group(0);
        Command(command.spawn().unwrap())
    }

    fn said(&self, kind: &str) -> String {
        let bytes = fs::read(self.stage.path(&format!("attempt-{}.{kind}", self.number))).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn look_around(&mut self, caller: i32) {
        self.seen.extend([caller].into_iter().chain(processes::descendants(caller)));
        self.seen.extend(self.stage.processes(Part::Far, caller));
    }

    /// Returns true if a fault stalls the command, and it has no limit to notice that.
    fn user_gives_up(&self, hits: &[Fault], began: Instant) -> bool {
        let patience = USERS_PATIENCE + Duration::from_secs_f64(self.plan.expected_s() * 3.0);
        !RETRIES && hits.iter().any(|fault| fault.may_stall()) && began.elapsed() > patience
    }

    /// Records the kernel's wait channel of each thread.
    fn note_where_it_hangs(&self, caller: i32) {
        let mut text = String::new();
        for pid in [vec![caller], self.stage.processes(Part::Far, caller)].concat() {
            let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
            for task in tasks {
                let read = |name| fs::read_to_string(task.path().join(name)).unwrap_or_default();
                text.push_str(&format!(
                    "{pid} {}: {}\n{}\n",
                    read("comm").trim(),
                    read("wchan"),
                    read("stack")
                ));
            }
        }
        // The record is for people, and not essential.
        let _ = fs::write(self.stage.path(&format!("attempt-{}.threads", self.number)), text);
    }
}

/// Waits until all these processes are gone; returns those that stay.
pub fn await_end(seen: &BTreeSet<i32>) -> Vec<i32> {
    let deadline = Instant::now() + FAREWELL;
    loop {
        let alive: Vec<i32> = seen.iter().copied().filter(|&pid| processes::is_alive(pid)).collect();
        if alive.is_empty() || Instant::now() > deadline {
            return alive;
        }
        thread::sleep(TICK);
    }
}

impl Ended {
    pub fn is_success(&self) -> bool {
        self.status.code() == Some(0)
    }

    /// Returns the problems of the end itself.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let was_killed = self.given_up || self.hits.contains(&Fault::Kill(Part::Caller));
        match (self.status.code(), self.status.signal()) {
            _ if self.hung => problems.push(format!("hangs for {:.0} s", self.seconds)),
            (Some(code @ (0 | 1 | 3)), _) if self.summary_code() != Some(code) => {
                problems.push(format!("ended with {code}, but said {:?}", self.summary_code()));
            }
            (Some(0 | 1 | 3), _) => {}
            // Its session ends as after an interruption by the user.
            (Some(130), _) if !RETRIES && self.hits.contains(&Fault::Kill(Part::Daemon)) => {}
            (Some(code), _) => problems.push(format!("ended with {code}")),
            (None, Some(9)) if was_killed => {}
            (None, signal) => problems.push(format!("ended by signal {signal:?}")),
        }
        if self.stderr.contains("panicked at") {
            problems.push("panicked".to_owned());
        }
        problems
    }

    /// Returns the exit code in the last line.
    fn summary_code(&self) -> Option<i32> {
        let last: serde_json::Value = serde_json::from_str(self.stdout.lines().last()?).ok()?;
        (last["event"] == "summary").then(|| last["exit_code"].as_i64())?.map(|code| code as i32)
    }
}
