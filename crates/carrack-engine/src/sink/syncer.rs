//! Syncing of contents and names beneath a destination: by file, by directory, or by file system.
//!
//! `carrack-commit` uses it; it holds descriptors.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use carrack_journal::JournalError;
use carrack_model::{FailureKind, RelPath, escape, text_without_errno};
use carrack_storage::{
    FsyncMethod, RootDirectory, SinkError, device_of, read_back, sync_data, sync_directories, sync_file,
    sync_file_system,
};

use super::commit_group::{UnsyncedSmallEntries, WrittenFileRanges};
use super::sink_file::SinkFile;
use crate::error::SessionError;
use crate::storage_requests::{EndStorageRequests, OutstandingRequest};
use crate::storage_retries::{may_pass, sink_error_may_pass};

/// The file systems of a destination, and the way they are synced.
pub(super) struct FileSystemSyncer {
    root: Arc<RootDirectory>,
    /// The root's directory, open for reading from the start, so that syncing it reports every write-back
    /// error since then. `None` if it can't be read (a drop box): then each file is synced separately.
    held: Option<OwnedFd>,
    durable: FsyncMethod,
    /// True if everything lies on the file system of the root.
    is_one_file_system: bool,
    /// Of other file systems a directory in which something was placed that is synced at the end, with the
    /// device number.
    others: Mutex<Vec<(u64, OwnedFd)>>,
    /// True if the destination is storage of another host.
    is_remote: bool,
    requests: EndStorageRequests,
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
        is_remote: bool,
        requests: EndStorageRequests,
    ) -> Result<FileSystemSyncer, SessionError> {
        let held = root.open_directory(&RelPath::root()).ok();
        let durable = match FsyncMethod::of(root.as_fd()).map_err(unknown_method)? {
            FsyncMethod::Together if held.is_none() => FsyncMethod::OneByOne,
            durable => durable,
        };
        assert!(
            durable != FsyncMethod::Together || held.is_some(),
            "a file system is synced by its directory"
        );
        let others = Mutex::default();
        Ok(FileSystemSyncer { root, held, durable, is_one_file_system, others, is_remote, requests })
    }

    /// The unit in which contents become durable at the destination.
    pub(super) fn fsync_method(&self) -> FsyncMethod {
        self.durable
    }

    /// Returns true if everything lies on the file system of the root.
    pub(super) fn is_one_file_system(&self) -> bool {
        self.is_one_file_system
    }

    /// Notes a request to the destination's storage that begins now.
    pub(super) fn begin_request(&self) -> OutstandingRequest<'_> {
        self.requests.begin(None)
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
        let mut writes = file.integrity.lock_writes();
        if writes.are_lost() {
            return Ok(());
        }
        let _outstanding = self.requests.begin(file.target_at(0));
        match sync_data(growing.descriptor()) {
            Ok(()) => writes.add_durable(written.ranges()),
            // The file's data is requested again before it gets its name; other files continue. A part may
            // have been reported as complete by now.
            Err(error) if self.may_pass(&error) && !file.portion.is_part() => writes.mark_lost(),
            Err(error) => return Err(self.broken_at(file, error)),
        }
        Ok(())
    }

    /// Syncs small files; if they are few, one by one while `goes_on`.
    pub(super) fn sync_small(
        &self,
        places: &UnsyncedSmallEntries,
        goes_on: impl Fn() -> bool,
    ) -> Result<FsyncCoverage, SessionError> {
        let _outstanding = self.begin_request();
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
        synced.map_err(|error| self.broken(error))
    }

    /// Syncs the names in these directories.
    pub(super) fn sync_names<'a>(
        &self,
        directories: impl Iterator<Item = &'a RelPath>,
    ) -> Result<(), SessionError> {
        let _outstanding = self.begin_request();
        sync_directories(&self.root, directories).map_err(|error| self.broken(error))
    }

    /// Notes directories in which something was placed: [`sync_all`](Self::sync_all) syncs their file
    /// systems.
    pub(super) fn note_directories<'a>(
        &self,
        directories: impl Iterator<Item = &'a RelPath>,
    ) -> Result<(), SessionError> {
        if self.is_one_file_system || self.durable != FsyncMethod::Together {
            return Ok(());
        }
        let mut others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        for path in directories {
            // One that is gone, or that can't be read, is no way to its file system.
            let Ok(held) = self.root.open_directory(path) else { continue };
            let dev = device_of(held.as_fd()).map_err(|error| self.broken(error))?;
            if dev != self.root.identity().dev && others.iter().all(|(known, _)| *known != dev) {
                others.push((dev, held));
            }
        }
        Ok(())
    }

    /// Syncs the file system of the root, and those of the noted directories.
    pub(super) fn sync_all(&self) -> Result<(), SessionError> {
        let _outstanding = self.begin_request();
        let others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        let synced = others.iter().try_for_each(|(_, held)| sync_file_system(held.as_fd()));
        synced.and_then(|()| self.sync_own()).map_err(|error| self.broken(error))
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

    /// Returns an error if the temporary file of a part was removed: the part would count as held in a file
    /// that another session makes in its place.
    pub(super) fn check_still_there(&self, written: &WrittenFileRanges) -> Result<(), SessionError> {
        let open = written.file.as_ref().filter(|file| written.end.is_none() && file.portion.is_part());
        match open.and_then(|file| Some((file, file.uncommitted_file()?))) {
            Some((file, growing)) if growing.is_removed() => {
                let path = escape(&self.root.full_path(file.directory(), &file.entry.name));
                let detail = "another program has removed its temporary file".to_owned();
                Err(SessionError::not_durable(path, detail, true))
            }
            _ => Ok(()),
        }
    }

    fn broken_at(&self, file: &SinkFile, error: SinkError) -> SessionError {
        let (path, detail) =
            (escape(&self.root.full_path(file.directory(), &file.entry.name)), text_without_errno(&error));
        match error.kind() {
            FailureKind::NoSpace => SessionError::NoSpace { path, detail },
            _ => SessionError::not_durable(path, detail, self.may_pass(&error)),
        }
    }

    /// Returns the error of a sync of more than one file.
    fn broken(&self, error: SinkError) -> SessionError {
        let (path, detail) = ("the destination".into(), text_without_errno(&error));
        match error.kind() {
            FailureKind::NoSpace => SessionError::NoSpace { path, detail },
            _ => SessionError::not_durable(path, detail, self.may_pass(&error)),
        }
    }

    /// Returns true for an error that another session may not meet. A failed sync is never repeated: the
    /// kernel may have dropped the data, and a second sync would succeed (fsync(2)).
    fn may_pass(&self, error: &SinkError) -> bool {
        self.is_remote && sink_error_may_pass(error)
    }

    /// Returns the session's error for one of the journal, which lies at the destination.
    pub(super) fn journal_error(&self, error: SessionError) -> SessionError {
        match error {
            SessionError::Journal { path, error: JournalError::Failed { source, doing } }
                if self.is_remote && may_pass(&source) =>
            {
                let detail = text_without_errno(&JournalError::Failed { source, doing });
                SessionError::not_durable(path, detail, true)
            }
            error => error,
        }
    }
}

/// Returns the error of a destination whose file system can't be examined.
fn unknown_method(error: SinkError) -> SessionError {
    let detail = text_without_errno(&error);
    SessionError::NotDurable { path: "the destination".into(), detail }
}

#[cfg(test)]
mod tests {
    use carrack_model::TargetId;

    use super::*;
    use crate::role::SessionRole;
    use crate::storage_requests::StorageRequests;

    #[test]
    fn small_files_and_their_names_are_synced() {
        let dir = tempfile::tempdir().unwrap();
        let root = Arc::new(RootDirectory::open(dir.path()).unwrap());
        let requests =
            EndStorageRequests::new(Arc::new(StorageRequests::new()), SessionRole::Sink, (TargetId(1), None));
        let syncer = FileSystemSyncer::new(root, true, false, requests).unwrap();
        assert!(syncer.destination_directory().is_some());
        std::fs::write(dir.path().join("f"), "contents").unwrap();
        let mut places = UnsyncedSmallEntries::default();
        places.add_directory(&RelPath::root());
        places.add_file(&RelPath::root(), b"f");
        syncer.sync_small(&places, || true).unwrap();
        syncer.sync_small(&places, || false).unwrap();
        syncer.sync_names(places.directories.iter()).unwrap();
        syncer.sync_all().unwrap();
    }
}
