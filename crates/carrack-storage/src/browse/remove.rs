//! Removing a file, a link, or a whole tree, depth first.
//!
//! No link is followed and no path resolved on the way: each directory is opened by its name in its parent's descriptor, and
//! what it holds is unlinked by name there. Of the directories above only the last [`OPEN_LEVELS_MAX`], or fewer where the process may have few descriptors, are held open; those
//! further up are opened again on the way back, beneath the directory that holds the tree, and must be the same ones. A
//! level keeps its place in its listing instead of names, so that even the deepest path (65,535 bytes) takes
//! less than 3 MiB. What can't be removed is told, and the rest goes on.

use std::ffi::CStr;
use std::io;
use std::mem::{self, MaybeUninit};
use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use carrack_machine::Descriptors;
use carrack_model::RelPath;
use carrack_model::limits::PATH_BYTES_MAX;
use rustix::fs::{AtFlags, Dir, FileType, RawDir, SeekFrom, fstat, seek, statat, unlinkat};
use rustix::io::Errno;

use crate::beneath::{DIRECTORY, PASSAGE, open_beneath, open_child};
use crate::directory_access::{open_own, with_access};
use crate::typed::ends_with_slash;
use crate::{Base, Identity, MountIdentity, Purpose};

/// Directories held open at a time: hardly a tree is deeper.
const OPEN_LEVELS_MAX: usize = 64;

/// One `getdents` call's worth of names; some of it is read again after each subdirectory.
const LISTING_BYTES: usize = 8 << 10;

/// How often a directory from which something vanished is listed again because it is not empty: with half of what is
/// left gone in each pass, enough for any directory.
const PASSES_MAX: u32 = 32;

/// Entries that are gone before that is said.
const TELL_COUNT: u64 = 1_000;

type Flow = ControlFlow<()>;
const ON: Flow = ControlFlow::Continue(());

/// What the removal of a tree hands on.
#[derive(Debug)]
pub enum Removing {
    /// So many more entries are gone; said from time to time, so that somebody sees that it goes on.
    Removed(u64),
    /// Something stays.
    Failed {
        /// Its path, which begins as the user typed it.
        path: Box<[u8]>,
        /// Why.
        error: io::Error,
    },
    /// Something stays with all that is in it, because it is mounted there: its path, as above.
    Mounted(Box<[u8]>),
}

/// How a removal ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Removal {
    /// Files, links and directories that are gone.
    pub removed_count: u64,
    /// Those that stay although they were tried, each of which was told; not the directories above them.
    pub failed_count: u64,
    /// Whether it was broken off.
    pub is_cut_short: bool,
}

impl Base {
    /// Removes the file, link or directory `path`; with `recursive` everything in the directory too, mounts included.
    ///
    /// Ends early where `told` answers `Break`. Failures beneath `path`, and of `path` itself, go to `told`.
    ///
    /// # Errors
    /// What keeps it from being tried: as [`Base::open`], nothing has the name, or it has none of its own (the base
    /// itself, `/`, `.`, `a/..` with [`Base::Anywhere`]: `EBUSY`).
    pub fn remove(
        &self,
        path: &Path,
        recursive: bool,
        told: &mut dyn FnMut(Removing) -> Flow,
    ) -> io::Result<Removal> {
        let spot = self.spot(path, Purpose::Browse)?;
        let name = spot.name.as_deref().ok_or(Errno::BUSY)?;
        let stat = spot.status(path)?;
        let kind = FileType::from_raw_mode(stat.st_mode);
        if kind == FileType::Symlink && ends_with_slash(path) {
            return Err(Errno::NOTDIR.into());
        }
        let top = self.top_of(path)?;
        if top == Identity::of(&stat) {
            return Err(Errno::BUSY.into());
        }
        let mut remover = Remover::new(spot.holder.as_fd(), top, path, told, &|_, _| false);
        let is_directory = kind == FileType::Directory;
        let flow = if recursive && is_directory {
            remover.tree(name)
        } else {
            remover.single(name, if is_directory { AtFlags::REMOVEDIR } else { AtFlags::empty() })
        };
        Ok(remover.ended(flow))
    }
}

/// What a removal is about to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemovalStep {
    /// Unlink something that is no directory.
    Unlink,
    /// Look into a directory.
    Enter,
    /// Remove a directory, which is empty as far as can be.
    RemoveDirectory,
}

/// Says whether something stays, by its path beneath the directory that holds what is removed. Directories above it stay too.
pub type Sparing<'a> = &'a dyn Fn(RemovalStep, &[u8]) -> bool;

/// Removes `name` from `holder`, a directory with everything in it but for what `spares` says, and for what is mounted there unless
/// `crosses_mounts`.
///
/// Paths that are told begin with `shown`, which stands for `name`. What the modes of this user's own directories deny him is done
/// all the same. As [`Base::remove`] else.
pub fn remove_in(
    (holder, name): (BorrowedFd<'_>, &[u8]),
    shown: &Path,
    crosses_mounts: bool,
    spares: Sparing<'_>,
    told: &mut dyn FnMut(Removing) -> Flow,
) -> io::Result<Removal> {
    let stat = statat(holder, name, AtFlags::SYMLINK_NOFOLLOW)?;
    let top = Identity::of(&fstat(holder)?);
    let mut remover = Remover { widens: true, ..Remover::new(holder, top, shown, told, spares) };
    remover.keeps_mount_points = true;
    let kind = FileType::from_raw_mode(stat.st_mode);
    if kind == FileType::Directory && !crosses_mounts {
        remover.mount = Some(MountIdentity::of(holder)?);
    }
    let flow = match kind {
        FileType::Directory if spares(RemovalStep::Enter, name) => ON,
        FileType::Directory => remover.tree(name),
        _ if spares(RemovalStep::Unlink, name) => ON,
        _ => remover.single(name, AtFlags::empty()),
    };
    Ok(remover.ended(flow))
}

/// What of a tree would go, and what would stay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemovalCount {
    /// Entries that would go; of the directories also those that stay because of what is in them.
    pub going: u64,
    /// Entries that are spared, that are mounted, or that can't be looked into.
    pub staying: u64,
}

/// Counts what [`remove_in`] would remove of `name` in `holder`.
pub fn count_in(
    (holder, name): (BorrowedFd<'_>, &[u8]),
    crosses_mounts: bool,
    spares: Sparing<'_>,
) -> RemovalCount {
    let mut count = RemovalCount::default();
    let mount = if crosses_mounts { None } else { MountIdentity::of(holder).ok() };
    let mut waiting = Vec::new();
    let mut meet =
        |waiting: &mut Vec<RelPath>, parent: BorrowedFd<'_>, name: &[u8], path: Option<RelPath>| {
            let is_directory = is_directory_named(parent, name);
            let step = if is_directory { RemovalStep::Enter } else { RemovalStep::Unlink };
            match path {
                Some(path) if !spares(step, path.as_bytes()) => {
                    count.going += 1;
                    if is_directory {
                        waiting.push(path);
                    }
                    0
                }
                _ => 1,
            }
        };
    let mut staying = meet(&mut waiting, holder, name, RelPath::new(name).ok());
    while let Some(directory) = waiting.pop() {
        let opened = open_beneath(holder, &directory, DIRECTORY);
        let listing = match opened.and_then(|held| Ok((Dir::read_from(&held)?, held))) {
            Ok((_, held)) if is_other_mount(mount, held.as_fd()) => Err(()),
            Ok(opened) => Ok(opened),
            Err(_) => Err(()),
        };
        let Ok((listing, held)) = listing else {
            staying += 1;
            continue;
        };
        for entry in listing {
            let Ok(entry) = entry else {
                staying += 1;
                break;
            };
            let name = entry.file_name().to_bytes();
            if !matches!(name, b"." | b"..") {
                staying += meet(&mut waiting, held.as_fd(), name, directory.join(name).ok());
            }
        }
    }
    RemovalCount { staying, ..count }
}

/// Whether an open directory lies on another mount than the one that is not to be left.
fn is_other_mount(mount: Option<MountIdentity>, held: BorrowedFd<'_>) -> bool {
    mount.is_some_and(|mount| MountIdentity::of(held).map_or(true, |found| found != mount))
}

/// A directory that was entered and is not yet gone.
struct Level {
    /// How much of [`Remover::path`] is its path.
    path_bytes: usize,
    /// None while it is released, or in use.
    handle: Option<OwnedFd>,
    identity: Identity,
    /// Where its listing goes on.
    position: u64,
    /// How often it was listed to the end.
    pass_count: u32,
    /// Whether something in it is gone since the listing began.
    has_removed: bool,
    /// Whether something in it stays, which was told.
    has_failed: bool,
}

/// What comes after a part of a listing.
enum Next {
    Enter(Box<[u8]>),
    Leave,
}

struct Remover<'a> {
    /// The directory that holds what is removed.
    holder: BorrowedFd<'a>,
    /// The base, which is never entered by way of a mount.
    top: Identity,
    /// The mount that is not left; nothing if mounts are entered.
    mount: Option<MountIdentity>,
    /// Whether a mount point that can't be removed is no failure.
    keeps_mount_points: bool,
    /// As the user typed it, without slashes at its end.
    shown: &'a [u8],
    told: &'a mut dyn FnMut(Removing) -> Flow,
    spares: Sparing<'a>,
    /// Whether own directories are made accessible where their modes deny something.
    widens: bool,
    /// Beneath `holder`: of the level on top of the stack.
    path: Vec<u8>,
    stack: Vec<Level>,
    /// Levels that are held open. Of those that were released, half as many are opened again at once on the way back.
    open_levels_max: usize,
    listing: Box<[MaybeUninit<u8>]>,
    removed_untold: u64,
    removal: Removal,
}

impl<'a> Remover<'a> {
    fn new(
        holder: BorrowedFd<'a>,
        top: Identity,
        typed: &'a Path,
        told: &'a mut dyn FnMut(Removing) -> Flow,
        spares: Sparing<'a>,
    ) -> Remover<'a> {
        let typed = typed.as_os_str().as_bytes();
        Remover {
            holder,
            top,
            mount: None,
            keeps_mount_points: false,
            shown: &typed[..typed.iter().rposition(|&b| b != b'/').map_or(0, |last| last + 1)],
            told,
            spares,
            widens: false,
            path: Vec::new(),
            stack: Vec::new(),
            open_levels_max: Descriptors::of_this_process().walk(OPEN_LEVELS_MAX),
            listing: vec![MaybeUninit::uninit(); LISTING_BYTES].into_boxed_slice(),
            removed_untold: 0,
            removal: Removal::default(),
        }
    }

    fn single(&mut self, name: &[u8], flags: AtFlags) -> Flow {
        match self.unlink(self.holder, name, flags) {
            Ok(()) => self.removed(),
            Err(Errno::BUSY) if self.keeps_mount_points => self.mounted(name),
            Err(errno) => self.failed(name, errno.into()),
        }
    }

    fn unlink(&self, parent: BorrowedFd<'_>, name: &[u8], flags: AtFlags) -> Result<(), Errno> {
        let unlink = || unlinkat(parent, name, flags);
        if self.widens { with_access(parent, unlink) } else { unlink() }
    }

    /// Opens a directory that is to become empty. An own one that may not be read is made readable for good.
    fn open(&self, parent: BorrowedFd<'_>, name: &[u8]) -> Result<OwnedFd, Errno> {
        match open_child(parent, name, DIRECTORY) {
            Err(Errno::ACCESS) if self.widens => {
                let held = open_child(parent, name, PASSAGE)?;
                let opened = open_own(held.as_fd()).map(|(opened, _)| opened);
                opened.ok_or(Errno::ACCESS)
            }
            opened => opened,
        }
    }

    fn tree(&mut self, name: &[u8]) -> Flow {
        self.enter(self.holder, name)?;
        while !self.stack.is_empty() {
            self.step()?;
        }
        ON
    }

    fn ended(mut self, flow: Flow) -> Removal {
        // Nobody is left to ask for an end.
        let _ = flow.is_continue() && self.tell_removed().is_continue();
        Removal { is_cut_short: flow.is_break(), ..self.removal }
    }

    /// Goes on with the directory on top of the stack.
    fn step(&mut self) -> Flow {
        let index = self.stack.len() - 1;
        let handle = match self.take_handle() {
            Ok(handle) => handle,
            Err(error) => {
                self.failed(b"", error)?;
                self.pop();
                self.spoil();
                return ON;
            }
        };
        match self.clear(handle.as_fd())? {
            Next::Enter(name) => {
                let flow = self.enter(handle.as_fd(), &name);
                self.stack[index].handle = Some(handle);
                flow
            }
            Next::Leave => self.leave(handle),
        }
    }

    /// Lists the directory on top of the stack from where that ended, unlinks all but directories, and stops at one.
    fn clear(&mut self, handle: BorrowedFd<'_>) -> ControlFlow<(), Next> {
        let mut buffer = mem::take(&mut self.listing);
        let next = self.clear_with(handle, &mut buffer);
        self.listing = buffer;
        next
    }

    fn clear_with(
        &mut self,
        handle: BorrowedFd<'_>,
        buffer: &mut [MaybeUninit<u8>],
    ) -> ControlFlow<(), Next> {
        if let Err(errno) = seek(handle, SeekFrom::Start(self.top_level().position)) {
            self.failed(b"", errno.into())?;
            return ControlFlow::Continue(Next::Leave);
        }
        let mut listing = RawDir::new(handle, buffer);
        while let Some(entry) = listing.next() {
            let entry = match entry {
                Ok(entry) => entry,
                Err(Errno::INTR) => continue,
                // Somebody else removed the directory.
                Err(Errno::NOENT) => break,
                Err(errno) => {
                    self.failed(b"", errno.into())?;
                    break;
                }
            };
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let is_directory = match entry.file_type() {
                FileType::Unknown => is_directory(handle, name),
                kind => kind == FileType::Directory,
            };
            let step = if is_directory { RemovalStep::Enter } else { RemovalStep::Unlink };
            if (self.spares)(step, &self.path_of(name.to_bytes())) {
                self.spoil();
                continue;
            }
            if is_directory || self.is_found_directory(handle, name)? {
                self.top_level().position = entry.next_entry_cookie();
                return ControlFlow::Continue(Next::Enter(name.to_bytes().into()));
            }
        }
        ControlFlow::Continue(Next::Leave)
    }

    /// Unlinks `name`, which is no directory as far as the listing tells; true if it is one.
    fn is_found_directory(&mut self, parent: BorrowedFd<'_>, name: &CStr) -> ControlFlow<(), bool> {
        match self.unlink(parent, name.to_bytes(), AtFlags::empty()) {
            Ok(()) => self.removed()?,
            Err(Errno::NOENT) => {}
            Err(Errno::ISDIR) => return ControlFlow::Continue(true),
            Err(Errno::BUSY) if self.keeps_mount_points => self.mounted(name.to_bytes())?,
            // What POSIX has for a directory.
            Err(Errno::PERM) if is_directory(parent, name) => return ControlFlow::Continue(true),
            Err(errno) => self.failed(name.to_bytes(), errno.into())?,
        }
        ControlFlow::Continue(false)
    }

    /// Puts the directory `name` on the stack.
    fn enter(&mut self, parent: BorrowedFd<'_>, name: &[u8]) -> Flow {
        if self.path.len() + 1 + name.len() > PATH_BYTES_MAX {
            return self.failed(name, Errno::NAMETOOLONG.into());
        }
        let opened = self.open(parent, name);
        match opened.and_then(|handle| Ok((fstat(&handle)?, handle))) {
            Ok((stat, _)) if Identity::of(&stat) == self.top => self.failed(name, Errno::BUSY.into()),
            Ok((_, handle)) if is_other_mount(self.mount, handle.as_fd()) => self.mounted(name),
            Ok((stat, handle)) => {
                self.push(name, Level::new(Identity::of(&stat), handle));
                ON
            }
            Err(Errno::NOENT) => ON,
            // No directory any more; or one that can't be read, which may be empty.
            Err(errno) => {
                let is_other = matches!(errno, Errno::NOTDIR | Errno::LOOP);
                let flags = if is_other { AtFlags::empty() } else { AtFlags::REMOVEDIR };
                match self.unlink(parent, name, flags) {
                    Ok(()) => self.removed(),
                    Err(_) => self.failed(name, errno.into()),
                }
            }
        }
    }

    fn push(&mut self, name: &[u8], mut level: Level) {
        if !self.path.is_empty() {
            self.path.push(b'/');
        }
        self.path.extend_from_slice(name);
        level.path_bytes = self.path.len();
        self.stack.push(level);
        if let Some(index) = self.stack.len().checked_sub(self.open_levels_max + 1) {
            self.stack[index].handle = None;
        }
    }

    /// Takes the directory on top of the stack from there, with its name.
    fn pop(&mut self) -> Option<(Level, Vec<u8>)> {
        let level = self.stack.pop()?;
        let start = self.stack.last().map_or(0, |parent| parent.path_bytes + 1);
        let name = self.path[start..].to_vec();
        self.path.truncate(start.saturating_sub(1));
        Some((level, name))
    }

    /// Removes the directory on top of the stack, which is empty as far as can be.
    fn leave(&mut self, handle: OwnedFd) -> Flow {
        let Some((level, name)) = self.pop() else { return ON };
        if !level.has_failed && (self.spares)(RemovalStep::RemoveDirectory, &self.path_of(&name)) {
            self.spoil();
            return ON;
        }
        match self.unlink_directory(&name) {
            Ok(()) => self.removed(),
            Err(error) => match Errno::from_io_error(&error) {
                Some(Errno::NOENT) => ON,
                Some(Errno::BUSY) if self.keeps_mount_points => self.mounted(&name),
                Some(Errno::NOTEMPTY | Errno::EXIST) if level.has_failed => {
                    self.spoil();
                    ON
                }
                Some(Errno::NOTEMPTY | Errno::EXIST) if level.is_worth_another_pass() => {
                    self.push(&name, level.again(handle));
                    ON
                }
                _ => self.failed(&name, error),
            },
        }
    }

    /// Of `name` in the directory on top of the stack, beneath the holder.
    fn path_of(&self, name: &[u8]) -> Vec<u8> {
        if self.path.is_empty() { name.to_vec() } else { [&self.path, name].join(&b'/') }
    }

    /// In the directory on top of the stack, or where the tree is.
    fn unlink_directory(&mut self, name: &[u8]) -> io::Result<()> {
        if self.stack.is_empty() {
            return Ok(self.unlink(self.holder, name, AtFlags::REMOVEDIR)?);
        }
        let parent = self.take_handle()?;
        let removed = self.unlink(parent.as_fd(), name, AtFlags::REMOVEDIR);
        self.top_level().handle = Some(parent);
        Ok(removed?)
    }

    /// The descriptor of the directory on top of the stack, opened again if it was released.
    fn take_handle(&mut self) -> io::Result<OwnedFd> {
        match self.top_level().handle.take() {
            Some(handle) => Ok(handle),
            None => self.open_again(),
        }
    }

    /// Opens the directory on top of the stack again, and with it some above it: one long walk for all of them.
    fn open_again(&mut self) -> io::Result<OwnedFd> {
        let first = self.stack.len().saturating_sub(self.open_levels_max / 2);
        let path = RelPath::new(&self.path[..self.stack[first].path_bytes]).map_err(io::Error::other)?;
        let mut handle = open_beneath(self.holder, &path, DIRECTORY)?;
        self.stack[first].check(&handle)?;
        for index in first + 1..self.stack.len() {
            let (above, level) = (&self.stack[index - 1], &self.stack[index]);
            let name = &self.path[above.path_bytes + 1..level.path_bytes];
            let opened = open_child(handle.as_fd(), name, DIRECTORY)?;
            level.check(&opened)?;
            self.stack[index - 1].handle = Some(mem::replace(&mut handle, opened));
        }
        Ok(handle)
    }

    fn top_level(&mut self) -> &mut Level {
        self.stack.last_mut().expect("called for a directory on the stack")
    }

    fn removed(&mut self) -> Flow {
        if let Some(level) = self.stack.last_mut() {
            level.has_removed = true;
        }
        self.removal.removed_count += 1;
        self.removed_untold += 1;
        if self.removed_untold < TELL_COUNT { ON } else { self.tell_removed() }
    }

    fn tell_removed(&mut self) -> Flow {
        match mem::take(&mut self.removed_untold) {
            0 => ON,
            count => (self.told)(Removing::Removed(count)),
        }
    }

    /// `name` in the directory on top of the stack stays, or without a name that directory.
    fn failed(&mut self, name: &[u8], error: io::Error) -> Flow {
        self.spoil();
        self.removal.failed_count += 1;
        let path = self.shown_path(name);
        (self.told)(Removing::Failed { path, error })
    }

    /// Something is mounted on `name` in the directory on top of the stack.
    fn mounted(&mut self, name: &[u8]) -> Flow {
        self.spoil();
        let path = self.shown_path(name);
        (self.told)(Removing::Mounted(path))
    }

    /// The directory on top of the stack can't become empty.
    fn spoil(&mut self) {
        if let Some(level) = self.stack.last_mut() {
            level.has_failed = true;
        }
    }

    fn shown_path(&self, name: &[u8]) -> Box<[u8]> {
        let beneath = [&self.path, name].into_iter().filter(|part| !part.is_empty());
        let beneath = beneath.collect::<Vec<&[u8]>>().join(&b'/');
        let after_first = beneath.iter().position(|&b| b == b'/').unwrap_or(beneath.len());
        [self.shown, &beneath[after_first..]].concat().into()
    }
}

impl Level {
    fn new(identity: Identity, handle: OwnedFd) -> Level {
        let handle = Some(handle);
        let (path_bytes, position, pass_count, has_removed, has_failed) = Default::default();
        Level { path_bytes, handle, identity, position, pass_count, has_removed, has_failed }
    }

    /// Whether what was opened again is the same directory.
    fn check(&self, handle: &OwnedFd) -> io::Result<()> {
        if Identity::of_open(handle)? == self.identity {
            return Ok(());
        }
        Err(io::Error::other("it was replaced by another directory meanwhile"))
    }

    /// Some file systems leave names out of a listing from which others vanish, and somebody may add new ones.
    fn is_worth_another_pass(&self) -> bool {
        self.has_removed && self.pass_count < PASSES_MAX
    }

    fn again(self, handle: OwnedFd) -> Level {
        Level { pass_count: self.pass_count + 1, ..Level::new(self.identity, handle) }
    }
}

fn is_directory(parent: BorrowedFd<'_>, name: &CStr) -> bool {
    is_directory_named(parent, name.to_bytes())
}

fn is_directory_named(parent: BorrowedFd<'_>, name: &[u8]) -> bool {
    statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)
        .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory)
}
