//! The top of an end's paths: a directory, a file or link, or no entry.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use carrack_model::RelPath;
use carrack_storage::typed::ends_with_slash;
use carrack_storage::{Base, Named, Purpose, Root};
use rustix::io::Errno;

use super::question::Standing;

/// The entry that the user named.
#[derive(Debug)]
pub(crate) struct Top {
    what: What,
    /// The path as typed.
    path: Box<[u8]>,
}

#[derive(Debug)]
enum What {
    Directory(Arc<Root>),
    Name(Named),
    Error(io::Error),
}

/// A held directory, and a name in it; without a name the directory itself.
pub(super) struct Spot<'a> {
    pub(super) holder: Holder<'a>,
    pub(super) name: Option<Box<[u8]>>,
}

/// A directory that was opened for the question, or the top.
pub(super) enum Holder<'a> {
    Own(OwnedFd),
    Held(BorrowedFd<'a>),
}

impl AsFd for Holder<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Holder::Own(fd) => fd.as_fd(),
            Holder::Held(fd) => *fd,
        }
    }
}

impl Top {
    /// Examines `path`. A link is followed if it is written with a trailing slash, and as a destination if it
    /// leads to a directory. A missing entry is no error but an answer.
    pub(crate) fn open(base: &Base, path: &Path, is_destination: bool) -> Top {
        let what = open(base, path, is_destination).unwrap_or_else(What::Error);
        Top { what, path: path.as_os_str().as_bytes().into() }
    }

    /// The path as typed.
    pub(super) fn path(&self) -> &[u8] {
        &self.path
    }

    /// Returns the directory `beneath`, or `None` if the path is that of a file or link at the top.
    pub(super) fn root(&self, beneath: &RelPath) -> io::Result<Option<Arc<Root>>> {
        let root = match &self.what {
            What::Directory(root) if beneath.is_root() => return Ok(Some(Arc::clone(root))),
            What::Directory(root) => root,
            What::Name(_) if beneath.is_root() => return Ok(None),
            What::Name(_) => return Err(Errno::NOTDIR.into()),
            What::Error(error) => return Err(again(error)),
        };
        let path = Path::new(std::ffi::OsStr::from_bytes(beneath.as_bytes()));
        Base::Beneath(Arc::clone(root)).open(path, Purpose::Write).map(|root| Some(Arc::new(root)))
    }

    /// Opens a directory to examine its names.
    pub(super) fn open_directory(&self, path: &RelPath) -> io::Result<OwnedFd> {
        match &self.what {
            What::Directory(root) => root.open_directory(path),
            What::Name(_) => Err(Errno::NOTDIR.into()),
            What::Error(error) => Err(again(error)),
        }
    }

    /// Returns the entry of the path itself.
    pub(super) fn spot(&self, path: &RelPath) -> io::Result<Spot<'_>> {
        match (&self.what, path.split_last()) {
            (What::Directory(root), None) => Ok(Spot { holder: Holder::Held(root.as_fd()), name: None }),
            (What::Directory(root), Some((directory, name))) => {
                let holder = Holder::Own(root.open_directory(&directory)?);
                Ok(Spot { holder, name: Some(name.into()) })
            }
            (What::Name(Named { root, name, .. }), None) => {
                Ok(Spot { holder: Holder::Held(root.as_fd()), name: Some(name.clone()) })
            }
            (What::Name(_), Some(_)) => Err(Errno::NOTDIR.into()),
            (What::Error(error), _) => Err(again(error)),
        }
    }
}

fn open(base: &Base, path: &Path, is_destination: bool) -> io::Result<What> {
    let itself = base.look(path, Purpose::Read)?;
    let follow = itself.is_symlink
        && (ends_with_slash(path) || is_destination)
        && base.look(path, Purpose::ReadThrough).is_ok_and(|through| through.is_directory);
    Ok(if follow || itself.is_directory {
        let purpose = if follow { Purpose::ReadThrough } else { Purpose::Read };
        What::Directory(Arc::new(base.open(path, purpose)?))
    } else {
        What::Name(base.hold(path, false)?)
    })
}

/// Copies an error, which may be returned several times.
fn again(error: &io::Error) -> io::Error {
    match Errno::from_io_error(error) {
        Some(errno) => errno.into(),
        None => io::Error::new(error.kind(), error.to_string()),
    }
}

/// Returns the state of an entry by an error. A link or file in place of a directory has no entries.
pub(super) fn standing_of(error: &io::Error) -> Standing {
    match Errno::from_io_error(error) {
        Some(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Standing::Nothing,
        _ => Standing::Unreadable(error.to_string()),
    }
}
