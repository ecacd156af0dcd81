//! What the hubs say to each other, little-endian:
//!
//! | message | bytes |
//! | --- | --- |
//! | offer | 1, stream u32, sequence u64, frame header (80), tag of the seal (16; zeros where there is none), address u64, key u64 |
//! | taken | 2, stream u32, sequence u64 |
//! | finished | 3, stream u32, sequence u64: how many there were |
//! | gone | 4, stream u32, sequence u64 of no meaning: the sender of this takes or brings nothing more |
//! | hello | 5, as above: makes the connection |
//!
//! They are not sealed, and need not be: who changes one makes a seal break, or the session end.

use carrack_fabric::Place;
use carrack_wire::HEADER_BYTES;

use crate::seal::{TAG_BYTES, Tag};

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Offer { header: [u8; HEADER_BYTES], tag: Tag, place: Place },
    Taken,
    Finished,
    Gone,
    Hello,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) stream: usize,
    pub(super) sequence: u64,
    pub(super) kind: Kind,
}

const HEAD_BYTES: usize = 13;
const TAG_AT: usize = HEAD_BYTES + HEADER_BYTES;
const PLACE_AT: usize = TAG_AT + TAG_BYTES;
const OFFER_BYTES: usize = PLACE_AT + 16;

impl Message {
    pub(super) fn encode(&self) -> Vec<u8> {
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
        if let Kind::Offer { header, tag, place } = &self.kind {
            bytes.extend(header);
            bytes.extend(tag);
            bytes.extend(place.address.to_le_bytes());
            bytes.extend(place.key.to_le_bytes());
        }
        bytes
    }

    /// Nothing for what is no message.
    pub(super) fn decode(bytes: &[u8]) -> Option<Message> {
        let word = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        let stream = u32::from_le_bytes(bytes.get(1..5)?.try_into().ok()?) as usize;
        let sequence = word(5)?;
        let kind = match (bytes[0], bytes.len()) {
            (1, OFFER_BYTES) => Kind::Offer {
                header: bytes[HEAD_BYTES..TAG_AT].try_into().ok()?,
                tag: bytes[TAG_AT..PLACE_AT].try_into().ok()?,
                place: Place { address: word(PLACE_AT)?, key: word(PLACE_AT + 8)? },
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_what_was_said() {
        let place = Place { address: 1 << 40, key: u64::MAX };
        let kinds = [
            Kind::Offer { header: [7; HEADER_BYTES], tag: [9; TAG_BYTES], place },
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
