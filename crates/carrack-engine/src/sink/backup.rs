//! The backup directory of a sync (`--backup-dir`, `--trash`): a directory beneath the destination for
//! entries that the sync would delete. They keep their paths in it.
//!
//! Entries are moved by rename and stay on their file system; nothing in the backup is replaced. A marker in
//! the directory keeps later runs from deleting it. Several threads use it.

use std::ffi::OsStr;
use std::fmt::Display;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};

use carrack_model::{DeletionBackup, RelPath, text_without_errno};
use carrack_storage::RootDirectory;
use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags, openat, renameat, renameat_with, statat};
use rustix::io::Errno;

use crate::error::SessionError;

/// The directory of `--trash`, with one directory in it for each run.
pub(super) const TRASH: &[u8] = b".carrack-trash";

/// The marker: a directory that contains this file is a backup, and is not deleted.
pub(super) const MARKER: &[u8] = b".carrack-backup";

/// Further names that are tried for an entry whose own name is taken.
const NAMES_MAX: u32 = 1_000;

/// The backup directory of this run.
pub(super) struct BackupPlace {
    path: RelPath,
    /// The directory with the marker: the backup directory itself, or that of all runs.
    marked: RelPath,
    /// The result of creating the marker.
    is_made: OnceLock<Result<(), String>>,
}

impl BackupPlace {
    pub(super) fn new(backup: &DeletionBackup) -> Result<BackupPlace, SessionError> {
        let typed = match backup {
            DeletionBackup::Directory(typed) => typed.to_vec(),
            DeletionBackup::Trash => [TRASH, b"/", format_utc_name(SystemTime::now()).as_bytes()].concat(),
        };
        let path = RelPath::new(&typed).map_err(refused)?;
        if path.is_root() {
            return Err(refused("it can't be the destination itself"));
        }
        let marked = match backup {
            DeletionBackup::Directory(_) => path.clone(),
            DeletionBackup::Trash => RelPath::new(TRASH).map_err(refused)?,
        };
        let is_above = path.as_bytes().starts_with(marked.as_bytes());
        assert!(is_above && !marked.is_root(), "the marker covers the backup, and not the whole destination");
        Ok(BackupPlace { path, marked, is_made: OnceLock::new() })
    }

    /// Returns true if a directory of the destination is the backup directory, or lies in it.
    pub(super) fn holds(&self, path: &RelPath) -> bool {
        as_path(path).starts_with(as_path(&self.path))
    }

    /// Moves `name` of the open directory `directory` of the destination into the backup.
    pub(super) fn take_in(
        &self,
        root: &RootDirectory,
        held: BorrowedFd<'_>,
        directory: &RelPath,
        name: &[u8],
    ) -> io::Result<()> {
        self.is_made
            .get_or_init(|| self.mark(root).map_err(|error| text_without_errno(&error)))
            .clone()
            .map_err(io::Error::other)?;
        let mut place = self.path.clone();
        for part in directory.components() {
            place = place.join(part).map_err(io::Error::other)?;
        }
        let place = root.make_directory(&place)?;
        for number in 0..=NAMES_MAX {
            let new = match number {
                0 => name.to_vec(),
                _ => [name, format!(".~{number}~").as_bytes()].concat(),
            };
            match rename_to_free(held, name, place.as_fd(), &new) {
                Err(Errno::EXIST) => {}
                moved => return Ok(moved?),
            }
        }
        Err(Errno::EXIST.into())
    }

    fn mark(&self, root: &RootDirectory) -> io::Result<()> {
        let marked = root.make_directory(&self.marked)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        openat(&marked, MARKER, flags, Mode::RUSR | Mode::WUSR)?;
        Ok(())
    }
}

fn refused(detail: impl Display) -> SessionError {
    let message = format!("the directory for what is deleted: {detail}");
    SessionError::refused(message, "name it by its path beneath the destination, without ..")
}

fn as_path(path: &RelPath) -> &Path {
    Path::new(OsStr::from_bytes(path.as_bytes()))
}

/// Returns true if the directory `path` beneath `held` is a backup of an earlier run.
pub(super) fn is_marked(held: BorrowedFd<'_>, path: &[u8]) -> bool {
    statat(held, [path, b"/", MARKER].concat(), AtFlags::SYMLINK_NOFOLLOW).is_ok()
}

/// Moves an entry to a free name.
fn rename_to_free(from: BorrowedFd<'_>, name: &[u8], to: BorrowedFd<'_>, new: &[u8]) -> Result<(), Errno> {
    match renameat_with(from, name, to, new, RenameFlags::NOREPLACE) {
        // Some file systems do not support the flag.
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
            match statat(to, new, AtFlags::SYMLINK_NOFOLLOW) {
                Err(Errno::NOENT) => renameat(from, name, to, new),
                Err(errno) => Err(errno),
                Ok(_) => Err(Errno::EXIST),
            }
        }
        answer => answer,
    }
}

/// Formats a time in UTC so that it sorts as a name: `2026-11-25T02-00-00Z`.
fn format_utc_name(time: SystemTime) -> String {
    let seconds = time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Years begin in March, as in Howard Hinnant's days_from_civil.
    let shifted = days + 719_468;
    let (era, day) = (shifted / 146_097, shifted % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let (day, month) = (day - (153 * month + 2) / 5 + 1, if month < 10 { month + 3 } else { month - 9 });
    let year = era * 400 + year + u64::from(month <= 2);
    assert!((1..=12).contains(&month) && (1..=31).contains(&day), "a day of the calendar");
    format!("{year:04}-{month:02}-{day:02}T{:02}-{:02}-{:02}Z", second / 3_600, second / 60 % 60, second % 60)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn place(path: &[u8]) -> Result<BackupPlace, SessionError> {
        BackupPlace::new(&DeletionBackup::Directory(path.into()))
    }

    #[test]
    fn moments_are_dates() {
        for (seconds, shown) in [
            (0, "1970-01-01T00-00-00Z"),
            (951_782_400, "2000-02-29T00-00-00Z"),
            (1_795_622_399, "2026-11-25T15-59-59Z"),
            (4_107_542_399, "2100-02-28T23-59-59Z"),
        ] {
            assert_eq!(format_utc_name(UNIX_EPOCH + Duration::from_secs(seconds)), shown);
        }
    }

    #[test]
    fn a_backup_lies_beneath_the_destination() {
        let today = place(b"old/today").unwrap();
        for (path, is_held) in
            [("old/today", true), ("old/today/d", true), ("old", false), ("old/todays", false)]
        {
            assert_eq!(today.holds(&RelPath::new(path.as_bytes()).unwrap()), is_held, "{path}");
        }
        for bad in [&b"/old"[..], b"../old", b"", b"a/../.."] {
            assert!(place(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn nothing_in_a_backup_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let root = RootDirectory::open(dir.path()).unwrap();
        let place = place(b"old").unwrap();
        std::fs::create_dir(dir.path().join("d")).unwrap();
        let directory = RelPath::new(b"d").unwrap();
        for text in ["first", "second"] {
            std::fs::write(dir.path().join("d/f"), text).unwrap();
            let held = root.open_directory(&directory).unwrap();
            place.take_in(&root, held.as_fd(), &directory, b"f").unwrap();
        }
        for (path, text) in [("old/d/f", "first"), ("old/d/f.~1~", "second")] {
            assert_eq!(std::fs::read_to_string(dir.path().join(path)).unwrap(), text);
        }
        assert!(is_marked(root.as_fd(), b"old") && !is_marked(root.as_fd(), b"d"));
    }
}
