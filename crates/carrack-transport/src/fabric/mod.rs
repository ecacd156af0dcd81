//! Objects over RMA, as LADS moves them (L4): the source offers an object, the sink reads it into a slot of its own and
//! says that it has it. One [`Hub`] at each end serves all streams of a lane over one fabric endpoint; the streams' ends are
//! driven by I/O threads and the comm thread as those of any other transport.
//!
//! A hub is turned by one thread (a lane's comm thread), which never waits in it. Both ends know each other's endpoint by
//! name, which the control channel has carried. The lane's TCP connections stand aside: their secrets seal the objects, a byte on
//! one of them wakes the other end where its provider can't, and they end when the other process does.
//!
//! | room | what is there |
//! | --- | --- |
//! | `message` | what the hubs say to each other |
//! | `wire` | the endpoint, what waits to be said, and when to look again |
//! | `bell` | the TCP connections that stand aside |
//! | `source`, `sink` | the two hubs |
//! | `ends` | the streams' ends, which seal and open |
//! | `lane` | a lane's endpoint, from its opening to its hub |
//! | `survey` | what libfabric offers here |
//!
//! Without the cargo feature `fabric` there is only the reason why there is none.

#[cfg(feature = "fabric")]
mod bell;
#[cfg(feature = "fabric")]
mod ends;
#[cfg(feature = "fabric")]
mod lane;
#[cfg(feature = "fabric")]
mod message;
#[cfg(feature = "fabric")]
mod sink;
#[cfg(feature = "fabric")]
mod source;
mod survey;
#[cfg(feature = "fabric")]
mod wire;

#[cfg(not(feature = "fabric"))]
#[path = "lane_absent.rs"]
mod lane;

use std::net::IpAddr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use carrack_machine::NodeSet;
use rustix::event::PollFlags;

use crate::endpoint::{ReceiveEndpoint, SendEndpoint, TransportError};
use crate::seal::Seal;

pub use lane::OpenLane;
pub use survey::{Offered, is_installed_device, library, offers, usable_offers};

/// Objects of a stream that may be offered and not taken: what a long path or a sink at work holds back.
pub const WINDOW: usize = 16;

/// Slots that sealed objects of one stream can be in at a time: those that are offered, and those on their way to that.
pub const SEALED_SLOTS: usize = WINDOW + 3;

/// What moves a lane's objects behind its endpoints. Dropped, it withdraws the memory that the other end could read.
pub trait Hub: Send {
    /// Goes on with what there is, without waiting. Says for how long it may be left alone if none of its descriptors is
    /// ready.
    ///
    /// # Errors
    /// The provider's, or the other end's: the session is over.
    fn turn(&mut self) -> Result<Duration, TransportError>;

    /// Ready, as `poll` says it, when it is to be turned.
    fn readiness(&self) -> Vec<(BorrowedFd<'_>, PollFlags)>;
}

/// A source's hub, and the ends of its streams.
pub type SourceLane = (Box<dyn Hub>, Vec<Box<dyn SendEndpoint>>);

/// A sink's hub, and the ends of its streams.
pub type SinkLane = (Box<dyn Hub>, Vec<Box<dyn ReceiveEndpoint>>);

/// A stream's TCP connection, which stands aside, and what seals the stream's objects.
pub struct Aside {
    /// Connected to the other end.
    pub socket: OwnedFd,
    /// Nothing where objects are clear.
    pub seal: Option<Seal>,
}

/// What an endpoint is wanted on.
#[derive(Clone, Debug)]
pub struct Wanted<'a> {
    /// As libfabric names it.
    pub provider: &'a str,
    /// The network that both ends are on, as libfabric names it; empty for any.
    pub network: &'a str,
    /// The address of this host that the other end reaches.
    pub source: Option<IpAddr>,
    /// NUMA nodes whose NIC is preferred.
    pub nodes: &'a NodeSet,
}
