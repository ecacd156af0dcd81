//! The comparison of a sync: entries are wanted that differ from the destination's.
//!
//! Files are equal if size and modification time are, as the destination's file system stores times, or size
//! and contents with `--contents`. An equal file gets the mode, owner, attributes and time of the source
//! without its contents being sent. Devices, pipes and sockets are equal if kind and device number are, and
//! likewise get the rest. I/O threads use it; it holds no state.

use std::os::fd::BorrowedFd;

use carrack_model::{Metadata, SyncRules};
use carrack_storage::{
    ExistingEntry, MetadataToSet, SinkError, digest_of, read_existing_entry, set_file_metadata,
    set_special_metadata,
};
use carrack_wire::EntryTableItem;

use super::attributes::SPECIAL_MODES;
use super::context::SinkContext;

/// The verdict on an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SyncVerdict {
    Wanted,
    /// The existing entry stays, or no entry is created.
    Left,
}

/// Compares entries with those of the destination.
#[derive(Clone, Copy)]
pub(super) struct SyncComparer<'a> {
    sink: &'a SinkContext<'a>,
    sync: &'a SyncRules,
}

impl<'a> SyncComparer<'a> {
    pub(super) fn new(sink: &'a SinkContext<'a>, sync: &'a SyncRules) -> SyncComparer<'a> {
        SyncComparer { sink, sync }
    }

    /// Judges an entry of the directory `held`.
    pub(super) fn compare(&self, held: BorrowedFd<'_>, entry: &EntryTableItem<'_>) -> SyncVerdict {
        let sync = self.sync;
        // An entry that can't be examined fails when it is written.
        let Ok(present) = read_existing_entry(held, entry.name) else { return SyncVerdict::Wanted };
        match present {
            None if sync.existing => SyncVerdict::Left,
            None => SyncVerdict::Wanted,
            Some(_) if sync.ignore_existing => SyncVerdict::Left,
            Some(_) if is_hard_link(entry) => SyncVerdict::Wanted,
            Some(ExistingEntry::File { size, metadata, owner }) if entry.is_regular() => {
                self.compare_file(held, entry, (size, metadata, owner))
            }
            Some(ExistingEntry::Symlink { target, mtime, owner })
                if entry.symlink_target == Some(&*target)
                    && self.sink.attributes.times.is_same_link(entry.metadata.mtime, mtime, held) =>
            {
                self.complete_link(held, entry, owner)
            }
            Some(ExistingEntry::Special { special, metadata, owner }) if entry.special == Some(special) => {
                self.complete(held, entry, (metadata, owner), |dress| {
                    set_special_metadata(held, entry.name, &special, dress)
                })
            }
            Some(_) => SyncVerdict::Wanted,
        }
    }

    fn compare_file(
        &self,
        held: BorrowedFd<'_>,
        entry: &EntryTableItem<'_>,
        (size, found, owner): (u64, Metadata, (u32, u32)),
    ) -> SyncVerdict {
        let sync = self.sync;
        if sync.update && found.mtime > entry.metadata.mtime && !self.has_time(held, entry, &found) {
            return SyncVerdict::Left;
        }
        let is_equal = size == entry.size
            && if sync.by_contents { has_contents(held, entry) } else { self.has_time(held, entry, &found) };
        if !is_equal {
            return SyncVerdict::Wanted;
        }
        self.complete(held, entry, (found, owner), |dress| set_file_metadata(held, entry.name, &dress))
    }

    fn has_time(&self, held: BorrowedFd<'_>, entry: &EntryTableItem<'_>, found: &Metadata) -> bool {
        self.sink.attributes.times.is_same(entry.metadata.mtime, found.mtime, held)
    }

    /// Completes the metadata of an existing entry by `dress`.
    fn complete(
        &self,
        held: BorrowedFd<'_>,
        entry: &EntryTableItem<'_>,
        (found, owner): (Metadata, (u32, u32)),
        dress: impl FnOnce(MetadataToSet<'_>) -> Result<(), SinkError>,
    ) -> SyncVerdict {
        let wanted = self.wanted_metadata(&found, owner, entry);
        let is_same =
            wanted.mode == found.mode && self.sink.attributes.times.is_same(wanted.mtime, found.mtime, held);
        if is_same && !self.lacks_extras(held, entry, owner) {
            return SyncVerdict::Left;
        }
        let extras = entry.extras.as_deref();
        // The mode of the existing entry stays, unless it would give its rights to another user.
        let is_owned = extras.is_some_and(|extras| extras.user.is_some() || extras.group.is_some());
        let lasting = if self.sink.attributes.keeper.policy().perms || is_owned { 0 } else { SPECIAL_MODES };
        let lacking = MetadataToSet { lasting, ..self.sink.attributes.metadata_to_set(&wanted, extras) };
        // Metadata that can't be set this way is set on a new entry; a dry run reports the entry as wanted.
        let is_set = !self.sink.spec.dry_run && dress(lacking).is_ok();
        if is_set { SyncVerdict::Left } else { SyncVerdict::Wanted }
    }

    /// Returns the mode and time that the entry gets: those that are not kept stay as they are.
    fn wanted_metadata(&self, found: &Metadata, owner: (u32, u32), entry: &EntryTableItem<'_>) -> Metadata {
        let keeper = &self.sink.attributes.keeper;
        let told = self.sink.attributes.allowed(entry.metadata);
        let policy = keeper.policy();
        let extras = entry.extras.as_deref();
        let set_ids = keeper.allowed_set_id_bits(extras, owner, told.mode);
        // The set-ID bits of the existing entry belong to its owner and group.
        let gets_others = extras.is_some_and(|extras| keeper.would_change_owner(extras, owner));
        Metadata {
            mode: match (policy.perms, gets_others) {
                (true, _) => told.mode & (!SPECIAL_MODES | set_ids),
                (false, true) => found.mode & !SPECIAL_MODES,
                (false, false) => found.mode,
            },
            mtime: if policy.times { told.mtime } else { found.mtime },
        }
    }

    /// Completes the metadata of a link, of which only owner and attributes can differ.
    fn complete_link(
        &self,
        held: BorrowedFd<'_>,
        entry: &EntryTableItem<'_>,
        owner: (u32, u32),
    ) -> SyncVerdict {
        if self.lacks_extras(held, entry, owner)
            && let Some(extras) = entry.extras.as_deref()
        {
            if self.sink.spec.dry_run {
                return SyncVerdict::Wanted;
            }
            self.sink.attributes.keeper.set_link_attributes(
                extras,
                held,
                entry.name,
                &self.sink.destination.scratch,
            );
        }
        SyncVerdict::Left
    }

    /// Returns true if owner or attributes differ from those to set.
    fn lacks_extras(&self, held: BorrowedFd<'_>, entry: &EntryTableItem<'_>, owner: (u32, u32)) -> bool {
        let keeper = &self.sink.attributes.keeper;
        entry.extras.as_deref().is_some_and(|extras| {
            keeper.would_change_owner(extras, owner)
                || keeper.would_change_attributes(extras, held, entry.name, owner)
                || keeper.would_change_flags(extras, held, entry.name)
        })
    }
}

/// Returns true if the existing file has the digest of the entry.
fn has_contents(held: BorrowedFd<'_>, entry: &EntryTableItem<'_>) -> bool {
    let digest = entry.digest;
    digest.is_some_and(|digest| digest_of(held, entry.name, false).is_ok_and(|own| own == *digest))
}

/// Hard links are made at the end, in any case.
fn is_hard_link(entry: &EntryTableItem<'_>) -> bool {
    entry.extras.as_deref().is_some_and(|extras| extras.same_as.is_some())
}
