//! The findings of a comparison, and their counts.

use carrack_model::{ByteRange, RelPath, Side};
use carrack_storage::BrowsedKind;
use serde::Serialize;

use super::metadata::MetadataDifference;

/// Something that is not as it should be, or that can't be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Beneath the destination, empty for the destination itself; with [`Difference::Unwalked`], and what an older end skipped, as the end
    /// knows it that met it. Bytes, not for a terminal as they are.
    pub path: Box<[u8]>,
    /// What is wrong.
    pub what: Difference,
}

/// What is wrong with one entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Difference {
    /// Nothing stands at the destination.
    Missing,
    /// Nothing stands at the source.
    Extra,
    /// They are not of one kind.
    Kind {
        /// What it should be.
        source: BrowsedKind,
        /// What it is.
        sink: BrowsedKind,
    },
    /// A file of another size.
    Size {
        /// Bytes that it should have.
        source: u64,
        /// Bytes that it has.
        sink: u64,
    },
    /// A file with other contents.
    Content {
        /// Where, in order. They begin and end at multiples of 1 KiB, or of 1 MiB where very much of the file differs; of a part counted from
        /// its beginning.
        ranges: Vec<ByteRange>,
        /// There are more.
        is_cut: bool,
    },
    /// A file with another digest than the manifest's.
    Digest,
    /// A link that leads elsewhere.
    Link,
    /// A device of another kind, or with other numbers.
    Device,
    /// Metadata that are not the same. The contents may differ, too, which is told apart.
    Metadata(Vec<MetadataDifference>),
    /// It can't be read, or changed meanwhile.
    Unreadable {
        /// At which end.
        side: Side,
        /// Why, in words.
        detail: String,
    },
    /// A directory can't be listed, or an entry of it not looked at.
    Unwalked {
        /// At which end.
        side: Side,
        /// Why, in words.
        detail: String,
    },
    /// A pipe, socket or device of the source that the destination does not have, or that an older end does not compare.
    Skipped {
        /// What it is, such as "a socket".
        what: String,
    },
}

/// What came of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Verified {
    /// Entries that are as they should be: files, directories and links.
    pub equal: u64,
    /// Of those, files that an earlier run had compared and nobody has changed since.
    pub known: u64,
    /// Bytes of files that are equal.
    pub bytes_equal: u64,
    /// Bytes that this run had the destination read.
    pub bytes_read: u64,
    /// Entries that differ, missing ones among them; each once, whatever differs of it.
    pub differing: u64,
    /// Entries at the destination that the source does not have; counted where they were asked for.
    pub extra: u64,
    /// Entries that can't be compared, because one end can't read them.
    pub unreadable: u64,
    /// Pipes, sockets and devices of the source that the destination does not have.
    pub skipped: u64,
    /// The part of a file that was compared, and nothing else; nothing where all was.
    #[serde(skip)]
    pub part: Option<ByteRange>,
}

impl Verified {
    /// Entries that are not as they should be.
    pub fn failed(&self) -> u64 {
        self.differing + self.extra + self.unreadable
    }

    pub(super) fn count(&mut self, what: &Difference) {
        let counter = match what {
            Difference::Extra => &mut self.extra,
            Difference::Unreadable { .. } | Difference::Unwalked { .. } => &mut self.unreadable,
            Difference::Skipped { .. } => &mut self.skipped,
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
