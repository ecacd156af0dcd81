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
    use std::fs::File;
    use std::os::fd::AsFd;

    use carrack_model::{EntryKind, Metadata, RelPath, SourceReadMethod, Timestamp};

    use super::*;

    fn directory(name: &str) -> Arc<CopiedDirectoryPaths> {
        let path = RelPath::new(name.as_bytes()).unwrap();
        Arc::new(CopiedDirectoryPaths { root_index: 0, source: path.clone(), sink: path })
    }

    fn entry(name: &str) -> Entry {
        let metadata = Metadata { mode: 0o600, mtime: Timestamp { seconds: 0, nanoseconds: 0 } };
        Entry {
            name: name.as_bytes().into(),
            source_name: None,
            kind: EntryKind::Regular { size: 1 },
            metadata,
            identity: 0,
            extras: None,
        }
    }

    fn opened(name: &str) -> Arc<SourceFile> {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(name), "x").unwrap();
        let handle = File::open(dir.path()).unwrap();
        let file = SourceFile::open(handle.as_fd(), name.as_bytes(), false, SourceReadMethod::Buffered);
        Arc::new(file.unwrap())
    }

    #[test]
    fn a_file_is_found_by_its_whole_path_while_a_part_of_it_is_in_work() {
        let files = OpenPartFiles::default();
        let file = opened("f");
        files.add(&directory("d"), &entry("f"), &file);
        assert!(Arc::ptr_eq(&files.find(&directory("d"), &entry("f")).unwrap(), &file));
        assert!(files.find(&directory("d"), &entry("g")).is_none());
        assert!(files.find(&directory("e"), &entry("f")).is_none());
        drop(file);
        assert!(files.find(&directory("d"), &entry("f")).is_none());
    }

    #[test]
    fn the_last_one_opened_is_found_and_closed_ones_are_forgotten() {
        let files = OpenPartFiles::default();
        let (first, second) = (opened("f"), opened("f"));
        files.add(&directory("d"), &entry("f"), &first);
        files.add(&directory("d"), &entry("f"), &second);
        assert!(Arc::ptr_eq(&files.find(&directory("d"), &entry("f")).unwrap(), &second));
        assert_eq!(files.files().len(), 1);
        drop(second);
        files.add(&directory("d"), &entry("g"), &first);
        assert_eq!(files.files().len(), 1);
    }
}
