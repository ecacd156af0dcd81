//! The part of a file that a partial transfer is about.

use crate::ByteRange;

/// The bytes of a file from an offset on. They lie at the same offset at the source and at the destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PartialRange {
    /// The first byte.
    pub offset: u64,
    /// Bytes at most, at least 1; nothing for all up to the end of the file.
    pub length: Option<u64>,
}

impl PartialRange {
    /// One past its last byte in a file of `size` bytes.
    pub fn end_in(self, size: u64) -> u64 {
        self.length.map_or(size, |length| self.offset.saturating_add(length).min(size))
    }

    /// What a file of `size` bytes has of it; nothing if the file ends before it.
    pub fn range_in(self, size: u64) -> Option<ByteRange> {
        let end = self.end_in(size);
        (self.offset < end).then(|| ByteRange::new(self.offset, end - self.offset))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_ends_with_its_file() {
        let range = |offset, length, size| PartialRange { offset, length }.range_in(size);
        assert_eq!(range(0, None, 10), Some(ByteRange::new(0, 10)));
        assert_eq!(range(3, Some(4), 10), Some(ByteRange::new(3, 4)));
        assert_eq!(range(3, Some(7), 10), Some(ByteRange::new(3, 7)));
        assert_eq!(range(3, Some(8), 10), Some(ByteRange::new(3, 7)));
        assert_eq!(range(9, Some(u64::MAX), 10), Some(ByteRange::new(9, 1)));
        assert_eq!(range(10, None, 10), None);
        assert_eq!(range(11, Some(1), 10), None);
        assert_eq!(range(0, None, 0), None);
    }
}
