//! The entry table: sections (directories) and the entries in them, as the file table travels.
//!
//! A bundle's body is the contents of its regular files one after the other, then this table with the entries in the
//! same order. An open-file message carries a table of one section and one entry. Decoding borrows; every name and
//! path is checked, so that what comes out can be resolved beneath a directory.

use carrack_model::limits::SYMLINK_BYTES_MAX;
use carrack_model::{
    Directory, Entry, EntryKind, Extras, Metadata, PathProblem, RelPath, Section, Timestamp, check_name,
};
use zerocopy::byteorder::little_endian::{I64, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

const KIND_SECTION: u8 = 1;
const KIND_REGULAR: u8 = 2;
const KIND_SYMLINK: u8 = 3;

/// The section carries its directory's metadata.
const FLAG_METADATA: u8 = 1;

const EXTRA_SYMLINK_TARGET: u8 = 1;
const EXTRA_BLAKE3: u8 = 2;
const EXTRA_OWNER: u8 = 3;
const EXTRA_ATTRIBUTE: u8 = 5;
const EXTRA_SAME_AS: u8 = 135;
const EXTRA_IDENTITY: u8 = 9;
/// Extras from here on must be understood; below, a reader may skip what it does not know.
const EXTRA_CRITICAL: u8 = 128;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawRecord {
    record_len: U32,
    kind: u8,
    flags: u8,
    name_len: U16,
    mode: U32,
    mtime_ns: U32,
    mtime_s: I64,
    size: U64,
}

const RECORD_BYTES: usize = size_of::<RawRecord>();
const EXTRA_BYTES: usize = 4;

/// Why bytes are not an entry table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TableError {
    /// A record or extra reaches beyond the end.
    #[error("an entry table ends within a record")]
    Truncated,
    /// A kind from the future.
    #[error("record kind {0} is not known here")]
    UnknownKind(u8),
    /// A critical extra from the future.
    #[error("entry attribute {0} is not known here")]
    UnknownExtra(u8),
    /// A name or path that is refused.
    #[error("a name that is refused: {0}")]
    BadName(PathProblem),
    /// An entry before the first section.
    #[error("an entry without a directory")]
    NoSection,
    /// A link without target, a target too long or with a NUL, a time out of range, a digest or identity of the wrong
    /// length.
    #[error("a record with a value out of range")]
    BadValue,
}

impl From<PathProblem> for TableError {
    fn from(problem: PathProblem) -> Self {
        TableError::BadName(problem)
    }
}

/// Appends records to a buffer.
pub struct TableWriter<'a> {
    out: &'a mut Vec<u8>,
    /// What the records have beside what is always kept.
    extras: Option<&'a Extras>,
}

impl<'a> TableWriter<'a> {
    /// Writes behind what `out` holds.
    pub fn new(out: &'a mut Vec<u8>) -> TableWriter<'a> {
        TableWriter { out, extras: None }
    }

    /// Writes these with each record that follows.
    pub fn with(self, extras: Option<&'a Extras>) -> TableWriter<'a> {
        TableWriter { extras, ..self }
    }

    /// Begins the entries of a directory.
    pub fn section(&mut self, path: &RelPath, metadata: Option<&Metadata>) {
        let flags = if metadata.is_some() { FLAG_METADATA } else { 0 };
        let metadata = metadata.copied().unwrap_or_default();
        self.record(KIND_SECTION, flags, path.as_bytes(), &metadata, 0, &[]);
    }

    /// A regular file with the metadata and the size that belong to its contents; an `identity` of 0 is not written.
    pub fn regular(
        &mut self,
        name: &[u8],
        size: u64,
        metadata: &Metadata,
        identity: u64,
        digest: Option<&[u8; 32]>,
    ) {
        let digest = digest.map(|digest| (EXTRA_BLAKE3, &digest[..]));
        self.with_identity(KIND_REGULAR, name, metadata, size, identity, digest);
    }

    /// An entry as it stands for itself, without a digest and without what is beyond its metadata.
    pub fn whole(&mut self, entry: &Entry) {
        match &entry.kind {
            EntryKind::Regular { size } => {
                self.regular(&entry.name, *size, &entry.metadata, entry.identity, None);
            }
            EntryKind::Symlink { target } => {
                self.symlink(&entry.name, target, &entry.metadata, entry.identity);
            }
        }
    }

    /// A symbolic link; an `identity` of 0 is not written.
    pub fn symlink(&mut self, name: &[u8], target: &[u8], metadata: &Metadata, identity: u64) {
        let target = Some((EXTRA_SYMLINK_TARGET, target));
        self.with_identity(KIND_SYMLINK, name, metadata, 0, identity, target);
    }

    /// An entry as it was read from another table.
    pub fn entry(&mut self, entry: &TableEntry<'_>) {
        let mut writer = TableWriter::new(self.out).with(entry.extras.as_deref());
        match entry.symlink_target {
            Some(target) => writer.symlink(entry.name, target, &entry.metadata, entry.identity),
            None => writer.regular(entry.name, entry.size, &entry.metadata, entry.identity, entry.digest),
        }
    }

    fn with_identity(
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
            (None, 0) => self.record(kind, 0, name, metadata, size, &[]),
            (None, _) => self.record(kind, 0, name, metadata, size, &[(EXTRA_IDENTITY, &bytes)]),
            (Some(extra), 0) => self.record(kind, 0, name, metadata, size, &[extra]),
            (Some(extra), _) => {
                self.record(kind, 0, name, metadata, size, &[extra, (EXTRA_IDENTITY, &bytes)]);
            }
        }
    }

    fn record(
        &mut self,
        kind: u8,
        flags: u8,
        name: &[u8],
        metadata: &Metadata,
        size: u64,
        extras: &[(u8, &[u8])],
    ) {
        debug_assert!(name.len() <= usize::from(u16::MAX));
        let own_len: usize = extras.iter().map(|(_, value)| EXTRA_BYTES + value.len()).sum();
        let extra_len = own_len + self.extras.map_or(0, |extras| extras.tag_bytes(EXTRA_BYTES));
        let raw = RawRecord {
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
        if let Some(extras) = self.extras {
            extras.tags(|tag, value| put_extra(self.out, tag, value));
        }
    }
}

fn put_extra(out: &mut Vec<u8>, tag: u8, value: &[u8]) {
    let head = u32::from(tag) | (value.len() as u32) << 8;
    out.extend_from_slice(&head.to_le_bytes());
    out.extend_from_slice(value);
}

/// One record of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TableRecord<'a> {
    /// The entries that follow stand in this directory.
    Section {
        /// Beneath the destination.
        path: RelPath,
        /// To be set when the transfer ends.
        metadata: Option<Metadata>,
        /// Its owner and attributes, if they are kept.
        extras: Option<Box<Extras>>,
    },
    /// A file or link in the directory of the last section.
    Entry(TableEntry<'a>),
}

/// A file or link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableEntry<'a> {
    /// A checked name.
    pub name: &'a [u8],
    /// Mode and times.
    pub metadata: Metadata,
    /// Bytes of content; 0 for a link.
    pub size: u64,
    /// Where a link points; nothing for a regular file.
    pub symlink_target: Option<&'a [u8]>,
    /// BLAKE3 of the contents, where the session uses it.
    pub digest: Option<&'a [u8; 32]>,
    /// The inode number at the source, which tells a file from another one of the same name; 0 where it is not known.
    pub identity: u64,
    /// Its owner and attributes, if they are kept.
    pub extras: Option<Box<Extras>>,
}

impl TableEntry<'_> {
    /// As an entry that stands for itself.
    pub fn to_entry(&self) -> Entry {
        Entry {
            name: self.name.into(),
            source_name: None,
            kind: match self.symlink_target {
                Some(target) => EntryKind::Symlink { target: target.into() },
                None => EntryKind::Regular { size: self.size },
            },
            metadata: self.metadata,
            identity: self.identity,
            extras: self.extras.clone(),
        }
    }
}

/// Iterates over the records of a table.
pub struct TableReader<'a> {
    rest: &'a [u8],
    in_section: bool,
}

impl<'a> TableReader<'a> {
    /// Reads `table` from its start.
    pub fn new(table: &'a [u8]) -> TableReader<'a> {
        TableReader { rest: table, in_section: false }
    }

    fn read(&mut self) -> Result<TableRecord<'a>, TableError> {
        let (raw, _) = RawRecord::ref_from_prefix(self.rest).map_err(|_| TableError::Truncated)?;
        let record_len = raw.record_len.get() as usize;
        if record_len < RECORD_BYTES || record_len > self.rest.len() {
            return Err(TableError::Truncated);
        }
        let (record, rest) = self.rest.split_at(record_len);
        self.rest = rest;
        let body = &record[RECORD_BYTES..];
        let (name, extras) =
            body.split_at_checked(usize::from(raw.name_len.get())).ok_or(TableError::Truncated)?;
        self.interpret(raw, name, extras)
    }

    fn interpret(
        &mut self,
        raw: &RawRecord,
        name: &'a [u8],
        extras: &'a [u8],
    ) -> Result<TableRecord<'a>, TableError> {
        let metadata = raw.metadata()?;
        match raw.kind {
            KIND_SECTION => {
                self.in_section = true;
                let extras = RecordExtras::read(extras)?.more;
                let metadata = (raw.flags & FLAG_METADATA != 0).then_some(metadata);
                Ok(TableRecord::Section { path: RelPath::new(name)?, metadata, extras })
            }
            KIND_REGULAR | KIND_SYMLINK if !self.in_section => Err(TableError::NoSection),
            KIND_REGULAR | KIND_SYMLINK => raw.entry(name, metadata, extras).map(TableRecord::Entry),
            other => Err(TableError::UnknownKind(other)),
        }
    }
}

impl<'a> Iterator for TableReader<'a> {
    type Item = Result<TableRecord<'a>, TableError>;

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

impl RawRecord {
    fn metadata(&self) -> Result<Metadata, TableError> {
        let nanoseconds = self.mtime_ns.get();
        if nanoseconds > 999_999_999 || self.mode.get() > 0o7777 {
            return Err(TableError::BadValue);
        }
        let mtime = Timestamp { seconds: self.mtime_s.get(), nanoseconds };
        Ok(Metadata { mode: self.mode.get(), mtime })
    }

    fn entry<'a>(
        &self,
        name: &'a [u8],
        metadata: Metadata,
        extras: &'a [u8],
    ) -> Result<TableEntry<'a>, TableError> {
        check_name(name)?;
        let extras = RecordExtras::read(extras)?;
        let is_link = self.kind == KIND_SYMLINK;
        if is_link != extras.symlink_target.is_some() || is_link && self.size.get() != 0 {
            return Err(TableError::BadValue);
        }
        Ok(TableEntry {
            name,
            metadata,
            size: self.size.get(),
            symlink_target: extras.symlink_target,
            digest: extras.digest,
            identity: extras.identity,
            extras: extras.more,
        })
    }
}

#[derive(Default)]
struct RecordExtras<'a> {
    symlink_target: Option<&'a [u8]>,
    digest: Option<&'a [u8; 32]>,
    identity: u64,
    more: Option<Box<Extras>>,
}

impl<'a> RecordExtras<'a> {
    fn read(mut rest: &'a [u8]) -> Result<RecordExtras<'a>, TableError> {
        let mut extras = RecordExtras::default();
        while !rest.is_empty() {
            let (head, after) = U32::ref_from_prefix(rest).map_err(|_| TableError::Truncated)?;
            let (tag, len) = (head.get() as u8, (head.get() >> 8) as usize);
            let (value, after) = after.split_at_checked(len).ok_or(TableError::Truncated)?;
            extras.keep(tag, value)?;
            rest = after;
        }
        extras.more.take_if(|more| more.is_empty());
        Ok(extras)
    }

    fn keep(&mut self, tag: u8, value: &'a [u8]) -> Result<(), TableError> {
        match tag {
            EXTRA_SYMLINK_TARGET => {
                if value.is_empty() || value.len() > SYMLINK_BYTES_MAX || value.contains(&0) {
                    return Err(TableError::BadValue);
                }
                self.symlink_target = Some(value);
            }
            EXTRA_BLAKE3 => self.digest = Some(value.try_into().map_err(|_| TableError::BadValue)?),
            EXTRA_IDENTITY => {
                self.identity = u64::from_le_bytes(value.try_into().map_err(|_| TableError::BadValue)?);
            }
            EXTRA_OWNER | EXTRA_ATTRIBUTE | EXTRA_SAME_AS => {
                let more = self.more.get_or_insert_default();
                more.keep(tag, value).map_err(|_| TableError::BadValue)?;
            }
            tag if tag >= EXTRA_CRITICAL => return Err(TableError::UnknownExtra(tag)),
            _ => {}
        }
        Ok(())
    }
}

/// Decodes a whole table of one section into owned values, as an open-file message carries it.
pub fn decode_section(table: &[u8]) -> Result<Section, TableError> {
    let mut reader = TableReader::new(table);
    let Some(TableRecord::Section { path, metadata, extras }) = reader.next().transpose()? else {
        return Err(TableError::NoSection);
    };
    let mut entries = Vec::new();
    for record in reader {
        match record? {
            TableRecord::Entry(entry) => entries.push(entry.to_entry()),
            TableRecord::Section { .. } => return Err(TableError::BadValue),
        }
    }
    let directory = Directory { root_index: 0, source: RelPath::root(), sink: path };
    Ok(Section { directory: directory.into(), metadata, extras, entries })
}

#[cfg(test)]
mod tests {
    use super::*;
    use carrack_model::{Account, Attribute};
    use proptest::prelude::*;

    fn metadata() -> Metadata {
        Metadata { mode: 0o644, mtime: Timestamp { seconds: 1_700_000_000, nanoseconds: 5 } }
    }

    fn example() -> Vec<u8> {
        let mut table = Vec::new();
        let mut writer = TableWriter::new(&mut table);
        writer.section(&RelPath::new(b"a/b").unwrap(), Some(&Metadata { mode: 0o755, ..metadata() }));
        writer.regular(b"f", 3, &metadata(), 7, None);
        writer.symlink(b"l", b"f", &metadata(), 0);
        table
    }

    #[test]
    fn the_example_of_the_format_document() {
        let mtime = b"\x05\0\0\0\x00\xf1\x53\x65\0\0\0\0";
        let expected = [
            &b"\x23\0\0\0\x01\x01\x03\x00\xed\x01\0\0"[..],
            mtime,
            b"\0\0\0\0\0\0\0\0a/b",
            b"\x2d\0\0\0\x02\x00\x01\x00\xa4\x01\0\0",
            mtime,
            b"\x03\0\0\0\0\0\0\0f\x09\x08\0\0\x07\0\0\0\0\0\0\0",
            b"\x26\0\0\0\x03\x00\x01\x00\xa4\x01\0\0",
            mtime,
            b"\0\0\0\0\0\0\0\0l\x01\x01\0\0f",
        ]
        .concat();
        assert_eq!(example(), expected);
    }

    #[test]
    fn reads_what_it_wrote() {
        let table = example();
        let records: Vec<_> = TableReader::new(&table).map(Result::unwrap).collect();
        assert!(matches!(&records[0], TableRecord::Section { path, metadata: Some(m), .. }
            if path.as_bytes() == b"a/b" && m.mode == 0o755));
        assert!(
            matches!(&records[1], TableRecord::Entry(e) if e.name == b"f" && e.size == 3 && e.identity == 7)
        );
        assert!(matches!(&records[2], TableRecord::Entry(e) if e.symlink_target == Some(b"f")));
        let section = decode_section(&table).unwrap();
        assert_eq!(section.entries.len(), 2);
    }

    #[test]
    fn owners_and_attributes_stand_with_their_entry() {
        let account = |number, name: &[u8]| Some(Account { number, name: name.into() });
        let attribute = Attribute { name: b"user.a"[..].into(), value: b"v"[..].into() };
        let extras = Extras {
            user: account(1, b"u"),
            group: account(2, b""),
            attributes: vec![attribute],
            same_as: None,
        };
        let mut table = Vec::new();
        let root = RelPath::root();
        TableWriter::new(&mut table).with(Some(&extras)).section(&root, Some(&metadata()));
        TableWriter::new(&mut table).with(Some(&extras)).symlink(b"l", b"t", &metadata(), 3);
        TableWriter::new(&mut table).regular(b"f", 0, &metadata(), 0, None);
        let records: Vec<_> = TableReader::new(&table).map(Result::unwrap).collect();
        let found: Vec<_> = records
            .iter()
            .map(|record| match record {
                TableRecord::Section { extras, .. } => extras.as_deref(),
                TableRecord::Entry(entry) => entry.extras.as_deref(),
            })
            .collect();
        assert_eq!(found, [Some(&extras), Some(&extras), None]);
        let TableRecord::Entry(link) = &records[1] else { panic!() };
        let mut again = Vec::new();
        let mut writer = TableWriter::new(&mut again);
        writer.section(&root, None);
        writer.entry(link);
        assert_eq!(TableReader::new(&again).nth(1), Some(Ok(TableRecord::Entry(link.clone()))));
    }

    #[test]
    fn refuses_names_that_could_leave_the_destination() {
        for name in [&b".."[..], b".", b"", b"a/b", b"a\0"] {
            let mut table = Vec::new();
            let mut writer = TableWriter::new(&mut table);
            writer.section(&RelPath::root(), None);
            writer.regular(name, 0, &metadata(), 0, None);
            let last = TableReader::new(&table).last().unwrap();
            assert!(matches!(last, Err(TableError::BadName(_))), "{name:?}");
        }
    }

    #[test]
    fn refuses_entries_without_a_directory_and_links_without_target() {
        let mut table = Vec::new();
        TableWriter::new(&mut table).regular(b"f", 0, &metadata(), 0, None);
        assert_eq!(TableReader::new(&table).next(), Some(Err(TableError::NoSection)));
        let mut table = Vec::new();
        let mut writer = TableWriter::new(&mut table);
        writer.section(&RelPath::root(), None);
        writer.record(KIND_SYMLINK, 0, b"l", &metadata(), 0, &[]);
        writer.record(KIND_REGULAR, 0, b"f", &metadata(), 0, &[(200, b"?")]);
        assert_eq!(TableReader::new(&table).nth(1), Some(Err(TableError::BadValue)));
    }

    #[test]
    fn skips_attributes_it_does_not_know_unless_critical() {
        for (tag, fine) in [(50, true), (200, false)] {
            let mut table = Vec::new();
            TableWriter::new(&mut table).record(KIND_SECTION, 0, b"d", &metadata(), 0, &[(tag, b"x")]);
            assert_eq!(TableReader::new(&table).all(|r| r.is_ok()), fine);
            let mut table = Vec::new();
            let mut writer = TableWriter::new(&mut table);
            writer.section(&RelPath::root(), None);
            writer.record(KIND_REGULAR, 0, b"f", &metadata(), 0, &[(tag, b"xyz")]);
            assert_eq!(TableReader::new(&table).all(|r| r.is_ok()), fine);
        }
    }

    proptest! {
        #[test]
        fn a_cut_table_never_panics_nor_reads_beyond(cut in 0usize..120, flip in 0usize..120, to: u8) {
            let mut table = example();
            if flip < table.len() { table[flip] = to; }
            table.truncate(cut);
            let count = TableReader::new(&table).count();
            prop_assert!(count <= 4);
        }

        #[test]
        fn names_and_numbers_survive(name in "[^/\0]{1,60}", size: u64, seconds: i64, ns in 0u32..1_000_000_000,
                                     mode in 0u32..=0o7777, identity: u64,
                                     digest: Option<[u8; 32]>) {
            prop_assume!(check_name(name.as_bytes()).is_ok());
            let metadata = Metadata { mode, mtime: Timestamp { seconds, nanoseconds: ns } };
            let mut table = Vec::new();
            let mut writer = TableWriter::new(&mut table);
            writer.section(&RelPath::root(), None);
            writer.regular(name.as_bytes(), size, &metadata, identity, digest.as_ref());
            let read = TableReader::new(&table).nth(1);
            let expected = TableEntry {
                name: name.as_bytes(), metadata, size, symlink_target: None, digest: digest.as_ref(), identity,
                extras: None,
            };
            prop_assert_eq!(read, Some(Ok(TableRecord::Entry(expected))));
        }
    }
}
