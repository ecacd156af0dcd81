//! Between a session, whose thread waits for chunks, and the task that gets them from NATS.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use carrack_engine::{Chunk, ChunkFeed};
use tokio::sync::{Notify, mpsc};

/// One session's feed.
pub(super) struct PairFeed {
    state: Mutex<State>,
    /// A chunk is there, or none will be.
    given: Condvar,
    /// A chunk is wanted, or none will be.
    wanted: Notify,
    threshold_bytes: AtomicU64,
    settled: mpsc::UnboundedSender<u64>,
}

#[derive(Default)]
struct State {
    /// The session waits for a chunk, and its idle readers could read these bytes at once.
    wanted_for: Option<u64>,
    /// What was got and not taken yet.
    stock: VecDeque<Chunk>,
    /// No further chunks come; the session ends when it has done what it has.
    is_ended: bool,
    /// The session is over.
    is_closed: bool,
}

impl PairFeed {
    /// The numbers of settled chunks go into `settled`.
    pub fn new(threshold_bytes: u64, settled: mpsc::UnboundedSender<u64>) -> PairFeed {
        PairFeed {
            state: Mutex::default(),
            given: Condvar::new(),
            wanted: Notify::new(),
            threshold_bytes: AtomicU64::new(threshold_bytes),
            settled,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the session wants a chunk. Returns the bytes that its idle readers could read at once; `None` if
    /// it will never want a chunk again.
    pub async fn wants(&self) -> Option<u64> {
        loop {
            {
                let state = self.state();
                if state.is_closed || state.is_ended {
                    return None;
                }
                if state.wanted_for.is_some() && state.stock.is_empty() {
                    return state.wanted_for;
                }
            }
            self.wanted.notified().await;
        }
    }

    /// Gives a chunk.
    pub fn give(&self, chunk: Chunk) {
        self.state().stock.push_back(chunk);
        self.given.notify_all();
    }

    /// No further chunks come.
    pub fn end(&self) {
        self.state().is_ended = true;
        self.given.notify_all();
        self.wanted.notify_one();
    }

    /// Whether no further chunks are to be given.
    pub fn is_ended(&self) -> bool {
        let state = self.state();
        state.is_ended || state.is_closed
    }

    /// How much may be left to do when the next chunk is asked for.
    pub fn set_threshold(&self, bytes: u64) {
        self.threshold_bytes.store(bytes, Relaxed);
    }
}

impl ChunkFeed for PairFeed {
    fn next(&self, idle_bytes: u64) -> Option<Chunk> {
        let mut state = self.state();
        state.wanted_for = Some(idle_bytes);
        self.wanted.notify_one();
        let is_waiting = |state: &mut State| state.stock.is_empty() && !state.is_ended && !state.is_closed;
        let mut state = self.given.wait_while(state, is_waiting).unwrap_or_else(PoisonError::into_inner);
        state.wanted_for = None;
        state.stock.pop_front()
    }

    fn threshold_bytes(&self) -> u64 {
        self.threshold_bytes.load(Relaxed)
    }

    fn settled(&self, number: u64) {
        // Whoever listens does so until the session is over.
        let _ = self.settled.send(number);
    }

    fn close(&self) {
        self.state().is_closed = true;
        self.given.notify_all();
        self.wanted.notify_one();
    }
}
