//! The source's hub: offers what its streams bring, and holds each slot until the sink has read it.

use std::collections::HashMap;
use std::time::Duration;

use carrack_fabric::{Endpoint, Event, Place, Region, Sharing};
use carrack_machine::{Slot, SlotPool};

use super::{Kind, Message, WINDOW, Wire, failed, nonsense};
use crate::endpoint::{Incoming, Patience, ReceiveEndpoint, Received, SendEndpoint, TransportError};
use crate::loopback::{LoopbackReceiver, loopback_pair};

/// Nothing is read from an empty object.
const NOWHERE: Place = Place { address: 0, key: 0 };

struct Stream {
    /// What the stream's end brings; nothing when that has ended.
    objects: Option<LoopbackReceiver>,
    next: u64,
    offered: HashMap<u64, Slot>,
}

/// The source's hub.
pub struct FabricSource {
    wire: Wire,
    streams: Vec<Stream>,
    /// Of the pools that slots came from: one, in a lane.
    regions: Vec<Region>,
    /// The loopback leases nothing from it.
    none: SlotPool,
}

impl FabricSource {
    /// With so many streams to the hub of this name, of which it is the only one. Nothing goes on for longer than `stall`
    /// without an end.
    pub fn new(
        endpoint: Endpoint,
        peer_name: &[u8],
        streams: usize,
        stall: Duration,
    ) -> Result<(FabricSource, Vec<Box<dyn SendEndpoint>>), TransportError> {
        let wire = Wire::new(endpoint, peer_name, stall)?;
        let none = SlotPool::new(4096, 4096).map_err(std::io::Error::other)?;
        let (mut hubs, mut ends) = (Vec::new(), Vec::<Box<dyn SendEndpoint>>::new());
        for _ in 0..streams {
            let (sender, receiver) = loopback_pair()?;
            ends.push(Box::new(sender));
            hubs.push(Stream { objects: Some(receiver), next: 0, offered: HashMap::new() });
        }
        Ok((FabricSource { wire, streams: hubs, regions: Vec::new(), none }, ends))
    }

    /// Goes on with what there is, without waiting; whether there was anything.
    pub fn turn(&mut self) -> Result<bool, TransportError> {
        let mut has_moved = false;
        for stream in 0..self.streams.len() {
            has_moved |= self.offer_from(stream)?;
        }
        for event in self.wire.turn()? {
            has_moved = true;
            self.hear(event)?;
        }
        Ok(has_moved)
    }

    /// Whether every stream has ended and all that was offered was taken.
    pub fn is_done(&self) -> bool {
        let is_over = |stream: &Stream| stream.objects.is_none() && stream.offered.is_empty();
        self.streams.iter().all(is_over) && self.wire.outbox.is_empty()
    }

    fn offer_from(&mut self, index: usize) -> Result<bool, TransportError> {
        let mut has_moved = false;
        while self.streams[index].offered.len() < WINDOW {
            let Some(objects) = &mut self.streams[index].objects else { break };
            match objects.advance(Patience::None, &self.none)? {
                Received::Object(incoming) => self.offer(index, incoming)?,
                Received::Pending => break,
                Received::Closed => {
                    self.streams[index].objects = None;
                    let count = self.streams[index].next;
                    self.wire.say(index, count, Kind::Finished);
                }
            }
            has_moved = true;
        }
        Ok(has_moved)
    }

    fn offer(&mut self, index: usize, incoming: Incoming) -> Result<(), TransportError> {
        let Incoming { header, slot } = incoming;
        let place = if header.body_len == 0 { NOWHERE } else { self.place_of(&slot)? };
        let stream = &mut self.streams[index];
        self.wire.say(index, stream.next, Kind::Offer { header: header.encode(), place });
        stream.offered.insert(stream.next, slot);
        stream.next += 1;
        Ok(())
    }

    /// Registers the slot's pool the first time that it is seen.
    fn place_of(&mut self, slot: &Slot) -> Result<Place, TransportError> {
        if let Some(place) = self.regions.iter().find_map(|region| region.place_of(slot)) {
            return Ok(place);
        }
        let region = self.wire.endpoint.register(&slot.pool(), Sharing::PeersRead).map_err(failed)?;
        let place = region.place_of(slot).ok_or_else(|| nonsense("a slot outside of its pool"))?;
        self.regions.push(region);
        Ok(place)
    }

    fn hear(&mut self, event: Event) -> Result<(), TransportError> {
        let bytes = match event {
            Event::Message(bytes) => bytes,
            Event::Sent { result, .. } => return result.map_err(failed),
            Event::ReceiveFailed(error) => return Err(failed(error)),
            other => return Err(nonsense(&format!("{other:?}"))),
        };
        let Some(Message { stream, sequence, kind }) = Message::decode(&bytes) else {
            return Err(nonsense("no message of a hub"));
        };
        let stream = self.streams.get_mut(stream).ok_or_else(|| nonsense("no such stream"))?;
        match kind {
            Kind::Hello => {}
            Kind::Taken if stream.offered.remove(&sequence).is_some() => {}
            Kind::Gone => {
                stream.objects = None;
                stream.offered.clear();
            }
            _ => return Err(nonsense("what a sink doesn't say")),
        }
        Ok(())
    }
}

impl Drop for FabricSource {
    fn drop(&mut self) {
        let streams = self.streams.len();
        self.wire.part(streams);
    }
}
