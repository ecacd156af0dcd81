//! The starting point of one end's paths: anywhere, in the user's own view of the file system, or beneath one
//! held directory, as a daemon's export.
//!
//! A base may be narrowed to parts of its directory ([`scopes`](self::scopes)).
//!
//! Owns the meaning of a typed path. Beneath a base no resolution uses `/`, the current directory or a typed
//! `..`. Links are refused, except those in the path of a source, which are followed within the base
//! ([`follow`](self::follow)). Mounts beneath a base belong to it. Any number of threads may use a base.

mod follow;
mod link_confinement;
mod scopes;

#[cfg(test)]
mod tests;

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use carrack_layout::{DeclaredMountsError, FileSystems};
use carrack_model::{RelPath, SpecialFile};
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, Stat, fstat, mkdirat, openat, readlinkat_raw, statat,
};
use rustix::io::Errno;

use crate::beneath::{PASSAGE, open_beneath, open_child};
use crate::modes::{PROVISIONAL, mark_provisional};
use crate::special::special_of_stat;
use crate::typed_path::{ends_with_slash, last_name, parent, to_relative_path};
use crate::{FileIdentity, RootDirectory};
pub(crate) use follow::ResolvedPath;
use follow::follow;
pub(crate) use link_confinement::SourceLinkConfinement;
use scopes::{PathResolutionStart, ScopedDirectory};

/// The starting point of paths. Cheap to clone.
#[derive(Clone, Debug)]
pub enum PathBase {
    /// The same as of the process's own paths; links are followed as by the kernel.
    Anywhere,
    /// This directory, with or without a leading slash. No path leads above it.
    Beneath(Arc<RootDirectory>),
    /// As above, limited to some parts of a directory ([`PathBase::scoped`], [`PathBase::within`]).
    Scoped(Arc<ScopedDirectory>),
}

/// The use of a path, which decides the handling of the links in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathPurpose {
    /// A source. Links before the last name are followed, within the base if there is one. The last name is
    /// not followed.
    Read,
    /// A source whose last name is followed, too.
    ReadThrough,
    /// A destination. Beneath a base no link is followed; anywhere all are.
    Write,
    /// An entry to look at, make or remove. The last name is not followed; beneath a base no link is
    /// followed.
    Browse,
}

/// The entry at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathStatResult {
    /// The identity of the file or directory.
    pub identity: FileIdentity,
    /// True for a directory.
    pub is_directory: bool,
    /// True for a symbolic link.
    pub is_symlink: bool,
    /// Size in bytes.
    pub size: u64,
    /// Modification time in seconds since 1970.
    pub mtime_s: i64,
    /// The type and number of a device, pipe or socket.
    pub special: Option<SpecialFile>,
}

/// A name, and the directory that holds it.
#[derive(Debug)]
pub struct EntryPlace {
    /// The directory, with its path in messages.
    pub root: RootDirectory,
    /// The name of the file or link.
    pub name: Box<[u8]>,
    /// True if the name is a link that is still to follow. Never true beneath a base, where links were
    /// followed already.
    pub follow: bool,
}

/// A directory and a name in it; without a name it stands for the directory itself.
#[derive(Debug)]
pub(crate) struct ResolvedPathName {
    pub(crate) holder: OwnedFd,
    pub(crate) name: Option<Box<[u8]>>,
}

impl PathPurpose {
    /// Returns true if the last name is followed in the user's own view.
    fn follows_last(self) -> bool {
        matches!(self, PathPurpose::ReadThrough | PathPurpose::Write)
    }
}

impl PathBase {
    /// A base at `root`.
    pub fn beneath(root: RootDirectory) -> PathBase {
        PathBase::Beneath(Arc::new(root))
    }

    /// A base at the directories `parts` of `top`. Paths start at `top`; other entries fail with `EACCES`,
    /// even if they don't exist. No link leads out of a part, and none into a part.
    pub fn scoped(top: &RootDirectory, parts: Vec<RelPath>) -> PathBase {
        PathBase::Scoped(Arc::new(ScopedDirectory::open(top, parts)))
    }

    /// A base at these held directories, each at the absolute path that it was opened with. Of two nested
    /// directories, the inner one resolves the paths that lie in both.
    ///
    /// # Errors
    /// `InvalidInput` for a path with `..`.
    pub fn within(directories: Vec<RootDirectory>) -> io::Result<PathBase> {
        Ok(PathBase::Scoped(Arc::new(ScopedDirectory::from_directories(directories)?)))
    }

    /// Returns true if no path leads out of the base.
    pub fn is_confined(&self) -> bool {
        !matches!(self, PathBase::Anywhere)
    }

    /// The known file systems before any is examined. `sets` are mounts that the user declared as one set, as
    /// for [`FileSystems::new`]. A confined base does not reveal the names of disks, servers and mounts.
    ///
    /// # Errors
    /// As [`FileSystems::new`].
    pub fn file_systems(&self, sets: &[PathBuf]) -> Result<FileSystems, DeclaredMountsError> {
        FileSystems::with_opener(sets, self.is_confined(), |path| self.open(path, PathPurpose::Write))
    }

    /// Returns true if links in a source may be followed: anywhere, and within the directories of
    /// [`PathBase::within`].
    pub fn follows_links(&self) -> bool {
        match self {
            PathBase::Anywhere => true,
            PathBase::Beneath(_) => false,
            PathBase::Scoped(scopes) => scopes.are_named(),
        }
    }

    /// The path in the view of the process's own user, for messages.
    pub fn path_for_people(&self, path: &Path) -> PathBuf {
        let beneath = path.strip_prefix("/").unwrap_or(path);
        match self {
            PathBase::Anywhere => std::path::absolute(path).unwrap_or_default(),
            PathBase::Beneath(root) => root.path().join(beneath),
            PathBase::Scoped(scopes) => scopes.top().join(beneath),
        }
    }

    /// Holds the directory `path`, which messages show as it was typed.
    ///
    /// # Errors
    /// Those of `open`, `ENOTDIR` or `ELOOP` for a link that is not followed, `EXDEV` for a link that leads
    /// out, `InvalidInput` for a path with `..` beneath a base.
    pub fn open(&self, path: &Path, purpose: PathPurpose) -> io::Result<RootDirectory> {
        let Some(origin) = self.origin(path)? else {
            return RootDirectory::open_anywhere(path, purpose.follows_last());
        };
        let spot = origin.spot(purpose)?;
        let handle = match &spot.name {
            Some(name) => open_child(spot.holder.as_fd(), name, PASSAGE)?,
            None => spot.holder,
        };
        origin.root_of(handle, path.to_path_buf())
    }

    /// Holds the parent directory of the destination `path`, even if only that name of the parent may be
    /// used.
    ///
    /// # Errors
    /// As [`PathBase::open`].
    pub fn open_parent(&self, path: &Path) -> io::Result<RootDirectory> {
        let PathBase::Scoped(_) = self else { return self.open(parent(path), PathPurpose::Write) };
        match self.origin(path)? {
            Some(origin @ PathResolutionStart::Name { .. }) => {
                let holder = origin.spot(PathPurpose::Write)?.holder;
                origin.root_of(holder, parent(path).to_path_buf())
            }
            _ => self.open(parent(path), PathPurpose::Write),
        }
    }

    /// Reads the status of `path`. A name with a trailing slash stands for a directory, or a link.
    ///
    /// # Errors
    /// As [`PathBase::open`].
    pub fn look(&self, path: &Path, purpose: PathPurpose) -> io::Result<PathStatResult> {
        let stat = match self {
            PathBase::Anywhere if purpose.follows_last() => statat(CWD, path, AtFlags::empty())?,
            PathBase::Anywhere => statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW)?,
            PathBase::Beneath(_) | PathBase::Scoped(_) => self.spot(path, purpose)?.status(path)?,
        };
        let kind = FileType::from_raw_mode(stat.st_mode);
        Ok(PathStatResult {
            identity: FileIdentity::of(&stat),
            is_directory: kind == FileType::Directory,
            is_symlink: kind == FileType::Symlink,
            size: u64::try_from(stat.st_size).unwrap_or(0),
            mtime_s: stat.st_mtime,
            special: special_of_stat(&stat),
        })
    }

    /// The directory that holds the source `path`, and its name there. With `follow` a link is followed.
    ///
    /// # Errors
    /// As [`PathBase::open`]; `EISDIR` for a path without a name.
    pub fn hold(&self, path: &Path, follow: bool) -> io::Result<EntryPlace> {
        let Some(origin) = self.origin(path)? else {
            let name = last_name(path).ok_or(Errno::ISDIR)?;
            return Ok(EntryPlace { root: RootDirectory::open(parent(path))?, name: name.into(), follow });
        };
        let (spot, directory) = origin.follow(follow)?;
        let name = spot.name.ok_or(Errno::ISDIR)?;
        let shown = if follow { shown(path, &directory) } else { parent(path).to_path_buf() };
        Ok(EntryPlace { root: origin.root_of(spot.holder, shown)?, name, follow: false })
    }

    /// The directory and name that `path` leads to after following links.
    ///
    /// # Errors
    /// As [`PathBase::hold`].
    pub fn leads_to(&self, path: &Path) -> io::Result<(FileIdentity, Box<[u8]>)> {
        if !self.is_confined() {
            let target = fs::canonicalize(path)?;
            let name = last_name(&target).ok_or(Errno::ISDIR)?;
            return Ok((RootDirectory::open(parent(&target))?.identity(), name.into()));
        }
        let EntryPlace { root, name, .. } = self.hold(path, true)?;
        Ok((root.identity(), name))
    }

    /// Opens the source `path`, a file or directory, to find its storage. Beneath a base the descriptor can't
    /// be read.
    ///
    /// # Errors
    /// As [`PathBase::open`].
    pub fn open_to_ask(&self, path: &Path) -> io::Result<OwnedFd> {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        if let PathBase::Anywhere = self {
            let kind = FileType::from_raw_mode(statat(CWD, path, AtFlags::empty())?.st_mode);
            // Opening a pipe waits for a writer, and opening a device may have side effects.
            let is_plain = matches!(kind, FileType::RegularFile | FileType::Directory);
            let flags = if is_plain { OFlags::RDONLY | OFlags::CLOEXEC } else { flags };
            return Ok(openat(CWD, path, flags, Mode::empty())?);
        }
        let ResolvedPathName { holder, name } = self.spot(path, PathPurpose::ReadThrough)?;
        match name {
            Some(name) => Ok(open_child(holder.as_fd(), &name, flags)?),
            None => Ok(holder),
        }
    }

    /// Creates the directory `path` for a transfer's files, with the mode of
    /// [`RootDirectory::make_directory`]. An existing directory is no error.
    ///
    /// # Errors
    /// Those of `mkdir`; as [`PathBase::open`].
    pub fn make_destination(&self, path: &Path) -> io::Result<()> {
        let made = match self {
            PathBase::Anywhere => mkdirat(CWD, path, PROVISIONAL).map_err(io::Error::from),
            PathBase::Beneath(_) | PathBase::Scoped(_) => self.make_child(path, PROVISIONAL),
        };
        match made {
            Ok(()) => {
                mark_provisional(self.open(path, PathPurpose::Write)?.as_fd());
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Creates the last name of `path`.
    pub(crate) fn make_child(&self, path: &Path, mode: Mode) -> io::Result<()> {
        let spot = self.spot(path, PathPurpose::Browse)?;
        Ok(mkdirat(&spot.holder, &*spot.name.ok_or(Errno::EXIST)?, mode)?)
    }

    /// As [`PathBase::open`], for a source whose links are followed. Beneath a base they are followed within
    /// it, at each opening; also an absolute link into the same directory.
    ///
    /// # Errors
    /// As [`PathBase::open`]; an error if no links are followed ([`PathBase::follows_links`]).
    pub fn open_following(&self, path: &Path) -> io::Result<RootDirectory> {
        let Some(origin) = self.origin(path)? else {
            return Ok(RootDirectory::open(path)?.with_links_followed());
        };
        if !self.follows_links() {
            return Err(io::Error::other("what is beneath an export is read without following links"));
        }
        let PathResolutionStart::Directory { root, above, path: beneath } = &origin else {
            return Err(Errno::NOTDIR.into());
        };
        let ResolvedPath { holder, directory, name } = follow(root.as_fd(), beneath, true)?;
        let (handle, root_path) = match name {
            Some(name) => (
                open_child(holder.as_fd(), &name, PASSAGE)?,
                directory.join(&name).map_err(|_| Errno::NAMETOOLONG)?,
            ),
            None => (holder, directory),
        };
        let top = root.as_fd().try_clone_to_owned()?;
        let top_path = self.path_for_people(Path::new(OsStr::from_bytes(above.as_bytes())));
        let opened = origin.root_of(handle, path.to_path_buf())?;
        Ok(opened.with_links_confined(SourceLinkConfinement { top, top_path, root_path }))
    }

    /// The directory that holds the last name of `path`, opened with `O_PATH`.
    pub(crate) fn spot(&self, path: &Path, purpose: PathPurpose) -> io::Result<ResolvedPathName> {
        match self.origin(path)? {
            None => spot_anywhere(path),
            Some(origin) => origin.spot(purpose),
        }
    }

    /// The directory that limits removals to its contents; `/` if there is no base.
    pub(crate) fn top_of(&self, path: &Path) -> io::Result<FileIdentity> {
        match self.origin(path)? {
            None => Ok(FileIdentity::of(&statat(CWD, c"/", AtFlags::empty())?)),
            Some(
                PathResolutionStart::Directory { root, .. } | PathResolutionStart::Name { holder: root, .. },
            ) => Ok(root.identity()),
        }
    }

    /// Creates the directory `path` and its missing ancestors, beneath a base.
    pub(crate) fn make_all_beneath(&self, path: &Path, mode: Mode) -> io::Result<()> {
        match self.origin(path)? {
            None => return Err(Errno::INVAL.into()),
            Some(PathResolutionStart::Directory { root, path, .. }) => {
                root.make_with(&path, mode, PASSAGE)?
            }
            Some(PathResolutionStart::Name { holder, name }) => {
                let path = RelPath::new(name).map_err(|_| Errno::INVAL)?;
                holder.make_with(&path, mode, PASSAGE)?
            }
        };
        Ok(())
    }

    /// The start of the resolution of `path`; none if the kernel resolves it.
    fn origin(&self, path: &Path) -> io::Result<Option<PathResolutionStart<'_>>> {
        match self {
            PathBase::Anywhere => Ok(None),
            PathBase::Beneath(root) => Ok(Some(PathResolutionStart::Directory {
                root,
                above: RelPath::root(),
                path: to_relative_path(path)?,
            })),
            PathBase::Scoped(scopes) => scopes.resolution_start(&to_relative_path(path)?).map(Some),
        }
    }
}

impl PathResolutionStart<'_> {
    fn spot(&self, purpose: PathPurpose) -> io::Result<ResolvedPathName> {
        match (self, purpose) {
            (_, PathPurpose::Read | PathPurpose::ReadThrough) | (PathResolutionStart::Name { .. }, _) => {
                Ok(self.follow(purpose == PathPurpose::ReadThrough)?.0)
            }
            (PathResolutionStart::Directory { root, path, .. }, PathPurpose::Write | PathPurpose::Browse) => {
                let (directory, name) = path.split_last().unzip();
                let directory = directory.unwrap_or_else(RelPath::root);
                let holder = open_beneath(root.as_fd(), &directory, PASSAGE)?;
                Ok(ResolvedPathName { holder, name: name.map(Into::into) })
            }
        }
    }

    /// Follows the path of a source; also returns the holder's own path beneath the base. A link of a part
    /// with a single name leads out.
    fn follow(&self, last: bool) -> io::Result<(ResolvedPathName, RelPath)> {
        match self {
            PathResolutionStart::Directory { root, above, path } => {
                let ResolvedPath { holder, directory, name } = follow(root.as_fd(), path, last)?;
                let directory = directory.components().try_fold(above.clone(), |path, name| path.join(name));
                Ok((ResolvedPathName { holder, name }, directory.map_err(|_| Errno::NAMETOOLONG)?))
            }
            PathResolutionStart::Name { holder, name } => {
                let holder = open_beneath(holder.as_fd(), &RelPath::root(), PASSAGE)?;
                let leads_out = last && readlinkat_raw(&holder, *name, &mut [0_u8; 1][..]).is_ok();
                if leads_out {
                    return Err(Errno::XDEV.into());
                }
                Ok((ResolvedPathName { holder, name: Some((*name).into()) }, RelPath::root()))
            }
        }
    }

    /// Holds a directory that was reached from here, with `path` as its name in messages.
    fn root_of(&self, handle: OwnedFd, path: PathBuf) -> io::Result<RootDirectory> {
        match self {
            PathResolutionStart::Directory { root, .. } => {
                RootDirectory::from_handle_beneath(handle, path, root.identity())
            }
            PathResolutionStart::Name { .. } => {
                let identity = FileIdentity::of_open(&handle)?;
                RootDirectory::from_handle_beneath(handle, path, identity)
            }
        }
    }
}

impl ResolvedPathName {
    /// The status of the entry, without following a link.
    pub(crate) fn status(&self, typed: &Path) -> Result<Stat, Errno> {
        let Some(name) = &self.name else { return fstat(&self.holder) };
        let stat = statat(&self.holder, &**name, AtFlags::SYMLINK_NOFOLLOW)?;
        let may_end_so =
            matches!(FileType::from_raw_mode(stat.st_mode), FileType::Directory | FileType::Symlink);
        if may_end_so || !ends_with_slash(typed) { Ok(stat) } else { Err(Errno::NOTDIR) }
    }
}

fn spot_anywhere(path: &Path) -> io::Result<ResolvedPathName> {
    let name = last_name(path);
    let directory = if name.is_some() { parent(path) } else { path };
    let holder = openat(CWD, directory, PASSAGE, Mode::empty())?;
    Ok(ResolvedPathName { holder, name: name.map(Into::into) })
}

/// The path in messages of a directory that a link led to, absolute or relative as `typed`.
fn shown(typed: &Path, directory: &RelPath) -> PathBuf {
    let found = Path::new(OsStr::from_bytes(directory.as_bytes()));
    match (typed.is_absolute(), directory.is_root()) {
        (true, _) => Path::new("/").join(found),
        (false, true) => PathBuf::from("."),
        (false, false) => found.to_path_buf(),
    }
}
