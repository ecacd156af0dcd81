//! Entries of the file table: one file, directory, symbolic link or special file with its metadata.

use std::sync::Arc;

use crate::{Extras, RelPath, Special};

/// Seconds and nanoseconds since 1970, as `struct timespec` has them; seconds may be negative.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Timestamp {
    /// Whole seconds.
    pub seconds: i64,
    /// 0 to 999,999,999.
    pub nanoseconds: u32,
}

/// What is always kept of an entry beside its contents; [`Extras`] have the rest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Metadata {
    /// Permission bits (`07777`), without the file type.
    pub mode: u32,
    /// Time of the last change of the contents.
    pub mtime: Timestamp,
}

/// What an entry is. Directories are not entries but the sections that entries stand in, see [`Directory`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum EntryKind {
    /// A regular file of `size` bytes.
    Regular {
        /// Bytes.
        size: u64,
    },
    /// A symbolic link and where it points, copied as it is.
    Symlink {
        /// The link's text: 1 to 4,095 bytes, no NUL.
        target: Box<[u8]>,
    },
    /// A device, pipe or socket; only where these are kept ([`crate::Kept`]).
    Special(Special),
}

/// One name within a directory that the reader knows from the context.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Entry {
    /// Its name at the sink; see [`crate::check_name`].
    pub name: Box<[u8]>,
    /// Its name at the source where that is another (`cp a b`); never travels.
    pub source_name: Option<Box<[u8]>>,
    /// What it is.
    pub kind: EntryKind,
    /// Its metadata.
    pub metadata: Metadata,
    /// Its inode number at the source, by which a file that took another's place is told from it; 0 where it is not
    /// known.
    pub identity: u64,
    /// Its owner and attributes, where they are kept.
    pub extras: Option<Box<Extras>>,
}

impl Entry {
    /// Bytes of content; 0 for what has none.
    pub fn size(&self) -> u64 {
        match self.kind {
            EntryKind::Regular { size } => size,
            EntryKind::Symlink { .. } | EntryKind::Special(_) => 0,
        }
    }

    /// Its name at the source.
    pub fn name_at_source(&self) -> &[u8] {
        self.source_name.as_deref().unwrap_or(&self.name)
    }
}

/// A directory at the source and where its entries go at the sink.
///
/// The two paths differ when several sources, or one source under another name, become one tree.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Directory {
    /// Which of the transfer's sources it belongs to, counted from 0.
    pub root_index: u32,
    /// Beneath that source's root.
    pub source: RelPath,
    /// Beneath the transfer's destination; the empty path is the destination itself.
    pub sink: RelPath,
}

/// Some entries of one directory, as the scan finds them and as the file table carries them.
///
/// The first section of a directory carries its metadata; a directory with many entries has several sections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// Where the entries stand.
    pub directory: Arc<Directory>,
    /// The directory's own metadata, to be set when everything in it is complete; nothing where it is left alone
    /// or was named before.
    pub metadata: Option<Metadata>,
    /// Its owner and attributes, where they are kept; they come with the metadata.
    pub extras: Option<Box<Extras>>,
    /// The entries, none for an empty directory.
    pub entries: Vec<Entry>,
}
