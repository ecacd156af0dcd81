//! What the server knows of each client.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::classes::{ClassState, RateClock, guaranteed_to_client};
use super::messages::{Batch, Moved};
use super::settings::GrantSettings;
use super::turns::{ClientKey, Standing};

/// A client, as its last batch has left it.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) name: String,
    pub(super) class: String,
    number: u64,
    pub(super) heard_at: Duration,
    bytes_moved: u64,
    /// The same by target. One that this server was told of first when it had moved some already counts from there.
    moved: BTreeMap<String, u64>,
    is_known_from_its_start: bool,
    threads: usize,
    clock: RateClock,
    /// How far it, or its class, was behind what is guaranteed when it last spoke. Not how far it is now: of two that are equally late the
    /// one that does not speak would seem the later one, and neither would have its turn.
    lateness: Duration,
    /// Until when it has targets that others want too; and the same in order.
    contended: BTreeMap<String, Duration>,
    ends: Vec<Duration>,
    /// What its last batch asked for.
    asked: BTreeSet<String>,
    /// The target that it has waited for the longest, and since when.
    oldest: Option<(String, Duration)>,
}

impl Client {
    /// One that this is the first batch of.
    pub(super) fn new(batch: &Batch, now: Duration) -> Client {
        Client {
            name: batch.client.clone(),
            class: String::new(),
            number: 0,
            heard_at: now,
            bytes_moved: batch.bytes_moved,
            moved: BTreeMap::new(),
            is_known_from_its_start: batch.epoch == 0,
            threads: 1,
            clock: RateClock::starting(now),
            lateness: Duration::ZERO,
            contended: BTreeMap::new(),
            ends: Vec::new(),
            asked: BTreeSet::new(),
            oldest: None,
        }
    }

    /// Takes in what a batch says of the client itself, and of its class; false if a later one was heard before.
    pub(super) fn hear(&mut self, now: Duration, batch: &Batch, name: &str, class: &mut ClassState) -> bool {
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

    /// Bytes by target that no batch has told before.
    pub(super) fn newly_moved<'b>(&mut self, batch: &'b Batch) -> Vec<(&'b str, u64)> {
        let Client { moved: known, is_known_from_its_start, .. } = self;
        let newly = |moved: &'b Moved| {
            let before = known.insert(moved.target.clone(), moved.bytes);
            let before = before.unwrap_or(if *is_known_from_its_start { 0 } else { moved.bytes });
            (&*moved.target, moved.bytes.saturating_sub(before))
        };
        batch.moved.iter().map(newly).filter(|(_, bytes)| *bytes > 0).collect()
    }

    /// What it asks for now; returns what it asked for before and does not any more.
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

    /// Whether it has threads for one more target that others want, from `start` on. For what it has waited for the longest it
    /// may have one too many, once it has waited for long: so targets change hands even if all have enough.
    fn has_room(&self, settings: &GrantSettings, target: &str, now: Duration, start: Duration) -> bool {
        let count = self.ends.len() - self.ends.partition_point(|end| *end <= start);
        let is_oldest =
            |(oldest, since): &(String, Duration)| oldest == target && *since + settings.aged() <= now;
        count < self.threads || (count == self.threads && self.oldest.as_ref().is_some_and(is_oldest))
    }
}

/// How a client stands for a grant of this target from `start` on, if it was heard of lately.
pub(super) fn standing(
    settings: &GrantSettings,
    clients: &BTreeMap<ClientKey, Client>,
    target: &str,
    now: Duration,
    start: Duration,
    key: ClientKey,
) -> Option<Standing> {
    let client = clients.get(&key)?;
    if client.heard_at + settings.silence() < now {
        return None;
    }
    Some(Standing { has_room: client.has_room(settings, target, now, start), lateness: client.lateness })
}
