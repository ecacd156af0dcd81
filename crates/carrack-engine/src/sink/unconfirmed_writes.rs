//! Written objects of a file that the source has not confirmed. Objects that come straight from the source's
//! page cache may carry zeros in place of bytes that could not be read, and no checksum tells: the source
//! learns of the error while it sends, and confirms the others after their acks. A range is recorded for a
//! later session only then.
//!
//! I/O threads add objects, the comm thread confirms them.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use carrack_model::{ByteRange, RangeSet};

/// A written object, with the checksum for the readback if there will be one.
type WrittenObject = (ByteRange, Option<[u8; 32]>);

/// The unconfirmed objects of one file by their offsets; none are held if the source confirms nothing.
pub(super) struct UnconfirmedWrites(Option<Mutex<BTreeMap<u64, WrittenObject>>>);

impl UnconfirmedWrites {
    /// Creates the state of a file.
    pub(super) fn new(source_confirms: bool) -> UnconfirmedWrites {
        UnconfirmedWrites(source_confirms.then(Mutex::default))
    }

    /// Holds an object until it is confirmed. Returns false if it needs no confirmation.
    pub(super) fn hold(&self, range: ByteRange, check: Option<[u8; 32]>) -> bool {
        let Some(held) = &self.0 else { return false };
        held.lock().unwrap_or_else(PoisonError::into_inner).insert(range.offset, (range, check));
        true
    }

    /// Takes the objects that lie in `ranges`.
    pub(super) fn confirm(&self, ranges: &RangeSet) -> Vec<WrittenObject> {
        let Some(held) = &self.0 else { return Vec::new() };
        let mut held = held.lock().unwrap_or_else(PoisonError::into_inner);
        let mut confirmed = Vec::new();
        for run in ranges.iter() {
            let end = run.offset + run.len;
            let within =
                held.range(run.offset..end).filter(|(_, (range, _))| range.offset + range.len <= end);
            confirmed.extend(within.map(|(_, object)| *object));
        }
        for (range, _) in &confirmed {
            held.remove(&range.offset);
        }
        confirmed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(ranges: &[(u64, u64)]) -> RangeSet {
        let mut set = RangeSet::new();
        ranges.iter().for_each(|&(offset, len)| assert!(set.insert(ByteRange::new(offset, len))));
        set
    }

    #[test]
    fn whole_objects_are_confirmed_once() {
        let writes = UnconfirmedWrites::new(true);
        for offset in [0, 100, 200, 300] {
            assert!(writes.hold(ByteRange::new(offset, 100), Some([offset as u8; 32])));
        }
        let confirmed = writes.confirm(&ranges(&[(0, 200), (250, 100)]));
        let offsets: Vec<u64> = confirmed.iter().map(|(range, _)| range.offset).collect();
        assert_eq!(offsets, [0, 100], "half an object is none");
        assert_eq!(confirmed[1].1, Some([100; 32]));
        assert!(writes.confirm(&ranges(&[(0, 200)])).is_empty());
        assert_eq!(writes.confirm(&ranges(&[(200, 200)])).len(), 2);
    }

    #[test]
    fn nothing_is_held_of_a_source_that_confirms_nothing() {
        let writes = UnconfirmedWrites::new(false);
        assert!(!writes.hold(ByteRange::new(0, 100), None));
        assert!(writes.confirm(&ranges(&[(0, 100)])).is_empty());
    }
}
