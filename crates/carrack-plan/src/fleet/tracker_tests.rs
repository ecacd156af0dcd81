use proptest::prelude::*;

use super::*;

const GIB: u64 = 1 << 30;

fn found(chunks: u64, files: u64, bytes: u64) -> CutTotals {
    CutTotals { chunks, files, bytes, ..CutTotals::default() }
}

fn scanned(attempt: u32, found: CutTotals) -> TransferTrackerEvent {
    TransferTrackerEvent::Scanned { attempt, found, is_finished: true }
}

fn files_settled(attempt: u32, number: u64, files: u64, failed: u64) -> TransferTrackerEvent {
    let outcome = ChunkOutcome { files, bytes: files * 10, moved_bytes: files * 10, failed };
    TransferTrackerEvent::ChunkSettled { attempt, number, delivery: 1, outcome, part: None }
}

fn part_settled(attempt: u32, number: u64, file: u64, count: u64, failed: u64) -> TransferTrackerEvent {
    let bytes = if failed > 0 { 0 } else { GIB };
    let outcome = ChunkOutcome { files: 0, bytes, moved_bytes: GIB, failed };
    let part = Some(PartedFileRef { file: LargeFileNumber(file), count });
    TransferTrackerEvent::ChunkSettled { attempt, number, delivery: 1, outcome, part }
}

fn fed(events: &[TransferTrackerEvent]) -> TransferTracker {
    let mut tracker = TransferTracker::new();
    events.iter().for_each(|event| tracker.observe(event));
    tracker
}

#[test]
fn an_empty_tree_is_closed_and_over() {
    let mut tracker = TransferTracker::new();
    assert_eq!(tracker.next(), ManagerAction::Wait);
    tracker.observe(&scanned(1, CutTotals::default()));
    assert_eq!(tracker.next(), ManagerAction::Close);
    tracker.record_published(&ManagerAction::Close);
    assert_eq!(tracker.next(), ManagerAction::Wait);
    tracker.observe(&TransferTrackerEvent::CloseSettled { attempt: 1, failed: 0 });
    assert_eq!(tracker.next(), ManagerAction::Over);
}

#[test]
fn further_names_are_done_at_the_end() {
    let mut tracker =
        fed(&[scanned(1, CutTotals { names: 5, ..found(1, 2, 20) }), files_settled(1, 0, 2, 0)]);
    assert_eq!((tracker.totals().files_found, tracker.totals().files_done), (7, 2));
    tracker.observe(&TransferTrackerEvent::CloseSettled { attempt: 1, failed: 1 });
    let totals = tracker.totals();
    assert_eq!((totals.files_found, totals.files_done, totals.entries_failed), (7, 6, 1));
    assert_eq!(tracker.next(), ManagerAction::Over);
}

#[test]
fn a_file_is_finished_when_all_its_parts_are_settled() {
    let mut tracker = fed(&[
        part_settled(1, 0, 0, 2, 0),
        part_settled(1, 0, 0, 2, 0),
        scanned(1, CutTotals { files_in_parts: 2, ..found(4, 2, 4 * GIB) }),
        part_settled(1, 2, 1, 2, 1),
    ]);
    assert_eq!(tracker.next(), ManagerAction::Wait, "a part that is told twice is one part");
    tracker.observe(&part_settled(1, 1, 0, 2, 0));
    let finish = ManagerAction::FinishFiles(vec![LargeFileNumber(0)]);
    assert_eq!(tracker.next(), finish);
    assert_eq!(tracker.next(), finish, "until it was asked for");
    tracker.record_published(&finish);
    assert_eq!(tracker.next(), ManagerAction::Wait);
    // The other file has failed, and is discarded only when no mover writes to it.
    tracker.observe(&part_settled(1, 3, 1, 2, 0));
    let discard = ManagerAction::DiscardFiles(vec![LargeFileNumber(1)]);
    assert_eq!(tracker.next(), discard);
    tracker.record_published(&discard);
    assert_eq!(tracker.next(), ManagerAction::Wait);
    let discarded = TransferTrackerEvent::DiscardSettled { attempt: 1, file: LargeFileNumber(1) };
    let finished =
        TransferTrackerEvent::FinishSettled { attempt: 1, file: LargeFileNumber(0), is_done: true };
    for first in [discarded, finished] {
        let mut half = tracker.clone();
        half.observe(&first);
        assert_eq!(half.next(), ManagerAction::Wait, "{first:?}");
    }
    tracker.observe(&discarded);
    tracker.observe(&finished);
    tracker.observe(&TransferTrackerEvent::FinishSettled {
        attempt: 1,
        file: LargeFileNumber(0),
        is_done: false,
    });
    assert_eq!(tracker.next(), ManagerAction::Close);
    let expected = TransferTotals {
        files_found: 2,
        bytes_found: 4 * GIB,
        is_scanned: true,
        files_done: 1,
        bytes_done: 3 * GIB,
        bytes_moved: 4 * GIB,
        entries_failed: 1,
        chunks_found: 4,
        chunks_done: 4,
        entries_deleted: 0,
    };
    assert_eq!(tracker.totals(), expected);
}

#[test]
fn a_file_that_can_not_be_finished_has_failed() {
    let tracker = fed(&[
        scanned(1, found(1, 1, GIB)),
        part_settled(1, 0, 0, 1, 0),
        TransferTrackerEvent::FinishSettled { attempt: 1, file: LargeFileNumber(0), is_done: false },
    ]);
    assert_eq!((tracker.totals().files_done, tracker.totals().entries_failed), (0, 1));
    assert_eq!(tracker.next(), ManagerAction::Close);
}

#[test]
fn it_is_not_over_before_everything_is_settled() {
    let mut tracker = fed(&[
        TransferTrackerEvent::CloseSettled { attempt: 1, failed: 0 },
        scanned(1, found(2, 2, 0)),
        files_settled(1, 1, 1, 0),
    ]);
    assert_eq!(tracker.next(), ManagerAction::Wait);
    tracker.observe(&files_settled(1, 0, 1, 0));
    assert_eq!(tracker.next(), ManagerAction::Over);
}

fn deleted(attempt: u32, delivery: u32, deleted: u64, failed: u64) -> TransferTrackerEvent {
    TransferTrackerEvent::DeleteSettled { attempt, delivery, deleted, failed }
}

#[test]
fn what_the_source_has_not_goes_when_everything_is_settled_and_before_the_close() {
    let mut tracker = fed(&[scanned(1, found(2, 2, 0)), files_settled(1, 1, 1, 0)]);
    tracker.set_deletes(true);
    assert_eq!(tracker.next(), ManagerAction::Wait);
    tracker.observe(&files_settled(1, 0, 1, 0));
    assert_eq!(tracker.next(), ManagerAction::Delete);
    tracker.record_published(&ManagerAction::Delete);
    assert_eq!(tracker.next(), ManagerAction::Wait);
    tracker.observe(&deleted(1, 1, 5, 0));
    assert_eq!((tracker.next(), tracker.totals().entries_deleted), (ManagerAction::Close, 5));
    // A mover that was killed before the acknowledgement has logged its deletion; each delivery counts once.
    tracker.observe(&deleted(1, 1, 5, 0));
    tracker.observe(&deleted(1, 2, 3, 1));
    let totals = tracker.totals();
    assert_eq!((totals.entries_deleted, totals.entries_failed), (8, 0));
    // Another scan that counts by now has a deletion of its own.
    tracker.observe(&scanned(2, found(0, 0, 0)));
    assert_eq!(tracker.next(), ManagerAction::Delete);
    tracker.observe(&deleted(2, 1, 1, 2));
    let totals = tracker.totals();
    assert_eq!((tracker.next(), totals.entries_deleted, totals.entries_failed), (ManagerAction::Close, 9, 2));
}

#[test]
fn nothing_goes_where_something_has_failed() {
    for failed in [
        vec![scanned(1, CutTotals { failed: 1, ..found(0, 0, 0) })],
        vec![scanned(1, found(1, 1, 0)), files_settled(1, 0, 0, 1)],
        vec![
            scanned(1, found(1, 1, GIB)),
            part_settled(1, 0, 0, 1, 0),
            TransferTrackerEvent::FinishSettled { attempt: 1, file: LargeFileNumber(0), is_done: false },
        ],
        vec![
            scanned(1, found(1, 1, GIB)),
            part_settled(1, 0, 0, 1, 1),
            TransferTrackerEvent::DiscardSettled { attempt: 1, file: LargeFileNumber(0) },
        ],
    ] {
        let mut tracker = fed(&failed);
        tracker.set_deletes(true);
        assert_eq!(tracker.next(), ManagerAction::Close, "{failed:?}");
    }
}

#[test]
fn the_last_complete_scan_counts() {
    let mut tracker = fed(&[files_settled(1, 0, 5, 0), files_settled(1, 1, 5, 0)]);
    assert_eq!((tracker.counting_attempt(), tracker.totals().files_done), (None, 10));
    tracker.observe(&TransferTrackerEvent::Scanned {
        attempt: 2,
        found: found(1, 7, 70),
        is_finished: false,
    });
    assert_eq!(
        tracker.totals(),
        TransferTotals {
            files_found: 7,
            bytes_found: 70,
            bytes_moved: 100,
            chunks_found: 1,
            ..TransferTotals::default()
        }
    );
    tracker.observe(&scanned(2, found(2, 8, 80)));
    tracker.observe(&files_settled(2, 1, 4, 0));
    assert_eq!((tracker.counting_attempt(), tracker.next()), (Some(2), ManagerAction::Wait));
    tracker.observe(&files_settled(2, 0, 4, 0));
    assert_eq!(tracker.next(), ManagerAction::Close);
    tracker.record_published(&ManagerAction::Close);
    // A third scan that ends last takes the second's place, and has a close of its own.
    tracker.observe(&scanned(3, found(1, 8, 80)));
    tracker.observe(&TransferTrackerEvent::CloseSettled { attempt: 2, failed: 0 });
    assert_eq!(tracker.next(), ManagerAction::Wait);
    tracker.observe(&files_settled(3, 0, 8, 0));
    assert_eq!(tracker.next(), ManagerAction::Close);
    tracker.observe(&TransferTrackerEvent::CloseSettled { attempt: 3, failed: 0 });
    assert_eq!((tracker.next(), tracker.totals().files_done), (ManagerAction::Over, 8));
    // Entries after the end change nothing.
    let at_end = tracker.totals();
    tracker.observe(&scanned(4, found(9, 9, 9)));
    assert_eq!((tracker.next(), tracker.totals()), (ManagerAction::Over, at_end));
}

#[test]
fn what_was_moved_twice_is_counted_twice_and_what_was_told_twice_once() {
    let outcome = ChunkOutcome { files: 1, bytes: 10, moved_bytes: 10, failed: 0 };
    let settled = |delivery| TransferTrackerEvent::ChunkSettled {
        attempt: 1,
        number: 0,
        delivery,
        outcome,
        part: None,
    };
    let tracker = fed(&[settled(2), settled(1), settled(2), settled(1)]);
    let totals = tracker.totals();
    assert_eq!((totals.bytes_moved, totals.bytes_done, totals.chunks_done), (20, 10, 1));
}

#[test]
fn many_files_are_asked_for_in_bounded_messages() {
    let mut tracker = fed(&[scanned(1, found(1_000, 1_000, 0))]);
    (0..1_000).for_each(|n| tracker.observe(&part_settled(1, n, n, 1, 0)));
    let mut asked = Vec::new();
    while let ManagerAction::FinishFiles(files) = tracker.next() {
        assert!(files.len() <= NEXT_FILES_MAX);
        tracker.record_published(&ManagerAction::FinishFiles(files.clone()));
        asked.extend(files);
    }
    assert_eq!(asked, (0..1_000).map(LargeFileNumber).collect::<Vec<_>>());
    assert_eq!(tracker.next(), ManagerAction::Wait);
}

#[test]
fn a_transfer_of_millions_of_files_is_some_runs() {
    let mut tracker = TransferTracker::new();
    // 1,221 chunks of 8,192 files and 100,000 parts, settled a little out of order as by 64 movers.
    let chunks = 101_221;
    for round in 0..chunks / 61 + 1 {
        for n in (0..61).map(|n| round * 61 + n * 37 % 61).filter(|n| *n < chunks) {
            if n < 1_221 {
                tracker.observe(&files_settled(1, n, 8_192, 0));
            } else {
                tracker.observe(&part_settled(1, n, (n - 1_221) / 100, 100, 0));
            }
            let attempt = &tracker.attempts[&1];
            assert!(attempt.settled.run_count() <= 61 && attempt.begun.len() <= 3);
        }
    }
    tracker.observe(&scanned(1, found(chunks, 0, 0)));
    let attempt = &tracker.attempts[&1];
    assert_eq!((attempt.settled.run_count(), attempt.finishing.due.run_count()), (1, 1));
    assert_eq!(tracker.totals().files_done, 1_221 * 8_192);
}

/// A transfer: chunks of files with their failures, and large files with each part's.
#[derive(Clone, Debug)]
struct SimulatedTransferLog {
    groups: Vec<(u64, u64)>,
    large: Vec<Vec<bool>>,
    finish_fails: Vec<bool>,
}

fn plans() -> impl Strategy<Value = SimulatedTransferLog> {
    let groups = prop::collection::vec((0u64..9, 0u64..3), 0..8);
    let large = prop::collection::vec(prop::collection::vec(prop::bool::weighted(0.2), 1..5), 0..5);
    (groups, large, prop::collection::vec(prop::bool::weighted(0.3), 5))
        .prop_map(|(groups, large, finish_fails)| SimulatedTransferLog { groups, large, finish_fails })
}

impl SimulatedTransferLog {
    /// Returns the log of movers for one attempt, without its close.
    fn events(&self, attempt: u32) -> Vec<TransferTrackerEvent> {
        let mut events = Vec::new();
        for (files, failed) in &self.groups {
            events.push(files_settled(attempt, events.len() as u64, *files, *failed));
        }
        for (file, parts) in (0..).zip(&self.large) {
            for has_failed in parts {
                let number = events.len() as u64;
                events.push(part_settled(attempt, number, file, parts.len() as u64, u64::from(*has_failed)));
            }
        }
        let chunks = events.len() as u64;
        for (file, parts) in (0..).zip(&self.large) {
            let file = LargeFileNumber(file);
            events.push(if parts.contains(&true) {
                TransferTrackerEvent::DiscardSettled { attempt, file }
            } else {
                let is_done = !self.finish_fails[file.0 as usize];
                TransferTrackerEvent::FinishSettled { attempt, file, is_done }
            });
        }
        events.push(scanned(attempt, found(chunks, 1_000, 1_000)));
        events
    }

    fn is_whole(&self, parts: &[bool]) -> bool {
        !parts.contains(&true)
    }

    fn files_done(&self) -> u64 {
        let finished = self
            .large
            .iter()
            .zip(&self.finish_fails)
            .filter(|(parts, fails)| self.is_whole(parts) && !**fails);
        self.groups.iter().map(|group| group.0).sum::<u64>() + finished.count() as u64
    }

    fn failed(&self) -> u64 {
        let failed = self
            .large
            .iter()
            .zip(&self.finish_fails)
            .filter(|(parts, fails)| !self.is_whole(parts) || **fails);
        self.groups.iter().map(|group| group.1).sum::<u64>() + failed.count() as u64
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn any_order_with_repetitions_and_dead_scans_ends_the_same(
        plan in plans(),
        seed in prop::collection::vec(any::<(u32, bool)>(), 200),
        stale in 0usize..40,
    ) {
        // Another scan began and died: some of its chunks are settled too.
        let mut dead = plan.events(1);
        dead.pop();
        dead.truncate(stale);
        let moved = |events: &[TransferTrackerEvent]| -> u64 {
            events.iter().map(|event| match event {
                TransferTrackerEvent::ChunkSettled { outcome, .. } => outcome.moved_bytes,
                _ => 0,
            }).sum()
        };
        let live = plan.events(2);
        let bytes_moved = moved(&dead) + moved(&live);
        let mut events: Vec<TransferTrackerEvent> = live.iter().chain(&dead).copied().collect();
        let repeated: Vec<TransferTrackerEvent> =
            events.iter().zip(&seed).filter(|(_, (_, twice))| *twice).map(|(event, _)| *event).collect();
        events.extend(repeated);
        let mut keyed: Vec<(u32, TransferTrackerEvent)> =
            seed.iter().rev().map(|(key, _)| *key).cycle().zip(events).collect();
        keyed.sort_by_key(|(key, _)| *key);

        let mut tracker = TransferTracker::new();
        for (_, event) in &keyed {
            tracker.observe(event);
            prop_assert!(tracker.next() != ManagerAction::Over);
        }
        prop_assert_eq!(tracker.next(), ManagerAction::Close);
        tracker.observe(&TransferTrackerEvent::CloseSettled { attempt: 2, failed: 0 });
        prop_assert_eq!(tracker.next(), ManagerAction::Over);
        let totals = tracker.totals();
        prop_assert_eq!(totals.files_done, plan.files_done());
        prop_assert_eq!(totals.entries_failed, plan.failed());
        prop_assert_eq!(totals.chunks_done, totals.chunks_found);
        prop_assert_eq!(totals.bytes_moved, bytes_moved);
    }

    /// Movers carry out the queue, a manager follows the tracker; managers change at any time.
    #[test]
    fn a_fleet_with_changing_managers_comes_to_the_end(
        plan in plans(),
        order in prop::collection::vec(any::<usize>(), 400),
        takeovers in prop::collection::vec(prop::bool::weighted(0.1), 400),
    ) {
        let is_settlement = |event: &TransferTrackerEvent| {
            !matches!(event, TransferTrackerEvent::FinishSettled { .. } | TransferTrackerEvent::DiscardSettled { .. })
        };
        let mut queue: Vec<TransferTrackerEvent> = plan.events(1).into_iter().filter(is_settlement).collect();
        let mut log = Vec::new();
        let mut tracker = TransferTracker::new();
        for (pick, takes_over) in order.into_iter().zip(takeovers) {
            if takes_over {
                tracker = fed(&log);
            }
            let next = tracker.next();
            tracker.record_published(&next);
            match next {
                ManagerAction::Over => break,
                ManagerAction::Wait => {}
                ManagerAction::Delete => unreachable!("nothing is to be deleted"),
                ManagerAction::Close => queue.push(TransferTrackerEvent::CloseSettled { attempt: 1, failed: 0 }),
                ManagerAction::FinishFiles(files) => queue.extend(files.into_iter().map(|file| {
                    let is_done = !plan.finish_fails[file.0 as usize];
                    TransferTrackerEvent::FinishSettled { attempt: 1, file, is_done }
                })),
                ManagerAction::DiscardFiles(files) => queue.extend(
                    files.into_iter().map(|file| TransferTrackerEvent::DiscardSettled { attempt: 1, file }),
                ),
            }
            if !queue.is_empty() {
                let event = queue.swap_remove(pick % queue.len());
                log.push(event);
                tracker.observe(&event);
            }
        }
        prop_assert_eq!(tracker.next(), ManagerAction::Over);
        let again = fed(&log);
        prop_assert_eq!((again.next(), again.totals()), (ManagerAction::Over, tracker.totals()));
        prop_assert_eq!(tracker.totals().files_done, plan.files_done());
        prop_assert_eq!(tracker.totals().entries_failed, plan.failed());
    }
}
