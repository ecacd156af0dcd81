//! What of the destination goes: with `--delete` what the source has not, and what stands where another kind of entry is to be.
//!
//! Whatever the user's patterns leave out stays, and so does what is carrack's own, what an earlier run set aside, and what is mounted
//! beneath the destination; no more goes than `--max-delete` allows, for whichever reason it goes. No link is followed.

use std::ffi::OsStr;
use std::io::{self, ErrorKind};
use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use carrack_journal::id_of_file_name;
use carrack_model::{Deletion, EntryFailure, Event, FailureKind, RelPath, Selection, Sync};
use carrack_storage::{Filter, MountIdentity, RemovalCount, RemovalStep, Removing, count_in, remove_in};
use rustix::fs::{Dir, Mode, OFlags, openat};
use rustix::io::Errno;

use super::Sink;
use super::backup::{self, BackupPlace, TRASH};
use super::lane::Lane;
use crate::error::SessionError;

/// Levels of directories that are taken apart, as something in them stays, while what goes is moved to the backup or told.
const LEVELS_MAX: usize = 64;

/// What may go, in a sync.
pub(super) struct Removal {
    /// What `--delete` was given with, if it was.
    deletion: Option<Deletion>,
    filter: Option<Filter>,
    backup: Option<BackupPlace>,
    /// Entries that may still go.
    left: AtomicU64,
    /// Whether something stayed because no more may go.
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
    pub(super) fn new(sync: &Sync, selection: &Selection) -> Result<Removal, SessionError> {
        let filter = Filter::new(selection);
        let deletion = sync.deletion.clone();
        let backup = deletion.as_ref().and_then(|deletion| deletion.backup.as_ref());
        Ok(Removal {
            filter: filter.map_err(|error| SessionError::refused(error.to_string(), ""))?,
            backup: backup.map(BackupPlace::new).transpose()?,
            left: AtomicU64::new(deletion.as_ref().and_then(|deletion| deletion.most).unwrap_or(u64::MAX)),
            has_stayed: AtomicBool::new(false),
            mount_count: AtomicU64::new(0),
            deletion,
        })
    }

    /// Whether more than empty directories may go.
    pub(super) fn deletes(&self) -> bool {
        self.deletion.is_some()
    }

    /// Whether something stayed because no more may go.
    pub(super) fn has_stayed(&self) -> bool {
        self.has_stayed.load(Relaxed)
    }

    /// Whether entries are moved to a backup in place of being removed.
    pub(super) fn keeps_backup(&self) -> bool {
        self.backup.is_some()
    }

    /// The part of the destination's entries that may go, in percent, if there is a limit.
    pub(super) fn most_percent(&self) -> Option<u64> {
        self.deletion.as_ref()?.most_percent.map(u64::from)
    }

    /// Whether a destination that is the root directory or a home directory may lose entries.
    pub(super) fn is_meant_anywhere(&self) -> bool {
        self.deletion.as_ref().is_some_and(|deletion| deletion.by_empty_sources)
    }

    /// Whether what is mounted beneath the destination may be emptied.
    pub(super) fn crosses_mounts(&self) -> bool {
        self.deletion.as_ref().is_some_and(|deletion| deletion.mounts)
    }

    /// A mount stays, with everything in it.
    pub(super) fn count_mount(&self) {
        self.mount_count.fetch_add(1, Relaxed);
    }

    /// How many stayed so far.
    pub(super) fn mount_count(&self) -> u64 {
        self.mount_count.load(Relaxed)
    }

    /// Whether a name stays whatever the source has: what the user left out, and what is carrack's own. `at_source` is its
    /// directory beneath the source.
    pub(super) fn is_spared(
        &self,
        sink: &Sink<'_>,
        at_source: &RelPath,
        name: &[u8],
        is_directory: bool,
    ) -> bool {
        let is_journals = name.starts_with(b".carrack-") && name.ends_with(b".journals");
        let is_own = is_journals || id_of_file_name(name).is_some() || sink.scratch.is_own(name);
        let is_trash = is_directory && name == TRASH;
        let keeps_excluded = self.deletion.as_ref().is_none_or(|deletion| !deletion.excluded);
        is_own || is_trash || keeps_excluded && self.is_excluded(at_source, name, is_directory)
    }

    /// Whether the user's patterns leave a name out.
    pub(super) fn is_excluded(&self, at_source: &RelPath, name: &[u8], is_directory: bool) -> bool {
        self.filter.as_ref().is_some_and(|filter| filter.excludes(at_source, name, is_directory))
    }

    /// Whether a directory of the destination is a backup: that of this run, or one of an earlier run.
    pub(super) fn is_backup(&self, path: &RelPath, held: BorrowedFd<'_>) -> bool {
        self.backup.as_ref().is_some_and(|backup| backup.holds(path)) || backup::is_marked(held, b".")
    }

    /// Removes a name with everything beneath it that is not spared, or moves it to the backup, and counts what is gone. In a dry run
    /// it only tells that.
    pub(super) fn remove(&self, lane: &Lane<'_>, target: Target<'_>) -> Result<(), SessionError> {
        if lane.sink.spec.dry_run {
            return self.in_wholes(lane, target, 0, &|target, _| self.tell(lane, target));
        }
        match &self.backup {
            Some(backup) => {
                self.in_wholes(lane, target, 0, &|target, count| Self::set_aside(lane, backup, target, count))
            }
            None => self.delete(lane, target),
        }
    }

    fn delete(&self, lane: &Lane<'_>, target: Target<'_>) -> Result<(), SessionError> {
        let shown = lane.path(target.directory, target.name);
        // What is left when the session ends is left.
        let spares = |step: RemovalStep, beneath: &[u8]| {
            lane.is_stopped() || self.spares(lane.sink, target, step, beneath)
        };
        let mut failure = Ok(());
        let mut told = |removing: Removing| {
            match removing {
                Removing::Removed(count) => {
                    lane.counters.entries_deleted.fetch_add(count, Relaxed);
                }
                Removing::Mounted(_) => self.count_mount(),
                Removing::Failed { path, error } => {
                    let kind = FailureKind::WriteError;
                    let detail = format!("deleting it: {error}");
                    failure = lane.fail(EntryFailure { path, kind, detail });
                }
            }
            let goes_on = failure.is_ok() && !lane.is_stopped();
            if goes_on { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        let path = Path::new(OsStr::from_bytes(&shown));
        let name = (target.held, target.name);
        let removed = remove_in(name, path, self.crosses_mounts(), &spares, &mut told);
        match removed {
            Err(error) if error.kind() != ErrorKind::NotFound => lane.fail(failed(shown.clone(), &error)),
            _ => failure,
        }
    }

    /// Tells of a name that would go, and of everything in it.
    fn tell(&self, lane: &Lane<'_>, target: Target<'_>) -> Result<(), SessionError> {
        let tell = |_: RemovalStep, beneath: &[u8]| {
            if let Some(path) = inner(target.directory, beneath) {
                lane.report(Event::WouldDelete { path: path.as_bytes().into() });
            }
            false
        };
        count_in((target.held, target.name), self.crosses_mounts(), &tell);
        Ok(())
    }

    /// Moves a name of `count` entries to the backup.
    fn set_aside(
        lane: &Lane<'_>,
        backup: &BackupPlace,
        target: Target<'_>,
        count: u64,
    ) -> Result<(), SessionError> {
        let Some(root) = &lane.sink.root else { return Err(SessionError::Internal) };
        match backup.take_in(root, target.held, target.directory, target.name) {
            Ok(()) => {
                lane.counters.entries_deleted.fetch_add(count, Relaxed);
                Ok(())
            }
            Err(error) => Self::not_set_aside(lane, target, &error),
        }
    }

    /// Hands on a name that goes as a whole, with the number of its entries; of a directory in which something stays what may go.
    fn in_wholes(
        &self,
        lane: &Lane<'_>,
        target: Target<'_>,
        depth: usize,
        whole: &dyn Fn(Target<'_>, u64) -> Result<(), SessionError>,
    ) -> Result<(), SessionError> {
        let Target { held, directory, name, at_source } = target;
        let count = self.count(lane.sink, target);
        if count.staying == 0 {
            return if self.take(count.going) { whole(target, count.going) } else { Ok(()) };
        }
        let inner = (directory.join(name), directories_in(at_source, name));
        let (Ok(path), Some(at_source)) = inner else { return Ok(()) };
        let opened = match open_directory_in(held, name) {
            Ok(_) if depth == LEVELS_MAX => {
                return Self::not_set_aside(lane, target, &io::Error::from(Errno::LOOP));
            }
            Ok(opened) => opened,
            // No directory: it is spared itself.
            Err(Errno::NOTDIR | Errno::LOOP) => return Ok(()),
            Err(errno) => return Self::not_set_aside(lane, target, &errno.into()),
        };
        if !self.crosses_mounts() && MountIdentity::of(opened.as_fd()).ok() != MountIdentity::of(held).ok() {
            self.count_mount();
            return Ok(());
        }
        if self.spares_whole(lane.sink, target) {
            return Ok(());
        }
        let listing = Dir::read_from(&opened).map_err(io::Error::from);
        let names = listing.and_then(|listing| {
            let names = listing.map(|entry| Ok(entry?.file_name().to_bytes().to_vec()));
            names.collect::<io::Result<Vec<Vec<u8>>>>()
        });
        let names = match names {
            Ok(names) => names,
            Err(error) => return Self::not_set_aside(lane, target, &error),
        };
        for name in names.iter().filter(|name| !matches!(&name[..], b"." | b"..")) {
            let target = Target { held: opened.as_fd(), directory: &path, name, at_source: &at_source };
            self.in_wholes(lane, target, depth + 1, whole)?;
        }
        Ok(())
    }

    fn not_set_aside(lane: &Lane<'_>, target: Target<'_>, error: &io::Error) -> Result<(), SessionError> {
        let path = lane.path(target.directory, target.name);
        let detail = match lane.sink.spec.dry_run {
            true => format!("looking for what would be deleted: {error}"),
            false => format!("moving it to the backup: {error}"),
        };
        lane.fail(EntryFailure { path, kind: FailureKind::WriteError, detail })
    }

    /// What of a name would go, and what would stay.
    pub(super) fn count(&self, sink: &Sink<'_>, target: Target<'_>) -> RemovalCount {
        let spares = |step: RemovalStep, beneath: &[u8]| self.is_spared_beneath(sink, target, step, beneath);
        count_in((target.held, target.name), self.crosses_mounts(), &spares)
    }

    fn spares_whole(&self, sink: &Sink<'_>, target: Target<'_>) -> bool {
        self.is_spared_beneath(sink, target, RemovalStep::Enter, target.name)
    }

    /// Whether something stays within what goes; counts what does not.
    fn spares(&self, sink: &Sink<'_>, target: Target<'_>, step: RemovalStep, beneath: &[u8]) -> bool {
        if self.is_spared_beneath(sink, target, step, beneath) {
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
    fn take(&self, count: u64) -> bool {
        let may_go = self.left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(count)).is_ok();
        if !may_go {
            self.has_stayed.store(true, Relaxed);
        }
        may_go
    }

    fn is_spared_beneath(
        &self,
        sink: &Sink<'_>,
        target: Target<'_>,
        step: RemovalStep,
        beneath: &[u8],
    ) -> bool {
        let (above, name) = match beneath.iter().rposition(|&byte| byte == b'/') {
            Some(slash) => (&beneath[..slash], &beneath[slash + 1..]),
            None => (&b""[..], beneath),
        };
        let is_spared = |directory: &RelPath| {
            let place = inner(directory, above);
            place.is_none_or(|place| self.is_spared(sink, &place, name, step != RemovalStep::Unlink))
        };
        let is_backup = || step == RemovalStep::Enter && backup::is_marked(target.held, beneath);
        target.at_source.iter().any(is_spared) || is_backup()
    }
}

/// These directories, each followed by `name`.
fn directories_in(directories: &[RelPath], name: &[u8]) -> Option<Vec<RelPath>> {
    directories.iter().map(|directory| directory.join(name).ok()).collect()
}

fn open_directory_in(held: BorrowedFd<'_>, name: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(held, name, flags, Mode::empty())
}

/// The directory `above` beneath another; nothing if there can't be such.
fn inner(directory: &RelPath, above: &[u8]) -> Option<RelPath> {
    let mut parts = above.split(|&byte| byte == b'/').filter(|part| !part.is_empty());
    parts.try_fold(directory.clone(), |place, part| place.join(part).ok())
}

/// Why it could not be seen what is to go.
pub(super) fn failed(path: Box<[u8]>, error: &io::Error) -> EntryFailure {
    let detail = format!("looking for what is to be deleted: {error}");
    EntryFailure { path, kind: FailureKind::WriteError, detail }
}
