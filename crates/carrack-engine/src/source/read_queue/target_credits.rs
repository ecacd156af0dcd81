//! Flow control: the objects in flight to each of the sink's targets (L8).
//!
//! The sink's targets share its slots. A congested target keeps its slots for long, and would end up with all
//! of them while the others are idle. So no target gets more than its share of the credits while others want
//! some. Work without room waits here, and reading continues with files of other targets.

use std::collections::HashMap;

use carrack_model::{FileId, TargetId};

use crate::source::work::{ObjectFlowControlKey, ReadWork};

/// The minimum of objects in flight to a place, in any case: one being written and one to follow. A file with
/// unknown layout gets no more.
const SHARE_MIN: u64 = 2;

/// The objects in flight, by place. Without a sink that has several targets it counts nothing.
pub(super) struct SourceFlowControl {
    is_on: bool,
    /// True if work is read without room at the sink, as its objects can be put on flash.
    is_lifted: bool,
    credits: u64,
    places: HashMap<ObjectFlowControlKey, SinkTargetCreditUse>,
}

#[derive(Default)]
struct SinkTargetCreditUse {
    in_flight: u64,
    /// Work that waits for room, with the source target of its queue.
    parked: Vec<(TargetId, ReadWork)>,
}

impl SourceFlowControl {
    pub(super) fn new(is_on: bool, credits: u32) -> SourceFlowControl {
        SourceFlowControl { is_on, is_lifted: false, credits: credits.into(), places: HashMap::new() }
    }

    pub(super) fn is_on(&self) -> bool {
        self.is_on
    }

    /// Returns true if one more object for that place may be read.
    pub(super) fn has_room(&self, place: ObjectFlowControlKey) -> bool {
        self.is_lifted || self.has_room_at_sink(place)
    }

    /// Returns true if one more object may go there.
    pub(super) fn has_room_at_sink(&self, place: ObjectFlowControlKey) -> bool {
        let in_flight = self.places.get(&place).map_or(0, |flow| flow.in_flight);
        let others = self.places.len() - usize::from(self.places.contains_key(&place));
        let share = match place {
            ObjectFlowControlKey::File(_) => SHARE_MIN,
            ObjectFlowControlKey::Target(_) | ObjectFlowControlKey::Bundles(_) => {
                (self.credits / (others as u64 + 1)).max(SHARE_MIN)
            }
        };
        !self.is_on || in_flight < share
    }

    /// Counts an object in flight to a place.
    pub(super) fn count_in_flight(&mut self, place: ObjectFlowControlKey) {
        if self.is_on {
            self.places.entry(place).or_default().in_flight += 1;
        }
    }

    /// Keeps work until there is room: at least one object is on its way there, and will arrive.
    pub(super) fn park(&mut self, place: ObjectFlowControlKey, target: TargetId, work: ReadWork) {
        assert!(self.is_on && !self.is_lifted, "work is parked while objects are counted");
        let flow = self.places.entry(place).or_default();
        assert!(flow.in_flight > 0, "an object that arrives lets parked work go on");
        flow.parked.push((target, work));
    }

    /// Switches flow control off or on. Returns the work that may continue.
    pub(super) fn lift(&mut self, is_lifted: bool) -> Vec<(TargetId, ReadWork)> {
        self.is_lifted = is_lifted;
        let places = self.places.values_mut().filter(|_| is_lifted);
        places.flat_map(|flow| std::mem::take(&mut flow.parked)).collect()
    }

    /// Returns true if work waits for room.
    pub(super) fn is_parking(&self) -> bool {
        self.places.values().any(|flow| !flow.parked.is_empty())
    }

    /// Ends one object and returns the work that may continue: one piece, or all when nothing is in flight.
    /// Continued work need not bring another object here, as its file may have been aborted.
    pub(super) fn release_in_flight(&mut self, place: ObjectFlowControlKey) -> Vec<(TargetId, ReadWork)> {
        let Some(flow) = self.places.get_mut(&place) else { return Vec::new() };
        assert!(flow.in_flight > 0, "a place without objects in flight is forgotten");
        flow.in_flight -= 1;
        if flow.in_flight > 0 {
            return flow.parked.pop().into_iter().collect();
        }
        self.places.remove(&place).map(|flow| flow.parked).unwrap_or_default()
    }

    /// Returns all work that waited for a file's layout, which is known now.
    pub(super) fn take_parked_for_layout(&mut self, file: FileId) -> Vec<(TargetId, ReadWork)> {
        let flow = self.places.get_mut(&ObjectFlowControlKey::File(file));
        flow.map(|flow| std::mem::take(&mut flow.parked)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::work::BundleReadWork;

    const A: ObjectFlowControlKey = ObjectFlowControlKey::Target(TargetId(1));
    const B: ObjectFlowControlKey = ObjectFlowControlKey::Bundles(TargetId(2));
    const NEW: ObjectFlowControlKey = ObjectFlowControlKey::File(FileId(3));

    fn fill(flow: &mut SourceFlowControl, place: ObjectFlowControlKey) -> usize {
        let mut count = 0;
        while flow.has_room(place) && count < 1_000 {
            flow.count_in_flight(place);
            count += 1;
        }
        count
    }

    fn job() -> ReadWork {
        let bundle =
            carrack_plan::Bundle { sections: Vec::new(), content_bytes: 0, table_bytes: 0, entry_count: 0 };
        ReadWork::Bundle(BundleReadWork { bundle, attempts: 0, is_rest: false, chunk: None })
    }

    #[test]
    fn one_place_has_all_credits_and_two_share_them() {
        let mut flow = SourceFlowControl::new(true, 100);
        assert_eq!(fill(&mut flow, A), 100);
        assert_eq!(fill(&mut flow, B), 50, "the first one's surplus comes back with its answers");
        assert_eq!(fill(&mut flow, NEW), SHARE_MIN as usize);
        (0..100).for_each(|_| drop(flow.release_in_flight(A)));
        (0..SHARE_MIN).for_each(|_| drop(flow.release_in_flight(NEW)));
        assert!(flow.has_room(B), "whoever has nothing on its way has no share");
    }

    #[test]
    fn with_few_credits_each_place_has_some() {
        let mut flow = SourceFlowControl::new(true, 4);
        for place in [A, B, NEW] {
            assert!(fill(&mut flow, place) >= SHARE_MIN as usize, "{place:?}");
        }
    }

    #[test]
    fn what_is_parked_goes_on_with_an_answer_or_with_the_news() {
        let mut flow = SourceFlowControl::new(true, 2);
        fill(&mut flow, A);
        flow.park(A, TargetId(9), job());
        flow.park(A, TargetId(8), job());
        flow.park(A, TargetId(7), job());
        assert!(matches!(flow.release_in_flight(A)[..], [(TargetId(7), _)]));
        // The continued work did not come back here, and no other ack will.
        assert!(matches!(flow.release_in_flight(A)[..], [(TargetId(9), _), (TargetId(8), _)]));
        assert!(flow.release_in_flight(A).is_empty());
        fill(&mut flow, NEW);
        flow.park(NEW, TargetId(9), job());
        flow.park(NEW, TargetId(9), job());
        assert_eq!(
            (flow.take_parked_for_layout(FileId(3)).len(), flow.take_parked_for_layout(FileId(3)).len()),
            (2, 0)
        );
        // Objects that were in flight before the layout was known arrive as counted.
        assert!(flow.release_in_flight(NEW).is_empty() && flow.release_in_flight(NEW).is_empty());
        assert!(flow.places.is_empty());
    }

    #[test]
    fn where_the_sink_has_one_target_nothing_is_counted() {
        let mut flow = SourceFlowControl::new(false, 1);
        assert_eq!(fill(&mut flow, A), 1_000);
        assert!(flow.places.is_empty());
    }
}
