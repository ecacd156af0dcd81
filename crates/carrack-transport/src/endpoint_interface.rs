//! The interface between the engine and the transports.

use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use carrack_machine::{Slot, SlotPool};
use carrack_wire::{FrameError, FrameHeader};

use crate::gauge::TcpStateReader;
use crate::seal::SealBroken;

/// The time that a call may wait for the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndpointWaitLimit {
    /// No time: for the comm thread.
    None,
    /// About [`EndpointWaitLimit::BRIEF_MS`]: for an I/O thread without other work.
    Brief,
}

impl EndpointWaitLimit {
    /// Long enough that a thread stays with a stream that pauses, short enough that the thread soon sees the
    /// end of the session. With 20 ms, where both ends share two cores, streams went to the comm thread and
    /// objects left their core's cache.
    pub const BRIEF_MS: u64 = 100;
}

/// An object to send.
#[derive(Debug)]
pub struct OutgoingObject {
    /// Its header.
    pub header: FrameHeader,
    /// Its body, of `header.body_len` bytes.
    pub payload: ObjectPayload,
}

/// The location of an object's body until the transport has sent it.
pub enum ObjectPayload {
    /// At the start of a slot.
    Slot(Slot),
    /// Still in its file, at `header.offset`. Only for endpoints that [send
    /// extents](TransportSendEndpoint::sends_extents).
    Extent(Arc<dyn SendfileSourceFile>),
}

impl fmt::Debug for ObjectPayload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ObjectPayload::Slot(slot) => slot.fmt(f),
            ObjectPayload::Extent(file) => write!(f, "Extent({:?})", file.descriptor()),
        }
    }
}

/// A file whose extents an endpoint sends from the page cache, without a copy into a slot.
pub trait SendfileSourceFile: Send + Sync {
    /// The file, open for reading. The endpoint does not move its position.
    fn descriptor(&self) -> BorrowedFd<'_>;

    /// Reports that an extent was not sent as it is in the file: the file has shrunk, or does not support
    /// this way of reading. The endpoint sends zeros in place of the missing bytes, to keep the stream in
    /// order. The file must be sent again.
    fn report_failed_extent(&self);
}

/// An object that arrived. The body is the first `header.body_len` bytes of the slot, not checked yet.
#[derive(Debug)]
pub struct IncomingObject {
    /// Its header, checked for layout and limits only.
    pub header: FrameHeader,
    /// Its body.
    pub slot: Slot,
}

impl IncomingObject {
    /// The body.
    pub fn body(&self) -> &[u8] {
        &self.slot.bytes()[..self.header.body_len as usize]
    }
}

/// The state of a sending endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SenderReadiness {
    /// Nothing is left to send; the slot is back in its pool.
    Idle,
    /// The other end doesn't take more at present.
    Busy,
}

/// The result of an attempt to receive.
#[derive(Debug)]
pub enum ReceiveResult {
    /// A whole object.
    Object(IncomingObject),
    /// No whole object at present.
    Pending,
    /// The other end closed the endpoint after its last object.
    Closed,
}

/// The reason why an endpoint failed. All of them end the session.
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    /// The connection broke.
    #[error("the data connection broke: {0}")]
    Io(#[from] std::io::Error),
    /// The other end closed in the middle of an object.
    #[error("the data connection was closed in the middle of an object")]
    Truncated,
    /// A connection was closed between two objects, before the end of the stream.
    #[error("a data connection was closed before all was sent")]
    ClosedEarly,
    /// The other end sent bytes that are not a frame.
    #[error("the peer broke the protocol: {0}")]
    Frame(#[from] FrameError),
    /// The other end sent an object without a credit.
    #[error("the peer broke the protocol: an object without a credit")]
    NoCredit,
    /// An object was changed on its way, or is not the object that was sent.
    #[error("{0}")]
    Seal(#[from] SealBroken),
    /// A control frame on a data connection.
    #[error("the peer broke the protocol: a control message on a data connection")]
    ControlOnData,
}

/// The source's end.
pub trait TransportSendEndpoint: Send {
    /// Returns true if the endpoint seals objects. Sealing takes CPU time: not for the comm thread.
    fn seals(&self) -> bool {
        false
    }

    /// Returns true if the endpoint takes [`ObjectPayload::Extent`].
    fn sends_extents(&self) -> bool {
        false
    }

    /// Takes an object, or gives it back while another object is under way: "full" is flow control, not an
    /// error. An endpoint that doesn't send extents gives an extent back.
    fn post(&mut self, outgoing: OutgoingObject) -> Result<(), OutgoingObject>;

    /// Sends more of the posted object.
    fn advance(&mut self, patience: EndpointWaitLimit) -> Result<SenderReadiness, TransportError>;

    /// A descriptor that `poll` reports as writable when a `Busy` endpoint can send more.
    fn readiness(&self) -> BorrowedFd<'_>;

    /// Marks the end of the stream. Only while idle.
    fn finish(&mut self) -> Result<(), TransportError>;

    /// Returns the kernel's view of the connection, for threads that don't drive the endpoint. `None` for a
    /// transport without a kernel connection.
    fn tcp_state_reader(&self) -> Option<TcpStateReader> {
        None
    }
}

/// The sink's end.
pub trait ReceiveEndpoint: Send {
    /// Receives more bytes, and leases a slot when an object begins.
    fn advance(
        &mut self,
        patience: EndpointWaitLimit,
        slots: &SlotPool,
    ) -> Result<ReceiveResult, TransportError>;

    /// A descriptor that is readable when a `Pending` endpoint can receive more.
    fn readiness(&self) -> BorrowedFd<'_>;

    /// Adds all bytes that arrive from now on to `arrived`. Optional for an endpoint on which objects arrive
    /// whole.
    fn count_received_bytes(&mut self, arrived: Arc<AtomicU64>) {
        let _ = arrived;
    }

    /// Returns true while an object has arrived in part.
    fn is_midway(&self) -> bool {
        false
    }
}
