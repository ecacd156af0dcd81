//! A file whose layout is read: open, or a name in a directory.
//!
//! Owns only the descriptors that it opens for a call. The attributes of a name are read without opening the
//! file if `/proc` is mounted: one system call, no locks at a metadata server.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{CWD, Mode, OFlags, fgetxattr, getxattr, lgetxattr, openat};
use rustix::io::Errno;

/// Longest value of an extended attribute (`XATTR_SIZE_MAX`).
const VALUE_BYTES_MAX: usize = 65_536;

/// First buffer, enough for most layouts: 160 Lustre objects.
const VALUE_BYTES_FIRST: usize = 4_096;

/// A file in the form that the caller has.
#[derive(Clone, Copy, Debug)]
pub(super) enum LayoutQueryFile<'a> {
    /// Open for reading or writing.
    Open(BorrowedFd<'a>),
    /// Any descriptor, even `O_PATH`.
    Held(BorrowedFd<'a>),
    /// A name in a directory, which may be `O_PATH`.
    Named { directory: BorrowedFd<'a>, name: &'a [u8], follow: bool },
}

/// A descriptor that takes `ioctl` calls.
pub(super) enum IoctlFileDescriptor<'a> {
    Borrowed(BorrowedFd<'a>),
    Owned(OwnedFd),
}

impl LayoutQueryFile<'_> {
    /// The value of an extended attribute.
    pub(super) fn read_attribute(&self, name: &str) -> Result<Vec<u8>, Errno> {
        match self.read_attribute_up_to(name, VALUE_BYTES_FIRST) {
            Err(Errno::RANGE) => self.read_attribute_up_to(name, VALUE_BYTES_MAX),
            answer => answer,
        }
    }

    fn read_attribute_up_to(&self, attribute: &str, bytes_max: usize) -> Result<Vec<u8>, Errno> {
        let mut value = vec![0; bytes_max];
        let len = match *self {
            LayoutQueryFile::Open(file) => fgetxattr(file, attribute, &mut value[..])?,
            LayoutQueryFile::Held(file) => getxattr(descriptor_path(file), attribute, &mut value[..])?,
            LayoutQueryFile::Named { directory, name, follow } => {
                let path = path_of(directory, name);
                let answer = if follow {
                    getxattr(&*path, attribute, &mut value[..])
                } else {
                    lgetxattr(&*path, attribute, &mut value[..])
                };
                match answer {
                    // `/proc` is not mounted.
                    Err(Errno::NOENT | Errno::NOTDIR) => {
                        fgetxattr(self.descriptor()?.as_fd(), attribute, &mut value[..])?
                    }
                    answer => answer?,
                }
            }
        };
        value.truncate(len);
        Ok(value)
    }

    /// The open file, opened for reading if necessary.
    pub(super) fn descriptor(&self) -> Result<IoctlFileDescriptor<'_>, Errno> {
        match *self {
            LayoutQueryFile::Open(file) => Ok(IoctlFileDescriptor::Borrowed(file)),
            LayoutQueryFile::Held(file) => reopen(file).map(IoctlFileDescriptor::Owned),
            LayoutQueryFile::Named { directory, name, follow } => {
                let mut flags = query_open_flags();
                flags.set(OFlags::NOFOLLOW, !follow);
                openat(directory, name, flags, Mode::empty()).map(IoctlFileDescriptor::Owned)
            }
        }
    }

    /// The file opened with `O_PATH`, of which the server gets no notice.
    pub(super) fn path_descriptor(&self) -> Result<IoctlFileDescriptor<'_>, Errno> {
        match *self {
            LayoutQueryFile::Open(file) | LayoutQueryFile::Held(file) => {
                Ok(IoctlFileDescriptor::Borrowed(file))
            }
            LayoutQueryFile::Named { directory, name, follow } => {
                let mut flags = OFlags::PATH | OFlags::CLOEXEC;
                flags.set(OFlags::NOFOLLOW, !follow);
                openat(directory, name, flags, Mode::empty()).map(IoctlFileDescriptor::Owned)
            }
        }
    }
}

impl AsFd for IoctlFileDescriptor<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            IoctlFileDescriptor::Borrowed(file) => *file,
            IoctlFileDescriptor::Owned(file) => file.as_fd(),
        }
    }
}

/// Opens the same file or directory for reading, as `O_PATH` descriptors take no `ioctl`.
pub(super) fn reopen(file: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    openat(CWD, descriptor_path(file), query_open_flags(), Mode::empty())
}

/// Flags of such an open. `O_NONBLOCK` keeps it from waiting for a pipe's writer.
fn query_open_flags() -> OFlags {
    OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK
}

/// The path of a descriptor in `/proc`.
pub(super) fn descriptor_path(file: BorrowedFd<'_>) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

fn path_of(directory: BorrowedFd<'_>, name: &[u8]) -> Vec<u8> {
    if directory.as_raw_fd() == CWD.as_raw_fd() || name.first() == Some(&b'/') {
        return name.to_vec();
    }
    [descriptor_path(directory).as_bytes(), b"/", name].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{XattrFlags, fsetxattr};
    use std::fs::File;
    use std::os::unix::fs::symlink;

    /// Usually a file system with extended attributes.
    const DISK: &str = "/var/tmp";

    #[test]
    fn attributes_are_read_by_name_and_by_descriptor() {
        let dir = tempfile::tempdir_in(DISK).unwrap();
        let file = File::create(dir.path().join("f")).unwrap();
        symlink("f", dir.path().join("link")).unwrap();
        if let Err(errno) = fsetxattr(&file, "user.carrack", b"value", XattrFlags::empty()) {
            println!("skipped: no extended attributes in {DISK}: {errno}");
            return;
        }
        let held = openat(CWD, dir.path(), OFlags::PATH, Mode::empty()).unwrap();
        let directory = held.as_fd();
        let held_file = openat(directory, "f", OFlags::PATH, Mode::empty()).unwrap();
        for file in [
            LayoutQueryFile::Open(file.as_fd()),
            LayoutQueryFile::Held(held_file.as_fd()),
            LayoutQueryFile::Named { directory, name: b"f", follow: false },
            LayoutQueryFile::Named { directory, name: b"link", follow: true },
        ] {
            assert_eq!(file.read_attribute("user.carrack").as_deref(), Ok(&b"value"[..]), "{file:?}");
            assert_eq!(file.read_attribute("user.other"), Err(Errno::NODATA), "{file:?}");
            assert!(file.descriptor().is_ok(), "{file:?}");
        }
        let link = LayoutQueryFile::Named { directory, name: b"link", follow: false };
        assert!(link.read_attribute("user.carrack").is_err());
        assert!(matches!(link.descriptor(), Err(Errno::LOOP)));
        let none = LayoutQueryFile::Named { directory, name: b"none", follow: true };
        assert_eq!(none.read_attribute("user.carrack"), Err(Errno::NOENT));
    }
}
