//! Entries of the file table: one file, directory, symbolic link or special file with its metadata.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{ExtraMetadata, RelPath, SpecialFile};

/// Seconds and nanoseconds since 1970, as in `struct timespec`; seconds may be negative.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Timestamp {
    /// Whole seconds.
    pub seconds: i64,
    /// 0 to 999,999,999.
    pub nanoseconds: u32,
}

/// Metadata that are always kept; [`ExtraMetadata`] holds the rest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Metadata {
    /// Permission bits (`07777`), without the file type.
    pub mode: u32,
    /// Time of the last change of the contents.
    pub mtime: Timestamp,
}

/// Kind of an entry. Directories are no entries but sections of entries, see [`CopiedDirectoryPaths`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum EntryKind {
    /// A regular file of `size` bytes.
    Regular {
        /// Bytes.
        size: u64,
    },
    /// A symbolic link with its target, copied unchanged.
    Symlink {
        /// The link's text: 1 to 4,095 bytes, no NUL.
        target: Box<[u8]>,
    },
    /// A device, pipe or socket; only if these are kept ([`crate::KeptMetadata`]).
    Special(SpecialFile),
}

/// One name in a directory that the context gives.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Entry {
    /// Name at the sink; see [`crate::check_name`].
    pub name: Box<[u8]>,
    /// Name at the source if it differs (`cp a b`); never sent.
    pub source_name: Option<Box<[u8]>>,
    /// Kind, with size or target.
    pub kind: EntryKind,
    /// Mode and time.
    pub metadata: Metadata,
    /// Inode number at the source, which tells a file from its replacement of the same name; 0 if unknown.
    pub identity: u64,
    /// Owner and attributes, if they are kept.
    pub extras: Option<Box<ExtraMetadata>>,
}

impl Entry {
    /// Bytes of content; 0 for links and special files.
    pub fn size(&self) -> u64 {
        match self.kind {
            EntryKind::Regular { size } => size,
            EntryKind::Symlink { .. } | EntryKind::Special(_) => 0,
        }
    }

    /// Name at the source.
    pub fn name_at_source(&self) -> &[u8] {
        self.source_name.as_deref().unwrap_or(&self.name)
    }
}

/// A directory at the source and its path at the sink.
///
/// The two paths differ when several sources, or one source under another name, become one tree.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CopiedDirectoryPaths {
    /// Index of its source among the transfer's sources, from 0.
    pub root_index: u32,
    /// Path relative to that source.
    pub source: RelPath,
    /// Path relative to the transfer's destination; the empty path is the destination itself.
    pub sink: RelPath,
}

/// Some entries of one directory, as the scan finds them and the file table carries them.
///
/// The first section of a directory carries its metadata; a directory with many entries has several sections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectorySection {
    /// The entries' directory.
    pub directory: Arc<CopiedDirectoryPaths>,
    /// The directory's own metadata, set when its contents are complete; `None` if they are not kept or an
    /// earlier section had them.
    pub metadata: Option<Metadata>,
    /// Owner and attributes, if they are kept; they accompany the metadata.
    pub extras: Option<Box<ExtraMetadata>>,
    /// The entries, none for an empty directory.
    pub entries: Vec<Entry>,
}
