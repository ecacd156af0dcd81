//! Other sessions of the same transfer, at the same time and before: each has a journal of its own, all of them in one
//! directory in the destination (decision 18).
//!
//! Nobody tells this session what the others do. When something is offered to it, it reads what they have recorded by then.

use std::collections::{HashMap, hash_map};
use std::ffi::CString;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use carrack_journal::{EntryKey, Follower, JournalError, Partial, boot_id, id_of_file_name};
use carrack_model::{Entry, RangeSet, RelPath, TransferId};
use carrack_storage::{Root, keep_times};
use rustix::fs::{AtFlags, Dir, statat, unlinkat};
use rustix::io::Errno;

use super::past::is_of;
use crate::error::SessionError;

/// Looked at by all threads of the sink.
pub(super) struct Siblings {
    directory: OwnedFd,
    /// For people.
    journal_path: String,
    journals: Mutex<HashMap<TransferId, Follower>>,
}

impl Siblings {
    pub(super) fn new(directory: OwnedFd, journal_path: String) -> Siblings {
        Siblings { directory, journal_path, journals: Mutex::default() }
    }

    fn journals(&self) -> MutexGuard<'_, HashMap<TransferId, Follower>> {
        self.journals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The records of all sessions by now.
    pub(super) fn recorded(&self) -> Result<Recorded<'_>, SessionError> {
        let names = self.names().map_err(|errno| {
            SessionError::local("looking for the journals of other sessions")(errno.into())
        })?;
        let mut journals = self.journals();
        // One that is removed by now said nothing that still matters.
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
                    unknown.insert(Follower::new(id, boot))
                }
            };
            if journal.read_bytes() == len {
                continue;
            }
            match journal.catch_up(self.directory.as_fd()) {
                Ok(()) => {}
                Err(JournalError::Missing) => drop(journals.remove(&id)),
                Err(error) => return Err(SessionError::journal(&self.journal_path)(error)),
            }
        }
        Ok(Recorded(self))
    }

    /// The transfer is complete: nobody needs the journals any more.
    pub(super) fn retire(&self, root: &Root) -> Result<(), SessionError> {
        self.end(root, || {
            for name in self.names().unwrap_or_default() {
                let _ = unlinkat(&self.directory, &*name, AtFlags::empty());
            }
            Ok(())
        })
    }

    /// This session has nothing to say to later ones: `remove` takes its journal away.
    pub(super) fn leave(
        &self,
        root: &Root,
        remove: impl FnOnce() -> Result<(), SessionError>,
    ) -> Result<(), SessionError> {
        self.end(root, || match remove() {
            // Whoever closes the transfer takes all of them away.
            Err(_) if self.names().is_ok_and(|names| names.is_empty()) => Ok(()),
            removed => removed,
        })
    }

    /// Takes something away, and the directory if it is the last.
    fn end(
        &self,
        root: &Root,
        take_away: impl FnOnce() -> Result<(), SessionError>,
    ) -> Result<(), SessionError> {
        let held = root
            .open_directory(&RelPath::root())
            .map_err(SessionError::local("opening the destination's directory"))?;
        // Their end would be the last change of that directory.
        keep_times(held.as_fd(), || {
            take_away()?;
            // What others have put there keeps it.
            let path = self.journal_path.rsplit('/').next().unwrap_or_default();
            let _ = unlinkat(&held, path, AtFlags::REMOVEDIR);
            Ok(())
        })
    }

    /// Of the journals that are there.
    fn names(&self) -> Result<Vec<CString>, Errno> {
        let entries = Dir::read_from(&self.directory)?.collect::<Result<Vec<_>, _>>()?;
        let names = entries.iter().map(|entry| entry.file_name());
        Ok(names.filter(|name| id_of_file_name(name.to_bytes()).is_some()).map(Into::into).collect())
    }
}

/// The records in the journals, at the moment of the look or later.
pub(super) struct Recorded<'a>(&'a Siblings);

impl Recorded<'_> {
    /// True if one of them has the entry, as it is now.
    pub(super) fn is_done(&self, directory: &RelPath, key: &EntryKey<'_>) -> Result<bool, SessionError> {
        for journal in self.0.journals().values() {
            let done = journal.is_done(directory, key);
            if done.map_err(SessionError::journal(&self.0.journal_path))? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Ranges that are there, according to all of them, of a large file as it is now.
    pub(super) fn held(&self, directory: &RelPath, entry: &Entry, temporary: &[u8]) -> RangeSet {
        let is_it = |partial: &&Partial| {
            partial.directory == *directory && partial.name == entry.name && is_of(partial, entry)
        };
        let mut held = RangeSet::new();
        let journals = self.0.journals();
        let partials = journals.values().flat_map(|journal| journal.partials_at(temporary));
        partials.filter(is_it).flat_map(|partial| partial.held.iter()).for_each(|range| {
            held.cover(range);
        });
        held
    }
}
