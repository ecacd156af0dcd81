//! The entries that a resumed session finds at the sink.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use carrack_model::{Metadata, SpecialFile, Timestamp};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, StatxFlags, StatxTimestamp, fstat, openat, statat, statx};
use rustix::io::Errno;

use crate::special::special_of_stat;
use crate::status::mtime_of;
use crate::{MetadataToSet, SinkError, link_text};

/// The entry of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExistingEntry {
    /// A regular file.
    File {
        /// Size in bytes.
        size: u64,
        /// Its mode and time.
        metadata: Metadata,
        /// Numbers of its user and group.
        owner: (u32, u32),
    },
    /// A symbolic link.
    Symlink {
        /// Its text.
        target: Box<[u8]>,
        /// Its modification time.
        mtime: Timestamp,
        /// Numbers of its user and group.
        owner: (u32, u32),
    },
    /// A device, pipe or socket.
    Special {
        /// Its type and device number.
        special: SpecialFile,
        /// Its mode and time.
        metadata: Metadata,
        /// Numbers of its user and group.
        owner: (u32, u32),
    },
    /// Anything else.
    Other,
}

/// Looks at `name` in `directory` without following a link; none if there is no such name.
///
/// # Errors
/// Those of the system calls.
pub fn read_existing_entry(directory: BorrowedFd<'_>, name: &[u8]) -> io::Result<Option<ExistingEntry>> {
    let found = match statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => return Ok(None),
        found => found?,
    };
    let mtime = Timestamp { seconds: found.st_mtime, nanoseconds: found.st_mtime_nsec as u32 };
    let metadata = Metadata { mode: found.st_mode & 0o7777, mtime };
    let owner = (found.st_uid, found.st_gid);
    if let Some(special) = special_of_stat(&found) {
        return Ok(Some(ExistingEntry::Special { special, metadata, owner }));
    }
    Ok(Some(match FileType::from_raw_mode(found.st_mode) {
        FileType::RegularFile => ExistingEntry::File { size: found.st_size as u64, metadata, owner },
        FileType::Symlink => {
            ExistingEntry::Symlink { target: link_text(directory, name)?.into(), mtime, owner }
        }
        _ => ExistingEntry::Other,
    }))
}

/// Times of a regular file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExistingFileTimes {
    /// The last change of the contents.
    pub mtime: Timestamp,
    /// The creation, or the last change of the inode (ctime) where the file system does not keep the
    /// creation.
    pub created: Timestamp,
}

/// Returns the times of a regular file; `None` if `name` is not one. Does not follow a link.
///
/// # Errors
/// Those of statx(2).
pub fn file_times(directory: BorrowedFd<'_>, name: &[u8]) -> io::Result<Option<ExistingFileTimes>> {
    let asked = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    let found = match statx(directory, name, AtFlags::SYMLINK_NOFOLLOW, asked) {
        Err(Errno::NOENT) => return Ok(None),
        found => found?,
    };
    if FileType::from_raw_mode(found.stx_mode.into()) != FileType::RegularFile {
        return Ok(None);
    }
    let has_birth = StatxFlags::from_bits_retain(found.stx_mask).contains(StatxFlags::BTIME);
    let of = |time: &StatxTimestamp| Timestamp { seconds: time.tv_sec, nanoseconds: time.tv_nsec };
    let created = of(if has_birth { &found.stx_btime } else { &found.stx_ctime });
    Ok(Some(ExistingFileTimes { mtime: of(&found.stx_mtime), created }))
}

/// The BLAKE3 digest of a file's contents. Follows a link only with `follow`.
///
/// # Errors
/// Those of opening and reading the file.
pub fn digest_of(directory: BorrowedFd<'_>, name: &[u8], follow: bool) -> io::Result<[u8; 32]> {
    let file = open_file(directory, name, follow)?;
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader(&file)?;
    Ok(*hasher.finalize().as_bytes())
}

/// Sets the metadata of a file whose contents are right.
///
/// # Errors
/// Those of opening the file and of setting mode and times. The keeper counts other failures.
pub fn set_file_metadata(
    directory: BorrowedFd<'_>,
    name: &[u8],
    dress: &MetadataToSet<'_>,
) -> Result<(), SinkError> {
    let file = open_file(directory, name, false).map_err(SinkError::of_directory)?;
    dress.apply_to(file.as_fd(), true)?;
    let learns = dress.losses.is_some_and(|losses| !losses.knows_times());
    let before = if learns { fstat(&file).ok() } else { None };
    dress.set_time(file.as_fd(), before.as_ref().map(mtime_of))
}

fn open_file(directory: BorrowedFd<'_>, name: &[u8], follow: bool) -> io::Result<File> {
    let mut flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    flags.set(OFlags::NOFOLLOW, !follow);
    Ok(File::from(openat(directory, name, flags, Mode::empty())?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_looked_at_and_files_hashed() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("f"), b"content").unwrap();
        std::os::unix::fs::symlink("f", dir.path().join("l")).unwrap();
        std::fs::create_dir(dir.path().join("d")).unwrap();
        let held = File::open(dir.path()).unwrap();
        fn look(held: &File, name: &[u8]) -> Option<ExistingEntry> {
            read_existing_entry(held.as_fd(), name).unwrap()
        }
        assert!(matches!(look(&held, b"f"), Some(ExistingEntry::File { size: 7, .. })));
        assert!(matches!(look(&held, b"l"), Some(ExistingEntry::Symlink { target, .. }) if *target == *b"f"));
        assert_eq!((look(&held, b"d"), look(&held, b"x")), (Some(ExistingEntry::Other), None));
        assert_eq!(digest_of(held.as_fd(), b"f", false).unwrap(), *blake3::hash(b"content").as_bytes());
        assert!(digest_of(held.as_fd(), b"l", false).is_err());
        assert_eq!(digest_of(held.as_fd(), b"l", true).unwrap(), *blake3::hash(b"content").as_bytes());
    }
}
