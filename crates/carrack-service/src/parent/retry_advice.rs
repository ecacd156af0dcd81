//! Delays for clients that find no room: the more of them, the later they try again. No I/O.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Upper bound of attempts per second by clients that try again: each costs a process and a TLS handshake.
const TRIES_PER_S: u32 = 20;

/// The shortest delay for a client: a small copy has ended by then.
const SHORTEST: Duration = Duration::from_millis(500);

/// The longest delay, and the time for which a refused client counts: it tries again within it.
const LONGEST: Duration = Duration::from_secs(30);

/// Number of clients that try again within this time, at this rate.
const COUNTED_MAX: usize = (TRIES_PER_S * 30) as usize;

/// Times of the latest refusals, each with its delay.
#[derive(Debug, Default)]
pub struct OverloadRetryDelays(VecDeque<(Instant, Duration)>);

impl OverloadRetryDelays {
    /// Counts one more client and returns its delay.
    pub fn next_retry_delay(&mut self, now: Instant) -> Duration {
        // Clients whose delay is over have tried again, or won't.
        self.0.retain(|(at, told)| now.saturating_duration_since(*at) < *told * 2);
        if self.0.len() >= COUNTED_MAX {
            self.0.pop_front();
        }
        let others = self.0.len() as u32;
        let wait = (Duration::from_secs(1) / TRIES_PER_S * (others + 1)).clamp(SHORTEST, LONGEST);
        self.0.push_back((now, wait));
        wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_more_wait_the_later_each_comes_again() {
        let start = Instant::now();
        let mut away = OverloadRetryDelays::default();
        assert_eq!(away.next_retry_delay(start), SHORTEST);
        let waits: Vec<_> = (0..2_000).map(|_| away.next_retry_delay(start)).collect();
        assert!(waits.is_sorted() && waits.last() == Some(&LONGEST));
        assert!(away.0.len() <= COUNTED_MAX, "{}", away.0.len());
        assert_eq!(away.next_retry_delay(start + LONGEST * 2), SHORTEST, "nobody waits any more");
    }
}
