//! The range of a partial transfer.

use serde::{Deserialize, Serialize};

use crate::ByteRange;

/// A range of a file, at the same offset at the source and at the destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PartialCopyRange {
    /// The first byte.
    pub offset: u64,
    /// Length limit in bytes, at least 1; `None` for everything up to the end of the file.
    pub length: Option<u64>,
}

impl PartialCopyRange {
    /// End of the range in a file of `size` bytes.
    pub fn end_in(self, size: u64) -> u64 {
        self.length.map_or(size, |length| self.offset.saturating_add(length).min(size))
    }

    /// The range in a file of `size` bytes; `None` if the file ends before it.
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
        fn range(offset: u64, length: Option<u64>, file_size: u64) -> Option<ByteRange> {
            PartialCopyRange { offset, length }.range_in(file_size)
        }
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
