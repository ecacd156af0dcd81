//! Removing a file, a link, or a whole tree, depth first.
//!
//! No link is followed and no path is resolved: each directory is opened by its name in its parent's
//! descriptor, and its entries are unlinked by name there. Only the last [`OPEN_LEVELS_MAX`] directories of
//! the path are held open, or fewer if the process may have few descriptors. The directories above them are
//! opened again on the way back, beneath the tree's parent, and have to be the same ones. A level keeps its
//! position in the listing and no names, so that even the deepest path (65,535 bytes) takes less than 3 MiB.
//! A failed removal is reported, and the rest continues.

use std::ffi::CStr;
use std::io;
use std::mem::{self, MaybeUninit};
use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use carrack_machine::DescriptorBudget;
use carrack_model::RelPath;
use carrack_model::limits::PATH_BYTES_MAX;
use rustix::fs::{AtFlags, Dir, FileType, RawDir, SeekFrom, fstat, seek, statat, unlinkat};
use rustix::io::Errno;

use crate::beneath::{DIRECTORY, PASSAGE, open_beneath, open_child};
use crate::directory_access::{open_own, with_access};
use crate::typed_path::ends_with_slash;
use crate::{FileIdentity, MountIdentity, PathBase, PathPurpose};

/// Directories held open at a time; few trees are deeper.
const OPEN_LEVELS_MAX: usize = 64;

/// Bytes of the names of one `getdents` call. Some are read again after each subdirectory.
const LISTING_BYTES: usize = 8 << 10;

/// Passes through the listing of a directory that is not empty although entries were removed. If each pass
/// removes half of the rest, this is enough for any directory.
const PASSES_MAX: u32 = 32;

/// Removed entries between two reports.
const TELL_COUNT: u64 = 1_000;

type RemovalControlFlow = ControlFlow<()>;
const ON: RemovalControlFlow = ControlFlow::Continue(());

/// A report of a removal.
#[derive(Debug)]
pub enum RemovalEvent {
    /// The number of further entries that were removed, reported from time to time as progress.
    Removed(u64),
    /// An entry could not be removed.
    Failed {
        /// Its path, which starts as the user typed it.
        path: Box<[u8]>,
        /// The cause.
        error: io::Error,
    },
    /// A mount point stays with all its contents: its path, as above.
    Mounted(Box<[u8]>),
}

/// The result of a removal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TreeRemovalResult {
    /// Removed files, links and directories.
    pub removed_count: u64,
    /// Failed entries, each of which was reported; the directories above them don't count.
    pub failed_count: u64,
    /// Set if the removal was aborted.
    pub is_cut_short: bool,
}

impl PathBase {
    /// Removes the file, link or directory `path`; with `recursive` the contents of the directory, too,
    /// including mounts.
    ///
    /// Ends early if `told` returns `Break`. Failures beneath `path`, and of `path` itself, are reported to
    /// `told`.
    ///
    /// # Errors
    /// Those that prevent an attempt: as [`PathBase::open`], a missing entry, or a path without a name of its
    /// own (the base itself, `/`, `.`, `a/..` with [`PathBase::Anywhere`]: `EBUSY`).
    pub fn remove(
        &self,
        path: &Path,
        recursive: bool,
        told: &mut dyn FnMut(RemovalEvent) -> RemovalControlFlow,
    ) -> io::Result<TreeRemovalResult> {
        let spot = self.spot(path, PathPurpose::Browse)?;
        let name = spot.name.as_deref().ok_or(Errno::BUSY)?;
        let stat = spot.status(path)?;
        let kind = FileType::from_raw_mode(stat.st_mode);
        if kind == FileType::Symlink && ends_with_slash(path) {
            return Err(Errno::NOTDIR.into());
        }
        let top = self.top_of(path)?;
        if top == FileIdentity::of(&stat) {
            return Err(Errno::BUSY.into());
        }
        let mut remover = TreeRemover::new(spot.holder.as_fd(), top, path, told, &|_, _| false);
        let is_directory = kind == FileType::Directory;
        let flow = if recursive && is_directory {
            remover.remove_tree(name)
        } else {
            remover.remove_single(name, if is_directory { AtFlags::REMOVEDIR } else { AtFlags::empty() })
        };
        Ok(remover.into_result(flow))
    }
}

/// The next step of a removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemovalStep {
    /// Unlink something that is no directory.
    Unlink,
    /// Read a directory.
    Enter,
    /// Remove a directory, which is empty except for entries that stay.
    RemoveDirectory,
}

/// Returns true if an entry is spared, by its path beneath the removed tree's parent. The directories above
/// it stay, too.
pub type RemovalExclusion<'a> = &'a dyn Fn(RemovalStep, &[u8]) -> bool;

/// Removes `name` from `holder`, a directory with its contents except the entries that `spares` selects, and
/// except mount points unless `crosses_mounts`.
///
/// Reported paths start with `shown` in place of `name`. Modes of this user's own directories that deny an
/// operation are widened for it. Otherwise as [`PathBase::remove`].
pub fn remove_in(
    (holder, name): (BorrowedFd<'_>, &[u8]),
    shown: &Path,
    crosses_mounts: bool,
    spares: RemovalExclusion<'_>,
    told: &mut dyn FnMut(RemovalEvent) -> RemovalControlFlow,
) -> io::Result<TreeRemovalResult> {
    let stat = statat(holder, name, AtFlags::SYMLINK_NOFOLLOW)?;
    let top = FileIdentity::of(&fstat(holder)?);
    let mut remover = TreeRemover { widens: true, ..TreeRemover::new(holder, top, shown, told, spares) };
    remover.keeps_mount_points = true;
    let kind = FileType::from_raw_mode(stat.st_mode);
    if kind == FileType::Directory && !crosses_mounts {
        remover.mount = Some(MountIdentity::of(holder)?);
    }
    let flow = match kind {
        FileType::Directory if spares(RemovalStep::Enter, name) => ON,
        FileType::Directory => remover.remove_tree(name),
        _ if spares(RemovalStep::Unlink, name) => ON,
        _ => remover.remove_single(name, AtFlags::empty()),
    };
    Ok(remover.into_result(flow))
}

/// The numbers of entries that a removal would remove and leave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemovalPreviewCount {
    /// Entries that would be removed, and directories that stay only because of their contents.
    pub going: u64,
    /// Entries that are spared, are mounted, or can't be read.
    pub staying: u64,
}

/// Counts the entries that [`remove_in`] would remove of `name` in `holder`.
pub fn count_removable(
    (holder, name): (BorrowedFd<'_>, &[u8]),
    crosses_mounts: bool,
    spares: RemovalExclusion<'_>,
) -> RemovalPreviewCount {
    let mount = if crosses_mounts { None } else { MountIdentity::of(holder).ok() };
    let mut counter =
        RemovableEntryCounter { spares, waiting: Vec::new(), count: RemovalPreviewCount::default() };
    counter.count_entry(holder, name, RelPath::new(name).ok());
    while let Some(directory) = counter.waiting.pop() {
        let opened = open_beneath(holder, &directory, DIRECTORY);
        let listing = match opened.and_then(|held| Ok((Dir::read_from(&held)?, held))) {
            Ok((_, held)) if is_other_mount(mount, held.as_fd()) => Err(()),
            Ok(opened) => Ok(opened),
            Err(_) => Err(()),
        };
        let Ok((listing, held)) = listing else {
            counter.count.staying += 1;
            continue;
        };
        for entry in listing {
            let Ok(entry) = entry else {
                counter.count.staying += 1;
                break;
            };
            let name = entry.file_name().to_bytes();
            if !matches!(name, b"." | b"..") {
                counter.count_entry(held.as_fd(), name, directory.join(name).ok());
            }
        }
    }
    counter.count
}

/// The state of [`count_removable`].
struct RemovableEntryCounter<'a> {
    spares: RemovalExclusion<'a>,
    /// Directories that were counted and not yet listed.
    waiting: Vec<RelPath>,
    count: RemovalPreviewCount,
}

impl RemovableEntryCounter<'_> {
    fn count_entry(&mut self, parent: BorrowedFd<'_>, name: &[u8], path: Option<RelPath>) {
        let is_directory = is_directory_named(parent, name);
        let step = if is_directory { RemovalStep::Enter } else { RemovalStep::Unlink };
        match path {
            Some(path) if !(self.spares)(step, path.as_bytes()) => {
                self.count.going += 1;
                if is_directory {
                    self.waiting.push(path);
                }
            }
            _ => self.count.staying += 1,
        }
    }
}

/// Returns true if an open directory lies on another mount than `mount`, which is not left.
fn is_other_mount(mount: Option<MountIdentity>, held: BorrowedFd<'_>) -> bool {
    mount.is_some_and(|mount| MountIdentity::of(held).map_or(true, |found| found != mount))
}

/// A directory that was entered and is not yet removed.
struct RemovalLevel {
    /// Length of its path in [`TreeRemover::path`].
    path_bytes: usize,
    /// None while the descriptor is released, or in use.
    handle: Option<OwnedFd>,
    identity: FileIdentity,
    /// The position at which its listing continues.
    position: u64,
    /// Number of complete listings.
    pass_count: u32,
    /// Set if an entry was removed since the listing began.
    has_removed: bool,
    /// Set if an entry stays, which was reported.
    has_failed: bool,
}

/// The action after a part of a listing.
enum TreeRemovalAction {
    Enter(Box<[u8]>),
    Leave,
}

struct TreeRemover<'a> {
    /// The directory that holds the removed tree.
    holder: BorrowedFd<'a>,
    /// The base, which is never entered through a mount.
    top: FileIdentity,
    /// The mount that is not left; none if mounts are entered.
    mount: Option<MountIdentity>,
    /// Set if a mount point is no failure.
    keeps_mount_points: bool,
    /// The path as the user typed it, without trailing slashes.
    shown: &'a [u8],
    told: &'a mut dyn FnMut(RemovalEvent) -> RemovalControlFlow,
    spares: RemovalExclusion<'a>,
    /// Set if modes of own directories are widened where they deny an operation.
    widens: bool,
    /// The path beneath `holder` of the level on top of the stack.
    path: Vec<u8>,
    stack: Vec<RemovalLevel>,
    /// Bound of the open levels. Half as many are opened again at once on the way back.
    open_levels_max: usize,
    listing: Box<[MaybeUninit<u8>]>,
    removed_untold: u64,
    removal: TreeRemovalResult,
}

impl<'a> TreeRemover<'a> {
    fn new(
        holder: BorrowedFd<'a>,
        top: FileIdentity,
        typed: &'a Path,
        told: &'a mut dyn FnMut(RemovalEvent) -> RemovalControlFlow,
        spares: RemovalExclusion<'a>,
    ) -> TreeRemover<'a> {
        let typed = typed.as_os_str().as_bytes();
        TreeRemover {
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
            open_levels_max: DescriptorBudget::of_this_process().walk_directories_max(OPEN_LEVELS_MAX),
            listing: vec![MaybeUninit::uninit(); LISTING_BYTES].into_boxed_slice(),
            removed_untold: 0,
            removal: TreeRemovalResult::default(),
        }
    }

    fn remove_single(&mut self, name: &[u8], flags: AtFlags) -> RemovalControlFlow {
        match self.unlink(self.holder, name, flags) {
            Ok(()) => self.count_removed(),
            Err(Errno::BUSY) if self.keeps_mount_points => self.report_mount(name),
            Err(errno) => self.report_failure(name, errno.into()),
        }
    }

    fn unlink(&self, parent: BorrowedFd<'_>, name: &[u8], flags: AtFlags) -> Result<(), Errno> {
        if self.widens {
            with_access(parent, || unlinkat(parent, name, flags))
        } else {
            unlinkat(parent, name, flags)
        }
    }

    /// Opens a directory to remove its entries. An own directory that may not be read is made readable for
    /// good.
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

    fn remove_tree(&mut self, name: &[u8]) -> RemovalControlFlow {
        self.enter(self.holder, name)?;
        while !self.stack.is_empty() {
            self.step()?;
        }
        ON
    }

    fn into_result(mut self, flow: RemovalControlFlow) -> TreeRemovalResult {
        // The removal is over, so the answer does not matter.
        let _ = flow.is_continue() && self.report_removed().is_continue();
        TreeRemovalResult { is_cut_short: flow.is_break(), ..self.removal }
    }

    /// Continues with the directory on top of the stack.
    fn step(&mut self) -> RemovalControlFlow {
        let index = self.stack.len() - 1;
        let handle = match self.take_handle() {
            Ok(handle) => handle,
            Err(error) => {
                self.report_failure(b"", error)?;
                self.pop();
                self.mark_failed();
                return ON;
            }
        };
        match self.unlink_files(handle.as_fd())? {
            TreeRemovalAction::Enter(name) => {
                let flow = self.enter(handle.as_fd(), &name);
                self.stack[index].handle = Some(handle);
                flow
            }
            TreeRemovalAction::Leave => self.remove_top_directory(handle),
        }
    }

    /// Continues the listing of the directory on top of the stack, unlinks all entries but directories, and
    /// stops at a directory.
    fn unlink_files(&mut self, handle: BorrowedFd<'_>) -> ControlFlow<(), TreeRemovalAction> {
        let mut buffer = mem::take(&mut self.listing);
        let next = self.unlink_files_with(handle, &mut buffer);
        self.listing = buffer;
        next
    }

    fn unlink_files_with(
        &mut self,
        handle: BorrowedFd<'_>,
        buffer: &mut [MaybeUninit<u8>],
    ) -> ControlFlow<(), TreeRemovalAction> {
        if let Err(errno) = seek(handle, SeekFrom::Start(self.top_level().position)) {
            self.report_failure(b"", errno.into())?;
            return ControlFlow::Continue(TreeRemovalAction::Leave);
        }
        let mut listing = RawDir::new(handle, buffer);
        while let Some(entry) = listing.next() {
            let entry = match entry {
                Ok(entry) => entry,
                Err(Errno::INTR) => continue,
                // Another process removed the directory.
                Err(Errno::NOENT) => break,
                Err(errno) => {
                    self.report_failure(b"", errno.into())?;
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
                self.mark_failed();
                continue;
            }
            if is_directory || self.unlink_unless_directory(handle, name)? {
                self.top_level().position = entry.next_entry_cookie();
                return ControlFlow::Continue(TreeRemovalAction::Enter(name.to_bytes().into()));
            }
        }
        ControlFlow::Continue(TreeRemovalAction::Leave)
    }

    /// Unlinks `name`, which is no directory according to the listing; returns true if it is a directory.
    fn unlink_unless_directory(&mut self, parent: BorrowedFd<'_>, name: &CStr) -> ControlFlow<(), bool> {
        match self.unlink(parent, name.to_bytes(), AtFlags::empty()) {
            Ok(()) => self.count_removed()?,
            Err(Errno::NOENT) => {}
            Err(Errno::ISDIR) => return ControlFlow::Continue(true),
            Err(Errno::BUSY) if self.keeps_mount_points => self.report_mount(name.to_bytes())?,
            // The error of POSIX for a directory.
            Err(Errno::PERM) if is_directory(parent, name) => return ControlFlow::Continue(true),
            Err(errno) => self.report_failure(name.to_bytes(), errno.into())?,
        }
        ControlFlow::Continue(false)
    }

    /// Puts the directory `name` on the stack.
    fn enter(&mut self, parent: BorrowedFd<'_>, name: &[u8]) -> RemovalControlFlow {
        if self.path.len() + 1 + name.len() > PATH_BYTES_MAX {
            return self.report_failure(name, Errno::NAMETOOLONG.into());
        }
        let opened = self.open(parent, name);
        match opened.and_then(|handle| Ok((fstat(&handle)?, handle))) {
            Ok((stat, _)) if FileIdentity::of(&stat) == self.top => {
                self.report_failure(name, Errno::BUSY.into())
            }
            Ok((_, handle)) if is_other_mount(self.mount, handle.as_fd()) => self.report_mount(name),
            Ok((stat, handle)) => {
                self.push(name, RemovalLevel::new(FileIdentity::of(&stat), handle));
                ON
            }
            Err(Errno::NOENT) => ON,
            // Replaced by another type of entry, or an unreadable directory, which may be empty.
            Err(errno) => {
                let is_other = matches!(errno, Errno::NOTDIR | Errno::LOOP);
                let flags = if is_other { AtFlags::empty() } else { AtFlags::REMOVEDIR };
                match self.unlink(parent, name, flags) {
                    Ok(()) => self.count_removed(),
                    Err(_) => self.report_failure(name, errno.into()),
                }
            }
        }
    }

    fn push(&mut self, name: &[u8], mut level: RemovalLevel) {
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

    /// Pops the directory on top of the stack; returns it with its name.
    fn pop(&mut self) -> Option<(RemovalLevel, Vec<u8>)> {
        let level = self.stack.pop()?;
        let start = self.stack.last().map_or(0, |parent| parent.path_bytes + 1);
        let name = self.path[start..].to_vec();
        self.path.truncate(start.saturating_sub(1));
        Some((level, name))
    }

    /// Removes the directory on top of the stack, which is empty except for entries that stay.
    fn remove_top_directory(&mut self, handle: OwnedFd) -> RemovalControlFlow {
        let Some((level, name)) = self.pop() else { return ON };
        if !level.has_failed && (self.spares)(RemovalStep::RemoveDirectory, &self.path_of(&name)) {
            self.mark_failed();
            return ON;
        }
        match self.unlink_directory(&name) {
            Ok(()) => self.count_removed(),
            Err(error) => match Errno::from_io_error(&error) {
                Some(Errno::NOENT) => ON,
                Some(Errno::BUSY) if self.keeps_mount_points => self.report_mount(&name),
                Some(Errno::NOTEMPTY | Errno::EXIST) if level.has_failed => {
                    self.mark_failed();
                    ON
                }
                Some(Errno::NOTEMPTY | Errno::EXIST) if level.is_worth_another_pass() => {
                    self.push(&name, level.next_pass(handle));
                    ON
                }
                _ => self.report_failure(&name, error),
            },
        }
    }

    /// The path beneath the holder of `name` in the directory on top of the stack.
    fn path_of(&self, name: &[u8]) -> Vec<u8> {
        if self.path.is_empty() { name.to_vec() } else { [&self.path, name].join(&b'/') }
    }

    /// Removes `name` in the directory on top of the stack, or in the holder.
    fn unlink_directory(&mut self, name: &[u8]) -> io::Result<()> {
        if self.stack.is_empty() {
            return Ok(self.unlink(self.holder, name, AtFlags::REMOVEDIR)?);
        }
        let parent = self.take_handle()?;
        let removed = self.unlink(parent.as_fd(), name, AtFlags::REMOVEDIR);
        self.top_level().handle = Some(parent);
        Ok(removed?)
    }

    /// Takes the descriptor of the directory on top of the stack, which is opened again if it was released.
    fn take_handle(&mut self) -> io::Result<OwnedFd> {
        match self.top_level().handle.take() {
            Some(handle) => Ok(handle),
            None => self.open_again(),
        }
    }

    /// Opens the directory on top of the stack again, with some directories above it: one long walk for all
    /// of them.
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

    fn top_level(&mut self) -> &mut RemovalLevel {
        self.stack.last_mut().expect("called for a directory on the stack")
    }

    fn count_removed(&mut self) -> RemovalControlFlow {
        if let Some(level) = self.stack.last_mut() {
            level.has_removed = true;
        }
        self.removal.removed_count += 1;
        self.removed_untold += 1;
        if self.removed_untold < TELL_COUNT { ON } else { self.report_removed() }
    }

    fn report_removed(&mut self) -> RemovalControlFlow {
        match mem::take(&mut self.removed_untold) {
            0 => ON,
            count => (self.told)(RemovalEvent::Removed(count)),
        }
    }

    /// Reports a failure for `name` in the directory on top of the stack, or without a name for that
    /// directory.
    fn report_failure(&mut self, name: &[u8], error: io::Error) -> RemovalControlFlow {
        self.mark_failed();
        self.removal.failed_count += 1;
        let path = self.shown_path(name);
        (self.told)(RemovalEvent::Failed { path, error })
    }

    /// Reports a mount on `name` in the directory on top of the stack.
    fn report_mount(&mut self, name: &[u8]) -> RemovalControlFlow {
        self.mark_failed();
        let path = self.shown_path(name);
        (self.told)(RemovalEvent::Mounted(path))
    }

    /// Notes that the directory on top of the stack can't become empty.
    fn mark_failed(&mut self) {
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

impl RemovalLevel {
    fn new(identity: FileIdentity, handle: OwnedFd) -> RemovalLevel {
        let handle = Some(handle);
        let (path_bytes, position, pass_count, has_removed, has_failed) = Default::default();
        RemovalLevel { path_bytes, handle, identity, position, pass_count, has_removed, has_failed }
    }

    /// Fails if a different directory was opened again.
    fn check(&self, handle: &OwnedFd) -> io::Result<()> {
        if FileIdentity::of_open(handle)? == self.identity {
            return Ok(());
        }
        Err(io::Error::other("it was replaced by another directory meanwhile"))
    }

    /// Some file systems omit names from a listing while others vanish, and other processes may add names.
    fn is_worth_another_pass(&self) -> bool {
        self.has_removed && self.pass_count < PASSES_MAX
    }

    fn next_pass(self, handle: OwnedFd) -> RemovalLevel {
        RemovalLevel { pass_count: self.pass_count + 1, ..RemovalLevel::new(self.identity, handle) }
    }
}

fn is_directory(parent: BorrowedFd<'_>, name: &CStr) -> bool {
    is_directory_named(parent, name.to_bytes())
}

fn is_directory_named(parent: BorrowedFd<'_>, name: &[u8]) -> bool {
    statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)
        .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory)
}
