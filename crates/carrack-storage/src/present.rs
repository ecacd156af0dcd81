//! What stands under a name at the sink, for a session that goes on where another one ended.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use carrack_model::{Metadata, Special, Timestamp};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, fstat, openat, statat};
use rustix::io::Errno;

use crate::special::special_of_stat;
use crate::status::mtime_of;
use crate::{Dress, SinkError, link_text};

/// What stands under a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Present {
    /// A regular file.
    File {
        /// Bytes.
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
        /// When it was modified.
        mtime: Timestamp,
        /// Numbers of its user and group.
        owner: (u32, u32),
    },
    /// A device, pipe or socket.
    Special {
        /// Which.
        special: Special,
        /// Its mode and time.
        metadata: Metadata,
        /// Numbers of its user and group.
        owner: (u32, u32),
    },
    /// Anything else.
    Other,
}

/// Looks at `name` in `directory`, not through links; nothing if there is no such name.
///
/// # Errors
/// What the calls say.
pub fn look_at(directory: BorrowedFd<'_>, name: &[u8]) -> io::Result<Option<Present>> {
    let found = match statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => return Ok(None),
        found => found?,
    };
    let mtime = Timestamp { seconds: found.st_mtime, nanoseconds: found.st_mtime_nsec as u32 };
    let metadata = Metadata { mode: found.st_mode & 0o7777, mtime };
    let owner = (found.st_uid, found.st_gid);
    if let Some(special) = special_of_stat(&found) {
        return Ok(Some(Present::Special { special, metadata, owner }));
    }
    Ok(Some(match FileType::from_raw_mode(found.st_mode) {
        FileType::RegularFile => Present::File { size: found.st_size as u64, metadata, owner },
        FileType::Symlink => Present::Symlink { target: link_text(directory, name)?.into(), mtime, owner },
        _ => Present::Other,
    }))
}

/// BLAKE3 of a file's contents; a link is followed only if `follow` says so.
///
/// # Errors
/// What opening and reading it say.
pub fn digest_of(directory: BorrowedFd<'_>, name: &[u8], follow: bool) -> io::Result<[u8; 32]> {
    let file = open_file(directory, name, follow)?;
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader(&file)?;
    Ok(*hasher.finalize().as_bytes())
}

/// Gives a file whose contents are right the rest of what it is to have.
///
/// # Errors
/// What opening it and setting mode and times say. What else can't be set is counted by the keeper.
pub fn dress_file(directory: BorrowedFd<'_>, name: &[u8], dress: &Dress<'_>) -> Result<(), SinkError> {
    let file = open_file(directory, name, false).map_err(SinkError::of_directory)?;
    dress.put_on(file.as_fd(), true)?;
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
        let look = |name: &[u8]| look_at(held.as_fd(), name).unwrap();
        assert!(matches!(look(b"f"), Some(Present::File { size: 7, .. })));
        assert!(matches!(look(b"l"), Some(Present::Symlink { target, .. }) if *target == *b"f"));
        assert_eq!((look(b"d"), look(b"x")), (Some(Present::Other), None));
        assert_eq!(digest_of(held.as_fd(), b"f", false).unwrap(), *blake3::hash(b"content").as_bytes());
        assert!(digest_of(held.as_fd(), b"l", false).is_err());
        assert_eq!(digest_of(held.as_fd(), b"l", true).unwrap(), *blake3::hash(b"content").as_bytes());
    }
}
