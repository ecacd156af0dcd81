//! Other sessions of the same transfer, parallel and earlier: each has its own journal, and all journals are
//! in one directory of the destination (decision 18).
//!
//! No message tells this session about the others. When an offer arrives, it reads the others' records up to
//! then.

use std::collections::{HashMap, hash_map};
use std::ffi::CString;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use carrack_journal::{EntryKey, JournalError, JournalFollower, boot_id, id_of_file_name, inspect};
use carrack_model::{Entry, RangeSet, RelPath, TransferId};
use carrack_storage::{RootDirectory, preserve_times};
use rustix::fs::{AtFlags, Dir, statat, unlinkat};
use rustix::io::Errno;

use super::past_sessions::is_same_version;
use super::takeover_guard::TakeoverGuard;
use crate::error::SessionError;
use crate::leftovers::remove_temporary;

/// The journals of the other sessions. All threads of the sink read them.
pub(super) struct SiblingJournals {
    directory: OwnedFd,
    /// This session's journal.
    own: TransferId,
    /// For messages.
    journal_path: String,
    journals: Mutex<HashMap<TransferId, JournalFollower>>,
    /// Ends this session if they may have taken over.
    pub(super) takeover: TakeoverGuard,
}

impl SiblingJournals {
    pub(super) fn new(directory: OwnedFd, own: TransferId, journal_path: String) -> SiblingJournals {
        let (journals, takeover) = Default::default();
        SiblingJournals { directory, own, journal_path, journals, takeover }
    }

    fn journals(&self) -> MutexGuard<'_, HashMap<TransferId, JournalFollower>> {
        self.journals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the records of all sessions up to now.
    pub(super) fn read_records(&self) -> Result<SiblingRecords<'_>, SessionError> {
        let names = self.names().map_err(|errno| {
            SessionError::local("looking for the journals of other sessions")(errno.into())
        })?;
        let mut journals = self.journals();
        // The records of a journal that has been removed meanwhile do not matter any more.
        let mut lens = HashMap::with_capacity(names.len());
        for name in names {
            let Some(id) = id_of_file_name(name.to_bytes()) else { continue };
            if let Ok(stat) = statat(&self.directory, &*name, AtFlags::SYMLINK_NOFOLLOW) {
                lens.insert(id, u64::try_from(stat.st_size).unwrap_or(0));
            }
        }
        journals.retain(|id, _| lens.contains_key(id));
        for (id, len) in lens {
            let journal = match journals.entry(id) {
                hash_map::Entry::Occupied(known) => known.into_mut(),
                hash_map::Entry::Vacant(unknown) => {
                    let boot = boot_id().map_err(SessionError::local("asking which boot this is"))?;
                    unknown.insert(JournalFollower::new(id, boot))
                }
            };
            if journal.bytes_read() == len {
                continue;
            }
            match journal.catch_up(self.directory.as_fd()) {
                Ok(()) => {}
                Err(JournalError::Missing) => drop(journals.remove(&id)),
                Err(error) => return Err(SessionError::journal(&self.journal_path)(error)),
            }
        }
        Ok(SiblingRecords(self))
    }

    /// Removes all journals, as the transfer is complete, and the begun files that are of no use any more: of
    /// versions that the source had before.
    pub(super) fn remove_all_journals(&self, root: &RootDirectory) -> Result<(), SessionError> {
        self.remove_begun_files(root);
        self.remove_with_directory(root, || {
            for name in self.names().unwrap_or_default() {
                let _ = unlinkat(&self.directory, &*name, AtFlags::empty());
            }
            Ok(())
        })
    }

    /// Removes the temporary files that the journals record, except those of sessions that are still there,
    /// of another transfer between the same places. A file that can't be removed stays.
    fn remove_begun_files(&self, root: &RootDirectory) {
        let Ok(boot) = boot_id() else { return };
        let names = self.names().unwrap_or_default();
        for id in names.iter().filter_map(|name| id_of_file_name(name.to_bytes())) {
            let Ok(contents) = inspect(self.directory.as_fd(), id, boot) else { continue };
            if id != self.own && contents.is_in_use {
                continue;
            }
            for partial in &contents.partials {
                let _ = remove_temporary(root, partial);
            }
        }
    }

    /// Ends a session without records for later ones: `remove` removes its journal.
    pub(super) fn remove_own_journal(
        &self,
        root: &RootDirectory,
        remove: impl FnOnce() -> Result<(), SessionError>,
    ) -> Result<(), SessionError> {
        self.remove_with_directory(root, || match remove() {
            // The session that closes the transfer removes all journals.
            Err(_) if self.names().is_ok_and(|names| names.is_empty()) => Ok(()),
            removed => removed,
        })
    }

    /// Removes journals, and the directory after the last of them.
    fn remove_with_directory(
        &self,
        root: &RootDirectory,
        take_away: impl FnOnce() -> Result<(), SessionError>,
    ) -> Result<(), SessionError> {
        let held = root
            .open_directory(&RelPath::root())
            .map_err(SessionError::local("opening the destination's directory"))?;
        // Their removal would be the last change of that directory.
        preserve_times(held.as_fd(), || {
            take_away()?;
            // Journals of other sessions keep it.
            let path = self.journal_path.rsplit('/').next().unwrap_or_default();
            let _ = unlinkat(&held, path, AtFlags::REMOVEDIR);
            Ok(())
        })
    }

    /// The file names of the journals.
    fn names(&self) -> Result<Vec<CString>, Errno> {
        let entries = Dir::read_from(&self.directory)?.collect::<Result<Vec<_>, _>>()?;
        let names = entries.iter().map(|entry| entry.file_name());
        Ok(names.filter(|name| id_of_file_name(name.to_bytes()).is_some()).map(Into::into).collect())
    }
}

/// The records of the journals, up to the call of [`SiblingJournals::read_records`] or later.
#[derive(Clone, Copy)]
pub(super) struct SiblingRecords<'a>(&'a SiblingJournals);

impl SiblingRecords<'_> {
    /// Returns true if a journal has the entry in its present version.
    pub(super) fn is_done(&self, directory: &RelPath, key: &EntryKey<'_>) -> Result<bool, SessionError> {
        for journal in self.0.journals().values() {
            let done = journal.is_done(directory, key);
            if done.map_err(SessionError::journal(&self.0.journal_path))? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns the ranges of a large file's present version, from all journals.
    pub(super) fn held_ranges(&self, directory: &RelPath, entry: &Entry, temporary: &[u8]) -> RangeSet {
        let mut held = RangeSet::new();
        let journals = self.0.journals();
        for partial in journals.values().flat_map(|journal| journal.partials_named(temporary)) {
            if partial.directory == *directory
                && partial.name == entry.name
                && is_same_version(partial, entry)
            {
                for range in partial.held.iter() {
                    held.cover(range);
                }
            }
        }
        held
    }
}
