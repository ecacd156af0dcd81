//! The opening and announcement of a large file: by a message, or by its own first object.
//!
//! Runs on I/O threads.

use std::os::fd::AsFd;
use std::sync::Arc;

use carrack_layout::FileLayout;
use carrack_model::limits::RANGES_MAX;
use carrack_model::{
    ByteRange, CopiedDirectoryPaths, DirectorySection, Entry, EntryKind, FailureKind, FileId,
    ObjectChecksumAlgorithm, RangeSet, StripeChoice, TargetId, WriteVerification,
};
use carrack_plan::{Bundle, FileCursor, Layout, SingleTarget};
use carrack_storage::{SourceError, SourceFile};
use carrack_wire::message::{ControlMessage, FileReference, OpenFileMessage, RangesToSend, StripingMessage};
use carrack_wire::{EntryTableEncoder, ranges_to_message};

use super::chunks::FilePart;
use super::context::SourceContext;
use super::lane::SourceLane;
use super::large_file::{OpenSourceLargeFile, UnopenedFile};
use super::work::{BundleReadWork, ReadWork};
use crate::counters::ThreadActivity;
use crate::storage_retries::source_error_may_pass;
use crate::wire_layout::stripes_to_message;

/// The number of objects of a file that a thread reads in a row while others wait: 4 MiB on memory, 16 MiB on
/// disks. The fastest plain mover (WDT) uses the same block size, and measured that smaller blocks were
/// slower.
pub(super) const RUN_OBJECTS: usize = 16;

/// An inline-announced file, with all of its objects for the thread that opened it.
pub(super) type InlineAnnouncedFile = (Arc<OpenSourceLargeFile>, FileCursor);

/// Opens large files of one target.
pub(super) struct SourceLargeFileOpener<'a> {
    pub(super) lane: &'a SourceLane<'a>,
    /// The target in service.
    pub(super) target: TargetId,
}

impl SourceLargeFileOpener<'_> {
    /// Returns true if the file is still the scanned one.
    fn is_as_found(&self, file: &SourceFile, entry: &Entry) -> bool {
        let stamp = file.stamp();
        let size = self.lane.source.end_in(stamp.size);
        size == entry.size() && stamp.ino == entry.identity && file.metadata().mtime == entry.metadata.mtime
    }

    /// Opens a file, and queues its objects. Returns an inline-announced file.
    pub(super) fn open(&self, mut opening: UnopenedFile) -> Option<InlineAnnouncedFile> {
        let lane = self.lane;
        if opening.part == Some(FilePart::Discard) {
            self.discard(&opening);
            return None;
        }
        let opened = lane.counters.time(ThreadActivity::Storage, || {
            lane.request(self.target, |_| self.open_or_share(&opening), source_error_may_pass)
        });
        match opened {
            // Other sessions have parts of the scanned version.
            Ok(file) if opening.part.is_some() && !self.is_as_found(&file, &opening.entry) => {
                self.fail_opening(&opening, FailureKind::Changed, "it changed since it was found");
            }
            Ok(file) if lane.source.lacks_part(file.stamp().size) => {
                self.fail_opening(&opening, FailureKind::Changed, "it has no such part any more");
            }
            Ok(file) if file.stamp().size == 0 => self.open_as_bundle(opening),
            Ok(file) => {
                // The sink holds bytes of the offered version.
                opening.held.take_if(|_| !self.is_as_found(&file, &opening.entry));
                return self.begin(file, opening);
            }
            Err(error) => {
                if source_error_may_pass(&error) {
                    lane.source.tree.requests.count_failed(Some(self.target));
                }
                self.fail_opening(&opening, error.kind(), error);
            }
        }
        None
    }

    /// Lets the sink remove its part of the scanned version of a file, which may have changed or vanished
    /// meanwhile.
    fn discard(&self, opening: &UnopenedFile) {
        let lane = self.lane;
        let UnopenedFile { directory, entry, .. } = opening;
        let mut table = Vec::new();
        let mut writer = EntryTableEncoder::new(&mut table);
        writer.begin_section(&directory.sink, None);
        writer.add_regular(&entry.name, entry.size(), &entry.metadata, entry.identity, None);
        let coming = Some(RangesToSend::default());
        lane.files.announce(|FileId(id)| {
            lane.send_message(ControlMessage::OpenFile(OpenFileMessage {
                id,
                table,
                coming,
                ..OpenFileMessage::default()
            }));
            lane.send_message(ControlMessage::AbandonFile(FileReference { id }));
        });
        lane.end_large_file();
    }

    fn fail_opening(&self, opening: &UnopenedFile, kind: FailureKind, detail: impl ToString) {
        let lane = self.lane;
        lane.fail_path(lane.source.tree.path(&opening.directory, &opening.entry), kind, detail);
        lane.end_large_file();
    }

    /// Opens a file, unless another part of the scanned version is in work.
    fn open_or_share(&self, opening: &UnopenedFile) -> Result<Arc<SourceFile>, SourceError> {
        let UnopenedFile { directory, entry, part, .. } = opening;
        let part_files = &self.lane.source.part_files;
        let is_part = matches!(part, Some(FilePart::Range(_)));
        let shared =
            part_files.find(directory, entry).filter(|file| is_part && self.is_as_found(file, entry));
        if let Some(shared) = shared {
            return Ok(shared);
        }
        let file = Arc::new(self.open_source(directory, entry)?);
        if is_part {
            part_files.add(directory, entry, &file);
        }
        Ok(file)
    }

    pub(super) fn open_source(
        &self,
        directory: &CopiedDirectoryPaths,
        entry: &Entry,
    ) -> Result<SourceFile, SourceError> {
        let held = self.lane.source.tree.open_directory(directory)?;
        let source = self.lane.source;
        let located = source.tree.locate(directory, held.as_fd(), entry)?;
        let file =
            SourceFile::open(located.as_fd(), located.name(), located.follow, source.settings.source_io)?;
        let is_other = source.tree.requires_scanned_inode(directory) && file.stamp().ino != entry.identity;
        if is_other { Err(SourceError::Replaced) } else { Ok(file) }
    }

    /// Queues a file that has become empty: no object would carry it, but a bundle does.
    fn open_as_bundle(&self, opening: UnopenedFile) {
        let UnopenedFile { directory, mut entry, chunk, .. } = opening;
        entry.kind = EntryKind::Regular { size: 0 };
        let section = DirectorySection { directory, metadata: None, extras: None, entries: vec![entry] };
        let table_bytes = carrack_plan::section_table_bytes(&section.directory)
            + section.entries.iter().map(carrack_plan::entry_table_bytes).sum::<usize>();
        let bundle = Bundle { sections: vec![section], content_bytes: 0, table_bytes, entry_count: 1 };
        self.lane.read_queue.return_permit();
        let parcel = BundleReadWork { bundle, attempts: 1, is_rest: false, chunk };
        self.lane.read_queue.push(self.target, ReadWork::Bundle(parcel));
    }

    /// Announces the file, or lets it announce itself.
    fn begin(&self, file: Arc<SourceFile>, opening: UnopenedFile) -> Option<InlineAnnouncedFile> {
        let opened = self.collect_facts(file, opening);
        if self.can_be_announced_inline(&opened) {
            return Some(self.announce_inline(opened));
        }
        self.announce(opened);
        None
    }

    /// Collects the facts for the sink about a file, which may have changed since its scan.
    fn collect_facts(&self, file: Arc<SourceFile>, mut opening: UnopenedFile) -> OpenedFile {
        let source = self.lane.source;
        let size = source.end_in(file.stamp().size);
        let entry = &mut opening.entry;
        entry.kind = EntryKind::Regular { size };
        entry.metadata = file.metadata();
        entry.identity = file.stamp().ino;
        let mut table = Vec::new();
        EntryTableEncoder::new(&mut table).begin_section(&opening.directory.sink, None);
        let mut writer = EntryTableEncoder::new(&mut table).with_extras(entry.extras.as_deref());
        writer.add_regular(&entry.name, size, &entry.metadata, entry.identity, None);
        let found = self.layout_of(&file, size);
        let keeps_stripes = source.spec.stripe == StripeChoice::Preserve;
        let stripes = found.geometry.as_ref().filter(|_| keeps_stripes).map(stripes_to_message);
        let own = own_range(source, opening.part, size);
        let holes = if source.spec.report_digests {
            // The file digest covers all bytes, holes included.
            RangeSet::new()
        } else {
            file.holes_within(own.unwrap_or(ByteRange::new(0, size)))
        };
        let object_bytes = source.object_bytes(&*found.layout);
        OpenedFile { file, opening, size, table, layout: found.layout, object_bytes, stripes, holes }
    }

    /// Returns true if one thread may read the whole file in a row, and the sink needs no message about it:
    /// the sink holds no range of the file, the policy has no choice, and no object goes before earlier ones.
    fn can_be_announced_inline(&self, opened: &OpenedFile) -> bool {
        let (lane, source) = (self.lane, self.lane.source);
        let OpenedFile { file, opening, size, table, object_bytes, stripes, holes, .. } = opened;
        *size <= (RUN_OBJECTS as u64 - 1) * object_bytes
            && object_bytes + table.len() as u64 <= source.spec.slot_bytes.into()
            && holes.is_empty()
            && stripes.is_none()
            && !file.is_direct()
            && opening.attempts == 0
            && opening.held.is_none()
            && opening.part.is_none()
            && source.spec.part.is_none()
            && source.chunks.is_none()
            && source.spec.checksum != ObjectChecksumAlgorithm::Blake3
            && source.settings.verify != WriteVerification::Readback
            && lane.spills.is_empty()
            && !lane.sends_from_files()
            && !lane.read_queue.has_choice()
    }

    fn announce_inline(&self, opened: OpenedFile) -> InlineAnnouncedFile {
        let OpenedFile { file, opening, size, table, layout, object_bytes, .. } = opened;
        let id = self.lane.files.next_inline_id();
        assert!(id.is_inline_announced(), "the sink tells such files by their ids");
        let large = OpenSourceLargeFile::new(id, file, self.target, opening, size).with_inline_table(table);
        let large = Arc::new(large);
        self.lane.files.insert(&large);
        (large, FileCursor::new(id, size, layout, object_bytes))
    }

    fn announce(&self, opened: OpenedFile) {
        let lane = self.lane;
        let OpenedFile { file, opening, size, table, layout, object_bytes, stripes, holes } = opened;
        let is_shared = lane.source.chunks.is_some();
        let own = own_range(lane.source, opening.part, size);
        let missing = subtract_holes(missing_of(opening.held.as_deref(), own, size), &holes, size);
        let goes_on = opening.held.is_some() && !is_shared;
        let coming = missing.as_ref().filter(|_| is_shared).map(|missing| RangesToSend {
            ranges: ranges_to_message(missing),
            is_part: matches!(opening.part, Some(FilePart::Range(_))),
            makes_file: !holes.is_empty()
                && !sink_has_bytes_in(&opening, own.unwrap_or(ByteRange::new(0, size))),
            file_holes: match opening.part {
                Some(FilePart::Finish) => ranges_to_message(&file.holes()),
                _ => Vec::new(),
            },
        });
        let wanted_bytes = missing.as_ref().map_or(size, RangeSet::covered_bytes);
        assert!(wanted_bytes <= size, "no more is missing than the file has");
        let holes = ranges_to_message(&holes);
        let large = lane.files.announce(|id| {
            let large = OpenSourceLargeFile::new(id, file, self.target, opening, wanted_bytes);
            let confirms = lane.sends_from_file(&large) && lane.source.sizing.confirms;
            let large = Arc::new(if confirms { large.with_confirmations() } else { large });
            lane.files.insert(&large);
            lane.send_message(ControlMessage::OpenFile(OpenFileMessage {
                id: id.0,
                table,
                stripes,
                goes_on,
                coming,
                holes,
                confirms,
            }));
            large
        });
        let cursor = FileCursor::new(large.id, size, layout, object_bytes);
        let cursor = missing.into_iter().fold(cursor, FileCursor::with_wanted_ranges);
        self.queue_cursors(&large, cursor);
    }

    fn queue_cursors(&self, large: &Arc<OpenSourceLargeFile>, cursor: FileCursor) {
        let cursors = cursor.split_by_target();
        assert!(!cursors.is_empty(), "a file ends when its last cursor does");
        large.expect_cursors(cursors.len());
        let begun = cursors.into_iter().map(|cursor| {
            let first = cursor.peek_target().unwrap_or(large.target);
            (first, ReadWork::Cursor(Arc::clone(large), cursor))
        });
        self.lane.read_queue.push_begun(begun.collect());
    }

    /// Sends ranges again that the sink's storage does not hold as written.
    pub(super) fn refill(&self, file: &Arc<OpenSourceLargeFile>, ranges: RangeSet) {
        let size = file.found.entry.size();
        let layout = self.layout_of(&file.source, size).layout;
        let object_bytes = self.lane.source.object_bytes(&*layout);
        self.queue_cursors(
            file,
            FileCursor::new(file.id, size, layout, object_bytes).with_wanted_ranges(ranges),
        );
    }

    /// Returns the layout of a file. If it can't be asked for, the file lies on the target where it was
    /// queued.
    fn layout_of(&self, file: &SourceFile, size: u64) -> FileLayout {
        let lane = self.lane;
        let found = lane
            .source
            .tree
            .file_systems
            .file_system_of(file.descriptor())
            .map(|own| own.layout_of(file.descriptor(), size));
        match found {
            Ok(found) => {
                lane.read_queue.add_targets(found.layout.targets(), &lane.source.tree.file_systems);
                found
            }
            // The file could be opened, and an error of its file system does not prevent reading.
            Err(_) => FileLayout {
                layout: Arc::new(SingleTarget { target: self.target }),
                geometry: None,
                is_released: false,
                is_foreign: false,
                problem: None,
            },
        }
    }
}

/// An open large file with the facts for the sink.
struct OpenedFile {
    file: Arc<SourceFile>,
    /// With the entry as the file was when it was opened.
    opening: UnopenedFile,
    size: u64,
    /// Its directory and the file, as an entry table.
    table: Vec<u8>,
    layout: Arc<dyn Layout>,
    object_bytes: u64,
    /// The stripes to preserve at the sink.
    stripes: Option<StripingMessage>,
    holes: RangeSet,
}

/// Returns the missing ranges of a file, or `None` for the whole file. A file whose held ranges exceed a
/// message is sent again.
fn missing_of(held: Option<&RangeSet>, own: Option<ByteRange>, size: u64) -> Option<RangeSet> {
    let held = held.filter(|held| held.run_count() < RANGES_MAX);
    match own {
        None => held.map(|held| held.missing_of(size)),
        Some(own) => {
            let gaps = held.cloned().unwrap_or_default().missing_of(size);
            let mut missing = RangeSet::new();
            gaps.iter().filter_map(|gap| gap.overlap(own)).for_each(|range| {
                missing.insert(range);
            });
            Some(missing)
        }
    }
}

/// Returns the range that this session copies: that of a partial transfer, or that of a chunk. `None` is the
/// whole file.
fn own_range(source: &SourceContext<'_>, of_chunk: Option<FilePart>, size: u64) -> Option<ByteRange> {
    source.spec.part.map_or(of_chunk.map(FilePart::range), |part| part.range_in(size))
}

/// Returns true if the sink holds bytes of that range.
fn sink_has_bytes_in(opening: &UnopenedFile, own: ByteRange) -> bool {
    opening.held.as_deref().is_some_and(|held| held.iter().any(|range| range.overlap(own).is_some()))
}

/// Returns the ranges to send, without holes. `None` is the whole file.
fn subtract_holes(missing: Option<RangeSet>, holes: &RangeSet, size: u64) -> Option<RangeSet> {
    if holes.is_empty() {
        return missing;
    }
    let mut there = missing.map(|missing| missing.missing_of(size)).unwrap_or_default();
    for hole in holes.iter() {
        there.cover(hole);
    }
    Some(there.missing_of(size))
}
