//! One entry as it is shown.

use carrack_model::Timestamp;
use rustix::fs::{FileType, Stat};

use crate::status::{mtime_of, permissions, size_of};

/// What kind of thing has a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BrowsedKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A named pipe.
    Pipe,
    /// A socket.
    Socket,
    /// A character or block device.
    Device,
    /// Something that this program does not know.
    Other,
}

/// What the storage says of one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Browsed {
    /// Its name; empty for a directory that was named without one.
    pub name: Box<[u8]>,
    /// What it is.
    pub kind: BrowsedKind,
    /// Bytes; of a link those of its text, of a directory what the file system likes.
    pub size: u64,
    /// Time of the last change of the contents.
    pub mtime: Timestamp,
    /// Permission bits (`07777`).
    pub mode: u32,
    /// Number of the user that owns it.
    pub uid: u32,
    /// Number of the group that owns it.
    pub gid: u32,
}

impl BrowsedKind {
    pub(super) fn of(file_type: FileType) -> BrowsedKind {
        match file_type {
            FileType::RegularFile => BrowsedKind::File,
            FileType::Directory => BrowsedKind::Directory,
            FileType::Symlink => BrowsedKind::Symlink,
            FileType::Fifo => BrowsedKind::Pipe,
            FileType::Socket => BrowsedKind::Socket,
            FileType::CharacterDevice | FileType::BlockDevice => BrowsedKind::Device,
            FileType::Unknown => BrowsedKind::Other,
        }
    }
}

impl Browsed {
    pub(super) fn of(name: &[u8], stat: &Stat) -> Browsed {
        Browsed {
            name: name.into(),
            kind: BrowsedKind::of(FileType::from_raw_mode(stat.st_mode)),
            size: size_of(stat),
            mtime: mtime_of(stat),
            mode: permissions(stat.st_mode),
            uid: stat.st_uid,
            gid: stat.st_gid,
        }
    }
}
