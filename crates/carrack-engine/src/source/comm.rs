//! The source's comm thread: the sink's messages, and the endpoints that no I/O thread drives.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::time::Instant;

use carrack_model::limits::{EXISTENCE_QUESTIONS_MAX, RANGES_MAX};
use carrack_model::{FailureSide, FileId, ObjectId, RangeSet, TransferEvent, UserNotice};
use carrack_transport::{EndpointWaitLimit, IncomingObject, SenderReadiness, SessionControlLink};
use carrack_wire::message::{
    ChunkNumberMessage, ControlMessage, DamagedRanges, FinishMessage, ObjectAcksMessage, OpenFileMessage,
    PruneMessage, ReadRanges, SinkFileLayoutMessage, TransferCompleteMessage,
};
use carrack_wire::{ranges_from_message, ranges_to_message};
use rustix::event::PollFlags;

use super::chunks::SessionChunks;
use super::congestion_control::{BbrTrialDriver, set_named_control};
use super::detail_reports;
use super::lane::SourceLane;
use super::large_file::{FileAbortReason, LargeFileNextStep, OpenSourceLargeFile};
use super::pre_deletion::PreDeletionProgress;
use super::send_queue::NumberedEndpoint;
use super::session_tuning::SessionTuningDriver;
use super::work::{ObjectWork, ReadWork, SentObject};
use crate::comm::{COUNTERS_EVERY, CommHandler};
use crate::counters::{TransferCounters, sum_of};
use crate::error::SessionError;
use crate::event_delivery::{deliver, merge_target_reports, to_event};
use crate::progress_timeout::IdleSessionWatch;
use crate::settings::EndSettings;
use crate::spill::LaneSpill;
use crate::stall::{CRAWL_BYTES_PER_S, FlowSnapshot, StallWatch};
use crate::storage_requests::StorageDelayWatch;
use crate::wire_layout::to_layout;

/// Objects that wait on the link at a time if the link carries them: enough to keep a pipe full.
const LINK_OBJECTS_MAX: usize = 4;

/// The progress of the removal of entries that the source lacks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SyncDeletionProgress {
    /// It follows after all data, or precedes it.
    Due,
    Asked,
    /// There is none, or it is done.
    Over,
}

impl SyncDeletionProgress {
    fn of(lane: &SourceLane<'_>, leads: bool) -> SyncDeletionProgress {
        let deletes = lane.source.spec.sync.as_ref().is_some_and(|sync| sync.deletion.is_some());
        if deletes && leads { SyncDeletionProgress::Due } else { SyncDeletionProgress::Over }
    }
}

pub(super) struct SourceComm<'a> {
    lane: &'a SourceLane<'a>,
    lanes: &'a [SourceLane<'a>],
    /// True for the first lane, which speaks for all lanes and ends last.
    leads: bool,
    /// Endpoints with objects that had to wait for credits.
    driven: Vec<NumberedEndpoint>,
    /// Messages about files that could not announce themselves.
    announcements: Vec<OpenFileMessage>,
    /// Acked ranges to confirm to the sink.
    confirmations: Vec<(FileId, RangeSet)>,
    both: TransferCounters,
    before: TransferCounters,
    counters_due: Instant,
    idle: IdleSessionWatch,
    stall: StallWatch,
    delays: StorageDelayWatch,
    /// The tuner of the first lane, unless tuning is off.
    tuning: Option<SessionTuningDriver<'a>>,
    /// The trial of BBR, with the first lane.
    bbr_trial: Option<BbrTrialDriver<'a>>,
    /// What the user is told first.
    first_notice: Option<UserNotice>,
    finish_sent: bool,
    pruning: SyncDeletionProgress,
    /// Existence queries received so far.
    stands_asked: u64,
    /// True if the sink has reported the end and expects a confirmation.
    says_farewell: bool,
    is_over: bool,
}

/// Small segments are the second try: the control channel may be faster than a crawl, unless a rate limit
/// explains the crawl.
fn stall_watch(settings: &EndSettings) -> StallWatch {
    let watch = StallWatch::new(settings.stall, Instant::now());
    match (settings.segment_bytes, settings.scheduling.rate) {
        (None, _) => watch,
        (Some(_), 0) => watch.with_least(CRAWL_BYTES_PER_S),
        (Some(_), rate) => watch.with_least(CRAWL_BYTES_PER_S.min(rate / 4)),
    }
}

fn never_sent(object: u64) -> SessionError {
    SessionError::Protocol(format!("object {object} was never sent"))
}

impl<'a> SourceComm<'a> {
    /// Creates the comm thread's part of the lane at `index`.
    pub(super) fn new(lanes: &'a [SourceLane<'a>], index: usize) -> SourceComm<'a> {
        SourceComm {
            lane: &lanes[index],
            lanes,
            leads: index == 0,
            driven: Vec::new(),
            announcements: Vec::new(),
            confirmations: Vec::new(),
            both: TransferCounters::default(),
            before: TransferCounters::default(),
            counters_due: Instant::now() + COUNTERS_EVERY,
            idle: IdleSessionWatch::new(lanes[index].source.settings.idle),
            stall: stall_watch(lanes[index].source.settings),
            delays: StorageDelayWatch::new(lanes[index].source.tree.requests.clone()),
            tuning: (index == 0).then(|| SessionTuningDriver::begin(lanes)).flatten(),
            bbr_trial: (index == 0).then(|| BbrTrialDriver::begin(lanes)).flatten(),
            first_notice: if index == 0 { set_named_control(lanes) } else { None },
            finish_sent: false,
            pruning: SyncDeletionProgress::of(&lanes[index], index == 0),
            stands_asked: 0,
            says_farewell: false,
            is_over: false,
        }
    }

    /// Returns both ends' counters, with the sink's as last received.
    pub(super) fn combined_counters(&self) -> TransferCounters {
        let source =
            detail_reports::with_queues(sum_of(self.lanes.iter().map(|lane| &lane.counters)), self.lanes);
        let answered = self.lanes.iter().map(|lane| lane.in_flight.answered_count()).sum();
        TransferCounters { source, answered, ..self.both }
    }

    /// Returns the state of the data connections. Objects on the control channel are as alive as its
    /// messages.
    fn flow(&self) -> FlowSnapshot {
        let TransferCounters { source, sink, answered } = self.combined_counters();
        let with_streams = self.lanes.iter().filter(|lane| lane.send_queue.endpoint_count > 0);
        FlowSnapshot {
            unanswered: with_streams.map(|lane| lane.in_flight.count()).sum(),
            answered,
            arrived: sink.bytes_arrived,
            is_storage_busy: source.storage_busy > 0 || sink.storage_busy > 0,
        }
    }

    /// Returns true if all work of this lane has ended, and so have the lanes that it leads.
    fn is_done(&self) -> bool {
        self.lane.counters.scan_done.load(Acquire)
            && self.lane.backlog.item_count() == 0
            && (!self.leads || self.lane.source.counts.lanes_over() + 1 >= self.lanes.len())
    }

    /// Ends the lane after the sink has confirmed its end.
    fn end(&mut self) {
        assert!(!self.is_over, "a lane ends once");
        debug_assert!(
            self.lane.send_queue.has_all_credits(),
            "no credit is lost: each object was answered once"
        );
        self.is_over = true;
        self.lane.source.counts.lane_over();
        assert!(self.lane.source.counts.lanes_over() <= self.lanes.len(), "each lane ends once");
        self.lanes[0].mail.wake();
    }

    fn exchange_counters(&mut self, link: &mut SessionControlLink, now: Instant) -> Result<(), SessionError> {
        if now < self.counters_due {
            return Ok(());
        }
        self.counters_due = now + COUNTERS_EVERY;
        if !self.leads {
            return Ok(());
        }
        self.both = self.combined_counters();
        self.idle.check_progress(self.both.source.entries_found.wrapping_add(self.progress_count()), now)?;
        link.queue_control(ControlMessage::Counters(self.both.source).to_body());
        let mut progress = self.both.progress(&self.before);
        progress.storage_busy.0 |= self.lanes.iter().any(|lane| lane.counters.is_in_storage());
        if let Some(share) = &self.lane.source.share {
            share.update_progress(&progress);
        }
        if let Some(observer) = self.lane.source.observer {
            observer.handle_event(&TransferEvent::Progress(progress));
        }
        self.before = self.both;
        self.report_details(link);
        self.report_targets(link);
        self.report_storage_delays(link, now);
        self.send_notices(link);
        Ok(())
    }

    /// Reports storage targets that do not answer.
    fn report_storage_delays(&mut self, link: &mut SessionControlLink, now: Instant) {
        let source = self.lane.source;
        let file_systems = &source.tree.file_systems;
        for delay in self.delays.check(now, |id| file_systems.target_description(id)) {
            let event = TransferEvent::Notice(UserNotice::StorageDelay(delay));
            deliver(event, source.observer, |message| link.queue_control(message.to_body()));
        }
    }

    /// Reports the entries that failed by errors of the storage.
    fn report_storage_failures(&self, link: &mut SessionControlLink) {
        let source = self.lane.source;
        let file_systems = &source.tree.file_systems;
        for notice in source.tree.requests.retries().summary(|id| file_systems.target_description(id)) {
            let event = TransferEvent::Notice(notice);
            deliver(event, source.observer, |message| link.queue_control(message.to_body()));
        }
    }

    /// Returns a number that changes with every object sent and every item ended, in any lane.
    fn progress_count(&self) -> u64 {
        let looked = self.lane.source.deletion.clearing.as_ref().map_or(0, PreDeletionProgress::found_count);
        let mut done = self.lane.source.deletion.answered_count().wrapping_add(looked);
        for lane in self.lanes {
            let ended = lane.in_flight.sent_count().wrapping_sub(lane.backlog.item_count() as u64);
            done = done.wrapping_add(ended);
        }
        done
    }

    /// Tells the sink to make ended chunks durable. Reports about their entries are in the mailbox already,
    /// and go out first.
    fn request_chunk_commits(&self, link: &mut SessionControlLink) {
        let Some(chunks) = self.lane.source.chunks.as_ref().filter(|_| self.leads) else { return };
        let ended = chunks.take_ended();
        if ended.is_empty() {
            return;
        }
        self.read_mail(link);
        for number in ended {
            link.queue_control(ControlMessage::Settle(ChunkNumberMessage { number }).to_body());
        }
    }

    /// Reports the division of objects among several lanes (N7).
    fn report_lane_division(&self) {
        if self.lanes.len() > 1 {
            let objects: Vec<String> =
                self.lanes.iter().map(|lane| lane.in_flight.sent_count().to_string()).collect();
            self.lane.source.camp.add_notice(format!("objects by lane: {}", objects.join(", ")));
        }
    }

    /// Reports the use of flash (L9).
    fn report_spills(&self) {
        let spills = self.lanes.iter().flat_map(|lane| &lane.spills);
        spills.filter_map(LaneSpill::summary).for_each(|summary| self.lane.source.camp.add_notice(summary));
    }

    /// Returns true if the sink may remove entries now.
    fn may_prune(&self) -> bool {
        match &self.lane.source.deletion.clearing {
            Some(clearing) => clearing.has_scan_failed().is_some(),
            None => self.is_done(),
        }
    }

    fn finish_pruning(&mut self) {
        assert!(self.pruning != SyncDeletionProgress::Over, "the removal is over once");
        self.pruning = SyncDeletionProgress::Over;
        self.lane.source.deletion.clearing.iter().for_each(PreDeletionProgress::mark_removed);
    }

    /// Lets the sink remove entries, unless an entry failed: an unreadable source entry could be among those
    /// that the sink would remove.
    fn prune(&mut self, link: &mut SessionControlLink) {
        let source = self.lane.source;
        let has_failed = source
            .deletion
            .clearing
            .as_ref()
            .and_then(PreDeletionProgress::has_scan_failed)
            .unwrap_or_default();
        if !has_failed && self.combined_counters().source.entries_failed == 0 {
            self.pruning = SyncDeletionProgress::Asked;
            link.queue_control(
                ControlMessage::Prune(PruneMessage {
                    trees: source.tree.directories_at_sink().into_iter().collect(),
                })
                .to_body(),
            );
            return;
        }
        self.finish_pruning();
        let text = "nothing was deleted, as something failed at the source".to_owned();
        let event = TransferEvent::Notice(UserNotice::Warning(text));
        deliver(event, source.observer, |message| link.queue_control(message.to_body()));
    }

    /// Counts an existence query. A sink limits its open queries.
    fn count_existence_query(&mut self) -> Result<(), SessionError> {
        self.stands_asked += 1;
        let answered = self.lane.source.deletion.answered_count();
        assert!(answered < self.stands_asked, "an answer follows its question");
        if self.stands_asked - answered > EXISTENCE_QUESTIONS_MAX as u64 {
            return Err(SessionError::Protocol("more questions than may be open".into()));
        }
        Ok(())
    }

    /// Reports the placement of the lanes.
    fn send_notices(&self, link: &mut SessionControlLink) {
        let source = self.lane.source;
        let shared = source.share.iter().filter(|_| self.leads).flat_map(|share| share.take_notices());
        for notice in source.camp.take_notices().into_iter().map(UserNotice::Text).chain(shared) {
            let event = TransferEvent::Notice(notice);
            deliver(event, self.lane.source.observer, |message| link.queue_control(message.to_body()));
        }
    }

    /// Reports the final counters.
    fn report_final_counters(&self) {
        if let Some(observer) = self.lane.source.observer.filter(|_| self.leads) {
            observer.handle_event(&TransferEvent::Progress(self.combined_counters().progress(&self.before)));
        }
    }

    /// Sends the details to an observer at either end.
    fn report_details(&self, link: &mut SessionControlLink) {
        let source = self.lane.source;
        if source.observer.is_some() || self.both.sink.watches {
            let event = TransferEvent::Source(detail_reports::report(source, self.lanes));
            deliver(event, source.observer, |message| link.queue_control(message.to_body()));
        }
    }

    fn report_targets(&self, link: &mut SessionControlLink) {
        let source = self.lane.source;
        let reports = self.lanes.iter().map(|lane| lane.read_queue.target_reports(&source.tree.file_systems));
        let targets = merge_target_reports(reports);
        if targets.len() > 1 || source.settings.holds_back() && !targets.is_empty() {
            let event = TransferEvent::Targets { side: FailureSide::Source, targets };
            deliver(event, source.observer, |message| link.queue_control(message.to_body()));
        }
    }

    fn read_mail(&self, link: &mut SessionControlLink) {
        self.lane.mail.drain().into_iter().for_each(|body| link.queue_control(body));
    }

    /// Sends on `endpoint`, and then other ready objects, without waiting.
    fn drive(&mut self, endpoint: NumberedEndpoint) -> Result<(), SessionError> {
        let mut endpoint = endpoint;
        while endpoint.endpoint.advance(EndpointWaitLimit::None)? == SenderReadiness::Idle {
            let Some((mut next, outgoing)) = self.lane.send_queue.next_for_comm(endpoint) else {
                return Ok(());
            };
            let refused = next.endpoint.post(outgoing).is_err();
            debug_assert!(!refused);
            endpoint = next;
        }
        self.driven.push(endpoint);
        Ok(())
    }

    /// Sends objects that waited for credits, if no I/O thread waits to do so.
    fn pump(&mut self, credits: u64) -> Result<(), SessionError> {
        let send_queue = &self.lane.send_queue;
        send_queue.add_credits(credits)?;
        self.lane.spills.iter().for_each(|spill| spill.allow_read_back(credits as usize));
        if send_queue.seals {
            return Ok(());
        }
        while let Some((mut endpoint, outgoing)) = send_queue.take_unclaimed() {
            self.lane.count_departed(self.lane.departing_bytes(outgoing.header.object));
            let refused = endpoint.endpoint.post(outgoing).is_err();
            debug_assert!(!refused);
            self.drive(endpoint)?;
        }
        Ok(())
    }

    fn feed_link(&self, link: &mut SessionControlLink) {
        while self.lane.send_queue.endpoint_count == 0 && link.queued_count() < LINK_OBJECTS_MAX {
            let Some((header, slot)) = self.lane.send_queue.next_for_link() else { return };
            self.lane.count_departed(self.lane.departing_bytes(header.object));
            link.queue_object(&header, slot);
        }
    }

    fn handle_acks(&mut self, done: ObjectAcksMessage) -> Result<(), SessionError> {
        self.lane.in_flight.note_answered(done.written.len() + done.corrupt.len());
        let mut credits = done.set_aside.len() as u64;
        for id in done.set_aside {
            if !self.lane.set_aside_at_sink(ObjectId(id)) {
                return Err(SessionError::Protocol(format!("object {id} was put aside, and may not be")));
            }
        }
        for id in done.written {
            let taken = self.lane.take_object(ObjectId(id)).ok_or_else(|| never_sent(id))?;
            credits += taken.credits;
            self.lane.count_answered(taken.sent.work_bytes());
            match taken.sent {
                SentObject::Bundle(..) => self.lane.end_item(),
                SentObject::Object(piece) => {
                    self.confirm_range(&piece);
                    match piece.file.confirm_object(piece.extent.range.len) {
                        LargeFileNextStep::Commit if piece.file.is_inline_announced() => {
                            self.lane.end_committed_file(piece.file.id)
                        }
                        step => self.defer_next_step(piece.file, step),
                    }
                }
            }
        }
        for id in done.corrupt {
            let reread = self.lane.reread(ObjectId(id)).ok_or_else(|| never_sent(id))?;
            credits += reread.credits;
            self.announcements.extend(reread.announcement);
        }
        self.pump(credits)
    }

    /// Notes the range of an acked object for the sink, if it was read without an error.
    fn confirm_range(&mut self, piece: &ObjectWork) {
        let (file, range) = (&piece.file, piece.extent.range);
        if !file.confirms_acked() {
            return;
        }
        let last = self.confirmations.iter_mut().rev().find(|(id, _)| *id == file.id);
        let is_added =
            last.is_some_and(|(_, ranges)| ranges.run_count() < RANGES_MAX && ranges.insert(range));
        if !is_added {
            let mut ranges = RangeSet::new();
            ranges.insert(range);
            self.confirmations.push((file.id, ranges));
        }
    }

    /// Confirms ranges, before any message that ends their files: those wait in the mailbox.
    fn send_confirmations(&mut self, link: &mut SessionControlLink) {
        for (id, ranges) in self.confirmations.drain(..) {
            assert!(ranges.run_count() <= RANGES_MAX, "a message carries each range as it is");
            let read = ReadRanges { id: id.0, ranges: ranges_to_message(&ranges) };
            link.queue_control(ControlMessage::RangesRead(read).to_body());
        }
    }

    /// Leaves the next step to an I/O thread, as it may take a system call or wait for the mailbox.
    fn defer_next_step(&self, file: Arc<OpenSourceLargeFile>, step: LargeFileNextStep) {
        if step != LargeFileNextStep::Wait {
            self.lane.read_queue.push_errand(ReadWork::Follow(file, step));
        }
    }

    fn handle_file_done(&mut self, id: FileId) -> Result<(), SessionError> {
        if !self.lane.files.get(id).is_some_and(|file| file.is_committed()) {
            return Err(SessionError::Protocol(format!("file {} was not committed", id.0)));
        }
        self.lane.end_committed_file(id);
        Ok(())
    }

    fn handle_file_layout(&self, message: &SinkFileLayoutMessage) -> Result<(), SessionError> {
        let layout = to_layout(message)
            .ok_or_else(|| SessionError::Protocol(format!("file {} in no place", message.id)))?;
        let id = FileId(message.id);
        // The file may have ended meanwhile.
        if let Some(file) = self.lane.files.get(id) {
            file.set_sink_layout(layout);
            self.lane.read_queue.resume_after_layout(id);
        }
        Ok(())
    }

    fn handle_damaged_ranges(&self, lacks: &DamagedRanges) -> Result<(), SessionError> {
        let id = FileId(lacks.id);
        let file = self.lane.files.get(id).filter(|file| file.is_committed());
        let Some(file) = file else {
            return Err(SessionError::Protocol(format!("file {} was not committed", id.0)));
        };
        let ranges = ranges_from_message(&lacks.ranges, file.found.entry.size())?;
        if ranges.is_empty() {
            return Err(SessionError::Protocol(format!("file {} lacks nothing", id.0)));
        }
        self.lane.counters.objects_reread.fetch_add(ranges.run_count() as u64, Relaxed);
        let work = match file.prepare_resend(ranges.covered_bytes()) {
            Ok(()) => ReadWork::Refill(file, ranges),
            Err(step) => ReadWork::Damaged(file, step),
        };
        self.lane.read_queue.push_errand(work);
        Ok(())
    }

    fn handle_file_failed(&mut self, id: FileId) -> Result<(), SessionError> {
        match self.lane.files.get(id) {
            Some(file) if file.is_committed() => self.handle_file_done(id),
            Some(file) => {
                let step = file.abort(FileAbortReason::Reported);
                self.defer_next_step(file, step);
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Has the trial of BBR and the tuner take their samples. Returns the time at which something is due.
    fn sample_and_tune(&mut self, link: &mut SessionControlLink, now: Instant) -> Instant {
        let mut due = self.counters_due;
        let mut notices = Vec::new();
        if let Some(trial) = &mut self.bbr_trial {
            notices.extend(trial.sample_and_choose(now));
            due = due.min(trial.due());
        }
        if let Some(tuning) = &mut self.tuning {
            if let Some(knobs) = tuning.sample_and_tune(&self.both.sink, now) {
                link.queue_control(ControlMessage::Knobs(knobs).to_body());
            }
            notices.extend(tuning.take_decision().map(UserNotice::Decision));
            if tuning.take_recalled_bbr() {
                notices.extend(self.bbr_trial.as_mut().and_then(BbrTrialDriver::begin_with_bbr));
            }
            due = due.min(tuning.due());
        }
        notices.into_iter().for_each(|notice| self.tell(link, notice));
        due
    }

    /// Tells the user, here or at the other end.
    fn tell(&self, link: &mut SessionControlLink, notice: UserNotice) {
        deliver(TransferEvent::Notice(notice), self.lane.source.observer, |message| {
            link.queue_control(message.to_body());
        });
    }
}

impl CommHandler for SourceComm<'_> {
    fn process_pending_work(
        &mut self,
        link: &mut SessionControlLink,
        now: Instant,
    ) -> Result<Instant, SessionError> {
        self.announcements
            .drain(..)
            .for_each(|file| link.queue_control(ControlMessage::OpenFile(file).to_body()));
        self.send_confirmations(link);
        self.read_mail(link);
        self.feed_link(link);
        self.exchange_counters(link, now)?;
        self.request_chunk_commits(link);
        if self.pruning == SyncDeletionProgress::Due && self.may_prune() {
            self.prune(link);
        }
        if self.is_done() && self.pruning == SyncDeletionProgress::Over && !self.finish_sent {
            // Reports that the threads posted before their last item ended are in the mailbox already.
            self.read_mail(link);
            if self.leads {
                self.report_details(link);
                self.report_targets(link);
                self.report_storage_failures(link);
                self.report_lane_division();
                self.report_spills();
                self.send_notices(link);
            }
            let counters = Some(self.combined_counters().source);
            let objects_sent = self.lane.in_flight.sent_count();
            let closes = self.lane.source.chunks.as_ref().is_some_and(SessionChunks::is_last_session);
            link.queue_control(
                ControlMessage::Finish(FinishMessage { counters, objects_sent, closes }).to_body(),
            );
            assert_eq!(self.lane.in_flight.count(), 0, "every object was answered before the end");
            self.finish_sent = true;
            let uses_bbr = self.bbr_trial.as_ref().is_some_and(BbrTrialDriver::uses_bbr);
            self.tuning.iter().for_each(|tuning| tuning.store_result(uses_bbr));
            self.lane.send_queue.finish();
        }
        if std::mem::take(&mut self.says_farewell) {
            link.queue_control(ControlMessage::Leave(TransferCompleteMessage {}).to_body());
        }
        if let Some(notice) = self.first_notice.take() {
            self.tell(link, notice);
        }
        Ok(if self.finish_sent { self.counters_due } else { self.sample_and_tune(link, now) })
    }

    fn handle_control_message(&mut self, message: ControlMessage) -> Result<(), SessionError> {
        if let (Some(event), Some(observer)) =
            (to_event(&message, FailureSide::Sink), self.lane.source.observer)
        {
            observer.handle_event(&event);
        }
        match message {
            ControlMessage::ObjectsDone(done) => self.handle_acks(done),
            ControlMessage::FilePlaced(placed) => self.handle_file_layout(&placed),
            ControlMessage::FileDone(file) => self.handle_file_done(FileId(file.id)),
            ControlMessage::FileFailed(file) => self.handle_file_failed(FileId(file.id)),
            ControlMessage::FileLacks(file) => self.handle_damaged_ranges(&file),
            ControlMessage::Wanted(wanted) => match &self.lane.source.offers {
                Some(offers) => offers.answer(&wanted),
                None => Err(SessionError::Protocol("an answer where nothing was offered".into())),
            },
            ControlMessage::Settled(mark) => match &self.lane.source.chunks {
                Some(chunks) => chunks.mark_chunk_completed(mark.number),
                None => Err(SessionError::Protocol("a chunk where there are none".into())),
            },
            ControlMessage::Stand(question) if self.pruning == SyncDeletionProgress::Asked => {
                self.count_existence_query()?;
                self.lane.read_queue.push_errand(ReadWork::Stand(question));
                Ok(())
            }
            ControlMessage::Pruned(_) if self.pruning == SyncDeletionProgress::Asked => {
                self.finish_pruning();
                Ok(())
            }
            ControlMessage::Counters(counters) => {
                self.both.sink = counters;
                self.stall.check_flow(self.flow(), Instant::now())
            }
            ControlMessage::Finished(counters) if self.finish_sent && !self.is_over => {
                self.both.sink = counters;
                self.says_farewell = self.leads;
                self.report_final_counters();
                if let Some(chunks) = self.lane.source.chunks.as_ref().filter(|_| self.leads) {
                    chunks.mark_all_completed();
                }
                self.end();
                Ok(())
            }
            ControlMessage::Abort(message) => Err(SessionError::from_abort(message)),
            ControlMessage::Failure(_)
            | ControlMessage::Notice(_)
            | ControlMessage::Digest(_)
            | ControlMessage::Heartbeat(_) => Ok(()),
            ControlMessage::Targets(_) | ControlMessage::WouldCopy(_) => Ok(()),
            _ => Err(SessionError::Protocol("a message that a sink does not send".into())),
        }
    }

    fn handle_object(&mut self, _incoming: IncomingObject) -> Result<(), SessionError> {
        Err(SessionError::Protocol("an object that came to the source".into()))
    }

    fn endpoints(&self) -> Vec<(BorrowedFd<'_>, PollFlags)> {
        self.driven.iter().map(|endpoint| (endpoint.endpoint.readiness(), PollFlags::OUT)).collect()
    }

    fn handle_ready_endpoints(&mut self, places: &[usize]) -> Result<(), SessionError> {
        // From the back, so that the indices of the other endpoints stay valid.
        for &place in places.iter().rev() {
            let endpoint = self.driven.swap_remove(place);
            self.drive(endpoint)?;
        }
        Ok(())
    }

    fn wake_fd(&self) -> BorrowedFd<'_> {
        self.lane.mail.readiness()
    }

    fn reset_wakeups(&self) {
        self.lane.mail.reset_wakeups();
    }

    fn is_over(&self) -> bool {
        self.is_over
    }
}
