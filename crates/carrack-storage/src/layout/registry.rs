//! The storage targets that this process has met, numbered.
//!
//! Owns the numbers: a target is met under a key, and the same key is the same target for ever. Used by any number of
//! threads at once. Must not ask a file system.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use carrack_model::TargetId;

use crate::target::Names;
use crate::{Medium, StorageTarget};

/// Targets of one process. Real sites have thousands; a file system that invents a new one for every file must not
/// fill the memory.
const TARGETS_MAX: usize = 65_536;

/// By which a target is known again.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum TargetKey {
    /// A file system as a whole, by its device number.
    FileSystem(u64),
    /// A piece of a file system: its device number and the piece's name in it.
    Piece(u64, Arc<str>),
    /// Storage that several file systems may share, by its name on this host: a disk, a set of disks, the memory.
    Host(Arc<str>),
}

/// All targets, in the order in which they were met.
#[derive(Debug, Default)]
pub(super) struct Registry {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    ids: HashMap<TargetKey, TargetId>,
    /// That with number `n` at place `n - 1`: 0 is nobody's.
    targets: Vec<StorageTarget>,
}

impl Registry {
    /// The target with this key, with a new number if it was never met; nothing if there are too many.
    pub(super) fn meet(
        &self,
        key: TargetKey,
        names: impl FnOnce() -> Names,
        medium: Medium,
        disk_count: usize,
    ) -> Option<StorageTarget> {
        let mut inner = self.inner();
        if let Some(id) = inner.ids.get(&key) {
            return inner.get(*id).cloned();
        }
        if inner.targets.len() >= TARGETS_MAX {
            return None;
        }
        let id = TargetId(inner.targets.len() as u64 + 1);
        let target = StorageTarget::new(id, names(), medium, disk_count);
        inner.ids.insert(key, id);
        inner.targets.push(target.clone());
        Some(target)
    }

    pub(super) fn get(&self, id: TargetId) -> Option<StorageTarget> {
        self.inner().get(id).cloned()
    }

    pub(super) fn all(&self) -> Vec<StorageTarget> {
        self.inner().targets.clone()
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn get(&self, id: TargetId) -> Option<&StorageTarget> {
        self.targets.get(usize::try_from(id.0.checked_sub(1)?).ok()?)
    }
}

/// What a provider may say about targets: the pieces of one file system.
#[derive(Clone, Debug)]
pub(super) struct Pieces {
    registry: Arc<Registry>,
    device: u64,
    medium: Medium,
    own: TargetId,
    /// How everybody calls the file system.
    scope: Option<Arc<str>>,
}

impl Pieces {
    /// Of the file system with this device number; `own` stands in for pieces that are too many; everybody calls it `scope`.
    pub(super) fn new(
        registry: Arc<Registry>,
        device: u64,
        own: &StorageTarget,
        scope: Option<Arc<str>>,
    ) -> Pieces {
        Pieces { registry, device, medium: own.medium, own: own.id, scope }
    }

    /// The target that this file system calls `name`, which is also its label.
    pub(super) fn named(&self, name: &str) -> TargetId {
        self.meet(name, self.scope.as_deref())
    }

    /// How everybody calls the file system, if anybody else has it.
    pub(super) fn scope(&self) -> Option<&str> {
        self.scope.as_deref()
    }

    /// One of this process's own making: the file system has no name for it.
    pub(super) fn made_up(&self, name: &str) -> TargetId {
        self.meet(name, None)
    }

    fn meet(&self, name: &str, scope: Option<&str>) -> TargetId {
        let key = TargetKey::Piece(self.device, name.into());
        let names = || Names::new(name, scope);
        self.registry.meet(key, names, self.medium, 1).map_or(self.own, |target| target.id)
    }

    /// Where files lie whose place nobody knows.
    pub(super) fn own(&self) -> TargetId {
        self.own
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_key_is_the_same_target() {
        let registry = Registry::default();
        let meet = |key| registry.meet(key, || Names::new("x", None), Medium::Network, 2).unwrap();
        let own = meet(TargetKey::FileSystem(7));
        let piece = meet(TargetKey::Piece(7, "OST0000".into()));
        let other = meet(TargetKey::Piece(8, "OST0000".into()));
        assert_eq!((own.id, piece.id, other.id), (TargetId(1), TargetId(2), TargetId(3)));
        assert_eq!(meet(TargetKey::Piece(7, "OST0000".into())), piece);
        assert_eq!((registry.all().len(), own.depth), (3, 16));
        assert_eq!(registry.get(TargetId(2)), Some(piece));
        assert_eq!((registry.get(TargetId(0)), registry.get(TargetId(4))), (None, None));
    }

    #[test]
    fn a_file_system_that_invents_targets_fills_no_memory() {
        let registry = Arc::new(Registry::default());
        let own =
            registry.meet(TargetKey::FileSystem(1), || Names::new("/mnt", None), Medium::Network, 1).unwrap();
        let pieces = Pieces::new(registry.clone(), 1, &own, Some("fs".into()));
        (1..TARGETS_MAX).for_each(|index| assert_ne!(pieces.named(&index.to_string()), own.id));
        assert_eq!((registry.all().len(), pieces.named("one more")), (TARGETS_MAX, own.id));
        assert_ne!(pieces.named("1"), own.id);
        assert_eq!(registry.get(pieces.named("1")).unwrap().shared_name.as_deref(), Some("fs/1"));
    }
}
