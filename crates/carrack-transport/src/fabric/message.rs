//! The messages between the hubs, little-endian:
//!
//! | message | bytes |
//! | --- | --- |
//! | offer | 1, stream u32, sequence u64, frame header (80), seal's tag (16 or zeros), address u64, key u64 |
//! | taken | 2, stream u32, sequence u64 |
//! | finished | 3, stream u32, sequence u64: the number of objects |
//! | gone | 4, stream u32, sequence u64 without meaning: the sender takes or brings no more objects |
//! | hello | 5, as above: makes the connection |
//!
//! They need no seal: a changed message breaks the seal of an object, or ends the session.

use carrack_fabric::RemoteMemory;
use carrack_wire::HEADER_BYTES;

use crate::seal::{SealTag, TAG_BYTES};

#[derive(Debug, PartialEq, Eq)]
pub(super) enum FabricHubMessageBody {
    Offer { header: [u8; HEADER_BYTES], tag: SealTag, place: RemoteMemory },
    Taken,
    Finished,
    Gone,
    Hello,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct FabricPeerMessage {
    pub(super) stream: usize,
    pub(super) sequence: u64,
    pub(super) kind: FabricHubMessageBody,
}

const HEAD_BYTES: usize = 13;
const TAG_AT: usize = HEAD_BYTES + HEADER_BYTES;
const PLACE_AT: usize = TAG_AT + TAG_BYTES;
const OFFER_BYTES: usize = PLACE_AT + 16;

impl FabricPeerMessage {
    pub(super) fn encode(&self) -> Vec<u8> {
        let code = match self.kind {
            FabricHubMessageBody::Offer { .. } => 1,
            FabricHubMessageBody::Taken => 2,
            FabricHubMessageBody::Finished => 3,
            FabricHubMessageBody::Gone => 4,
            FabricHubMessageBody::Hello => 5,
        };
        let mut bytes = vec![code];
        bytes.extend((self.stream as u32).to_le_bytes());
        bytes.extend(self.sequence.to_le_bytes());
        if let FabricHubMessageBody::Offer { header, tag, place } = &self.kind {
            bytes.extend(header);
            bytes.extend(tag);
            bytes.extend(place.address.to_le_bytes());
            bytes.extend(place.key.to_le_bytes());
        }
        bytes
    }

    /// `None` for malformed bytes.
    pub(super) fn decode(bytes: &[u8]) -> Option<FabricPeerMessage> {
        let stream = u32::from_le_bytes(bytes.get(1..5)?.try_into().ok()?) as usize;
        let sequence = u64_at(bytes, 5)?;
        let kind = match (bytes[0], bytes.len()) {
            (1, OFFER_BYTES) => FabricHubMessageBody::Offer {
                header: bytes[HEAD_BYTES..TAG_AT].try_into().ok()?,
                tag: bytes[TAG_AT..PLACE_AT].try_into().ok()?,
                place: RemoteMemory { address: u64_at(bytes, PLACE_AT)?, key: u64_at(bytes, PLACE_AT + 8)? },
            },
            (2, HEAD_BYTES) => FabricHubMessageBody::Taken,
            (3, HEAD_BYTES) => FabricHubMessageBody::Finished,
            (4, HEAD_BYTES) => FabricHubMessageBody::Gone,
            (5, HEAD_BYTES) => FabricHubMessageBody::Hello,
            _ => return None,
        };
        Some(FabricPeerMessage { stream, sequence, kind })
    }
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_what_was_said() {
        let place = RemoteMemory { address: 1 << 40, key: u64::MAX };
        let kinds = [
            FabricHubMessageBody::Offer { header: [7; HEADER_BYTES], tag: [9; TAG_BYTES], place },
            FabricHubMessageBody::Taken,
            FabricHubMessageBody::Finished,
            FabricHubMessageBody::Gone,
            FabricHubMessageBody::Hello,
        ];
        for kind in kinds {
            let message = FabricPeerMessage { stream: 3, sequence: 1 << 33, kind };
            let bytes = message.encode();
            assert_eq!(FabricPeerMessage::decode(&bytes), Some(message));
            for end in 0..bytes.len() {
                assert_eq!(FabricPeerMessage::decode(&bytes[..end]), None, "{end} bytes");
            }
            assert_eq!(FabricPeerMessage::decode(&[bytes, vec![0]].concat()), None);
        }
    }
}
