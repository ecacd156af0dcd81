//! The parts of a directory that may be used, as a token's scope or a mover's options name them: paths are resolved beneath the part,
//! not beneath the whole.
//!
//! A part is opened once, without following a link, and then held: a link planted in it leads nowhere else, and neither
//! does a directory that is exchanged for a link later. A part that is no directory (yet) is a single name in a held directory.

use std::cmp::Reverse;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use carrack_model::RelPath;
use rustix::io::Errno;

use super::Root;
use crate::beneath::{PASSAGE, open_beneath, open_child};
use crate::typed::beneath;

/// A directory of which only some parts may be used.
#[derive(Debug)]
pub struct Scopes {
    /// Where paths begin, for people.
    top: PathBuf,
    /// Where one lies within another, the inner one first.
    parts: Vec<Part>,
    /// Each was named by its own absolute path.
    are_named: bool,
}

#[derive(Debug)]
struct Part {
    /// Beneath the top.
    path: RelPath,
    place: Place,
}

#[derive(Debug)]
enum Place {
    /// The directory.
    Directory(Root),
    /// A file, a link or nothing: the directory that holds it, and its name there.
    Name(Root, Box<[u8]>),
    /// It can't be reached.
    Unreachable(Errno),
}

/// Where the resolution of a path begins.
pub(super) enum Origin<'a> {
    /// In a held directory, whose own path beneath the base is `above`; `path` is beneath it.
    Directory { root: &'a Root, above: RelPath, path: RelPath },
    /// At the one name that may be used of a held directory.
    Name { holder: &'a Root, name: &'a [u8] },
}

impl Scopes {
    /// Holds the directories `paths` beneath `top`. Parts within other parts count as those.
    pub(super) fn open(top: &Root, mut paths: Vec<RelPath>) -> Scopes {
        paths.sort_by_key(|path| path.components().count());
        let mut parts: Vec<Part> = Vec::new();
        for path in paths {
            if !parts.iter().any(|part| part.rest_of(&path).is_some()) {
                parts.push(Part { place: Place::open(top, &path), path });
            }
        }
        Scopes { top: top.path().to_path_buf(), parts, are_named: false }
    }

    /// These directories, each at its own path beneath `/`.
    pub(super) fn at(directories: Vec<Root>) -> io::Result<Scopes> {
        let part = |root: Root| Ok(Part { path: beneath(root.path())?, place: Place::Directory(root) });
        let mut parts = directories.into_iter().map(part).collect::<io::Result<Vec<Part>>>()?;
        parts.sort_by_key(|part| Reverse(part.path.components().count()));
        Ok(Scopes { top: PathBuf::from("/"), parts, are_named: true })
    }

    /// Whether each was named by its own absolute path.
    pub(super) fn are_named(&self) -> bool {
        self.are_named
    }

    /// The directory that the parts lie in.
    pub(super) fn top(&self) -> &Path {
        &self.top
    }

    /// Where the resolution of `path` begins.
    pub(super) fn origin(&self, path: &RelPath) -> io::Result<Origin<'_>> {
        let found = self.parts.iter().find_map(|part| Some((part, part.rest_of(path)?)));
        let (part, rest) = found.ok_or(Errno::ACCESS)?;
        match &part.place {
            Place::Directory(root) => Ok(Origin::Directory { root, above: part.path.clone(), path: rest }),
            Place::Name(holder, name) if rest.is_root() => Ok(Origin::Name { holder, name }),
            // It is no directory, or was none when it was opened.
            Place::Name(holder, name) => {
                Err(open_child(holder.as_fd(), name, PASSAGE).err().unwrap_or(Errno::NOTDIR).into())
            }
            Place::Unreachable(errno) => Err((*errno).into()),
        }
    }
}

impl Part {
    /// What of `path` is beneath this part.
    fn rest_of(&self, path: &RelPath) -> Option<RelPath> {
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

impl Place {
    fn open(top: &Root, path: &RelPath) -> Place {
        let errno = match open_beneath(top.as_fd(), path, PASSAGE) {
            Ok(handle) => return Place::held(handle, Place::Directory),
            Err(errno) => errno,
        };
        let is_name = matches!(errno, Errno::NOENT | Errno::NOTDIR | Errno::LOOP);
        match path.split_last().filter(|_| is_name) {
            Some((directory, name)) => match open_beneath(top.as_fd(), &directory, PASSAGE) {
                Ok(handle) => Place::held(handle, |root| Place::Name(root, name.into())),
                Err(errno) => Place::Unreachable(errno),
            },
            None => Place::Unreachable(errno),
        }
    }

    fn held(handle: OwnedFd, place: impl FnOnce(Root) -> Place) -> Place {
        match Root::held(handle) {
            Ok(root) => place(root),
            Err(error) => Place::Unreachable(Errno::from_io_error(&error).unwrap_or(Errno::IO)),
        }
    }
}
