//! Work that is done at the end: metadata of directories, hard links, and flags of files.
//!
//! I/O threads note it; the thread that ends the session takes it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use carrack_model::{ExtraMetadata, FileFlags, HardLinkTarget, Metadata, RelPath, Timestamp};
use carrack_storage::{DirectoryMetadataSpool, LinkSpool, RootDirectory, SinkError};

use super::attributes::AttributePolicy;

/// The spools of a session; `None` in a dry run, or once they were taken.
pub(super) struct DeferredEntrySpools {
    directories: Mutex<Option<DirectoryMetadataSpool>>,
    /// Hard links to files.
    links: Mutex<Option<LinkSpool>>,
}

impl DeferredEntrySpools {
    /// Creates the spools of entries beneath `root`.
    pub(super) fn new(
        root: Option<&Arc<RootDirectory>>,
        attributes: &AttributePolicy,
    ) -> DeferredEntrySpools {
        DeferredEntrySpools {
            directories: Mutex::new(root.map(|root| attributes.directory_spool(Arc::clone(root)))),
            links: Mutex::new(root.map(|root| attributes.link_spool(Arc::clone(root)))),
        }
    }

    fn directories(&self) -> MutexGuard<'_, Option<DirectoryMetadataSpool>> {
        self.directories.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn links(&self) -> MutexGuard<'_, Option<LinkSpool>> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes the metadata that a directory gets at the end.
    pub(super) fn note_directory(
        &self,
        path: &RelPath,
        metadata: &Metadata,
        extras: Option<&ExtraMetadata>,
    ) -> Result<(), SinkError> {
        self.directories().as_mut().map_or(Ok(()), |spool| spool.record_directory(path, metadata, extras))
    }

    /// Notes the flags that a file gets at the end, if it has this time then.
    pub(super) fn note_flags(
        &self,
        path: &RelPath,
        mtime: Timestamp,
        flags: FileFlags,
    ) -> Result<(), SinkError> {
        assert!(flags.write_protecting().active() != 0, "flags that fasten nothing are set with the rest");
        self.directories().as_mut().map_or(Ok(()), |spool| spool.record_file(path, mtime, flags))
    }

    /// Notes a hard link that is made at the end. Returns `None` if the links were already taken.
    pub(super) fn note_link(
        &self,
        directory: &RelPath,
        name: &[u8],
        same_as: &HardLinkTarget,
        mtime: Timestamp,
    ) -> Option<Result<(), SinkError>> {
        self.links().as_mut().map(|spool| spool.record_link(directory, name, same_as, mtime))
    }

    pub(super) fn take_directories(&self) -> Option<DirectoryMetadataSpool> {
        self.directories().take()
    }

    pub(super) fn take_links(&self) -> Option<LinkSpool> {
        self.links().take()
    }
}

#[cfg(test)]
mod tests {
    use carrack_model::AgreedTransferSpec;

    use super::*;
    use crate::settings::EndSettings;

    fn note(spools: &DeferredEntrySpools) -> Option<Result<(), SinkError>> {
        spools.note_directory(&RelPath::root(), &Metadata::default(), None).unwrap();
        let first = HardLinkTarget { path: RelPath::new(b"first").unwrap(), size: 0 };
        spools.note_link(&RelPath::root(), b"second", &first, Timestamp::default())
    }

    #[test]
    fn what_is_noted_is_taken_once_and_not_later() {
        let dir = tempfile::tempdir().unwrap();
        let root = Arc::new(RootDirectory::open(dir.path()).unwrap());
        let attributes = AttributePolicy::new(&AgreedTransferSpec::default(), &EndSettings::default(), None);
        let spools = DeferredEntrySpools::new(Some(&root), &attributes);
        assert!(note(&spools).is_some_and(|noted| noted.is_ok()));
        assert!(spools.take_directories().is_some() && spools.take_links().is_some());
        assert!(note(&spools).is_none() && spools.take_directories().is_none());
        assert!(note(&DeferredEntrySpools::new(None, &attributes)).is_none(), "a dry run makes no links");
    }
}
