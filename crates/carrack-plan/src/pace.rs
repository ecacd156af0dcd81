//! Rate limits: the bytes per second of all targets together, and of each target (L15).

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use carrack_model::TargetId;

use crate::timetable::ScheduledRateLimits;

/// Burst after an idle time: a transfer may run ahead of its rate by this much time.
const BURST: Duration = Duration::from_millis(50);

/// One limit: a virtual clock that runs ahead by the time that each charge takes at the rate (GCRA, ITU-T
/// I.371).
#[derive(Clone, Copy, Debug, Default)]
pub struct RatePacer {
    /// Time at which all charges are paid.
    paid_at: Duration,
}

impl RatePacer {
    /// Books bytes that are taken now; 0 bytes a second means no limit.
    pub fn charge(&mut self, now: Duration, bytes: u64, bytes_per_s: u64) {
        if bytes_per_s > 0 {
            let cost = Duration::from_secs_f64(bytes as f64 / bytes_per_s as f64);
            self.paid_at = self.paid_at.max(now).saturating_add(cost);
        }
    }

    /// Returns the time at which the next bytes may be taken.
    pub fn free_at(&self) -> Duration {
        self.paid_at.saturating_sub(BURST)
    }
}

/// Bytes a second; 0 for no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RateCaps {
    /// For all targets together.
    pub all: u64,
    /// For each target.
    pub each: u64,
}

/// The rates of one end of a session, shared by all of its lanes. Every time is counted from the session's
/// start.
#[derive(Debug, Default)]
pub struct RateLimits {
    rates: RateCaps,
    /// Rates by the time of the week, with the start in time since 1970.
    steps: Option<(ScheduledRateLimits, Duration)>,
    paces: Mutex<RatePacers>,
}

#[derive(Debug, Default)]
struct RatePacers {
    all: RatePacer,
    each: HashMap<TargetId, RatePacer>,
}

impl RateLimits {
    /// Creates constant limits.
    pub fn new(rates: RateCaps) -> RateLimits {
        RateLimits { rates, ..RateLimits::default() }
    }

    /// Limits the rate of all targets together by the time of the week, too; `began` is the start in time
    /// since 1970.
    #[must_use]
    pub fn with_schedule(self, steps: ScheduledRateLimits, began: Duration) -> RateLimits {
        RateLimits { steps: Some((steps, began)), ..self }
    }

    /// Returns true if the rate changes with the time.
    pub fn is_scheduled(&self) -> bool {
        self.steps.is_some()
    }

    /// Returns true if each target has a rate.
    pub(crate) fn has_target_rate(&self) -> bool {
        self.rates.each > 0
    }

    /// Returns the lower of both limits, where 0 is none.
    fn rate_of_all(&self, now: Duration) -> u64 {
        let by_time =
            self.steps.as_ref().map_or(0, |(steps, began)| steps.rate_at(began.saturating_add(now)));
        match (self.rates.all, by_time) {
            (0, rate) | (rate, 0) => rate,
            (one, other) => one.min(other),
        }
    }

    /// Books bytes that are taken from a target now; returns the time at which its own rate allows the next.
    pub(crate) fn charge(&self, target: TargetId, bytes: u64, now: Duration) -> Duration {
        if !self.has_target_rate() && !self.limits_all() {
            return Duration::ZERO;
        }
        let rate = self.rate_of_all(now);
        let mut paces = self.paces();
        paces.all.charge(now, bytes, rate);
        let own = paces.each.entry(target).or_default();
        own.charge(now, bytes, self.rates.each);
        own.free_at()
    }

    /// Returns the time at which the rate of all targets allows the next bytes.
    pub(crate) fn free_at(&self) -> Duration {
        if self.limits_all() { self.paces().all.free_at() } else { Duration::ZERO }
    }

    /// Returns the time at which a target's own rate allows the next bytes.
    pub(crate) fn target_free_at(&self, target: TargetId) -> Duration {
        self.paces().each.get(&target).map_or(Duration::ZERO, RatePacer::free_at)
    }

    fn limits_all(&self) -> bool {
        self.rates.all > 0 || self.steps.is_some()
    }

    fn paces(&self) -> MutexGuard<'_, RatePacers> {
        self.paces.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_to_the_rate_and_grants_a_burst_after_a_rest() {
        let mut pace = RatePacer::default();
        let mut now = Duration::from_secs(9);
        for _ in 0..100 {
            now = now.max(pace.free_at());
            pace.charge(now, 1_000_000, 100_000_000);
        }
        // 99 charges of 10 ms each lie between the first and the last, less the burst.
        assert!(
            (now - Duration::from_secs(9)).abs_diff(Duration::from_millis(990 - 40))
                < Duration::from_millis(11)
        );
        let mut free = RatePacer::default();
        free.charge(now, 1 << 40, 0);
        assert_eq!(free.free_at(), Duration::ZERO);
    }

    #[test]
    fn the_lower_of_a_rate_and_what_the_time_says_counts() {
        let s = Duration::from_secs;
        let steps = ScheduledRateLimits::new(vec![(s(100), 1_000), (s(103), 0)]);
        let limits = RateLimits::new(RateCaps { all: 10, each: 0 }).with_schedule(steps.clone(), s(100));
        assert_eq!((limits.rate_of_all(s(0)), limits.rate_of_all(s(5))), (10, 10));
        let limits = RateLimits::default().with_schedule(steps, s(100));
        assert_eq!((limits.rate_of_all(s(0)), limits.rate_of_all(s(5))), (1_000, 0));
        assert!(limits.is_scheduled() && !RateLimits::default().is_scheduled());
    }
}
