//! One lane of the source (N2): its queues, slots, connections and files. Lanes share the context, and no
//! value that changes while an object passes through.
//!
//! All threads of the lane use it. Each component has its own lock. [`super::run`] starts the threads.

use std::io;
use std::sync::atomic::Ordering::Relaxed;

use carrack_layout::TargetAttachmentKind;
use carrack_machine::{LaneCrew, SlotPool};
use carrack_model::{
    EntryFailure, FailureKind, ObjectChecksumAlgorithm, ObjectId, TargetId, TransferEvent, UserNotice,
    text_without_errno,
};
use carrack_storage::ScanRetries;
use carrack_transport::TransportSendEndpoint;
use carrack_wire::message::ControlMessage;

use super::backlog::LaneBacklog;
use super::chunks::SourceLaneBacklog;
use super::context::SourceContext;
use super::file_table::SourceFileTable;
use super::in_flight::InFlightObjects;
use super::large_file::OpenSourceLargeFile;
use super::read_queue::ReadQueue;
use super::send_queue::SendQueue;
use super::sizing::LaneThreadStreamCounts;
use super::work::ObjectFlowControlKey;
use crate::counters::EndCounters;
use crate::error::SessionError;
use crate::event_delivery::deliver;
use crate::first_error::{FirstSessionError, SessionErrorListener};
use crate::mailbox::CommMailbox;
use crate::spill::LaneSpill;
use crate::storage_retries::{RetryingLane, may_pass};

/// The number of objects read ahead from memory. Reading faster than the sink takes gains nothing there and
/// costs cache: a pool of 256 MiB filled from tmpfs made the transfer a fifth slower. From disks the limit is
/// the number of slots.
const READY_MAX_MEMORY: usize = 4;

/// The state that the threads of one lane share.
pub(super) struct SourceLane<'a> {
    /// The context that all lanes share.
    pub(super) source: &'a SourceContext<'a>,
    pub(super) pool: SlotPool,
    pub(super) crew: LaneCrew,
    pub(super) read_queue: ReadQueue,
    pub(super) send_queue: SendQueue,
    /// Flash logs for objects without credits.
    pub(super) spills: Vec<LaneSpill<Option<ObjectFlowControlKey>>>,
    /// Objects in flight, with the work to do when the sink acks them.
    pub(super) in_flight: InFlightObjects,
    /// Large files between their announcement and their end.
    pub(super) files: SourceFileTable,
    /// Counts of unfinished work.
    pub(super) backlog: LaneBacklog,
    /// Control messages for the comm thread to queue.
    pub(super) mail: CommMailbox<Vec<u8>>,
    pub(super) counters: EndCounters,
    pub(super) fault: FirstSessionError,
}

impl<'a> SourceLane<'a> {
    pub(super) fn new(
        source: &'a SourceContext<'a>,
        endpoints: Vec<Box<dyn TransportSendEndpoint>>,
        sizing: &LaneThreadStreamCounts,
        pool: SlotPool,
        crew: LaneCrew,
        spills: Vec<LaneSpill<Option<ObjectFlowControlKey>>>,
    ) -> Result<SourceLane<'a>, SessionError> {
        assert!(pool.slot_count() > 0, "an object is read into a slot");
        let spilt_max: usize = spills.iter().map(LaneSpill::slot_count).sum();
        let ready_max =
            if source.sizing.is_memory { READY_MAX_MEMORY } else { pool.slot_count() + spilt_max };
        let (streams, credits) = (sizing.streams_at_start, source.sizing.credits);
        let share = source.share.as_deref();
        Ok(SourceLane {
            source,
            pool,
            crew,
            read_queue: ReadQueue::new(sizing.threads_at_start, &source.sizing, source.settings, share),
            send_queue: SendQueue::new(endpoints, streams, credits, ready_max),
            spills,
            in_flight: InFlightObjects::default(),
            files: SourceFileTable::default(),
            backlog: LaneBacklog::default(),
            mail: CommMailbox::new().map_err(SessionError::local("making an eventfd"))?,
            counters: EndCounters::default(),
            fault: FirstSessionError::default(),
        })
    }

    /// Runs a request to a target's storage, which is repeated after an error that may pass.
    pub(super) fn request<T, E: std::fmt::Display>(
        &self,
        target: TargetId,
        request: impl FnMut(u32) -> Result<T, E>,
        may_pass: impl Fn(&E) -> bool,
    ) -> Result<T, E> {
        self.source.tree.requests.run_with_retries(Some(target), self, request, may_pass)
    }

    /// Returns true if the session has ended, and waiting for the peer is pointless.
    pub(super) fn is_stopped(&self) -> bool {
        self.fault.has_ended()
    }

    pub(super) fn raise(&self, error: SessionError) {
        self.fault.raise(error, self);
    }

    /// Ends one bundle or large file, with any outcome.
    pub(super) fn end_item(&self) {
        if self.backlog.end_one() {
            self.mail.wake();
            self.wake_chunk_feed();
        }
    }

    /// Ends a large file, with any outcome.
    pub(super) fn end_large_file(&self) {
        self.read_queue.return_permit();
        self.end_item();
    }

    /// Returns the bytes of work of an object, or 0 if departures are not counted.
    pub(super) fn departing_bytes(&self, object: ObjectId) -> u64 {
        match self.source.chunks {
            Some(_) => self.in_flight.work_bytes(object),
            None => 0,
        }
    }

    /// Counts bytes of work that the kernel has taken.
    pub(super) fn count_departed(&self, work_bytes: u64) {
        if work_bytes > 0 {
            self.backlog.count_departed(work_bytes);
            self.wake_chunk_feed();
        }
    }

    /// Counts bytes of work that will leave again.
    pub(super) fn count_returned(&self, work_bytes: u64) {
        if self.source.chunks.is_some() {
            self.backlog.count_returned(work_bytes);
        }
    }

    /// Counts bytes of work that the sink has acked.
    pub(super) fn count_answered(&self, work_bytes: u64) {
        self.backlog.count_answered(work_bytes);
        self.wake_chunk_feed();
    }

    /// Wakes the chunk feed, which waits for progress.
    fn wake_chunk_feed(&self) {
        if let Some(chunks) = &self.source.chunks {
            chunks.wake_feed();
        }
    }

    /// Returns true if each I/O thread has an object in its hands and another waiting. Further work should
    /// then go to another lane (N7).
    pub(super) fn is_saturated(&self) -> bool {
        let objects = 2 * self.read_queue.threads_at_start() as u64;
        self.backlog.bytes() >= objects * u64::from(self.source.spec.slot_bytes)
    }

    /// Returns true if data connections may send objects straight from the page cache, as their bytes have no
    /// checksum.
    pub(super) fn sends_from_files(&self) -> bool {
        self.send_queue.sends_extents && self.source.spec.checksum == ObjectChecksumAlgorithm::None
    }

    /// Returns true if the transport may send the file's objects straight from the page cache. A retried file
    /// is read into slots. So is an inline-announced file, which is not checked after its last object.
    pub(super) fn sends_from_file(&self, file: &OpenSourceLargeFile) -> bool {
        self.sends_from_files()
            && file.found.attempts == 0
            && !file.is_inline_announced()
            && !file.source.is_direct()
    }

    pub(super) fn fail(&self, failure: EntryFailure) {
        self.counters.entries_failed.fetch_add(1, Relaxed);
        let detail = text_without_errno(&failure.detail);
        self.report(TransferEvent::Failed(EntryFailure { detail, ..failure }));
    }

    pub(super) fn fail_path(&self, path: Box<[u8]>, kind: FailureKind, detail: impl ToString) {
        self.fail(EntryFailure { path, kind, detail: detail.to_string() });
    }

    /// Delivers an event to the user, at either end. Not for the comm thread.
    pub(super) fn report(&self, event: TransferEvent) {
        deliver(event, self.source.observer, |message| self.send_message(message));
    }

    /// Sends a message. Not for the comm thread. A session that ends needs no more messages.
    pub(super) fn send_message(&self, message: ControlMessage) {
        let _ = self.mail.post(message.to_body());
    }
}

impl SourceLaneBacklog for [SourceLane<'_>] {
    fn bytes_before_kernel(&self) -> u64 {
        self.iter().map(|lane| lane.backlog.bytes_before_kernel()).sum()
    }

    fn unsent_bytes(&self) -> u64 {
        self.iter().map(|lane| lane.send_queue.unsent_bytes()).sum()
    }

    fn idle_readers(&self) -> usize {
        let counts = self.iter().map(|lane| {
            let is_busy = lane.send_queue.fill().0 > 0 || lane.read_queue.has_work();
            let idle = lane.read_queue.waiter_count().min(lane.read_queue.reader_count());
            if is_busy { 0 } else { idle }
        });
        counts.sum()
    }

    fn object_bytes(&self) -> u64 {
        self.first().map_or(0, |lane| u64::from(lane.source.spec.slot_bytes))
    }
}

impl RetryingLane for SourceLane<'_> {
    fn is_stopped(&self) -> bool {
        self.fault.has_ended()
    }

    fn target(&self, id: TargetId) -> Option<(TargetAttachmentKind, String)> {
        let file_systems = &self.source.tree.file_systems;
        Some((file_systems.target(id)?.medium, file_systems.target_description(id)?))
    }

    fn notify(&self, notice: UserNotice) {
        self.report(TransferEvent::Notice(notice));
    }
}

/// The scan's requests are to the first source's file system, as far as messages tell.
impl ScanRetries for SourceLane<'_> {
    fn may_pass(&self, error: &io::Error) -> bool {
        may_pass(error)
    }

    fn repeat(&self, request: &mut dyn FnMut() -> io::Result<()>) -> io::Result<()> {
        self.source.tree.requests.run_with_retries(None, self, |_| request(), may_pass)
    }
}

impl SessionErrorListener for SourceLane<'_> {
    fn stop(&self) {
        self.fault.mark_ended();
        if let Some(offers) = &self.source.offers {
            offers.close();
        }
        if let Some(chunks) = &self.source.chunks {
            chunks.close();
        }
        if let Some(clearing) = &self.source.deletion.clearing {
            clearing.close();
        }
        self.read_queue.close();
        self.send_queue.close();
        self.spills.iter().for_each(LaneSpill::close);
        self.pool.close();
        self.mail.close();
    }
}
