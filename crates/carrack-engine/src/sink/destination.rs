//! The destination of a session: its directory, its storage, and the names that may be used.
//!
//! Any thread may read it; values that change are behind the locks of [`NameClaims`] and
//! [`ChangedDirectoryModes`].

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use carrack_model::RelPath;
use carrack_storage::{ChangedDirectoryModes, FoldedNames, RootDirectory, ScratchNames};

use super::name_claims::NameClaims;
use super::top_level_confinement::AllowedTopLevelNames;
use super::write_method::SinkStorageFacts;
use crate::storage_requests::EndStorageRequests;

/// A destination directory and its properties.
pub(crate) struct DestinationDirectory {
    /// Everything is written beneath it. `None` in a dry run.
    pub(crate) root: Option<Arc<RootDirectory>>,
    /// The existing directory that the dry run of a sync reads.
    pub(crate) seen: Option<Arc<RootDirectory>>,
    /// The storage that it lies on.
    pub(crate) storage: Arc<SinkStorageFacts>,
    /// Names that the source may use there.
    pub(crate) confinement: AllowedTopLevelNames,
}

/// A destination, and the session's state for it.
pub(super) struct SinkDestination {
    /// `None` in a dry run.
    pub(super) root: Option<Arc<RootDirectory>>,
    /// The same, or the directory that the dry run of a sync reads.
    pub(super) seen: Option<Arc<RootDirectory>>,
    pub(super) storage: Arc<SinkStorageFacts>,
    pub(super) confinement: AllowedTopLevelNames,
    pub(super) scratch: Arc<ScratchNames>,
    pub(super) names: NameClaims,
    /// Directories that are made accessible for the session. `None` in a dry run.
    pub(super) access: Option<ChangedDirectoryModes>,
    /// The requests to its storage that have not returned.
    pub(super) requests: EndStorageRequests,
}

impl SinkDestination {
    pub(super) fn new(
        place: DestinationDirectory,
        scratch: Arc<ScratchNames>,
        requests: EndStorageRequests,
    ) -> SinkDestination {
        let DestinationDirectory { root, seen, storage, confinement } = place;
        let one_file_system = storage.is_one_file_system();
        let names =
            root.as_ref().map(|root| FoldedNames::new(root.as_fd(), one_file_system, Arc::clone(&scratch)));
        SinkDestination {
            names: NameClaims::new(names),
            access: root.clone().map(ChangedDirectoryModes::new),
            seen: root.clone().or(seen),
            root,
            storage,
            confinement,
            scratch,
            requests,
        }
    }

    /// Opens a directory for reading, if it exists.
    pub(super) fn open_existing_directory(&self, path: &RelPath) -> Option<OwnedFd> {
        self.seen.as_ref().and_then(|root| root.enter_directory(path).ok())
    }

    /// Returns the path as the user knows it.
    pub(super) fn path(&self, directory: &RelPath, name: &[u8]) -> Box<[u8]> {
        match &self.root {
            Some(root) => root.full_path(directory, name),
            None => name.into(),
        }
    }
}
