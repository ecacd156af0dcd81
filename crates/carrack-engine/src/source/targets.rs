//! The storage targets that the scan has come across: one for each device or mount beneath the sources.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use carrack_model::TargetId;
use carrack_storage::{Medium, StorageTarget};

/// Grows while the scan runs; a host has few devices.
pub(super) struct Targets {
    known: Mutex<HashMap<TargetId, StorageTarget>>,
}

impl Targets {
    pub(super) fn new(first: &[StorageTarget]) -> Targets {
        Targets { known: Mutex::new(first.iter().map(|target| (target.id, *target)).collect()) }
    }

    fn known(&self) -> MutexGuard<'_, HashMap<TargetId, StorageTarget>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn get(&self, id: TargetId) -> Option<StorageTarget> {
        self.known().get(&id).copied()
    }

    pub(super) fn add(&self, target: StorageTarget) {
        self.known().insert(target.id, target);
    }

    /// The most I/O threads that any of them can use.
    pub(super) fn depth(&self) -> u32 {
        self.known().values().map(|target| target.depth).max().unwrap_or(1)
    }

    /// Whether all that are known are memory: reading them has no latency to hide.
    pub(super) fn are_memory(&self) -> bool {
        self.known().values().all(|target| target.medium == Medium::Memory)
    }

    /// Bytes of the objects that are cut on a target: what it prefers, but never more than a slot; both are powers
    /// of two.
    pub(super) fn object_bytes(&self, id: TargetId, slot_bytes: u32) -> u64 {
        u64::from(self.get(id).map_or(slot_bytes, |target| target.object_bytes.min(slot_bytes)))
    }
}
