//! The detection of a stalled data path from the source's view: objects are acked, or arrive, or the sink's
//! storage is busy. Slow storage is no stall, a network that lost the objects is.

use std::time::{Duration, Instant};

use crate::error::SessionError;
use crate::suspension_detector::SuspensionDetector;

/// With small segments less than this is a crawl: the path loses more than large packets.
pub(crate) const CRAWL_BYTES_PER_S: u64 = 32 << 10;

/// The state of the data path at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FlowSnapshot {
    /// Objects that were read and have no ack.
    pub(crate) unanswered: usize,
    /// Objects with an ack so far.
    pub(crate) answered: u64,
    /// Bytes that have arrived at the sink so far.
    pub(crate) arrived: u64,
    /// True if an end is in a call to storage with an object in flight.
    pub(crate) is_storage_busy: bool,
}

impl FlowSnapshot {
    /// Returns true if nothing has moved since `before`, though it should.
    fn is_stalled_since(&self, before: &FlowSnapshot) -> bool {
        self.unanswered > 0
            && !self.is_storage_busy
            && (self.answered, self.arrived) == (before.answered, before.arrived)
    }
}

/// Looks at each report of the sink, which comes twice a second: a sink without reports has not stalled, it
/// is silent.
pub(crate) struct StallWatch {
    longest: Duration,
    /// Bytes that must arrive in that time; one, if a crawl is better than nothing.
    least_bytes: u64,
    flow: FlowSnapshot,
    since: Instant,
    /// The time of the last look for a crawl, and the bytes that had arrived by then.
    counted: (Instant, u64),
    presence: SuspensionDetector,
}

impl StallWatch {
    /// Creates the watch. Objects in flight may stand still for `longest`.
    pub(crate) fn new(longest: Duration, now: Instant) -> StallWatch {
        let (least_bytes, flow, counted) = (1, FlowSnapshot::default(), (now, 0));
        StallWatch { longest, least_bytes, flow, since: now, counted, presence: SuspensionDetector::new(now) }
    }

    /// Counts a rate of less than `bytes_per_s` as a stall, too.
    pub(crate) fn with_least(self, bytes_per_s: u64) -> StallWatch {
        StallWatch { least_bytes: bytes_per_s.saturating_mul(self.longest.as_secs()).max(1), ..self }
    }

    /// Notes the present state.
    ///
    /// # Errors
    /// [`SessionError::Stalled`]: nothing has moved for too long.
    pub(crate) fn check_flow(&mut self, flow: FlowSnapshot, now: Instant) -> Result<(), SessionError> {
        let missed = self.presence.take_suspended_time(now);
        self.since += missed;
        self.counted.0 += missed;
        if !flow.is_stalled_since(&self.flow) {
            self.since = now;
        }
        let (counted, arrived) = self.counted;
        let is_due = now.saturating_duration_since(counted) > self.longest;
        let crawls =
            is_due && flow.arrived.saturating_sub(arrived) < self.least_bytes && self.least_bytes > 1;
        if is_due || flow.unanswered == 0 || flow.is_storage_busy {
            self.counted = (now, flow.arrived);
        }
        self.flow = flow;
        let stands = now.saturating_duration_since(self.since) > self.longest;
        if stands || crawls { Err(SessionError::Stalled(self.longest.as_secs())) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SENT: FlowSnapshot =
        FlowSnapshot { unanswered: 3, answered: 7, arrived: 9, is_storage_busy: false };

    /// Returns true if it stalls, looked at every half second, in 30 s of `flow`.
    fn stalls(flow: impl Fn(u64) -> FlowSnapshot) -> bool {
        stalls_below(0, flow)
    }

    fn stalls_below(bytes_per_s: u64, flow: impl Fn(u64) -> FlowSnapshot) -> bool {
        let start = Instant::now();
        let mut watch = StallWatch::new(Duration::from_secs(10), start).with_least(bytes_per_s);
        (0..60).any(|tick| watch.check_flow(flow(tick), start + Duration::from_millis(tick * 500)).is_err())
    }

    #[test]
    fn what_was_sent_and_neither_arrives_nor_is_answered_has_stalled() {
        assert!(stalls(|_| SENT));
        assert!(!stalls(|tick| FlowSnapshot { answered: tick / 15, ..SENT }));
        assert!(!stalls(|tick| FlowSnapshot { arrived: tick / 15, ..SENT }), "a crawl is no stall");
        assert!(!stalls(|_| FlowSnapshot { is_storage_busy: true, ..SENT }), "slow storage is no stall");
        assert!(!stalls(|tick| FlowSnapshot { is_storage_busy: tick % 15 == 0, ..SENT }));
        assert!(!stalls(|_| FlowSnapshot { unanswered: 0, ..SENT }), "nobody owes anything");
    }

    #[test]
    fn where_it_is_worth_another_way_a_crawl_is_a_stall() {
        assert!(stalls_below(100, |tick| FlowSnapshot { arrived: tick * 40, ..SENT }));
        assert!(!stalls_below(100, |tick| FlowSnapshot { arrived: tick * 60, ..SENT }));
        assert!(!stalls_below(100, |tick| FlowSnapshot {
            arrived: tick * 40,
            is_storage_busy: tick % 4 == 0,
            ..SENT
        }));
        assert!(!stalls_below(100, |tick| FlowSnapshot {
            arrived: tick * 40,
            unanswered: (tick % 4) as usize,
            ..SENT
        }));
    }

    #[test]
    fn a_process_that_was_stopped_itself_has_not_waited() {
        let start = Instant::now();
        let mut watch = StallWatch::new(Duration::from_secs(10), start);
        for ms in [500, 60_000, 60_500] {
            assert!(watch.check_flow(SENT, start + Duration::from_millis(ms)).is_ok(), "{ms}");
        }
        let mut later = (61_000..80_000).step_by(500).map(|ms| start + Duration::from_millis(ms));
        assert!(later.any(|now| watch.check_flow(SENT, now).is_err()));
    }
}
