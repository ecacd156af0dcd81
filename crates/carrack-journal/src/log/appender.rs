//! The end of a journal's file, where records are appended.

use std::fs::File;
use std::os::unix::fs::FileExt;

use super::header::JournalNonce;
use super::{JournalError, RecordBatch};

/// Appends records, and refuses after an error.
#[derive(Debug)]
pub(super) struct JournalAppender {
    file: File,
    key: JournalNonce,
    /// Offset of the next record.
    len: u64,
    /// The sealed batch; kept to reuse its memory.
    sealed: Vec<u8>,
    is_poisoned: bool,
}

impl JournalAppender {
    pub fn new(file: File, key: JournalNonce, len: u64) -> JournalAppender {
        JournalAppender { file, key, len, sealed: Vec::new(), is_poisoned: false }
    }

    pub fn file(&self) -> &File {
        &self.file
    }

    /// Makes every later append fail.
    pub fn poison(&mut self) {
        self.is_poisoned = true;
    }

    pub fn append(&mut self, batch: &RecordBatch, sync: bool) -> Result<(), JournalError> {
        if self.is_poisoned {
            return Err(JournalError::Poisoned);
        }
        // Reset after success: a failed write or sync leaves the disk in an unknown state.
        self.is_poisoned = true;
        batch.encode_with_checks(self.key, self.len, &mut self.sealed)?;
        self.file
            .write_all_at(&self.sealed, self.len)
            .map_err(JournalError::doing("writing to the journal"))?;
        if sync {
            self.file.sync_data().map_err(JournalError::doing("syncing the journal"))?;
        }
        self.len += self.sealed.len() as u64;
        self.is_poisoned = false;
        Ok(())
    }
}
