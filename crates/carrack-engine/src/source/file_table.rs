//! The large files of a lane, from their announcement to their end, and their ids.
//!
//! I/O threads announce and end files, the comm thread looks them up and ends them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use carrack_model::{FileId, LargeFileProgress};

use super::large_file::OpenSourceLargeFile;
use crate::event_delivery::FILES_TOLD_MAX;

/// The open files, and those that took longest.
pub(super) struct SourceFileTable {
    open: Mutex<HashMap<FileId, Arc<OpenSourceLargeFile>>>,
    next_id: Mutex<FileId>,
    next_inline_id: AtomicU64,
    /// Complete files that took longest, the longest first.
    slowest: Mutex<Vec<LargeFileProgress>>,
    /// Files that a thread checks for changes now.
    checked: Mutex<Vec<ChangeCheck>>,
}

/// The check of a source file for changes.
struct ChangeCheck {
    file: Arc<OpenSourceLargeFile>,
    /// False from the end of a check to the beginning of the next one, which is queued.
    is_running: bool,
    /// Other parts of the same source file, which were read since it began: the next check is for them.
    waiting: Vec<Arc<OpenSourceLargeFile>>,
}

impl ChangeCheck {
    fn is_of(&self, file: &OpenSourceLargeFile) -> bool {
        Arc::ptr_eq(&self.file.source, &file.source)
    }
}

impl Default for SourceFileTable {
    fn default() -> SourceFileTable {
        SourceFileTable {
            open: Mutex::default(),
            next_id: Mutex::new(FileId(1)),
            next_inline_id: AtomicU64::new(FileId::FIRST_BY_ITSELF.0),
            slowest: Mutex::default(),
            checked: Mutex::default(),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SourceFileTable {
    /// Announces a file by a message, under the ID that `announce` gets. IDs arrive at the sink in rising
    /// order: one lock covers the choice of an ID and its message. The comm thread never takes that lock.
    pub(super) fn announce<T>(&self, announce: impl FnOnce(FileId) -> T) -> T {
        let mut next_id = lock(&self.next_id);
        let id = *next_id;
        assert!(!id.is_inline_announced(), "files with a message have ids below the inline-announced ones");
        *next_id = FileId(id.0 + 1);
        announce(id)
    }

    /// Returns the ID of an inline-announced file.
    pub(super) fn next_inline_id(&self) -> FileId {
        FileId(self.next_inline_id.fetch_add(1, Relaxed))
    }

    pub(super) fn insert(&self, file: &Arc<OpenSourceLargeFile>) {
        let before = lock(&self.open).insert(file.id, Arc::clone(file));
        assert!(before.is_none(), "each file has an id of its own");
    }

    /// Begins the check of a file that was read. Returns the parts of the source file that it is for, none if
    /// a thread checks that file now: the next check is for this part too. So parts that end at the same time
    /// share a check, and one thread waits for the storage.
    pub(super) fn begin_check(&self, file: &Arc<OpenSourceLargeFile>) -> Vec<Arc<OpenSourceLargeFile>> {
        let mut checked = lock(&self.checked);
        let Some(check) = checked.iter_mut().find(|check| check.is_of(file)) else {
            checked.push(ChangeCheck { file: Arc::clone(file), is_running: true, waiting: Vec::new() });
            return vec![Arc::clone(file)];
        };
        check.waiting.push(Arc::clone(file));
        if check.is_running {
            return Vec::new();
        }
        check.is_running = true;
        std::mem::take(&mut check.waiting)
    }

    /// Ends a check. Returns one of the parts that were read meanwhile, if there are any: the next check
    /// begins with this one, and is for all of them.
    pub(super) fn end_check(&self, file: &OpenSourceLargeFile) -> Option<Arc<OpenSourceLargeFile>> {
        let mut checked = lock(&self.checked);
        let index = checked.iter().position(|check| check.is_of(file)).expect("a check ends once");
        assert!(checked[index].is_running, "a check ends after it began");
        let next = checked[index].waiting.pop();
        if next.is_some() {
            checked[index].is_running = false;
        } else {
            checked.swap_remove(index);
        }
        next
    }

    pub(super) fn get(&self, id: FileId) -> Option<Arc<OpenSourceLargeFile>> {
        lock(&self.open).get(&id).cloned()
    }

    /// Ends a file. Returns `None` if it had ended before.
    pub(super) fn remove(&self, id: FileId) -> Option<Arc<OpenSourceLargeFile>> {
        lock(&self.open).remove(&id)
    }

    /// Returns all open files, in no order.
    pub(super) fn open(&self) -> Vec<Arc<OpenSourceLargeFile>> {
        lock(&self.open).values().cloned().collect()
    }

    /// Notes a complete file.
    pub(super) fn note_complete(&self, report: LargeFileProgress) {
        let mut slowest = lock(&self.slowest);
        let place = slowest.partition_point(|slower| slower.open_ms >= report.open_ms);
        if place < FILES_TOLD_MAX {
            slowest.insert(place, report);
            slowest.truncate(FILES_TOLD_MAX);
        }
    }

    /// Returns the complete files that took longest.
    pub(super) fn slowest(&self) -> Vec<LargeFileProgress> {
        lock(&self.slowest).clone()
    }
}

#[cfg(test)]
mod tests {
    use carrack_model::{ByteRange, TargetId};
    use carrack_storage::SourceFile;

    use super::super::chunks::FilePart;
    use super::super::large_file::UnopenedFile;
    use super::super::test_files::{directory, entry, source_file};
    use super::*;

    fn part_of(source: &Arc<SourceFile>, id: u64) -> Arc<OpenSourceLargeFile> {
        let range = ByteRange::new(id, 1);
        let found = UnopenedFile {
            directory: directory("d"),
            entry: entry("f", 7),
            attempts: 0,
            held: None,
            part: Some(FilePart::Range(range)),
            chunk: None,
        };
        Arc::new(OpenSourceLargeFile::new(FileId(id), Arc::clone(source), TargetId(0), found, range.len))
    }

    fn ids(parts: &[Arc<OpenSourceLargeFile>]) -> Vec<u64> {
        parts.iter().map(|part| part.id.0).collect()
    }

    #[test]
    fn parts_that_are_read_during_a_check_get_the_next_one() {
        let table = SourceFileTable::default();
        let (source, other) = (source_file(), source_file());
        let parts: Vec<_> = (1..=4).map(|id| part_of(&source, id)).collect();
        assert_eq!(ids(&table.begin_check(&parts[0])), [1]);
        assert!(table.begin_check(&parts[1]).is_empty() && table.begin_check(&parts[2]).is_empty());
        let another = part_of(&other, 9);
        assert_eq!(ids(&table.begin_check(&another)), [9], "a file does not wait for others");
        let next = table.end_check(&parts[0]).unwrap();
        assert_eq!(ids(&table.begin_check(&next)), [2, 3]);
        assert!(table.begin_check(&parts[3]).is_empty(), "the next check began before it was read");
        assert_eq!(table.end_check(&next).unwrap().id, parts[3].id);
        // A thread with another part may come before the one of the queued check.
        assert_eq!(ids(&table.begin_check(&parts[0])), [1]);
        assert!(table.begin_check(&parts[3]).is_empty());
        assert_eq!(table.end_check(&parts[0]).unwrap().id, parts[3].id);
        assert_eq!(ids(&table.begin_check(&parts[3])), [4]);
        assert!(table.end_check(&parts[3]).is_none() && table.end_check(&another).is_none());
        assert_eq!(ids(&table.begin_check(&parts[0])), [1]);
    }

    #[test]
    fn ids_rise_in_the_order_in_which_they_are_said() {
        let (table, said) = (SourceFileTable::default(), Mutex::new(Vec::new()));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..100).for_each(|_| table.announce(|id| said.lock().unwrap().push(id.0))));
            }
        });
        assert_eq!(*said.lock().unwrap(), (1..=400).collect::<Vec<_>>());
        assert_eq!(table.next_inline_id(), FileId::FIRST_BY_ITSELF);
    }

    #[test]
    fn the_slowest_files_are_kept() {
        let table = SourceFileTable::default();
        for open_ms in (0..3 * FILES_TOLD_MAX as u64).rev().step_by(2).chain([1]) {
            table.note_complete(LargeFileProgress { open_ms, ..LargeFileProgress::default() });
        }
        let slowest: Vec<u64> = table.slowest().iter().map(|file| file.open_ms).collect();
        assert_eq!(slowest.len(), FILES_TOLD_MAX);
        assert!(slowest.is_sorted_by(|a, b| a > b), "{slowest:?}");
        assert_eq!(slowest[0], 3 * FILES_TOLD_MAX as u64 - 1);
    }
}
