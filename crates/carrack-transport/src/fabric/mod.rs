//! Objects over RMA, as LADS moves them (L4): the source offers an object, the sink reads it into a slot of its own and
//! says that it has it. One *hub* at each end serves all streams of a lane over one fabric endpoint; the streams' ends are
//! those of the in-process loopback, so I/O threads and the comm thread use them as any other.
//!
//! A hub is turned by one thread (a lane's comm thread), which never waits in it. It has to be turned as long as objects
//! are offered: some providers serve the other end's reads only then. Both ends know each other's endpoint by name, which
//! the control channel has carried.
//!
//! Messages between the hubs, little-endian:
//!
//! | message | bytes |
//! | --- | --- |
//! | offer | 1, stream u32, sequence u64, frame header (80), address u64, key u64 |
//! | taken | 2, stream u32, sequence u64 |
//! | finished | 3, stream u32, sequence u64: how many there were |
//! | gone | 4, stream u32, sequence u64 of no meaning: the sender of this takes or brings nothing more |
//! | hello | 5, as above: makes the connection |

mod sink;
mod source;

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use carrack_fabric::{Endpoint, Event, FabricError, Peer, Place};
use carrack_wire::HEADER_BYTES;

use crate::endpoint::TransportError;
pub use sink::FabricSink;
pub use source::FabricSource;

/// Objects of a stream that may be offered and not taken: what a long path or a sink at work holds back.
pub const WINDOW: usize = 16;

#[derive(Debug, PartialEq, Eq)]
enum Kind {
    Offer { header: [u8; HEADER_BYTES], place: Place },
    Taken,
    Finished,
    Gone,
    Hello,
}

#[derive(Debug, PartialEq, Eq)]
struct Message {
    stream: usize,
    sequence: u64,
    kind: Kind,
}

const HEAD_BYTES: usize = 13;
const OFFER_BYTES: usize = HEAD_BYTES + HEADER_BYTES + 16;

impl Message {
    fn encode(&self) -> Vec<u8> {
        let code = match self.kind {
            Kind::Offer { .. } => 1,
            Kind::Taken => 2,
            Kind::Finished => 3,
            Kind::Gone => 4,
            Kind::Hello => 5,
        };
        let mut bytes = vec![code];
        bytes.extend((self.stream as u32).to_le_bytes());
        bytes.extend(self.sequence.to_le_bytes());
        if let Kind::Offer { header, place } = &self.kind {
            bytes.extend(header);
            bytes.extend(place.address.to_le_bytes());
            bytes.extend(place.key.to_le_bytes());
        }
        bytes
    }

    /// Nothing for what is no message.
    fn decode(bytes: &[u8]) -> Option<Message> {
        let word = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        let stream = u32::from_le_bytes(bytes.get(1..5)?.try_into().ok()?) as usize;
        let sequence = word(5)?;
        let kind = match (bytes[0], bytes.len()) {
            (1, OFFER_BYTES) => Kind::Offer {
                header: bytes[HEAD_BYTES..HEAD_BYTES + HEADER_BYTES].try_into().ok()?,
                place: Place { address: word(HEAD_BYTES + HEADER_BYTES)?, key: word(OFFER_BYTES - 8)? },
            },
            (2, HEAD_BYTES) => Kind::Taken,
            (3, HEAD_BYTES) => Kind::Finished,
            (4, HEAD_BYTES) => Kind::Gone,
            (5, HEAD_BYTES) => Kind::Hello,
            _ => return None,
        };
        Some(Message { stream, sequence, kind })
    }
}

/// A fabric endpoint and the messages that wait to be sent on it.
struct Wire {
    endpoint: Endpoint,
    peer: Peer,
    outbox: VecDeque<Message>,
    events: Vec<Event>,
    stall: Duration,
}

impl Wire {
    fn new(mut endpoint: Endpoint, peer_name: &[u8], stall: Duration) -> Result<Wire, TransportError> {
        let peer = endpoint.add_peer(peer_name).map_err(failed)?;
        let hello = Message { stream: 0, sequence: 0, kind: Kind::Hello };
        Ok(Wire { endpoint, peer, outbox: VecDeque::from([hello]), events: Vec::new(), stall })
    }

    fn say(&mut self, stream: usize, sequence: u64, kind: Kind) {
        self.outbox.push_back(Message { stream, sequence, kind });
    }

    /// Sends what can be sent and gathers what has happened.
    fn turn(&mut self) -> Result<Vec<Event>, TransportError> {
        while let Some(message) = self.outbox.front() {
            if !self.endpoint.send(self.peer, &message.encode(), 0).map_err(failed)? {
                break;
            }
            self.outbox.pop_front();
        }
        self.endpoint.poll(&mut self.events).map_err(failed)?;
        if self.endpoint.oldest_operation().is_some_and(|age| age > self.stall) {
            return Err(io::Error::from(io::ErrorKind::TimedOut).into());
        }
        Ok(std::mem::take(&mut self.events))
    }

    /// Tells the other end that nothing more comes of us, if that can be said without waiting long.
    fn part(&mut self, streams: usize) {
        (0..streams).for_each(|stream| self.say(stream, 0, Kind::Gone));
        for _ in 0..100 {
            if self.turn().is_err() || (self.outbox.is_empty() && self.endpoint.operations_under_way() == 0) {
                return;
            }
            let _ = self.endpoint.wait(Duration::from_millis(1));
        }
    }
}

fn failed(error: FabricError) -> TransportError {
    io::Error::other(error).into()
}

/// The other end's message makes no sense.
fn nonsense(what: &str) -> TransportError {
    io::Error::new(io::ErrorKind::InvalidData, format!("the peer broke the protocol: {what}")).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_what_was_said() {
        let place = Place { address: 1 << 40, key: u64::MAX };
        let kinds = [
            Kind::Offer { header: [7; HEADER_BYTES], place },
            Kind::Taken,
            Kind::Finished,
            Kind::Gone,
            Kind::Hello,
        ];
        for kind in kinds {
            let message = Message { stream: 3, sequence: 1 << 33, kind };
            let bytes = message.encode();
            assert_eq!(Message::decode(&bytes), Some(message));
            for end in 0..bytes.len() {
                assert_eq!(Message::decode(&bytes[..end]), None, "{end} bytes");
            }
            assert_eq!(Message::decode(&[bytes, vec![0]].concat()), None);
        }
    }
}
