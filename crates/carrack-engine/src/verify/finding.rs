//! The findings of a comparison, and their counts.

use carrack_model::{ByteRange, FailureSide, RelPath};
use carrack_storage::BrowsedKind;
use serde::Serialize;

use super::metadata::MetadataDifference;

/// A difference, or an entry that can't be compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifyFinding {
    /// The path beneath the destination, empty for the destination itself. With
    /// [`EntryDifference::Unwalked`], and for entries that an older end skipped, the path at that end. Bytes,
    /// which must be escaped for a terminal.
    pub path: Box<[u8]>,
    /// The difference.
    pub what: EntryDifference,
}

/// The difference of one entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntryDifference {
    /// The destination has no such entry.
    Missing,
    /// The source has no such entry.
    Extra,
    /// The entries are of different kinds.
    Kind {
        /// The kind at the source.
        source: BrowsedKind,
        /// The kind at the destination.
        sink: BrowsedKind,
    },
    /// A file of another size.
    Size {
        /// Bytes at the source.
        source: u64,
        /// Bytes at the destination.
        sink: u64,
    },
    /// A file with other contents.
    Content {
        /// The differing ranges, in order. They begin and end at multiples of 1 KiB, or of 1 MiB if very much
        /// of the file differs; in a part these are counted from its beginning.
        ranges: Vec<ByteRange>,
        /// True if there are more.
        is_cut: bool,
    },
    /// A file with another digest than the manifest's.
    Digest,
    /// A link with another target.
    Link,
    /// A device of another kind, or with other numbers.
    Device,
    /// Different metadata. A difference of contents is reported separately.
    Metadata(Vec<MetadataDifference>),
    /// The entry can't be read, or changed meanwhile.
    Unreadable {
        /// The end with the error.
        side: FailureSide,
        /// The reason as a text.
        detail: String,
    },
    /// A directory that can't be listed, or an entry of a directory that can't be examined.
    Unwalked {
        /// The end with the error.
        side: FailureSide,
        /// The reason as a text.
        detail: String,
    },
    /// A pipe, socket or device of the source that the destination does not have, or that an older end does
    /// not compare.
    Skipped {
        /// The kind, such as "a socket".
        what: String,
    },
}

/// The counts of a comparison.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct VerifyTotals {
    /// Entries without a difference: files, directories and links.
    pub equal: u64,
    /// Files among them that an earlier run had compared, and that have not changed since.
    pub known: u64,
    /// Bytes of files that are equal.
    pub bytes_equal: u64,
    /// Bytes that this run has read at the destination.
    pub bytes_read: u64,
    /// Entries that differ, including missing ones; each counts once.
    pub differing: u64,
    /// Entries at the destination that the source does not have, if they were searched.
    pub extra: u64,
    /// Entries that can't be read at one of the ends.
    pub unreadable: u64,
    /// Pipes, sockets and devices of the source that the destination does not have.
    pub skipped: u64,
    /// The part of a file that was compared; `None` for whole files.
    #[serde(skip)]
    pub part: Option<ByteRange>,
}

impl VerifyTotals {
    /// Entries with a difference or an error.
    pub fn failed(&self) -> u64 {
        self.differing + self.extra + self.unreadable
    }

    pub(super) fn count(&mut self, what: &EntryDifference) {
        let counter = match what {
            EntryDifference::Extra => &mut self.extra,
            EntryDifference::Unreadable { .. } | EntryDifference::Unwalked { .. } => &mut self.unreadable,
            EntryDifference::Skipped { .. } => &mut self.skipped,
            _ => &mut self.differing,
        };
        *counter += 1;
    }
}

/// The path of a name in a directory; an empty name is the directory itself.
pub(super) fn path_of(directory: &RelPath, name: &[u8]) -> Box<[u8]> {
    let slash: &[u8] = if directory.is_root() || name.is_empty() { b"" } else { b"/" };
    [directory.as_bytes(), slash, name].concat().into()
}
