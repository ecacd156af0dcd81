//! The fixed header of every frame after the preamble or the stream handshake.

use carrack_model::limits::{CONTROL_BODY_BYTES_MAX, SLOT_BYTES_MAX};
use carrack_model::{FileId, ObjectId};
use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Version of the frame layout.
pub const FRAME_VERSION: u8 = 1;

/// Bytes of the header of [`FRAME_VERSION`].
pub const HEADER_BYTES: usize = 80;

const MAGIC: [u8; 4] = *b"CRRK";

/// Flag bits that a reader must know; it may ignore the others.
const FLAGS_CRITICAL: u32 = 0xffff_0000;

/// Kind of a frame's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum FrameKind {
    /// A control message.
    Control = 1,
    /// An extent of one file.
    Object = 2,
    /// The contents of many small files, followed by their entry table (M7).
    Bundle = 3,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawFrameHeader {
    magic: [u8; 4],
    version: u8,
    kind: u8,
    header_len: U16,
    flags: U32,
    body_len: U32,
    object: U64,
    file: U64,
    offset: U64,
    table_len: U32,
    lane: U32,
    check: [u8; 32],
}

const _: () = assert!(size_of::<RawFrameHeader>() == HEADER_BYTES);

/// A frame's header, decoded and checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// Kind of the body.
    pub kind: FrameKind,
    /// Bytes that follow the header.
    pub body_len: u32,
    /// The object or bundle; 0 in control frames.
    pub object: ObjectId,
    /// The file that an object belongs to; 0 otherwise.
    pub file: FileId,
    /// Offset of the object in the file.
    pub offset: u64,
    /// Bytes of the entry table at the end of the body, in a bundle or in the first object of an
    /// inline-announced file; 0 otherwise.
    pub table_len: u32,
    /// The lane that a control message is for; 0 in data frames, whose connection implies the lane.
    pub lane: u32,
    /// The check of the body, see `docs/formats/wire.md`; zeros without a check.
    pub check: [u8; 32],
}

/// Reasons why bytes are not a frame header. Each ends the session, as the next frame can't be found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// No frame magic.
    #[error("garbage where a frame should begin")]
    BadMagic,
    /// A frame version newer than this build.
    #[error("frame version {0} is not known here")]
    UnknownVersion(u8),
    /// A frame kind newer than this build.
    #[error("frame kind {0} is not known here")]
    UnknownKind(u8),
    /// A critical flag newer than this build.
    #[error("frame flags {0:#010x} are not known here")]
    UnknownFlags(u32),
    /// A header length other than [`HEADER_BYTES`].
    #[error("a frame header of {0} bytes")]
    BadHeaderLength(u16),
    /// The body is larger than the limit for its kind.
    #[error("a frame body of {0} bytes, more than the {1} allowed")]
    BodyTooLong(u32, u32),
    /// The table is longer than the body, or the frame may not have one.
    #[error("an entry table of {0} bytes in a body of {1}")]
    BadTableLength(u32, u32),
}

impl FrameHeader {
    /// The header of a control message of `body_len` bytes for the first lane.
    pub fn control(body_len: u32) -> FrameHeader {
        FrameHeader {
            kind: FrameKind::Control,
            body_len,
            object: ObjectId(0),
            file: FileId(0),
            offset: 0,
            table_len: 0,
            lane: 0,
            check: [0; 32],
        }
    }

    /// Encodes the header.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        zerocopy::transmute!(RawFrameHeader {
            magic: MAGIC,
            version: FRAME_VERSION,
            kind: self.kind as u8,
            header_len: U16::new(HEADER_BYTES as u16),
            flags: U32::new(0),
            body_len: U32::new(self.body_len),
            object: U64::new(self.object.0),
            file: U64::new(self.file.0),
            offset: U64::new(self.offset),
            table_len: U32::new(self.table_len),
            lane: U32::new(self.lane),
            check: self.check,
        })
    }

    /// Reads a header; bodies of data frames may have `slot_bytes` at most.
    pub fn decode(bytes: &[u8; HEADER_BYTES], slot_bytes: u32) -> Result<FrameHeader, FrameError> {
        let raw: &RawFrameHeader = zerocopy::transmute_ref!(bytes);
        raw.check_layout()?;
        let header = FrameHeader {
            kind: raw.kind()?,
            body_len: raw.body_len.get(),
            object: ObjectId(raw.object.get()),
            file: FileId(raw.file.get()),
            offset: raw.offset.get(),
            table_len: raw.table_len.get(),
            lane: raw.lane.get(),
            check: raw.check,
        };
        header.check_lengths(slot_bytes)?;
        Ok(header)
    }

    fn check_lengths(&self, slot_bytes: u32) -> Result<(), FrameError> {
        let limit = match self.kind {
            FrameKind::Control => CONTROL_BODY_BYTES_MAX as u32,
            FrameKind::Object | FrameKind::Bundle => slot_bytes.min(SLOT_BYTES_MAX as u32),
        };
        if self.body_len > limit {
            return Err(FrameError::BodyTooLong(self.body_len, limit));
        }
        let table_limit = match self.kind {
            FrameKind::Bundle => self.body_len,
            // An object is never empty, and only the objects of an inline-announced file have a table.
            FrameKind::Object if self.file.is_inline_announced() => self.body_len.saturating_sub(1),
            FrameKind::Object | FrameKind::Control => 0,
        };
        if self.table_len > table_limit {
            return Err(FrameError::BadTableLength(self.table_len, self.body_len));
        }
        Ok(())
    }
}

impl RawFrameHeader {
    fn check_layout(&self) -> Result<(), FrameError> {
        if self.magic != MAGIC {
            return Err(FrameError::BadMagic);
        }
        if self.version != FRAME_VERSION {
            return Err(FrameError::UnknownVersion(self.version));
        }
        if usize::from(self.header_len.get()) != HEADER_BYTES {
            return Err(FrameError::BadHeaderLength(self.header_len.get()));
        }
        if self.flags.get() & FLAGS_CRITICAL != 0 {
            return Err(FrameError::UnknownFlags(self.flags.get()));
        }
        Ok(())
    }

    fn kind(&self) -> Result<FrameKind, FrameError> {
        match self.kind {
            1 => Ok(FrameKind::Control),
            2 => Ok(FrameKind::Object),
            3 => Ok(FrameKind::Bundle),
            other => Err(FrameError::UnknownKind(other)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn object() -> FrameHeader {
        FrameHeader {
            kind: FrameKind::Object,
            body_len: 0x0004_0000,
            object: ObjectId(7),
            file: FileId(3),
            offset: 0x0010_0000,
            table_len: 0,
            lane: 0,
            check: [0xab; 32],
        }
    }

    #[test]
    fn the_example_of_the_format_document() {
        let bytes = object().encode();
        let expected = [
            &b"CRRK\x01\x02\x50\x00"[..],
            b"\0\0\0\0\x00\x00\x04\x00",
            b"\x07\0\0\0\0\0\0\0",
            b"\x03\0\0\0\0\0\0\0",
            b"\x00\x00\x10\0\0\0\0\0",
            b"\0\0\0\0\0\0\0\0",
            &[0xab; 32],
        ]
        .concat();
        assert_eq!(&bytes[..], &expected[..]);
    }

    #[test]
    fn refuses_what_it_does_not_know() {
        fn with(at: usize, value: u8) -> Result<FrameHeader, FrameError> {
            let mut bytes = object().encode();
            bytes[at] = value;
            FrameHeader::decode(&bytes, 1 << 20)
        }
        assert_eq!(with(0, 0), Err(FrameError::BadMagic));
        assert_eq!(with(4, 2), Err(FrameError::UnknownVersion(2)));
        assert_eq!(with(5, 9), Err(FrameError::UnknownKind(9)));
        assert_eq!(with(6, 79), Err(FrameError::BadHeaderLength(79)));
        assert_eq!(with(11, 1), Err(FrameError::UnknownFlags(0x0100_0000)));
        assert_eq!(with(15, 1), Err(FrameError::BodyTooLong(0x0104_0000, 1 << 20)));
        assert_eq!(with(40, 1), Err(FrameError::BadTableLength(1, 0x0004_0000)));
        assert!(with(8, 1).is_ok(), "flags that are not critical are ignored");
    }

    #[test]
    fn an_object_that_announces_its_file_has_a_table_and_contents() {
        fn inline_announced(table_len: u32) -> Result<FrameHeader, FrameError> {
            let file = FileId::FIRST_BY_ITSELF;
            FrameHeader::decode(&FrameHeader { file, table_len, ..object() }.encode(), 1 << 20)
        }
        assert!(inline_announced(0).is_ok() && inline_announced(0x0003_ffff).is_ok());
        assert_eq!(inline_announced(0x0004_0000), Err(FrameError::BadTableLength(0x0004_0000, 0x0004_0000)));
    }

    #[test]
    fn a_control_body_has_its_own_limit() {
        let header = FrameHeader::control(CONTROL_BODY_BYTES_MAX as u32 + 1);
        assert!(FrameHeader::decode(&header.encode(), SLOT_BYTES_MAX as u32).is_err());
    }

    proptest! {
        #[test]
        fn survives_the_wire(body in 0u32..=1 << 20, id: u64, file: u64, offset: u64, table: u32, check: [u8; 32]) {
            let header = FrameHeader {
                kind: FrameKind::Bundle, body_len: body, object: ObjectId(id), file: FileId(file), offset,
                table_len: table % (body + 1), lane: table, check,
            };
            prop_assert_eq!(FrameHeader::decode(&header.encode(), 1 << 20), Ok(header));
        }

        #[test]
        fn never_panics(bytes in proptest::array::uniform32(any::<u8>()), tail in proptest::array::uniform32(any::<u8>())) {
            let mut raw = [0; HEADER_BYTES];
            raw[..32].copy_from_slice(&bytes);
            raw[48..].copy_from_slice(&tail);
            let _ = FrameHeader::decode(&raw, 1 << 20);
        }
    }
}
