//! The numbered storage targets that this process has met.
//!
//! Owns the numbers: a target is met under a key, and its number never changes. Any number of threads may use
//! it at once. Makes no calls to a file system.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use carrack_model::TargetId;

use crate::target::TargetLabelAndName;
use crate::{StorageTarget, TargetAttachmentKind};

/// Bound of the targets of one process. Real sites have thousands; a file system that invents a target for
/// every file must not fill the memory.
const TARGETS_MAX: usize = 65_536;

/// The key that identifies a target.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum TargetKey {
    /// A file system as a whole, by its device number.
    FileSystem(u64),
    /// A piece of a file system: its device number and the piece's name in it.
    Piece(u64, Arc<str>),
    /// Storage that several file systems may share, by its name on this host: a disk, a set of disks, the
    /// memory.
    Host(Arc<str>),
}

/// All targets, in the order in which they were met.
#[derive(Debug, Default)]
pub(super) struct TargetRegistry {
    inner: Mutex<NumberedTargets>,
}

#[derive(Debug, Default)]
struct NumberedTargets {
    ids: HashMap<TargetKey, TargetId>,
    /// The target with number `n` at index `n - 1`; number 0 is no target.
    targets: Vec<StorageTarget>,
}

impl TargetRegistry {
    /// The target with this key, with a new number at its first use; none if there are too many targets.
    pub(super) fn get_or_insert(
        &self,
        key: TargetKey,
        names: impl FnOnce() -> TargetLabelAndName,
        medium: TargetAttachmentKind,
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

    fn inner(&self) -> MutexGuard<'_, NumberedTargets> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl NumberedTargets {
    fn get(&self, id: TargetId) -> Option<&StorageTarget> {
        self.targets.get(usize::try_from(id.0.checked_sub(1)?).ok()?)
    }
}

/// A provider's view of the targets: the pieces of one file system.
#[derive(Clone, Debug)]
pub(super) struct FileSystemTargets {
    registry: Arc<TargetRegistry>,
    device: u64,
    medium: TargetAttachmentKind,
    own: TargetId,
    /// The name of the file system that all its clients share.
    scope: Option<Arc<str>>,
}

impl FileSystemTargets {
    /// The pieces of the file system with this device number. `own` stands in for pieces beyond the bound;
    /// `scope` is the name that all clients share.
    pub(super) fn new(
        registry: Arc<TargetRegistry>,
        device: u64,
        own: &StorageTarget,
        scope: Option<Arc<str>>,
    ) -> FileSystemTargets {
        FileSystemTargets { registry, device, medium: own.medium, own: own.id, scope }
    }

    /// The target that this file system calls `name`, which is also its label.
    pub(super) fn target_named(&self, name: &str) -> TargetId {
        self.get_or_insert(name, self.scope.as_deref())
    }

    /// The name of the file system that all its clients share, if it has other clients.
    pub(super) fn scope(&self) -> Option<&str> {
        self.scope.as_deref()
    }

    /// A target that this process invented, as the file system has no name for it.
    pub(super) fn invented_target(&self, name: &str) -> TargetId {
        self.get_or_insert(name, None)
    }

    fn get_or_insert(&self, name: &str, scope: Option<&str>) -> TargetId {
        let key = TargetKey::Piece(self.device, name.into());
        let target =
            self.registry.get_or_insert(key, || TargetLabelAndName::new(name, scope), self.medium, 1);
        target.map_or(self.own, |target| target.id)
    }

    /// The target of files whose layout is unknown.
    pub(super) fn own_target(&self) -> TargetId {
        self.own
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_key_is_the_same_target() {
        let registry = TargetRegistry::default();
        fn meet(registry: &TargetRegistry, key: TargetKey) -> StorageTarget {
            registry
                .get_or_insert(key, || TargetLabelAndName::new("x", None), TargetAttachmentKind::Network, 2)
                .unwrap()
        }
        let own = meet(&registry, TargetKey::FileSystem(7));
        let piece = meet(&registry, TargetKey::Piece(7, "OST0000".into()));
        let other = meet(&registry, TargetKey::Piece(8, "OST0000".into()));
        assert_eq!((own.id, piece.id, other.id), (TargetId(1), TargetId(2), TargetId(3)));
        assert_eq!(meet(&registry, TargetKey::Piece(7, "OST0000".into())), piece);
        assert_eq!((registry.all().len(), own.depth), (3, 16));
        assert_eq!(registry.get(TargetId(2)), Some(piece));
        assert_eq!((registry.get(TargetId(0)), registry.get(TargetId(4))), (None, None));
    }

    #[test]
    fn a_file_system_that_invents_targets_fills_no_memory() {
        let registry = Arc::new(TargetRegistry::default());
        let own = registry
            .get_or_insert(
                TargetKey::FileSystem(1),
                || TargetLabelAndName::new("/mnt", None),
                TargetAttachmentKind::Network,
                1,
            )
            .unwrap();
        let pieces = FileSystemTargets::new(registry.clone(), 1, &own, Some("fs".into()));
        (1..TARGETS_MAX).for_each(|index| assert_ne!(pieces.target_named(&index.to_string()), own.id));
        assert_eq!((registry.all().len(), pieces.target_named("one more")), (TARGETS_MAX, own.id));
        assert_ne!(pieces.target_named("1"), own.id);
        assert_eq!(registry.get(pieces.target_named("1")).unwrap().shared_name.as_deref(), Some("fs/1"));
    }
}
