//! Injects faults at their moments, and ends them again.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::chance::Chance;
use super::fault::{FLAKY_EVERY_MS, Fault, Ill, Part};
use super::plan::{Moment, Plan};
use super::processes;
use super::set::Set;
use super::stage::Stage;

/// Time after which a killed daemon is started again.
const RESTART: Duration = Duration::from_millis(300);

/// Attempts after which a fault that found no target is dropped.
const TRIES_MAX: usize = 2;

/// The present state of the command.
pub struct Now {
    pub attempt: usize,
    pub caller: i32,
    pub since_start: Duration,
    /// Time since the session was established.
    pub since_connected: Option<Duration>,
    /// Bytes through the network in this attempt.
    pub passed: u64,
}

/// The end of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Undo {
    Continue(i32),
    Lighten,
    Accelerate,
    RestartDaemon,
    StopBreaking,
    RightClock,
    Enlarge,
    Release,
}

struct Planned {
    fault: Fault,
    moment: Moment,
    attempts: usize,
}

pub struct Injector {
    chance: Chance,
    planned: Vec<Planned>,
    undoing: Vec<(Instant, Undo)>,
    breaks_next: Option<Instant>,
    /// Faults set at the storage; their hits are known only at the end.
    told: Vec<Fault>,
    /// Duration of a copy without faults.
    expected: Duration,
    bytes: u64,
    /// The faults that hit, in this order; a flaky network counts for each connection.
    pub hits: Vec<Fault>,
}

impl Injector {
    pub fn new(plan: &Plan) -> Injector {
        let planned = plan.faults.iter().filter(|(fault, _)| *fault != Fault::Full);
        Injector {
            chance: Chance::new(plan.seed ^ 0xfa_0175),
            planned: planned.map(|&(fault, moment)| Planned { fault, moment, attempts: 0 }).collect(),
            undoing: Vec::new(),
            breaks_next: None,
            told: Vec::new(),
            expected: Duration::from_secs_f64(plan.expected_s()),
            bytes: plan.bytes,
            hits: Vec::new(),
        }
    }

    /// Injects the faults that are due.
    pub fn tick(&mut self, now: &Now, stage: &mut Stage, set: &mut Set) {
        self.undo(stage, |at| at <= Instant::now());
        let (due, later) = std::mem::take(&mut self.planned).into_iter().partition(|it| self.is_due(it, now));
        self.planned = later;
        for planned in due {
            if matches!(planned.fault, Fault::Storage(_)) {
                self.tell(planned.fault, stage);
            } else if self.inject(planned.fault, now, stage, set) {
                self.hits.push(planned.fault);
            } else {
                self.planned.push(planned);
            }
        }
        if self.breaks_next.is_some_and(|at| at <= Instant::now()) {
            self.breaks_next = Some(Instant::now() + Duration::from_millis(FLAKY_EVERY_MS));
            if stage.network.break_one(&mut self.chance) {
                self.hits.push(Fault::Flaky);
            }
        }
    }

    /// Ends an attempt, and with it all faults that would have ended later.
    pub fn end_attempt(&mut self, stage: &mut Stage) {
        self.undo(stage, |_| true);
        if let (Some(double), false) = (&stage.double, self.told.is_empty()) {
            let were_hit = double.hits() > 0;
            double.ask("clear");
            self.hits.extend(self.told.drain(..).filter(|_| were_hit));
        }
        self.planned.iter_mut().for_each(|planned| planned.attempts += 1);
        self.planned.retain(|planned| planned.attempts < TRIES_MAX);
    }

    /// Records that the small file system is full.
    pub fn is_full(&mut self) {
        if !self.hits.contains(&Fault::Full) {
            self.hits.push(Fault::Full);
            self.later(self.expected + Duration::from_secs(2), Undo::Enlarge);
        }
    }

    fn is_due(&self, planned: &Planned, now: &Now) -> bool {
        match planned.moment {
            Moment::Start(ms) => now.since_start >= Duration::from_millis(ms),
            Moment::Time(part) => {
                now.since_connected.is_some_and(|since| since >= self.expected.mul_f64(part))
            }
            Moment::Bytes(part) => now.passed as f64 >= self.bytes as f64 * part,
        }
    }

    /// Injects a fault; returns true if it hit.
    fn inject(&mut self, fault: Fault, now: &Now, stage: &mut Stage, set: &mut Set) -> bool {
        match fault {
            Fault::Kill(part) => self.kill(part, now, stage),
            Fault::Stop(part, ms) => self.stop(part, ms, now, stage),
            Fault::Reset(reach) => stage.network.reset(reach, &mut self.chance) > 0,
            Fault::Close(reach) => stage.network.close(reach, &mut self.chance) > 0,
            Fault::HalfOpen(reach, towards) => {
                stage.network.silence(reach, Some(towards), &mut self.chance) > 0
            }
            Fault::Silence(reach) => stage.network.silence(reach, None, &mut self.chance) > 0,
            Fault::Outage(ms) => {
                self.later(Duration::from_millis(ms), Undo::Lighten);
                stage.network.set_dark(true) > 0
            }
            Fault::Crawl(ms) => {
                self.later(Duration::from_millis(ms), Undo::Accelerate);
                stage.network.set_crawling(true) > 0
            }
            Fault::Flaky => {
                self.breaks_next = Some(Instant::now());
                self.later(self.expected * 3, Undo::StopBreaking);
                true
            }
            Fault::Source(edit) => set.edit(edit, now.attempt, &mut self.chance).unwrap(),
            // The fault exists from the beginning.
            Fault::Full | Fault::Storage(_) => true,
            Fault::Clock(seconds) => {
                stage.clock.jump(seconds).unwrap();
                self.later(Duration::from_secs(3_600), Undo::RightClock);
                true
            }
        }
    }

    /// Sets rules at the storage.
    fn tell(&mut self, fault: Fault, stage: &Stage) {
        let (Fault::Storage(ill), Some(double)) = (fault, &stage.double) else { return };
        let rules = match ill {
            Ill::Read(count) => vec![format!("EIO:read:count={count}")],
            Ill::Write(error, count) => vec![format!("{error}:write:count={count}")],
            Ill::Sync => vec!["EIO:sync".to_owned()],
            Ill::Name(count) => vec![format!("EIO:rename:count={count}"), format!("EIO:link:count={count}")],
            Ill::Hang(_) => vec!["hang:write".to_owned()],
        };
        rules.iter().for_each(|rule| _ = double.ask(&format!("rule {rule}")));
        self.told.push(fault);
        if let Ill::Hang(ms) = ill {
            self.later(Duration::from_millis(ms), Undo::Release);
        }
    }

    fn kill(&mut self, part: Part, now: &Now, stage: &Stage) -> bool {
        let victim = stage.processes(part, now.caller).last().copied();
        let is_hit = victim.is_some_and(|pid| processes::signal(pid, Signal::KILL));
        if is_hit && part == Part::Daemon {
            self.later(RESTART, Undo::RestartDaemon);
        }
        is_hit
    }

    fn stop(&mut self, part: Part, ms: u64, now: &Now, stage: &Stage) -> bool {
        let victim = stage.processes(part, now.caller).last().copied();
        let stopped = victim.filter(|&pid| processes::signal(pid, Signal::STOP));
        stopped.into_iter().for_each(|pid| self.later(Duration::from_millis(ms), Undo::Continue(pid)));
        stopped.is_some()
    }

    fn later(&mut self, after: Duration, undo: Undo) {
        self.undoing.push((Instant::now() + after, undo));
    }

    fn undo(&mut self, stage: &mut Stage, is_due: impl Fn(Instant) -> bool) {
        let (due, later): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.undoing).into_iter().partition(|(at, _)| is_due(*at));
        self.undoing = later;
        for (_, undo) in due {
            match undo {
                // The process may have been killed meanwhile.
                Undo::Continue(pid) => _ = processes::signal(pid, Signal::CONT),
                Undo::Lighten => _ = stage.network.set_dark(false),
                Undo::Accelerate => _ = stage.network.set_crawling(false),
                Undo::RestartDaemon => stage.restart_daemon(),
                Undo::StopBreaking => self.breaks_next = None,
                Undo::RightClock => stage.clock.jump(0).unwrap(),
                Undo::Release => stage.double.iter().for_each(|double| _ = double.ask("release")),
                Undo::Enlarge => stage.enlarge_sink(self.bytes * 3 + (64 << 20)).unwrap(),
            }
        }
    }
}
