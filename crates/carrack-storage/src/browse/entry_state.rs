//! The entry of one name in a held directory, and the stamp that reveals a change.

use std::io;
use std::os::fd::BorrowedFd;

use carrack_model::{Metadata, SpecialFile};
use rustix::fs::{AtFlags, FileType, fstat, readlinkat, statat};

use super::BrowsedKind;
use crate::FileStamp;
use crate::special::special_of_stat;
use crate::status::{allocated_bytes_of, metadata_of};

/// The state of one entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryStatResult {
    /// Its type; a link is not followed.
    pub kind: BrowsedKind,
    /// Its present stamp.
    pub stamp: FileStamp,
    /// Mode and modification time.
    pub metadata: Metadata,
    /// User ID and group ID.
    pub owner: (u32, u32),
    /// Number of its names on its whole file system.
    pub names: u32,
    /// Bytes that the storage has allocated for it.
    pub allocated_bytes: u64,
    /// The type and number of a device, pipe or socket.
    pub special: Option<SpecialFile>,
}

/// Reads the state of `name` in `directory`, or of the directory itself without a name.
///
/// # Errors
/// Those of `stat`.
pub fn read_entry_state(directory: BorrowedFd<'_>, name: Option<&[u8]>) -> io::Result<EntryStatResult> {
    let stat = match name {
        Some(name) => statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?,
        None => fstat(directory)?,
    };
    Ok(EntryStatResult {
        kind: BrowsedKind::of(FileType::from_raw_mode(stat.st_mode)),
        stamp: FileStamp::of(&stat),
        metadata: metadata_of(&stat),
        owner: (stat.st_uid, stat.st_gid),
        names: u32::try_from(stat.st_nlink).unwrap_or(u32::MAX),
        allocated_bytes: allocated_bytes_of(&stat),
        special: special_of_stat(&stat),
    })
}

/// Reads the text of the link `name` in `directory`.
///
/// # Errors
/// Those of `readlink`.
pub fn link_text(directory: BorrowedFd<'_>, name: &[u8]) -> io::Result<Vec<u8>> {
    Ok(readlinkat(directory, name, Vec::new())?.into_bytes())
}
