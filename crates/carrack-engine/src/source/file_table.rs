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
}

impl Default for SourceFileTable {
    fn default() -> SourceFileTable {
        SourceFileTable {
            open: Mutex::default(),
            next_id: Mutex::new(FileId(1)),
            next_inline_id: AtomicU64::new(FileId::FIRST_BY_ITSELF.0),
            slowest: Mutex::default(),
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
    use super::*;

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
