//! `carrack sync --delete-before`: nothing is sent until the sink has removed what is not here.
//!
//! A scan that only looks tells whether everything can be read; then the comm thread lets the sink remove, and the scan that
//! finds work begins. The sink asks about names, as it does at the end, and what the first scan saw answers.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};

use carrack_machine::Monitor;
use carrack_storage::Found;

/// How far it is. The scan waits for the sink's removal.
pub(super) struct Clearing {
    step: Monitor<Step>,
    /// Sections that the scan has met, and what it could not read.
    found: AtomicU64,
    has_failed: AtomicBool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Looking,
    Looked,
    Cleared,
}

impl Clearing {
    pub(super) fn new() -> Clearing {
        Clearing {
            step: Monitor::new(Step::Looking),
            found: AtomicU64::new(0),
            has_failed: AtomicBool::new(false),
        }
    }

    /// What the scan that only looks has found. What failed is told by the one that follows.
    pub(super) fn found(&self, found: &Found) {
        self.found.fetch_add(1, Relaxed);
        if let Found::Failed(_) = found {
            self.has_failed.store(true, Relaxed);
        }
    }

    /// Grows while it looks.
    pub(super) fn found_count(&self) -> u64 {
        self.found.load(Relaxed)
    }

    /// The scan is over.
    pub(super) fn looked(&self) {
        self.step.with(|step| *step = Step::Looked);
    }

    /// Whether that was said; then whether something could not be read.
    pub(super) fn verdict(&self) -> Option<bool> {
        let is_over = self.step.with(|step| *step != Step::Looking);
        is_over.then(|| self.has_failed.load(Relaxed))
    }

    /// What may go is gone.
    pub(super) fn cleared(&self) {
        self.step.release(|step| *step = Step::Cleared);
    }

    /// Waits for that; false if the session ends.
    pub(super) fn wait(&self) -> bool {
        self.step.take(|step| (*step == Step::Cleared).then_some(())).is_ok()
    }

    /// Nobody waits any more.
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
        let clearing = Clearing::new();
        assert_eq!(clearing.verdict(), None);
        let failure =
            EntryFailure { path: b"x"[..].into(), kind: FailureKind::ReadError, detail: String::new() };
        let skipped = Found::Skipped { path: b"x"[..].into(), reason: "a socket".to_owned() };
        clearing.found(&skipped);
        clearing.looked();
        assert_eq!((clearing.verdict(), clearing.found_count()), (Some(false), 1));
        clearing.found(&Found::Failed(failure));
        assert_eq!(clearing.verdict(), Some(true));
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| clearing.wait());
            clearing.cleared();
            assert!(waiting.join().unwrap());
        });
        let ended = Clearing::new();
        ended.close();
        assert!(!ended.wait());
    }
}
