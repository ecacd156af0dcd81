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

/// Objects that a place may have on its way, however many others want some: one that is written and one that follows.
const SHARE_MIN: u64 = 2;

/// The objects on their way, by place. Without a sink that has several targets it counts nothing.
pub(super) struct Flow {
    is_on: bool,
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
        Flow { is_on, credits: credits.into(), places: HashMap::new() }
    }

    pub(super) fn is_on(&self) -> bool {
        self.is_on
    }

    /// Whether one more object may go there.
    pub(super) fn has_room(&self, place: Place) -> bool {
        let in_flight = self.places.get(&place).map_or(0, |going| going.in_flight);
        let others = self.places.len() - usize::from(self.places.contains_key(&place));
        !self.is_on || in_flight < (self.credits / (others as u64 + 1)).max(SHARE_MIN)
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

    /// One object has come to its end; returns what may go on.
    pub(super) fn arrive(&mut self, place: Place) -> Option<(TargetId, Job)> {
        let going = self.places.get_mut(&place)?;
        going.in_flight = going.in_flight.saturating_sub(1);
        let next = going.parked.pop();
        if going.in_flight == 0 && going.parked.is_empty() {
            self.places.remove(&place);
        }
        next
    }

    /// It is known now where the file lies: everything that waited for room to it may look again.
    pub(super) fn placed(&mut self, file: FileId) -> Vec<(TargetId, Job)> {
        let going = self.places.get_mut(&Place::File(file));
        going.map(|going| std::mem::take(&mut going.parked)).unwrap_or_default()
    }
}
