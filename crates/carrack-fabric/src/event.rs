//! What goes into an endpoint and what comes out of it.

use carrack_machine::{Slot, SlotPool};

use crate::core::Place;
use crate::error::{FabricError, Scope};
use crate::offer::Description;

/// How much an endpoint may have under way. Less where the provider takes less.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Reads, writes and messages of ours.
    pub operations: usize,
    /// Messages of peers that may arrive before they are polled.
    pub receives: usize,
    /// Bytes of the largest message.
    pub message_bytes: usize,
    /// Notices of peers' writes that may arrive before they are polled: as many as they have credits.
    pub notices: usize,
}

impl Default for Limits {
    /// For a lane of 64 slots under way, each with a message there and back.
    fn default() -> Limits {
        Limits { operations: 128, receives: 64, message_bytes: 4096, notices: 128 }
    }
}

impl Limits {
    pub(crate) fn within(self, description: &Description) -> Limits {
        let at_most =
            |wish: usize, granted: u64| wish.clamp(1, usize::try_from(granted).unwrap_or(usize::MAX).max(1));
        Limits {
            operations: at_most(self.operations, description.send_operations),
            receives: at_most(self.receives, description.receive_operations),
            ..self
        }
    }

    pub(crate) fn message_pool(&self) -> Result<SlotPool, FabricError> {
        let bytes = self.message_bytes.max(1).next_multiple_of(4096);
        let pool = SlotPool::new(((self.operations + self.receives) * bytes) as u64, bytes);
        pool.map_err(|error| FabricError::ours("memory for messages", error.to_string(), Scope::Endpoint))
    }
}

/// What an RMA operation moves: `bytes` of a slot, from `at` on, to or from a place at the peer.
#[derive(Debug)]
pub struct Transfer {
    /// The operation's until it is over.
    pub slot: Slot,
    /// Where in the slot.
    pub at: usize,
    /// How many bytes; not 0.
    pub bytes: usize,
    /// Where at the peer.
    pub place: Place,
    /// Comes back with the completion.
    pub tag: u64,
}

/// What happened.
#[derive(Debug)]
pub enum Event {
    /// A message of a peer.
    Message(Vec<u8>),
    /// A message was sent, or could not be.
    Sent {
        /// The caller's.
        tag: u64,
        /// Whether it has left; the peer may not have it yet.
        result: Result<(), FabricError>,
    },
    /// An RMA read is over.
    Read {
        /// The caller's.
        tag: u64,
        /// The transfer's.
        slot: Slot,
        /// Whether the bytes are in the slot.
        result: Result<(), FabricError>,
    },
    /// An RMA write is over.
    Written {
        /// The caller's.
        tag: u64,
        /// The transfer's.
        slot: Slot,
        /// Whether the bytes are in the peer's memory.
        result: Result<(), FabricError>,
    },
    /// A peer wrote to a window and left this notice.
    PeerWrote(u64),
    /// A message was lost: too long, or its connection broke.
    ReceiveFailed(FabricError),
}

/// Why an operation was not begun. The slot comes back.
#[derive(Debug)]
pub enum Refused {
    /// As many as there may be are under way: poll, and try again.
    Full(Slot),
    /// It can't be done.
    Failed(Slot, FabricError),
}
