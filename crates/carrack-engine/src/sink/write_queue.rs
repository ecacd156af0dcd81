//! The write queue of a lane: work for the I/O threads and its order, the number of working threads, and
//! counts of the queued and the stored bytes.
//!
//! The comm thread, I/O threads and those of a spill use it; the meta-scheduler's client reads its targets.
//! It owns one monitor, and no lock of the sink is taken while that is held.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::AcqRel, Ordering::Relaxed};
use std::time::{Duration, Instant};

use carrack_layout::StorageTarget;
use carrack_machine::{ConditionWaitAttempt, FifoConditionLock, FifoMonitorClosed};
use carrack_model::{SchedulingOptions, TargetId, TargetReport};
use carrack_plan::{
    IoQueueArrivalPattern, StorageRequestTiming, TargetQueues, TargetState, create_policy, slow_targets,
};
use carrack_transport::{IncomingObject, ReceiveEndpoint};
use carrack_wire::message::{KnobsMessage, OfferedEntriesMessage, PruneMessage};

use super::sink_file::SinkFile;
use super::sizing::SinkSizing;
use super::write_method::SinkStorageFacts;
use crate::event_delivery::target_reports;
use crate::settings::{EndRateLimits, depth_of_queue};
use crate::sharing::{GrantClientTargetQueues, LaneTargetGrants, SessionGrantClient};
use crate::spill::LaneByteFlow;
use crate::thread_gate::ThreadGate;

/// The time after its last request for which a slow target gets no new files: as long as a burst of another
/// job takes, or a few rounds of its files.
const SLOW_FOR: Duration = Duration::from_secs(20);

/// A task of an I/O thread.
pub(super) enum SinkIoTask {
    /// A file was announced: create it, and send its layout.
    Create(Arc<SinkFile>),
    /// The file is complete: give it its name.
    Commit(Arc<SinkFile>),
    /// This session's part of the file is written; other sessions write the rest.
    Shelve(Arc<SinkFile>),
    /// All objects of this chunk have acks: make it durable, record it, and tell the source.
    Settle(u64),
    /// The source gave the file up: remove its temporary file.
    Discard(Arc<SinkFile>),
    /// The source offers these entries: reply with the wanted ones.
    Offer(OfferedEntriesMessage),
    /// Everything is sent: delete entries that the source does not have.
    Prune(PruneMessage),
    /// Everything is written: set the directories' metadata.
    Finish {
        /// True if no entry failed: a later session has nothing to resume.
        is_complete: bool,
    },
    /// Check and write an object of the queue of its target.
    Store(TargetId, IncomingObject),
    /// Drive a data connection that has data.
    Stream(Box<dyn ReceiveEndpoint>),
}

/// Tasks and objects that wait for I/O threads.
pub(super) struct WriteQueue {
    /// Shared with the meta-scheduler's client.
    inbox: Arc<FifoConditionLock<WriteQueueState>>,
    /// The I/O threads of the lane that are at work.
    writers: ThreadGate,
    thread_count: usize,
    /// Data connections of this lane.
    stream_count: usize,
    /// Bytes of objects that were added to the queues of their targets, and of those that were stored.
    queued_bytes: AtomicU64,
    stored_bytes: AtomicU64,
}

impl WriteQueue {
    /// Creates the queue of a lane with `stream_count` data connections.
    pub(super) fn new(
        sizing: &SinkSizing,
        storage: &SinkStorageFacts,
        share: Option<&SessionGrantClient>,
        stream_count: usize,
    ) -> WriteQueue {
        let lane_count = sizing.lane_count;
        let wanted = sizing.io_threads.div_ceil(lane_count);
        let used = sizing.streams.used(stream_count * lane_count).div_ceil(lane_count);
        let most = sizing.io_threads_most.div_ceil(lane_count).max(wanted);
        let limits = sizing.limits.clone();
        let pass = share.map(|share| share.lane_grants(wanted, limits.began));
        let mut inbox =
            WriteQueueState::new(sizing.scheduling, limits, wanted, sizing.is_sorting, pass.clone());
        inbox.add_target(storage.destination_file_system().own_target());
        let inbox = Arc::new(FifoConditionLock::new(inbox));
        if let Some(pass) = pass {
            pass.join(&inbox);
        }
        let thread_count = sizing.threads_for(stream_count, most);
        let writer_count = sizing.threads_for(used, wanted);
        assert!(writer_count <= thread_count, "the first writers are among the threads of the lane");
        WriteQueue {
            inbox,
            writers: ThreadGate::new(writer_count),
            thread_count,
            stream_count,
            queued_bytes: AtomicU64::new(0),
            stored_bytes: AtomicU64::new(0),
        }
    }

    /// I/O threads of the lane.
    pub(super) fn thread_count(&self) -> usize {
        self.thread_count
    }

    /// I/O threads that are at work.
    pub(super) fn writer_count(&self) -> usize {
        self.writers.allowed_thread_count()
    }

    /// Applies the tuner's numbers of streams and writers of all lanes.
    pub(super) fn apply_knobs(&self, sizing: &SinkSizing, knobs: KnobsMessage) {
        let streams = (knobs.streams as usize).div_ceil(sizing.lane_count).min(self.stream_count);
        let writers = (knobs.writers as usize).div_ceil(sizing.lane_count);
        let threads = sizing.threads_for(streams, writers);
        self.writers.set(threads.min(self.thread_count));
        assert!(
            self.writers.allowed_thread_count() <= self.thread_count,
            "no more threads write than there are"
        );
        self.inbox.change_and_wake_many(threads, |inbox| inbox.set_writers(writers));
    }

    /// Blocks the I/O thread `number`, counted from 0, while it is not to work.
    pub(super) fn await_turn(&self, number: usize) {
        assert!(number < self.thread_count, "I/O threads are numbered from 0");
        self.writers.pass(number);
    }

    /// Waits for the next task. The caller reports its end by [`finish_task`](Self::finish_task), unless it
    /// is a connection.
    pub(super) fn take(&self) -> Result<SinkIoTask, FifoMonitorClosed> {
        self.inbox.take_timed(WriteQueueState::take)
    }

    /// Returns the next task for a thread that drives a connection, if there is one.
    pub(super) fn take_beside_streams(&self) -> Option<SinkIoTask> {
        self.inbox.try_take(WriteQueueState::take_beside_streams)
    }

    /// Ends a task other than a connection.
    pub(super) fn finish_task(&self) {
        self.inbox.change_and_wake_one(WriteQueueState::finish_task);
    }

    /// Adds the beginning or end of a file, or of more.
    pub(super) fn push_file_task(&self, task: SinkIoTask) {
        let is_end = !matches!(task, SinkIoTask::Store(..) | SinkIoTask::Stream(_));
        assert!(is_end, "objects and streams have queues of their own");
        self.inbox.change_and_wake_one(|inbox| inbox.ends.push_back(task));
    }

    /// Adds a data connection with data.
    pub(super) fn push_stream(&self, endpoint: Box<dyn ReceiveEndpoint>) {
        self.inbox.change_and_wake_one(|inbox| inbox.streams.push_back(endpoint));
    }

    /// Adds an object to the queue of its target.
    pub(super) fn push_object(&self, target: TargetId, incoming: IncomingObject) {
        self.queued_bytes.fetch_add(incoming.header.body_len.into(), Relaxed);
        self.inbox.change_and_wake_one(|inbox| inbox.push_object(target, incoming));
    }

    /// Ends an object of `bytes` bytes that was taken from this target's queue: it is stored, or will not be.
    /// The service time is passed if it is known.
    pub(super) fn finish_object(&self, target: TargetId, service: Option<StorageRequestTiming>, bytes: u64) {
        self.inbox.change_and_wake_one(|inbox| inbox.finish_object(target, service));
        // Ordered, so that the queued bytes of all objects that are counted as stored are seen here.
        let stored = self.stored_bytes.fetch_add(bytes, AcqRel) + bytes;
        assert!(stored <= self.queued_bytes.load(Relaxed), "no more is stored than was queued");
    }

    /// Moves an object that was taken from the queue of `from` to that of another target.
    pub(super) fn move_object(&self, from: TargetId, to: TargetId, incoming: IncomingObject) {
        assert!(from != to, "an object that stays is not moved");
        self.inbox.change_and_wake_many(2, |inbox| {
            inbox.finish_object(from, None);
            inbox.uncharge_object(from, &incoming);
            inbox.push_object(to, incoming);
        });
    }

    /// Takes back the charge of an object from this target's queue, which will be queued once more.
    pub(super) fn uncharge_object(&self, target: TargetId, incoming: &IncomingObject) {
        self.inbox.with(|inbox| inbox.uncharge_object(target, incoming));
    }

    /// Takes the youngest object of the target with the longest queue, if more than `kept` wait there, and it
    /// is `fit`.
    pub(super) fn take_youngest(
        &self,
        kept: usize,
        fit: impl FnOnce(&IncomingObject) -> bool,
    ) -> Option<(TargetId, IncomingObject)> {
        self.inbox.with(|inbox| inbox.objects.take_last(kept, fit))
    }

    /// Returns the object of [`take_youngest`](Self::take_youngest) to the end of its queue.
    pub(super) fn put_back(&self, target: TargetId, incoming: IncomingObject) {
        self.inbox.change_and_wake_one(|inbox| inbox.push_object(target, incoming));
    }

    /// Returns the object of [`take_youngest`](Self::take_youngest) to the head of its queue.
    pub(super) fn requeue_first(&self, target: TargetId, incoming: IncomingObject) {
        let bytes = incoming.header.body_len.into();
        self.inbox.change_and_wake_one(|inbox| inbox.objects.push_front(target, bytes, incoming));
    }

    /// Adds targets.
    pub(super) fn add_targets(&self, storage: &SinkStorageFacts, targets: &[TargetId]) {
        for &id in targets {
            if self.inbox.with(|inbox| inbox.known.contains(&id)) {
                continue;
            }
            if let Some(target) = storage.file_systems().target(id) {
                self.inbox.change_and_wake_one(|inbox| inbox.add_target(&target));
            }
        }
    }

    /// Bytes added to the queues of targets, and bytes stored from there.
    pub(super) fn byte_flow(&self) -> LaneByteFlow {
        LaneByteFlow { came: self.queued_bytes.load(Relaxed), went: self.stored_bytes.load(Relaxed) }
    }

    /// Objects that wait or are being written.
    pub(super) fn object_count(&self) -> usize {
        self.inbox.with(|inbox| inbox.objects.len() + inbox.objects.in_service())
    }

    /// Objects that wait.
    pub(super) fn waiting_count(&self) -> usize {
        self.inbox.with(|inbox| inbox.objects.len())
    }

    /// Objects that wait for a target.
    pub(super) fn waiting_for(&self, target: TargetId) -> usize {
        self.inbox.with(|inbox| inbox.waiting_for(target))
    }

    /// Returns the targets that are slow now, as far as requests of the last moments show.
    pub(super) fn slow_targets(&self) -> Vec<TargetId> {
        self.inbox.with(|inbox| inbox.slow_targets(inbox.began.elapsed()))
    }

    /// Returns the queues of targets for reports.
    pub(super) fn reports(&self, storage: &SinkStorageFacts) -> Vec<TargetReport> {
        let file_systems = storage.file_systems();
        self.inbox.with(|inbox| target_reports((&inbox.objects, inbox.began.elapsed()), file_systems))
    }

    /// Ends all waiting.
    pub(super) fn close(&self) {
        self.writers.close();
        self.inbox.close();
    }
}

/// The order of tasks. Beginnings and ends of files are first, as they hold descriptors. If objects wait for
/// their targets, connections are next: the threads that drive them only sort objects. Otherwise objects are
/// next, as they hold slots.
struct WriteQueueState {
    ends: VecDeque<SinkIoTask>,
    objects: TargetQueues<IncomingObject>,
    streams: VecDeque<Box<dyn ReceiveEndpoint>>,
    known: HashSet<TargetId>,
    /// The end of the last timed request to each target.
    last_service: HashMap<TargetId, Duration>,
    streams_first: bool,
    /// Threads that are busy with storage, and their maximum: the other threads drive connections, so that
    /// stalled storage blocks no connection. Only if objects wait for their targets.
    storing: usize,
    storing_max: usize,
    in_flight_max: u32,
    /// The grants of the meta-scheduler, if targets are shared.
    pass: Option<LaneTargetGrants>,
    began: Instant,
}

impl GrantClientTargetQueues for FifoConditionLock<WriteQueueState> {
    fn states(&self) -> Vec<TargetState> {
        self.with(|inbox| inbox.objects.states().to_vec())
    }

    fn wake(&self) {
        self.change_and_wake_many(usize::MAX, |_| ());
    }
}

impl WriteQueueState {
    /// `is_sorting`: objects wait for their targets.
    fn new(
        scheduling: SchedulingOptions,
        limits: EndRateLimits,
        io_threads: usize,
        is_sorting: bool,
        pass: Option<LaneTargetGrants>,
    ) -> WriteQueueState {
        let mut objects = TargetQueues::default();
        if is_sorting {
            let chosen = create_policy(&scheduling.policy, io_threads, IoQueueArrivalPattern::Arriving);
            objects = TargetQueues::new(match &pass {
                Some(pass) => pass.gate_policy(chosen),
                None => chosen,
            });
        }
        // A source obeys the rate limit of the session, unless it is a client that a daemon limits.
        objects.set_rate_limits(limits.rates);
        WriteQueueState {
            ends: VecDeque::new(),
            objects,
            streams: VecDeque::new(),
            known: HashSet::new(),
            last_service: HashMap::new(),
            streams_first: is_sorting,
            storing: 0,
            storing_max: if is_sorting { io_threads.max(1) } else { usize::MAX },
            in_flight_max: scheduling.in_flight_max,
            pass,
            began: limits.began,
        }
    }

    fn add_target(&mut self, target: &StorageTarget) {
        self.known.insert(target.id);
        if let Some(pass) = &self.pass {
            pass.add_target(target);
        }
        self.objects.set_depth(target.id, depth_of_queue(target, self.in_flight_max));
        self.objects.set_server(target.id, target.server.as_ref().map(|server| server.id));
    }

    /// Objects that wait for a target.
    fn waiting_for(&self, target: TargetId) -> usize {
        let state = self.objects.states().iter().find(|state| state.target == target);
        state.map_or(0, |state| state.waiting)
    }

    /// Returns the targets that are slow. One without a request for a while is tried again.
    fn slow_targets(&self, now: Duration) -> Vec<TargetId> {
        let is_recent = |target: &TargetId| {
            self.last_service.get(target).is_some_and(|last| now.saturating_sub(*last) <= SLOW_FOR)
        };
        let timed = self.objects.verdicts(now).map(|(state, verdict, _)| (state.target, verdict.recent));
        let timed: Vec<_> = timed.filter(|(target, time)| !time.is_zero() && is_recent(target)).collect();
        slow_targets(&timed)
    }

    /// Takes the next task.
    fn take(&mut self) -> ConditionWaitAttempt<SinkIoTask> {
        let now = self.began.elapsed();
        let may_store = self.storing < self.storing_max;
        let end = if may_store { self.ends.pop_front() } else { None };
        let first = end.or_else(|| if self.streams_first { self.take_stream() } else { None });
        let first = first.or_else(|| if may_store { self.take_object(now) } else { None });
        match first.or_else(|| self.take_stream()) {
            Some(task) => {
                self.storing += usize::from(!matches!(task, SinkIoTask::Stream(_)));
                assert!(
                    self.storing <= self.storing_max || matches!(task, SinkIoTask::Stream(_)),
                    "no more store than may"
                );
                ConditionWaitAttempt::Done(task)
            }
            None if !may_store => ConditionWaitAttempt::NotYet,
            None => self
                .objects
                .wake_at(now)
                .map_or(ConditionWaitAttempt::NotYet, |at| ConditionWaitAttempt::Until(self.began + at)),
        }
    }

    /// Takes the next task for a thread that drives a connection.
    fn take_beside_streams(&mut self) -> Option<SinkIoTask> {
        let end = self.ends.pop_front();
        end.or_else(|| self.take_object(self.began.elapsed()))
    }

    fn take_stream(&mut self) -> Option<SinkIoTask> {
        self.streams.pop_front().map(SinkIoTask::Stream)
    }

    fn take_object(&mut self, now: Duration) -> Option<SinkIoTask> {
        let (target, incoming) = self.objects.take(now)?;
        self.objects.charge(target, incoming.header.body_len.into(), now);
        Some(SinkIoTask::Store(target, incoming))
    }

    /// Ends a task other than a connection.
    fn finish_task(&mut self) {
        assert!(self.storing > 0, "what is done was taken before");
        self.storing -= 1;
    }

    /// Sets the number of threads that may be busy with storage.
    fn set_writers(&mut self, count: usize) {
        if self.streams_first {
            self.storing_max = count.max(1);
        }
    }

    fn push_object(&mut self, target: TargetId, incoming: IncomingObject) {
        self.objects.push(target, incoming.header.body_len.into(), incoming);
    }

    /// Ends an object that was taken, with its service time if known.
    fn finish_object(&mut self, target: TargetId, service: Option<StorageRequestTiming>) {
        let now = self.began.elapsed();
        if service.is_some() {
            self.last_service.insert(target, now);
        }
        self.objects.finish_service(target, service, now);
    }

    /// Takes back the charge of an object from this target's queue, which will be queued once more.
    fn uncharge_object(&mut self, target: TargetId, incoming: &IncomingObject) {
        self.objects.uncharge(target, incoming.header.body_len.into());
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use carrack_machine::SlotPool;
    use carrack_model::{ByteRange, ObjectId};
    use carrack_transport::loopback_pair;

    use super::super::sink_file::tests::incoming;
    use super::*;

    #[test]
    fn storage_that_stalls_holds_up_no_stream() {
        let mut inbox = WriteQueueState::new(
            SchedulingOptions::default(),
            crate::settings::EndSettings::default().limits(),
            2,
            true,
            None,
        );
        (0..3).for_each(|number| inbox.ends.push_back(SinkIoTask::Settle(number)));
        assert!(matches!(inbox.take(), ConditionWaitAttempt::Done(SinkIoTask::Settle(0))));
        assert!(matches!(inbox.take(), ConditionWaitAttempt::Done(SinkIoTask::Settle(1))));
        assert!(matches!(inbox.take(), ConditionWaitAttempt::NotYet), "as many as may be are busy");
        let (_sender, receiver) = loopback_pair().unwrap();
        inbox.streams.push_back(Box::new(receiver));
        assert!(matches!(inbox.take(), ConditionWaitAttempt::Done(SinkIoTask::Stream(_))));
        inbox.finish_task();
        assert!(matches!(inbox.take(), ConditionWaitAttempt::Done(SinkIoTask::Settle(2))));
        inbox.ends.push_back(SinkIoTask::Settle(3));
        inbox.set_writers(3);
        assert!(matches!(inbox.take(), ConditionWaitAttempt::Done(SinkIoTask::Settle(3))));
    }

    const ONE: TargetId = TargetId(1);
    const OTHER: TargetId = TargetId(2);
    const BYTES: u64 = 4096;

    /// The queue of a lane with four I/O threads and two streams.
    fn queue() -> WriteQueue {
        let limits = crate::settings::EndSettings::default().limits();
        WriteQueue {
            inbox: Arc::new(FifoConditionLock::new(WriteQueueState::new(
                SchedulingOptions::default(),
                limits,
                2,
                true,
                None,
            ))),
            writers: ThreadGate::new(4),
            thread_count: 4,
            stream_count: 2,
            queued_bytes: AtomicU64::new(0),
            stored_bytes: AtomicU64::new(0),
        }
    }

    fn object(pool: &SlotPool, number: u64) -> IncomingObject {
        let mut object = incoming(pool, 1, ByteRange::new(number * BYTES, BYTES));
        object.header.object = ObjectId(number);
        object
    }

    fn take_object(queue: &WriteQueue) -> (TargetId, IncomingObject) {
        match queue.take() {
            Ok(SinkIoTask::Store(target, incoming)) => (target, incoming),
            _ => panic!("an object waits"),
        }
    }

    #[test]
    fn an_object_that_moves_is_counted_once() {
        let (queue, pool) = (queue(), SlotPool::new(16 * BYTES, BYTES as usize).unwrap());
        queue.push_object(ONE, object(&pool, 1));
        let (target, incoming) = take_object(&queue);
        assert_eq!((target, queue.waiting_count(), queue.object_count()), (ONE, 0, 1));
        queue.move_object(ONE, OTHER, incoming);
        queue.finish_task();
        assert_eq!((queue.waiting_for(ONE), queue.waiting_for(OTHER)), (0, 1));
        let (target, incoming) = take_object(&queue);
        assert_eq!((target, incoming.header.object.0), (OTHER, 1));
        queue.finish_object(OTHER, None, BYTES);
        queue.finish_task();
        let LaneByteFlow { came, went } = queue.byte_flow();
        assert_eq!((came, went, queue.object_count()), (BYTES, BYTES, 0));
    }

    #[test]
    fn the_youngest_goes_aside_and_comes_back_first() {
        let (queue, pool) = (queue(), SlotPool::new(16 * BYTES, BYTES as usize).unwrap());
        (1..=3).for_each(|number| queue.push_object(ONE, object(&pool, number)));
        assert!(queue.take_youngest(3, |_| true).is_none(), "so many stay");
        assert!(queue.take_youngest(0, |_| false).is_none(), "it is not fit");
        let (target, youngest) = queue.take_youngest(2, |_| true).unwrap();
        assert_eq!((target, youngest.header.object.0), (ONE, 3));
        queue.requeue_first(ONE, youngest);
        let order: Vec<u64> = (0..2).map(|_| take_object(&queue).1.header.object.0).collect();
        assert_eq!((order, queue.byte_flow().came), (vec![3, 1], 3 * BYTES), "what comes back came once");
    }

    #[test]
    fn a_slow_target_is_one_for_a_while() {
        let mut inbox = WriteQueueState::new(
            SchedulingOptions::default(),
            crate::settings::EndSettings::default().limits(),
            4,
            true,
            None,
        );
        let pool = SlotPool::new(16 * BYTES, BYTES as usize).unwrap();
        for (number, (target, ms)) in [(ONE, 1), (OTHER, 400), (TargetId(3), 1)].into_iter().enumerate() {
            inbox.objects.set_depth(target, 8);
            inbox.push_object(target, object(&pool, number as u64));
            assert!(
                matches!(inbox.take(), ConditionWaitAttempt::Done(SinkIoTask::Store(of, _)) if of == target)
            );
            let service = StorageRequestTiming { bytes: 1 << 20, time: Duration::from_millis(ms) };
            inbox.finish_object(target, Some(service));
        }
        let now = inbox.began.elapsed();
        assert_eq!(inbox.slow_targets(now), [OTHER]);
        assert_eq!(inbox.slow_targets(now + SLOW_FOR), []);
    }

    #[test]
    fn nobody_waits_for_a_queue_that_is_closed() {
        let queue = &queue();
        thread::scope(|scope| {
            let taken = scope.spawn(|| queue.take().is_err());
            while queue.inbox.waiter_count() == 0 {
                thread::yield_now();
            }
            queue.close();
            assert!(taken.join().unwrap());
        });
        assert!(queue.take_beside_streams().is_none());
    }
}
