//! Movers that run but are faulty: each kind of fault at a site of its own, with healthy movers and alone.
//!
//! All kinds are in one fleet at the same time, as most of the time is waiting. The other end of every
//! transfer is at [`SITES`], whose movers are healthy.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use carrack_register::transfer_records::{MoverRecord, TransferRecord, TransferState};

use super::data::{Planted, plant_tree};
use super::old_mover::OldMover;
use super::stage::{Manner, PATIENCE, SITES, Stage};
use crate::common::tree::{assert_same, is_temporary, noise};

const MIB: u64 = 1 << 20;

/// Bytes of each transfer's chunks.
const CHUNK_BYTES: u64 = MIB;

/// Slow enough that each pair gets some of them.
const PAIR_RATE: &str = "2MiB";

/// The files of one transfer: small ones, which travel as one chunk, and some of several chunks.
const SMALL_FILES: u64 = 60;
const LARGE_FILES: [usize; 3] = [5 << 19; 3];

/// The cause of a mover's fault.
#[derive(Clone, Copy, Debug)]
pub enum Cause {
    /// A command changes the mover's directory before it starts.
    Mount(&'static str),
    /// Injected errors of its system calls, by strace: its storage is that of the healthy movers.
    Calls(&'static str),
    /// An error of its clock, by faketime: of the time of day only, and not of monotonic clocks.
    Clock(&'static str),
    /// Options of the mover.
    Options(&'static [&'static str]),
    /// An older protocol.
    Old,
}

/// A kind of fault.
#[derive(Clone, Copy, Debug)]
pub struct Illness {
    pub name: &'static str,
    /// True if the faulty mover reads.
    is_source: bool,
    cause: Cause,
    /// Number of healthy movers at the same site.
    good: u8,
    /// The message about it in `carrack movers` or `carrack status`; one of these.
    said: &'static str,
    /// The reason for which a transfer fails or waits without other movers; `None` if it is carried
    /// nevertheless.
    alone: Option<&'static str>,
}

const fn at_sink(
    name: &'static str,
    cause: Cause,
    said: &'static str,
    alone: Option<&'static str>,
) -> Illness {
    Illness { name, is_source: false, cause, good: 1, said, alone }
}

const fn at_source(
    name: &'static str,
    cause: Cause,
    said: &'static str,
    alone: Option<&'static str>,
) -> Illness {
    Illness { name, is_source: true, cause, good: 1, said, alone }
}

/// A hung mover delays the transfer's end, or is detected before.
const HANGS: &str = "nothing to its end|has not answered";

const UNMOUNTED: Cause = Cause::Mount("mount -t tmpfs none \"$1\" &&");
const READ_ONLY: Cause = Cause::Mount("mount --bind \"$1\" \"$1\" && mount -o remount,bind,ro \"$1\" &&");

/// All kinds. Of the calls that write, `pwritev2` and `linkat` spare the journal, and `pwrite64` does not.
pub const ILLNESSES: [Illness; 15] = [
    // If two movers differ, it is unknown which is right; a single mover is believed.
    Illness { good: 2, ..at_sink("not mounted, sink", UNMOUNTED, "is not what other movers", None) },
    at_sink("read-only", READ_ONLY, "Read-only file system", Some("Read-only file system")),
    at_sink("full", Cause::Calls("pwritev2,linkat:error=ENOSPC"), "No space left", Some("No space left")),
    at_sink("over quota", Cause::Calls("pwrite64,linkat:error=EDQUOT"), "quota", Some("quota")),
    at_sink(
        "unreachable",
        Cause::Options(&["--address", "10.77.250.1:9"]),
        "can't be reached",
        Some("can't be reached"),
    ),
    at_sink("slow, sink", Cause::Calls("pwritev2,linkat:delay_enter=20000000"), "slow", None),
    at_sink("a write hangs", Cause::Calls("pwritev2,linkat:delay_enter=1000000000"), HANGS, Some("answered")),
    at_sink(
        "writes fail",
        Cause::Calls("pwritev2,linkat:error=EIO"),
        "Input/output error",
        Some("Input/output error"),
    ),
    at_sink("clock ahead, sink", Cause::Clock("+5h"), "clock", Some("clock")),
    at_sink("old", Cause::Old, "protocol", Some("unlike versions")),
    at_source(
        "not mounted, source",
        UNMOUNTED,
        "does not exist|is not what other movers",
        Some("does not exist"),
    ),
    at_source("slow, source", Cause::Calls("pread64:delay_enter=20000000"), "slow", None),
    at_source("a read hangs", Cause::Calls("pread64:delay_enter=1000000000"), HANGS, Some("answered")),
    at_source(
        "reads fail",
        Cause::Calls("pread64:error=EIO"),
        "Input/output error",
        Some("Input/output error"),
    ),
    at_source("clock behind, source", Cause::Clock("-5h"), "clock", Some("clock")),
];

impl Illness {
    /// Returns the missing tool that it needs.
    pub fn lacks(&self) -> Option<&'static str> {
        let tool = match self.cause {
            Cause::Calls(_) => "strace",
            Cause::Clock(_) => "faketime",
            _ => return None,
        };
        (!runs(tool)).then_some(tool)
    }
}

fn runs(tool: &str) -> bool {
    let asked = Command::new(tool).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    asked.is_ok_and(|status| status.success())
}

/// Plants small and large files.
pub fn plant(root: &Path) -> Planted {
    let mut planted = plant_tree(root, SMALL_FILES);
    for (number, bytes) in LARGE_FILES.into_iter().enumerate() {
        let mut content = noise(bytes);
        content[0] = number as u8;
        fs::write(root.join(format!("large{number}")), content).unwrap();
        planted.files += 1;
        planted.bytes += bytes as u64;
    }
    planted
}

/// The state of a transfer.
enum Step {
    /// It runs in a fleet with one faulty mover.
    Beside(String),
    /// The healthy movers end.
    Leaving,
    /// It was given to faulty movers only.
    Alone(String),
    /// A healthy mover joins, for this transfer if it is not over.
    Coming(Option<String>),
    /// The mover has joined; the transfer may have failed before.
    Again {
        id: String,
        may_fail: bool,
    },
    Over,
}

/// A site with a faulty mover, and the state of its transfers.
pub struct Patient {
    illness: Illness,
    site: String,
    planted: Planted,
    step: Step,
    since: Instant,
    is_named: bool,
    /// Bytes moved by a transfer that failed, before it was submitted again.
    moved_bytes: u64,
    old: Option<OldMover>,
}

impl Patient {
    /// Creates a site with its healthy movers, which are not registered yet.
    pub fn admit(stage: &mut Stage, number: usize, illness: Illness, planted: Planted) -> Patient {
        let site = format!("{}{number}", if illness.is_source { "e" } else { "w" });
        stage.add_site(&site);
        if illness.is_source {
            plant(&stage.seen(format!("{site}/data")));
        }
        (0..illness.good).for_each(|other| stage.start_mover(&site, 9 - other));
        Patient {
            illness,
            site,
            planted,
            step: Step::Over,
            since: Instant::now(),
            is_named: false,
            moved_bytes: 0,
            old: None,
        }
    }

    /// Gives the site up.
    pub fn give_up(&mut self) -> &'static str {
        self.step(Step::Over);
        self.illness.name
    }

    pub fn is_over(&self) -> bool {
        matches!(self.step, Step::Over)
    }

    fn is_said(&self, why: &str) -> bool {
        self.illness.said.split('|').any(|words| why.contains(words))
    }

    fn host(&self) -> String {
        format!("{}1", self.site)
    }

    /// Starts the faulty mover: of movers with equal room the first by name is chosen.
    pub fn fall_ill(&mut self, stage: &mut Stage, movers: &[MoverRecord]) {
        let site = self.site.clone();
        let start = |stage: &mut Stage, manner| stage.start_mover_so(&site, 1, manner);
        match self.illness.cause {
            Cause::Mount(first) => start(stage, Manner { first, ..Manner::default() }),
            Cause::Calls(_) => start(stage, Manner::default()),
            Cause::Clock(off) => {
                // faketime starts the mover as a child, which must end with it.
                let through = format!(
                    "env DONT_FAKE_MONOTONIC=1 FAKETIME_DONT_FAKE_MONOTONIC=1 faketime -f {off} setpriv --pdeathsig KILL --"
                );
                start(stage, Manner { through: &through, ..Manner::default() });
            }
            Cause::Options(options) => start(stage, Manner { options, ..Manner::default() }),
            Cause::Old => {
                let like = movers.iter().find(|mover| mover.site == site).unwrap();
                self.old = Some(OldMover::start(stage, like, &self.host()));
            }
        }
    }

    /// Submits the transfer, once all movers are registered.
    pub fn submit(&mut self, stage: &mut Stage) {
        if let Cause::Calls(fault) = self.illness.cause {
            stage.inject(&self.host(), fault);
        }
        self.step(Step::Beside(self.submitted(stage, "copy")));
    }

    fn submitted(&self, stage: &Stage, copy: &str) -> String {
        let (from, to) = self.ends(copy);
        let place = |(site, path): (String, String)| stage.location(&site, &path);
        let chunk = CHUNK_BYTES.to_string();
        let how =
            ["submit", "--pairs", "4", "--buffer", "16MiB", "--bwlimit", PAIR_RATE, "--chunk-size", &chunk];
        stage.asked(&[&how[..], &[&*place(from), &*place(to)]].concat())
    }

    /// Returns sites and paths.
    fn ends(&self, copy: &str) -> ((String, String), (String, String)) {
        let (site, [east, west]) = (&self.site, SITES);
        match self.illness.is_source {
            true => ((site.clone(), "data".to_owned()), (west.to_owned(), format!("{site}-{copy}"))),
            false => ((east.to_owned(), "data".to_owned()), (site.clone(), copy.to_owned())),
        }
    }

    fn step(&mut self, step: Step) {
        (self.step, self.since) = (step, Instant::now());
    }

    /// Takes the next step; calls `say` at the end of a transfer.
    pub fn look(
        &mut self,
        stage: &mut Stage,
        movers: &[MoverRecord],
        records: &[TransferRecord],
        say: impl Fn(&str),
    ) {
        let record = |id: &String| records.iter().find(|record| record.id == *id).unwrap();
        let (illness, took) = (self.illness, self.since.elapsed().as_secs());
        self.is_named |= movers.iter().any(|mover| {
            mover.host == self.host() && [&mover.ill, &mover.left_out].iter().any(|why| self.is_said(why))
        });
        let at = match &self.step {
            Step::Over => return,
            Step::Beside(id) => {
                let record = record(id);
                self.is_named |= self.is_said(&record.waits_for);
                if record.state.is_over() && self.is_named {
                    self.judge(stage, "copy", record);
                    say(&format!("{}: {took} s beside a good one", illness.name));
                    (9 - illness.good + 1..=9).for_each(|other| stage.kill(&format!("{}{other}", self.site)));
                    return self.step(Step::Leaving);
                }
                format!("{record:#?}, named: {}", self.is_named)
            }
            Step::Leaving => {
                let is_alone =
                    movers.iter().all(|mover| mover.site != self.site || mover.host == self.host());
                match illness.alone {
                    None => return self.step(Step::Over),
                    Some(_) if is_alone => {
                        let id = self.submitted(stage, "copy2");
                        return self.step(Step::Alone(id));
                    }
                    Some(_) => String::new(),
                }
            }
            Step::Alone(id) => {
                let record = record(id);
                // Entries that no other mover could try have failed, in a transfer that is done.
                let failures = record.failures.iter().filter(|_| record.state.is_over());
                let details = failures.map(|failure| &failure.detail);
                let mut told = [&record.reason, &record.waits_for].into_iter().chain(details);
                if told.any(|why| illness.alone.is_some_and(|words| why.contains(words))) {
                    say(&format!(
                        "{}: {took} s alone: {} {}{}, {} KiB moved",
                        illness.name,
                        record.state,
                        record.reason,
                        record.waits_for,
                        record.tally.bytes_moved >> 10
                    ));
                    stage.start_mover(&self.site, 7);
                    let goes_on = (!record.state.is_over()).then(|| id.clone());
                    self.moved_bytes = if goes_on.is_none() { record.tally.bytes_moved } else { 0 };
                    return self.step(Step::Coming(goes_on));
                }
                assert!(!record.state.is_over(), "{}: {record:#?}", illness.name);
                format!("{record:#?}")
            }
            Step::Coming(goes_on) => {
                if movers.iter().any(|mover| mover.host == format!("{}7", self.site)) {
                    let (goes_on, may_fail) = (goes_on.clone(), goes_on.is_some());
                    let id = goes_on.unwrap_or_else(|| self.submitted(stage, "copy2"));
                    return self.step(Step::Again { id, may_fail });
                }
                String::new()
            }
            Step::Again { id, may_fail } => {
                let record = record(id);
                if *may_fail && record.state == TransferState::Failed {
                    self.moved_bytes = record.tally.bytes_moved;
                    let id = self.submitted(stage, "copy2");
                    return self.step(Step::Again { id, may_fail: false });
                }
                if record.state.is_over() {
                    self.judge(stage, "copy2", record);
                    let moved = self.moved_bytes + record.tally.bytes_moved;
                    let twice = moved.saturating_sub(self.planted.bytes + self.planted.bytes / 50);
                    let refuses = ["No space left", "quota", "Read-only"]
                        .into_iter()
                        .any(|words| illness.said.contains(words));
                    assert!(!refuses || twice <= 2 * CHUNK_BYTES, "{}: {moved} moved", illness.name);
                    say(&format!("{}: {took} s with another one", illness.name));
                    return self.step(Step::Over);
                }
                format!("{record:#?}")
            }
        };
        assert!(self.since.elapsed() < PATIENCE, "{}: {at}\n{movers:#?}", illness.name);
    }

    /// Checks that the transfer is done, the copy equal, and no other file left.
    fn judge(&self, stage: &Stage, copy: &str, record: &TransferRecord) {
        let name = self.illness.name;
        assert_eq!(record.state, TransferState::Done, "{name}: {record:#?}");
        let tally = record.tally;
        assert_eq!(
            (tally.files_done, tally.bytes_done, tally.entries_failed),
            (self.planted.files, self.planted.bytes, 0),
            "{name}: {record:#?}"
        );
        let (from, to) = self.ends(copy);
        let seen = |(site, path): &(String, String)| stage.seen(format!("{site}/{path}"));
        assert_same(&seen(&from), &seen(&to));
        let left = temporary_beneath(&seen(&to));
        assert!(left.is_empty(), "{name}: {left:?}");
    }
}

/// Longest time between two steps.
pub const LOOK_EVERY: Duration = Duration::from_millis(300);

fn temporary_beneath(directory: &Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if is_temporary(&path) {
            found.push(path.clone());
        }
        if path.is_dir() && !path.is_symlink() {
            found.extend(temporary_beneath(&path));
        }
    }
    found
}
