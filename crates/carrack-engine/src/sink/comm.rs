//! The sink's comm thread: the source's messages, idle data connections, and the acks.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use carrack_model::{FailureSide, FileId, TransferEvent, UserNotice};
use carrack_transport::{IncomingObject, ReceiveEndpoint, SessionControlLink, TransportError};
use carrack_wire::message::{
    ControlMessage, CountersMessage, KnobsMessage, OpenFileMessage, ReadRanges, SourceExistenceReply,
};
use carrack_wire::ranges_from_message;
use rustix::event::PollFlags;

use super::file_announcement::register_file;
use super::lane::{SinkCommThreadRequest, SinkLane};
use super::write_queue::SinkIoTask;
use crate::comm::{COUNTERS_EVERY, CommHandler};
use crate::counters::{TransferCounters, sum_of};
use crate::error::SessionError;
use crate::event_delivery::{merge_target_reports, to_event};
use crate::progress_timeout::IdleSessionWatch;
use crate::spill::LaneSpill;
use crate::storage_requests::StorageDelayWatch;
use crate::suspension_detector::SuspensionDetector;

/// The time that a single ack waits for others: short against any network's round trip, long against an
/// object's 0.1 ms, so that a fast transfer needs one message for many objects.
const ANSWER_DELAY: Duration = Duration::from_millis(1);

/// A source closes its data connections when it sends the message that everything is sent. This is the time
/// by which the message may arrive after them. A peer that closes a connection at another time would let the
/// sink wait for objects in vain.
const WORD_AFTER_STREAMS: Duration = Duration::from_secs(10);

/// A source that knows that the transfer is complete says so and leaves. After this time the sink ends
/// without that message; the journal then stays, which costs the next run one look at it.
const WORD_OF_LEAVE: Duration = Duration::from_secs(5);

/// An idle data connection, and the time since which it waits.
struct PolledStream {
    endpoint: Box<dyn ReceiveEndpoint>,
    since: Instant,
}

impl PolledStream {
    fn new(endpoint: Box<dyn ReceiveEndpoint>) -> PolledStream {
        PolledStream { endpoint, since: Instant::now() }
    }
}

/// The progress of a lane's end.
#[derive(Default)]
struct SinkLaneShutdownProgress {
    /// The time at which the first data connection was closed.
    stream_closed: Option<Instant>,
    finish_seen: bool,
    /// The time at which the sink reported that everything is written.
    finished: Option<Instant>,
    /// True once the source has confirmed that.
    is_left: bool,
}

pub(super) struct SinkComm<'a> {
    lane: &'a SinkLane<'a>,
    lanes: &'a [SinkLane<'a>],
    /// Idle data connections.
    parked: Vec<PolledStream>,
    presence: SuspensionDetector,
    both: TransferCounters,
    before: TransferCounters,
    counters_due: Instant,
    idle: IdleSessionWatch,
    delays: StorageDelayWatch,
    answers_due: Option<Instant>,
    ending: SinkLaneShutdownProgress,
}

impl<'a> SinkComm<'a> {
    /// Creates the comm thread's part of the lane at `index`.
    pub(super) fn new(
        lanes: &'a [SinkLane<'a>],
        index: usize,
        mut endpoints: Vec<Box<dyn ReceiveEndpoint>>,
    ) -> SinkComm<'a> {
        let arrived = &lanes[index].counters.bytes_arrived;
        endpoints.iter_mut().for_each(|endpoint| endpoint.count_received_bytes(Arc::clone(arrived)));
        // The first counters go to the observer at once: a short session ends before the next ones are due.
        let watches = lanes[index].sink.reporting.has_observer();
        let first_due = if watches { Duration::ZERO } else { COUNTERS_EVERY };
        SinkComm {
            lane: &lanes[index],
            lanes,
            parked: endpoints.into_iter().map(PolledStream::new).collect(),
            presence: SuspensionDetector::new(Instant::now()),
            both: TransferCounters::default(),
            before: TransferCounters::default(),
            counters_due: Instant::now() + first_due,
            idle: IdleSessionWatch::new(lanes[index].sink.timeouts.idle),
            delays: StorageDelayWatch::new(lanes[index].sink.destination.requests.clone()),
            answers_due: None,
            ending: SinkLaneShutdownProgress::default(),
        }
    }

    /// Returns true if the source knows that the transfer is complete.
    pub(super) fn has_source_left(&self) -> bool {
        self.ending.is_left
    }

    /// Returns both ends' counters, with the source's as last received.
    pub(super) fn combined_counters(&self) -> TransferCounters {
        let mut sink = sum_of(self.lanes.iter().map(|lane| &lane.counters));
        let waiting: usize = self.lanes.iter().map(|lane| lane.queue.waiting_count()).sum();
        sink.storage_busy = sink.storage_busy.saturating_add(waiting as u32);
        sink.write_waiting = waiting as u32;
        sink.write_slots = self.lanes.iter().map(|lane| lane.pool.slot_count() as u32).sum();
        sink.write_threads =
            if self.lane.sink.sizing.is_sorting { self.lane.sink.sizing.io_threads as u32 } else { 0 };
        sink.watches = self.lane.sink.reporting.has_observer();
        TransferCounters { sink, ..self.both }
    }

    /// Fails if an object has stopped midway: the source has all its bytes, so the rest will not arrive.
    fn check_streams(&mut self, now: Instant) -> Result<(), SessionError> {
        let missed = self.presence.take_suspended_time(now);
        let stall = self.lane.sink.timeouts.stall;
        let is_excused = self.lane.sink.timeouts.are_suspended();
        for parked in &mut self.parked {
            parked.since = if is_excused { now } else { parked.since + missed };
            if parked.endpoint.is_midway() && now.saturating_duration_since(parked.since) > stall {
                return Err(SessionError::Stalled(stall.as_secs()));
            }
        }
        Ok(())
    }

    fn update_source_counters(&mut self, counters: CountersMessage) {
        self.both.source = counters;
        self.lane.sink.timeouts.set_source_busy(counters.storage_busy > 0);
    }

    fn exchange_counters(&mut self, link: &mut SessionControlLink, now: Instant) -> Result<(), SessionError> {
        if now < self.counters_due {
            return Ok(());
        }
        self.counters_due = now + COUNTERS_EVERY;
        if !self.lane.leads {
            return Ok(());
        }
        self.both = self.combined_counters();
        let CountersMessage {
            files_done,
            directories_done,
            bytes_done,
            symlinks_done,
            specials_done,
            entries_failed,
            entries_kept,
            entries_deleted,
            ..
        } = self.both.sink;
        let moved = [files_done, directories_done, symlinks_done, specials_done, bytes_done];
        let done = moved.into_iter().chain([entries_failed, entries_kept, entries_deleted]);
        self.idle.check_progress(done.fold(0, u64::wrapping_add), now)?;
        link.queue_control(ControlMessage::Counters(self.both.sink).to_body());
        let progress = self.both.progress(&self.before);
        let reporting = &self.lane.sink.reporting;
        if let Some(share) = &reporting.share {
            share.update_progress(&progress);
        }
        reporting.notify_observer(&TransferEvent::Progress(progress));
        self.before = self.both;
        self.report_targets(link);
        self.report_storage_delays(link, now);
        self.send_notices(link);
        Ok(())
    }

    /// Reports storage targets that do not answer.
    fn report_storage_delays(&mut self, link: &mut SessionControlLink, now: Instant) {
        let sink = self.lane.sink;
        let file_systems = sink.destination.storage.file_systems();
        for delay in self.delays.check(now, |id| file_systems.target_description(id)) {
            let event = TransferEvent::Notice(UserNotice::StorageDelay(delay));
            sink.reporting.deliver(event, |message| link.queue_control(message.to_body()));
        }
    }

    /// Reports the entries that failed by errors of the storage.
    fn report_storage_failures(&self, link: &mut SessionControlLink) {
        let sink = self.lane.sink;
        let file_systems = sink.destination.storage.file_systems();
        let retries = sink.destination.requests.retries();
        for notice in retries.summary(|id| file_systems.target_description(id)) {
            let event = TransferEvent::Notice(notice);
            sink.reporting.deliver(event, |message| link.queue_control(message.to_body()));
        }
    }

    /// Reports the placement of the lanes, and its reasons.
    fn send_notices(&self, link: &mut SessionControlLink) {
        let reporting = &self.lane.sink.reporting;
        for notice in reporting.take_notices(self.lane.leads) {
            reporting.deliver(TransferEvent::Notice(notice), |message| link.queue_control(message.to_body()));
        }
    }

    /// Reports the final counters.
    fn report_final_counters(&self) {
        let reporting = &self.lane.sink.reporting;
        if reporting.has_observer() {
            reporting
                .notify_observer(&TransferEvent::Progress(self.combined_counters().progress(&self.before)));
        }
    }

    fn report_targets(&self, link: &mut SessionControlLink) {
        let sink = self.lane.sink;
        if !self.lane.leads || !sink.sizing.is_sorting {
            return;
        }
        let storage = &sink.destination.storage;
        let targets = merge_target_reports(self.lanes.iter().map(|lane| lane.queue.reports(storage)));
        let event = TransferEvent::Targets { side: FailureSide::Sink, targets };
        sink.reporting.deliver(event, |message| link.queue_control(message.to_body()));
    }

    /// Sends acks together, a moment after the first. A message that was posted before an object's ack is
    /// sent before it: therefore the acks are taken first and the mailbox is read then.
    fn send_acks(&mut self, link: &mut SessionControlLink, now: Instant) {
        let is_late = self.answers_due.is_some_and(|due| now >= due);
        let (taken, waits) = self.lane.answers.take(is_late);
        self.answers_due = if waits { self.answers_due.or(Some(now + ANSWER_DELAY)) } else { None };
        self.read_mail(link);
        if let Some(done) = taken {
            link.queue_control(ControlMessage::ObjectsDone(done).to_body());
        }
    }

    fn read_mail(&mut self, link: &mut SessionControlLink) {
        for letter in self.lane.mail.drain() {
            match letter {
                SinkCommThreadRequest::Say(body) => link.queue_control(body),
                SinkCommThreadRequest::Park(endpoint) => self.parked.push(PolledStream::new(endpoint)),
                SinkCommThreadRequest::Closed => {
                    self.ending.stream_closed = self.ending.stream_closed.or(Some(Instant::now()))
                }
                SinkCommThreadRequest::Finished => {
                    let is_due = self.ending.finish_seen && self.ending.finished.is_none();
                    assert!(is_due, "a lane ends once, after its source");
                    self.lane.sink.status.end_lane(self.lanes.len());
                    self.report_targets(link);
                    let summaries = self.lane.spills.iter().filter_map(LaneSpill::summary);
                    summaries.for_each(|summary| self.lane.sink.reporting.add_notice(summary));
                    if self.lane.leads {
                        self.report_storage_failures(link);
                        self.send_notices(link);
                        self.report_final_counters();
                    }
                    link.queue_control(ControlMessage::Finished(self.combined_counters().sink).to_body());
                    self.ending.finished = Some(Instant::now());
                }
            }
        }
    }

    fn open_file(&mut self, message: &OpenFileMessage) -> Result<(), SessionError> {
        let (file, early) = register_file(self.lane, message)?;
        self.lane.count_bytes(&file, file.portion.hole_bytes());
        if self.lane.sink.sizing.is_sorting {
            self.lane.queue.push_file_task(SinkIoTask::Create(file));
        }
        for incoming in early {
            if self.lane.sink.sizing.is_sorting {
                // It was taken from that queue before its file was announced.
                self.lane.queue.uncharge_object(self.lane.own_target(), &incoming);
            }
            self.queue(incoming);
        }
        Ok(())
    }

    /// Has ranges recorded that the source has read without an error. The file may have ended meanwhile.
    fn confirm_ranges(&self, read: &ReadRanges) -> Result<(), SessionError> {
        if let Some(file) = self.lane.files.get(FileId(read.id)) {
            let ranges = ranges_from_message(&read.ranges, file.entry.size())?;
            self.lane.sink.committer()?.add_confirmed(&file, &ranges);
        }
        Ok(())
    }

    /// Handles the source's reply to an existence query.
    fn handle_existence_reply(&self, stands: SourceExistenceReply) -> Result<(), SessionError> {
        if !self.lane.sink.queries.deliver_reply(stands.id, stands.kinds) {
            return Err(SessionError::Protocol("an answer that nobody asked for".into()));
        }
        Ok(())
    }

    /// Applies the tuner's number of streams and writers.
    fn apply_knobs(&self, knobs: KnobsMessage) {
        self.lanes.iter().for_each(|lane| lane.queue.apply_knobs(&self.lane.sink.sizing, knobs));
    }

    fn queue(&self, incoming: IncomingObject) {
        self.lane.enqueue(self.lane.own_target(), incoming);
    }

    /// Handles the source's end. The source counts the objects that it sent: none may be unacknowledged.
    fn finish(&mut self, objects_sent: u64) -> Result<(), SessionError> {
        if objects_sent != self.lane.answers.answered_count() {
            return Err(SessionError::Protocol("the source ended before its objects were answered".into()));
        }
        if self.ending.finish_seen || !self.lane.files.is_empty() {
            return Err(SessionError::Protocol("the source ended with files still open".into()));
        }
        if self.lane.leads && self.lane.sink.status.lanes_over() + 1 < self.lanes.len() {
            return Err(SessionError::Protocol("the source ended its first lane before the others".into()));
        }
        self.ending.finish_seen = true;
        let is_complete = self.combined_counters().summary().entries_failed == 0;
        self.lane.queue.push_file_task(SinkIoTask::Finish { is_complete });
        Ok(())
    }
}

impl CommHandler for SinkComm<'_> {
    fn process_pending_work(
        &mut self,
        link: &mut SessionControlLink,
        now: Instant,
    ) -> Result<Instant, SessionError> {
        if let Some(siblings) = &self.lane.sink.history.siblings {
            siblings.takeover.beat()?;
        }
        self.send_acks(link, now);
        self.exchange_counters(link, now)?;
        self.check_streams(now)?;
        let is_late = self.ending.stream_closed.is_some_and(|closed| now > closed + WORD_AFTER_STREAMS);
        if is_late && !self.ending.finish_seen {
            return Err(TransportError::ClosedEarly.into());
        }
        Ok(self.answers_due.map_or(self.counters_due, |due| due.min(self.counters_due)))
    }

    fn handle_control_message(&mut self, message: ControlMessage) -> Result<(), SessionError> {
        if let Some(event) = to_event(&message, FailureSide::Source) {
            self.lane.sink.reporting.notify_observer(&event);
        }
        match message {
            ControlMessage::OpenFile(message) => self.open_file(&message)?,
            ControlMessage::CommitFile(file) => {
                let whole = self.lane.files.commit(FileId(file.id))?;
                if let Some(file) = whole {
                    self.lane.queue.push_file_task(SinkIoTask::Commit(file));
                }
            }
            ControlMessage::AbandonFile(file) => {
                let abandoned = self.lane.files.abandon(FileId(file.id))?;
                if let Some(file) = abandoned {
                    self.lane.queue.push_file_task(SinkIoTask::Discard(file));
                }
            }
            ControlMessage::ShelveFile(file) => {
                let whole = self.lane.files.commit(FileId(file.id))?;
                if let Some(file) = whole {
                    self.lane.queue.push_file_task(SinkIoTask::Shelve(file));
                }
            }
            ControlMessage::RangesRead(read) => self.confirm_ranges(&read)?,
            ControlMessage::Settle(mark) => self.lane.queue.push_file_task(SinkIoTask::Settle(mark.number)),
            ControlMessage::Offer(offer) => self.lane.queue.push_file_task(SinkIoTask::Offer(offer)),
            ControlMessage::Prune(prune) if self.lane.leads => {
                self.lane.queue.push_file_task(SinkIoTask::Prune(prune))
            }
            ControlMessage::Stands(stands) if self.lane.leads => self.handle_existence_reply(stands)?,
            ControlMessage::Leave(_) => self.ending.is_left = true,
            ControlMessage::Knobs(knobs) => self.apply_knobs(knobs),
            ControlMessage::Finish(finish) => {
                self.both.source = finish.counters.unwrap_or(self.both.source);
                self.lane.sink.status.record_last_session(finish.closes);
                self.finish(finish.objects_sent)?;
            }
            ControlMessage::Counters(counters) => self.update_source_counters(counters),
            ControlMessage::Abort(message) => return Err(SessionError::from_abort(message)),
            ControlMessage::Failure(_)
            | ControlMessage::Notice(_)
            | ControlMessage::WouldCopy(_)
            | ControlMessage::Heartbeat(_) => {}
            ControlMessage::Targets(_) | ControlMessage::SourceDetail(_) => {}
            _ => return Err(SessionError::Protocol("a message that a source does not send".into())),
        }
        Ok(())
    }

    fn handle_object(&mut self, incoming: IncomingObject) -> Result<(), SessionError> {
        self.queue(incoming);
        Ok(())
    }

    fn endpoints(&self) -> Vec<(BorrowedFd<'_>, PollFlags)> {
        self.parked.iter().map(|parked| (parked.endpoint.readiness(), PollFlags::IN)).collect()
    }

    fn handle_ready_endpoints(&mut self, places: &[usize]) -> Result<(), SessionError> {
        // From the back, so that the indices of the other connections stay valid.
        for &place in places.iter().rev() {
            let endpoint = self.parked.swap_remove(place).endpoint;
            self.lane.queue.push_stream(endpoint);
        }
        Ok(())
    }

    fn wake_fd(&self) -> BorrowedFd<'_> {
        self.lane.mail.readiness()
    }

    fn reset_wakeups(&self) {
        self.lane.mail.reset_wakeups();
    }

    fn last_counters(&self) -> Option<CountersMessage> {
        Some(self.combined_counters().sink)
    }

    fn is_over(&self) -> bool {
        let Some(said) = self.ending.finished else { return false };
        !self.lane.leads || self.ending.is_left || said.elapsed() > WORD_OF_LEAVE
    }

    fn peer_may_disconnect(&self) -> bool {
        self.ending.finished.is_some()
    }
}
