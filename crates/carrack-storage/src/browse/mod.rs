//! Operations on a remote file system other than copies: status, listing, new directories, removal.
//!
//! Paths start at a [`PathBase`], and their last name is never followed. Memory and descriptors are bounded
//! for directories of any size and trees of any depth, as entries are handed on at once. Everything runs on
//! the caller's thread.

mod entry;
mod entry_state;
mod list;
mod remove;

#[cfg(test)]
mod tests;

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use crate::small_file_placement::mode_of_new_directory;
use crate::typed_path::last_name;
use crate::{PathBase, PathPurpose};
pub use entry::{BrowsedKind, ListedEntry};
pub use entry_state::{EntryStatResult, link_text, read_entry_state};
pub use list::ListingItem;
pub use remove::{
    RemovalEvent, RemovalExclusion, RemovalPreviewCount, RemovalStep, TreeRemovalResult, count_removable,
    remove_in,
};

impl PathBase {
    /// The entry at `path`, without following a link. The base itself, `/` and `.` have no name.
    ///
    /// # Errors
    /// As [`PathBase::open`].
    pub fn stat(&self, path: &Path) -> io::Result<ListedEntry> {
        let status = self.spot(path, PathPurpose::Browse)?.status(path)?;
        Ok(ListedEntry::of(last_name(path).unwrap_or_default(), &status))
    }

    /// Creates the directory `path`. With `parents` missing ancestors are created, too, and an existing
    /// directory is no error.
    ///
    /// # Errors
    /// Those of `mkdir`, `EEXIST` for the base itself; as [`PathBase::open`].
    pub fn make_directory(&self, path: &Path, parents: bool) -> io::Result<()> {
        match self {
            _ if !parents => self.make_child(path, mode_of_new_directory()),
            PathBase::Anywhere => {
                let mode = mode_of_new_directory().as_raw_mode();
                DirBuilder::new().recursive(true).mode(mode).create(path)
            }
            PathBase::Beneath(_) | PathBase::Scoped(_) => {
                self.make_all_beneath(path, mode_of_new_directory())
            }
        }
    }
}
