//! The health of a fleet's movers, for one transfer or for all: from reported faults and settled chunks.
//!
//! Owns only that knowledge. A mover with a fault is left out for a time that doubles with each fault in a
//! row, and is then tried again; one settled chunk makes it healthy. No transfer fails by the report of one
//! mover: all movers of an end must have failed it for a lasting reason.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Time for which a mover is left out after its first fault; it doubles with each further one.
const LEFT_OUT_FIRST: Duration = Duration::from_secs(2);
const LEFT_OUT_MAX: Duration = Duration::from_secs(300);

/// Minimum for a mover whose storage hangs, or that is unreachable.
const LEFT_OUT_HUNG: Duration = Duration::from_secs(60);
const LEFT_OUT_UNREACHABLE: Duration = Duration::from_secs(5);

/// First time for which a mover is left out that may have failed an entry which others can copy.
const DOUBTED_FOR: Duration = Duration::from_secs(10);

/// Minimum for a mover that has held up a transfer's end: after it the transfer is over, or stands.
const LEFT_OUT_SLOW: Duration = Duration::from_secs(60);

/// A mover that settled a chunk within this time is not the unreachable one of two.
const WELL_LATELY: Duration = Duration::from_secs(15);

/// Refusals by all movers together before a transfer fails.
const REFUSALS_MIN: u32 = 3;

/// The kind of a mover's fault.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MoverFaultKind {
    /// Its file system is full, or a quota is used up.
    Full,
    /// It can't read or write there: no such directory, read-only, not permitted.
    Refused,
    /// The other mover can't connect to it.
    Unreachable,
    /// Its storage does not answer.
    Hung,
    /// Entries have failed at it that others may be able to copy.
    Doubted,
    /// It has held up a transfer's end for several times the others' time for a chunk.
    Slow,
    /// Any other fault, which may be temporary.
    #[default]
    #[serde(other)]
    Passing,
}

impl MoverFaultKind {
    /// Returns true if the fault affects every transfer.
    fn affects_all_transfers(self) -> bool {
        matches!(self, MoverFaultKind::Unreachable | MoverFaultKind::Hung)
    }

    /// Returns true if a retry alone does not help.
    fn is_lasting(self) -> bool {
        matches!(self, MoverFaultKind::Full | MoverFaultKind::Refused)
    }
}

/// A fault of a session or a scan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MoverFault {
    /// The transfer's id.
    pub transfer: String,
    /// The mover at fault, by the belief of the reporter.
    pub mover: String,
    /// The mover at the other end of the pair; empty for a scan.
    pub other: String,
    /// Kind of the fault.
    pub kind: MoverFaultKind,
    /// The reason, for people.
    pub reason: String,
}

/// The reason why a mover is left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MoverQuarantine {
    /// Kind of the last fault.
    pub kind: MoverFaultKind,
    /// The reason, for people.
    pub reason: String,
    /// Faults in a row.
    pub strikes: u32,
    /// End of the time for which it is left out.
    pub until: Duration,
}

/// The verdict for a transfer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TransferHealthVerdict {
    /// A mover at each end can serve it.
    GoOn,
    /// All movers of an end are left out now, with the reason for people.
    Wait(String),
    /// The transfer can't continue, with the reason for people.
    Fail(String),
}

/// The health of all movers. All instants are of one clock.
///
/// Memory: a few words for each mover, and for each that was ill with a transfer until that is
/// [forgotten](MoverHealth::forget).
#[derive(Clone, Debug, Default)]
pub struct MoverHealth {
    /// By mover and transfer, or by mover alone for all transfers.
    ill: BTreeMap<(String, Option<String>), MoverQuarantine>,
    well_at: BTreeMap<String, Duration>,
}

impl MoverHealth {
    /// Creates the state in which no mover is ill.
    pub fn new() -> MoverHealth {
        MoverHealth::default()
    }

    /// Records a fault and returns the mover to blame: the reporter, if it did not do well lately and the
    /// mover that it calls unreachable did.
    pub fn record_fault(&mut self, now: Duration, fault: &MoverFault) -> String {
        let MoverFault { transfer, mover, other, kind, reason } = fault;
        let blames_other = *kind == MoverFaultKind::Unreachable
            && !other.is_empty()
            && self.was_well_lately(now, mover)
            && !self.was_well_lately(now, other);
        let mover = if blames_other { other } else { mover };
        let of = (!kind.affects_all_transfers()).then(|| transfer.clone());
        let illness = self.ill.entry((mover.clone(), of)).or_insert_with(|| MoverQuarantine {
            kind: *kind,
            reason: String::new(),
            strikes: 0,
            until: now,
        });
        illness.kind = *kind;
        reason.clone_into(&mut illness.reason);
        illness.strikes = illness.strikes.saturating_add(1);
        let (first, least) = match kind {
            MoverFaultKind::Hung => (LEFT_OUT_FIRST, LEFT_OUT_HUNG),
            MoverFaultKind::Unreachable => (LEFT_OUT_FIRST, LEFT_OUT_UNREACHABLE),
            MoverFaultKind::Slow => (LEFT_OUT_FIRST, LEFT_OUT_SLOW),
            MoverFaultKind::Doubted => (DOUBTED_FOR, Duration::ZERO),
            _ => (LEFT_OUT_FIRST, Duration::ZERO),
        };
        let doubled = first.saturating_mul(1 << (illness.strikes - 1).min(16)).min(LEFT_OUT_MAX);
        illness.until = now + doubled.max(least);
        mover.clone()
    }

    fn was_well_lately(&self, now: Duration, mover: &str) -> bool {
        self.well_at.get(mover).is_some_and(|&at| now.saturating_sub(at) < WELL_LATELY)
    }

    /// Records that a mover has settled a chunk of a transfer. Returns true if it was ill until then.
    pub fn record_success(&mut self, now: Duration, transfer: &str, mover: &str) -> bool {
        self.well_at.insert(mover.to_owned(), now);
        if self.ill.is_empty() {
            return false;
        }
        let of_all = self.ill.remove(&(mover.to_owned(), None)).is_some();
        self.ill.remove(&(mover.to_owned(), Some(transfer.to_owned()))).is_some() || of_all
    }

    /// Clears the doubts of a transfer, because other movers could not copy the entries either.
    pub fn clear_doubts(&mut self, transfer: &str) {
        self.ill.retain(|(_, of), illness| {
            of.as_deref() != Some(transfer) || illness.kind != MoverFaultKind::Doubted
        });
    }

    /// Returns the reason why a mover is left out of a transfer now; `None` if it is not.
    pub fn quarantine_of(&self, now: Duration, transfer: &str, mover: &str) -> Option<&MoverQuarantine> {
        [None, Some(transfer.to_owned())]
            .into_iter()
            .filter_map(|of| self.ill.get(&(mover.to_owned(), of)))
            .find(|illness| illness.until > now)
    }

    /// Returns true if a mover can't read or write the transfer's path.
    pub fn refuses(&self, transfer: &str, mover: &str) -> bool {
        let illness = self.ill.get(&(mover.to_owned(), Some(transfer.to_owned())));
        illness.is_some_and(|illness| illness.kind == MoverFaultKind::Refused)
    }

    /// Forgets a transfer that is over.
    pub fn forget(&mut self, transfer: &str) {
        self.ill.retain(|(_, of), _| of.as_deref() != Some(transfer));
    }

    /// Forgets all movers that are not present any more.
    pub fn retain_movers(&mut self, is_there: impl Fn(&str) -> bool) {
        self.ill.retain(|(mover, _), _| is_there(mover));
        self.well_at.retain(|mover, _| is_there(mover));
    }

    /// Returns the verdict for a transfer whose ends are reached by these movers.
    pub fn verdict(
        &self,
        now: Duration,
        transfer: &str,
        sources: &[&str],
        sinks: &[&str],
    ) -> TransferHealthVerdict {
        let mut verdict = TransferHealthVerdict::GoOn;
        for movers in [sources, sinks] {
            match self.verdict_of(now, transfer, movers) {
                TransferHealthVerdict::GoOn => {}
                fail @ TransferHealthVerdict::Fail(_) => return fail,
                wait => verdict = wait,
            }
        }
        verdict
    }

    fn verdict_of(&self, now: Duration, transfer: &str, movers: &[&str]) -> TransferHealthVerdict {
        if let Some(reason) = self.lasting_failure_reason(transfer, movers) {
            return TransferHealthVerdict::Fail(reason);
        }
        let left_out = movers.iter().map(|mover| Some((mover, self.quarantine_of(now, transfer, mover)?)));
        let all = left_out.collect::<Option<Vec<_>>>().unwrap_or_default();
        // Either a mover works, or the site has none, which another check reports.
        let Some((mover, illness)) = all.into_iter().min_by_key(|(_, illness)| illness.until) else {
            return TransferHealthVerdict::GoOn;
        };
        let in_s = illness.until.saturating_sub(now).as_secs() + 1;
        let all_of = if movers.len() > 1 {
            format!("all {} movers have failed; ", movers.len())
        } else {
            String::new()
        };
        TransferHealthVerdict::Wait(format!(
            "{all_of}{mover}: {}; it is tried again in {in_s} s",
            illness.reason
        ))
    }

    /// Returns the reason why no mover of an end will ever serve a transfer, for people; `None` if one may.
    fn lasting_failure_reason(&self, transfer: &str, movers: &[&str]) -> Option<String> {
        let mut lasting: Vec<&MoverQuarantine> = Vec::new();
        let mut gone = 0;
        for mover in movers {
            let of_transfer = self.ill.get(&((*mover).to_owned(), Some(transfer.to_owned())));
            if let Some(illness) = of_transfer.filter(|illness| illness.kind.is_lasting()) {
                lasting.push(illness);
                continue;
            }
            let mut illnesses = of_transfer.into_iter().chain(self.ill.get(&((*mover).to_owned(), None)));
            gone += usize::from(illnesses.any(|illness| illness.strikes >= REFUSALS_MIN));
        }
        let strikes: u32 = lasting.iter().map(|illness| illness.strikes).sum();
        let is_full = lasting.iter().any(|illness| illness.kind == MoverFaultKind::Full);
        // All movers see the same storage: movers that fail again and again need not confirm that it is full.
        let gone = if is_full { gone } else { 0 };
        if lasting.len() + gone < movers.len() || !is_full && strikes < REFUSALS_MIN {
            return None;
        }
        // The latest reason, but first a full file system, as the user can make room.
        let told = lasting.iter().max_by_key(|illness| (illness.kind == MoverFaultKind::Full, illness.until));
        told.map(|illness| illness.reason.clone())
    }
}

#[cfg(test)]
#[path = "health_tests.rs"]
mod tests;
