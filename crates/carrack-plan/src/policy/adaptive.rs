//! The default policy: no threshold to set.

use std::cmp::Reverse;
use std::time::Duration;

use carrack_model::ServerId;

use super::server_load::ServerLoads;
use super::service_times::{NORMAL_UP, NORMAL_UP_NICE, NormalServiceTimes, ServiceKind, have_mixture};
use super::{IoQueueArrivalPattern, SchedulingPolicy, StorageRequestTiming, TargetCongestion, TargetState};

/// Upper bound of a target's normal, as a multiple of the median of all targets' normals: it exposes a target
/// that was congested from the beginning.
const NORMAL_BY_PEERS: f64 = 2.0;

/// Weight of the last service in the recent service time.
const RECENT_WEIGHT: f64 = 0.3;

/// Time for which a target is avoided after a slow service, as a multiple of the excess of its service time:
/// a seventeenth of one thread is lost to a congested target.
const PATIENCE_MIN: f64 = 16.0;

/// The same when nice, where the target is avoided even without other work: other users with requests of the
/// same size keep nine tenths of the target.
const PATIENCE_MIN_NICE: f64 = 8.0;

/// The same after many slow services in a row.
const PATIENCE_MAX: f64 = 64.0;

/// The same for a target on the critical path: avoiding it delays the transfer's end unless it recovers
/// meanwhile.
const PATIENCE_CRITICAL: f64 = 4.0;

/// A service longer than this multiple of the normal one (besides the time of its own requests) doubles the
/// patience, others reset it.
const SLOW: f64 = 2.0;

/// Congested targets that make a server slow: a single one may have a reason of its own.
const SLOW_TARGETS_MIN: u32 = 2;

/// Part of the worst excess that is kept at each congested service: a request in flight when the target
/// became congested waited for a part of the queue only, and the next one would wait for all of the queue.
const WORST_KEPT: f64 = 0.9;

/// Upper bound of the time for which a target is avoided.
const AVOIDED_MAX: Duration = Duration::from_secs(20);

/// The same when nice: an object every two seconds disturbs no other user, and the transfer shows progress.
const AVOIDED_MAX_NICE: Duration = Duration::from_secs(2);

/// A target that has waited for this time comes before those with more work.
const WAITED_LONG: Duration = Duration::from_secs(2);

/// A target that was served within this time will have more work.
const LIVE: Duration = Duration::from_secs(1);

/// Learns each target's normal service time and avoids targets that take longer, as long as others have work
/// (L7 without its parameters).
///
/// - *Normal* is a low quantile of a target's service times per byte, bounded by its peers' normal. Services
///   that end in a cache have a normal of their own, and tell nothing about congestion.
/// - After a service that took `e` longer than normal (or, from twice the normal on, will take as long as
///   others did) the target is *avoided* for `p·e`; `p` is 16 and doubles with each slow service in a row.
///   Avoided targets are served when no other can be, so that none starves. Where work arrives
///   ([`IoQueueArrivalPattern::Arriving`]), at most half of the threads serve them, as the next moment may
///   bring work for a healthy target.
/// - Idle targets take turns, before any target gets a second request. A target is critical if its remaining
///   work would keep one thread busy for as long as all waiting work keeps all threads busy: it decides when
///   the transfer ends. It comes first, and is avoided for `4·e` only.
/// - Requests in flight to one target beyond the first are limited as TCP Vegas limits its window: with `n`
///   the normal and `s` the last service time, `f·(1 − n/s)` of `f` requests in flight stand in the target's
///   queue.
///
/// Where targets are known to lie on several servers (LADS 2.1):
///
/// - Idle targets of a server that has its share of the threads (the part that it has of the targets with
///   work) come behind those of other servers, unless they are critical.
/// - A server is *slow* when two of its targets are congested, and no other answered normally meanwhile. Then
///   each of its `k` targets with work is avoided for a `k`-th of the time: a request to one tells of all.
///   After that it has one request at a time. A congested one makes it slow again; each other raises the
///   limit by one, up to the depths of its targets.
///
/// When *nice* (L15), it never takes an avoided target before its time, which is `8·e` and 2 s at most, and
/// keeps a queue of less than one request: other users of the target come first.
#[derive(Clone, Debug)]
pub struct AdaptivePolicy {
    threads: u32,
    feed: IoQueueArrivalPattern,
    is_nice: bool,
    targets: Vec<TargetServiceHistory>,
    next_index: usize,
    /// Choices so far.
    choice_count: u64,
    /// The medians of the targets' normals.
    peers: NormalServiceTimes,
    /// The excess that a congested target is expected to reach: that of the worst, less a tenth for each that
    /// was found.
    worst: f64,
    servers: ServerLoads,
}

#[derive(Clone, Copy, Debug)]
struct TargetServiceHistory {
    server: Option<ServerId>,
    normal: NormalServiceTimes,
    /// Seconds for a reference object; 0 while unknown.
    recent: f64,
    /// Requests allowed in flight; 0 while unknown.
    limit: f64,
    patience: f64,
    avoided_until: Duration,
    /// The same while it is on the critical path.
    avoided_if_critical: Duration,
    avoided_count: u64,
    /// True if the last service was slow.
    is_congested: bool,
    /// The number of the choice that it was last chosen by.
    chosen_at: u64,
    /// Time at which it was last chosen or served.
    last_seen: Duration,
    /// The end of its last service that did not end in a cache.
    last_served: Option<Duration>,
}

impl TargetServiceHistory {
    fn new(now: Duration, patience: f64) -> TargetServiceHistory {
        TargetServiceHistory {
            server: None,
            normal: NormalServiceTimes::default(),
            recent: 0.0,
            limit: 0.0,
            patience,
            avoided_until: Duration::ZERO,
            avoided_if_critical: Duration::ZERO,
            avoided_count: 0,
            is_congested: false,
            chosen_at: 0,
            last_seen: now,
            last_served: None,
        }
    }
}

impl AdaptivePolicy {
    /// Creates the policy of an end with `threads` I/O threads and this feed.
    pub fn new(threads: usize, feed: IoQueueArrivalPattern, is_nice: bool) -> AdaptivePolicy {
        let threads = u32::try_from(threads).unwrap_or(u32::MAX).max(1);
        AdaptivePolicy {
            threads,
            feed,
            is_nice,
            targets: Vec::new(),
            next_index: 0,
            choice_count: 0,
            peers: NormalServiceTimes::default(),
            worst: 0.0,
            servers: ServerLoads::default(),
        }
    }

    fn patience_min(&self) -> f64 {
        if self.is_nice { PATIENCE_MIN_NICE } else { PATIENCE_MIN }
    }

    /// Adds new targets, and counts the requests at each server.
    fn look_at(&mut self, now: Duration, targets: &[TargetState]) {
        let patience = self.patience_min();
        self.targets.resize_with(targets.len(), || TargetServiceHistory::new(now, patience));
        self.targets.iter_mut().zip(targets).for_each(|(target, state)| target.server = state.server);
        self.servers.count(targets);
    }

    /// Returns true if a target is avoided: by itself, or as its server has all requests that it may have.
    fn is_avoided(&self, now: Duration, index: usize) -> bool {
        let is_avoided = |target: &TargetServiceHistory| {
            target.avoided_until > now || !self.servers.is_below_limit(target.server)
        };
        self.targets.get(index).is_some_and(is_avoided)
    }

    /// Returns the next idle target of the round, unless another has waited long or is on the critical path,
    /// or its server has its share.
    fn idle_target(&self, now: Duration, targets: &[TargetState]) -> Option<usize> {
        let start = if self.next_index < targets.len() { self.next_index } else { 0 };
        let order = (start..targets.len()).chain(0..start);
        let total: f64 = (0..targets.len()).map(|index| self.remaining_time(index, targets)).sum();
        let critical = total / f64::from(self.threads);
        // The first of equals in the round.
        let keyed = order.filter_map(|index| Some((self.urgency(now, index, targets, critical)?, index)));
        keyed.reduce(|best, other| if other.0 > best.0 { other } else { best }).map(|(_, index)| index)
    }

    /// Returns true if the target's server has no more than its share, the time beyond [`WAITED_LONG`] that
    /// an idle target has waited, its rest if it is critical, and its turn among the targets of several
    /// servers; `None` if it is not ready.
    fn urgency(
        &self,
        now: Duration,
        index: usize,
        targets: &[TargetState],
        critical: f64,
    ) -> Option<(bool, Duration, f64, Reverse<u64>)> {
        if targets[index].in_service > 0 || !targets[index].is_ready(now) {
            return None;
        }
        let rest = self.remaining_time(index, targets);
        let is_critical = rest >= critical;
        let target = &self.targets[index];
        if if is_critical { now < target.avoided_if_critical } else { self.is_avoided(now, index) } {
            return None;
        }
        let has_room = is_critical || self.servers.is_below_share(target.server);
        let waited = now.saturating_sub(target.last_seen).saturating_sub(WAITED_LONG);
        // With a share for each server, the next one in the round would mostly be the first of its server.
        let turn = if self.servers.has_choice() { target.chosen_at } else { 0 };
        Some((has_room, waited, if is_critical { rest } else { 0.0 }, Reverse(turn)))
    }

    /// Returns the normal times of a target, bounded by its peers.
    fn bounded_by_peers(&self, index: usize) -> NormalServiceTimes {
        let NormalServiceTimes { short, long, .. } = self.peers;
        self.targets[index].normal.bounded(NORMAL_BY_PEERS * short, NORMAL_BY_PEERS * long)
    }

    /// Returns the thread time of a target's waiting work without congestion.
    fn remaining_time(&self, index: usize, targets: &[TargetState]) -> f64 {
        let normal = match self.bounded_by_peers(index).mean() {
            0.0 if self.peers.short == 0.0 => 1.0,
            0.0 => self.peers.short,
            normal => normal,
        };
        normal * targets[index].waiting_bytes as f64
    }

    /// Returns the target with the fewest requests of those that may have more.
    fn shared_target(&self, now: Duration, targets: &[TargetState], is_avoided: bool) -> Option<usize> {
        let below_limit = (0..targets.len()).filter(|&index| {
            targets[index].is_ready(now)
                && self.is_avoided(now, index) == is_avoided
                && f64::from(targets[index].in_service) < self.limit(index)
        });
        below_limit.min_by_key(|&index| targets[index].in_service)
    }

    fn limit(&self, index: usize) -> f64 {
        match self.targets[index].limit {
            0.0 if self.is_nice => 1.0,
            0.0 => f64::INFINITY,
            limit => limit.round(),
        }
    }

    /// Returns true if another thread may wait at an avoided target.
    fn can_spare_a_thread(&self, now: Duration, targets: &[TargetState]) -> bool {
        match (self.is_nice, self.feed) {
            (true, _) => return false,
            (false, IoQueueArrivalPattern::Queued) => return true,
            (false, IoQueueArrivalPattern::Arriving) => {}
        }
        let mut waiting_threads = 0;
        let mut has_healthy_work = false;
        for (index, state) in targets.iter().enumerate() {
            if self.is_avoided(now, index) {
                waiting_threads += state.in_service;
            } else {
                let is_live = now.saturating_sub(self.targets[index].last_seen) < LIVE;
                has_healthy_work |= state.waiting > 0 || state.in_service > 0 || is_live;
            }
        }
        !has_healthy_work || waiting_threads < (self.threads / 2).max(1)
    }

    fn next_target(&self, now: Duration, targets: &[TargetState]) -> Option<usize> {
        if let Some(idle) = self.idle_target(now, targets) {
            return Some(idle);
        }
        let spare = self.can_spare_a_thread(now, targets);
        if spare && let Some(avoided) = self.avoided_target(now, targets) {
            return Some(avoided);
        }
        let healthy = self.shared_target(now, targets, false);
        if healthy.is_none() && spare { self.shared_target(now, targets, true) } else { healthy }
    }

    fn avoided_target(&self, now: Duration, targets: &[TargetState]) -> Option<usize> {
        let idle = (0..targets.len()).filter(|&index| {
            targets[index].in_service == 0 && targets[index].is_ready(now) && self.is_avoided(now, index)
        });
        idle.min_by_key(|&index| self.targets[index].avoided_until)
    }

    /// Updates the normal service times of a target with one more service.
    fn learn(&mut self, now: Duration, index: usize, seconds: f64) -> ServiceKind {
        let is_mixed = have_mixture(self.targets.iter().map(|target| &target.normal));
        let normal_up = if self.is_nice { NORMAL_UP_NICE } else { NORMAL_UP };
        let target = &mut self.targets[index];
        target.last_seen = now;
        target.recent = match target.recent {
            0.0 => seconds,
            recent => recent + RECENT_WEIGHT * (seconds - recent),
        };
        let kind = target.normal.learn(seconds, is_mixed, normal_up);
        self.peers.short = self.median(|normal| normal.short);
        self.peers.long = self.median(|normal| normal.long);
        kind
    }

    /// Updates a target's limit of requests in flight from the number that stood in its queue.
    fn move_window(&mut self, index: usize, state: TargetState, normal: f64, seconds: f64) {
        let queued = in_flight(state) * (1.0 - normal / seconds);
        let depth = f64::from(state.depth);
        let (shallow, deep) = if self.is_nice { (0.25, 0.75) } else { (depth / 4.0, depth / 2.0) };
        let target = &mut self.targets[index];
        let limit = match target.limit {
            0.0 if self.is_nice => 1.0,
            0.0 => depth,
            limit if queued < shallow => limit + 1.0 / limit,
            limit if queued > deep => limit - 1.0 / limit,
            limit => limit,
        };
        target.limit = limit.clamp(1.0, depth.max(1.0));
    }

    /// Sets the time for which a target is avoided after a service that took `excess` seconds too long.
    fn avoid(&mut self, now: Duration, index: usize, excess: f64, is_congested: bool) {
        let patience_min = self.patience_min();
        let (avoided_max, patience_max) =
            if self.is_nice { (AVOIDED_MAX_NICE, PATIENCE_MIN_NICE) } else { (AVOIDED_MAX, PATIENCE_MAX) };
        let expected =
            if is_congested && !self.is_nice { excess.max(WORST_KEPT * self.worst) } else { excess };
        let target = &mut self.targets[index];
        let critical = if self.is_nice { target.patience } else { PATIENCE_CRITICAL };
        target.avoided_until = now + duration_of(target.patience * expected).min(avoided_max);
        target.avoided_if_critical = now + duration_of(critical * excess).min(avoided_max);
        target.avoided_count += u64::from(is_congested);
        target.is_congested = is_congested;
        target.last_served = Some(now);
        target.patience = if is_congested { (2.0 * target.patience).min(patience_max) } else { patience_min };
        if is_congested {
            self.worst = expected;
        }
    }

    /// Updates the server of a target with one more service, which lasted `time`.
    fn judge_server(&mut self, now: Duration, index: usize, time: Duration) {
        let TargetServiceHistory { server: Some(server), is_congested, avoided_until, .. } =
            self.targets[index]
        else {
            return;
        };
        if !is_congested {
            return self.servers.raise_limit(server);
        }
        let began = now.saturating_sub(time);
        let (mut congested_count, mut is_one_normal) = (0, false);
        for target in self.targets.iter().filter(|target| target.server == Some(server)) {
            congested_count += u32::from(target.is_congested && target.avoided_until > now);
            is_one_normal |= !target.is_congested && target.last_served.is_some_and(|ended| ended >= began);
        }
        let is_slow = self.servers.is_limited(server) || congested_count >= SLOW_TARGETS_MIN;
        if is_slow
            && !is_one_normal
            && let Some(target_count) = self.servers.limit(server)
        {
            let until = now + avoided_until.saturating_sub(now) / target_count;
            let targets = self.targets.iter_mut().filter(|target| target.server == Some(server));
            targets.for_each(|target| target.avoided_until = until);
        }
    }

    /// Returns the median of the known normals, the lower of two middle ones.
    fn median(&self, part: impl Fn(&NormalServiceTimes) -> f64) -> f64 {
        let known = self.targets.iter().map(|target| part(&target.normal));
        let mut normals: Vec<f64> = known.filter(|normal| *normal > 0.0).collect();
        if normals.is_empty() {
            return 0.0;
        }
        let middle = (normals.len() - 1) / 2;
        *normals.select_nth_unstable_by(middle, f64::total_cmp).1
    }
}

/// Returns a duration; the longest one for seconds beyond its range.
fn duration_of(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}

/// Returns the number of requests in flight, including the request that has just ended.
fn in_flight(state: TargetState) -> f64 {
    f64::from(state.in_service.max(1))
}

impl SchedulingPolicy for AdaptivePolicy {
    fn choose(&mut self, now: Duration, targets: &[TargetState]) -> Option<usize> {
        self.look_at(now, targets);
        let chosen = self.next_target(now, targets)?;
        self.next_index = chosen + 1;
        self.choice_count += 1;
        let target = &mut self.targets[chosen];
        (target.chosen_at, target.last_seen) = (self.choice_count, now);
        Some(chosen)
    }

    fn record_service(
        &mut self,
        now: Duration,
        index: usize,
        targets: &[TargetState],
        service: StorageRequestTiming,
    ) {
        self.look_at(now, targets);
        let state = targets[index];
        let seconds = service.seconds_per_reference();
        // A target of unlimited depth is memory: it knows no congestion, only noise.
        if state.depth == u32::MAX || service.bytes == 0 || seconds <= 0.0 {
            return;
        }
        if self.learn(now, index, seconds) == ServiceKind::InCache {
            return;
        }
        let normal = self.bounded_by_peers(index).at_target();
        self.move_window(index, state, normal, seconds);
        // The time of its own requests in flight is no congestion.
        let excess = (seconds - in_flight(state) * normal).max(0.0);
        self.avoid(now, index, excess, excess > (SLOW - 1.0) * normal);
        self.judge_server(now, index, service.time);
    }

    fn wake_at(&self, now: Duration, targets: &[TargetState]) -> Option<Duration> {
        let waiting = self.targets.iter().zip(targets).filter(|(_, state)| state.waiting > 0);
        waiting.map(|(target, _)| target.avoided_until).filter(|until| *until > now).min()
    }

    fn verdict(&self, now: Duration, index: usize) -> TargetCongestion {
        let Some(target) = self.targets.get(index) else { return TargetCongestion::default() };
        TargetCongestion {
            normal: duration_of(self.bounded_by_peers(index).mean()),
            recent: duration_of(target.recent),
            limit: target.limit.round() as u32,
            is_avoided: target.avoided_until > now,
            avoided_count: target.avoided_count,
        }
    }
}

#[cfg(test)]
mod tests {
    use carrack_model::TargetId;
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::TargetQueues;

    const TARGETS: u64 = 6;

    /// A step of a run: work for a target, a service that ends, or time that passes.
    #[derive(Clone, Debug)]
    enum PolicyTestStep {
        Push(u64),
        Take,
        Finish { number: usize, ms: u64 },
        Pass { ms: u64 },
    }

    fn step() -> impl Strategy<Value = PolicyTestStep> {
        prop_oneof![
            3 => (0..TARGETS).prop_map(PolicyTestStep::Push),
            3 => Just(PolicyTestStep::Take),
            2 => (any::<usize>(), prop_oneof![1..20u64, 200..4_000u64])
                .prop_map(|(number, ms)| PolicyTestStep::Finish { number, ms }),
            1 => (1..5_000u64).prop_map(|ms| PolicyTestStep::Pass { ms }),
        ]
    }

    /// Carries the steps out, with a server for each target; returns the targets that were chosen.
    fn run(
        steps: &[PolicyTestStep],
        is_nice: bool,
        server_of: impl Fn(u64) -> Option<u32>,
    ) -> Vec<Option<u64>> {
        let policy = AdaptivePolicy::new(4, IoQueueArrivalPattern::Queued, is_nice);
        let mut queues = TargetQueues::new(Box::new(policy));
        for target in 0..TARGETS {
            queues.set_depth(TargetId(target), 3);
            queues.set_server(TargetId(target), server_of(target).map(ServerId));
        }
        let (mut now, mut running, mut chosen) = (Duration::from_secs(10), Vec::new(), Vec::new());
        for step in steps {
            match *step {
                PolicyTestStep::Push(target) => queues.push(TargetId(target), 1 << 20, ()),
                PolicyTestStep::Take => {
                    let is_one_idle =
                        queues.states().iter().any(|state| state.is_ready(now) && state.in_service == 0);
                    let taken = queues.take(now).map(|(target, ())| target);
                    assert!(taken.is_some() || is_nice || !is_one_idle, "an idle target waits for a thread");
                    let wakes = queues.wake_at(now).is_some() || !running.is_empty();
                    assert!(taken.is_some() || queues.is_empty() || wakes, "work waits for nothing");
                    running.extend(taken);
                    chosen.push(taken.map(|target| target.0));
                }
                PolicyTestStep::Finish { number, ms } if !running.is_empty() => {
                    let target = running.swap_remove(number % running.len());
                    let service = StorageRequestTiming { time: Duration::from_millis(ms), bytes: 1 << 20 };
                    queues.finish_service(target, Some(service), now);
                }
                PolicyTestStep::Finish { .. } => {}
                PolicyTestStep::Pass { ms } => now += Duration::from_millis(ms),
            }
        }
        chosen
    }

    proptest! {
        #[test]
        fn one_server_is_as_no_server(steps in vec(step(), 0..200), is_nice: bool) {
            let without = run(&steps, is_nice, |_| None);
            prop_assert_eq!(&without, &run(&steps, is_nice, |_| Some(0)));
            prop_assert_eq!(&without, &run(&steps, is_nice, |target| (target < 3).then_some(7)));
        }

        #[test]
        fn servers_never_stop_the_work(
            steps in vec(step(), 0..200),
            is_nice: bool,
            servers in vec(proptest::option::of(0..3u32), TARGETS as usize),
        ) {
            run(&steps, is_nice, |target| servers[target as usize]);
        }
    }
}
