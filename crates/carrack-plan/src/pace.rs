//! Rate limits: how fast bytes may leave all targets together, and each of them (L15).

use std::time::Duration;

/// How far ahead of its rate a transfer may run: a burst of this much time after a rest.
const BURST: Duration = Duration::from_millis(50);

/// One limit: a virtual clock that runs ahead by the time that each charge takes at the rate (GCRA, ITU-T I.371).
#[derive(Clone, Copy, Debug, Default)]
pub struct Pace {
    /// When all that was charged will be paid.
    paid_at: Duration,
}

impl Pace {
    /// Books bytes that are taken now; 0 bytes a second means no limit.
    pub fn charge(&mut self, now: Duration, bytes: u64, bytes_per_s: u64) {
        if bytes_per_s > 0 {
            let cost = Duration::from_secs_f64(bytes as f64 / bytes_per_s as f64);
            self.paid_at = self.paid_at.max(now).saturating_add(cost);
        }
    }

    /// When the next bytes may be taken.
    pub fn free_at(&self) -> Duration {
        self.paid_at.saturating_sub(BURST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_to_the_rate_and_grants_a_burst_after_a_rest() {
        let mut pace = Pace::default();
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
        let mut free = Pace::default();
        free.charge(now, 1 << 40, 0);
        assert_eq!(free.free_at(), Duration::ZERO);
    }
}
