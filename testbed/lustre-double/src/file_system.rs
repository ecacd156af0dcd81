//! The kernel's requests, answered by the namespace and the striped files.
//!
//! Methods are called on all threads at once. They convert arguments and keep the handles; the default
//! methods refuse all other requests, `O_TMPFILE` and `copy_file_range` among them.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, RwLock};
use std::time::SystemTime;

use carrack_testbed_fuse::{
    GENERATION, TTL, fuse_errno, fuse_kind, reply_attributes, reply_data, reply_empty, reply_entry,
    reply_open,
};
use fuser::{
    FileAttr, FileHandle, Filesystem, FopenFlags, INodeNo, InitFlags, IoctlFlags, KernelConfig, LockOwner,
    OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus,
    ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow,
    WriteFlags,
};
use rustix::fs::{Stat, Timestamps};
use rustix::io::Errno;

use crate::attributes::{IO_BYTES, attributes_of, control_attributes, timespec};
use crate::control::{self, Control};
use crate::lov::{self, ANY_TARGET, Layout, LovError};
use crate::namespace::{Inode, Name, Namespace, os_name};
use crate::striped_file::{StripedFile, Wish};
use crate::targets::Targets;

/// The part of O_LOV_DELAY_CREATE (O_NOCTTY and FASYNC) that the kernel passes on.
const DELAY_CREATE: i32 = 0x2000;
const O_EXCL: i32 = 0o200;
/// `LL_IOC_GET_MDTIDX`: the number of the file's metadata target.
const GET_MDT: u32 = 0x8004_66AF;
/// `fallocate` without a flag.
const ALLOCATE: i32 = 0;

/// The mounted file system.
pub struct LustreDouble {
    namespace: Namespace,
    targets: Arc<Targets>,
    /// True if a layout for a file that has one is an error, as at the server; Lustre's client hides it.
    refuse_late_layouts: bool,
    handles: RwLock<HashMap<u64, Handle>>,
    next_handle: AtomicU64,
}

/// The object behind an open handle.
#[derive(Clone)]
enum Handle {
    File(Arc<StripedFile>),
    Directory(Arc<Vec<Name>>),
    Control(Control),
}

impl LustreDouble {
    /// Creates the file system over a namespace and its targets.
    pub fn new(namespace: Namespace, targets: Arc<Targets>, refuse_late_layouts: bool) -> LustreDouble {
        LustreDouble {
            namespace,
            targets,
            refuse_late_layouts,
            handles: RwLock::default(),
            next_handle: AtomicU64::new(1),
        }
    }

    fn keep(&self, handle: Handle) -> FileHandle {
        let number = self.next_handle.fetch_add(1, Relaxed);
        self.handles.write().expect("never poisoned: nothing panics").insert(number, handle);
        FileHandle(number)
    }

    fn handle(&self, number: FileHandle) -> Result<Handle, Errno> {
        let handles = self.handles.read().expect("never poisoned: nothing panics");
        handles.get(&number.0).cloned().ok_or(Errno::BADF)
    }

    fn drop_handle(&self, number: FileHandle) -> Option<Handle> {
        self.handles.write().expect("never poisoned: nothing panics").remove(&number.0)
    }

    fn attributes(&self, number: INodeNo) -> Result<FileAttr, Errno> {
        if let Some(attributes) = control_attributes(number) {
            return Ok(attributes);
        }
        let inode = self.namespace.inode(number)?;
        Ok(attributes_of(number, &inode.stat()?))
    }

    fn look_up(&self, parent: INodeNo, name: &OsStr) -> Result<FileAttr, Errno> {
        if let Some(number) = control_number(parent, name)? {
            return self.attributes(number);
        }
        let inode = self.namespace.lookup(&*self.namespace.inode(parent)?, name)?;
        self.remembered(&inode, inode.stat())
    }

    /// Returns the attributes of an inode that was looked up for a reply. After an error the look-up is taken
    /// back.
    fn remembered(&self, inode: &Inode, stat: Result<Stat, Errno>) -> Result<FileAttr, Errno> {
        match stat {
            Ok(stat) => Ok(attributes_of(inode.number, &stat)),
            Err(errno) => {
                self.namespace.forget(inode.number, 1);
                Err(errno)
            }
        }
    }

    /// Makes a new entry, which belongs to the caller.
    fn make(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        make: impl FnOnce(&Inode) -> Result<(), Errno>,
    ) -> Result<Arc<Inode>, Errno> {
        if control_number(parent, name)?.is_some() {
            return Err(Errno::EXIST);
        }
        let parent = self.namespace.inode(parent)?;
        make(&parent)?;
        self.namespace.adopt(&parent, name, (request.uid(), request.gid()))
    }

    fn made(&self, made: Result<Arc<Inode>, Errno>) -> Result<FileAttr, Errno> {
        let inode = made?;
        self.remembered(&inode, inode.stat())
    }

    /// Opens a file. If it is opened for writing and has no layout, it gets the default layout, as from an
    /// MDS.
    fn open_data(&self, inode: &Inode, flags: i32) -> Result<Handle, Errno> {
        let file = self.namespace.open(inode)?;
        let writes = OpenFlags(flags).acc_mode() != fuser::OpenAccMode::O_RDONLY;
        if is_released(inode) {
            inode.remove_xattr(OsStr::new(RELEASED))?;
        }
        if writes && flags & DELAY_CREATE == 0 && file.lov().is_none() {
            let given = self.namespace.default_of(inode).and_then(|layout| file.give_layout(layout));
            if let Err(errno) = given {
                drop(file);
                self.namespace.close(inode)?;
                return Err(errno);
            }
        }
        Ok(Handle::File(file))
    }

    fn create_and_open(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        flags: i32,
    ) -> Result<(FileAttr, FileHandle), Errno> {
        let regular = rustix::fs::FileType::RegularFile.as_raw_mode() | mode;
        let made =
            self.make(request, parent, name, |parent| self.namespace.make_node(parent, name, regular, 0));
        let inode = match made {
            // Another client made the file first, which is no error.
            Err(Errno::EXIST) if flags & O_EXCL == 0 => {
                self.namespace.lookup(&*self.namespace.inode(parent)?, name)?
            }
            made => made?,
        };
        let opened = self.open_data(&inode, flags).and_then(|handle| Ok((inode.stat()?, handle)));
        let (stat, handle) = opened.inspect_err(|_| self.namespace.forget(inode.number, 1))?;
        Ok((attributes_of(inode.number, &stat), self.keep(handle)))
    }

    fn set_size(&self, number: INodeNo, handle: Option<FileHandle>, bytes: u64) -> Result<(), Errno> {
        match handle.map(|handle| self.handle(handle)).transpose()? {
            Some(Handle::File(file)) => file.truncate(bytes),
            _ => self.namespace.with_file(&*self.namespace.inode(number)?, |file| file.truncate(bytes)),
        }
    }

    fn read_handle(&self, handle: FileHandle, offset: u64, bytes: u64) -> Result<Vec<u8>, Errno> {
        match self.handle(handle)? {
            Handle::File(file) => file.read(offset, bytes),
            Handle::Control(control) => {
                let text = control.read(&self.targets).into_bytes();
                Ok(text.into_iter().skip(offset as usize).take(bytes as usize).collect())
            }
            Handle::Directory(_) => Err(Errno::ISDIR),
        }
    }

    fn write_handle(&self, handle: FileHandle, offset: u64, data: &[u8]) -> Result<(), Errno> {
        match self.handle(handle)? {
            Handle::File(file) => file.write(offset, data),
            Handle::Control(control) => control.write(&self.targets, data),
            Handle::Directory(_) => Err(Errno::ISDIR),
        }
    }

    fn close(&self, number: INodeNo, handle: FileHandle) -> Result<(), Errno> {
        match self.drop_handle(handle) {
            Some(Handle::File(file)) => {
                drop(file);
                self.namespace.close(&*self.namespace.inode(number)?)
            }
            _ => Ok(()),
        }
    }

    fn set_lov(&self, number: INodeNo, value: &[u8]) -> Result<(), Errno> {
        let inode = self.namespace.inode(number)?;
        if value.is_empty() {
            return self.remove_lov(&inode);
        }
        let layout = Layout::wished(value).map_err(errno_of)?;
        if is_no_wish(&layout) && inode.set_default_layout(None).is_ok() {
            return Ok(());
        }
        if !self.targets.can_have(&layout) {
            return Err(Errno::INVAL);
        }
        match inode.set_default_layout(Some(&layout)) {
            Err(Errno::INVAL) => {}
            answer => return answer,
        }
        match self.namespace.with_file(&inode, |file| file.give_layout(layout))? {
            Wish::Late if self.refuse_late_layouts => Err(Errno::EXIST),
            Wish::Late | Wish::Granted => Ok(()),
        }
    }

    /// Removes a directory's default. A file's layout stays, without an error.
    fn remove_lov(&self, inode: &Inode) -> Result<(), Errno> {
        match inode.set_default_layout(None) {
            Err(Errno::INVAL) => Ok(()),
            answer => answer,
        }
    }

    fn xattr(&self, number: INodeNo, name: &OsStr) -> Result<Vec<u8>, Errno> {
        if control_attributes(number).is_some() {
            return Err(Errno::NODATA);
        }
        let inode = self.namespace.inode(number)?;
        match is_lov(name) {
            true if is_released(&inode) => self.namespace.lov(&inode).map(lov::released),
            true if inode.xattr(OsStr::new(FOREIGN)).is_ok() => Ok(lov::foreign()),
            true => self.namespace.lov(&inode),
            false => inode.xattr(name),
        }
    }

    fn xattr_names(&self, request: &Request, number: INodeNo) -> Result<Vec<u8>, Errno> {
        if control_attributes(number).is_some() {
            return Ok(vec![]);
        }
        let inode = self.namespace.inode(number)?;
        let mut names = inode.xattr_names()?;
        if self.namespace.lov(&inode).is_ok() {
            names.extend(b"lustre.lov\0");
            if request.uid() == 0 {
                names.extend(b"trusted.lov\0");
            }
        }
        Ok(names)
    }

    fn list(&self, number: INodeNo) -> Result<Vec<Name>, Errno> {
        if number != control::DIRECTORY {
            return self.namespace.inode(number)?.names();
        }
        let name = |control: &Control| Name {
            name: control.name().into(),
            kind: rustix::fs::FileType::RegularFile,
            id: control.number().0,
        };
        Ok(Control::ALL.iter().map(name).collect())
    }

    fn listed(&self, handle: FileHandle) -> Result<Arc<Vec<Name>>, Errno> {
        match self.handle(handle)? {
            Handle::Directory(names) => Ok(names),
            _ => Err(Errno::NOTDIR),
        }
    }

    fn set_attributes(
        &self,
        number: INodeNo,
        handle: Option<FileHandle>,
        change: &Change,
    ) -> Result<FileAttr, Errno> {
        if control_attributes(number).is_none() {
            let inode = self.namespace.inode(number)?;
            if change.uid.is_some() || change.gid.is_some() {
                inode.set_owner(change.uid, change.gid)?;
            }
            // The mode is set after the owner, whose change clears bits.
            change.mode.map_or(Ok(()), |mode| inode.set_mode(mode))?;
            change.size.map_or(Ok(()), |bytes| self.set_size(number, handle, bytes))?;
            if let Some(times) = &change.times {
                inode.set_times(times)?;
            }
        }
        self.attributes(number)
    }
}

/// The attributes that `setattr` sets.
struct Change {
    mode: Option<u32>,
    uid: Option<u32>,
    gid: Option<u32>,
    size: Option<u64>,
    times: Option<Timestamps>,
}

/// A file with this attribute is as after `lfs hsm_release`: the objects are gone, and come back when it is
/// opened for reading. Tests set the attribute.
const RELEASED: &str = "user.released";

/// An empty file with this attribute is as after `lfs setstripe --foreign=symlink`: its data is in another
/// storage system. Tests set the attribute.
const FOREIGN: &str = "user.foreign";

fn is_released(inode: &Inode) -> bool {
    inode.xattr(OsStr::new(RELEASED)).is_ok()
}

fn is_lov(name: &OsStr) -> bool {
    name == "lustre.lov" || name == "trusted.lov"
}

/// Returns true for the layout of `lfs setstripe -d`, which names nothing.
fn is_no_wish(layout: &Layout) -> bool {
    let [only] = &layout.components[..] else { return false };
    let plain = !layout.composite && only.pool.is_empty() && only.wished_targets.is_empty();
    plain && (only.stripe_bytes, only.stripe_count, only.first_target) == (0, 0, ANY_TARGET)
}

fn errno_of(error: LovError) -> Errno {
    match error {
        LovError::Short => Errno::RANGE,
        LovError::Invalid => Errno::INVAL,
    }
}

/// Returns the inode number if the name belongs to `.control`.
fn control_number(parent: INodeNo, name: &OsStr) -> Result<Option<INodeNo>, Errno> {
    match parent {
        INodeNo::ROOT if name == control::NAME => Ok(Some(control::DIRECTORY)),
        control::DIRECTORY => {
            let found = Control::ALL.into_iter().find(|control| name == control.name());
            found.map(|control| Some(control.number())).ok_or(Errno::NOENT)
        }
        _ => Ok(None),
    }
}

fn reply_xattr(reply: ReplyXattr, result: Result<Vec<u8>, Errno>, size: u32) {
    match result {
        Ok(value) if size == 0 => reply.size(value.len() as u32),
        Ok(value) if value.len() > size as usize => reply.error(fuse_errno(Errno::RANGE)),
        Ok(value) => reply.data(&value),
        Err(errno) => reply.error(fuse_errno(errno)),
    }
}

/// Returns flags that bypass the page cache, so that every read and write arrives, and allow parallel writes.
fn open_flags() -> FopenFlags {
    FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES
}

impl Filesystem for LustreDouble {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        for wanted in [
            InitFlags::FUSE_ASYNC_DIO,
            InitFlags::FUSE_DO_READDIRPLUS,
            InitFlags::FUSE_READDIRPLUS_AUTO,
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP,
        ] {
            // An older kernel has fewer; the double works without them.
            let _ = config.add_capabilities(wanted);
        }
        // Requests for a slow target must not keep requests for others waiting in the kernel.
        let _ = config.set_max_background(u16::MAX);
        Ok(())
    }

    fn lookup(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        reply_entry(reply, self.look_up(parent, name));
    }

    fn forget(&self, _request: &Request, number: INodeNo, lookups: u64) {
        self.namespace.forget(number, lookups);
    }

    fn getattr(&self, _request: &Request, number: INodeNo, _handle: Option<FileHandle>, reply: ReplyAttr) {
        reply_attributes(reply, self.attributes(number));
    }

    fn setattr(
        &self,
        _request: &Request,
        number: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        handle: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<fuser::BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let times = (atime.is_some() || mtime.is_some())
            .then(|| Timestamps { last_access: timespec(atime), last_modification: timespec(mtime) });
        let change = Change { mode, uid, gid, size, times };
        reply_attributes(reply, self.set_attributes(number, handle, &change));
    }

    fn readlink(&self, _request: &Request, number: INodeNo, reply: ReplyData) {
        reply_data(reply, self.namespace.inode(number).and_then(|inode| inode.link_target()));
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        device: u32,
        reply: ReplyEntry,
    ) {
        let make = |parent: &Inode| self.namespace.make_node(parent, name, mode, device.into());
        reply_entry(reply, self.made(self.make(request, parent, name, make)));
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        reply: ReplyEntry,
    ) {
        let make = |parent: &Inode| self.namespace.make_directory(parent, name, mode);
        reply_entry(reply, self.made(self.make(request, parent, name, make)));
    }

    fn symlink(&self, request: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let make = |parent: &Inode| self.namespace.make_link(parent, name, target);
        reply_entry(reply, self.made(self.make(request, parent, name, make)));
    }

    fn link(&self, _request: &Request, number: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let linked = || {
            let (inode, parent) = (self.namespace.inode(number)?, self.namespace.inode(parent)?);
            self.namespace.link(&inode, &parent, name)
        };
        reply_entry(reply, linked().and_then(|()| self.look_up(parent, name)));
    }

    fn unlink(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let parent = self.namespace.inode(parent);
        reply_empty(reply, parent.and_then(|parent| self.namespace.unlink(&parent, name)));
    }

    fn rmdir(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let parent = self.namespace.inode(parent);
        reply_empty(reply, parent.and_then(|parent| self.namespace.remove_directory(&parent, name)));
    }

    fn rename(
        &self,
        _request: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let renamed = || {
            let (from, to) = (self.namespace.inode(parent)?, self.namespace.inode(new_parent)?);
            self.namespace.rename((&from, name), (&to, new_name), flags.bits())
        };
        reply_empty(reply, renamed());
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        match self.create_and_open(request, parent, name, mode, flags) {
            Ok((attributes, handle)) => reply.created(&TTL, &attributes, GENERATION, handle, open_flags()),
            Err(errno) => reply.error(fuse_errno(errno)),
        }
    }

    fn open(&self, _request: &Request, number: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let opened = match Control::by_number(number) {
            Some(control) => Ok(Handle::Control(control)),
            None => self.namespace.inode(number).and_then(|inode| self.open_data(&inode, flags.0)),
        };
        reply_open(reply, opened.map(|handle| self.keep(handle)), open_flags());
    }

    fn read(
        &self,
        _request: &Request,
        _number: INodeNo,
        handle: FileHandle,
        offset: u64,
        bytes: u32,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        reply_data(reply, self.read_handle(handle, offset, bytes.into()));
    }

    fn write(
        &self,
        _request: &Request,
        _number: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match self.write_handle(handle, offset, data) {
            Ok(()) => reply.written(data.len() as u32),
            Err(errno) => reply.error(fuse_errno(errno)),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _owner: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn release(
        &self,
        _request: &Request,
        number: INodeNo,
        handle: FileHandle,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        reply_empty(reply, self.close(number, handle));
    }

    fn fsync(&self, _: &Request, _: INodeNo, handle: FileHandle, _data_only: bool, reply: ReplyEmpty) {
        let synced = self.handle(handle).and_then(|handle| match handle {
            Handle::File(file) => file.sync(),
            _ => Ok(()),
        });
        reply_empty(reply, synced);
    }

    fn opendir(&self, _request: &Request, number: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        let names = self.list(number).map(|names| self.keep(Handle::Directory(Arc::new(names))));
        reply_open(reply, names, FopenFlags::empty());
    }

    fn readdir(
        &self,
        _request: &Request,
        _number: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let names = match self.listed(handle) {
            Ok(names) => names,
            Err(errno) => return reply.error(fuse_errno(errno)),
        };
        for (index, name) in names.iter().enumerate().skip(offset as usize) {
            let kind = fuse_kind(name.kind);
            if reply.add(INodeNo(name.id), index as u64 + 1, kind, OsStr::from_bytes(&name.name)) {
                break;
            }
        }
        reply.ok();
    }

    fn readdirplus(
        &self,
        _request: &Request,
        number: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let names = match self.listed(handle) {
            Ok(names) => names,
            Err(errno) => return reply.error(fuse_errno(errno)),
        };
        for (index, name) in names.iter().enumerate().skip(offset as usize) {
            let is_dots = name.name == b"." || name.name == b"..";
            let name = os_name(name.name.clone());
            // The kernel counts no look-up for the dots, whose number it doesn't use.
            let found = if is_dots { self.attributes(number) } else { self.look_up(number, &name) };
            // The entry was removed after the directory was opened.
            let Ok(attributes) = found else { continue };
            if reply.add(attributes.ino, index as u64 + 1, &name, &TTL, &attributes, GENERATION) {
                if !is_dots {
                    self.namespace.forget(attributes.ino, 1);
                }
                break;
            }
        }
        reply.ok();
    }

    fn releasedir(
        &self,
        _request: &Request,
        _number: INodeNo,
        handle: FileHandle,
        _flags: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.drop_handle(handle);
        reply.ok();
    }

    fn fsyncdir(&self, _: &Request, number: INodeNo, _: FileHandle, _data_only: bool, reply: ReplyEmpty) {
        reply_empty(reply, self.namespace.inode(number).and_then(|inode| inode.sync()));
    }

    fn statfs(&self, _request: &Request, _number: INodeNo, reply: ReplyStatfs) {
        match self.namespace.room() {
            Ok(room) => reply.statfs(
                room.f_blocks,
                room.f_bfree,
                room.f_bavail,
                room.f_files,
                room.f_ffree,
                IO_BYTES,
                room.f_namemax as u32,
                room.f_frsize as u32,
            ),
            Err(errno) => reply.error(fuse_errno(errno)),
        }
    }

    fn setxattr(
        &self,
        _request: &Request,
        number: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        let set = || match is_lov(name) {
            true => self.set_lov(number, value),
            false => self.namespace.inode(number)?.set_xattr(name, value, flags),
        };
        reply_empty(reply, set());
    }

    fn getxattr(&self, _request: &Request, number: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        reply_xattr(reply, self.xattr(number, name), size);
    }

    fn listxattr(&self, request: &Request, number: INodeNo, size: u32, reply: ReplyXattr) {
        reply_xattr(reply, self.xattr_names(request, number), size);
    }

    fn removexattr(&self, _request: &Request, number: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let remove = || {
            let inode = self.namespace.inode(number)?;
            if is_lov(name) { self.remove_lov(&inode) } else { inode.remove_xattr(name) }
        };
        reply_empty(reply, remove());
    }

    fn fallocate(
        &self,
        _request: &Request,
        _number: INodeNo,
        handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let allocated = match self.handle(handle) {
            Ok(Handle::File(file)) if mode == ALLOCATE => file.extend(offset + length),
            Ok(_) => Err(Errno::OPNOTSUPP),
            Err(errno) => Err(errno),
        };
        reply_empty(reply, allocated);
    }

    fn ioctl(
        &self,
        _request: &Request,
        _number: INodeNo,
        _handle: FileHandle,
        _flags: IoctlFlags,
        command: u32,
        _data: &[u8],
        _out_size: u32,
        reply: ReplyIoctl,
    ) {
        // Most of Lustre's own ioctls don't work through FUSE, which carries no more bytes than the command's
        // size says.
        match command {
            GET_MDT => reply.ioctl(0, &0u32.to_ne_bytes()),
            _ => reply.error(fuse_errno(Errno::NOTTY)),
        }
    }
}
