//! A scheduling policy that keeps to grants.

use std::time::Duration;

use carrack_model::TargetId;

use crate::policy::{SchedulingPolicy, StorageRequestTiming, TargetCongestion, TargetState};

/// Access to the targets that may be worked on now, backed by a [`GrantClient`](super::GrantClient).
pub trait GrantGate: Send {
    /// Returns true if an object of this target may be begun now while `in_service` are in service.
    fn may_start(&self, target: TargetId, in_service: u32, now: Duration) -> bool;

    /// Returns the time at which a closed target opens, if only the time changes.
    fn opens_at(&self, target: TargetId, now: Duration) -> Option<Duration>;

    /// Records that bytes of a target are about to be moved.
    fn record_start(&mut self, target: TargetId, bytes: u64, now: Duration);

    /// Records that bytes of a target were moved.
    fn record_finish(&mut self, target: TargetId, service: StorageRequestTiming, now: Duration);
}

/// Lets another policy choose among the granted targets: the others appear as blocked.
pub struct GrantGatedPolicy<G> {
    policy: Box<dyn SchedulingPolicy>,
    gate: G,
    /// Kept for its memory: a choice allocates nothing.
    open: Vec<TargetState>,
}

impl<G: GrantGate> GrantGatedPolicy<G> {
    /// Creates a policy that chooses by `policy` among the targets that `gate` opens.
    pub fn new(policy: Box<dyn SchedulingPolicy>, gate: G) -> GrantGatedPolicy<G> {
        GrantGatedPolicy { policy, gate, open: Vec::new() }
    }
}

impl<G: GrantGate> SchedulingPolicy for GrantGatedPolicy<G> {
    fn choose(&mut self, now: Duration, targets: &[TargetState]) -> Option<usize> {
        self.open.clear();
        self.open.extend(targets.iter().map(|state| TargetState {
            is_blocked: state.is_blocked
                || (state.waiting > 0 && !self.gate.may_start(state.target, state.in_service, now)),
            ..*state
        }));
        self.policy.choose(now, &self.open)
    }

    fn record_charge(&mut self, now: Duration, target: TargetId, bytes: u64) {
        self.gate.record_start(target, bytes, now);
        self.policy.record_charge(now, target, bytes);
    }

    fn record_service(
        &mut self,
        now: Duration,
        index: usize,
        targets: &[TargetState],
        service: StorageRequestTiming,
    ) {
        self.gate.record_finish(targets[index].target, service, now);
        self.policy.record_service(now, index, targets, service);
    }

    fn wake_at(&self, now: Duration, targets: &[TargetState]) -> Option<Duration> {
        let waiting = targets.iter().filter(|state| state.waiting > 0 && !state.is_blocked);
        let opens = waiting.filter_map(|state| self.gate.opens_at(state.target, now)).min();
        [opens, self.policy.wake_at(now, targets)].into_iter().flatten().min()
    }

    fn verdict(&self, now: Duration, index: usize) -> TargetCongestion {
        self.policy.verdict(now, index)
    }
}
