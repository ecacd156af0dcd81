//! The unfinished work of a lane, as counts: bundles and large files, and bytes of work.
//!
//! The scan adds work, senders let it depart, and the comm thread counts the answers. Every method may run on
//! any thread.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed};

/// Counts at three points: given to the lane, departed from this host, acked by the sink.
#[derive(Default)]
pub(super) struct LaneBacklog {
    /// Bundles and large files in progress.
    items: AtomicUsize,
    given_bytes: AtomicU64,
    departed_bytes: AtomicU64,
    answered_bytes: AtomicU64,
}

impl LaneBacklog {
    /// Adds one bundle or large file with its bytes of work.
    pub(super) fn add_item(&self, work_bytes: u64) {
        self.items.fetch_add(1, AcqRel);
        self.given_bytes.fetch_add(work_bytes, Relaxed);
    }

    /// Counts a bundle or large file that became two; its bytes were given already.
    pub(super) fn split(&self) {
        self.items.fetch_add(1, AcqRel);
    }

    /// Ends one bundle or large file, with any outcome. Returns true if none is left.
    pub(super) fn end_one(&self) -> bool {
        let before = self.items.fetch_sub(1, AcqRel);
        assert!(before > 0, "each bundle and each large file ends once");
        before == 1
    }

    /// Counts bytes that the kernel has taken.
    pub(super) fn count_departed(&self, work_bytes: u64) {
        self.departed_bytes.fetch_add(work_bytes, Relaxed);
    }

    /// Counts departed bytes that must depart again. The call may come before those bytes are counted as
    /// departed. The sum is right a moment later.
    pub(super) fn count_returned(&self, work_bytes: u64) {
        self.departed_bytes.fetch_sub(work_bytes, Relaxed);
    }

    /// Counts bytes that the sink has answered.
    pub(super) fn count_answered(&self, work_bytes: u64) {
        self.answered_bytes.fetch_add(work_bytes, Relaxed);
    }

    /// Bundles and large files in progress.
    pub(super) fn item_count(&self) -> usize {
        self.items.load(Acquire)
    }

    /// Bytes of work that the sink has answered.
    pub(super) fn answered_bytes(&self) -> u64 {
        self.answered_bytes.load(Relaxed)
    }

    /// Bytes of work that wait or are in flight. Failed work stays in the sum until no item is left.
    pub(super) fn bytes(&self) -> u64 {
        if self.item_count() == 0 {
            return 0;
        }
        self.given_bytes.load(Relaxed).saturating_sub(self.answered_bytes())
    }

    /// Bytes of work that the kernel has not taken.
    pub(super) fn bytes_before_kernel(&self) -> u64 {
        let departed = self.departed_bytes.load(Relaxed);
        self.bytes().min(self.given_bytes.load(Relaxed).saturating_sub(departed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_go_from_station_to_station() {
        let backlog = LaneBacklog::default();
        backlog.add_item(100);
        backlog.add_item(50);
        assert_eq!((backlog.bytes(), backlog.bytes_before_kernel()), (150, 150));
        backlog.count_departed(100);
        assert_eq!((backlog.bytes(), backlog.bytes_before_kernel()), (150, 50));
        backlog.count_returned(100);
        assert_eq!(backlog.bytes_before_kernel(), 150, "a damaged object departs again");
        backlog.count_departed(100);
        backlog.count_answered(100);
        assert_eq!((backlog.bytes(), backlog.bytes_before_kernel(), backlog.answered_bytes()), (50, 50, 100));
    }

    #[test]
    fn what_failed_is_no_work_when_no_item_is_left() {
        let backlog = LaneBacklog::default();
        backlog.add_item(100);
        backlog.split();
        assert!(!backlog.end_one());
        assert_eq!(backlog.bytes(), 100);
        assert!(backlog.end_one());
        assert_eq!((backlog.item_count(), backlog.bytes(), backlog.bytes_before_kernel()), (0, 0, 0));
    }

    #[test]
    #[should_panic(expected = "ends once")]
    fn no_item_ends_twice() {
        let backlog = LaneBacklog::default();
        backlog.add_item(1);
        backlog.end_one();
        backlog.end_one();
    }
}
