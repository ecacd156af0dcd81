//! Records, and batches of them.
//!
//! Owns the framing. A record's check depends on the journal and the offset, and is computed at the append.

use carrack_model::{ByteRange, RelPath};
use xxhash_rust::xxh3::xxh3_64_with_seed;
use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::header::JournalNonce;
use super::{JournalError, JournalWriterIdentity};
use crate::Blake3Subtree;

/// Longest body: a table fits into a slot (`SLOT_BYTES_MAX`), with room for a name.
pub(super) const BODY_BYTES_MAX: usize = (64 << 20) + (64 << 10);

/// Bytes before a record's body.
pub(super) const HEAD_BYTES: usize = size_of::<RawJournalRecordHead>();

/// Bytes of a record's check, which the check does not cover.
const CHECK_BYTES: usize = 8;

/// Kind of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum RecordKind {
    Session = 1,
    Small = 2,
    Begin = 3,
    Held = 4,
    Done = 5,
    Dropped = 6,
    Mode = 7,
    ModesRestored = 8,
}

impl RecordKind {
    pub fn of(number: u8) -> Option<RecordKind> {
        use RecordKind::{Begin, Done, Dropped, Held, Mode, ModesRestored, Session, Small};
        let all = [Session, Small, Begin, Held, Done, Dropped, Mode, ModesRestored];
        all.into_iter().find(|&kind| kind as u8 == number)
    }
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct RawJournalRecordHead {
    pub check: U64,
    pub body_len: U32,
    pub kind: u8,
    pub reserved: [u8; 3],
}

/// Fixed part of a `Begin`'s body.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct RawJournalBeginRecord {
    pub number: U64,
    pub temporary_len: U32,
}

/// Fixed part of a `Held`'s body.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct RawJournalHeldRecord {
    pub number: U64,
    pub range_count: U32,
    pub subtree_count: U32,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct RawRange {
    pub offset: U64,
    pub len: U64,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct RawHashSubtree {
    pub range: RawRange,
    pub value: [u8; 32],
}

impl From<ByteRange> for RawRange {
    fn from(range: ByteRange) -> RawRange {
        RawRange { offset: U64::new(range.offset), len: U64::new(range.len) }
    }
}

impl From<&RawRange> for ByteRange {
    fn from(raw: &RawRange) -> ByteRange {
        ByteRange::new(raw.offset.get(), raw.len.get())
    }
}

/// Records to append together.
#[derive(Clone, Debug, Default)]
pub struct RecordBatch {
    /// Framed records with checks of 0.
    bytes: Vec<u8>,
}

impl RecordBatch {
    /// An empty batch.
    pub fn new() -> RecordBatch {
        RecordBatch::default()
    }

    /// Records that the files and links of a bundle's entry table are complete under their names.
    pub fn add_small(&mut self, table: &[u8]) {
        self.add_record(RecordKind::Small, |body| body.extend_from_slice(table));
    }

    /// Records the start of a large file: its number (from [`super::Journal::next_number`]), a table of one
    /// section and one regular file, and its temporary name in that section's directory.
    pub fn add_begin(&mut self, number: u64, table: &[u8], temporary: &[u8]) {
        let raw = RawJournalBeginRecord {
            number: U64::new(number),
            temporary_len: U32::new(temporary.len() as u32),
        };
        self.add_record(RecordKind::Begin, |body| {
            body.extend_from_slice(raw.as_bytes());
            body.extend_from_slice(temporary);
            body.extend_from_slice(table);
        });
    }

    /// Records that ranges of a large file are written, with their chaining values, if those are used.
    pub fn add_held_ranges(
        &mut self,
        number: u64,
        ranges: impl IntoIterator<Item = ByteRange>,
        subtrees: &[Blake3Subtree],
    ) {
        self.add_record(RecordKind::Held, |body| {
            let start = body.len();
            body.resize(start + size_of::<RawJournalHeldRecord>(), 0);
            let mut range_count = 0;
            for range in ranges {
                body.extend_from_slice(RawRange::from(range).as_bytes());
                range_count += 1;
            }
            for subtree in subtrees {
                let raw = RawHashSubtree { range: subtree.range.into(), value: subtree.value };
                body.extend_from_slice(raw.as_bytes());
            }
            let raw = RawJournalHeldRecord {
                number: U64::new(number),
                range_count: U32::new(range_count),
                subtree_count: U32::new(subtrees.len() as u32),
            };
            body[start..start + size_of::<RawJournalHeldRecord>()].copy_from_slice(raw.as_bytes());
        });
    }

    /// Records that a large file is complete under its name.
    pub fn add_done(&mut self, number: u64) {
        self.add_record(RecordKind::Done, |body| body.extend_from_slice(&number.to_le_bytes()));
    }

    /// Records that a large file was given up and its temporary name removed.
    pub fn add_dropped(&mut self, number: u64) {
        self.add_record(RecordKind::Dropped, |body| body.extend_from_slice(&number.to_le_bytes()));
    }

    /// Records that the directory `path` had the permission bits `mode` before the session gave its owner
    /// access.
    pub fn add_mode(&mut self, path: &RelPath, mode: u32) {
        self.add_record(RecordKind::Mode, |body| {
            body.extend_from_slice(&mode.to_le_bytes());
            body.extend_from_slice(path.as_bytes());
        });
    }

    /// Records that all directories of [`RecordBatch::add_mode`] records have their modes again.
    pub fn add_modes_restored(&mut self) {
        self.add_record(RecordKind::ModesRestored, |_| ());
    }

    pub(super) fn add_session(&mut self, session: &JournalWriterIdentity) {
        self.add_record(RecordKind::Session, |body| session.encode(body));
    }

    /// Returns true if there are no records.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Bytes that an append of the batch writes.
    pub fn len_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Removes the records and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
    }

    fn add_record(&mut self, kind: RecordKind, write: impl FnOnce(&mut Vec<u8>)) {
        let start = self.bytes.len();
        self.bytes.resize(start + HEAD_BYTES, 0);
        write(&mut self.bytes);
        // A body beyond 32 bits is far beyond the limit of `encode_with_checks`.
        let body_len = u32::try_from(self.bytes.len() - start - HEAD_BYTES).unwrap_or(u32::MAX);
        let head = RawJournalRecordHead {
            check: U64::new(0),
            body_len: U32::new(body_len),
            kind: kind as u8,
            reserved: [0; 3],
        };
        self.bytes[start..start + HEAD_BYTES].copy_from_slice(head.as_bytes());
    }

    /// Writes the records to `out` with their checks for `offset` of the journal with `key`.
    pub(super) fn encode_with_checks(
        &self,
        key: JournalNonce,
        offset: u64,
        out: &mut Vec<u8>,
    ) -> Result<(), JournalError> {
        out.clear();
        out.extend_from_slice(&self.bytes);
        let mut start = 0;
        while start < out.len() {
            let end = record_end(out, start)?;
            let check = record_checksum(&out[start..end], key, offset + start as u64);
            out[start..start + CHECK_BYTES].copy_from_slice(&check.to_le_bytes());
            start = end;
        }
        Ok(())
    }
}

fn record_end(records: &[u8], start: usize) -> Result<usize, JournalError> {
    let head = RawJournalRecordHead::ref_from_prefix(&records[start..])
        .map_or(u32::MAX, |(head, _)| head.body_len.get());
    let body_len = head as usize;
    if body_len > BODY_BYTES_MAX {
        return Err(JournalError::TooLarge(u64::from(head)));
    }
    Ok(start + HEAD_BYTES + body_len)
}

/// Computes the check of a whole record at `offset`, over everything but the check.
pub(super) fn record_checksum(record: &[u8], key: JournalNonce, offset: u64) -> u64 {
    xxh3_64_with_seed(&record[CHECK_BYTES..], key.halves().0 ^ offset)
}
