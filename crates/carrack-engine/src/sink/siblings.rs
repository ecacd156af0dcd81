//! Other sessions of the same transfer, at the same time and before: each has a journal of its own, all of them in one
//! directory in the destination (decision 18).
//!
//! Nobody tells this session what the others do. When something is offered to it, it reads what they have recorded by then.

use std::collections::HashMap;
use std::ffi::CString;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use carrack_journal::{EntryKey, JournalError, Partial, Recovered, boot_id, id_of_file_name, read};
use carrack_model::{Entry, RangeSet, RelPath, TransferId};
use carrack_storage::{Root, keep_times};
use rustix::fs::{AtFlags, Dir, statat, unlinkat};
use rustix::io::Errno;

use super::committer::Committer;
use super::past::is_of;
use crate::check::xxh3;
use crate::error::SessionError;

/// A journal as it was when it was read: longer by now, it is read again.
struct Journal {
    len: i64,
    recovered: Arc<Recovered>,
}

/// Looked at by all threads of the sink.
pub(super) struct Siblings {
    directory: OwnedFd,
    /// For people.
    journal_path: String,
    journals: Mutex<HashMap<TransferId, Journal>>,
}

impl Siblings {
    pub(super) fn new(directory: OwnedFd, journal_path: String) -> Siblings {
        Siblings { directory, journal_path, journals: Mutex::default() }
    }

    /// What all sessions have recorded by now.
    pub(super) fn recorded(&self) -> Result<Recorded<'_>, SessionError> {
        let names = self.names().map_err(|errno| {
            SessionError::local("looking for the journals of other sessions")(errno.into())
        })?;
        let boot = boot_id().map_err(SessionError::local("asking which boot this is"))?;
        let mut journals = self.journals.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all = Vec::new();
        for name in names {
            let Some(id) = id_of_file_name(name.to_bytes()) else { continue };
            // One that is removed by now said nothing that still matters.
            let Ok(stat) = statat(&self.directory, &*name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
            let known = journals.get(&id).filter(|journal| journal.len == stat.st_size);
            let recovered = match known {
                Some(journal) => Arc::clone(&journal.recovered),
                None => match read(self.directory.as_fd(), id, boot) {
                    Ok(recovered) => Arc::new(recovered),
                    Err(JournalError::Missing) => continue,
                    Err(error) => return Err(SessionError::journal(&self.journal_path)(error)),
                },
            };
            journals.insert(id, Journal { len: stat.st_size, recovered: Arc::clone(&recovered) });
            all.push(recovered);
        }
        Ok(Recorded { siblings: self, journals: all })
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

    /// This session has nothing to say to later ones.
    pub(super) fn leave(&self, root: &Root, committer: Committer) -> Result<(), SessionError> {
        self.end(root, || match committer.retire() {
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

/// What the journals say at one moment.
pub(super) struct Recorded<'a> {
    siblings: &'a Siblings,
    journals: Vec<Arc<Recovered>>,
}

impl Recorded<'_> {
    /// Whether one of them has the entry, as it is now.
    pub(super) fn is_done(&self, directory: &RelPath, key: &EntryKey<'_>) -> Result<bool, SessionError> {
        for journal in &self.journals {
            let done = journal.is_done(directory, key);
            if done.map_err(SessionError::journal(&self.siblings.journal_path))? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// What there is, according to all of them, of a large file as it is now.
    pub(super) fn held(&self, directory: &RelPath, entry: &Entry, temporary: &[u8]) -> RangeSet {
        let is_it = |partial: &&Partial| {
            partial.directory == *directory
                && partial.name == entry.name
                && *partial.temporary == *temporary
                && is_of(partial, entry)
        };
        let mut held = RangeSet::new();
        let partials = self.journals.iter().flat_map(|journal| journal.partials());
        partials.filter(is_it).flat_map(|partial| partial.held.iter()).for_each(|range| {
            held.cover(range);
        });
        held
    }
}

/// Tells versions of a file apart in its temporary name. It need not withstand anybody: what is believed to be there is what
/// the journals say of exactly this version.
pub(super) fn version_of(entry: &Entry) -> u16 {
    let mut text = entry.size().to_le_bytes().to_vec();
    text.extend_from_slice(&entry.metadata.mtime.seconds.to_le_bytes());
    text.extend_from_slice(&entry.metadata.mtime.nanoseconds.to_le_bytes());
    text.extend_from_slice(&entry.identity.to_le_bytes());
    let [a, b, ..] = xxh3(&text);
    u16::from_le_bytes([a, b])
}
