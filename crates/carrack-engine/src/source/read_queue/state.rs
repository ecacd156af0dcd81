//! The target queues of a lane (L2) with their work: the state under the lock of [`super::ReadQueue`].

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use carrack_layout::StorageTarget;
use carrack_machine::{ConditionWaitAttempt, FifoConditionLock};
use carrack_model::{FileId, SchedulingOptions, TargetId};
use carrack_plan::{
    FileCursor, IoQueueArrivalPattern, StorageRequestTiming, TargetQueues, TargetState, create_policy,
};

use super::target_credits::SourceFlowControl;
use crate::settings::{EndRateLimits, depth_of_queue};
use crate::sharing::{GrantClientTargetQueues, LaneTargetGrants};
use crate::source::large_file::OpenSourceLargeFile;
use crate::source::work::{BundleReadWork, ObjectFlowControlKey, ObjectWork, ReadWork};

/// Taken work, and its target in service.
pub(in crate::source) type TakenReadWork = (Option<TargetId>, ReadWork);

/// The target queues of a source.
pub(super) struct ReadQueueState {
    /// Work that needs little or no storage, and never waits behind a target.
    errands: VecDeque<ReadWork>,
    items: TargetQueues<ReadWork>,
    flow: SourceFlowControl,
    /// Known targets, each with its preferred number of requests in flight.
    known: HashMap<TargetId, u32>,
    /// Threads at work, and those at the start.
    readers: [usize; 2],
    /// The number of large files that may still be opened.
    permits: usize,
    permits_max: usize,
    scheduling: SchedulingOptions,
    /// The session's grants, if targets are shared.
    pass: Option<LaneTargetGrants>,
    /// True if work waited only for a rate limit.
    was_held: bool,
    /// The session's start, from which the policy counts.
    began: Instant,
}

impl GrantClientTargetQueues for FifoConditionLock<ReadQueueState> {
    fn states(&self) -> Vec<TargetState> {
        self.with(|queue| queue.items.states().to_vec())
    }

    fn wake(&self) {
        self.change_and_wake_many(usize::MAX, |_| ());
    }
}

impl ReadQueueState {
    /// Creates the queues without targets. `flow` counts objects in flight to a sink with several targets. At
    /// most `open_files_max` large files are open.
    pub(super) fn new(
        scheduling: SchedulingOptions,
        limits: EndRateLimits,
        io_threads: usize,
        flow: SourceFlowControl,
        open_files_max: usize,
        pass: Option<LaneTargetGrants>,
    ) -> ReadQueueState {
        assert!(io_threads > 0 && open_files_max > 0, "a thread reads, and a large file may be open");
        let chosen = create_policy(&scheduling.policy, io_threads, IoQueueArrivalPattern::Queued);
        let mut items = TargetQueues::new(match &pass {
            Some(pass) => pass.gate_policy(chosen),
            None => chosen,
        });
        items.set_rate_limits(limits.rates);
        ReadQueueState {
            errands: VecDeque::new(),
            items,
            flow,
            known: HashMap::new(),
            readers: [io_threads; 2],
            permits: open_files_max,
            permits_max: open_files_max,
            scheduling,
            pass,
            was_held: false,
            began: limits.began,
        }
    }

    pub(super) fn has_target(&self, target: TargetId) -> bool {
        self.known.contains_key(&target)
    }

    pub(super) fn add_target(&mut self, target: &StorageTarget) {
        let depth = depth_of_queue(target, self.scheduling.in_flight_max);
        self.known.insert(target.id, depth);
        if let Some(pass) = &self.pass {
            pass.add_target(target);
        }
        self.items.set_depth(target.id, self.depth_now(depth));
        self.items.set_server(target.id, target.server.as_ref().map(|server| server.id));
    }

    /// Sets the number of active threads. The depth of each target changes in proportion.
    pub(super) fn set_readers(&mut self, count: usize) {
        assert!(count > 0, "a reader is at work at any time");
        self.readers[0] = count;
        if let Some(pass) = &self.pass {
            pass.set_threads(count);
        }
        let depths: Vec<(TargetId, u32)> = self.known.iter().map(|(id, depth)| (*id, *depth)).collect();
        for (target, depth) in depths {
            self.items.set_depth(target, self.depth_now(depth));
        }
    }

    /// Returns the depth for the current number of threads: more than a target's preference where further
    /// threads have proved useful, never more than the user allows.
    fn depth_now(&self, depth: u32) -> u32 {
        let [now, start] = self.readers;
        if now <= start || self.scheduling.in_flight_max > 0 {
            return depth;
        }
        let more = u64::from(depth) * now as u64 / start.max(1) as u64;
        u32::try_from(more).unwrap_or(u32::MAX)
    }

    /// Puts work behind other work. Work from the scan has waited for room before. Work from other work is
    /// bounded by objects in flight.
    pub(super) fn push(&mut self, target: TargetId, work: ReadWork) {
        self.items.push(target, work.bytes(), work);
    }

    /// Adds a file's cursor before the waiting work: begun files end before others begin.
    pub(super) fn push_begun(&mut self, target: TargetId, work: ReadWork) {
        self.items.push_front(target, work.bytes(), work);
    }

    /// Adds work that needs little or no storage before all other work.
    pub(super) fn push_errand(&mut self, work: ReadWork) {
        let waits = matches!(work, ReadWork::Bundle(_) | ReadWork::Open(_) | ReadWork::Cursor(..));
        assert!(!waits, "work of a target waits in the queue of that target");
        self.errands.push_back(work);
    }

    /// Returns true if objects are taken one by one, as there is a choice or a limit. Otherwise a thread
    /// keeps a cursor for a while: neighbours in a file then follow each other on one stream, and no two
    /// threads of the sink write to one file. Several threads share a file only when no other work waits.
    fn takes_one_by_one(&self) -> bool {
        self.has_choice() || self.items.is_empty()
    }

    /// Returns true if the policy has a choice, or holds work back.
    pub(super) fn has_choice(&self) -> bool {
        self.known.len() > 1
            || self.flow.is_on()
            || self.scheduling.has_limits()
            || self.items.has_scheduled_rate()
            || self.pass.is_some()
    }

    /// Returns true if work waits to be read.
    pub(super) fn has_work(&self) -> bool {
        !self.errands.is_empty() || !self.items.is_empty()
    }

    /// Takes the next work item.
    pub(super) fn take(&mut self) -> ConditionWaitAttempt<TakenReadWork> {
        if let Some(work) = self.errands.pop_front() {
            return ConditionWaitAttempt::Done((None, work));
        }
        let now = self.began.elapsed();
        while let Some((target, work)) = self.items.take(now) {
            if let Some(work) = self.begin(target, work, now) {
                return ConditionWaitAttempt::Done((Some(target), work));
            }
            self.items.finish_service(target, None, now);
        }
        self.was_held |= self.items.is_held_by_rate(now);
        self.items
            .wake_at(now)
            .map_or(ConditionWaitAttempt::NotYet, |at| ConditionWaitAttempt::Until(self.began + at))
    }

    /// Returns true if a limit or a grant has held work back since the last call. The rate then says nothing
    /// about the number of threads.
    pub(super) fn take_was_held(&mut self) -> bool {
        let is_short = self.pass.as_ref().is_some_and(LaneTargetGrants::take_shortage);
        std::mem::take(&mut self.was_held) || is_short
    }

    /// Returns true if work waits only for a rate limit of the user.
    pub(super) fn is_held_by_rate(&self) -> bool {
        self.items.is_held_by_rate(self.began.elapsed())
    }

    /// Returns the work to do now, or `None` if it waits.
    fn begin(&mut self, target: TargetId, work: ReadWork, now: Duration) -> Option<ReadWork> {
        match work {
            ReadWork::Open(_) if self.permits == 0 => {
                self.push_begun(target, work);
                self.items.block(target);
                None
            }
            ReadWork::Open(_) => {
                assert!(self.permits > 0, "no more files are open than may be");
                self.permits -= 1;
                Some(work)
            }
            ReadWork::Bundle(..) => {
                self.dispatch_or_park(target, Some(ObjectFlowControlKey::Bundles(target)), work, now)
            }
            ReadWork::Object(piece) => {
                let place =
                    self.flow.is_on().then(|| self.flow_control_key(&piece.file, piece.extent.range.offset));
                self.dispatch_or_park(target, place, ReadWork::Object(ObjectWork { place, ..piece }), now)
            }
            ReadWork::Cursor(file, cursor) if self.takes_one_by_one() => self.cut(target, file, cursor, now),
            work => Some(work),
        }
    }

    /// Cuts one object; the cursor stays here, before the files that wait.
    fn cut(
        &mut self,
        target: TargetId,
        file: Arc<OpenSourceLargeFile>,
        mut cursor: FileCursor,
        now: Duration,
    ) -> Option<ReadWork> {
        let place = self.flow.is_on().then(|| self.flow_control_key(&file, cursor.peek_offset()));
        if let Some(place) = place.filter(|place| !self.flow.has_room(*place)) {
            self.flow.park(place, target, ReadWork::Cursor(file, cursor));
            return None;
        }
        // The thread that takes an exhausted cursor ends it.
        let Some(extent) = file.cut(&mut cursor) else { return Some(ReadWork::Cursor(file, cursor)) };
        let rest = cursor.peek_target().unwrap_or(target);
        self.push_begun(rest, ReadWork::Cursor(Arc::clone(&file), cursor));
        let work = ReadWork::Object(ObjectWork { file, extent, attempts: 0, place });
        self.dispatch_or_park(target, place, work, now)
    }

    /// Lets the work's object depart to a place, or keeps the work until there is room.
    fn dispatch_or_park(
        &mut self,
        target: TargetId,
        place: Option<ObjectFlowControlKey>,
        work: ReadWork,
        now: Duration,
    ) -> Option<ReadWork> {
        if let Some(place) = place {
            if !self.flow.has_room(place) {
                self.flow.park(place, target, work);
                return None;
            }
            self.flow.count_in_flight(place);
        }
        let is_charged = matches!(work, ReadWork::Bundle(BundleReadWork { is_rest: true, .. }));
        self.items.charge(target, if is_charged { 0 } else { work.bytes() }, now);
        Some(work)
    }

    fn flow_control_key(&self, file: &OpenSourceLargeFile, offset: u64) -> ObjectFlowControlKey {
        match file.sink_target_at(offset) {
            Some(target) => ObjectFlowControlKey::Target(target),
            None => ObjectFlowControlKey::File(file.id),
        }
    }

    /// Returns true if work waits only for room at the sink.
    pub(super) fn is_parking(&self) -> bool {
        self.flow.is_parking()
    }

    /// Switches flow control off or on.
    pub(super) fn lift_flow(&mut self, is_lifted: bool) {
        for (target, work) in self.flow.lift(is_lifted) {
            self.push_begun(target, work);
        }
    }

    /// Returns true if one more object may go there.
    pub(super) fn has_room_at_sink(&self, place: ObjectFlowControlKey) -> bool {
        self.flow.has_room_at_sink(place)
    }

    /// Counts an object that returns from flash.
    pub(super) fn count_in_flight(&mut self, place: ObjectFlowControlKey) {
        self.flow.count_in_flight(place);
    }

    /// Books an object of a run, which a thread cuts without the queue.
    pub(super) fn charge(&mut self, target: TargetId, bytes: u64) {
        self.items.charge(target, bytes, self.began.elapsed());
    }

    /// Ends an object: acked, or lost.
    pub(super) fn release_in_flight(&mut self, place: ObjectFlowControlKey) {
        for (target, work) in self.flow.release_in_flight(place) {
            self.push_begun(target, work);
        }
    }

    /// Continues work that waited for the file's layout at the sink.
    pub(super) fn resume_after_layout(&mut self, file: FileId) {
        for (target, work) in self.flow.take_parked_for_layout(file) {
            self.push_begun(target, work);
        }
    }

    /// Allows one more open file in place of a closed one.
    pub(super) fn return_permit(&mut self) {
        self.permits += 1;
        assert!(self.permits <= self.permits_max, "each file returns its permit once");
        self.items.unblock();
    }

    /// Ends the service of `target`, after this time if it is known.
    pub(super) fn finish_service(&mut self, target: TargetId, service: Option<StorageRequestTiming>) {
        self.items.finish_service(target, service, self.began.elapsed());
    }

    /// Returns the queues for reports.
    pub(super) fn targets(&self) -> (&TargetQueues<ReadWork>, Duration) {
        (&self.items, self.began.elapsed())
    }
}
