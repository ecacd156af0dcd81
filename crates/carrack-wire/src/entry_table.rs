//! The entry table: sections (directories) and their entries, as the file table travels.
//!
//! A bundle's body is the contents of its regular files one after the other, then this table with the entries
//! in the same order. An open-file message carries a table of one section and one entry. Decoding borrows.
//! Every name and path is checked, so that the decoded ones can be resolved beneath a directory.

use carrack_model::limits::{RANGES_MAX, SYMLINK_BYTES_MAX};
use carrack_model::{
    ByteRange, CopiedDirectoryPaths, DirectorySection, Entry, EntryKind, ExtraMetadata, Metadata,
    PathProblem, RangeSet, RelPath, SpecialFile, Timestamp, check_name,
};
use zerocopy::byteorder::little_endian::{I64, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

const KIND_SECTION: u8 = 1;
const KIND_REGULAR: u8 = 2;
const KIND_SYMLINK: u8 = 3;
const KIND_SPECIAL: u8 = 4;

/// The section carries its directory's metadata.
const FLAG_METADATA: u8 = 1;

const EXTRA_SYMLINK_TARGET: u8 = 1;
const EXTRA_BLAKE3: u8 = 2;
const EXTRA_IDENTITY: u8 = 9;
const EXTRA_HOLES: u8 = 15;
const EXTRA_SPECIAL: u8 = 138;
/// A reader must understand extras from this number on, and may skip unknown ones below.
const EXTRA_CRITICAL: u8 = 128;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct EntryTableRecordHeader {
    record_len: U32,
    kind: u8,
    flags: u8,
    name_len: U16,
    mode: U32,
    mtime_ns: U32,
    mtime_s: I64,
    size: U64,
}

const RECORD_BYTES: usize = size_of::<EntryTableRecordHeader>();
const EXTRA_BYTES: usize = 4;

/// Bytes of one hole: offset and length, each a `u32`, which suffices for a file that fits into a slot.
const HOLE_BYTES: usize = 8;

/// Reasons why bytes are not an entry table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EntryTableDecodeError {
    /// A record or extra exceeds the table.
    #[error("an entry table ends within a record")]
    Truncated,
    /// A record kind newer than this build.
    #[error("record kind {0} is not known here")]
    UnknownKind(u8),
    /// A critical extra newer than this build.
    #[error("entry attribute {0} is not known here")]
    UnknownExtra(u8),
    /// A refused name or path.
    #[error("a name that is refused: {0}")]
    BadName(PathProblem),
    /// An entry before the first section.
    #[error("an entry without a directory")]
    NoSection,
    /// A link without target, a target too long or with a NUL, a special file without its kind, a time out of
    /// range, a digest or identity of the wrong length, holes beyond a file's end, out of order or too many.
    #[error("a record with a value out of range")]
    BadValue,
}

impl From<PathProblem> for EntryTableDecodeError {
    fn from(problem: PathProblem) -> Self {
        EntryTableDecodeError::BadName(problem)
    }
}

/// Appends records to a buffer.
pub struct EntryTableEncoder<'a> {
    out: &'a mut Vec<u8>,
    /// Owner and attributes of the records that follow.
    extras: Option<&'a ExtraMetadata>,
    /// Holes of the regular files that follow.
    holes: Option<&'a RangeSet>,
}

/// Bytes of the holes in an entry's record.
pub fn holes_table_bytes(holes: &RangeSet) -> usize {
    if holes.is_empty() { 0 } else { EXTRA_BYTES + holes.run_count() * HOLE_BYTES }
}

impl<'a> EntryTableEncoder<'a> {
    /// Appends to `out`.
    pub fn new(out: &'a mut Vec<u8>) -> EntryTableEncoder<'a> {
        EntryTableEncoder { out, extras: None, holes: None }
    }

    /// Adds `extras` to each record that follows.
    pub fn with_extras(self, extras: Option<&'a ExtraMetadata>) -> EntryTableEncoder<'a> {
        EntryTableEncoder { extras, ..self }
    }

    /// Adds `holes` to each regular file that follows; its contents have zeros there.
    pub fn with_holes(self, holes: &'a RangeSet) -> EntryTableEncoder<'a> {
        EntryTableEncoder { holes: Some(holes).filter(|holes| !holes.is_empty()), ..self }
    }

    /// Begins the entries of a directory.
    pub fn begin_section(&mut self, path: &RelPath, metadata: Option<&Metadata>) {
        let flags = if metadata.is_some() { FLAG_METADATA } else { 0 };
        let metadata = metadata.copied().unwrap_or_default();
        self.add_record(KIND_SECTION, flags, path.as_bytes(), &metadata, 0, &[]);
    }

    /// Adds a regular file with the metadata and size that belong to its contents; an `identity` of 0 is left
    /// out.
    pub fn add_regular(
        &mut self,
        name: &[u8],
        size: u64,
        metadata: &Metadata,
        identity: u64,
        digest: Option<&[u8; 32]>,
    ) {
        let digest = digest.map(|digest| (EXTRA_BLAKE3, &digest[..]));
        self.add_record_with_identity(KIND_REGULAR, name, metadata, size, identity, digest);
    }

    /// Adds an entry without digest, owner and attributes.
    pub fn add_entry(&mut self, entry: &Entry) {
        match &entry.kind {
            EntryKind::Regular { size } => {
                self.add_regular(&entry.name, *size, &entry.metadata, entry.identity, None);
            }
            EntryKind::Symlink { target } => {
                self.add_symlink(&entry.name, target, &entry.metadata, entry.identity);
            }
            EntryKind::Special(special) => {
                self.add_special(&entry.name, special, &entry.metadata, entry.identity);
            }
        }
    }

    /// Adds a symbolic link; an `identity` of 0 is left out.
    pub fn add_symlink(&mut self, name: &[u8], target: &[u8], metadata: &Metadata, identity: u64) {
        let target = Some((EXTRA_SYMLINK_TARGET, target));
        self.add_record_with_identity(KIND_SYMLINK, name, metadata, 0, identity, target);
    }

    /// Adds a device, pipe or socket; an `identity` of 0 is left out.
    pub fn add_special(&mut self, name: &[u8], special: &SpecialFile, metadata: &Metadata, identity: u64) {
        let special = special.to_bytes();
        self.add_record_with_identity(
            KIND_SPECIAL,
            name,
            metadata,
            0,
            identity,
            Some((EXTRA_SPECIAL, &special)),
        );
    }

    /// Adds an entry of another table.
    pub fn add_item(&mut self, entry: &EntryTableItem<'_>) {
        let mut writer =
            EntryTableEncoder::new(self.out).with_extras(entry.extras.as_deref()).with_holes(&entry.holes);
        match (entry.symlink_target, &entry.special) {
            (Some(target), _) => writer.add_symlink(entry.name, target, &entry.metadata, entry.identity),
            (None, Some(special)) => writer.add_special(entry.name, special, &entry.metadata, entry.identity),
            (None, None) => {
                writer.add_regular(entry.name, entry.size, &entry.metadata, entry.identity, entry.digest);
            }
        }
    }

    fn add_record_with_identity(
        &mut self,
        kind: u8,
        name: &[u8],
        metadata: &Metadata,
        size: u64,
        identity: u64,
        extra: Option<(u8, &[u8])>,
    ) {
        let bytes = identity.to_le_bytes();
        match (extra, identity) {
            (None, 0) => self.add_record(kind, 0, name, metadata, size, &[]),
            (None, _) => self.add_record(kind, 0, name, metadata, size, &[(EXTRA_IDENTITY, &bytes)]),
            (Some(extra), 0) => self.add_record(kind, 0, name, metadata, size, &[extra]),
            (Some(extra), _) => {
                self.add_record(kind, 0, name, metadata, size, &[extra, (EXTRA_IDENTITY, &bytes)]);
            }
        }
    }

    fn add_record(
        &mut self,
        kind: u8,
        flags: u8,
        name: &[u8],
        metadata: &Metadata,
        size: u64,
        extras: &[(u8, &[u8])],
    ) {
        debug_assert!(name.len() <= usize::from(u16::MAX));
        let holes = self.holes.filter(|_| kind == KIND_REGULAR);
        let own_len: usize = extras.iter().map(|(_, value)| EXTRA_BYTES + value.len()).sum();
        let extra_len = own_len
            + holes.map_or(0, holes_table_bytes)
            + self.extras.map_or(0, |extras| extras.tag_bytes(EXTRA_BYTES));
        let raw = EntryTableRecordHeader {
            record_len: U32::new((RECORD_BYTES + name.len() + extra_len) as u32),
            kind,
            flags,
            name_len: U16::new(name.len() as u16),
            mode: U32::new(metadata.mode),
            mtime_ns: U32::new(metadata.mtime.nanoseconds),
            mtime_s: I64::new(metadata.mtime.seconds),
            size: U64::new(size),
        };
        self.out.extend_from_slice(raw.as_bytes());
        self.out.extend_from_slice(name);
        for (tag, value) in extras {
            put_extra(self.out, *tag, value);
        }
        if let Some(holes) = holes {
            put_extra(self.out, EXTRA_HOLES, &holes_to_bytes(holes));
        }
        if let Some(extras) = self.extras {
            extras.encode_tags(|tag, value| put_extra(self.out, tag, value));
        }
    }
}

fn put_extra(out: &mut Vec<u8>, tag: u8, value: &[u8]) {
    let head = u32::from(tag) | (value.len() as u32) << 8;
    out.extend_from_slice(&head.to_le_bytes());
    out.extend_from_slice(value);
}

fn holes_to_bytes(holes: &RangeSet) -> Vec<u8> {
    let numbers = holes.iter().flat_map(|hole| [hole.offset, hole.len]);
    numbers.flat_map(|number| (number as u32).to_le_bytes()).collect()
}

/// Decodes holes that rise, don't touch and lie within `size` bytes.
fn holes_from_bytes(bytes: &[u8], size: u64) -> Result<RangeSet, EntryTableDecodeError> {
    let (holes, rest) = bytes.as_chunks::<HOLE_BYTES>();
    if holes.len() > RANGES_MAX {
        return Err(EntryTableDecodeError::BadValue);
    }
    let mut found = RangeSet::new();
    let mut from = 0;
    for hole in holes {
        let [a, b, c, d, e, f, g, h] = *hole;
        let (offset, len) =
            (u32::from_le_bytes([a, b, c, d]).into(), u32::from_le_bytes([e, f, g, h]).into());
        let range = ByteRange::new(offset, len);
        let is_rising = found.is_empty() || offset > from;
        let end = range.end().filter(|&end| is_rising && len > 0 && end <= size);
        from = end.ok_or(EntryTableDecodeError::BadValue)?;
        found.cover(range);
    }
    if rest.is_empty() { Ok(found) } else { Err(EntryTableDecodeError::BadValue) }
}

/// One record of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntryTableRecord<'a> {
    /// Begins the entries of this directory.
    Section {
        /// Relative to the destination.
        path: RelPath,
        /// Set at the end of the transfer.
        metadata: Option<Metadata>,
        /// Owner and attributes, if they are kept.
        extras: Option<Box<ExtraMetadata>>,
    },
    /// A file, link or special file in the directory of the last section.
    Entry(EntryTableItem<'a>),
}

/// A file, link or special file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryTableItem<'a> {
    /// A checked name.
    pub name: &'a [u8],
    /// Mode and times.
    pub metadata: Metadata,
    /// Bytes of content; 0 for links and special files.
    pub size: u64,
    /// Target of a link.
    pub symlink_target: Option<&'a [u8]>,
    /// Kind and number of a device, pipe or socket.
    pub special: Option<SpecialFile>,
    /// BLAKE3 of the contents, if the session uses it.
    pub digest: Option<&'a [u8; 32]>,
    /// Inode number at the source, which tells files of the same name apart; 0 if unknown.
    pub identity: u64,
    /// Owner and attributes, if they are kept.
    pub extras: Option<Box<ExtraMetadata>>,
    /// Holes of a regular file at the source; an honest source sends zeros there.
    pub holes: RangeSet,
}

impl EntryTableItem<'_> {
    /// Returns true for a regular file, which may be empty.
    pub fn is_regular(&self) -> bool {
        self.symlink_target.is_none() && self.special.is_none()
    }

    /// Converts to an owned entry.
    pub fn to_entry(&self) -> Entry {
        Entry {
            name: self.name.into(),
            source_name: None,
            kind: match (self.symlink_target, self.special) {
                (Some(target), _) => EntryKind::Symlink { target: target.into() },
                (None, Some(special)) => EntryKind::Special(special),
                (None, None) => EntryKind::Regular { size: self.size },
            },
            metadata: self.metadata,
            identity: self.identity,
            extras: self.extras.clone(),
        }
    }
}

/// Iterates over the records of a table.
pub struct EntryTableDecoder<'a> {
    rest: &'a [u8],
    in_section: bool,
}

impl<'a> EntryTableDecoder<'a> {
    /// Reads `table` from its start.
    pub fn new(table: &'a [u8]) -> EntryTableDecoder<'a> {
        EntryTableDecoder { rest: table, in_section: false }
    }

    fn read(&mut self) -> Result<EntryTableRecord<'a>, EntryTableDecodeError> {
        let (raw, _) = EntryTableRecordHeader::ref_from_prefix(self.rest)
            .map_err(|_| EntryTableDecodeError::Truncated)?;
        let record_len = raw.record_len.get() as usize;
        if record_len < RECORD_BYTES || record_len > self.rest.len() {
            return Err(EntryTableDecodeError::Truncated);
        }
        let (record, rest) = self.rest.split_at(record_len);
        self.rest = rest;
        let body = &record[RECORD_BYTES..];
        let (name, extras) =
            body.split_at_checked(usize::from(raw.name_len.get())).ok_or(EntryTableDecodeError::Truncated)?;
        self.interpret(raw, name, extras)
    }

    fn interpret(
        &mut self,
        raw: &EntryTableRecordHeader,
        name: &'a [u8],
        extras: &'a [u8],
    ) -> Result<EntryTableRecord<'a>, EntryTableDecodeError> {
        let metadata = raw.metadata()?;
        match raw.kind {
            KIND_SECTION => {
                self.in_section = true;
                let extras = EntryTableRecordExtras::read(extras)?.more;
                let metadata = (raw.flags & FLAG_METADATA != 0).then_some(metadata);
                Ok(EntryTableRecord::Section { path: RelPath::new(name)?, metadata, extras })
            }
            KIND_REGULAR | KIND_SYMLINK | KIND_SPECIAL if !self.in_section => {
                Err(EntryTableDecodeError::NoSection)
            }
            KIND_REGULAR | KIND_SYMLINK | KIND_SPECIAL => {
                raw.entry(name, metadata, extras).map(EntryTableRecord::Entry)
            }
            other => Err(EntryTableDecodeError::UnknownKind(other)),
        }
    }
}

impl<'a> Iterator for EntryTableDecoder<'a> {
    type Item = Result<EntryTableRecord<'a>, EntryTableDecodeError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let record = self.read();
        if record.is_err() {
            self.rest = &[];
        }
        Some(record)
    }
}

impl EntryTableRecordHeader {
    fn metadata(&self) -> Result<Metadata, EntryTableDecodeError> {
        let nanoseconds = self.mtime_ns.get();
        if nanoseconds > 999_999_999 || self.mode.get() > 0o7777 {
            return Err(EntryTableDecodeError::BadValue);
        }
        let mtime = Timestamp { seconds: self.mtime_s.get(), nanoseconds };
        Ok(Metadata { mode: self.mode.get(), mtime })
    }

    fn entry<'a>(
        &self,
        name: &'a [u8],
        metadata: Metadata,
        extras: &'a [u8],
    ) -> Result<EntryTableItem<'a>, EntryTableDecodeError> {
        check_name(name)?;
        let extras = EntryTableRecordExtras::read(extras)?;
        let says_what_it_is = (self.kind == KIND_SYMLINK) == extras.symlink_target.is_some()
            && (self.kind == KIND_SPECIAL) == extras.special.is_some();
        if !says_what_it_is || self.kind != KIND_REGULAR && self.size.get() != 0 {
            return Err(EntryTableDecodeError::BadValue);
        }
        Ok(EntryTableItem {
            name,
            metadata,
            size: self.size.get(),
            symlink_target: extras.symlink_target,
            special: extras.special,
            digest: extras.digest,
            identity: extras.identity,
            holes: match self.kind {
                KIND_REGULAR => holes_from_bytes(extras.holes, self.size.get())?,
                _ => RangeSet::new(),
            },
            extras: extras.more,
        })
    }
}

#[derive(Default)]
struct EntryTableRecordExtras<'a> {
    symlink_target: Option<&'a [u8]>,
    special: Option<SpecialFile>,
    digest: Option<&'a [u8; 32]>,
    identity: u64,
    holes: &'a [u8],
    more: Option<Box<ExtraMetadata>>,
}

impl<'a> EntryTableRecordExtras<'a> {
    fn read(mut rest: &'a [u8]) -> Result<EntryTableRecordExtras<'a>, EntryTableDecodeError> {
        let mut extras = EntryTableRecordExtras::default();
        while !rest.is_empty() {
            let (head, after) = U32::ref_from_prefix(rest).map_err(|_| EntryTableDecodeError::Truncated)?;
            let (tag, len) = (head.get() as u8, (head.get() >> 8) as usize);
            let (value, after) = after.split_at_checked(len).ok_or(EntryTableDecodeError::Truncated)?;
            extras.store_extra(tag, value)?;
            rest = after;
        }
        extras.more.take_if(|more| more.is_empty());
        Ok(extras)
    }

    fn store_extra(&mut self, tag: u8, value: &'a [u8]) -> Result<(), EntryTableDecodeError> {
        match tag {
            EXTRA_SYMLINK_TARGET => {
                if value.is_empty() || value.len() > SYMLINK_BYTES_MAX || value.contains(&0) {
                    return Err(EntryTableDecodeError::BadValue);
                }
                self.symlink_target = Some(value);
            }
            EXTRA_SPECIAL => {
                self.special = Some(SpecialFile::from_bytes(value).ok_or(EntryTableDecodeError::BadValue)?);
            }
            EXTRA_HOLES => self.holes = value,
            EXTRA_BLAKE3 => {
                self.digest = Some(value.try_into().map_err(|_| EntryTableDecodeError::BadValue)?)
            }
            EXTRA_IDENTITY => {
                self.identity =
                    u64::from_le_bytes(value.try_into().map_err(|_| EntryTableDecodeError::BadValue)?);
            }
            tag if ExtraMetadata::is_known_tag(tag) => {
                let more = self.more.get_or_insert_default();
                more.decode_tag(tag, value).map_err(|_| EntryTableDecodeError::BadValue)?;
            }
            tag if tag >= EXTRA_CRITICAL => return Err(EntryTableDecodeError::UnknownExtra(tag)),
            _ => {}
        }
        Ok(())
    }
}

/// Decodes a whole table of one section into owned values, as an open-file message carries it.
pub fn decode_section(table: &[u8]) -> Result<DirectorySection, EntryTableDecodeError> {
    let mut reader = EntryTableDecoder::new(table);
    let Some(EntryTableRecord::Section { path, metadata, extras }) = reader.next().transpose()? else {
        return Err(EntryTableDecodeError::NoSection);
    };
    let mut entries = Vec::new();
    for record in reader {
        match record? {
            EntryTableRecord::Entry(entry) => entries.push(entry.to_entry()),
            EntryTableRecord::Section { .. } => return Err(EntryTableDecodeError::BadValue),
        }
    }
    let directory = CopiedDirectoryPaths { root_index: 0, source: RelPath::root(), sink: path };
    Ok(DirectorySection { directory: directory.into(), metadata, extras, entries })
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
