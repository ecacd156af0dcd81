//! What stands at one name of a held directory, and the stamp by which a change is noticed.

use std::io;
use std::os::fd::BorrowedFd;

use carrack_model::{Metadata, Special};
use rustix::fs::{AtFlags, FileType, fstat, readlinkat, statat};

use super::BrowsedKind;
use crate::FileStamp;
use crate::special::special_of_stat;
use crate::status::{allocated_bytes_of, metadata_of};

/// What stands at a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Glance {
    /// What it is; a link is itself.
    pub kind: BrowsedKind,
    /// Its state now.
    pub stamp: FileStamp,
    /// Mode and modification time.
    pub metadata: Metadata,
    /// Numbers of its owner and group.
    pub owner: (u32, u32),
    /// Names that it has, on its whole file system.
    pub names: u32,
    /// Bytes that the storage holds of it.
    pub allocated_bytes: u64,
    /// What a device, pipe or socket is.
    pub special: Option<Special>,
}

/// Looks at `name` in `directory`; without a name at the directory itself.
///
/// # Errors
/// What `stat` says.
pub fn glance(directory: BorrowedFd<'_>, name: Option<&[u8]>) -> io::Result<Glance> {
    let stat = match name {
        Some(name) => statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?,
        None => fstat(directory)?,
    };
    Ok(Glance {
        kind: BrowsedKind::of(FileType::from_raw_mode(stat.st_mode)),
        stamp: FileStamp::of(&stat),
        metadata: metadata_of(&stat),
        owner: (stat.st_uid, stat.st_gid),
        names: u32::try_from(stat.st_nlink).unwrap_or(u32::MAX),
        allocated_bytes: allocated_bytes_of(&stat),
        special: special_of_stat(&stat),
    })
}

/// The text of the link `name` in `directory`.
///
/// # Errors
/// What `readlink` says.
pub fn link_text(directory: BorrowedFd<'_>, name: &[u8]) -> io::Result<Vec<u8>> {
    Ok(readlinkat(directory, name, Vec::new())?.into_bytes())
}
