//! The integrity of a large file's contents: the digest of the received bytes, and the damage that the
//! readback found.
//!
//! I/O threads add checked objects and ask for damage; `carrack-commit` notes it.

use std::mem;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use carrack_journal::{Blake3Subtree, FileDigestBuilder, FileDigestError};
use carrack_model::{ByteRange, RangeSet};

/// The contents of one file.
pub(super) struct FileIntegrity {
    digest: Mutex<FileDigestBuilder>,
    /// Ranges whose readback differed, since the last call of `take_damage`.
    damage: Mutex<RangeSet>,
    /// True if a readback ever differed.
    was_damaged: AtomicBool,
}

impl FileIntegrity {
    /// Creates the state of a file of `size` bytes.
    pub(super) fn new(size: u64) -> FileIntegrity {
        FileIntegrity {
            digest: Mutex::new(FileDigestBuilder::new(size)),
            damage: Mutex::default(),
            was_damaged: AtomicBool::new(false),
        }
    }

    fn digest(&self) -> MutexGuard<'_, FileDigestBuilder> {
        self.digest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn damage(&self) -> MutexGuard<'_, RangeSet> {
        self.damage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an object's subtrees to the digest.
    pub(super) fn add_subtrees(&self, subtrees: &[Blake3Subtree]) -> Result<(), FileDigestError> {
        let mut digest = self.digest();
        subtrees.iter().try_for_each(|subtree| match digest.add(*subtree) {
            // A range that is written once more was hashed before.
            Err(FileDigestError::Overlap(_)) if self.was_damaged.load(Relaxed) => Ok(()),
            added => added,
        })
    }

    /// Returns the digest of a complete file.
    pub(super) fn finish(&self) -> Result<[u8; 32], FileDigestError> {
        self.digest().clone().finish()
    }

    /// Notes a range whose readback differed from the written bytes.
    pub(super) fn note_damage(&self, range: ByteRange) {
        assert!(range.len > 0, "an object has contents");
        self.was_damaged.store(true, Relaxed);
        self.damage().insert(range);
    }

    /// Takes the ranges that must be written once more.
    pub(super) fn take_damage(&self) -> RangeSet {
        mem::take(&mut *self.damage())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subtree(offset: u64, len: u64) -> Blake3Subtree {
        Blake3Subtree { range: ByteRange::new(offset, len), value: [0; 32] }
    }

    #[test]
    fn what_was_damaged_may_be_hashed_once_more() {
        let integrity = FileIntegrity::new(2 << 20);
        integrity.add_subtrees(&[subtree(0, 1 << 20)]).unwrap();
        assert!(integrity.add_subtrees(&[subtree(0, 1 << 20)]).is_err());
        integrity.note_damage(ByteRange::new(0, 1 << 20));
        integrity.add_subtrees(&[subtree(0, 1 << 20)]).unwrap();
        assert_eq!(integrity.take_damage().covered_bytes(), 1 << 20);
        assert!(integrity.take_damage().is_empty(), "it is asked for once");
        assert!(integrity.finish().is_err(), "half of it is missing");
    }
}
