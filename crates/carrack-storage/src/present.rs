//! What stands under a name at the sink, for a session that goes on where another one ended.

use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;

use carrack_model::{Metadata, Timestamp};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, openat, statat};
use rustix::io::Errno;

use crate::link_text;

/// What stands under a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Present {
    /// A regular file.
    File {
        /// Bytes.
        size: u64,
        /// Its mode and time.
        metadata: Metadata,
    },
    /// A symbolic link.
    Symlink {
        /// Its text.
        target: Box<[u8]>,
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
    Ok(Some(match FileType::from_raw_mode(found.st_mode) {
        FileType::RegularFile => Present::File {
            size: found.st_size as u64,
            metadata: Metadata {
                mode: found.st_mode & 0o7777,
                mtime: Timestamp { seconds: found.st_mtime, nanoseconds: found.st_mtime_nsec as u32 },
            },
        },
        FileType::Symlink => Present::Symlink { target: link_text(directory, name)?.into() },
        _ => Present::Other,
    }))
}

/// BLAKE3 of a file's contents.
///
/// # Errors
/// What opening and reading it say.
pub fn digest_of(directory: BorrowedFd<'_>, name: &[u8]) -> io::Result<[u8; 32]> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(openat(directory, name, flags, Mode::empty())?);
    let mut hasher = blake3::Hasher::new();
    io::copy(&mut &file, &mut hasher)?;
    Ok(*hasher.finalize().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn names_are_looked_at_and_files_hashed() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("f"), b"content").unwrap();
        std::os::unix::fs::symlink("f", dir.path().join("l")).unwrap();
        std::fs::create_dir(dir.path().join("d")).unwrap();
        let held = File::open(dir.path()).unwrap();
        let look = |name: &[u8]| look_at(held.as_fd(), name).unwrap();
        assert!(matches!(look(b"f"), Some(Present::File { size: 7, .. })));
        assert_eq!(look(b"l"), Some(Present::Symlink { target: b"f"[..].into() }));
        assert_eq!((look(b"d"), look(b"x")), (Some(Present::Other), None));
        assert_eq!(digest_of(held.as_fd(), b"f").unwrap(), *blake3::hash(b"content").as_bytes());
        assert!(digest_of(held.as_fd(), b"l").is_err());
    }
}
