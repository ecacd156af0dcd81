//! The location of a journal: its names in a directory, and how a process locks it.
//!
//! Owns opening, locking, and the rename of a new file to the journal. A journal is written under another
//! name and renamed when it is complete and synced: every journal found has a header and a session.

use std::fs::File;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::thread;
use std::time::Duration;

use carrack_model::TransferId;
use rustix::fs::{
    AtFlags, FileType, FlockOperation, Mode, OFlags, fchmod, flock, fstat, fsync, ftruncate, openat,
    renameat, statat, unlinkat,
};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::JournalError;
use super::scratch_file::unnamed_file;

/// Attempts to open a journal that is replaced between opening and locking.
const OPEN_ATTEMPTS_MAX: usize = 16;

/// A process that only queries a lock holds it for some microseconds, which other processes wait out.
const LOCK_ATTEMPTS_MAX: usize = 5;

/// The user to which nfs(5) maps root (`nobody`).
const NOBODY: u32 = 65_534;

const LOCK_PAUSE: Duration = Duration::from_millis(10);

/// The name of a transfer's journal: `.carrack-`, the ID, and `.journal`.
pub fn file_name(id: TransferId) -> String {
    format!(".carrack-{id}.journal")
}

/// The transfer of a journal with this name.
pub fn id_of_file_name(name: &[u8]) -> Option<TransferId> {
    let digits = name.strip_prefix(b".carrack-")?.strip_suffix(b".journal")?;
    str::from_utf8(digits).ok()?.parse().ok()
}

/// Flags of every open of a journal.
const OPEN_FLAGS: OFlags =
    OFlags::CLOEXEC.union(OFlags::NOFOLLOW).union(OFlags::NOCTTY).union(OFlags::NONBLOCK);

/// An open journal, or one in creation.
#[derive(Debug)]
pub(super) struct LockedFile {
    pub file: File,
    /// True if the file is locked. Without lock support other processes are not kept out.
    pub is_locked: bool,
}

/// The directory of a transfer's journal.
#[derive(Debug)]
pub(super) struct JournalLocation {
    pub directory: OwnedFd,
    id: TransferId,
}

impl JournalLocation {
    pub fn new(directory: BorrowedFd<'_>, id: TransferId) -> Result<JournalLocation, JournalError> {
        // A separate descriptor for fsync(2): the caller's may be `O_PATH`.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = openat(directory, c".", flags, Mode::empty())
            .map_err(JournalError::doing("opening the journal's directory"))?;
        Ok(JournalLocation { directory, id })
    }

    pub fn id(&self) -> TransferId {
        self.id
    }

    fn name(&self) -> String {
        file_name(self.id)
    }

    /// Name of a journal in creation. It is the same for all processes, which its lock keeps apart.
    fn temporary_name(&self) -> String {
        format!("{}.new", file_name(self.id))
    }

    /// Opens the journal for reading.
    pub fn open(&self) -> Result<File, JournalError> {
        self.open_regular(&self.name(), OFlags::RDONLY)
    }

    pub fn exists(&self) -> Result<bool, JournalError> {
        match statat(&self.directory, self.name(), AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => Ok(false),
            answer => answer.map(|_| true).map_err(JournalError::doing("looking for the journal")),
        }
    }

    /// Opens and locks the journal.
    pub fn open_locked(&self) -> Result<LockedFile, JournalError> {
        self.lock_opened(&self.name(), || self.open_regular(&self.name(), OFlags::RDWR))
    }

    /// Creates and locks an empty file for a new journal.
    pub fn create_locked(&self) -> Result<LockedFile, JournalError> {
        let claimed = self.lock_opened(&self.temporary_name(), || self.open_new())?;
        let emptied = ftruncate(&claimed.file, 0);
        // The lock is held: nobody else has a use for the file, and the next run may not look here.
        emptied
            .map_err(JournalError::doing("emptying what another process left"))
            .inspect_err(|_| self.discard())?;
        Ok(claimed)
    }

    /// A file that this process creates is trusted, even if the file system gives it another owner.
    fn open_new(&self) -> Result<File, JournalError> {
        let name = self.temporary_name();
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OPEN_FLAGS;
        match self.with_writable_directory(|| openat(&self.directory, &name, flags, Mode::RUSR | Mode::WUSR))
        {
            Err(Errno::EXIST) => self.open_regular(&name, OFlags::RDWR),
            made => made.map(File::from).map_err(JournalError::doing("creating the journal")),
        }
    }

    /// Renames the new file to the journal, and replaces an existing journal. Everything that can fail
    /// precedes the rename.
    pub fn install(&self, file: &File) -> Result<(), JournalError> {
        file.sync_all().map_err(JournalError::doing("syncing the new journal"))?;
        self.with_writable_directory(|| {
            renameat(&self.directory, self.temporary_name(), &self.directory, self.name())
        })
        .map_err(JournalError::doing("renaming the new journal"))
    }

    /// Removes the new file, also for the time after a power cut: the next run may look in another directory.
    pub fn discard(&self) {
        // If this fails, the next `create_locked` here empties the file.
        if self.unlink(&self.temporary_name()).is_ok() {
            let _ = self.sync();
        }
    }

    /// Removes a new file that its process has left.
    pub fn remove_unfinished(&self) {
        let name = self.temporary_name();
        let claimed = self.lock_opened(&name, || self.open_regular(&name, OFlags::RDWR));
        // Without locks another process may be creating it.
        if claimed.is_ok_and(|claimed| claimed.is_locked) {
            let _ = self.unlink(&name);
        }
    }

    pub fn remove(&self) -> Result<(), JournalError> {
        self.unlink(&self.name()).map_err(JournalError::doing("removing the journal"))?;
        self.sync()
    }

    /// Removes an unreadable journal.
    pub fn remove_damaged(&self) -> Result<(), JournalError> {
        self.unlink(&self.name()).map_err(JournalError::doing("removing the damaged journal"))
    }

    fn open_regular(&self, name: &str, flags: OFlags) -> Result<File, JournalError> {
        let opened = openat(&self.directory, name, flags | OPEN_FLAGS, Mode::empty());
        let file = match opened {
            Err(Errno::NOENT) => return Err(JournalError::Missing),
            Err(Errno::LOOP | Errno::ISDIR | Errno::NXIO) => return Err(JournalError::NotAJournal),
            opened => File::from(opened.map_err(JournalError::doing("opening the journal"))?),
        };
        let stat = fstat(&file).map_err(JournalError::doing("looking at the journal"))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(JournalError::NotAJournal);
        }
        if self.is_trusted_owner(stat.st_uid)? { Ok(file) } else { Err(JournalError::Foreign(stat.st_uid)) }
    }

    /// Returns true if a file of this owner can be trusted: this user, the owner of the directory, who can
    /// replace files there anyway, and the owner that the server gives to all files that this process
    /// creates.
    fn is_trusted_owner(&self, uid: u32) -> Result<bool, JournalError> {
        let holder =
            fstat(&self.directory).map_err(JournalError::doing("looking at the journal's directory"))?;
        if is_own(uid) || uid == holder.st_uid {
            return Ok(true);
        }
        let fresh = unnamed_file(&self.directory).and_then(fstat);
        Ok(fresh.is_ok_and(|fresh| fresh.st_uid == uid))
    }

    /// Opens and locks a file that still has this name once it is locked.
    fn lock_opened(
        &self,
        name: &str,
        open: impl Fn() -> Result<File, JournalError>,
    ) -> Result<LockedFile, JournalError> {
        for _ in 0..OPEN_ATTEMPTS_MAX {
            let file = open()?;
            let is_locked = lock(&file)?;
            if has_name(&file, &self.directory, name)? {
                return Ok(LockedFile { file, is_locked });
            }
        }
        Err(JournalError::Busy(None))
    }

    fn unlink(&self, name: &str) -> Result<(), Errno> {
        self.with_writable_directory(|| unlinkat(&self.directory, name, AtFlags::empty()))
    }

    /// Runs `change`, which adds, renames or removes a name. Makes the directory writable for that time if
    /// this user owns it and it is read-only.
    fn with_writable_directory<T>(&self, change: impl Fn() -> Result<T, Errno>) -> Result<T, Errno> {
        let denied = match change() {
            Err(Errno::ACCESS) => Errno::ACCESS,
            answer => return answer,
        };
        let stat = fstat(&self.directory)?;
        let mode = Mode::from_raw_mode(stat.st_mode);
        let access = Mode::WUSR | Mode::XUSR;
        if stat.st_uid != geteuid().as_raw() || mode.contains(access) {
            return Err(denied);
        }
        fchmod(&self.directory, mode | access).map_err(|_| denied)?;
        let changed = change();
        // The same call succeeded a moment ago.
        let _ = fchmod(&self.directory, mode);
        changed
    }

    /// Makes the directory's names durable.
    pub fn sync(&self) -> Result<(), JournalError> {
        match fsync(&self.directory) {
            // The file system has nothing to sync in directories.
            Err(Errno::INVAL) => Ok(()),
            answer => answer.map_err(JournalError::doing("syncing the journal's directory")),
        }
    }
}

/// Returns true if a process has locked the journal: tries to lock it, and unlocks at once.
pub(super) fn is_locked(file: &File) -> bool {
    match flock(file, FlockOperation::NonBlockingLockShared) {
        Ok(()) => {
            let _ = flock(file, FlockOperation::Unlock);
            false
        }
        Err(errno) => errno == Errno::WOULDBLOCK,
    }
}

/// Returns true if this user owns the file: a journal decides which files are not copied and which are
/// resumed. Root is `nobody` on file systems that squash it (exports(5)).
fn is_own(uid: u32) -> bool {
    let own = geteuid();
    own.as_raw() == uid || own.is_root() && uid == NOBODY
}

/// Returns true if the lock was taken. Some file systems have no locks, and sandboxes may refuse the call.
fn lock(file: &File) -> Result<bool, JournalError> {
    for _ in 0..LOCK_ATTEMPTS_MAX {
        match flock(file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(true),
            Err(Errno::WOULDBLOCK) => thread::sleep(LOCK_PAUSE),
            Err(Errno::INTR) => {}
            Err(_) => return Ok(false),
        }
    }
    Err(JournalError::Busy(None))
}

/// Another process may have renamed or removed the file since it was opened.
fn has_name(file: &File, directory: &OwnedFd, name: &str) -> Result<bool, JournalError> {
    let doing = "looking at the journal";
    let open = fstat(file).map_err(JournalError::doing(doing))?;
    match statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => Ok(false),
        answer => answer
            .map(|named| (named.st_dev, named.st_ino) == (open.st_dev, open.st_ino))
            .map_err(JournalError::doing(doing)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_that_is_refused_is_no_error_and_one_that_is_held_is() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("f");
        let first = File::create(&path).unwrap();
        // The kernel does not lock by an `O_PATH` descriptor, which stands for a file system without locks.
        let no_locks = openat(rustix::fs::CWD, &path, OFlags::PATH, Mode::empty()).unwrap();
        assert!(!lock(&no_locks.into()).unwrap());
        assert!(lock(&first).unwrap());
        let second = lock(&File::open(&path).unwrap());
        assert!(matches!(second, Err(JournalError::Busy(None))), "{second:?}");
    }

    #[test]
    fn names_change_in_an_own_directory_that_is_read_only() {
        let place = tempfile::tempdir().unwrap();
        let directory: OwnedFd = File::open(place.path()).unwrap().into();
        fchmod(&directory, Mode::RUSR | Mode::XUSR).unwrap();
        let place = JournalLocation { directory, id: TransferId([1; 16]) };
        // The kernel's answer for a user other than root.
        let denied = std::cell::Cell::new(0);
        let changed = place.with_writable_directory(|| {
            let mode = Mode::from_raw_mode(fstat(&place.directory)?.st_mode);
            denied.set(denied.get() + u32::from(!mode.contains(Mode::WUSR)));
            if mode.contains(Mode::WUSR) { Ok(()) } else { Err(Errno::ACCESS) }
        });
        changed.unwrap();
        assert_eq!(denied.get(), 1);
        let mode = Mode::from_raw_mode(fstat(&place.directory).unwrap().st_mode);
        assert!(!mode.contains(Mode::WUSR), "{mode:?}");
    }
}
