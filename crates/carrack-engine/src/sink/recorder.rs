//! The journal as a committer uses it: numbers of large files, batches of records, and modes of directories.
//!
//! The comm thread and I/O threads ask for numbers, I/O threads record modes, `carrack-commit` appends groups. The journal has a lock of its
//! own.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use carrack_journal::{Batch, Journal};
use carrack_model::RelPath;
use carrack_storage::keep_times;

use crate::error::SessionError;

/// Where a transfer's records go.
pub(super) struct Recorder {
    /// Nothing if no journal is kept: what is written is made durable all the same.
    journal: Option<Journal>,
    /// For people.
    path: String,
    has_recorded: AtomicBool,
    /// Where no journal counts.
    next_number: AtomicU64,
}

impl Recorder {
    /// Of a journal with its path, if one is kept.
    pub(super) fn new(journal: Option<(Journal, String)>) -> Recorder {
        let (journal, path) = journal.unzip();
        Recorder {
            journal,
            path: path.unwrap_or_default(),
            has_recorded: AtomicBool::new(false),
            next_number: AtomicU64::new(1),
        }
    }

    /// True if there is a journal.
    pub(super) fn keeps_journal(&self) -> bool {
        self.journal.is_some()
    }

    /// A number for a large file, by which the journal knows it.
    pub(super) fn next_number(&self) -> u64 {
        let own = || self.next_number.fetch_add(1, Relaxed);
        self.journal.as_ref().map_or_else(own, Journal::next_number)
    }

    /// True if the journal says anything.
    pub(super) fn has_recorded(&self) -> bool {
        self.has_recorded.load(Relaxed)
    }

    /// Appends records of data that is durable, or need not be.
    pub(super) fn append(&self, batch: &Batch, is_synced: bool) -> Result<(), SessionError> {
        assert!(!batch.is_empty(), "a group without records appends nothing");
        let Some(journal) = &self.journal else { return Ok(()) };
        self.has_recorded.store(true, Relaxed);
        journal.append(batch, is_synced).map_err(SessionError::journal(&self.path))
    }

    /// A directory had this mode, which is about to be changed: durable when this returns.
    pub(super) fn record_mode(&self, path: &RelPath, mode: u32) -> Result<(), SessionError> {
        let mut batch = Batch::new();
        batch.mode(path, mode);
        let append = |journal: &Journal| journal.append(&batch, true);
        self.journal.as_ref().map_or(Ok(()), append).map_err(SessionError::journal(&self.path))
    }

    /// The modes of all of them are restored. A journal that does not take that any more makes the next session look.
    pub(super) fn record_modes_restored(&self) {
        let mut batch = Batch::new();
        batch.modes_restored();
        if let Some(journal) = &self.journal {
            let _ = journal.append(&batch, false);
        }
    }

    /// The journal is not needed any more. `held` is the destination's directory, if it can be read.
    pub(super) fn retire(self, held: Option<&OwnedFd>) -> Result<(), SessionError> {
        let Some(journal) = self.journal else { return Ok(()) };
        let remove = || journal.remove().map_err(SessionError::journal(&self.path));
        match held {
            // If it lies in the root, its end would be the last change of that directory.
            Some(held) => keep_times(held.as_fd(), remove),
            None => remove(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_journal_numbers_differ_and_nothing_is_recorded() {
        let recorder = Recorder::new(None);
        assert_ne!(recorder.next_number(), recorder.next_number());
        let mut batch = Batch::new();
        batch.done(1);
        recorder.append(&batch, true).unwrap();
        recorder.record_mode(&RelPath::root(), 0o500).unwrap();
        assert!(!recorder.keeps_journal() && !recorder.has_recorded());
        recorder.retire(None).unwrap();
    }
}
