//! Proof that the movers of a site see the same storage: a file with a random mark beneath each of their
//! directories ([`SITE_MARK`]), which the first of them creates and the others read.
//!
//! A mover whose file system is not mounted finds another mark, or creates one: then its record differs from
//! those of the others, and managers don't use it with them. The state of the start is compared periodically:
//! if another file system was mounted since, or if storage does not answer, the mover reports itself ill and
//! takes no work.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use carrack_model::text_without_errno;
use carrack_storage::RootDirectory;
use rustix::fs::{Mode, OFlags, fsync, openat};
use rustix::io::{Errno, read, write};
use tokio::time::{MissedTickBehavior, timeout};

use super::{HANGS, MoverContext};
use crate::transfer_records::SITE_MARK;
use crate::unique_ids;

/// Interval of checks.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Time without an answer after which storage counts as hanging.
const ANSWERS_WITHIN: Duration = Duration::from_secs(30);

/// Hexadecimal digits of a mark, and a newline.
const MARK_BYTES: usize = 17;

/// Returns the mark beneath a held directory, and creates it if it is missing; empty if it can be neither
/// read nor created, as on a read-only file system.
fn read_or_create_mark(root: &RootDirectory) -> String {
    let Ok(directory) = root.open_directory(&carrack_model::RelPath::root()) else { return String::new() };
    match read_mark(&directory) {
        Ok(mark) => mark,
        Err(Errno::NOENT) => make_mark(&directory).or_else(|_| read_mark(&directory)).unwrap_or_default(),
        Err(_) => String::new(),
    }
}

/// Reads a mark; an incomplete one is an error.
fn read_mark(directory: &OwnedFd) -> rustix::io::Result<String> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = openat(directory, SITE_MARK, flags, Mode::empty())?;
    let mut mark = [0; MARK_BYTES + 1];
    let count = read(&file, &mut mark)?;
    let text = str::from_utf8(&mark[..count]).unwrap_or_default();
    let is_whole = count == MARK_BYTES && text.trim_end().bytes().all(|byte| byte.is_ascii_hexdigit());
    if is_whole { Ok(text.trim_end().to_owned()) } else { Err(Errno::INVAL) }
}

fn make_mark(directory: &OwnedFd) -> rustix::io::Result<String> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = openat(directory, SITE_MARK, flags, Mode::from_raw_mode(0o644))?;
    let mark = unique_ids::new_id();
    write(&file, format!("{mark}\n").as_bytes())?;
    fsync(file.as_fd())?;
    Ok(mark)
}

/// Returns the reason if a path no longer leads to the held directory, else `None`.
fn path_change_problem(path: &Path, held: &RootDirectory) -> Option<String> {
    let why = match RootDirectory::open(path) {
        Ok(now) if now.identity() == held.identity() => return None,
        Ok(_) => {
            "another directory is there than when this mover began (mounted, or unmounted, since?)".to_owned()
        }
        Err(error) => text_without_errno(&error),
    };
    Some(format!("{}: {why}; start the mover again when it is right", path.display()))
}

/// Checks all directories as long as the mover runs.
pub(super) async fn watch(mover: Arc<MoverContext>) {
    let held: Arc<Vec<(PathBuf, RootDirectory)>> = Arc::clone(mover.reach.open_directories());
    let mut ticks = tokio::time::interval(LOOK_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let directories = Arc::clone(&held);
        let mut looking = tokio::task::spawn_blocking(move || check_directories(&directories));
        let looked = match timeout(ANSWERS_WITHIN, &mut looking).await {
            Ok(looked) => looked,
            Err(_) => {
                mover.set_storage_problem(HANGS.to_owned());
                looking.await
            }
        };
        if let Ok((ill, marks)) = looked {
            // A hanging session counts even if the check succeeded.
            let hangs = mover.hanging.load(Relaxed) > 0 && ill.is_empty();
            mover.set_storage_problem(if hangs { HANGS.to_owned() } else { ill });
            mover.registration.update(|record| record.site_marks = marks);
        }
    }
}

/// Returns the problem (or an empty text), and the marks.
fn check_directories(held: &[(PathBuf, RootDirectory)]) -> (String, Vec<String>) {
    let ill = held.iter().find_map(|(path, root)| path_change_problem(path, root)).unwrap_or_default();
    (ill, marks(held))
}

/// Returns the marks of all directories.
pub(super) fn marks(held: &[(PathBuf, RootDirectory)]) -> Vec<String> {
    held.iter().map(|(_, root)| read_or_create_mark(root)).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn mark_at(directory: &Path) -> String {
        read_or_create_mark(&RootDirectory::open(directory).unwrap())
    }

    #[test]
    fn the_first_makes_the_mark_and_the_others_read_it() {
        let dir = tempfile::tempdir().unwrap();
        let first = mark_at(dir.path());
        assert_eq!((first.len(), &mark_at(dir.path())), (16, &first));
        fs::write(dir.path().join(SITE_MARK), "half").unwrap();
        assert_eq!(mark_at(dir.path()), "", "one that is being made is none yet");
        fs::remove_file(dir.path().join(SITE_MARK)).unwrap();
        assert_ne!(mark_at(dir.path()), first);
    }

    #[test]
    fn a_directory_that_takes_the_place_of_another_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("at");
        fs::create_dir(&path).unwrap();
        let held = RootDirectory::open(&path).unwrap();
        assert_eq!(path_change_problem(&path, &held), None);
        fs::rename(&path, dir.path().join("away")).unwrap();
        assert!(path_change_problem(&path, &held).is_some());
        fs::create_dir(&path).unwrap();
        assert!(path_change_problem(&path, &held).is_some_and(|why| why.contains("another directory")));
    }
}
