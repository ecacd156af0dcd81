//! Which movers are ill, for one transfer or for all: from what went wrong with whom, and what went well.
//!
//! Owns nothing but that knowledge. A mover with a fault is left out for a while that doubles with each fault in a row, and is
//! then tried again; one chunk that it brings to its end makes it well. No transfer ends on one mover's word: only if all movers
//! of an end have failed it for a reason that does not pass by itself.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// How long a mover is left out after its first fault; twice as long after each further one.
const LEFT_OUT_FIRST: Duration = Duration::from_secs(2);
const LEFT_OUT_MAX: Duration = Duration::from_secs(300);

/// A mover whose storage hangs, or that nobody reaches, is not tried again sooner.
const LEFT_OUT_HUNG: Duration = Duration::from_secs(60);
const LEFT_OUT_UNREACHABLE: Duration = Duration::from_secs(5);

/// How long a mover is left out that may have failed an entry which others can copy, at first.
const DOUBTED_FOR: Duration = Duration::from_secs(10);

/// How long a mover is left out that has held up a transfer's end: by then the transfer is over, or stands.
const LEFT_OUT_SLOW: Duration = Duration::from_secs(60);

/// Who did well so lately is not the one whom nobody reaches.
const WELL_LATELY: Duration = Duration::from_secs(15);

/// Movers that refuse have to do so at least so often together before a transfer fails.
const REFUSALS_MIN: u32 = 3;

/// What is wrong with a mover.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FaultKind {
    /// Its file system is full, or a quota is used up.
    Full,
    /// It can't read or write there: no such directory, read-only, not permitted.
    Refused,
    /// The other mover does not get through to it.
    Unreachable,
    /// Its storage does not answer.
    Hung,
    /// Entries have failed at it that others may be able to copy.
    Doubted,
    /// It has held up a transfer's end, for which others take a part of the time.
    Slow,
    /// Anything else, which may pass.
    #[default]
    #[serde(other)]
    Passing,
}

impl FaultKind {
    /// Whether it would be the same for every transfer.
    fn is_of_all(self) -> bool {
        matches!(self, FaultKind::Unreachable | FaultKind::Hung)
    }

    /// Whether trying again alone does not help.
    fn stays(self) -> bool {
        matches!(self, FaultKind::Full | FaultKind::Refused)
    }
}

/// Something went wrong in a session, or a scan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The transfer's id.
    pub transfer: String,
    /// Whose fault it is, as whoever tells it believes.
    pub mover: String,
    /// At the other end of the pair; empty for a scan.
    pub other: String,
    /// What it is.
    pub kind: FaultKind,
    /// For people.
    pub reason: String,
}

/// Why a mover is left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Illness {
    /// What it is.
    pub kind: FaultKind,
    /// For people.
    pub reason: String,
    /// Faults in a row.
    pub strikes: u32,
    /// When it is tried again.
    pub until: Duration,
}

/// What follows for a transfer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Somebody at each end can serve it.
    GoOn,
    /// All movers of an end are left out now: for people.
    Wait(String),
    /// It can't be carried on: for people.
    Fail(String),
}

/// What is known of all movers. All instants are of one clock.
///
/// Memory: a few words for each mover, and for each that was ill with a transfer until that is [forgotten](Health::forget).
#[derive(Clone, Debug, Default)]
pub struct Health {
    /// Of a mover with a transfer, or with all of them.
    ill: BTreeMap<(String, Option<String>), Illness>,
    well_at: BTreeMap<String, Duration>,
}

impl Health {
    /// Nobody is ill.
    pub fn new() -> Health {
        Health::default()
    }

    /// Something went wrong. Returns whose fault it is taken for: if somebody is not reached who did well lately with others, the
    /// one who does not get through is it.
    pub fn fault(&mut self, now: Duration, fault: &Fault) -> String {
        let Fault { transfer, mover, other, kind, reason } = fault;
        let is_well =
            |mover: &String| self.well_at.get(mover).is_some_and(|&at| now.saturating_sub(at) < WELL_LATELY);
        let blames_other =
            *kind == FaultKind::Unreachable && !other.is_empty() && is_well(mover) && !is_well(other);
        let mover = if blames_other { other } else { mover };
        let of = (!kind.is_of_all()).then(|| transfer.clone());
        let illness = self.ill.entry((mover.clone(), of)).or_insert_with(|| Illness {
            kind: *kind,
            reason: String::new(),
            strikes: 0,
            until: now,
        });
        illness.kind = *kind;
        reason.clone_into(&mut illness.reason);
        illness.strikes = illness.strikes.saturating_add(1);
        let strikes = illness.strikes;
        let doubled = |first: Duration| first.saturating_mul(1 << (strikes - 1).min(16)).min(LEFT_OUT_MAX);
        illness.until = now
            + match kind {
                FaultKind::Hung => doubled(LEFT_OUT_FIRST).max(LEFT_OUT_HUNG),
                FaultKind::Unreachable => doubled(LEFT_OUT_FIRST).max(LEFT_OUT_UNREACHABLE),
                FaultKind::Slow => doubled(LEFT_OUT_FIRST).max(LEFT_OUT_SLOW),
                FaultKind::Doubted => doubled(DOUBTED_FOR),
                _ => doubled(LEFT_OUT_FIRST),
            };
        mover.clone()
    }

    /// A mover has brought a chunk of a transfer to its end. Returns whether it was ill until then.
    pub fn did_well(&mut self, now: Duration, transfer: &str, mover: &str) -> bool {
        self.well_at.insert(mover.to_owned(), now);
        if self.ill.is_empty() {
            return false;
        }
        let of_all = self.ill.remove(&(mover.to_owned(), None)).is_some();
        self.ill.remove(&(mover.to_owned(), Some(transfer.to_owned()))).is_some() || of_all
    }

    /// Entries of a chunk could not be copied by others either: whoever was doubted for them is not to blame.
    pub fn clear_doubts(&mut self, transfer: &str) {
        self.ill
            .retain(|(_, of), illness| of.as_deref() != Some(transfer) || illness.kind != FaultKind::Doubted);
    }

    /// Why a mover is left out of a transfer now; `None` if it is not.
    pub fn left_out(&self, now: Duration, transfer: &str, mover: &str) -> Option<&Illness> {
        [None, Some(transfer.to_owned())]
            .into_iter()
            .filter_map(|of| self.ill.get(&(mover.to_owned(), of)))
            .find(|illness| illness.until > now)
    }

    /// Whether a mover can't read or write where this transfer is.
    pub fn refuses(&self, transfer: &str, mover: &str) -> bool {
        let illness = self.ill.get(&(mover.to_owned(), Some(transfer.to_owned())));
        illness.is_some_and(|illness| illness.kind == FaultKind::Refused)
    }

    /// A transfer is over.
    pub fn forget(&mut self, transfer: &str) {
        self.ill.retain(|(_, of), _| of.as_deref() != Some(transfer));
    }

    /// The movers that are there now: of others nothing is kept.
    pub fn keep(&mut self, is_there: impl Fn(&str) -> bool) {
        self.ill.retain(|(mover, _), _| is_there(mover));
        self.well_at.retain(|mover, _| is_there(mover));
    }

    /// What follows for a transfer whose ends are reached by these movers.
    pub fn verdict(&self, now: Duration, transfer: &str, sources: &[&str], sinks: &[&str]) -> Verdict {
        let mut verdict = Verdict::GoOn;
        for movers in [sources, sinks] {
            match self.verdict_of(now, transfer, movers) {
                Verdict::GoOn => {}
                fail @ Verdict::Fail(_) => return fail,
                wait => verdict = wait,
            }
        }
        verdict
    }

    fn verdict_of(&self, now: Duration, transfer: &str, movers: &[&str]) -> Verdict {
        if movers.is_empty() {
            // That nobody is there is not for this to say.
            return Verdict::GoOn;
        }
        if let Some(reason) = self.lasting(transfer, movers) {
            return Verdict::Fail(reason);
        }
        let mut left_out = movers.iter().map(|mover| Some((mover, self.left_out(now, transfer, mover)?)));
        let Some(all) = left_out.by_ref().collect::<Option<Vec<_>>>() else { return Verdict::GoOn };
        let Some((mover, illness)) = all.iter().min_by_key(|(_, illness)| illness.until) else {
            return Verdict::GoOn;
        };
        let in_s = illness.until.saturating_sub(now).as_secs() + 1;
        let all_of = if movers.len() > 1 {
            format!("all {} movers have failed; ", movers.len())
        } else {
            String::new()
        };
        Verdict::Wait(format!("{all_of}{mover}: {}; it is tried again in {in_s} s", illness.reason))
    }

    /// Why none of an end's movers will ever serve a transfer, for people; nothing if one may.
    fn lasting(&self, transfer: &str, movers: &[&str]) -> Option<String> {
        let of_transfer = |mover: &&str| self.ill.get(&((*mover).to_owned(), Some(transfer.to_owned())));
        let lasting_of = |mover: &&str| of_transfer(mover).filter(|illness| illness.kind.stays());
        let lasting: Vec<&Illness> = movers.iter().filter_map(lasting_of).collect();
        let strikes: u32 = lasting.iter().map(|illness| illness.strikes).sum();
        let is_full = lasting.iter().any(|illness| illness.kind == FaultKind::Full);
        // All movers see the same storage: that it is full need not be told by those with whom nothing else works, again and again.
        let is_gone = |mover: &&&str| {
            let of_all = || self.ill.get(&((**mover).to_owned(), None));
            let mut illnesses = of_transfer(mover).into_iter().chain(of_all());
            lasting_of(mover).is_none() && illnesses.any(|illness| illness.strikes >= REFUSALS_MIN)
        };
        let gone = if is_full { movers.iter().filter(is_gone).count() } else { 0 };
        if lasting.len() + gone < movers.len() || !is_full && strikes < REFUSALS_MIN {
            return None;
        }
        // Of several reasons the one that its user can do something about, then the latest.
        let told = lasting.iter().max_by_key(|illness| (illness.kind == FaultKind::Full, illness.until));
        told.map(|illness| illness.reason.clone())
    }
}

#[cfg(test)]
#[path = "health_tests.rs"]
mod tests;
