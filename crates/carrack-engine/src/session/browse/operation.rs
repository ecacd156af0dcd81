//! Operations on one path, and their results.

use std::path::PathBuf;
use std::time::Duration;

use carrack_storage::ListedEntry;

/// The time that either end waits for the other: a caller that shows a listing to a person waits for that
/// person, and on a busy file system a thousand removals take their time.
pub(super) const PATIENCE: Duration = Duration::from_secs(300);

/// An operation on a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemotePathOperation {
    /// List the entries of a directory; of any other entry, describe it.
    List,
    /// Describe the entry.
    Stat,
    /// Create a directory.
    MakeDirectory {
        /// Parents are created too, and the directory may exist.
        parents: bool,
    },
    /// Remove a file, a link or a directory.
    Remove {
        /// With everything in it.
        recursive: bool,
    },
}

/// A request for an operation on a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathOperationRequest {
    /// The operation.
    pub operation: RemotePathOperation,
    /// Its path. Links are not followed.
    pub path: PathBuf,
}

/// A result of an operation. Names and paths are bytes, which must be escaped for a terminal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BrowseItem {
    /// An entry of the listed directory, in no order; or the entry of the path, under its last name.
    Entry(ListedEntry),
    /// A daemon's export: its name, with which a path there begins.
    Export(Box<[u8]>),
    /// An entry that can't be examined or removed.
    Failed {
        /// Its path, as the caller knows it.
        path: Box<[u8]>,
        /// The reason, for people.
        detail: String,
    },
}

/// The counts of a finished operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemotePathOperationCounts {
    /// Entries that were described or removed; 1 for a directory that exists now.
    pub done_count: u64,
    /// Entries that failed, each of which was reported.
    pub failed_count: u64,
}
