//! The queue between a session, whose thread waits for chunks, and the task that gets them from NATS.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use carrack_engine::{ChunkOfEntries, SourceChunkFeed};
use tokio::sync::{Notify, mpsc};

/// One session's feed.
pub(super) struct MoverPairChunkFeed {
    state: Mutex<PairFeedState>,
    /// Signals a chunk, or the end of chunks.
    given: Condvar,
    /// Signals a request for a chunk, or the end of requests.
    wanted: Notify,
    /// Signals that there may be ends of large files, that the session has taken a chunk, or that it will
    /// take none again.
    taken: Notify,
    threshold_bytes: AtomicU64,
    settled: mpsc::UnboundedSender<u64>,
}

#[derive(Default)]
struct PairFeedState {
    /// The session waits for a chunk, and its idle readers could read these bytes at once.
    wanted_for: Option<u64>,
    /// There may be ends of large files.
    takes_file_ends: bool,
    /// Chunks that the session has not taken yet.
    stock: VecDeque<ChunkOfEntries>,
    /// No further chunks come; the session ends when it has done its chunks.
    is_ended: bool,
    /// The session has ended.
    is_closed: bool,
}

impl PairFeedState {
    /// Returns true if no further chunks come, or the session takes none.
    fn is_over(&self) -> bool {
        self.is_ended || self.is_closed
    }
}

impl MoverPairChunkFeed {
    /// Creates a feed. The numbers of settled chunks go into `settled`.
    pub fn new(threshold_bytes: u64, settled: mpsc::UnboundedSender<u64>) -> MoverPairChunkFeed {
        MoverPairChunkFeed {
            state: Mutex::default(),
            given: Condvar::new(),
            wanted: Notify::new(),
            taken: Notify::new(),
            threshold_bytes: AtomicU64::new(threshold_bytes),
            settled,
        }
    }

    fn state(&self) -> MutexGuard<'_, PairFeedState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the session wants a chunk. Returns the bytes that its idle readers could read at once;
    /// `None` if it will never want a chunk again.
    pub async fn wait_for_demand(&self) -> Option<u64> {
        loop {
            {
                let state = self.state();
                if state.is_over() {
                    return None;
                }
                if state.wanted_for.is_some() && state.stock.is_empty() {
                    return state.wanted_for;
                }
            }
            self.wanted.notified().await;
        }
    }

    /// Notes that there may be ends of large files.
    pub fn take_file_ends(&self) {
        self.state().takes_file_ends = true;
        self.taken.notify_one();
    }

    /// Waits until there may be ends of large files, and the session has taken all chunks; returns false if
    /// it will never take one again.
    pub async fn wait_for_file_ends(&self) -> bool {
        loop {
            {
                let state = self.state();
                if state.is_over() {
                    return false;
                }
                if state.takes_file_ends && state.stock.is_empty() {
                    return true;
                }
            }
            self.taken.notified().await;
        }
    }

    /// Adds a chunk.
    pub fn add_chunk(&self, chunk: ChunkOfEntries) {
        self.state().stock.push_back(chunk);
        self.given.notify_all();
    }

    /// Ends the feed: no further chunks come.
    pub fn end(&self) {
        self.state().is_ended = true;
        self.wake_all();
    }

    /// Wakes the session and both tasks that wait for it.
    fn wake_all(&self) {
        self.given.notify_all();
        self.wanted.notify_one();
        self.taken.notify_one();
    }

    /// Returns true if no further chunks may be added.
    pub fn is_ended(&self) -> bool {
        self.state().is_over()
    }

    /// Sets the remaining work at which the next chunk is requested.
    pub fn set_threshold(&self, bytes: u64) {
        self.threshold_bytes.store(bytes, Relaxed);
    }
}

impl SourceChunkFeed for MoverPairChunkFeed {
    fn next(&self, idle_bytes: u64) -> Option<ChunkOfEntries> {
        let mut state = self.state();
        state.wanted_for = Some(idle_bytes);
        self.wanted.notify_one();
        let waited = self.given.wait_while(state, |state| state.stock.is_empty() && !state.is_over());
        let mut state = waited.unwrap_or_else(PoisonError::into_inner);
        state.wanted_for = None;
        let chunk = state.stock.pop_front();
        drop(state);
        self.taken.notify_one();
        chunk
    }

    fn threshold_bytes(&self) -> u64 {
        self.threshold_bytes.load(Relaxed)
    }

    fn mark_chunk_completed(&self, number: u64) {
        // The receiver lives as long as the session.
        let _ = self.settled.send(number);
    }

    fn close(&self) {
        self.state().is_closed = true;
        self.wake_all();
    }
}
