//! Where a journal lies: its names in a directory, and how a process gets one for itself.
//!
//! Owns opening, locking, and the step from a file that is being made to the journal itself. A journal is made under a name
//! of its own, and has its name only when it is complete and synced: whoever finds one finds a header and a session.

use std::fs::File;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::thread;
use std::time::Duration;

use carrack_model::TransferId;
use rustix::fs::{
    AtFlags, FileType, FlockOperation, Mode, OFlags, flock, fstat, fsync, ftruncate, openat, renameat,
    statat, unlinkat,
};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::JournalError;

/// How often a journal is opened anew that was replaced between opening and locking.
const OPEN_ATTEMPTS_MAX: usize = 16;

/// Who only asks whether a journal is locked holds the lock for some microseconds: that is waited out.
const LOCK_ATTEMPTS_MAX: usize = 5;

/// The user that nfs(5) makes of root (`nobody`).
const NOBODY: u32 = 65_534;

const LOCK_PAUSE: Duration = Duration::from_millis(10);

/// The name of a transfer's journal: `.carrack-` and the id, then `.journal`.
pub fn file_name(id: TransferId) -> String {
    format!(".carrack-{id}.journal")
}

/// The transfer whose journal has this name.
pub fn id_of_file_name(name: &[u8]) -> Option<TransferId> {
    let digits = name.strip_prefix(b".carrack-")?.strip_suffix(b".journal")?;
    str::from_utf8(digits).ok()?.parse().ok()
}

/// A directory where a transfer's journal is or will be.
#[derive(Debug)]
pub(super) struct Place {
    pub directory: OwnedFd,
    id: TransferId,
}

impl Place {
    pub fn new(directory: BorrowedFd<'_>, id: TransferId) -> Result<Place, JournalError> {
        // A descriptor of its own that can be synced: the caller's may be a path only.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = openat(directory, c".", flags, Mode::empty())
            .map_err(JournalError::doing("opening the journal's directory"))?;
        Ok(Place { directory, id })
    }

    fn name(&self) -> String {
        file_name(self.id)
    }

    /// Of a journal that is being made. One name for all processes: its lock keeps them apart.
    fn new_name(&self) -> String {
        format!("{}.new", file_name(self.id))
    }

    /// The journal, to be read only.
    pub fn open(&self) -> Result<File, JournalError> {
        open_regular(&self.directory, &self.name(), OFlags::RDONLY)
    }

    pub fn exists(&self) -> Result<bool, JournalError> {
        match statat(&self.directory, self.name(), AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => Ok(false),
            answer => answer.map(|_| true).map_err(JournalError::doing("looking for the journal")),
        }
    }

    /// The journal, locked.
    pub fn claim(&self) -> Result<File, JournalError> {
        claim(&self.directory, &self.name(), OFlags::RDWR)
    }

    /// An empty file that is to become the journal, locked.
    pub fn begin(&self) -> Result<File, JournalError> {
        let file = claim(&self.directory, &self.new_name(), OFlags::RDWR | OFlags::CREATE)?;
        ftruncate(&file, 0).map_err(JournalError::doing("emptying what another process left"))?;
        Ok(file)
    }

    /// Gives what was begun the journal's name, in place of one that has it. What can fail is done before.
    pub fn install(&self, file: &File) -> Result<(), JournalError> {
        file.sync_all().map_err(JournalError::doing("syncing the new journal"))?;
        renameat(&self.directory, self.new_name(), &self.directory, self.name())
            .map_err(JournalError::doing("renaming the new journal"))
    }

    /// Takes back what was begun.
    pub fn discard(&self) {
        // The next one empties it.
        let _ = unlinkat(&self.directory, self.new_name(), AtFlags::empty());
    }

    pub fn remove(&self) -> Result<(), JournalError> {
        unlinkat(&self.directory, self.name(), AtFlags::empty())
            .map_err(JournalError::doing("removing the journal"))?;
        self.sync()
    }

    /// Makes the directory's names durable.
    pub fn sync(&self) -> Result<(), JournalError> {
        match fsync(&self.directory) {
            // A file system that has nothing to sync in directories.
            Err(Errno::INVAL) => Ok(()),
            answer => answer.map_err(JournalError::doing("syncing the journal's directory")),
        }
    }
}

/// Whether a process has the open journal: asks by trying, and lets go at once.
pub(super) fn is_locked(file: &File) -> bool {
    match flock(file, FlockOperation::NonBlockingLockShared) {
        Ok(()) => {
            let _ = flock(file, FlockOperation::Unlock);
            false
        }
        Err(errno) => errno == Errno::WOULDBLOCK,
    }
}

fn open_regular(directory: &OwnedFd, name: &str, flags: OFlags) -> Result<File, JournalError> {
    let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NOCTTY | OFlags::NONBLOCK;
    let opened = openat(directory, name, flags, Mode::RUSR | Mode::WUSR);
    let file = match opened {
        Err(Errno::NOENT) => return Err(JournalError::Missing),
        Err(Errno::LOOP | Errno::ISDIR | Errno::NXIO) => return Err(JournalError::NotAJournal),
        opened => File::from(opened.map_err(JournalError::doing("opening the journal"))?),
    };
    let stat = fstat(&file).map_err(JournalError::doing("looking at the journal"))?;
    let is_regular = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    if !is_regular {
        return Err(JournalError::NotAJournal);
    }
    let holder = fstat(directory).map_err(JournalError::doing("looking at the journal's directory"))?;
    let is_trusted = is_own(stat.st_uid) || stat.st_uid == holder.st_uid;
    if is_trusted { Ok(file) } else { Err(JournalError::Foreign(stat.st_uid)) }
}

/// Whether a journal of this owner may be believed: it says what need not be copied, and in which files to go on. So may one of
/// the directory's owner, who can do there what he likes. Root is nobody on file systems that squash it (exports(5)).
fn is_own(uid: u32) -> bool {
    let own = geteuid();
    own.as_raw() == uid || own.is_root() && uid == NOBODY
}

/// Opens and locks the file that has this name, also at the moment at which it is locked.
fn claim(directory: &OwnedFd, name: &str, flags: OFlags) -> Result<File, JournalError> {
    for _ in 0..OPEN_ATTEMPTS_MAX {
        let file = open_regular(directory, name, flags)?;
        lock(&file)?;
        if has_name(&file, directory, name)? {
            return Ok(file);
        }
    }
    Err(JournalError::Busy(None))
}

fn lock(file: &File) -> Result<(), JournalError> {
    for _ in 0..LOCK_ATTEMPTS_MAX {
        match flock(file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => thread::sleep(LOCK_PAUSE),
            answer => return answer.map_err(JournalError::doing("locking the journal")),
        }
    }
    Err(JournalError::Busy(None))
}

/// Another process may have renamed or removed it since it was opened.
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
