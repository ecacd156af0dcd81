//! The server of one file system: its clients, its targets, and the grants.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use super::clients::{GrantClientRecord, turn_candidate};
use super::computation_load::{ReportedTargetLoad, TargetAllowance, TargetComputeLoad};
use super::messages::{GrantClientReport, GrantReply, GrantUseReport};
use super::rate_guarantees::{ClassState, GuaranteedRateClock};
use super::session_parties::SessionGrantParties;
use super::settings::{GrantClientClass, GrantSettings};
use super::target::{GrantContext, SharedTarget, TargetWish};
use super::turns::GrantClientNumber;

/// Upper bound of known targets; wishes for further ones are never granted.
const TARGETS_MAX: usize = 65_536;

/// Interval between removals of stale state.
const SWEEP: Duration = Duration::from_secs(1);

/// Decides which clients may work on which target of one file system (L10).
///
/// It keeps nothing durably: after a start it listens for [`silence`](GrantSettings::silence_limit), in which
/// clients report their grants, and then begins to grant. All times are of one clock that never goes back.
#[derive(Debug)]
pub struct GrantServer {
    pub(super) settings: GrantSettings,
    epoch: u64,
    started_at: Duration,
    swept_at: Duration,
    next_id: u64,
    next_key: GrantClientNumber,
    keys: HashMap<String, GrantClientNumber>,
    pub(super) clients: BTreeMap<GrantClientNumber, GrantClientRecord>,
    /// By session.
    parties: BTreeMap<String, SessionGrantParties>,
    /// Names of the ends of all parties.
    ends: HashSet<String>,
    classes: BTreeMap<String, ClassState>,
    pub(super) targets: BTreeMap<String, SharedTarget>,
    pub(super) loads: BTreeMap<String, ReportedTargetLoad>,
    moved_bytes: BTreeMap<String, u64>,
}

impl GrantServer {
    /// Creates a server that begins now. `epoch` is neither 0 nor that of an earlier server: for example the
    /// time of day in nanoseconds. The class with the empty name is for clients that name none.
    pub fn new(
        settings: GrantSettings,
        classes: BTreeMap<String, GrantClientClass>,
        epoch: u64,
        now: Duration,
    ) -> GrantServer {
        let classes = class_states(classes, &BTreeMap::new(), now);
        GrantServer {
            settings,
            epoch,
            started_at: now,
            swept_at: now,
            next_id: 1,
            next_key: 1,
            keys: HashMap::new(),
            clients: BTreeMap::new(),
            parties: BTreeMap::new(),
            ends: HashSet::new(),
            classes,
            targets: BTreeMap::new(),
            loads: BTreeMap::new(),
            moved_bytes: BTreeMap::new(),
        }
    }

    /// Changes settings and classes. Grants stay. A client whose class is gone has the empty class from its
    /// next batch on, and a class that stays keeps its lateness.
    pub fn change(
        &mut self,
        settings: GrantSettings,
        classes: BTreeMap<String, GrantClientClass>,
        now: Duration,
    ) {
        self.settings = settings;
        self.classes = class_states(classes, &self.classes, now);
    }

    /// Sets the present and expected load of a target by computation: its grants shrink or grow from the next
    /// burst on (L11).
    pub fn set_load(&mut self, target: &str, load: TargetComputeLoad, now: Duration) {
        if self.loads.len() < TARGETS_MAX || self.loads.contains_key(target) {
            self.loads.insert(target.to_owned(), ReportedTargetLoad { load, at: now });
        }
    }

    /// Returns the bytes that clients reported as moved from or to each target since the server began, by
    /// name, to subtract from its measured load.
    pub fn moved_bytes(&self) -> impl Iterator<Item = (&str, u64)> {
        self.moved_bytes.iter().map(|(name, bytes)| (&**name, *bytes))
    }

    /// Returns the names of the known clients: those heard of within a lease, and up to a second before.
    pub fn clients(&self) -> impl Iterator<Item = &str> {
        let single = self.keys.iter().filter(|(_, key)| !self.clients[*key].is_party);
        single.map(|(name, _)| name).chain(&self.ends).map(String::as_str)
    }

    /// Returns true if it knows a client of this name.
    pub fn has_client(&self, client: &str) -> bool {
        let key = self.keys.get(client);
        self.ends.contains(client) || key.is_some_and(|key| !self.clients[key].is_party)
    }

    /// Takes a client's batch and returns its present grants. The ends of one session are one client.
    pub fn answer(&mut self, now: Duration, batch: &GrantClientReport) -> GrantReply {
        self.sweep(now);
        if batch.session.is_empty() {
            return self.answer_one(now, batch);
        }
        let settings = self.settings.clone();
        let party = self.parties.entry(batch.session.clone()).or_default();
        let Some(of_all) = party.merge_batch(now, batch, &settings) else {
            return GrantReply { epoch: self.epoch, ..GrantReply::default() };
        };
        if batch.leaves {
            self.ends.remove(&batch.client);
        } else {
            self.ends.insert(batch.client.clone());
        }
        let answer = self.answer_one(now, &of_all);
        match self.parties.get(&batch.session) {
            Some(party) if !party.is_gone() => party.reply_for_end(answer, batch),
            _ => {
                self.parties.remove(&batch.session);
                GrantReply { number: batch.number, ..answer }
            }
        }
    }

    fn answer_one(&mut self, now: Duration, batch: &GrantClientReport) -> GrantReply {
        let Some(key) = self.record_batch(now, batch) else {
            // A batch that a later one has overtaken: its answer would be overtaken, too.
            return GrantReply { epoch: self.epoch, ..GrantReply::default() };
        };
        if batch.leaves {
            self.forget(now, key);
            return GrantReply { epoch: self.epoch, number: batch.number, ..GrantReply::default() };
        }
        let is_settling = now < self.started_at + self.settings.silence_limit();
        let mut answer = GrantReply {
            epoch: self.epoch,
            number: batch.number,
            class: self.clients[&key].class.clone(),
            is_settling,
            grants: Vec::new(),
        };
        let mut words: Vec<(&str, GrantReportTarget<'_>)> = reports_by_target(batch).into_iter().collect();
        words.retain(|(name, words)| self.may_track_target(name, words));
        self.remove_unrepeated_wishes(key, &words);
        for (name, words) in &words {
            self.update_grants(now, key, name, words, batch.epoch, is_settling);
        }
        self.update_contention(key, &words, now);
        // The longest wait comes first, while there is room.
        words.sort_by_key(|(_, words)| Reverse(words.waits_us));
        for (name, words) in &words {
            self.grant_if_turn(now, key, name, words, is_settling);
            self.update_target_contention(key, name);
            let own = self.targets.get(*name).into_iter().flat_map(SharedTarget::holdings);
            let own = own.filter(|holding| holding.client == key);
            answer.grants.extend(own.map(|holding| holding.to_grant(name, now)));
        }
        answer
    }

    /// Returns true if the target is known or may be added.
    fn may_track_target(&self, name: &str, words: &GrantReportTarget<'_>) -> bool {
        self.targets.contains_key(name) || (self.targets.len() < TARGETS_MAX && !words.is_empty())
    }

    /// Removes wishes of a client that its batch does not repeat.
    fn remove_unrepeated_wishes(&mut self, key: GrantClientNumber, words: &[(&str, GrantReportTarget<'_>)]) {
        let Some(client) = self.clients.get_mut(&key) else { return };
        let asked = words.iter().filter(|(_, words)| words.waits_us.is_some());
        for gone in client.set_asked(asked.map(|(name, _)| (*name).to_owned()).collect()) {
            if let Some(target) = self.targets.get_mut(&gone) {
                target.remove_wish(key);
            }
        }
    }

    /// Takes a client's report on a target, and extends or ends its grants.
    fn update_grants(
        &mut self,
        now: Duration,
        key: GrantClientNumber,
        name: &str,
        words: &GrantReportTarget<'_>,
        epoch: u64,
        is_settling: bool,
    ) {
        let is_own_epoch = epoch == self.epoch;
        self.with_target(now, key, name, words, |target, context, wanted, next_id| {
            target.expire(context);
            for held in words.returns.iter().filter(|_| is_own_epoch) {
                target.give_back(context, key, held);
            }
            for held in &words.held {
                if is_own_epoch {
                    target.record_use(now, key, held);
                } else {
                    target.adopt(context, wanted, held, *next_id, is_settling);
                    *next_id += 1;
                }
            }
            target.renew_or_expire(context, wanted);
        });
    }

    /// Grants a target to a client, if its turn has come.
    fn grant_if_turn(
        &mut self,
        now: Duration,
        key: GrantClientNumber,
        name: &str,
        words: &GrantReportTarget<'_>,
        is_settling: bool,
    ) {
        self.with_target(now, key, name, words, |target, context, wanted, next_id| {
            target.grant_if_turn(context, wanted, is_settling, next_id);
        });
    }

    fn with_target(
        &mut self,
        now: Duration,
        key: GrantClientNumber,
        name: &str,
        words: &GrantReportTarget<'_>,
        act: impl FnOnce(&mut SharedTarget, &GrantContext<'_>, &TargetWish, &mut u64),
    ) {
        let GrantServer { settings, clients, classes, targets, loads, next_id, .. } = self;
        let allowance = TargetAllowance::new(settings, loads.get(name).copied(), now);
        let context = GrantContext {
            now,
            settings,
            allowance,
            standing: &|other, start| turn_candidate(settings, clients, name, now, start, other),
        };
        let weight = classes.get(&clients[&key].class).map_or(1, |state| state.class.weight);
        let since = words.waits_us.map(|waits| now.saturating_sub(Duration::from_micros(waits)));
        let wanted = TargetWish { client: key, weight, since };
        act(targets.entry(name.to_owned()).or_default(), &context, &wanted, next_id);
    }

    /// Takes the client's own data and returns its key; `None` if a later batch was heard before.
    fn record_batch(&mut self, now: Duration, batch: &GrantClientReport) -> Option<GrantClientNumber> {
        let class = if self.classes.contains_key(&batch.class) { &*batch.class } else { "" };
        let key = *self.keys.entry(batch.client.clone()).or_insert_with(|| {
            let key = self.next_key;
            self.next_key += 1;
            self.clients.insert(key, GrantClientRecord::new(batch, now));
            key
        });
        let client = self.clients.get_mut(&key)?;
        if !client.record_batch(now, batch, class, self.classes.get_mut(class)?) {
            return None;
        }
        for (target, bytes) in client.newly_moved(batch) {
            if self.moved_bytes.len() < TARGETS_MAX || self.moved_bytes.contains_key(target) {
                let moved = self.moved_bytes.entry(target.to_owned()).or_default();
                *moved = moved.saturating_add(bytes);
            }
        }
        Some(key)
    }

    /// Updates the client's contended targets, and its longest wait.
    fn update_contention(
        &mut self,
        key: GrantClientNumber,
        words: &[(&str, GrantReportTarget<'_>)],
        now: Duration,
    ) {
        let Some(client) = self.clients.get_mut(&key) else { return };
        let mut contended = BTreeMap::new();
        let mut oldest = None;
        for (name, words) in words {
            let target = self.targets.get(*name);
            if let Some(until) = target.and_then(|target| target.contended_until(key)) {
                contended.insert((*name).to_owned(), until);
            }
            let mut holdings = target.into_iter().flat_map(SharedTarget::holdings);
            if holdings.all(|holding| holding.client != key) {
                oldest = oldest.max(words.waits_us.map(|waits| (waits, *name)));
            }
        }
        client.set_contended(contended);
        client
            .set_oldest(oldest.map(|(waits, name)| (name, now.saturating_sub(Duration::from_micros(waits)))));
    }

    /// The same for a single target that may have changed.
    fn update_target_contention(&mut self, key: GrantClientNumber, name: &str) {
        let until = self.targets.get(name).and_then(|target| target.contended_until(key));
        if let Some(client) = self.clients.get_mut(&key) {
            client.set_contended_one(name, until);
        }
    }

    /// Removes a client.
    fn forget(&mut self, now: Duration, key: GrantClientNumber) {
        let Some(client) = self.clients.remove(&key) else { return };
        self.keys.remove(&client.name);
        for (name, target) in &mut self.targets {
            let allowance = TargetAllowance::new(&self.settings, self.loads.get(name).copied(), now);
            let context = GrantContext { now, settings: &self.settings, allowance, standing: &|_, _| None };
            target.forget(&context, key);
        }
    }

    /// Removes clients whose leases are over, unused targets, and outdated loads.
    fn sweep(&mut self, now: Duration) {
        if now < self.swept_at + SWEEP {
            return;
        }
        self.swept_at = now;
        let GrantServer { parties, settings, .. } = self;
        parties.values_mut().for_each(|party| party.sweep(now, settings));
        parties.retain(|_, party| !party.is_gone());
        self.ends = self.parties.values().flat_map(SessionGrantParties::ends).map(str::to_owned).collect();
        let lease = self.settings.lease;
        let ended = self.clients.iter().filter(|(_, client)| client.heard_at + lease <= now);
        let gone: Vec<GrantClientNumber> = ended.map(|(key, _)| *key).collect();
        gone.into_iter().for_each(|key| self.forget(now, key));
        self.loads.retain(|_, told| told.is_known(now));
        for (name, target) in &mut self.targets {
            let allowance = TargetAllowance::new(&self.settings, self.loads.get(name).copied(), now);
            target.expire(&GrantContext { now, settings: &self.settings, allowance, standing: &|_, _| None });
        }
        self.targets.retain(|_, target| !target.is_unused());
    }
}

/// Returns classes with their clocks; known classes keep theirs. The class without a name always exists.
fn class_states(
    mut classes: BTreeMap<String, GrantClientClass>,
    known: &BTreeMap<String, ClassState>,
    now: Duration,
) -> BTreeMap<String, ClassState> {
    classes.entry(String::new()).or_default();
    let states = classes.into_iter().map(|(name, class)| {
        let clock = known.get(&name).map_or(GuaranteedRateClock::starting(now), |state| state.clock);
        (name, ClassState { class, clock })
    });
    states.collect()
}

/// A batch's data about one target.
#[derive(Default)]
struct GrantReportTarget<'a> {
    waits_us: Option<u64>,
    held: Vec<&'a GrantUseReport>,
    returns: Vec<&'a GrantUseReport>,
}

impl GrantReportTarget<'_> {
    /// Returns true if it is of no use to an unknown target.
    fn is_empty(&self) -> bool {
        self.waits_us.is_none() && self.held.is_empty()
    }
}

fn reports_by_target(batch: &GrantClientReport) -> BTreeMap<&str, GrantReportTarget<'_>> {
    let mut words: BTreeMap<&str, GrantReportTarget<'_>> = BTreeMap::new();
    for ask in &batch.asks {
        words.entry(&ask.target).or_default().waits_us = Some(ask.waits_us);
    }
    for held in &batch.held {
        words.entry(&held.target).or_default().held.push(held);
    }
    for held in &batch.returns {
        words.entry(&held.target).or_default().returns.push(held);
    }
    words
}
