//! Sources that become one directory at the sink. Of two entries for one place, the entry of the source named
//! first is copied, and the other one fails.
//!
//! Earlier sources are searched for an entry through their file systems, and only if sources are merged.
//! Patterns don't count: an excluded entry keeps its place. Runs on the scan's threads.

use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::sync::Arc;

use carrack_model::{CopiedDirectoryPaths, DirectorySection, Entry, FailureKind, RelPath};
use carrack_storage::{ExistingEntry, ScanRoot, ScanRootScope, read_existing_entry};

use super::absence_proof::path_beneath_root;
use super::lane::SourceLane;

const DETAIL: &str =
    "a source that was named before has an entry for the same place: only that one is copied";

/// Returns true if two sources may have entries for one place.
pub(super) fn are_merged(roots: &[ScanRoot]) -> bool {
    roots.len() > 1
        && roots.iter().any(|root| matches!(&root.what, ScanRootScope::Tree { sink } if sink.is_root()))
}

impl SourceLane<'_> {
    /// Removes entries from a section whose places an earlier source has. Returns false if no entry of the
    /// directory can be copied.
    pub(super) fn remove_taken_places(&self, section: &mut DirectorySection) -> bool {
        let directory = &*Arc::clone(&section.directory);
        let before = self.source.tree.roots.iter().take(directory.root_index as usize);
        for root in before {
            match &root.what {
                ScanRootScope::Name { sink_directory, sink_name, .. } => {
                    if *sink_directory == directory.sink {
                        self.remove_taken_entries(directory, &mut section.entries, |name| {
                            *name == **sink_name
                        });
                    } else if directory.sink.components().next() == Some(&**sink_name)
                        && sink_directory.is_root()
                    {
                        return self.report_taken_directory(section);
                    }
                }
                ScanRootScope::Tree { .. } => {
                    let Some(path) = path_beneath_root(root, &directory.sink) else { continue };
                    match root.root.enter_directory(&path) {
                        Ok(held) => self.remove_taken_entries(directory, &mut section.entries, |name| {
                            matches!(read_existing_entry(held.as_fd(), name), Ok(Some(_)))
                        }),
                        Err(error) if error.kind() == ErrorKind::NotFound => {}
                        Err(_) if has_non_directory(root, &path) => {
                            return self.report_taken_directory(section);
                        }
                        Err(_) => {}
                    }
                }
            }
        }
        true
    }

    fn remove_taken_entries(
        &self,
        directory: &CopiedDirectoryPaths,
        entries: &mut Vec<Entry>,
        is_taken: impl Fn(&[u8]) -> bool,
    ) {
        entries.retain(|entry| {
            let stays = !is_taken(&entry.name);
            if !stays {
                self.report_place_taken(directory, entry.name_at_source());
            }
            stays
        });
    }

    /// Reports a directory that can't be copied, with its first section.
    fn report_taken_directory(&self, section: &DirectorySection) -> bool {
        if section.metadata.is_some() {
            self.report_place_taken(&section.directory, b"");
        }
        false
    }

    fn report_place_taken(&self, directory: &CopiedDirectoryPaths, name: &[u8]) {
        let root = &self.source.tree.roots[directory.root_index as usize].root;
        self.fail_path(root.full_path(&directory.source, name), FailureKind::InTheWay, DETAIL);
    }
}

/// Returns true if a component of the path exists and is no directory.
fn has_non_directory(root: &ScanRoot, path: &RelPath) -> bool {
    let mut path = path.clone();
    while let Some((above, name)) = path.split_last() {
        if let Ok(held) = root.root.enter_directory(&above) {
            let found = read_existing_entry(held.as_fd(), name);
            return matches!(found, Ok(Some(present)) if !matches!(present, ExistingEntry::Other));
        }
        path = above;
    }
    false
}
