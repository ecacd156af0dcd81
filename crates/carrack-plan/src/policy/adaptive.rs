//! The default policy: no threshold to set.

use std::time::Duration;

use super::{IoQueueArrivalPattern, SchedulingPolicy, StorageRequestTiming, TargetCongestion, TargetState};

/// Weight of a service time below the normal one in the new normal.
const NORMAL_DOWN: f64 = 0.25;

/// Rise of the normal service time with each longer one: a target that has become slower for good counts as
/// normal after some fifty services.
const NORMAL_UP: f64 = 0.02;

/// The same when nice: after some thousand services.
const NORMAL_UP_NICE: f64 = 0.001;

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
/// - *Normal* is a low quantile of a target's service times per byte, bounded by its peers' normal.
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
/// When *nice* (L15), it never takes an avoided target before its time, which is `8·e` and 2 s at most, and
/// keeps a queue of less than one request: other users of the target come first.
#[derive(Clone, Debug)]
pub struct AdaptivePolicy {
    threads: u32,
    feed: IoQueueArrivalPattern,
    is_nice: bool,
    targets: Vec<TargetServiceHistory>,
    next_index: usize,
    /// The median of the targets' normals.
    peers: f64,
    /// The excess that a congested target is expected to reach: that of the worst, less a tenth for each that
    /// was found.
    worst: f64,
}

#[derive(Clone, Copy, Debug)]
struct TargetServiceHistory {
    /// Seconds for a reference object; 0 while unknown.
    normal: f64,
    recent: f64,
    /// Requests allowed in flight; 0 while unknown.
    limit: f64,
    patience: f64,
    avoided_until: Duration,
    /// The same while it is on the critical path.
    avoided_if_critical: Duration,
    avoided_count: u64,
    /// Time at which it was last chosen or served.
    last_seen: Duration,
}

impl TargetServiceHistory {
    fn new(now: Duration, patience: f64) -> TargetServiceHistory {
        TargetServiceHistory {
            normal: 0.0,
            recent: 0.0,
            limit: 0.0,
            patience,
            avoided_until: Duration::ZERO,
            avoided_if_critical: Duration::ZERO,
            avoided_count: 0,
            last_seen: now,
        }
    }
}

impl AdaptivePolicy {
    /// Creates the policy of an end with `threads` I/O threads and this feed.
    pub fn new(threads: usize, feed: IoQueueArrivalPattern, is_nice: bool) -> AdaptivePolicy {
        let threads = u32::try_from(threads).unwrap_or(u32::MAX).max(1);
        AdaptivePolicy { threads, feed, is_nice, targets: Vec::new(), next_index: 0, peers: 0.0, worst: 0.0 }
    }

    fn patience_min(&self) -> f64 {
        if self.is_nice { PATIENCE_MIN_NICE } else { PATIENCE_MIN }
    }

    fn add_new_targets(&mut self, now: Duration, targets: &[TargetState]) {
        let patience = self.patience_min();
        self.targets.resize_with(targets.len(), || TargetServiceHistory::new(now, patience));
    }

    fn is_avoided(&self, now: Duration, index: usize) -> bool {
        self.targets.get(index).is_some_and(|target| target.avoided_until > now)
    }

    /// Returns the next idle target of the round, unless another has waited long or is on the critical path.
    fn idle_target(&self, now: Duration, targets: &[TargetState]) -> Option<usize> {
        let start = if self.next_index < targets.len() { self.next_index } else { 0 };
        let order = (start..targets.len()).chain(0..start);
        let total: f64 = (0..targets.len()).map(|index| self.remaining_time(index, targets)).sum();
        let critical = total / f64::from(self.threads);
        // The first of equals in the round.
        let keyed = order.filter_map(|index| Some((self.urgency(now, index, targets, critical)?, index)));
        keyed.reduce(|best, other| if other.0 > best.0 { other } else { best }).map(|(_, index)| index)
    }

    /// Returns the time beyond [`WAITED_LONG`] that an idle target has waited, and its rest if it is
    /// critical; `None` if it is not ready.
    fn urgency(
        &self,
        now: Duration,
        index: usize,
        targets: &[TargetState],
        critical: f64,
    ) -> Option<(Duration, f64)> {
        if targets[index].in_service > 0 || !targets[index].is_ready(now) {
            return None;
        }
        let rest = self.remaining_time(index, targets);
        let is_critical = rest >= critical;
        let target = &self.targets[index];
        if now < if is_critical { target.avoided_if_critical } else { target.avoided_until } {
            return None;
        }
        let waited = now.saturating_sub(target.last_seen).saturating_sub(WAITED_LONG);
        Some((waited, if is_critical { rest } else { 0.0 }))
    }

    /// Returns a target's normal, bounded by its peers.
    fn bounded_by_peers(&self, normal: f64) -> f64 {
        normal.min(NORMAL_BY_PEERS * self.peers)
    }

    /// Returns the thread time of a target's waiting work without congestion.
    fn remaining_time(&self, index: usize, targets: &[TargetState]) -> f64 {
        let normal = match self.targets[index].normal {
            0.0 if self.peers == 0.0 => 1.0,
            0.0 => self.peers,
            normal => self.bounded_by_peers(normal),
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

    /// Updates the normal service time of a target with one more service.
    fn learn(&mut self, now: Duration, index: usize, seconds: f64) {
        let normal_up = if self.is_nice { NORMAL_UP_NICE } else { NORMAL_UP };
        let target = &mut self.targets[index];
        target.last_seen = now;
        target.recent = match target.recent {
            0.0 => seconds,
            recent => recent + RECENT_WEIGHT * (seconds - recent),
        };
        target.normal = match target.normal {
            0.0 => seconds,
            normal if seconds < normal => normal + NORMAL_DOWN * (seconds - normal),
            normal => (normal * (1.0 + normal_up)).min(seconds),
        };
        self.peers = self.median_normal();
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
        target.patience = if is_congested { (2.0 * target.patience).min(patience_max) } else { patience_min };
        if is_congested {
            self.worst = expected;
        }
    }

    /// Returns the median of the known normals, the lower of two middle ones.
    fn median_normal(&self) -> f64 {
        let mut normals: Vec<f64> =
            self.targets.iter().map(|target| target.normal).filter(|normal| *normal > 0.0).collect();
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
        self.add_new_targets(now, targets);
        let chosen = self.next_target(now, targets)?;
        self.next_index = chosen + 1;
        self.targets[chosen].last_seen = now;
        Some(chosen)
    }

    fn record_service(
        &mut self,
        now: Duration,
        index: usize,
        targets: &[TargetState],
        service: StorageRequestTiming,
    ) {
        self.add_new_targets(now, targets);
        let state = targets[index];
        let seconds = service.seconds_per_reference();
        // A target of unlimited depth is memory: it knows no congestion, only noise.
        if state.depth == u32::MAX || service.bytes == 0 || seconds <= 0.0 {
            return;
        }
        self.learn(now, index, seconds);
        let normal = self.bounded_by_peers(self.targets[index].normal);
        self.move_window(index, state, normal, seconds);
        // The time of its own requests in flight is no congestion.
        let excess = (seconds - in_flight(state) * normal).max(0.0);
        self.avoid(now, index, excess, excess > (SLOW - 1.0) * normal);
    }

    fn wake_at(&self, now: Duration, targets: &[TargetState]) -> Option<Duration> {
        let avoided =
            (0..targets.len()).filter(|&index| targets[index].waiting > 0 && self.is_avoided(now, index));
        avoided.map(|index| self.targets[index].avoided_until).min()
    }

    fn verdict(&self, now: Duration, index: usize) -> TargetCongestion {
        let Some(target) = self.targets.get(index) else { return TargetCongestion::default() };
        TargetCongestion {
            normal: duration_of(self.bounded_by_peers(target.normal)),
            recent: duration_of(target.recent),
            limit: target.limit.round() as u32,
            is_avoided: target.avoided_until > now,
            avoided_count: target.avoided_count,
        }
    }
}
