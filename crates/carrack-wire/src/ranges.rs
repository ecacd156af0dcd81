//! Sets of ranges in messages: offset and length of each run, offsets rising.

use carrack_model::limits::RANGES_MAX;
use carrack_model::{ByteRange, RangeSet};

use crate::message::MessageError;

const OUT_OF_RANGE: MessageError = MessageError::OutOfRange("ranges of a file");

/// Encodes the first [`RANGES_MAX`] runs: the source sends the ranges behind them again.
pub fn ranges_to_message(ranges: &RangeSet) -> Vec<u64> {
    ranges.iter().take(RANGES_MAX).flat_map(|run| [run.offset, run.len]).collect()
}

/// Ranges of a file of `size` bytes.
///
/// # Errors
/// Ranges that overlap, don't rise, are empty, exceed the file, or are too many.
pub fn ranges_from_message(numbers: &[u64], size: u64) -> Result<RangeSet, MessageError> {
    if numbers.len() > 2 * RANGES_MAX || !numbers.len().is_multiple_of(2) {
        return Err(OUT_OF_RANGE);
    }
    let mut ranges = RangeSet::new();
    let mut from = 0;
    for pair in numbers.chunks_exact(2) {
        let range = ByteRange::new(pair[0], pair[1]);
        let end = range.end().filter(|end| *end <= size).ok_or(OUT_OF_RANGE)?;
        if range.len == 0 || range.offset < from || !ranges.insert(range) {
            return Err(OUT_OF_RANGE);
        }
        from = end;
    }
    Ok(ranges)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_survive_the_wire_and_nonsense_does_not() {
        let mut ranges = RangeSet::new();
        for (offset, len) in [(0, 5), (10, 5), (90, 10)] {
            assert!(ranges.insert(ByteRange::new(offset, len)));
        }
        let numbers = ranges_to_message(&ranges);
        assert_eq!(numbers, [0, 5, 10, 5, 90, 10]);
        let back = ranges_from_message(&numbers, 100).unwrap();
        assert_eq!(ranges_to_message(&back), numbers);
        for bad in [&[0][..], &[0, 0], &[0, 101], &[5, u64::MAX], &[10, 5, 0, 5], &[0, 5, 4, 5]] {
            assert!(ranges_from_message(bad, 100).is_err(), "{bad:?}");
        }
        assert!(ranges_from_message(&vec![0; 2 * RANGES_MAX + 2], 100).is_err());
    }

    #[test]
    fn too_many_runs_are_left_out() {
        let mut ranges = RangeSet::new();
        for i in 0..RANGES_MAX as u64 + 10 {
            assert!(ranges.insert(ByteRange::new(2 * i, 1)));
        }
        assert_eq!(ranges_to_message(&ranges).len(), 2 * RANGES_MAX);
    }
}
