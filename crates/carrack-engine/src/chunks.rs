//! A session whose work comes in chunks from somebody else, in place of a scan (Y3).

use std::fmt;
use std::sync::Arc;

use carrack_model::ByteRange;

/// Bytes for which opening and reading a small file counts when loads are compared, and thresholds.
pub const FILE_COSTS_BYTES: u64 = 64 << 10;

/// Where a source's work comes from. The data path calls it; what is behind it may wait for a network.
pub trait ChunkFeed: Send + Sync {
    /// Waits for the next chunk and returns it; `None` after the last one, and the session ends well when all is done.
    /// One thread calls it. `idle_bytes` is what idle readers could read at once beyond the threshold: small chunks
    /// are then fetched several in one request.
    fn next(&self, idle_bytes: u64) -> Option<Chunk>;

    /// The next chunk is asked for when less than so many bytes are left to do.
    fn threshold_bytes(&self) -> u64;

    /// Everything of the chunk is durable at the sink and in its journal, or was reported as failed. On the comm thread: must
    /// not wait.
    fn settled(&self, number: u64);

    /// The session is over, and [`ChunkFeed::next`] must not wait any more.
    fn close(&self);
}

/// What is to be done, and of what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Its number in this session, by which it is settled; each once.
    pub number: u64,
    /// What is to be done.
    pub work: ChunkWork,
    /// Whether something of it may be at the sink already: it is offered before it is sent.
    pub is_repeated: bool,
    /// An entry table (`docs/formats/wire.md`) of regular files, links and directories beneath the transfer's root.
    pub table: Vec<u8>,
    /// The name at the source of the only entry, if it is to have another one at the sink.
    pub source_name: Option<Vec<u8>>,
}

/// What is to be done with a chunk's entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChunkWork {
    /// Copy them.
    Files,
    /// Copy these bytes of its only file, to which other sessions write too.
    Part(ByteRange),
    /// Give the files that came in parts, and are whole by now, their metadata and their names.
    Finish,
    /// Take away what there is of files that came in parts.
    Discard,
    /// The last chunk of a transfer: set the metadata of the directories, and take away the journals.
    Close,
}

/// The feed of a transfer.
#[derive(Clone)]
pub struct Feed(pub Arc<dyn ChunkFeed>);

impl fmt::Debug for Feed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Feed")
    }
}
