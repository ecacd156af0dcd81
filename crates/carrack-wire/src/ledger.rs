//! What the source has announced and what of it has arrived: the rules that the sink holds the source to.
//!
//! Ids rise (but for those of files that announce themselves, which come as objects do, in any order), sizes are promises,
//! no byte arrives twice, a file is committed only when whole. Whoever breaks a rule gets a [`LedgerError`], which ends the session. `T` is what the sink attaches to a file, such as its descriptor.

use std::collections::HashMap;

use carrack_model::{ByteRange, FileId, RangeSet};

/// A rule that the source broke.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LedgerError {
    /// File ids must rise, or at least be new.
    #[error("file {} was announced out of order", .0.0)]
    NotRising(FileId),
    /// More files open at once than agreed.
    #[error("more than {0} files open at once")]
    TooManyOpen(usize),
    /// The file is not open (any more).
    #[error("file {} is not open", .0.0)]
    NotOpen(FileId),
    /// Outside of the announced size, empty, or already there.
    #[error("bytes {}+{} of file {} do not fit into it or came before", .1.offset, .1.len, .0.0)]
    BadRange(FileId, ByteRange),
    /// Committed before everything arrived.
    #[error("file {} was closed before it was whole", .0.0)]
    NotWhole(FileId),
}

/// What to do with an object.
#[derive(Debug, PartialEq, Eq)]
pub enum Arrival<T> {
    /// Check and write it to this file.
    Write(T),
    /// Its file was not announced yet: the control channel lags behind the data, or one stream behind another.
    Early,
    /// Its file was given up here; drop it.
    Drop,
}

struct OpenFile<T> {
    size: u64,
    arrived: RangeSet,
    /// Nothing once the sink has given the file up.
    attached: Option<T>,
}

/// The files that are open at the sink.
pub struct Ledger<T> {
    open: HashMap<FileId, OpenFile<T>>,
    open_max: usize,
    newest: FileId,
}

impl<T: Clone> Ledger<T> {
    /// At most `open_max` files at once.
    pub fn new(open_max: usize) -> Ledger<T> {
        Ledger { open: HashMap::new(), open_max, newest: FileId(0) }
    }

    /// A file begins, of which the sink holds something already. `attached` is nothing if the sink can't take it; its
    /// objects are then dropped.
    pub fn announce(
        &mut self,
        id: FileId,
        size: u64,
        attached: Option<T>,
        held: RangeSet,
    ) -> Result<(), LedgerError> {
        let is_new = if id.is_by_itself() { !self.open.contains_key(&id) } else { id > self.newest };
        if !is_new {
            return Err(LedgerError::NotRising(id));
        }
        if self.open.len() >= self.open_max {
            return Err(LedgerError::TooManyOpen(self.open_max));
        }
        if !id.is_by_itself() {
            self.newest = id;
        }
        self.open.insert(id, OpenFile { size, arrived: held, attached });
        Ok(())
    }

    /// A file that was committed turns out to lack something, and goes on with what it holds.
    pub fn reopen(&mut self, id: FileId, size: u64, attached: T, held: RangeSet) {
        self.open.insert(id, OpenFile { size, arrived: held, attached: Some(attached) });
    }

    /// What is attached to an open file.
    pub fn get(&self, id: FileId) -> Option<&T> {
        self.open.get(&id)?.attached.as_ref()
    }

    /// An object arrives: its range counts as there from now on.
    pub fn arrive(&mut self, id: FileId, range: ByteRange) -> Result<Arrival<T>, LedgerError> {
        let Some(file) = self.open.get_mut(&id) else {
            // Also of a file that announced itself and has ended: who sends more of it ends with that in his hands.
            return if id > self.newest { Ok(Arrival::Early) } else { Err(LedgerError::NotOpen(id)) };
        };
        let fits = range.len > 0 && range.end().is_some_and(|end| end <= file.size);
        if !fits || !file.arrived.insert(range) {
            return Err(LedgerError::BadRange(id, range));
        }
        Ok(file.attached.clone().map_or(Arrival::Drop, Arrival::Write))
    }

    /// An object failed its check: its range may come again.
    pub fn reject(&mut self, id: FileId, range: ByteRange) {
        if let Some(file) = self.open.get_mut(&id) {
            file.arrived.remove(range);
        }
    }

    /// The sink gives a file up; returns what was attached, the first time.
    pub fn give_up(&mut self, id: FileId) -> Option<T> {
        self.open.get_mut(&id).and_then(|file| file.attached.take())
    }

    /// The source says that the file is complete. Nothing comes back if the sink has given it up.
    pub fn commit(&mut self, id: FileId) -> Result<Option<T>, LedgerError> {
        let file = self.open.remove(&id).ok_or(LedgerError::NotOpen(id))?;
        if file.attached.is_some() && !file.arrived.is_whole(file.size) {
            return Err(LedgerError::NotWhole(id));
        }
        Ok(file.attached)
    }

    /// The source gives the file up: it changed, or could not be read to its end.
    pub fn abandon(&mut self, id: FileId) -> Result<Option<T>, LedgerError> {
        let file = self.open.remove(&id).ok_or(LedgerError::NotOpen(id))?;
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
        let mut ledger = Ledger::new(4);
        assert_eq!(ledger.arrive(A, range(0, 5)), Ok(Arrival::Early));
        ledger.announce(A, 10, Some("file"), RangeSet::new()).unwrap();
        assert_eq!(ledger.arrive(A, range(5, 5)), Ok(Arrival::Write("file")));
        assert_eq!(ledger.arrive(A, range(0, 5)), Ok(Arrival::Write("file")));
        ledger.reject(A, range(0, 5));
        assert_eq!(ledger.arrive(A, range(0, 5)), Ok(Arrival::Write("file")));
        assert_eq!(ledger.commit(A), Ok(Some("file")));
        assert_eq!(ledger.open_count(), 0);
    }

    #[test]
    fn files_that_announce_themselves_come_in_any_order() {
        let FileId(first) = FileId::FIRST_BY_ITSELF;
        let (one, two) = (FileId(first), FileId(first + 1));
        let mut ledger = Ledger::new(3);
        assert_eq!(ledger.arrive(one, range(5, 5)), Ok(Arrival::Early));
        ledger.announce(two, 10, Some(2), RangeSet::new()).unwrap();
        ledger.announce(A, 10, Some(3), RangeSet::new()).unwrap();
        ledger.announce(one, 10, Some(1), RangeSet::new()).unwrap();
        assert_eq!(ledger.announce(one, 10, Some(1), RangeSet::new()), Err(LedgerError::NotRising(one)));
        assert_eq!(ledger.arrive(one, range(0, 10)), Ok(Arrival::Write(1)));
        assert!(ledger.arrive(one, range(5, 5)).is_err(), "bytes that came before");
        assert_eq!(ledger.commit(one), Ok(Some(1)));
        assert_eq!(ledger.arrive(two, range(0, 5)), Ok(Arrival::Write(2)));
        assert_eq!(ledger.commit(two), Err(LedgerError::NotWhole(two)));
    }

    #[test]
    fn lies_are_noticed() {
        let mut ledger = Ledger::new(1);
        ledger.announce(A, 10, Some(()), RangeSet::new()).unwrap();
        assert_eq!(ledger.announce(A, 10, Some(()), RangeSet::new()), Err(LedgerError::NotRising(A)));
        assert_eq!(
            ledger.announce(FileId(2), 10, Some(()), RangeSet::new()),
            Err(LedgerError::TooManyOpen(1))
        );
        for bad in [range(0, 11), range(10, 1), range(u64::MAX, 2), range(3, 0)] {
            assert_eq!(ledger.arrive(A, bad), Err(LedgerError::BadRange(A, bad)));
        }
        ledger.arrive(A, range(0, 6)).unwrap();
        assert!(ledger.arrive(A, range(5, 5)).is_err(), "a byte that came before");
        assert_eq!(ledger.commit(A), Err(LedgerError::NotWhole(A)));
        assert_eq!(ledger.arrive(A, range(0, 1)), Err(LedgerError::NotOpen(A)));
        assert_eq!(ledger.abandon(A), Err(LedgerError::NotOpen(A)));
    }

    #[test]
    fn what_is_held_does_not_come_again_and_what_is_lacking_does() {
        let mut held = RangeSet::new();
        assert!(held.insert(range(0, 6)));
        let mut ledger = Ledger::new(4);
        ledger.announce(A, 10, Some(()), held.clone()).unwrap();
        assert!(ledger.arrive(A, range(0, 6)).is_err());
        assert_eq!(ledger.arrive(A, range(6, 4)), Ok(Arrival::Write(())));
        assert_eq!(ledger.commit(A), Ok(Some(())));
        ledger.reopen(A, 10, (), held);
        assert_eq!(ledger.commit(A), Err(LedgerError::NotWhole(A)));
        ledger.reopen(A, 10, (), RangeSet::new());
        assert_eq!(ledger.arrive(A, range(0, 10)), Ok(Arrival::Write(())));
        assert_eq!(ledger.commit(A), Ok(Some(())));
    }

    #[test]
    fn objects_of_a_file_given_up_are_dropped() {
        let mut ledger = Ledger::new(4);
        ledger.announce(A, 10, Some(()), RangeSet::new()).unwrap();
        assert_eq!(ledger.give_up(A), Some(()));
        assert_eq!(ledger.give_up(A), None);
        assert_eq!(ledger.arrive(A, range(0, 10)), Ok(Arrival::Drop));
        assert_eq!(ledger.commit(A), Ok(None));
    }
}
