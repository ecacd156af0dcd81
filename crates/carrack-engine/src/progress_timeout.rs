//! The watch for sessions without progress: a peer that is alive and does nothing occupies memory and a
//! place.

use std::time::{Duration, Instant};

use crate::error::SessionError;

/// Watches a number that grows with all work of this end; the other end's reports do not count.
pub(crate) struct IdleSessionWatch {
    longest: Option<Duration>,
    done: u64,
    since: Instant,
}

impl IdleSessionWatch {
    /// Creates the watch. No work may be done for `longest` at most; `None` is forever.
    pub(crate) fn new(longest: Option<Duration>) -> IdleSessionWatch {
        IdleSessionWatch { longest, done: 0, since: Instant::now() }
    }

    /// Notes the work done by now.
    ///
    /// # Errors
    /// [`SessionError::Idle`]: the number has not changed for too long.
    pub(crate) fn check_progress(&mut self, done: u64, now: Instant) -> Result<(), SessionError> {
        if done != self.done {
            (self.done, self.since) = (done, now);
        }
        match self.longest {
            Some(longest) if now.duration_since(self.since) > longest => {
                Err(SessionError::Idle(longest.as_secs()))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_done_keeps_a_session() {
        let mut watch = IdleSessionWatch::new(Some(Duration::from_secs(10)));
        let start = watch.since;
        for (seconds, done) in [(9, 0), (10, 5), (20, 5), (20, 6), (30, 6)] {
            assert!(
                watch.check_progress(done, start + Duration::from_secs(seconds)).is_ok(),
                "{seconds} {done}"
            );
        }
        assert!(watch.check_progress(6, start + Duration::from_secs(31)).is_err());
        let mut patient = IdleSessionWatch::new(None);
        assert!(patient.check_progress(0, start + Duration::from_secs(1_000_000)).is_ok());
    }
}
