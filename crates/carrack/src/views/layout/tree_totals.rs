//! The sum over all regular files below a directory.
//!
//! Keeps a sum for each target and nothing for each file. The scan's threads ask for the layouts; links are
//! not followed.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::available_parallelism;

use carrack_layout::{FileSystems, MountedFileSystem};
use carrack_model::{DirectorySection, Entry, EntryFailure, EntryKind, FailureKind, RelPath, TargetId};
use carrack_storage::{RootDirectory, ScanRoot, ScanRootScope, ScannedItem, SourceScan};

use super::look::{self, default_geometry};
use super::{LayoutViewPathKind, PathLayout, TargetBytes, TreeLookupFailures};
use crate::views::quantity::count_with_noun;

/// Threads for each core: they mostly wait for metadata servers.
const THREADS_PER_CORE: usize = 2;

/// Most threads: more don't make one metadata server faster.
const THREADS_MAX: usize = 16;

/// Most failures that are kept to be shown; the rest is counted.
const FAILURES_KEPT_MAX: usize = 16;

/// Adds up the files below `root`.
pub(super) fn sum(
    path: &Path,
    root: RootDirectory,
    file_system: &MountedFileSystem,
    file_systems: &FileSystems,
) -> PathLayout {
    let geometry = default_geometry(path, file_system);
    let summer = TreeLayoutSummer { root: Arc::new(root), file_systems, sums: Mutex::default() };
    let scan = SourceScan {
        roots: vec![ScanRoot {
            root: summer.root.clone(),
            what: ScanRootScope::Tree { sink: RelPath::root() },
        }],
        threads: available_parallelism()
            .map_or(1, usize::from)
            .saturating_mul(THREADS_PER_CORE)
            .min(THREADS_MAX),
        destination: None,
        extras: None,
        filter: None,
        record: None,
    };
    scan.run(&|found| {
        summer.add_scanned(found);
        ControlFlow::Continue(())
    });
    let sums = summer.sums.into_inner().unwrap_or_else(PoisonError::into_inner);
    let targets = sums.targets(file_systems);
    let problem = sums.problem();
    let what = LayoutViewPathKind::Tree {
        own_target: file_system.own_target().label.clone(),
        size: sums.size,
        file_count: sums.file_count,
        released_count: sums.released_count,
        failures: sums.failures,
    };
    look::placement(path, file_system, what, look::LayoutTargets { geometry, targets, problem })
}

/// Returns the bytes on a target, with its name.
pub(super) fn target_bytes(file_systems: &FileSystems, id: TargetId, bytes: u64) -> TargetBytes {
    // A target beyond the limit has no number of its own.
    let Some(target) = file_systems.target(id) else {
        return TargetBytes { id, label: "other".into(), server: None, bytes };
    };
    TargetBytes { id, label: target.label, server: target.server.map(|server| server.name), bytes }
}

struct TreeLayoutSummer<'a> {
    root: Arc<RootDirectory>,
    file_systems: &'a FileSystems,
    sums: Mutex<TreeSums>,
}

#[derive(Debug, Default)]
struct TreeSums {
    size: u64,
    file_count: u64,
    released_count: u64,
    bytes: HashMap<TargetId, u64>,
    problem_count: u64,
    first_problem: Option<String>,
    failures: TreeLookupFailures,
}

impl TreeLayoutSummer<'_> {
    fn add_scanned(&self, found: ScannedItem) {
        let sums = match found {
            ScannedItem::Section(section, device) => self.sum_section(&section, device),
            ScannedItem::Failed(failure) => TreeSums::of_failure(failure),
            ScannedItem::Skipped { .. } => return,
        };
        self.sums.lock().unwrap_or_else(PoisonError::into_inner).add(sums);
    }

    fn sum_section(&self, section: &DirectorySection, device: u64) -> TreeSums {
        let files = section.entries.iter().filter(|entry| matches!(entry.kind, EntryKind::Regular { .. }));
        match self.file_system(section, device) {
            Ok(file_system) if file_system.has_layouts() => {
                self.sum_file_layouts(section, files, &file_system)
            }
            Ok(file_system) => {
                let own = file_system.own_target().id;
                files.fold(TreeSums::default(), |mut sums, file| {
                    sums.add_file(file.size());
                    sums.add_target_bytes(own, file.size());
                    sums
                })
            }
            Err(error) => self.vanished_directory_failure(section, &error),
        }
    }

    fn file_system(
        &self,
        section: &DirectorySection,
        device: u64,
    ) -> std::io::Result<Arc<MountedFileSystem>> {
        match self.file_systems.known_file_system(device) {
            Some(known) => Ok(known),
            None => {
                self.file_systems.file_system_of(self.root.open_directory(&section.directory.source)?.as_fd())
            }
        }
    }

    fn sum_file_layouts<'e>(
        &self,
        section: &DirectorySection,
        files: impl Iterator<Item = &'e Entry>,
        file_system: &MountedFileSystem,
    ) -> TreeSums {
        let held = match self.root.open_directory(&section.directory.source) {
            Ok(held) => held,
            Err(error) => return self.vanished_directory_failure(section, &error),
        };
        let own = file_system.own_target().id;
        let mut sums = TreeSums::default();
        for file in files {
            let size = file.size();
            let found = file_system.layout_at(held.as_fd(), &file.name, false, size);
            sums.add_file(size);
            sums.released_count += u64::from(found.is_released);
            if !found.is_released {
                let bytes = found.layout.bytes_per_target(0..size);
                for (&id, bytes) in found.layout.targets().iter().zip(bytes) {
                    // The own target stands in for empty files that have no place yet; that does not make
                    // it a target of the tree.
                    if bytes > 0 || id != own {
                        sums.add_target_bytes(id, bytes);
                    }
                }
            }
            if let Some(problem) = found.problem {
                sums.problem_count += 1;
                sums.first_problem.get_or_insert(problem);
            }
        }
        sums
    }

    /// Returns the failure of a directory that vanished after the scan had listed it.
    fn vanished_directory_failure(&self, section: &DirectorySection, error: &std::io::Error) -> TreeSums {
        let path = self.root.full_path(&section.directory.source, b"");
        TreeSums::of_failure(EntryFailure { path, kind: FailureKind::Missing, detail: error.to_string() })
    }
}

impl TreeSums {
    fn of_failure(failure: EntryFailure) -> TreeSums {
        TreeSums { failures: TreeLookupFailures { first: vec![failure], count: 1 }, ..TreeSums::default() }
    }

    fn add_file(&mut self, size: u64) {
        self.file_count += 1;
        self.size = self.size.saturating_add(size);
    }

    fn add_target_bytes(&mut self, target: TargetId, bytes: u64) {
        let sum = self.bytes.entry(target).or_default();
        *sum = sum.saturating_add(bytes);
    }

    fn add(&mut self, other: TreeSums) {
        self.size = self.size.saturating_add(other.size);
        self.file_count += other.file_count;
        self.released_count += other.released_count;
        other.bytes.into_iter().for_each(|(target, bytes)| self.add_target_bytes(target, bytes));
        self.problem_count += other.problem_count;
        self.first_problem = self.first_problem.take().or(other.first_problem);
        self.failures.count += other.failures.count;
        let free = FAILURES_KEPT_MAX - self.failures.first.len();
        self.failures.first.extend(other.failures.first.into_iter().take(free));
    }

    /// Returns the targets by name, numbers in names by their value: osd.2 before osd.10.
    fn targets(&self, file_systems: &FileSystems) -> Vec<TargetBytes> {
        let targets = self.bytes.iter().map(|(id, bytes)| target_bytes(file_systems, *id, *bytes));
        let mut targets: Vec<TargetBytes> = targets.collect();
        targets.sort_by(|a, b| (a.label.len(), &a.label, a.id).cmp(&(b.label.len(), &b.label, b.id)));
        targets
    }

    fn problem(&self) -> Option<String> {
        let first = self.first_problem.as_ref()?;
        let files = count_with_noun(self.problem_count, "file", "files");
        Some(format!("{files}, such as one with: {first}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_some_failures_are_kept_and_all_are_counted() {
        let mut sums = TreeSums::default();
        for index in 0..100u8 {
            let path = [index].into();
            sums.add(TreeSums::of_failure(EntryFailure {
                path,
                kind: FailureKind::Missing,
                detail: String::new(),
            }));
        }
        assert_eq!((sums.failures.count, sums.failures.first.len()), (100, FAILURES_KEPT_MAX));
        assert_eq!(*sums.failures.first[1].path, [1]);
    }

    #[test]
    fn sections_add_up() {
        let mut sums = TreeSums::default();
        for (target, bytes) in [(1, 10), (2, 5), (1, u64::MAX)] {
            let mut section = TreeSums::default();
            section.add_file(bytes);
            section.add_target_bytes(TargetId(target), bytes);
            section.problem_count = 1;
            section.first_problem = Some(format!("of {bytes}"));
            sums.add(section);
        }
        assert_eq!((sums.file_count, sums.size), (3, u64::MAX));
        assert_eq!((sums.bytes[&TargetId(1)], sums.bytes[&TargetId(2)]), (u64::MAX, 5));
        assert_eq!(sums.problem().as_deref(), Some("3 files, such as one with: of 10"));
        let names: Vec<_> =
            sums.targets(&FileSystems::new(&[]).unwrap()).into_iter().map(|t| t.id.0).collect();
        assert_eq!(names, [1, 2]);
    }
}
