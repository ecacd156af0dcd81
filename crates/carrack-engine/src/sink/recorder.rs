//! The journal for group commit: numbers of large files, batches of records, and modes of directories.
//!
//! The comm thread and I/O threads ask for numbers, I/O threads record modes, `carrack-commit` appends
//! groups. The journal has its own lock.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use carrack_journal::{Journal, RecordBatch};
use carrack_model::RelPath;
use carrack_storage::preserve_times;

use crate::error::SessionError;

/// The recorder of a transfer.
pub(super) struct JournalRecorder {
    /// `None` if no journal is kept; data is made durable nevertheless.
    journal: Option<Journal>,
    /// For messages.
    path: String,
    has_recorded: AtomicBool,
    /// The next number if there is no journal.
    next_number: AtomicU64,
}

impl JournalRecorder {
    /// Creates the recorder for a journal with its path, if one is kept.
    pub(super) fn new(journal: Option<(Journal, String)>) -> JournalRecorder {
        let (journal, path) = journal.unzip();
        JournalRecorder {
            journal,
            path: path.unwrap_or_default(),
            has_recorded: AtomicBool::new(false),
            next_number: AtomicU64::new(1),
        }
    }

    /// Returns true if there is a journal.
    pub(super) fn keeps_journal(&self) -> bool {
        self.journal.is_some()
    }

    /// Returns the number of a new large file in the journal.
    pub(super) fn next_number(&self) -> u64 {
        match &self.journal {
            Some(journal) => journal.next_number(),
            None => self.next_number.fetch_add(1, Relaxed),
        }
    }

    /// Returns true if the journal has records.
    pub(super) fn has_recorded(&self) -> bool {
        self.has_recorded.load(Relaxed)
    }

    /// Appends records of data that is durable, or need not be.
    pub(super) fn append(&self, batch: &RecordBatch, is_synced: bool) -> Result<(), SessionError> {
        assert!(!batch.is_empty(), "a group without records appends nothing");
        let Some(journal) = &self.journal else { return Ok(()) };
        self.has_recorded.store(true, Relaxed);
        journal.append(batch, is_synced).map_err(SessionError::journal(&self.path))
    }

    /// Records a directory's mode, which is about to be changed. The record is durable at the return.
    pub(super) fn record_mode(&self, path: &RelPath, mode: u32) -> Result<(), SessionError> {
        let mut batch = RecordBatch::new();
        batch.add_mode(path, mode);
        let Some(journal) = &self.journal else { return Ok(()) };
        journal.append(&batch, true).map_err(SessionError::journal(&self.path))
    }

    /// Records that the modes of all directories are restored. If the journal fails, the next session checks
    /// the modes.
    pub(super) fn record_modes_restored(&self) {
        let mut batch = RecordBatch::new();
        batch.add_modes_restored();
        if let Some(journal) = &self.journal {
            let _ = journal.append(&batch, false);
        }
    }

    /// Removes the journal. `held` is the destination's directory, if it can be read.
    pub(super) fn remove_journal(self, held: Option<&OwnedFd>) -> Result<(), SessionError> {
        let Some(journal) = self.journal else { return Ok(()) };
        let failed = SessionError::journal(&self.path);
        match held {
            // If the journal lies in the root, its removal would be the last change of that directory.
            Some(held) => preserve_times(held.as_fd(), || journal.remove().map_err(failed)),
            None => journal.remove().map_err(failed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_journal_numbers_differ_and_nothing_is_recorded() {
        let recorder = JournalRecorder::new(None);
        assert_ne!(recorder.next_number(), recorder.next_number());
        let mut batch = RecordBatch::new();
        batch.add_done(1);
        recorder.append(&batch, true).unwrap();
        recorder.record_mode(&RelPath::root(), 0o500).unwrap();
        assert!(!recorder.keeps_journal() && !recorder.has_recorded());
        recorder.remove_journal(None).unwrap();
    }
}
