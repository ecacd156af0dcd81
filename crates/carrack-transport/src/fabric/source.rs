//! The source's hub: offers the objects of its streams, and holds each slot until the sink has read it.

use std::collections::HashMap;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use carrack_fabric::{EndpointEvent, FabricEndpoint, FabricMemoryAccess, RegisteredPool, RemoteMemory};
use carrack_machine::{Slot, SlotPool};
use rustix::event::PollFlags;

use super::hub_endpoint::{FabricHubEndpoint, protocol_error, to_transport_error};
use super::message::{FabricHubMessageBody, FabricPeerMessage};
use super::stream_endpoints::FabricSender;
use super::wakeup_connections::FabricPeerWaker;
use super::{FabricProgressEngine, FabricStreamTcpConnection, WINDOW};
use crate::endpoint_interface::{
    EndpointWaitLimit, IncomingObject, ReceiveEndpoint as _, ReceiveResult, TransportError,
    TransportSendEndpoint,
};
use crate::loopback::{LoopbackReceiver, loopback_pair};
use crate::seal::SealTag;

/// The location of an empty object, which is never read.
const NOWHERE: RemoteMemory = RemoteMemory { address: 0, key: 0 };

/// The window between two processes of a host: the path needs no filling, and waiting objects leave the
/// caches.
const WINDOW_WITHIN_HOST: usize = 2;

struct FabricSourceStream {
    /// The queue from the stream's endpoint; `None` after its end.
    objects: Option<LoopbackReceiver>,
    next: u64,
    offered: HashMap<u64, Slot>,
}

/// The source's hub.
pub(super) struct FabricSource {
    wire: FabricHubEndpoint,
    streams: Vec<FabricSourceStream>,
    /// The registered regions, one for each pool of slots. A lane has one.
    regions: Vec<RegisteredPool>,
    /// The largest number of offered objects of a stream.
    window: usize,
}

impl FabricSource {
    /// A hub for these streams, and the only one for the peer's hub of this name. Sealed objects leave from
    /// slots of this registered pool.
    pub(super) fn new(
        endpoint: FabricEndpoint,
        peer_name: &[u8],
        asides: Vec<FabricStreamTcpConnection>,
        (slots, region): (&SlotPool, RegisteredPool),
        stall: Duration,
    ) -> Result<(FabricSource, Vec<Box<dyn TransportSendEndpoint>>), TransportError> {
        let (mut streams, mut ends) = (Vec::new(), Vec::<Box<dyn TransportSendEndpoint>>::new());
        let mut sockets = Vec::new();
        for FabricStreamTcpConnection { socket, seal } in asides {
            let (sender, receiver) = loopback_pair()?;
            ends.push(Box::new(FabricSender::new(sender, seal, slots)));
            streams.push(FabricSourceStream { objects: Some(receiver), next: 0, offered: HashMap::new() });
            sockets.push(socket);
        }
        let wire = FabricHubEndpoint::new(endpoint, peer_name, FabricPeerWaker::new(sockets), stall)?;
        let window = if wire.endpoint.description().provider == "shm" { WINDOW_WITHIN_HOST } else { WINDOW };
        Ok((FabricSource { wire, streams, regions: vec![region], window }, ends))
    }

    fn offer_objects(&mut self, index: usize) -> Result<bool, TransportError> {
        let mut has_moved = false;
        while self.streams[index].offered.len() < self.window {
            let Some(objects) = &mut self.streams[index].objects else { break };
            match objects.take_tagged(EndpointWaitLimit::None) {
                (ReceiveResult::Object(incoming), tag) => self.offer(index, incoming, tag)?,
                (ReceiveResult::Pending, _) => break,
                (ReceiveResult::Closed, _) => {
                    self.streams[index].objects = None;
                    let count = self.streams[index].next;
                    self.wire.queue_message(index, count, FabricHubMessageBody::Finished);
                }
            }
            has_moved = true;
        }
        Ok(has_moved)
    }

    fn offer(&mut self, index: usize, incoming: IncomingObject, tag: SealTag) -> Result<(), TransportError> {
        let IncomingObject { header, slot } = incoming;
        let place = if header.body_len == 0 { NOWHERE } else { self.remote_memory_of(&slot)? };
        let stream = &mut self.streams[index];
        self.wire.queue_message(
            index,
            stream.next,
            FabricHubMessageBody::Offer { header: header.encode(), tag, place },
        );
        stream.offered.insert(stream.next, slot);
        stream.next += 1;
        Ok(())
    }

    /// The slot's location. Registers the pool of a slot on first use.
    fn remote_memory_of(&mut self, slot: &Slot) -> Result<RemoteMemory, TransportError> {
        if let Some(place) = self.regions.iter().find_map(|region| region.remote_memory_of(slot)) {
            return Ok(place);
        }
        let region = self
            .wire
            .endpoint
            .register(&slot.pool(), FabricMemoryAccess::PeersRead)
            .map_err(to_transport_error)?;
        let place =
            region.remote_memory_of(slot).ok_or_else(|| protocol_error("a slot outside of its pool"))?;
        self.regions.push(region);
        Ok(place)
    }

    fn handle_event(&mut self, event: EndpointEvent) -> Result<(), TransportError> {
        let bytes = match event {
            EndpointEvent::Message(bytes) => bytes,
            EndpointEvent::Sent { result, .. } => return result.map_err(to_transport_error),
            EndpointEvent::ReceiveFailed(error) => return Err(to_transport_error(error)),
            other => return Err(protocol_error(&format!("{other:?}"))),
        };
        let Some(FabricPeerMessage { stream, sequence, kind }) = FabricPeerMessage::decode(&bytes) else {
            return Err(protocol_error("no message of a hub"));
        };
        let stream = self.streams.get_mut(stream).ok_or_else(|| protocol_error("no such stream"))?;
        match kind {
            FabricHubMessageBody::Hello => {}
            FabricHubMessageBody::Taken if stream.offered.remove(&sequence).is_some() => {}
            FabricHubMessageBody::Gone => {
                stream.objects = None;
                stream.offered.clear();
            }
            _ => return Err(protocol_error("what a sink doesn't say")),
        }
        Ok(())
    }
}

impl FabricProgressEngine for FabricSource {
    fn make_progress(&mut self) -> Result<Duration, TransportError> {
        let mut has_moved = false;
        for event in self.wire.poll(false)? {
            has_moved = true;
            self.handle_event(event)?;
        }
        for stream in 0..self.streams.len() {
            has_moved |= self.offer_objects(stream)?;
        }
        has_moved |= self.wire.send()?;
        // Without offered objects no operation is under way, and the next object in a queue wakes the hub.
        let is_idle = self.streams.iter().all(|stream| stream.offered.is_empty());
        self.wire.time_until_next_turn(has_moved, is_idle)
    }

    fn readiness(&self) -> Vec<(BorrowedFd<'_>, PollFlags)> {
        let mut all = self.wire.readiness();
        let takes = self.streams.iter().filter(|stream| stream.offered.len() < self.window);
        all.extend(takes.filter_map(|stream| Some((stream.objects.as_ref()?.readiness(), PollFlags::IN))));
        all
    }
}

impl Drop for FabricSource {
    fn drop(&mut self) {
        for (index, stream) in self.streams.iter().enumerate() {
            if stream.objects.is_some() || !stream.offered.is_empty() {
                self.wire.queue_message(index, 0, FabricHubMessageBody::Gone);
            }
        }
        self.wire.send_last_messages();
    }
}
