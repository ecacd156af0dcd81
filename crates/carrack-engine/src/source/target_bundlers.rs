//! The bundles that are being filled, one for each target (M7): a bundle has files of one target.
//!
//! The caller holds a lock, or owns it.

use std::collections::HashMap;

use carrack_model::limits::BUNDLE_ENTRIES_MAX;
use carrack_model::{DirectorySection, TargetId};
use carrack_plan::{Bundle, BundleLimits, BundleOrLargeFile, Bundler};

/// Objects' worth of files and entries that wait in unfinished bundles, while readers have work for a while:
/// with many targets more would be memory, and a scan that is far ahead of what it has queued.
const HELD_OBJECTS_MAX: u64 = 32;

/// The same while readers may run out of work: bundles go out before they are full.
const HELD_OBJECTS_HUNGRY: u64 = 4;

/// The unfinished bundles of all targets.
#[derive(Default)]
pub(super) struct TargetBundlers {
    bundlers: HashMap<TargetId, Bundler>,
}

impl TargetBundlers {
    /// Adds a section whose small files lie on `target`. Returns the finished work: large files, and bundles
    /// with their targets. `is_hungry` says that readers may run out of work.
    pub(super) fn add(
        &mut self,
        target: TargetId,
        section: DirectorySection,
        limits: BundleLimits,
        is_hungry: bool,
    ) -> Vec<(TargetId, BundleOrLargeFile)> {
        let mut work = Vec::new();
        self.bundlers.entry(target).or_insert_with(|| Bundler::new(limits)).add(section, &mut work);
        let mut work: Vec<_> = work.into_iter().map(|work| (target, work)).collect();
        let held_objects_max = if is_hungry { HELD_OBJECTS_HUNGRY } else { HELD_OBJECTS_MAX };
        while self.bundlers.len() > 1 && self.held_objects(limits) > held_objects_max {
            work.extend(self.finish_fullest());
        }
        work
    }

    /// Finishes all bundles.
    pub(super) fn finish(&mut self) -> Vec<(TargetId, Bundle)> {
        let bundlers = self.bundlers.iter_mut();
        bundlers.filter_map(|(target, bundler)| Some((*target, bundler.finish()?))).collect()
    }

    /// Objects that the unfinished bundles would fill together, by their bytes or their entries.
    fn held_objects(&self, limits: BundleLimits) -> u64 {
        let (mut bytes, mut entries) = (0, 0);
        for bundler in self.bundlers.values() {
            bytes += bundler.held_bytes();
            entries += bundler.held_entries();
        }
        (bytes / limits.object_bytes).max((entries / BUNDLE_ENTRIES_MAX) as u64)
    }

    fn finish_fullest(&mut self) -> Option<(TargetId, BundleOrLargeFile)> {
        let fullest = |bundler: &Bundler| (bundler.held_bytes(), bundler.held_entries());
        let (target, bundler) = self.bundlers.iter_mut().max_by_key(|(_, bundler)| fullest(bundler))?;
        Some((*target, BundleOrLargeFile::Bundle(bundler.finish()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::super::test_files::{directory, entry};
    use super::*;

    const LIMITS: BundleLimits =
        BundleLimits { object_bytes: 1 << 20, slot_bytes: 1 << 20, entries_max: BUNDLE_ENTRIES_MAX };

    fn section(count: usize, size: u64) -> DirectorySection {
        let entries = (0..count).map(|number| entry(&number.to_string(), size)).collect();
        DirectorySection { directory: directory("d"), metadata: None, extras: None, entries }
    }

    /// Adds 64 files to each of 100 targets in turn; returns the sizes of the bundles that came out early.
    fn early_bundles(size: u64, is_hungry: bool) -> Vec<usize> {
        let mut bundlers = TargetBundlers::default();
        let mut early = Vec::new();
        for target in 1..=100 {
            let work = bundlers.add(TargetId(target), section(64, size), LIMITS, is_hungry);
            early.extend(work.into_iter().map(|(_, work)| match work {
                BundleOrLargeFile::Bundle(bundle) => bundle.entry_count,
                BundleOrLargeFile::Large { .. } => panic!("all files are small"),
            }));
            let held = bundlers.held_objects(LIMITS);
            assert!(held <= HELD_OBJECTS_MAX, "{held} objects are held");
        }
        let rest: usize = bundlers.finish().iter().map(|(_, bundle)| bundle.entry_count).sum();
        assert_eq!(early.iter().sum::<usize>() + rest, 6_400, "no entry is lost");
        early
    }

    #[test]
    fn unfinished_bundles_are_bounded_and_go_out_sooner_where_work_is_short() {
        assert_eq!(early_bundles(10, false), [0; 0], "12 bundles' worth of entries");
        let hungry = early_bundles(10, true);
        assert!(hungry.len() > 50 && hungry.iter().all(|&count| count == 64), "{hungry:?}");
        let by_bytes = early_bundles(12_000, false);
        assert!(by_bytes.len() > 40, "73 objects' worth of bytes: {}", by_bytes.len());
    }
}
