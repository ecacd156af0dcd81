//! What an item of work says of itself: a line of JSON in its header. What it is about is in its body, an entry table
//! (`docs/formats/wire.md`), which nothing here looks into.

use carrack_plan::fleet::Tried;
use serde::{Deserialize, Serialize};

use crate::records::RECORD_VERSION;

/// An order to scan the leg's tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScanHead {
    /// [`RECORD_VERSION`].
    pub version: u32,
    /// The first attempt has 1. What an earlier one has published counts for nothing once there is a later one.
    pub attempt: u32,
}

/// A chunk, or what belongs to chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChunkHead {
    /// [`RECORD_VERSION`].
    pub version: u32,
    /// Of the scan that cut it.
    pub attempt: u32,
    /// Of the attempt's chunks, which it is, from 0 without gaps; for `Finish` and `Discard` the file's, for `Delete` and `Close` 0.
    pub number: u64,
    /// What is to be done.
    pub kind: ChunkKind,
    /// Entries in the body.
    pub entries: u64,
    /// Bytes to move.
    pub bytes: u64,
}

impl ChunkHead {
    /// A head of this version.
    pub fn new(attempt: u32, number: u64, kind: ChunkKind, entries: u64, bytes: u64) -> ChunkHead {
        ChunkHead { version: RECORD_VERSION, attempt, number, kind, entries, bytes }
    }
}

impl ChunkHead {
    /// What it is called among a transfer's items.
    pub(super) fn item(&self) -> String {
        format!("{}-{}-{}", self.attempt, self.kind.word(), self.number)
    }
}

impl ChunkKind {
    /// In ids and subjects.
    pub(super) fn word(self) -> &'static str {
        match self {
            ChunkKind::Files | ChunkKind::Part(_) => "chunk",
            ChunkKind::Finish { .. } => "finish",
            ChunkKind::Discard { .. } => "discard",
            ChunkKind::Delete => "delete",
            ChunkKind::Close => "close",
        }
    }
}

/// Who has failed an item of work, as it is kept.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct TriedRecord {
    /// [`RECORD_VERSION`].
    pub version: u32,
    #[serde(flatten)]
    pub tried: Tried,
}

/// What is to be done with an item's entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ChunkKind {
    /// Whole files and links are to be moved.
    Files,
    /// A part of one large file is.
    Part(PartOf),
    /// All parts of this file are settled: it gets its metadata and its name.
    Finish {
        /// [`PartOf::file`].
        file: u64,
    },
    /// A part of this file has failed: its temporary name goes.
    Discard {
        /// [`PartOf::file`].
        file: u64,
    },
    /// Everything is settled: what the source has not goes at the destination. A mover of an older version can't read it, and leaves it
    /// to others.
    Delete,
    /// Everything is settled: directories get their metadata, and the journals go.
    Close,
}

/// Which part of which large file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PartOf {
    /// The file: the number of the chunk that is its first part.
    pub file: u64,
    /// Which part, from 0.
    pub index: u32,
    /// How many there are.
    pub count: u32,
    /// Where it begins.
    pub offset: u64,
    /// Its bytes.
    pub len: u64,
}

/// What can stand in an item's header.
pub trait Head: Serialize + serde::de::DeserializeOwned + Send + Sync + 'static {}

impl Head for ScanHead {}
impl Head for ChunkHead {}
