//! What lies on flash, by where it goes.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

use carrack_machine::SpillRecord;
use carrack_wire::FrameHeader;

use super::side::{STAGING_SLOTS, SpillSide};

/// Objects on flash by where they go, the oldest first.
pub(super) struct Shelf<P> {
    by_place: HashMap<P, VecDeque<(u64, Held<P>)>>,
    count: usize,
    bytes: u64,
    /// The order in which they came.
    next_turn: u64,
    /// Objects that may come back: as many as have gone on since the first one was put here, so that what waits stays
    /// little, and slots are for what comes.
    may_return: usize,
}

/// An object on flash.
pub(super) struct Held<P> {
    pub(super) place: P,
    pub(super) header: FrameHeader,
    pub(super) record: SpillRecord,
    /// Flash may forget, and the object's own check is not always made.
    pub(super) sum: u128,
}

impl<P> Default for Shelf<P> {
    fn default() -> Shelf<P> {
        Shelf { by_place: HashMap::new(), count: 0, bytes: 0, next_turn: 0, may_return: 0 }
    }
}

impl<P: Copy + Eq + Hash> Shelf<P> {
    /// An object may come. Others that wait with it go on later: with the first of them it may return.
    pub(super) fn expect(&mut self) {
        if self.count == 0 {
            self.may_return = 0;
        }
    }

    /// Puts an object behind the others that go there; returns their bytes in all.
    pub(super) fn put(&mut self, held: Held<P>) -> u64 {
        self.bytes += u64::from(held.header.body_len);
        self.by_place.entry(held.place).or_default().push_back((self.next_turn, held));
        self.next_turn += 1;
        self.count += 1;
        self.bytes
    }

    /// So many more may come back.
    pub(super) fn may_return(&mut self, count: usize) {
        self.may_return = (self.may_return + count).min(STAGING_SLOTS);
    }

    /// The oldest one that may come back and has room where it goes; it is on its way from now on.
    pub(super) fn take_oldest(&mut self, side: &impl SpillSide<Place = P>) -> Option<Held<P>> {
        if self.may_return == 0 {
            return None;
        }
        let waiting = self.by_place.iter().filter(|(place, _)| side.has_room(**place));
        let first = |(place, held): (&P, &VecDeque<(u64, Held<P>)>)| Some((held.front()?.0, *place));
        let (_, place) = waiting.filter_map(first).min_by_key(|(turn, _)| *turn)?;
        let held = self.by_place.get_mut(&place)?;
        let (_, oldest) = held.pop_front()?;
        if held.is_empty() {
            self.by_place.remove(&place);
        }
        self.count -= 1;
        self.bytes -= u64::from(oldest.header.body_len);
        self.may_return -= 1;
        side.departs(place);
        Some(oldest)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use carrack_machine::{Slot, SpillLog};
    use carrack_model::{FileId, ObjectId};
    use carrack_plan::SpillVerdict;
    use carrack_wire::FrameKind;

    use super::super::side::Moved;
    use super::*;
    use crate::error::SessionError;

    /// Only some places have room.
    struct Side(&'static [u32]);

    impl SpillSide for Side {
        type Place = u32;

        fn has_room(&self, place: u32) -> bool {
            self.0.contains(&place)
        }

        fn departs(&self, place: u32) {
            assert!(self.has_room(place));
        }

        fn moved(&self) -> Moved {
            unreachable!()
        }
        fn held_back(&self) -> f64 {
            unreachable!()
        }
        fn take_youngest(&self, _: &dyn Fn(&FrameHeader) -> bool) -> Option<(u32, FrameHeader, Slot)> {
            unreachable!()
        }
        fn put_back(&self, _: u32, _: FrameHeader, _: Slot) {
            unreachable!()
        }
        fn set_aside(&self, _: u32, _: ObjectId) {
            unreachable!()
        }
        fn bring_back(&self, _: u32, _: FrameHeader, _: Slot) -> Result<(), SessionError> {
            unreachable!()
        }
        fn lost(&self, _: ObjectId) {
            unreachable!()
        }
        fn opened(&self, _: bool) {
            unreachable!()
        }
        fn words(&self, _: SpillVerdict) -> &'static str {
            unreachable!()
        }
        fn tell(&self, _: String) {
            unreachable!()
        }
        fn raise(&self, _: SessionError) {
            unreachable!()
        }
    }

    /// On a disk: memory need not know direct I/O. Some machines have nothing but memory.
    fn log() -> Option<Arc<SpillLog>> {
        let log = SpillLog::create(Path::new("/var/tmp"), 1 << 20, 4_096);
        log.inspect_err(|error| println!("skipped: {error}")).ok()
    }

    fn held(log: &Arc<SpillLog>, place: u32, object: u64) -> Held<u32> {
        let header = FrameHeader {
            kind: FrameKind::Object,
            body_len: 1,
            object: ObjectId(object),
            file: FileId(1),
            offset: 0,
            table_len: 0,
            lane: 0,
            check: Default::default(),
        };
        Held { place, header, record: log.take().unwrap(), sum: 0 }
    }

    fn taken(shelf: &mut Shelf<u32>, side: &Side) -> Vec<u64> {
        std::iter::from_fn(|| shelf.take_oldest(side)).map(|held| held.header.object.0).collect()
    }

    #[test]
    fn the_oldest_that_has_room_comes_back_first() {
        let Some(log) = log() else { return };
        let mut shelf = Shelf::default();
        for (place, object) in [(1, 10), (2, 20), (1, 11), (3, 30)] {
            shelf.expect();
            shelf.put(held(&log, place, object));
        }
        assert_eq!(taken(&mut shelf, &Side(&[1, 2, 3])), [0; 0], "nothing has gone on");
        shelf.may_return(4);
        assert_eq!(taken(&mut shelf, &Side(&[2, 3])), [20, 30]);
        assert_eq!(taken(&mut shelf, &Side(&[1, 2, 3])), [10, 11]);
    }

    #[test]
    fn what_goes_on_while_the_first_one_is_written_lets_it_return() {
        let Some(log) = log() else { return };
        let mut shelf = Shelf::default();
        shelf.may_return(3);
        shelf.expect();
        // All others go on, and none follows.
        shelf.may_return(1);
        shelf.put(held(&log, 1, 10));
        assert_eq!(taken(&mut shelf, &Side(&[1])), [10]);
        shelf.expect();
        shelf.put(held(&log, 1, 11));
        assert_eq!(taken(&mut shelf, &Side(&[1])), [0; 0], "what went on before has nothing to do with it");
    }
}
