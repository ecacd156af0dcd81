//! The choice of the target that an idle thread serves next (L2, L7).
//!
//! A policy sees the state of every target and the time of each service; it holds neither clock nor lock: the
//! time is an argument, counted from the session's start. `docs/design/scheduling.md` has the mathematics.

mod adaptive;
mod round_robin;
mod server_load;
mod service_times;
mod slow_targets;
mod threshold;

use std::time::Duration;

use carrack_model::{SchedulingPolicyChoice, ServerId, TargetId};

pub use adaptive::AdaptivePolicy;
pub use round_robin::RoundRobinPolicy;
pub use slow_targets::slow_targets;
pub use threshold::ThresholdPolicy;

/// The state of one target, as a policy sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TargetState {
    /// The target.
    pub target: TargetId,
    /// The host that it shares with other targets; none if that is unknown.
    pub server: Option<ServerId>,
    /// Items in its queue.
    pub waiting: usize,
    /// Bytes of these items, as far as they are known.
    pub waiting_bytes: u64,
    /// Items taken and not yet finished.
    pub in_service: u32,
    /// Upper bound of items in service at a time.
    pub depth: u32,
    /// No item may be taken before this time (a rate limit).
    pub paused_until: Duration,
    /// True if the waiting items can't be taken, for a reason of the caller's.
    pub is_blocked: bool,
}

impl TargetState {
    /// Returns true if items wait or are in service. A target whose items can't be taken has no work.
    pub fn has_work(&self) -> bool {
        self.in_service > 0 || (self.waiting > 0 && !self.is_blocked)
    }

    /// Returns true if an item waits that may be taken now.
    pub fn is_ready(&self, now: Duration) -> bool {
        self.waiting > 0 && !self.is_blocked && self.in_service < self.depth && self.paused_until <= now
    }
}

/// One read or write that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StorageRequestTiming {
    /// Time that the storage took.
    pub time: Duration,
    /// Bytes read or written.
    pub bytes: u64,
}

/// A policy's verdict on a target, for people.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TargetCongestion {
    /// Service time of a 1 MiB object when nothing disturbs the target; zero while it is not known.
    pub normal: Duration,
    /// The same of late.
    pub recent: Duration,
    /// Requests that the policy allows at a time; 0 if it does not limit them.
    pub limit: u32,
    /// True while the policy avoids it.
    pub is_avoided: bool,
    /// Number of times that it was found congested.
    pub avoided_count: u64,
}

/// Chooses the target that an idle thread serves next.
pub trait SchedulingPolicy: Send {
    /// Returns the index in `targets` of a target that [is ready](TargetState::is_ready), or `None` if the
    /// thread shall wait.
    ///
    /// A target keeps its index for good; new ones are added at the end.
    fn choose(&mut self, now: Duration, targets: &[TargetState]) -> Option<usize>;

    /// Records that bytes of a taken item are moved from now on.
    fn record_charge(&mut self, _now: Duration, _target: TargetId, _bytes: u64) {}

    /// Records the end of a service of `targets[index]`; it is still counted in `in_service`.
    fn record_service(
        &mut self,
        _now: Duration,
        _index: usize,
        _targets: &[TargetState],
        _service: StorageRequestTiming,
    ) {
    }

    /// Returns the time at which `choose` might find a target though only the time has changed; `None` if
    /// never.
    fn wake_at(&self, _now: Duration, _targets: &[TargetState]) -> Option<Duration> {
        None
    }

    /// Returns the verdict on the target with this index.
    fn verdict(&self, _now: Duration, _index: usize) -> TargetCongestion {
        TargetCongestion::default()
    }
}

/// The way in which work comes into the queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoQueueArrivalPattern {
    /// Most of the work is known and waits: a source.
    Queued,
    /// A few objects at a time, for any target: a sink.
    Arriving,
}

/// Creates the policy that the user chose, for an end with `threads` I/O threads and this feed.
pub fn create_policy(
    choice: &SchedulingPolicyChoice,
    threads: usize,
    feed: IoQueueArrivalPattern,
) -> Box<dyn SchedulingPolicy> {
    match *choice {
        SchedulingPolicyChoice::RoundRobin => Box::new(RoundRobinPolicy::new()),
        SchedulingPolicyChoice::Threshold { window, threshold, skips } => {
            Box::new(ThresholdPolicy::new(window, threshold, skips))
        }
        SchedulingPolicyChoice::Adaptive { nice } => Box::new(AdaptivePolicy::new(threads, feed, nice)),
    }
}

/// The bytes for which service times are compared.
pub(crate) const REFERENCE_BYTES: u64 = 1 << 20;

/// Bytes that could be moved in the fixed time of a request.
const REQUEST_BYTES: u64 = 128 << 10;

impl StorageRequestTiming {
    /// Seconds that a 1 MiB object would have taken at the same speed.
    pub(crate) fn seconds_per_reference(self) -> f64 {
        let scale = (REFERENCE_BYTES + REQUEST_BYTES) as f64 / (self.bytes + REQUEST_BYTES) as f64;
        self.time.as_secs_f64() * scale
    }
}
