//! `carrack sync` where another kind of entry stands: as with rsync, what is no directory gives way to one, an empty directory to
//! what is none, and with `--delete` any directory, with everything in it that may go.
//!
//! It goes when what takes its place is complete, so that nothing is lost by a source that fails on the way; for a moment neither has the
//! name.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use carrack_model::{Event, RelPath};
use carrack_storage::{Present, Root, SinkError, look_at};
use rustix::fs::{AtFlags, Dir, Mode, OFlags, openat, unlinkat};
use rustix::io::Errno;

use super::access::with_access;
use super::context::SinkContext;
use super::deleting::Deleter;
use super::lane::Lane;
use super::removal::{Removal, Target};
use crate::error::SessionError;

/// Makes way for what a lane writes.
#[derive(Clone, Copy)]
pub(super) struct Replacement<'a> {
    lane: &'a Lane<'a>,
    sink: &'a SinkContext<'a>,
}

impl<'a> Replacement<'a> {
    pub(super) fn new(lane: &'a Lane<'a>) -> Replacement<'a> {
        Replacement { lane, sink: lane.sink }
    }

    /// Opens a directory, and makes what is missing of its path.
    pub(super) fn make_directory(&self, root: &Root, path: &RelPath) -> Result<OwnedFd, SinkError> {
        let make =
            || with_access(self.sink, path, || root.make_directory(path).map_err(SinkError::of_directory));
        match make() {
            Err(SinkError::InTheWay(_)) if self.clear_path(root, path) => make(),
            made => made,
        }
    }

    /// Places an entry; if a directory is in its way that may go, once more.
    pub(super) fn place_over<T>(
        &self,
        held: BorrowedFd<'_>,
        (directory, name): (&RelPath, &[u8]),
        place: impl Fn() -> Result<T, SinkError>,
    ) -> Result<Result<T, SinkError>, SessionError> {
        let place = || with_access(self.sink, directory, &place);
        match place() {
            Err(SinkError::InTheWay(_)) if self.make_way(held, directory, name)? => Ok(place()),
            placed => Ok(placed),
        }
    }

    /// Says before its data travels that a file can't take its name.
    pub(super) fn check_way(&self, held: BorrowedFd<'_>, name: &[u8]) -> Result<(), SinkError> {
        let looked = look_at(held, name).map_err(SinkError::of_looking)?;
        if let Some(Present::Special { special, .. }) = looked
            && !self.sink.attributes.replaced.has(&special)
        {
            return Err(SinkError::Special(special));
        }
        let is_blocked = || match &self.sink.removal {
            Some(removal) => !removal.deletes() && !is_empty(held, name),
            None => true,
        };
        if looked == Some(Present::Other) && is_blocked() {
            return Err(SinkError::InTheWay(Errno::ISDIR.into()));
        }
        Ok(())
    }

    /// In a dry run, tells of a directory that would go for an entry that is wanted.
    pub(super) fn tell_way(&self, held: BorrowedFd<'_>, directory: &RelPath, name: &[u8]) {
        let stands = || matches!(look_at(held, name), Ok(Some(Present::Other)));
        if self.sink.spec.dry_run
            && stands()
            && self.check_way(held, name).is_ok()
            && let Ok(path) = directory.join(name)
        {
            self.lane.report(Event::WouldDelete { path: path.as_bytes().into() });
        }
    }

    /// In a dry run, tells of what would go for a directory.
    pub(super) fn tell_way_of_directory(&self, path: &RelPath) {
        let stays = self.sink.spec.sync.as_ref().is_none_or(|sync| sync.ignore_existing);
        if self.sink.spec.dry_run && !stays {
            self.lane.report(Event::WouldDelete { path: path.as_bytes().into() });
        }
    }

    /// Removes a directory where another kind of entry is to be; false if something stands there still.
    pub(super) fn make_way(
        &self,
        held: BorrowedFd<'_>,
        directory: &RelPath,
        name: &[u8],
    ) -> Result<bool, SessionError> {
        assert!(self.sink.destination.root.is_some(), "nothing gives way in a dry run");
        let Some(removal) = &self.sink.removal else { return Ok(false) };
        if !matches!(look_at(held, name), Ok(Some(Present::Other))) {
            return Ok(false);
        }
        let places = places_of(directory);
        if self.is_spared_at(removal, &places, name, true) {
            return Ok(false);
        }
        if !removal.deletes() {
            return Ok(unlinkat(held, name, AtFlags::REMOVEDIR).is_ok());
        }
        Deleter::new(self.lane, removal).remove(Target { held, directory, name, at_source: &places })?;
        Ok(matches!(look_at(held, name), Ok(None)))
    }

    /// Removes what is no directory where a directory on the way is to be. Several threads may at once.
    fn clear_path(&self, root: &Root, path: &RelPath) -> bool {
        assert!(self.sink.destination.root.is_some(), "nothing gives way in a dry run");
        let Some(removal) = &self.sink.removal else { return false };
        if self.sink.spec.sync.as_ref().is_some_and(|sync| sync.ignore_existing) {
            return false;
        }
        let mut above = RelPath::root();
        for name in path.components() {
            let Ok(held) = root.open_directory(&above) else { return false };
            match look_at(held.as_fd(), name) {
                Ok(Some(Present::Other)) => {}
                Ok(Some(Present::Special { special, .. }))
                    if !self.sink.attributes.replaced.has(&special) =>
                {
                    return false;
                }
                Ok(Some(_)) if self.is_spared_at(removal, &places_of(&above), name, false) => return false,
                // A file whose name is the same to this directory.
                Ok(Some(_)) if self.sink.destination.names.is_taken(held.as_fd(), &above, name) => {
                    return false;
                }
                Ok(Some(_)) if removal.backup().is_some() => {
                    let at_source = &places_of(&above);
                    let target = Target { held: held.as_fd(), directory: &above, name, at_source };
                    return Deleter::new(self.lane, removal).remove(target).is_ok();
                }
                Ok(Some(_)) => {
                    // If it fails, another thread was faster, or it is still in the way.
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

    fn is_spared_at(&self, removal: &Removal, places: &[RelPath], name: &[u8], is_directory: bool) -> bool {
        places.iter().any(|place| removal.is_spared(place, name, is_directory))
    }
}

/// Where a directory of the destination may be beneath a source: that is the destination, or a directory in it. Which of the
/// two the sink does not know yet, and spares what patterns match at either.
fn places_of(directory: &RelPath) -> Vec<RelPath> {
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
