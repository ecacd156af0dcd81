//! What waits at the source for the sink to take it, and may lie on flash meanwhile (L9).

use std::sync::atomic::Ordering::Relaxed;

use carrack_machine::Slot;
use carrack_model::ObjectId;
use carrack_plan::SpillVerdict;
use carrack_transport::{Outgoing, Payload};
use carrack_wire::FrameHeader;

use super::flow::Place;
use super::lane::Lane;
use super::reader;
use crate::error::SessionError;
use crate::spill::{Moved, SpillSide};

/// Objects that stay ready for each stream, whatever comes.
const KEPT_FOR_EACH_STREAM: usize = 2;

impl SpillSide for Lane<'_> {
    type Place = Option<Place>;

    fn moved(&self) -> Moved {
        Moved { came: self.counters.bytes_read.load(Relaxed), went: self.outbox.left_bytes() }
    }

    /// Who finds nothing to do because the sink has no room for it is held back, too.
    fn held_back(&self) -> f64 {
        let (unoccupied, is_parking) =
            (self.queue.waiter_count(), self.queue.with(|queue| queue.is_parking()));
        let parked = if is_parking { unoccupied } else { 0 };
        let waiting = self.pool.waiter_count() + self.outbox.waiter_count() + parked;
        let busy = self.readers.open_to().saturating_sub(unoccupied - parked);
        waiting.min(busy) as f64 / busy.max(1) as f64
    }

    fn take_youngest(
        &self,
        fit: &dyn Fn(&FrameHeader) -> bool,
    ) -> Option<(Option<Place>, FrameHeader, Slot)> {
        let kept = KEPT_FOR_EACH_STREAM * self.outbox.endpoint_count.max(1);
        let (header, slot) = self.outbox.take_last(kept, fit)?;
        Some((self.place_of(header.object), header, slot))
    }

    fn put_back(&self, _place: Option<Place>, header: FrameHeader, slot: Slot) {
        self.outbox.put_last(header, slot);
    }

    /// On its way it is not any more: others may be.
    fn set_aside(&self, place: Option<Place>, _object: ObjectId) {
        self.arrived(place);
    }

    fn has_room(&self, place: Option<Place>) -> bool {
        place.is_none_or(|place| self.queue.with(|queue| queue.has_room_at_sink(place)))
    }

    fn departs(&self, place: Option<Place>) {
        place.into_iter().for_each(|place| self.queue.with(|queue| queue.departs(place)));
    }

    fn bring_back(&self, _place: Option<Place>, header: FrameHeader, slot: Slot) -> Result<(), SessionError> {
        let outgoing = Outgoing { header, payload: Payload::Slot(slot) };
        let departure = self.outbox.bring_first(outgoing, || self.mail.wake());
        reader::drive(self, departure)
    }

    fn lost(&self, object: ObjectId) {
        self.withdraw(object);
    }

    /// What is read goes there, whether the sink has room for it or not.
    fn opened(&self, is_open: bool) {
        self.queue.release_many(self.io_threads, |queue| queue.lift_flow(is_open));
    }

    fn words(&self, verdict: SpillVerdict) -> &'static str {
        match verdict {
            SpillVerdict::Unneeded => "objects leave again as usual",
            SpillVerdict::Spill => "less leaves than usual and slots are full: reading on into it",
            SpillVerdict::Pointless => {
                "less leaves than usual, but more than the way takes is read anyway: left alone"
            }
            SpillVerdict::TooSlow => "it writes slower than the source reads: not used any more",
            SpillVerdict::WornOut => "as much was written as may be: not used any more",
        }
    }

    fn tell(&self, text: String) {
        self.source.camp.tell(text);
    }

    fn raise(&self, error: SessionError) {
        self.fault.raise(error, self);
    }
}
