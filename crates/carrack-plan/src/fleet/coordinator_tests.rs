use std::time::Duration;

use super::*;
use crate::fleet::{Found, Outcome};

const OPEN: RecordView = RecordView {
    state: RecordState::Open,
    is_settled: true,
    has_begun: false,
    pairs_max: None,
    failed_entries: 0,
    deletes: false,
};

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A coordinator with its clock and its manager's followed state.
struct Driven {
    coordinator: Coordinator,
    now: Duration,
    record: Option<RecordView>,
    lease_is_sure: bool,
    verdict: Verdict,
}

impl Driven {
    fn new() -> Driven {
        Driven {
            coordinator: Coordinator::new(Duration::ZERO),
            now: Duration::ZERO,
            record: Some(OPEN),
            lease_is_sure: true,
            verdict: Verdict::GoOn,
        }
    }

    /// Creates a coordinator that carries, whose log was read to its end.
    fn carrying() -> Driven {
        let mut driven = Driven::new();
        assert_eq!(driven.answered(Answer::Record(Some(OPEN))), Step::ReadRecord);
        assert_eq!(driven.answered(Answer::Opened(Box::new(PairTuner::new(2, 4)))), Step::Open);
        driven.coordinator.current();
        driven
    }

    fn next(&mut self) -> Step {
        let verdict = || self.verdict.clone();
        let outlook = Outlook {
            lease_is_sure: self.lease_is_sure,
            record: self.record,
            verdict: &verdict,
            pairs_most: 4,
        };
        self.coordinator.next(self.now, &outlook)
    }

    /// Returns the next step other than a wait.
    #[track_caller]
    fn step(&mut self) -> Step {
        for _ in 0..1_000 {
            match self.next() {
                Step::Wait(at) => self.now = at.max(self.now + ms(1)),
                step => return step,
            }
        }
        panic!("it waits for ever");
    }

    /// Returns the next step other than a wait, and answers it.
    #[track_caller]
    fn answered(&mut self, answer: Answer) -> Step {
        let step = self.step();
        self.coordinator.answer(self.now, &step, answer);
        step
    }

    /// Continues until this step, which stays unanswered; progress written on the way succeeds.
    #[track_caller]
    fn comes_to(&mut self, last: &Step) {
        for _ in 0..50 {
            match self.step() {
                step @ (Step::WriteProgress(_) | Step::TrimQueue) if step != *last => {
                    self.coordinator.answer(self.now, &step, Answer::Done);
                }
                step => return assert_eq!(&step, last),
            }
        }
        panic!("{last:?} does not come");
    }

    /// The same, and the step succeeds.
    #[track_caller]
    fn until(&mut self, last: &Step) {
        self.comes_to(last);
        self.answered(Answer::Done);
    }

    fn scanned(&mut self, chunks: u64) {
        let found = Found { chunks, files: chunks, ..Found::default() };
        self.coordinator.observe(&TrackerEvent::Scanned { attempt: 1, found, is_finished: true });
    }

    fn settled(&mut self, number: u64, failed: u64) {
        let outcome = Outcome { files: 1, failed, ..Outcome::default() };
        let (attempt, delivery, part) = (1, 1, None);
        self.coordinator.observe(&TrackerEvent::ChunkSettled { attempt, number, delivery, outcome, part });
    }

    fn closed(&mut self) {
        self.coordinator.observe(&TrackerEvent::CloseSettled { attempt: 1, failed: 0 });
    }
}

#[test]
fn what_is_over_by_its_record_is_left_alone() {
    for record in [None, Some(RecordView { state: RecordState::Over, ..OPEN })] {
        let mut driven = Driven::new();
        driven.answered(Answer::Record(record));
        assert_eq!(driven.next(), Step::Release);
    }
}

#[test]
fn a_transfer_goes_from_its_record_to_its_end() {
    let mut driven = Driven::new();
    driven.answered(Answer::Record(Some(RecordView { is_settled: false, ..OPEN })));
    assert_eq!(driven.answered(Answer::Unsettled("nobody".into())), Step::Settle);
    assert_eq!(driven.answered(Answer::Done), Step::WriteReason("nobody".into()));
    let waited = driven.now;
    assert_eq!(
        driven.answered(Answer::Record(Some(RecordView { is_settled: false, ..OPEN }))),
        Step::ReadRecord
    );
    assert!(driven.now >= waited + ms(1_999));
    assert_eq!(driven.answered(Answer::Done), Step::Settle);
    assert_eq!(driven.answered(Answer::Opened(Box::new(PairTuner::new(2, 4)))), Step::Open);
    // The log was not read to its end.
    assert!(matches!(driven.next(), Step::Wait(_)));
    driven.coordinator.current();
    driven.until(&Step::OrderScan { again: false });
    driven.scanned(2);
    driven.settled(0, 0);
    driven.settled(1, 0);
    for is_idle in [false, true] {
        driven.comes_to(&Step::CheckQueue);
        driven.answered(Answer::Idle(is_idle));
    }
    driven.until(&Step::PublishClose);
    driven.closed();
    driven.until(&Step::KeepCurve);
    assert_eq!(driven.coordinator.pairs_wanted(), 0);
    assert_eq!(driven.answered(Answer::Done), Step::RemovePairs);
    assert_eq!(driven.answered(Answer::Failed), Step::WriteEnd(Ending::Done));
    // The end is written before the work is removed, after any number of retries.
    assert_eq!(driven.answered(Answer::Done), Step::WriteEnd(Ending::Done));
    assert_eq!(driven.answered(Answer::Failed), Step::RemoveWork);
    assert_eq!(driven.next(), Step::Release);
}

#[test]
fn a_queue_that_was_busy_for_long_may_have_had_what_the_log_has_not_told_yet() {
    let mut driven = Driven::carrying();
    driven.scanned(0);
    let began_at = driven.now;
    while driven.now <= began_at + ACKNOWLEDGED_WITHIN {
        driven.comes_to(&Step::CheckQueue);
        driven.answered(Answer::Idle(false));
    }
    driven.comes_to(&Step::CheckQueue);
    assert_eq!(driven.answered(Answer::Idle(true)), Step::CheckQueue);
    assert_eq!(driven.answered(Answer::Record(Some(OPEN))), Step::ReadRecord);
    assert_eq!(driven.answered(Answer::Opened(Box::new(PairTuner::new(2, 4)))), Step::Open);
    // Another scan has found more.
    let found = Found { chunks: 1, files: 1, ..Found::default() };
    driven.scanned(0);
    driven.coordinator.observe(&TrackerEvent::Scanned { attempt: 2, found, is_finished: true });
    driven.coordinator.current();
    assert!(matches!(driven.step(), Step::WriteProgress(_)));
    driven.coordinator.answer(driven.now, &Step::WriteProgress(String::new()), Answer::Done);
    assert!(matches!(driven.next(), Step::Wait(_)), "the second scan's chunk is waited for");
}

#[test]
fn what_has_failed_is_in_the_record_before_the_close() {
    let mut driven = Driven::carrying();
    driven.scanned(1);
    driven.settled(0, 1);
    driven.comes_to(&Step::CheckQueue);
    driven.answered(Answer::Idle(true));
    assert!(matches!(driven.answered(Answer::Failed), Step::WriteProgress(_)));
    assert!(matches!(driven.answered(Answer::Done), Step::WriteProgress(_)));
    assert_eq!(driven.answered(Answer::Done), Step::PublishClose);
}

#[test]
fn a_close_that_was_published_for_an_earlier_scan_is_published_again() {
    let mut driven = Driven::carrying();
    driven.scanned(0);
    driven.comes_to(&Step::CheckQueue);
    driven.answered(Answer::Idle(true));
    driven.comes_to(&Step::PublishClose);
    let found = Found::default();
    driven.coordinator.observe(&TrackerEvent::Scanned { attempt: 2, found, is_finished: true });
    driven.coordinator.answer(driven.now, &Step::PublishClose, Answer::Done);
    driven.closed();
    driven.comes_to(&Step::CheckQueue);
}

#[test]
fn a_deletion_is_published_when_the_queue_is_idle_and_the_close_after_it() {
    let mut driven = Driven::carrying();
    driven.record = Some(RecordView { deletes: true, ..OPEN });
    driven.until(&Step::OrderScan { again: false });
    driven.scanned(1);
    driven.settled(0, 0);
    for is_idle in [false, true] {
        driven.comes_to(&Step::CheckQueue);
        driven.answered(Answer::Idle(is_idle));
    }
    driven.until(&Step::PublishDelete);
    let published_at = driven.now;
    while driven.now < published_at + ms(5_000) {
        match driven.next() {
            Step::Wait(at) => driven.now = at.max(driven.now + ms(1)),
            step @ Step::WriteProgress(_) => driven.coordinator.answer(driven.now, &step, Answer::Done),
            step => panic!("{step:?} before the deletion is settled"),
        }
    }
    driven.coordinator.observe(&TrackerEvent::DeleteSettled {
        attempt: 1,
        delivery: 1,
        deleted: 3,
        failed: 0,
    });
    driven.comes_to(&Step::CheckQueue);
    driven.answered(Answer::Idle(true));
    driven.until(&Step::PublishClose);
    driven.closed();
    driven.until(&Step::KeepCurve);
    assert_eq!(driven.coordinator.totals().entries_deleted, 3);
}

#[test]
fn nothing_is_deleted_after_a_failure_or_while_it_is_paused() {
    let mut failed = Driven::carrying();
    failed.record = Some(RecordView { deletes: true, failed_entries: 1, ..OPEN });
    failed.until(&Step::OrderScan { again: false });
    failed.scanned(0);
    failed.comes_to(&Step::CheckQueue);
    failed.answered(Answer::Idle(true));
    failed.comes_to(&Step::PublishClose);

    let mut paused = Driven::carrying();
    paused.record = Some(RecordView { deletes: true, ..OPEN });
    paused.until(&Step::OrderScan { again: false });
    paused.scanned(0);
    paused.comes_to(&Step::CheckQueue);
    paused.answered(Answer::Idle(true));
    paused.record = Some(RecordView { deletes: true, state: RecordState::Paused, ..OPEN });
    for _ in 0..50 {
        match paused.next() {
            Step::Wait(at) => paused.now = at.max(paused.now + ms(1)),
            step @ (Step::WriteProgress(_) | Step::TrimQueue) => {
                paused.coordinator.answer(paused.now, &step, Answer::Done);
            }
            step => panic!("{step:?} of what is paused"),
        }
    }
    paused.record = Some(RecordView { deletes: true, ..OPEN });
    paused.comes_to(&Step::PublishDelete);
}

#[test]
fn nothing_is_decided_by_a_lease_that_is_not_sure() {
    let mut driven = Driven::carrying();
    driven.lease_is_sure = false;
    driven.scanned(0);
    assert!(matches!(driven.next(), Step::Wait(_)));
}

#[test]
fn a_step_that_fails_begins_it_anew_from_the_record() {
    let mut driven = Driven::carrying();
    assert_eq!(driven.answered(Answer::Failed), Step::OrderScan { again: false });
    let failed_at = driven.now;
    assert_eq!(driven.answered(Answer::Record(Some(OPEN))), Step::ReadRecord);
    assert!(driven.now >= failed_at + AGAIN_AFTER && !driven.coordinator.is_current());
    assert_eq!(driven.step(), Step::Open);
}

#[test]
fn a_transfer_ends_as_its_user_or_its_movers_have_it() {
    let mut driven = Driven::carrying();
    driven.until(&Step::OrderScan { again: false });
    driven.record = Some(RecordView { state: RecordState::Paused, ..OPEN });
    driven.answered(Answer::Done);
    assert_eq!(driven.coordinator.pairs_wanted(), 0);
    driven.record = Some(RecordView { state: RecordState::Cancelled, ..OPEN });
    driven.until(&Step::RemovePairs);
    assert_eq!(driven.next(), Step::WriteEnd(Ending::Cancelled));

    let mut refused = Driven::carrying();
    refused.verdict = Verdict::Fail("read-only".into());
    refused.until(&Step::RemovePairs);
    assert_eq!(refused.next(), Step::WriteEnd(Ending::Failed("read-only".into())));

    // Another manager has ended it: pairs and queue made meanwhile are removed, and the record stays.
    let mut gone = Driven::carrying();
    gone.record = None;
    assert_eq!(gone.answered(Answer::Record(None)), Step::ReadRecord);
    assert_eq!(gone.answered(Answer::Done), Step::RemovePairs);
    assert_eq!(gone.answered(Answer::Done), Step::RemoveWork);
}
