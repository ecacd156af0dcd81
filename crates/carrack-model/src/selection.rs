//! The selection of the entries to copy.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::Timestamp;

/// Paths relative to a source, in any order.
pub type SelectedPaths = Arc<[Box<[u8]>]>;

/// Treatment of symbolic links in a scan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum LinkPolicy {
    /// Copied as links.
    #[default]
    Copied,
    /// Left out.
    Skipped,
    /// Links whose target lies outside of the source are left out, the others copied as links.
    SafeOnly,
    /// The target is copied in place of the link, directories recursively.
    Followed,
}

/// The language of a selection's patterns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum FilterLanguage {
    /// Lines of gitignore(5), relative to the source; the last match counts.
    #[default]
    Gitignore,
    /// Filter rules of rsync(1), relative to the destination; the first match counts.
    Rsync,
    /// Filter rules of rclone, relative to the source; the first match counts.
    Rclone,
}

impl FilterLanguage {
    /// Returns true for the language that every version understands.
    pub fn is_gitignore(&self) -> bool {
        *self == FilterLanguage::Gitignore
    }
}

/// Entries that a scan leaves out, and its treatment of links. The default leaves out nothing and follows no
/// link.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScanSelection {
    /// Patterns that exclude or include, in the language `language`.
    pub patterns: Vec<String>,
    /// The language of the patterns. It is not sent if it is gitignore(5), and an end that knows no other
    /// language refuses it.
    #[serde(default, skip_serializing_if = "FilterLanguage::is_gitignore")]
    pub language: FilterLanguage,
    /// Smaller files are left out.
    pub size_min: u64,
    /// Larger files are left out.
    pub size_max: Option<u64>,
    /// Files that were not modified after this time are left out.
    pub newer: Option<Timestamp>,
    /// Directories on other file systems than their source's are left out.
    pub one_file_system: bool,
    /// Treatment of symbolic links.
    pub links: LinkPolicy,
    /// The only entries to copy: paths relative to the source, directories recursively.
    #[serde(with = "crate::json_bytes::names")]
    pub names: Option<SelectedPaths>,
}

impl ScanSelection {
    /// Returns true if nothing is left out.
    pub fn is_everything(&self) -> bool {
        *self == ScanSelection::default()
    }
}
