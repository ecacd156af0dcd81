//! A file's runs of bytes on one target each, one after the other.
//!
//! The runs are computed and never held: a file has as many as it has stripes.

use std::collections::HashMap;

use carrack_model::TargetId;
use carrack_plan::Layout;
use serde::Serialize;

use super::{LayoutViewPathKind, PathLayout};

/// A run on one target, between runs on other targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct MergedExtent<'a> {
    pub offset: u64,
    pub length: u64,
    pub target: &'a str,
}

/// Returns the runs of a file, in their order; none for a released file or a directory.
pub fn merged_extents(placement: &PathLayout) -> impl Iterator<Item = MergedExtent<'_>> {
    let labels: HashMap<TargetId, &str> =
        placement.targets.iter().map(|target| (target.id, &*target.label)).collect();
    let extents = match &placement.what {
        LayoutViewPathKind::File { size, is_released: false, layout } => {
            Some(LayoutExtentIterator { layout: &**layout, at: 0, size: *size })
        }
        _ => None,
    };
    extents.into_iter().flatten().map(move |(offset, length, target)| {
        let target = labels.get(&target).copied().unwrap_or("unknown");
        MergedExtent { offset, length, target }
    })
}

struct LayoutExtentIterator<'a> {
    layout: &'a dyn Layout,
    at: u64,
    size: u64,
}

impl Iterator for LayoutExtentIterator<'_> {
    type Item = (u64, u64, TargetId);

    fn next(&mut self) -> Option<(u64, u64, TargetId)> {
        if self.at >= self.size {
            return None;
        }
        let (start, target) = (self.at, self.layout.extent_at(self.at).target);
        while self.at < self.size {
            let extent = self.layout.extent_at(self.at);
            if extent.target != target {
                break;
            }
            self.at = extent.end.min(self.size);
        }
        Some((start, self.at - start, target))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::views::layout::samples;

    #[test]
    fn neighbours_on_one_target_are_one_run() {
        let file = samples::file();
        let found: Vec<_> =
            merged_extents(&file).map(|run| (run.offset >> 20, run.length >> 20, run.target)).collect();
        // The first component lies on target 3; the second has stripe 1 of the file on its second target.
        let expected = [(0, 1, "OST0003"), (1, 1, "OST0001"), (2, 1, "OST0002"), (3, 1, "OST0003")];
        assert_eq!(found[..4], expected);
        assert_eq!(found[4..], [(4, 1, "OST0000")]);
    }

    #[test]
    fn what_is_on_no_target_has_no_runs() {
        for placement in [samples::released(), samples::tree(), samples::directory()] {
            assert_eq!(merged_extents(&placement).count(), 0);
        }
    }

    #[test]
    fn components_that_meet_on_one_target_are_merged() {
        use carrack_plan::{CompositeLayout, StripedLayout};
        let first = StripedLayout::new(vec![TargetId(3)], 10).unwrap();
        let rest = StripedLayout::new(vec![TargetId(2), TargetId(3)], 10).unwrap();
        let layout = CompositeLayout::new(vec![(30, first), (u64::MAX, rest)]).unwrap();
        let runs: Vec<_> = LayoutExtentIterator { layout: &layout, at: 0, size: 55 }.collect();
        assert_eq!(runs, [(0, 40, TargetId(3)), (40, 10, TargetId(2)), (50, 5, TargetId(3))]);
    }
}
