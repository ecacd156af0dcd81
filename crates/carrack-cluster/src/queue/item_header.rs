//! Descriptions of work items: a line of JSON in a message's header. The body is an entry table
//! (`docs/formats/wire.md`), which nothing here reads.

use carrack_plan::fleet::FailedMovers;
use serde::{Deserialize, Serialize};

use crate::transfer_records::RECORD_VERSION;

/// An order to scan the leg's tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScanWorkHeader {
    /// [`RECORD_VERSION`].
    pub version: u32,
    /// The attempt, from 1. Results of an earlier attempt don't count once there is a later one.
    pub attempt: u32,
}

/// A chunk, or another work item for movers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkItemHeader {
    /// [`RECORD_VERSION`].
    pub version: u32,
    /// The scan attempt that cut it.
    pub attempt: u32,
    /// Number among the attempt's chunks, from 0 without gaps; for `Finish` and `Discard` that of the file,
    /// for `Delete` and `Close` 0.
    pub number: u64,
    /// The work.
    pub kind: WorkItemKind,
    /// Entries in the body.
    pub entries: u64,
    /// Bytes to move.
    pub bytes: u64,
}

impl WorkItemHeader {
    /// Creates a head of this version.
    pub fn new(attempt: u32, number: u64, kind: WorkItemKind, entries: u64, bytes: u64) -> WorkItemHeader {
        WorkItemHeader { version: RECORD_VERSION, attempt, number, kind, entries, bytes }
    }
}

impl WorkItemHeader {
    /// Returns the item's name among those of its transfer.
    pub(super) fn item_name(&self) -> String {
        format!("{}-{}-{}", self.attempt, self.kind.as_str(), self.number)
    }
}

impl WorkItemKind {
    /// Returns the word for IDs and subjects.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            WorkItemKind::Files | WorkItemKind::Part(_) => "chunk",
            WorkItemKind::Finish { .. } => "finish",
            WorkItemKind::Discard { .. } => "discard",
            WorkItemKind::Delete => "delete",
            WorkItemKind::Close => "close",
        }
    }
}

/// The stored record of movers that have failed an item.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct FailedMoversRecord {
    /// [`RECORD_VERSION`].
    pub version: u32,
    #[serde(flatten)]
    pub tried: FailedMovers,
}

/// The work on an item's entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WorkItemKind {
    /// Move whole files and links.
    Files,
    /// Move a part of one large file.
    Part(FilePartRange),
    /// All parts of this file are settled: it gets its metadata and its name.
    Finish {
        /// [`FilePartRange::file`].
        file: u64,
    },
    /// A part of this file has failed: remove its temporary file.
    Discard {
        /// [`FilePartRange::file`].
        file: u64,
    },
    /// Everything is settled: remove the destination entries that the source lacks. A mover of an older
    /// version can't read this item, and leaves it to others.
    Delete,
    /// Everything is settled: directories get their metadata, and journals are removed.
    Close,
}

/// A part of a large file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct FilePartRange {
    /// The file: the number of the chunk with its first part.
    pub file: u64,
    /// Index of the part, from 0.
    pub index: u32,
    /// Number of all parts.
    pub count: u32,
    /// Offset of the part.
    pub offset: u64,
    /// Length of the part in bytes.
    pub len: u64,
}

/// A description in an item's header.
pub trait QueueItemHeader: Serialize + serde::de::DeserializeOwned + Send + Sync + 'static {}

impl QueueItemHeader for ScanWorkHeader {}
impl QueueItemHeader for WorkItemHeader {}
