//! Endpoints of shm that know each other within one process.
//!
//! The provider has one mapping of an endpoint's shared memory in a process, and unmaps it when that endpoint
//! is closed; a send of another endpoint to it then crashes (1.17). So an endpoint keeps the endpoints of its
//! own process open that it knows.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::core::EndpointCore;

/// Open endpoints by name.
static OPEN: Mutex<Vec<(Vec<u8>, Weak<EndpointCore>)>> = Mutex::new(Vec::new());

/// A lock under which no endpoint of shm is closed.
pub(crate) struct ShmEndpointsLock {
    open: MutexGuard<'static, Vec<(Vec<u8>, Weak<EndpointCore>)>>,
}

/// The owner of an endpoint's name.
pub(crate) enum EndpointNameOwner {
    /// An open endpoint of this process.
    Here(Arc<EndpointCore>),
    /// An endpoint of this process that is being closed.
    Closing,
    /// No endpoint of this process.
    Elsewhere,
}

impl ShmEndpointsLock {
    pub(crate) fn lock() -> ShmEndpointsLock {
        ShmEndpointsLock { open: OPEN.lock().unwrap_or_else(PoisonError::into_inner) }
    }

    pub(crate) fn add(&mut self, name: Vec<u8>, core: &Arc<EndpointCore>) {
        self.open.push((name, Arc::downgrade(core)));
    }

    pub(crate) fn find(&self, name: &[u8]) -> EndpointNameOwner {
        match self.open.iter().find(|(known, _)| known == name).map(|(_, core)| core.upgrade()) {
            Some(Some(core)) => EndpointNameOwner::Here(core),
            Some(None) => EndpointNameOwner::Closing,
            None => EndpointNameOwner::Elsewhere,
        }
    }

    /// Removes a closed endpoint.
    pub(crate) fn forget(&mut self, core: *const EndpointCore) {
        self.open.retain(|(_, known)| !std::ptr::eq(known.as_ptr(), core));
    }
}
