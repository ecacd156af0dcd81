//! The parts of a directory that may be used, as named by a token's scope or a mover's options. Paths are
//! resolved beneath the part, not beneath the whole directory.
//!
//! A part is opened once, without following a link, and then held. Neither a link planted in it nor a
//! directory that is exchanged for a link later leads elsewhere. A part that is no directory (yet) is a
//! single name in a held directory.

use std::cmp::Reverse;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use carrack_model::RelPath;
use rustix::io::Errno;

use super::RootDirectory;
use crate::beneath::{PASSAGE, open_beneath, open_child};
use crate::typed_path::to_relative_path;

/// A directory that is limited to some of its parts.
#[derive(Debug)]
pub struct ScopedDirectory {
    /// The directory that paths start at, for messages.
    top: PathBuf,
    /// The parts. Of two nested parts the inner one comes first.
    parts: Vec<ScopePart>,
    /// True if each part was named by its own absolute path.
    are_named: bool,
}

#[derive(Debug)]
struct ScopePart {
    /// Its path beneath the top.
    path: RelPath,
    place: AccessScopeRoot,
}

#[derive(Debug)]
enum AccessScopeRoot {
    /// A directory.
    Directory(RootDirectory),
    /// A file, a link or a missing entry: its parent directory, and its name there.
    Name(RootDirectory, Box<[u8]>),
    /// A part that can't be reached.
    Unreachable(Errno),
}

/// The start of a path's resolution.
pub(super) enum PathResolutionStart<'a> {
    /// A held directory, whose own path beneath the base is `above`; `path` is beneath it.
    Directory { root: &'a RootDirectory, above: RelPath, path: RelPath },
    /// The only usable name of a held directory.
    Name { holder: &'a RootDirectory, name: &'a [u8] },
}

impl ScopedDirectory {
    /// Holds the directories `paths` beneath `top`. Parts within other parts are merged into them.
    pub(super) fn open(top: &RootDirectory, mut paths: Vec<RelPath>) -> ScopedDirectory {
        paths.sort_by_key(|path| path.components().count());
        let mut parts: Vec<ScopePart> = Vec::new();
        for path in paths {
            if !parts.iter().any(|part| part.path_beneath(&path).is_some()) {
                parts.push(ScopePart { place: AccessScopeRoot::open(top, &path), path });
            }
        }
        ScopedDirectory { top: top.path().to_path_buf(), parts, are_named: false }
    }

    /// Holds these directories, each at its own path beneath `/`.
    pub(super) fn from_directories(directories: Vec<RootDirectory>) -> io::Result<ScopedDirectory> {
        let mut parts = Vec::with_capacity(directories.len());
        for root in directories {
            parts.push(ScopePart {
                path: to_relative_path(root.path())?,
                place: AccessScopeRoot::Directory(root),
            });
        }
        parts.sort_by_key(|part| Reverse(part.path.components().count()));
        Ok(ScopedDirectory { top: PathBuf::from("/"), parts, are_named: true })
    }

    /// Returns true if each part was named by its own absolute path.
    pub(super) fn are_named(&self) -> bool {
        self.are_named
    }

    /// The directory that the parts lie in.
    pub(super) fn top(&self) -> &Path {
        &self.top
    }

    /// The start of the resolution of `path`.
    pub(super) fn resolution_start(&self, path: &RelPath) -> io::Result<PathResolutionStart<'_>> {
        let found = self.parts.iter().find_map(|part| Some((part, part.path_beneath(path)?)));
        let (part, rest) = found.ok_or(Errno::ACCESS)?;
        match &part.place {
            AccessScopeRoot::Directory(root) => {
                Ok(PathResolutionStart::Directory { root, above: part.path.clone(), path: rest })
            }
            AccessScopeRoot::Name(holder, name) if rest.is_root() => {
                Ok(PathResolutionStart::Name { holder, name })
            }
            // The part is no directory, or was none when it was opened.
            AccessScopeRoot::Name(holder, name) => {
                Err(open_child(holder.as_fd(), name, PASSAGE).err().unwrap_or(Errno::NOTDIR).into())
            }
            AccessScopeRoot::Unreachable(errno) => Err((*errno).into()),
        }
    }
}

impl ScopePart {
    /// The rest of `path` beneath this part; none if it lies elsewhere.
    fn path_beneath(&self, path: &RelPath) -> Option<RelPath> {
        if self.path.is_root() {
            return Some(path.clone());
        }
        match path.as_bytes().strip_prefix(self.path.as_bytes())? {
            [] => Some(RelPath::root()),
            [b'/', rest @ ..] => RelPath::new(rest).ok(),
            _ => None,
        }
    }
}

impl AccessScopeRoot {
    fn open(top: &RootDirectory, path: &RelPath) -> AccessScopeRoot {
        let errno = match open_beneath(top.as_fd(), path, PASSAGE) {
            Ok(handle) => return AccessScopeRoot::from_handle(handle, AccessScopeRoot::Directory),
            Err(errno) => errno,
        };
        let is_name = matches!(errno, Errno::NOENT | Errno::NOTDIR | Errno::LOOP);
        match path.split_last().filter(|_| is_name) {
            Some((directory, name)) => match open_beneath(top.as_fd(), &directory, PASSAGE) {
                Ok(handle) => {
                    AccessScopeRoot::from_handle(handle, |root| AccessScopeRoot::Name(root, name.into()))
                }
                Err(errno) => AccessScopeRoot::Unreachable(errno),
            },
            None => AccessScopeRoot::Unreachable(errno),
        }
    }

    fn from_handle(handle: OwnedFd, place: impl FnOnce(RootDirectory) -> AccessScopeRoot) -> AccessScopeRoot {
        match RootDirectory::from_handle(handle) {
            Ok(root) => place(root),
            Err(error) => AccessScopeRoot::Unreachable(Errno::from_io_error(&error).unwrap_or(Errno::IO)),
        }
    }
}
