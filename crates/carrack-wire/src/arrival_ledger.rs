//! The announced files and the ranges that arrived: the rules that the sink enforces on the source.
//!
//! IDs rise, except those of inline-announced files, whose objects arrive in any order. Sizes are binding, no
//! byte arrives twice, and a file is committed only when it is whole. A violation is an
//! [`ArrivalLedgerError`], which ends the session. `T` is the sink's data for a file, such as its descriptor.

use std::collections::HashMap;

use carrack_model::{ByteRange, FileId, RangeSet};

/// A rule that the source broke.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArrivalLedgerError {
    /// File IDs must rise; those of inline-announced files must be new.
    #[error("file {} was announced out of order", .0.0)]
    NotRising(FileId),
    /// More open files than agreed.
    #[error("more than {0} files open at once")]
    TooManyOpen(usize),
    /// The file is not open, or no longer.
    #[error("file {} is not open", .0.0)]
    NotOpen(FileId),
    /// The range is empty, exceeds the announced size, or arrived before.
    #[error("bytes {}+{} of file {} do not fit into it or came before", .1.offset, .1.len, .0.0)]
    BadRange(FileId, ByteRange),
    /// A commit before all bytes arrived.
    #[error("file {} was closed before it was whole", .0.0)]
    NotWhole(FileId),
}

/// The sink's action for an object.
#[derive(Debug, PartialEq, Eq)]
pub enum ArrivedObjectAction<T> {
    /// Check the object and write it to this file.
    Write(T),
    /// The file is not announced yet: the control channel lags behind the data, or one stream behind another.
    Early,
    /// The sink gave the file up; drop the object.
    Drop,
}

struct FileArrivalRecord<T> {
    size: u64,
    arrived: RangeSet,
    /// `None` once the sink has given the file up.
    attached: Option<T>,
}

/// The files that are open at the sink.
pub struct ArrivalLedger<T> {
    open: HashMap<FileId, FileArrivalRecord<T>>,
    open_max: usize,
    newest: FileId,
}

impl<T: Clone> ArrivalLedger<T> {
    /// A ledger for at most `open_max` open files.
    pub fn new(open_max: usize) -> ArrivalLedger<T> {
        ArrivalLedger { open: HashMap::new(), open_max, newest: FileId(0) }
    }

    /// Adds a file, of which the sink has the ranges `held`. `attached` is `None` if the sink can't write the
    /// file; its objects are then dropped.
    pub fn announce(
        &mut self,
        id: FileId,
        size: u64,
        attached: Option<T>,
        held: RangeSet,
    ) -> Result<(), ArrivalLedgerError> {
        let is_new = if id.is_inline_announced() { !self.open.contains_key(&id) } else { id > self.newest };
        if !is_new {
            return Err(ArrivalLedgerError::NotRising(id));
        }
        if self.open.len() >= self.open_max {
            return Err(ArrivalLedgerError::TooManyOpen(self.open_max));
        }
        if !id.is_inline_announced() {
            self.newest = id;
        }
        self.open.insert(id, FileArrivalRecord { size, arrived: held, attached });
        Ok(())
    }

    /// Adds a committed file again that lacks ranges other than `held`.
    pub fn reopen(&mut self, id: FileId, size: u64, attached: T, held: RangeSet) {
        self.open.insert(id, FileArrivalRecord { size, arrived: held, attached: Some(attached) });
    }

    /// The data attached to an open file.
    pub fn get(&self, id: FileId) -> Option<&T> {
        self.open.get(&id)?.attached.as_ref()
    }

    /// Records the range of an object that arrived.
    pub fn record_arrival(
        &mut self,
        id: FileId,
        range: ByteRange,
    ) -> Result<ArrivedObjectAction<T>, ArrivalLedgerError> {
        let Some(file) = self.open.get_mut(&id) else {
            // Also after the end of an inline-announced file: further objects of the file get no answer.
            return if id > self.newest {
                Ok(ArrivedObjectAction::Early)
            } else {
                Err(ArrivalLedgerError::NotOpen(id))
            };
        };
        let fits = range.len > 0 && range.end().is_some_and(|end| end <= file.size);
        if !fits || !file.arrived.insert(range) {
            return Err(ArrivalLedgerError::BadRange(id, range));
        }
        Ok(file.attached.clone().map_or(ArrivedObjectAction::Drop, ArrivedObjectAction::Write))
    }

    /// Removes the range of an object that failed its check, so that it may arrive again.
    pub fn reject(&mut self, id: FileId, range: ByteRange) {
        if let Some(file) = self.open.get_mut(&id) {
            file.arrived.remove(range);
        }
    }

    /// Marks the file as given up by the sink; returns its attached data, at the first call only.
    pub fn give_up(&mut self, id: FileId) -> Option<T> {
        self.open.get_mut(&id).and_then(|file| file.attached.take())
    }

    /// Ends a file that the source calls complete. Returns `None` if the sink has given the file up.
    pub fn commit(&mut self, id: FileId) -> Result<Option<T>, ArrivalLedgerError> {
        let file = self.open.remove(&id).ok_or(ArrivalLedgerError::NotOpen(id))?;
        if file.attached.is_some() && !file.arrived.is_whole(file.size) {
            return Err(ArrivalLedgerError::NotWhole(id));
        }
        Ok(file.attached)
    }

    /// Ends a file that the source gives up, as it changed or could not be read to its end.
    pub fn abandon(&mut self, id: FileId) -> Result<Option<T>, ArrivalLedgerError> {
        let file = self.open.remove(&id).ok_or(ArrivalLedgerError::NotOpen(id))?;
        Ok(file.attached)
    }

    /// Files open now.
    pub fn open_count(&self) -> usize {
        self.open.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: FileId = FileId(1);

    fn range(offset: u64, len: u64) -> ByteRange {
        ByteRange::new(offset, len)
    }

    #[test]
    fn an_honest_file() {
        let mut ledger = ArrivalLedger::new(4);
        assert_eq!(ledger.record_arrival(A, range(0, 5)), Ok(ArrivedObjectAction::Early));
        ledger.announce(A, 10, Some("file"), RangeSet::new()).unwrap();
        assert_eq!(ledger.record_arrival(A, range(5, 5)), Ok(ArrivedObjectAction::Write("file")));
        assert_eq!(ledger.record_arrival(A, range(0, 5)), Ok(ArrivedObjectAction::Write("file")));
        ledger.reject(A, range(0, 5));
        assert_eq!(ledger.record_arrival(A, range(0, 5)), Ok(ArrivedObjectAction::Write("file")));
        assert_eq!(ledger.commit(A), Ok(Some("file")));
        assert_eq!(ledger.open_count(), 0);
    }

    #[test]
    fn files_that_announce_themselves_come_in_any_order() {
        let FileId(first) = FileId::FIRST_BY_ITSELF;
        let (one, two) = (FileId(first), FileId(first + 1));
        let mut ledger = ArrivalLedger::new(3);
        assert_eq!(ledger.record_arrival(one, range(5, 5)), Ok(ArrivedObjectAction::Early));
        ledger.announce(two, 10, Some(2), RangeSet::new()).unwrap();
        ledger.announce(A, 10, Some(3), RangeSet::new()).unwrap();
        ledger.announce(one, 10, Some(1), RangeSet::new()).unwrap();
        assert_eq!(
            ledger.announce(one, 10, Some(1), RangeSet::new()),
            Err(ArrivalLedgerError::NotRising(one))
        );
        assert_eq!(ledger.record_arrival(one, range(0, 10)), Ok(ArrivedObjectAction::Write(1)));
        assert!(ledger.record_arrival(one, range(5, 5)).is_err(), "bytes that came before");
        assert_eq!(ledger.commit(one), Ok(Some(1)));
        assert_eq!(ledger.record_arrival(two, range(0, 5)), Ok(ArrivedObjectAction::Write(2)));
        assert_eq!(ledger.commit(two), Err(ArrivalLedgerError::NotWhole(two)));
    }

    #[test]
    fn lies_are_noticed() {
        let mut ledger = ArrivalLedger::new(1);
        ledger.announce(A, 10, Some(()), RangeSet::new()).unwrap();
        assert_eq!(ledger.announce(A, 10, Some(()), RangeSet::new()), Err(ArrivalLedgerError::NotRising(A)));
        assert_eq!(
            ledger.announce(FileId(2), 10, Some(()), RangeSet::new()),
            Err(ArrivalLedgerError::TooManyOpen(1))
        );
        for bad in [range(0, 11), range(10, 1), range(u64::MAX, 2), range(3, 0)] {
            assert_eq!(ledger.record_arrival(A, bad), Err(ArrivalLedgerError::BadRange(A, bad)));
        }
        ledger.record_arrival(A, range(0, 6)).unwrap();
        assert!(ledger.record_arrival(A, range(5, 5)).is_err(), "a byte that came before");
        assert_eq!(ledger.commit(A), Err(ArrivalLedgerError::NotWhole(A)));
        assert_eq!(ledger.record_arrival(A, range(0, 1)), Err(ArrivalLedgerError::NotOpen(A)));
        assert_eq!(ledger.abandon(A), Err(ArrivalLedgerError::NotOpen(A)));
    }

    #[test]
    fn what_is_held_does_not_come_again_and_what_is_lacking_does() {
        let mut held = RangeSet::new();
        assert!(held.insert(range(0, 6)));
        let mut ledger = ArrivalLedger::new(4);
        ledger.announce(A, 10, Some(()), held.clone()).unwrap();
        assert!(ledger.record_arrival(A, range(0, 6)).is_err());
        assert_eq!(ledger.record_arrival(A, range(6, 4)), Ok(ArrivedObjectAction::Write(())));
        assert_eq!(ledger.commit(A), Ok(Some(())));
        ledger.reopen(A, 10, (), held);
        assert_eq!(ledger.commit(A), Err(ArrivalLedgerError::NotWhole(A)));
        ledger.reopen(A, 10, (), RangeSet::new());
        assert_eq!(ledger.record_arrival(A, range(0, 10)), Ok(ArrivedObjectAction::Write(())));
        assert_eq!(ledger.commit(A), Ok(Some(())));
    }

    #[test]
    fn objects_of_a_file_given_up_are_dropped() {
        let mut ledger = ArrivalLedger::new(4);
        ledger.announce(A, 10, Some(()), RangeSet::new()).unwrap();
        assert_eq!(ledger.give_up(A), Some(()));
        assert_eq!(ledger.give_up(A), None);
        assert_eq!(ledger.record_arrival(A, range(0, 10)), Ok(ArrivedObjectAction::Drop));
        assert_eq!(ledger.commit(A), Ok(None));
    }
}
