use std::time::Duration;

use super::*;
use crate::fleet::{ChunkOutcome, CutTotals};

const OPEN: CoordinatedTransferFields = CoordinatedTransferFields {
    state: FleetTransferState::Open,
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
struct TestDrivenCoordinator {
    coordinator: TransferCoordinator,
    now: Duration,
    record: Option<CoordinatedTransferFields>,
    lease_is_sure: bool,
    verdict: TransferHealthVerdict,
}

impl TestDrivenCoordinator {
    fn new() -> TestDrivenCoordinator {
        TestDrivenCoordinator {
            coordinator: TransferCoordinator::new(Duration::ZERO),
            now: Duration::ZERO,
            record: Some(OPEN),
            lease_is_sure: true,
            verdict: TransferHealthVerdict::GoOn,
        }
    }

    /// Creates a coordinator that carries, whose log was read to its end.
    fn carrying() -> TestDrivenCoordinator {
        let mut driven = TestDrivenCoordinator::new();
        assert_eq!(driven.answered(CoordinatorStepResult::Record(Some(OPEN))), CoordinatorStep::ReadRecord);
        assert_eq!(
            driven.answered(CoordinatorStepResult::Opened(Box::new(PairCountTuner::new(2, 4)))),
            CoordinatorStep::Open
        );
        driven.coordinator.mark_current();
        driven
    }

    fn next(&mut self) -> CoordinatorStep {
        let verdict = || self.verdict.clone();
        let outlook = CoordinatorInputs {
            lease_is_sure: self.lease_is_sure,
            record: self.record,
            verdict: &verdict,
            pairs_most: 4,
        };
        self.coordinator.next(self.now, &outlook)
    }

    /// Returns the next step other than a wait.
    #[track_caller]
    fn step(&mut self) -> CoordinatorStep {
        for _ in 0..1_000 {
            match self.next() {
                CoordinatorStep::Wait(at) => self.now = at.max(self.now + ms(1)),
                step => return step,
            }
        }
        panic!("it waits for ever");
    }

    /// Returns the next step other than a wait, and answers it.
    #[track_caller]
    fn answered(&mut self, answer: CoordinatorStepResult) -> CoordinatorStep {
        let step = self.step();
        self.coordinator.apply_step_result(self.now, &step, answer);
        step
    }

    /// Continues until this step, which stays unanswered; progress written on the way succeeds.
    #[track_caller]
    fn comes_to(&mut self, last: &CoordinatorStep) {
        for _ in 0..50 {
            match self.step() {
                step @ (CoordinatorStep::WriteProgress(_) | CoordinatorStep::TrimQueue) if step != *last => {
                    self.coordinator.apply_step_result(self.now, &step, CoordinatorStepResult::Done);
                }
                step => return assert_eq!(&step, last),
            }
        }
        panic!("{last:?} does not come");
    }

    /// The same, and the step succeeds.
    #[track_caller]
    fn until(&mut self, last: &CoordinatorStep) {
        self.comes_to(last);
        self.answered(CoordinatorStepResult::Done);
    }

    fn scanned(&mut self, chunks: u64) {
        let found = CutTotals { chunks, files: chunks, ..CutTotals::default() };
        self.coordinator.observe(&TransferTrackerEvent::Scanned { attempt: 1, found, is_finished: true });
    }

    fn settled(&mut self, number: u64, failed: u64) {
        let outcome = ChunkOutcome { files: 1, failed, ..ChunkOutcome::default() };
        let (attempt, delivery, part) = (1, 1, None);
        self.coordinator.observe(&TransferTrackerEvent::ChunkSettled {
            attempt,
            number,
            delivery,
            outcome,
            part,
        });
    }

    fn closed(&mut self) {
        self.coordinator.observe(&TransferTrackerEvent::CloseSettled { attempt: 1, failed: 0 });
    }
}

#[test]
fn what_is_over_by_its_record_is_left_alone() {
    for record in [None, Some(CoordinatedTransferFields { state: FleetTransferState::Over, ..OPEN })] {
        let mut driven = TestDrivenCoordinator::new();
        driven.answered(CoordinatorStepResult::Record(record));
        assert_eq!(driven.next(), CoordinatorStep::Release);
    }
}

#[test]
fn a_transfer_goes_from_its_record_to_its_end() {
    let mut driven = TestDrivenCoordinator::new();
    driven.answered(CoordinatorStepResult::Record(Some(CoordinatedTransferFields {
        is_settled: false,
        ..OPEN
    })));
    assert_eq!(driven.answered(CoordinatorStepResult::Unsettled("nobody".into())), CoordinatorStep::Settle);
    assert_eq!(driven.answered(CoordinatorStepResult::Done), CoordinatorStep::WriteReason("nobody".into()));
    let waited = driven.now;
    assert_eq!(
        driven.answered(CoordinatorStepResult::Record(Some(CoordinatedTransferFields {
            is_settled: false,
            ..OPEN
        }))),
        CoordinatorStep::ReadRecord
    );
    assert!(driven.now >= waited + ms(1_999));
    assert_eq!(driven.answered(CoordinatorStepResult::Done), CoordinatorStep::Settle);
    assert_eq!(
        driven.answered(CoordinatorStepResult::Opened(Box::new(PairCountTuner::new(2, 4)))),
        CoordinatorStep::Open
    );
    // The log was not read to its end.
    assert!(matches!(driven.next(), CoordinatorStep::Wait(_)));
    driven.coordinator.mark_current();
    driven.until(&CoordinatorStep::OrderScan { again: false });
    driven.scanned(2);
    driven.settled(0, 0);
    driven.settled(1, 0);
    for is_idle in [false, true] {
        driven.comes_to(&CoordinatorStep::CheckQueue);
        driven.answered(CoordinatorStepResult::Idle(is_idle));
    }
    driven.until(&CoordinatorStep::PublishClose);
    driven.closed();
    driven.until(&CoordinatorStep::KeepCurve);
    assert_eq!(driven.coordinator.pairs_wanted(), 0);
    assert_eq!(driven.answered(CoordinatorStepResult::Done), CoordinatorStep::RemovePairs);
    assert_eq!(
        driven.answered(CoordinatorStepResult::Failed),
        CoordinatorStep::WriteEnd(TransferResult::Done)
    );
    // The end is written before the work is removed, after any number of retries.
    assert_eq!(driven.answered(CoordinatorStepResult::Done), CoordinatorStep::WriteEnd(TransferResult::Done));
    assert_eq!(driven.answered(CoordinatorStepResult::Failed), CoordinatorStep::RemoveWork);
    assert_eq!(driven.next(), CoordinatorStep::Release);
}

#[test]
fn a_queue_that_was_busy_for_long_may_have_had_what_the_log_has_not_told_yet() {
    let mut driven = TestDrivenCoordinator::carrying();
    driven.scanned(0);
    let began_at = driven.now;
    while driven.now <= began_at + ACKNOWLEDGED_WITHIN {
        driven.comes_to(&CoordinatorStep::CheckQueue);
        driven.answered(CoordinatorStepResult::Idle(false));
    }
    driven.comes_to(&CoordinatorStep::CheckQueue);
    assert_eq!(driven.answered(CoordinatorStepResult::Idle(true)), CoordinatorStep::CheckQueue);
    assert_eq!(driven.answered(CoordinatorStepResult::Record(Some(OPEN))), CoordinatorStep::ReadRecord);
    assert_eq!(
        driven.answered(CoordinatorStepResult::Opened(Box::new(PairCountTuner::new(2, 4)))),
        CoordinatorStep::Open
    );
    // Another scan has found more.
    let found = CutTotals { chunks: 1, files: 1, ..CutTotals::default() };
    driven.scanned(0);
    driven.coordinator.observe(&TransferTrackerEvent::Scanned { attempt: 2, found, is_finished: true });
    driven.coordinator.mark_current();
    assert!(matches!(driven.step(), CoordinatorStep::WriteProgress(_)));
    driven.coordinator.apply_step_result(
        driven.now,
        &CoordinatorStep::WriteProgress(String::new()),
        CoordinatorStepResult::Done,
    );
    assert!(matches!(driven.next(), CoordinatorStep::Wait(_)), "the second scan's chunk is waited for");
}

#[test]
fn what_has_failed_is_in_the_record_before_the_close() {
    let mut driven = TestDrivenCoordinator::carrying();
    driven.scanned(1);
    driven.settled(0, 1);
    driven.comes_to(&CoordinatorStep::CheckQueue);
    driven.answered(CoordinatorStepResult::Idle(true));
    assert!(matches!(driven.answered(CoordinatorStepResult::Failed), CoordinatorStep::WriteProgress(_)));
    assert!(matches!(driven.answered(CoordinatorStepResult::Done), CoordinatorStep::WriteProgress(_)));
    assert_eq!(driven.answered(CoordinatorStepResult::Done), CoordinatorStep::PublishClose);
}

#[test]
fn a_close_that_was_published_for_an_earlier_scan_is_published_again() {
    let mut driven = TestDrivenCoordinator::carrying();
    driven.scanned(0);
    driven.comes_to(&CoordinatorStep::CheckQueue);
    driven.answered(CoordinatorStepResult::Idle(true));
    driven.comes_to(&CoordinatorStep::PublishClose);
    let found = CutTotals::default();
    driven.coordinator.observe(&TransferTrackerEvent::Scanned { attempt: 2, found, is_finished: true });
    driven.coordinator.apply_step_result(
        driven.now,
        &CoordinatorStep::PublishClose,
        CoordinatorStepResult::Done,
    );
    driven.closed();
    driven.comes_to(&CoordinatorStep::CheckQueue);
}

#[test]
fn a_deletion_is_published_when_the_queue_is_idle_and_the_close_after_it() {
    let mut driven = TestDrivenCoordinator::carrying();
    driven.record = Some(CoordinatedTransferFields { deletes: true, ..OPEN });
    driven.until(&CoordinatorStep::OrderScan { again: false });
    driven.scanned(1);
    driven.settled(0, 0);
    for is_idle in [false, true] {
        driven.comes_to(&CoordinatorStep::CheckQueue);
        driven.answered(CoordinatorStepResult::Idle(is_idle));
    }
    driven.until(&CoordinatorStep::PublishDelete);
    let published_at = driven.now;
    while driven.now < published_at + ms(5_000) {
        match driven.next() {
            CoordinatorStep::Wait(at) => driven.now = at.max(driven.now + ms(1)),
            step @ CoordinatorStep::WriteProgress(_) => {
                driven.coordinator.apply_step_result(driven.now, &step, CoordinatorStepResult::Done)
            }
            step => panic!("{step:?} before the deletion is settled"),
        }
    }
    driven.coordinator.observe(&TransferTrackerEvent::DeleteSettled {
        attempt: 1,
        delivery: 1,
        deleted: 3,
        failed: 0,
    });
    driven.comes_to(&CoordinatorStep::CheckQueue);
    driven.answered(CoordinatorStepResult::Idle(true));
    driven.until(&CoordinatorStep::PublishClose);
    driven.closed();
    driven.until(&CoordinatorStep::KeepCurve);
    assert_eq!(driven.coordinator.totals().entries_deleted, 3);
}

#[test]
fn nothing_is_deleted_after_a_failure_or_while_it_is_paused() {
    let mut failed = TestDrivenCoordinator::carrying();
    failed.record = Some(CoordinatedTransferFields { deletes: true, failed_entries: 1, ..OPEN });
    failed.until(&CoordinatorStep::OrderScan { again: false });
    failed.scanned(0);
    failed.comes_to(&CoordinatorStep::CheckQueue);
    failed.answered(CoordinatorStepResult::Idle(true));
    failed.comes_to(&CoordinatorStep::PublishClose);

    let mut paused = TestDrivenCoordinator::carrying();
    paused.record = Some(CoordinatedTransferFields { deletes: true, ..OPEN });
    paused.until(&CoordinatorStep::OrderScan { again: false });
    paused.scanned(0);
    paused.comes_to(&CoordinatorStep::CheckQueue);
    paused.answered(CoordinatorStepResult::Idle(true));
    paused.record =
        Some(CoordinatedTransferFields { deletes: true, state: FleetTransferState::Paused, ..OPEN });
    for _ in 0..50 {
        match paused.next() {
            CoordinatorStep::Wait(at) => paused.now = at.max(paused.now + ms(1)),
            step @ (CoordinatorStep::WriteProgress(_) | CoordinatorStep::TrimQueue) => {
                paused.coordinator.apply_step_result(paused.now, &step, CoordinatorStepResult::Done);
            }
            step => panic!("{step:?} of what is paused"),
        }
    }
    paused.record = Some(CoordinatedTransferFields { deletes: true, ..OPEN });
    paused.comes_to(&CoordinatorStep::PublishDelete);
}

#[test]
fn nothing_is_decided_by_a_lease_that_is_not_sure() {
    let mut driven = TestDrivenCoordinator::carrying();
    driven.lease_is_sure = false;
    driven.scanned(0);
    assert!(matches!(driven.next(), CoordinatorStep::Wait(_)));
}

#[test]
fn a_step_that_fails_begins_it_anew_from_the_record() {
    let mut driven = TestDrivenCoordinator::carrying();
    assert_eq!(driven.answered(CoordinatorStepResult::Failed), CoordinatorStep::OrderScan { again: false });
    let failed_at = driven.now;
    assert_eq!(driven.answered(CoordinatorStepResult::Record(Some(OPEN))), CoordinatorStep::ReadRecord);
    assert!(driven.now >= failed_at + AGAIN_AFTER && !driven.coordinator.is_current());
    assert_eq!(driven.step(), CoordinatorStep::Open);
}

#[test]
fn a_transfer_ends_as_its_user_or_its_movers_have_it() {
    let mut driven = TestDrivenCoordinator::carrying();
    driven.until(&CoordinatorStep::OrderScan { again: false });
    driven.record = Some(CoordinatedTransferFields { state: FleetTransferState::Paused, ..OPEN });
    driven.answered(CoordinatorStepResult::Done);
    assert_eq!(driven.coordinator.pairs_wanted(), 0);
    driven.record = Some(CoordinatedTransferFields { state: FleetTransferState::Cancelled, ..OPEN });
    driven.until(&CoordinatorStep::RemovePairs);
    assert_eq!(driven.next(), CoordinatorStep::WriteEnd(TransferResult::Cancelled));

    let mut refused = TestDrivenCoordinator::carrying();
    refused.verdict = TransferHealthVerdict::Fail("read-only".into());
    refused.until(&CoordinatorStep::RemovePairs);
    assert_eq!(refused.next(), CoordinatorStep::WriteEnd(TransferResult::Failed("read-only".into())));

    // Another manager has ended it: pairs and queue made meanwhile are removed, and the record stays.
    let mut gone = TestDrivenCoordinator::carrying();
    gone.record = None;
    assert_eq!(gone.answered(CoordinatorStepResult::Record(None)), CoordinatorStep::ReadRecord);
    assert_eq!(gone.answered(CoordinatorStepResult::Done), CoordinatorStep::RemovePairs);
    assert_eq!(gone.answered(CoordinatorStepResult::Done), CoordinatorStep::RemoveWork);
}
