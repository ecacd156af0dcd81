//! Cuts what a scan finds into chunks: groups of files of like size, and parts of large files (Y3).
//!
//! Owns the groups that are being filled. Must not read a file, encode a table or know where chunks go. Several scan
//! threads share one cutter; whoever calls locks it.

use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;

use carrack_model::limits::SLOT_BYTES_MIN;
use carrack_model::{ByteRange, Directory, Entry, EntryKind, Extras, SameAs, Section};

use super::FileKey;
use crate::{entry_table_bytes, extras_table_bytes, section_table_bytes};

/// Bytes of a chunk at most, if nothing else is said: the paper's (Y3).
pub const CHUNK_BYTES_DEFAULT: u64 = 1 << 30;

/// Entries of a chunk at most: what a mover that dies with one may have to offer again, in sixteen offers.
pub const CHUNK_ENTRIES_MAX: usize = 8_192;

/// Bytes of a chunk's entry table at most, if nothing else is said: half of what NATS takes as one message, so that heads
/// and another encoding have room.
pub const CHUNK_TABLE_BYTES_DEFAULT: usize = 512 << 10;

/// Parts end at multiples of this, so that objects of every usual size end there too.
pub const PART_GRAIN_BYTES: u64 = 1 << 20;

/// Chunks begin with so many bytes, if nothing else is said: a second of a link of 40 Mbit/s that four pairs share.
pub const CHUNK_BYTES_FIRST: u64 = 1 << 20;

/// A chunk has this part of the bytes found so far: a mover that has a 20th of the fleet's rate then delays the end by 2 %
/// at most.
const CHUNKS_FOR_ALL_BYTES: u64 = 1 << 10;

/// A chunk of small files begins with so many entries at most.
const CHUNK_ENTRIES_FIRST: usize = 512;

/// It has this part of the entries found so far: fewer, as each entry costs little.
const CHUNKS_FOR_ALL_ENTRIES: u64 = 1 << 8;

/// A file of up to so many times what a chunk has at present is not cut: as a part it would cost two messages more.
const WHOLE_UP_TO: u64 = 2;

/// Files below each of these sizes, and not below the one before, are grouped together; what is larger makes the last group.
pub const SIZE_CLASSES: [u64; 4] = [64 << 10, 1 << 20, 16 << 20, 256 << 20];

/// Groups that are open at once: one for each class.
const CLASS_COUNT: usize = SIZE_CLASSES.len() + 1;

/// The sizes that a [`ChunkCutter`] keeps to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkLimits {
    /// Bytes of a chunk at most; files of more are cut into parts. Less than [`PART_GRAIN_BYTES`] counts as that.
    pub chunk_bytes: u64,
    /// Bytes of the first chunks at most; they grow to [`chunk_bytes`](Self::chunk_bytes) with what is found.
    pub chunk_bytes_first: u64,
    /// Most entries of a chunk, and most directories and names of a message for the end.
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
    /// Chunks of that size, whatever is found.
    pub fn fixed(chunk_bytes: u64) -> ChunkLimits {
        ChunkLimits { chunk_bytes, chunk_bytes_first: chunk_bytes, ..ChunkLimits::default() }
    }

    /// As they are when so much was found: a 1,024th of the bytes and a 256th of the entries, within the bounds.
    fn when_found(&self, found: &Found) -> ChunkLimits {
        let bytes = (found.bytes / CHUNKS_FOR_ALL_BYTES).max(self.chunk_bytes_first).min(self.chunk_bytes);
        let entries = usize::try_from(found.files / CHUNKS_FOR_ALL_ENTRIES).unwrap_or(usize::MAX);
        ChunkLimits {
            chunk_bytes: bytes.max(PART_GRAIN_BYTES),
            entries_max: entries.max(CHUNK_ENTRIES_FIRST).min(self.entries_max),
            ..*self
        }
    }
}

/// What a chunk is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChunkKind {
    /// Files and links as wholes, of like size. The sections have no metadata of directories.
    Files {
        /// The entries, in the order in which they were found.
        sections: Vec<Section>,
    },
    /// One part of a large file.
    Part {
        /// The file's number among those that are cut into parts.
        file: FileKey,
        /// Where it stands.
        directory: Arc<Directory>,
        /// The file.
        entry: Entry,
        /// Which bytes of it; never empty.
        range: ByteRange,
        /// Which part, from 0.
        index: u64,
        /// Parts of the file.
        count: u64,
    },
    /// Not to be done before everything else is: directories with their metadata and all that is kept of them, further names of
    /// files (hard links), which need the first ones, and files that are to be immutable or append-only, each as a name of itself.
    End {
        /// In the order in which they were found; not each has metadata, and most have no entries.
        sections: Vec<Section>,
    },
}

/// What a mover takes at once; or a message for the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// From 0 without a gap in a cutter's chunks of files and parts; messages for the end are counted by themselves.
    pub number: u64,
    /// What it is made of.
    pub kind: ChunkKind,
    /// Files and links; 1 for a part; names for the end.
    pub entries: usize,
    /// Bytes of content.
    pub bytes: u64,
}

/// What a cutter has been given so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Chunks of files and parts that were cut.
    pub chunks: u64,
    /// Files and links.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Further names of these files.
    pub names: u64,
    /// Directories of which the metadata came by.
    pub directories: u64,
    /// Files that are cut into parts.
    pub files_in_parts: u64,
    /// Entries and directories that the scan could not read; whoever scans adds them.
    pub failed: u64,
}

impl Found {
    /// The larger of each count.
    pub fn max_of(self, other: Found) -> Found {
        Found {
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
/// Every file comes out once, or as parts that tile it. Files that were grouped are of one of [`SIZE_CLASSES`]: a chunk of
/// small files costs a mover time by the file, one of large files by the byte, and a mix of both is neither bundled nor
/// foreseen well. It holds one open group for each class and one for the end, whatever it is given; what is complete
/// waits for [`next_chunk`](Self::next_chunk), a large file as one thing, however many parts it has.
#[derive(Debug)]
pub struct ChunkCutter {
    limits: ChunkLimits,
    groups: [Group; CLASS_COUNT],
    end: Group,
    ready: VecDeque<Ready>,
    end_messages: u64,
    found: Found,
}

impl ChunkCutter {
    /// An empty cutter.
    ///
    /// # Panics
    /// If the bound of tables is below [`SLOT_BYTES_MIN`], so that not every entry fits, or no entries are allowed.
    pub fn new(limits: ChunkLimits) -> ChunkCutter {
        let limits = ChunkLimits { chunk_bytes: limits.chunk_bytes.max(PART_GRAIN_BYTES), ..limits };
        assert!(limits.table_bytes_max >= SLOT_BYTES_MIN, "{limits:?}: too small for the longest entry");
        assert!(limits.entries_max > 0, "{limits:?} leaves no room");
        ChunkCutter {
            limits,
            groups: Default::default(),
            end: Group::default(),
            ready: VecDeque::new(),
            end_messages: 0,
            found: Found::default(),
        }
    }

    /// Takes what the scan found. [`next_chunk`](Self::next_chunk) gives what is complete by that.
    pub fn add(&mut self, section: Section) {
        let Section { directory, metadata, extras, entries } = section;
        if metadata.is_some() {
            let directory = Arc::clone(&directory);
            self.add_directory(Section { directory, metadata, extras, entries: Vec::new() });
        }
        for entry in entries {
            if is_further_name(&entry) {
                self.found.names += 1;
                self.add_to_end(&directory, entry);
                continue;
            }
            if let Some(flagged) = flagged(&directory, &entry) {
                self.add_to_end(&directory, flagged);
            }
            self.found.files += 1;
            self.found.bytes = self.found.bytes.saturating_add(entry.size());
            let now = self.limits.when_found(&self.found);
            if entry.size() > now.chunk_bytes.saturating_mul(WHOLE_UP_TO).min(self.limits.chunk_bytes) {
                self.add_large(&directory, entry, now.chunk_bytes);
            } else {
                self.add_small(&directory, entry, &now);
            }
        }
    }

    /// The scan is at its end: what is left becomes complete.
    pub fn finish(&mut self) {
        self.ready.extend(self.groups.iter_mut().filter_map(Group::close).map(Ready::Group));
        self.close_end();
    }

    /// The next chunk that is complete. They are numbered as they leave.
    pub fn next_chunk(&mut self) -> Option<Chunk> {
        let ready = self.ready.front_mut()?;
        let (kind, entries, bytes) = match ready {
            Ready::Large(large) => {
                let part = large.next_part();
                let is_last = large.offset == large.entry.size();
                if is_last {
                    self.ready.pop_front();
                }
                part
            }
            Ready::Group(group) => {
                let Group { sections, entries, bytes, .. } = mem::take(group);
                self.ready.pop_front();
                (ChunkKind::Files { sections }, entries, bytes)
            }
            Ready::End(group) => {
                let Group { sections, entries, .. } = mem::take(group);
                self.ready.pop_front();
                (ChunkKind::End { sections }, entries, 0)
            }
        };
        let counter = match kind {
            ChunkKind::End { .. } => &mut self.end_messages,
            ChunkKind::Files { .. } | ChunkKind::Part { .. } => &mut self.found.chunks,
        };
        let number = mem::replace(counter, *counter + 1);
        Some(Chunk { number, kind, entries, bytes })
    }

    /// What it was given; whole when the last chunk has left.
    pub fn found(&self) -> Found {
        self.found
    }

    /// Entries that it holds in open groups.
    pub fn open_entries(&self) -> usize {
        self.groups.iter().map(|group| group.entries).sum()
    }

    fn add_directory(&mut self, section: Section) {
        self.found.directories += 1;
        let table_bytes =
            section_table_bytes(&section.directory) + extras_table_bytes(section.extras.as_deref());
        self.make_room_at_end(table_bytes);
        self.end.table_bytes += table_bytes;
        self.end.sections.push(section);
    }

    fn add_to_end(&mut self, directory: &Arc<Directory>, entry: Entry) {
        self.make_room_at_end(self.end.table_bytes_with(directory, &entry));
        self.end.push(directory, entry);
    }

    /// For one more directory or name, with so many bytes of a table.
    fn make_room_at_end(&mut self, table_bytes: usize) {
        let has_room = self.end.sections.len() + self.end.entries < self.limits.entries_max
            && self.end.table_bytes + table_bytes <= self.limits.table_bytes_max;
        if !has_room {
            self.close_end();
        }
    }

    fn close_end(&mut self) {
        self.ready.extend(self.end.close().map(Ready::End));
    }

    fn add_small(&mut self, directory: &Arc<Directory>, entry: Entry, limits: &ChunkLimits) {
        let group = &mut self.groups[size_class(entry.size())];
        if !group.has_room(directory, &entry, limits) {
            self.ready.extend(group.close().map(Ready::Group));
        }
        group.push(directory, entry);
        if group.is_full(limits) {
            self.ready.extend(group.close().map(Ready::Group));
        }
    }

    fn add_large(&mut self, directory: &Arc<Directory>, entry: Entry, chunk_bytes: u64) {
        let part_bytes = chunk_bytes - chunk_bytes % PART_GRAIN_BYTES;
        let file = FileKey(self.found.files_in_parts);
        self.found.files_in_parts += 1;
        let directory = Arc::clone(directory);
        self.ready.push_back(Ready::Large(LargeFile { file, directory, entry, part_bytes, offset: 0 }));
    }
}

/// Whether an entry is another name of a file that is copied under its first one.
fn is_further_name(entry: &Entry) -> bool {
    entry.extras.as_deref().is_some_and(|extras| extras.same_as.is_some())
}

/// What the end has of a file with flags after which nothing can be done with it: the file as a name of itself, with these flags.
fn flagged(directory: &Directory, entry: &Entry) -> Option<Entry> {
    let flags = entry.extras.as_deref()?.flags.filter(|flags| flags.fastening().set() != 0)?;
    let same_as = SameAs { path: directory.sink.join(&entry.name).ok()?, size: entry.size() };
    let extras = Extras { same_as: Some(same_as), flags: Some(flags), ..Extras::default() };
    Some(Entry {
        name: entry.name.clone(),
        source_name: None,
        kind: EntryKind::Regular { size: 0 },
        metadata: entry.metadata,
        identity: entry.identity,
        extras: Some(Box::new(extras)),
    })
}

/// Which class files of a size belong to; links and empty files to the smallest.
fn size_class(bytes: u64) -> usize {
    SIZE_CLASSES.iter().take_while(|&&limit| bytes >= limit).count()
}

/// What waits to be taken.
#[derive(Debug)]
enum Ready {
    Group(Group),
    End(Group),
    Large(LargeFile),
}

/// A file that is cut while its parts are taken.
#[derive(Debug)]
struct LargeFile {
    file: FileKey,
    directory: Arc<Directory>,
    entry: Entry,
    part_bytes: u64,
    offset: u64,
}

impl LargeFile {
    fn next_part(&mut self) -> (ChunkKind, usize, u64) {
        let range = ByteRange::new(self.offset, self.part_bytes.min(self.entry.size() - self.offset));
        let kind = ChunkKind::Part {
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

/// Files of one class, or directories and names, that will leave together.
#[derive(Debug, Default)]
struct Group {
    sections: Vec<Section>,
    entries: usize,
    bytes: u64,
    /// Upper bound of the encoded table.
    table_bytes: usize,
}

impl Group {
    fn has_room(&self, directory: &Arc<Directory>, entry: &Entry, limits: &ChunkLimits) -> bool {
        self.table_bytes + self.table_bytes_with(directory, entry) <= limits.table_bytes_max
            && (self.entries == 0 || entry.size() <= limits.chunk_bytes.saturating_sub(self.bytes))
    }

    /// What an entry adds to the table.
    fn table_bytes_with(&self, directory: &Arc<Directory>, entry: &Entry) -> usize {
        let header_bytes = if self.is_open_for(directory) { 0 } else { section_table_bytes(directory) };
        header_bytes + entry_table_bytes(entry)
    }

    fn push(&mut self, directory: &Arc<Directory>, entry: Entry) {
        if !self.is_open_for(directory) {
            self.table_bytes += section_table_bytes(directory);
            self.sections.push(Section {
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

    /// Whether the last section is of that directory, so that the entry needs no section of its own.
    fn is_open_for(&self, directory: &Arc<Directory>) -> bool {
        self.sections.last().is_some_and(|section| section.directory == *directory)
    }

    fn is_full(&self, limits: &ChunkLimits) -> bool {
        self.entries >= limits.entries_max || self.bytes >= limits.chunk_bytes
    }

    fn close(&mut self) -> Option<Group> {
        (!self.sections.is_empty()).then(|| mem::take(self))
    }
}

#[cfg(test)]
#[path = "cutter_tests.rs"]
mod tests;
