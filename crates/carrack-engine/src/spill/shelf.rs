//! What lies on flash, by where it goes.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

use carrack_machine::SpillRecord;
use carrack_wire::FrameHeader;

use super::{STAGING_SLOTS, SpillSide};

/// Objects on flash by where they go, the oldest first.
pub(super) struct Shelf<P> {
    by_place: HashMap<P, VecDeque<(u64, Held<P>)>>,
    count: usize,
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
        Shelf { by_place: HashMap::new(), count: 0, next_turn: 0, may_return: 0 }
    }
}

impl<P: Copy + Eq + Hash> Shelf<P> {
    /// An object may come. Others that wait with it go on later: with the first of them it may return.
    pub(super) fn expect(&mut self) {
        if self.count == 0 {
            self.may_return = 0;
        }
    }

    /// Puts an object behind the others that go there; returns how many there are in all.
    pub(super) fn put(&mut self, held: Held<P>) -> usize {
        self.by_place.entry(held.place).or_default().push_back((self.next_turn, held));
        self.next_turn += 1;
        self.count += 1;
        self.count
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
        self.may_return -= 1;
        side.departs(place);
        Some(oldest)
    }
}
