//! Chunks in place of a scan (Y3): the chunks of this session, and the end of each.
//!
//! All work made from a chunk holds a [`SourceChunkMembership`]. When the last is dropped, the source asks
//! the sink to make the chunk durable and to record it. The chunk counts as settled when the sink confirms
//! that.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use carrack_machine::{ConditionWaitAttempt, FifoConditionLock};
use carrack_model::{ByteRange, CopiedDirectoryPaths};

use crate::chunks::{ChunkOfEntries, ChunkWorkKind, SourceChunkFeed};
use crate::error::SessionError;
use crate::mailbox::MailboxWaker;

/// The kernel does not report the departure of bytes, so they are polled. Readers that have been idle for
/// this time will stay idle.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// The part of a file that this session handles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FilePart {
    /// This range; other sessions send the rest.
    Range(ByteRange),
    /// Its metadata and its name: all bytes are at the sink.
    Finish,
    /// The removal of the partial file.
    Discard,
}

impl FilePart {
    /// Returns the part for the files of a chunk, or `None` if they are whole.
    pub(super) fn of(work: ChunkWorkKind) -> Option<FilePart> {
        match work {
            ChunkWorkKind::Files | ChunkWorkKind::Close => None,
            ChunkWorkKind::Part(range) => Some(FilePart::Range(range)),
            ChunkWorkKind::Finish => Some(FilePart::Finish),
            ChunkWorkKind::Discard => Some(FilePart::Discard),
        }
    }

    /// Returns the bytes to send.
    pub(super) fn range(self) -> ByteRange {
        match self {
            FilePart::Range(range) => range,
            FilePart::Finish | FilePart::Discard => ByteRange::new(0, 0),
        }
    }
}

/// The amount of work in the lanes of a source.
pub(super) trait SourceLaneBacklog {
    /// Bytes of work that the kernel has not taken.
    fn bytes_before_kernel(&self) -> u64;

    /// Bytes that the kernel has taken and not sent.
    fn unsent_bytes(&self) -> u64;

    /// Readers without work while no object waits to be read or sent.
    fn idle_readers(&self) -> usize;

    /// Upper bound of the bytes that one reader reads at a time.
    fn object_bytes(&self) -> u64;
}

/// The chunks of a session.
pub(super) struct SessionChunks {
    feed: Arc<dyn SourceChunkFeed>,
    shared: Arc<ChunksShared>,
    /// True if this session ends the transfer.
    closes: AtomicBool,
    waiting: Mutex<SourceBottleneckStarts>,
    /// The last directory and its device: many consecutive chunks have the same directory.
    last_directory: Mutex<Option<(Arc<CopiedDirectoryPaths>, u64)>>,
}

/// Start times of the current waits.
#[derive(Default)]
struct SourceBottleneckStarts {
    /// Start of the time in which readers have been idle although the path had room. Storage latency is the
    /// reason.
    for_storage: Option<Instant>,
    /// Start of the time in which the kernel has had much to send.
    for_path: Option<Instant>,
}

struct ChunksShared {
    state: Mutex<UnsettledChunks>,
    waker: OnceLock<MailboxWaker>,
    /// Waited on until the remaining work is small enough.
    backlog: FifoConditionLock<()>,
    /// Bytes of offers without a reply. They count as work until the sink declines them.
    asked_bytes: AtomicU64,
    /// Offers without a reply; each is likely to be work for a reader.
    questions: AtomicUsize,
}

#[derive(Default)]
struct UnsettledChunks {
    /// Chunks that were taken and are not settled.
    open: BTreeSet<u64>,
    /// Those of them with acks for all objects, of which the sink was not told yet.
    ended: Vec<u64>,
    /// The sink has settled everything. Confirmations of single chunks may still follow.
    is_over: bool,
}

impl ChunksShared {
    fn state(&self) -> MutexGuard<'_, UnsettledChunks> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Membership in a chunk. The chunk ends when the last member is dropped.
#[derive(Clone)]
pub(super) struct SourceChunkMembership {
    _end: Arc<ChunkCompletionGuard>,
}

/// Bytes of an offer without a reply.
pub(super) struct OfferedBytes {
    bytes: u64,
    shared: Arc<ChunksShared>,
}

impl Drop for OfferedBytes {
    fn drop(&mut self) {
        let bytes = self.shared.asked_bytes.fetch_sub(self.bytes, Relaxed);
        let questions = self.shared.questions.fetch_sub(1, Relaxed);
        assert!(bytes >= self.bytes && questions > 0, "each question is counted until its answer");
        self.shared.backlog.change_and_wake_one(|()| ());
    }
}

struct ChunkCompletionGuard {
    number: u64,
    shared: Arc<ChunksShared>,
}

impl Drop for ChunkCompletionGuard {
    fn drop(&mut self) {
        self.shared.state().ended.push(self.number);
        if let Some(waker) = self.shared.waker.get() {
            waker.wake();
        }
    }
}

impl SessionChunks {
    pub(super) fn new(feed: Arc<dyn SourceChunkFeed>) -> SessionChunks {
        let shared = ChunksShared {
            state: Mutex::default(),
            waker: OnceLock::new(),
            backlog: FifoConditionLock::new(()),
            asked_bytes: AtomicU64::new(0),
            questions: AtomicUsize::new(0),
        };
        SessionChunks {
            feed,
            shared: Arc::new(shared),
            closes: AtomicBool::new(false),
            waiting: Mutex::default(),
            last_directory: Mutex::default(),
        }
    }

    /// Sets the waker of the comm thread, which handles ended chunks.
    pub(super) fn set_waker(&self, waker: MailboxWaker) {
        let _ = self.shared.waker.set(waker);
    }

    /// Returns the next chunk as soon as the remaining work is below the feed's threshold, or readers are
    /// idle because of storage latency. Returns `None` after the last chunk, and when the session ends.
    pub(super) fn next(
        &self,
        load: &(impl SourceLaneBacklog + ?Sized),
    ) -> Option<(ChunkOfEntries, SourceChunkMembership)> {
        let idle_bytes = self.shared.backlog.take_timed(|()| self.check_room_for_chunk(load)).ok()?;
        let chunk = self.feed.next(idle_bytes)?;
        self.shared.state().open.insert(chunk.number);
        self.closes.fetch_or(chunk.work == ChunkWorkKind::Close, Relaxed);
        let end = ChunkCompletionGuard { number: chunk.number, shared: Arc::clone(&self.shared) };
        Some((chunk, SourceChunkMembership { _end: Arc::new(end) }))
    }

    /// Returns the device of a directory, which `look` determines.
    pub(super) fn device_of(
        &self,
        directory: &Arc<CopiedDirectoryPaths>,
        look: impl FnOnce() -> Option<u64>,
    ) -> Option<u64> {
        let mut last = self.last_directory.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, device)) = last.as_ref().filter(|(known, _)| known == directory) {
            return Some(*device);
        }
        let device = look()?;
        *last = Some((Arc::clone(directory), device));
        Some(device)
    }

    /// Done, with the bytes that idle readers could read at once, when the next chunk is to be asked for.
    fn check_room_for_chunk(&self, load: &(impl SourceLaneBacklog + ?Sized)) -> ConditionWaitAttempt<u64> {
        let threshold = self.feed.threshold_bytes().max(1);
        let left = load.bytes_before_kernel() + self.shared.asked_bytes.load(Relaxed);
        let unsent = load.unsent_bytes();
        let starved = self.starved_readers(load, unsent >= threshold);
        if unsent < threshold.saturating_sub(left) || starved > 0 {
            return ConditionWaitAttempt::Done(load.object_bytes().saturating_mul(starved as u64));
        }
        ConditionWaitAttempt::Until(Instant::now() + LOOK_AGAIN)
    }

    /// Returns the readers that have been idle for a while: storage latency limits the session, and the
    /// amount read in a round trip is no measure of the possible rate. On a path that is slower than storage,
    /// objects wait in the send queue instead.
    fn starved_readers(&self, load: &(impl SourceLaneBacklog + ?Sized), path_is_slow: bool) -> usize {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if path_is_slow {
            // For a moment each object is much to send.
            if has_waited_long(&mut waiting.for_path) {
                waiting.for_storage = None;
            }
            return 0;
        }
        waiting.for_path = None;
        // Each question is likely to become work for a reader.
        let starved = load.idle_readers().saturating_sub(self.shared.questions.load(Relaxed));
        if starved > 0 && has_waited_long(&mut waiting.for_storage) { starved } else { 0 }
    }

    /// Wakes the feed after work was done.
    pub(super) fn wake_feed(&self) {
        self.shared.backlog.change_and_wake_one(|()| ());
    }

    /// Counts bytes of an offer as remaining work until the result is dropped.
    pub(super) fn add_offered_bytes(&self, bytes: u64) -> Arc<OfferedBytes> {
        self.shared.asked_bytes.fetch_add(bytes, Relaxed);
        self.shared.questions.fetch_add(1, Relaxed);
        Arc::new(OfferedBytes { bytes, shared: Arc::clone(&self.shared) })
    }

    /// Takes the ended chunks, which the sink settles next.
    pub(super) fn take_ended(&self) -> Vec<u64> {
        std::mem::take(&mut self.shared.state().ended)
    }

    /// Notes a chunk that the sink has settled.
    pub(super) fn mark_chunk_completed(&self, number: u64) -> Result<(), SessionError> {
        let mut state = self.shared.state();
        let (was_open, is_over) = (state.open.remove(&number), state.is_over);
        drop(state);
        match (was_open, is_over) {
            (true, _) => self.feed.mark_chunk_completed(number),
            (false, true) => {}
            (false, false) => {
                return Err(SessionError::Protocol(format!("chunk {number} was not to be settled")));
            }
        }
        Ok(())
    }

    /// Notes that the sink has settled all chunks.
    pub(super) fn mark_all_completed(&self) {
        let mut state = self.shared.state();
        state.is_over = true;
        let open = std::mem::take(&mut state.open);
        drop(state);
        open.into_iter().for_each(|number| self.feed.mark_chunk_completed(number));
    }

    /// Returns true if this session ends the transfer.
    pub(super) fn is_last_session(&self) -> bool {
        self.closes.load(Relaxed)
    }

    /// Ends all waiting.
    pub(super) fn close(&self) {
        self.shared.backlog.close();
        self.feed.close();
    }
}

/// Returns true if a wait has lasted for a while. The first call begins it.
fn has_waited_long(since: &mut Option<Instant>) -> bool {
    since.get_or_insert_with(Instant::now).elapsed() >= LOOK_AGAIN
}
