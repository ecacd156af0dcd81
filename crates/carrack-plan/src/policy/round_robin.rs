//! The paper's basic policy.

use std::time::Duration;

use super::{SchedulingPolicy, TargetState};

/// Goes round the targets and skips those that another thread is serving (L2).
///
/// When all targets with work are being served, it takes the target with the fewest items in service. An idle
/// target with work is chosen before any other is chosen twice.
#[derive(Clone, Debug, Default)]
pub struct RoundRobinPolicy {
    next_index: usize,
}

impl RoundRobinPolicy {
    /// Starts at the first target.
    pub fn new() -> RoundRobinPolicy {
        RoundRobinPolicy::default()
    }

    /// Chooses among the targets that are ready and that `allows` allows.
    pub(super) fn choose_among(
        &mut self,
        now: Duration,
        targets: &[TargetState],
        allows: impl Fn(usize) -> bool,
    ) -> Option<usize> {
        let start = if self.next_index < targets.len() { self.next_index } else { 0 };
        let mut chosen: Option<usize> = None;
        for index in (start..targets.len()).chain(0..start) {
            if !targets[index].is_ready(now) || !allows(index) {
                continue;
            }
            if chosen.is_none_or(|best| targets[index].in_service < targets[best].in_service) {
                chosen = Some(index);
            }
            if targets[index].in_service == 0 {
                break;
            }
        }
        self.next_index = chosen? + 1;
        chosen
    }
}

impl SchedulingPolicy for RoundRobinPolicy {
    fn choose(&mut self, now: Duration, targets: &[TargetState]) -> Option<usize> {
        self.choose_among(now, targets, |_| true)
    }
}
