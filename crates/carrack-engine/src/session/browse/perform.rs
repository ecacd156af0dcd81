//! Operations at the end that has the path.

use std::io;
use std::ops::ControlFlow;
use std::path::Path;

use carrack_model::escape;
use carrack_storage::{Base, Browsed, Listing, Removing};
use rustix::io::Errno;

use super::operation::{BrowseSummary, Operation};
use crate::error::SessionError;

/// A report of an operation in progress.
pub(super) enum Told {
    Entries(Vec<Browsed>),
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
    base: &Base,
    operation: Operation,
    path: &Path,
    told: &mut dyn FnMut(Told) -> ControlFlow<()>,
) -> io::Result<BrowseSummary> {
    match operation {
        Operation::List => list(base, path, told),
        Operation::Stat => stat(base, path, told),
        Operation::MakeDirectory { parents } => {
            base.make_directory(path, parents)?;
            Ok(BrowseSummary { done_count: 1, failed_count: 0 })
        }
        Operation::Remove { recursive } => {
            let removal = base.remove(path, recursive, &mut |removing| match removing {
                Removing::Removed(_) | Removing::Mounted(_) => told(Told::GoesOn),
                Removing::Failed { path, error } => told(Told::Left { path, error }),
            })?;
            Ok(BrowseSummary { done_count: removal.removed_count, failed_count: removal.failed_count })
        }
    }
}

fn list(
    base: &Base,
    path: &Path,
    told: &mut dyn FnMut(Told) -> ControlFlow<()>,
) -> io::Result<BrowseSummary> {
    let mut summary = BrowseSummary::default();
    let listed = base.list(path, &mut |listing| match listing {
        Listing::Entries(entries) => {
            summary.done_count += entries.len() as u64;
            told(Told::Entries(entries))
        }
        Listing::Failed { name, error } => {
            summary.failed_count += 1;
            told(Told::Unseen { name, error })
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
    base: &Base,
    path: &Path,
    told: &mut dyn FnMut(Told) -> ControlFlow<()>,
) -> io::Result<BrowseSummary> {
    let entry = base.stat(path)?;
    // There is no further entry to end early.
    let _ = told(Told::Entries(vec![entry]));
    Ok(BrowseSummary { done_count: 1, failed_count: 0 })
}

pub(super) fn unfeasible(path: &[u8], error: &io::Error) -> SessionError {
    SessionError::refused(format!("{}: {error}", escape(path)), "")
}

/// Returns the path of a name in a directory.
pub(super) fn beneath(directory: &[u8], name: &[u8]) -> Box<[u8]> {
    let slash: &[u8] = if directory.is_empty() || directory.ends_with(b"/") { b"" } else { b"/" };
    [directory, slash, name].concat().into()
}
