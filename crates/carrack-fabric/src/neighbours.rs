//! Endpoints of shm that know each other within one process.
//!
//! The provider has one mapping of an endpoint's shared memory in a process, which goes when that endpoint is closed; a
//! send of another to it is then a crash (1.17). So whoever knows an endpoint of its own process keeps it open.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::core::Core;

/// Those that are open, by name.
static OPEN: Mutex<Vec<(Vec<u8>, Weak<Core>)>> = Mutex::new(Vec::new());

/// As long as it is held, no endpoint of shm is closed.
pub(crate) struct Neighbours {
    open: MutexGuard<'static, Vec<(Vec<u8>, Weak<Core>)>>,
}

/// What is known of a name.
pub(crate) enum Neighbour {
    /// An open endpoint of this process.
    Here(Arc<Core>),
    /// One that is about to be closed.
    Closing,
    /// None of this process.
    Elsewhere,
}

impl Neighbours {
    pub(crate) fn lock() -> Neighbours {
        Neighbours { open: OPEN.lock().unwrap_or_else(PoisonError::into_inner) }
    }

    pub(crate) fn add(&mut self, name: Vec<u8>, core: &Arc<Core>) {
        self.open.push((name, Arc::downgrade(core)));
    }

    pub(crate) fn find(&self, name: &[u8]) -> Neighbour {
        match self.open.iter().find(|(known, _)| known == name).map(|(_, core)| core.upgrade()) {
            Some(Some(core)) => Neighbour::Here(core),
            Some(None) => Neighbour::Closing,
            None => Neighbour::Elsewhere,
        }
    }

    /// Forgets those that are closed.
    pub(crate) fn forget(&mut self, core: *const Core) {
        self.open.retain(|(_, known)| !std::ptr::eq(known.as_ptr(), core));
    }
}
