//! One lane of the sink (N2): its slots, its connections, its threads, and its objects and files. Lanes share
//! values that they read, and none that they change while an object passes through.
//!
//! All threads of the lane use it; its parts own the locks.

use std::os::fd::AsFd;
use std::sync::atomic::Ordering::Relaxed;

use carrack_layout::TargetAttachmentKind;
use carrack_machine::{LaneCrew, SlotPool, ThreadBindingGuard, ThreadDuty};
use carrack_model::limits::OPEN_FILES_MAX;
use carrack_model::{
    EntryFailure, ExtraMetadata, FailureKind, FileFlags, RelPath, TargetId, Timestamp, TransferEvent,
    UserNotice, escape, text_without_errno,
};
use carrack_storage::{SinkError, WriteIoMethod};
use carrack_transport::{IncomingObject, ReceiveEndpoint};
use carrack_wire::message::ControlMessage;
use carrack_wire::{EntryTableDecoder, EntryTableRecord, FrameKind};

use super::ack_batch::{AckBatch, ObjectOutcome};
use super::committer::GroupCommitter;
use super::context::SinkContext;
use super::file_table::SinkFileTable;
use super::sink_file::SinkFile;
use super::write_queue::WriteQueue;
use crate::counters::EndCounters;
use crate::error::SessionError;
use crate::first_error::{FirstSessionError, SessionErrorListener};
use crate::mailbox::CommMailbox;
use crate::spill::LaneSpill;
use crate::storage_retries::{RetryingLane, sink_error_may_pass};

/// A request of another thread to the comm thread.
pub(super) enum SinkCommThreadRequest {
    /// Queue this control message.
    Say(Vec<u8>),
    /// Wait for data on this endpoint.
    Park(Box<dyn ReceiveEndpoint>),
    /// A data connection was closed: no object follows on it.
    Closed,
    /// Everything is written: send that and end.
    Finished,
}

/// The state that the threads of one lane share.
pub(super) struct SinkLane<'a> {
    /// The context that all lanes of the sink share.
    pub(super) sink: &'a SinkContext<'a>,
    /// True if it is the first lane, which ends last.
    pub(super) leads: bool,
    pub(super) queue: WriteQueue,
    pub(super) pool: SlotPool,
    pub(super) crew: LaneCrew,
    /// The logs for objects that the storage does not take yet.
    pub(super) spills: Vec<LaneSpill<TargetId>>,
    pub(super) files: SinkFileTable,
    pub(super) answers: AckBatch,
    pub(super) mail: CommMailbox<SinkCommThreadRequest>,
    pub(super) counters: EndCounters,
    pub(super) fault: FirstSessionError,
}

impl<'a> SinkLane<'a> {
    pub(super) fn new(
        sink: &'a SinkContext<'a>,
        leads: bool,
        stream_count: usize,
        pool: SlotPool,
        crew: LaneCrew,
        spills: Vec<LaneSpill<TargetId>>,
    ) -> Result<SinkLane<'a>, SessionError> {
        assert!(pool.slot_count() > 0, "slots back the credits of the source");
        let share = sink.reporting.share.as_deref();
        Ok(SinkLane {
            sink,
            leads,
            queue: WriteQueue::new(&sink.sizing, &sink.destination.storage, share, stream_count),
            spills,
            files: SinkFileTable::new(OPEN_FILES_MAX / sink.sizing.lane_count),
            answers: AckBatch::new(pool.slot_count()),
            mail: CommMailbox::new().map_err(SessionError::local("making an eventfd"))?,
            counters: EndCounters::default(),
            fault: FirstSessionError::default(),
            pool,
            crew,
        })
    }

    /// Returns true if the session ends: no new work is begun then.
    pub(super) fn is_stopped(&self) -> bool {
        self.fault.has_ended() || self.sink.history.check_takeover().is_err()
    }

    /// Runs a request to the destination's storage, which is repeated after an error that may pass. Without a
    /// target it is to that of the destination itself.
    pub(super) fn request<T>(
        &self,
        target: Option<TargetId>,
        mut request: impl FnMut() -> Result<T, SinkError>,
    ) -> Result<T, SinkError> {
        let requests = &self.sink.destination.requests;
        let request = |_| self.check_takeover().and_then(|()| request());
        requests.run_with_retries(target, self, request, sink_error_may_pass)
    }

    /// Returns an error, which ends the session, if other sessions may have taken over from it.
    pub(super) fn check_takeover(&self) -> Result<(), SinkError> {
        self.sink.history.check_takeover().map_err(|error| {
            self.fault.raise(error, self);
            SinkError::Ended
        })
    }

    /// Counts an entry that failed by an error of the storage, if it is one.
    pub(super) fn count_storage_failure(&self, target: Option<TargetId>, error: &SinkError) {
        if sink_error_may_pass(error) {
            self.sink.destination.requests.count_failed(target);
        }
    }

    /// Binds a thread that computes little to a core of the I/O threads.
    pub(super) fn bind_auxiliary_thread(&self) -> ThreadBindingGuard {
        self.crew.bind_current_thread(ThreadDuty::Io(self.queue.thread_count()))
    }

    /// Adds the ack of an object.
    pub(super) fn add_ack(&self, object: u64, answer: ObjectOutcome) {
        if self.answers.add(object, answer) {
            self.mail.wake();
        }
    }

    /// Counts and reports an entry that failed. A full destination ends the session: later entries would fail
    /// too.
    pub(super) fn fail(&self, failure: EntryFailure) -> Result<(), SessionError> {
        self.counters.entries_failed.fetch_add(1, Relaxed);
        self.sink.status.count_failure();
        let failure = EntryFailure { detail: text_without_errno(&failure.detail), ..failure };
        if failure.kind == FailureKind::NoSpace {
            return Err(SessionError::NoSpace { path: escape(&failure.path), detail: failure.detail });
        }
        self.report(TransferEvent::Failed(failure));
        Ok(())
    }

    /// Notes the flags that a complete file gets at the end, as it can't be changed after them. If several
    /// sessions carry the transfer, the source names them to the last session, as the others don't know
    /// whether the file is complete.
    pub(super) fn note_flags(
        &self,
        directory: &RelPath,
        name: &[u8],
        mtime: Timestamp,
        extras: Option<&ExtraMetadata>,
    ) -> Result<(), SessionError> {
        let is_shared = self.sink.history.is_shared();
        let extras = extras.filter(|extras| extras.same_as.is_none() && !is_shared);
        let flags = extras.and_then(|extras| self.sink.attributes.keeper.flags_of(extras));
        self.defer_immutability_flags(directory, name, mtime, flags)
    }

    /// Notes flags that a file gets at the end, if it is the announced one then.
    pub(super) fn defer_immutability_flags(
        &self,
        directory: &RelPath,
        name: &[u8],
        mtime: Timestamp,
        flags: Option<FileFlags>,
    ) -> Result<(), SessionError> {
        let Some(flags) = flags.filter(|flags| flags.write_protecting().active() != 0) else { return Ok(()) };
        let Ok(path) = directory.join(name) else { return Ok(()) };
        self.sink.spools.note_flags(&path, mtime, flags).or_else(|error| {
            let path = self.sink.destination.path(directory, name);
            self.fail(EntryFailure { path, kind: error.kind(), detail: text_without_errno(&error) })
        })
    }

    /// Counts bytes of a file as copied, unless it was given up.
    pub(super) fn count_bytes(&self, file: &SinkFile, bytes: u64) {
        if file.bytes.count(bytes) {
            self.counters.bytes_done.fetch_add(bytes, Relaxed);
        }
    }

    /// Returns the target in whose queue an object waits. An object whose target is not known yet waits in
    /// the queue of the destination's own target.
    pub(super) fn target_of(&self, incoming: &IncomingObject) -> TargetId {
        let header = incoming.header;
        let known = match header.kind {
            FrameKind::Bundle => self.target_of_bundle(incoming),
            FrameKind::Object | FrameKind::Control => {
                self.files.get(header.file).and_then(|file| file.target_at(header.offset))
            }
        };
        known.unwrap_or(self.own_target())
    }

    /// Returns the target of the destination itself.
    pub(super) fn own_target(&self) -> TargetId {
        self.sink.destination.storage.destination_file_system().own_target().id
    }

    /// Adds an object to the queue of its target.
    pub(super) fn enqueue(&self, target: TargetId, incoming: IncomingObject) {
        self.queue.push_object(target, incoming);
        self.spills.iter().for_each(LaneSpill::notify_waiting_object);
    }

    /// Returns the present target of an object whose file had not been created when the object was queued, if
    /// the target is known by now and differs from that of the queue.
    pub(super) fn changed_target(&self, waited_for: TargetId, incoming: &IncomingObject) -> Option<TargetId> {
        let may_move = self.sink.sizing.is_sorting && incoming.header.kind == FrameKind::Object;
        may_move.then(|| self.target_of(incoming)).filter(|target| *target != waited_for)
    }

    /// Returns the target of the directory of a bundle's first files.
    fn target_of_bundle(&self, incoming: &IncomingObject) -> Option<TargetId> {
        let table_len = incoming.header.table_len as usize;
        let (_, table) = incoming.body().split_at_checked(incoming.body().len().checked_sub(table_len)?)?;
        let Some(Ok(EntryTableRecord::Section { path, .. })) = EntryTableDecoder::new(table).next() else {
            return None;
        };
        // The directory is not created: the bundle's names are checked when it is unpacked.
        let held = self.sink.destination.root.as_ref()?.open_directory(&path).ok()?;
        let storage = &self.sink.destination.storage;
        let target = storage.file_systems().file_system_of(held.as_fd()).ok()?.own_target().id;
        self.queue.add_targets(storage, &[target]);
        Some(target)
    }

    /// Reports the I/O method and the striping of a large file that was created, unless the user knows them.
    pub(super) fn report_file_creation(&self, io: WriteIoMethod, refusal: Option<&str>) {
        let storage = &self.sink.destination.storage;
        let io_news = storage.take_io_method_notice(io).map(UserNotice::Text);
        let refusal_news = refusal.and_then(|why| storage.take_striping_notice(why)).map(UserNotice::Warning);
        io_news.into_iter().chain(refusal_news).for_each(|notice| self.report(TransferEvent::Notice(notice)));
    }

    /// Counts layouts that are not kept, for the losses at the end of the session.
    pub(super) fn count_unkept_striping(&self, reasons: Vec<String>) {
        let losses = self.sink.attributes.keeper.losses();
        reasons.iter().for_each(|reason| losses.count("the layout", reason));
    }

    /// Delivers an event to the user, at either end. Not for the comm thread.
    pub(super) fn report(&self, event: TransferEvent) {
        self.sink.reporting.deliver(event, |message| self.send_message(message));
    }

    pub(super) fn report_digest(&self, directory: &RelPath, name: &[u8], size: u64, digest: [u8; 32]) {
        if let Ok(path) = directory.join(name) {
            self.report(TransferEvent::FileDigest { path: path.as_bytes().into(), size, digest });
        }
    }

    /// Sends a message. Not for the comm thread. A session that ends needs no more messages.
    pub(super) fn send_message(&self, message: ControlMessage) {
        let _ = self.mail.post(SinkCommThreadRequest::Say(message.to_body()));
    }
}

impl RetryingLane for SinkLane<'_> {
    fn is_stopped(&self) -> bool {
        self.fault.has_ended()
    }

    fn target(&self, id: TargetId) -> Option<(TargetAttachmentKind, String)> {
        let file_systems = self.sink.destination.storage.file_systems();
        Some((file_systems.target(id)?.medium, file_systems.target_description(id)?))
    }

    fn notify(&self, notice: UserNotice) {
        self.report(TransferEvent::Notice(notice));
    }
}

impl SessionErrorListener for SinkLane<'_> {
    fn handle_peer_gone(&self) {
        self.sink.committer.iter().for_each(GroupCommitter::abandon);
    }

    fn stop(&self) {
        self.fault.mark_ended();
        // Parts that all lanes share stay open until the last lane ends.
        if self.leads {
            self.sink.committer.iter().for_each(GroupCommitter::close);
            self.sink.queries.close();
        }
        self.queue.close();
        self.spills.iter().for_each(LaneSpill::close);
        self.pool.close();
        self.mail.close();
    }
}
