//! Where the links of a source may lead that is copied with its links followed: nowhere but beneath the directory that the source itself
//! was resolved beneath. What a link leads to is resolved anew each time; whatever it is exchanged for meanwhile, it stays beneath.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use carrack_model::RelPath;
use rustix::fs::OFlags;
use rustix::io::{Errno, Result};

use super::follow::{Reached, Start, follow_from};
use crate::beneath::{PASSAGE, open_beneath, open_child};

/// Belongs to the root of such a source.
#[derive(Debug)]
pub(crate) struct Confines {
    /// No link leads out of it.
    pub(super) top: OwnedFd,
    /// Its absolute path: links whose text begins with it are followed, too.
    pub(super) top_path: PathBuf,
    /// The root's own path beneath it, without links.
    pub(super) root_path: RelPath,
}

impl Confines {
    /// Follows `path` from `root`, and the link that its last name may be.
    ///
    /// `EXDEV` for a link that leads out, `ELOOP` after too many of them.
    pub(crate) fn follow(&self, root: BorrowedFd<'_>, path: &RelPath) -> Result<Reached> {
        let held = open_beneath(root, &RelPath::root(), PASSAGE)?;
        let start =
            Start { base: self.top.as_fd(), base_path: Some(&self.top_path), held, path: &self.root_path };
        follow_from(start, path, true)
    }

    /// Opens the directory `path` beneath `root` with `flags`. Where no link is in the way none is looked for.
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
        let Reached { holder, name, .. } = self.follow(root, path)?;
        match name {
            Some(name) => open_child(holder.as_fd(), &name, flags),
            None => open_beneath(holder.as_fd(), &RelPath::root(), flags),
        }
    }
}
