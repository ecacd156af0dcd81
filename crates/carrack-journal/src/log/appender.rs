//! The end of a journal's file, where records are written.

use std::fs::File;
use std::os::unix::fs::FileExt;

use super::header::Key;
use super::{Batch, JournalError};

/// Writes behind what is there, and no more after an error.
#[derive(Debug)]
pub(super) struct Appender {
    file: File,
    key: Key,
    /// Where the next record goes.
    len: u64,
    /// The batch as it is written; kept for its memory.
    sealed: Vec<u8>,
    is_poisoned: bool,
}

impl Appender {
    pub fn new(file: File, key: Key, len: u64) -> Appender {
        Appender { file, key, len, sealed: Vec::new(), is_poisoned: false }
    }

    pub fn file(&self) -> &File {
        &self.file
    }

    /// Nothing is written from now on.
    pub fn poison(&mut self) {
        self.is_poisoned = true;
    }

    pub fn append(&mut self, batch: &Batch, sync: bool) -> Result<(), JournalError> {
        if self.is_poisoned {
            return Err(JournalError::Poisoned);
        }
        // Until everything has gone well: nobody knows what a failed write or sync left on the disk.
        self.is_poisoned = true;
        batch.seal(self.key, self.len, &mut self.sealed)?;
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
