//! One transfer, as the manager that holds its lease decides about it: a state machine without a clock and without a connection.
//!
//! Whoever drives it (a manager's task, or a simulation) asks for the [next](Coordinator::next) [`Step`], carries it out, and
//! [tells](Coordinator::answer) how that went. What makes a transfer safe is the order of the steps:
//!
//! - The record is read after the lease was taken, and what is over is left alone: what a manager follows may be behind.
//! - Nothing is decided before the log was read to its end, nor while the lease is not sure.
//! - What is not at the source is removed at the destination when everything is settled, nothing of its queue is under way, and nothing has
//!   failed; not while it is paused, and not any more when it was cancelled.
//! - A transfer is closed when everything is settled, nothing of its queue is under way, and its record says what has failed.
//! - At the end its pairs go first, then the record says so for good, and then its queue and its log go.
//!
//! A step that fails is tried again later, from the record on; what was learnt by then is read again from the log.

use std::collections::HashMap;
use std::time::Duration;

use super::{FileKey, Next, PairTuner, Totals, Tracker, TrackerEvent, Verdict};

/// How often something is decided, though nothing was told.
const DECIDE_EVERY: Duration = Duration::from_millis(250);

/// Where a transfer goes is looked at again after so long, if it could not be settled.
const SETTLE_AGAIN_AFTER: Duration = Duration::from_secs(2);

/// A step that failed is tried again after so long.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Whether a scan is ordered is asked again after so long, as one that is not begun may have been lost.
const ORDER_SCAN_EVERY: Duration = Duration::from_secs(5);

/// A transfer with pairs in which nothing has moved for so long tells what went wrong last.
const STANDS_AFTER: Duration = Duration::from_secs(10);

/// How often the record is written while something changes.
const RECORD_EVERY: Duration = Duration::from_secs(1);

/// How often acknowledged chunks are removed from the queue.
const TRIM_EVERY: Duration = Duration::from_secs(30);

/// A report older than this says nothing about now.
const REPORT_LASTS: Duration = Duration::from_secs(4);

/// What is logged is acknowledged a moment later: then the queue is looked at again.
const ACKNOWLEDGED_SOON: Duration = Duration::from_millis(20);

/// A queue that is not idle for longer after everything was logged has something that is not known of.
const ACKNOWLEDGED_WITHIN: Duration = Duration::from_secs(1);

/// How often the tuner is told a rate.
const OBSERVE_EVERY: Duration = Duration::from_secs(1);

/// What of a transfer's record counts here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordView {
    /// Its state.
    pub state: RecordState,
    /// It says from where to where the transfer goes.
    pub is_settled: bool,
    /// Somebody has carried it before.
    pub has_begun: bool,
    /// Pairs that it has, no more and no less (static striping).
    pub pairs_fixed: Option<u32>,
    /// Pairs at most.
    pub pairs_max: Option<u32>,
    /// Entries that it says have failed.
    pub failed_entries: u64,
    /// What is not at its source is to be removed at its destination.
    pub deletes: bool,
}

/// The state of a transfer, for its manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordState {
    /// It is to be carried.
    Open,
    /// Its user wants nothing of it moved now.
    Paused,
    /// It was cancelled, and what there is of it is to be removed.
    Cancelled,
    /// Nothing is left to do.
    Over,
}

/// How a transfer ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Everything is there, or was told of as failed.
    Done,
    /// It can't be carried on: for people.
    Failed(String),
    /// Its user has cancelled it.
    Cancelled,
}

/// What is to be done next. Each is answered before the next one is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Read the record itself, not what is followed of it. Answer: [`Answer::Record`].
    ReadRecord,
    /// Look where the transfer goes, and have the record say so. Answer: done, [`Answer::Unsettled`] or [`Answer::Impossible`].
    Settle,
    /// Have the record say why it waits, before it was begun.
    WriteReason(String),
    /// Make what its work is pulled from, and follow its log from the beginning. Answer: [`Answer::Opened`].
    Open,
    /// Publish a scan; if it is `again`, only if none is in the queue.
    OrderScan {
        /// One was ordered before.
        again: bool,
    },
    /// Publish an item for each of these files, which has it finished.
    FinishFiles(Vec<FileKey>),
    /// Publish an item for each of these files, which has its parts removed.
    DiscardFiles(Vec<FileKey>),
    /// See whether nothing of the queue is under way, neither a chunk nor a scan, which would publish more. Answer: [`Answer::Idle`].
    CheckQueue,
    /// Publish the item that has removed at the destination what is not at the source.
    PublishDelete,
    /// Publish the item that closes the transfer.
    PublishClose,
    /// Have the record say how far it is, and why nothing moves, if that is so.
    WriteProgress(String),
    /// Remove from the queue what is acknowledged.
    TrimQueue,
    /// Keep what was learnt of the path.
    KeepCurve,
    /// Remove its pairs.
    RemovePairs,
    /// Have the record say how it ended, for good.
    WriteEnd(Ending),
    /// Remove its queue and its log.
    RemoveWork,
    /// Give the lease up: nothing is left to do.
    Release,
    /// Nothing before this moment, unless something is told.
    Wait(Duration),
}

/// How a step went.
#[derive(Clone, Debug)]
pub enum Answer {
    /// It is done.
    Done,
    /// It is not, and may be when it is tried again.
    Failed,
    /// To [`Step::ReadRecord`]; `None` if there is none.
    Record(Option<RecordView>),
    /// To [`Step::Settle`]: not now, for people.
    Unsettled(String),
    /// To [`Step::Settle`]: never, for people.
    Impossible(String),
    /// To [`Step::Open`]: with how many pairs it begins.
    Opened(Box<PairTuner>),
    /// To [`Step::CheckQueue`].
    Idle(bool),
}

/// What the manager knows beside what the log tells.
pub struct Outlook<'a> {
    /// Whether nobody else can have the lease yet.
    pub lease_is_sure: bool,
    /// The record as it is followed; `None` if it is not among those that are open.
    pub record: Option<RecordView>,
    /// What follows from the health of the movers that reach both ends.
    pub verdict: &'a dyn Fn() -> Verdict,
    /// Pairs that all movers together could have.
    pub pairs_most: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Phase {
    Reading,
    Settling,
    /// What is to be written, if it was not yet; then it is looked again.
    Unsettled(Option<String>, Duration),
    Opening,
    Carrying,
    Ending(EndStep, Option<Ending>),
    Over,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EndStep {
    KeepCurve,
    Pairs,
    Record,
    Work,
}

/// How far the publishing is of an item that comes after everything else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Closing {
    Check,
    Record,
    Publish,
}

/// One transfer of a manager.
#[derive(Clone, Debug)]
pub struct Coordinator {
    phase: Phase,
    again_at: Duration,
    /// When it is decided next, though nothing was told; what is told makes it sooner.
    decide_at: Duration,
    /// Read when what is followed did not have it.
    read: Option<RecordView>,
    carried: Carried,
}

/// What is known of a transfer whose log is followed.
#[derive(Clone, Debug)]
struct Carried {
    tracker: Tracker,
    tuner: PairTuner,
    /// The log was read to its end.
    is_current: bool,
    is_scanned: bool,
    scan_failed: Option<String>,
    last_fault: String,
    /// Since when this has moved.
    moved_at: (Duration, u64),
    scan_ordered_at: Option<Duration>,
    closing: Option<Closing>,
    /// When the queue is looked at again that was not idle.
    check_at: Duration,
    /// Since when it was not idle, though everything that the log has told was settled.
    busy_since: Option<Duration>,
    /// The scan for which the items of the present step are: another one may count by the time that they are published.
    asked_for: Option<u32>,
    /// Of each pair, by its mover and number: when it was told, and bytes per second.
    reports: HashMap<(String, u32), (Duration, u64)>,
    observed_at: Duration,
    recorded_at: Option<Duration>,
    trimmed_at: Duration,
    pairs_wanted: u32,
}

impl Carried {
    fn new(now: Duration, tuner: PairTuner) -> Carried {
        Carried {
            tracker: Tracker::new(),
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

    /// What was said is in the queue. It is said again for a scan that counts since.
    fn asked(&mut self, next: &Next) {
        if self.tracker.counting() == self.asked_for {
            self.tracker.asked(next);
        }
    }
}

impl Coordinator {
    /// The lease was just taken.
    pub fn new(now: Duration) -> Coordinator {
        Coordinator {
            phase: Phase::Reading,
            again_at: Duration::ZERO,
            decide_at: Duration::ZERO,
            read: None,
            carried: Carried::new(now, PairTuner::new(1, 1)),
        }
    }

    /// Something of the log. It is not to be forgotten that only what comes after [`current`](Self::current) is news.
    pub fn observe(&mut self, event: &TrackerEvent) {
        if let TrackerEvent::Scanned { is_finished: true, .. } = event {
            self.carried.is_scanned = true;
        }
        self.carried.tracker.observe(event);
    }

    /// The log was read to its end.
    pub fn current(&mut self) {
        self.carried.is_current = true;
    }

    /// Whether the log was read to its end: what it tells then is news.
    pub fn is_current(&self) -> bool {
        self.carried.is_current
    }

    /// Scans have come to nothing at every mover that could try one.
    pub fn scan_failed(&mut self, reason: String) {
        self.carried.scan_failed.get_or_insert(reason);
    }

    /// Something went wrong: for people.
    pub fn note_fault(&mut self, fault: String) {
        self.carried.last_fault = fault;
    }

    /// A pair moves so many bytes per second.
    pub fn report(&mut self, now: Duration, mover: &str, pair: u32, bytes_per_s: u64) {
        self.carried.reports.insert((mover.to_owned(), pair), (now, bytes_per_s));
    }

    /// Something was told that may change what is to be done: it is decided then.
    pub fn decide_by(&mut self, at: Duration) {
        self.decide_at = self.decide_at.min(at);
    }

    /// Pairs that the transfer should have.
    pub fn pairs_wanted(&self) -> u32 {
        self.carried.pairs_wanted
    }

    /// How far it is.
    pub fn totals(&self) -> Totals {
        self.carried.tracker.totals()
    }

    /// The scan that counts.
    pub fn counting(&self) -> Option<u32> {
        self.carried.tracker.counting()
    }

    /// What was learnt of pairs and bytes per second.
    pub fn curve(&self) -> impl Iterator<Item = (u32, u64)> + '_ {
        self.carried.tuner.points()
    }

    /// How many pairs work now, and what they move together.
    pub fn at_work(&mut self, now: Duration) -> (u32, u64) {
        let reports = &mut self.carried.reports;
        reports.retain(|_, (at, _)| now.saturating_sub(*at) < REPORT_LASTS);
        (reports.len() as u32, reports.values().map(|(_, bytes_per_s)| bytes_per_s).sum())
    }

    /// What is to be done now.
    pub fn next(&mut self, now: Duration, outlook: &Outlook<'_>) -> Step {
        if !outlook.lease_is_sure {
            // What another one may decide by now is not decided here.
            return Step::Wait(now + DECIDE_EVERY);
        }
        if now < self.again_at {
            return Step::Wait(self.again_at);
        }
        match &mut self.phase {
            Phase::Reading => Step::ReadRecord,
            Phase::Settling => Step::Settle,
            Phase::Unsettled(Some(reason), _) => Step::WriteReason(reason.clone()),
            Phase::Unsettled(None, until) if now < *until => Step::Wait(*until),
            Phase::Unsettled(None, _) => Step::ReadRecord,
            Phase::Opening => Step::Open,
            // What comes together is decided about once.
            Phase::Carrying if now < self.decide_at => Step::Wait(self.decide_at),
            Phase::Carrying => self.carry(now, outlook),
            Phase::Ending(step, ending) => match (step, ending) {
                (EndStep::KeepCurve, _) => Step::KeepCurve,
                (EndStep::Pairs, _) => Step::RemovePairs,
                (EndStep::Record, Some(ending)) => Step::WriteEnd(ending.clone()),
                (EndStep::Record, None) | (EndStep::Work, _) => Step::RemoveWork,
            },
            Phase::Over => Step::Release,
        }
    }

    /// How a step went that [`next`](Self::next) has said.
    pub fn answer(&mut self, now: Duration, step: &Step, answer: Answer) {
        match (step, answer) {
            (Step::ReadRecord, Answer::Record(record)) => self.read_record(record),
            (Step::Settle, Answer::Done) => self.phase = Phase::Opening,
            (Step::Settle, Answer::Unsettled(reason)) => {
                self.phase = Phase::Unsettled(Some(reason), now + SETTLE_AGAIN_AFTER);
            }
            (Step::Settle, Answer::Impossible(reason)) => {
                self.phase = Phase::Ending(EndStep::Record, Some(Ending::Failed(reason)));
            }
            // For people only: whether it worked does not matter.
            (Step::WriteReason(_), _) => {
                if let Phase::Unsettled(reason, _) = &mut self.phase {
                    *reason = None;
                }
            }
            (Step::Open, Answer::Opened(tuner)) => {
                self.carried = Carried::new(now, *tuner);
                self.phase = Phase::Carrying;
            }
            (Step::KeepCurve, _) => self.end_step(EndStep::Pairs),
            (Step::RemovePairs, Answer::Done) => self.end_step(EndStep::Record),
            (Step::WriteEnd(_), Answer::Done) => self.end_step(EndStep::Work),
            // The sweeper does it, later.
            (Step::RemoveWork, _) => self.phase = Phase::Over,
            (Step::RemovePairs | Step::WriteEnd(_), _) => self.again_at = now + AGAIN_AFTER,
            (step, answer) if self.phase == Phase::Carrying => self.carried_out(now, step, answer),
            _ => self.begin_again(now),
        }
    }

    fn read_record(&mut self, record: Option<RecordView>) {
        let record = record.filter(|record| record.state != RecordState::Over);
        self.phase = match (&self.phase, record) {
            // Somebody else has ended it: what was made for it meanwhile goes.
            (Phase::Carrying, None) => self.ending(None),
            (Phase::Carrying, Some(record)) => {
                self.read = Some(record);
                return;
            }
            (_, None) => Phase::Over,
            (_, Some(record)) if record.state == RecordState::Cancelled => {
                self.ending(Some(Ending::Cancelled))
            }
            (_, Some(record)) if record.is_settled => Phase::Opening,
            (_, Some(_)) => Phase::Settling,
        };
    }

    fn carried_out(&mut self, now: Duration, step: &Step, answer: Answer) {
        let carried = &mut self.carried;
        match (step, answer) {
            (Step::CheckQueue, Answer::Idle(false)) => {
                carried.closing = None;
                carried.check_at = now + ACKNOWLEDGED_SOON;
                carried.busy_since.get_or_insert(now);
            }
            // Another scan, say, and all that it had published: the log has it, which may be told late.
            (Step::CheckQueue, Answer::Idle(true))
                if carried
                    .busy_since
                    .is_some_and(|since| now.saturating_sub(since) > ACKNOWLEDGED_WITHIN) =>
            {
                self.begin_again(now);
            }
            (Step::CheckQueue, Answer::Idle(true)) => {
                (carried.closing, carried.busy_since) = (Some(Closing::Record), None);
            }
            (Step::OrderScan { .. }, Answer::Done) => carried.scan_ordered_at = Some(now),
            (Step::FinishFiles(files), Answer::Done) => carried.asked(&Next::FinishFiles(files.clone())),
            (Step::DiscardFiles(files), Answer::Done) => carried.asked(&Next::DiscardFiles(files.clone())),
            (Step::PublishDelete, Answer::Done) => {
                carried.closing = None;
                carried.asked(&Next::Delete);
            }
            (Step::PublishClose, Answer::Done) => {
                carried.closing = None;
                carried.asked(&Next::Close);
            }
            (Step::WriteProgress(_), answer) => {
                carried.recorded_at = Some(now);
                match (carried.closing, answer) {
                    (Some(Closing::Record), Answer::Done) => carried.closing = Some(Closing::Publish),
                    // Who closes looks there whether something has failed.
                    (Some(Closing::Record), _) => self.again_at = now + AGAIN_AFTER,
                    _ => {}
                }
            }
            // The next time will do.
            (Step::TrimQueue, _) => carried.trimmed_at = now,
            _ => self.begin_again(now),
        }
    }

    /// From the record on; the log is read from its beginning.
    fn begin_again(&mut self, now: Duration) {
        let pairs_wanted = self.carried.pairs_wanted;
        self.carried = Carried::new(now, PairTuner::new(1, 1));
        // Pairs that work go on meanwhile.
        self.carried.pairs_wanted = pairs_wanted;
        self.phase = Phase::Reading;
        self.again_at = now + AGAIN_AFTER;
    }

    fn ending(&mut self, ending: Option<Ending>) -> Phase {
        self.carried.pairs_wanted = 0;
        let keeps_curve = ending == Some(Ending::Done);
        Phase::Ending(if keeps_curve { EndStep::KeepCurve } else { EndStep::Pairs }, ending)
    }

    fn end_step(&mut self, next: EndStep) {
        if let Phase::Ending(step, _) = &mut self.phase {
            *step = next;
        }
    }

    fn end(&mut self, ending: Ending) -> Step {
        let ending = self.ending(Some(ending));
        let is_done = matches!(ending, Phase::Ending(EndStep::KeepCurve, _));
        self.phase = ending;
        if is_done { Step::KeepCurve } else { Step::RemovePairs }
    }

    fn carry(&mut self, now: Duration, outlook: &Outlook<'_>) -> Step {
        let Some(record) = outlook.record.or_else(|| self.read.take()) else { return Step::ReadRecord };
        match record.state {
            RecordState::Cancelled => return self.end(Ending::Cancelled),
            RecordState::Over => return Step::ReadRecord,
            RecordState::Open | RecordState::Paused if !self.carried.is_current => return self.wait(now),
            RecordState::Open | RecordState::Paused => {}
        }
        if let Some(reason) = self.carried.scan_failed.take() {
            return self.end(Ending::Failed(reason));
        }
        if record.state == RecordState::Paused {
            self.carried.pairs_wanted = 0;
            return self.progress(now, String::new);
        }
        let reason = match (outlook.verdict)() {
            Verdict::GoOn => self.stands_still(now),
            Verdict::Wait(reason) => reason,
            Verdict::Fail(reason) => return self.end(Ending::Failed(reason)),
        };
        if let Some(step) = self.order_scan(now, &record) {
            return step;
        }
        let counting = self.carried.tracker.counting();
        if std::mem::replace(&mut self.carried.asked_for, counting) != counting {
            self.carried.closing = None;
        }
        // Counts of the record only grow: what an earlier scan could not read has failed, too.
        self.carried.tracker.set_deletes(record.deletes && record.failed_entries == 0);
        match self.carried.tracker.next() {
            Next::Wait => self.carried.closing = None,
            Next::FinishFiles(files) => return Step::FinishFiles(files),
            Next::DiscardFiles(files) => return Step::DiscardFiles(files),
            Next::Over => return self.end(Ending::Done),
            Next::Delete => {
                if let Some(step) = self.come_last(now, &record, &reason, Step::PublishDelete) {
                    return step;
                }
            }
            Next::Close => {
                if let Some(step) = self.come_last(now, &record, &reason, Step::PublishClose) {
                    return step;
                }
            }
        }
        self.tune(now, &record, outlook.pairs_most);
        self.progress(now, || reason)
    }

    /// What comes before an item is published that comes after everything else; `None` while something is under way that might write
    /// meanwhile.
    fn come_last(&mut self, now: Duration, record: &RecordView, reason: &str, publish: Step) -> Option<Step> {
        let is_told = self.carried.tracker.totals().entries_failed <= record.failed_entries;
        match self.carried.closing.get_or_insert(Closing::Check) {
            Closing::Check if now < self.carried.check_at => None,
            Closing::Check => Some(Step::CheckQueue),
            Closing::Record if is_told => Some(publish),
            Closing::Record => Some(Step::WriteProgress(reason.to_owned())),
            Closing::Publish => Some(publish),
        }
    }

    fn order_scan(&self, now: Duration, record: &RecordView) -> Option<Step> {
        let ordered_at = self.carried.scan_ordered_at;
        let is_ordered = ordered_at.is_some_and(|at| now.saturating_sub(at) < ORDER_SCAN_EVERY);
        let again = ordered_at.is_some() || record.has_begun;
        (!self.carried.is_scanned && !is_ordered).then_some(Step::OrderScan { again })
    }

    fn progress(&mut self, now: Duration, reason: impl FnOnce() -> String) -> Step {
        let is_due = |at: Duration, every: Duration| now.saturating_sub(at) >= every;
        if self.carried.recorded_at.is_none_or(|at| is_due(at, RECORD_EVERY)) {
            return Step::WriteProgress(reason());
        }
        if is_due(self.carried.trimmed_at, TRIM_EVERY) {
            return Step::TrimQueue;
        }
        self.wait(now)
    }

    /// What is told until then is decided about as soon as it is told.
    fn wait(&mut self, now: Duration) -> Step {
        if self.decide_at <= now {
            self.decide_at = now + DECIDE_EVERY;
        }
        if self.carried.check_at > now {
            self.decide_by(self.carried.check_at);
        }
        Step::Wait(self.decide_at)
    }

    /// Why nothing moves, if nothing does though something went wrong; empty if something does, or if nothing is known.
    fn stands_still(&mut self, now: Duration) -> String {
        let moved = self.at_work(now).1 + self.carried.tracker.totals().chunks_done;
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
    fn tune(&mut self, now: Duration, record: &RecordView, most: u32) {
        if let Some(pairs) = record.pairs_fixed {
            self.carried.pairs_wanted = pairs;
            return;
        }
        let (pairs, bytes_per_s) = self.at_work(now);
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
        carried.pairs_wanted = carried.tuner.wanted().min(useful).max(1);
    }
}

#[cfg(test)]
#[path = "coordinator_tests.rs"]
mod tests;
