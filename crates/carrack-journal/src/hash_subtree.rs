//! The shape of a file's BLAKE3 tree, and the subtrees that an object covers.
//!
//! Owns the rules of section 2.1 of the BLAKE3 paper: which ranges are subtrees, and which two form a larger
//! one. Must not keep state of a file; [`crate::FileDigestBuilder`] does. Any thread: an object is hashed
//! where it was read.

use std::iter::FusedIterator;

use blake3::Hasher;
use blake3::hazmat::{HasherExt, Mode, max_subtree_len, merge_subtrees_non_root, merge_subtrees_root};
use carrack_model::ByteRange;

/// Bytes of a BLAKE3 chunk, the leaf of its tree: objects begin at multiples of it.
pub const CHUNK_BYTES: u64 = blake3::CHUNK_LEN as u64;

/// Reasons why a file has no digest.
///
/// A retry does not help, and other files are not affected: the ends disagree about the file's objects or its
/// size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FileDigestError {
    /// An object does not consist of whole chunks, so that its hash is no part of the file's digest: choose
    /// other objects, or do without the digest.
    #[error("bytes {0:?} of a file of {1} bytes are not whole BLAKE3 chunks")]
    Unaligned(ByteRange, u64),
    /// A range exceeds the file: its size changed, or the peer is wrong.
    #[error("bytes {0:?} reach beyond a file of {1} bytes")]
    BeyondEnd(ByteRange, u64),
    /// A range is not a subtree of the file's tree: the peer is wrong.
    #[error("bytes {0:?} of a file of {1} bytes are not a BLAKE3 subtree")]
    NotASubtree(ByteRange, u64),
    /// Some of these bytes were added before: the object arrived twice.
    #[error("bytes {0:?} of the file were hashed twice")]
    Overlap(ByteRange),
    /// The digest was requested before all bytes were added.
    #[error("not all of the file's {0} bytes were hashed")]
    Incomplete(u64),
}

/// A subtree of a file's BLAKE3 tree: its range and its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Blake3Subtree {
    /// The bytes that it covers; never empty.
    pub range: ByteRange,
    /// The chaining value; for the subtree of the whole file, the file's digest.
    pub value: [u8; 32],
}

/// The largest subtrees that make up a range of a file, from left to right; see [`subtree_ranges`].
#[derive(Clone, Debug)]
pub struct HashSubtreeRanges {
    offset: u64,
    end: u64,
    file_size: u64,
}

/// The subtrees of a piece of a file, hashed on demand; see [`hash_subtrees`].
#[derive(Clone, Debug)]
pub struct Blake3SubtreeHashes<'a> {
    ranges: HashSubtreeRanges,
    data: &'a [u8],
}

/// Splits a range of a file of `file_size` bytes into the fewest subtrees of its BLAKE3 tree.
///
/// For an object of a power of two (of at least 1,024) bytes at a multiple of its size, and for the end of a
/// file in such an object, there is one subtree. For any other range there are at most twice the logarithm of
/// the number of chunks.
///
/// # Errors
/// [`FileDigestError::Unaligned`] unless the range begins at a multiple of [`CHUNK_BYTES`] and ends at a
/// multiple or at the file's end; [`FileDigestError::BeyondEnd`].
pub fn subtree_ranges(range: ByteRange, file_size: u64) -> Result<HashSubtreeRanges, FileDigestError> {
    let end = end_within(range, file_size)?;
    let is_aligned =
        range.offset.is_multiple_of(CHUNK_BYTES) && (end.is_multiple_of(CHUNK_BYTES) || end == file_size);
    if range.len > 0 && !is_aligned {
        return Err(FileDigestError::Unaligned(range, file_size));
    }
    Ok(HashSubtreeRanges { offset: range.offset, end, file_size })
}

/// Hashes the piece `data` at `offset` of a file of `file_size` bytes, as subtrees of its BLAKE3 tree.
///
/// Does not allocate. The subtrees are those of [`subtree_ranges`].
///
/// # Errors
/// Those of [`subtree_ranges`], before any byte is hashed.
pub fn hash_subtrees(
    offset: u64,
    data: &[u8],
    file_size: u64,
) -> Result<Blake3SubtreeHashes<'_>, FileDigestError> {
    let ranges = subtree_ranges(ByteRange::new(offset, data.len() as u64), file_size)?;
    Ok(Blake3SubtreeHashes { ranges, data })
}

impl Iterator for HashSubtreeRanges {
    type Item = ByteRange;

    fn next(&mut self) -> Option<ByteRange> {
        let remaining = self.end - self.offset;
        if remaining == 0 {
            return None;
        }
        let widest = max_subtree_len(self.offset).unwrap_or(u64::MAX);
        let len = if widest <= remaining {
            widest
        } else if self.end == self.file_size {
            remaining
        } else {
            1 << remaining.ilog2()
        };
        let range = ByteRange::new(self.offset, len);
        self.offset += len;
        Some(range)
    }
}

impl FusedIterator for HashSubtreeRanges {}

impl Iterator for Blake3SubtreeHashes<'_> {
    type Item = Blake3Subtree;

    fn next(&mut self) -> Option<Blake3Subtree> {
        let range = self.ranges.next()?;
        let (piece, rest) = self.data.split_at(range.len as usize);
        self.data = rest;
        Some(Blake3Subtree { range, value: value_of(range, piece, self.ranges.file_size) })
    }
}

impl FusedIterator for Blake3SubtreeHashes<'_> {}

fn value_of(range: ByteRange, piece: &[u8], file_size: u64) -> [u8; 32] {
    if range.len == file_size {
        return *blake3::hash(piece).as_bytes();
    }
    Hasher::new().set_input_offset(range.offset).update(piece).finalize_non_root()
}

/// Checks that a range is a subtree of a file's tree, and returns the range's end.
pub(crate) fn check_subtree(range: ByteRange, file_size: u64) -> Result<u64, FileDigestError> {
    let end = end_within(range, file_size)?;
    let is_one = subtree_ranges(range, file_size).is_ok_and(|mut ranges| ranges.next() == Some(range));
    if is_one { Ok(end) } else { Err(FileDigestError::NotASubtree(range, file_size)) }
}

/// The other child of a subtree's parent; `None` for the whole file.
pub(crate) fn sibling(range: ByteRange, file_size: u64) -> Option<ByteRange> {
    let ByteRange { offset, len } = range;
    let end = offset + len;
    let is_left = end < file_size && offset & len == 0;
    if is_left {
        return Some(ByteRange::new(end, len.min(file_size - end)));
    }
    // A right child's sibling is as long as its offset's alignment, even if the file's end shortens the
    // child.
    let left_len = max_subtree_len(offset)?;
    Some(ByteRange::new(offset - left_len, left_len))
}

/// Joins the two children of a subtree.
pub(crate) fn merge(left: Blake3Subtree, right: Blake3Subtree, file_size: u64) -> Blake3Subtree {
    let range = ByteRange::new(left.range.offset, left.range.len + right.range.len);
    let value = if range.len == file_size {
        *merge_subtrees_root(&left.value, &right.value, Mode::Hash).as_bytes()
    } else {
        merge_subtrees_non_root(&left.value, &right.value, Mode::Hash)
    };
    Blake3Subtree { range, value }
}

fn end_within(range: ByteRange, file_size: u64) -> Result<u64, FileDigestError> {
    range.end().filter(|&end| end <= file_size).ok_or(FileDigestError::BeyondEnd(range, file_size))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const KIB: u64 = 1 << 10;

    fn split(offset: u64, len: u64, file_size: u64) -> Vec<(u64, u64)> {
        let ranges = subtree_ranges(ByteRange::new(offset, len), file_size).unwrap();
        ranges.map(|range| (range.offset, range.len)).collect()
    }

    /// The ranges of all subtrees, as section 2.1 of the BLAKE3 paper defines them.
    fn all_subtrees(offset: u64, len: u64) -> Vec<ByteRange> {
        let mut found = vec![ByteRange::new(offset, len)];
        if len > KIB {
            let left_len = blake3::hazmat::left_subtree_len(len);
            found.extend(all_subtrees(offset, left_len));
            found.extend(all_subtrees(offset + left_len, len - left_len));
        }
        found
    }

    #[test]
    fn an_aligned_power_of_two_is_one_subtree() {
        assert_eq!(split(0, 4 * KIB, 9 * KIB), [(0, 4 * KIB)]);
        assert_eq!(split(4 * KIB, 4 * KIB, 9 * KIB), [(4 * KIB, 4 * KIB)]);
        assert_eq!(split(8 * KIB, 100, 8 * KIB + 100), [(8 * KIB, 100)]);
        assert_eq!(split(4 * KIB, 2 * KIB + 1, 6 * KIB + 1), [(4 * KIB, 2 * KIB + 1)]);
        assert_eq!(split(0, 9 * KIB, 9 * KIB), [(0, 9 * KIB)]);
        assert_eq!(split(0, 0, 0), []);
    }

    #[test]
    fn other_ranges_are_several() {
        assert_eq!(split(0, 3 * KIB, 9 * KIB), [(0, 2 * KIB), (2 * KIB, KIB)]);
        assert_eq!(split(3 * KIB, 3 * KIB, 9 * KIB), [(3 * KIB, KIB), (4 * KIB, 2 * KIB)]);
        assert_eq!(split(6 * KIB, 3 * KIB, 9 * KIB), [(6 * KIB, 2 * KIB), (8 * KIB, KIB)]);
    }

    #[test]
    fn the_largest_file_has_a_tree() {
        let size = u64::MAX;
        assert_eq!(split(0, size, size), [(0, size)]);
        let half = 1 << 63;
        assert_eq!(sibling(ByteRange::new(0, half), size), Some(ByteRange::new(half, half - 1)));
        assert_eq!(sibling(ByteRange::new(half, half - 1), size), Some(ByteRange::new(0, half)));
    }

    #[test]
    fn refuses_what_is_no_part_of_the_tree() {
        fn error(offset: u64, len: u64, file_size: u64) -> FileDigestError {
            subtree_ranges(ByteRange::new(offset, len), file_size).unwrap_err()
        }
        assert!(matches!(error(1, KIB, 9 * KIB), FileDigestError::Unaligned(..)));
        assert!(matches!(error(0, 100, 9 * KIB), FileDigestError::Unaligned(..)));
        assert!(matches!(error(8 * KIB, 2 * KIB, 9 * KIB), FileDigestError::BeyondEnd(..)));
        assert!(matches!(error(KIB, u64::MAX, 9 * KIB), FileDigestError::BeyondEnd(..)));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        #[test]
        fn the_shape_is_the_papers(chunk_count in 0u64..24, tail in 0u64..=KIB) {
            let file_size = chunk_count * KIB + tail;
            let nodes = if file_size == 0 { vec![] } else { all_subtrees(0, file_size) };
            for offset in 0..=chunk_count {
                for end in (offset..=chunk_count).map(|end| end * KIB).chain([file_size]) {
                    let range = ByteRange::new(offset * KIB, end - offset * KIB);
                    prop_assert_eq!(check_subtree(range, file_size).is_ok(), nodes.contains(&range));
                    let pieces: Vec<ByteRange> = subtree_ranges(range, file_size).unwrap().collect();
                    prop_assert!(pieces.iter().all(|piece| nodes.contains(piece)));
                    prop_assert_eq!(pieces.iter().map(|piece| piece.len).sum::<u64>(), range.len);
                    let can_join = pieces.windows(2).any(|pair| sibling(pair[0], file_size) == Some(pair[1]));
                    prop_assert!(!can_join, "{pieces:?} are not the fewest");
                }
            }
            for &node in &nodes {
                let Some(other) = sibling(node, file_size) else {
                    prop_assert_eq!(node, ByteRange::new(0, file_size));
                    continue;
                };
                let parent = ByteRange::new(node.offset.min(other.offset), node.len + other.len);
                prop_assert!(nodes.contains(&other) && nodes.contains(&parent));
                prop_assert_eq!(sibling(other, file_size), Some(node));
            }
        }
    }
}
