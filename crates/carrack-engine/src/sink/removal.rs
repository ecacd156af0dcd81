//! Entries of the destination that may go: with `--delete` what the source has not, and what stands where another kind of entry is to be.
//!
//! Whatever the user's patterns leave out stays, and so does what is carrack's own, what an earlier run set aside, and what is mounted
//! beneath the destination; no more goes than `--max-delete` allows, for whichever reason it goes. Any thread asks; the counts are
//! atomic.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use carrack_journal::id_of_file_name;
use carrack_model::{Deletion, RelPath, Selection, Sync};
use carrack_storage::{Filter, RemovalCount, RemovalStep, ScratchNames, count_in};

use super::backup::{self, BackupPlace, TRASH};
use crate::error::SessionError;

/// The rules by which entries go in a sync, and their counts.
pub(super) struct Removal {
    /// Names that are carrack's own.
    scratch: Arc<ScratchNames>,
    /// The values of `--delete`, if it was given.
    deletion: Option<Deletion>,
    filter: Option<Filter>,
    backup: Option<BackupPlace>,
    /// Entries that may still go.
    left: AtomicU64,
    /// True if something stayed because no more may go.
    has_stayed: AtomicBool,
    /// Mounts that stayed.
    mount_count: AtomicU64,
}

/// A name in a directory of the destination.
#[derive(Clone, Copy)]
pub(super) struct Target<'a> {
    /// The directory.
    pub(super) held: BorrowedFd<'a>,
    /// Its path beneath the destination.
    pub(super) directory: &'a RelPath,
    pub(super) name: &'a [u8],
    /// Where the directory may be beneath the source: what is spared at one of these places stays.
    pub(super) at_source: &'a [RelPath],
}

impl Removal {
    pub(super) fn new(
        sync: &Sync,
        selection: &Selection,
        scratch: Arc<ScratchNames>,
    ) -> Result<Removal, SessionError> {
        let filter = Filter::new(selection);
        let deletion = sync.deletion.clone();
        let backup = deletion.as_ref().and_then(|deletion| deletion.backup.as_ref());
        Ok(Removal {
            scratch,
            filter: filter.map_err(|error| SessionError::refused(error.to_string(), ""))?,
            backup: backup.map(BackupPlace::new).transpose()?,
            left: AtomicU64::new(deletion.as_ref().and_then(|deletion| deletion.most).unwrap_or(u64::MAX)),
            has_stayed: AtomicBool::new(false),
            mount_count: AtomicU64::new(0),
            deletion,
        })
    }

    /// True if more than empty directories may go.
    pub(super) fn deletes(&self) -> bool {
        self.deletion.is_some()
    }

    /// True if something stayed because no more may go.
    pub(super) fn has_stayed(&self) -> bool {
        self.has_stayed.load(Relaxed)
    }

    /// Where entries are moved in place of being removed.
    pub(super) fn backup(&self) -> Option<&BackupPlace> {
        self.backup.as_ref()
    }

    /// The part of the destination's entries that may go, in percent, if there is a limit.
    pub(super) fn most_percent(&self) -> Option<u64> {
        self.deletion.as_ref()?.most_percent.map(u64::from)
    }

    /// True if a destination that is the root directory or a home directory may lose entries.
    pub(super) fn is_meant_anywhere(&self) -> bool {
        self.deletion.as_ref().is_some_and(|deletion| deletion.by_empty_sources)
    }

    /// True if what is mounted beneath the destination may be emptied.
    pub(super) fn crosses_mounts(&self) -> bool {
        self.deletion.as_ref().is_some_and(|deletion| deletion.mounts)
    }

    /// A mount stays, with everything in it.
    pub(super) fn count_mount(&self) {
        self.mount_count.fetch_add(1, Relaxed);
    }

    /// Mounts that stayed so far.
    pub(super) fn mount_count(&self) -> u64 {
        self.mount_count.load(Relaxed)
    }

    /// True if a name stays whatever the source has: what the user left out, and what is carrack's own. `at_source` is its
    /// directory beneath the source.
    pub(super) fn is_spared(&self, at_source: &RelPath, name: &[u8], is_directory: bool) -> bool {
        let is_journals = name.starts_with(b".carrack-") && name.ends_with(b".journals");
        let is_own = is_journals || id_of_file_name(name).is_some() || self.scratch.is_own(name);
        let is_trash = is_directory && name == TRASH;
        let keeps_excluded = self.deletion.as_ref().is_none_or(|deletion| !deletion.excluded);
        is_own || is_trash || keeps_excluded && self.is_excluded(at_source, name, is_directory)
    }

    /// True if the user's patterns leave a name out.
    pub(super) fn is_excluded(&self, at_source: &RelPath, name: &[u8], is_directory: bool) -> bool {
        self.filter.as_ref().is_some_and(|filter| filter.excludes(at_source, name, is_directory))
    }

    /// True if a directory of the destination is a backup: that of this run, or one of an earlier run.
    pub(super) fn is_backup(&self, path: &RelPath, held: BorrowedFd<'_>) -> bool {
        self.backup.as_ref().is_some_and(|backup| backup.holds(path)) || backup::is_marked(held, b".")
    }

    /// Counts the entries of a name that would go, and those that would stay.
    pub(super) fn count(&self, target: Target<'_>) -> RemovalCount {
        let spares = |step: RemovalStep, beneath: &[u8]| self.is_spared_beneath(target, step, beneath);
        count_in((target.held, target.name), self.crosses_mounts(), &spares)
    }

    /// True if a directory stays with everything in it.
    pub(super) fn spares_whole(&self, target: Target<'_>) -> bool {
        self.is_spared_beneath(target, RemovalStep::Enter, target.name)
    }

    /// True if something stays within what goes; counts what does not.
    pub(super) fn spares(&self, target: Target<'_>, step: RemovalStep, beneath: &[u8]) -> bool {
        if self.is_spared_beneath(target, step, beneath) {
            return true;
        }
        match step {
            // A directory counts when it is removed.
            RemovalStep::Enter if self.left.load(Relaxed) > 0 => false,
            RemovalStep::Enter => !self.take(1),
            RemovalStep::Unlink | RemovalStep::RemoveDirectory => !self.take(1),
        }
    }

    /// Counts entries that go; false, and notes it, if so many may not.
    pub(super) fn take(&self, count: u64) -> bool {
        let may_go = self.left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(count)).is_ok();
        if !may_go {
            self.has_stayed.store(true, Relaxed);
        }
        may_go
    }

    fn is_spared_beneath(&self, target: Target<'_>, step: RemovalStep, beneath: &[u8]) -> bool {
        let (above, name) = match beneath.iter().rposition(|&byte| byte == b'/') {
            Some(slash) => (&beneath[..slash], &beneath[slash + 1..]),
            None => (&b""[..], beneath),
        };
        let is_spared = |directory: &RelPath| {
            let place = inner(directory, above);
            place.is_none_or(|place| self.is_spared(&place, name, step != RemovalStep::Unlink))
        };
        let is_backup = || step == RemovalStep::Enter && backup::is_marked(target.held, beneath);
        target.at_source.iter().any(is_spared) || is_backup()
    }
}

/// The directory `above` beneath another; nothing if there can't be such.
pub(super) fn inner(directory: &RelPath, above: &[u8]) -> Option<RelPath> {
    let mut parts = above.split(|&byte| byte == b'/').filter(|part| !part.is_empty());
    parts.try_fold(directory.clone(), |place, part| place.join(part).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn removal(most: Option<u64>) -> Removal {
        let sync = Sync { deletion: Some(Deletion { most, ..Deletion::default() }), ..Sync::default() };
        let scratch = Arc::new(ScratchNames::new(Some(1)).unwrap());
        Removal::new(&sync, &Selection::default(), scratch).unwrap()
    }

    #[test]
    fn no_more_goes_than_is_allowed() {
        let removal = removal(Some(3));
        assert!(removal.take(2) && !removal.take(2), "all of a name goes, or nothing of it");
        assert!(removal.has_stayed() && removal.take(1) && !removal.take(1));
    }

    #[test]
    fn what_is_carracks_own_stays() {
        let removal = removal(None);
        let is_spared = |name: &[u8], is_directory| removal.is_spared(&RelPath::root(), name, is_directory);
        assert!(is_spared(TRASH, true) && !is_spared(TRASH, false) && !is_spared(b"f", false));
        assert!(is_spared(b".carrack-x.journals", true));
    }

    #[test]
    fn paths_are_put_together() {
        let path = |bytes: &[u8]| RelPath::new(bytes).unwrap();
        assert_eq!(inner(&path(b"a"), b"b/c"), Some(path(b"a/b/c")));
        assert_eq!(inner(&path(b"a"), b""), Some(path(b"a")));
        assert_eq!(inner(&path(b"a"), b"../b"), None);
    }
}
