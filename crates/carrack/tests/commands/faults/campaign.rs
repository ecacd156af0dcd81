//! Many runs, each from a seed: a command, faults, the same command again until it succeeds; and the sums.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use super::attempt::{Attempt, Ended, await_end};
use super::chance::Chance;
use super::fault::{Fault, Ill};
use super::injector::Injector;
use super::plan::{Abilities, Plan};
use super::processes;
use super::promises::{RESUMES, RETRIES};
use super::set::Set;
use super::shim::Shim;
use super::stage::Stage;
use super::verdict::{self, Verdict};

/// Attempts beyond one for each fault.
const ATTEMPTS_MAX: usize = 12;

/// Number of times that a user in a hurry repeats a command at once.
const HURRIED_MAX: usize = 3;

/// The pause before the next command of a user without hurry.
const PAUSE: Duration = Duration::from_millis(200);

/// Frames, handshakes and tables, as a part of the moved bytes.
const OVERHEAD: f64 = 0.05;
const OVERHEAD_BYTES: u64 = 1 << 20;

/// Bytes in flight outside the slots: sockets' buffers and this network's.
const UNDER_WAY_BYTES: u64 = 16 << 20;

/// One group commit (`--durability group`).
const GROUP_BYTES: u64 = 64 << 20;

/// The outcome of one run.
#[derive(Default)]
struct Report {
    attempts: usize,
    seconds: f64,
    bytes: u64,
    moved: u64,
    hits: Vec<Fault>,
    wrong: Vec<String>,
    lost: Vec<String>,
    leftovers: Vec<PathBuf>,
    journals: Vec<PathBuf>,
    /// Other problems.
    problems: Vec<String>,
    /// The directory, kept for inspection.
    kept: Option<PathBuf>,
}

impl Report {
    fn failed(&self) -> bool {
        let has_left = RESUMES && !(self.leftovers.is_empty() && self.journals.is_empty());
        has_left || !(self.wrong.is_empty() && self.lost.is_empty() && self.problems.is_empty())
    }

    fn moved_twice(&self) -> u64 {
        self.moved.saturating_sub(self.bytes + (self.bytes as f64 * OVERHEAD) as u64 + OVERHEAD_BYTES)
    }

    fn add(&mut self, verdict: Verdict) {
        self.wrong.extend(verdict.wrong);
        self.lost.extend(verdict.lost);
        (self.leftovers, self.journals) = (verdict.leftovers, verdict.journals);
    }
}

/// The sums of a campaign.
#[derive(Default)]
pub struct Figures {
    pub runs: u64,
    pub failed: Vec<u64>,
    pub resumed: u64,
    pub attempts: u64,
    pub faults: BTreeMap<String, u64>,
    pub bytes: u64,
    pub moved: u64,
    pub moved_twice: u64,
    pub wrong: u64,
    pub lost: u64,
    pub leftovers: u64,
    pub seconds: f64,
}

impl Figures {
    fn add(&mut self, seed: u64, report: &Report) {
        self.runs += 1;
        self.failed.extend(report.failed().then_some(seed));
        self.resumed += u64::from(report.attempts > 1);
        self.attempts += report.attempts as u64;
        for fault in &report.hits {
            *self.faults.entry(group(*fault)).or_default() += 1;
        }
        self.bytes += report.bytes;
        self.moved += report.moved;
        self.moved_twice += report.moved_twice();
        self.wrong += report.wrong.len() as u64;
        self.lost += report.lost.len() as u64;
        self.leftovers += (report.leftovers.len() + report.journals.len()) as u64;
        self.seconds += report.seconds;
    }

    pub fn injected(&self) -> u64 {
        self.faults.values().sum()
    }

    /// Returns the sums for scripts.
    pub fn json(&self) -> serde_json::Value {
        serde_json::json!({
            "runs": self.runs, "failed_seeds": self.failed, "resumed": self.resumed, "commands": self.attempts,
            "faults_injected": self.injected(), "faults": self.faults, "bytes": self.bytes,
            "bytes_moved": self.moved, "bytes_moved_twice": self.moved_twice, "files_wrong": self.wrong,
            "files_lost": self.lost, "leftovers": self.leftovers, "seconds": self.seconds,
        })
    }
}

/// Returns the name under which a table counts faults.
fn group(fault: Fault) -> String {
    match fault {
        Fault::Kill(part) => format!("SIGKILL of {part:?}").to_lowercase().replace("sigkill", "SIGKILL"),
        Fault::Stop(part, _) => format!("SIGSTOP of {part:?}").to_lowercase().replace("sigstop", "SIGSTOP"),
        Fault::Reset(_) => "connections reset".into(),
        Fault::Close(_) => "connections closed".into(),
        Fault::HalfOpen(..) => "one direction silent".into(),
        Fault::Silence(_) => "both directions silent".into(),
        Fault::Outage(_) => "network gone for seconds".into(),
        Fault::Crawl(_) => "bandwidth to a crawl".into(),
        Fault::Flaky => "a random connection broken (every 250 ms)".into(),
        Fault::Source(edit) => format!("source file: {edit:?}").to_lowercase(),
        Fault::Full => "ENOSPC by a full tmpfs".into(),
        Fault::Storage(Ill::Read(_)) => "EIO on read".into(),
        Fault::Storage(Ill::Write(error, _)) => format!("{error} on write"),
        Fault::Storage(Ill::Sync) => "EIO on fsync".into(),
        Fault::Storage(Ill::Name(_)) => "EIO on rename or link".into(),
        Fault::Storage(Ill::Hang(_)) => "a write that hangs".into(),
        Fault::Clock(_) => "clock jumps".into(),
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = |bytes: u64| bytes as f64 / 1_048_576.0;
        writeln!(f, "runs {}, commands {}, runs resumed {}", self.runs, self.attempts, self.resumed)?;
        writeln!(f, "faults injected {}:", self.injected())?;
        for (fault, count) in &self.faults {
            writeln!(f, "  {count:5} {fault}")?;
        }
        write!(f, "MiB in the sets {:.0}, moved {:.0}", mib(self.bytes), mib(self.moved))?;
        writeln!(f, ", moved twice {:.0}", mib(self.moved_twice))?;
        writeln!(f, "files wrong {}, lost {}, left over {}", self.wrong, self.lost, self.leftovers)?;
        writeln!(f, "{:.0} s; failed runs, by seed: {:?}", self.seconds, self.failed)
    }
}

/// Prints past the test harness, which captures the output of passing tests.
pub fn say(words: &str) {
    let _ = writeln!(io::stderr(), "{words}");
}

/// Runs `count` plans, from `seed` upwards.
pub fn campaign(seed: u64, count: u64, abilities: Abilities, shim: &Shim) -> Figures {
    let mut figures = Figures::default();
    for seed in seed..seed + count {
        let plan = Plan::new(seed, abilities);
        say(&format!("seed {seed}: {plan}"));
        let began = Instant::now();
        let mut report = catch_unwind(AssertUnwindSafe(|| run(&plan, shim))).unwrap_or_else(|panic| Report {
            problems: vec![format!("the campaign panicked: {}", words_of(&*panic))],
            ..Report::default()
        });
        report.seconds = began.elapsed().as_secs_f64();
        tell(seed, &report);
        figures.add(seed, &report);
    }
    figures
}

fn words_of(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no words").to_owned()
}

fn tell(seed: u64, report: &Report) {
    let mib = |bytes: u64| bytes as f64 / 1_048_576.0;
    say(&format!(
        "seed {seed}: {}, {} commands, {:.1} s, moved {:.1} MiB of {:.1}; hit by {:?}",
        if report.failed() { "FAILED" } else { "ok" },
        report.attempts,
        report.seconds,
        mib(report.moved),
        mib(report.bytes),
        report.hits
    ));
    for (what, words) in [("wrong", &report.wrong), ("lost", &report.lost), ("problem", &report.problems)] {
        words.iter().take(8).for_each(|words| say(&format!("  {what}: {words}")));
    }
    for path in report.leftovers.iter().chain(&report.journals) {
        say(&format!("  left over: {}", path.display()));
    }
    if let Some(kept) = &report.kept {
        say(&format!("  see {}", kept.display()));
    }
}

fn run(plan: &Plan, shim: &Shim) -> Report {
    let mut stage = Stage::set_up(plan, shim);
    if plan.has(Fault::Full) {
        stage.shrink_sink(plan.bytes * 3 / 5).unwrap();
    }
    let mut chance = Chance::new(plan.seed ^ 0x5e7);
    let mut set = Set::plant(
        &stage.source(),
        &stage.source().with_file_name("spare"),
        &stage.sink(),
        plan,
        &mut chance,
    )
    .unwrap();
    let mut report = Report::default();
    let mut seen = BTreeSet::new();
    type_until_done(plan, &mut stage, &mut set, &mut seen, &mut report);
    stage.network.sever();
    for pid in await_end(&seen) {
        report.problems.push(format!("process {pid} ({}) stays", processes::name(pid)));
        processes::signal(pid, rustix::process::Signal::KILL);
    }
    report.bytes = set.bytes;
    check_what_moved(plan, &mut report);
    report.kept = report.failed().then(|| stage.keep());
    report
}

/// Repeats the same command until it succeeds.
fn type_until_done(
    plan: &Plan,
    stage: &mut Stage,
    set: &mut Set,
    seen: &mut BTreeSet<i32>,
    report: &mut Report,
) {
    let mut injector = Injector::new(plan);
    let mut last_words = String::new();
    for number in 1..=plan.faults.len() + ATTEMPTS_MAX {
        let ended = Attempt { number, plan, stage, set, injector: &mut injector, seen }.run();
        report.attempts = number;
        report.moved += ended.moved;
        report.hits.clone_from(&injector.hits);
        let of_attempt = |problem| format!("command {number}: {problem}");
        report.problems.extend(ended.problems().into_iter().map(of_attempt));
        report.problems.extend(unkept_promise(plan, &ended).map(of_attempt));
        if ended.is_success() {
            // The far end may still be removing its journal.
            stage.network.sever();
            await_end(seen);
            report.add(verdict::after(set, &stage.sink(), number).unwrap());
            return;
        }
        settle(plan, number, stage, seen, report);
        let verdict = verdict::between(set, &stage.sink()).unwrap();
        let is_bad = !(verdict.wrong.is_empty() && verdict.lost.is_empty());
        report.add(verdict);
        if ended.hung || is_bad {
            return;
        }
        last_words = ended.stderr;
    }
    let problem = format!("not complete after {} commands; the last: {}", report.attempts, last_words.trim());
    report.problems.push(problem);
}

/// Waits between two commands.
fn settle(plan: &Plan, number: usize, stage: &Stage, seen: &BTreeSet<i32>, report: &mut Report) {
    if plan.hurries {
        // A far end that was not notified may hold its journal until the stall timeout.
        return if number > HURRIED_MAX {
            thread::sleep(PAUSE)
        };
    }
    stage.network.sever();
    let staying = await_end(seen);
    report.problems.extend(staying.iter().map(|pid| format!("process {pid} goes on without the others")));
    thread::sleep(PAUSE);
}

/// Once its session is established, a command with retries survives all faults of the network and of other
/// processes.
fn unkept_promise(plan: &Plan, ended: &Ended) -> Option<String> {
    let retries = plan.options.windows(2).any(|pair| pair[0] == "--retry" && pair[1] != "0");
    let is_promised = RETRIES && retries && !ended.hits.is_empty() && !ended.hit_early;
    let is_broken = is_promised && ended.hits.iter().all(|fault| fault.is_survived()) && !ended.is_success();
    is_broken
        .then(|| format!("ended with {:?} in spite of --retry, by {:?}", ended.status.code(), ended.hits))
}

/// Each interruption may cost the slots of both ends, the bytes in flight, and one group commit. A file with
/// a storage error starts again.
fn check_what_moved(plan: &Plan, report: &mut Report) {
    let group = GROUP_BYTES.min(plan.rate);
    let each = 2 * plan.buffer_bytes + UNDER_WAY_BYTES + group;
    let may = each * (report.hits.len().max(report.attempts - 1)) as u64;
    let is_ill = report.hits.iter().any(|fault| matches!(fault, Fault::Storage(_)));
    if RESUMES && !is_ill && report.moved_twice() > may {
        report.problems.push(format!("moved twice: {} bytes, more than {may}", report.moved_twice()));
    }
}
