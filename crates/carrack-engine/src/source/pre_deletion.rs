//! `carrack sync --delete-before`: the source sends nothing until the sink has removed the entries that the
//! source lacks.
//!
//! A first scan finds out if everything can be read. Then the comm thread lets the sink remove, and a second
//! scan finds the work. The sink's existence queries are answered from the first scan.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};

use carrack_machine::FifoConditionLock;
use carrack_storage::ScannedItem;

/// The progress of the removal, for which the scan waits.
pub(super) struct PreDeletionProgress {
    step: FifoConditionLock<DeleteBeforePhase>,
    /// Sections and read errors that the first scan has met.
    found: AtomicU64,
    has_failed: AtomicBool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DeleteBeforePhase {
    Looking,
    Looked,
    Cleared,
}

impl PreDeletionProgress {
    pub(super) fn new() -> PreDeletionProgress {
        PreDeletionProgress {
            step: FifoConditionLock::new(DeleteBeforePhase::Looking),
            found: AtomicU64::new(0),
            has_failed: AtomicBool::new(false),
        }
    }

    /// Counts a result of the first scan. The second scan reports the failures.
    pub(super) fn count_item(&self, found: &ScannedItem) {
        self.found.fetch_add(1, Relaxed);
        if let ScannedItem::Failed(_) = found {
            self.has_failed.store(true, Relaxed);
        }
    }

    /// A count that grows during the first scan.
    pub(super) fn found_count(&self) -> u64 {
        self.found.load(Relaxed)
    }

    /// Notes the end of the first scan.
    pub(super) fn end_first_scan(&self) {
        self.step.with(|step| {
            assert!(*step == DeleteBeforePhase::Looking, "the first scan ends once");
            *step = DeleteBeforePhase::Looked;
        });
    }

    /// Returns `Some` after the first scan: true if something could not be read.
    pub(super) fn has_scan_failed(&self) -> Option<bool> {
        let is_over = self.step.with(|step| *step != DeleteBeforePhase::Looking);
        is_over.then(|| self.has_failed.load(Relaxed))
    }

    /// Notes that the sink has removed the entries.
    pub(super) fn mark_removed(&self) {
        self.step.change_and_wake_one(|step| {
            assert!(*step == DeleteBeforePhase::Looked, "the removal follows the first scan");
            *step = DeleteBeforePhase::Cleared;
        });
    }

    /// Waits for the removal. Returns false if the session ends.
    pub(super) fn wait(&self) -> bool {
        self.step.take(|step| (*step == DeleteBeforePhase::Cleared).then_some(())).is_ok()
    }

    /// Ends all waiting.
    pub(super) fn close(&self) {
        self.step.close();
    }
}

#[cfg(test)]
mod tests {
    use carrack_model::{EntryFailure, FailureKind};

    use super::*;

    #[test]
    fn one_step_follows_the_other() {
        let clearing = PreDeletionProgress::new();
        assert_eq!(clearing.has_scan_failed(), None);
        let failure =
            EntryFailure { path: b"x"[..].into(), kind: FailureKind::ReadError, detail: String::new() };
        let skipped = ScannedItem::Skipped { path: b"x"[..].into(), reason: "a socket".to_owned() };
        clearing.count_item(&skipped);
        clearing.end_first_scan();
        assert_eq!((clearing.has_scan_failed(), clearing.found_count()), (Some(false), 1));
        clearing.count_item(&ScannedItem::Failed(failure));
        assert_eq!(clearing.has_scan_failed(), Some(true));
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| clearing.wait());
            clearing.mark_removed();
            assert!(waiting.join().unwrap());
        });
        let ended = PreDeletionProgress::new();
        ended.close();
        assert!(!ended.wait());
    }
}
