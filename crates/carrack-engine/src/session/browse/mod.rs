//! Sessions in which nothing is copied: looking around, making directories, removing.
//!
//! One path in each, one thread at either end, and no data connections. What is found is handed on as it comes, batch
//! by batch, so that neither end holds the list of a directory, and the called end is as fast as the caller reads.

mod answer;
mod call;
mod message;

use std::io;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use carrack_model::escape;
use carrack_storage::{Base, Browsed, Listing, Removing};
use rustix::io::Errno;

pub(super) use answer::answer;
pub use call::browse;
pub(super) use message::KINDS;

use crate::abort::Abort;
use crate::error::SessionError;

/// How long either end waits for the other: a caller that shows a listing to a person waits for that person, and on a
/// busy file system a thousand removals take their time.
const PATIENCE: Duration = Duration::from_secs(300);

/// What to do with a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Tell what is in a directory; of anything else, what it is.
    List,
    /// Tell what stands there.
    Stat,
    /// Make a directory.
    MakeDirectory {
        /// Those above too, and it may be there already.
        parents: bool,
    },
    /// Remove a file, a link or a directory.
    Remove {
        /// With everything in it.
        recursive: bool,
    },
}

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Browsing {
    /// What to do.
    pub operation: Operation,
    /// With what. Links are not followed.
    pub path: PathBuf,
}

/// What comes of it, one after the other. Names and paths are bytes, not for a terminal as they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// Something in the directory that is listed, in no order; or what stands at the path, under its last name.
    Entry(Browsed),
    /// A daemon's export: its name, by which a path there begins.
    Export(Box<[u8]>),
    /// Something that can't be looked at or removed.
    Failed {
        /// Its path, as the caller knows it.
        path: Box<[u8]>,
        /// Why, for people.
        detail: String,
    },
}

/// How it ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BrowseSummary {
    /// Entries that were told, or are gone; 1 for a directory that is there now.
    pub done_count: u64,
    /// Entries that failed, each of which was told.
    pub failed_count: u64,
}

/// The same on this host, with the user's own view of its files; `found` ends it early with `Break`.
///
/// # Errors
/// [`SessionError::Refused`] with what the system says.
pub fn browse_here(
    browsing: &Browsing,
    found: &mut dyn FnMut(Found) -> ControlFlow<()>,
    abort: &Abort,
) -> Result<BrowseSummary, SessionError> {
    let path = browsing.path.as_os_str().as_bytes();
    let summary = perform(&Base::Anywhere, browsing.operation, &browsing.path, &mut |told| match told {
        _ if abort.is_set() => ControlFlow::Break(()),
        Told::Entries(entries) => entries.into_iter().try_for_each(|entry| found(Found::Entry(entry))),
        Told::Unseen { name, error } => {
            found(Found::Failed { path: beneath(path, &name), detail: error.to_string() })
        }
        Told::Left { path, error } => found(Found::Failed { path, detail: error.to_string() }),
        Told::GoesOn => ControlFlow::Continue(()),
    });
    match summary {
        _ if abort.is_set() => Err(SessionError::Interrupted),
        summary => summary.map_err(|error| unfeasible(path, &error)),
    }
}

/// What an end tells of its work.
enum Told {
    Entries(Vec<Browsed>),
    /// A name in the directory that is listed.
    Unseen {
        name: Box<[u8]>,
        error: io::Error,
    },
    /// What can't be removed, by its path here.
    Left {
        path: Box<[u8]>,
        error: io::Error,
    },
    GoesOn,
}

/// Does it; `told` ends it early with `Break`.
fn perform(
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

/// A link is none either.
fn is_no_directory(error: &io::Error) -> bool {
    [Errno::NOTDIR, Errno::LOOP].iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

fn stat(
    base: &Base,
    path: &Path,
    told: &mut dyn FnMut(Told) -> ControlFlow<()>,
) -> io::Result<BrowseSummary> {
    let entry = base.stat(path)?;
    // Whether more is wanted or not, there is no more.
    let _ = told(Told::Entries(vec![entry]));
    Ok(BrowseSummary { done_count: 1, failed_count: 0 })
}

fn unfeasible(path: &[u8], error: &io::Error) -> SessionError {
    SessionError::refused(format!("{}: {error}", escape(path)), "")
}

/// The path of a name in a directory.
fn beneath(directory: &[u8], name: &[u8]) -> Box<[u8]> {
    let slash: &[u8] = if directory.is_empty() || directory.ends_with(b"/") { b"" } else { b"/" };
    [directory, slash, name].concat().into()
}
