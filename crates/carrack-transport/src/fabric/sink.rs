//! The sink's hub: reads what is offered into slots of its own, and gives it to the streams in the order of the offers.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::os::fd::BorrowedFd;
use std::time::Duration;

use carrack_fabric::{Endpoint, Event, Place, Refused, Region, Transfer};
use carrack_machine::{Slot, SlotPool};
use carrack_wire::{FrameHeader, FrameKind};
use rustix::event::PollFlags;

use super::bell::Bell;
use super::ends::FabricReceiver;
use super::message::{Kind, Message};
use super::wire::{Wire, failed, nonsense};
use super::{Aside, Hub, WINDOW};
use crate::endpoint::{Incoming, Outgoing, Patience, Payload, ReceiveEndpoint, SendEndpoint, TransportError};
use crate::loopback::{LoopbackSender, loopback_pair};
use crate::seal::Tag;

/// Reads that are begun before what is there is handed on: some providers copy at once.
const READS_A_TURN: usize = 2;

struct Offer {
    stream: usize,
    sequence: u64,
    header: FrameHeader,
    tag: Tag,
    place: Place,
}

struct Stream {
    /// The way to the stream's end; nothing when there is nobody, or nothing more comes.
    objects: Option<LoopbackSender>,
    /// Of the next object that the stream's end gets.
    next: u64,
    /// What was read and is not delivered.
    ready: BTreeMap<u64, (Incoming, Tag)>,
    /// How many there will be, once that was said.
    count: Option<u64>,
    /// What was offered so far: messages keep their order.
    offered: u64,
    /// Offered and not taken: a peer may have [`WINDOW`].
    open: usize,
}

impl Stream {
    fn new(objects: LoopbackSender) -> Stream {
        Stream { objects: Some(objects), next: 0, ready: BTreeMap::new(), count: None, offered: 0, open: 0 }
    }
}

/// The sink's hub.
pub(super) struct FabricSink {
    wire: Wire,
    streams: Vec<Stream>,
    /// Offers that wait for a slot, first come first served.
    offers: VecDeque<Offer>,
    reading: HashMap<u64, Offer>,
    next_tag: u64,
    slots: SlotPool,
    region: Region,
}

impl FabricSink {
    /// For these streams from the hub of this name, reading into slots of this pool, which is registered.
    pub(super) fn new(
        endpoint: Endpoint,
        peer_name: &[u8],
        asides: Vec<Aside>,
        (slots, region): (SlotPool, Region),
        stall: Duration,
    ) -> Result<(FabricSink, Vec<Box<dyn ReceiveEndpoint>>), TransportError> {
        let (mut streams, mut ends) = (Vec::new(), Vec::<Box<dyn ReceiveEndpoint>>::new());
        let mut sockets = Vec::new();
        for Aside { socket, seal } in asides {
            let (sender, receiver) = loopback_pair()?;
            ends.push(Box::new(FabricReceiver::new(receiver, seal)));
            streams.push(Stream::new(sender));
            sockets.push(socket);
        }
        let wire = Wire::new(endpoint, peer_name, Bell::new(sockets), stall)?;
        let (offers, reading) = (VecDeque::new(), HashMap::new());
        Ok((FabricSink { wire, streams, offers, reading, next_tag: 0, slots, region }, ends))
    }

    /// Begins to read what was offered, as far as there are slots; whether anything was begun.
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

    /// Whether nothing is to be done until the source says something.
    fn is_done(&self) -> bool {
        self.offers.is_empty()
            && self.reading.is_empty()
            && self.streams.iter().all(|stream| stream.objects.is_none())
    }

    /// Begins to read an object, or gets it at once if it is empty; false when the endpoint is full.
    fn read(&mut self, offer: Offer, slot: Slot) -> Result<bool, TransportError> {
        let bytes = offer.header.body_len as usize;
        if bytes == 0 {
            self.take(offer, slot);
            return Ok(true);
        }
        let tag = self.next_tag;
        let transfer = Transfer { slot, at: 0, bytes, place: offer.place, tag };
        match self.wire.endpoint.read(self.wire.peer, &self.region, transfer) {
            Ok(()) => {
                self.next_tag += 1;
                self.reading.insert(tag, offer);
                Ok(true)
            }
            Err(Refused::Full(_)) => {
                self.offers.push_front(offer);
                Ok(false)
            }
            Err(Refused::Failed(_, error)) => Err(failed(error)),
        }
    }

    /// The object is here: the source's slot is free.
    fn take(&mut self, offer: Offer, slot: Slot) {
        let Offer { stream: index, sequence, header, tag, .. } = offer;
        let stream = &mut self.streams[index];
        stream.open -= 1;
        stream.ready.insert(sequence, (Incoming { header, slot }, tag));
        self.wire.say(index, sequence, Kind::Taken);
    }

    fn hear(&mut self, event: Event) -> Result<(), TransportError> {
        match event {
            Event::Read { tag, slot, result } => {
                let offer = self.reading.remove(&tag).ok_or_else(|| nonsense("a read that nobody began"))?;
                result.map_err(failed)?;
                self.take(offer, slot);
                Ok(())
            }
            Event::Message(bytes) => self.hear_message(&bytes),
            Event::Sent { result, .. } => result.map_err(failed),
            Event::ReceiveFailed(error) => Err(failed(error)),
            other => Err(nonsense(&format!("{other:?}"))),
        }
    }

    fn hear_message(&mut self, bytes: &[u8]) -> Result<(), TransportError> {
        let Some(Message { stream: index, sequence, kind }) = Message::decode(bytes) else {
            return Err(nonsense("no message of a hub"));
        };
        let stream = self.streams.get_mut(index).ok_or_else(|| nonsense("no such stream"))?;
        match kind {
            Kind::Hello => {}
            Kind::Finished => stream.count = Some(sequence),
            Kind::Gone => stream.count = Some(stream.count.unwrap_or(stream.next)),
            Kind::Offer { header, tag, place } => {
                let header = FrameHeader::decode(&header, self.slots.slot_bytes() as u32)?;
                if header.kind == FrameKind::Control {
                    return Err(TransportError::ControlOnData);
                }
                if stream.open == WINDOW || sequence != stream.offered {
                    return Err(TransportError::NoCredit);
                }
                (stream.open, stream.offered) = (stream.open + 1, sequence + 1);
                self.offers.push_back(Offer { stream: index, sequence, header, tag, place });
            }
            Kind::Taken => return Err(nonsense("what a source doesn't say")),
        }
        Ok(())
    }

    /// Gives a stream's end what it is waiting for, as far as it takes it.
    fn deliver(&mut self, index: usize) -> bool {
        let stream = &mut self.streams[index];
        let mut has_moved = false;
        let Some(objects) = &mut stream.objects else { return false };
        let mut is_gone = objects.advance(Patience::None).is_err();
        while let Some((Incoming { header, slot }, tag)) =
            stream.ready.remove(&stream.next).filter(|_| !is_gone)
        {
            match objects.post_tagged(Outgoing { header, payload: Payload::Slot(slot) }, tag) {
                Ok(()) => stream.next += 1,
                Err(Outgoing { header, payload: Payload::Slot(slot) }) => {
                    stream.ready.insert(stream.next, (Incoming { header, slot }, tag));
                    break;
                }
                Err(_) => is_gone = true,
            }
            has_moved = true;
        }
        if is_gone {
            self.wire.say(index, 0, Kind::Gone);
        }
        if is_gone || stream.count.is_some_and(|count| stream.next >= count) {
            // Its end hears that there is no more when this is dropped.
            stream.objects = None;
            has_moved = true;
        }
        has_moved
    }
}

impl Hub for FabricSink {
    fn turn(&mut self) -> Result<Duration, TransportError> {
        // First: where a read is a copy that is made at once, it is over then, and goes on to its stream in this turn.
        let mut has_moved = self.read_offers()?;
        for event in self.wire.poll(!self.reading.is_empty())? {
            has_moved = true;
            self.hear(event)?;
        }
        for stream in 0..self.streams.len() {
            has_moved |= self.deliver(stream);
        }
        has_moved |= self.wire.send()?;
        let is_done = self.is_done();
        self.wire.next_turn(has_moved, is_done)
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
                self.wire.say(index, 0, Kind::Gone);
            }
        }
        self.wire.part();
    }
}
