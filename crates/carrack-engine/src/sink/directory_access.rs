//! Access to directories of the destination whose modes deny their owner an operation.
//!
//! `carrack` makes such a directory accessible until the session ends. The journal records a mode before it
//! is changed, so that after a crash the next session restores it.
//!
//! I/O threads call this module; [`carrack_storage::ChangedDirectoryModes`] owns the lock.

use carrack_model::{EntryFailure, FailureKind, RelPath};
use carrack_storage::{RestoredDirectorySelection, SinkError};

use super::context::SinkContext;
use super::lane::SinkLane;
use crate::error::SessionError;

/// Makes a directory accessible whose mode denies something to its owner. Returns true if the operation is
/// worth another try.
pub(super) fn grant_access(sink: &SinkContext<'_>, directory: &RelPath) -> bool {
    let Some(access) = &sink.destination.access else { return false };
    access.grant(directory, |path, mode| {
        sink.committer.as_ref().is_none_or(|committer| committer.record_mode(path, mode).is_ok())
    })
}

/// Restores the modes of directories, and returns those where that failed.
pub(super) fn restore_modes(sink: &SinkContext<'_>, which: RestoredDirectorySelection) -> Vec<EntryFailure> {
    let destination = &sink.destination;
    let (Some(access), Some(root)) = (&destination.access, &destination.root) else { return Vec::new() };
    if access.is_empty() {
        return Vec::new();
    }
    let failed = access.restore(which);
    if let (true, true, Some(committer)) = (failed.is_empty(), access.is_empty(), &sink.committer) {
        committer.record_modes_restored();
    }
    let failures = failed.into_iter().map(|(path, errno)| EntryFailure {
        path: root.full_path(&path, b""),
        kind: FailureKind::Metadata,
        detail: format!("restoring the directory's mode: {}", std::io::Error::from(errno)),
    });
    failures.collect()
}

/// Restores the modes of directories after the last write, and counts those where that failed.
pub(super) fn restore_modes_and_report(
    lane: &SinkLane<'_>,
    which: RestoredDirectorySelection,
) -> Result<(), SessionError> {
    restore_modes(lane.sink, which).into_iter().try_for_each(|failure| lane.fail(failure))
}

/// Performs `act` in a directory, and once more with access if the directory's mode denies it to its owner.
pub(super) fn with_access<T>(
    sink: &SinkContext<'_>,
    directory: &RelPath,
    mut act: impl FnMut() -> Result<T, SinkError>,
) -> Result<T, SinkError> {
    match act() {
        Err(error) if error.is_denied() && grant_access(sink, directory) => act(),
        answer => answer,
    }
}
