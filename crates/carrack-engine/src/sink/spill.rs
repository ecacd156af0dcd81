//! The sink's spill: objects that wait for its storage, and may lie on flash meanwhile (L9). The threads
//! `carrack-spill` and `carrack-refill` use it.

use carrack_machine::Slot;
use carrack_model::{ObjectId, TargetId};
use carrack_plan::SpillVerdict;
use carrack_transport::IncomingObject;
use carrack_wire::FrameHeader;

use super::ack_batch::ObjectOutcome;
use super::lane::SinkLane;
use crate::error::SessionError;
use crate::spill::{LaneByteFlow, LaneWaitingObjects, STAGING_SLOTS};

/// The credits are used up if less than this part of them is with the source: some are always on the way
/// there.
const FREE_PART: usize = 16;

/// Objects that keep the storage busy stay in slots: one for each thread, but no more than this part of the
/// slots.
const KEPT_PART: usize = 4;

/// Objects of one target that are read back at a time. A congested target leaves slots for the objects of
/// others.
const BACK_AT_A_TIME: usize = STAGING_SLOTS / 2;

impl LaneWaitingObjects for SinkLane<'_> {
    type Place = TargetId;

    fn byte_flow(&self) -> LaneByteFlow {
        self.queue.byte_flow()
    }

    /// The source waits for credits: there are as many as slots, and the objects that wait here hold them.
    fn waiting_thread_fraction(&self) -> f64 {
        let credits = self.pool.slot_count();
        let taken = self.queue.object_count();
        f64::from(u8::from(credits.saturating_sub(taken) * FREE_PART < credits))
    }

    fn take_youngest(&self, fit: &dyn Fn(&FrameHeader) -> bool) -> Option<(TargetId, FrameHeader, Slot)> {
        let kept = self.queue.writer_count().min(self.pool.slot_count() / KEPT_PART);
        let taken = self.queue.take_youngest(kept, |incoming| {
            fit(&incoming.header) && !self.spills.iter().any(|spill| spill.has_brought_back(&incoming.slot))
        });
        let (target, IncomingObject { header, slot }) = taken?;
        Some((target, header, slot))
    }

    fn put_back(&self, place: TargetId, header: FrameHeader, slot: Slot) {
        self.queue.put_back(place, IncomingObject { header, slot });
    }

    /// The source gets its credit back.
    fn set_aside(&self, _place: TargetId, object: ObjectId) {
        self.add_ack(object.0, ObjectOutcome::SetAside);
    }

    fn has_room(&self, place: TargetId) -> bool {
        self.queue.waiting_for(place) < BACK_AT_A_TIME
    }

    fn count_returning(&self, _place: TargetId) {}

    fn requeue_first(&self, place: TargetId, header: FrameHeader, slot: Slot) -> Result<(), SessionError> {
        self.queue.requeue_first(place, IncomingObject { header, slot });
        Ok(())
    }

    fn handle_lost_object(&self, object: ObjectId) {
        self.add_ack(object.0, ObjectOutcome::Corrupt);
    }

    fn set_spilling(&self, _is_open: bool) {}

    fn verdict_text(&self, verdict: SpillVerdict) -> &'static str {
        match verdict {
            SpillVerdict::Unneeded => "objects are written again as usual",
            SpillVerdict::Spill => "less is written than usual and slots are full: receiving on into it",
            SpillVerdict::Pointless => {
                "less is written than usual, but more than the storage takes comes anyway: left alone"
            }
            SpillVerdict::TooSlow => "it writes slower than objects come: not used any more",
            SpillVerdict::WornOut => "as much was written as may be: not used any more",
        }
    }

    fn report_text(&self, text: String) {
        self.sink.reporting.add_notice(text);
    }

    fn raise(&self, error: SessionError) {
        self.fault.raise(error, self);
    }
}
