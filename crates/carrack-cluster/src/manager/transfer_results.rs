//! A transfer's results from its log, for its users: counts, failures, losses, and entries that were left
//! out.

use carrack_plan::fleet::TransferTotals;

use super::byte_count::MovedByteCount;
use super::losses::LossTotals;
use crate::log::TransferLogEntry;
use crate::transfer_records::{EntryCopyFailure, FAILURES_KEPT, SkippedEntry, TransferRecord};

/// The account of one transfer, from the beginning of its log.
#[derive(Default)]
pub(super) struct TransferLogTotals {
    failures: Vec<EntryCopyFailure>,
    moved: MovedByteCount,
    losses: LossTotals,
    /// Entries that the last scan has left out, and their number.
    skipped: (Vec<SkippedEntry>, u64),
    /// Destination entries that a deletion keeps; `None` before the deletion.
    undeleted: Option<Vec<String>>,
    attempt: u32,
}

impl TransferLogTotals {
    /// Adds an entry of the log.
    pub fn add_entry(&mut self, entry: TransferLogEntry) {
        match entry {
            TransferLogEntry::ScanDone { attempt, failures, skipped, skipped_entries, .. } => {
                if attempt >= self.attempt {
                    (self.attempt, self.skipped) = (attempt, (skipped, skipped_entries));
                }
                self.add_failures(failures);
            }
            TransferLogEntry::ChunkDone(done) => {
                self.add_failures(done.failures);
                self.moved.record_source_bytes(&done.session, done.session_bytes);
            }
            TransferLogEntry::FileFinished { failure, .. } => {
                self.add_failures(failure.into_iter().collect())
            }
            TransferLogEntry::Deleted(deleted) => {
                self.undeleted = Some(deleted.stays);
                self.add_failures(deleted.failures);
            }
            TransferLogEntry::Closed { failures, .. } => self.add_failures(failures),
            TransferLogEntry::Lost { losses, .. } => self.losses.add(losses),
            TransferLogEntry::Moved { bytes, session, session_bytes, .. } => {
                self.moved.add(bytes);
                self.moved.record_source_bytes(&session, session_bytes);
            }
            TransferLogEntry::Received { session, bytes, .. } => {
                self.moved.record_sink_bytes(&session, bytes)
            }
            TransferLogEntry::ScanFailed { .. }
            | TransferLogEntry::FileDiscarded { .. }
            | TransferLogEntry::PairBroken { .. }
            | TransferLogEntry::LargeFiles { .. }
            | TransferLogEntry::Note { .. }
            | TransferLogEntry::Unknown => {}
        }
    }

    fn add_failures(&mut self, failures: Vec<EntryCopyFailure>) {
        for failure in failures {
            // Each part of a changed large file reports the failure, and each scan reports an unreadable
            // entry.
            let is_known =
                self.failures.iter().any(|known| known.path == failure.path && known.kind == failure.kind);
            if !is_known && self.failures.len() < FAILURES_KEPT {
                self.failures.push(failure);
            }
        }
    }

    /// Returns true once the deletion was carried out.
    pub fn has_deletion(&self) -> bool {
        self.undeleted.is_some()
    }

    /// Updates a record. Counts only grow: a later scan that counts may have found less.
    pub fn write(&self, record: &mut TransferRecord, totals: &TransferTotals) {
        let bytes_moved = totals.bytes_moved + self.moved.bytes_outside_chunks();
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
