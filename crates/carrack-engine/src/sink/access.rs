//! Directories of the destination whose modes deny their owner what is to be done in them: `carrack` makes them accessible for
//! as long as the session lasts. The journal knows their modes before they are changed, so that after a crash the next session
//! restores them.
//!
//! I/O threads enter it; [`carrack_storage::DirectoryAccess`] owns the lock.

use carrack_model::{EntryFailure, FailureKind, RelPath};
use carrack_storage::{Restoring, SinkError};

use super::context::SinkContext;
use super::lane::Lane;
use crate::error::SessionError;

/// Makes a directory accessible whose mode denies something to its owner; whether that is worth another try.
pub(super) fn grant(sink: &SinkContext<'_>, directory: &RelPath) -> bool {
    let record = |path: &RelPath, mode| {
        sink.committer.as_ref().is_none_or(|committer| committer.record_mode(path, mode).is_ok())
    };
    sink.destination.access.as_ref().is_some_and(|access| access.grant(directory, record))
}

/// Gives directories their modes back; those where that failed are told.
pub(super) fn restore_modes(sink: &SinkContext<'_>, which: Restoring) -> Vec<EntryFailure> {
    let destination = &sink.destination;
    let (Some(access), Some(root)) = (&destination.access, &destination.root) else { return Vec::new() };
    if access.is_empty() {
        return Vec::new();
    }
    let failed = access.restore(which);
    if let (true, true, Some(committer)) = (failed.is_empty(), access.is_empty(), &sink.committer) {
        committer.record_modes_restored();
    }
    let failure = |(path, errno): (RelPath, _)| EntryFailure {
        path: root.full_path(&path, b""),
        kind: FailureKind::Metadata,
        detail: format!("restoring the directory's mode: {}", std::io::Error::from(errno)),
    };
    failed.into_iter().map(failure).collect()
}

/// Nothing is written any more: gives directories their modes back, and counts those where that failed.
pub(super) fn end_access(lane: &Lane<'_>, which: Restoring) -> Result<(), SessionError> {
    restore_modes(lane.sink, which).into_iter().try_for_each(|failure| lane.fail(failure))
}

/// Does something in a directory; if its mode denies that to its owner, once more with access.
pub(super) fn with_access<T>(
    sink: &SinkContext<'_>,
    directory: &RelPath,
    mut act: impl FnMut() -> Result<T, SinkError>,
) -> Result<T, SinkError> {
    match act() {
        Err(error) if error.is_denied() && grant(sink, directory) => act(),
        answer => answer,
    }
}
