//! A session whose work comes in chunks from its caller, in place of a scan (Y3).

use std::fmt;
use std::sync::Arc;

use carrack_model::ByteRange;

/// Bytes by which the opening and reading of a small file counts in loads and thresholds.
pub const FILE_COSTS_BYTES: u64 = 64 << 10;

/// The origin of a source's work. The data path calls it; an implementation may wait for a network.
pub trait SourceChunkFeed: Send + Sync {
    /// Waits for the next chunk and returns it; `None` after the last one, and the session ends well when all
    /// is done. One thread calls it. `idle_bytes` is what idle readers could read at once beyond the
    /// threshold: small chunks are then fetched several in one request.
    fn next(&self, idle_bytes: u64) -> Option<ChunkOfEntries>;

    /// Returns the bytes of remaining work below which the next chunk is requested.
    fn threshold_bytes(&self) -> u64;

    /// Notes a chunk whose entries are durable at the sink and in its journal, or were reported as failed.
    /// Called on the comm thread: must not wait.
    fn mark_chunk_completed(&self, number: u64);

    /// Notes the end of the session: [`SourceChunkFeed::next`] must not wait any more.
    fn close(&self);
}

/// A piece of work, and its entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChunkOfEntries {
    /// Its unique number in this session, by which it is settled.
    pub number: u64,
    /// The work.
    pub work: ChunkWorkKind,
    /// True if some of its entries may be at the sink already: it is offered before it is sent.
    pub is_repeated: bool,
    /// An entry table (`docs/formats/wire.md`) of regular files, links and directories beneath the transfer's
    /// root.
    pub table: Vec<u8>,
    /// The name of the only entry at the source, if it differs from that at the sink.
    pub source_name: Option<Vec<u8>>,
}

/// The work on a chunk's entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChunkWorkKind {
    /// Copy them.
    Files,
    /// Copy this range of its only file, to which other sessions write too.
    Part(ByteRange),
    /// Set the metadata and the names of files that were sent in parts, and are complete now.
    Finish,
    /// Remove the temporary files of files that were sent in parts.
    Discard,
    /// The last chunk of a transfer: set the metadata of the directories, and remove the journals.
    Close,
}

/// The feed of a transfer.
#[derive(Clone)]
pub struct ChunkFeedHandle(pub Arc<dyn SourceChunkFeed>);

impl fmt::Debug for ChunkFeedHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ChunkFeedHandle")
    }
}
