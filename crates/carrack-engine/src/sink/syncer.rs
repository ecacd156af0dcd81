//! Syncing of contents and names beneath a destination: by file, by directory, or by file system.
//!
//! `carrack-commit` uses it; it holds descriptors and no state that changes.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use carrack_model::{FailureKind, RelPath, escape, text_without_errno};
use carrack_storage::{
    FsyncMethod, RootDirectory, SinkError, device_of, read_back, sync_data, sync_directories, sync_file,
    sync_file_system,
};

use super::commit_group::{UnsyncedSmallEntries, WrittenFileRanges};
use super::sink_file::SinkFile;
use crate::error::SessionError;

/// The file systems of a destination, and the way they are synced.
pub(super) struct FileSystemSyncer {
    root: Arc<RootDirectory>,
    /// The root's directory, open for reading from the start, so that syncing it reports every write-back
    /// error since then. `None` if it can't be read (a drop box): then each file is synced separately.
    held: Option<OwnedFd>,
    durable: FsyncMethod,
    /// True if everything lies on the file system of the root.
    is_one_file_system: bool,
}

/// The part of small files that was made durable.
pub(super) enum FsyncCoverage {
    /// All of them, and the names too.
    FileSystems,
    /// Their contents, and not their directories.
    Contents,
}

impl FileSystemSyncer {
    pub(super) fn new(
        root: Arc<RootDirectory>,
        is_one_file_system: bool,
    ) -> Result<FileSystemSyncer, SessionError> {
        let held = root.open_directory(&RelPath::root()).ok();
        let durable = match FsyncMethod::of(root.as_fd()).map_err(broken)? {
            FsyncMethod::Together if held.is_none() => FsyncMethod::OneByOne,
            durable => durable,
        };
        assert!(
            durable != FsyncMethod::Together || held.is_some(),
            "a file system is synced by its directory"
        );
        Ok(FileSystemSyncer { root, held, durable, is_one_file_system })
    }

    /// The unit in which contents become durable at the destination.
    pub(super) fn fsync_method(&self) -> FsyncMethod {
        self.durable
    }

    /// The destination's directory, if it can be read.
    pub(super) fn destination_directory(&self) -> Option<&OwnedFd> {
        self.held.as_ref()
    }

    /// Syncs the contents of a large file that has no final name yet.
    pub(super) fn sync_large(&self, written: &WrittenFileRanges) -> Result<(), SessionError> {
        // A file with its final name was synced before.
        let open = written.file.as_ref().filter(|_| written.end.is_none());
        let Some((file, growing)) = open.and_then(|file| Some((file, file.uncommitted_file()?))) else {
            return Ok(());
        };
        sync_data(growing.descriptor()).map_err(|error| self.broken_at(file, error))
    }

    /// Syncs small files; if they are few, one by one while `goes_on`.
    pub(super) fn sync_small(
        &self,
        places: &UnsyncedSmallEntries,
        goes_on: impl Fn() -> bool,
    ) -> Result<FsyncCoverage, SessionError> {
        let synced = match (self.durable, &places.few) {
            (FsyncMethod::Together, None) => self.sync_file_systems(places),
            (FsyncMethod::Together, Some(few)) => {
                let wanted = few.iter().take_while(|_| goes_on());
                let synced: Result<Vec<()>, SinkError> =
                    wanted.map(|(directory, name)| sync_file(&self.root, directory, name)).collect();
                // A file that this user may not open is synced with the whole file system.
                synced.map(|_| FsyncCoverage::Contents).or_else(|_| self.sync_file_systems(places))
            }
            // Each was synced before it got its name.
            _ => Ok(FsyncCoverage::Contents),
        };
        synced.map_err(broken)
    }

    /// Syncs the names in these directories.
    pub(super) fn sync_names<'a>(
        &self,
        directories: impl Iterator<Item = &'a RelPath>,
    ) -> Result<(), SessionError> {
        sync_directories(&self.root, directories).map_err(broken)
    }

    /// Syncs the file system of the root.
    pub(super) fn sync_root(&self) -> Result<(), SessionError> {
        self.sync_own().map_err(broken)
    }

    fn sync_own(&self) -> Result<(), SinkError> {
        self.held.as_ref().map_or(Ok(()), |held| sync_file_system(held.as_fd()))
    }

    fn sync_file_systems(&self, places: &UnsyncedSmallEntries) -> Result<FsyncCoverage, SinkError> {
        self.sync_own()?;
        if self.is_one_file_system {
            return Ok(FsyncCoverage::FileSystems);
        }
        let mut synced = vec![self.root.identity().dev];
        for path in &places.directories {
            let held = self.root.open_directory(path).map_err(SinkError::of_directory)?;
            let dev = device_of(held.as_fd())?;
            if !synced.contains(&dev) {
                sync_file_system(held.as_fd())?;
                synced.push(dev);
            }
        }
        Ok(FsyncCoverage::FileSystems)
    }

    /// Reads a large file at `offset` from the storage. Returns the bytes read.
    pub(super) fn read_back(
        &self,
        file: &SinkFile,
        buffer: &mut [u8],
        offset: u64,
    ) -> Result<usize, SessionError> {
        let Some(growing) = file.uncommitted_file() else { return Err(SessionError::Internal) };
        let len = buffer.len();
        let count =
            read_back(growing.descriptor(), buffer, offset).map_err(|error| self.broken_at(file, error))?;
        assert!(count <= len, "a read returns no more than its buffer holds");
        Ok(count)
    }

    fn broken_at(&self, file: &SinkFile, error: SinkError) -> SessionError {
        let (path, detail) =
            (escape(&self.root.full_path(file.directory(), &file.entry.name)), text_without_errno(&error));
        match error.kind() {
            FailureKind::NoSpace => SessionError::NoSpace { path, detail },
            _ => SessionError::NotDurable { path, detail },
        }
    }
}

fn broken(error: SinkError) -> SessionError {
    let (path, detail) = ("the destination".into(), text_without_errno(&error));
    match error.kind() {
        FailureKind::NoSpace => SessionError::NoSpace { path, detail },
        _ => SessionError::NotDurable { path, detail },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_files_and_their_names_are_synced() {
        let dir = tempfile::tempdir().unwrap();
        let syncer = FileSystemSyncer::new(Arc::new(RootDirectory::open(dir.path()).unwrap()), true).unwrap();
        assert!(syncer.destination_directory().is_some());
        std::fs::write(dir.path().join("f"), "contents").unwrap();
        let mut places = UnsyncedSmallEntries::default();
        places.add_directory(&RelPath::root());
        places.add_file(&RelPath::root(), b"f");
        syncer.sync_small(&places, || true).unwrap();
        syncer.sync_small(&places, || false).unwrap();
        syncer.sync_names(places.directories.iter()).unwrap();
        syncer.sync_root().unwrap();
    }
}
