//! The first error of a session, and how every thread of it learns of it.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::thread;

use crate::error::SessionError;

/// What has to be told when a session fails: waiting ends everywhere.
pub(crate) trait Stop: Sync {
    /// Ends all waiting.
    fn stop(&self);
}

/// Holds the first error; later ones are consequences.
#[derive(Default)]
pub(crate) struct Fault {
    first: Mutex<Option<SessionError>>,
}

impl Fault {
    /// Keeps `error` if it is the first, and ends all waiting.
    pub(crate) fn raise(&self, error: SessionError, stop: &dyn Stop) {
        self.first.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        stop.stop();
    }

    pub(crate) fn is_raised(&self) -> bool {
        self.first.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    pub(crate) fn take(&self) -> Option<SessionError> {
        self.first.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Raises [`SessionError::Internal`] if the thread that holds it panics: nobody waits for a dead thread.
    pub(crate) fn watch<'a>(&'a self, stop: &'a dyn Stop) -> PanicWatch<'a> {
        PanicWatch { fault: self, stop }
    }
}

pub(crate) struct PanicWatch<'a> {
    fault: &'a Fault,
    stop: &'a dyn Stop,
}

impl Drop for PanicWatch<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.fault.raise(SessionError::Internal, self.stop);
        }
    }
}
