//! The entries of the destination that a sync may delete: with `--delete` those that the source does not
//! have, and those whose names other kinds of entries need.
//!
//! Entries that the user's patterns, or rules in files at the destination, exclude stay, and so do carrack's
//! own files, backups of earlier runs, and mounts beneath the destination. No more entries are deleted than
//! `--max-delete` allows, for any reason. Any thread asks; the counts are atomic.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use carrack_journal::id_of_file_name;
use carrack_model::{DeletionRules, RelPath, ScanSelection, SyncRules, text_without_errno};
use carrack_storage::{
    DeletionCircumstances, FilteredDirectory, RemovalPreviewCount, RemovalStep, RootDirectory, ScanFilter,
    ScratchNames, count_removable,
};

use super::backup::{self, BackupPlace, TRASH};
use super::destination_rules::DestinationRules;
use crate::error::SessionError;

/// The rules of deletion in a sync, and its counts.
pub(super) struct SyncDeletionState {
    /// The values of `--delete`, if it was given.
    deletion: Option<DeletionRules>,
    filter: Option<ScanFilter>,
    directory_rules: DestinationRules,
    backup: Option<BackupPlace>,
    /// Entries that may still be deleted.
    left: AtomicU64,
    /// True if an entry stayed because of `--max-delete`.
    has_stayed: AtomicBool,
    /// Mounts that stayed.
    mount_count: AtomicU64,
}

/// A directory of the destination whose names may be deleted.
#[derive(Clone, Copy)]
pub(super) struct RemovalDirectory<'a> {
    /// Its path beneath the destination.
    pub(super) at_sink: &'a RelPath,
    /// Its path beneath the source.
    pub(super) at_source: &'a RelPath,
    /// True if it is deleted itself.
    pub(super) is_deleted: bool,
}

/// A name in a directory of the destination.
#[derive(Clone, Copy)]
pub(super) struct RemovalCandidate<'a> {
    /// Its descriptor.
    pub(super) held: BorrowedFd<'a>,
    /// Its path beneath the destination.
    pub(super) directory: &'a RelPath,
    pub(super) name: &'a [u8],
    /// The possible paths of the directory beneath the source. A name that is spared at one of them stays.
    pub(super) at_source: &'a [RelPath],
    /// True if the directory is deleted itself.
    pub(super) is_directory_deleted: bool,
}

impl SyncDeletionState {
    pub(super) fn new(
        sync: &SyncRules,
        selection: &ScanSelection,
        destination: Option<Arc<RootDirectory>>,
    ) -> Result<SyncDeletionState, SessionError> {
        let filter = ScanFilter::new(selection);
        let filter = filter.map_err(|error| SessionError::refused(text_without_errno(&error), ""))?;
        let reads_rules = filter.as_ref().is_some_and(ScanFilter::reads_directory_rules);
        if reads_rules && sync.deletion.as_ref().is_some_and(|deletion| deletion.first) {
            return Err(SessionError::refused(
                "--delete-before deletes before the directories' files of filter rules are copied",
                "give --delete, which deletes after the copy",
            ));
        }
        let deletion = sync.deletion.clone();
        let backup = deletion.as_ref().and_then(|deletion| deletion.backup.as_ref());
        Ok(SyncDeletionState {
            filter,
            directory_rules: DestinationRules::new(destination),
            backup: backup.map(BackupPlace::new).transpose()?,
            left: AtomicU64::new(deletion.as_ref().and_then(|deletion| deletion.most).unwrap_or(u64::MAX)),
            has_stayed: AtomicBool::new(false),
            mount_count: AtomicU64::new(0),
            deletion,
        })
    }

    /// Returns true if more than empty directories may be deleted.
    pub(super) fn deletes(&self) -> bool {
        self.deletion.is_some()
    }

    /// Returns true if an entry stayed because of `--max-delete`.
    pub(super) fn has_reached_limit(&self) -> bool {
        self.has_stayed.load(Relaxed)
    }

    /// The backup directory, to which entries are moved in place of being removed.
    pub(super) fn backup(&self) -> Option<&BackupPlace> {
        self.backup.as_ref()
    }

    /// The limit of deletions in percent of the destination's entries, if there is one.
    pub(super) fn most_percent(&self) -> Option<u64> {
        self.deletion.as_ref()?.most_percent.map(u64::from)
    }

    /// Returns true if entries may be deleted in the root directory or a home directory.
    pub(super) fn allows_any_destination(&self) -> bool {
        self.deletion.as_ref().is_some_and(|deletion| deletion.by_empty_sources)
    }

    /// Returns true if entries may be deleted in mounts beneath the destination.
    pub(super) fn crosses_mounts(&self) -> bool {
        self.deletion.as_ref().is_some_and(|deletion| deletion.mounts)
    }

    /// Counts a mount that stays with everything in it.
    pub(super) fn count_mount(&self) {
        self.mount_count.fetch_add(1, Relaxed);
    }

    /// Mounts that stayed so far.
    pub(super) fn mount_count(&self) -> u64 {
        self.mount_count.load(Relaxed)
    }

    /// Returns true if a name stays even if the source does not have it: excluded names and carrack's own.
    pub(super) fn is_spared(&self, directory: RemovalDirectory<'_>, name: &[u8], is_directory: bool) -> bool {
        let is_journals = name.starts_with(b".carrack-") && name.ends_with(b".journals");
        // Other transfers may be writing to them.
        let is_own = is_journals || id_of_file_name(name).is_some() || ScratchNames::is_temporary(name);
        let is_trash = is_directory && name == TRASH;
        is_own || is_trash || self.is_protected(directory, name, is_directory)
    }

    /// Returns true if the user's patterns, or those of files at the destination, exclude a name from the
    /// deletion. If a file's rules are unknown they do.
    fn is_protected(&self, directory: RemovalDirectory<'_>, name: &[u8], is_directory: bool) -> bool {
        let Some(filter) = &self.filter else { return false };
        let RemovalDirectory { at_sink, at_source, is_deleted } = directory;
        let tree_depth = depth_of(at_sink).saturating_sub(depth_of(at_source));
        let Ok(rules) = self.directory_rules.rules_in(filter, at_sink, tree_depth) else { return true };
        let place = FilteredDirectory { at_source, at_sink, rules: rules.as_deref() };
        let deletion = DeletionCircumstances {
            deletes_excluded: self.deletion.as_ref().is_some_and(|deletion| deletion.excluded),
            is_directory_deleted: is_deleted,
        };
        filter.protects(place, name, is_directory, deletion)
    }

    /// Returns true if the user's patterns certainly exclude a name from the copy.
    pub(super) fn is_excluded(
        &self,
        directory: RemovalDirectory<'_>,
        name: &[u8],
        is_directory: bool,
    ) -> bool {
        let RemovalDirectory { at_sink, at_source, .. } = directory;
        let place = FilteredDirectory { at_source, at_sink, rules: None };
        self.filter.as_ref().is_some_and(|filter| filter.surely_excludes(place, name, is_directory))
    }

    /// Returns true if the user's rules exclude the source that becomes this directory.
    pub(super) fn is_source_excluded(&self, sink: &RelPath) -> bool {
        self.filter.as_ref().is_some_and(|filter| filter.excludes_source(sink))
    }

    /// The rules in files of the destination's directories.
    pub(super) fn directory_rules(&self) -> &DestinationRules {
        &self.directory_rules
    }

    /// Returns true if a directory of the destination is a backup, of this or an earlier run.
    pub(super) fn is_backup(&self, path: &RelPath, held: BorrowedFd<'_>) -> bool {
        self.backup.as_ref().is_some_and(|backup| backup.holds(path)) || backup::is_marked(held, b".")
    }

    /// Counts the entries beneath a name that would be deleted, and those that would stay.
    pub(super) fn count(&self, target: RemovalCandidate<'_>) -> RemovalPreviewCount {
        count_removable((target.held, target.name), self.crosses_mounts(), &|step, beneath| {
            self.is_spared_beneath(target, step, beneath)
        })
    }

    /// Returns true if a directory stays with everything in it.
    pub(super) fn spares_whole(&self, target: RemovalCandidate<'_>) -> bool {
        self.is_spared_beneath(target, RemovalStep::Enter, target.name)
    }

    /// Returns true if an entry beneath a deleted name stays; counts the entry otherwise.
    pub(super) fn spares(&self, target: RemovalCandidate<'_>, step: RemovalStep, beneath: &[u8]) -> bool {
        if self.is_spared_beneath(target, step, beneath) {
            return true;
        }
        match step {
            // A directory counts when it is removed.
            RemovalStep::Enter if self.left.load(Relaxed) > 0 => false,
            RemovalStep::Enter => !self.consume_limit(1),
            RemovalStep::Unlink | RemovalStep::RemoveDirectory => !self.consume_limit(1),
        }
    }

    /// Counts entries that are deleted. Returns false, and notes it, if the limit does not allow them.
    pub(super) fn consume_limit(&self, count: u64) -> bool {
        let may_go = self.left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(count)).is_ok();
        if !may_go {
            self.has_stayed.store(true, Relaxed);
        }
        may_go
    }

    fn is_spared_beneath(&self, target: RemovalCandidate<'_>, step: RemovalStep, beneath: &[u8]) -> bool {
        let (above, name) = match beneath.iter().rposition(|&byte| byte == b'/') {
            Some(slash) => (&beneath[..slash], &beneath[slash + 1..]),
            None => (&b""[..], beneath),
        };
        let at_sink = join_below(target.directory, above);
        let is_spared = target.at_source.iter().any(|directory| {
            let (Some(at_sink), Some(at_source)) = (&at_sink, join_below(directory, above)) else {
                return true;
            };
            let is_deleted = target.is_directory_deleted || !above.is_empty();
            let directory = RemovalDirectory { at_sink, at_source: &at_source, is_deleted };
            self.is_spared(directory, name, step != RemovalStep::Unlink)
        });
        is_spared || step == RemovalStep::Enter && backup::is_marked(target.held, beneath)
    }
}

fn depth_of(path: &RelPath) -> usize {
    if path.is_root() { 0 } else { path.components().count() }
}

/// Returns the directory `above` beneath another, or `None` if the path is not possible.
pub(super) fn join_below(directory: &RelPath, above: &[u8]) -> Option<RelPath> {
    let mut parts = above.split(|&byte| byte == b'/').filter(|part| !part.is_empty());
    parts.try_fold(directory.clone(), |place, part| place.join(part).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(bytes: &[u8]) -> RelPath {
        RelPath::new(bytes).unwrap()
    }

    fn removal(most: Option<u64>) -> SyncDeletionState {
        let sync = SyncRules {
            deletion: Some(DeletionRules { most, ..DeletionRules::default() }),
            ..SyncRules::default()
        };
        SyncDeletionState::new(&sync, &ScanSelection::default(), None).unwrap()
    }

    #[test]
    fn no_more_goes_than_is_allowed() {
        let removal = removal(Some(3));
        assert!(
            removal.consume_limit(2) && !removal.consume_limit(2),
            "all of a name goes, or nothing of it"
        );
        assert!(removal.has_reached_limit() && removal.consume_limit(1) && !removal.consume_limit(1));
    }

    #[test]
    fn what_is_carracks_own_stays() {
        let removal = removal(None);
        for (name, is_directory, is_spared) in [
            (TRASH, true, true),
            (TRASH, false, false),
            (b"f", false, false),
            (b".carrack-x.journals", true, true),
            // Of any transfer.
            (b".f.carrack-0123abcd", false, true),
            (b".f.carrack-0123abcg", false, false),
        ] {
            let root = &RelPath::root();
            let directory = RemovalDirectory { at_sink: root, at_source: root, is_deleted: false };
            assert_eq!(removal.is_spared(directory, name, is_directory), is_spared, "{name:?}");
        }
    }

    #[test]
    fn paths_are_put_together() {
        assert_eq!(join_below(&path(b"a"), b"b/c"), Some(path(b"a/b/c")));
        assert_eq!(join_below(&path(b"a"), b""), Some(path(b"a")));
        assert_eq!(join_below(&path(b"a"), b"../b"), None);
    }
}
