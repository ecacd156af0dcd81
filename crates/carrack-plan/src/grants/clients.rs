//! The server's state of each client.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::messages::{GrantClientReport, MovedBytes};
use super::rate_guarantees::{ClassState, GuaranteedRateClock, guaranteed_to_client};
use super::settings::GrantSettings;
use super::turns::{GrantClientNumber, GrantTurnCandidate};

/// A client, by its last batch.
#[derive(Debug)]
pub(super) struct GrantClientRecord {
    pub(super) name: String,
    /// True if it consists of the ends of a session, which have names of their own.
    pub(super) is_party: bool,
    pub(super) class: String,
    number: u64,
    pub(super) heard_at: Duration,
    bytes_moved: u64,
    /// The same by target. If the server first heard of the target after some bytes, it counts from there.
    moved: BTreeMap<String, u64>,
    is_known_from_its_start: bool,
    threads: usize,
    clock: GuaranteedRateClock,
    /// Lateness of the client or its class behind the guarantee when it last sent a batch. Not the present
    /// lateness: of two equally late clients the silent one would seem the later one, and neither would have
    /// its turn.
    lateness: Duration,
    /// End of its grants at targets that others want too; and the same in order.
    contended: BTreeMap<String, Duration>,
    ends: Vec<Duration>,
    /// Targets that its last batch asked for.
    asked: BTreeSet<String>,
    /// The target that it has waited for the longest, and the start of the wait.
    oldest: Option<(String, Duration)>,
}

impl GrantClientRecord {
    /// Creates the state of a client from its first batch.
    pub(super) fn new(batch: &GrantClientReport, now: Duration) -> GrantClientRecord {
        GrantClientRecord {
            name: batch.client.clone(),
            is_party: !batch.session.is_empty(),
            class: String::new(),
            number: 0,
            heard_at: now,
            bytes_moved: batch.bytes_moved,
            moved: BTreeMap::new(),
            is_known_from_its_start: batch.epoch == 0,
            threads: 1,
            clock: GuaranteedRateClock::starting(now),
            lateness: Duration::ZERO,
            contended: BTreeMap::new(),
            ends: Vec::new(),
            asked: BTreeSet::new(),
            oldest: None,
        }
    }

    /// Takes the client's own data from a batch, and charges its class; returns false if a later batch was
    /// heard before.
    pub(super) fn record_batch(
        &mut self,
        now: Duration,
        batch: &GrantClientReport,
        name: &str,
        class: &mut ClassState,
    ) -> bool {
        if batch.number <= self.number {
            return false;
        }
        self.number = batch.number;
        self.heard_at = now;
        self.threads = (batch.threads as usize).max(1);
        name.clone_into(&mut self.class);
        let bytes = batch.bytes_moved.saturating_sub(self.bytes_moved);
        self.bytes_moved = batch.bytes_moved.max(self.bytes_moved);
        let is_hungry = !batch.asks.is_empty();
        let own = guaranteed_to_client(&class.class, batch.deadline);
        let of_class = class.class.class_bytes_per_s;
        self.clock.charge(now, bytes, own, is_hungry);
        class.clock.charge(now, bytes, of_class, is_hungry);
        self.lateness = self.clock.lateness(now).max(class.clock.lateness(now));
        true
    }

    /// Returns bytes by target that no batch has reported before.
    pub(super) fn newly_moved<'b>(&mut self, batch: &'b GrantClientReport) -> Vec<(&'b str, u64)> {
        let GrantClientRecord { moved: known, is_known_from_its_start, .. } = self;
        let mut newly = Vec::new();
        for MovedBytes { target, bytes } in &batch.moved {
            let before = known.insert(target.clone(), *bytes);
            let before = before.unwrap_or(if *is_known_from_its_start { 0 } else { *bytes });
            if *bytes > before {
                newly.push((&**target, *bytes - before));
            }
        }
        newly
    }

    /// Sets the targets that it asks for; returns those that it asked for before and does not any more.
    pub(super) fn set_asked(&mut self, asked: BTreeSet<String>) -> Vec<String> {
        let gone = self.asked.difference(&asked).cloned().collect();
        self.asked = asked;
        gone
    }

    pub(super) fn set_contended(&mut self, contended: BTreeMap<String, Duration>) {
        self.ends = contended.values().copied().collect();
        self.ends.sort_unstable();
        self.contended = contended;
    }

    pub(super) fn set_contended_one(&mut self, target: &str, until: Option<Duration>) {
        let known = self.contended.get(target).copied();
        if known == until {
            return;
        }
        if let Some(known) = known {
            self.contended.remove(target);
            self.ends.remove(self.ends.partition_point(|end| *end < known));
        }
        if let Some(until) = until {
            self.contended.insert(target.to_owned(), until);
            self.ends.insert(self.ends.partition_point(|end| *end < until), until);
        }
    }

    pub(super) fn set_oldest(&mut self, oldest: Option<(&str, Duration)>) {
        self.oldest = oldest.map(|(target, since)| (target.to_owned(), since));
    }

    /// Returns true if it has threads for one more target that others want, from `start` on. For the target
    /// that it has waited for the longest it may exceed its threads by one after a long wait, so that targets
    /// change hands even if all clients have enough.
    fn has_room(&self, settings: &GrantSettings, target: &str, now: Duration, start: Duration) -> bool {
        let count = self.ends.len() - self.ends.partition_point(|end| *end <= start);
        let is_oldest = self
            .oldest
            .as_ref()
            .is_some_and(|(oldest, since)| oldest == target && *since + settings.aged_after() <= now);
        count < self.threads || (count == self.threads && is_oldest)
    }
}

/// Returns a client's standing for a grant of this target from `start` on; `None` if it has been silent.
pub(super) fn turn_candidate(
    settings: &GrantSettings,
    clients: &BTreeMap<GrantClientNumber, GrantClientRecord>,
    target: &str,
    now: Duration,
    start: Duration,
    key: GrantClientNumber,
) -> Option<GrantTurnCandidate> {
    let client = clients.get(&key)?;
    if client.heard_at + settings.silence_limit() < now {
        return None;
    }
    Some(GrantTurnCandidate {
        has_room: client.has_room(settings, target, now, start),
        lateness: client.lateness,
    })
}
