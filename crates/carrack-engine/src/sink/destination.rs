//! The destination of a session: where entries are written, what lies there, and which names may be used.
//!
//! Any thread asks; what changes is behind the locks of [`NameClaims`] and [`DirectoryAccess`].

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use carrack_model::RelPath;
use carrack_storage::{DirectoryAccess, FoldedNames, Root, ScratchNames};

use super::confinement::Confinement;
use super::names::NameClaims;
use super::storage::SinkStorage;

/// A directory, and what is known of it.
pub(crate) struct SinkPlace {
    /// Everything is written beneath it. Nothing in a dry run.
    pub(crate) root: Option<Arc<Root>>,
    /// Where to look in the dry run of a sync, if it is there.
    pub(crate) seen: Option<Arc<Root>>,
    /// The storage that it lies on.
    pub(crate) storage: Arc<SinkStorage>,
    /// Names that the source may use there.
    pub(crate) confinement: Confinement,
}

/// A place, and what this session uses there.
pub(super) struct Destination {
    /// Nothing in a dry run.
    pub(super) root: Option<Arc<Root>>,
    /// The same, and in the dry run of a sync what is only looked at.
    pub(super) seen: Option<Arc<Root>>,
    pub(super) storage: Arc<SinkStorage>,
    pub(super) confinement: Confinement,
    pub(super) scratch: Arc<ScratchNames>,
    pub(super) names: NameClaims,
    /// Directories that are accessible for the while. Nothing in a dry run.
    pub(super) access: Option<DirectoryAccess>,
}

impl Destination {
    pub(super) fn new(place: SinkPlace, scratch: Arc<ScratchNames>) -> Destination {
        let SinkPlace { root, seen, storage, confinement } = place;
        let one_file_system = storage.is_one_file_system();
        let names = |root: &Arc<Root>| FoldedNames::new(root.as_fd(), one_file_system, Arc::clone(&scratch));
        Destination {
            names: NameClaims::new(root.as_ref().map(names)),
            access: root.clone().map(DirectoryAccess::new),
            seen: root.clone().or(seen),
            root,
            storage,
            confinement,
            scratch,
        }
    }

    /// A directory of what may be looked at, if it is there.
    pub(super) fn look_into(&self, path: &RelPath) -> Option<OwnedFd> {
        self.seen.as_ref().and_then(|root| root.enter_directory(path).ok())
    }

    /// The path as the user knows it.
    pub(super) fn path(&self, directory: &RelPath, name: &[u8]) -> Box<[u8]> {
        match &self.root {
            Some(root) => root.full_path(directory, name),
            None => name.into(),
        }
    }
}
