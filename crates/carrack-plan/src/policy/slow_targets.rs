//! Targets that are slow now, so that new files are better placed on others.
//!
//! Pure. A policy's avoidance of a target begins with a single late request, and ends after a moment; this
//! compares the recent service times of all targets.

use std::time::Duration;

use carrack_model::TargetId;

/// A target is slow if it takes this many times the median of all; requests of one healthy target differ
/// by about half of that.
const SLOW_BY_MEDIAN: u32 = 4;

/// A target that takes this much longer is not slow yet: a cache answers so.
const SLOW_BY_TIME: Duration = Duration::from_millis(20);

/// Returns the slow ones of targets with these recent service times of a 1 MiB object; never more than half.
pub fn slow_targets(recent: &[(TargetId, Duration)]) -> Vec<TargetId> {
    let mut times: Vec<Duration> = recent.iter().map(|(_, time)| *time).collect();
    times.sort_unstable();
    // The lower one of two: of two targets one may be slow.
    let Some(median) = times.len().checked_sub(1).map(|last| times[last / 2]) else { return Vec::new() };
    let limit = median.saturating_mul(SLOW_BY_MEDIAN).max(median.saturating_add(SLOW_BY_TIME));
    recent.iter().filter(|(_, time)| *time > limit).map(|(target, _)| *target).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn times(milliseconds: &[u64]) -> Vec<(TargetId, Duration)> {
        let times = milliseconds.iter().map(|time| Duration::from_millis(*time));
        (1..).map(TargetId).zip(times).collect()
    }

    #[test]
    fn a_target_is_slow_by_its_peers() {
        for (milliseconds, slow) in [
            (&[5, 6, 400, 7][..], &[3][..]),
            (&[5, 400], &[2]),
            (&[5, 20, 15, 7], &[]),
            (&[1, 1, 19, 1], &[]),
            (&[100, 390, 120, 110], &[]),
            (&[400], &[]),
            (&[], &[]),
        ] {
            let found: Vec<u64> = slow_targets(&times(milliseconds)).iter().map(|target| target.0).collect();
            assert_eq!(found, slow, "{milliseconds:?}");
        }
    }

    proptest! {
        #[test]
        fn at_most_half_are_slow_and_none_is_faster_than_another(
            milliseconds in proptest::collection::vec(0u64..2_000, 0..40),
        ) {
            let times = times(&milliseconds);
            let slow = slow_targets(&times);
            prop_assert!(2 * slow.len() <= times.len());
            let is_slow = |target: &TargetId| slow.contains(target);
            let slowest_other = times.iter().filter(|(target, _)| !is_slow(target)).map(|(_, time)| time).max();
            let fastest_slow = times.iter().filter(|(target, _)| is_slow(target)).map(|(_, time)| time).min();
            prop_assert!(slowest_other.zip(fastest_slow).is_none_or(|(other, slow)| other < slow));
        }
    }
}
