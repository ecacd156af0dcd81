//! The header of a journal: its format and its transfer.

use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;

use carrack_model::{Timestamp, TransferId};
use xxhash_rust::xxh3::xxh3_64;
use zerocopy::byteorder::little_endian::{I64, U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{JournalError, VERSION};

const MAGIC: [u8; 8] = *b"carrackj";

/// Longest header: it holds names from the command line, and Linux passes at most 6 MiB of arguments
/// (`fs/exec.c`).
const HEADER_BYTES_MAX: usize = 8 << 20;

const CHECK_BYTES: usize = 8;

/// The transfer that a journal belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalSubject {
    /// Transfer ID.
    pub id: TransferId,
    /// State of the destination at the start: 0 an existing directory, 1 created by the transfer, 2 a file
    /// name in its parent.
    pub place: u8,
    /// The sources as they were typed, for people.
    pub sources: Vec<Vec<u8>>,
    /// The destination as it was typed, for people.
    pub destination: Vec<u8>,
    /// Absolute path at the sink of the directory that the journal's paths are relative to; empty if unknown.
    pub root: Vec<u8>,
    /// The version of carrack that began the transfer.
    pub software: String,
    /// Time when it began.
    pub created: Timestamp,
}

/// The header's random bytes, by which records of other journals and old disk contents are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct JournalNonce(pub [u8; 16]);

impl JournalNonce {
    pub fn halves(self) -> (u64, u64) {
        let number = u128::from_le_bytes(self.0);
        (number as u64, (number >> 64) as u64)
    }
}

/// A decoded header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct JournalHeader {
    pub about: JournalSubject,
    pub key: JournalNonce,
    /// Offset of the first record.
    pub len: u64,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawJournalHeader {
    magic: [u8; 8],
    version: U16,
    place: u8,
    reserved: u8,
    header_len: U32,
    key: [u8; 16],
    id: [u8; 16],
    created_s: I64,
    created_ns: U32,
    source_count: U32,
}

const FIXED_BYTES: usize = size_of::<RawJournalHeader>();

/// Encodes a header.
pub(super) fn encode(about: &JournalSubject, key: JournalNonce) -> Result<Vec<u8>, JournalError> {
    let mut bytes = vec![0; FIXED_BYTES];
    for text in [about.software.as_bytes(), &about.destination, &about.root] {
        put(&mut bytes, text);
    }
    about.sources.iter().for_each(|source| put(&mut bytes, source));
    let header_len = bytes.len() + CHECK_BYTES;
    if header_len > HEADER_BYTES_MAX {
        return Err(JournalError::TooLarge(header_len as u64));
    }
    let raw = RawJournalHeader {
        magic: MAGIC,
        version: U16::new(VERSION),
        place: about.place,
        reserved: 0,
        header_len: U32::new(header_len as u32),
        key: key.0,
        id: about.id.0,
        created_s: I64::new(about.created.seconds),
        created_ns: U32::new(about.created.nanoseconds),
        source_count: U32::new(about.sources.len() as u32),
    };
    bytes[..FIXED_BYTES].copy_from_slice(raw.as_bytes());
    let check = xxh3_64(&bytes);
    bytes.extend_from_slice(&check.to_le_bytes());
    Ok(bytes)
}

fn put(out: &mut Vec<u8>, text: &[u8]) {
    out.extend_from_slice(&(text.len() as u32).to_le_bytes());
    out.extend_from_slice(text);
}

/// Reads the header of an open journal.
pub(super) fn read(file: &File) -> Result<JournalHeader, JournalError> {
    let mut fixed = [0; FIXED_BYTES];
    read_at(file, &mut fixed, 0, JournalError::NotAJournal)?;
    let raw = RawJournalHeader::ref_from_bytes(&fixed).map_err(|_| JournalError::NotAJournal)?;
    let header_len = check_fixed(raw)?;
    let mut bytes = vec![0; header_len];
    read_at(file, &mut bytes, 0, JournalError::DamagedHeader)?;
    let (checked, check) = bytes.split_at(header_len - CHECK_BYTES);
    if xxh3_64(checked).to_le_bytes() != check {
        return Err(JournalError::DamagedHeader);
    }
    let about = parse_subject(raw, &checked[FIXED_BYTES..]).ok_or(JournalError::DamagedHeader)?;
    Ok(JournalHeader { about, key: JournalNonce(raw.key), len: header_len as u64 })
}

/// Returns the header's length, if the fixed part is valid.
fn check_fixed(raw: &RawJournalHeader) -> Result<usize, JournalError> {
    if raw.magic != MAGIC || raw.version.get() == 0 {
        return Err(JournalError::NotAJournal);
    }
    if raw.version.get() > VERSION {
        return Err(JournalError::Newer(raw.version.get()));
    }
    let header_len = raw.header_len.get() as usize;
    let fits = (FIXED_BYTES + CHECK_BYTES..=HEADER_BYTES_MAX).contains(&header_len);
    if fits { Ok(header_len) } else { Err(JournalError::DamagedHeader) }
}

fn parse_subject(raw: &RawJournalHeader, mut texts: &[u8]) -> Option<JournalSubject> {
    let software = take(&mut texts)?;
    let destination = take(&mut texts)?.to_vec();
    let root = take(&mut texts)?.to_vec();
    // Each source takes at least four bytes: a wrong count ends at the end of the texts.
    let sources: Vec<Vec<u8>> =
        (0..raw.source_count.get()).map(|_| take(&mut texts).map(<[u8]>::to_vec)).collect::<Option<_>>()?;
    let created = Timestamp { seconds: raw.created_s.get(), nanoseconds: raw.created_ns.get() };
    texts.is_empty().then_some(JournalSubject {
        id: TransferId(raw.id),
        place: raw.place,
        sources,
        destination,
        root,
        software: String::from_utf8_lossy(software).into_owned(),
        created,
    })
}

fn take<'a>(texts: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (len, rest) = U32::ref_from_prefix(texts).ok()?;
    let (text, rest) = rest.split_at_checked(len.get() as usize)?;
    *texts = rest;
    Some(text)
}

/// Fills `bytes`, or returns `short` if the file ends before.
fn read_at(file: &File, bytes: &mut [u8], offset: u64, short: JournalError) -> Result<(), JournalError> {
    match file.read_exact_at(bytes, offset) {
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Err(short),
        answer => answer.map_err(JournalError::doing("reading the journal")),
    }
}
