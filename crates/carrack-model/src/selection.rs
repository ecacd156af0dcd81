//! Which entries of the sources are copied.

use std::sync::Arc;

use crate::Timestamp;

/// Paths beneath a source, in any order.
pub type NameList = Arc<[Box<[u8]>]>;

/// What a scan leaves out of what it meets. By default nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Lines as in gitignore(5), which leave out or, with `!`, take in again; of those that match the last one counts. Paths
    /// begin at the source.
    pub patterns: Vec<String>,
    /// Files of fewer bytes are left out.
    pub size_min: u64,
    /// Files of more bytes are left out.
    pub size_max: Option<u64>,
    /// Files that were not modified after this are left out.
    pub newer: Option<Timestamp>,
    /// Directories on other file systems than their source's are left out.
    pub one_file_system: bool,
    /// Symbolic links are left out.
    pub skips_links: bool,
    /// Nothing but these is taken: paths beneath the source, directories with everything in them.
    pub names: Option<NameList>,
}

impl Selection {
    /// Whether nothing is left out.
    pub fn is_everything(&self) -> bool {
        *self == Selection::default()
    }
}
