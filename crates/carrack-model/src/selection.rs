//! Which entries of the sources are copied.

use std::sync::Arc;

use crate::Timestamp;

/// Paths beneath a source, in any order.
pub type NameList = Arc<[Box<[u8]>]>;

/// What becomes of the symbolic links that a scan meets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LinkPolicy {
    /// Copied as links.
    #[default]
    Copied,
    /// Left out.
    Skipped,
    /// Those whose text leads out of the source are left out, the others copied as links.
    SafeOnly,
    /// Copied as what they lead to, directories with everything in them.
    Followed,
}

/// What a scan leaves out of what it meets, and whether it follows links. By default it does neither.
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
    /// What becomes of symbolic links.
    pub links: LinkPolicy,
    /// Nothing but these is taken: paths beneath the source, directories with everything in them.
    pub names: Option<NameList>,
}

impl Selection {
    /// Whether nothing is left out.
    pub fn is_everything(&self) -> bool {
        *self == Selection::default()
    }
}
