//! What stands at one name of a held directory, and the stamp by which a change is noticed.

use std::io;
use std::os::fd::BorrowedFd;

use carrack_model::Special;
use rustix::fs::{AtFlags, FileType, fstat, readlinkat, statat};

use super::BrowsedKind;
use crate::FileStamp;
use crate::special::special_of_stat;

/// What stands at a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Glance {
    /// What it is; a link is itself.
    pub kind: BrowsedKind,
    /// Its state now.
    pub stamp: FileStamp,
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
    let kind = BrowsedKind::of(FileType::from_raw_mode(stat.st_mode));
    Ok(Glance { kind, stamp: FileStamp::of(&stat), special: special_of_stat(&stat) })
}

/// The text of the link `name` in `directory`.
///
/// # Errors
/// What `readlink` says.
pub fn link_text(directory: BorrowedFd<'_>, name: &[u8]) -> io::Result<Vec<u8>> {
    Ok(readlinkat(directory, name, Vec::new())?.into_bytes())
}
