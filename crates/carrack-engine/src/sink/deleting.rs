//! The deletion of entries of the destination: unlinked, moved to the backup, or in a dry run only reported.
//! Links are not followed.
//!
//! Several I/O threads delete at once, each another name; [`super::removal_rules`] decides which entries may
//! be deleted.

use std::ffi::OsStr;
use std::io::{self, ErrorKind};
use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;

use carrack_model::{EntryFailure, FailureKind, RelPath, TransferEvent};
use carrack_storage::{MountIdentity, RemovalEvent, count_removable, remove_in};
use rustix::fs::{Dir, Mode, OFlags, openat};
use rustix::io::Errno;

use super::backup::BackupPlace;
use super::lane::SinkLane;
use super::removal_rules::{RemovalCandidate, SyncDeletionState, join_below};
use crate::error::SessionError;

/// Levels of directories of which some entries stay while the others are moved to the backup or reported.
const LEVELS_MAX: usize = 64;

/// Deletes names for a lane.
#[derive(Clone, Copy)]
pub(super) struct NameDeleter<'a> {
    lane: &'a SinkLane<'a>,
    removal: &'a SyncDeletionState,
}

impl<'a> NameDeleter<'a> {
    pub(super) fn new(lane: &'a SinkLane<'a>, removal: &'a SyncDeletionState) -> NameDeleter<'a> {
        NameDeleter { lane, removal }
    }

    /// Deletes a name with everything beneath it that is not spared, or moves it to the backup, and counts
    /// the deleted entries. In a dry run it only reports them.
    pub(super) fn remove(&self, target: RemovalCandidate<'_>) -> Result<(), SessionError> {
        let is_name = !target.name.is_empty() && !target.name.contains(&b'/');
        assert!(is_name && target.name != b"..", "what goes is one name of its directory");
        if self.lane.sink.spec.dry_run {
            return self.visit_deletable_names(target, 0, &|target, _| self.report_would_delete(target));
        }
        match self.removal.backup() {
            Some(backup) => {
                self.visit_deletable_names(target, 0, &|target, count| self.set_aside(backup, target, count))
            }
            None => self.delete(target),
        }
    }

    fn delete(&self, target: RemovalCandidate<'_>) -> Result<(), SessionError> {
        assert!(!self.lane.sink.spec.dry_run, "nothing is removed in a dry run");
        let shown = self.lane.sink.destination.path(target.directory, target.name);
        let mut failure = Ok(());
        let path = Path::new(OsStr::from_bytes(&shown));
        let name = (target.held, target.name);
        let removed = remove_in(
            name,
            path,
            self.removal.crosses_mounts(),
            // Entries that are left when the session ends are spared.
            &|step, beneath| self.lane.is_stopped() || self.removal.spares(target, step, beneath),
            &mut |removing| {
                if let Err(error) = self.handle_removal_event(removing) {
                    failure = Err(error);
                }
                let goes_on = failure.is_ok() && !self.lane.is_stopped();
                if goes_on { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            },
        );
        match removed {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                self.lane.fail(failed(shown.clone(), &error))
            }
            _ => failure,
        }
    }

    /// Counts a step of a deletion, or reports its failure.
    fn handle_removal_event(&self, removing: RemovalEvent) -> Result<(), SessionError> {
        match removing {
            RemovalEvent::Removed(count) => {
                self.lane.counters.entries_deleted.fetch_add(count, Relaxed);
                Ok(())
            }
            RemovalEvent::Mounted(_) => {
                self.removal.count_mount();
                Ok(())
            }
            RemovalEvent::Failed { path, error } => {
                let kind = FailureKind::WriteError;
                let detail = format!("deleting it: {error}");
                self.lane.fail(EntryFailure { path, kind, detail })
            }
        }
    }

    /// Reports a name that would be deleted, and everything in it.
    fn report_would_delete(&self, target: RemovalCandidate<'_>) -> Result<(), SessionError> {
        count_removable((target.held, target.name), self.removal.crosses_mounts(), &|_, beneath| {
            if let Some(path) = join_below(target.directory, beneath) {
                self.lane.report(TransferEvent::WouldDelete { path: path.as_bytes().into() });
            }
            false
        });
        Ok(())
    }

    /// Moves a name of `count` entries to the backup.
    fn set_aside(
        &self,
        backup: &BackupPlace,
        target: RemovalCandidate<'_>,
        count: u64,
    ) -> Result<(), SessionError> {
        assert!(!self.lane.sink.spec.dry_run, "nothing is moved in a dry run");
        let Some(root) = &self.lane.sink.destination.root else { return Err(SessionError::Internal) };
        match backup.take_in(root, target.held, target.directory, target.name) {
            Ok(()) => {
                self.lane.counters.entries_deleted.fetch_add(count, Relaxed);
                Ok(())
            }
            Err(error) => self.report_backup_failure(target, &error),
        }
    }

    /// Passes a name that is deleted as a whole to `whole`, with the number of its entries. Of a directory in
    /// which some entries stay, it passes those that may be deleted.
    fn visit_deletable_names(
        &self,
        target: RemovalCandidate<'_>,
        depth: usize,
        whole: &dyn Fn(RemovalCandidate<'_>, u64) -> Result<(), SessionError>,
    ) -> Result<(), SessionError> {
        assert!(depth <= LEVELS_MAX, "levels that are taken apart are counted");
        let RemovalCandidate { held, directory, name, at_source, .. } = target;
        let count = self.removal.count(target);
        if count.staying == 0 {
            return if self.removal.consume_limit(count.going) { whole(target, count.going) } else { Ok(()) };
        }
        let inner = (directory.join(name), directories_in(at_source, name));
        let (Ok(path), Some(at_source)) = inner else { return Ok(()) };
        let opened = match open_directory_in(held, name) {
            Ok(_) if depth == LEVELS_MAX => {
                return self.report_backup_failure(target, &io::Error::from(Errno::LOOP));
            }
            Ok(opened) => opened,
            // An entry other than a directory is spared itself.
            Err(Errno::NOTDIR | Errno::LOOP) => return Ok(()),
            Err(errno) => return self.report_backup_failure(target, &errno.into()),
        };
        if !self.removal.crosses_mounts()
            && MountIdentity::of(opened.as_fd()).ok() != MountIdentity::of(held).ok()
        {
            self.removal.count_mount();
            return Ok(());
        }
        if self.removal.spares_whole(target) {
            return Ok(());
        }
        let listing = Dir::read_from(&opened).map_err(io::Error::from);
        let names = listing.and_then(|listing| {
            let names = listing.map(|entry| Ok(entry?.file_name().to_bytes().to_vec()));
            names.collect::<io::Result<Vec<Vec<u8>>>>()
        });
        let names = match names {
            Ok(names) => names,
            Err(error) => return self.report_backup_failure(target, &error),
        };
        for name in names.iter().filter(|name| !matches!(&name[..], b"." | b"..")) {
            let (held, at_source) = (opened.as_fd(), &at_source);
            let target =
                RemovalCandidate { held, directory: &path, name, at_source, is_directory_deleted: true };
            self.visit_deletable_names(target, depth + 1, whole)?;
        }
        Ok(())
    }

    fn report_backup_failure(
        &self,
        target: RemovalCandidate<'_>,
        error: &io::Error,
    ) -> Result<(), SessionError> {
        let path = self.lane.sink.destination.path(target.directory, target.name);
        let detail = if self.lane.sink.spec.dry_run {
            format!("looking for what would be deleted: {error}")
        } else {
            format!("moving it to the backup: {error}")
        };
        self.lane.fail(EntryFailure { path, kind: FailureKind::WriteError, detail })
    }
}

/// Returns these directories, each followed by `name`.
fn directories_in(directories: &[RelPath], name: &[u8]) -> Option<Vec<RelPath>> {
    directories.iter().map(|directory| directory.join(name).ok()).collect()
}

fn open_directory_in(held: BorrowedFd<'_>, name: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(held, name, flags, Mode::empty())
}

/// The failure of a search for entries to delete.
pub(super) fn failed(path: Box<[u8]>, error: &io::Error) -> EntryFailure {
    let detail = format!("looking for what is to be deleted: {error}");
    EntryFailure { path, kind: FailureKind::WriteError, detail }
}
