//! The top of an end's paths: a directory, a file or link, or no entry.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use carrack_model::{RelPath, text_without_errno};
use carrack_storage::typed_path::ends_with_slash;
use carrack_storage::{EntryPlace, PathBase, PathPurpose, RootDirectory};
use rustix::io::Errno;

use super::question::ExaminedEntryKind;

/// The entry that the user named.
#[derive(Debug)]
pub(crate) struct ExamineRoot {
    what: ExamineRootKind,
    /// The path as typed.
    path: Box<[u8]>,
}

#[derive(Debug)]
enum ExamineRootKind {
    Directory(Arc<RootDirectory>),
    Name(EntryPlace),
    Error(io::Error),
}

/// A held directory, and a name in it; without a name the directory itself.
pub(super) struct ExaminedPlace<'a> {
    pub(super) holder: ExaminedDirectory<'a>,
    pub(super) name: Option<Box<[u8]>>,
}

/// A directory that was opened for the question, or the top.
pub(super) enum ExaminedDirectory<'a> {
    Own(OwnedFd),
    Held(BorrowedFd<'a>),
}

impl AsFd for ExaminedDirectory<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            ExaminedDirectory::Own(fd) => fd.as_fd(),
            ExaminedDirectory::Held(fd) => *fd,
        }
    }
}

impl ExamineRoot {
    /// Examines `path`. A link is followed if it is written with a trailing slash, and as a destination if it
    /// leads to a directory. A missing entry is no error but an answer.
    pub(crate) fn open(base: &PathBase, path: &Path, is_destination: bool) -> ExamineRoot {
        let what = open(base, path, is_destination).unwrap_or_else(ExamineRootKind::Error);
        ExamineRoot { what, path: path.as_os_str().as_bytes().into() }
    }

    /// The path as typed.
    pub(super) fn path(&self) -> &[u8] {
        &self.path
    }

    /// Returns the directory `beneath`, or `None` if the path is that of a file or link at the top.
    pub(super) fn open_root_at(&self, beneath: &RelPath) -> io::Result<Option<Arc<RootDirectory>>> {
        let root = match &self.what {
            ExamineRootKind::Directory(root) if beneath.is_root() => return Ok(Some(Arc::clone(root))),
            ExamineRootKind::Directory(root) => root,
            ExamineRootKind::Name(_) if beneath.is_root() => return Ok(None),
            ExamineRootKind::Name(_) => return Err(Errno::NOTDIR.into()),
            ExamineRootKind::Error(error) => return Err(clone_error(error)),
        };
        let path = Path::new(std::ffi::OsStr::from_bytes(beneath.as_bytes()));
        PathBase::Beneath(Arc::clone(root)).open(path, PathPurpose::Write).map(|root| Some(Arc::new(root)))
    }

    /// Opens a directory to examine its names.
    pub(super) fn open_directory(&self, path: &RelPath) -> io::Result<OwnedFd> {
        match &self.what {
            ExamineRootKind::Directory(root) => root.open_directory(path),
            ExamineRootKind::Name(_) => Err(Errno::NOTDIR.into()),
            ExamineRootKind::Error(error) => Err(clone_error(error)),
        }
    }

    /// Returns the entry of the path itself.
    pub(super) fn locate_entry(&self, path: &RelPath) -> io::Result<ExaminedPlace<'_>> {
        match (&self.what, path.split_last()) {
            (ExamineRootKind::Directory(root), None) => {
                Ok(ExaminedPlace { holder: ExaminedDirectory::Held(root.as_fd()), name: None })
            }
            (ExamineRootKind::Directory(root), Some((directory, name))) => {
                let holder = ExaminedDirectory::Own(root.open_directory(&directory)?);
                Ok(ExaminedPlace { holder, name: Some(name.into()) })
            }
            (ExamineRootKind::Name(EntryPlace { root, name, .. }), None) => {
                Ok(ExaminedPlace { holder: ExaminedDirectory::Held(root.as_fd()), name: Some(name.clone()) })
            }
            (ExamineRootKind::Name(_), Some(_)) => Err(Errno::NOTDIR.into()),
            (ExamineRootKind::Error(error), _) => Err(clone_error(error)),
        }
    }
}

fn open(base: &PathBase, path: &Path, is_destination: bool) -> io::Result<ExamineRootKind> {
    let itself = base.look(path, PathPurpose::Read)?;
    let follow = itself.is_symlink
        && (ends_with_slash(path) || is_destination)
        && base.look(path, PathPurpose::ReadThrough).is_ok_and(|through| through.is_directory);
    Ok(if follow || itself.is_directory {
        let purpose = if follow { PathPurpose::ReadThrough } else { PathPurpose::Read };
        ExamineRootKind::Directory(Arc::new(base.open(path, purpose)?))
    } else {
        ExamineRootKind::Name(base.hold(path, false)?)
    })
}

/// Copies an error, which may be returned several times.
fn clone_error(error: &io::Error) -> io::Error {
    match Errno::from_io_error(error) {
        Some(errno) => errno.into(),
        None => io::Error::new(error.kind(), text_without_errno(&error)),
    }
}

/// Returns the state of an entry by an error. A link or file in place of a directory has no entries.
pub(super) fn entry_kind_of_error(error: &io::Error) -> ExaminedEntryKind {
    match Errno::from_io_error(error) {
        Some(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => ExaminedEntryKind::Nothing,
        _ => ExaminedEntryKind::Unreadable(text_without_errno(&error)),
    }
}
