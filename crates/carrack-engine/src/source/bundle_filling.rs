//! Fills a slot with a bundle (M7): the contents of many small files, then their entry table.
//!
//! Runs on the I/O thread that leased the slot. Unreadable files are reported and left out of the table.

use std::ops::ControlFlow;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use carrack_layout::MountedFileSystem;
use carrack_model::limits::FILE_ATTEMPTS_MAX;
use carrack_model::{
    CopiedDirectoryPaths, DirectorySection, Entry, EntryFailure, EntryKind, ObjectChecksumAlgorithm, TargetId,
};
use carrack_storage::{ScannedFileState, SmallFile, SourceError, read_small};
use carrack_wire::{EntryTableEncoder, holes_table_bytes};

use super::chunks::SourceChunkMembership;
use super::lane::SourceLane;
use super::large_file::UnopenedFile;
use super::work::{BundleReadWork, ReadWork};
use crate::storage_retries::source_error_may_pass;

/// Time limit for reading one bundle, the first file excepted. Where opening a file takes milliseconds, a
/// bundle of hundreds of files takes seconds. Nothing would arrive during that time, and one thread would end
/// long after the others.
const FILL_MAX: Duration = Duration::from_millis(250);

/// A process that truncates a file sets its time within this period, or never.
const CHANGE_MAX: Duration = Duration::from_millis(200);
const CHANGE_PAUSE: Duration = Duration::from_millis(10);

/// The result of filling a slot.
pub(super) struct FilledSlot {
    /// Bytes of content.
    pub(super) content_len: usize,
    /// Bytes of the table behind it.
    pub(super) table_len: usize,
    /// Number of entries in it, if the time or the room was up before the last one.
    pub(super) cut_at: Option<usize>,
}

/// Reads the bundle's files into `slot`, their table behind them; `table` is scratch.
pub(super) fn fill(
    lane: &SourceLane<'_>,
    target: TargetId,
    parcel: &BundleReadWork,
    slot: &mut [u8],
    table: &mut Vec<u8>,
) -> FilledSlot {
    table.clear();
    let (bundle, chunk) = (&parcel.bundle, parcel.chunk.as_ref());
    let mut filling = BundleFilling {
        lane,
        target,
        chunk,
        slot,
        used: 0,
        table_room: bundle.table_bytes,
        taken: 0,
        until: Instant::now() + FILL_MAX,
    };
    assert!(bundle.table_bytes <= filling.slot.len(), "a slot holds the table of a bundle");
    let is_whole = bundle.sections.iter().all(|section| filling.add_section(section, table).is_continue());
    let (used, taken) = (filling.used, filling.taken);
    assert!(taken <= bundle.entry_count, "each entry of a bundle is handled once");
    assert!(used + table.len() <= slot.len(), "the table has the room that was planned for it");
    slot[used..used + table.len()].copy_from_slice(table);
    FilledSlot { content_len: used, table_len: table.len(), cut_at: (!is_whole).then_some(taken) }
}

struct BundleFilling<'a> {
    lane: &'a SourceLane<'a>,
    target: TargetId,
    chunk: Option<&'a SourceChunkMembership>,
    slot: &'a mut [u8],
    /// Bytes of content so far.
    used: usize,
    /// Bytes at the slot's end that the table may need.
    table_room: usize,
    /// Entries that were handled.
    taken: usize,
    until: Instant,
}

impl BundleFilling<'_> {
    /// Stops before an entry when time is up, or before a file that no longer fits: one that has grown, or
    /// has holes.
    fn add_section(&mut self, section: &DirectorySection, table: &mut Vec<u8>) -> ControlFlow<()> {
        if !section.entries.is_empty() {
            self.check_time()?;
        }
        let directory = &section.directory;
        EntryTableEncoder::new(table)
            .with_extras(section.extras.as_deref())
            .begin_section(&directory.sink, section.metadata.as_ref());
        let has_files = section.entries.iter().any(|entry| matches!(entry.kind, EntryKind::Regular { .. }));
        let held = if has_files { Some(self.lane.source.tree.open_directory(directory)) } else { None };
        let asked = held
            .as_ref()
            .and_then(|held| held.as_ref().ok())
            .and_then(|held| self.file_system_with_absent_data(held));
        for (index, entry) in section.entries.iter().enumerate() {
            if index > 0 {
                self.check_time()?;
            }
            self.taken += 1;
            match (&entry.kind, &held) {
                (EntryKind::Regular { .. }, _)
                    if entry.extras.as_deref().is_some_and(|extras| extras.same_as.is_some()) =>
                {
                    let mut writer = EntryTableEncoder::new(table).with_extras(entry.extras.as_deref());
                    writer.add_regular(&entry.name, 0, &entry.metadata, entry.identity, None);
                }
                (EntryKind::Symlink { .. } | EntryKind::Special(_), _) => {
                    EntryTableEncoder::new(table).with_extras(entry.extras.as_deref()).add_entry(entry);
                }
                (EntryKind::Regular { .. }, Some(Ok(held))) => {
                    match asked.as_ref().and_then(|asked| self.absent_data(asked, directory, held, entry)) {
                        Some(failure) => self.lane.fail(failure),
                        None => self.add_file(directory, held, entry, table)?,
                    }
                }
                (EntryKind::Regular { .. }, Some(Err(error))) => {
                    self.lane.fail_path(self.lane.source.tree.path(directory, entry), error.kind(), error);
                }
                // `held` is `Some` if the section has files.
                (EntryKind::Regular { .. }, None) => {}
            }
        }
        ControlFlow::Continue(())
    }

    fn check_time(&self) -> ControlFlow<()> {
        if self.taken > 0 && Instant::now() >= self.until {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }

    /// Returns the directory's file system if the data of its files may be elsewhere, and the scan has not
    /// asked for it: it did where it knows their target.
    fn file_system_with_absent_data(&self, held: &OwnedFd) -> Option<Arc<MountedFileSystem>> {
        let file_system = self.lane.source.tree.file_systems.file_system_of(held.as_fd()).ok()?;
        let is_unknown = self.target == file_system.own_target().id;
        (is_unknown && file_system.may_have_absent_data()).then_some(file_system)
    }

    /// Asks for the layout of each file, but with `--recall` only of empty ones: a foreign file has no bytes
    /// here.
    fn absent_data(
        &self,
        file_system: &MountedFileSystem,
        directory: &CopiedDirectoryPaths,
        held: &OwnedFd,
        entry: &Entry,
    ) -> Option<EntryFailure> {
        let source = self.lane.source;
        let recalls = source.settings.recall;
        if recalls && entry.size() > 0 {
            return None;
        }
        source.tree.absent_data(file_system, directory, held, entry, recalls)
    }

    fn add_file(
        &mut self,
        directory: &Arc<CopiedDirectoryPaths>,
        held: &OwnedFd,
        entry: &Entry,
        table: &mut Vec<u8>,
    ) -> ControlFlow<()> {
        match self.read(directory, held, entry) {
            Ok(Some(file)) if self.reserve_table_room(&file) => {
                let content = &self.slot[self.used..self.used + file.size];
                let digest = (self.lane.source.spec.checksum == ObjectChecksumAlgorithm::Blake3)
                    .then(|| blake3::hash(content));
                let digest = digest.as_ref().map(blake3::Hash::as_bytes);
                let size = file.size as u64;
                EntryTableEncoder::new(table)
                    .with_extras(entry.extras.as_deref())
                    .with_holes(&file.holes)
                    .add_regular(&entry.name, size, &file.metadata, file.identity, digest);
                self.used += file.size;
            }
            // The next bundle begins with it. If it has no room even there, it travels as a large file.
            Ok(_) if self.taken > 1 => {
                self.taken -= 1;
                return ControlFlow::Break(());
            }
            Ok(_) => self.postpone(directory, entry),
            Err(error) => {
                if source_error_may_pass(&error) {
                    self.lane.source.tree.requests.count_failed(Some(self.target));
                }
                self.lane.fail_path(self.lane.source.tree.path(directory, entry), error.kind(), error)
            }
        }
        ControlFlow::Continue(())
    }

    /// Returns true if the table has room for the file's holes, which the plan left out.
    fn reserve_table_room(&mut self, file: &SmallFile) -> bool {
        let more = holes_table_bytes(&file.holes);
        let fits = self.used + file.size + self.table_room + more <= self.slot.len();
        if fits {
            self.table_room += more;
        }
        fits
    }

    /// Reads one file behind the others, twice if it changed. Returns `None` if it no longer fits.
    fn read(
        &mut self,
        directory: &CopiedDirectoryPaths,
        held: &OwnedFd,
        entry: &Entry,
    ) -> Result<Option<SmallFile>, SourceError> {
        let source = self.lane.source;
        let located = source.tree.locate(directory, held.as_fd(), entry)?;
        assert!(self.used + self.table_room <= self.slot.len(), "contents leave room for the table");
        let end = self.slot.len() - self.table_room;
        let room = &mut self.slot[self.used..end];
        let mut expected = ScannedFileState::from(entry);
        let (mut attempts, mut waited) = (0, Duration::ZERO);
        // Another file of this bundle that has grown may use this file's room.
        while expected.size < room.len() as u64 {
            attempts += 1;
            let read = |_| read_small(located.as_fd(), located.name(), located.follow, expected, room);
            match self.lane.request(self.target, read, source_error_may_pass) {
                Ok(file)
                    if source.tree.requires_scanned_inode(directory) && file.identity != entry.identity =>
                {
                    return Err(SourceError::Replaced);
                }
                // The size is new and the time is old: ext4 sets the time at the end of a truncation, and
                // this truncation has not ended.
                Err(SourceError::Changed { size, mtime })
                    if size != expected.size && mtime == expected.mtime && waited < CHANGE_MAX =>
                {
                    thread::sleep(CHANGE_PAUSE);
                    waited += CHANGE_PAUSE;
                    attempts -= 1;
                }
                Err(SourceError::Changed { size, mtime }) if attempts < FILE_ATTEMPTS_MAX => {
                    expected = ScannedFileState { size, mtime };
                }
                answer => return answer.map(Some),
            }
        }
        Ok(None)
    }

    /// Queues a file that no longer fits into the slot as a large file.
    fn postpone(&self, directory: &Arc<CopiedDirectoryPaths>, entry: &Entry) {
        self.lane.backlog.split();
        let work = ReadWork::Open(UnopenedFile {
            directory: Arc::clone(directory),
            entry: entry.clone(),
            attempts: 1,
            held: None,
            part: None,
            chunk: self.chunk.cloned(),
        });
        self.lane.read_queue.push(self.target, work);
    }
}

#[cfg(test)]
mod tests {
    use carrack_model::{Metadata, RelPath, SpecialFile};

    use super::*;

    fn entry(kind: EntryKind) -> Entry {
        Entry {
            name: b"name"[..].into(),
            source_name: None,
            kind,
            metadata: Metadata::default(),
            identity: 1,
            extras: None,
        }
    }

    /// Returns the bytes of a table.
    fn written(write: impl FnOnce(&mut EntryTableEncoder<'_>)) -> usize {
        let mut table = Vec::new();
        write(&mut EntryTableEncoder::new(&mut table));
        table.len()
    }

    /// The plan decides what fits into a slot by these bounds, before there is a table.
    #[test]
    fn a_table_is_never_longer_than_planned() {
        let (name, target, metadata) = (b"name", b"../target", Metadata::default());
        let path = RelPath::new(b"a/b").unwrap();
        let directory = CopiedDirectoryPaths { root_index: 0, source: RelPath::root(), sink: path };
        let section = written(|table| table.begin_section(&directory.sink, Some(&metadata)));
        let file = written(|table| table.add_regular(name, 1, &metadata, u64::MAX, Some(&[7; 32])));
        let link = written(|table| table.add_symlink(name, target, &metadata, u64::MAX));
        assert_eq!(section, carrack_plan::section_table_bytes(&directory));
        assert_eq!(file, carrack_plan::entry_table_bytes(&entry(EntryKind::Regular { size: 1 })));
        let link_kind = EntryKind::Symlink { target: target[..].into() };
        assert_eq!(link, carrack_plan::entry_table_bytes(&entry(link_kind)));
        let special = written(|table| table.add_special(name, &SpecialFile::Fifo, &metadata, u64::MAX));
        assert_eq!(special, carrack_plan::entry_table_bytes(&entry(EntryKind::Special(SpecialFile::Fifo))));
    }
}
