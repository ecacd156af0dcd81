//! A lane at one end, as the spill sees it.

use std::hash::Hash;

use carrack_machine::Slot;
use carrack_model::ObjectId;
use carrack_plan::SpillVerdict;
use carrack_wire::FrameHeader;

use crate::error::SessionError;

/// Slots for what comes back: enough that the disk reads while objects go on.
pub(crate) const STAGING_SLOTS: usize = 8;

/// Bytes in objects, from the beginning of a session.
#[derive(Clone, Copy)]
pub(crate) struct Moved {
    /// Into slots, from storage or from the network.
    pub(crate) came: u64,
    /// To where they go next.
    pub(crate) went: u64,
}

/// A lane at one end: what waits there, and where it goes on.
pub(crate) trait SpillSide {
    /// Where an object goes, as far as places have room of their own.
    type Place: Copy + Eq + Hash;

    /// Bytes that came and went so far.
    fn moved(&self) -> Moved;

    /// The part of those who fill slots that wait for one, 0 to 1.
    fn held_back(&self) -> f64;

    /// Takes the youngest object that waits, if it is in a slot, `fit`, and more wait than are needed to go on meanwhile. What has
    /// come back stays.
    fn take_youngest(&self, fit: &dyn Fn(&FrameHeader) -> bool) -> Option<(Self::Place, FrameHeader, Slot)>;

    /// It waits as before.
    fn put_back(&self, place: Self::Place, header: FrameHeader, slot: Slot);

    /// It is on flash, and its slot is free.
    fn set_aside(&self, place: Self::Place, object: ObjectId);

    /// Whether an object may come back that goes there.
    fn has_room(&self, place: Self::Place) -> bool;

    /// One will.
    fn departs(&self, place: Self::Place);

    /// It waits again, before all others.
    fn bring_back(&self, place: Self::Place, header: FrameHeader, slot: Slot) -> Result<(), SessionError>;

    /// It will not come back: the source reads it again.
    fn lost(&self, object: ObjectId);

    /// What comes goes there from now on; or it does not any more.
    fn opened(&self, is_open: bool);

    /// What a verdict means here, for people.
    fn words(&self, verdict: SpillVerdict) -> &'static str;

    /// To the user, with `-v`.
    fn tell(&self, text: String);

    /// Ends the session.
    fn raise(&self, error: SessionError);
}
