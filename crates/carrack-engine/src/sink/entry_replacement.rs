//! The replacement of entries of another kind by `carrack sync`. As with rsync, an entry other than a
//! directory gives way to a directory, and an empty directory to another entry. With `--delete` any directory
//! does, with everything in it that may be deleted.
//!
//! The old entry is removed when its replacement is complete, so that a source that fails in between loses no
//! data. For a moment neither has the name.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use carrack_model::{RelPath, TransferEvent};
use carrack_storage::{ExistingEntry, RootDirectory, SinkError, read_existing_entry};
use rustix::fs::{AtFlags, Dir, Mode, OFlags, openat, unlinkat};
use rustix::io::Errno;

use super::context::SinkContext;
use super::deleting::NameDeleter;
use super::directory_access::with_access;
use super::lane::SinkLane;
use super::removal_rules::{RemovalCandidate, RemovalDirectory, SyncDeletionState};
use crate::error::SessionError;

/// Replaces entries for a lane.
#[derive(Clone, Copy)]
pub(super) struct EntryReplacement<'a> {
    lane: &'a SinkLane<'a>,
    sink: &'a SinkContext<'a>,
}

impl<'a> EntryReplacement<'a> {
    pub(super) fn new(lane: &'a SinkLane<'a>) -> EntryReplacement<'a> {
        EntryReplacement { lane, sink: lane.sink }
    }

    /// Opens a directory, and creates the missing directories of its path.
    pub(super) fn make_directory(&self, root: &RootDirectory, path: &RelPath) -> Result<OwnedFd, SinkError> {
        match self.try_to_make(root, path) {
            Err(SinkError::InTheWay(_)) if self.clear_path(root, path) => self.try_to_make(root, path),
            made => made,
        }
    }

    fn try_to_make(&self, root: &RootDirectory, path: &RelPath) -> Result<OwnedFd, SinkError> {
        let make = || root.make_directory(path).map_err(SinkError::of_directory);
        with_access(self.sink, path, || self.lane.request(None, make))
    }

    /// Places an entry. If a directory is in the way that may be deleted, deletes it and places the entry
    /// once more.
    pub(super) fn place_over<T>(
        &self,
        held: BorrowedFd<'_>,
        (directory, name): (&RelPath, &[u8]),
        place: impl Fn() -> Result<T, SinkError>,
    ) -> Result<Result<T, SinkError>, SessionError> {
        assert!(self.sink.destination.root.is_some(), "nothing is placed in a dry run");
        match with_access(self.sink, directory, &place) {
            Err(SinkError::InTheWay(_)) if self.remove_blocking_directory(held, directory, name)? => {
                Ok(with_access(self.sink, directory, &place))
            }
            placed => Ok(placed),
        }
    }

    /// Returns an error if a file can't take its name, so that its data is not sent.
    pub(super) fn check_replaceable(&self, held: BorrowedFd<'_>, name: &[u8]) -> Result<(), SinkError> {
        let looked = read_existing_entry(held, name).map_err(SinkError::of_lookup)?;
        if let Some(ExistingEntry::Special { special, .. }) = looked
            && !self.sink.attributes.replaced.keeps_special(&special)
        {
            return Err(SinkError::Special(special));
        }
        let may_go = match &self.sink.removal {
            _ if looked != Some(ExistingEntry::Other) => true,
            Some(removal) => removal.deletes() || is_empty(held, name),
            None => false,
        };
        if may_go { Ok(()) } else { Err(SinkError::InTheWay(Errno::ISDIR.into())) }
    }

    /// In a dry run, reports a directory that would be deleted for a wanted entry.
    pub(super) fn report_directory_deletion(&self, held: BorrowedFd<'_>, directory: &RelPath, name: &[u8]) {
        if self.sink.spec.dry_run
            && matches!(read_existing_entry(held, name), Ok(Some(ExistingEntry::Other)))
            && self.check_replaceable(held, name).is_ok()
            && let Ok(path) = directory.join(name)
        {
            self.lane.report(TransferEvent::WouldDelete { path: path.as_bytes().into() });
        }
    }

    /// In a dry run, reports an entry that would be deleted for a directory.
    pub(super) fn report_deletion_for_directory(&self, path: &RelPath) {
        let stays = self.sink.spec.sync.as_ref().is_none_or(|sync| sync.ignore_existing);
        if self.sink.spec.dry_run && !stays {
            self.lane.report(TransferEvent::WouldDelete { path: path.as_bytes().into() });
        }
    }

    /// Removes a directory whose name another kind of entry needs. Returns false if an entry still has the
    /// name.
    pub(super) fn remove_blocking_directory(
        &self,
        held: BorrowedFd<'_>,
        directory: &RelPath,
        name: &[u8],
    ) -> Result<bool, SessionError> {
        assert!(self.sink.destination.root.is_some(), "nothing gives way in a dry run");
        let Some(removal) = &self.sink.removal else { return Ok(false) };
        if !matches!(read_existing_entry(held, name), Ok(Some(ExistingEntry::Other))) {
            return Ok(false);
        }
        let places = possible_source_paths(directory);
        if is_spared_at(removal, directory, name, true) {
            return Ok(false);
        }
        if !removal.deletes() {
            return Ok(unlinkat(held, name, AtFlags::REMOVEDIR).is_ok());
        }
        NameDeleter::new(self.lane, removal).remove(RemovalCandidate {
            held,
            directory,
            name,
            at_source: &places,
            is_directory_deleted: false,
        })?;
        Ok(matches!(read_existing_entry(held, name), Ok(None)))
    }

    /// Removes entries other than directories from the path of a directory. Several threads may do this at
    /// once.
    fn clear_path(&self, root: &RootDirectory, path: &RelPath) -> bool {
        assert!(self.sink.destination.root.is_some(), "nothing gives way in a dry run");
        let Some(removal) = &self.sink.removal else { return false };
        if self.sink.spec.sync.as_ref().is_some_and(|sync| sync.ignore_existing) {
            return false;
        }
        let mut above = RelPath::root();
        for name in path.components() {
            let Ok(held) = root.open_directory(&above) else { return false };
            match read_existing_entry(held.as_fd(), name) {
                Ok(Some(ExistingEntry::Other)) => {}
                Ok(Some(ExistingEntry::Special { special, .. }))
                    if !self.sink.attributes.replaced.keeps_special(&special) =>
                {
                    return false;
                }
                Ok(Some(_)) if is_spared_at(removal, &above, name, false) => return false,
                // The name folds to that of a file of this run.
                Ok(Some(_)) if self.sink.destination.names.is_taken(held.as_fd(), &above, name) => {
                    return false;
                }
                Ok(Some(_)) if removal.backup().is_some() => {
                    let at_source = &possible_source_paths(&above);
                    let held = held.as_fd();
                    let target = RemovalCandidate {
                        held,
                        directory: &above,
                        name,
                        at_source,
                        is_directory_deleted: false,
                    };
                    return NameDeleter::new(self.lane, removal).remove(target).is_ok();
                }
                Ok(Some(_)) => {
                    // After a failure another thread was faster, or the entry is still in the way.
                    let _ = unlinkat(&held, name, AtFlags::empty());
                    return true;
                }
                Ok(None) => return true,
                Err(_) => return false,
            }
            let Ok(inner) = above.join(name) else { return false };
            above = inner;
        }
        true
    }
}

/// Returns true if the name may not be removed, wherever the directory lies beneath the source.
fn is_spared_at(removal: &SyncDeletionState, directory: &RelPath, name: &[u8], is_directory: bool) -> bool {
    possible_source_paths(directory).iter().any(|at_source| {
        let directory = RemovalDirectory { at_sink: directory, at_source, is_deleted: false };
        removal.is_spared(directory, name, is_directory)
    })
}

/// Returns the possible paths of a destination's directory beneath a source: the destination is a copy of the
/// source, or has a copy as a directory. The sink does not know yet which of the two, and spares the matches
/// of patterns at either.
fn possible_source_paths(directory: &RelPath) -> Vec<RelPath> {
    let mut places = vec![directory.clone()];
    let inner = directory.as_bytes().splitn(2, |&byte| byte == b'/').nth(1).unwrap_or_default();
    places.extend(RelPath::new(inner).ok().filter(|_| !directory.is_root()));
    places
}

fn is_empty(held: BorrowedFd<'_>, name: &[u8]) -> bool {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(held, name, flags, Mode::empty()).and_then(Dir::new).is_ok_and(|listing| {
        listing.flatten().all(|entry| matches!(entry.file_name().to_bytes(), b"." | b".."))
    })
}
