//! The numbered storage targets that this process has met.
//!
//! Owns the numbers: a target is met under a key, and its number and its server never change. Any number of
//! threads may use it at once. Makes no calls to a file system.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use carrack_model::{ServerId, TargetId};

use crate::target::TargetLabelAndName;
use crate::{StorageServer, StorageTarget, TargetAttachmentKind};

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
    /// By their names. There are no more servers than targets.
    servers: HashMap<Arc<str>, ServerId>,
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
        self.get_or_make(key, names, medium, disk_count, None)
    }

    /// As [`TargetRegistry::get_or_insert`], with objects of `object_bytes` in place of the medium's.
    fn get_or_make(
        &self,
        key: TargetKey,
        names: impl FnOnce() -> TargetLabelAndName,
        medium: TargetAttachmentKind,
        disk_count: usize,
        object_bytes: Option<u32>,
    ) -> Option<StorageTarget> {
        let mut inner = self.inner();
        if let Some(id) = inner.ids.get(&key) {
            return inner.get(*id).cloned();
        }
        if inner.targets.len() >= TARGETS_MAX {
            return None;
        }
        let id = TargetId(inner.targets.len() as u64 + 1);
        let names = names();
        let server = names.server.clone().map(|name| inner.server_named(name));
        let mut target = StorageTarget::new(id, names, server, medium, disk_count);
        target.object_bytes = object_bytes.unwrap_or(target.object_bytes);
        inner.ids.insert(key, id);
        inner.targets.push(target.clone());
        Some(target)
    }

    pub(super) fn get(&self, id: TargetId) -> Option<StorageTarget> {
        self.inner().get(id).cloned()
    }

    /// The number of the target with this key, if it was met before.
    fn id_of(&self, key: &TargetKey) -> Option<TargetId> {
        self.inner().ids.get(key).copied()
    }

    pub(super) fn all(&self) -> Vec<StorageTarget> {
        self.inner().targets.clone()
    }

    fn pieces_of(&self, device: u64) -> Vec<(Arc<str>, TargetId)> {
        let inner = self.inner();
        let pieces = inner.ids.iter().filter_map(|(key, id)| match key {
            TargetKey::Piece(on, name) if *on == device => Some((Arc::clone(name), *id)),
            _ => None,
        });
        pieces.collect()
    }

    fn inner(&self) -> MutexGuard<'_, NumberedTargets> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl NumberedTargets {
    fn get(&self, id: TargetId) -> Option<&StorageTarget> {
        self.targets.get(usize::try_from(id.0.checked_sub(1)?).ok()?)
    }

    fn server_named(&mut self, name: Arc<str>) -> StorageServer {
        let next = ServerId(self.servers.len() as u32);
        let id = *self.servers.entry(Arc::clone(&name)).or_insert(next);
        StorageServer { id, name }
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
    /// The largest request of a client to a piece; `None` if unknown.
    request_bytes: Option<u32>,
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
        FileSystemTargets { registry, device, medium: own.medium, own: own.id, scope, request_bytes: None }
    }

    /// Gives the objects of its pieces the size of a client's largest request.
    pub(super) fn with_request_bytes(self, request_bytes: Option<u32>) -> FileSystemTargets {
        FileSystemTargets { request_bytes, ..self }
    }

    /// The largest request of a client to a piece, if the file system prefers requests of that size.
    pub(super) fn request_bytes(&self) -> Option<u32> {
        self.request_bytes
    }

    /// The target that this file system calls `name`, which is also its label.
    pub(super) fn target_named(&self, name: &str) -> TargetId {
        self.target_on_server(name, || None)
    }

    /// As [`target_named`](Self::target_named); `server` looks up the name of the target's server, which
    /// happens once for each target.
    pub(super) fn target_on_server(&self, name: &str, server: impl FnOnce() -> Option<String>) -> TargetId {
        self.get_or_insert(name, self.scope.as_deref(), server)
    }

    /// The pieces that were met, with their names.
    pub(super) fn met(&self) -> Vec<(Arc<str>, TargetId)> {
        self.registry.pieces_of(self.device)
    }

    /// The name of the file system that all its clients share, if it has other clients.
    pub(super) fn scope(&self) -> Option<&str> {
        self.scope.as_deref()
    }

    /// A target that this process invented, as the file system has no name for it.
    pub(super) fn invented_target(&self, name: &str) -> TargetId {
        self.get_or_insert(name, None, || None)
    }

    fn get_or_insert(
        &self,
        name: &str,
        scope: Option<&str>,
        server: impl FnOnce() -> Option<String>,
    ) -> TargetId {
        let key = TargetKey::Piece(self.device, name.into());
        if let Some(id) = self.registry.id_of(&key) {
            return id;
        }
        // Looked up without the registry's lock, as a file system may take its time.
        let names = TargetLabelAndName::new(name, scope).on_server(server());
        let target = self.registry.get_or_make(key, || names, self.medium, 1, self.request_bytes);
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
    fn targets_know_their_servers() {
        let registry = Arc::new(TargetRegistry::default());
        let names = || TargetLabelAndName::new("/mnt", None);
        let (key, medium) = (TargetKey::FileSystem(1), TargetAttachmentKind::Network);
        let own = registry.get_or_insert(key, names, medium, 1).unwrap();
        let pieces = FileSystemTargets::new(registry.clone(), 1, &own, None);
        let servers = ["a", "b", "a", "c"].iter().enumerate().map(|(index, server)| {
            let id = pieces.target_on_server(&index.to_string(), || Some((*server).to_owned()));
            registry.get(id).unwrap().server.unwrap()
        });
        let servers: Vec<_> = servers.map(|server| (server.id.0, server.name.to_string())).collect();
        assert_eq!(servers, [(0, "a"), (1, "b"), (0, "a"), (2, "c")].map(|(id, name)| (id, name.to_owned())));
        let again = pieces.target_on_server("0", || panic!("a target's server is looked up once"));
        assert_eq!(registry.get(again).unwrap().server.unwrap().id, ServerId(0));
        assert_eq!((own.server, registry.get(pieces.target_named("x")).unwrap().server), (None, None));
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
