//! Objects over RMA, as LADS moves them (L4): the source offers an object, the sink reads it into its own
//! slot and acknowledges it. One [`FabricProgressEngine`] at each end serves all streams of a lane over one
//! fabric endpoint. I/O threads and the comm thread drive the streams' endpoints as for any other transport.
//!
//! A lane's comm thread drives the hub and never waits in it. Each end knows the other endpoint's name from
//! the control channel. The lane's TCP connections carry no objects: their secrets seal the objects, a byte
//! on the first wakes the other end where the provider can't, and their closing shows that the other process
//! is gone.
//!
//! | module | content |
//! | --- | --- |
//! | `message` | the messages between the hubs |
//! | `hub_endpoint` | the endpoint, its unsent messages, and the time of the next poll |
//! | `wakeup_connections` | the TCP connections without objects |
//! | `source`, `sink` | the two hubs |
//! | `stream_endpoints` | the streams' endpoints, which seal and open |
//! | `unconnected_lane` | a lane's fabric endpoint, from its opening to its hub |
//! | `survey` | libfabric's offers on this host |
//!
//! Without the cargo feature `fabric`, every call fails with the reason.

#[cfg(feature = "fabric")]
mod hub_endpoint;
#[cfg(feature = "fabric")]
mod message;
#[cfg(feature = "fabric")]
mod sink;
#[cfg(feature = "fabric")]
mod source;
#[cfg(feature = "fabric")]
mod stream_endpoints;
mod survey;
#[cfg(feature = "fabric")]
mod unconnected_lane;
#[cfg(feature = "fabric")]
mod wakeup_connections;

#[cfg(not(feature = "fabric"))]
#[path = "lane_absent.rs"]
mod unconnected_lane;

use std::net::IpAddr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use carrack_machine::NodeSet;
use rustix::event::PollFlags;

use crate::endpoint_interface::{ReceiveEndpoint, TransportError, TransportSendEndpoint};
use crate::seal::ConnectionCipherState;

pub use survey::{FabricProviderDomain, is_installed_device, library_version, offers, usable_offers};
pub use unconnected_lane::UnconnectedFabricLane;

/// Offered objects of a stream that the sink has not taken: a long path or busy storage at the sink delays
/// them.
pub const WINDOW: usize = 16;

/// Slots for sealed objects of one stream: the offered ones, and three on their way to an offer.
pub const SEALED_SLOTS: usize = WINDOW + 3;

/// Moves a lane's objects behind its endpoints. When dropped, it withdraws the memory that the other end
/// could read.
pub trait FabricProgressEngine: Send {
    /// Does all work that needs no waiting. Returns the time after which to call it again if none of its
    /// descriptors becomes ready before.
    ///
    /// # Errors
    /// The provider's error, or the other end's. The session is over.
    fn make_progress(&mut self) -> Result<Duration, TransportError>;

    /// The descriptors and the `poll` events that ask for the next turn.
    fn readiness(&self) -> Vec<(BorrowedFd<'_>, PollFlags)>;
}

/// A source's hub with the endpoints of its streams.
pub type FabricSourceEndpoints = (Box<dyn FabricProgressEngine>, Vec<Box<dyn TransportSendEndpoint>>);

/// A sink's hub with the endpoints of its streams.
pub type FabricSinkEndpoints = (Box<dyn FabricProgressEngine>, Vec<Box<dyn ReceiveEndpoint>>);

/// A stream's TCP connection without objects, and the seal of the stream's objects.
pub struct FabricStreamTcpConnection {
    /// The connection to the other end.
    pub socket: OwnedFd,
    /// `None` where objects are clear.
    pub seal: Option<ConnectionCipherState>,
}

/// The requirements on a fabric endpoint.
#[derive(Clone, Debug)]
pub struct FabricRequirements<'a> {
    /// The provider's name in libfabric.
    pub provider: &'a str,
    /// The common network of both ends, as libfabric names it; empty for any.
    pub network: &'a str,
    /// The address of this host that the other end reaches.
    pub source: Option<IpAddr>,
    /// NUMA nodes whose NIC is preferred.
    pub nodes: &'a NodeSet,
}
