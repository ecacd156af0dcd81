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

    /// End of the range, exclusive; `None` beyond 2^64 - 1.
    pub fn end(self) -> Option<u64> {
        self.offset.checked_add(self.len)
    }

    /// The bytes in both ranges; `None` if there are none.
    pub fn overlap(self, other: ByteRange) -> Option<ByteRange> {
        let offset = self.offset.max(other.offset);
        let end = self.end()?.min(other.end()?);
        (offset < end).then(|| ByteRange::new(offset, end - offset))
    }
}

/// A set of disjoint ranges, neighbours merged, such as the arrived bytes of a file.
///
/// Holds one node for each run, so that its memory is bounded by the objects in flight and not by the file's
/// size.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RangeSet {
    /// start → end
    runs: BTreeMap<u64, u64>,
}

impl RangeSet {
    /// An empty set.
    pub fn new() -> RangeSet {
        RangeSet::default()
    }

    /// Adds a range. Returns false, without a change, if a byte is in the set already or the range ends
    /// beyond 2^64 - 1.
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

    /// Adds a range that may overlap the set. Returns false, without a change, if it ends beyond 2^64 - 1.
    pub fn cover(&mut self, range: ByteRange) -> bool {
        let Some(mut end) = range.end() else { return false };
        if range.len == 0 {
            return true;
        }
        let mut start = range.offset;
        while let Some((s, e)) = self.runs.range(..=end).next_back().map(|(&s, &e)| (s, e))
            && e >= start
        {
            self.runs.remove(&s);
            (start, end) = (start.min(s), end.max(e));
        }
        self.runs.insert(start, end);
        true
    }

    /// The runs, from left to right; no two of them touch.
    pub fn iter(&self) -> impl Iterator<Item = ByteRange> {
        self.runs.iter().map(|(&start, &end)| ByteRange::new(start, end - start))
    }

    /// Bytes in all runs.
    pub fn covered_bytes(&self) -> u64 {
        self.iter().map(|run| run.len).sum()
    }

    /// The gaps in the bytes `0..size`, from left to right.
    pub fn gaps(&self, size: u64) -> impl Iterator<Item = ByteRange> {
        let ends = std::iter::once(0).chain(self.runs.values().copied());
        let starts = self.runs.keys().copied().chain(std::iter::once(size));
        let gaps = ends.zip(starts).map(move |(end, start)| (end, start.min(size)));
        gaps.filter(|(end, start)| end < start).map(|(end, start)| ByteRange::new(end, start - end))
    }

    /// Removes a range that an earlier `insert` added.
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

    /// Returns true if the set is exactly the bytes `0..size`.
    pub fn is_whole(&self, size: u64) -> bool {
        size == 0 && self.runs.is_empty() || self.runs.len() == 1 && self.runs.get(&0) == Some(&size)
    }

    /// Returns true if the set is empty.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// The gaps in the bytes `0..size`, as a set.
    pub fn missing_of(&self, size: u64) -> RangeSet {
        let mut missing = RangeSet::new();
        self.gaps(size).for_each(|gap| {
            missing.insert(gap);
        });
        missing
    }

    /// The first run, or part of a run, at or behind `offset`.
    pub fn next_from(&self, offset: u64) -> Option<ByteRange> {
        let within = self.runs.range(..=offset).next_back().filter(|(_, end)| **end > offset);
        let (start, end) = match within {
            Some((_, end)) => (offset, *end),
            None => self.runs.range(offset..).next().map(|(start, end)| (*start, *end))?,
        };
        Some(ByteRange::new(start, end - start))
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
    fn tells_what_is_missing_and_what_comes_next() {
        let mut set = RangeSet::new();
        assert_eq!(set.missing_of(0).run_count(), 0);
        for (offset, len) in [(10, 10), (30, 10)] {
            assert!(set.insert(ByteRange::new(offset, len)));
        }
        fn runs(set: &RangeSet) -> Vec<(u64, u64)> {
            set.iter().map(|run| (run.offset, run.len)).collect()
        }
        assert_eq!((runs(&set), set.covered_bytes()), (vec![(10, 10), (30, 10)], 20));
        assert_eq!(runs(&set.missing_of(50)), [(0, 10), (20, 10), (40, 10)]);
        assert_eq!(runs(&set.missing_of(35)), [(0, 10), (20, 10)]);
        assert_eq!(runs(&set.missing_of(5)), [(0, 5)]);
        for (from, next) in [(0, (10, 10)), (10, (10, 10)), (15, (15, 5)), (20, (30, 10)), (39, (39, 1))] {
            assert_eq!(set.next_from(from), Some(ByteRange::new(next.0, next.1)), "{from}");
        }
        assert_eq!(set.next_from(40), None);
    }

    #[test]
    fn covers_what_overlaps() {
        let mut set = RangeSet::new();
        for (offset, len) in [(10, 10), (30, 10), (50, 10), (15, 20), (0, 0), (70, 5), (60, 10)] {
            assert!(set.cover(ByteRange::new(offset, len)));
        }
        assert!(!set.cover(ByteRange::new(u64::MAX, 2)));
        let runs: Vec<ByteRange> = set.iter().collect();
        assert_eq!(runs, [ByteRange::new(10, 30), ByteRange::new(50, 25)]);
        assert_eq!(set.covered_bytes(), 55);
        let gaps: Vec<ByteRange> = set.gaps(80).collect();
        assert_eq!(gaps, [ByteRange::new(0, 10), ByteRange::new(40, 10), ByteRange::new(75, 5)]);
        assert_eq!(set.gaps(60).collect::<Vec<_>>(), [ByteRange::new(0, 10), ByteRange::new(40, 10)]);
        assert_eq!(RangeSet::new().gaps(0).count(), 0);
        assert_eq!(RangeSet::new().gaps(3).collect::<Vec<_>>(), [ByteRange::new(0, 3)]);
    }

    #[test]
    fn the_empty_file_is_whole_at_once() {
        assert!(RangeSet::new().is_whole(0));
    }
}
