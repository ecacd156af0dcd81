//! Work that comes chunk by chunk in place of a scan (Y3): which chunks this session has, and when one is at its end.
//!
//! Everything that is made of a chunk holds an [`InChunk`]; when the last of them is dropped, the sink is told to make the chunk
//! durable and to record it, and only when it has done so the chunk counts as settled.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use carrack_machine::{Attempt, Monitor};
use carrack_model::ByteRange;

use super::lane::Lane;
use crate::chunks::{Chunk, ChunkFeed, ChunkWork};
use crate::error::SessionError;
use crate::mailbox::Waker;

/// The kernel does not say when it has sent something.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// What of a file is this session's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FilePart {
    /// These bytes; others bring the rest.
    Range(ByteRange),
    /// Its metadata and its name: all bytes are there.
    Finish,
    /// The end of what is there of it.
    Discard,
}

impl FilePart {
    /// Of the files of a chunk; nothing if they are whole.
    pub(super) fn of(work: ChunkWork) -> Option<FilePart> {
        match work {
            ChunkWork::Files | ChunkWork::Close => None,
            ChunkWork::Part(range) => Some(FilePart::Range(range)),
            ChunkWork::Finish => Some(FilePart::Finish),
            ChunkWork::Discard => Some(FilePart::Discard),
        }
    }

    /// The bytes that are to be sent.
    pub(super) fn range(self) -> ByteRange {
        match self {
            FilePart::Range(range) => range,
            FilePart::Finish | FilePart::Discard => ByteRange::new(0, 0),
        }
    }
}

/// The chunks of a session.
pub(super) struct Chunks {
    feed: Arc<dyn ChunkFeed>,
    shared: Arc<Shared>,
    /// Whether this session ends the transfer.
    closes: AtomicBool,
}

struct Shared {
    state: Mutex<State>,
    waker: OnceLock<Waker>,
    /// Waited on until little enough is left to do.
    backlog: Monitor<()>,
    /// Bytes of which the sink was asked whether it wants them: work, until it has said that it does not.
    asked_bytes: AtomicU64,
}

#[derive(Default)]
struct State {
    /// Chunks that were taken and are not settled.
    open: BTreeSet<u64>,
    /// Those of them of which everything was answered, and the sink was not told yet.
    ended: Vec<u64>,
    /// The sink has settled everything; what it says of single ones may come after that.
    is_over: bool,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Belongs to a chunk. The chunk is at its end when no part of it holds one any more.
#[derive(Clone)]
pub(super) struct InChunk {
    _end: Arc<End>,
}

/// Bytes of which the sink was asked whether it wants them.
pub(super) struct Asked {
    bytes: u64,
    shared: Arc<Shared>,
}

impl Drop for Asked {
    fn drop(&mut self) {
        self.shared.asked_bytes.fetch_sub(self.bytes, Relaxed);
        self.shared.backlog.release(|()| ());
    }
}

struct End {
    number: u64,
    shared: Arc<Shared>,
}

impl Drop for End {
    fn drop(&mut self) {
        self.shared.state().ended.push(self.number);
        if let Some(waker) = self.shared.waker.get() {
            waker.wake();
        }
    }
}

impl Chunks {
    pub(super) fn new(feed: Arc<dyn ChunkFeed>) -> Chunks {
        let shared = Shared {
            state: Mutex::default(),
            waker: OnceLock::new(),
            backlog: Monitor::new(()),
            asked_bytes: AtomicU64::new(0),
        };
        Chunks { feed, shared: Arc::new(shared), closes: AtomicBool::new(false) }
    }

    /// The comm thread of this lane is told of chunks that are at their end.
    pub(super) fn tell(&self, lane: &Lane<'_>) {
        let _ = self.shared.waker.set(lane.mail.waker());
    }

    /// The next chunk, when less is left to do than the feed's threshold; nothing when there are no more, or the session ends.
    pub(super) fn next(&self, lanes: &[Lane<'_>]) -> Option<(Chunk, InChunk)> {
        let asked = || self.shared.asked_bytes.load(Relaxed);
        let left = || lanes.iter().map(Lane::left_bytes).sum::<u64>() + asked();
        let unsent = || lanes.iter().map(Lane::unsent_bytes).sum::<u64>();
        let has_little = || match self.feed.threshold_bytes().max(1).saturating_sub(left()) {
            0 => Attempt::NotYet,
            room if unsent() < room => Attempt::Done(()),
            _ => Attempt::Until(Instant::now() + LOOK_AGAIN),
        };
        self.shared.backlog.take_timed(|()| has_little()).ok()?;
        let chunk = self.feed.next()?;
        self.shared.state().open.insert(chunk.number);
        self.closes.fetch_or(chunk.work == ChunkWork::Close, Relaxed);
        let end = End { number: chunk.number, shared: Arc::clone(&self.shared) };
        Some((chunk, InChunk { _end: Arc::new(end) }))
    }

    /// Less is left to do.
    pub(super) fn progressed(&self) {
        self.shared.backlog.release(|()| ());
    }

    /// The sink is asked for so many bytes; they count as left to do as long as this lives.
    pub(super) fn asked(&self, bytes: u64) -> Arc<Asked> {
        self.shared.asked_bytes.fetch_add(bytes, Relaxed);
        Arc::new(Asked { bytes, shared: Arc::clone(&self.shared) })
    }

    /// Chunks that the sink has to settle.
    pub(super) fn take_ended(&self) -> Vec<u64> {
        std::mem::take(&mut self.shared.state().ended)
    }

    /// The sink has settled it.
    pub(super) fn settled(&self, number: u64) -> Result<(), SessionError> {
        let mut state = self.shared.state();
        let (was_open, is_over) = (state.open.remove(&number), state.is_over);
        drop(state);
        match (was_open, is_over) {
            (true, _) => self.feed.settled(number),
            (false, true) => {}
            (false, false) => {
                return Err(SessionError::Protocol(format!("chunk {number} was not to be settled")));
            }
        }
        Ok(())
    }

    /// The sink has settled everything.
    pub(super) fn all_settled(&self) {
        let mut state = self.shared.state();
        state.is_over = true;
        let open = std::mem::take(&mut state.open);
        drop(state);
        open.into_iter().for_each(|number| self.feed.settled(number));
    }

    /// Whether this session ends the transfer.
    pub(super) fn closes(&self) -> bool {
        self.closes.load(Relaxed)
    }

    /// Nobody waits any more.
    pub(super) fn close(&self) {
        self.shared.backlog.close();
        self.feed.close();
    }
}
