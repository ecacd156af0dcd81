//! Directories of this user's own whose modes deny him what a transfer has to do in them: they are made accessible for the
//! while, and get their modes back.
//!
//! Owns the list of those that are changed. Asked only after a call was denied, so that a transfer to ordinary directories
//! pays nothing. Any number of threads may ask.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use carrack_model::RelPath;
use rustix::fs::{AtFlags, CWD, Mode, Stat, chmodat, fchmod, fstat, openat};
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::Root;
use crate::beneath::{DIRECTORY, PASSAGE, open_beneath, open_child};
use crate::status::permissions;

/// What an owner has to be allowed to list a directory, to resolve names in it, and to change them.
const ACCESS: Mode = Mode::RWXU;

/// The owner's permission to search a directory.
const OWNER_SEARCH: u32 = 0o100;

/// The directories beneath a root that are accessible for the while, see the module's comment.
#[derive(Debug)]
pub struct DirectoryAccess {
    root: Arc<Root>,
    /// With the modes that they had.
    changed: Mutex<BTreeMap<RelPath, u32>>,
}

/// Which directories get their modes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restoring {
    /// Those that can still be searched then.
    Open,
    /// All that are left.
    All,
}

impl DirectoryAccess {
    /// For directories beneath `root`.
    pub fn new(root: Arc<Root>) -> DirectoryAccess {
        DirectoryAccess { root, changed: Mutex::default() }
    }

    fn changed(&self) -> MutexGuard<'_, BTreeMap<RelPath, u32>> {
        self.changed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An earlier session has changed the directory `path`, whose permission bits were `mode`, and did not come to restore them.
    pub fn adopt(&self, path: &RelPath, mode: u32) {
        self.changed().entry(path.clone()).or_insert(mode);
    }

    /// Makes the directory `path`, or the nearest one above it that there is, accessible to its owner, and those above it
    /// searchable, as far as they are this user's own. Before a mode is changed `record` is told of it, and may prevent that.
    /// Returns whether what was denied is worth another try.
    pub fn grant(&self, path: &RelPath, record: impl Fn(&RelPath, u32) -> bool) -> bool {
        let mut changed = self.changed();
        let mut widen_at = |held: BorrowedFd<'_>, at: &RelPath| {
            let is_known = changed.contains_key(at);
            match widen(held, |mode| is_known || record(at, mode)) {
                Some(mode) => {
                    changed.entry(at.clone()).or_insert(mode);
                    true
                }
                None => is_known,
            }
        };
        let Ok(mut held) = self.root.as_fd().try_clone_to_owned() else { return false };
        let mut at = RelPath::root();
        for name in path.components() {
            let opened = match open_child(held.as_fd(), name, PASSAGE) {
                Err(Errno::ACCESS) if widen_at(held.as_fd(), &at) => open_child(held.as_fd(), name, PASSAGE),
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
        widen_at(held.as_fd(), &at)
    }

    /// Gives directories the modes back that they had, unless they have other ones by now. Returns the paths of those where that
    /// failed.
    pub fn restore(&self, which: Restoring) -> Vec<(RelPath, Errno)> {
        let mut changed = self.changed();
        let mut failed = Vec::new();
        // What is in a directory comes first.
        let paths: Vec<RelPath> = changed.keys().rev().cloned().collect();
        for path in paths {
            let mode = changed[&path];
            if which == Restoring::Open && mode & OWNER_SEARCH == 0 {
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

    /// Whether no directory is changed.
    pub fn is_empty(&self) -> bool {
        self.changed().is_empty()
    }

    fn restore_one(&self, path: &RelPath, mode: u32) -> Result<(), Errno> {
        let held = match path.is_root() {
            true => self.root.as_fd().try_clone_to_owned().map_err(|_| Errno::MFILE)?,
            false => open_beneath(self.root.as_fd(), path, PASSAGE)?,
        };
        restore_mode(held.as_fd(), Mode::from_raw_mode(mode))
    }
}

/// Makes an own directory accessible, unless `allows` says no; returns its permission bits before. Nothing if that is not what
/// it lacks.
pub(crate) fn widen(held: BorrowedFd<'_>, allows: impl FnOnce(u32) -> bool) -> Option<u32> {
    let stat = fstat(held).ok()?;
    let mode = mode_of(&stat);
    if stat.st_uid != geteuid().as_raw() || mode.contains(ACCESS) || !allows(mode.as_raw_mode()) {
        return None;
    }
    set_mode(held, mode | ACCESS).ok()?;
    Some(mode.as_raw_mode())
}

/// Takes back what [`widen`] did, if the mode is still the one that it set.
pub(crate) fn restore_mode(held: BorrowedFd<'_>, mode: Mode) -> Result<(), Errno> {
    let present = mode_of(&fstat(held)?) & permission_bits();
    if present != (mode | ACCESS) & permission_bits() {
        return Ok(());
    }
    set_mode(held, mode)
}

/// Runs `change`, which removes a name in `directory`; if its mode denies that to its owner, it does not for as long as that
/// takes.
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
    // It could be set a moment ago.
    let _ = set_mode(directory, Mode::from_raw_mode(mode));
    changed
}

/// Without set-user-ID and its like, which a change of the mode may take away.
fn permission_bits() -> Mode {
    Mode::RWXU | Mode::RWXG | Mode::RWXO
}

fn mode_of(stat: &Stat) -> Mode {
    Mode::from_raw_mode(permissions(stat.st_mode))
}

/// Of a directory that may be open to resolve names in only.
pub(crate) fn set_mode(held: BorrowedFd<'_>, mode: Mode) -> Result<(), Errno> {
    match fchmod(held, mode) {
        Err(Errno::BADF) => {}
        answer => return answer,
    }
    match openat(held, c".", DIRECTORY, Mode::empty()) {
        Ok(opened) => fchmod(opened, mode),
        // It may not be read, or not be searched.
        Err(_) => {
            let path = format!("/proc/self/fd/{}", held.as_raw_fd());
            chmodat(CWD, path, mode, AtFlags::empty())
        }
    }
}

/// Opens the directory for reading that `held` is, if its owner denies that to himself by its mode; returns the mode, too,
/// which it has to get back.
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

    fn fixture() -> (tempfile::TempDir, DirectoryAccess) {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("a/b")).unwrap();
        let access = DirectoryAccess::new(Arc::new(Root::open(dir.path()).unwrap()));
        (dir, access)
    }

    #[test]
    fn an_own_directory_is_accessible_until_its_mode_is_restored() {
        let (dir, access) = fixture();
        set(&dir, "a/b", 0o2511);
        set(&dir, "a", 0o1555);
        let recorded = std::cell::RefCell::new(Vec::new());
        let record = |path: &RelPath, mode| {
            recorded.borrow_mut().push((path.clone(), mode));
            true
        };
        assert!(!access.grant(&RelPath::root(), record), "that is not what it lacks");
        // What is to be made is made in the nearest one above.
        assert!(access.grant(&rel("a/new/deep"), record));
        assert!(access.grant(&rel("a/b"), record) && access.grant(&rel("a/b"), record));
        assert_eq!(*recorded.borrow(), [(rel("a"), 0o1555), (rel("a/b"), 0o2511)]);
        assert_eq!((mode_of(&dir, "a"), mode_of(&dir, "a/b")), (0o1755, 0o2711));
        assert!(access.restore(Restoring::Open).is_empty() && access.is_empty());
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
        // An earlier session left them so.
        set(&dir, "a/b", 0o755);
        for (path, mode) in [("a", 0o000), ("a/b", 0o555), ("gone", 0o555)] {
            access.adopt(&rel(path), mode);
        }
        set(&dir, "a", 0o700);
        assert!(access.restore(Restoring::Open).is_empty());
        assert_eq!((mode_of(&dir, "a"), mode_of(&dir, "a/b")), (0o700, 0o555));
        set(&dir, "a", 0o750);
        assert!(access.restore(Restoring::All).is_empty() && access.is_empty());
        assert_eq!(mode_of(&dir, "a"), 0o750, "somebody has changed it since");
    }
}
