//! Byte ranges of a file, and sets of them.

use std::collections::BTreeMap;

/// A half-open extent of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ByteRange {
    /// First byte.
    pub offset: u64,
    /// Bytes; an empty range is allowed.
    pub len: u64,
}

impl ByteRange {
    /// The range that starts at `offset` and holds `len` bytes.
    pub fn new(offset: u64, len: u64) -> ByteRange {
        ByteRange { offset, len }
    }

    /// One past the last byte; nothing if that is beyond 2^64 - 1.
    pub fn end(self) -> Option<u64> {
        self.offset.checked_add(self.len)
    }
}

/// Disjoint ranges, neighbours merged: what of a file has arrived.
///
/// Holds one node for each gap, so its memory is bounded by the objects in flight and not by the file's size.
#[derive(Clone, Debug, Default)]
pub struct RangeSet {
    /// start → end
    runs: BTreeMap<u64, u64>,
}

impl RangeSet {
    /// Nothing.
    pub fn new() -> RangeSet {
        RangeSet::default()
    }

    /// Adds a range; false, and nothing changes, if any byte of it is there already or it ends beyond 2^64 - 1.
    pub fn insert(&mut self, range: ByteRange) -> bool {
        let Some(end) = range.end() else { return false };
        if range.len == 0 {
            return true;
        }
        let before = self.runs.range(..end).next_back().map(|(&s, &e)| (s, e));
        if before.is_some_and(|(_, before_end)| before_end > range.offset) {
            return false;
        }
        let mut start = range.offset;
        if let Some((s, e)) = before
            && e == range.offset
        {
            self.runs.remove(&s);
            start = s;
        }
        let merged_end = self.runs.remove(&end).unwrap_or(end);
        self.runs.insert(start, merged_end);
        true
    }

    /// Takes a range out that an earlier `insert` put in.
    pub fn remove(&mut self, range: ByteRange) {
        let Some(end) = range.end() else { return };
        let Some((s, e)) = self.runs.range(..=range.offset).next_back().map(|(&s, &e)| (s, e)) else {
            return;
        };
        if range.len == 0 || e < end {
            return;
        }
        self.runs.remove(&s);
        if s < range.offset {
            self.runs.insert(s, range.offset);
        }
        if end < e {
            self.runs.insert(end, e);
        }
    }

    /// Whether it is exactly the bytes `0..size`.
    pub fn is_whole(&self, size: u64) -> bool {
        size == 0 && self.runs.is_empty() || self.runs.len() == 1 && self.runs.get(&0) == Some(&size)
    }

    /// Number of separate runs.
    pub fn run_count(&self) -> usize {
        self.runs.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merges_neighbours_in_any_order() {
        let mut set = RangeSet::new();
        assert!(set.insert(ByteRange::new(10, 10)));
        assert!(set.insert(ByteRange::new(30, 10)));
        assert!(set.insert(ByteRange::new(20, 10)));
        assert!(set.insert(ByteRange::new(0, 10)));
        assert_eq!(set.run_count(), 1);
        assert!(set.is_whole(40));
        assert!(!set.is_whole(41));
    }

    #[test]
    fn refuses_overlap_and_overflow() {
        let mut set = RangeSet::new();
        assert!(set.insert(ByteRange::new(10, 10)));
        for (offset, len) in [(10, 10), (5, 6), (19, 1), (0, 100), (12, 2), (u64::MAX, 2)] {
            assert!(!set.insert(ByteRange::new(offset, len)), "{offset}+{len}");
        }
        assert!(set.insert(ByteRange::new(5, 5)));
    }

    #[test]
    fn removes_what_was_inserted() {
        let mut set = RangeSet::new();
        assert!(set.insert(ByteRange::new(0, 30)));
        set.remove(ByteRange::new(10, 10));
        assert_eq!(set.run_count(), 2);
        assert!(set.insert(ByteRange::new(10, 10)));
        assert!(set.is_whole(30));
    }

    #[test]
    fn the_empty_file_is_whole_at_once() {
        assert!(RangeSet::new().is_whole(0));
    }
}
