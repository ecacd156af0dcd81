//! A fabric endpoint, its unsent messages, and the time of the next poll.

use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use carrack_fabric::{EndpointEvent, FabricEndpoint, FabricError, FabricPeer};
use rustix::event::PollFlags;

use super::message::{FabricHubMessageBody, FabricPeerMessage};
use super::wakeup_connections::FabricPeerWaker;
use crate::endpoint_interface::TransportError;

/// The shortest and longest time between two polls while operations are under way. The endpoint's descriptor
/// or the bell wakes the hub earlier.
const NAP_MIN: Duration = Duration::from_micros(50);
const NAP_MAX: Duration = Duration::from_millis(8);

/// The time between two polls while no operation is under way.
const REST: Duration = Duration::from_secs(1);

pub(super) struct FabricHubEndpoint {
    pub(super) endpoint: FabricEndpoint,
    pub(super) peer: FabricPeer,
    outbox: VecDeque<FabricPeerMessage>,
    bell: FabricPeerWaker,
    /// True if the endpoint has a useful descriptor.
    has_descriptor: bool,
    nap: Duration,
    looked: Instant,
    stall: Duration,
}

impl FabricHubEndpoint {
    pub(super) fn new(
        mut endpoint: FabricEndpoint,
        peer_name: &[u8],
        bell: FabricPeerWaker,
        stall: Duration,
    ) -> Result<FabricHubEndpoint, TransportError> {
        let peer = endpoint.add_peer(peer_name).map_err(to_transport_error)?;
        let hello = FabricPeerMessage { stream: 0, sequence: 0, kind: FabricHubMessageBody::Hello };
        // The descriptor of the provider `net` is always readable.
        let has_descriptor =
            endpoint.readiness().is_some() && !endpoint.description().provider.starts_with("net");
        Ok(FabricHubEndpoint {
            endpoint,
            peer,
            outbox: VecDeque::from([hello]),
            bell,
            has_descriptor,
            nap: NAP_MIN,
            looked: Instant::now(),
            stall,
        })
    }

    pub(super) fn queue_message(&mut self, stream: usize, sequence: u64, kind: FabricHubMessageBody) {
        self.outbox.push_back(FabricPeerMessage { stream, sequence, kind });
    }

    /// Polls the endpoint's events. Where the bell wakes this end and it reads nothing, the endpoint is left
    /// alone until then: `shm` holds a lock on the endpoint while the other end copies from this end's
    /// memory, and a poll would spin on it.
    pub(super) fn poll(&mut self, is_reading: bool) -> Result<Vec<EndpointEvent>, TransportError> {
        // The bell first: messages sent from now on ring again.
        let is_rung = self.bell.drain_wakeups()?;
        let is_due = self.looked.elapsed() >= self.nap;
        if !(self.has_descriptor || is_rung || is_reading || is_due) {
            return Ok(Vec::new());
        }
        self.looked = Instant::now();
        let mut events = Vec::new();
        self.endpoint.poll(&mut events).map_err(to_transport_error)?;
        if self.endpoint.oldest_operation_age().is_some_and(|age| age > self.stall) {
            return Err(io::Error::from(io::ErrorKind::TimedOut).into());
        }
        Ok(events)
    }

    /// Sends queued messages while the endpoint takes them. Returns true if any was sent.
    pub(super) fn send(&mut self) -> Result<bool, TransportError> {
        let before = self.outbox.len();
        while let Some(message) = self.outbox.front() {
            if !self.endpoint.send(self.peer, &message.encode(), 0).map_err(to_transport_error)? {
                break;
            }
            self.outbox.pop_front();
        }
        let has_sent = self.outbox.len() < before;
        if has_sent && !self.has_descriptor {
            self.bell.wake_peer();
        }
        Ok(has_sent)
    }

    /// The time until the next turn. `has_moved`: this turn did work; `is_done`: no work is left.
    pub(super) fn time_until_next_turn(
        &mut self,
        has_moved: bool,
        is_done: bool,
    ) -> Result<Duration, TransportError> {
        if has_moved || self.has_descriptor && !self.endpoint.may_wait() {
            self.nap = NAP_MIN;
            return Ok(Duration::ZERO);
        }
        if is_done && self.outbox.is_empty() && self.endpoint.operations_under_way() == 0 {
            return Ok(REST);
        }
        self.bell.check_peer_open()?;
        self.nap = (2 * self.nap).min(NAP_MAX);
        Ok(self.nap)
    }

    pub(super) fn readiness(&self) -> Vec<(BorrowedFd<'_>, PollFlags)> {
        let descriptor = self.endpoint.readiness().filter(|_| self.has_descriptor);
        self.bell.readiness().into_iter().chain(descriptor).map(|fd| (fd, PollFlags::IN)).collect()
    }

    /// Sends the last messages, within about 100 ms.
    pub(super) fn send_last_messages(&mut self) {
        for _ in 0..100 {
            let is_lost = self.send().is_err() || self.poll(true).is_err();
            if is_lost || (self.outbox.is_empty() && self.endpoint.operations_under_way() == 0) {
                return;
            }
            let _ = self.endpoint.wait(Duration::from_millis(1));
        }
    }
}

pub(super) fn to_transport_error(error: FabricError) -> TransportError {
    io::Error::other(error).into()
}

/// The error for a message that breaks the protocol.
pub(super) fn protocol_error(what: &str) -> TransportError {
    io::Error::new(io::ErrorKind::InvalidData, format!("the peer broke the protocol: {what}")).into()
}
