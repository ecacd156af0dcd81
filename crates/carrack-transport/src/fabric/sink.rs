//! The sink's hub: reads what is offered into slots of its own, and gives it to the streams in the order of the offers.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

use carrack_fabric::{Endpoint, Event, Place, Refused, Region, Sharing, Transfer};
use carrack_machine::{Slot, SlotPool};
use carrack_wire::{FrameHeader, FrameKind};

use super::{Kind, Message, WINDOW, Wire, failed, nonsense};
use crate::endpoint::{Incoming, Outgoing, Patience, Payload, ReceiveEndpoint, SendEndpoint, TransportError};
use crate::loopback::{LoopbackSender, loopback_pair};

struct Offer {
    stream: usize,
    sequence: u64,
    header: FrameHeader,
    place: Place,
}

struct Stream {
    /// The way to the stream's end; nothing when there is nobody, or nothing more comes.
    objects: Option<LoopbackSender>,
    /// Of the next object that the stream's end gets.
    next: u64,
    /// What was read and is not delivered.
    ready: BTreeMap<u64, Incoming>,
    /// How many there will be, once that was said.
    count: Option<u64>,
    /// What was offered so far: messages keep their order.
    offered: u64,
    /// Offered and not taken: a peer may have [`WINDOW`].
    open: usize,
}

/// The sink's hub.
pub struct FabricSink {
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
    /// With so many streams from the hub of this name, reading into slots of this pool.
    pub fn new(
        endpoint: Endpoint,
        peer_name: &[u8],
        streams: usize,
        slots: SlotPool,
        stall: Duration,
    ) -> Result<(FabricSink, Vec<Box<dyn ReceiveEndpoint>>), TransportError> {
        let region = endpoint.register(&slots, Sharing::Local).map_err(failed)?;
        let wire = Wire::new(endpoint, peer_name, stall)?;
        let (mut hubs, mut ends) = (Vec::new(), Vec::<Box<dyn ReceiveEndpoint>>::new());
        for _ in 0..streams {
            let (sender, receiver) = loopback_pair()?;
            ends.push(Box::new(receiver));
            hubs.push(Stream {
                objects: Some(sender),
                next: 0,
                ready: BTreeMap::new(),
                count: None,
                offered: 0,
                open: 0,
            });
        }
        let (offers, reading) = (VecDeque::new(), HashMap::new());
        Ok((FabricSink { wire, streams: hubs, offers, reading, next_tag: 0, slots, region }, ends))
    }

    /// Goes on with what there is, without waiting; whether there was anything.
    pub fn turn(&mut self) -> Result<bool, TransportError> {
        let mut has_moved = false;
        for event in self.wire.turn()? {
            has_moved = true;
            self.hear(event)?;
        }
        while let Some(offer) = self.offers.pop_front() {
            let Some(slot) = self.slots.try_lease() else {
                self.offers.push_front(offer);
                break;
            };
            if !self.read(offer, slot)? {
                break;
            }
            has_moved = true;
        }
        for stream in 0..self.streams.len() {
            has_moved |= self.deliver(stream);
        }
        Ok(has_moved)
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
        let Offer { stream: index, sequence, header, .. } = offer;
        let stream = &mut self.streams[index];
        stream.open -= 1;
        stream.ready.insert(sequence, Incoming { header, slot });
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
            Kind::Offer { header, place } => {
                let header = FrameHeader::decode(&header, self.slots.slot_bytes() as u32)?;
                if header.kind == FrameKind::Control {
                    return Err(TransportError::ControlOnData);
                }
                if stream.open == WINDOW || sequence != stream.offered {
                    return Err(TransportError::NoCredit);
                }
                (stream.open, stream.offered) = (stream.open + 1, sequence + 1);
                self.offers.push_back(Offer { stream: index, sequence, header, place });
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
        while let Some(Incoming { header, slot }) = stream.ready.remove(&stream.next).filter(|_| !is_gone) {
            match objects.post(Outgoing { header, payload: Payload::Slot(slot) }) {
                Ok(()) => stream.next += 1,
                Err(Outgoing { header, payload: Payload::Slot(slot) }) => {
                    stream.ready.insert(stream.next, Incoming { header, slot });
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

impl Drop for FabricSink {
    fn drop(&mut self) {
        let streams = self.streams.len();
        self.wire.part(streams);
    }
}
