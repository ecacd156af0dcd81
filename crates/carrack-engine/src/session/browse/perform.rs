//! Operations at the end that has the path.

use std::io;
use std::ops::ControlFlow;
use std::path::Path;

use carrack_model::escape;
use carrack_storage::{ListedEntry, ListingItem, PathBase, RemovalEvent};
use rustix::io::Errno;

use super::operation::{RemotePathOperation, RemotePathOperationCounts};
use crate::error::SessionError;

/// A report of an operation in progress.
pub(super) enum BrowseOutput {
    Entries(Vec<ListedEntry>),
    /// A name in the listed directory.
    Unseen {
        name: Box<[u8]>,
        error: io::Error,
    },
    /// An entry that can't be removed, by its path at this end.
    Left {
        path: Box<[u8]>,
        error: io::Error,
    },
    GoesOn,
}

/// Performs an operation; `told` ends it early with `Break`.
pub(super) fn perform(
    base: &PathBase,
    operation: RemotePathOperation,
    path: &Path,
    told: &mut dyn FnMut(BrowseOutput) -> ControlFlow<()>,
) -> io::Result<RemotePathOperationCounts> {
    match operation {
        RemotePathOperation::List => list(base, path, told),
        RemotePathOperation::Stat => stat(base, path, told),
        RemotePathOperation::MakeDirectory { parents } => {
            base.make_directory(path, parents)?;
            Ok(RemotePathOperationCounts { done_count: 1, failed_count: 0 })
        }
        RemotePathOperation::Remove { recursive } => {
            let removal = base.remove(path, recursive, &mut |removing| match removing {
                RemovalEvent::Removed(_) | RemovalEvent::Mounted(_) => told(BrowseOutput::GoesOn),
                RemovalEvent::Failed { path, error } => told(BrowseOutput::Left { path, error }),
            })?;
            Ok(RemotePathOperationCounts {
                done_count: removal.removed_count,
                failed_count: removal.failed_count,
            })
        }
    }
}

fn list(
    base: &PathBase,
    path: &Path,
    told: &mut dyn FnMut(BrowseOutput) -> ControlFlow<()>,
) -> io::Result<RemotePathOperationCounts> {
    let mut summary = RemotePathOperationCounts::default();
    let listed = base.list(path, &mut |listing| match listing {
        ListingItem::Entries(entries) => {
            summary.done_count += entries.len() as u64;
            told(BrowseOutput::Entries(entries))
        }
        ListingItem::Failed { name, error } => {
            summary.failed_count += 1;
            told(BrowseOutput::Unseen { name, error })
        }
    });
    match listed {
        Err(error) if is_no_directory(&error) => stat(base, path, told),
        listed => listed.map(|()| summary),
    }
}

/// A link is no directory either.
fn is_no_directory(error: &io::Error) -> bool {
    [Errno::NOTDIR, Errno::LOOP].iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

fn stat(
    base: &PathBase,
    path: &Path,
    told: &mut dyn FnMut(BrowseOutput) -> ControlFlow<()>,
) -> io::Result<RemotePathOperationCounts> {
    let entry = base.stat(path)?;
    // There is no further entry to end early.
    let _ = told(BrowseOutput::Entries(vec![entry]));
    Ok(RemotePathOperationCounts { done_count: 1, failed_count: 0 })
}

pub(super) fn unfeasible(path: &[u8], error: &io::Error) -> SessionError {
    SessionError::refused(format!("{}: {error}", escape(path)), "")
}

/// Returns the path of a name in a directory.
pub(super) fn join_path(directory: &[u8], name: &[u8]) -> Box<[u8]> {
    let slash: &[u8] = if directory.is_empty() || directory.ends_with(b"/") { b"" } else { b"/" };
    [directory, slash, name].concat().into()
}
