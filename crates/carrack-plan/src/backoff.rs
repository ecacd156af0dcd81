//! Backoff between retries: longer each time, and randomised, so that many clients of a failed server don't
//! return at the same moment.

use std::time::Duration;

/// The first wait, at its longest: a restarted process is there by then.
const FIRST: Duration = Duration::from_millis(100);

/// The longest wait: a network that is back after an hour is used half a minute later.
const LONGEST: Duration = Duration::from_secs(30);

/// The waits between failed tries. Exponential, from 100 ms to 30 s, each between half and all of that
/// ("equal jitter", AWS Architecture Blog, 2015).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backoff {
    tries: u32,
}

impl Backoff {
    /// Returns the wait before the next try; `chance` is any number, all equally likely.
    pub fn next_wait(&mut self, chance: u64) -> Duration {
        let longest = FIRST.saturating_mul(1 << self.tries.min(16)).min(LONGEST);
        self.tries = self.tries.saturating_add(1);
        let half = longest / 2;
        let part = (chance >> 32) as f64 / f64::from(u32::MAX);
        half + half.mul_f64(part)
    }

    /// Returns the number of tries since the last success.
    pub fn tries(&self) -> u32 {
        self.tries
    }

    /// Resets the count and the waits after a success.
    pub fn reset(&mut self) {
        self.tries = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn doubles_to_half_a_minute_and_begins_anew() {
        let mut backoff = Backoff::default();
        let longest: Vec<u128> = (0..11).map(|_| backoff.next_wait(u64::MAX).as_millis()).collect();
        assert_eq!(longest, [100, 200, 400, 800, 1600, 3200, 6400, 12_800, 25_600, 30_000, 30_000]);
        assert_eq!(backoff.tries(), 11);
        backoff.reset();
        assert_eq!((backoff.tries(), backoff.next_wait(0)), (0, Duration::from_millis(50)));
    }

    proptest! {
        #[test]
        fn every_wait_is_between_half_and_all_of_its_longest(chances in proptest::collection::vec(any::<u64>(), 1..100)) {
            let (mut backoff, mut most) = (Backoff::default(), Backoff::default());
            for chance in chances {
                let (wait, longest) = (backoff.next_wait(chance), most.next_wait(u64::MAX));
                prop_assert!(wait >= longest / 2 && wait <= longest && longest <= LONGEST);
            }
        }
    }
}
