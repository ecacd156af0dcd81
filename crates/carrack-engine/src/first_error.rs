//! The first error of a session, and the way in which it reaches all threads.

use std::sync::atomic::{AtomicBool, Ordering::Acquire, Ordering::Release};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, Scope};

use crate::error::{STARTING_A_THREAD, SessionError};

/// The parts that wait, which end when a session fails.
pub(crate) trait SessionErrorListener: Sync {
    /// Ends all waiting.
    fn stop(&self);

    /// Drops the state for the other end, which is gone, so that this end is soon over.
    fn handle_peer_gone(&self) {}
}

/// Holds the first error of a session; later errors are consequences, also after it was taken.
#[derive(Default)]
pub(crate) struct FirstSessionError {
    state: Mutex<SessionFaultState>,
    has_ended: AtomicBool,
}

#[derive(Default)]
struct SessionFaultState {
    is_raised: bool,
    error: Option<SessionError>,
}

impl FirstSessionError {
    fn state(&self) -> MutexGuard<'_, SessionFaultState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps `error` if it is the first, and ends all waiting.
    pub(crate) fn raise(&self, error: SessionError, stop: &dyn SessionErrorListener) {
        let mut state = self.state();
        if !state.is_raised {
            *state = SessionFaultState { is_raised: true, error: Some(error) };
        }
        drop(state);
        stop.stop();
    }

    /// Notes the end of the session, well or not: no new work is begun.
    pub(crate) fn mark_ended(&self) {
        self.has_ended.store(true, Release);
    }

    /// Returns true if the session ends.
    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended.load(Acquire)
    }

    pub(crate) fn is_raised(&self) -> bool {
        self.state().is_raised
    }

    pub(crate) fn take(&self) -> Option<SessionError> {
        self.state().error.take()
    }

    /// Starts a thread of the session. Its name has at most 15 bytes, which `top -H` and profilers show.
    pub(crate) fn spawn<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        stop: &'scope dyn SessionErrorListener,
        name: &str,
        work: impl FnOnce() + Send + 'scope,
    ) {
        let named = thread::Builder::new().name(name.to_owned());
        let started = named.spawn_scoped(scope, move || {
            let _watch = self.watch(stop);
            work();
        });
        if let Err(error) = started {
            self.raise(SessionError::local(STARTING_A_THREAD)(error), stop);
        }
    }

    /// Raises [`SessionError::Internal`] if the thread that holds the result panics: no thread waits for a
    /// dead one.
    pub(crate) fn watch<'a>(&'a self, stop: &'a dyn SessionErrorListener) -> PanicWatch<'a> {
        PanicWatch { fault: self, stop }
    }
}

pub(crate) struct PanicWatch<'a> {
    fault: &'a FirstSessionError,
    stop: &'a dyn SessionErrorListener,
}

impl Drop for PanicWatch<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.fault.raise(SessionError::Internal, self.stop);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct TestSessionErrorListener;

    impl SessionErrorListener for TestSessionErrorListener {
        fn stop(&self) {}
    }

    #[test]
    fn the_first_error_stays_the_first_when_taken() {
        let fault = FirstSessionError::default();
        fault.raise(SessionError::Interrupted, &TestSessionErrorListener);
        assert!(fault.take().is_some_and(|error| error.is_interrupted()));
        fault.raise(SessionError::PeerGone, &TestSessionErrorListener);
        assert!(fault.take().is_none() && fault.is_raised());
    }
}
