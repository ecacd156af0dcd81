//! The decisions of a manager about one transfer whose lease it holds: a state machine without a clock and
//! without a connection.
//!
//! A driver (a manager's task, or a simulation) asks for the [next](TransferCoordinator::next)
//! [`CoordinatorStep`], carries it out, and reports the result with
//! [`TransferCoordinator::apply_step_result`]. The order of the steps makes a transfer safe:
//!
//! - The record is read after the lease was taken, because the copy that a manager follows may be stale. A
//!   transfer that is over is left alone.
//! - Nothing is decided before the log was read to its end, nor while the lease may have expired.
//! - Deletion at the destination waits until everything is settled, no item of the queue is under way, and
//!   nothing has failed. It stops while the transfer is paused, and never starts after a cancellation.
//! - A transfer is closed when everything is settled, no item of its queue is under way, and its record lists
//!   the failures.
//! - At the end the pairs are removed first, then the record gets its final state, and then the queue and the
//!   log are removed.
//!
//! A step that fails is retried later, beginning with the record; the log is read again for everything learnt
//! before.

use std::collections::HashMap;
use std::time::Duration;

use super::{
    LargeFileNumber, ManagerAction, PairCountTuner, TransferHealthVerdict, TransferTotals, TransferTracker,
    TransferTrackerEvent,
};

/// Decisions are made at least this often, also without an event.
const DECIDE_EVERY: Duration = Duration::from_millis(250);

/// Delay before a transfer whose route could not be settled is looked at again.
const SETTLE_AGAIN_AFTER: Duration = Duration::from_secs(2);

/// Delay before a failed step is retried.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Interval between two orders of a scan: an order may be lost until the scan has begun.
const ORDER_SCAN_EVERY: Duration = Duration::from_secs(5);

/// After this time without progress, a transfer with pairs reports its last fault.
const STANDS_AFTER: Duration = Duration::from_secs(10);

/// Interval between two writes of the record while something changes.
const RECORD_EVERY: Duration = Duration::from_secs(1);

/// Interval between two removals of acknowledged chunks from the queue.
const TRIM_EVERY: Duration = Duration::from_secs(30);

/// A pair's report counts as current for this time.
const REPORT_LASTS: Duration = Duration::from_secs(4);

/// Delay before the queue is looked at again: chunks are acknowledged a moment after they are logged.
const ACKNOWLEDGED_SOON: Duration = Duration::from_millis(20);

/// A queue that stays busy for longer than this after everything was logged holds an item that the tracker
/// does not know.
const ACKNOWLEDGED_WITHIN: Duration = Duration::from_secs(1);

/// Interval between two rates for the tuner.
const OBSERVE_EVERY: Duration = Duration::from_secs(1);

/// The fields of a transfer's record that the coordinator needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoordinatedTransferFields {
    /// Its state.
    pub state: FleetTransferState,
    /// True if the record names the transfer's source and destination.
    pub is_settled: bool,
    /// True if a manager has carried the transfer before.
    pub has_begun: bool,
    /// Upper bound of pairs.
    pub pairs_max: Option<u32>,
    /// Entries that the record counts as failed.
    pub failed_entries: u64,
    /// True if the transfer removes entries of the destination that the source does not have.
    pub deletes: bool,
}

/// The state of a transfer, for its manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FleetTransferState {
    /// The transfer is carried by its manager.
    Open,
    /// The user has paused the transfer.
    Paused,
    /// The user has cancelled the transfer: its partial data must be removed.
    Cancelled,
    /// Nothing is left to do.
    Over,
}

/// The result of a transfer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TransferResult {
    /// Every entry is copied or reported as failed.
    Done,
    /// The transfer can't continue, with the reason for people.
    Failed(String),
    /// The user has cancelled the transfer.
    Cancelled,
}

/// The next action of the driver. Each step is answered before the next one is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CoordinatorStep {
    /// Read the record from the store, not the followed copy. Answer: [`CoordinatorStepResult::Record`].
    ReadRecord,
    /// Find the transfer's route and write it to the record. Answer: [`CoordinatorStepResult::Done`],
    /// [`CoordinatorStepResult::Unsettled`] or [`CoordinatorStepResult::Impossible`].
    Settle,
    /// Write to the record why the transfer waits before its begin.
    WriteReason(String),
    /// Create the queue of work, and follow the log from its beginning. Answer:
    /// [`CoordinatorStepResult::Opened`].
    Open,
    /// Publish a scan; with `again` only if the queue holds none.
    OrderScan {
        /// True if a scan was ordered before.
        again: bool,
    },
    /// Publish an item for each of these files, to finish it.
    FinishFiles(Vec<LargeFileNumber>),
    /// Publish an item for each of these files, to remove its parts.
    DiscardFiles(Vec<LargeFileNumber>),
    /// Check that no item of the queue is under way: neither a chunk nor a scan, which would publish more
    /// chunks. Answer: [`CoordinatorStepResult::Idle`].
    CheckQueue,
    /// Publish the item that removes entries of the destination that the source does not have.
    PublishDelete,
    /// Publish the item that closes the transfer.
    PublishClose,
    /// Write the progress to the record, with the reason if nothing moves.
    WriteProgress(String),
    /// Remove acknowledged items from the queue.
    TrimQueue,
    /// Store the measured curve of the path.
    KeepCurve,
    /// Remove the transfer's pairs.
    RemovePairs,
    /// Write the final state to the record.
    WriteEnd(TransferResult),
    /// Remove the transfer's queue and log.
    RemoveWork,
    /// Release the lease: nothing is left to do.
    Release,
    /// Do nothing before this moment, unless an event arrives.
    Wait(Duration),
}

/// The result of a step.
#[derive(Clone, Debug)]
pub enum CoordinatorStepResult {
    /// The step succeeded.
    Done,
    /// The step failed, and may succeed when it is retried.
    Failed,
    /// To [`CoordinatorStep::ReadRecord`]; `None` if the record does not exist.
    Record(Option<CoordinatedTransferFields>),
    /// To [`CoordinatorStep::Settle`]: not possible now, with the reason for people.
    Unsettled(String),
    /// To [`CoordinatorStep::Settle`]: never possible, with the reason for people.
    Impossible(String),
    /// To [`CoordinatorStep::Open`], with the tuner that holds the initial number of pairs.
    Opened(Box<PairCountTuner>),
    /// To [`CoordinatorStep::CheckQueue`].
    Idle(bool),
}

/// The manager's knowledge from other sources than the log.
pub struct CoordinatorInputs<'a> {
    /// True while no other manager can have the lease.
    pub lease_is_sure: bool,
    /// The followed copy of the record; `None` if it is not among the open ones.
    pub record: Option<CoordinatedTransferFields>,
    /// Computes the verdict from the health of the movers that reach both ends.
    pub verdict: &'a dyn Fn() -> TransferHealthVerdict,
    /// Pairs that all movers together could have.
    pub pairs_most: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum CoordinatorPhase {
    Reading,
    Settling,
    /// With the reason to write, if it was not written yet; the route is looked at again at the given time.
    Unsettled(Option<String>, Duration),
    Opening,
    Carrying,
    Ending(TransferCompletionStep, Option<TransferResult>),
    Over,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TransferCompletionStep {
    KeepCurve,
    Pairs,
    Record,
    Work,
}

/// Progress of publishing an item that comes after all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FinalWorkItemStep {
    Check,
    Record,
    Publish,
}

/// One transfer of a manager.
#[derive(Clone, Debug)]
pub struct TransferCoordinator {
    phase: CoordinatorPhase,
    again_at: Duration,
    /// Time of the next decision without an event; an event makes it earlier.
    decide_at: Duration,
    /// The record that was read because the followed copy was missing.
    read: Option<CoordinatedTransferFields>,
    carried: CoordinatedTransferState,
}

/// State of a transfer whose log is followed.
#[derive(Clone, Debug)]
struct CoordinatedTransferState {
    tracker: TransferTracker,
    tuner: PairCountTuner,
    /// True once the log was read to its end.
    is_current: bool,
    is_scanned: bool,
    scan_failed: Option<String>,
    last_fault: String,
    /// Time of the last progress, with the measure of progress at that time.
    moved_at: (Duration, u64),
    scan_ordered_at: Option<Duration>,
    closing: Option<FinalWorkItemStep>,
    /// Time of the next look at a queue that was busy.
    check_at: Duration,
    /// Start of the time in which the queue was busy although the log had settled everything.
    busy_since: Option<Duration>,
    /// The scan that the items of the present step belong to: another scan may count when they are published.
    asked_for: Option<u32>,
    /// By mover and pair number: the time of the last report and bytes per second.
    reports: HashMap<(String, u32), (Duration, u64)>,
    observed_at: Duration,
    recorded_at: Option<Duration>,
    trimmed_at: Duration,
    pairs_wanted: u32,
}

impl CoordinatedTransferState {
    fn new(now: Duration, tuner: PairCountTuner) -> CoordinatedTransferState {
        CoordinatedTransferState {
            tracker: TransferTracker::new(),
            tuner,
            is_current: false,
            is_scanned: false,
            scan_failed: None,
            last_fault: String::new(),
            moved_at: (now, 0),
            scan_ordered_at: None,
            closing: None,
            check_at: Duration::ZERO,
            busy_since: None,
            asked_for: None,
            reports: HashMap::new(),
            observed_at: now,
            recorded_at: None,
            trimmed_at: now,
            pairs_wanted: 0,
        }
    }

    /// Records that the items of `next` are in the queue, unless another scan counts by now: its items are
    /// published again.
    fn record_published(&mut self, next: &ManagerAction) {
        if self.tracker.counting_attempt() == self.asked_for {
            self.tracker.record_published(next);
        }
    }
}

impl TransferCoordinator {
    /// Creates the state of a transfer whose lease was just taken.
    pub fn new(now: Duration) -> TransferCoordinator {
        TransferCoordinator {
            phase: CoordinatorPhase::Reading,
            again_at: Duration::ZERO,
            decide_at: Duration::ZERO,
            read: None,
            carried: CoordinatedTransferState::new(now, PairCountTuner::new(1, 1)),
        }
    }

    /// Takes one entry of the log. Only entries after [`mark_current`](Self::mark_current) are news.
    pub fn observe(&mut self, event: &TransferTrackerEvent) {
        if let TransferTrackerEvent::Scanned { is_finished: true, .. } = event {
            self.carried.is_scanned = true;
        }
        self.carried.tracker.observe(event);
    }

    /// Records that the log was read to its end.
    pub fn mark_current(&mut self) {
        self.carried.is_current = true;
    }

    /// Returns true if the log was read to its end: later entries are news.
    pub fn is_current(&self) -> bool {
        self.carried.is_current
    }

    /// Records that scans have failed at every mover that could try one.
    pub fn record_scan_failure(&mut self, reason: String) {
        self.carried.scan_failed.get_or_insert(reason);
    }

    /// Records a fault, for people.
    pub fn record_fault(&mut self, fault: String) {
        self.carried.last_fault = fault;
    }

    /// Records the rate of a pair.
    pub fn record_pair_rate(&mut self, now: Duration, mover: &str, pair: u32, bytes_per_s: u64) {
        self.carried.reports.insert((mover.to_owned(), pair), (now, bytes_per_s));
    }

    /// Records an event that may change the decision: the next decision is made at this time at the latest.
    pub fn decide_by(&mut self, at: Duration) {
        self.decide_at = self.decide_at.min(at);
    }

    /// Returns the number of pairs that the transfer should have.
    pub fn pairs_wanted(&self) -> u32 {
        self.carried.pairs_wanted
    }

    /// Returns the transfer's progress.
    pub fn totals(&self) -> TransferTotals {
        self.carried.tracker.totals()
    }

    /// Returns the number of the scan that counts.
    pub fn counting_attempt(&self) -> Option<u32> {
        self.carried.tracker.counting_attempt()
    }

    /// Returns the measured points: pairs and bytes per second.
    pub fn curve(&self) -> impl Iterator<Item = (u32, u64)> + '_ {
        self.carried.tuner.points()
    }

    /// Returns the number of pairs at work and their common rate in bytes per second.
    pub fn working_pairs_and_rate(&mut self, now: Duration) -> (u32, u64) {
        let reports = &mut self.carried.reports;
        reports.retain(|_, (at, _)| now.saturating_sub(*at) < REPORT_LASTS);
        (reports.len() as u32, reports.values().map(|(_, bytes_per_s)| bytes_per_s).sum())
    }

    /// Returns true if a pair (its mover and number) was at work at the last call of
    /// [`working_pairs_and_rate`](Self::working_pairs_and_rate).
    pub fn is_pair_working(&self, pair: &(String, u32)) -> bool {
        self.carried.reports.contains_key(pair)
    }

    /// Returns the step to take now.
    pub fn next(&mut self, now: Duration, outlook: &CoordinatorInputs<'_>) -> CoordinatorStep {
        if !outlook.lease_is_sure {
            // Another manager may have taken the transfer over.
            return CoordinatorStep::Wait(now + DECIDE_EVERY);
        }
        if now < self.again_at {
            return CoordinatorStep::Wait(self.again_at);
        }
        match &mut self.phase {
            CoordinatorPhase::Reading => CoordinatorStep::ReadRecord,
            CoordinatorPhase::Settling => CoordinatorStep::Settle,
            CoordinatorPhase::Unsettled(Some(reason), _) => CoordinatorStep::WriteReason(reason.clone()),
            CoordinatorPhase::Unsettled(None, until) if now < *until => CoordinatorStep::Wait(*until),
            CoordinatorPhase::Unsettled(None, _) => CoordinatorStep::ReadRecord,
            CoordinatorPhase::Opening => CoordinatorStep::Open,
            // Events that arrive together cause one decision.
            CoordinatorPhase::Carrying if now < self.decide_at => CoordinatorStep::Wait(self.decide_at),
            CoordinatorPhase::Carrying => self.next_carrying_step(now, outlook),
            CoordinatorPhase::Ending(step, ending) => match (step, ending) {
                (TransferCompletionStep::KeepCurve, _) => CoordinatorStep::KeepCurve,
                (TransferCompletionStep::Pairs, _) => CoordinatorStep::RemovePairs,
                (TransferCompletionStep::Record, Some(ending)) => CoordinatorStep::WriteEnd(ending.clone()),
                (TransferCompletionStep::Record, None) | (TransferCompletionStep::Work, _) => {
                    CoordinatorStep::RemoveWork
                }
            },
            CoordinatorPhase::Over => CoordinatorStep::Release,
        }
    }

    /// Takes the result of a step that [`next`](Self::next) returned.
    pub fn apply_step_result(
        &mut self,
        now: Duration,
        step: &CoordinatorStep,
        answer: CoordinatorStepResult,
    ) {
        match (step, answer) {
            (CoordinatorStep::ReadRecord, CoordinatorStepResult::Record(record)) => self.apply_record(record),
            (CoordinatorStep::Settle, CoordinatorStepResult::Done) => self.phase = CoordinatorPhase::Opening,
            (CoordinatorStep::Settle, CoordinatorStepResult::Unsettled(reason)) => {
                self.phase = CoordinatorPhase::Unsettled(Some(reason), now + SETTLE_AGAIN_AFTER);
            }
            (CoordinatorStep::Settle, CoordinatorStepResult::Impossible(reason)) => {
                self.phase = CoordinatorPhase::Ending(
                    TransferCompletionStep::Record,
                    Some(TransferResult::Failed(reason)),
                );
            }
            // For people only: a failure does not matter.
            (CoordinatorStep::WriteReason(_), _) => {
                if let CoordinatorPhase::Unsettled(reason, _) = &mut self.phase {
                    *reason = None;
                }
            }
            (CoordinatorStep::Open, CoordinatorStepResult::Opened(tuner)) => {
                self.carried = CoordinatedTransferState::new(now, *tuner);
                self.phase = CoordinatorPhase::Carrying;
            }
            (CoordinatorStep::KeepCurve, _) => self.set_completion_step(TransferCompletionStep::Pairs),
            (CoordinatorStep::RemovePairs, CoordinatorStepResult::Done) => {
                self.set_completion_step(TransferCompletionStep::Record)
            }
            (CoordinatorStep::WriteEnd(_), CoordinatorStepResult::Done) => {
                self.set_completion_step(TransferCompletionStep::Work)
            }
            // The sweeper removes them later.
            (CoordinatorStep::RemoveWork, _) => self.phase = CoordinatorPhase::Over,
            (CoordinatorStep::RemovePairs | CoordinatorStep::WriteEnd(_), _) => {
                self.again_at = now + AGAIN_AFTER
            }
            (step, answer) if self.phase == CoordinatorPhase::Carrying => {
                self.apply_carrying_result(now, step, answer)
            }
            _ => self.begin_again(now),
        }
    }

    fn apply_record(&mut self, record: Option<CoordinatedTransferFields>) {
        let record = record.filter(|record| record.state != FleetTransferState::Over);
        self.phase = match (&self.phase, record) {
            // Another manager has ended the transfer: pairs and queue made since are removed.
            (CoordinatorPhase::Carrying, None) => self.ending_phase(None),
            (CoordinatorPhase::Carrying, Some(record)) => {
                self.read = Some(record);
                return;
            }
            (_, None) => CoordinatorPhase::Over,
            (_, Some(record)) if record.state == FleetTransferState::Cancelled => {
                self.ending_phase(Some(TransferResult::Cancelled))
            }
            (_, Some(record)) if record.is_settled => CoordinatorPhase::Opening,
            (_, Some(_)) => CoordinatorPhase::Settling,
        };
    }

    fn apply_carrying_result(
        &mut self,
        now: Duration,
        step: &CoordinatorStep,
        answer: CoordinatorStepResult,
    ) {
        let carried = &mut self.carried;
        match (step, answer) {
            (CoordinatorStep::CheckQueue, CoordinatorStepResult::Idle(false)) => {
                carried.closing = None;
                carried.check_at = now + ACKNOWLEDGED_SOON;
                carried.busy_since.get_or_insert(now);
            }
            // The queue holds work of another scan, say: the log knows it, and may deliver it late.
            (CoordinatorStep::CheckQueue, CoordinatorStepResult::Idle(true))
                if carried
                    .busy_since
                    .is_some_and(|since| now.saturating_sub(since) > ACKNOWLEDGED_WITHIN) =>
            {
                self.begin_again(now);
            }
            (CoordinatorStep::CheckQueue, CoordinatorStepResult::Idle(true)) => {
                (carried.closing, carried.busy_since) = (Some(FinalWorkItemStep::Record), None);
            }
            (CoordinatorStep::OrderScan { .. }, CoordinatorStepResult::Done) => {
                carried.scan_ordered_at = Some(now)
            }
            (CoordinatorStep::FinishFiles(files), CoordinatorStepResult::Done) => {
                carried.record_published(&ManagerAction::FinishFiles(files.clone()))
            }
            (CoordinatorStep::DiscardFiles(files), CoordinatorStepResult::Done) => {
                carried.record_published(&ManagerAction::DiscardFiles(files.clone()))
            }
            (CoordinatorStep::PublishDelete, CoordinatorStepResult::Done) => {
                carried.closing = None;
                carried.record_published(&ManagerAction::Delete);
            }
            (CoordinatorStep::PublishClose, CoordinatorStepResult::Done) => {
                carried.closing = None;
                carried.record_published(&ManagerAction::Close);
            }
            (CoordinatorStep::WriteProgress(_), answer) => {
                carried.recorded_at = Some(now);
                match (carried.closing, answer) {
                    (Some(FinalWorkItemStep::Record), CoordinatorStepResult::Done) => {
                        carried.closing = Some(FinalWorkItemStep::Publish)
                    }
                    // The mover that closes the transfer reads the failures in the record.
                    (Some(FinalWorkItemStep::Record), _) => self.again_at = now + AGAIN_AFTER,
                    _ => {}
                }
            }
            // The next trim will do.
            (CoordinatorStep::TrimQueue, _) => carried.trimmed_at = now,
            _ => self.begin_again(now),
        }
    }

    /// Starts over with the record; the log is read from its beginning.
    fn begin_again(&mut self, now: Duration) {
        let pairs_wanted = self.carried.pairs_wanted;
        self.carried = CoordinatedTransferState::new(now, PairCountTuner::new(1, 1));
        // Working pairs stay meanwhile.
        self.carried.pairs_wanted = pairs_wanted;
        self.phase = CoordinatorPhase::Reading;
        self.again_at = now + AGAIN_AFTER;
    }

    fn ending_phase(&mut self, ending: Option<TransferResult>) -> CoordinatorPhase {
        self.carried.pairs_wanted = 0;
        let keeps_curve = ending == Some(TransferResult::Done);
        CoordinatorPhase::Ending(
            if keeps_curve { TransferCompletionStep::KeepCurve } else { TransferCompletionStep::Pairs },
            ending,
        )
    }

    fn set_completion_step(&mut self, next: TransferCompletionStep) {
        if let CoordinatorPhase::Ending(step, _) = &mut self.phase {
            *step = next;
        }
    }

    fn begin_ending(&mut self, ending: TransferResult) -> CoordinatorStep {
        let ending = self.ending_phase(Some(ending));
        let is_done = matches!(ending, CoordinatorPhase::Ending(TransferCompletionStep::KeepCurve, _));
        self.phase = ending;
        if is_done { CoordinatorStep::KeepCurve } else { CoordinatorStep::RemovePairs }
    }

    fn next_carrying_step(&mut self, now: Duration, outlook: &CoordinatorInputs<'_>) -> CoordinatorStep {
        let Some(record) = outlook.record.or_else(|| self.read.take()) else {
            return CoordinatorStep::ReadRecord;
        };
        match record.state {
            FleetTransferState::Cancelled => return self.begin_ending(TransferResult::Cancelled),
            FleetTransferState::Over => return CoordinatorStep::ReadRecord,
            FleetTransferState::Open | FleetTransferState::Paused if !self.carried.is_current => {
                return self.wait_step(now);
            }
            FleetTransferState::Open | FleetTransferState::Paused => {}
        }
        if let Some(reason) = self.carried.scan_failed.take() {
            return self.begin_ending(TransferResult::Failed(reason));
        }
        if record.state == FleetTransferState::Paused {
            self.carried.pairs_wanted = 0;
            return self.progress_step(now, String::new);
        }
        let reason = match (outlook.verdict)() {
            TransferHealthVerdict::GoOn => self.stall_reason(now),
            TransferHealthVerdict::Wait(reason) => reason,
            TransferHealthVerdict::Fail(reason) => return self.begin_ending(TransferResult::Failed(reason)),
        };
        if let Some(step) = self.order_scan(now, &record) {
            return step;
        }
        let counting = self.carried.tracker.counting_attempt();
        if std::mem::replace(&mut self.carried.asked_for, counting) != counting {
            self.carried.closing = None;
        }
        // Counts of the record only grow: entries that an earlier scan could not read have failed, too.
        self.carried.tracker.set_deletes(record.deletes && record.failed_entries == 0);
        match self.carried.tracker.next() {
            ManagerAction::Wait => self.carried.closing = None,
            ManagerAction::FinishFiles(files) => return CoordinatorStep::FinishFiles(files),
            ManagerAction::DiscardFiles(files) => return CoordinatorStep::DiscardFiles(files),
            ManagerAction::Over => return self.begin_ending(TransferResult::Done),
            ManagerAction::Delete => {
                if let Some(step) =
                    self.final_item_step(now, &record, &reason, CoordinatorStep::PublishDelete)
                {
                    return step;
                }
            }
            ManagerAction::Close => {
                if let Some(step) = self.final_item_step(now, &record, &reason, CoordinatorStep::PublishClose)
                {
                    return step;
                }
            }
        }
        self.tune(now, &record, outlook.pairs_most);
        self.progress_step(now, || reason)
    }

    /// Returns the step on the way to publishing an item that comes after all others; `None` while an item
    /// under way might still write.
    fn final_item_step(
        &mut self,
        now: Duration,
        record: &CoordinatedTransferFields,
        reason: &str,
        publish: CoordinatorStep,
    ) -> Option<CoordinatorStep> {
        let is_told = self.carried.tracker.totals().entries_failed <= record.failed_entries;
        match self.carried.closing.get_or_insert(FinalWorkItemStep::Check) {
            FinalWorkItemStep::Check if now < self.carried.check_at => None,
            FinalWorkItemStep::Check => Some(CoordinatorStep::CheckQueue),
            FinalWorkItemStep::Record if is_told => Some(publish),
            FinalWorkItemStep::Record => Some(CoordinatorStep::WriteProgress(reason.to_owned())),
            FinalWorkItemStep::Publish => Some(publish),
        }
    }

    fn order_scan(&self, now: Duration, record: &CoordinatedTransferFields) -> Option<CoordinatorStep> {
        let ordered_at = self.carried.scan_ordered_at;
        let is_ordered = ordered_at.is_some_and(|at| now.saturating_sub(at) < ORDER_SCAN_EVERY);
        let again = ordered_at.is_some() || record.has_begun;
        (!self.carried.is_scanned && !is_ordered).then_some(CoordinatorStep::OrderScan { again })
    }

    fn progress_step(&mut self, now: Duration, reason: impl FnOnce() -> String) -> CoordinatorStep {
        if self.carried.recorded_at.is_none_or(|at| now.saturating_sub(at) >= RECORD_EVERY) {
            return CoordinatorStep::WriteProgress(reason());
        }
        if now.saturating_sub(self.carried.trimmed_at) >= TRIM_EVERY {
            return CoordinatorStep::TrimQueue;
        }
        self.wait_step(now)
    }

    /// Waits for the next decision; events until then are decided on at once.
    fn wait_step(&mut self, now: Duration) -> CoordinatorStep {
        if self.decide_at <= now {
            self.decide_at = now + DECIDE_EVERY;
        }
        if self.carried.check_at > now {
            self.decide_by(self.carried.check_at);
        }
        CoordinatorStep::Wait(self.decide_at)
    }

    /// Returns the last fault if nothing moves after it; an empty string if data moves or no fault is known.
    fn stall_reason(&mut self, now: Duration) -> String {
        let moved = self.working_pairs_and_rate(now).1 + self.carried.tracker.totals().chunks_done;
        if moved != self.carried.moved_at.1 || self.carried.last_fault.is_empty() {
            self.carried.moved_at = (now, moved);
        }
        let time = now.saturating_sub(self.carried.moved_at.0);
        if time < STANDS_AFTER {
            return String::new();
        }
        format!("nothing has moved for {} s; last, {}", time.as_secs(), self.carried.last_fault)
    }

    /// Follows the curve (Y4).
    fn tune(&mut self, now: Duration, record: &CoordinatedTransferFields, most: u32) {
        let (pairs, bytes_per_s) = self.working_pairs_and_rate(now);
        let carried = &mut self.carried;
        carried.tuner.set_most(now, most.min(record.pairs_max.unwrap_or(u32::MAX)));
        let totals = carried.tracker.totals();
        let left = totals.chunks_found.saturating_sub(totals.chunks_done);
        // With fewer chunks than pairs the rate says nothing about the pairs.
        let is_telling = pairs > 0 && bytes_per_s > 0 && left > u64::from(pairs);
        if is_telling && now.saturating_sub(carried.observed_at) >= OBSERVE_EVERY {
            carried.observed_at = now;
            carried.tuner.observe(now, pairs, bytes_per_s);
        }
        let useful = if totals.is_scanned { left.clamp(1, u32::MAX.into()) as u32 } else { u32::MAX };
        carried.pairs_wanted = carried.tuner.pairs_wanted().min(useful).max(1);
    }
}

#[cfg(test)]
#[path = "coordinator_tests.rs"]
mod tests;
