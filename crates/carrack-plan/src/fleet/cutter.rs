//! Cuts the entries of a scan into chunks: groups of files of like size, and parts of large files (Y3).
//!
//! Owns the groups that are being filled. Must not read a file, encode a table or know the destination of a
//! chunk. Several scan threads share one cutter; the caller locks it.

use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;

use carrack_model::limits::SLOT_BYTES_MIN;
use carrack_model::{
    ByteRange, CopiedDirectoryPaths, DirectorySection, Entry, EntryKind, ExtraMetadata, HardLinkTarget,
};

use super::LargeFileNumber;
use crate::{entry_table_bytes, extras_table_bytes, section_table_bytes};

/// Default upper bound of a chunk's bytes: the paper's (Y3).
pub const CHUNK_BYTES_DEFAULT: u64 = 1 << 30;

/// Upper bound of a chunk's entries. A mover that dies with a chunk has these entries offered again, in
/// sixteen offers.
pub const CHUNK_ENTRIES_MAX: usize = 8_192;

/// Default upper bound of a chunk's entry table in bytes: half of the largest message of NATS, so that
/// headers and another encoding have room.
pub const CHUNK_TABLE_BYTES_DEFAULT: usize = 512 << 10;

/// Parts end at multiples of this, so that objects of every usual size end there too.
pub const PART_GRAIN_BYTES: u64 = 1 << 20;

/// Default bytes of the first chunks: a second of a link of 40 Mbit/s that four pairs share.
pub const CHUNK_BYTES_FIRST: u64 = 1 << 20;

/// A chunk has this part of the bytes found so far: a mover with a 20th of the fleet's rate then delays the
/// end by 2 % at most.
const CHUNKS_FOR_ALL_BYTES: u64 = 1 << 10;

/// Upper bound of the entries in the first chunks of small files.
const CHUNK_ENTRIES_FIRST: usize = 512;

/// A chunk has this part of the entries found so far: a larger part than of the bytes, as an entry costs
/// little.
const CHUNKS_FOR_ALL_ENTRIES: u64 = 1 << 8;

/// A file of up to this multiple of the present chunk size is not cut: its parts would cost two messages
/// more.
const WHOLE_UP_TO: u64 = 2;

/// Upper bounds of the size classes, exclusive: files of one class are grouped. Larger files make the last
/// group.
pub const SIZE_CLASSES: [u64; 4] = [64 << 10, 1 << 20, 16 << 20, 256 << 20];

/// Groups that are open at once: one for each class.
const CLASS_COUNT: usize = SIZE_CLASSES.len() + 1;

/// The sizes of a [`FleetChunkBuilder`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkLimits {
    /// Upper bound of a chunk's bytes; larger files are cut into parts. Values below [`PART_GRAIN_BYTES`] are
    /// raised to it.
    pub chunk_bytes: u64,
    /// Upper bound of the first chunks' bytes; it grows to [`chunk_bytes`](Self::chunk_bytes) with the bytes
    /// found.
    pub chunk_bytes_first: u64,
    /// Upper bound of a chunk's entries, and of the directories and names in a message for the end.
    pub entries_max: usize,
    /// Upper bound of a chunk's encoded entry table; at least [`SLOT_BYTES_MIN`].
    pub table_bytes_max: usize,
}

impl Default for ChunkLimits {
    fn default() -> ChunkLimits {
        ChunkLimits {
            chunk_bytes: CHUNK_BYTES_DEFAULT,
            chunk_bytes_first: CHUNK_BYTES_FIRST,
            entries_max: CHUNK_ENTRIES_MAX,
            table_bytes_max: CHUNK_TABLE_BYTES_DEFAULT,
        }
    }
}

impl ChunkLimits {
    /// Returns limits with a constant chunk size.
    pub fn fixed(chunk_bytes: u64) -> ChunkLimits {
        ChunkLimits { chunk_bytes, chunk_bytes_first: chunk_bytes, ..ChunkLimits::default() }
    }

    /// Returns the present limits: a 1,024th of the bytes and a 256th of the entries found, within the
    /// bounds.
    fn scaled_to_totals(&self, found: &CutTotals) -> ChunkLimits {
        let bytes = (found.bytes / CHUNKS_FOR_ALL_BYTES).max(self.chunk_bytes_first).min(self.chunk_bytes);
        let entries = usize::try_from(found.files / CHUNKS_FOR_ALL_ENTRIES).unwrap_or(usize::MAX);
        ChunkLimits {
            chunk_bytes: bytes.max(PART_GRAIN_BYTES),
            entries_max: entries.max(CHUNK_ENTRIES_FIRST).min(self.entries_max),
            ..*self
        }
    }
}

/// The content of a chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChunkEntries {
    /// Files and links as wholes, of like size. The sections have no metadata of directories.
    Files {
        /// The entries, in the order in which they were found.
        sections: Vec<DirectorySection>,
    },
    /// One part of a large file.
    Part {
        /// Number of the file among those that are cut into parts.
        file: LargeFileNumber,
        /// Directory of the file.
        directory: Arc<CopiedDirectoryPaths>,
        /// The file.
        entry: Entry,
        /// Range of the part; never empty.
        range: ByteRange,
        /// Index of the part, from 0.
        index: u64,
        /// Number of the file's parts.
        count: u64,
    },
    /// Entries to process after all others: directories with their metadata, further names of files (hard
    /// links), which need the first name, and files that become immutable or append-only, each as a name of
    /// its own file.
    End {
        /// In the order in which they were found. Some sections have no metadata, and most have no entries.
        sections: Vec<DirectorySection>,
    },
}

/// A unit of work for a mover, or a message for the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransferWorkChunk {
    /// From 0 without a gap among a cutter's chunks of files and parts; messages for the end have their own
    /// numbers.
    pub number: u64,
    /// Content of the chunk.
    pub kind: ChunkEntries,
    /// Files and links; 1 for a part; names for the end.
    pub entries: usize,
    /// Bytes of content.
    pub bytes: u64,
}

/// Counts of the entries that a cutter has taken so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CutTotals {
    /// Chunks of files and parts that were cut.
    pub chunks: u64,
    /// Files and links.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Further names of these files.
    pub names: u64,
    /// Directories with metadata.
    pub directories: u64,
    /// Files that are cut into parts.
    pub files_in_parts: u64,
    /// Entries and directories that the scan could not read; added by the scan.
    pub failed: u64,
}

impl CutTotals {
    /// Returns the larger of each count.
    pub fn max_of(self, other: CutTotals) -> CutTotals {
        CutTotals {
            chunks: self.chunks.max(other.chunks),
            files: self.files.max(other.files),
            bytes: self.bytes.max(other.bytes),
            names: self.names.max(other.names),
            directories: self.directories.max(other.directories),
            files_in_parts: self.files_in_parts.max(other.files_in_parts),
            failed: self.failed.max(other.failed),
        }
    }
}

/// Cuts a scan's sections into chunks.
///
/// Every file comes out once, or as parts that tile it. A group holds files of one of [`SIZE_CLASSES`]: a
/// chunk of small files costs a mover time for each file, a chunk of large files for each byte, and a mix of
/// both is neither bundled nor foreseen well. The cutter holds one open group for each class and one for the
/// end. Complete chunks wait for [`next_chunk`](Self::next_chunk), a large file as one item, however many
/// parts it has.
#[derive(Debug)]
pub struct FleetChunkBuilder {
    limits: ChunkLimits,
    groups: [ChunkInAssembly; CLASS_COUNT],
    end: ChunkInAssembly,
    ready: VecDeque<UntakenWorkChunk>,
    end_messages: u64,
    found: CutTotals,
}

impl FleetChunkBuilder {
    /// An empty cutter.
    ///
    /// # Panics
    /// If the bound of tables is below [`SLOT_BYTES_MIN`], so that not every entry fits, or no
    /// entries are allowed.
    pub fn new(limits: ChunkLimits) -> FleetChunkBuilder {
        let limits = ChunkLimits { chunk_bytes: limits.chunk_bytes.max(PART_GRAIN_BYTES), ..limits };
        assert!(limits.table_bytes_max >= SLOT_BYTES_MIN, "{limits:?}: too small for the longest entry");
        assert!(limits.entries_max > 0, "{limits:?} leaves no room");
        FleetChunkBuilder {
            limits,
            groups: Default::default(),
            end: ChunkInAssembly::default(),
            ready: VecDeque::new(),
            end_messages: 0,
            found: CutTotals::default(),
        }
    }

    /// Takes a section of the scan. [`next_chunk`](Self::next_chunk) returns the chunks that it completes.
    pub fn add(&mut self, section: DirectorySection) {
        let DirectorySection { directory, metadata, extras, entries } = section;
        if metadata.is_some() {
            let directory = Arc::clone(&directory);
            self.add_directory(DirectorySection { directory, metadata, extras, entries: Vec::new() });
        }
        for entry in entries {
            if is_further_name(&entry) {
                self.found.names += 1;
                self.add_to_end(&directory, entry);
                continue;
            }
            if let Some(flagged) = final_flags_entry(&directory, &entry) {
                self.add_to_end(&directory, flagged);
            }
            self.found.files += 1;
            self.found.bytes = self.found.bytes.saturating_add(entry.size());
            let now = self.limits.scaled_to_totals(&self.found);
            if entry.size() > now.chunk_bytes.saturating_mul(WHOLE_UP_TO).min(self.limits.chunk_bytes) {
                self.add_large(&directory, entry, now.chunk_bytes);
            } else {
                self.add_small(&directory, entry, &now);
            }
        }
    }

    /// Ends the scan: all open groups become complete.
    pub fn finish(&mut self) {
        self.ready
            .extend(self.groups.iter_mut().filter_map(ChunkInAssembly::close).map(UntakenWorkChunk::Group));
        self.close_end();
    }

    /// Returns the next complete chunk. Chunks are numbered in this order.
    pub fn next_chunk(&mut self) -> Option<TransferWorkChunk> {
        let ready = self.ready.front_mut()?;
        let (kind, entries, bytes) = match ready {
            UntakenWorkChunk::Large(large) => {
                let part = large.next_part();
                let is_last = large.offset == large.entry.size();
                if is_last {
                    self.ready.pop_front();
                }
                part
            }
            UntakenWorkChunk::Group(group) => {
                let ChunkInAssembly { sections, entries, bytes, .. } = mem::take(group);
                self.ready.pop_front();
                (ChunkEntries::Files { sections }, entries, bytes)
            }
            UntakenWorkChunk::End(group) => {
                let ChunkInAssembly { sections, entries, .. } = mem::take(group);
                self.ready.pop_front();
                (ChunkEntries::End { sections }, entries, 0)
            }
        };
        let counter = match kind {
            ChunkEntries::End { .. } => &mut self.end_messages,
            ChunkEntries::Files { .. } | ChunkEntries::Part { .. } => &mut self.found.chunks,
        };
        let number = mem::replace(counter, *counter + 1);
        Some(TransferWorkChunk { number, kind, entries, bytes })
    }

    /// Returns the counts so far; they are complete after the last chunk.
    pub fn totals(&self) -> CutTotals {
        self.found
    }

    /// Returns the number of entries in open groups.
    pub fn open_entries(&self) -> usize {
        self.groups.iter().map(|group| group.entries).sum()
    }

    fn add_directory(&mut self, section: DirectorySection) {
        self.found.directories += 1;
        let table_bytes =
            section_table_bytes(&section.directory) + extras_table_bytes(section.extras.as_deref());
        self.make_room_at_end(table_bytes);
        self.end.table_bytes += table_bytes;
        self.end.sections.push(section);
    }

    fn add_to_end(&mut self, directory: &Arc<CopiedDirectoryPaths>, entry: Entry) {
        self.make_room_at_end(self.end.table_bytes_with(directory, &entry));
        self.end.push(directory, entry);
    }

    /// Closes the group for the end if another directory or name with this many table bytes would not fit.
    fn make_room_at_end(&mut self, table_bytes: usize) {
        let has_room = self.end.sections.len() + self.end.entries < self.limits.entries_max
            && self.end.table_bytes + table_bytes <= self.limits.table_bytes_max;
        if !has_room {
            self.close_end();
        }
    }

    fn close_end(&mut self) {
        self.ready.extend(self.end.close().map(UntakenWorkChunk::End));
    }

    fn add_small(&mut self, directory: &Arc<CopiedDirectoryPaths>, entry: Entry, limits: &ChunkLimits) {
        let group = &mut self.groups[size_class(entry.size())];
        if !group.has_room(directory, &entry, limits) {
            self.ready.extend(group.close().map(UntakenWorkChunk::Group));
        }
        group.push(directory, entry);
        if group.is_full(limits) {
            self.ready.extend(group.close().map(UntakenWorkChunk::Group));
        }
    }

    fn add_large(&mut self, directory: &Arc<CopiedDirectoryPaths>, entry: Entry, chunk_bytes: u64) {
        let part_bytes = chunk_bytes - chunk_bytes % PART_GRAIN_BYTES;
        let file = LargeFileNumber(self.found.files_in_parts);
        self.found.files_in_parts += 1;
        let directory = Arc::clone(directory);
        self.ready.push_back(UntakenWorkChunk::Large(PartedFile {
            file,
            directory,
            entry,
            part_bytes,
            offset: 0,
        }));
    }
}

/// Returns true if an entry is another name of a file that is copied under its first one.
fn is_further_name(entry: &Entry) -> bool {
    entry.extras.as_deref().is_some_and(|extras| extras.same_as.is_some())
}

/// Returns the entry for the end of a file whose flags forbid later changes: the file as a name of its own,
/// with these flags.
fn final_flags_entry(directory: &CopiedDirectoryPaths, entry: &Entry) -> Option<Entry> {
    let flags = entry.extras.as_deref()?.flags.filter(|flags| flags.write_protecting().active() != 0)?;
    let same_as = HardLinkTarget { path: directory.sink.join(&entry.name).ok()?, size: entry.size() };
    let extras = ExtraMetadata { same_as: Some(same_as), flags: Some(flags), ..ExtraMetadata::default() };
    Some(Entry {
        name: entry.name.clone(),
        source_name: None,
        kind: EntryKind::Regular { size: 0 },
        metadata: entry.metadata,
        identity: entry.identity,
        extras: Some(Box::new(extras)),
    })
}

/// Returns the size class of a file; links and empty files belong to the smallest.
fn size_class(bytes: u64) -> usize {
    SIZE_CLASSES.iter().take_while(|&&limit| bytes >= limit).count()
}

/// A chunk, or file in parts, that waits for [`FleetChunkBuilder::next_chunk`].
#[derive(Debug)]
enum UntakenWorkChunk {
    Group(ChunkInAssembly),
    End(ChunkInAssembly),
    Large(PartedFile),
}

/// A file that is cut while its parts are taken.
#[derive(Debug)]
struct PartedFile {
    file: LargeFileNumber,
    directory: Arc<CopiedDirectoryPaths>,
    entry: Entry,
    part_bytes: u64,
    offset: u64,
}

impl PartedFile {
    fn next_part(&mut self) -> (ChunkEntries, usize, u64) {
        let range = ByteRange::new(self.offset, self.part_bytes.min(self.entry.size() - self.offset));
        let kind = ChunkEntries::Part {
            file: self.file,
            directory: Arc::clone(&self.directory),
            entry: self.entry.clone(),
            range,
            index: self.offset / self.part_bytes,
            count: self.entry.size().div_ceil(self.part_bytes),
        };
        self.offset += range.len;
        (kind, 1, range.len)
    }
}

/// Files of one class, or directories and names, of one future chunk.
#[derive(Debug, Default)]
struct ChunkInAssembly {
    sections: Vec<DirectorySection>,
    entries: usize,
    bytes: u64,
    /// Upper bound of the encoded table.
    table_bytes: usize,
}

impl ChunkInAssembly {
    fn has_room(&self, directory: &Arc<CopiedDirectoryPaths>, entry: &Entry, limits: &ChunkLimits) -> bool {
        self.table_bytes + self.table_bytes_with(directory, entry) <= limits.table_bytes_max
            && (self.entries == 0 || entry.size() <= limits.chunk_bytes.saturating_sub(self.bytes))
    }

    /// Returns the bytes that an entry adds to the table.
    fn table_bytes_with(&self, directory: &Arc<CopiedDirectoryPaths>, entry: &Entry) -> usize {
        let header_bytes = if self.is_open_for(directory) { 0 } else { section_table_bytes(directory) };
        header_bytes + entry_table_bytes(entry)
    }

    fn push(&mut self, directory: &Arc<CopiedDirectoryPaths>, entry: Entry) {
        if !self.is_open_for(directory) {
            self.table_bytes += section_table_bytes(directory);
            self.sections.push(DirectorySection {
                directory: Arc::clone(directory),
                metadata: None,
                extras: None,
                entries: Vec::new(),
            });
        }
        self.entries += 1;
        self.bytes += entry.size();
        self.table_bytes += entry_table_bytes(&entry);
        let section = self.sections.last_mut().expect("a section was opened above");
        section.entries.push(entry);
    }

    /// Returns true if the last section is of that directory, so that the entry needs no section of its own.
    fn is_open_for(&self, directory: &Arc<CopiedDirectoryPaths>) -> bool {
        self.sections.last().is_some_and(|section| section.directory == *directory)
    }

    fn is_full(&self, limits: &ChunkLimits) -> bool {
        self.entries >= limits.entries_max || self.bytes >= limits.chunk_bytes
    }

    fn close(&mut self) -> Option<ChunkInAssembly> {
        (!self.sections.is_empty()).then(|| mem::take(self))
    }
}

#[cfg(test)]
#[path = "cutter_tests.rs"]
mod tests;
