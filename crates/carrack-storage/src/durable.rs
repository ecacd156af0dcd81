//! Makes written data durable and reads it back from the storage (L12).
//!
//! `syncfs(2)` writes back a whole file system, including the data of other programs. For many small files it
//! is still far cheaper than `fsync(2)` of each. The kernel reports a write-back failure once to each
//! descriptor that was open before (Linux 5.8 and newer), so the synced descriptor is held from the
//! transfer's start.

use std::collections::HashSet;
use std::os::fd::{AsFd, BorrowedFd};
use std::thread;
use std::time::Duration;

use carrack_model::RelPath;
use rustix::fs::{
    Advice, Mode, OFlags, Timespec, Timestamps, fadvise, fdatasync, fstat, fsync, ftruncate, futimens,
    openat, sync, syncfs,
};
use rustix::io::{Errno, pread};

use crate::{RootDirectory, SinkError};
use carrack_layout::{LUSTRE_MAGIC, TargetAttachmentKind, UNKNOWN_MAGIC, magic_of};

/// Magic number of FUSE (include/uapi/linux/magic.h), where `syncfs(2)` does not reach the serving process.
const FUSE_MAGIC: u32 = 0x6573_5546;

/// Calls on an open file that may fail with `ESTALE`, and the pause after each.
const STALE_TRIES: u32 = 20;
const STALE_PAUSE: Duration = Duration::from_millis(50);

/// The calls that make data durable on a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FsyncMethod {
    /// None: the file system is in memory.
    Never,
    /// One call for the whole file system, or one for each file's data.
    Together,
    /// Only a call for each file and each directory.
    OneByOne,
}

impl FsyncMethod {
    /// The calls that work on the file system of `file`.
    ///
    /// # Errors
    /// Those of `fstatfs`.
    pub fn of(file: BorrowedFd<'_>) -> Result<FsyncMethod, SinkError> {
        let magic =
            magic_of(file).map_err(|errno| SinkError::of_call("looking at the file system", errno))?;
        // Lustre's client has no operation for syncfs(2): the pages go to the servers, which need not commit
        // them. The call also reports the error of an eviction to a later session.
        Ok(match (magic, TargetAttachmentKind::of_magic(magic)) {
            (FUSE_MAGIC | LUSTRE_MAGIC | UNKNOWN_MAGIC, _) => FsyncMethod::OneByOne,
            (_, TargetAttachmentKind::Memory) => FsyncMethod::Never,
            _ => FsyncMethod::Together,
        })
    }
}

/// The steps that precede the commit of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CommitCare {
    /// Selects the files whose contents are made durable first.
    pub sync: FsyncBeforeCommit,
    /// Set if the file is read back from the storage and compared.
    pub readback: bool,
}

/// Selects the small files whose contents are made durable before their commit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FsyncBeforeCommit {
    /// None.
    #[default]
    Never,
    /// Files that replace another file, so that a power cut can't lose both.
    Replacing,
    /// All files.
    Always,
}

/// Makes the whole file system of `directory` durable.
///
/// # Errors
/// Those of any write-back since `directory` was opened. The page cache has dropped that data, and a retry
/// reports no error.
pub fn sync_file_system(directory: BorrowedFd<'_>) -> Result<(), SinkError> {
    match syncfs(directory) {
        // sync(2) writes back every file system and reports no errors.
        Err(errno) if has_no_such_call(errno) => {
            sync();
            Ok(())
        }
        synced => synced.map_err(|errno| SinkError::of_call("writing back (syncfs)", errno)),
    }
}

/// Returns true if a file system refuses the call for every file. Nothing more can be done then; cp and rsync
/// don't even call it.
fn has_no_such_call(errno: Errno) -> bool {
    matches!(errno, Errno::INVAL | Errno::NOTSUP | Errno::NOSYS)
}

fn check_sync(what: &'static str, answer: Result<(), Errno>) -> Result<(), SinkError> {
    match answer {
        Err(errno) if !has_no_such_call(errno) => Err(SinkError::of_call(what, errno)),
        _ => Ok(()),
    }
}

/// Makes a file's contents durable, where the file system has a call for that.
///
/// # Errors
/// As [`sync_file_system`].
pub fn sync_data(file: BorrowedFd<'_>) -> Result<(), SinkError> {
    check_sync("writing back (fdatasync)", fdatasync(file))
}

/// Makes the contents of a file beneath `root` durable. A missing file is no error.
///
/// # Errors
/// As [`sync_file_system`], and those of opening the file.
pub fn sync_file(root: &RootDirectory, directory: &RelPath, name: &[u8]) -> Result<(), SinkError> {
    let held = match root.open_directory(directory) {
        Ok(held) => held,
        Err(error) if is_gone(&error) => return Ok(()),
        Err(error) => return Err(SinkError::of_directory(error)),
    };
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    match openat(&held, name, flags, Mode::empty()) {
        Ok(file) => sync_all(file.as_fd()),
        Err(Errno::NOENT | Errno::LOOP) => Ok(()),
        Err(errno) => Err(SinkError::of_name_call("opening", errno)),
    }
}

/// Calls `change`, which adds or removes names in `directory`, and restores the directory's times afterwards.
pub fn preserve_times<R>(directory: BorrowedFd<'_>, change: impl FnOnce() -> R) -> R {
    let before = fstat(directory);
    let result = change();
    // This fails for a directory of another user, whose times the transfer did not set either.
    if let Ok(before) = before {
        let times = Timestamps {
            // Both are set, as some file systems ignore a call with only one.
            last_access: timespec(before.st_atime, before.st_atime_nsec),
            last_modification: timespec(before.st_mtime, before.st_mtime_nsec),
        };
        let _ = futimens(directory, &times);
    }
    result
}

/// The nanoseconds are signed in the C library's `stat` and unsigned in the kernel's.
fn timespec(seconds: i64, nanoseconds: impl TryInto<u32>) -> Timespec {
    Timespec { tv_sec: seconds, tv_nsec: nanoseconds.try_into().unwrap_or(0).into() }
}
/// Makes a file's contents and its metadata durable, where the file system has a call for that.
///
/// # Errors
/// As [`sync_file_system`].
pub fn sync_all(file: BorrowedFd<'_>) -> Result<(), SinkError> {
    check_sync("writing back (fsync)", fsync(file))
}

/// The device number of an open file or directory.
///
/// # Errors
/// Those of `fstat`.
pub fn device_of(file: BorrowedFd<'_>) -> Result<u64, SinkError> {
    Ok(fstat(file).map_err(|errno| SinkError::of_call("looking at", errno))?.st_dev)
}

/// Makes the names in a directory durable.
///
/// # Errors
/// Those of `fsync`. A file system without this call for directories is accepted.
pub fn sync_directory(directory: BorrowedFd<'_>) -> Result<(), SinkError> {
    check_sync("writing back a directory (fsync)", fsync(directory))
}

/// Makes the names in the directories `paths` beneath `root` and in all their ancestors durable, each once.
/// Directories that are gone, were replaced by another type of entry, or may not be read are skipped.
///
/// # Errors
/// As [`sync_directory`], and those of opening a directory.
pub fn sync_directories<'a>(
    root: &RootDirectory,
    paths: impl IntoIterator<Item = &'a RelPath>,
) -> Result<(), SinkError> {
    with_parents(paths).iter().try_for_each(|path| match root.open_directory(path) {
        Ok(held) => sync_directory(held.as_fd()),
        Err(error) if is_gone(&error) => Ok(()),
        Err(error) => Err(SinkError::of_directory(error)),
    })
}

/// The directories and all their ancestors, up to the root.
fn with_parents<'a>(paths: impl IntoIterator<Item = &'a RelPath>) -> HashSet<RelPath> {
    let mut all = HashSet::new();
    for path in paths {
        let mut next = Some(path.clone());
        // The ancestors of a known directory are known, too.
        while let Some(path) = next.take_if(|path| !all.contains(path)) {
            next = path.split_last().map(|(parent, _)| parent);
            all.insert(path);
        }
    }
    all
}

/// Returns true if the directory is gone, or may not be read and so can't be opened for a sync.
fn is_gone(error: &std::io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::ACCESS))
}

/// Returns true if the bytes at `offset` of the file equal `expected`. They are read from the storage as far
/// as possible: dirty pages are written back and dropped first.
///
/// # Errors
/// Those of the system calls. A file that ends too early is a mismatch.
pub fn readback_matches(file: BorrowedFd<'_>, offset: u64, expected: &[u8]) -> Result<bool, SinkError> {
    let mut found = [0; 64 << 10];
    drop_cached_range(file, offset, expected.len() as u64)?;
    let mut done = 0;
    while done < expected.len() {
        let wanted = (expected.len() - done).min(found.len());
        let count = read_at(file, &mut found[..wanted], offset + done as u64)?;
        if count == 0 || found[..count] != expected[done..done + count] {
            return Ok(false);
        }
        done += count;
    }
    Ok(true)
}

/// Fills `buffer` from `offset` of the file, from the storage as far as possible; returns the number of bytes
/// read.
///
/// # Errors
/// Those of the system calls.
pub fn read_back(file: BorrowedFd<'_>, buffer: &mut [u8], offset: u64) -> Result<usize, SinkError> {
    drop_cached_range(file, offset, buffer.len() as u64)?;
    let mut done = 0;
    while done < buffer.len() {
        match read_at(file, &mut buffer[done..], offset + done as u64)? {
            0 => break,
            count => done += count,
        }
    }
    Ok(done)
}

/// Checks a file's size after the writes: a longer file is truncated, a shorter one is an error.
///
/// No local file system needs this. GlusterFS with shards miscounts the size when several requests extend a
/// file while another process calls stat on it (its issues 2680 and 2892, not fixed there): the file ends up
/// too long, with all of its data.
///
/// # Errors
/// [`SinkError::WrongSize`] for a file that is shorter, or can't be truncated; those of the system calls.
pub(crate) fn enforce_size(file: BorrowedFd<'_>, size: u64) -> Result<(), SinkError> {
    if size_of(file)? > size {
        retry_while_stale(|| ftruncate(file, size))
            .map_err(|errno| SinkError::of_call("cutting to its size", errno))?;
    }
    match size_of(file)? {
        held if held == size => Ok(()),
        held => Err(SinkError::WrongSize { held, size }),
    }
}

fn size_of(file: BorrowedFd<'_>) -> Result<u64, SinkError> {
    let found = retry_while_stale(|| fstat(file))
        .map_err(|errno| SinkError::of_call("looking at its size", errno))?;
    Ok(u64::try_from(found.st_size).unwrap_or(0))
}

/// Retries a call that fails with `ESTALE` on an open file. GlusterFS returns it now and then while other
/// processes list the directory, and succeeds a moment later (its issue 1323). If the file is really gone,
/// the last error is returned.
fn retry_while_stale<T>(mut call: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    for _ in 0..STALE_TRIES {
        match call() {
            Err(Errno::STALE) => thread::sleep(STALE_PAUSE),
            answer => return answer,
        }
    }
    call()
}

/// Drops a range from the page cache. Dirty pages can't be dropped, so they are written back first.
fn drop_cached_range(file: BorrowedFd<'_>, offset: u64, len: u64) -> Result<(), SinkError> {
    sync_data(file)?;
    // A hint: if it is ignored, the read comes from the cache.
    let _ = fadvise(file, offset, std::num::NonZeroU64::new(len), Advice::DontNeed);
    Ok(())
}

fn read_at(file: BorrowedFd<'_>, buffer: &mut [u8], offset: u64) -> Result<usize, SinkError> {
    loop {
        match pread(file, &mut *buffer, offset) {
            Err(Errno::INTR) => {}
            answer => return answer.map_err(|errno| SinkError::of_call("reading back", errno)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, File};
    use std::io::Write;

    #[test]
    fn file_systems_are_told_apart() {
        let memory = File::open("/dev/shm").map(|dir| FsyncMethod::of(dir.as_fd()).unwrap());
        assert!(memory.is_err() || memory.is_ok_and(|durable| durable == FsyncMethod::Never));
        let own = File::open(".").unwrap();
        assert_ne!(FsyncMethod::of(own.as_fd()).unwrap(), FsyncMethod::Never, "a source tree on tmpfs?");
    }

    #[test]
    fn what_is_stale_for_a_moment_is_asked_for_again() {
        for (stale, answer) in [(0, Ok(7)), (2, Ok(7)), (STALE_TRIES + 1, Err(Errno::STALE))] {
            let mut left = stale;
            let answered = retry_while_stale(|| match left {
                0 => Ok(7),
                _ => {
                    left -= 1;
                    Err(Errno::STALE)
                }
            });
            assert_eq!(answered, answer);
        }
        assert_eq!(retry_while_stale(|| Err::<(), _>(Errno::IO)), Err(Errno::IO));
    }

    #[test]
    fn what_is_there_is_compared() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let content: Vec<u8> = (0..200_000u32).map(|i| (i % 251) as u8).collect();
        fs::write(&path, &content).unwrap();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        assert!(readback_matches(file.as_fd(), 0, &content).unwrap());
        assert!(readback_matches(file.as_fd(), 70_001, &content[70_001..190_000]).unwrap());
        assert!(!readback_matches(file.as_fd(), 1, &content).unwrap(), "shifted, and too short");
        let mut other = content.clone();
        other[199_999] ^= 1;
        assert!(!readback_matches(file.as_fd(), 0, &other).unwrap());
        let mut buffer = vec![0; 300_000];
        assert_eq!(read_back(file.as_fd(), &mut buffer, 100).unwrap(), 199_900);
        assert_eq!(buffer[..199_900], content[100..]);
    }

    #[test]
    fn a_file_that_is_too_long_is_cut_and_one_too_short_an_error() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"abcdef").unwrap();
        enforce_size(file.as_fd(), 6).unwrap();
        enforce_size(file.as_fd(), 4).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 4);
        let error = enforce_size(file.as_fd(), 5).unwrap_err();
        assert_eq!(error.to_string(), "5 bytes were written, the storage says that the file has 4");
    }

    #[test]
    fn every_directory_up_to_the_root_is_synced() {
        let dir = tempfile::tempdir().unwrap();
        let root = RootDirectory::open(dir.path()).unwrap();
        let path = RelPath::new(b"a/b/c").unwrap();
        root.make_directory(&path).unwrap();
        sync_directories(&root, [&path]).unwrap();
        fs::write(dir.path().join("a/f"), b"").unwrap();
        for gone in [&b"a/x"[..], b"a/f", b"a/f/g"] {
            sync_directories(&root, [&RelPath::new(gone).unwrap()]).unwrap();
        }
    }

    #[test]
    fn each_directory_is_synced_once_however_deep() {
        fn rel(path: &[u8]) -> RelPath {
            RelPath::new(path).unwrap()
        }
        let (b, d) = (rel(b"a/b"), rel(b"a/b/c/d"));
        let mut all: Vec<_> = with_parents([&b, &d, &rel(b"x"), &b]).into_iter().collect();
        all.sort_unstable_by_key(|path| path.as_bytes().to_vec());
        assert_eq!(all, [RelPath::root(), rel(b"a"), b, rel(b"a/b/c"), d, rel(b"x")]);
        assert!(with_parents([]).is_empty());
    }
}
