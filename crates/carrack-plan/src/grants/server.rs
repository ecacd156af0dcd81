//! The server of one file system: its clients, its targets, and who may use what.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use super::classes::{ClassState, RateClock};
use super::clients::{Client, standing};
use super::health::{Allowance, Load, Told};
use super::messages::{Answer, Batch, Held};
use super::settings::{Class, GrantSettings};
use super::target::{Context, Target, Wanted};
use super::turns::ClientKey;

/// Targets that are kept track of; what is asked for beyond them is granted to nobody.
const TARGETS_MAX: usize = 65_536;

/// How often what nobody speaks of any more is cleared away.
const SWEEP: Duration = Duration::from_secs(1);

/// Decides who may work on which target of one file system (L10).
///
/// It keeps nothing durably: after a start it listens for [`silence`](GrantSettings::silence), in which clients tell what they hold,
/// and then goes on. All times are of one clock that never goes back.
#[derive(Debug)]
pub struct GrantServer {
    pub(super) settings: GrantSettings,
    epoch: u64,
    started_at: Duration,
    swept_at: Duration,
    next_id: u64,
    next_key: ClientKey,
    keys: HashMap<String, ClientKey>,
    pub(super) clients: BTreeMap<ClientKey, Client>,
    classes: BTreeMap<String, ClassState>,
    pub(super) targets: BTreeMap<String, Target>,
    pub(super) loads: BTreeMap<String, Told>,
    moved_bytes: BTreeMap<String, u64>,
}

impl GrantServer {
    /// One that begins now; `epoch` is not 0 and not that of any server before it, such as the time of day in nanoseconds. The class
    /// with the empty name is for everybody who names none.
    pub fn new(
        settings: GrantSettings,
        classes: BTreeMap<String, Class>,
        epoch: u64,
        now: Duration,
    ) -> GrantServer {
        let classes = states(classes, &BTreeMap::new(), now);
        GrantServer {
            settings,
            epoch,
            started_at: now,
            swept_at: now,
            next_id: 1,
            next_key: 1,
            keys: HashMap::new(),
            clients: BTreeMap::new(),
            classes,
            targets: BTreeMap::new(),
            loads: BTreeMap::new(),
            moved_bytes: BTreeMap::new(),
        }
    }

    /// Goes over to other settings and classes. What is granted stays granted; a client whose class is gone has none from its next batch
    /// on, and what is owed to a class that stays is owed still.
    pub fn change(&mut self, settings: GrantSettings, classes: BTreeMap<String, Class>, now: Duration) {
        self.settings = settings;
        self.classes = states(classes, &self.classes, now);
    }

    /// What computation uses of a target, and will: shrinks or grows its grants from the next burst on (L11).
    pub fn set_load(&mut self, target: &str, load: Load, now: Duration) {
        if self.loads.len() < TARGETS_MAX || self.loads.contains_key(target) {
            self.loads.insert(target.to_owned(), Told { load, at: now });
        }
    }

    /// Bytes that clients told they moved from or to each target since the server began, by name: what its load is not to contain.
    pub fn moved_bytes(&self) -> impl Iterator<Item = (&str, u64)> {
        self.moved_bytes.iter().map(|(name, bytes)| (&**name, *bytes))
    }

    /// The names of the clients that it knows: those that were heard of within a lease, and a second at most.
    pub fn clients(&self) -> impl Iterator<Item = &str> {
        self.keys.keys().map(String::as_str)
    }

    /// Whether it knows a client of this name.
    pub fn knows(&self, client: &str) -> bool {
        self.keys.contains_key(client)
    }

    /// Takes a client's batch in, and says what it has now.
    pub fn answer(&mut self, now: Duration, batch: &Batch) -> Answer {
        self.sweep(now);
        let Some(key) = self.hear(now, batch) else {
            // An older batch that was overtaken: its answer would be too.
            return Answer { epoch: self.epoch, ..Answer::default() };
        };
        if batch.leaves {
            self.forget(now, key);
            return Answer { epoch: self.epoch, number: batch.number, ..Answer::default() };
        }
        let is_settling = now < self.started_at + self.settings.silence();
        let mut answer = Answer {
            epoch: self.epoch,
            number: batch.number,
            class: self.clients[&key].class.clone(),
            is_settling,
            grants: Vec::new(),
        };
        let mut words: Vec<(&str, Words<'_>)> = words_by_target(batch).into_iter().collect();
        words.retain(|(name, words)| self.is_of_use(name, words));
        self.unask_the_rest(key, &words);
        for (name, words) in &words {
            self.keep(now, key, name, words, batch.epoch, is_settling);
        }
        self.count(key, &words, now);
        // What has waited longest comes first, while there is room.
        words.sort_by_key(|(_, words)| Reverse(words.waits_us));
        for (name, words) in &words {
            self.serve(now, key, name, words, is_settling);
            self.count_one(key, name);
            let own = self.targets.get(*name).into_iter().flat_map(Target::holdings);
            let own = own.filter(|holding| holding.client == key);
            answer.grants.extend(own.map(|holding| holding.to_grant(name, now)));
        }
        answer
    }

    /// Whether a target is kept track of, or shall be.
    fn is_of_use(&self, name: &str, words: &Words<'_>) -> bool {
        self.targets.contains_key(name) || (self.targets.len() < TARGETS_MAX && !words.is_empty())
    }

    /// What a client asked for and speaks of no more it does not want any more.
    fn unask_the_rest(&mut self, key: ClientKey, words: &[(&str, Words<'_>)]) {
        let Some(client) = self.clients.get_mut(&key) else { return };
        let asked = words.iter().filter(|(_, words)| words.waits_us.is_some());
        for gone in client.set_asked(asked.map(|(name, _)| (*name).to_owned()).collect()) {
            if let Some(target) = self.targets.get_mut(&gone) {
                target.unask(key);
            }
        }
    }

    /// Hears what a client says of a target, and extends or ends what it has.
    fn keep(
        &mut self,
        now: Duration,
        key: ClientKey,
        name: &str,
        words: &Words<'_>,
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
                    target.tell(now, key, held);
                } else {
                    target.adopt(context, wanted, held, *next_id, is_settling);
                    *next_id += 1;
                }
            }
            target.keep(context, wanted);
        });
    }

    /// Gives a client what it can have of a target.
    fn serve(&mut self, now: Duration, key: ClientKey, name: &str, words: &Words<'_>, is_settling: bool) {
        self.with_target(now, key, name, words, |target, context, wanted, next_id| {
            target.serve(context, wanted, is_settling, next_id);
        });
    }

    fn with_target(
        &mut self,
        now: Duration,
        key: ClientKey,
        name: &str,
        words: &Words<'_>,
        act: impl FnOnce(&mut Target, &Context<'_>, &Wanted, &mut u64),
    ) {
        let GrantServer { settings, clients, classes, targets, loads, next_id, .. } = self;
        let standing = |other, start| standing(settings, clients, name, now, start, other);
        let allowance = Allowance::new(settings, loads.get(name).copied(), now);
        let context = Context { now, settings, allowance, standing: &standing };
        let weight = classes.get(&clients[&key].class).map_or(1, |state| state.class.weight);
        let since = words.waits_us.map(|waits| now.saturating_sub(Duration::from_micros(waits)));
        let wanted = Wanted { client: key, weight, since };
        act(targets.entry(name.to_owned()).or_default(), &context, &wanted, next_id);
    }

    /// Whose batch it is, with what it says of the client itself; nothing if a later one was heard before.
    fn hear(&mut self, now: Duration, batch: &Batch) -> Option<ClientKey> {
        let class = if self.classes.contains_key(&batch.class) { &*batch.class } else { "" };
        let key = *self.keys.entry(batch.client.clone()).or_insert_with(|| {
            let key = self.next_key;
            self.next_key += 1;
            self.clients.insert(key, Client::new(batch, now));
            key
        });
        let client = self.clients.get_mut(&key)?;
        if !client.hear(now, batch, class, self.classes.get_mut(class)?) {
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

    /// Takes down which of its targets others want too, and what it has waited for the longest.
    fn count(&mut self, key: ClientKey, words: &[(&str, Words<'_>)], now: Duration) {
        let Some(client) = self.clients.get_mut(&key) else { return };
        let contended = |(name, _): &(&str, Words<'_>)| {
            let target = self.targets.get(*name)?;
            Some(((*name).to_owned(), target.contended_until(key)?))
        };
        client.set_contended(words.iter().filter_map(contended).collect());
        let has_none = |name: &str| {
            let mut holdings = self.targets.get(name).into_iter().flat_map(Target::holdings);
            holdings.all(|holding| holding.client != key)
        };
        let wished = words.iter().filter(|(name, _)| has_none(name));
        let oldest = wished.filter_map(|(name, words)| Some((words.waits_us?, *name))).max();
        client
            .set_oldest(oldest.map(|(waits, name)| (name, now.saturating_sub(Duration::from_micros(waits)))));
    }

    /// The same for a target where something may have changed.
    fn count_one(&mut self, key: ClientKey, name: &str) {
        let until = self.targets.get(name).and_then(|target| target.contended_until(key));
        if let Some(client) = self.clients.get_mut(&key) {
            client.set_contended_one(name, until);
        }
    }

    /// A client is gone.
    fn forget(&mut self, now: Duration, key: ClientKey) {
        let Some(client) = self.clients.remove(&key) else { return };
        self.keys.remove(&client.name);
        for (name, target) in &mut self.targets {
            let allowance = Allowance::new(&self.settings, self.loads.get(name).copied(), now);
            let standing = |_, _| None;
            let context = Context { now, settings: &self.settings, allowance, standing: &standing };
            target.forget(&context, key);
        }
    }

    /// Forgets clients whose leases are over, targets that nobody uses, and loads that are not known any more.
    fn sweep(&mut self, now: Duration) {
        if now < self.swept_at + SWEEP {
            return;
        }
        self.swept_at = now;
        let lease = self.settings.lease;
        let is_gone = |client: &Client| client.heard_at + lease <= now;
        let gone: Vec<ClientKey> =
            self.clients.iter().filter(|(_, client)| is_gone(client)).map(|(key, _)| *key).collect();
        gone.into_iter().for_each(|key| self.forget(now, key));
        self.loads.retain(|_, told| told.is_known(now));
        for (name, target) in &mut self.targets {
            let allowance = Allowance::new(&self.settings, self.loads.get(name).copied(), now);
            let standing = |_, _| None;
            target.expire(&Context { now, settings: &self.settings, allowance, standing: &standing });
        }
        self.targets.retain(|_, target| !target.is_unused());
    }
}

/// Classes with their clocks: those that were known go on. The class without a name is always there.
fn states(
    mut classes: BTreeMap<String, Class>,
    known: &BTreeMap<String, ClassState>,
    now: Duration,
) -> BTreeMap<String, ClassState> {
    classes.entry(String::new()).or_default();
    let clock = |name: &str| known.get(name).map_or(RateClock::starting(now), |state| state.clock);
    let states = classes.into_iter().map(|(name, class)| {
        let clock = clock(&name);
        (name, ClassState { class, clock })
    });
    states.collect()
}

/// What a batch says of one target.
#[derive(Default)]
struct Words<'a> {
    waits_us: Option<u64>,
    held: Vec<&'a Held>,
    returns: Vec<&'a Held>,
}

impl Words<'_> {
    /// It brings nothing to a target that nobody else speaks of.
    fn is_empty(&self) -> bool {
        self.waits_us.is_none() && self.held.is_empty()
    }
}

fn words_by_target(batch: &Batch) -> BTreeMap<&str, Words<'_>> {
    let mut words: BTreeMap<&str, Words<'_>> = BTreeMap::new();
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
