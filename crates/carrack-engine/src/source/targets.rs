//! The storage targets that the scan has come across.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;

use carrack_model::{Directory, Entry, EntryFailure, FailureKind, TargetId};
use carrack_plan::Layout;
use carrack_storage::{Base, FileSystem, FileSystems, Located, Medium, RootKind, ScanRoot, SourceError};

use super::Source;
use super::lane::Lane;
use crate::settings::depth_of;

impl Source<'_> {
    pub(super) fn open_directory(&self, directory: &Directory) -> Result<OwnedFd, SourceError> {
        let root = &self.roots[directory.root_index as usize].root;
        root.enter_directory(&directory.source).map_err(SourceError::of_directory)
    }

    /// The path as the user knows it.
    pub(super) fn path(&self, directory: &Directory, entry: &Entry) -> Box<[u8]> {
        self.roots[directory.root_index as usize].root.full_path(&directory.source, entry.name_at_source())
    }

    /// By what an entry of a directory, which is open, is opened or looked at. Links are followed if all are, or if it was named on the
    /// command line.
    pub(super) fn locate<'a>(
        &self,
        directory: &Directory,
        held: BorrowedFd<'a>,
        entry: &'a Entry,
    ) -> Result<Located<'a>, SourceError> {
        let root = &self.roots[directory.root_index as usize];
        let mut located = root
            .root
            .locate(held, &directory.source, entry.name_at_source())
            .map_err(|errno| SourceError::of_directory(errno.into()))?;
        located.follow |= matches!(root.what, RootKind::Name { follow: true, .. });
        Ok(located)
    }

    /// Whether a file has to be the very one that the scan has found, and none that has taken its place: where a link led to it that may be
    /// exchanged meanwhile, and what was found out of it is of another session.
    pub(super) fn has_to_be_found(&self, directory: &Directory) -> bool {
        self.roots[directory.root_index as usize].root.is_confined()
    }

    /// The file system of a directory that the scan has found.
    pub(super) fn file_system(&self, device: u64, directory: &Directory) -> Option<Arc<FileSystem>> {
        if let Some(known) = self.file_systems.known(device) {
            return Some(known);
        }
        // A directory that can't be opened (any more) fails where its files are read.
        let held = self.open_directory(directory).ok()?;
        self.file_systems.of(held.as_fd()).ok()
    }

    /// The device that a directory lies on; nothing if it can't be opened (any more).
    pub(super) fn device_of(&self, directory: &Directory) -> Option<u64> {
        let held = self.open_directory(directory).ok()?;
        carrack_storage::device_of(held.as_fd()).ok()
    }

    /// Whether a small file is in an archive only.
    pub(super) fn is_released(
        &self,
        file_system: &FileSystem,
        directory: &Directory,
        held: &OwnedFd,
        entry: &Entry,
    ) -> bool {
        // What can't be found fails where it is read.
        let Ok(located) = self.locate(directory, held.as_fd(), entry) else { return false };
        file_system.layout_at(located.as_fd(), located.name(), located.follow, entry.size()).is_released
    }

    /// What is said of a file that stays in its archive.
    pub(super) fn released(&self, directory: &Directory, entry: &Entry) -> EntryFailure {
        EntryFailure {
            path: self.path(directory, entry),
            kind: FailureKind::Released,
            detail: "it was released to an archive; with --recall it is read, which brings it back".into(),
        }
    }

    /// Bytes of the objects that are cut of a file: what its target prefers, but never more than a slot; both are powers
    /// of two.
    pub(super) fn object_bytes(&self, layout: &dyn Layout) -> u64 {
        let first = layout.targets().first().and_then(|id| self.file_systems.target(*id));
        let slot_bytes = self.spec.slot_bytes;
        u64::from(first.map_or(slot_bytes, |target| target.object_bytes.min(slot_bytes)))
    }
}

impl Lane<'_> {
    /// Makes targets known to the queues.
    pub(super) fn learn(&self, targets: &[TargetId]) {
        for &id in targets {
            if self.queue.with(|queue| queue.knows(id)) {
                continue;
            }
            if let Some(target) = self.source.file_systems.target(id) {
                self.queue.release(|queue| queue.add_target(&target));
            }
        }
    }
}

/// What the storage of the roots is like.
pub(crate) struct RootStorage {
    /// The most I/O threads that any of them can use.
    pub(crate) depth: u32,
    /// Whether all are memory: reading them has no latency to hide.
    pub(crate) is_memory: bool,
}

impl RootStorage {
    /// Of the roots that the scan begins at.
    pub(crate) fn of(file_systems: &FileSystems, roots: &[ScanRoot]) -> io::Result<RootStorage> {
        let mut storage = RootStorage { depth: 1, is_memory: true };
        for root in roots {
            storage.add(file_systems, root.root.as_ref().as_fd())?;
        }
        Ok(storage)
    }

    /// Of what the user named, before any of it is resolved. What can't be looked at is left out.
    pub(crate) fn of_paths(base: &Base, file_systems: &FileSystems, paths: &[PathBuf]) -> RootStorage {
        let mut storage = RootStorage { depth: 1, is_memory: true };
        for path in paths {
            if let Ok(file) = base.open_to_ask(path) {
                let _ = storage.add(file_systems, file.as_fd());
            }
        }
        storage
    }

    fn add(&mut self, file_systems: &FileSystems, fd: BorrowedFd<'_>) -> io::Result<()> {
        let file_system = file_systems.of(fd)?;
        let mounts = file_systems.mounts_beneath(fd);
        self.depth = self.depth.max(depth_of(&file_system, mounts));
        self.is_memory &= file_system.own_target().medium == Medium::Memory && mounts == 0;
        Ok(())
    }
}
