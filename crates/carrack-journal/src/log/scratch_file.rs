//! A file without a name: its contents vanish on close, however the process ends.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, Mode, OFlags, openat, unlinkat};
use rustix::io::Errno;

/// Creates an unnamed file in `directory`.
pub(super) fn unnamed_file(directory: &OwnedFd) -> rustix::io::Result<File> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    match openat(directory, c".", flags | OFlags::TMPFILE, Mode::RUSR | Mode::WUSR) {
        // Answers of a file system without `O_TMPFILE`, or of FUSE.
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOENT | Errno::NOSYS) => {
            unlinked_file(directory, flags)
        }
        answer => answer.map(File::from),
    }
}

fn unlinked_file(directory: &OwnedFd, flags: OFlags) -> rustix::io::Result<File> {
    let name = format!(".carrack-{}.index", std::process::id());
    // A file of an earlier process with the same ID may be in the way.
    let _ = unlinkat(directory.as_fd(), &name, AtFlags::empty());
    let file = openat(directory, &name, flags | OFlags::CREATE | OFlags::EXCL, Mode::RUSR | Mode::WUSR)?;
    unlinkat(directory, &name, AtFlags::empty())?;
    Ok(File::from(file))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn both_ways_leave_nothing_behind() {
        let place = tempfile::tempdir().unwrap();
        let directory: OwnedFd = File::open(place.path()).unwrap().into();
        let unlinked = unlinked_file(&directory, OFlags::RDWR | OFlags::CLOEXEC).unwrap();
        for file in [unnamed_file(&directory).unwrap(), unlinked] {
            file.write_all_at(b"x", 3).unwrap();
            assert_eq!(file.metadata().unwrap().len(), 4);
            assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0);
        }
    }
}
