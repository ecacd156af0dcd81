//! The sink's hub: reads offered objects into its own slots and gives them to the streams in the order of the
//! offers.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::os::fd::BorrowedFd;
use std::time::Duration;

use carrack_fabric::{
    EndpointEvent, FabricEndpoint, FabricPostRefusal, RegisteredPool, RemoteMemory, RmaTransfer,
};
use carrack_machine::{Slot, SlotPool};
use carrack_wire::{FrameHeader, FrameKind};
use rustix::event::PollFlags;

use super::hub_endpoint::{FabricHubEndpoint, protocol_error, to_transport_error};
use super::message::{FabricHubMessageBody, FabricPeerMessage};
use super::stream_endpoints::FabricReceiver;
use super::wakeup_connections::FabricPeerWaker;
use super::{FabricProgressEngine, FabricStreamTcpConnection, WINDOW};
use crate::endpoint_interface::{
    EndpointWaitLimit, IncomingObject, ObjectPayload, OutgoingObject, ReceiveEndpoint, TransportError,
    TransportSendEndpoint,
};
use crate::loopback::{LoopbackSender, loopback_pair};
use crate::seal::SealTag;

/// Reads begun in one turn before objects are delivered: some providers copy at once.
const READS_A_TURN: usize = 2;

struct ObjectOffer {
    stream: usize,
    sequence: u64,
    header: FrameHeader,
    tag: SealTag,
    place: RemoteMemory,
}

struct FabricSinkStream {
    /// The queue to the stream's endpoint; `None` when the endpoint is gone or has all objects.
    objects: Option<LoopbackSender>,
    /// The sequence number of the next object for the stream's endpoint.
    next: u64,
    /// Objects that were read and not delivered.
    ready: BTreeMap<u64, (IncomingObject, SealTag)>,
    /// The number of objects, once the source has finished.
    count: Option<u64>,
    /// Objects offered so far: messages keep their order.
    offered: u64,
    /// Objects offered and not taken, [`WINDOW`] at most.
    open: usize,
}

impl FabricSinkStream {
    fn new(objects: LoopbackSender) -> FabricSinkStream {
        FabricSinkStream {
            objects: Some(objects),
            next: 0,
            ready: BTreeMap::new(),
            count: None,
            offered: 0,
            open: 0,
        }
    }
}

/// The sink's hub.
pub(super) struct FabricSink {
    wire: FabricHubEndpoint,
    streams: Vec<FabricSinkStream>,
    /// Offers that wait for a slot, first come first served.
    offers: VecDeque<ObjectOffer>,
    reading: HashMap<u64, ObjectOffer>,
    next_tag: u64,
    slots: SlotPool,
    region: RegisteredPool,
}

impl FabricSink {
    /// A hub for these streams, with the peer's hub of this name. Reads into the registered slots.
    pub(super) fn new(
        endpoint: FabricEndpoint,
        peer_name: &[u8],
        asides: Vec<FabricStreamTcpConnection>,
        (slots, region): (SlotPool, RegisteredPool),
        stall: Duration,
    ) -> Result<(FabricSink, Vec<Box<dyn ReceiveEndpoint>>), TransportError> {
        let (mut streams, mut ends) = (Vec::new(), Vec::<Box<dyn ReceiveEndpoint>>::new());
        let mut sockets = Vec::new();
        for FabricStreamTcpConnection { socket, seal } in asides {
            let (sender, receiver) = loopback_pair()?;
            ends.push(Box::new(FabricReceiver::new(receiver, seal)));
            streams.push(FabricSinkStream::new(sender));
            sockets.push(socket);
        }
        let wire = FabricHubEndpoint::new(endpoint, peer_name, FabricPeerWaker::new(sockets), stall)?;
        let (offers, reading) = (VecDeque::new(), HashMap::new());
        Ok((FabricSink { wire, streams, offers, reading, next_tag: 0, slots, region }, ends))
    }

    /// Begins to read offered objects while slots are free. Returns true if a read began.
    fn read_offers(&mut self) -> Result<bool, TransportError> {
        let mut has_moved = false;
        for _ in 0..READS_A_TURN {
            let Some(offer) = self.offers.pop_front() else { break };
            let Some(slot) = self.slots.try_lease() else {
                self.offers.push_front(offer);
                break;
            };
            if !self.read(offer, slot)? {
                break;
            }
            has_moved = true;
        }
        Ok(has_moved)
    }

    /// Returns true if the hub has no work until the source's next message.
    fn is_done(&self) -> bool {
        self.offers.is_empty()
            && self.reading.is_empty()
            && self.streams.iter().all(|stream| stream.objects.is_none())
    }

    /// Begins to read an object; an empty one is taken at once. Returns false when the endpoint is full.
    fn read(&mut self, offer: ObjectOffer, slot: Slot) -> Result<bool, TransportError> {
        let bytes = offer.header.body_len as usize;
        if bytes == 0 {
            self.finish_read(offer, slot);
            return Ok(true);
        }
        let tag = self.next_tag;
        let transfer = RmaTransfer { slot, at: 0, bytes, place: offer.place, tag };
        match self.wire.endpoint.read(self.wire.peer, &self.region, transfer) {
            Ok(()) => {
                self.next_tag += 1;
                self.reading.insert(tag, offer);
                Ok(true)
            }
            Err(FabricPostRefusal::Full(_)) => {
                self.offers.push_front(offer);
                Ok(false)
            }
            Err(FabricPostRefusal::Failed(_, error)) => Err(to_transport_error(error)),
        }
    }

    /// Takes an object that has been read, and tells the source that its slot is free.
    fn finish_read(&mut self, offer: ObjectOffer, slot: Slot) {
        let ObjectOffer { stream: index, sequence, header, tag, .. } = offer;
        let stream = &mut self.streams[index];
        stream.open -= 1;
        stream.ready.insert(sequence, (IncomingObject { header, slot }, tag));
        self.wire.queue_message(index, sequence, FabricHubMessageBody::Taken);
    }

    fn handle_event(&mut self, event: EndpointEvent) -> Result<(), TransportError> {
        match event {
            EndpointEvent::Read { tag, slot, result } => {
                let offer =
                    self.reading.remove(&tag).ok_or_else(|| protocol_error("a read that nobody began"))?;
                result.map_err(to_transport_error)?;
                self.finish_read(offer, slot);
                Ok(())
            }
            EndpointEvent::Message(bytes) => self.handle_message(&bytes),
            EndpointEvent::Sent { result, .. } => result.map_err(to_transport_error),
            EndpointEvent::ReceiveFailed(error) => Err(to_transport_error(error)),
            other => Err(protocol_error(&format!("{other:?}"))),
        }
    }

    fn handle_message(&mut self, bytes: &[u8]) -> Result<(), TransportError> {
        let Some(FabricPeerMessage { stream: index, sequence, kind }) = FabricPeerMessage::decode(bytes)
        else {
            return Err(protocol_error("no message of a hub"));
        };
        let stream = self.streams.get_mut(index).ok_or_else(|| protocol_error("no such stream"))?;
        match kind {
            FabricHubMessageBody::Hello => {}
            FabricHubMessageBody::Finished => stream.count = Some(sequence),
            FabricHubMessageBody::Gone => stream.count = Some(stream.count.unwrap_or(stream.next)),
            FabricHubMessageBody::Offer { header, tag, place } => {
                let header = FrameHeader::decode(&header, self.slots.slot_bytes() as u32)?;
                if header.kind == FrameKind::Control {
                    return Err(TransportError::ControlOnData);
                }
                if stream.open == WINDOW || sequence != stream.offered {
                    return Err(TransportError::NoCredit);
                }
                (stream.open, stream.offered) = (stream.open + 1, sequence + 1);
                self.offers.push_back(ObjectOffer { stream: index, sequence, header, tag, place });
            }
            FabricHubMessageBody::Taken => return Err(protocol_error("what a source doesn't say")),
        }
        Ok(())
    }

    /// Gives a stream's endpoint the next objects while it takes them.
    fn deliver(&mut self, index: usize) -> bool {
        let stream = &mut self.streams[index];
        let mut has_moved = false;
        let Some(objects) = &mut stream.objects else { return false };
        let mut is_gone = objects.advance(EndpointWaitLimit::None).is_err();
        while let Some((IncomingObject { header, slot }, tag)) =
            stream.ready.remove(&stream.next).filter(|_| !is_gone)
        {
            match objects.post_tagged(OutgoingObject { header, payload: ObjectPayload::Slot(slot) }, tag) {
                Ok(()) => stream.next += 1,
                Err(OutgoingObject { header, payload: ObjectPayload::Slot(slot) }) => {
                    stream.ready.insert(stream.next, (IncomingObject { header, slot }, tag));
                    break;
                }
                Err(_) => is_gone = true,
            }
            has_moved = true;
        }
        if is_gone {
            self.wire.queue_message(index, 0, FabricHubMessageBody::Gone);
        }
        if is_gone || stream.count.is_some_and(|count| stream.next >= count) {
            // Dropping the queue shows the endpoint the end of the stream.
            stream.objects = None;
            has_moved = true;
        }
        has_moved
    }
}

impl FabricProgressEngine for FabricSink {
    fn make_progress(&mut self) -> Result<Duration, TransportError> {
        // Reads first: a provider that copies at once has then completed the read within this turn.
        let mut has_moved = self.read_offers()?;
        for event in self.wire.poll(!self.reading.is_empty())? {
            has_moved = true;
            self.handle_event(event)?;
        }
        for stream in 0..self.streams.len() {
            has_moved |= self.deliver(stream);
        }
        has_moved |= self.wire.send()?;
        let is_done = self.is_done();
        self.wire.time_until_next_turn(has_moved, is_done)
    }

    fn readiness(&self) -> Vec<(BorrowedFd<'_>, PollFlags)> {
        let mut all = self.wire.readiness();
        let waits = self.streams.iter().filter(|stream| stream.ready.contains_key(&stream.next));
        all.extend(waits.filter_map(|stream| Some((stream.objects.as_ref()?.readiness(), PollFlags::OUT))));
        all
    }
}

impl Drop for FabricSink {
    fn drop(&mut self) {
        for index in 0..self.streams.len() {
            if self.streams[index].objects.is_some() {
                self.wire.queue_message(index, 0, FabricHubMessageBody::Gone);
            }
        }
        self.wire.send_last_messages();
    }
}
