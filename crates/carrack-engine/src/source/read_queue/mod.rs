//! A lane's read queue. The scan's threads add work, I/O threads take it, and the comm thread delivers the
//! sink's acks.
//!
//! Readers wait for work at one lock, the scan for room at another. So readers never queue behind the scan.
//! Both locks are private to this type.

mod scan_backpressure;
mod state;
mod target_credits;

use std::sync::Arc;

use carrack_layout::FileSystems;
use carrack_machine::{FifoConditionLock, FifoMonitorClosed};
use carrack_model::limits::QUEUE_ENTRIES_MAX;
use carrack_model::{FileId, TargetId, TargetReport};
use carrack_plan::StorageRequestTiming;

use super::large_file::OpenSourceLargeFile;
use super::sizing::SourceSizing;
use super::work::{BundleReadWork, ObjectFlowControlKey, ReadWork};
use crate::event_delivery::target_reports;
use crate::settings::EndSettings;
use crate::sharing::SessionGrantClient;
use crate::thread_gate::ThreadGate;
use scan_backpressure::ReadQueueRoom;
use state::ReadQueueState;
pub(super) use state::TakenReadWork;
use target_credits::SourceFlowControl;

/// The target queues of one lane with the threads that read from them.
pub(super) struct ReadQueue {
    state: Arc<FifoConditionLock<ReadQueueState>>,
    room: FifoConditionLock<ReadQueueRoom>,
    /// Lets some of the lane's I/O threads work.
    gate: ThreadGate,
    /// I/O threads that the lane begins with.
    threads_at_start: usize,
    scan_threads: usize,
    /// True if objects are counted by their places at the sink.
    counts_flow: bool,
}

impl ReadQueue {
    /// Creates the queue of a lane that begins with `threads` I/O threads.
    pub(super) fn new(
        threads: usize,
        sizing: &SourceSizing,
        settings: &EndSettings,
        share: Option<&SessionGrantClient>,
    ) -> ReadQueue {
        let pass = share.map(|share| share.lane_grants(threads, sizing.limits.began));
        let flow = SourceFlowControl::new(sizing.counts_flow, sizing.credits);
        let open_files = (sizing.open_files / sizing.lane_count).max(1);
        let scheduling = settings.scheduling.per_lane(sizing.lane_count);
        let state =
            ReadQueueState::new(scheduling, sizing.limits.clone(), threads, flow, open_files, pass.clone());
        let state = Arc::new(FifoConditionLock::new(state));
        if let Some(pass) = pass {
            pass.join(&state);
        }
        ReadQueue {
            state,
            room: FifoConditionLock::new(ReadQueueRoom::new(QUEUE_ENTRIES_MAX / sizing.lane_count)),
            gate: ThreadGate::new(threads),
            threads_at_start: threads,
            scan_threads: settings.scan_thread_count(),
            counts_flow: sizing.counts_flow,
        }
    }

    /// I/O threads that the lane begins with.
    pub(super) fn threads_at_start(&self) -> usize {
        self.threads_at_start
    }

    // The scan.

    /// Waits for room for this number of entries.
    pub(super) fn await_room(&self, entries: usize) -> Result<(), FifoMonitorClosed> {
        self.room.take(|room| room.take(entries))
    }

    /// Returns the entries that have room, and the maximum.
    pub(super) fn room_fill(&self) -> (usize, usize) {
        self.room.with(|room| room.fill())
    }

    /// Adds work behind the waiting work.
    pub(super) fn push(&self, target: TargetId, work: ReadWork) {
        self.state.change_and_wake_one(|state| state.push(target, work));
    }

    /// Adds targets.
    pub(super) fn add_targets(&self, targets: &[TargetId], file_systems: &FileSystems) {
        for &id in targets {
            if self.state.with(|state| state.has_target(id)) {
                continue;
            }
            if let Some(target) = file_systems.target(id) {
                self.state.change_and_wake_one(|state| state.add_target(&target));
            }
        }
    }

    // I/O threads.

    /// Waits until the I/O thread with this number may work.
    pub(super) fn await_turn(&self, number: usize) {
        self.gate.pass(number);
    }

    /// Waits for the next work item.
    pub(super) fn take(&self) -> Result<TakenReadWork, FifoMonitorClosed> {
        let (target, work) = self.state.take_timed(ReadQueueState::take)?;
        // Work remains, such as a cursor that was put back: wake the next waiter.
        self.state.change_and_wake_one(|_| ());
        match work.fresh_entries() {
            0 => {}
            entries => self.release_room(entries),
        }
        Ok((target, work))
    }

    /// Frees the room of work from the scan that was taken.
    fn release_room(&self, entries: usize) {
        if self.room.with(|room| room.release(entries)) {
            self.room.change_and_wake_many(self.scan_threads, ReadQueueRoom::free);
        }
    }

    /// Puts the rest of a bundle before other work: the next free thread continues it.
    pub(super) fn put_back(&self, target: TargetId, rest: BundleReadWork) {
        self.state.change_and_wake_one(|state| state.push_begun(target, ReadWork::Bundle(rest)));
    }

    /// Puts cursors of begun files before other work, so that begun files end before others begin.
    pub(super) fn push_begun(&self, cursors: Vec<(TargetId, ReadWork)>) {
        self.state.change_and_wake_many(cursors.len(), |state| {
            cursors.into_iter().for_each(|(target, work)| state.push_begun(target, work));
        });
    }

    /// Adds work that needs little or no storage before all other work.
    pub(super) fn push_errand(&self, work: ReadWork) {
        self.state.change_and_wake_one(|state| state.push_errand(work));
    }

    /// Books an object of a run, which a thread cuts without the queue.
    pub(super) fn charge(&self, target: TargetId, bytes: u64) {
        self.state.with(|state| state.charge(target, bytes));
    }

    /// Ends the service of `target`, after this time if it is known.
    pub(super) fn finish_service(&self, target: TargetId, service: Option<StorageRequestTiming>) {
        self.state.change_and_wake_one(|state| state.finish_service(target, service));
    }

    /// Allows one more open file in place of a closed one.
    pub(super) fn return_permit(&self) {
        self.state.change_and_wake_one(ReadQueueState::return_permit);
    }

    /// Queues a large file for another try.
    pub(super) fn open_again(&self, target: TargetId, work: ReadWork) {
        self.state.change_and_wake_many(2, |state| {
            state.return_permit();
            state.push(target, work);
        });
    }

    /// Ends a large file: an I/O thread closes it. The comm thread must not wait for that, as closing may
    /// take as long as a storage request (NFS, FUSE).
    pub(super) fn close_file(&self, file: Arc<OpenSourceLargeFile>) {
        self.state.change_and_wake_many(2, |state| {
            state.return_permit();
            state.push_errand(ReadWork::Close(file));
        });
    }

    /// Returns true if the policy has a choice, or holds work back.
    pub(super) fn has_choice(&self) -> bool {
        self.state.with(|state| state.has_choice())
    }

    // The sink's acks.

    /// Ends an object, or gives up its place: there is room for the next one.
    pub(super) fn release_in_flight(&self, place: Option<ObjectFlowControlKey>) {
        if let Some(place) = place.filter(|_| self.counts_flow) {
            self.state.change_and_wake_one(|state| state.release_in_flight(place));
        }
    }

    /// Continues work that waited for a file's layout at the sink.
    pub(super) fn resume_after_layout(&self, file: FileId) {
        self.state.change_and_wake_many(self.threads_at_start, |state| state.resume_after_layout(file));
    }

    // Spilling.

    /// Returns the place of an object, if places are counted.
    pub(super) fn place_if_counted(
        &self,
        place: Option<ObjectFlowControlKey>,
    ) -> Option<ObjectFlowControlKey> {
        place.filter(|_| self.counts_flow)
    }

    /// Returns true if one more object may go there.
    pub(super) fn has_room_at_sink(&self, place: ObjectFlowControlKey) -> bool {
        self.state.with(|state| state.has_room_at_sink(place))
    }

    /// Counts an object that returns from flash.
    pub(super) fn count_in_flight(&self, place: ObjectFlowControlKey) {
        self.state.with(|state| state.count_in_flight(place));
    }

    /// Switches flow control off or on.
    pub(super) fn lift_flow(&self, is_lifted: bool) {
        self.state.change_and_wake_many(self.threads_at_start, |state| state.lift_flow(is_lifted));
    }

    /// Returns true if work waits only for room at the sink.
    pub(super) fn is_parking(&self) -> bool {
        self.state.with(|state| state.is_parking())
    }

    // Tuning and reports.

    /// I/O threads that are at work.
    pub(super) fn reader_count(&self) -> usize {
        self.gate.allowed_thread_count()
    }

    /// Sets the number of active I/O threads.
    pub(super) fn set_readers(&self, count: usize) {
        if self.gate.allowed_thread_count() != count {
            self.gate.set(count);
            self.state.change_and_wake_many(count, |state| state.set_readers(count));
        }
    }

    /// I/O threads that wait for work.
    pub(super) fn waiter_count(&self) -> usize {
        self.state.waiter_count()
    }

    /// Returns true if work waits to be read.
    pub(super) fn has_work(&self) -> bool {
        self.state.with(|state| state.has_work())
    }

    /// Returns true if a limit or a grant has held work back since the last call.
    pub(super) fn take_was_held(&self) -> bool {
        self.state.with(ReadQueueState::take_was_held)
    }

    /// Returns true if work waits only for a rate limit of the user.
    pub(super) fn is_held_by_rate(&self) -> bool {
        self.state.with(|state| state.is_held_by_rate())
    }

    /// Returns reports of the targets in use.
    pub(super) fn target_reports(&self, file_systems: &FileSystems) -> Vec<TargetReport> {
        self.state.with(|state| target_reports(state.targets(), file_systems))
    }

    /// Ends all waiting.
    pub(super) fn close(&self) {
        self.gate.close();
        self.state.close();
        self.room.close();
    }
}
