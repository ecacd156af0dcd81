//! Where the paths of one end begin: anywhere, as the user's own view of the file system has it, or beneath one held
//! directory, as a daemon's export.
//!
//! A base may be narrowed to parts of its directory ([`scopes`](self::scopes)).
//!
//! Owns the meaning of a path that somebody typed. Beneath a base nothing is ever resolved by way of `/`, the current
//! directory or a `..` that was typed; links are refused, but for those in the path of a source, which are followed
//! where they stay beneath ([`follow`](self::follow)). Mounts beneath a base belong to it. Used by any number of threads.

mod confines;
mod follow;
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

use carrack_model::{RelPath, Special};
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, Stat, fstat, mkdirat, openat, readlinkat_raw, statat,
};
use rustix::io::Errno;

use crate::beneath::{PASSAGE, open_beneath, open_child};
use crate::modes::{PROVISIONAL, mark_provisional};
use crate::special::special_of_stat;
use crate::typed::{beneath, ends_with_slash, last_name, parent};
use crate::{Identity, Root};
pub(crate) use confines::Confines;
pub(crate) use follow::Reached;
use follow::follow;
use scopes::{Origin, Scopes};

/// Where paths begin. Cheap to clone.
#[derive(Clone, Debug)]
pub enum Base {
    /// Where the process's own do; links are followed as the kernel does.
    Anywhere,
    /// In this directory, leading slash or not; nothing above it can be named.
    Beneath(Arc<Root>),
    /// As above, and only in some parts of a directory ([`Base::scoped`], [`Base::within`]).
    Scoped(Arc<Scopes>),
}

/// What a path is for, which decides what becomes of the links in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A source. Links on the way are followed, beneath a base as far as they stay there; the last name is itself.
    Read,
    /// A source, and the last name is followed as the others are.
    ReadThrough,
    /// A destination. Beneath a base no link is followed; anywhere all are.
    Write,
    /// It is looked at, made or removed. The last name is itself; beneath a base no link is followed.
    Browse,
}

/// What stands at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Looked {
    /// Which file or directory it is.
    pub identity: Identity,
    /// Whether it is a directory.
    pub is_directory: bool,
    /// Whether it is a symbolic link.
    pub is_symlink: bool,
    /// Its length in bytes.
    pub size: u64,
    /// When its contents last changed, in seconds since 1970.
    pub mtime_s: i64,
    /// Which device, pipe or socket it is, if it is one.
    pub special: Option<Special>,
}

/// A name, and the directory that holds it.
#[derive(Debug)]
pub struct Named {
    /// The directory, with a path for people.
    pub root: Root,
    /// Of the file or link.
    pub name: Box<[u8]>,
    /// Whether the name is a link that is still to be followed: never beneath a base, where that was done already.
    pub follow: bool,
}

/// A directory and a name in it; without a name the directory itself is meant.
#[derive(Debug)]
pub(crate) struct Spot {
    pub(crate) holder: OwnedFd,
    pub(crate) name: Option<Box<[u8]>>,
}

impl Purpose {
    /// In the user's own view.
    fn follows_last(self) -> bool {
        matches!(self, Purpose::ReadThrough | Purpose::Write)
    }
}

impl Base {
    /// Beneath `root`.
    pub fn beneath(root: Root) -> Base {
        Base::Beneath(Arc::new(root))
    }

    /// Beneath the directories `parts` of `top`. Paths begin at `top`; what lies beside the parts is `EACCES`, whether it
    /// exists or not. No link leads out of a part, and none into one.
    pub fn scoped(top: &Root, parts: Vec<RelPath>) -> Base {
        Base::Scoped(Arc::new(Scopes::open(top, parts)))
    }

    /// Beneath these held directories, each of which has the absolute path that it was opened with. Of two of which one lies in the
    /// other, the inner one holds what lies in both.
    ///
    /// # Errors
    /// `InvalidInput` for a path with `..`.
    pub fn within(directories: Vec<Root>) -> io::Result<Base> {
        Ok(Base::Scoped(Arc::new(Scopes::at(directories)?)))
    }

    /// Whether there is something that no path leads out of.
    pub fn is_confined(&self) -> bool {
        !matches!(self, Base::Anywhere)
    }

    /// Whether links in a source may be followed here: anywhere, and beneath directories that were named ([`Base::within`]), where they stay there.
    pub fn follows_links(&self) -> bool {
        match self {
            Base::Anywhere => true,
            Base::Beneath(_) => false,
            Base::Scoped(scopes) => scopes.are_named(),
        }
    }

    /// The path at which the process's own user would find `path`, for people.
    pub fn path_for_people(&self, path: &Path) -> PathBuf {
        let beneath = path.strip_prefix("/").unwrap_or(path);
        match self {
            Base::Anywhere => std::path::absolute(path).unwrap_or_default(),
            Base::Beneath(root) => root.path().join(beneath),
            Base::Scoped(scopes) => scopes.top().join(beneath),
        }
    }

    /// Holds the directory `path`, which is shown as it was typed.
    ///
    /// # Errors
    /// What `open` says, `ENOTDIR` or `ELOOP` for a link that is not followed, `EXDEV` for one that leads out,
    /// `InvalidInput` for a path with `..` beneath a base.
    pub fn open(&self, path: &Path, purpose: Purpose) -> io::Result<Root> {
        let Some(origin) = self.origin(path)? else {
            return Root::open_anywhere(path, purpose.follows_last());
        };
        let spot = origin.spot(purpose)?;
        let handle = match &spot.name {
            Some(name) => open_child(spot.holder.as_fd(), name, PASSAGE)?,
            None => spot.holder,
        };
        origin.root_of(handle, path.to_path_buf())
    }

    /// Holds the directory that has the last name of the destination `path`, also where that name is all that may be used of it.
    ///
    /// # Errors
    /// As [`Base::open`].
    pub fn open_parent(&self, path: &Path) -> io::Result<Root> {
        let Base::Scoped(_) = self else { return self.open(parent(path), Purpose::Write) };
        match self.origin(path)? {
            Some(origin @ Origin::Name { .. }) => {
                let holder = origin.spot(Purpose::Write)?.holder;
                origin.root_of(holder, parent(path).to_path_buf())
            }
            _ => self.open(parent(path), Purpose::Write),
        }
    }

    /// Looks at what stands at `path`; a name with a trailing slash is that of a directory, or of a link.
    ///
    /// # Errors
    /// As [`Base::open`].
    pub fn look(&self, path: &Path, purpose: Purpose) -> io::Result<Looked> {
        let stat = match self {
            Base::Anywhere if purpose.follows_last() => statat(CWD, path, AtFlags::empty())?,
            Base::Anywhere => statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW)?,
            Base::Beneath(_) | Base::Scoped(_) => self.spot(path, purpose)?.status(path)?,
        };
        let kind = FileType::from_raw_mode(stat.st_mode);
        Ok(Looked {
            identity: Identity::of(&stat),
            is_directory: kind == FileType::Directory,
            is_symlink: kind == FileType::Symlink,
            size: u64::try_from(stat.st_size).unwrap_or(0),
            mtime_s: stat.st_mtime,
            special: special_of_stat(&stat),
        })
    }

    /// The directory that holds the source `path`, and its name there. With `follow` a link is what it leads to.
    ///
    /// # Errors
    /// As [`Base::open`]; `EISDIR` for what has no name.
    pub fn hold(&self, path: &Path, follow: bool) -> io::Result<Named> {
        let Some(origin) = self.origin(path)? else {
            let name = last_name(path).ok_or(Errno::ISDIR)?;
            return Ok(Named { root: Root::open(parent(path))?, name: name.into(), follow });
        };
        let (spot, directory) = origin.follow(follow)?;
        let name = spot.name.ok_or(Errno::ISDIR)?;
        let shown = if follow { shown(path, &directory) } else { parent(path).to_path_buf() };
        Ok(Named { root: origin.root_of(spot.holder, shown)?, name, follow: false })
    }

    /// Which directory holds what `path` leads to in the end, and the name there.
    ///
    /// # Errors
    /// As [`Base::hold`].
    pub fn leads_to(&self, path: &Path) -> io::Result<(Identity, Box<[u8]>)> {
        if !self.is_confined() {
            let target = fs::canonicalize(path)?;
            let name = last_name(&target).ok_or(Errno::ISDIR)?;
            return Ok((Root::open(parent(&target))?.identity(), name.into()));
        }
        let Named { root, name, .. } = self.hold(path, true)?;
        Ok((root.identity(), name))
    }

    /// Opens the source `path`, a file or directory, to ask which storage it lies on. Beneath a base it can't be read.
    ///
    /// # Errors
    /// As [`Base::open`].
    pub fn open_to_ask(&self, path: &Path) -> io::Result<OwnedFd> {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        if let Base::Anywhere = self {
            let kind = FileType::from_raw_mode(statat(CWD, path, AtFlags::empty())?.st_mode);
            // To open a pipe waits for a writer, and to open a device may do anything.
            let is_plain = matches!(kind, FileType::RegularFile | FileType::Directory);
            let flags = if is_plain { OFlags::RDONLY | OFlags::CLOEXEC } else { flags };
            return Ok(openat(CWD, path, flags, Mode::empty())?);
        }
        let Spot { holder, name } = self.spot(path, Purpose::ReadThrough)?;
        match name {
            Some(name) => Ok(open_child(holder.as_fd(), &name, flags)?),
            None => Ok(holder),
        }
    }

    /// Creates the directory `path` for a transfer's files, with the mode of [`Root::make_directory`]; one that is there already will do.
    ///
    /// # Errors
    /// What `mkdir` says; as [`Base::open`].
    pub fn make_destination(&self, path: &Path) -> io::Result<()> {
        let made = match self {
            Base::Anywhere => mkdirat(CWD, path, PROVISIONAL).map_err(io::Error::from),
            Base::Beneath(_) | Base::Scoped(_) => self.make_child(path, PROVISIONAL),
        };
        match made {
            Ok(()) => {
                mark_provisional(self.open(path, Purpose::Write)?.as_fd());
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Creates the last name of `path`.
    pub(crate) fn make_child(&self, path: &Path, mode: Mode) -> io::Result<()> {
        let spot = self.spot(path, Purpose::Browse)?;
        Ok(mkdirat(&spot.holder, &*spot.name.ok_or(Errno::EXIST)?, mode)?)
    }

    /// As [`Base::open`], for a source whose links are copied as what they lead to: beneath a base they are followed where they stay there, each
    /// time that something is opened, an absolute one into the same directory too.
    ///
    /// # Errors
    /// As [`Base::open`]; where no links are followed ([`Base::follows_links`]).
    pub fn open_following(&self, path: &Path) -> io::Result<Root> {
        let Some(origin) = self.origin(path)? else { return Root::open(path)?.following() };
        if !self.follows_links() {
            return Err(io::Error::other("what is beneath an export is read without following links"));
        }
        let Origin::Directory { root, above, path: beneath } = &origin else {
            return Err(Errno::NOTDIR.into());
        };
        let Reached { holder, directory, name } = follow(root.as_fd(), beneath, true)?;
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
        Ok(opened.following_within(Confines { top, top_path, root_path }))
    }

    /// The directory that holds the last name of `path`; it can't be read.
    pub(crate) fn spot(&self, path: &Path, purpose: Purpose) -> io::Result<Spot> {
        match self.origin(path)? {
            None => spot_anywhere(path),
            Some(origin) => origin.spot(purpose),
        }
    }

    /// The directory that nothing is removed of but what is beneath it; as `/` is, where there is no base.
    pub(crate) fn top_of(&self, path: &Path) -> io::Result<Identity> {
        match self.origin(path)? {
            None => Ok(Identity::of(&statat(CWD, c"/", AtFlags::empty())?)),
            Some(Origin::Directory { root, .. } | Origin::Name { holder: root, .. }) => Ok(root.identity()),
        }
    }

    /// Creates the directory `path` and what is missing on the way to it, beneath a base.
    pub(crate) fn make_all_beneath(&self, path: &Path, mode: Mode) -> io::Result<()> {
        match self.origin(path)? {
            None => return Err(Errno::INVAL.into()),
            Some(Origin::Directory { root, path, .. }) => root.make_with(&path, mode, PASSAGE)?,
            Some(Origin::Name { holder, name }) => {
                let path = RelPath::new(name).map_err(|_| Errno::INVAL)?;
                holder.make_with(&path, mode, PASSAGE)?
            }
        };
        Ok(())
    }

    /// Where the resolution of `path` begins; nothing where that is the kernel's matter.
    fn origin(&self, path: &Path) -> io::Result<Option<Origin<'_>>> {
        match self {
            Base::Anywhere => Ok(None),
            Base::Beneath(root) => {
                Ok(Some(Origin::Directory { root, above: RelPath::root(), path: beneath(path)? }))
            }
            Base::Scoped(scopes) => scopes.origin(&beneath(path)?).map(Some),
        }
    }
}

impl Origin<'_> {
    fn spot(&self, purpose: Purpose) -> io::Result<Spot> {
        match (self, purpose) {
            (_, Purpose::Read | Purpose::ReadThrough) | (Origin::Name { .. }, _) => {
                Ok(self.follow(purpose == Purpose::ReadThrough)?.0)
            }
            (Origin::Directory { root, path, .. }, Purpose::Write | Purpose::Browse) => {
                let (directory, name) = path.split_last().unzip();
                let directory = directory.unwrap_or_else(RelPath::root);
                let holder = open_beneath(root.as_fd(), &directory, PASSAGE)?;
                Ok(Spot { holder, name: name.map(Into::into) })
            }
        }
    }

    /// Where the path of a source leads, and the holder's own path beneath the base. A link leads out of a part that is one name.
    fn follow(&self, last: bool) -> io::Result<(Spot, RelPath)> {
        match self {
            Origin::Directory { root, above, path } => {
                let Reached { holder, directory, name } = follow(root.as_fd(), path, last)?;
                let directory = directory.components().try_fold(above.clone(), |path, name| path.join(name));
                Ok((Spot { holder, name }, directory.map_err(|_| Errno::NAMETOOLONG)?))
            }
            Origin::Name { holder, name } => {
                let holder = open_beneath(holder.as_fd(), &RelPath::root(), PASSAGE)?;
                let leads_out = last && readlinkat_raw(&holder, *name, &mut [0_u8; 1][..]).is_ok();
                if leads_out {
                    return Err(Errno::XDEV.into());
                }
                Ok((Spot { holder, name: Some((*name).into()) }, RelPath::root()))
            }
        }
    }

    /// Holds a directory that was reached from here; people know it as `path`.
    fn root_of(&self, handle: OwnedFd, path: PathBuf) -> io::Result<Root> {
        match self {
            Origin::Directory { root, .. } => Root::beneath(handle, path, root.identity()),
            Origin::Name { .. } => {
                let identity = Identity::of_open(&handle)?;
                Root::beneath(handle, path, identity)
            }
        }
    }
}

impl Spot {
    /// What has the name; a link is itself.
    pub(crate) fn status(&self, typed: &Path) -> Result<Stat, Errno> {
        let Some(name) = &self.name else { return fstat(&self.holder) };
        let stat = statat(&self.holder, &**name, AtFlags::SYMLINK_NOFOLLOW)?;
        let may_end_so =
            matches!(FileType::from_raw_mode(stat.st_mode), FileType::Directory | FileType::Symlink);
        if may_end_so || !ends_with_slash(typed) { Ok(stat) } else { Err(Errno::NOTDIR) }
    }
}

fn spot_anywhere(path: &Path) -> io::Result<Spot> {
    let name = last_name(path);
    let directory = if name.is_some() { parent(path) } else { path };
    let holder = openat(CWD, directory, PASSAGE, Mode::empty())?;
    Ok(Spot { holder, name: name.map(Into::into) })
}

/// A directory that a link led to, in the way in which `typed` was written.
fn shown(typed: &Path, directory: &RelPath) -> PathBuf {
    let found = Path::new(OsStr::from_bytes(directory.as_bytes()));
    match (typed.is_absolute(), directory.is_root()) {
        (true, _) => Path::new("/").join(found),
        (false, true) => PathBuf::from("."),
        (false, false) => found.to_path_buf(),
    }
}
