//! Resolution of a source's path beneath a base, which follows links that stay there.
//!
//! Each name is opened without following a link; the text of a link is then walked in its place. `openat2`
//! would resolve a path with one call, but returns neither the directory that holds the last name nor that
//! name, by which readers open a file; and this works without `openat2`, too. Races are safe: whichever
//! entries are exchanged meanwhile, each step leads from a held directory to one of its names, or starts at
//! the base again (for `..` in a link's text, which therefore never climbs above the walked path). The
//! kernel's magic links (`/proc/*/fd`) have texts that are absolute or name no entry. An absolute link is
//! followed only if the base's own path is known, and only into it.

use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use carrack_model::RelPath;
use carrack_model::limits::{PATH_BYTES_MAX, SYMLINK_BYTES_MAX};
use rustix::fs::readlinkat_raw;
use rustix::io::{Errno, Result};

use crate::beneath::{PASSAGE, open_beneath, open_child};

/// Bound of the links in one path, as in the kernel (`MAXSYMLINKS`, path_resolution(7)).
const LINKS_MAX: usize = 40;

/// The end of a resolved path.
#[derive(Debug)]
pub(crate) struct ResolvedPath {
    /// The directory that holds the name, opened with `O_PATH`.
    pub(crate) holder: OwnedFd,
    /// The holder's own path beneath the base, without links.
    pub(crate) directory: RelPath,
    /// The name in the holder; none stands for the holder itself.
    pub(crate) name: Option<Box<[u8]>>,
}

/// The start of a walk.
pub(super) struct LinkResolutionStart<'a> {
    /// The directory that no link leads out of.
    pub(super) base: BorrowedFd<'a>,
    /// The absolute path that links may name it by. Without it no absolute link is followed.
    pub(super) base_path: Option<&'a Path>,
    /// The directory that the walk starts at.
    pub(super) held: OwnedFd,
    /// Its path beneath the base, without links.
    pub(super) path: &'a RelPath,
}

/// Follows `path` from `base`; with `last` including a link as the last name. The last name need not exist.
///
/// `EXDEV` for a link that leads out of the base (an absolute one does), `ELOOP` after too many links.
pub(super) fn follow(base: BorrowedFd<'_>, path: &RelPath, last: bool) -> Result<ResolvedPath> {
    let held = open_beneath(base, &RelPath::root(), PASSAGE)?;
    follow_from(LinkResolutionStart { base, base_path: None, held, path: &RelPath::root() }, path, last)
}

/// Follows a path from a directory beneath the base.
pub(super) fn follow_from(
    start: LinkResolutionStart<'_>,
    path: &RelPath,
    last: bool,
) -> Result<ResolvedPath> {
    let LinkResolutionStart { base, base_path, held, path: walked } = start;
    let walked = walked.as_bytes().to_vec();
    let mut walk = LinkWalk { base, base_path, held, walked, pending: Vec::new(), links: 0 };
    walk.push(path.as_bytes());
    while let Some(name) = walk.pending.pop() {
        match (&*name, walk.pending.is_empty()) {
            (b"..", _) => walk.climb()?,
            (_, false) => walk.enter(&name)?,
            (_, true) if last && walk.expand_link(&name)? => {}
            (_, true) => return walk.into_resolved(Some(name)),
        }
    }
    walk.into_resolved(None)
}

struct LinkWalk<'a> {
    base: BorrowedFd<'a>,
    base_path: Option<&'a Path>,
    /// The directory at `walked`.
    held: OwnedFd,
    /// Names joined by slashes: no links, no `..`.
    walked: Vec<u8>,
    /// The remaining names, the next one at the end.
    pending: Vec<Box<[u8]>>,
    links: usize,
}

impl LinkWalk<'_> {
    fn push(&mut self, path: &[u8]) {
        let names = path.split(|&b| b == b'/').filter(|name| !matches!(*name, b"" | b"."));
        self.pending.extend(names.rev().map(Box::from));
    }

    fn enter(&mut self, name: &[u8]) -> Result<()> {
        match open_child(self.held.as_fd(), name, PASSAGE) {
            Ok(entered) => {
                if self.walked.len() + 1 + name.len() > PATH_BYTES_MAX {
                    return Err(Errno::NAMETOOLONG);
                }
                if !self.walked.is_empty() {
                    self.walked.push(b'/');
                }
                self.walked.extend_from_slice(name);
                self.held = entered;
                Ok(())
            }
            Err(Errno::NOTDIR | Errno::LOOP) if self.expand_link(name)? => Ok(()),
            Err(errno) => Err(errno),
        }
    }

    /// Pushes the text of the link `name` onto the remaining names; returns false if it is no link.
    fn expand_link(&mut self, name: &[u8]) -> Result<bool> {
        let mut text = [0; SYMLINK_BYTES_MAX + 1];
        let text = match readlinkat_raw(&self.held, name, &mut text[..]) {
            Ok(length) => &text[..length],
            // No link, or a missing last name.
            Err(Errno::INVAL | Errno::NOENT) => return Ok(false),
            Err(errno) => return Err(errno),
        };
        self.links += 1;
        match text {
            _ if self.links > LINKS_MAX => Err(Errno::LOOP),
            [] => Err(Errno::NOENT),
            text if text.len() > SYMLINK_BYTES_MAX => Err(Errno::NAMETOOLONG),
            [b'/', ..] => {
                let beneath = self
                    .base_path
                    .and_then(|base| Path::new(OsStr::from_bytes(text)).strip_prefix(base).ok());
                let beneath = beneath.ok_or(Errno::XDEV)?;
                self.walked.clear();
                self.held = open_beneath(self.base, &RelPath::root(), PASSAGE)?;
                self.push(beneath.as_os_str().as_bytes());
                Ok(true)
            }
            text => {
                self.push(text);
                Ok(true)
            }
        }
    }

    fn climb(&mut self) -> Result<()> {
        if self.walked.is_empty() {
            return Err(Errno::XDEV);
        }
        self.walked.truncate(self.walked.iter().rposition(|&b| b == b'/').unwrap_or(0));
        self.held = open_beneath(self.base, &self.directory()?, PASSAGE)?;
        Ok(())
    }

    fn directory(&self) -> Result<RelPath> {
        RelPath::new(&self.walked).map_err(|_| Errno::NAMETOOLONG)
    }

    fn into_resolved(self, name: Option<Box<[u8]>>) -> Result<ResolvedPath> {
        Ok(ResolvedPath { directory: self.directory()?, holder: self.held, name })
    }
}
