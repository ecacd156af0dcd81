//! A manager's view of one transfer: the state that its log describes, and the next item of work.
//!
//! Owns counts and sets of numbers only, no paths. A manager that takes a transfer's lease feeds a new
//! tracker from the log's beginning, and has the state of the manager before it.

use std::collections::BTreeMap;

use carrack_model::{ByteRange, RangeSet};

use super::CutTotals;

/// A large file, by its number among those that its scan cut into parts, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LargeFileNumber(pub u64);

/// Upper bound of the files in one [`ManagerAction`].
pub const NEXT_FILES_MAX: usize = 256;

/// An entry of a transfer's log. It may come twice, and those of one chunk, file or scan in any order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransferTrackerEvent {
    /// Progress of a scan, or its end.
    Scanned {
        /// Number of the scan; a later scan has a higher number.
        attempt: u32,
        /// Counts of the scan so far.
        found: CutTotals,
        /// True at the end of the scan.
        is_finished: bool,
    },
    /// A sink has settled a chunk: it is in a journal or was reported as failed, as a whole.
    ChunkSettled {
        /// The attempt of the scan that cut it.
        attempt: u32,
        /// Number of the chunk.
        number: u64,
        /// Count of deliveries, from 1: a chunk may be carried out twice, and then both deliveries moved
        /// bytes.
        delivery: u32,
        /// Outcome of the chunk.
        outcome: ChunkOutcome,
        /// The file, if the chunk is a part of a large file.
        part: Option<PartedFileRef>,
    },
    /// A large file has its metadata and its name, or could not get them.
    FinishSettled {
        /// The attempt of the scan that cut it.
        attempt: u32,
        /// The file.
        file: LargeFileNumber,
        /// True if it has its name.
        is_done: bool,
    },
    /// The partial data of a failed large file was removed.
    DiscardSettled {
        /// The attempt of the scan that cut it.
        attempt: u32,
        /// The file.
        file: LargeFileNumber,
    },
    /// The deletion at the destination was carried out as far as permitted.
    DeleteSettled {
        /// The attempt of the scan that the item was made for.
        attempt: u32,
        /// Count of deliveries, from 1: each may have removed entries.
        delivery: u32,
        /// Entries that were removed.
        deleted: u64,
        /// Reasons for which entries were not removed, one entry each.
        failed: u64,
    },
    /// Files have their further names and directories their metadata, the journals are removed.
    CloseSettled {
        /// The attempt of the scan that the item was made for.
        attempt: u32,
        /// Names and directories that failed.
        failed: u64,
    },
}

/// The outcome of a chunk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChunkOutcome {
    /// Files and links that have their names; none for a part.
    pub files: u64,
    /// Bytes in the sink's journals.
    pub bytes: u64,
    /// Bytes sent for the chunk.
    pub moved_bytes: u64,
    /// Entries that could not be copied; 1 for a failed part.
    pub failed: u64,
}

/// The file of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartedFileRef {
    /// The file.
    pub file: LargeFileNumber,
    /// Number of the file's parts.
    pub count: u64,
}

/// The manager's next action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ManagerAction {
    /// Nothing, until the log grows.
    Wait,
    /// Finish these files: all of their parts are at the sink.
    FinishFiles(Vec<LargeFileNumber>),
    /// Remove the partial data of these files: a part of each has failed, and no part is under way.
    DiscardFiles(Vec<LargeFileNumber>),
    /// Remove entries of the destination that the source does not have: everything is settled, and nothing
    /// has failed.
    Delete,
    /// Close the transfer: everything else is settled.
    Close,
    /// Nothing: the transfer is over.
    Over,
}

/// Progress of a transfer by the scan that counts: the last complete one, or the last one while none is
/// complete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransferTotals {
    /// Files and links found, each name of a file.
    pub files_found: u64,
    /// Their bytes.
    pub bytes_found: u64,
    /// True if the scan is complete.
    pub is_scanned: bool,
    /// Files and links that have their names at the destination.
    pub files_done: u64,
    /// Bytes that are in the sinks' journals.
    pub bytes_done: u64,
    /// Bytes that were sent, for chunks of all scans.
    pub bytes_moved: u64,
    /// Entries that could not be read, copied or finished.
    pub entries_failed: u64,
    /// Chunks that were cut.
    pub chunks_found: u64,
    /// Chunks that are settled.
    pub chunks_done: u64,
    /// Entries of the destination that were removed because the source does not have them, by the items of
    /// all scans.
    pub entries_deleted: u64,
}

/// Follows one transfer's log.
///
/// The last complete scan counts. Settled items of other scans change only the bytes moved, because an
/// incomplete scan does not tell which entries exist. Memory: some sets of numbers for each scan, with a run
/// for each gap (as many as there are chunks under way), and a few words for each large file with some
/// settled parts.
#[derive(Clone, Debug, Default)]
pub struct TransferTracker {
    attempts: BTreeMap<u32, ScanAttemptProgress>,
    bytes_moved: u64,
    deletes: bool,
    closed: Option<u32>,
}

#[derive(Clone, Debug, Default)]
struct ScanAttemptProgress {
    found: CutTotals,
    is_finished: bool,
    settled: RangeSet,
    settled_count: u64,
    /// Chunks that were carried out, by the count of their delivery.
    moved: BTreeMap<u32, RangeSet>,
    done: ChunkOutcome,
    /// Large files with some settled parts.
    begun: BTreeMap<LargeFileNumber, FileParts>,
    finishing: LargeFileFinalWork,
    discarding: LargeFileFinalWork,
    is_delete_asked: bool,
    /// Entries that each delivery of the deletion's item has removed.
    deleted: BTreeMap<u32, u64>,
    /// Failures of the deletion, by the first report.
    delete_failed: u64,
    is_close_asked: bool,
    is_closed: bool,
    /// Failures of the close.
    close_failed: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct FileParts {
    parts_settled: u64,
    has_failed: bool,
}

/// Large files for which an item of work is due.
#[derive(Clone, Debug, Default)]
struct LargeFileFinalWork {
    due: RangeSet,
    asked: RangeSet,
    settled: RangeSet,
    /// The settled files that succeeded. Success overrides failure: a second delivery finds nothing left to
    /// do.
    done: RangeSet,
}

impl TransferTracker {
    /// Creates the tracker of a transfer with an empty log.
    pub fn new() -> TransferTracker {
        TransferTracker::default()
    }

    /// Sets whether entries of the destination are removed before the transfer is closed.
    pub fn set_deletes(&mut self, deletes: bool) {
        self.deletes = deletes;
    }

    /// Takes one entry of the log. A repeated entry changes nothing, nor does an entry after the transfer's
    /// end.
    pub fn observe(&mut self, event: &TransferTrackerEvent) {
        if self.closed.is_some() {
            return;
        }
        match *event {
            TransferTrackerEvent::Scanned { attempt, found, is_finished } => {
                self.attempt(attempt).record_scan(found, is_finished);
            }
            TransferTrackerEvent::ChunkSettled { attempt, number, delivery, outcome, part } => {
                let attempt = self.attempt(attempt);
                attempt.record_chunk_settled(number, outcome, part);
                if add(attempt.moved.entry(delivery).or_default(), number) {
                    self.bytes_moved += outcome.moved_bytes;
                }
            }
            TransferTrackerEvent::FinishSettled { attempt, file, is_done } => {
                let finishing = &mut self.attempt(attempt).finishing;
                add(&mut finishing.settled, file.0);
                if is_done {
                    add(&mut finishing.done, file.0);
                }
            }
            TransferTrackerEvent::DiscardSettled { attempt, file } => {
                add(&mut self.attempt(attempt).discarding.settled, file.0);
            }
            TransferTrackerEvent::DeleteSettled { attempt, delivery, deleted, failed } => {
                let attempt = self.attempt(attempt);
                if attempt.deleted.is_empty() {
                    attempt.delete_failed = failed;
                }
                attempt.deleted.entry(delivery).or_insert(deleted);
            }
            TransferTrackerEvent::CloseSettled { attempt, failed } => {
                let attempt = self.attempt(attempt);
                (attempt.is_closed, attempt.close_failed) = (true, failed);
            }
        }
        // A close of a scan that a later one has overtaken does not count: it covered no entry of the later
        // scan.
        self.closed = self.counting_attempt().filter(|number| {
            let attempt = &self.attempts[number];
            attempt.is_closed && attempt.is_settled()
        });
    }

    /// Returns the next action, the same until [`record_published`](Self::record_published) or the log
    /// changes it.
    pub fn next(&self) -> ManagerAction {
        if self.closed.is_some() {
            return ManagerAction::Over;
        }
        let Some(attempt) = self.counting_attempt().and_then(|number| self.attempts.get(&number)) else {
            return ManagerAction::Wait;
        };
        let finish = attempt.finishing.unrequested_files();
        let discard = attempt.discarding.unrequested_files();
        if !finish.is_empty() {
            ManagerAction::FinishFiles(finish)
        } else if !discard.is_empty() {
            ManagerAction::DiscardFiles(discard)
        } else if attempt.is_settled() && self.is_deletion_due(attempt) {
            if attempt.is_delete_asked { ManagerAction::Wait } else { ManagerAction::Delete }
        } else if attempt.is_settled() && !attempt.is_close_asked {
            ManagerAction::Close
        } else {
            ManagerAction::Wait
        }
    }

    /// Records that the items of [`next`](Self::next) are in the queue. Another manager does not know that
    /// and publishes them again, which the items are made to tolerate.
    pub fn record_published(&mut self, next: &ManagerAction) {
        let Some(attempt) = self.counting_attempt().and_then(|number| self.attempts.get_mut(&number)) else {
            return;
        };
        let (asked, files) = match next {
            ManagerAction::FinishFiles(files) => (&mut attempt.finishing.asked, files),
            ManagerAction::DiscardFiles(files) => (&mut attempt.discarding.asked, files),
            ManagerAction::Delete => {
                attempt.is_delete_asked = true;
                return;
            }
            ManagerAction::Close => {
                attempt.is_close_asked = true;
                return;
            }
            ManagerAction::Wait | ManagerAction::Over => return,
        };
        files.iter().for_each(|file| {
            add(asked, file.0);
        });
    }

    /// Returns the number of the scan that counts, once a scan is complete: items of work carry this number.
    pub fn counting_attempt(&self) -> Option<u32> {
        let complete = self.attempts.iter().rev().find(|(_, attempt)| attempt.is_finished);
        self.closed.or(complete.map(|(number, _)| *number))
    }

    /// Returns the progress. A scan that takes another's place may begin with less.
    pub fn totals(&self) -> TransferTotals {
        let shown = self.counting_attempt().or_else(|| self.attempts.keys().next_back().copied());
        let entries_deleted = self.attempts.values().flat_map(|attempt| attempt.deleted.values()).sum();
        let moved =
            TransferTotals { bytes_moved: self.bytes_moved, entries_deleted, ..TransferTotals::default() };
        let Some(attempt) = shown.and_then(|number| self.attempts.get(&number)) else { return moved };
        let ScanAttemptProgress { found, done, finishing, close_failed, .. } = attempt;
        let finished = covered_by_both(&finishing.due, &finishing.done);
        let named = if attempt.is_closed { found.names.saturating_sub(*close_failed) } else { 0 };
        TransferTotals {
            files_found: found.files + found.names,
            bytes_found: found.bytes,
            is_scanned: attempt.is_finished,
            files_done: done.files + finished + named,
            bytes_done: done.bytes,
            entries_failed: attempt.failed_entries(),
            chunks_found: found.chunks,
            chunks_done: attempt.settled_count,
            ..moved
        }
    }

    /// Returns true if the deletion is still due. After a failure it is not: the failed entries may be those
    /// that would be missed.
    fn is_deletion_due(&self, attempt: &ScanAttemptProgress) -> bool {
        self.deletes && attempt.deleted.is_empty() && attempt.failed_entries() == 0
    }

    fn attempt(&mut self, number: u32) -> &mut ScanAttemptProgress {
        self.attempts.entry(number).or_default()
    }
}

impl ScanAttemptProgress {
    /// Reports only grow, so the largest of each number is the last; the final report is exact.
    fn record_scan(&mut self, found: CutTotals, is_finished: bool) {
        if self.is_finished {
            return;
        }
        self.is_finished = is_finished;
        self.found = if is_finished { found } else { self.found.max_of(found) };
    }

    /// The first log entry of a chunk that was carried out twice counts.
    fn record_chunk_settled(&mut self, number: u64, outcome: ChunkOutcome, part: Option<PartedFileRef>) {
        if !add(&mut self.settled, number) {
            return;
        }
        self.settled_count += 1;
        self.done.bytes += outcome.bytes;
        match part {
            None => {
                self.done.files += outcome.files;
                self.done.failed += outcome.failed;
            }
            Some(part) => self.record_part_settled(part, outcome.failed > 0),
        }
    }

    /// A large file fails once, however many of its parts do, and not before all of them are settled: until
    /// then another mover may be writing.
    fn record_part_settled(&mut self, part: PartedFileRef, has_failed: bool) {
        let begun = self.begun.entry(part.file).or_default();
        begun.parts_settled += 1;
        begun.has_failed |= has_failed;
        if begun.parts_settled >= part.count {
            let files = if begun.has_failed { &mut self.discarding } else { &mut self.finishing };
            add(&mut files.due, part.file.0);
            self.begun.remove(&part.file);
        }
    }

    /// Returns the number of entries that could not be read, copied, finished or removed.
    fn failed_entries(&self) -> u64 {
        let LargeFileFinalWork { due, settled, done, .. } = &self.finishing;
        let unfinished = covered_by_both(due, settled) - covered_by_both(due, done);
        let ended = self.delete_failed + self.close_failed;
        self.found.failed + self.done.failed + unfinished + self.discarding.due.covered_bytes() + ended
    }

    /// Returns true if only the close is left.
    fn is_settled(&self) -> bool {
        self.is_finished
            && self.settled.gaps(self.found.chunks).next().is_none()
            && self.finishing.is_settled()
            && self.discarding.is_settled()
    }
}

impl LargeFileFinalWork {
    /// Returns the first files that are due and neither asked for nor settled.
    fn unrequested_files(&self) -> Vec<LargeFileNumber> {
        let mut files = Vec::new();
        for run in self.due.iter() {
            let mut at = run.offset;
            while at < run.offset + run.len && files.len() < NEXT_FILES_MAX {
                let known = [&self.asked, &self.settled].map(|set| set.next_from(at));
                match known.into_iter().flatten().find(|run| run.offset == at) {
                    Some(run) => at += run.len,
                    None => {
                        files.push(LargeFileNumber(at));
                        at += 1;
                    }
                }
            }
        }
        files
    }

    fn is_settled(&self) -> bool {
        covered_by_both(&self.due, &self.settled) == self.due.covered_bytes()
    }
}

/// Puts a number into a set; returns false if the set had it.
fn add(set: &mut RangeSet, number: u64) -> bool {
    set.insert(ByteRange::new(number, 1))
}

/// Returns how many numbers are in both sets.
fn covered_by_both(a: &RangeSet, b: &RangeSet) -> u64 {
    let mut count = 0;
    for run in a.iter() {
        let end = run.offset + run.len;
        let mut at = run.offset;
        while let Some(other) = b.next_from(at).filter(|other| other.offset < end) {
            let other_end = (other.offset + other.len).min(end);
            count += other_end - other.offset;
            at = other_end;
        }
    }
    count
}

#[cfg(test)]
#[path = "tracker_tests.rs"]
mod tests;
