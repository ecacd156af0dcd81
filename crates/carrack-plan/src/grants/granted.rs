//! A policy that keeps to grants.

use std::time::Duration;

use carrack_model::TargetId;

use crate::policy::{Policy, Service, TargetState, Verdict};

/// Who says which targets may be worked on now; a [`GrantClient`](super::GrantClient) is behind it.
pub trait Gate: Send {
    /// Whether an object of this target, of which so many are in service, may be begun now.
    fn may_start(&self, target: TargetId, in_service: u32, now: Duration) -> bool;

    /// When a target that may not be started on may be, if nothing changes but the time.
    fn opens_at(&self, target: TargetId, now: Duration) -> Option<Duration>;

    /// Bytes of a target are about to be moved.
    fn started(&mut self, target: TargetId, bytes: u64, now: Duration);

    /// They have been.
    fn finished(&mut self, target: TargetId, service: Service, now: Duration);
}

/// Lets another policy choose among the targets that are granted: to it the others are as if blocked.
pub struct Granted<G> {
    policy: Box<dyn Policy>,
    gate: G,
    /// Kept for its memory: a choice allocates nothing.
    open: Vec<TargetState>,
}

impl<G: Gate> Granted<G> {
    /// The targets that `gate` opens, by the choice of `policy`.
    pub fn new(policy: Box<dyn Policy>, gate: G) -> Granted<G> {
        Granted { policy, gate, open: Vec::new() }
    }
}

impl<G: Gate> Policy for Granted<G> {
    fn choose(&mut self, now: Duration, targets: &[TargetState]) -> Option<usize> {
        self.open.clear();
        let is_open = |state: &TargetState| self.gate.may_start(state.target, state.in_service, now);
        self.open.extend(targets.iter().map(|state| TargetState {
            is_blocked: state.is_blocked || (state.waiting > 0 && !is_open(state)),
            ..*state
        }));
        self.policy.choose(now, &self.open)
    }

    fn charged(&mut self, now: Duration, target: TargetId, bytes: u64) {
        self.gate.started(target, bytes, now);
        self.policy.charged(now, target, bytes);
    }

    fn served(&mut self, now: Duration, index: usize, targets: &[TargetState], service: Service) {
        self.gate.finished(targets[index].target, service, now);
        self.policy.served(now, index, targets, service);
    }

    fn wake_at(&self, now: Duration, targets: &[TargetState]) -> Option<Duration> {
        let waiting = targets.iter().filter(|state| state.waiting > 0 && !state.is_blocked);
        let opens = waiting.filter_map(|state| self.gate.opens_at(state.target, now)).min();
        [opens, self.policy.wake_at(now, targets)].into_iter().flatten().min()
    }

    fn verdict(&self, now: Duration, index: usize) -> Verdict {
        self.policy.verdict(now, index)
    }
}
