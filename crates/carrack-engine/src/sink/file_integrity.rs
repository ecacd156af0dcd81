//! The integrity of a large file's contents: the digest of the received bytes, the damage that the readback
//! found, writes that the storage may have lost, and those that the source has not confirmed.
//!
//! I/O threads add checked objects and ask for damage; `carrack-commit` notes it. Both note lost writes.

use std::mem;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use carrack_journal::{Blake3Subtree, FileDigestBuilder, FileDigestError};
use carrack_model::{ByteRange, RangeSet};

use super::unconfirmed_writes::UnconfirmedWrites;

/// The contents of one file.
pub(super) struct FileIntegrity {
    digest: Mutex<FileDigestBuilder>,
    /// Ranges whose readback differed, since the last call of `take_damage`.
    damage: Mutex<RangeSet>,
    /// True if a readback ever differed, or writes were lost.
    was_damaged: AtomicBool,
    writes: Mutex<WriteState>,
    pub(super) unconfirmed: UnconfirmedWrites,
}

/// The writes of a file since its creation. The lock is held during a sync and its evaluation, as the kernel
/// reports a lost write to one sync only.
#[derive(Default)]
pub(super) struct WriteState {
    /// Ranges of this session that a sync has made durable.
    durable: RangeSet,
    /// True after an error of a write through the page cache, or of a sync: what is not durable may be lost,
    /// also if a later sync succeeds (fsync(2)).
    are_lost: bool,
}

impl WriteState {
    /// Returns true if writes may be lost.
    pub(super) fn are_lost(&self) -> bool {
        self.are_lost
    }

    /// Notes that writes may be lost.
    pub(super) fn mark_lost(&mut self) {
        self.are_lost = true;
    }

    /// Notes ranges that a sync has made durable.
    pub(super) fn add_durable(&mut self, ranges: &RangeSet) {
        assert!(!self.are_lost, "nothing becomes durable after a lost write");
        ranges.iter().for_each(|range| {
            self.durable.cover(range);
        });
    }
}

impl FileIntegrity {
    /// Creates the state of a file of `size` bytes, whose objects the source may confirm.
    pub(super) fn new(size: u64, source_confirms: bool) -> FileIntegrity {
        FileIntegrity {
            digest: Mutex::new(FileDigestBuilder::new(size)),
            damage: Mutex::default(),
            was_damaged: AtomicBool::new(false),
            writes: Mutex::default(),
            unconfirmed: UnconfirmedWrites::new(source_confirms),
        }
    }

    /// Locks the state of the writes.
    pub(super) fn lock_writes(&self) -> MutexGuard<'_, WriteState> {
        self.writes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns true if writes may be lost.
    pub(super) fn has_lost_writes(&self) -> bool {
        self.lock_writes().are_lost
    }

    /// Takes the ranges that may be lost, of those that arrive in this session: they must be written once
    /// more.
    pub(super) fn take_lost_writes(&self, arriving: RangeSet) -> RangeSet {
        let (mut writes, mut lost) = (self.lock_writes(), arriving);
        if !mem::take(&mut writes.are_lost) {
            return RangeSet::new();
        }
        self.was_damaged.store(true, Relaxed);
        writes.durable.iter().for_each(|range| lost.remove(range));
        lost
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
    fn what_is_not_durable_is_lost_after_an_error() {
        let ranges = |len| {
            let mut ranges = RangeSet::new();
            ranges.insert(ByteRange::new(0, len));
            ranges
        };
        let integrity = FileIntegrity::new(100, false);
        assert!(integrity.take_lost_writes(ranges(100)).is_empty());
        integrity.lock_writes().add_durable(&ranges(40));
        integrity.lock_writes().mark_lost();
        assert!(integrity.has_lost_writes());
        let lost: Vec<ByteRange> = integrity.take_lost_writes(ranges(100)).iter().collect();
        assert_eq!(lost, [ByteRange::new(40, 60)]);
        assert!(!integrity.has_lost_writes(), "it is asked for once");
    }

    #[test]
    fn what_was_damaged_may_be_hashed_once_more() {
        let integrity = FileIntegrity::new(2 << 20, false);
        integrity.add_subtrees(&[subtree(0, 1 << 20)]).unwrap();
        assert!(integrity.add_subtrees(&[subtree(0, 1 << 20)]).is_err());
        integrity.note_damage(ByteRange::new(0, 1 << 20));
        integrity.add_subtrees(&[subtree(0, 1 << 20)]).unwrap();
        assert_eq!(integrity.take_damage().covered_bytes(), 1 << 20);
        assert!(integrity.take_damage().is_empty(), "it is asked for once");
        assert!(integrity.finish().is_err(), "half of it is missing");
    }
}
