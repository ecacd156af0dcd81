//! Whether this process was there: one that is stopped (SIGSTOP, a machine that sleeps) hears nothing meanwhile, and must
//! not hold that against others.

use std::time::{Duration, Instant};

/// A loop that looks this seldom was kept from it.
const LONGEST_LOOK: Duration = Duration::from_secs(1);

/// Kept by a loop that looks around twice a second at least.
pub(crate) struct Presence {
    last: Instant,
}

impl Presence {
    pub(crate) fn new(now: Instant) -> Presence {
        Presence { last: now }
    }

    /// How long the loop was kept away since it looked last; mostly not at all.
    pub(crate) fn missed(&mut self, now: Instant) -> Duration {
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
        let mut presence = Presence::new(start);
        let mut missed = |ms| presence.missed(start + Duration::from_millis(ms)).as_millis();
        assert_eq!([missed(500), missed(1_400), missed(61_400), missed(61_900)], [0, 0, 60_000, 0]);
    }
}
