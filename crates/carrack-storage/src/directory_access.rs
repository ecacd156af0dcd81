//! Temporary access to this user's own directories whose modes deny their owner the operations of a transfer.
//! Their modes are restored afterwards.
//!
//! Owns the list of the changed directories. It is consulted only after a call was denied, so that a transfer
//! to ordinary directories pays nothing. Any number of threads may call it.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use carrack_model::RelPath;
use rustix::fs::{AtFlags, CWD, Mode, Stat, chmodat, fchmod, fstat, openat};
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::RootDirectory;
use crate::beneath::{DIRECTORY, PASSAGE, open_beneath, open_child};
use crate::status::permissions;

/// The owner's permissions to list a directory, to resolve names in it, and to change them.
const ACCESS: Mode = Mode::RWXU;

/// The owner's permission to search a directory.
const OWNER_SEARCH: u32 = 0o100;

/// The directories beneath a root whose modes are changed for the duration of a transfer.
#[derive(Debug)]
pub struct ChangedDirectoryModes {
    root: Arc<RootDirectory>,
    /// Their original modes.
    changed: Mutex<BTreeMap<RelPath, u32>>,
}

/// Selects the directories whose modes are restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestoredDirectorySelection {
    /// The directories that their owner can search under the original mode.
    Open,
    /// All that are left.
    All,
}

impl ChangedDirectoryModes {
    /// Manages directories beneath `root`.
    pub fn new(root: Arc<RootDirectory>) -> ChangedDirectoryModes {
        ChangedDirectoryModes { root, changed: Mutex::default() }
    }

    fn changed(&self) -> MutexGuard<'_, BTreeMap<RelPath, u32>> {
        self.changed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes over the directory `path`, which an earlier session changed from the mode `mode` and did not
    /// restore.
    pub fn adopt(&self, path: &RelPath, mode: u32) {
        self.changed().entry(path.clone()).or_insert(mode);
    }

    /// Makes the directory `path`, or its nearest existing ancestor, accessible to its owner, and the
    /// directories above it searchable, as far as this user owns them. `record` is called before each change
    /// of a mode and may refuse it. Returns true if the denied operation is worth another try.
    pub fn grant(&self, path: &RelPath, record: impl Fn(&RelPath, u32) -> bool) -> bool {
        let mut changed = self.changed();
        let Ok(mut held) = self.root.as_fd().try_clone_to_owned() else { return false };
        let mut at = RelPath::root();
        for name in path.components() {
            let opened = match open_child(held.as_fd(), name, PASSAGE) {
                Err(Errno::ACCESS) if widen_at(&mut changed, held.as_fd(), &at, &record) => {
                    open_child(held.as_fd(), name, PASSAGE)
                }
                opened => opened,
            };
            held = match (opened, at.join(name)) {
                (Ok(opened), Ok(inner)) => {
                    at = inner;
                    opened
                }
                (Err(Errno::NOENT), _) => break,
                _ => return false,
            };
        }
        widen_at(&mut changed, held.as_fd(), &at, &record)
    }

    /// Restores the modes of directories that nothing else has changed since. Returns the paths where this
    /// failed.
    pub fn restore(&self, which: RestoredDirectorySelection) -> Vec<(RelPath, Errno)> {
        let mut changed = self.changed();
        let mut failed = Vec::new();
        // Children come before their parents.
        let paths: Vec<RelPath> = changed.keys().rev().cloned().collect();
        for path in paths {
            let mode = changed[&path];
            if which == RestoredDirectorySelection::Open && mode & OWNER_SEARCH == 0 {
                continue;
            }
            changed.remove(&path);
            match self.restore_one(&path, mode) {
                Ok(()) | Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
                Err(errno) => failed.push((path, errno)),
            }
        }
        failed
    }

    /// Returns true if no directory is changed.
    pub fn is_empty(&self) -> bool {
        self.changed().is_empty()
    }

    fn restore_one(&self, path: &RelPath, mode: u32) -> Result<(), Errno> {
        let held = if path.is_root() {
            self.root.as_fd().try_clone_to_owned().map_err(|_| Errno::MFILE)?
        } else {
            open_beneath(self.root.as_fd(), path, PASSAGE)?
        };
        restore_mode(held.as_fd(), Mode::from_raw_mode(mode))
    }
}

/// Widens the directory `at` and remembers its mode. Returns true if it is accessible by this or an earlier
/// call.
fn widen_at(
    changed: &mut BTreeMap<RelPath, u32>,
    held: BorrowedFd<'_>,
    at: &RelPath,
    record: impl Fn(&RelPath, u32) -> bool,
) -> bool {
    let is_known = changed.contains_key(at);
    match widen(held, |mode| is_known || record(at, mode)) {
        Some(mode) => {
            changed.entry(at.clone()).or_insert(mode);
            true
        }
        None => is_known,
    }
}

/// Makes an own directory accessible, unless `allows` refuses; returns its former permission bits. Returns
/// none if the directory belongs to another user or is accessible already.
pub(crate) fn widen(held: BorrowedFd<'_>, allows: impl FnOnce(u32) -> bool) -> Option<u32> {
    let stat = fstat(held).ok()?;
    let mode = mode_of(&stat);
    if stat.st_uid != geteuid().as_raw() || mode.contains(ACCESS) || !allows(mode.as_raw_mode()) {
        return None;
    }
    set_mode(held, mode | ACCESS).ok()?;
    Some(mode.as_raw_mode())
}

/// Reverts [`widen`] if nothing else has changed the mode since.
pub(crate) fn restore_mode(held: BorrowedFd<'_>, mode: Mode) -> Result<(), Errno> {
    let present = mode_of(&fstat(held)?) & permission_bits();
    if present != (mode | ACCESS) & permission_bits() {
        return Ok(());
    }
    set_mode(held, mode)
}

/// Runs `change`, which removes a name in `directory`. If the directory's mode denies that to its owner, the
/// mode is widened for the duration of the call.
pub(crate) fn with_access<T>(
    directory: BorrowedFd<'_>,
    mut change: impl FnMut() -> Result<T, Errno>,
) -> Result<T, Errno> {
    match change() {
        Err(Errno::ACCESS) => {}
        answer => return answer,
    }
    let Some(mode) = widen(directory, |_| true) else { return Err(Errno::ACCESS) };
    let changed = change();
    // Setting the mode succeeded a moment ago.
    let _ = set_mode(directory, Mode::from_raw_mode(mode));
    changed
}

/// The bits without set-user-ID and its like, which a change of the mode may clear.
fn permission_bits() -> Mode {
    Mode::RWXU | Mode::RWXG | Mode::RWXO
}

fn mode_of(stat: &Stat) -> Mode {
    Mode::from_raw_mode(permissions(stat.st_mode))
}

/// Sets the mode of a directory that may be open with `O_PATH`.
pub(crate) fn set_mode(held: BorrowedFd<'_>, mode: Mode) -> Result<(), Errno> {
    match fchmod(held, mode) {
        Err(Errno::BADF) => {}
        answer => return answer,
    }
    match openat(held, c".", DIRECTORY, Mode::empty()) {
        Ok(opened) => fchmod(opened, mode),
        // The mode denies reading or searching it.
        Err(_) => {
            let path = format!("/proc/self/fd/{}", held.as_raw_fd());
            chmodat(CWD, path, mode, AtFlags::empty())
        }
    }
}

/// Opens the directory `held` for reading if it is the user's own and its mode denies that to its owner.
/// Returns the mode to restore, too.
pub(crate) fn open_own(held: BorrowedFd<'_>) -> Option<(OwnedFd, Mode)> {
    let mode = Mode::from_raw_mode(widen(held, |_| true)?);
    match openat(held, c".", DIRECTORY, Mode::empty()) {
        Ok(opened) => Some((opened, mode)),
        Err(_) => {
            let _ = set_mode(held, mode);
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    fn rel(path: &str) -> RelPath {
        RelPath::new(path.as_bytes()).unwrap()
    }

    fn mode_of(dir: &tempfile::TempDir, path: &str) -> u32 {
        fs::metadata(dir.path().join(path)).unwrap().mode() & 0o7777
    }

    fn set(dir: &tempfile::TempDir, path: &str, mode: u32) {
        fs::set_permissions(dir.path().join(path), fs::Permissions::from_mode(mode)).unwrap();
    }

    fn fixture() -> (tempfile::TempDir, ChangedDirectoryModes) {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("a/b")).unwrap();
        let access = ChangedDirectoryModes::new(Arc::new(RootDirectory::open(dir.path()).unwrap()));
        (dir, access)
    }

    #[test]
    fn an_own_directory_is_accessible_until_its_mode_is_restored() {
        let (dir, access) = fixture();
        set(&dir, "a/b", 0o2511);
        set(&dir, "a", 0o1555);
        let recorded = std::cell::RefCell::new(Vec::new());
        // The root is accessible already. A new directory needs access to its nearest existing ancestor.
        for (path, grants) in [("", false), ("a/new/deep", true), ("a/b", true), ("a/b", true)] {
            let granted = access.grant(&rel(path), |path, mode| {
                recorded.borrow_mut().push((path.clone(), mode));
                true
            });
            assert_eq!(granted, grants, "{path}");
        }
        assert_eq!(*recorded.borrow(), [(rel("a"), 0o1555), (rel("a/b"), 0o2511)]);
        assert_eq!((mode_of(&dir, "a"), mode_of(&dir, "a/b")), (0o1755, 0o2711));
        assert!(access.restore(RestoredDirectorySelection::Open).is_empty() && access.is_empty());
        assert_eq!((mode_of(&dir, "a"), mode_of(&dir, "a/b")), (0o1555, 0o2511));
        set(&dir, "a", 0o755);
    }

    #[test]
    fn a_mode_that_can_not_be_recorded_is_not_changed() {
        let (dir, access) = fixture();
        set(&dir, "a", 0o555);
        assert!(!access.grant(&rel("a"), |_, _| false));
        assert_eq!(mode_of(&dir, "a"), 0o555);
        set(&dir, "a", 0o755);
    }

    #[test]
    fn what_shuts_others_off_is_restored_last_and_what_has_another_mode_keeps_it() {
        let (dir, access) = fixture();
        // An earlier session left these modes.
        set(&dir, "a/b", 0o755);
        for (path, mode) in [("a", 0o000), ("a/b", 0o555), ("gone", 0o555)] {
            access.adopt(&rel(path), mode);
        }
        set(&dir, "a", 0o700);
        assert!(access.restore(RestoredDirectorySelection::Open).is_empty());
        assert_eq!((mode_of(&dir, "a"), mode_of(&dir, "a/b")), (0o700, 0o555));
        set(&dir, "a", 0o750);
        assert!(access.restore(RestoredDirectorySelection::All).is_empty() && access.is_empty());
        assert_eq!(mode_of(&dir, "a"), 0o750, "another process has changed the mode since");
    }
}
