//! What a user does with a far file system beside copying: look, list, make directories, remove.
//!
//! Paths begin at a [`Base`]; the last name of one is never followed. Memory and descriptors are bounded whatever a directory
//! holds and however deep a tree is: what is found is handed on at once. Everything runs on the caller's thread.

mod entry;
mod glance;
mod list;
mod remove;

#[cfg(test)]
mod tests;

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use crate::sink_file::mode_of_new_directory;
use crate::typed::last_name;
use crate::{Base, Purpose};
pub use entry::{Browsed, BrowsedKind};
pub use glance::{Glance, glance, link_text};
pub use list::Listing;
pub use remove::{Removal, RemovalCount, RemovalStep, Removing, Sparing, count_in, remove_in};

impl Base {
    /// What stands at `path`; a link is itself. The base itself, `/` and `.` have no name.
    ///
    /// # Errors
    /// As [`Base::open`].
    pub fn stat(&self, path: &Path) -> io::Result<Browsed> {
        let status = self.spot(path, Purpose::Browse)?.status(path)?;
        Ok(Browsed::of(last_name(path).unwrap_or_default(), &status))
    }

    /// Creates the directory `path`. With `parents` also what is missing on the way, and it may be there already.
    ///
    /// # Errors
    /// What `mkdir` says, `EEXIST` for the base itself; as [`Base::open`].
    pub fn make_directory(&self, path: &Path, parents: bool) -> io::Result<()> {
        match self {
            _ if !parents => self.make_child(path, mode_of_new_directory()),
            Base::Anywhere => {
                let mode = mode_of_new_directory().as_raw_mode();
                DirBuilder::new().recursive(true).mode(mode).create(path)
            }
            Base::Beneath(_) | Base::Scoped(_) => self.make_all_beneath(path, mode_of_new_directory()),
        }
    }
}
