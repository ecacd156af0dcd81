//! The spill's interface to a lane at one end.

use std::hash::Hash;

use carrack_machine::Slot;
use carrack_model::ObjectId;
use carrack_plan::SpillVerdict;
use carrack_wire::FrameHeader;

use crate::error::SessionError;

/// Slots for objects that are read back: enough that the disk reads while objects leave.
pub(crate) const STAGING_SLOTS: usize = 8;

/// Bytes of objects since the start of a session.
#[derive(Clone, Copy)]
pub(crate) struct LaneByteFlow {
    /// Into slots, from storage or from the network.
    pub(crate) came: u64,
    /// From there to the network or to storage.
    pub(crate) went: u64,
}

/// A lane at one end: its waiting objects, and their places.
pub(crate) trait LaneWaitingObjects {
    /// The place to which an object goes, if places have separate room.
    type Place: Copy + Eq + Hash;

    /// Returns the bytes so far.
    fn byte_flow(&self) -> LaneByteFlow;

    /// Returns the part of the threads that fill slots, from 0 to 1, which wait for a slot.
    fn waiting_thread_fraction(&self) -> f64;

    /// Takes the youngest waiting object if it is in a slot, `fit` accepts it, and enough others wait to keep
    /// the lane busy. Objects that were read back stay.
    fn take_youngest(&self, fit: &dyn Fn(&FrameHeader) -> bool) -> Option<(Self::Place, FrameHeader, Slot)>;

    /// Returns the object to the queue.
    fn put_back(&self, place: Self::Place, header: FrameHeader, slot: Slot);

    /// Notes that the object is on flash, and its slot is free.
    fn set_aside(&self, place: Self::Place, object: ObjectId);

    /// Returns true if an object of that place may be read back.
    fn has_room(&self, place: Self::Place) -> bool;

    /// Notes that an object of that place will be read back.
    fn count_returning(&self, place: Self::Place);

    /// Adds the object before all others.
    fn requeue_first(&self, place: Self::Place, header: FrameHeader, slot: Slot) -> Result<(), SessionError>;

    /// Notes that the object is lost: the source reads it again.
    fn handle_lost_object(&self, object: ObjectId);

    /// Notes the start or the end of the use of flash.
    fn set_spilling(&self, is_open: bool);

    /// Returns the text for a verdict.
    fn verdict_text(&self, verdict: SpillVerdict) -> &'static str;

    /// Delivers a text to the user, with `-v`.
    fn report_text(&self, text: String);

    /// Ends the session.
    fn raise(&self, error: SessionError);
}
