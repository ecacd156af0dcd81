//! One entry of a directory listing.

use carrack_model::Timestamp;
use rustix::fs::{FileType, Stat};

use crate::status::{mtime_of, permissions, size_of};

/// The type of an entry.
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
    /// A type that this program does not know.
    Other,
}

/// The name and status of one entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedEntry {
    /// The name; empty for a directory that was named without one.
    pub name: Box<[u8]>,
    /// The type.
    pub kind: BrowsedKind,
    /// Size in bytes; for a link that of its text, for a directory a value of the file system's choice.
    pub size: u64,
    /// Modification time.
    pub mtime: Timestamp,
    /// Permission bits (`07777`).
    pub mode: u32,
    /// User ID of the owner.
    pub uid: u32,
    /// Group ID.
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

impl ListedEntry {
    pub(super) fn of(name: &[u8], stat: &Stat) -> ListedEntry {
        ListedEntry {
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
