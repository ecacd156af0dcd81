//! Moves slots between the two ends of a session.
//!
//! A session has several *endpoints* at each end. An endpoint moves one object at a time, in order. An I/O
//! thread drives it and may wait in it for a short time, or the comm thread drives it and never waits.
//! [`TransportSendEndpoint`] and [`ReceiveEndpoint`] are common to all transports, and [`conformance`] checks
//! them.
//!
//! This crate doesn't know file names.

pub mod conformance;
mod control_link;
mod endpoint_interface;
pub mod fabric;
mod framing;
mod gauge;
mod loopback;
mod rendezvous;
mod resolve;
pub mod seal;
mod sendfile_sender;
mod tcp;
mod tls;
mod unproved_peer_counts;

pub use control_link::{ControlChannel, ControlLinkInput, SessionControlLink};
pub use endpoint_interface::{
    EndpointWaitLimit, IncomingObject, ObjectPayload, OutgoingObject, ReceiveEndpoint, ReceiveResult,
    SenderReadiness, SendfileSourceFile, TransportError, TransportSendEndpoint,
};
pub use gauge::{TcpPathState, TcpStateReader};
pub use loopback::loopback_pair;
pub use rendezvous::{
    DataConnection, DialError, ListenPoint, PortRange, StreamCount, StreamListener, dial, local_addresses,
    random,
};
pub use resolve::resolve;
pub use tcp::{
    NEAR_RTT, TcpReceiver, TcpSender, prepare_stream, set_near_congestion_control, system_congestion_control,
};
pub use tls::{TlsChannel, TlsHandshakeError};
pub use unproved_peer_counts::{ConnectionEvictionOrder, PeerAddressPrefix, PeerConnectionCounts};
