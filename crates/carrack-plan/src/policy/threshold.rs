//! The paper's congestion-aware policy (L7, algorithm 1).

use std::collections::VecDeque;
use std::time::Duration;

use super::{RoundRobinPolicy, SchedulingPolicy, StorageRequestTiming, TargetCongestion, TargetState};

/// Service times kept for each target: enough for a mean over any useful window.
const SAMPLES_MAX: usize = 64;

/// Round-robin, but a target whose mean service time within the window `W` is above the threshold `T` is
/// congested, and skipped the next `M` times that its turn comes (L7).
///
/// After that it is served once, even if its mean is still above `T`, and judged anew: the paper's threads
/// spin until old service times have left the window; here no thread spins. When only congested targets have
/// work, their turns are counted down at once.
#[derive(Clone, Debug)]
pub struct ThresholdPolicy {
    window: Duration,
    threshold: Duration,
    skips: u32,
    next_index: usize,
    targets: Vec<TargetSamples>,
}

#[derive(Clone, Debug, Default)]
struct TargetSamples {
    /// End and duration of recent services.
    samples: VecDeque<(Duration, Duration)>,
    /// Number of turns still to skip.
    skip: u32,
    avoided_count: u64,
}

impl TargetSamples {
    fn mean(&self, now: Duration, window: Duration) -> Option<Duration> {
        let since = now.saturating_sub(window);
        let recent = self.samples.iter().filter(|(ended, _)| *ended >= since);
        let (count, sum) =
            recent.fold((0, Duration::ZERO), |(count, sum), (_, time)| (count + 1, sum + *time));
        (count > 0).then(|| sum / count)
    }
}

impl ThresholdPolicy {
    /// Creates the policy with the window `W`, the threshold `T` and the number of skips `M`.
    pub fn new(window: Duration, threshold: Duration, skips: u32) -> ThresholdPolicy {
        ThresholdPolicy { window, threshold, skips, next_index: 0, targets: Vec::new() }
    }
}

impl SchedulingPolicy for ThresholdPolicy {
    fn choose(&mut self, now: Duration, targets: &[TargetState]) -> Option<usize> {
        self.targets.resize_with(targets.len(), TargetSamples::default);
        let start = if self.next_index < targets.len() { self.next_index } else { 0 };
        let order = (start..targets.len()).chain(0..start);
        let free: Vec<usize> =
            order.filter(|&index| targets[index].is_ready(now) && targets[index].in_service == 0).collect();
        let Some(fewest) = free.iter().map(|&index| self.targets[index].skip).min() else {
            // All targets with work are being served.
            return RoundRobinPolicy::new().choose_among(now, targets, |_| true);
        };
        if fewest > 0 {
            // Only congested targets: the rounds in which all of them are skipped.
            free.iter().for_each(|&index| self.targets[index].skip -= fewest);
        }
        for index in free {
            let target = &mut self.targets[index];
            if target.skip == 0 {
                self.next_index = index + 1;
                return Some(index);
            }
            target.skip -= 1;
        }
        None
    }

    fn record_service(
        &mut self,
        now: Duration,
        index: usize,
        targets: &[TargetState],
        service: StorageRequestTiming,
    ) {
        self.targets.resize_with(targets.len(), TargetSamples::default);
        let target = &mut self.targets[index];
        if target.samples.len() == SAMPLES_MAX {
            target.samples.pop_front();
        }
        target.samples.push_back((now, service.time));
        if target.mean(now, self.window).is_some_and(|mean| mean > self.threshold) {
            target.skip = self.skips;
            target.avoided_count += 1;
        }
    }

    fn verdict(&self, now: Duration, index: usize) -> TargetCongestion {
        let Some(target) = self.targets.get(index) else { return TargetCongestion::default() };
        TargetCongestion {
            recent: target.mean(now, self.window).unwrap_or_default(),
            is_avoided: target.skip > 0,
            avoided_count: target.avoided_count,
            ..TargetCongestion::default()
        }
    }
}
