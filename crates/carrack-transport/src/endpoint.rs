//! The seam between the engine and the transports.

use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use carrack_machine::{Slot, SlotPool};
use carrack_wire::{FrameError, FrameHeader};

use crate::gauge::Gauge;
use crate::seal::SealBroken;

/// How long a call may wait for the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// Not at all: for the comm thread.
    None,
    /// About [`Patience::BRIEF_MS`]: for an I/O thread that has nothing better to do.
    Brief,
}

impl Patience {
    /// Long enough that a thread stays with a stream that pauses (20 ms were too short where both ends share two cores:
    /// streams went to the comm thread and objects left their core's cache), short enough that it soon sees that the
    /// session has ended.
    pub const BRIEF_MS: u64 = 100;
}

/// An object on its way out.
#[derive(Debug)]
pub struct Outgoing {
    /// Its header.
    pub header: FrameHeader,
    /// Its body, of `header.body_len` bytes.
    pub payload: Payload,
}

/// Where an object's body is until the transport has sent it.
pub enum Payload {
    /// At the start of a slot.
    Slot(Slot),
    /// Still in its file, at `header.offset`. Only for endpoints that [send extents](SendEndpoint::sends_extents).
    Extent(Arc<dyn ExtentFile>),
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Payload::Slot(slot) => slot.fmt(f),
            Payload::Extent(file) => write!(f, "Extent({:?})", file.descriptor()),
        }
    }
}

/// A file whose extents an endpoint sends by itself, from the page cache and without a copy into a slot.
pub trait ExtentFile: Send + Sync {
    /// Open for reading; its position is left alone.
    fn descriptor(&self) -> BorrowedFd<'_>;

    /// An extent could not be sent as it should: the file has shrunk, or can't be read this way. What was missing
    /// went out as zeros, so that the stream goes on; the file has to be sent again.
    fn spoilt(&self);
}

/// An object that arrived. The body is the first `header.body_len` bytes of the slot, not checked yet.
#[derive(Debug)]
pub struct Incoming {
    /// Its header, checked for layout and limits only.
    pub header: FrameHeader,
    /// Its body.
    pub slot: Slot,
}

impl Incoming {
    /// The body.
    pub fn body(&self) -> &[u8] {
        &self.slot.bytes()[..self.header.body_len as usize]
    }
}

/// What a sending endpoint is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendState {
    /// Nothing is left to send; the slot is back in its pool.
    Idle,
    /// The other end doesn't take more at present.
    Busy,
}

/// What a receiving endpoint found.
#[derive(Debug)]
pub enum Received {
    /// A whole object.
    Object(Incoming),
    /// Nothing (more) at present.
    Pending,
    /// The other end closed the endpoint after its last object.
    Closed,
}

/// Why an endpoint can't go on. All of them end the session.
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    /// The connection broke.
    #[error("the data connection broke: {0}")]
    Io(#[from] std::io::Error),
    /// The other end closed in the middle of an object.
    #[error("the data connection was closed in the middle of an object")]
    Truncated,
    /// A connection was closed between two objects, and it is not the end.
    #[error("a data connection was closed before all was sent")]
    ClosedEarly,
    /// The other end sent what is not a frame.
    #[error("the peer broke the protocol: {0}")]
    Frame(#[from] FrameError),
    /// The other end sent an object without a credit.
    #[error("the peer broke the protocol: an object without a credit")]
    NoCredit,
    /// An object was changed on its way, or is not the one that was sent.
    #[error("{0}")]
    Seal(#[from] SealBroken),
    /// A control frame on a data connection.
    #[error("the peer broke the protocol: a control message on a data connection")]
    ControlOnData,
}

/// The source's end.
pub trait SendEndpoint: Send {
    /// Whether it seals what it sends, which takes its time: for threads that may take it.
    fn seals(&self) -> bool {
        false
    }

    /// Whether it takes [`Payload::Extent`].
    fn sends_extents(&self) -> bool {
        false
    }

    /// Takes an object, or gives it back while another is under way: "full" is flow control, not an error. An extent
    /// is given back by an endpoint that doesn't send extents.
    fn post(&mut self, outgoing: Outgoing) -> Result<(), Outgoing>;

    /// Moves on with what was posted.
    fn advance(&mut self, patience: Patience) -> Result<SendState, TransportError>;

    /// Writable, as `poll` says it, when a `Busy` endpoint may move on.
    fn readiness(&self) -> BorrowedFd<'_>;

    /// Says that no object follows. Only while idle.
    fn finish(&mut self) -> Result<(), TransportError>;

    /// Shows what the kernel knows of it to those that don't drive it; nothing if there is no kernel's connection.
    fn gauge(&self) -> Option<Gauge> {
        None
    }
}

/// The sink's end.
pub trait ReceiveEndpoint: Send {
    /// Receives on, leasing a slot when an object begins.
    fn advance(&mut self, patience: Patience, slots: &SlotPool) -> Result<Received, TransportError>;

    /// Readable when a `Pending` endpoint may move on.
    fn readiness(&self) -> BorrowedFd<'_>;

    /// From now on the bytes that arrive are added to `arrived`, as they do. An endpoint on which objects arrive whole need
    /// not.
    fn count_in(&mut self, arrived: Arc<AtomicU64>) {
        let _ = arrived;
    }

    /// Whether an object has begun to arrive and is not whole.
    fn is_midway(&self) -> bool {
        false
    }
}
