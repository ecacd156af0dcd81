//! The detection of time in which this process was stopped (SIGSTOP, a sleeping machine). It receives nothing
//! then, and must not count that as silence of others.

use std::time::{Duration, Instant};

/// A longer pause between two looks means that the process was stopped.
const LONGEST_LOOK: Duration = Duration::from_secs(1);

/// Used by a loop that looks at least twice a second.
pub(crate) struct SuspensionDetector {
    last: Instant,
}

impl SuspensionDetector {
    pub(crate) fn new(now: Instant) -> SuspensionDetector {
        SuspensionDetector { last: now }
    }

    /// Returns the time in which the loop was stopped since the last call; mostly zero.
    pub(crate) fn take_suspended_time(&mut self, now: Instant) -> Duration {
        let gap = now.saturating_duration_since(self.last);
        self.last = now;
        if gap > LONGEST_LOOK { gap } else { Duration::ZERO }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_long_gap_was_an_absence() {
        let start = Instant::now();
        let mut presence = SuspensionDetector::new(start);
        for (ms, missed) in [(500, 0), (1_400, 0), (61_400, 60_000), (61_900, 0)] {
            assert_eq!(
                presence.take_suspended_time(start + Duration::from_millis(ms)).as_millis(),
                missed,
                "{ms}"
            );
        }
    }
}
