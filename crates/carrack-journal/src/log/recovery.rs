//! What a journal says, read from its start: which files are complete, and which were begun.
//!
//! Owns the rules by which records count. Must not change the file; [`super::Journal`] cuts it.

use std::collections::BTreeMap;

use carrack_model::{ByteRange, Metadata, RangeSet, RelPath, Timestamp};
use carrack_wire::{TableEntry, TableReader, TableRecord};
use xxhash_rust::xxh3::xxh3_64_with_seed;
use zerocopy::FromBytes;
use zerocopy::byteorder::little_endian::{U32, U64};

use super::batch::{HEAD_BYTES, Kind, RawBegin, RawHeld, RawRange, RawSubtree};
use super::header::{Header, Key};
use super::index::{Fingerprint, Index, IndexBuilder};
use super::scanner::{Record, Scanner};
use super::{JournalError, SessionInfo};
use crate::{FileDigest, Subtree};

/// Bytes that unfinished files may take in memory: the longest names of all files that 16 sessions can leave behind, with
/// half a million ranges. What is beyond is not remembered, and travels again.
const UNFINISHED_BYTES_MAX: usize = 64 << 20;

/// What a range or a subtree takes in a tree, about.
const NODE_BYTES: usize = 96;

/// What an unfinished file takes beside its names, about.
const PARTIAL_BYTES: usize = 512;

/// A file as its source saw it: it is the same if all of this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryKey<'a> {
    /// Its name.
    pub name: &'a [u8],
    /// Bytes of content; 0 for a link.
    pub size: u64,
    /// Time of the last change of the contents.
    pub mtime: Timestamp,
    /// Its inode number at the source; 0 where it is not known.
    pub identity: u64,
    /// Where a link points; nothing for a regular file.
    pub target: Option<&'a [u8]>,
}

impl<'a> From<&TableEntry<'a>> for EntryKey<'a> {
    fn from(entry: &TableEntry<'a>) -> EntryKey<'a> {
        EntryKey {
            name: entry.name,
            size: entry.size,
            mtime: entry.metadata.mtime,
            identity: entry.identity,
            target: entry.symlink_target,
        }
    }
}

/// A large file that was begun, and neither completed nor dropped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partial {
    /// Its number in the journal.
    pub number: u64,
    /// Its directory beneath the root.
    pub directory: RelPath,
    /// Its name there.
    pub name: Box<[u8]>,
    /// Bytes of content.
    pub size: u64,
    /// Mode and time of last change, as at the source.
    pub metadata: Metadata,
    /// Its inode number at the source; 0 where it is not known.
    pub identity: u64,
    /// The name in `directory` under which its bytes are.
    pub temporary: Box<[u8]>,
    /// The bytes that are there.
    pub held: RangeSet,
    /// What they hash to, where that was recorded; neighbours joined.
    pub subtrees: Vec<Subtree>,
}

/// Counts of what a journal holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Records that are whole.
    pub records: u64,
    /// Bytes of the file up to the last of them.
    pub journal_bytes: u64,
    /// Bytes behind it that were torn or damaged.
    pub cut_bytes: u64,
    /// Sessions that wrote to it.
    pub sessions: u64,
    /// Complete files and links; one that was copied twice counts twice.
    pub done: u64,
    /// Bytes of their contents.
    pub done_bytes: u64,
    /// Bytes of unfinished files that are there.
    pub held_bytes: u64,
    /// Records that no longer count: of a session that synced nothing, in an earlier boot.
    pub void_records: u64,
    /// Records of unfinished files for which there was no memory.
    pub forgotten_records: u64,
}

/// What a journal said when it was opened.
#[derive(Debug)]
pub struct Recovered {
    pub(super) findings: Findings,
    index: Index,
    hashing: Hashing,
}

impl Recovered {
    /// Whether the file with this key is complete under its name. Any thread.
    ///
    /// # Errors
    /// What reading the index says.
    pub fn is_done(&self, directory: &RelPath, key: &EntryKey<'_>) -> Result<bool, JournalError> {
        self.index.contains(self.hashing.fingerprint(directory, key))
    }

    /// The files that were begun and not ended, by their numbers.
    pub fn partials(&self) -> &[Partial] {
        &self.findings.partials
    }

    /// Directories whose permission bits an earlier session changed for the while and did not restore, with the bits that they
    /// had.
    pub fn changed_modes(&self) -> impl Iterator<Item = (&RelPath, u32)> {
        self.findings.changed_modes.iter().map(|(path, &mode)| (path, mode))
    }

    /// Counts.
    pub fn statistics(&self) -> Statistics {
        self.findings.statistics
    }

    /// Who wrote last.
    pub fn last_session(&self) -> Option<&SessionInfo> {
        self.findings.last_session.as_ref()
    }

    /// Names that are complete: files that were copied twice count once.
    pub fn name_count(&self) -> u64 {
        self.index.len()
    }
}

/// What there is to know of a journal without its index.
#[derive(Debug, Default)]
pub(super) struct Findings {
    pub partials: Vec<Partial>,
    pub statistics: Statistics,
    pub last_session: Option<SessionInfo>,
    /// The first number that was not given out.
    pub next_number: u64,
    /// Bytes of records that a compaction would leave out.
    pub garbage_bytes: u64,
    /// Whether records count that will not after the next boot.
    pub has_soft: bool,
    /// Where the partial files' `Begin` records are, rising.
    pub begin_offsets: Vec<u64>,
    /// Directories with the permission bits that are to be restored.
    pub changed_modes: BTreeMap<RelPath, u32>,
}

/// Makes fingerprints; another journal's differ.
#[derive(Clone, Debug)]
struct Hashing {
    seed: u64,
    key: [u8; 32],
}

impl Hashing {
    fn new(key: Key) -> Hashing {
        Hashing { seed: key.halves().1, key: blake3::derive_key("carrack journal 1 fingerprints", &key.0) }
    }

    /// A name's half need not withstand anybody: who makes two collide has a file sent again.
    fn fingerprint(&self, directory: &RelPath, key: &EntryKey<'_>) -> Fingerprint {
        let target = key.target.unwrap_or_default();
        let mut text = Vec::with_capacity(64 + directory.as_bytes().len() + key.name.len() + target.len());
        text.push(u8::from(key.target.is_some()));
        text.extend_from_slice(&key.size.to_le_bytes());
        text.extend_from_slice(&key.mtime.seconds.to_le_bytes());
        text.extend_from_slice(&key.mtime.nanoseconds.to_le_bytes());
        text.extend_from_slice(&key.identity.to_le_bytes());
        text.extend_from_slice(&(target.len() as u32).to_le_bytes());
        text.extend_from_slice(target);
        let path = text.len();
        text.extend_from_slice(directory.as_bytes());
        text.push(b'/');
        text.extend_from_slice(key.name);
        let state = blake3::keyed_hash(&self.key, &text);
        let state = state.as_bytes().first_chunk().copied().unwrap_or_default();
        let name = xxh3_64_with_seed(&text[path..], self.seed);
        Fingerprint { name, state: u64::from_le_bytes(state) }
    }
}

/// A record does not say what its kind should: nobody wrote it so, and nothing after it is believed.
#[derive(Debug)]
pub(super) struct Malformed;

/// Reads all of a journal that is whole; `boot` is this boot. With a builder the complete files are indexed.
pub(super) fn recover(
    mut scanner: Scanner<'_>,
    header: &Header,
    boot: [u8; 16],
    mut builder: Option<IndexBuilder>,
) -> Result<(Findings, Option<IndexBuilder>), JournalError> {
    let mut reading = Reading::new(header, boot, builder.is_some());
    let mut valid_end = scanner.offset();
    while let Some(record) = scanner.next()? {
        if reading.record(&record).is_err() {
            break;
        }
        valid_end = record.offset + record.len();
        if let Some(builder) = &mut builder {
            reading.done.drain(..).try_for_each(|fingerprint| builder.add(fingerprint))?;
        }
    }
    Ok((reading.finish(valid_end), builder))
}

/// All that a journal says, with the index.
pub(super) fn recovered(
    scanner: Scanner<'_>,
    header: &Header,
    boot: [u8; 16],
    builder: IndexBuilder,
) -> Result<Recovered, JournalError> {
    let (findings, builder) = recover(scanner, header, boot, Some(builder))?;
    let index = builder.map_or(Ok(Index::Memory(Vec::new())), IndexBuilder::finish)?;
    Ok(Recovered { findings, index, hashing: Hashing::new(header.key) })
}

/// The state while reading.
struct Reading {
    boot: [u8; 16],
    hashing: Option<Hashing>,
    /// Whether the present session's claims hold.
    counts: bool,
    live: BTreeMap<u64, Live>,
    live_bytes: usize,
    findings: Findings,
    /// Of the present record.
    done: Vec<Fingerprint>,
}

/// A large file that is unfinished so far.
struct Live {
    partial: Partial,
    digest: FileDigest,
    /// Its `Begin`: where it is, and how long.
    record_offset: u64,
    record_bytes: u64,
    memory_bytes: usize,
}

impl Reading {
    fn new(header: &Header, boot: [u8; 16], is_indexed: bool) -> Reading {
        Reading {
            boot,
            hashing: is_indexed.then(|| Hashing::new(header.key)),
            counts: true,
            live: BTreeMap::new(),
            live_bytes: 0,
            findings: Findings { next_number: 1, ..Findings::default() },
            done: Vec::new(),
        }
    }

    fn record(&mut self, record: &Record<'_>) -> Result<(), Malformed> {
        match record.kind {
            Kind::Session => self.session(record)?,
            Kind::Small => self.small(record)?,
            Kind::Begin => self.begin(record)?,
            Kind::Held => self.held(record)?,
            Kind::Done => self.done(number_of(record.body)?, record),
            Kind::Dropped => {
                self.findings.garbage_bytes += record.len();
                self.end(number_of(record.body)?);
            }
            Kind::Mode => self.mode(record)?,
            Kind::ModesRestored => {
                self.findings.garbage_bytes += record.len();
                self.findings.changed_modes.clear();
            }
        }
        self.findings.statistics.records += 1;
        Ok(())
    }

    fn session(&mut self, record: &Record<'_>) -> Result<(), Malformed> {
        let session = SessionInfo::decode(record.body).ok_or(Malformed)?;
        self.counts = !session.soft || session.boot == self.boot;
        self.findings.has_soft |= session.soft && self.counts;
        self.findings.last_session = Some(session);
        self.findings.statistics.sessions += 1;
        self.findings.garbage_bytes += record.len();
        Ok(())
    }

    /// Whether what is recorded holds; else it is counted as void.
    fn is_valid(&mut self, record: &Record<'_>) -> bool {
        if !self.counts {
            self.findings.statistics.void_records += 1;
            self.findings.garbage_bytes += record.len();
        }
        self.counts
    }

    fn small(&mut self, record: &Record<'_>) -> Result<(), Malformed> {
        let mut directory = RelPath::root();
        let (mut count, mut bytes) = (0, 0u64);
        self.done.clear();
        for read in TableReader::new(record.body) {
            match read.map_err(|_| Malformed)? {
                TableRecord::Section { path, .. } => directory = path,
                // Nobody records these: a look at the destination says all that there is to know.
                TableRecord::Entry(entry) if entry.special.is_some() => {}
                TableRecord::Entry(entry) => {
                    count += 1;
                    bytes = bytes.saturating_add(entry.size);
                    self.done
                        .extend(self.hashing.as_ref().map(|h| h.fingerprint(&directory, &(&entry).into())));
                }
            }
        }
        if self.is_valid(record) {
            self.count_done(count, bytes);
        } else {
            self.done.clear();
        }
        Ok(())
    }

    fn count_done(&mut self, count: u64, bytes: u64) {
        let statistics = &mut self.findings.statistics;
        statistics.done += count;
        statistics.done_bytes = statistics.done_bytes.saturating_add(bytes);
    }

    /// Holds whatever the session was: it claims nothing, and its temporary name is to be known.
    fn begin(&mut self, record: &Record<'_>) -> Result<(), Malformed> {
        let partial = partial_of(record.body)?;
        let number = partial.number;
        if self.live.contains_key(&number) {
            return Err(Malformed);
        }
        let memory_bytes = PARTIAL_BYTES + record.body.len();
        self.findings.next_number = self.findings.next_number.max(number.checked_add(1).ok_or(Malformed)?);
        if !self.takes(memory_bytes) {
            return Ok(());
        }
        let digest = FileDigest::new(partial.size);
        let (record_offset, record_bytes) = (record.offset, record.len());
        self.live.insert(number, Live { partial, digest, record_offset, record_bytes, memory_bytes });
        Ok(())
    }

    /// Whether there is memory for this many bytes more.
    fn takes(&mut self, bytes: usize) -> bool {
        let is_there = self.live_bytes + bytes <= UNFINISHED_BYTES_MAX;
        if is_there {
            self.live_bytes += bytes;
        } else {
            self.findings.statistics.forgotten_records += 1;
        }
        is_there
    }

    fn held(&mut self, record: &Record<'_>) -> Result<(), Malformed> {
        let held = Held::of(record.body)?;
        let valid = self.is_valid(record);
        let Some(size) = self.live.get(&held.number).map(|live| live.partial.size) else { return Ok(()) };
        if held.ranges.iter().any(|raw| !is_within(raw, size)) {
            return Err(Malformed);
        }
        if !valid {
            return Ok(());
        }
        self.findings.garbage_bytes += record.len();
        let nodes = held.ranges.len() + held.subtrees.len();
        let fits = self.takes(nodes * NODE_BYTES);
        if let Some(live) = self.live.get_mut(&held.number).filter(|_| fits) {
            let freed = nodes * NODE_BYTES - live.add(&held) * NODE_BYTES;
            live.memory_bytes += nodes * NODE_BYTES - freed;
            self.live_bytes -= freed;
        }
        Ok(())
    }

    fn done(&mut self, number: u64, record: &Record<'_>) {
        self.done.clear();
        if !self.is_valid(record) {
            return;
        }
        self.findings.garbage_bytes += record.len();
        let Some(live) = self.end(number) else { return };
        let partial = &live.partial;
        self.count_done(1, partial.size);
        let key = EntryKey {
            name: &partial.name,
            size: partial.size,
            mtime: partial.metadata.mtime,
            identity: partial.identity,
            target: None,
        };
        self.done.extend(self.hashing.as_ref().map(|h| h.fingerprint(&partial.directory, &key)));
        // A compaction makes it a small file, which is shorter by its names only: that is no gain.
        self.findings.garbage_bytes = self.findings.garbage_bytes.saturating_sub(live.record_bytes);
    }

    /// Holds whatever the session was. The first word on a directory counts: later ones saw what that session had made of it.
    fn mode(&mut self, record: &Record<'_>) -> Result<(), Malformed> {
        let (mode, path) = mode_of(record.body)?;
        self.findings.garbage_bytes += record.len();
        if !self.findings.changed_modes.contains_key(&path) && self.takes(PARTIAL_BYTES + record.body.len()) {
            self.findings.changed_modes.insert(path, mode);
        }
        Ok(())
    }

    fn end(&mut self, number: u64) -> Option<Live> {
        let live = self.live.remove(&number)?;
        self.live_bytes -= live.memory_bytes;
        self.findings.garbage_bytes += live.record_bytes;
        Some(live)
    }

    fn finish(mut self, valid_end: u64) -> Findings {
        let live = std::mem::take(&mut self.live);
        let kept: u64 = live.values().map(Live::held_record_bytes).sum();
        self.findings.garbage_bytes = self.findings.garbage_bytes.saturating_sub(kept);
        self.findings.begin_offsets = live.values().map(|live| live.record_offset).collect();
        self.findings.begin_offsets.sort_unstable();
        self.findings.partials = live.into_values().map(Live::into_partial).collect();
        let statistics = &mut self.findings.statistics;
        statistics.journal_bytes = valid_end;
        statistics.held_bytes = self
            .findings
            .partials
            .iter()
            .map(|partial| partial.held.covered_bytes())
            .fold(0, u64::saturating_add);
        self.findings
    }
}

impl Live {
    /// Adds what is held, and returns by how many nodes that made the memory grow.
    fn add(&mut self, held: &Held<'_>) -> usize {
        let before = self.nodes();
        for raw in held.ranges {
            self.partial.held.cover(raw.into());
        }
        for raw in held.subtrees {
            // What was recorded before is recorded: the same bytes have the same value.
            let _ = self.digest.add(Subtree { range: (&raw.range).into(), value: raw.value });
        }
        self.nodes().saturating_sub(before)
    }

    fn nodes(&self) -> usize {
        self.partial.held.run_count() + self.digest.len()
    }

    /// Bytes of one `Held` that says all.
    fn held_record_bytes(&self) -> u64 {
        let ranges = self.partial.held.run_count() * size_of::<RawRange>();
        (HEAD_BYTES + size_of::<RawHeld>() + ranges + self.digest.len() * size_of::<RawSubtree>()) as u64
    }

    fn into_partial(self) -> Partial {
        Partial { subtrees: self.digest.subtrees().collect(), ..self.partial }
    }
}

/// A decoded `Held`.
struct Held<'a> {
    number: u64,
    ranges: &'a [RawRange],
    subtrees: &'a [RawSubtree],
}

impl<'a> Held<'a> {
    fn of(body: &'a [u8]) -> Result<Held<'a>, Malformed> {
        let (raw, rest) = RawHeld::ref_from_prefix(body).map_err(|_| Malformed)?;
        let (ranges, rest) = <[RawRange]>::ref_from_prefix_with_elems(rest, raw.range_count.get() as usize)
            .map_err(|_| Malformed)?;
        let subtrees = <[RawSubtree]>::ref_from_bytes_with_elems(rest, raw.subtree_count.get() as usize)
            .map_err(|_| Malformed)?;
        Ok(Held { number: raw.number.get(), ranges, subtrees })
    }
}

fn is_within(raw: &RawRange, size: u64) -> bool {
    ByteRange::from(raw).end().is_some_and(|end| end <= size)
}

pub(super) fn number_of(body: &[u8]) -> Result<u64, Malformed> {
    U64::ref_from_bytes(body).map(|number| number.get()).map_err(|_| Malformed)
}

/// The number, the temporary name and the table of a `Begin`.
pub(super) fn begin_of(body: &[u8]) -> Result<(u64, &[u8], &[u8]), Malformed> {
    let (raw, rest) = RawBegin::ref_from_prefix(body).map_err(|_| Malformed)?;
    let (temporary, table) = rest.split_at_checked(raw.temporary_len.get() as usize).ok_or(Malformed)?;
    Ok((raw.number.get(), temporary, table))
}

/// The permission bits and the directory of a `Mode`.
fn mode_of(body: &[u8]) -> Result<(u32, RelPath), Malformed> {
    let (mode, path) = U32::ref_from_prefix(body).map_err(|_| Malformed)?;
    let path = RelPath::new(path).map_err(|_| Malformed)?;
    if mode.get() > 0o7777 { Err(Malformed) } else { Ok((mode.get(), path)) }
}

fn partial_of(body: &[u8]) -> Result<Partial, Malformed> {
    let (number, temporary, table) = begin_of(body)?;
    carrack_model::check_name(temporary).map_err(|_| Malformed)?;
    let mut records = TableReader::new(table);
    let mut next = || records.next().transpose().map_err(|_| Malformed);
    let Some(TableRecord::Section { path: directory, .. }) = next()? else { return Err(Malformed) };
    let Some(TableRecord::Entry(entry)) = next()? else { return Err(Malformed) };
    if !entry.is_regular() || next()?.is_some() {
        return Err(Malformed);
    }
    Ok(Partial {
        number,
        directory,
        name: entry.name.into(),
        size: entry.size,
        metadata: entry.metadata,
        identity: entry.identity,
        temporary: temporary.into(),
        held: RangeSet::new(),
        subtrees: Vec::new(),
    })
}
