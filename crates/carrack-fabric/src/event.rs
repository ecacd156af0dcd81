//! The requests to an endpoint and its events.

use carrack_machine::{Slot, SlotPool};

use crate::core::RemoteMemory;
use crate::error::{FabricError, FabricErrorScope};
use crate::offer::FabricInterfaceProperties;

/// The limits on operations under way. The provider may grant less.
#[derive(Clone, Copy, Debug)]
pub struct EndpointOperationLimits {
    /// Reads, writes and messages of this end.
    pub operations: usize,
    /// Messages of peers that may arrive between two polls.
    pub receives: usize,
    /// Bytes of the largest message.
    pub message_bytes: usize,
    /// Notices of peers' writes that may arrive between two polls: as many as the peers have credits.
    pub notices: usize,
}

impl Default for EndpointOperationLimits {
    /// For a lane of 64 slots under way, each with a message in both directions.
    fn default() -> EndpointOperationLimits {
        EndpointOperationLimits { operations: 128, receives: 64, message_bytes: 4096, notices: 128 }
    }
}

impl EndpointOperationLimits {
    pub(crate) fn limited_by(self, description: &FabricInterfaceProperties) -> EndpointOperationLimits {
        EndpointOperationLimits {
            operations: at_most(self.operations, description.send_operations),
            receives: at_most(self.receives, description.receive_operations),
            ..self
        }
    }

    pub(crate) fn message_pool(&self) -> Result<SlotPool, FabricError> {
        let bytes = self.message_bytes.max(1).next_multiple_of(4096);
        let pool = SlotPool::new(((self.operations + self.receives) * bytes) as u64, bytes);
        pool.map_err(|error| {
            FabricError::own_error("memory for messages", error.to_string(), FabricErrorScope::Endpoint)
        })
    }
}

fn at_most(wanted: usize, granted: u64) -> usize {
    wanted.clamp(1, usize::try_from(granted).unwrap_or(usize::MAX).max(1))
}

/// An RMA operation: `bytes` of a slot from `at` on, to or from a location at the peer.
#[derive(Debug)]
pub struct RmaTransfer {
    /// The slot, which the operation owns until its completion.
    pub slot: Slot,
    /// The offset in the slot.
    pub at: usize,
    /// The number of bytes, at least 1.
    pub bytes: usize,
    /// The location at the peer.
    pub place: RemoteMemory,
    /// Returned with the completion.
    pub tag: u64,
}

/// An event of an endpoint.
#[derive(Debug)]
pub enum EndpointEvent {
    /// A message of a peer.
    Message(Vec<u8>),
    /// A message was sent, or its sending failed.
    Sent {
        /// The caller's tag.
        tag: u64,
        /// Success means that the message has left. The peer may not have it yet.
        result: Result<(), FabricError>,
    },
    /// An RMA read is over.
    Read {
        /// The caller's tag.
        tag: u64,
        /// The transfer's slot.
        slot: Slot,
        /// Success means that the bytes are in the slot.
        result: Result<(), FabricError>,
    },
    /// An RMA write is over.
    Written {
        /// The caller's tag.
        tag: u64,
        /// The transfer's slot.
        slot: Slot,
        /// Success means that the bytes are in the peer's memory.
        result: Result<(), FabricError>,
    },
    /// A peer wrote to a window and left this notice.
    PeerWrote(u64),
    /// A message was lost: too long, or its connection broke.
    ReceiveFailed(FabricError),
}

/// The reason why an operation was not posted. Carries the slot back.
#[derive(Debug)]
pub enum FabricPostRefusal {
    /// The limit of operations is reached: poll, then try again.
    Full(Slot),
    /// The operation is invalid, or the library refused it.
    Failed(Slot, FabricError),
}
