//! The results of `stat` as carrack's types: identity, metadata, and the stamp that reveals a change.
//!
//! Conversions only; the only system calls are `fstat` and `statx`.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use carrack_model::{Metadata, Timestamp};
use rustix::fs::{AtFlags, FileType, Stat, StatxFlags, fstat, makedev, statx};

/// Unit of `st_blocks` (inode(7)).
const BLOCK_BYTES: u64 = 512;

/// The permission bits of a mode.
const PERMISSION_BITS: u32 = 0o7777;

/// Identifies a file or directory among all on this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileIdentity {
    /// The device number of its file system.
    pub dev: u64,
    /// Its inode number there.
    pub ino: u64,
}

impl FileIdentity {
    pub(crate) fn of(stat: &Stat) -> FileIdentity {
        FileIdentity { dev: stat.st_dev, ino: stat.st_ino }
    }

    pub(crate) fn of_open(fd: impl AsFd) -> io::Result<FileIdentity> {
        Ok(FileIdentity::of(&fstat(fd)?))
    }
}

/// Identifies a mount. A bind mount has the device number of its source, but an ID of its own.
#[derive(Clone, Copy, Debug)]
pub struct MountIdentity {
    /// The mount's ID, known on Linux 5.8 and newer.
    pub(crate) id: Option<u64>,
    device: u64,
}

impl MountIdentity {
    /// The mount of an open file or directory.
    ///
    /// # Errors
    /// Those of `statx` and `fstat`.
    pub fn of(fd: BorrowedFd<'_>) -> io::Result<MountIdentity> {
        let Ok(found) = statx(fd, c"", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID) else {
            return Ok(MountIdentity { id: None, device: fstat(fd)?.st_dev });
        };
        let is_told = found.stx_mask & StatxFlags::MNT_ID.bits() != 0;
        let device = makedev(found.stx_dev_major, found.stx_dev_minor);
        Ok(MountIdentity { id: is_told.then_some(found.stx_mnt_id), device })
    }
}

impl PartialEq for MountIdentity {
    fn eq(&self, other: &MountIdentity) -> bool {
        match (self.id, other.id) {
            (Some(id), Some(other)) => id == other,
            _ => self.device == other.device,
        }
    }
}

/// The state of a file at one moment. Equal stamps prove equal contents, as far as the granularity of the
/// file system's clock can show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileStamp {
    /// The device number of its file system.
    pub dev: u64,
    /// Its inode number there.
    pub ino: u64,
    /// Size in bytes.
    pub size: u64,
    /// Time of the last change of the contents.
    pub mtime: Timestamp,
    /// Time of the last change of the inode; unlike `mtime`, no program can set it.
    pub ctime: Timestamp,
}

impl FileStamp {
    pub(crate) fn of(stat: &Stat) -> FileStamp {
        FileStamp {
            dev: stat.st_dev,
            ino: stat.st_ino,
            size: size_of(stat),
            mtime: mtime_of(stat),
            ctime: ctime_of(stat),
        }
    }
}

pub(crate) fn is_regular(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
}

pub(crate) fn size_of(stat: &Stat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or(0)
}

/// Bytes allocated for a file; less than its size if it has holes or is compressed.
pub(crate) fn allocated_bytes_of(stat: &Stat) -> u64 {
    u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(BLOCK_BYTES)
}

pub(crate) fn mtime_of(stat: &Stat) -> Timestamp {
    timestamp(stat.st_mtime, stat.st_mtime_nsec)
}

/// Time of the last change of the inode.
pub(crate) fn ctime_of(stat: &Stat) -> Timestamp {
    timestamp(stat.st_ctime, stat.st_ctime_nsec)
}

pub(crate) fn metadata_of(stat: &Stat) -> Metadata {
    Metadata { mode: permissions(stat.st_mode), mtime: mtime_of(stat) }
}

pub(crate) fn permissions(mode: u32) -> u32 {
    mode & PERMISSION_BITS
}

/// The nanoseconds are signed in the C library's `stat` and unsigned in the kernel's.
fn timestamp(seconds: i64, nanoseconds: impl TryInto<u32>) -> Timestamp {
    Timestamp { seconds, nanoseconds: nanoseconds.try_into().unwrap_or(0) }
}
