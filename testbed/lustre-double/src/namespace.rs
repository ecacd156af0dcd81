//! The MDT: names, modes, times and attributes, which are those of an underlying directory tree.
//!
//! An inode is held by an `O_PATH` descriptor for as long as the kernel remembers it, and has the number of
//! the underlying inode, so renames and hard links need no paths. The size of an underlying regular file is
//! the file's size; its data is elsewhere.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};

use fuser::INodeNo;
use rustix::fs::{self as beneath, AtFlags, Dir, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use crate::lov::{Layout, LovError};
use crate::striped_file::{LAYOUT_XATTR, StripedFile};
use crate::targets::Targets;

/// Prefix of the double's own attributes, which clients don't see.
const OWN_XATTRS: &[u8] = b"trusted.lustre-double.";
/// A file's default layout, taken from its directory when it was made; it counts as long as the file has no
/// layout.
const DEFAULT_XATTR: &str = "trusted.lustre-double.default";
const XATTR_BYTES_MAX: usize = 1 << 16;

/// An inode of the namespace.
pub struct Inode {
    descriptor: OwnedFd,
    /// The number for the kernel: that of the underlying inode, but 1 for the root.
    pub number: INodeNo,
    /// The underlying inode's number.
    id: u64,
    data: Mutex<Data>,
}

/// The open data of a regular file.
#[derive(Default)]
struct Data {
    handles: u64,
    file: Option<Arc<StripedFile>>,
}

/// All inodes that the kernel remembers.
pub struct Namespace {
    targets: Arc<Targets>,
    root: Arc<Inode>,
    known: Mutex<HashMap<INodeNo, Known>>,
}

struct Known {
    inode: Arc<Inode>,
    lookups: u64,
}

/// A name in a directory.
pub struct Name {
    /// The name itself.
    pub name: Vec<u8>,
    /// The kind of its inode.
    pub kind: FileType,
    /// The underlying inode's number.
    pub id: u64,
}

impl Inode {
    fn new(descriptor: OwnedFd) -> Result<Inode, Errno> {
        let id = beneath::fstat(&descriptor)?.st_ino;
        Ok(Inode { descriptor, number: INodeNo(id), id, data: Mutex::default() })
    }

    /// Returns the underlying inode's attributes; a file's size is the right one.
    pub fn stat(&self) -> Result<Stat, Errno> {
        beneath::fstat(&self.descriptor)
    }

    /// Returns a path to exactly this inode, independent of its names.
    fn path(&self) -> String {
        format!("/proc/self/fd/{}", self.descriptor.as_raw_fd())
    }

    /// Opens the inode again.
    fn reopen(&self, flags: OFlags) -> Result<OwnedFd, Errno> {
        beneath::open(self.path(), flags | OFlags::CLOEXEC, Mode::empty())
    }

    fn is_regular(&self) -> Result<bool, Errno> {
        Ok(FileType::from_raw_mode(self.stat()?.st_mode) == FileType::RegularFile)
    }

    fn is_directory(&self) -> Result<bool, Errno> {
        Ok(FileType::from_raw_mode(self.stat()?.st_mode) == FileType::Directory)
    }

    /// Sets the mode.
    pub fn set_mode(&self, mode: u32) -> Result<(), Errno> {
        beneath::chmod(self.path(), Mode::from_raw_mode(mode))
    }

    /// Sets the owners that are named.
    pub fn set_owner(&self, uid: Option<u32>, gid: Option<u32>) -> Result<(), Errno> {
        let (uid, gid) = (uid.map(beneath::Uid::from_raw), gid.map(beneath::Gid::from_raw));
        beneath::chownat(&self.descriptor, c"", uid, gid, AtFlags::EMPTY_PATH)
    }

    /// Sets the times.
    pub fn set_times(&self, times: &beneath::Timestamps) -> Result<(), Errno> {
        beneath::utimensat(&self.descriptor, c"", times, AtFlags::EMPTY_PATH)
    }

    /// Returns the target of a symbolic link.
    pub fn link_target(&self) -> Result<Vec<u8>, Errno> {
        beneath::readlinkat(&self.descriptor, c"", Vec::new()).map(|target| target.into_bytes())
    }

    /// Returns the present names of a directory.
    pub fn names(&self) -> Result<Vec<Name>, Errno> {
        let directory = Dir::new(self.reopen(OFlags::RDONLY | OFlags::DIRECTORY)?)?;
        let name = |entry: beneath::DirEntry| Name {
            name: entry.file_name().to_bytes().to_vec(),
            kind: entry.file_type(),
            id: entry.ino(),
        };
        directory.map(|entry| entry.map(name)).collect()
    }

    /// Syncs the inode to stable storage.
    pub fn sync(&self) -> Result<(), Errno> {
        beneath::fsync(self.reopen(OFlags::RDONLY)?)
    }

    /// Returns a client's attribute.
    pub fn xattr(&self, name: &OsStr) -> Result<Vec<u8>, Errno> {
        if is_own(name) {
            return Err(Errno::NODATA);
        }
        let mut value = vec![0; XATTR_BYTES_MAX];
        let length = beneath::getxattr(self.path(), name, &mut value)?;
        value.truncate(length);
        Ok(value)
    }

    /// Sets a client's attribute.
    pub fn set_xattr(&self, name: &OsStr, value: &[u8], flags: i32) -> Result<(), Errno> {
        if is_own(name) {
            return Err(Errno::PERM);
        }
        beneath::setxattr(self.path(), name, value, beneath::XattrFlags::from_bits_retain(flags as u32))
    }

    /// Removes a client's attribute.
    pub fn remove_xattr(&self, name: &OsStr) -> Result<(), Errno> {
        if is_own(name) {
            return Err(Errno::NODATA);
        }
        beneath::removexattr(self.path(), name)
    }

    /// Returns the names of the client's attributes, each with a NUL.
    pub fn xattr_names(&self) -> Result<Vec<u8>, Errno> {
        let mut names = vec![0; XATTR_BYTES_MAX];
        let length = beneath::listxattr(self.path(), &mut names)?;
        let names = names[..length].split_inclusive(|&byte| byte == 0);
        Ok(names.filter(|name| !name.starts_with(OWN_XATTRS)).flatten().copied().collect())
    }

    fn own_layout(&self, name: &str) -> Result<Option<Layout>, Errno> {
        let mut bytes = vec![0; XATTR_BYTES_MAX];
        match beneath::getxattr(self.path(), name, &mut bytes) {
            Ok(length) => Layout::decode(&bytes[..length]).map(Some).map_err(|_: LovError| Errno::IO),
            Err(Errno::NODATA) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    fn set_own_layout(&self, name: &str, layout: &Layout) -> Result<(), Errno> {
        beneath::setxattr(self.path(), name, &layout.encode(self.id), beneath::XattrFlags::empty())
    }

    /// Returns a directory's default for new files, if it has its own.
    pub fn default_layout(&self) -> Result<Option<Layout>, Errno> {
        self.own_layout(DEFAULT_XATTR)
    }

    /// Sets a directory's default; `None` removes it.
    pub fn set_default_layout(&self, layout: Option<&Layout>) -> Result<(), Errno> {
        if !self.is_directory()? {
            return Err(Errno::INVAL);
        }
        match layout {
            Some(layout) => self.set_own_layout(DEFAULT_XATTR, layout),
            None => match beneath::removexattr(self.path(), DEFAULT_XATTR) {
                Err(Errno::NODATA) => Ok(()),
                answer => answer,
            },
        }
    }

    fn data(&self) -> MutexGuard<'_, Data> {
        self.data.lock().expect("never poisoned: nothing panics")
    }
}

fn is_own(name: &OsStr) -> bool {
    name.as_bytes().starts_with(OWN_XATTRS)
}

impl Namespace {
    /// Opens the tree in a directory.
    pub fn new(targets: Arc<Targets>, directory: &Path) -> Result<Namespace, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = Inode::new(beneath::open(directory, flags, Mode::empty())?)?;
        let root = Arc::new(Inode { number: INodeNo::ROOT, ..root });
        Ok(Namespace { targets, root, known: Mutex::default() })
    }

    /// Returns the inode that the kernel remembers under a number.
    pub fn inode(&self, number: INodeNo) -> Result<Arc<Inode>, Errno> {
        if number == INodeNo::ROOT {
            return Ok(self.root.clone());
        }
        self.known().get(&number).map(|known| known.inode.clone()).ok_or(Errno::STALE)
    }

    fn known(&self) -> MutexGuard<'_, HashMap<INodeNo, Known>> {
        self.known.lock().expect("never poisoned: nothing panics")
    }

    /// Finds a name, and counts one more look-up of its inode.
    pub fn lookup(&self, parent: &Inode, name: &OsStr) -> Result<Arc<Inode>, Errno> {
        let found = Inode::new(open_name(parent, name)?)?;
        let mut known = self.known();
        // A number is reused only after the last descriptor is closed: the same number is the same inode.
        let known = known.entry(found.number).or_insert_with(|| Known { inode: Arc::new(found), lookups: 0 });
        known.lookups += 1;
        Ok(known.inode.clone())
    }

    /// Subtracts look-ups of an inode that the kernel forgets.
    pub fn forget(&self, number: INodeNo, lookups: u64) {
        let mut all = self.known();
        let Some(known) = all.get_mut(&number) else { return };
        known.lookups = known.lookups.saturating_sub(lookups);
        if known.lookups == 0 {
            all.remove(&number);
        }
    }

    /// Finds an entry that was just made for a client, and gives it to the client.
    pub fn adopt(&self, parent: &Inode, name: &OsStr, owner: (u32, u32)) -> Result<Arc<Inode>, Errno> {
        let inode = self.lookup(parent, name)?;
        let (uid, gid) = owner;
        if (inode.stat()?.st_uid, inode.stat()?.st_gid) != owner {
            inode.set_owner(Some(uid), Some(gid))?;
        }
        if let Some(layout) = parent.default_layout()?
            && (inode.is_regular()? || inode.is_directory()?)
        {
            inode.set_own_layout(DEFAULT_XATTR, &layout)?;
        }
        Ok(inode)
    }

    /// Makes a file, pipe, socket or device.
    pub fn make_node(&self, parent: &Inode, name: &OsStr, mode: u32, device: u64) -> Result<(), Errno> {
        let (kind, mode) = (FileType::from_raw_mode(mode), Mode::from_raw_mode(mode));
        beneath::mknodat(&parent.descriptor, name, kind, mode, device)
    }

    /// Makes a directory.
    pub fn make_directory(&self, parent: &Inode, name: &OsStr, mode: u32) -> Result<(), Errno> {
        beneath::mkdirat(&parent.descriptor, name, Mode::from_raw_mode(mode))
    }

    /// Makes a symbolic link.
    pub fn make_link(&self, parent: &Inode, name: &OsStr, target: &Path) -> Result<(), Errno> {
        beneath::symlinkat(target, &parent.descriptor, name)
    }

    /// Gives an inode a further name.
    pub fn link(&self, inode: &Inode, parent: &Inode, name: &OsStr) -> Result<(), Errno> {
        beneath::linkat(&inode.descriptor, c"", &parent.descriptor, name, AtFlags::EMPTY_PATH)
    }

    /// Removes a name, and with the last name the data.
    pub fn unlink(&self, parent: &Inode, name: &OsStr) -> Result<(), Errno> {
        let removed = self.peek(parent, name)?;
        beneath::unlinkat(&parent.descriptor, name, AtFlags::empty())?;
        self.destroy_if_dead(&removed)
    }

    /// Removes an empty directory.
    pub fn remove_directory(&self, parent: &Inode, name: &OsStr) -> Result<(), Errno> {
        beneath::unlinkat(&parent.descriptor, name, AtFlags::REMOVEDIR)
    }

    /// Renames an entry and replaces an existing one, unless the flags (`renameat2`) forbid it.
    pub fn rename(&self, from: (&Inode, &OsStr), to: (&Inode, &OsStr), flags: u32) -> Result<(), Errno> {
        let replaced = self.peek(to.0, to.1).ok();
        let flags = beneath::RenameFlags::from_bits_retain(flags);
        beneath::renameat_with(&from.0.descriptor, from.1, &to.0.descriptor, to.1, flags)?;
        replaced.map_or(Ok(()), |replaced| self.destroy_if_dead(&replaced))
    }

    /// Finds a name without counting a look-up.
    fn peek(&self, parent: &Inode, name: &OsStr) -> Result<Arc<Inode>, Errno> {
        let found = Inode::new(open_name(parent, name)?)?;
        Ok(self.known().get(&found.number).map_or_else(|| Arc::new(found), |known| known.inode.clone()))
    }

    fn destroy_if_dead(&self, inode: &Inode) -> Result<(), Errno> {
        let data = inode.data();
        if data.handles > 0 || inode.stat()?.st_nlink > 0 || !inode.is_regular()? {
            return Ok(());
        }
        self.striped_file(inode)?.destroy()
    }

    fn striped_file(&self, inode: &Inode) -> Result<StripedFile, Errno> {
        if !inode.is_regular()? {
            return Err(Errno::INVAL);
        }
        StripedFile::open(self.targets.clone(), File::from(inode.reopen(OFlags::RDWR)?), inode.id)
    }

    /// Opens a regular file's data; every call is followed by [`close`](Self::close).
    pub fn open(&self, inode: &Inode) -> Result<Arc<StripedFile>, Errno> {
        let mut data = inode.data();
        let file = match &data.file {
            Some(file) => file.clone(),
            None => data.file.insert(Arc::new(self.striped_file(inode)?)).clone(),
        };
        data.handles += 1;
        Ok(file)
    }

    /// Closes a handle; the last handle of a file without names removes the data.
    pub fn close(&self, inode: &Inode) -> Result<(), Errno> {
        let mut data = inode.data();
        data.handles -= 1;
        if data.handles > 0 {
            return Ok(());
        }
        data.file = None;
        drop(data);
        self.destroy_if_dead(inode)
    }

    /// Calls `work` with a file's data, which need not be open.
    pub fn with_file<T>(
        &self,
        inode: &Inode,
        work: impl FnOnce(&StripedFile) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let file = self.open(inode)?;
        let result = work(&file);
        drop(file);
        self.close(inode)?;
        result
    }

    /// Returns the layout of a file without a request.
    pub fn default_of(&self, inode: &Inode) -> Result<Layout, Errno> {
        Ok(inode.default_layout()?.unwrap_or_else(|| self.targets.default_layout()))
    }

    /// Returns the bytes of `lustre.lov`: a file's layout, or a directory's default.
    pub fn lov(&self, inode: &Inode) -> Result<Vec<u8>, Errno> {
        match FileType::from_raw_mode(inode.stat()?.st_mode) {
            // The attribute is read without opening the file's data: listing a thousand layouts opens no
            // file.
            FileType::RegularFile => {
                let layout = inode.own_layout(LAYOUT_XATTR)?.ok_or(Errno::NODATA)?;
                Ok(layout.encode(inode.id))
            }
            FileType::Directory => self.default_of(inode).map(|layout| layout.encode(0)),
            _ => Err(Errno::NODATA),
        }
    }

    /// Returns the room on all targets together, and the inodes of the MDT's file system.
    pub fn room(&self) -> Result<beneath::StatVfs, Errno> {
        let mut sum: Option<beneath::StatVfs> = None;
        for target in self.targets.osts() {
            let one = beneath::statvfs(target.directory())?;
            let mut all = sum.unwrap_or(beneath::StatVfs { f_blocks: 0, f_bfree: 0, f_bavail: 0, ..one });
            let scale = |blocks: u64| blocks * one.f_frsize / all.f_frsize.max(1);
            all.f_blocks += scale(one.f_blocks);
            all.f_bfree += scale(one.f_bfree);
            all.f_bavail += scale(one.f_bavail);
            sum = Some(all);
        }
        let files = beneath::fstatvfs(self.root.descriptor.as_fd())?;
        let (f_files, f_ffree) = (files.f_files, files.f_ffree);
        Ok(beneath::StatVfs { f_files, f_ffree, ..sum.unwrap_or(files) })
    }
}

fn open_name(parent: &Inode, name: &OsStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    beneath::openat(&parent.descriptor, name, flags, Mode::empty())
}

/// Converts a name for the kernel.
pub fn os_name(name: Vec<u8>) -> std::ffi::OsString {
    std::ffi::OsString::from_vec(name)
}
