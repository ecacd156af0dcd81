//! Objects that wait at the source for credits, and may lie on flash meanwhile (L9).

use std::sync::atomic::Ordering::Relaxed;

use carrack_machine::Slot;
use carrack_model::ObjectId;
use carrack_plan::SpillVerdict;
use carrack_transport::{ObjectPayload, OutgoingObject};
use carrack_wire::FrameHeader;

use super::lane::SourceLane;
use super::sender;
use super::work::ObjectFlowControlKey;
use crate::error::SessionError;
use crate::spill::{LaneByteFlow, LaneWaitingObjects};

/// The number of objects for each connection that never go to flash.
const KEPT_FOR_EACH_STREAM: usize = 2;

impl LaneWaitingObjects for SourceLane<'_> {
    type Place = Option<ObjectFlowControlKey>;

    fn byte_flow(&self) -> LaneByteFlow {
        LaneByteFlow { came: self.counters.bytes_read.load(Relaxed), went: self.send_queue.departed_bytes() }
    }

    /// Idle readers are held back too, if work waits only for room at the sink.
    fn waiting_thread_fraction(&self) -> f64 {
        let (unoccupied, is_parking) = (self.read_queue.waiter_count(), self.read_queue.is_parking());
        let parked = if is_parking { unoccupied } else { 0 };
        let waiting = self.pool.waiter_count() + self.send_queue.waiter_count() + parked;
        let busy = self.read_queue.reader_count().saturating_sub(unoccupied - parked);
        waiting.min(busy) as f64 / busy.max(1) as f64
    }

    fn take_youngest(
        &self,
        fit: &dyn Fn(&FrameHeader) -> bool,
    ) -> Option<(Option<ObjectFlowControlKey>, FrameHeader, Slot)> {
        let kept = KEPT_FOR_EACH_STREAM * self.send_queue.endpoint_count.max(1);
        let (header, slot) = self.send_queue.take_last(kept, fit)?;
        Some((self.flow_control_key(header.object), header, slot))
    }

    fn put_back(&self, _place: Option<ObjectFlowControlKey>, header: FrameHeader, slot: Slot) {
        self.send_queue.put_last(header, slot);
    }

    /// The object is no longer in flight to its place: others may be.
    fn set_aside(&self, place: Option<ObjectFlowControlKey>, _object: ObjectId) {
        self.read_queue.release_in_flight(place);
    }

    fn has_room(&self, place: Option<ObjectFlowControlKey>) -> bool {
        place.is_none_or(|place| self.read_queue.has_room_at_sink(place))
    }

    fn count_returning(&self, place: Option<ObjectFlowControlKey>) {
        place.into_iter().for_each(|place| self.read_queue.count_in_flight(place));
    }

    fn requeue_first(
        &self,
        _place: Option<ObjectFlowControlKey>,
        header: FrameHeader,
        slot: Slot,
    ) -> Result<(), SessionError> {
        let outgoing = OutgoingObject { header, payload: ObjectPayload::Slot(slot) };
        let departure = self.send_queue.enqueue_first(outgoing, || self.mail.wake());
        sender::drive(self, departure)
    }

    fn handle_lost_object(&self, object: ObjectId) {
        self.withdraw(object);
    }

    /// Reads on without regard to room at the sink.
    fn set_spilling(&self, is_open: bool) {
        self.read_queue.lift_flow(is_open);
    }

    fn verdict_text(&self, verdict: SpillVerdict) -> &'static str {
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

    fn report_text(&self, text: String) {
        self.source.camp.add_notice(text);
    }

    fn raise(&self, error: SessionError) {
        self.fault.raise(error, self);
    }
}
