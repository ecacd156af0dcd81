//! Entries, directories and open source files for the tests of this module.

use std::fs::{self, File};
use std::os::fd::AsFd;
use std::sync::Arc;

use carrack_model::{CopiedDirectoryPaths, Entry, EntryKind, Metadata, RelPath, SourceReadMethod};
use carrack_storage::SourceFile;

pub(super) fn directory(name: &str) -> Arc<CopiedDirectoryPaths> {
    let path = RelPath::new(name.as_bytes()).unwrap();
    Arc::new(CopiedDirectoryPaths { root_index: 0, source: path.clone(), sink: path })
}

pub(super) fn entry(name: &str, size: u64) -> Entry {
    Entry {
        name: name.as_bytes().into(),
        source_name: None,
        kind: EntryKind::Regular { size },
        metadata: Metadata::default(),
        identity: 0,
        extras: None,
    }
}

/// Opens a file of its own, which has no name any more.
pub(super) fn source_file() -> Arc<SourceFile> {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("f"), "content").unwrap();
    let handle = File::open(dir.path()).unwrap();
    Arc::new(SourceFile::open(handle.as_fd(), b"f", false, SourceReadMethod::Buffered).unwrap())
}
