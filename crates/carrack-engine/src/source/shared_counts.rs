//! Counts of all lanes of a source together.
//!
//! The scan's threads count files, each comm thread counts the end of its lane.

use std::array;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed};

use carrack_model::{DirectorySection, EntryKind, SIZE_CLASSES, size_class};

/// Regular files by size class, and lanes that have ended.
pub(super) struct SharedCounts {
    sizes: [AtomicU64; SIZE_CLASSES],
    lanes_over: AtomicUsize,
}

impl Default for SharedCounts {
    fn default() -> SharedCounts {
        SharedCounts { sizes: array::from_fn(|_| AtomicU64::new(0)), lanes_over: AtomicUsize::new(0) }
    }
}

impl SharedCounts {
    /// Counts the files of a section.
    pub(super) fn count_section(&self, section: &DirectorySection) {
        for entry in &section.entries {
            if let EntryKind::Regular { size } = entry.kind {
                self.sizes[size_class(size)].fetch_add(1, Relaxed);
            }
        }
    }

    /// Returns the files by size class, up to the last class in use.
    pub(super) fn files_by_size(&self) -> Vec<u64> {
        let mut counts: Vec<u64> = self.sizes.iter().map(|count| count.load(Relaxed)).collect();
        let used = counts.iter().rposition(|&count| count > 0).map_or(0, |last| last + 1);
        counts.truncate(used);
        counts
    }

    /// Counts the end of a lane.
    pub(super) fn lane_over(&self) {
        self.lanes_over.fetch_add(1, AcqRel);
    }

    pub(super) fn lanes_over(&self) -> usize {
        self.lanes_over.load(Acquire)
    }
}
