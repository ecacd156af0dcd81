//! The objects on flash, by their places.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

use carrack_machine::ReservedSpillSpace;
use carrack_wire::FrameHeader;

use super::spilling_lane::{LaneWaitingObjects, STAGING_SLOTS};

/// Objects on flash by their places, the oldest first.
pub(super) struct SpilledObjectIndex<P> {
    by_place: HashMap<P, VecDeque<(u64, SpilledObject<P>)>>,
    count: usize,
    bytes: u64,
    /// The number of the next object, in the order of their arrival.
    next_turn: u64,
    /// Objects that may be read back: as many as have left the queue since the first object was put here. So
    /// the queue stays short, and slots are free for new objects.
    may_return: usize,
}

/// An object on flash.
pub(super) struct SpilledObject<P> {
    pub(super) place: P,
    pub(super) header: FrameHeader,
    pub(super) record: ReservedSpillSpace,
    /// Flash may lose data, and the object may have no checksum.
    pub(super) sum: u128,
}

impl<P> Default for SpilledObjectIndex<P> {
    fn default() -> SpilledObjectIndex<P> {
        SpilledObjectIndex { by_place: HashMap::new(), count: 0, bytes: 0, next_turn: 0, may_return: 0 }
    }
}

impl<P: Copy + Eq + Hash> SpilledObjectIndex<P> {
    /// Prepares for an object. If it is the first, only objects that leave the queue from now on count.
    pub(super) fn prepare_for_object(&mut self) {
        if self.count == 0 {
            self.may_return = 0;
        }
    }

    /// Adds an object behind the others of its place. Returns the bytes of all objects.
    pub(super) fn put(&mut self, held: SpilledObject<P>) -> u64 {
        self.bytes += u64::from(held.header.body_len);
        self.by_place.entry(held.place).or_default().push_back((self.next_turn, held));
        self.next_turn += 1;
        self.count += 1;
        self.bytes
    }

    /// Allows `count` more objects to be read back.
    pub(super) fn allow_return(&mut self, count: usize) {
        self.may_return = (self.may_return + count).min(STAGING_SLOTS);
    }

    /// Takes the oldest object that may be read back and whose place has room. It counts as in flight from
    /// now on.
    pub(super) fn take_oldest(
        &mut self,
        side: &impl LaneWaitingObjects<Place = P>,
    ) -> Option<SpilledObject<P>> {
        if self.may_return == 0 {
            return None;
        }
        let waiting = self.by_place.iter().filter(|(place, _)| side.has_room(**place));
        let turns = waiting.filter_map(|(place, held)| Some((held.front()?.0, *place)));
        let (_, place) = turns.min_by_key(|(turn, _)| *turn)?;
        let held = self.by_place.get_mut(&place)?;
        let (_, oldest) = held.pop_front()?;
        if held.is_empty() {
            self.by_place.remove(&place);
        }
        let body_bytes = u64::from(oldest.header.body_len);
        assert!(self.count > 0 && self.bytes >= body_bytes, "each object on flash is counted");
        self.count -= 1;
        self.bytes -= body_bytes;
        assert!((self.count == 0) == self.by_place.is_empty(), "a place without objects is forgotten");
        self.may_return -= 1;
        side.count_returning(place);
        Some(oldest)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use carrack_machine::{Slot, SpillDataFile};
    use carrack_model::{FileId, ObjectId};
    use carrack_plan::SpillVerdict;
    use carrack_wire::FrameKind;

    use super::super::spilling_lane::LaneByteFlow;
    use super::*;
    use crate::error::SessionError;

    /// Only some places have room.
    struct TestLimitedSpillingLane(&'static [u32]);

    impl LaneWaitingObjects for TestLimitedSpillingLane {
        type Place = u32;

        fn has_room(&self, place: u32) -> bool {
            self.0.contains(&place)
        }

        fn count_returning(&self, place: u32) {
            assert!(self.has_room(place));
        }

        fn byte_flow(&self) -> LaneByteFlow {
            unreachable!()
        }
        fn waiting_thread_fraction(&self) -> f64 {
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
        fn requeue_first(&self, _: u32, _: FrameHeader, _: Slot) -> Result<(), SessionError> {
            unreachable!()
        }
        fn handle_lost_object(&self, _: ObjectId) {
            unreachable!()
        }
        fn set_spilling(&self, _: bool) {
            unreachable!()
        }
        fn verdict_text(&self, _: SpillVerdict) -> &'static str {
            unreachable!()
        }
        fn report_text(&self, _: String) {
            unreachable!()
        }
        fn raise(&self, _: SessionError) {
            unreachable!()
        }
    }

    /// A log on a disk: memory need not support direct I/O. Some machines have no disk.
    fn log() -> Option<Arc<SpillDataFile>> {
        let log = SpillDataFile::create(Path::new("/var/tmp"), 1 << 20, 4_096);
        log.inspect_err(|error| println!("skipped: {error}")).ok()
    }

    fn held(log: &Arc<SpillDataFile>, place: u32, object: u64) -> SpilledObject<u32> {
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
        SpilledObject { place, header, record: log.try_reserve().unwrap(), sum: 0 }
    }

    fn taken(shelf: &mut SpilledObjectIndex<u32>, side: &TestLimitedSpillingLane) -> Vec<u64> {
        std::iter::from_fn(|| shelf.take_oldest(side)).map(|held| held.header.object.0).collect()
    }

    #[test]
    fn the_oldest_that_has_room_comes_back_first() {
        let Some(log) = log() else { return };
        let mut shelf = SpilledObjectIndex::default();
        for (place, object) in [(1, 10), (2, 20), (1, 11), (3, 30)] {
            shelf.prepare_for_object();
            shelf.put(held(&log, place, object));
        }
        assert_eq!(taken(&mut shelf, &TestLimitedSpillingLane(&[1, 2, 3])), [0; 0], "nothing has gone on");
        shelf.allow_return(4);
        assert_eq!(taken(&mut shelf, &TestLimitedSpillingLane(&[2, 3])), [20, 30]);
        assert_eq!(taken(&mut shelf, &TestLimitedSpillingLane(&[1, 2, 3])), [10, 11]);
    }

    #[test]
    fn what_goes_on_while_the_first_one_is_written_lets_it_return() {
        let Some(log) = log() else { return };
        let mut shelf = SpilledObjectIndex::default();
        shelf.allow_return(3);
        shelf.prepare_for_object();
        // All others leave the queue, and no object follows.
        shelf.allow_return(1);
        shelf.put(held(&log, 1, 10));
        assert_eq!(taken(&mut shelf, &TestLimitedSpillingLane(&[1])), [10]);
        shelf.prepare_for_object();
        shelf.put(held(&log, 1, 11));
        assert_eq!(
            taken(&mut shelf, &TestLimitedSpillingLane(&[1])),
            [0; 0],
            "what went on before has nothing to do with it"
        );
    }
}
