//! What a transfer's log tells for its users: counts, failures, losses, and what was left out.

use carrack_plan::fleet::Totals;

use super::losses::Losses;
use super::moved::Moved;
use crate::log::LogEntry;
use crate::records::{FAILURES_KEPT, Failure, Skipped, TransferRecord};

/// One transfer's, from its log's beginning.
#[derive(Default)]
pub(super) struct Account {
    failures: Vec<Failure>,
    moved: Moved,
    losses: Losses,
    /// What the last scan has left out, and how many these are.
    skipped: (Vec<Skipped>, u64),
    /// What of the destination stays that the source has not; nothing before it was looked for.
    undeleted: Option<Vec<String>>,
    attempt: u32,
}

impl Account {
    /// One entry of the log.
    pub fn enter(&mut self, entry: LogEntry) {
        match entry {
            LogEntry::ScanDone { attempt, failures, skipped, skipped_entries, .. } => {
                if attempt >= self.attempt {
                    (self.attempt, self.skipped) = (attempt, (skipped, skipped_entries));
                }
                self.note(failures);
            }
            LogEntry::ChunkDone(done) => {
                self.note(done.failures);
                self.moved.told_by_source(&done.session, done.session_bytes);
            }
            LogEntry::FileFinished { failure, .. } => self.note(failure.into_iter().collect()),
            LogEntry::Deleted(deleted) => {
                self.undeleted = Some(deleted.stays);
                self.note(deleted.failures);
            }
            LogEntry::Closed { failures, .. } => self.note(failures),
            LogEntry::Lost { losses, .. } => self.losses.add(losses),
            LogEntry::Moved { bytes, session, session_bytes, .. } => {
                self.moved.add(bytes);
                self.moved.told_by_source(&session, session_bytes);
            }
            LogEntry::Received { session, bytes, .. } => self.moved.told_by_sink(&session, bytes),
            LogEntry::ScanFailed { .. }
            | LogEntry::FileDiscarded { .. }
            | LogEntry::PairBroken { .. }
            | LogEntry::LargeFiles { .. }
            | LogEntry::Note { .. }
            | LogEntry::Unknown => {}
        }
    }

    fn note(&mut self, failures: Vec<Failure>) {
        for failure in failures {
            // A large file that changed is told of by each of its parts, and what can't be read by each scan.
            let is_known =
                self.failures.iter().any(|known| known.path == failure.path && known.kind == failure.kind);
            if !is_known && self.failures.len() < FAILURES_KEPT {
                self.failures.push(failure);
            }
        }
    }

    /// Whether it was looked for what the source has not.
    pub fn has_deletion(&self) -> bool {
        self.undeleted.is_some()
    }

    /// What a record says then. Counts grow only: a later scan that counts may have found less.
    pub fn write(&self, record: &mut TransferRecord, totals: &Totals) {
        let bytes_moved = totals.bytes_moved + self.moved.bytes();
        let tally = &mut record.tally;
        tally.is_scanned |= totals.is_scanned;
        for (kept, now) in [
            (&mut tally.files_found, totals.files_found),
            (&mut tally.bytes_found, totals.bytes_found),
            (&mut tally.files_done, totals.files_done),
            (&mut tally.bytes_done, totals.bytes_done),
            (&mut tally.bytes_moved, bytes_moved),
            (&mut tally.entries_failed, totals.entries_failed),
            (&mut tally.chunks_found, totals.chunks_found),
            (&mut tally.chunks_done, totals.chunks_done),
            (&mut tally.entries_deleted, totals.entries_deleted),
        ] {
            *kept = now.max(*kept);
        }
        record.failures.clone_from(&self.failures);
        record.losses = self.losses.lines();
        record.undeleted = self.undeleted.clone().unwrap_or_default();
        (record.skipped, record.tally.entries_skipped) = self.skipped.clone();
    }
}
