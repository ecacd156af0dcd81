//! What of the destination goes: with `--delete` what the source has not, and what stands where another kind of entry is to be.
//!
//! Whatever the user's patterns leave out stays, and so does what is carrack's own; no more goes than `--max-delete` allows,
//! for whichever reason it goes. No link is followed.

use std::ffi::OsStr;
use std::io::{self, ErrorKind};
use std::ops::ControlFlow;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use carrack_journal::id_of_file_name;
use carrack_model::{EntryFailure, FailureKind, RelPath, Selection, Sync};
use carrack_storage::{Filter, RemovalStep, Removing, remove_in};

use super::Sink;
use super::lane::Lane;
use crate::error::SessionError;

/// What may go, in a sync.
pub(super) struct Removal {
    /// Whether `--delete` was given.
    deletes: bool,
    filter: Option<Filter>,
    /// Entries that may still go.
    left: AtomicU64,
    /// Whether something stayed because no more may go.
    has_stayed: AtomicBool,
}

impl Removal {
    pub(super) fn new(sync: &Sync, selection: &Selection) -> Result<Removal, SessionError> {
        let filter = Filter::new(selection);
        Ok(Removal {
            deletes: sync.deletion.is_some(),
            filter: filter.map_err(|error| SessionError::refused(error.to_string(), ""))?,
            left: AtomicU64::new(sync.deletion.and_then(|deletion| deletion.most).unwrap_or(u64::MAX)),
            has_stayed: AtomicBool::new(false),
        })
    }

    /// Whether more than empty directories may go.
    pub(super) fn deletes(&self) -> bool {
        self.deletes
    }

    /// Whether something stayed because no more may go.
    pub(super) fn has_stayed(&self) -> bool {
        self.has_stayed.load(Relaxed)
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
        is_own || self.filter.as_ref().is_some_and(|filter| filter.excludes(at_source, name, is_directory))
    }

    /// Removes a name with everything beneath it that is not spared, and counts what is gone. People know it as `shown`; where its
    /// directory may be beneath the source says `at_source`: what is spared at one of these places stays.
    pub(super) fn remove(
        &self,
        lane: &Lane<'_>,
        (held, name): (BorrowedFd<'_>, &[u8]),
        shown: &[u8],
        at_source: &[RelPath],
    ) -> Result<(), SessionError> {
        let spares = |step: RemovalStep, beneath: &[u8]| self.spares(lane.sink, at_source, step, beneath);
        let mut failure = Ok(());
        let mut told = |removing: Removing| {
            match removing {
                Removing::Removed(count) => {
                    lane.counters.entries_deleted.fetch_add(count, Relaxed);
                }
                Removing::Failed { path, error } => {
                    let kind = FailureKind::WriteError;
                    let detail = format!("deleting it: {error}");
                    failure = lane.fail(EntryFailure { path, kind, detail });
                }
            }
            let goes_on = failure.is_ok() && !lane.is_stopped();
            if goes_on { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        let removed = remove_in(held, name, Path::new(OsStr::from_bytes(shown)), &spares, &mut told);
        match removed {
            Err(error) if error.kind() != ErrorKind::NotFound => lane.fail(failed(shown.into(), &error)),
            _ => failure,
        }
    }

    /// Whether something stays within what goes; counts what does not.
    fn spares(&self, sink: &Sink<'_>, at_source: &[RelPath], step: RemovalStep, beneath: &[u8]) -> bool {
        let (above, name) = match beneath.iter().rposition(|&byte| byte == b'/') {
            Some(slash) => (&beneath[..slash], &beneath[slash + 1..]),
            None => (&b""[..], beneath),
        };
        let is_spared = |directory: &RelPath| {
            let place = inner(directory, above);
            place.is_none_or(|place| self.is_spared(sink, &place, name, step != RemovalStep::Unlink))
        };
        if at_source.iter().any(is_spared) {
            return true;
        }
        let takes = |left: u64| if step == RemovalStep::Enter { Some(left) } else { left.checked_sub(1) };
        let may_go = self.left.fetch_update(Relaxed, Relaxed, |left| (left > 0).then(|| takes(left))?);
        if may_go.is_err() {
            self.has_stayed.store(true, Relaxed);
        }
        may_go.is_err()
    }
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
