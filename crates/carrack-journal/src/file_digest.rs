//! A file's BLAKE3 digest, assembled from its objects' subtrees in any order.
//!
//! Owns the subtrees of one unfinished file. Must not see payload: objects are hashed where they are read,
//! with [`crate::subtrees`], and are not read again. One thread at a time.

use std::collections::BTreeMap;

use carrack_model::ByteRange;

use crate::hash_subtree::{Blake3Subtree, FileDigestError, check_subtree, merge, sibling};

/// Collects a file's subtrees and joins two siblings as soon as both are present.
///
/// Holds a logarithmic number of subtrees for each run of bytes that has arrived: memory follows the number
/// of gaps, which the objects in flight bound, and not the file's size.
#[derive(Clone, Debug)]
pub struct FileDigestBuilder {
    file_size: u64,
    /// By offset; disjoint, and no two of them siblings.
    subtrees: BTreeMap<u64, Blake3Subtree>,
}

impl FileDigestBuilder {
    /// A digest of a file of `file_size` bytes, without subtrees.
    pub fn new(file_size: u64) -> FileDigestBuilder {
        FileDigestBuilder { file_size, subtrees: BTreeMap::new() }
    }

    /// Adds a subtree, in any order.
    ///
    /// # Errors
    /// [`FileDigestError::BeyondEnd`], [`FileDigestError::NotASubtree`], [`FileDigestError::Overlap`]; the
    /// digest is unchanged then.
    pub fn add(&mut self, subtree: Blake3Subtree) -> Result<(), FileDigestError> {
        let end = check_subtree(subtree.range, self.file_size)?;
        if self.overlaps(subtree.range.offset, end) {
            return Err(FileDigestError::Overlap(subtree.range));
        }
        let joined = self.join_siblings(subtree);
        self.subtrees.insert(joined.range.offset, joined);
        Ok(())
    }

    /// Number of subtrees after joining.
    pub(crate) fn len(&self) -> usize {
        self.subtrees.len()
    }

    /// The subtrees after joining, by offset.
    pub fn subtrees(&self) -> impl Iterator<Item = Blake3Subtree> {
        self.subtrees.values().copied()
    }

    /// The digest, equal to [`blake3::hash`] of the contents and to the output of `b3sum`. An empty file
    /// needs no subtrees.
    ///
    /// # Errors
    /// [`FileDigestError::Incomplete`] if bytes are missing.
    pub fn finish(self) -> Result<[u8; 32], FileDigestError> {
        if self.file_size == 0 {
            return Ok(*blake3::hash(b"").as_bytes());
        }
        let whole = self.root_subtree().ok_or(FileDigestError::Incomplete(self.file_size))?;
        Ok(whole.value)
    }

    fn root_subtree(&self) -> Option<Blake3Subtree> {
        self.subtrees.get(&0).copied().filter(|first| first.range.len == self.file_size)
    }

    fn overlaps(&self, offset: u64, end: u64) -> bool {
        let before = self.subtrees.range(..end).next_back();
        before.is_some_and(|(_, subtree)| subtree.range.offset + subtree.range.len > offset)
    }

    /// Joins `subtree` with its sibling, the result with its own sibling, and so on.
    fn join_siblings(&mut self, mut subtree: Blake3Subtree) -> Blake3Subtree {
        while let Some(other) = self.take_sibling(subtree.range) {
            subtree = if other.range < subtree.range {
                merge(other, subtree, self.file_size)
            } else {
                merge(subtree, other, self.file_size)
            };
        }
        subtree
    }

    fn take_sibling(&mut self, range: ByteRange) -> Option<Blake3Subtree> {
        let wanted = sibling(range, self.file_size)?;
        self.subtrees.get(&wanted.offset).filter(|held| held.range == wanted)?;
        self.subtrees.remove(&wanted.offset)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{CHUNK_BYTES, hash_subtrees};

    fn contents(size: usize) -> Vec<u8> {
        (0..size as u64).map(|index| (index.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
    }

    /// The subtrees of each object of a file in objects of `object_bytes`.
    fn objects(data: &[u8], object_bytes: usize) -> Vec<Vec<Blake3Subtree>> {
        let offsets = (0u64..).step_by(object_bytes);
        let pieces = offsets.zip(data.chunks(object_bytes));
        pieces
            .map(|(offset, piece)| hash_subtrees(offset, piece, data.len() as u64).unwrap().collect())
            .collect()
    }

    fn digest(
        file_size: usize,
        subtrees: impl IntoIterator<Item = Blake3Subtree>,
    ) -> Result<[u8; 32], FileDigestError> {
        let mut digest = FileDigestBuilder::new(file_size as u64);
        subtrees.into_iter().try_for_each(|subtree| digest.add(subtree))?;
        digest.finish()
    }

    #[test]
    fn sizes_around_every_edge() {
        let data = contents(70_000);
        let edges = [0usize, 1_024, 2_048, 3_072, 4_096, 8_192, 16_384, 65_536];
        for size in edges.into_iter().flat_map(|edge| [edge.saturating_sub(1), edge, edge + 1]) {
            for object_bytes in [1_024, 3_072, 4_096, 65_536] {
                let data = &data[..size];
                let reversed = objects(data, object_bytes).into_iter().flatten().rev();
                assert_eq!(
                    digest(size, reversed),
                    Ok(*blake3::hash(data).as_bytes()),
                    "{size}/{object_bytes}"
                );
            }
        }
    }

    #[test]
    fn in_order_a_file_needs_a_logarithm_of_memory() {
        let chunk_count = 5_000u64;
        let file_size = chunk_count * CHUNK_BYTES;
        let mut digest = FileDigestBuilder::new(file_size);
        for chunk in 0..chunk_count {
            let range = ByteRange::new(chunk * CHUNK_BYTES, CHUNK_BYTES);
            digest.add(Blake3Subtree { range, value: [0; 32] }).unwrap();
            assert!(digest.subtrees.len() <= 13, "{} subtrees", digest.subtrees.len());
        }
        assert_eq!(digest.subtrees.len(), 1);
    }

    #[test]
    fn refuses_what_was_added_before() {
        let data = contents(8_192);
        let mut digest = FileDigestBuilder::new(8_192);
        let all: Vec<Blake3Subtree> = objects(&data, 2_048).concat();
        (0..3).for_each(|index| digest.add(all[index]).unwrap());
        assert_eq!(digest.add(all[0]), Err(FileDigestError::Overlap(all[0].range)), "joined since");
        assert_eq!(digest.add(all[2]), Err(FileDigestError::Overlap(all[2].range)));
        let wider = Blake3Subtree { range: ByteRange::new(4_096, 4_096), value: [0; 32] };
        assert_eq!(digest.add(wider), Err(FileDigestError::Overlap(wider.range)));
        digest.add(all[3]).unwrap();
        assert_eq!(digest.finish(), Ok(*blake3::hash(&data).as_bytes()));
    }

    #[test]
    fn refuses_ranges_that_are_no_subtrees() {
        let mut digest = FileDigestBuilder::new(10_000);
        for (offset, len) in [(0, 0), (0, 3_072), (1_024, 2_048), (1, 1_024), (8_192, 904), (4_096, 5_904)] {
            let range = ByteRange::new(offset, len);
            assert_eq!(
                digest.add(Blake3Subtree { range, value: [0; 32] }),
                Err(FileDigestError::NotASubtree(range, 10_000))
            );
        }
        let range = ByteRange::new(8_192, 2_048);
        assert_eq!(
            digest.add(Blake3Subtree { range, value: [0; 32] }),
            Err(FileDigestError::BeyondEnd(range, 10_000))
        );
        assert_eq!(digest.finish(), Err(FileDigestError::Incomplete(10_000)));
    }

    fn object_bytes() -> impl Strategy<Value = usize> {
        prop_oneof![
            (0u32..9).prop_map(|bits| 1_024usize << bits),
            Just(3 << 10),
            Just(192 << 10),
            (1usize..200).prop_map(|chunks| chunks << 10),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(96))]

        #[test]
        fn equals_the_hash_of_the_contents_in_any_order(
            size in prop_oneof![0usize..5_000, 0usize..600_000],
            object_bytes in object_bytes(),
            lost in any::<prop::sample::Index>(),
            shuffle_seed in any::<u64>(),
        ) {
            let data = contents(size);
            let mut objects = objects(&data, object_bytes);
            if object_bytes.is_power_of_two() {
                prop_assert!(objects.iter().all(|subtrees| subtrees.len() == 1));
            }
            objects.sort_by_key(|subtrees| {
                let offset = subtrees[0].range.offset;
                (offset ^ shuffle_seed).wrapping_mul(0x9e37_79b9_7f4a_7c15)
            });
            let expected = *blake3::hash(&data).as_bytes();
            prop_assert_eq!(digest(size, objects.concat()), Ok(expected));

            if size > 0 {
                objects.remove(lost.index(objects.len()));
                prop_assert_eq!(digest(size, objects.concat()), Err(FileDigestError::Incomplete(size as u64)));
            }
        }
    }
}
