//! A manager's view of one transfer: what its log says, and what comes next.
//!
//! Owns counts and sets of numbers only, no paths. Whoever gets a transfer's lease feeds a new tracker from the log's
//! beginning and has what the manager before it had.

use std::collections::BTreeMap;

use carrack_model::{ByteRange, RangeSet};

use super::Found;

/// A large file, by its number among those that its scan cut into parts, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileKey(pub u64);

/// Files that one [`Next`] names at most.
pub const NEXT_FILES_MAX: usize = 256;

/// What a transfer's log tells. An entry may come twice, and those of one chunk, file or scan in any order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrackerEvent {
    /// A scan has come so far, or is at its end.
    Scanned {
        /// Which of the transfer's scans; a later one has a higher number.
        attempt: u32,
        /// What it has found until now.
        found: Found,
        /// Whether that is all.
        is_finished: bool,
    },
    /// A sink has settled a chunk: all of it is in a journal or was reported as failed.
    ChunkSettled {
        /// The attempt of the scan that cut it.
        attempt: u32,
        /// The chunk.
        number: u64,
        /// How often it had been delivered, this time included: a chunk may be carried out twice, and then both moved something.
        delivery: u32,
        /// How it went.
        outcome: Outcome,
        /// If it is a part of a large file.
        part: Option<PartOf>,
    },
    /// A large file has its metadata and its name, or could not get them.
    FinishSettled {
        /// The attempt of the scan that cut it.
        attempt: u32,
        /// The file.
        file: FileKey,
        /// Whether it has its name.
        is_done: bool,
    },
    /// What there was of a large file that failed has been removed.
    DiscardSettled {
        /// The attempt of the scan that cut it.
        attempt: u32,
        /// The file.
        file: FileKey,
    },
    /// What is not at the source was looked for at the destination, and removed as far as it might be.
    DeleteSettled {
        /// The attempt of the scan that the item was made for.
        attempt: u32,
        /// How often it had been delivered, this time included: each time may have removed something.
        delivery: u32,
        /// Entries that were removed.
        deleted: u64,
        /// Why others were not, an entry for each reason.
        failed: u64,
    },
    /// Files have their further names and directories their metadata, the journals are removed.
    CloseSettled {
        /// The attempt of the scan that the item was made for.
        attempt: u32,
        /// Names and directories that have not.
        failed: u64,
    },
}

/// What became of a chunk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Files and links that have their names; none for a part.
    pub files: u64,
    /// Bytes that are in the sink's journals.
    pub bytes: u64,
    /// Bytes that were sent for it.
    pub moved_bytes: u64,
    /// Entries that could not be copied; 1 for a part that could not.
    pub failed: u64,
}

/// Where a part belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartOf {
    /// The file.
    pub file: FileKey,
    /// Parts that it was cut into.
    pub count: u64,
}

/// What a manager does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Nothing, until the log tells more.
    Wait,
    /// Have these files finished: all of their parts are there.
    FinishFiles(Vec<FileKey>),
    /// Have what there is of these removed: a part of each has failed, and nobody works on another.
    DiscardFiles(Vec<FileKey>),
    /// Have what is not at the source removed at the destination: everything is settled, and nothing has failed.
    Delete,
    /// Have the transfer closed: everything else is settled.
    Close,
    /// Nothing: it is over.
    Over,
}

/// How far a transfer is, by the scan that counts: the last that is complete, or while none is, the last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Files and links that were found, each name of a file.
    pub files_found: u64,
    /// Their bytes.
    pub bytes_found: u64,
    /// Whether all were found.
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
    /// Entries of the destination that were removed, as the source has them not; by all scans' items.
    pub entries_deleted: u64,
}

/// Follows one transfer's log.
///
/// The last complete scan counts. What is settled of others changes nothing but the bytes moved, for a scan that ended too
/// early says nothing about what there is. Memory: some sets of numbers for each scan, which hold a run for each gap (as
/// many as there are chunks under way), and a few words for each large file of which some parts are settled.
#[derive(Clone, Debug, Default)]
pub struct Tracker {
    attempts: BTreeMap<u32, Attempt>,
    bytes_moved: u64,
    deletes: bool,
    closed: Option<u32>,
}

#[derive(Clone, Debug, Default)]
struct Attempt {
    found: Found,
    is_finished: bool,
    settled: RangeSet,
    settled_count: u64,
    /// Chunks that were carried out, by the count of their delivery.
    moved: BTreeMap<u32, RangeSet>,
    done: Outcome,
    /// Large files of which some parts are settled.
    begun: BTreeMap<FileKey, Begun>,
    finishing: Files,
    discarding: Files,
    is_delete_asked: bool,
    /// What each delivery of its item has removed.
    deleted: BTreeMap<u32, u64>,
    /// What was not removed, as the first of them has told it.
    delete_failed: u64,
    is_close_asked: bool,
    is_closed: bool,
    /// What failed at the end.
    close_failed: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Begun {
    parts_settled: u64,
    has_failed: bool,
}

/// Large files for which an item of work is due.
#[derive(Clone, Debug, Default)]
struct Files {
    due: RangeSet,
    asked: RangeSet,
    settled: RangeSet,
    /// Those of the settled with which it worked. A word of success counts more than one of failure: if somebody came
    /// second, there was nothing left to do.
    done: RangeSet,
}

impl Tracker {
    /// A transfer of which nothing is known.
    pub fn new() -> Tracker {
        Tracker::default()
    }

    /// Whether something is to be removed at the destination before the transfer is closed.
    pub fn set_deletes(&mut self, deletes: bool) {
        self.deletes = deletes;
    }

    /// Takes one entry of the log. One that was there before changes nothing, nor does one behind the transfer's end.
    pub fn observe(&mut self, event: &TrackerEvent) {
        if self.closed.is_some() {
            return;
        }
        match *event {
            TrackerEvent::Scanned { attempt, found, is_finished } => {
                self.attempt(attempt).scanned(found, is_finished);
            }
            TrackerEvent::ChunkSettled { attempt, number, delivery, outcome, part } => {
                let attempt = self.attempt(attempt);
                attempt.chunk_settled(number, outcome, part);
                if add(attempt.moved.entry(delivery).or_default(), number) {
                    self.bytes_moved += outcome.moved_bytes;
                }
            }
            TrackerEvent::FinishSettled { attempt, file, is_done } => {
                let finishing = &mut self.attempt(attempt).finishing;
                add(&mut finishing.settled, file.0);
                if is_done {
                    add(&mut finishing.done, file.0);
                }
            }
            TrackerEvent::DiscardSettled { attempt, file } => {
                add(&mut self.attempt(attempt).discarding.settled, file.0);
            }
            TrackerEvent::DeleteSettled { attempt, delivery, deleted, failed } => {
                let attempt = self.attempt(attempt);
                if attempt.deleted.is_empty() {
                    attempt.delete_failed = failed;
                }
                attempt.deleted.entry(delivery).or_insert(deleted);
            }
            TrackerEvent::CloseSettled { attempt, failed } => {
                let attempt = self.attempt(attempt);
                (attempt.is_closed, attempt.close_failed) = (true, failed);
            }
        }
        // A close for a scan that a later one has overtaken doesn't count: it moved nothing of what that one found.
        self.closed = self.counting().filter(|number| {
            let attempt = &self.attempts[number];
            attempt.is_closed && attempt.is_settled()
        });
    }

    /// What to do now. Says the same until [`asked`](Self::asked) or the log changes it.
    pub fn next(&self) -> Next {
        if self.closed.is_some() {
            return Next::Over;
        }
        let Some(attempt) = self.counting().and_then(|number| self.attempts.get(&number)) else {
            return Next::Wait;
        };
        let finish = attempt.finishing.to_ask();
        let discard = attempt.discarding.to_ask();
        if !finish.is_empty() {
            Next::FinishFiles(finish)
        } else if !discard.is_empty() {
            Next::DiscardFiles(discard)
        } else if attempt.is_settled() && self.is_to_delete(attempt) {
            if attempt.is_delete_asked { Next::Wait } else { Next::Delete }
        } else if attempt.is_settled() && !attempt.is_close_asked {
            Next::Close
        } else {
            Next::Wait
        }
    }

    /// What [`next`](Self::next) said is in the queue. Another manager does not know it, and asks again: the items are such
    /// that this does no harm.
    pub fn asked(&mut self, next: &Next) {
        let Some(attempt) = self.counting().and_then(|number| self.attempts.get_mut(&number)) else { return };
        let (asked, files) = match next {
            Next::FinishFiles(files) => (&mut attempt.finishing.asked, files),
            Next::DiscardFiles(files) => (&mut attempt.discarding.asked, files),
            Next::Delete => {
                attempt.is_delete_asked = true;
                return;
            }
            Next::Close => {
                attempt.is_close_asked = true;
                return;
            }
            Next::Wait | Next::Over => return,
        };
        files.iter().for_each(|file| {
            add(asked, file.0);
        });
    }

    /// The scan that counts, once one is complete: items of work bear its number.
    pub fn counting(&self) -> Option<u32> {
        let complete = self.attempts.iter().rev().find(|(_, attempt)| attempt.is_finished);
        self.closed.or(complete.map(|(number, _)| *number))
    }

    /// How far it is. A scan that takes another's place may begin with less.
    pub fn totals(&self) -> Totals {
        let shown = self.counting().or_else(|| self.attempts.keys().next_back().copied());
        let entries_deleted = self.attempts.values().flat_map(|attempt| attempt.deleted.values()).sum();
        let moved = Totals { bytes_moved: self.bytes_moved, entries_deleted, ..Totals::default() };
        let Some(attempt) = shown.and_then(|number| self.attempts.get(&number)) else { return moved };
        let Attempt { found, done, finishing, close_failed, .. } = attempt;
        let finished = covered_by_both(&finishing.due, &finishing.done);
        let named = if attempt.is_closed { found.names.saturating_sub(*close_failed) } else { 0 };
        Totals {
            files_found: found.files + found.names,
            bytes_found: found.bytes,
            is_scanned: attempt.is_finished,
            files_done: done.files + finished + named,
            bytes_done: done.bytes,
            entries_failed: attempt.failed(),
            chunks_found: found.chunks,
            chunks_done: attempt.settled_count,
            ..moved
        }
    }

    /// Whether what is not at the source is still to be removed: not where something failed, as that may be what would be missed.
    fn is_to_delete(&self, attempt: &Attempt) -> bool {
        self.deletes && attempt.deleted.is_empty() && attempt.failed() == 0
    }

    fn attempt(&mut self, number: u32) -> &mut Attempt {
        self.attempts.entry(number).or_default()
    }
}

impl Attempt {
    /// Reports only grow, so the largest of each number is the last; the one at the end is exact.
    fn scanned(&mut self, found: Found, is_finished: bool) {
        if self.is_finished {
            return;
        }
        self.is_finished = is_finished;
        self.found = if is_finished { found } else { self.found.max_of(found) };
    }

    /// Of a chunk that was carried out twice, what the log says first counts.
    fn chunk_settled(&mut self, number: u64, outcome: Outcome, part: Option<PartOf>) {
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
            Some(part) => self.part_settled(part, outcome.failed > 0),
        }
    }

    /// A large file fails once, however many of its parts do, and not before all of them are settled: until then somebody
    /// may be writing.
    fn part_settled(&mut self, part: PartOf, has_failed: bool) {
        let begun = self.begun.entry(part.file).or_default();
        begun.parts_settled += 1;
        begun.has_failed |= has_failed;
        if begun.parts_settled >= part.count {
            let files = if begun.has_failed { &mut self.discarding } else { &mut self.finishing };
            add(&mut files.due, part.file.0);
            self.begun.remove(&part.file);
        }
    }

    /// Entries that could not be read, copied, finished or removed.
    fn failed(&self) -> u64 {
        let Files { due, settled, done, .. } = &self.finishing;
        let unfinished = covered_by_both(due, settled) - covered_by_both(due, done);
        let ended = self.delete_failed + self.close_failed;
        self.found.failed + self.done.failed + unfinished + self.discarding.due.covered_bytes() + ended
    }

    /// Whether nothing is left but to close it.
    fn is_settled(&self) -> bool {
        self.is_finished
            && self.settled.gaps(self.found.chunks).next().is_none()
            && self.finishing.is_settled()
            && self.discarding.is_settled()
    }
}

impl Files {
    /// The first that are due and neither asked for nor settled.
    fn to_ask(&self) -> Vec<FileKey> {
        let mut files = Vec::new();
        for run in self.due.iter() {
            let mut at = run.offset;
            while at < run.offset + run.len && files.len() < NEXT_FILES_MAX {
                let known = [&self.asked, &self.settled].map(|set| set.next_from(at));
                match known.into_iter().flatten().find(|run| run.offset == at) {
                    Some(run) => at += run.len,
                    None => {
                        files.push(FileKey(at));
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

/// Puts a number into a set; false if it was there.
fn add(set: &mut RangeSet, number: u64) -> bool {
    set.insert(ByteRange::new(number, 1))
}

/// How many numbers are in both sets.
fn covered_by_both(a: &RangeSet, b: &RangeSet) -> u64 {
    let common = |run: ByteRange| {
        let end = run.offset + run.len;
        let mut at = run.offset;
        let mut count = 0;
        while let Some(other) = b.next_from(at).filter(|other| other.offset < end) {
            let other_end = (other.offset + other.len).min(end);
            count += other_end - other.offset;
            at = other_end;
        }
        count
    };
    a.iter().map(common).sum()
}

#[cfg(test)]
#[path = "tracker_tests.rs"]
mod tests;
