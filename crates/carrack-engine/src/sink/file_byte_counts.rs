//! Byte counts of one large file: bytes that were written, and bytes that count as copied.
//!
//! I/O threads add to both; the comm thread counts holes when the file is announced.

use std::sync::atomic::{AtomicU64, Ordering::AcqRel};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The counts of one file.
pub(super) struct LargeFileByteCounts {
    size: u64,
    /// Only for an inline-announced file.
    written: AtomicU64,
    /// `None` once the file is given up.
    counted: Mutex<Option<u64>>,
}

impl LargeFileByteCounts {
    /// Creates the counts of a file of `size` bytes.
    pub(super) fn new(size: u64) -> LargeFileByteCounts {
        LargeFileByteCounts { size, written: AtomicU64::new(0), counted: Mutex::new(Some(0)) }
    }

    fn counted(&self) -> MutexGuard<'_, Option<u64>> {
        self.counted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds written bytes of an inline-announced file. Returns true if the file is complete.
    pub(super) fn add_written(&self, bytes: u64) -> bool {
        let written = self.written.fetch_add(bytes, AcqRel) + bytes;
        assert!(written <= self.size, "each byte is written once");
        written == self.size
    }

    /// Adds bytes that count as copied. Returns false if the file was given up.
    pub(super) fn count(&self, bytes: u64) -> bool {
        let mut counted = self.counted();
        let Some(counted) = counted.as_mut() else { return false };
        *counted += bytes;
        assert!(*counted <= self.size, "each byte counts once");
        true
    }

    /// Takes back bytes that will be copied once more. Returns those that were counted.
    pub(super) fn uncount(&self, bytes: u64) -> u64 {
        let mut counted = self.counted();
        let Some(counted) = counted.as_mut() else { return 0 };
        let taken = bytes.min(*counted);
        *counted -= taken;
        taken
    }

    /// Takes back all counted bytes of a file that is given up. Later bytes are not counted.
    pub(super) fn uncount_all(&self) -> u64 {
        self.counted().take().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_given_up_counts_nothing() {
        let counts = LargeFileByteCounts::new(100);
        assert!(counts.count(60) && counts.count(20));
        assert_eq!((counts.uncount(30), counts.uncount(70)), (30, 50), "no more than was counted");
        assert!(counts.count(10));
        assert_eq!((counts.uncount_all(), counts.uncount_all()), (10, 0));
        assert!(!counts.count(10));
        assert_eq!(counts.uncount(10), 0);
    }

    #[test]
    fn the_last_byte_makes_it_whole() {
        let counts = LargeFileByteCounts::new(100);
        assert_eq!([60, 30, 10].map(|bytes| counts.add_written(bytes)), [false, false, true]);
    }
}
