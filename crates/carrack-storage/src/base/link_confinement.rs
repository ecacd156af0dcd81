//! The limit of the links of a source that is copied with its links followed: the directory that the source
//! was resolved beneath. A link's target is resolved anew each time and stays beneath it, even if a peer
//! exchanges entries meanwhile.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use carrack_model::RelPath;
use rustix::fs::OFlags;
use rustix::io::{Errno, Result};

use super::follow::{LinkResolutionStart, ResolvedPath, follow_from};
use crate::beneath::{PASSAGE, open_beneath, open_child};

/// The confinement of such a source's root.
#[derive(Debug)]
pub(crate) struct SourceLinkConfinement {
    /// The directory that no link leads out of.
    pub(super) top: OwnedFd,
    /// Its absolute path. A link whose text starts with it is followed, too.
    pub(super) top_path: PathBuf,
    /// The root's own path beneath `top`, without links.
    pub(super) root_path: RelPath,
}

impl SourceLinkConfinement {
    /// Follows `path` from `root`, including a link as its last name.
    ///
    /// `EXDEV` for a link that leads out, `ELOOP` after too many links.
    pub(crate) fn follow(&self, root: BorrowedFd<'_>, path: &RelPath) -> Result<ResolvedPath> {
        let held = open_beneath(root, &RelPath::root(), PASSAGE)?;
        let start = LinkResolutionStart {
            base: self.top.as_fd(),
            base_path: Some(&self.top_path),
            held,
            path: &self.root_path,
        };
        follow_from(start, path, true)
    }

    /// Opens the directory `path` beneath `root` with `flags`. Tries to resolve it without links first.
    pub(crate) fn open_directory(
        &self,
        root: BorrowedFd<'_>,
        path: &RelPath,
        flags: OFlags,
    ) -> Result<OwnedFd> {
        match open_beneath(root, path, flags) {
            Err(Errno::LOOP | Errno::NOTDIR) => {}
            answer => return answer,
        }
        let ResolvedPath { holder, name, .. } = self.follow(root, path)?;
        match name {
            Some(name) => open_child(holder.as_fd(), &name, flags),
            None => open_beneath(holder.as_fd(), &RelPath::root(), flags),
        }
    }
}
