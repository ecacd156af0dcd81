//! The end of a session whose process was stopped (SIGSTOP, a sleeping machine) while other sessions carry
//! the transfer: they take over what it had, and its late writes would be in files that are complete, and
//! perhaps changed since.
//!
//! The comm thread beats; every thread asks before it changes the destination.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::boot_clock::since_boot;
use crate::error::SessionError;

/// A session that was stopped for longer does not go on. Others take over from a silent mover after 7 s.
const STOPPED_MAX_MS: u64 = 5_000;

/// The beats of a session.
#[derive(Default)]
pub(super) struct TakeoverGuard {
    /// The time of the last beat (ms of `CLOCK_BOOTTIME`); 0 before the first.
    beat_ms: AtomicU64,
    /// The longest pause, if that ended the session.
    stopped_ms: AtomicU64,
}

impl TakeoverGuard {
    /// Beats, at least once a second.
    ///
    /// # Errors
    /// As [`TakeoverGuard::check`].
    pub(super) fn beat(&self) -> Result<(), SessionError> {
        self.beat_at(now_ms())
    }

    /// Returns an error if the process was stopped for so long that others have taken over.
    pub(super) fn check(&self) -> Result<(), SessionError> {
        self.check_at(now_ms())
    }

    fn beat_at(&self, now_ms: u64) -> Result<(), SessionError> {
        // A pause is noted before the new beat hides it from other threads.
        self.check_at(now_ms)?;
        self.beat_ms.fetch_max(now_ms, Ordering::AcqRel);
        Ok(())
    }

    fn check_at(&self, now_ms: u64) -> Result<(), SessionError> {
        let last_ms = self.beat_ms.load(Ordering::Acquire);
        let pause_ms = if last_ms == 0 { 0 } else { now_ms.saturating_sub(last_ms) };
        if pause_ms > STOPPED_MAX_MS {
            self.stopped_ms.fetch_max(pause_ms, Ordering::AcqRel);
        }
        match self.stopped_ms.load(Ordering::Acquire) {
            0 => Ok(()),
            stopped_ms => Err(SessionError::Superseded(stopped_ms / 1_000)),
        }
    }
}

fn now_ms() -> u64 {
    since_boot().as_millis() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_that_was_stopped_does_not_go_on() {
        let guard = TakeoverGuard::default();
        // Nobody has begun, and nobody can have taken over.
        assert!(guard.check_at(60_000).is_ok());
        for now_ms in [60_000, 61_000, 65_900] {
            assert!(guard.beat_at(now_ms).is_ok());
        }
        assert!(guard.check_at(70_900).is_ok());
        assert!(matches!(guard.beat_at(72_900), Err(SessionError::Superseded(7))));
        // The beat comes too late for the threads that ask after it.
        assert!(matches!(guard.check_at(72_901), Err(SessionError::Superseded(7))));
        assert!(guard.beat().is_err() && guard.check().is_err());
    }
}
