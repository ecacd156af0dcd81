//! A group: data that is made durable and recorded together (L12). It holds values; [`super::committer`]
//! syncs them.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use carrack_journal::{Blake3Subtree, RecordBatch};
use carrack_model::{ByteRange, RangeSet, RelPath};
use carrack_storage::UncommittedFile;

use super::sink_file::{FileRecord, SinkFile};

/// Small files up to this number are synced one by one; for more of them one call for the whole file system
/// is cheaper.
const FEW: usize = 32;

/// All data that was written since the previous group.
#[derive(Default)]
pub(super) struct CommitGroup {
    /// Bytes of content.
    pub(super) bytes: u64,
    /// Records of small files and links.
    pub(super) bundles: RecordBatch,
    pub(super) places: UnsyncedSmallEntries,
    /// Large files by their numbers in the journal.
    pub(super) files: BTreeMap<u64, WrittenFileRanges>,
    /// Number of large files that the group keeps open.
    open_count: usize,
}

/// The places of small files and links.
pub(super) struct UnsyncedSmallEntries {
    /// Their directories.
    pub(super) directories: HashSet<RelPath>,
    /// The files themselves, up to [`FEW`].
    pub(super) few: Option<Vec<(RelPath, Box<[u8]>)>>,
}

/// The ranges of a large file that were written.
pub(super) struct WrittenFileRanges {
    record: Arc<FileRecord>,
    /// `None` once it has its name: it is closed then, and not when its group is durable, as a group may have
    /// any number of files.
    pub(super) file: Option<Arc<SinkFile>>,
    ranges: RangeSet,
    subtrees: Vec<Blake3Subtree>,
    /// XXH3-128 of each object, for the readback.
    pub(super) checks: Vec<(ByteRange, [u8; 32])>,
    pub(super) end: Option<WrittenFileOutcome>,
}

/// The end of a large file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WrittenFileOutcome {
    /// It has its final name.
    Done,
    /// It can't be completed, and its temporary file is of no use.
    Dropped,
}

impl Default for UnsyncedSmallEntries {
    fn default() -> UnsyncedSmallEntries {
        UnsyncedSmallEntries { directories: HashSet::new(), few: Some(Vec::new()) }
    }
}

impl UnsyncedSmallEntries {
    /// Notes a directory in which something was placed.
    pub(super) fn add_directory(&mut self, directory: &RelPath) {
        if !self.directories.contains(directory) {
            self.directories.insert(directory.clone());
        }
    }

    /// Notes a placed file with content.
    pub(super) fn add_file(&mut self, directory: &RelPath, name: &[u8]) {
        match &mut self.few {
            Some(few) if few.len() < FEW => few.push((directory.clone(), name.into())),
            few => *few = None,
        }
    }

    fn append(&mut self, other: UnsyncedSmallEntries) {
        self.directories.extend(other.directories);
        self.few = match (self.few.take(), other.few) {
            (Some(mut few), Some(others)) if few.len() + others.len() <= FEW => {
                few.extend(others);
                Some(few)
            }
            _ => None,
        };
        assert!(
            self.few.as_ref().is_none_or(|few| few.len() <= FEW),
            "more files than few are synced together"
        );
    }
}

impl CommitGroup {
    /// Returns true if nothing was noted.
    pub(super) fn is_empty(&self) -> bool {
        self.bundles.is_empty() && self.places.directories.is_empty() && self.files.is_empty()
    }

    /// Directories in which large files have a name, temporary or final, that was not recorded before.
    pub(super) fn directories_of_large(&self) -> impl Iterator<Item = &RelPath> {
        let named =
            self.files.values().filter(|written| written.end.is_some() || !written.record.is_in_journal());
        named.map(|written| &written.record.directory)
    }

    /// Files that the group keeps open.
    pub(super) fn open_count(&self) -> usize {
        assert!(self.open_count <= self.files.len(), "the open files are those of the group");
        self.open_count
    }

    pub(super) fn add_bundle(&mut self, table: &[u8], places: UnsyncedSmallEntries) {
        if !table.is_empty() {
            self.bundles.add_small(table);
        }
        self.places.append(places);
    }

    /// Notes a written object.
    pub(super) fn add_object(
        &mut self,
        file: &Arc<SinkFile>,
        range: ByteRange,
        subtrees: &[Blake3Subtree],
        check: Option<[u8; 32]>,
    ) {
        assert!(range.len > 0, "an object has contents");
        let written = self.written_ranges_mut(file);
        written.ranges.insert(range);
        written.subtrees.extend(subtrees);
        written.checks.extend(check.map(|check| (range, check)));
    }

    /// Notes an object that is made durable now, and recorded when the source confirms it.
    pub(super) fn add_unrecorded(&mut self, file: &Arc<SinkFile>) {
        self.written_ranges_mut(file);
    }

    pub(super) fn add_end(&mut self, file: &Arc<SinkFile>, end: WrittenFileOutcome) {
        let written = self.written_ranges_mut(file);
        written.end = Some(end);
        // A file with ranges to compare was written again after the readback, and stays open for the
        // comparison.
        if end == WrittenFileOutcome::Done && written.checks.is_empty() && written.file.take().is_some() {
            assert!(self.open_count > 0, "a file that is closed was open");
            self.open_count -= 1;
        }
    }

    fn written_ranges_mut(&mut self, file: &Arc<SinkFile>) -> &mut WrittenFileRanges {
        let open_count = &mut self.open_count;
        let written = self.files.entry(file.number).or_insert_with(|| {
            *open_count += 1;
            WrittenFileRanges {
                record: Arc::clone(&file.record),
                file: Some(Arc::clone(file)),
                ranges: RangeSet::new(),
                subtrees: Vec::new(),
                checks: Vec::new(),
                end: None,
            }
        });
        assert!(Arc::ptr_eq(&written.record, &file.record), "a number in the journal is one file's");
        written
    }
}

impl WrittenFileRanges {
    /// Removes a range whose contents were damaged.
    pub(super) fn forget(&mut self, range: ByteRange) {
        self.ranges.remove(range);
        self.subtrees.retain(|subtree| {
            subtree.range.offset < range.offset || subtree.range.offset - range.offset >= range.len
        });
    }

    /// The ranges that were written.
    pub(super) fn ranges(&self) -> &RangeSet {
        &self.ranges
    }

    /// Removes all ranges of a file whose writes may be lost: they are written once more.
    pub(super) fn forget_lost(&mut self) {
        if self.end.is_none() && self.file.as_ref().is_some_and(|file| file.integrity.has_lost_writes()) {
            self.ranges = RangeSet::new();
            self.subtrees.clear();
            self.checks.clear();
        }
    }

    /// Adds the file's records to `batch`.
    pub(super) fn record(&self, number: u64, batch: &mut RecordBatch) {
        let record = &self.record;
        match (self.end, record.is_in_journal()) {
            // Begun and ended within one group: only its end matters.
            (Some(WrittenFileOutcome::Done), false) => batch.add_small(&record.table),
            (Some(WrittenFileOutcome::Done), true) => batch.add_done(number),
            (Some(WrittenFileOutcome::Dropped), true) => batch.add_dropped(number),
            (Some(WrittenFileOutcome::Dropped), false) => {}
            (None, is_begun) => {
                let Some(growing) = self.uncommitted_file() else { return };
                if !is_begun {
                    batch.add_begin(number, &record.table, growing.temporary_name());
                }
                if !self.ranges.is_empty() {
                    batch.add_held_ranges(number, self.ranges.iter(), &self.subtrees);
                }
            }
        }
    }

    /// Notes that the file's records are in the journal: a later session may resume it.
    pub(super) fn mark_recorded(&self) {
        if let (None, Some(file)) = (self.end, &self.file) {
            file.mark_recorded();
        }
    }

    /// The file under its temporary name, if it was created and has no final name yet.
    fn uncommitted_file(&self) -> Option<&UncommittedFile> {
        self.file.as_ref().and_then(|file| file.uncommitted_file())
    }
}

#[cfg(test)]
mod tests {
    use super::super::sink_file::tests::message;
    use super::*;

    #[test]
    fn a_file_with_its_name_is_not_kept_open() {
        let [one, other] = [1, 2]
            .map(|number| Arc::new(SinkFile::from_announcement(&message(1, 100), number, None).unwrap()));
        let mut group = CommitGroup::default();
        assert!(group.is_empty());
        group.add_object(&one, ByteRange::new(0, 60), &[], None);
        group.add_object(&one, ByteRange::new(60, 40), &[], None);
        group.add_object(&other, ByteRange::new(0, 60), &[], Some([0; 32]));
        assert_eq!((group.files.len(), group.open_count()), (2, 2));
        group.add_end(&one, WrittenFileOutcome::Done);
        group.add_end(&other, WrittenFileOutcome::Done);
        assert_eq!(group.open_count(), 1, "what is read again stays open");
        assert_eq!(group.directories_of_large().count(), 2);
    }

    #[test]
    fn more_files_than_few_are_not_listed() {
        let mut places = UnsyncedSmallEntries::default();
        (0..FEW).for_each(|_| places.add_file(&RelPath::root(), b"f"));
        assert_eq!(places.few.as_ref().map(Vec::len), Some(FEW));
        let mut others = UnsyncedSmallEntries::default();
        others.add_file(&RelPath::root(), b"g");
        places.append(others);
        assert!(places.few.is_none());
    }
}
