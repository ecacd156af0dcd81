//! Sends objects. A thread that has read an object posts it, and drives a free data connection while its
//! cache still holds the bytes (see [`super::send_queue`]).
//!
//! Runs on I/O threads, on `carrack-send`, and on the threads of a spill.

use std::sync::atomic::Ordering::Relaxed;

use carrack_transport::{
    EndpointWaitLimit, ObjectPayload, OutgoingObject, SenderReadiness, TransportSendEndpoint,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::lane::SourceLane;
use super::send_queue::{EndpointWithObject, LastDrivenEndpoint};
use super::work::SentObject;
use crate::counters::ThreadActivity;
use crate::error::SessionError;
use crate::spill::LaneSpill;

/// Access of one thread to the data connections.
pub(super) struct ObjectSender<'a> {
    lane: &'a SourceLane<'a>,
    home: LastDrivenEndpoint,
}

impl<'a> ObjectSender<'a> {
    pub(super) fn new(lane: &'a SourceLane<'a>) -> ObjectSender<'a> {
        ObjectSender { lane, home: LastDrivenEndpoint::default() }
    }

    /// Sends an object, or leaves it to the next thread that drives an endpoint.
    pub(super) fn post(&mut self, outgoing: OutgoingObject, sent: SentObject) -> Result<(), SessionError> {
        self.lane.in_flight.post(outgoing.header.object, sent);
        let lane = self.lane;
        lane.counters.bytes_read.fetch_add(outgoing.header.body_len.into(), Relaxed);
        let brought = lane.counters.time(ThreadActivity::Blocked, || {
            lane.send_queue.enqueue(outgoing, &mut self.home, || lane.mail.wake())
        });
        let departure = brought.map_err(|_| SessionError::PeerGone)?;
        lane.spills.iter().for_each(LaneSpill::notify_waiting_object);
        lane.counters.time(ThreadActivity::Network, || drive(lane, departure))
    }
}

/// Sends objects that waited for credits until the session ends.
pub(super) fn send_waiting_objects(lane: &SourceLane<'_>) {
    while lane.send_queue.await_unclaimed().is_ok() {
        if let Err(error) = drive(lane, lane.send_queue.take_unclaimed()) {
            lane.raise(error);
            return;
        }
    }
}

/// Drives an endpoint while objects are ready. It waits for a slow peer: the socket's buffer is enough
/// read-ahead, and objects of other threads are sent from here too.
pub(super) fn drive(
    lane: &SourceLane<'_>,
    mut departure: Option<EndpointWithObject>,
) -> Result<(), SessionError> {
    while let Some((mut endpoint, outgoing)) = departure {
        let is_in_file = matches!(outgoing.payload, ObjectPayload::Extent(_));
        let departing_bytes = lane.departing_bytes(outgoing.header.object);
        // An idle endpoint takes an object; that is what idle means.
        let refused = endpoint.endpoint.post(outgoing).is_err();
        debug_assert!(!refused);
        let endpoint_at_work = &mut *endpoint.endpoint;
        let is_sent =
            if is_in_file { send_from_file(lane, endpoint_at_work)? } else { send(lane, endpoint_at_work)? };
        if !is_sent {
            return Ok(());
        }
        lane.count_departed(departing_bytes);
        departure = lane.send_queue.next_for(endpoint);
    }
    Ok(())
}

/// Sends the endpoint's object. Returns false if the session ends before.
fn send(lane: &SourceLane<'_>, endpoint: &mut dyn TransportSendEndpoint) -> Result<bool, SessionError> {
    while endpoint.advance(EndpointWaitLimit::Brief)? == SenderReadiness::Busy {
        if lane.is_stopped() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Sends the endpoint's object, which the kernel reads from its file: that may wait for storage. A wait for
/// the connection does not count as one, or the loss of the connection would pass for slow storage.
fn send_from_file(
    lane: &SourceLane<'_>,
    endpoint: &mut dyn TransportSendEndpoint,
) -> Result<bool, SessionError> {
    let brief = Timespec { tv_sec: 0, tv_nsec: 1_000_000 * EndpointWaitLimit::BRIEF_MS as i64 };
    while lane.counters.run_as_storage_busy(|| endpoint.advance(EndpointWaitLimit::Brief))?
        == SenderReadiness::Busy
    {
        loop {
            if lane.is_stopped() {
                return Ok(false);
            }
            let mut room = [PollFd::from_borrowed_fd(endpoint.readiness(), PollFlags::OUT)];
            // An interrupted wait counts as room: at worst the next call waits for the connection.
            if !matches!(poll(&mut room, Some(&brief)), Ok(0)) {
                break;
            }
        }
    }
    Ok(true)
}
