//! On which storage target each byte of a file lies.
//!
//! Owns the seam between storage, which finds layouts, and cutting, which obeys them. Must not ask a file system: a
//! layout is a value. Used from any thread; layouts don't change.

use std::fmt;

use carrack_model::TargetId;

/// One file's run on one target, seen from an offset within it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Where the bytes lie.
    pub target: TargetId,
    /// Offset in the file of the byte after the run (the stripe edge); `u64::MAX` if the target never changes.
    pub end: u64,
}

/// Maps a file's offsets to storage targets (L1).
///
/// Every offset below `u64::MAX` has an extent, whether or not the file is that long, and its end is beyond the
/// offset.
pub trait Layout: Send + Sync + fmt::Debug {
    /// The extent that holds the byte at `offset`.
    fn extent_at(&self, offset: u64) -> Extent;
}

/// A file that lies on one target: a local disk, or a storage system whose inside can't be seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SingleTarget {
    /// The target.
    pub target: TargetId,
}

impl Layout for SingleTarget {
    fn extent_at(&self, _offset: u64) -> Extent {
        Extent { target: self.target, end: u64::MAX }
    }
}

/// A file whose stripes go round several targets (RAID 0), as on the paper's Lustre (L1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Striped {
    targets: Vec<TargetId>,
    stripe_bytes: u64,
}

impl Striped {
    /// Stripes of `stripe_bytes` bytes, the first on the first of `targets`; nothing if either is none.
    pub fn new(targets: Vec<TargetId>, stripe_bytes: u64) -> Option<Striped> {
        (!targets.is_empty() && stripe_bytes > 0).then_some(Striped { targets, stripe_bytes })
    }

    /// The targets in the order of the first stripes.
    pub fn targets(&self) -> &[TargetId] {
        &self.targets
    }

    /// Bytes of one stripe.
    pub fn stripe_bytes(&self) -> u64 {
        self.stripe_bytes
    }
}

impl Layout for Striped {
    /// With one target there are no edges, however small the stripes.
    fn extent_at(&self, offset: u64) -> Extent {
        let stripe_index = offset / self.stripe_bytes;
        let target = self.targets[(stripe_index % self.targets.len() as u64) as usize];
        let end = match self.targets.len() {
            1 => u64::MAX,
            _ => stripe_index.saturating_add(1).saturating_mul(self.stripe_bytes),
        };
        Extent { target, end }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stripes_go_round_the_targets() {
        let layout = Striped::new(vec![TargetId(7), TargetId(8)], 100).unwrap();
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
        assert_eq!(Striped::new(vec![TargetId(7)], 100).unwrap().extent_at(250), whole);
    }

    #[test]
    fn refuses_no_targets_and_no_stripes() {
        assert_eq!(Striped::new(vec![], 100), None);
        assert_eq!(Striped::new(vec![TargetId(7)], 0), None);
    }
}
