//! Errors of reads at the source.

use std::io;

use carrack_model::{FailureKind, Timestamp};
use rustix::io::Errno;

/// The reason why a file could not be read. All but [`SourceError::Changed`] will most likely recur at once.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The file is gone.
    #[error("no such file (any more)")]
    Missing,
    /// This user may not read the file.
    #[error("permission denied")]
    Unreadable,
    /// The operating system failed to read it.
    #[error("reading failed: {0}")]
    ReadError(#[source] io::Error),
    /// The file differs from the scan's entry. Read it again with these expectations.
    #[error("it changed while it was read (now {size} bytes)")]
    Changed {
        /// Its size now, in bytes.
        size: u64,
        /// Its time of last change now.
        mtime: Timestamp,
    },
    /// Another file has taken the place of the scanned file.
    #[error("another file has taken its place since it was found")]
    Replaced,
    /// A link, directory or device has taken the place of the file.
    #[error("not a regular file (any more)")]
    NotRegular,
}

impl SourceError {
    /// The name of this error in reports.
    pub fn kind(&self) -> FailureKind {
        match self {
            SourceError::Missing => FailureKind::Missing,
            SourceError::Unreadable => FailureKind::Unreadable,
            SourceError::ReadError(_) => FailureKind::ReadError,
            SourceError::Changed { .. } | SourceError::Replaced | SourceError::NotRegular => {
                FailureKind::Changed
            }
        }
    }

    /// Converts a failure of [`crate::RootDirectory::open_directory`].
    pub fn of_directory(error: io::Error) -> SourceError {
        match Errno::from_io_error(&error) {
            Some(errno) => SourceError::of_open(errno),
            None => SourceError::ReadError(error),
        }
    }

    /// Converts a failed `open`.
    pub(crate) fn of_open(errno: Errno) -> SourceError {
        match errno {
            Errno::LOOP | Errno::NXIO | Errno::NODEV => SourceError::NotRegular,
            errno => SourceError::of_call(errno),
        }
    }

    /// Converts the failure of any other call.
    pub(crate) fn of_call(errno: Errno) -> SourceError {
        match source_failure_kind(errno) {
            FailureKind::Missing => SourceError::Missing,
            FailureKind::Unreadable => SourceError::Unreadable,
            _ if errno == Errno::ISDIR => SourceError::NotRegular,
            _ => SourceError::ReadError(errno.into()),
        }
    }
}

pub(crate) fn source_failure_kind(errno: Errno) -> FailureKind {
    match errno {
        Errno::NOENT => FailureKind::Missing,
        Errno::ACCESS | Errno::PERM => FailureKind::Unreadable,
        // A directory was replaced by another type of entry.
        Errno::NOTDIR | Errno::LOOP => FailureKind::Changed,
        _ => FailureKind::ReadError,
    }
}

pub(crate) fn source_failure_kind_of(error: &io::Error) -> FailureKind {
    Errno::from_io_error(error).map_or(FailureKind::ReadError, source_failure_kind)
}
