//! The kernel's requests, answered by the double. Methods are called on all threads at once; they only
//! convert arguments.
//!
//! Files are read and written through the kernel's page cache, which closing does not drop: only readers past
//! the cache see bits that are flipped at rest. `O_TMPFILE` is refused, since fuser 0.18 does not know it.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{SystemTime, UNIX_EPOCH};

use carrack_testbed_fuse::{
    GENERATION, TTL, fuse_errno, fuse_kind, reply_attributes, reply_data, reply_empty, reply_entry,
    reply_open, set_time,
};
use fuser::{
    BsdFileFlags, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, INodeNo, LockOwner, OpenFlags,
    RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen,
    ReplyStatfs, ReplyWrite, Request, TimeOrNow, WriteFlags,
};
use rustix::fs::Timespec;
use rustix::io::Errno;

use crate::change::Attributes;
use crate::double::Double;
use crate::faults::Operation;
use crate::image::{Contents, Ino, Node};
use crate::pages::{PAGE_BYTES, Pages};

const O_TRUNC: i32 = 0o1000;
const KEEP_SIZE: i32 = 1;
const PUNCH_HOLE: i32 = 2;
/// Pages that `statfs` reports: 1 TiB.
const TOTAL_PAGES: u64 = 1 << 28;
const TOTAL_INODES: u64 = 1 << 32;

/// A double for fuser.
pub struct Mount {
    double: Arc<Double>,
    /// True to bypass the page cache: every read arrives.
    is_direct: bool,
    /// Names of the open directories, as they were when they were opened.
    directories: Mutex<HashMap<u64, Arc<Vec<Listed>>>>,
    next_handle: AtomicU64,
}

type Listed = (Vec<u8>, Ino, FileType);

impl Mount {
    /// Creates a mount that answers from this double.
    pub fn new(double: Arc<Double>, is_direct: bool) -> Mount {
        Mount { double, is_direct, directories: Default::default(), next_handle: AtomicU64::new(1) }
    }

    fn open_flags(&self) -> FopenFlags {
        if self.is_direct { FopenFlags::FOPEN_DIRECT_IO } else { FopenFlags::FOPEN_KEEP_CACHE }
    }

    fn directories(&self) -> MutexGuard<'_, HashMap<u64, Arc<Vec<Listed>>>> {
        self.directories.lock().expect("never poisoned: nothing panics")
    }

    /// Opens a directory with its present names, dots first.
    fn list(&self, directory: Ino) -> Result<FileHandle, Errno> {
        let dot = |name: &[u8]| (name.to_vec(), directory, FileType::Directory);
        let names = self.double.list(directory)?.into_iter();
        let names = names.map(|(name, ino, kind)| (name, ino, fuse_kind(kind)));
        let listed = [dot(b"."), dot(b"..")].into_iter().chain(names).collect();
        let number = self.next_handle.fetch_add(1, Relaxed);
        self.directories().insert(number, Arc::new(listed));
        Ok(FileHandle(number))
    }

    fn attributes(&self, ino: Ino) -> Result<FileAttr, Errno> {
        Ok(attributes_of(ino, &self.double.node(ino)?))
    }

    fn make(
        &self,
        operation: Operation,
        request: &Request,
        at: (INodeNo, &OsStr),
        contents: Contents,
        mode: u32,
    ) -> Result<FileAttr, Errno> {
        let owner = (request.uid(), request.gid());
        let at = (at.0.0, at.1.as_bytes());
        let (ino, node) = self.double.make(operation, at, (contents, mode), owner)?;
        Ok(attributes_of(ino, &node))
    }
}

fn attributes_of(ino: Ino, node: &Node) -> FileAttr {
    let pages = if let Contents::File(pages) = &node.contents { pages.count() } else { 0 };
    FileAttr {
        ino: INodeNo(ino),
        size: node.bytes(),
        blocks: pages * (PAGE_BYTES as u64 / 512),
        atime: node.atime,
        mtime: node.mtime,
        ctime: node.ctime,
        crtime: UNIX_EPOCH,
        kind: fuse_kind(node.kind()),
        perm: (node.mode & 0o7777) as u16,
        nlink: node.links,
        uid: node.uid,
        gid: node.gid,
        rdev: if let Contents::Special(device) = node.contents { device } else { 0 },
        blksize: PAGE_BYTES as u32,
        flags: 0,
    }
}

/// Converts a time for system calls.
pub fn timespec(time: SystemTime) -> Timespec {
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => Timespec { tv_sec: after.as_secs() as i64, tv_nsec: after.subsec_nanos().into() },
        Err(before) => {
            let before = before.duration();
            let whole = before.as_secs() as i64 + i64::from(before.subsec_nanos() > 0);
            let nanoseconds = (1_000_000_000 - i64::from(before.subsec_nanos())) % 1_000_000_000;
            Timespec { tv_sec: -whole, tv_nsec: nanoseconds }
        }
    }
}

impl Filesystem for Mount {
    fn lookup(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let found = self.double.lookup(parent.0, name.as_bytes());
        reply_entry(reply, found.map(|(ino, node)| attributes_of(ino, &node)));
    }

    fn forget(&self, _request: &Request, number: INodeNo, lookups: u64) {
        self.double.forget(number.0, lookups);
    }

    fn getattr(&self, _request: &Request, number: INodeNo, _handle: Option<FileHandle>, reply: ReplyAttr) {
        reply_attributes(reply, self.attributes(number.0));
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
        _handle: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let (atime, mtime) = (atime.map(set_time), mtime.map(set_time));
        let set = Attributes { mode, uid, gid, atime, mtime, time: Some(SystemTime::now()) };
        let change = || {
            size.map_or(Ok(()), |bytes| self.double.resize(number.0, bytes))?;
            if mode.or(uid).or(gid).is_some() || atime.or(mtime).is_some() {
                self.double.set_attributes(number.0, set)?;
            }
            self.attributes(number.0)
        };
        reply_attributes(reply, change());
    }

    fn readlink(&self, _request: &Request, number: INodeNo, reply: ReplyData) {
        reply_data(reply, self.double.link_target(number.0));
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
        let is_file = rustix::fs::FileType::from_raw_mode(mode) == rustix::fs::FileType::RegularFile;
        let contents = if is_file { Contents::File(Pages::default()) } else { Contents::Special(device) };
        reply_entry(reply, self.make(Operation::Create, request, (parent, name), contents, mode));
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
        let mode = rustix::fs::FileType::Directory.as_raw_mode() | (mode & 0o7777);
        let contents = Contents::Directory(BTreeMap::new());
        reply_entry(reply, self.make(Operation::MakeDirectory, request, (parent, name), contents, mode));
    }

    fn symlink(&self, request: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let mode = rustix::fs::FileType::Symlink.as_raw_mode() | 0o777;
        let contents = Contents::Link(target.as_os_str().as_bytes().to_vec());
        reply_entry(reply, self.make(Operation::MakeLink, request, (parent, name), contents, mode));
    }

    fn link(&self, _request: &Request, number: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let linked = self.double.link(number.0, parent.0, name.as_bytes());
        reply_entry(reply, linked.map(|(ino, node)| attributes_of(ino, &node)));
    }

    fn unlink(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        reply_empty(reply, self.double.remove(Operation::Unlink, parent.0, name.as_bytes()));
    }

    fn rmdir(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        reply_empty(reply, self.double.remove(Operation::RemoveDirectory, parent.0, name.as_bytes()));
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
        let (from, to) = ((parent.0, name.as_bytes()), (new_parent.0, new_name.as_bytes()));
        reply_empty(reply, self.double.rename(from, to, flags.bits()));
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        let mode = rustix::fs::FileType::RegularFile.as_raw_mode() | (mode & 0o7777);
        let contents = Contents::File(Pages::default());
        match self.make(Operation::Create, request, (parent, name), contents, mode) {
            Ok(made) => reply.created(&TTL, &made, GENERATION, FileHandle(0), self.open_flags()),
            Err(errno) => reply.error(fuse_errno(errno)),
        }
    }

    fn open(&self, _request: &Request, number: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let opened = self.double.open(number.0, flags.0 & O_TRUNC != 0);
        reply_open(reply, opened.map(|()| FileHandle(0)), self.open_flags());
    }

    fn read(
        &self,
        _request: &Request,
        number: INodeNo,
        _handle: FileHandle,
        offset: u64,
        bytes: u32,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        reply_data(reply, self.double.read(number.0, offset, bytes as usize));
    }

    fn write(
        &self,
        _request: &Request,
        number: INodeNo,
        _handle: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match self.double.write(number.0, offset, data) {
            Ok(()) => reply.written(data.len() as u32),
            Err(errno) => reply.error(fuse_errno(errno)),
        }
    }

    fn flush(&self, _: &Request, number: INodeNo, _: FileHandle, _owner: LockOwner, reply: ReplyEmpty) {
        reply_empty(reply, self.double.flush(number.0));
    }

    fn release(
        &self,
        _request: &Request,
        _number: INodeNo,
        _handle: FileHandle,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        reply.ok();
    }

    fn fsync(&self, _: &Request, number: INodeNo, _: FileHandle, data_only: bool, reply: ReplyEmpty) {
        reply_empty(reply, self.double.sync(Operation::Sync, number.0, data_only));
    }

    fn opendir(&self, _request: &Request, number: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        reply_open(reply, self.list(number.0), FopenFlags::empty());
    }

    fn readdir(
        &self,
        _request: &Request,
        number: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        if let Err(errno) = self.double.read_names(number.0) {
            return reply.error(fuse_errno(errno));
        }
        let Some(listed) = self.directories().get(&handle.0).cloned() else {
            return reply.error(fuse_errno(Errno::BADF));
        };
        for (index, (name, ino, kind)) in listed.iter().enumerate().skip(offset as usize) {
            if reply.add(INodeNo(*ino), index as u64 + 1, *kind, OsStr::from_bytes(name)) {
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
        self.directories().remove(&handle.0);
        reply.ok();
    }

    fn fsyncdir(&self, _: &Request, number: INodeNo, _: FileHandle, data_only: bool, reply: ReplyEmpty) {
        reply_empty(reply, self.double.sync(Operation::SyncDirectory, number.0, data_only));
    }

    fn statfs(&self, _request: &Request, _number: INodeNo, reply: ReplyStatfs) {
        let (inodes, pages) = self.double.usage();
        let (free, block) = (TOTAL_PAGES.saturating_sub(pages), PAGE_BYTES as u32);
        reply.statfs(TOTAL_PAGES, free, free, TOTAL_INODES, TOTAL_INODES - inodes, block, 255, block);
    }

    fn fallocate(
        &self,
        _request: &Request,
        number: INodeNo,
        _handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let allocated = || match mode {
            0 => {
                let (now, end) = (self.double.node(number.0)?.bytes(), offset + length);
                if end > now { self.double.resize(number.0, end) } else { Ok(()) }
            }
            KEEP_SIZE => Ok(()),
            _ if mode == KEEP_SIZE | PUNCH_HOLE => self.double.zero(number.0, offset, length),
            _ => Err(Errno::OPNOTSUPP),
        };
        reply_empty(reply, allocated());
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn times_before_the_epoch() {
        let ns_before = UNIX_EPOCH - Duration::from_nanos(1);
        let there = timespec(ns_before);
        assert_eq!((there.tv_sec, there.tv_nsec), (-1, 999_999_999));
    }
}
