//! The storage target of each byte of a file.
//!
//! Owns the seam between storage, which finds layouts, and cutting, which obeys them. Must not ask a file
//! system: a layout is a value. Used from any thread; layouts don't change.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::ops::Range;

use carrack_model::TargetId;

/// The run of a file on one target that an offset lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Storage target of the bytes.
    pub target: TargetId,
    /// Offset in the file of the byte after the run (the stripe edge); `u64::MAX` if the target never
    /// changes.
    pub end: u64,
}

/// Maps a file's offsets to storage targets (L1).
///
/// Every offset below `u64::MAX` has an extent, whether or not the file is that long, and its end is beyond
/// the offset.
pub trait Layout: Send + Sync + fmt::Debug {
    /// The extent that holds the byte at `offset`.
    fn extent_at(&self, offset: u64) -> Extent;

    /// Every target that extents lie on, each once.
    fn targets(&self) -> &[TargetId];

    /// Returns the first byte on `target` at or after `offset` and before `end`; `None` without one.
    fn next_offset_on(&self, target: TargetId, offset: u64, end: u64) -> Option<u64> {
        let mut at = offset;
        while at < end {
            let extent = self.extent_at(at);
            if extent.target == target {
                return Some(at);
            }
            at = extent.end;
        }
        None
    }

    /// Returns the bytes of `range` on each target, in the order of [`Layout::targets`].
    ///
    /// This walks over all extents; periodic layouts override it with a computation that takes no longer for
    /// large files.
    fn bytes_per_target(&self, range: Range<u64>) -> Vec<u64> {
        let index_of = index_of(self.targets());
        let mut bytes = vec![0; self.targets().len()];
        let mut at = range.start;
        while at < range.end {
            let extent = self.extent_at(at);
            let end = extent.end.min(range.end);
            if let Some(&index) = index_of.get(&extent.target) {
                bytes[index] += end - at;
            }
            at = end;
        }
        bytes
    }
}

/// A file that lies on one target: a local disk, or a storage system without a visible layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SingleTarget {
    /// The target.
    pub target: TargetId,
}

impl Layout for SingleTarget {
    fn extent_at(&self, _offset: u64) -> Extent {
        Extent { target: self.target, end: u64::MAX }
    }

    fn targets(&self) -> &[TargetId] {
        std::slice::from_ref(&self.target)
    }

    fn bytes_per_target(&self, range: Range<u64>) -> Vec<u64> {
        vec![length_of(&range)]
    }
}

/// A file whose stripes go round several targets (RAID 0), as on the paper's Lustre (L1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StripedLayout {
    /// The target of each stripe of a round; a target may come twice (overstriping).
    round: Vec<TargetId>,
    targets: Vec<TargetId>,
    stripe_bytes: u64,
}

impl StripedLayout {
    /// Creates stripes of `stripe_bytes` bytes, the first on the first of `round`, which repeats; `None` if
    /// either is empty.
    pub fn new(round: Vec<TargetId>, stripe_bytes: u64) -> Option<StripedLayout> {
        let targets = unique_targets(&round);
        (!round.is_empty() && stripe_bytes > 0).then_some(StripedLayout { round, targets, stripe_bytes })
    }

    /// Returns the targets in the order of the first stripes.
    pub fn round(&self) -> &[TargetId] {
        &self.round
    }

    /// Returns the bytes of one stripe.
    pub fn stripe_bytes(&self) -> u64 {
        self.stripe_bytes
    }

    /// Returns the bytes before `offset` at each index of the round.
    fn bytes_before(&self, offset: u64) -> impl Iterator<Item = u64> {
        let (stripes, rest) = (offset / self.stripe_bytes, offset % self.stripe_bytes);
        let (rounds, last) = (stripes / self.round.len() as u64, stripes % self.round.len() as u64);
        // No sum is above `offset`.
        (0..self.round.len() as u64).map(move |place| match place {
            _ if place < last => (rounds + 1) * self.stripe_bytes,
            _ if place == last => rounds * self.stripe_bytes + rest,
            _ => rounds * self.stripe_bytes,
        })
    }
}

impl Layout for StripedLayout {
    /// One target has no edges, however small the stripes.
    fn extent_at(&self, offset: u64) -> Extent {
        let stripe_index = offset / self.stripe_bytes;
        let target = self.round[(stripe_index % self.round.len() as u64) as usize];
        let end = match self.targets.len() {
            1 => u64::MAX,
            _ => stripe_index.saturating_add(1).saturating_mul(self.stripe_bytes),
        };
        Extent { target, end }
    }

    fn targets(&self) -> &[TargetId] {
        &self.targets
    }

    /// Whole rounds are counted, not walked.
    fn bytes_per_target(&self, range: Range<u64>) -> Vec<u64> {
        let index_of = index_of(&self.targets);
        let mut bytes = vec![0; self.targets.len()];
        let before = self.bytes_before(range.start.min(range.end));
        let places = self.round.iter().zip(before.zip(self.bytes_before(range.end)));
        for (target, (start, end)) in places {
            bytes[index_of[target]] += end - start;
        }
        bytes
    }
}

/// A file made of ranges that are laid out differently, each like a file of its own (Lustre's PFL, FLR, DoM).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompositeLayout {
    /// Each with its end offset; the last end is `u64::MAX`.
    components: Vec<(u64, StripedLayout)>,
    targets: Vec<TargetId>,
}

impl CompositeLayout {
    /// Creates a layout from the components with their end offsets, which rise; the last component extends to
    /// `u64::MAX`. Returns `None` without components or if the ends don't rise.
    ///
    /// Stripes are counted from the file's start, not the component's, as Lustre does.
    pub fn new(mut components: Vec<(u64, StripedLayout)>) -> Option<CompositeLayout> {
        components.last_mut()?.0 = u64::MAX;
        if !components.is_sorted_by(|before, after| before.0 < after.0) || components[0].0 == 0 {
            return None;
        }
        let all: Vec<_> = components.iter().flat_map(|(_, striped)| striped.targets()).copied().collect();
        Some(CompositeLayout { targets: unique_targets(&all), components })
    }
}

impl Layout for CompositeLayout {
    fn extent_at(&self, offset: u64) -> Extent {
        let index = self.components.partition_point(|(end, _)| *end <= offset);
        let (end, striped) = &self.components[index.min(self.components.len() - 1)];
        let extent = striped.extent_at(offset);
        Extent { end: extent.end.min(*end), ..extent }
    }

    fn targets(&self) -> &[TargetId] {
        &self.targets
    }

    /// Each component counts its rounds.
    fn bytes_per_target(&self, range: Range<u64>) -> Vec<u64> {
        let index_of = index_of(&self.targets);
        let mut bytes = vec![0; self.targets.len()];
        let mut start = range.start;
        for (end, striped) in &self.components {
            let end = range.end.min(*end);
            if start < end {
                let own = striped.bytes_per_target(start..end);
                let sums = striped.targets.iter().zip(own);
                sums.for_each(|(target, count)| bytes[index_of[target]] += count);
                start = end;
            }
        }
        bytes
    }
}

/// A file of equal blocks with a table of their targets: CephFS objects, GPFS blocks, Gluster shards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockMapLayout {
    block_bytes: u64,
    /// For each block an index in `targets`.
    places: Box<[u16]>,
    targets: Vec<TargetId>,
}

impl BlockMapLayout {
    /// Creates a layout from the target of each block, from the file's start. Blocks beyond them are assumed
    /// to repeat the first ones: wrong for each block, but spread over the same targets. Returns `None` if
    /// there are no blocks, their size is 0, or there are more than 65,536 targets.
    pub fn new(blocks: &[TargetId], block_bytes: u64) -> Option<BlockMapLayout> {
        let targets = unique_targets(blocks);
        let index_of: HashMap<_, _> = targets.iter().zip(0u16..=u16::MAX).collect();
        let places = blocks.iter().map(|target| index_of.get(target).copied()).collect::<Option<Box<_>>>()?;
        (!places.is_empty() && block_bytes > 0).then_some(BlockMapLayout { block_bytes, places, targets })
    }

    fn target_index(&self, block: u64) -> u16 {
        self.places[(block % self.places.len() as u64) as usize]
    }

    /// Returns the number of whole blocks before `block` on each target.
    fn blocks_before(&self, block: u64) -> Vec<u64> {
        let (rounds, rest) = (block / self.places.len() as u64, block % self.places.len() as u64);
        let mut blocks = vec![0; self.targets.len()];
        for (index, place) in (0..).zip(&self.places) {
            blocks[usize::from(*place)] += rounds + u64::from(index < rest);
        }
        blocks
    }

    fn bytes_before(&self, offset: u64) -> Vec<u64> {
        let (block, rest) = (offset / self.block_bytes, offset % self.block_bytes);
        let mut bytes = self.blocks_before(block);
        bytes.iter_mut().for_each(|count| *count *= self.block_bytes);
        bytes[usize::from(self.target_index(block))] += rest;
        bytes
    }
}

impl Layout for BlockMapLayout {
    /// Neighbouring blocks on one target are one extent, up to the end of the map.
    fn extent_at(&self, offset: u64) -> Extent {
        let block = offset / self.block_bytes;
        let place = self.target_index(block);
        let target = self.targets[usize::from(place)];
        if self.targets.len() == 1 {
            return Extent { target, end: u64::MAX };
        }
        let round_end = (block / self.places.len() as u64 + 1).saturating_mul(self.places.len() as u64);
        let next = (block + 1..round_end).find(|&next| self.target_index(next) != place).unwrap_or(round_end);
        Extent { target, end: next.saturating_mul(self.block_bytes) }
    }

    fn targets(&self) -> &[TargetId] {
        &self.targets
    }

    /// The map is read twice, however long the file is.
    fn bytes_per_target(&self, range: Range<u64>) -> Vec<u64> {
        let start = self.bytes_before(range.start.min(range.end));
        let end = self.bytes_before(range.end);
        end.iter().zip(start).map(|(end, start)| end - start).collect()
    }
}

fn length_of(range: &Range<u64>) -> u64 {
    range.end.saturating_sub(range.start)
}

fn index_of(targets: &[TargetId]) -> HashMap<TargetId, usize> {
    targets.iter().copied().zip(0..).collect()
}

fn unique_targets(targets: &[TargetId]) -> Vec<TargetId> {
    let mut seen = HashSet::new();
    targets.iter().copied().filter(|&target| seen.insert(target)).collect()
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// Uses the default walk only.
    #[derive(Debug)]
    struct TestDefaultWalkLayout<'a>(&'a dyn Layout);

    impl Layout for TestDefaultWalkLayout<'_> {
        fn extent_at(&self, offset: u64) -> Extent {
            self.0.extent_at(offset)
        }

        fn targets(&self) -> &[TargetId] {
            self.0.targets()
        }
    }

    fn striped() -> impl Strategy<Value = StripedLayout> {
        (vec((0..6u64).prop_map(TargetId), 1..9), 1..50u64)
            .prop_map(|(round, stripe_bytes)| StripedLayout::new(round, stripe_bytes).unwrap())
    }

    fn any_layout() -> impl Strategy<Value = Box<dyn Layout>> {
        fn boxed(layout: impl Layout + 'static) -> Box<dyn Layout> {
            Box::new(layout)
        }
        let composite = vec((1..400u64, striped()), 1..5).prop_map(|parts| {
            let mut end = 0;
            let parts = parts.into_iter().map(|(bytes, striped)| {
                end += bytes;
                (end, striped)
            });
            boxed(CompositeLayout::new(parts.collect()).unwrap())
        });
        let mapped = (vec((0..6u64).prop_map(TargetId), 1..20), 1..50u64)
            .prop_map(|(blocks, block_bytes)| boxed(BlockMapLayout::new(&blocks, block_bytes).unwrap()));
        let single = Just(()).prop_map(|()| boxed(SingleTarget { target: TargetId(3) }));
        prop_oneof![single, striped().prop_map(boxed), composite, mapped]
    }

    proptest! {
        #[test]
        fn bytes_are_counted_as_the_walk_counts_them(
            layout in any_layout(),
            start in 0..2_000u64,
            end in 0..3_000u64,
        ) {
            let bytes = layout.bytes_per_target(start..end);
            prop_assert_eq!(&bytes, &TestDefaultWalkLayout(&*layout).bytes_per_target(start..end));
            prop_assert_eq!(bytes.iter().sum::<u64>(), end.saturating_sub(start));
        }

        #[test]
        fn no_file_is_too_long_to_count(layout in any_layout(), end in u64::MAX - 1_000..=u64::MAX) {
            let sum: u128 = layout.bytes_per_target(0..end).into_iter().map(u128::from).sum();
            prop_assert_eq!(sum, u128::from(end));
        }
    }

    #[test]
    fn stripes_go_round_the_targets() {
        let layout = StripedLayout::new(vec![TargetId(7), TargetId(8)], 100).unwrap();
        for (offset, target, end) in [(0, 7, 100), (99, 7, 100), (100, 8, 200), (200, 7, 300), (399, 8, 400)]
        {
            assert_eq!(layout.extent_at(offset), Extent { target: TargetId(target), end });
        }
        assert_eq!(layout.extent_at(u64::MAX - 1).end, u64::MAX);
    }

    #[test]
    fn one_target_has_no_edges() {
        let whole = Extent { target: TargetId(7), end: u64::MAX };
        assert_eq!(SingleTarget { target: TargetId(7) }.extent_at(5), whole);
        assert_eq!(StripedLayout::new(vec![TargetId(7)], 100).unwrap().extent_at(250), whole);
    }

    #[test]
    fn a_target_twice_in_a_round_is_one_target() {
        let layout = StripedLayout::new(vec![TargetId(7), TargetId(8), TargetId(7)], 10).unwrap();
        assert_eq!((layout.targets(), layout.round().len()), (&[TargetId(7), TargetId(8)][..], 3));
        assert_eq!(layout.extent_at(25).target, TargetId(7));
        assert_eq!(layout.next_offset_on(TargetId(8), 20, 100), Some(40));
        assert_eq!(layout.next_offset_on(TargetId(8), 20, 40), None);
        assert_eq!(layout.next_offset_on(TargetId(9), 0, 100), None);
    }

    #[test]
    fn components_end_extents_and_keep_the_files_stripe_count() {
        let first = StripedLayout::new(vec![TargetId(1)], 10).unwrap();
        let rest = StripedLayout::new(vec![TargetId(2), TargetId(3)], 100).unwrap();
        let layout = CompositeLayout::new(vec![(150, first), (160, rest)]).unwrap();
        for (offset, target, end) in
            [(0, 1, 150), (149, 1, 150), (150, 3, 200), (200, 2, 300), (1_000, 2, 1_100)]
        {
            assert_eq!(layout.extent_at(offset), Extent { target: TargetId(target), end });
        }
        assert_eq!(layout.targets(), [TargetId(1), TargetId(2), TargetId(3)]);
        let one = StripedLayout::new(vec![TargetId(1)], 10).unwrap();
        assert_eq!(CompositeLayout::new(vec![(10, one.clone()), (10, one.clone()), (20, one.clone())]), None);
        assert_eq!(CompositeLayout::new(vec![(0, one.clone()), (10, one)]), None);
        assert_eq!(CompositeLayout::new(vec![]), None);
    }

    #[test]
    fn a_map_merges_neighbours_and_repeats_beyond_its_end() {
        let blocks = [4, 4, 5, 4].map(TargetId);
        let layout = BlockMapLayout::new(&blocks, 10).unwrap();
        for (offset, target, end) in
            [(0, 4, 20), (15, 4, 20), (20, 5, 30), (30, 4, 40), (40, 4, 60), (65, 5, 70)]
        {
            assert_eq!(layout.extent_at(offset), Extent { target: TargetId(target), end });
        }
        assert_eq!(BlockMapLayout::new(&[], 10), None);
        assert_eq!(BlockMapLayout::new(&blocks, 0), None);
        assert_eq!(BlockMapLayout::new(&blocks[..2], 10).unwrap().extent_at(3).end, u64::MAX);
    }

    #[test]
    fn refuses_no_targets_and_no_stripes() {
        assert_eq!(StripedLayout::new(vec![], 100), None);
        assert_eq!(StripedLayout::new(vec![TargetId(7)], 0), None);
    }
}
