//! Why something could not be read at the source.

use std::io;

use carrack_model::{FailureKind, Timestamp};
use rustix::io::Errno;

/// Why a file could not be read. All but [`SourceError::Changed`] will most likely happen again at once.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// It is gone.
    #[error("no such file (any more)")]
    Missing,
    /// This user may not read it.
    #[error("permission denied")]
    Unreadable,
    /// The operating system could not read it.
    #[error("reading failed: {0}")]
    ReadError(#[source] io::Error),
    /// It is not what the scan saw: read it again with these expectations.
    #[error("it changed while it was read (now {size} bytes)")]
    Changed {
        /// Its size now, in bytes.
        size: u64,
        /// Its time of last change now.
        mtime: Timestamp,
    },
    /// It is another file than the scan has found.
    #[error("another file has taken its place since it was found")]
    Replaced,
    /// A link, directory or device stands where a file was.
    #[error("not a regular file (any more)")]
    NotRegular,
}

impl SourceError {
    /// How reports name it.
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

    /// What a failure of [`crate::Root::open_directory`] means.
    pub fn of_directory(error: io::Error) -> SourceError {
        match Errno::from_io_error(&error) {
            Some(errno) => SourceError::opening(errno),
            None => SourceError::ReadError(error),
        }
    }

    /// What a failed `open` means.
    pub(crate) fn opening(errno: Errno) -> SourceError {
        match errno {
            Errno::LOOP | Errno::NXIO | Errno::NODEV => SourceError::NotRegular,
            errno => SourceError::reading(errno),
        }
    }

    /// What any other failed call means.
    pub(crate) fn reading(errno: Errno) -> SourceError {
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
        // A directory that became something else.
        Errno::NOTDIR | Errno::LOOP => FailureKind::Changed,
        _ => FailureKind::ReadError,
    }
}

pub(crate) fn source_failure_kind_of(error: &io::Error) -> FailureKind {
    Errno::from_io_error(error).map_or(FailureKind::ReadError, source_failure_kind)
}
