//! The large files of a lane, from their announcement to their end, and objects that arrived before their
//! file's announcement.
//!
//! The comm thread and I/O threads announce and end files; I/O threads note the ranges that have arrived.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use carrack_model::{ByteRange, FileId, RangeSet};
use carrack_transport::IncomingObject;
use carrack_wire::{ArrivalLedger, ArrivalLedgerError, ArrivedObjectAction};

use super::sink_file::SinkFile;

/// The ledger of one lane, with objects of files that are not announced yet.
pub(super) struct SinkFileTable(Mutex<SinkFilesState>);

struct SinkFilesState {
    ledger: ArrivalLedger<Arc<SinkFile>>,
    early: HashMap<FileId, Vec<IncomingObject>>,
}

/// The handling of an object that has arrived.
pub(super) enum ArrivedObject {
    /// It is checked and written to this file.
    Of(Arc<SinkFile>, IncomingObject),
    /// It waits for its file's announcement.
    Early,
    /// Its file was given up.
    Unwanted(IncomingObject),
}

impl SinkFileTable {
    /// Creates the table for at most `open_max` files at once.
    pub(super) fn new(open_max: usize) -> SinkFileTable {
        assert!(open_max > 0, "a lane may have large files open");
        SinkFileTable(Mutex::new(SinkFilesState {
            ledger: ArrivalLedger::new(open_max),
            early: HashMap::new(),
        }))
    }

    fn files(&self) -> MutexGuard<'_, SinkFilesState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a file, and returns the objects that have waited for it.
    pub(super) fn announce(
        &self,
        id: FileId,
        file: &Arc<SinkFile>,
    ) -> Result<Vec<IncomingObject>, ArrivalLedgerError> {
        assert!(file.id == id.0, "a file is announced by its own number");
        let mut files = self.files();
        files.ledger.announce(id, file.entry.size(), Some(Arc::clone(file)), file.portion.held_ranges())?;
        Ok(files.early.remove(&id).unwrap_or_default())
    }

    /// Notes an object of a large file that has arrived.
    pub(super) fn arrive(
        &self,
        range: ByteRange,
        incoming: IncomingObject,
    ) -> Result<ArrivedObject, ArrivalLedgerError> {
        let id = incoming.header.file;
        let mut files = self.files();
        match files.ledger.record_arrival(id, range)? {
            ArrivedObjectAction::Write(file) => {
                assert!(file.id == id.0, "an object goes to the file that it names");
                Ok(ArrivedObject::Of(file, incoming))
            }
            ArrivedObjectAction::Drop => Ok(ArrivedObject::Unwanted(incoming)),
            ArrivedObjectAction::Early => {
                assert!(files.ledger.get(id).is_none(), "an object is early until its file is announced");
                files.early.entry(id).or_default().push(incoming);
                Ok(ArrivedObject::Early)
            }
        }
    }

    /// Notes the object that announces its file.
    pub(super) fn arrive_first(&self, id: FileId, range: ByteRange) -> Result<(), ArrivalLedgerError> {
        self.files().ledger.record_arrival(id, range).map(drop)
    }

    /// Takes back a range that has arrived, as its object failed its check.
    pub(super) fn reject(&self, id: FileId, range: ByteRange) {
        self.files().ledger.reject(id, range);
    }

    /// Returns an open file that was not given up.
    pub(super) fn get(&self, id: FileId) -> Option<Arc<SinkFile>> {
        self.files().ledger.get(id).cloned()
    }

    /// Ends a file of which the source has sent everything. Returns `None` if it was given up.
    pub(super) fn commit(&self, id: FileId) -> Result<Option<Arc<SinkFile>>, ArrivalLedgerError> {
        let whole = self.files().ledger.commit(id)?;
        assert!(whole.as_ref().is_none_or(|file| file.id == id.0), "a file ends under its own number");
        Ok(whole)
    }

    /// Ends a file that the source gives up. Returns `None` if the sink had given it up.
    pub(super) fn abandon(&self, id: FileId) -> Result<Option<Arc<SinkFile>>, ArrivalLedgerError> {
        let abandoned = self.files().ledger.abandon(id)?;
        assert!(abandoned.as_ref().is_none_or(|file| file.id == id.0), "a file ends under its own number");
        Ok(abandoned)
    }

    /// Gives a file up at the sink. Returns true the first time.
    pub(super) fn give_up(&self, id: FileId) -> bool {
        self.files().ledger.give_up(id).is_some()
    }

    /// Opens a file again, of which the sink holds `held`.
    pub(super) fn reopen(&self, file: &Arc<SinkFile>, held: RangeSet) {
        let (id, size) = (FileId(file.id), file.entry.size());
        assert!(!held.is_whole(size), "a file is reopened for what it lacks");
        self.files().ledger.reopen(id, size, Arc::clone(file), held);
    }

    /// Returns true if no file is open, and no object waits for one.
    pub(super) fn is_empty(&self) -> bool {
        let files = self.files();
        files.ledger.open_count() == 0 && files.early.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use carrack_machine::SlotPool;

    use super::super::sink_file::tests::{incoming, message};
    use super::*;

    #[test]
    fn an_early_object_waits_for_its_file() {
        let pool = SlotPool::new(1 << 16, 4096).unwrap();
        let table = SinkFileTable::new(2);
        let range = ByteRange::new(0, 60);
        assert!(matches!(table.arrive(range, incoming(&pool, 1, range)), Ok(ArrivedObject::Early)));
        assert!(!table.is_empty());
        let file = Arc::new(SinkFile::from_announcement(&message(1, 100), 1, None).unwrap());
        let early = table.announce(FileId(1), &file).unwrap();
        assert_eq!(early.len(), 1);
        for incoming in early {
            assert!(matches!(table.arrive(range, incoming), Ok(ArrivedObject::Of(..))));
        }
        assert!(table.arrive(range, incoming(&pool, 1, range)).is_err(), "it came before");
        table.reject(FileId(1), range);
        assert!(table.arrive(range, incoming(&pool, 1, range)).is_ok(), "it was not there after all");
        assert!(table.commit(FileId(1)).is_err(), "the rest is missing");
    }

    #[test]
    fn nothing_comes_of_a_file_that_is_given_up() {
        let pool = SlotPool::new(1 << 16, 4096).unwrap();
        let (table, range) = (SinkFileTable::new(2), ByteRange::new(0, 60));
        let file = Arc::new(SinkFile::from_announcement(&message(1, 60), 1, None).unwrap());
        table.announce(FileId(1), &file).unwrap();
        assert!(table.give_up(FileId(1)) && !table.give_up(FileId(1)), "it is told once");
        assert!(matches!(table.arrive(range, incoming(&pool, 1, range)), Ok(ArrivedObject::Unwanted(_))));
        assert!(table.get(FileId(1)).is_none());
        assert!(matches!(table.abandon(FileId(1)), Ok(None)));
        assert!(table.is_empty());
    }
}
