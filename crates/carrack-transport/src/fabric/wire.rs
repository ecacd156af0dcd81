//! A fabric endpoint, what waits to be said on it, and when to look at it again.

use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use carrack_fabric::{Endpoint, Event, FabricError, Peer};
use rustix::event::PollFlags;

use super::bell::Bell;
use super::message::{Kind, Message};
use crate::endpoint::TransportError;

/// How soon to look again at what is under way, and how long at most: the endpoint's descriptor or the bell tells earlier.
const NAP_MIN: Duration = Duration::from_micros(50);
const NAP_MAX: Duration = Duration::from_millis(8);

/// How long nothing at all is looked at where nothing is under way.
const REST: Duration = Duration::from_secs(1);

pub(super) struct Wire {
    pub(super) endpoint: Endpoint,
    pub(super) peer: Peer,
    outbox: VecDeque<Message>,
    bell: Bell,
    /// Whether the endpoint has a descriptor that tells something.
    has_descriptor: bool,
    nap: Duration,
    looked: Instant,
    stall: Duration,
}

impl Wire {
    pub(super) fn new(
        mut endpoint: Endpoint,
        peer_name: &[u8],
        bell: Bell,
        stall: Duration,
    ) -> Result<Wire, TransportError> {
        let peer = endpoint.add_peer(peer_name).map_err(failed)?;
        let hello = Message { stream: 0, sequence: 0, kind: Kind::Hello };
        // That of `net` is always readable.
        let has_descriptor =
            endpoint.readiness().is_some() && !endpoint.description().provider.starts_with("net");
        Ok(Wire {
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

    pub(super) fn say(&mut self, stream: usize, sequence: u64, kind: Kind) {
        self.outbox.push_back(Message { stream, sequence, kind });
    }

    /// What has happened. Where the bell tells, and this end has nothing under way, the endpoint is left alone until then: `shm` holds
    /// a lock on it while the other end copies out of this one's memory, and who looks spins.
    pub(super) fn poll(&mut self, is_reading: bool) -> Result<Vec<Event>, TransportError> {
        // First: what is said from now on rings again.
        let is_rung = self.bell.listen()?;
        let is_due = self.looked.elapsed() >= self.nap;
        if !(self.has_descriptor || is_rung || is_reading || is_due) {
            return Ok(Vec::new());
        }
        self.looked = Instant::now();
        let mut events = Vec::new();
        self.endpoint.poll(&mut events).map_err(failed)?;
        if self.endpoint.oldest_operation().is_some_and(|age| age > self.stall) {
            return Err(io::Error::from(io::ErrorKind::TimedOut).into());
        }
        Ok(events)
    }

    /// Sends what can be sent; whether anything was.
    pub(super) fn send(&mut self) -> Result<bool, TransportError> {
        let before = self.outbox.len();
        while let Some(message) = self.outbox.front() {
            if !self.endpoint.send(self.peer, &message.encode(), 0).map_err(failed)? {
                break;
            }
            self.outbox.pop_front();
        }
        let has_sent = self.outbox.len() < before;
        if has_sent && !self.has_descriptor {
            self.bell.ring();
        }
        Ok(has_sent)
    }

    /// When to turn again, after a turn in which something happened or not, while something is to be done or not.
    pub(super) fn next_turn(&mut self, has_moved: bool, is_done: bool) -> Result<Duration, TransportError> {
        if has_moved || self.has_descriptor && !self.endpoint.may_wait() {
            self.nap = NAP_MIN;
            return Ok(Duration::ZERO);
        }
        if is_done && self.outbox.is_empty() && self.endpoint.operations_under_way() == 0 {
            return Ok(REST);
        }
        self.bell.check()?;
        self.nap = (2 * self.nap).min(NAP_MAX);
        Ok(self.nap)
    }

    pub(super) fn readiness(&self) -> Vec<(BorrowedFd<'_>, PollFlags)> {
        let descriptor = self.endpoint.readiness().filter(|_| self.has_descriptor);
        self.bell.readiness().into_iter().chain(descriptor).map(|fd| (fd, PollFlags::IN)).collect()
    }

    /// Says the last words, if that can be done without waiting long.
    pub(super) fn part(&mut self) {
        for _ in 0..100 {
            let is_lost = self.send().is_err() || self.poll(true).is_err();
            if is_lost || (self.outbox.is_empty() && self.endpoint.operations_under_way() == 0) {
                return;
            }
            let _ = self.endpoint.wait(Duration::from_millis(1));
        }
    }
}

pub(super) fn failed(error: FabricError) -> TransportError {
    io::Error::other(error).into()
}

/// The other end's message makes no sense.
pub(super) fn nonsense(what: &str) -> TransportError {
    io::Error::new(io::ErrorKind::InvalidData, format!("the peer broke the protocol: {what}")).into()
}
