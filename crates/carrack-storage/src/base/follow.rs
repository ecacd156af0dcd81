//! How the path of a source is resolved beneath a base: links are followed as far as they stay there.
//!
//! Name by name, each opened without following a link; the text of a link that stands in the way is then walked in its place.
//! `openat2` would do it with one call, but gives neither the directory that holds the last name nor that name, by which
//! readers open a file; and where it is missing this works all the same. Races are lost to the safe side: whatever is swapped
//! meanwhile, each step leads from a held directory to one of its names, or starts at the base again (`..` in a link's
//! text, which so never climbs above what was walked down). The kernel's magic links (`/proc/*/fd`) have texts that
//! are absolute or name nothing. An absolute link is followed only where the base's own path is told, and only into it.

use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use carrack_model::RelPath;
use carrack_model::limits::{PATH_BYTES_MAX, SYMLINK_BYTES_MAX};
use rustix::fs::readlinkat_raw;
use rustix::io::{Errno, Result};

use crate::beneath::{PASSAGE, open_beneath, open_child};

/// Links in one path, as the kernel has it (`MAXSYMLINKS`, path_resolution(7)).
const LINKS_MAX: usize = 40;

/// Where a path led to.
#[derive(Debug)]
pub(crate) struct Reached {
    /// `O_PATH`.
    pub(crate) holder: OwnedFd,
    /// The holder's own path beneath the base, without links.
    pub(crate) directory: RelPath,
    /// The name in the holder; none if the holder itself is meant.
    pub(crate) name: Option<Box<[u8]>>,
}

/// Where a walk begins.
pub(super) struct Start<'a> {
    /// No link leads out of it.
    pub(super) base: BorrowedFd<'a>,
    /// The absolute path that links may name it by; without it none that is absolute is followed.
    pub(super) base_path: Option<&'a Path>,
    /// The directory that the walk begins at.
    pub(super) held: OwnedFd,
    /// Its path beneath the base, without links.
    pub(super) path: &'a RelPath,
}

/// Follows `path` from `base`; with `last` a link that the last name is, too. The last name need not exist.
///
/// `EXDEV` for a link that leads out of the base (an absolute one does), `ELOOP` after too many of them.
pub(super) fn follow(base: BorrowedFd<'_>, path: &RelPath, last: bool) -> Result<Reached> {
    let held = open_beneath(base, &RelPath::root(), PASSAGE)?;
    follow_from(Start { base, base_path: None, held, path: &RelPath::root() }, path, last)
}

/// The same from a directory beneath the base.
pub(super) fn follow_from(start: Start<'_>, path: &RelPath, last: bool) -> Result<Reached> {
    let Start { base, base_path, held, path: walked } = start;
    let walked = walked.as_bytes().to_vec();
    let mut walk = Walk { base, base_path, held, walked, pending: Vec::new(), links: 0 };
    walk.push(path.as_bytes());
    while let Some(name) = walk.pending.pop() {
        match (&*name, walk.pending.is_empty()) {
            (b"..", _) => walk.climb()?,
            (_, false) => walk.enter(&name)?,
            (_, true) if last && walk.expand_link(&name)? => {}
            (_, true) => return walk.reached(Some(name)),
        }
    }
    walk.reached(None)
}

struct Walk<'a> {
    base: BorrowedFd<'a>,
    base_path: Option<&'a Path>,
    /// The directory at `walked`.
    held: OwnedFd,
    /// Names joined by slashes: no links, no `..`.
    walked: Vec<u8>,
    /// Names that come next, the first one at the end.
    pending: Vec<Box<[u8]>>,
    links: usize,
}

impl Walk<'_> {
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

    /// Puts the text of the link `name` in front of what is pending; false if it is no link.
    fn expand_link(&mut self, name: &[u8]) -> Result<bool> {
        let mut text = [0; SYMLINK_BYTES_MAX + 1];
        let text = match readlinkat_raw(&self.held, name, &mut text[..]) {
            Ok(length) => &text[..length],
            // No link, or (where it is the last name) nothing.
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

    fn reached(self, name: Option<Box<[u8]>>) -> Result<Reached> {
        Ok(Reached { directory: self.directory()?, holder: self.held, name })
    }
}
