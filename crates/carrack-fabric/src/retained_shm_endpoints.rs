//! Endpoints of shm that know each other within one process.
//!
//! The provider has one mapping of an endpoint's shared memory in a process, and unmaps it when that endpoint
//! is closed; a send of another endpoint to it then crashes (1.17). So an endpoint keeps the endpoints of its
//! own process open that it knows.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::core::FabricEndpointResources;

/// Open endpoints by name.
static OPEN: Mutex<Vec<(Vec<u8>, Weak<FabricEndpointResources>)>> = Mutex::new(Vec::new());

/// A lock under which no endpoint of shm is closed.
pub(crate) struct ShmEndpointsLock {
    open: MutexGuard<'static, Vec<(Vec<u8>, Weak<FabricEndpointResources>)>>,
}

/// The owner of an endpoint's name.
pub(crate) enum ShmNameHolder {
    /// An open endpoint of this process.
    Here(Arc<FabricEndpointResources>),
    /// An endpoint of this process that is being closed.
    Closing,
    /// No endpoint of this process.
    Elsewhere,
}

impl ShmEndpointsLock {
    pub(crate) fn lock() -> ShmEndpointsLock {
        ShmEndpointsLock { open: OPEN.lock().unwrap_or_else(PoisonError::into_inner) }
    }

    pub(crate) fn add(&mut self, name: Vec<u8>, core: &Arc<FabricEndpointResources>) {
        self.open.push((name, Arc::downgrade(core)));
    }

    pub(crate) fn find_holder(&self, name: &[u8]) -> ShmNameHolder {
        match self.open.iter().find(|(known, _)| known == name).map(|(_, core)| core.upgrade()) {
            Some(Some(core)) => ShmNameHolder::Here(core),
            Some(None) => ShmNameHolder::Closing,
            None => ShmNameHolder::Elsewhere,
        }
    }

    /// Removes a closed endpoint.
    pub(crate) fn remove(&mut self, core: *const FabricEndpointResources) {
        self.open.retain(|(_, known)| !std::ptr::eq(known.as_ptr(), core));
    }
}
