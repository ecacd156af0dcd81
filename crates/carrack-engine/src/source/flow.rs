//! How many objects are on their way to each of the sink's targets (L8).
//!
//! The sink's slots are shared by its targets. One that is congested there keeps its slots for long, and would end up with
//! all of them while the others have nothing to do. So none gets more than its share of the credits as long as others want
//! some; what has no room waits here, and the reading goes on with files of other targets.

use std::collections::HashMap;

use carrack_model::{FileId, TargetId};

use super::queue::Job;

/// Where an object goes, as far as the source knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Place {
    /// To this target of the sink.
    Target(TargetId),
    /// To a file of which the sink has not said where it lies.
    File(FileId),
    /// Small files from this target of the source: they mostly go to one target at the sink too.
    Bundles(TargetId),
}

/// Objects that a place may have on its way, however many others want some: one that is written and one that follows. A
/// file of which nobody knows yet where it lies gets no more.
const SHARE_MIN: u64 = 2;

/// The objects on their way, by place. Without a sink that has several targets it counts nothing.
pub(super) struct Flow {
    is_on: bool,
    /// What has no room at the sink is read all the same, as it can be set aside.
    is_lifted: bool,
    credits: u64,
    places: HashMap<Place, Going>,
}

#[derive(Default)]
struct Going {
    in_flight: u64,
    /// What waits for room, with the source's target whose queue it came from.
    parked: Vec<(TargetId, Job)>,
}

impl Flow {
    pub(super) fn new(is_on: bool, credits: u32) -> Flow {
        Flow { is_on, is_lifted: false, credits: credits.into(), places: HashMap::new() }
    }

    pub(super) fn is_on(&self) -> bool {
        self.is_on
    }

    /// Whether one more object for there may be read.
    pub(super) fn has_room(&self, place: Place) -> bool {
        self.is_lifted || self.has_room_at_sink(place)
    }

    /// Whether one more object may go there.
    pub(super) fn has_room_at_sink(&self, place: Place) -> bool {
        let in_flight = self.places.get(&place).map_or(0, |going| going.in_flight);
        let others = self.places.len() - usize::from(self.places.contains_key(&place));
        let share = match place {
            Place::File(_) => SHARE_MIN,
            Place::Target(_) | Place::Bundles(_) => (self.credits / (others as u64 + 1)).max(SHARE_MIN),
        };
        !self.is_on || in_flight < share
    }

    /// One more object goes there.
    pub(super) fn depart(&mut self, place: Place) {
        if self.is_on {
            self.places.entry(place).or_default().in_flight += 1;
        }
    }

    /// Keeps a job until there is room: at least one object is on its way there, and will arrive.
    pub(super) fn park(&mut self, place: Place, target: TargetId, job: Job) {
        self.places.entry(place).or_default().parked.push((target, job));
    }

    /// From now on nothing waits for room, or what comes next does; returns what may go on.
    pub(super) fn lift(&mut self, is_lifted: bool) -> Vec<(TargetId, Job)> {
        self.is_lifted = is_lifted;
        let places = self.places.values_mut().filter(|_| is_lifted);
        places.flat_map(|going| std::mem::take(&mut going.parked)).collect()
    }

    /// Whether anything waits for room.
    pub(super) fn is_parking(&self) -> bool {
        self.places.values().any(|going| !going.parked.is_empty())
    }

    /// One object has come to its end; returns what may go on. That is one job, or all when nothing is on its way any more:
    /// a job that goes on need not bring another object here, as its file may have been given up meanwhile.
    pub(super) fn arrive(&mut self, place: Place) -> Vec<(TargetId, Job)> {
        let Some(going) = self.places.get_mut(&place) else { return Vec::new() };
        going.in_flight = going.in_flight.saturating_sub(1);
        if going.in_flight > 0 {
            return going.parked.pop().into_iter().collect();
        }
        self.places.remove(&place).map(|going| going.parked).unwrap_or_default()
    }

    /// It is known now where the file lies: everything that waited for room to it may look again.
    pub(super) fn placed(&mut self, file: FileId) -> Vec<(TargetId, Job)> {
        let going = self.places.get_mut(&Place::File(file));
        going.map(|going| std::mem::take(&mut going.parked)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::queue::Parcel;

    const A: Place = Place::Target(TargetId(1));
    const B: Place = Place::Bundles(TargetId(2));
    const NEW: Place = Place::File(FileId(3));

    fn fill(flow: &mut Flow, place: Place) -> usize {
        let mut count = 0;
        while flow.has_room(place) && count < 1_000 {
            flow.depart(place);
            count += 1;
        }
        count
    }

    fn job() -> Job {
        let bundle =
            carrack_plan::Bundle { sections: Vec::new(), content_bytes: 0, table_bytes: 0, entry_count: 0 };
        Job::Bundle(Parcel { bundle, attempts: 0, is_rest: false, chunk: None })
    }

    #[test]
    fn one_place_has_all_credits_and_two_share_them() {
        let mut flow = Flow::new(true, 100);
        assert_eq!(fill(&mut flow, A), 100);
        assert_eq!(fill(&mut flow, B), 50, "the first one's surplus comes back with its answers");
        assert_eq!(fill(&mut flow, NEW), SHARE_MIN as usize);
        (0..100).for_each(|_| drop(flow.arrive(A)));
        (0..SHARE_MIN).for_each(|_| drop(flow.arrive(NEW)));
        assert!(flow.has_room(B), "whoever has nothing on its way has no share");
    }

    #[test]
    fn with_few_credits_each_place_has_some() {
        let mut flow = Flow::new(true, 4);
        for place in [A, B, NEW] {
            assert!(fill(&mut flow, place) >= SHARE_MIN as usize, "{place:?}");
        }
    }

    #[test]
    fn what_is_parked_goes_on_with_an_answer_or_with_the_news() {
        let mut flow = Flow::new(true, 2);
        fill(&mut flow, A);
        flow.park(A, TargetId(9), job());
        flow.park(A, TargetId(8), job());
        flow.park(A, TargetId(7), job());
        assert!(matches!(flow.arrive(A)[..], [(TargetId(7), _)]));
        // What went on did not come back here, and no other answer will.
        assert!(matches!(flow.arrive(A)[..], [(TargetId(9), _), (TargetId(8), _)]));
        assert!(flow.arrive(A).is_empty());
        fill(&mut flow, NEW);
        flow.park(NEW, TargetId(9), job());
        flow.park(NEW, TargetId(9), job());
        assert_eq!((flow.placed(FileId(3)).len(), flow.placed(FileId(3)).len()), (2, 0));
        // What was on its way before the news arrives as it was counted.
        assert!(flow.arrive(NEW).is_empty() && flow.arrive(NEW).is_empty());
        assert!(flow.places.is_empty());
    }

    #[test]
    fn where_the_sink_has_one_target_nothing_is_counted() {
        let mut flow = Flow::new(false, 1);
        assert_eq!(fill(&mut flow, A), 1_000);
        assert!(flow.places.is_empty());
    }
}
