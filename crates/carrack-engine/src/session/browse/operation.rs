//! Operations on one path, and their results.

use std::path::PathBuf;
use std::time::Duration;

use carrack_storage::Browsed;

/// How long either end waits for the other: a caller that shows a listing to a person waits for that person, and on a
/// busy file system a thousand removals take their time.
pub(super) const PATIENCE: Duration = Duration::from_secs(300);

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
