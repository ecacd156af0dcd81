//! The targets of small files, so that their bundles are read from one target each (L1, L2).
//!
//! The scan's threads ask for the layout of a file. That costs a call for each file: they do it while it
//! takes a small part of their time, or the read policy avoids a target. Other files stay with the file
//! system as a whole. Atomics only; the threads count together.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::{Duration, Instant};

use carrack_model::TargetId;

/// The part of the scan threads' time that layouts may take; waiting for room in the queues counts as time,
/// so that a scan that is ahead asks for every file.
const TIME_PART: u32 = 8;

/// Time that may be spent before that counts.
const TIME_AT_START: Duration = Duration::from_millis(50);

/// Files on a single target after which only one of as many is asked for.
const SAMPLE_FILES: u64 = 64;

/// Pause between two looks for an avoided target.
const AVOIDED_EVERY: Duration = Duration::from_millis(250);

/// The decision which files to ask for.
pub(super) struct SmallFileTargetSampler {
    began: Instant,
    scan_threads: u32,
    /// Files considered, and time spent, by all threads.
    considered: AtomicU64,
    spent_ns: AtomicU64,
    /// The first target found, plus 1; 0 before.
    first_found: AtomicU64,
    has_several: AtomicBool,
    /// Time of the next look for an avoided target, since `began`.
    avoided_due_ns: AtomicU64,
    is_avoiding: AtomicBool,
}

impl SmallFileTargetSampler {
    pub(super) fn new(scan_threads: usize) -> SmallFileTargetSampler {
        SmallFileTargetSampler {
            began: Instant::now(),
            scan_threads: u32::try_from(scan_threads).unwrap_or(u32::MAX).max(1),
            considered: AtomicU64::new(0),
            spent_ns: AtomicU64::new(0),
            first_found: AtomicU64::new(0),
            has_several: AtomicBool::new(false),
            avoided_due_ns: AtomicU64::new(0),
            is_avoiding: AtomicBool::new(false),
        }
    }

    /// Returns true if the layout of the next small file should be read. `avoids_target` tells whether the
    /// policy avoids a target; it is called rarely.
    pub(super) fn should_ask(&self, avoids_target: impl FnOnce() -> bool) -> bool {
        let number = self.considered.fetch_add(1, Relaxed);
        if number >= SAMPLE_FILES && !self.has_several.load(Relaxed) {
            return number.is_multiple_of(SAMPLE_FILES);
        }
        self.has_time() || self.avoids(avoids_target)
    }

    /// Counts a layout that was read.
    pub(super) fn record(&self, target: TargetId, time: Duration) {
        self.spent_ns.fetch_add(nanoseconds(time), Relaxed);
        let found = target.0.saturating_add(1);
        let first = self.first_found.compare_exchange(0, found, Relaxed, Relaxed);
        if first.is_err_and(|first| first != found) {
            self.has_several.store(true, Relaxed);
        }
    }

    fn has_time(&self) -> bool {
        let spent = Duration::from_nanos(self.spent_ns.load(Relaxed));
        spent <= TIME_AT_START + self.began.elapsed() * self.scan_threads / TIME_PART
    }

    fn avoids(&self, avoids_target: impl FnOnce() -> bool) -> bool {
        let now = nanoseconds(self.began.elapsed());
        let due = self.avoided_due_ns.load(Relaxed);
        let next = now.saturating_add(nanoseconds(AVOIDED_EVERY));
        if now >= due && self.avoided_due_ns.compare_exchange(due, next, Relaxed, Relaxed).is_ok() {
            self.is_avoiding.store(avoids_target(), Relaxed);
        }
        self.is_avoiding.load(Relaxed)
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn never() -> bool {
        panic!("not asked while there is time")
    }

    #[test]
    fn on_one_target_few_files_are_asked_for() {
        let sampler = SmallFileTargetSampler::new(4);
        let asked = (0..10_000).filter(|_| {
            let asks = sampler.should_ask(never);
            if asks {
                sampler.record(TargetId(3), Duration::ZERO);
            }
            asks
        });
        assert_eq!(asked.count() as u64, SAMPLE_FILES + (10_000 - 1) / SAMPLE_FILES);
        sampler.record(TargetId(4), Duration::ZERO);
        assert!((0..1_000).all(|_| sampler.should_ask(never)), "two targets: every file counts");
    }

    #[test]
    fn dear_layouts_are_read_only_where_a_target_is_avoided() {
        let sampler = SmallFileTargetSampler::new(1);
        sampler.record(TargetId(1), Duration::from_secs(3_600));
        sampler.record(TargetId(2), Duration::ZERO);
        assert!(!sampler.should_ask(|| false) && !sampler.should_ask(|| true), "one look in a while");
        let avoiding = SmallFileTargetSampler::new(1);
        avoiding.record(TargetId(1), Duration::from_secs(3_600));
        avoiding.record(TargetId(2), Duration::ZERO);
        assert!((0..1_000).all(|_| avoiding.should_ask(|| true)));
    }
}
