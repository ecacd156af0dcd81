//! The files that are open for parts of them: a chunk that has a part of an open file does not open it again.
//!
//! Opening, looking at and closing a file takes longer than reading a chunk of 1 MiB from storage with a long
//! service time (`docs/design/fleet-planning.md`). A file closes with its last chunk in work, so that no more
//! descriptors are open than chunks are in work.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use carrack_model::{CopiedDirectoryPaths, Entry};
use carrack_storage::SourceFile;

/// The open files with parts in work.
#[derive(Default)]
pub(super) struct OpenPartFiles(Mutex<Vec<OpenPartFile>>);

struct OpenPartFile {
    directory: Arc<CopiedDirectoryPaths>,
    name: Box<[u8]>,
    file: Weak<SourceFile>,
}

impl OpenPartFile {
    fn is_of(&self, directory: &CopiedDirectoryPaths, entry: &Entry) -> bool {
        self.name == entry.name && *self.directory == *directory
    }
}

impl OpenPartFiles {
    fn files(&self) -> MutexGuard<'_, Vec<OpenPartFile>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the open file of an entry.
    pub(super) fn find(&self, directory: &CopiedDirectoryPaths, entry: &Entry) -> Option<Arc<SourceFile>> {
        self.files().iter().find(|open| open.is_of(directory, entry))?.file.upgrade()
    }

    /// Notes a file that was opened for a part of it, in place of one that was opened before.
    pub(super) fn add(&self, directory: &Arc<CopiedDirectoryPaths>, entry: &Entry, file: &Arc<SourceFile>) {
        let mut files = self.files();
        files.retain(|open| open.file.strong_count() > 0 && !open.is_of(directory, entry));
        files.push(OpenPartFile {
            directory: Arc::clone(directory),
            name: entry.name.clone(),
            file: Arc::downgrade(file),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::super::test_files::{directory, entry, source_file};
    use super::*;

    #[test]
    fn a_file_is_found_by_its_whole_path_while_a_part_of_it_is_in_work() {
        let files = OpenPartFiles::default();
        let file = source_file();
        files.add(&directory("d"), &entry("f", 7), &file);
        assert!(Arc::ptr_eq(&files.find(&directory("d"), &entry("f", 7)).unwrap(), &file));
        assert!(files.find(&directory("d"), &entry("g", 7)).is_none());
        assert!(files.find(&directory("e"), &entry("f", 7)).is_none());
        drop(file);
        assert!(files.find(&directory("d"), &entry("f", 7)).is_none());
    }

    #[test]
    fn the_last_one_opened_is_found_and_closed_ones_are_forgotten() {
        let files = OpenPartFiles::default();
        let (first, second) = (source_file(), source_file());
        files.add(&directory("d"), &entry("f", 7), &first);
        files.add(&directory("d"), &entry("f", 7), &second);
        assert!(Arc::ptr_eq(&files.find(&directory("d"), &entry("f", 7)).unwrap(), &second));
        assert_eq!(files.files().len(), 1);
        drop(second);
        files.add(&directory("d"), &entry("g", 7), &first);
        assert_eq!(files.files().len(), 1);
    }
}
