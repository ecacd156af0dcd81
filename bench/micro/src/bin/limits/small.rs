//! Operations on many small files: created in three ways, read, stat.
//!
//! Threads take directory after directory. Each directory is opened once, and its files are named relative to
//! it, as in carrack-storage.

use std::ffi::{CStr, CString};
use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Result, ensure};
use carrack_bench::noise;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags, linkat, open, openat, statx};
use rustix::io::{read, write};
use rustix::path::DecInt;

use crate::kind::{Operation, Small};
use crate::options::Sizes;
use crate::place::{Place, small_directory, small_names};
use crate::worker::{Task, in_threads};

const MODE: Mode = Mode::from_raw_mode(0o644);

/// Makes the directories; the task fills them.
pub fn prepare(small: Small, sizes: Sizes, place: Place) -> Result<Task> {
    let is_new = !matches!(small.operation, Operation::Read | Operation::Stat);
    let parent = if is_new { place.small_copies() } else { place.small_sources() };
    if is_new {
        make_directories(&parent, &sizes)?;
    }
    let shared = Shared {
        operation: small.operation,
        sizes,
        parent,
        names: small_names(),
        descriptors: open(
            "/proc/self/fd",
            OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )?,
        next_directory: AtomicU64::new(0),
    };
    let content = noise(sizes.small_bytes as usize, 1);
    let lanes = (0..small.threads).map(|_| content.clone()).collect();
    Ok(Box::new(move || in_threads(lanes, |content| shared.work(content))))
}

fn make_directories(parent: &Path, sizes: &Sizes) -> Result<()> {
    fs::create_dir(parent)?;
    let mut directories = (0..).map_while(|index| small_directory(index, sizes));
    Ok(directories.try_for_each(|(name, _)| fs::create_dir(parent.join(name)))?)
}

/// The state that all threads share.
struct Shared {
    operation: Operation,
    sizes: Sizes,
    parent: PathBuf,
    names: Vec<CString>,
    /// `/proc/self/fd`.
    descriptors: OwnedFd,
    next_directory: AtomicU64,
}

impl Shared {
    /// Runs one thread. It writes `content`, or reads into it.
    fn work(&self, mut content: Vec<u8>) -> Result<u128> {
        let next = || small_directory(self.next_directory.fetch_add(1, Ordering::Relaxed), &self.sizes);
        while let Some((directory, count)) = next() {
            let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
            let directory = openat(CWD, self.parent.join(directory), flags, Mode::empty())?;
            for name in &self.names[..count as usize] {
                self.do_one(&directory, name, &mut content)?;
            }
        }
        Ok(0)
    }

    fn do_one(&self, directory: &OwnedFd, name: &CStr, content: &mut [u8]) -> Result<()> {
        match self.operation {
            Operation::Create => create(directory, name, content),
            Operation::LinkProc => {
                let file = create_nameless(directory, content)?;
                let flags = AtFlags::SYMLINK_FOLLOW;
                Ok(linkat(&self.descriptors, DecInt::from_fd(&file), directory, name, flags)?)
            }
            Operation::LinkDescriptor => {
                let file = create_nameless(directory, content)?;
                Ok(linkat(&file, c"", directory, name, AtFlags::EMPTY_PATH)?)
            }
            Operation::Read => read_whole(directory, name, content),
            Operation::Stat => {
                statx(directory, name, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::BASIC_STATS)?;
                Ok(())
            }
        }
    }
}

fn create(directory: &OwnedFd, name: &CStr, content: &[u8]) -> Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    fill(&openat(directory, name, flags, MODE)?, content)
}

fn create_nameless(directory: &OwnedFd, content: &[u8]) -> Result<OwnedFd> {
    let file = openat(directory, c".", OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC, MODE)?;
    fill(&file, content)?;
    Ok(file)
}

fn fill(file: &OwnedFd, content: &[u8]) -> Result<()> {
    let written = write(file, content)?;
    ensure!(written == content.len(), "only {written} bytes of a small file were written");
    Ok(())
}

fn read_whole(directory: &OwnedFd, name: &CStr, content: &mut [u8]) -> Result<()> {
    let file = openat(directory, name, OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    let count = read(&file, &mut *content)?;
    ensure!(count == content.len(), "a small file has {count} bytes");
    Ok(())
}
