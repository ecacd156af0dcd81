//! The remains of earlier sessions of the same transfer: the journal as it was found, and the files that were begun.

use std::collections::{HashMap, HashSet};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use carrack_journal::{EntryKey, Partial, Recovered};
use carrack_model::{Entry, RangeSet, RelPath};
use carrack_storage::{Root, ScratchNames};

use crate::error::SessionError;

/// Looked at by all threads of the sink.
pub(super) struct Past {
    recovered: Recovered,
    /// For people.
    journal_path: String,
    partials: Mutex<HashMap<Place, Begun>>,
    /// Temporary names that are still of use.
    temporary: HashSet<Place>,
    /// True if nothing useless is left in the root.
    is_root_clean: AtomicBool,
}

type Place = (RelPath, Box<[u8]>);

/// A large file that an earlier session began.
struct Begun {
    partial: Partial,
    /// True if the source knows what is held of it.
    is_told: bool,
}

impl Past {
    pub(super) fn new(recovered: Recovered, journal_path: String) -> Past {
        let partials = recovered.partials().to_vec();
        let place = |partial: &Partial, name: &[u8]| (partial.directory.clone(), name.into());
        let temporary = partials.iter().map(|partial| place(partial, &partial.temporary)).collect();
        let begun = |partial: Partial| (place(&partial, &partial.name), Begun { partial, is_told: false });
        Past {
            partials: Mutex::new(partials.into_iter().map(begun).collect()),
            recovered,
            journal_path,
            temporary,
            is_root_clean: AtomicBool::new(false),
        }
    }

    fn partials(&self) -> MutexGuard<'_, HashMap<Place, Begun>> {
        self.partials.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Directories that an earlier session made accessible and did not restore, with their permission bits.
    pub(super) fn changed_modes(&self) -> impl Iterator<Item = (&RelPath, u32)> {
        self.recovered.changed_modes()
    }

    /// True if the journal has the entry, as it is now.
    pub(super) fn is_done(&self, directory: &RelPath, key: &EntryKey<'_>) -> Result<bool, SessionError> {
        self.recovered.is_done(directory, key).map_err(SessionError::journal(&self.journal_path))
    }

    /// Calls `look` with what there is of a file that was begun as it is now.
    pub(super) fn with_partial<R>(
        &self,
        directory: &RelPath,
        entry: &Entry,
        look: impl FnOnce(&Partial) -> R,
    ) -> Option<R> {
        let partials = self.partials();
        let begun = partials.get(&(directory.clone(), entry.name.clone()))?;
        is_of(&begun.partial, entry).then(|| look(&begun.partial))
    }

    /// The source was told that this is held.
    pub(super) fn told(&self, directory: &RelPath, entry: &Entry, held: RangeSet) {
        assert!(!held.is_empty(), "a source is told of what there is");
        if let Some(begun) = self.partials().get_mut(&(directory.clone(), entry.name.clone())) {
            begun.partial.held = held;
            begun.is_told = true;
        }
    }

    /// Takes what is held of a file that the source goes on with; nothing if it was not told so.
    pub(super) fn take(&self, directory: &RelPath, entry: &Entry) -> Option<Partial> {
        let place = (directory.clone(), entry.name.clone());
        let mut partials = self.partials();
        let begun = partials.get(&place)?;
        let is_usable = begun.is_told && is_of(&begun.partial, entry);
        if is_usable { partials.remove(&place).map(|begun| begun.partial) } else { None }
    }

    /// The transfer is complete: what nobody went on with goes.
    pub(super) fn discard_rest(&self, root: &Root) {
        for ((directory, _), begun) in self.partials().drain() {
            // What can't be removed stays behind under its telling name.
            if let Ok(held) = root.open_directory(&directory) {
                ScratchNames::remove(held.as_fd(), &begun.partial.temporary);
            }
        }
    }

    /// Removes the temporary names of earlier sessions that are of no use. Once in each directory: `is_first` tells that
    /// nothing of this one was offered before; of the root that is known here.
    pub(super) fn clean(&self, path: &RelPath, is_first: bool, held: BorrowedFd<'_>, scratch: &ScratchNames) {
        if is_first || path.is_root() && !self.is_root_clean.swap(true, Relaxed) {
            let is_wanted = |name: &[u8]| self.temporary.contains(&(path.clone(), name.into()));
            // A directory that can't be read keeps what is in it.
            let _ = scratch.remove_leftovers(held, is_wanted);
        }
    }
}

/// True if the journal means the file as it is now.
pub(super) fn is_of(partial: &Partial, entry: &Entry) -> bool {
    partial.size == entry.size()
        && partial.metadata.mtime == entry.metadata.mtime
        && partial.identity == entry.identity
}
