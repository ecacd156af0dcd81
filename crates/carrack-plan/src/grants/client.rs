//! The client at one end of a session: its wishes, its grants, and the grants that it gives back.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use carrack_model::TargetId;

use super::client_target::GrantClientTarget;
use super::messages::{
    GrantClientReport, GrantReply, GrantUseReport, TargetGrant, TransferDeadlineDemand, millis,
};
use crate::policy::{StorageRequestTiming, TargetState};

/// Upper bound of batches without an answer; older ones are not expected to be answered any more.
const UNANSWERED_MAX: usize = 64;

/// Settings of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrantClientSettings {
    /// Interval between batches; the server's [`period`](super::GrantSettings::period).
    pub period: Duration,
    /// Minimum time between two batches, even if the second one is urgent.
    pub gap: Duration,
    /// Time without an answer after which the client continues unmanaged.
    pub away_after: Duration,
    /// Time for which a target that others wait for is kept without work: the next object may be about to
    /// come (anticipatory scheduling, Iyer and Druschel, SOSP 2001).
    pub linger: Duration,
    /// Time without news of a target after which it may have changed hands: it counts as never asked for.
    pub stale_after: Duration,
    /// Threads of the client: unused grants beyond this number are given back if others wait.
    pub threads: usize,
}

impl Default for GrantClientSettings {
    fn default() -> GrantClientSettings {
        GrantClientSettings {
            period: Duration::from_millis(100),
            gap: Duration::from_millis(10),
            away_after: Duration::from_secs(1),
            linger: Duration::from_millis(50),
            stale_after: Duration::from_secs(2),
            threads: 8,
        }
    }
}

/// An event that is worth a line to the user, once each time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GrantServerPresence {
    /// The server does not answer: the transfer continues as if no other client shared the file system.
    Unmanaged,
    /// The server answers again.
    Managed,
}

/// One end's part in sharing a file system.
///
/// It belongs to the target queues and is used under their lock. [`may_start`](Self::may_start) says whether
/// an object of a target may be taken. The sender of messages calls [`take_due_batch`](Self::take_due_batch)
/// a few times in a period, and at once when a thread found no work.
///
/// No thread waits for the first answer about a target: one request may start while it is asked for. If
/// another client has the target, it was shared for one round trip.
#[derive(Clone, Debug)]
pub struct GrantClient {
    name: String,
    session: String,
    class: String,
    settings: GrantClientSettings,
    /// Bytes left, and the time by which they shall have been moved.
    deadline: Option<(u64, Duration)>,
    targets: HashMap<TargetId, GrantClientTarget>,
    by_name: BTreeMap<Arc<str>, TargetId>,
    bytes_moved: u64,
    number: u64,
    /// Unanswered batches with their send times.
    sent: VecDeque<(u64, Duration)>,
    epoch: u64,
    returns: Vec<ReturnedGrant>,
    is_managed: bool,
    /// Time since which an answer has been missing.
    missing_since: Option<Duration>,
    notice: Option<GrantServerPresence>,
}

#[derive(Clone, Debug)]
struct ReturnedGrant {
    held: GrantUseReport,
    /// The first batch that reported it.
    told_in: u64,
}

impl GrantClient {
    /// Creates a client. `name` is unique among all clients ever; a class that the server does not know
    /// counts as the empty one.
    pub fn new(name: &str, class: &str, settings: GrantClientSettings) -> GrantClient {
        GrantClient {
            name: name.to_owned(),
            session: String::new(),
            class: class.to_owned(),
            settings,
            deadline: None,
            targets: HashMap::new(),
            by_name: BTreeMap::new(),
            bytes_moved: 0,
            number: 0,
            sent: VecDeque::new(),
            epoch: 0,
            returns: Vec::new(),
            is_managed: true,
            missing_since: None,
            notice: None,
        }
    }

    /// Makes the client an end of this session, which shares its grants with the other end.
    #[must_use]
    pub fn with_session(self, session: &str) -> GrantClient {
        GrantClient { session: session.to_owned(), ..self }
    }

    /// Adds a target. All clients of the file system use the same name for it, and no two targets share a
    /// name. A target that was never added is not shared and may always be started.
    pub fn add_target(&mut self, target: TargetId, name: &str) {
        let name: Arc<str> = name.into();
        self.by_name.insert(Arc::clone(&name), target);
        self.targets.entry(target).or_insert_with(|| GrantClientTarget::new(name));
    }

    /// Sets the number of threads.
    pub fn set_threads(&mut self, threads: usize) {
        self.settings.threads = threads;
    }

    /// Sets the deadline by which `left` bytes of the transfer shall have been moved, after `moved` so far.
    ///
    /// The part over shared targets is estimated from the past: nothing at an end in memory, twice as much
    /// where both ends are in one process.
    pub fn set_deadline(&mut self, at: Duration, moved: u64, left: u64) {
        let own = match moved {
            0 => u128::from(left),
            moved => u128::from(left) * u128::from(self.bytes_moved) / u128::from(moved),
        };
        self.deadline = Some((u64::try_from(own).unwrap_or(u64::MAX), at));
    }

    /// Returns true if an object of this target may be begun now while `in_service` are in service.
    pub fn may_start(&self, target: TargetId, in_service: u32, now: Duration) -> bool {
        let Some(target) = self.targets.get(&target) else { return true };
        let silent_since = self.reply_overdue_since(now);
        !self.is_managed
            || (!target.is_known() && in_service == 0)
            || target.may_start_request(in_service, now, silent_since)
    }

    /// Returns the time at which a closed target opens, if only the time changes.
    pub fn opens_at(&self, target: TargetId, now: Duration) -> Option<Duration> {
        let grants = &self.targets.get(&target)?.grants;
        grants.iter().map(|grant| grant.from).filter(|from| *from > now).min()
    }

    /// Records that bytes of a target are about to be read or written.
    pub fn record_start(&mut self, target: TargetId, bytes: u64, now: Duration) {
        let silent_since = self.reply_overdue_since(now);
        let Some(target) = self.targets.get_mut(&target) else { return };
        target.used_at = now;
        if let Some(grant) = target.open_grant(now, silent_since) {
            grant.record_begun_bytes(bytes);
        }
    }

    /// Records that bytes of a target were read or written.
    pub fn record_finish(&mut self, target: TargetId, service: StorageRequestTiming, now: Duration) {
        let Some(target) = self.targets.get_mut(&target) else { return };
        self.bytes_moved = self.bytes_moved.saturating_add(service.bytes);
        target.record_finish(service, now);
    }

    /// Returns the time of the next batch if no urgent one comes before.
    pub fn batch_at(&self) -> Duration {
        self.sent.back().map_or(Duration::ZERO, |(_, at)| *at + self.settings.period)
    }

    /// Returns the next batch, if one is due or urgent. `states` are those of the target queues.
    pub fn take_due_batch(&mut self, now: Duration, states: &[TargetState]) -> Option<GrantClientReport> {
        self.update_targets(now, states);
        let last = self.sent.back().map(|(_, at)| *at);
        let is_due = now >= self.batch_at();
        if !is_due && (last.is_some_and(|at| now < at + self.settings.gap) || !self.is_urgent(now)) {
            return None;
        }
        self.give_back(now);
        if self.has_nothing_to_report() {
            self.sent.clear();
            self.missing_since = None;
            return None;
        }
        Some(self.make_batch(now))
    }

    /// Returns the last batch, which gives everything back.
    pub fn leave(&mut self) -> GrantClientReport {
        self.number += 1;
        self.targets.values_mut().for_each(|target| target.grants.clear());
        GrantClientReport {
            client: self.name.clone(),
            session: self.session.clone(),
            number: self.number,
            epoch: self.epoch,
            bytes_moved: self.bytes_moved,
            moved: self
                .targets
                .values_mut()
                .filter_map(|target| target.report_moved_bytes(self.number))
                .collect(),
            leaves: true,
            ..GrantClientReport::default()
        }
    }

    /// Takes an answer. An answer that a later one has overtaken is ignored.
    pub fn apply_reply(&mut self, now: Duration, answer: &GrantReply) {
        let Some(index) = self.sent.iter().position(|(number, _)| *number == answer.number) else { return };
        let sent_at = self.sent[index].1;
        // The last batch stays: the next is due a period after it.
        self.missing_since = self.sent.get(index + 1).map(|(_, at)| *at);
        let keeps = index + usize::from(index + 1 < self.sent.len());
        self.sent.drain(..keeps);
        self.returns.retain(|back| back.told_in > answer.number);
        if answer.is_settling && !self.is_managed {
            return;
        }
        if self.epoch != answer.epoch {
            // Another server numbers anew.
            self.epoch = answer.epoch;
            self.returns.clear();
            self.targets.values_mut().for_each(|target| target.grants.clear());
        }
        self.take_grants(now, sent_at, answer);
        if !self.is_managed {
            self.is_managed = true;
            self.notice = Some(GrantServerPresence::Managed);
        }
    }

    /// Returns true while the server's answers count; otherwise every target may be started.
    pub fn is_managed(&self) -> bool {
        self.is_managed
    }

    /// Returns the notice that the user has not seen yet.
    pub fn take_notice(&mut self) -> Option<GrantServerPresence> {
        self.notice.take()
    }

    /// Returns the time since which an answer has been missing, if that is longer than usual.
    fn reply_overdue_since(&self, now: Duration) -> Option<Duration> {
        self.missing_since.filter(|at| *at + self.settings.period / 2 <= now)
    }

    /// Updates the targets from the queues and from the time.
    fn update_targets(&mut self, now: Duration, states: &[TargetState]) {
        let (missing_since, stale_after) = (self.missing_since, self.settings.stale_after);
        self.targets.values_mut().for_each(|target| target.expire_grants(now, missing_since, stale_after));
        for state in states {
            if let Some(target) = self.targets.get_mut(&state.target) {
                target.set_queue_state(now, state);
            }
        }
        if self.missing_since.is_some_and(|at| at + self.settings.away_after <= now) && self.is_managed {
            self.is_managed = false;
            self.notice = Some(GrantServerPresence::Unmanaged);
            // Another client may have the targets by the time that the server is back.
            self.targets.values_mut().for_each(|target| target.grants.clear());
        }
    }

    /// Returns true if a batch can't wait for the period's end: for new work, or for a target that others
    /// wait for.
    fn is_urgent(&self, now: Duration) -> bool {
        let linger = self.settings.linger;
        self.is_managed
            && self.targets.values().any(|target| {
                target.has_unrequested_work(self.number)
                    || target.grants.iter().any(|grant| target.should_return(grant, now, linger))
            })
    }

    /// Gives back grants that others wait for and this end does not use.
    fn give_back(&mut self, now: Duration) {
        let GrantClientSettings { period, linger, threads, .. } = self.settings;
        let (mut over, mut unused, mut used) = (Vec::new(), Vec::new(), 0);
        for (&id, target) in &self.targets {
            let is_in_use = target.in_service > 0 || now < target.used_at + period;
            for grant in target.grants.iter().filter(|grant| grant.from <= now) {
                if target.should_return(grant, now, linger) {
                    over.push((id, grant.id));
                } else if grant.others_wait && !is_in_use && grant.from + period <= now {
                    unused.push((id, grant.id));
                } else {
                    used += 1;
                }
            }
        }
        unused.sort_unstable();
        let spare = (used + unused.len()).saturating_sub(threads).min(unused.len());
        for (id, grant) in over.into_iter().chain(unused.drain(..spare)) {
            let Some(target) = self.targets.get_mut(&id) else { continue };
            if let Some(index) = target.grants.iter().position(|own| own.id == grant) {
                let held = target.grants.remove(index).use_report(&target.name, now, true);
                self.returns.push(ReturnedGrant { held, told_in: self.number + 1 });
            }
        }
    }

    fn has_nothing_to_report(&self) -> bool {
        self.returns.is_empty() && self.targets.values().all(GrantClientTarget::is_quiet)
    }

    fn make_batch(&mut self, now: Duration) -> GrantClientReport {
        self.number += 1;
        self.missing_since = self.missing_since.or(Some(now));
        self.sent.push_back((self.number, now));
        if self.sent.len() > UNANSWERED_MAX {
            self.sent.pop_front();
        }
        let deadline = self.deadline.map(|(bytes_left, at)| {
            let in_ms = millis(at.saturating_sub(now));
            TransferDeadlineDemand { bytes_left, in_ms }
        });
        let mut batch = GrantClientReport {
            client: self.name.clone(),
            session: self.session.clone(),
            class: self.class.clone(),
            number: self.number,
            epoch: self.epoch,
            threads: u32::try_from(self.settings.threads).unwrap_or(u32::MAX),
            deadline,
            bytes_moved: self.bytes_moved,
            returns: self.returns.iter().map(|back| back.held.clone()).collect(),
            ..GrantClientReport::default()
        };
        for id in self.by_name.values() {
            let Some(target) = self.targets.get_mut(id) else { continue };
            batch.moved.extend(target.report_moved_bytes(self.number));
            batch.asks.extend(target.make_request(self.number, now));
            let held = target.grants.iter().map(|grant| {
                let is_idle = target.is_dry(grant, now, self.settings.linger);
                grant.use_report(&target.name, now, is_idle)
            });
            batch.held.extend(held);
        }
        batch
    }

    /// Takes the grants of the answer for each target, except those given back meanwhile.
    fn take_grants(&mut self, now: Duration, sent_at: Duration, answer: &GrantReply) {
        let mut told: BTreeMap<&str, Vec<&TargetGrant>> = BTreeMap::new();
        for grant in &answer.grants {
            if !self.returns.iter().any(|back| back.held.id == grant.id) {
                told.entry(&grant.target).or_default().push(grant);
            }
        }
        for target in self.targets.values_mut() {
            let grants = told.remove(&*target.name).unwrap_or_default();
            target.take_grants(&grants, sent_at, now);
            // A server that only listens has refused nothing.
            if !answer.is_settling {
                target.record_answer(answer.number, now);
            }
        }
    }
}
