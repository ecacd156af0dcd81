//! The trees of a source: its roots, and the storage beneath them.
//!
//! The scan's threads and I/O threads open entries through it. It has no lock: roots and file systems have
//! their own.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;

use carrack_layout::{FileLayout, FileSystems, MountedFileSystem, StripeGeometry, TargetAttachmentKind};
use carrack_model::{CopiedDirectoryPaths, DirectorySection, Entry, EntryFailure, EntryKind, FailureKind};
use carrack_plan::Layout;
use carrack_storage::{DirectoryRelativeName, PathBase, ScanRoot, ScanRootScope, SourceError, digest_of};

use crate::settings::depth_of;
use crate::storage_requests::EndStorageRequests;

/// The roots with their file systems.
pub(super) struct SourceTree {
    pub(super) roots: Vec<ScanRoot>,
    pub(super) file_systems: FileSystems,
    /// The requests to this storage that have not returned.
    pub(super) requests: EndStorageRequests,
}

impl SourceTree {
    pub(super) fn open_directory(&self, directory: &CopiedDirectoryPaths) -> Result<OwnedFd, SourceError> {
        let root = &self.roots[directory.root_index as usize].root;
        root.enter_directory(&directory.source).map_err(SourceError::of_directory)
    }

    /// The path as the user knows it.
    pub(super) fn path(&self, directory: &CopiedDirectoryPaths, entry: &Entry) -> Box<[u8]> {
        self.roots[directory.root_index as usize].root.full_path(&directory.source, entry.name_at_source())
    }

    /// The path of a directory as the user knows it.
    pub(super) fn directory_path(&self, directory: &CopiedDirectoryPaths) -> Box<[u8]> {
        self.roots[directory.root_index as usize].root.full_path(&directory.source, b"")
    }

    /// Returns the handle by which an entry of an open directory is opened or examined. Links are followed if
    /// the user asked for that, or named the link on the command line.
    pub(super) fn locate<'a>(
        &self,
        directory: &CopiedDirectoryPaths,
        held: BorrowedFd<'a>,
        entry: &'a Entry,
    ) -> Result<DirectoryRelativeName<'a>, SourceError> {
        let root = &self.roots[directory.root_index as usize];
        let mut located = root
            .root
            .locate(held, &directory.source, entry.name_at_source())
            .map_err(|errno| SourceError::of_directory(errno.into()))?;
        located.follow |= matches!(root.what, ScanRootScope::Name { follow: true, .. });
        Ok(located)
    }

    /// Returns true if a file must be the scanned inode. A link on its path may be exchanged meanwhile, and a
    /// chunk comes from another session's scan.
    pub(super) fn requires_scanned_inode(&self, directory: &CopiedDirectoryPaths) -> bool {
        self.roots[directory.root_index as usize].root.is_confined()
    }

    /// Returns the file system of a scanned directory.
    pub(super) fn file_system(
        &self,
        device: u64,
        directory: &CopiedDirectoryPaths,
    ) -> Option<Arc<MountedFileSystem>> {
        if let Some(known) = self.file_systems.known_file_system(device) {
            return Some(known);
        }
        // A directory that can't be opened (any more) fails where its files are read.
        let held = self.open_directory(directory).ok()?;
        self.file_systems.file_system_of(held.as_fd()).ok()
    }

    /// Returns the striping that a directory gives to new files, if it has one of its own.
    pub(super) fn default_striping(&self, directory: &CopiedDirectoryPaths) -> Option<StripeGeometry> {
        let held = self.open_directory(directory).ok()?;
        let file_system = self.file_systems.file_system_of(held.as_fd()).ok()?;
        file_system.own_default_geometry_of(held.as_fd())
    }

    /// Returns the device of a directory, or `None` if it can't be opened (any more).
    pub(super) fn device_of(&self, directory: &CopiedDirectoryPaths) -> Option<u64> {
        let held = self.open_directory(directory).ok()?;
        carrack_storage::device_of(held.as_fd()).ok()
    }

    /// Returns the failure of a small file whose data is not in this file system. A file in an archive may be
    /// read with `recalls`.
    pub(super) fn absent_data(
        &self,
        file_system: &MountedFileSystem,
        directory: &CopiedDirectoryPaths,
        held: &OwnedFd,
        entry: &Entry,
        recalls: bool,
    ) -> Option<EntryFailure> {
        let layout = self.layout_of(file_system, directory, held, entry)?;
        self.absent_data_of(&layout, directory, entry, recalls)
    }

    /// Returns the layout of an entry of an open directory; `None` for one that can't be examined, which
    /// fails where it is read.
    pub(super) fn layout_of(
        &self,
        file_system: &MountedFileSystem,
        directory: &CopiedDirectoryPaths,
        held: &OwnedFd,
        entry: &Entry,
    ) -> Option<FileLayout> {
        let located = self.locate(directory, held.as_fd(), entry).ok()?;
        Some(file_system.layout_at(located.as_fd(), located.name(), located.follow, entry.size()))
    }

    /// As [`absent_data`](Self::absent_data), for a file with a known layout.
    pub(super) fn absent_data_of(
        &self,
        layout: &FileLayout,
        directory: &CopiedDirectoryPaths,
        entry: &Entry,
        recalls: bool,
    ) -> Option<EntryFailure> {
        let (kind, detail) = if layout.is_foreign {
            let detail = "its data is in a foreign storage system, of which Lustre has a reference only";
            (FailureKind::Unreadable, detail)
        } else if layout.is_released && !recalls {
            let detail = "it was released to an archive; with --recall it is read, which brings it back";
            (FailureKind::Released, detail)
        } else {
            return None;
        };
        Some(EntryFailure { path: self.path(directory, entry), kind, detail: detail.into() })
    }

    /// Returns the digests of a section's files. Unreadable files have none, and fail when they are sent.
    pub(super) fn digests(&self, section: &DirectorySection) -> Vec<Option<[u8; 32]>> {
        let Ok(held) = self.open_directory(&section.directory) else { return Vec::new() };
        let digests = section.entries.iter().map(|entry| match entry.kind {
            EntryKind::Regular { .. } => {
                let located = self.locate(&section.directory, held.as_fd(), entry).ok()?;
                digest_of(located.as_fd(), located.name(), located.follow).ok()
            }
            EntryKind::Symlink { .. } | EntryKind::Special(_) => None,
        });
        digests.collect()
    }

    /// Returns the directories of the sink that the scanned trees become.
    pub(super) fn directories_at_sink(&self) -> BTreeSet<Vec<u8>> {
        let directories = self.roots.iter().filter_map(|root| match &root.what {
            ScanRootScope::Tree { sink } => Some(sink.as_bytes().to_vec()),
            ScanRootScope::Name { .. } => None,
        });
        directories.collect()
    }

    /// Returns the size of the objects of a file on its target: a power of two; `None` if the target is not
    /// known.
    pub(super) fn target_object_bytes(&self, layout: &dyn Layout) -> Option<u32> {
        let first = layout.targets().first().and_then(|id| self.file_systems.target(*id));
        first.map(|target| target.object_bytes)
    }
}

/// The storage beneath the roots.
pub(crate) struct SourceStorageFacts {
    /// The most I/O threads that any of them can use.
    pub(crate) depth: u32,
    /// True if all roots are in memory, where reads have no latency to hide.
    pub(crate) is_memory: bool,
    /// The largest requests that suit any of them; 0 for those of other storage.
    pub(crate) request_bytes: u32,
}

impl SourceStorageFacts {
    /// Returns the storage of the roots of the scan.
    pub(crate) fn of(file_systems: &FileSystems, roots: &[ScanRoot]) -> io::Result<SourceStorageFacts> {
        let mut storage = SourceStorageFacts { depth: 1, is_memory: true, request_bytes: 0 };
        for root in roots {
            storage.add(file_systems, root.root.as_ref().as_fd())?;
        }
        Ok(storage)
    }

    /// Looks at the storage of the user's paths before they are resolved. Paths that can't be opened are left
    /// out.
    pub(crate) fn of_paths(
        base: &PathBase,
        file_systems: &FileSystems,
        paths: &[PathBuf],
    ) -> SourceStorageFacts {
        let mut storage = SourceStorageFacts { depth: 1, is_memory: true, request_bytes: 0 };
        for path in paths {
            if let Ok(file) = base.open_to_ask(path) {
                let _ = storage.add(file_systems, file.as_fd());
            }
        }
        storage
    }

    fn add(&mut self, file_systems: &FileSystems, fd: BorrowedFd<'_>) -> io::Result<()> {
        let file_system = file_systems.file_system_of(fd)?;
        let mounts = file_systems.mounts_beneath(fd);
        self.depth = self.depth.max(depth_of(&file_system, mounts));
        self.request_bytes = self.request_bytes.max(file_system.request_bytes().unwrap_or(0));
        self.is_memory &= file_system.own_target().medium == TargetAttachmentKind::Memory && mounts == 0;
        Ok(())
    }
}
