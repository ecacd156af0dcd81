//! Recovery of a journal's contents: the complete files and the unfinished ones.
//!
//! Owns the rules by which records count. Must not change the file; [`super::Journal`] truncates it.

use std::collections::{BTreeMap, BTreeSet};

use carrack_model::{ByteRange, Metadata, RangeSet, RelPath, Timestamp};
use carrack_wire::{EntryTableDecoder, EntryTableItem, EntryTableRecord};
use xxhash_rust::xxh3::xxh3_64_with_seed;
use zerocopy::FromBytes;
use zerocopy::byteorder::little_endian::{U32, U64};

use super::batch::{
    HEAD_BYTES, RawHashSubtree, RawJournalBeginRecord, RawJournalHeldRecord, RawRange, RecordKind,
};
use super::header::{JournalHeader, JournalNonce};
use super::index::{FileFingerprint, FileFingerprintIndex, JournalIndexBuilder};
use super::scanner::{RawJournalRecord, RecordScanner};
use super::{JournalError, JournalWriterIdentity};
use crate::{Blake3Subtree, FileDigestBuilder};

/// Memory for unfinished files: the longest names of all files that 16 sessions can leave unfinished, with
/// half a million ranges. Files beyond the limit are forgotten, and sent again.
const UNFINISHED_BYTES_MAX: usize = 64 << 20;

/// Approximate memory of a range or a subtree in a tree.
const NODE_BYTES: usize = 96;

/// Approximate memory of an unfinished file without its names.
const PARTIAL_BYTES: usize = 640;

/// A file's state at its source: two files are the same if all values are equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryKey<'a> {
    /// Its name.
    pub name: &'a [u8],
    /// Bytes of content; 0 for a link.
    pub size: u64,
    /// Time of the last change of the contents.
    pub mtime: Timestamp,
    /// Inode number at the source; 0 if unknown.
    pub identity: u64,
    /// Target of a link; `None` for a regular file.
    pub target: Option<&'a [u8]>,
}

impl<'a> From<&EntryTableItem<'a>> for EntryKey<'a> {
    fn from(entry: &EntryTableItem<'a>) -> EntryKey<'a> {
        EntryKey {
            name: entry.name,
            size: entry.size,
            mtime: entry.metadata.mtime,
            identity: entry.identity,
            target: entry.symlink_target,
        }
    }
}

/// A large file that is neither complete nor dropped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartialFile {
    /// Number in the journal.
    pub number: u64,
    /// Directory, relative to the root.
    pub directory: RelPath,
    /// Name in that directory.
    pub name: Box<[u8]>,
    /// Bytes of content.
    pub size: u64,
    /// Mode and modification time at the source.
    pub metadata: Metadata,
    /// Inode number at the source; 0 if unknown.
    pub identity: u64,
    /// Temporary name in `directory`.
    pub temporary: Box<[u8]>,
    /// The ranges that are written.
    pub held: RangeSet,
    /// The recorded chaining values of these ranges; siblings joined.
    pub subtrees: Vec<Blake3Subtree>,
}

impl PartialFile {
    /// Key of the finished file.
    pub fn key(&self) -> EntryKey<'_> {
        EntryKey {
            name: &self.name,
            size: self.size,
            mtime: self.metadata.mtime,
            identity: self.identity,
            target: None,
        }
    }
}

/// Counts of a journal's contents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JournalStatistics {
    /// Whole records.
    pub records: u64,
    /// Bytes of the file up to the last whole record.
    pub journal_bytes: u64,
    /// Torn or damaged bytes at the end.
    pub cut_bytes: u64,
    /// Sessions that wrote to the journal.
    pub sessions: u64,
    /// Complete files and links; two copies of the same file count twice.
    pub done: u64,
    /// Bytes of their contents.
    pub done_bytes: u64,
    /// Written bytes of unfinished files.
    pub held_bytes: u64,
    /// Records that no longer count: a soft session of an earlier boot wrote them.
    pub void_records: u64,
    /// Records of unfinished files beyond the memory limit.
    pub forgotten_records: u64,
}

/// The state recovered from an opened journal.
#[derive(Debug)]
pub struct RecoveredJournal {
    pub(super) findings: JournalFindings,
    created: Timestamp,
    index: FileFingerprintIndex,
    hashing: JournalEntryKeyHasher,
}

impl RecoveredJournal {
    /// Returns true if the file with this key is complete under its name. Any thread.
    ///
    /// # Errors
    /// Those of reading the index.
    pub fn is_done(&self, directory: &RelPath, key: &EntryKey<'_>) -> Result<bool, JournalError> {
        self.index.contains(self.hashing.fingerprint(directory, key))
    }

    /// The start of the transfer's first session, by the clock of the sink's host.
    pub fn created(&self) -> Timestamp {
        self.created
    }

    /// Unfinished files, by number.
    pub fn partials(&self) -> &[PartialFile] {
        &self.findings.partials
    }

    /// Directories whose permission bits an earlier session changed and did not restore, with their original
    /// bits.
    pub fn changed_modes(&self) -> impl Iterator<Item = (&RelPath, u32)> {
        self.findings.changed_modes.iter().map(|(path, &mode)| (path, mode))
    }

    /// Counts.
    pub fn statistics(&self) -> JournalStatistics {
        self.findings.statistics
    }

    /// The last session that wrote.
    pub fn last_session(&self) -> Option<&JournalWriterIdentity> {
        self.findings.last_session.as_ref()
    }

    /// Number of complete names: two copies of the same file count once.
    pub fn name_count(&self) -> u64 {
        self.index.len()
    }
}

/// A journal's contents, without its index.
#[derive(Debug, Default)]
pub(super) struct JournalFindings {
    pub partials: Vec<PartialFile>,
    pub statistics: JournalStatistics,
    pub last_session: Option<JournalWriterIdentity>,
    /// The first unused number.
    pub next_number: u64,
    /// Bytes of records that a compaction leaves out.
    pub garbage_bytes: u64,
    /// True if some records won't count after the next boot.
    pub has_soft: bool,
    /// Offsets of the partial files' `Begin` records, rising.
    pub begin_offsets: Vec<u64>,
    /// Directories with the permission bits to restore.
    pub changed_modes: BTreeMap<RelPath, u32>,
}

/// Computes fingerprints, which differ from those of other journals.
#[derive(Clone, Debug)]
struct JournalEntryKeyHasher {
    seed: u64,
    key: [u8; 32],
}

impl JournalEntryKeyHasher {
    fn new(key: JournalNonce) -> JournalEntryKeyHasher {
        JournalEntryKeyHasher {
            seed: key.halves().1,
            key: blake3::derive_key("carrack journal 1 fingerprints", &key.0),
        }
    }

    /// The name's half need not resist attacks: a collision only has a file sent again.
    fn fingerprint(&self, directory: &RelPath, key: &EntryKey<'_>) -> FileFingerprint {
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
        FileFingerprint { name, state: u64::from_le_bytes(state) }
    }
}

/// The body does not fit the record's kind. No carrack writes such a record, and records behind it are not
/// trusted.
#[derive(Debug)]
pub(super) struct MalformedRecord;

/// Reads all whole records; `boot` is the current boot. Complete files are indexed if there is a builder.
pub(super) fn recover(
    mut scanner: RecordScanner<'_>,
    header: &JournalHeader,
    boot: [u8; 16],
    mut builder: Option<JournalIndexBuilder>,
) -> Result<(JournalFindings, Option<JournalIndexBuilder>), JournalError> {
    let mut reading = JournalReader::new(header, boot, builder.is_some());
    let valid_end = reading.read_records(&mut scanner, |fingerprint| match &mut builder {
        Some(builder) => builder.add(fingerprint),
        None => Ok(()),
    })?;
    Ok((reading.finish(valid_end), builder))
}

/// Reads all whole records and builds the index.
pub(super) fn recover_with_index(
    scanner: RecordScanner<'_>,
    header: &JournalHeader,
    boot: [u8; 16],
    builder: JournalIndexBuilder,
) -> Result<RecoveredJournal, JournalError> {
    let (findings, builder) = recover(scanner, header, boot, Some(builder))?;
    let index = builder.map_or(Ok(FileFingerprintIndex::Memory(Vec::new())), JournalIndexBuilder::finish)?;
    let created = header.about.created;
    Ok(RecoveredJournal { findings, created, index, hashing: JournalEntryKeyHasher::new(header.key) })
}

/// The state during a read.
pub(super) struct JournalReader {
    boot: [u8; 16],
    hashing: Option<JournalEntryKeyHasher>,
    /// True if the current session's records count.
    counts: bool,
    live: BTreeMap<u64, UnfinishedFile>,
    /// Temporary names with the file numbers.
    temporaries: BTreeSet<(Box<[u8]>, u64)>,
    live_bytes: usize,
    findings: JournalFindings,
    /// Complete files of the current record.
    done: Vec<FileFingerprint>,
}

/// A large file that is unfinished so far.
struct UnfinishedFile {
    partial: PartialFile,
    digest: FileDigestBuilder,
    /// Offset and length of its `Begin` record.
    record_offset: u64,
    record_bytes: u64,
    memory_bytes: usize,
}

impl JournalReader {
    pub fn new(header: &JournalHeader, boot: [u8; 16], is_indexed: bool) -> JournalReader {
        JournalReader {
            boot,
            hashing: is_indexed.then(|| JournalEntryKeyHasher::new(header.key)),
            counts: true,
            live: BTreeMap::new(),
            temporaries: BTreeSet::new(),
            live_bytes: 0,
            findings: JournalFindings { next_number: 1, ..JournalFindings::default() },
            done: Vec::new(),
        }
    }

    /// Reads all whole records, and returns their end; `add` takes the complete files.
    pub fn read_records(
        &mut self,
        scanner: &mut RecordScanner<'_>,
        mut add: impl FnMut(FileFingerprint) -> Result<(), JournalError>,
    ) -> Result<u64, JournalError> {
        let mut valid_end = scanner.offset();
        while let Some(record) = scanner.next()? {
            if self.apply_record(&record).is_err() {
                break;
            }
            valid_end = record.offset + record.len();
            self.done.drain(..).try_for_each(&mut add)?;
        }
        Ok(valid_end)
    }

    fn apply_record(&mut self, record: &RawJournalRecord<'_>) -> Result<(), MalformedRecord> {
        match record.kind {
            RecordKind::Session => self.apply_session(record)?,
            RecordKind::Small => self.apply_small(record)?,
            RecordKind::Begin => self.apply_begin(record)?,
            RecordKind::Held => self.apply_held(record)?,
            RecordKind::Done => self.apply_done(number_of(record.body)?, record),
            RecordKind::Dropped => {
                self.findings.garbage_bytes += record.len();
                self.remove_unfinished(number_of(record.body)?);
            }
            RecordKind::Mode => self.apply_mode(record)?,
            RecordKind::ModesRestored => {
                self.findings.garbage_bytes += record.len();
                self.findings.changed_modes.clear();
            }
        }
        self.findings.statistics.records += 1;
        Ok(())
    }

    /// Fingerprint of a file; `None` if complete files are not indexed.
    pub fn fingerprint(&self, directory: &RelPath, key: &EntryKey<'_>) -> Option<FileFingerprint> {
        self.hashing.as_ref().map(|hashing| hashing.fingerprint(directory, key))
    }

    /// The files unfinished so far with the temporary name `temporary`; without subtrees.
    pub fn partials_named(&self, temporary: &[u8]) -> impl Iterator<Item = &PartialFile> {
        let [first, last] = [0, u64::MAX].map(|number| (Box::from(temporary), number));
        let numbers = self.temporaries.range(first..=last).map(|(_, number)| number);
        numbers.filter_map(|number| Some(&self.live.get(number)?.partial))
    }

    /// All files unfinished so far; without subtrees.
    #[cfg(test)]
    pub fn partials(&self) -> impl Iterator<Item = &PartialFile> {
        self.live.values().map(|live| &live.partial)
    }

    fn apply_session(&mut self, record: &RawJournalRecord<'_>) -> Result<(), MalformedRecord> {
        let session = JournalWriterIdentity::decode(record.body).ok_or(MalformedRecord)?;
        self.counts = !session.soft || session.boot == self.boot;
        self.findings.has_soft |= session.soft && self.counts;
        self.findings.last_session = Some(session);
        self.findings.statistics.sessions += 1;
        self.findings.garbage_bytes += record.len();
        Ok(())
    }

    /// Returns true if the record counts; otherwise counts it as void.
    fn is_valid(&mut self, record: &RawJournalRecord<'_>) -> bool {
        if !self.counts {
            self.findings.statistics.void_records += 1;
            self.findings.garbage_bytes += record.len();
        }
        self.counts
    }

    fn apply_small(&mut self, record: &RawJournalRecord<'_>) -> Result<(), MalformedRecord> {
        let mut directory = RelPath::root();
        let (mut count, mut bytes) = (0, 0u64);
        self.done.clear();
        for read in EntryTableDecoder::new(record.body) {
            match read.map_err(|_| MalformedRecord)? {
                EntryTableRecord::Section { path, .. } => directory = path,
                // Special files are not recorded: a stat(2) at the destination suffices to compare them.
                EntryTableRecord::Entry(entry) if entry.special.is_some() => {}
                EntryTableRecord::Entry(entry) => {
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

    /// Counts in every session: the record makes no claim on data, and its temporary name must be known.
    fn apply_begin(&mut self, record: &RawJournalRecord<'_>) -> Result<(), MalformedRecord> {
        let partial = partial_of(record.body)?;
        let number = partial.number;
        if self.live.contains_key(&number) {
            return Err(MalformedRecord);
        }
        let memory_bytes = PARTIAL_BYTES + record.body.len();
        self.findings.next_number =
            self.findings.next_number.max(number.checked_add(1).ok_or(MalformedRecord)?);
        if !self.try_reserve_memory(memory_bytes) {
            return Ok(());
        }
        let digest = FileDigestBuilder::new(partial.size);
        let (record_offset, record_bytes) = (record.offset, record.len());
        self.temporaries.insert((partial.temporary.clone(), number));
        self.live
            .insert(number, UnfinishedFile { partial, digest, record_offset, record_bytes, memory_bytes });
        Ok(())
    }

    /// Reserves memory, or returns false.
    fn try_reserve_memory(&mut self, bytes: usize) -> bool {
        let is_there = self.live_bytes + bytes <= UNFINISHED_BYTES_MAX;
        if is_there {
            self.live_bytes += bytes;
        } else {
            self.findings.statistics.forgotten_records += 1;
        }
        is_there
    }

    fn apply_held(&mut self, record: &RawJournalRecord<'_>) -> Result<(), MalformedRecord> {
        let held = JournalHeldRanges::of(record.body)?;
        let valid = self.is_valid(record);
        let Some(size) = self.live.get(&held.number).map(|live| live.partial.size) else { return Ok(()) };
        if held.ranges.iter().any(|raw| !is_within(raw, size)) {
            return Err(MalformedRecord);
        }
        if !valid {
            return Ok(());
        }
        self.findings.garbage_bytes += record.len();
        let nodes = held.ranges.len() + held.subtrees.len();
        let fits = self.try_reserve_memory(nodes * NODE_BYTES);
        if let Some(live) = self.live.get_mut(&held.number).filter(|_| fits) {
            let freed = nodes * NODE_BYTES - live.add(&held) * NODE_BYTES;
            live.memory_bytes += nodes * NODE_BYTES - freed;
            self.live_bytes -= freed;
        }
        Ok(())
    }

    fn apply_done(&mut self, number: u64, record: &RawJournalRecord<'_>) {
        self.done.clear();
        if !self.is_valid(record) {
            return;
        }
        self.findings.garbage_bytes += record.len();
        let Some(live) = self.remove_unfinished(number) else { return };
        let partial = &live.partial;
        self.count_done(1, partial.size);
        self.done.extend(self.hashing.as_ref().map(|h| h.fingerprint(&partial.directory, &partial.key())));
        // Compaction turns the two records into a `Small` one, which is shorter only by the names: no gain.
        self.findings.garbage_bytes = self.findings.garbage_bytes.saturating_sub(live.record_bytes);
    }

    /// Counts in every session. The first record of a directory counts: later ones hold the bits that the
    /// session had set.
    fn apply_mode(&mut self, record: &RawJournalRecord<'_>) -> Result<(), MalformedRecord> {
        let (mode, path) = mode_of(record.body)?;
        self.findings.garbage_bytes += record.len();
        if !self.findings.changed_modes.contains_key(&path)
            && self.try_reserve_memory(PARTIAL_BYTES + record.body.len())
        {
            self.findings.changed_modes.insert(path, mode);
        }
        Ok(())
    }

    fn remove_unfinished(&mut self, number: u64) -> Option<UnfinishedFile> {
        let live = self.live.remove(&number)?;
        self.temporaries.remove(&(live.partial.temporary.clone(), number));
        self.live_bytes -= live.memory_bytes;
        self.findings.garbage_bytes += live.record_bytes;
        Some(live)
    }

    fn finish(mut self, valid_end: u64) -> JournalFindings {
        let live = std::mem::take(&mut self.live);
        let kept: u64 = live.values().map(UnfinishedFile::held_record_bytes).sum();
        self.findings.garbage_bytes = self.findings.garbage_bytes.saturating_sub(kept);
        self.findings.begin_offsets = live.values().map(|live| live.record_offset).collect();
        self.findings.begin_offsets.sort_unstable();
        self.findings.partials = live.into_values().map(UnfinishedFile::into_partial).collect();
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

impl UnfinishedFile {
    /// Adds ranges and subtrees, and returns the number of nodes that they take.
    fn add(&mut self, held: &JournalHeldRanges<'_>) -> usize {
        let before = self.node_count();
        for raw in held.ranges {
            self.partial.held.cover(raw.into());
        }
        for raw in held.subtrees {
            // An error means that the range was recorded before: the same bytes have the same value.
            let _ = self.digest.add(Blake3Subtree { range: (&raw.range).into(), value: raw.value });
        }
        self.node_count().saturating_sub(before)
    }

    fn node_count(&self) -> usize {
        self.partial.held.run_count() + self.digest.len()
    }

    /// Bytes of a single `Held` record with all ranges.
    fn held_record_bytes(&self) -> u64 {
        let ranges = self.partial.held.run_count() * size_of::<RawRange>();
        (HEAD_BYTES
            + size_of::<RawJournalHeldRecord>()
            + ranges
            + self.digest.len() * size_of::<RawHashSubtree>()) as u64
    }

    fn into_partial(self) -> PartialFile {
        PartialFile { subtrees: self.digest.subtrees().collect(), ..self.partial }
    }
}

/// A decoded `Held`.
struct JournalHeldRanges<'a> {
    number: u64,
    ranges: &'a [RawRange],
    subtrees: &'a [RawHashSubtree],
}

impl<'a> JournalHeldRanges<'a> {
    fn of(body: &'a [u8]) -> Result<JournalHeldRanges<'a>, MalformedRecord> {
        let (raw, rest) = RawJournalHeldRecord::ref_from_prefix(body).map_err(|_| MalformedRecord)?;
        let (ranges, rest) = <[RawRange]>::ref_from_prefix_with_elems(rest, raw.range_count.get() as usize)
            .map_err(|_| MalformedRecord)?;
        let subtrees = <[RawHashSubtree]>::ref_from_bytes_with_elems(rest, raw.subtree_count.get() as usize)
            .map_err(|_| MalformedRecord)?;
        Ok(JournalHeldRanges { number: raw.number.get(), ranges, subtrees })
    }
}

fn is_within(raw: &RawRange, size: u64) -> bool {
    ByteRange::from(raw).end().is_some_and(|end| end <= size)
}

pub(super) fn number_of(body: &[u8]) -> Result<u64, MalformedRecord> {
    U64::ref_from_bytes(body).map(|number| number.get()).map_err(|_| MalformedRecord)
}

/// Returns the number, the temporary name and the table of a `Begin`.
pub(super) fn begin_of(body: &[u8]) -> Result<(u64, &[u8], &[u8]), MalformedRecord> {
    let (raw, rest) = RawJournalBeginRecord::ref_from_prefix(body).map_err(|_| MalformedRecord)?;
    let (temporary, table) =
        rest.split_at_checked(raw.temporary_len.get() as usize).ok_or(MalformedRecord)?;
    Ok((raw.number.get(), temporary, table))
}

/// Returns the permission bits and the directory of a `Mode`.
fn mode_of(body: &[u8]) -> Result<(u32, RelPath), MalformedRecord> {
    let (mode, path) = U32::ref_from_prefix(body).map_err(|_| MalformedRecord)?;
    let path = RelPath::new(path).map_err(|_| MalformedRecord)?;
    if mode.get() > 0o7777 { Err(MalformedRecord) } else { Ok((mode.get(), path)) }
}

fn partial_of(body: &[u8]) -> Result<PartialFile, MalformedRecord> {
    let (number, temporary, table) = begin_of(body)?;
    carrack_model::check_name(temporary).map_err(|_| MalformedRecord)?;
    let mut records = EntryTableDecoder::new(table);
    let directory = match next_record(&mut records)? {
        Some(EntryTableRecord::Section { path, .. }) => path,
        _ => return Err(MalformedRecord),
    };
    let Some(EntryTableRecord::Entry(entry)) = next_record(&mut records)? else {
        return Err(MalformedRecord);
    };
    if !entry.is_regular() || next_record(&mut records)?.is_some() {
        return Err(MalformedRecord);
    }
    Ok(PartialFile {
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

fn next_record<'a>(
    records: &mut EntryTableDecoder<'a>,
) -> Result<Option<EntryTableRecord<'a>>, MalformedRecord> {
    records.next().transpose().map_err(|_| MalformedRecord)
}
