//! The records of earlier sessions of the same transfer: the recovered journal, and the files that were
//! begun.

use std::collections::{HashMap, HashSet};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use carrack_journal::{EntryKey, PartialFile, RecoveredJournal};
use carrack_model::{Entry, RangeSet, RelPath, Timestamp};
use carrack_storage::{RootDirectory, ScratchNames};

use crate::error::SessionError;

/// The recovered records. All threads of the sink read them.
pub(super) struct PastSessions {
    recovered: RecoveredJournal,
    /// For messages.
    journal_path: String,
    partials: Mutex<HashMap<DirectoryPathAndName, BegunFile>>,
    /// Files that a later session began anew under another temporary name.
    superseded: Vec<PartialFile>,
    /// Temporary names that are still needed.
    temporary: HashSet<DirectoryPathAndName>,
    /// True once the root has no unneeded temporary names.
    is_root_clean: AtomicBool,
}

type DirectoryPathAndName = (RelPath, Box<[u8]>);

/// A large file that an earlier session began.
struct BegunFile {
    partial: PartialFile,
    /// True if the source knows the recorded ranges.
    is_told: bool,
}

impl PastSessions {
    pub(super) fn new(recovered: RecoveredJournal, journal_path: String) -> PastSessions {
        let mut partials: HashMap<DirectoryPathAndName, BegunFile> = HashMap::new();
        let mut superseded = Vec::new();
        // In the order in which they were begun.
        for partial in recovered.partials().iter().cloned() {
            let place = directory_and_name(&partial, &partial.name);
            let temporary = partial.temporary.clone();
            let earlier = partials.insert(place, BegunFile { partial, is_told: false });
            let earlier = earlier.map(|begun| begun.partial);
            // Parts of one file that were recorded one by one have one temporary name.
            superseded.extend(earlier.filter(|earlier| earlier.temporary != temporary));
        }
        let needed = partials.values().map(|begun| &begun.partial);
        let temporary = needed.map(|partial| directory_and_name(partial, &partial.temporary)).collect();
        PastSessions {
            recovered,
            journal_path,
            partials: Mutex::new(partials),
            superseded,
            temporary,
            is_root_clean: AtomicBool::new(false),
        }
    }

    fn partials(&self) -> MutexGuard<'_, HashMap<DirectoryPathAndName, BegunFile>> {
        self.partials.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Directories that an earlier session made accessible and did not restore, with their permission bits.
    pub(super) fn changed_modes(&self) -> impl Iterator<Item = (&RelPath, u32)> {
        self.recovered.changed_modes()
    }

    /// Returns true if the journal has the entry in its present version.
    pub(super) fn is_done(&self, directory: &RelPath, key: &EntryKey<'_>) -> Result<bool, SessionError> {
        self.recovered.is_done(directory, key).map_err(SessionError::journal(&self.journal_path))
    }

    /// The start of the first session.
    pub(super) fn first_session_start(&self) -> Timestamp {
        self.recovered.created()
    }

    /// Calls `look` with the record of a begun file, if it has the present version.
    pub(super) fn with_partial<R>(
        &self,
        directory: &RelPath,
        entry: &Entry,
        look: impl FnOnce(&PartialFile) -> R,
    ) -> Option<R> {
        let partials = self.partials();
        let begun = partials.get(&(directory.clone(), entry.name.clone()))?;
        is_same_version(&begun.partial, entry).then(|| look(&begun.partial))
    }

    /// Notes the ranges that the source was told.
    pub(super) fn set_reported_ranges(&self, directory: &RelPath, entry: &Entry, held: RangeSet) {
        assert!(!held.is_empty(), "a source is told of what there is");
        if let Some(begun) = self.partials().get_mut(&(directory.clone(), entry.name.clone())) {
            begun.partial.held = held;
            begun.is_told = true;
        }
    }

    /// Takes the record of a file that the source resumes. Returns `None` if the source does not know the
    /// record.
    pub(super) fn take(&self, directory: &RelPath, entry: &Entry) -> Option<PartialFile> {
        let place = (directory.clone(), entry.name.clone());
        let mut partials = self.partials();
        let begun = partials.get(&place)?;
        let is_usable = begun.is_told && is_same_version(&begun.partial, entry);
        if is_usable { partials.remove(&place).map(|begun| begun.partial) } else { None }
    }

    /// Removes the begun files that were not resumed, as the transfer is complete.
    pub(super) fn remove_unresumed_files(&self, root: &RootDirectory) {
        let unresumed: Vec<_> = self.partials().drain().map(|(_, begun)| begun.partial).collect();
        for partial in unresumed.iter().chain(&self.superseded) {
            // A file that can't be removed stays under its temporary name, which tells its origin.
            if let Ok(held) = root.open_directory(&partial.directory) {
                ScratchNames::remove(held.as_fd(), &partial.temporary);
            }
        }
    }

    /// Removes the temporary names of earlier sessions that are not needed any more, once in each directory.
    /// `is_first`: no entry of this directory was offered before. For the root a flag tells that.
    pub(super) fn clean(&self, path: &RelPath, is_first: bool, held: BorrowedFd<'_>, scratch: &ScratchNames) {
        if is_first || path.is_root() && !self.is_root_clean.swap(true, Relaxed) {
            // A directory that can't be read keeps its entries.
            let _ =
                scratch.remove_leftovers(held, |name| self.temporary.contains(&(path.clone(), name.into())));
        }
    }
}

fn directory_and_name(partial: &PartialFile, name: &[u8]) -> DirectoryPathAndName {
    (partial.directory.clone(), name.into())
}

/// Returns true if the record describes the present version of the file.
pub(super) fn is_same_version(partial: &PartialFile, entry: &Entry) -> bool {
    partial.size == entry.size()
        && partial.metadata.mtime == entry.metadata.mtime
        && partial.identity == entry.identity
}
