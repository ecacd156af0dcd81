//! Files and directories.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use libc::{c_char, c_int, c_uint, c_void, mode_t, off_t, size_t, ssize_t};

use super::{answer, bytes, kernel, simulated, simulated_fd};
use crate::calls;
use crate::change::Attributes;
use crate::descriptors::{DescriptorKind, FIRST};
use crate::image::Contents;
use crate::raw_calls::set_errno;
use crate::volumes::{WalkRules, system_time};
use crate::world::world;

/// Defines functions of the C library: the simulated body first, then the kernel's call.
macro_rules! replaced {
    ($(fn $name:ident($($argument:ident: $type:ty),*) -> $result:ty, fd $fd:ident, $body:expr,
        $kernel:expr;)*) => {
        $(
            /// As in the C library.
            ///
            /// # Safety
            /// As in the C library.
            #[unsafe(no_mangle)]
            #[allow(unused_unsafe)]
            pub unsafe extern "C" fn $name($($argument: $type),*) -> $result {
                match simulated_fd($fd) {
                    // SAFETY: the caller's pointers, as the C library takes them.
                    Some(_inside) => answer(unsafe { $body }) as $result,
                    // SAFETY: the caller's arguments, unchanged.
                    None => unsafe { ($kernel) as $result },
                }
            }
        )*
    };
    ($(fn $name:ident($($argument:ident: $type:ty),*) -> $result:ty, any, $body:expr, $kernel:expr;)*) => {
        $(
            /// As in the C library.
            ///
            /// # Safety
            /// As in the C library.
            #[unsafe(no_mangle)]
            #[allow(unused_unsafe)]
            pub unsafe extern "C" fn $name($($argument: $type),*) -> $result {
                match simulated() {
                    // SAFETY: the caller's pointers, as the C library takes them.
                    Some(_inside) => answer(unsafe { $body }) as $result,
                    // SAFETY: the caller's arguments, unchanged.
                    None => unsafe { ($kernel) as $result },
                }
            }
        )*
    };
}

const CWD: c_int = libc::AT_FDCWD;

macro_rules! slice {
    ($data:expr, $count:expr) => {
        std::slice::from_raw_parts($data.cast::<u8>(), $count)
    };
}

macro_rules! slice_mut {
    ($data:expr, $count:expr) => {
        std::slice::from_raw_parts_mut($data.cast::<u8>(), $count)
    };
}

replaced! {
    fn read(fd: c_int, data: *mut c_void, count: size_t) -> ssize_t, fd fd,
        calls::read(fd, slice_mut!(data, count), None),
        kernel(libc::SYS_read, [fd.into(), data as i64, count as i64, 0, 0, 0]);
    fn write(fd: c_int, data: *const c_void, count: size_t) -> ssize_t, fd fd,
        calls::write(fd, slice!(data, count), None),
        kernel(libc::SYS_write, [fd.into(), data as i64, count as i64, 0, 0, 0]);
    fn pread64(fd: c_int, data: *mut c_void, count: size_t, at: off_t) -> ssize_t, fd fd,
        calls::read(fd, slice_mut!(data, count), Some(at as u64)),
        kernel(libc::SYS_pread64, [fd.into(), data as i64, count as i64, at, 0, 0]);
    fn pread(fd: c_int, data: *mut c_void, count: size_t, at: off_t) -> ssize_t, fd fd,
        calls::read(fd, slice_mut!(data, count), Some(at as u64)),
        kernel(libc::SYS_pread64, [fd.into(), data as i64, count as i64, at, 0, 0]);
    fn pwrite64(fd: c_int, data: *const c_void, count: size_t, at: off_t) -> ssize_t, fd fd,
        calls::write(fd, slice!(data, count), Some(at as u64)),
        kernel(libc::SYS_pwrite64, [fd.into(), data as i64, count as i64, at, 0, 0]);
    fn pwrite(fd: c_int, data: *const c_void, count: size_t, at: off_t) -> ssize_t, fd fd,
        calls::write(fd, slice!(data, count), Some(at as u64)),
        kernel(libc::SYS_pwrite64, [fd.into(), data as i64, count as i64, at, 0, 0]);
    fn preadv64v2(fd: c_int, parts: *const libc::iovec, count: c_int, at: off_t, flags: c_int) -> ssize_t,
        fd fd,
        read_parts(fd, parts, count, at, flags),
        kernel(libc::SYS_preadv2, [fd.into(), parts as i64, count.into(), at, at >> 32, flags.into()]);
    fn preadv2(fd: c_int, parts: *const libc::iovec, count: c_int, at: off_t, flags: c_int) -> ssize_t, fd fd,
        read_parts(fd, parts, count, at, flags),
        kernel(libc::SYS_preadv2, [fd.into(), parts as i64, count.into(), at, at >> 32, flags.into()]);
    fn pwritev64v2(fd: c_int, parts: *const libc::iovec, count: c_int, at: off_t, flags: c_int) -> ssize_t,
        fd fd,
        write_parts(fd, parts, count, at),
        kernel(libc::SYS_pwritev2, [fd.into(), parts as i64, count.into(), at, at >> 32, flags.into()]);
    fn pwritev2(fd: c_int, parts: *const libc::iovec, count: c_int, at: off_t, flags: c_int) -> ssize_t,
        fd fd,
        write_parts(fd, parts, count, at),
        kernel(libc::SYS_pwritev2, [fd.into(), parts as i64, count.into(), at, at >> 32, flags.into()]);
    fn preadv64(fd: c_int, parts: *const libc::iovec, count: c_int, at: off_t) -> ssize_t, fd fd,
        read_parts(fd, parts, count, at, 0),
        kernel(libc::SYS_preadv, [fd.into(), parts as i64, count.into(), at, at >> 32, 0]);
    fn pwritev64(fd: c_int, parts: *const libc::iovec, count: c_int, at: off_t) -> ssize_t, fd fd,
        write_parts(fd, parts, count, at),
        kernel(libc::SYS_pwritev, [fd.into(), parts as i64, count.into(), at, at >> 32, 0]);
    fn readv(fd: c_int, parts: *const libc::iovec, count: c_int) -> ssize_t, fd fd,
        read_parts(fd, parts, count, -1, 0),
        kernel(libc::SYS_readv, [fd.into(), parts as i64, count.into(), 0, 0, 0]);
    fn writev(fd: c_int, parts: *const libc::iovec, count: c_int) -> ssize_t, fd fd,
        write_parts(fd, parts, count, -1),
        kernel(libc::SYS_writev, [fd.into(), parts as i64, count.into(), 0, 0, 0]);
    fn close(fd: c_int) -> c_int, fd fd,
        calls::close(fd),
        kernel(libc::SYS_close, [fd.into(), 0, 0, 0, 0, 0]);
    fn fsync(fd: c_int) -> c_int, fd fd,
        calls::sync(fd, false),
        kernel(libc::SYS_fsync, [fd.into(), 0, 0, 0, 0, 0]);
    fn fdatasync(fd: c_int) -> c_int, fd fd,
        calls::sync(fd, true),
        kernel(libc::SYS_fdatasync, [fd.into(), 0, 0, 0, 0, 0]);
    fn syncfs(fd: c_int) -> c_int, fd fd,
        calls::sync_volume(fd),
        kernel(libc::SYS_syncfs, [fd.into(), 0, 0, 0, 0, 0]);
    fn sync_file_range(fd: c_int, from: off_t, count: off_t, flags: c_uint) -> c_int, fd fd,
        { let _ = (from, count, flags); Ok(0) },
        kernel(libc::SYS_sync_file_range, [fd.into(), from, count, flags.into(), 0, 0]);
    fn ftruncate64(fd: c_int, count: off_t) -> c_int, fd fd,
        calls::resize(fd, count as u64),
        kernel(libc::SYS_ftruncate, [fd.into(), count, 0, 0, 0, 0]);
    fn ftruncate(fd: c_int, count: off_t) -> c_int, fd fd,
        calls::resize(fd, count as u64),
        kernel(libc::SYS_ftruncate, [fd.into(), count, 0, 0, 0, 0]);
    fn fallocate64(fd: c_int, mode: c_int, from: off_t, count: off_t) -> c_int, fd fd,
        calls::allocate(fd, mode, from as u64, count as u64),
        kernel(libc::SYS_fallocate, [fd.into(), mode.into(), from, count, 0, 0]);
    fn fallocate(fd: c_int, mode: c_int, from: off_t, count: off_t) -> c_int, fd fd,
        calls::allocate(fd, mode, from as u64, count as u64),
        kernel(libc::SYS_fallocate, [fd.into(), mode.into(), from, count, 0, 0]);
    fn lseek64(fd: c_int, at: off_t, whence: c_int) -> off_t, fd fd,
        calls::seek(fd, at, whence),
        kernel(libc::SYS_lseek, [fd.into(), at, whence.into(), 0, 0, 0]);
    fn lseek(fd: c_int, at: off_t, whence: c_int) -> off_t, fd fd,
        calls::seek(fd, at, whence),
        kernel(libc::SYS_lseek, [fd.into(), at, whence.into(), 0, 0, 0]);
    fn flock(fd: c_int, operation: c_int) -> c_int, fd fd,
        calls::lock(fd, operation),
        kernel(libc::SYS_flock, [fd.into(), operation.into(), 0, 0, 0, 0]);
    fn fchmod(fd: c_int, mode: mode_t) -> c_int, fd fd,
        calls::set_attributes(fd, b"", libc::AT_EMPTY_PATH, |_| Attributes { mode: Some(mode),
            ..Attributes::default() }),
        kernel(libc::SYS_fchmod, [fd.into(), mode.into(), 0, 0, 0, 0]);
    fn fchown(fd: c_int, uid: c_uint, gid: c_uint) -> c_int, fd fd,
        calls::set_attributes(fd, b"", libc::AT_EMPTY_PATH, |_| owner(uid, gid)),
        kernel(libc::SYS_fchown, [fd.into(), uid.into(), gid.into(), 0, 0, 0]);
    fn futimens(fd: c_int, times: *const libc::timespec) -> c_int, fd fd,
        calls::set_attributes(fd, b"", libc::AT_EMPTY_PATH, |now| times_of(times, now)),
        kernel(libc::SYS_utimensat, [fd.into(), 0, times as i64, 0, 0, 0]);
    fn fstat(fd: c_int, to: *mut libc::stat) -> c_int, fd fd,
        calls::look(fd, b"", libc::AT_EMPTY_PATH).map(|facts| { *to = stat_of(&facts); 0 }),
        kernel(libc::SYS_newfstatat, [fd.into(), c"".as_ptr() as i64, to as i64,
            libc::AT_EMPTY_PATH.into(), 0, 0]);
    fn fstat64(fd: c_int, to: *mut libc::stat) -> c_int, fd fd,
        calls::look(fd, b"", libc::AT_EMPTY_PATH).map(|facts| { *to = stat_of(&facts); 0 }),
        kernel(libc::SYS_newfstatat, [fd.into(), c"".as_ptr() as i64, to as i64,
            libc::AT_EMPTY_PATH.into(), 0, 0]);
    fn fstatfs(fd: c_int, to: *mut libc::statfs) -> c_int, fd fd,
        calls::volume_magic(fd).map(|magic| { *to = statfs_of(magic); 0 }),
        kernel(libc::SYS_fstatfs, [fd.into(), to as i64, 0, 0, 0, 0]);
    fn fstatfs64(fd: c_int, to: *mut libc::statfs) -> c_int, fd fd,
        calls::volume_magic(fd).map(|magic| { *to = statfs_of(magic); 0 }),
        kernel(libc::SYS_fstatfs, [fd.into(), to as i64, 0, 0, 0, 0]);
    fn posix_fadvise(fd: c_int, from: off_t, count: off_t, advice: c_int) -> c_int, fd fd,
        { let _ = (from, count, advice); Ok(0) },
        kernel(libc::SYS_fadvise64, [fd.into(), from, count, advice.into(), 0, 0]);
    fn posix_fadvise64(fd: c_int, from: off_t, count: off_t, advice: c_int) -> c_int, fd fd,
        { let _ = (from, count, advice); Ok(0) },
        kernel(libc::SYS_fadvise64, [fd.into(), from, count, advice.into(), 0, 0]);
    fn fgetxattr(fd: c_int, name: *const c_char, to: *mut c_void, count: size_t) -> ssize_t, fd fd,
        { let _ = (name, to, count); Err(libc::ENOTSUP) },
        kernel(libc::SYS_fgetxattr, [fd.into(), name as i64, to as i64, count as i64, 0, 0]);
    fn fsetxattr(fd: c_int, name: *const c_char, from: *const c_void, count: size_t,
        flags: c_int) -> c_int, fd fd,
        { let _ = (name, from, count, flags); Err(libc::ENOTSUP) },
        kernel(libc::SYS_fsetxattr, [fd.into(), name as i64, from as i64, count as i64, flags.into(), 0]);
    fn flistxattr(fd: c_int, to: *mut c_char, count: size_t) -> ssize_t, fd fd,
        { let _ = (to, count); Err(libc::ENOTSUP) },
        kernel(libc::SYS_flistxattr, [fd.into(), to as i64, count as i64, 0, 0, 0]);
    fn fremovexattr(fd: c_int, name: *const c_char) -> c_int, fd fd,
        { let _ = name; Err(libc::ENOTSUP) },
        kernel(libc::SYS_fremovexattr, [fd.into(), name as i64, 0, 0, 0, 0]);
    fn ioctl(fd: c_int, request: libc::c_ulong, argument: *mut c_void) -> c_int, fd fd,
        control(fd, request, argument),
        kernel(libc::SYS_ioctl, [fd.into(), request as i64, argument as i64, 0, 0, 0]);
    fn fcntl(fd: c_int, command: c_int, argument: i64) -> c_int, fd fd,
        set_flags(fd, command, argument),
        kernel(libc::SYS_fcntl, [fd.into(), command.into(), argument, 0, 0, 0]);
    fn fcntl64(fd: c_int, command: c_int, argument: i64) -> c_int, fd fd,
        set_flags(fd, command, argument),
        kernel(libc::SYS_fcntl, [fd.into(), command.into(), argument, 0, 0, 0]);
    fn dup(fd: c_int) -> c_int, fd fd,
        { let process = world().process(); world().descriptors.duplicate(process, fd).map(i64::from) },
        kernel(libc::SYS_dup, [fd.into(), 0, 0, 0, 0, 0]);
    fn copy_file_range(from: c_int, at: *mut i64, to: c_int, to_at: *mut i64, count: size_t,
        flags: c_uint) -> ssize_t, fd from,
        { let _ = (at, to, to_at, count, flags); Err(libc::EXDEV) },
        kernel(libc::SYS_copy_file_range, [from.into(), at as i64, to.into(), to_at as i64, count as i64,
            flags.into()]);
    fn sendfile64(to: c_int, from: c_int, at: *mut off_t, count: size_t) -> ssize_t, fd from,
        send_file(to, from, at, count),
        kernel(libc::SYS_sendfile, [to.into(), from.into(), at as i64, count as i64, 0, 0]);
    fn sendfile(to: c_int, from: c_int, at: *mut off_t, count: size_t) -> ssize_t, fd from,
        send_file(to, from, at, count),
        kernel(libc::SYS_sendfile, [to.into(), from.into(), at as i64, count as i64, 0, 0]);
}

replaced! {
    fn open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int, any,
        calls::open(CWD, bytes(path), flags, mode, WalkRules::default()),
        kernel(libc::SYS_openat, [CWD.into(), path as i64, flags.into(), mode.into(), 0, 0]);
    fn open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int, any,
        calls::open(CWD, bytes(path), flags, mode, WalkRules::default()),
        kernel(libc::SYS_openat, [CWD.into(), path as i64, flags.into(), mode.into(), 0, 0]);
    fn openat(fd: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int, any,
        calls::open(fd, bytes(path), flags, mode, WalkRules::default()),
        kernel(libc::SYS_openat, [fd.into(), path as i64, flags.into(), mode.into(), 0, 0]);
    fn openat64(fd: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int, any,
        calls::open(fd, bytes(path), flags, mode, WalkRules::default()),
        kernel(libc::SYS_openat, [fd.into(), path as i64, flags.into(), mode.into(), 0, 0]);
    fn stat(path: *const c_char, to: *mut libc::stat) -> c_int, any,
        calls::look(CWD, bytes(path), 0).map(|facts| { *to = stat_of(&facts); 0 }),
        kernel(libc::SYS_newfstatat, [CWD.into(), path as i64, to as i64, 0, 0, 0]);
    fn stat64(path: *const c_char, to: *mut libc::stat) -> c_int, any,
        calls::look(CWD, bytes(path), 0).map(|facts| { *to = stat_of(&facts); 0 }),
        kernel(libc::SYS_newfstatat, [CWD.into(), path as i64, to as i64, 0, 0, 0]);
    fn lstat(path: *const c_char, to: *mut libc::stat) -> c_int, any,
        calls::look(CWD, bytes(path), libc::AT_SYMLINK_NOFOLLOW).map(|facts| { *to = stat_of(&facts); 0 }),
        kernel(libc::SYS_newfstatat, [CWD.into(), path as i64, to as i64, libc::AT_SYMLINK_NOFOLLOW.into(),
            0, 0]);
    fn lstat64(path: *const c_char, to: *mut libc::stat) -> c_int, any,
        calls::look(CWD, bytes(path), libc::AT_SYMLINK_NOFOLLOW).map(|facts| { *to = stat_of(&facts); 0 }),
        kernel(libc::SYS_newfstatat, [CWD.into(), path as i64, to as i64, libc::AT_SYMLINK_NOFOLLOW.into(),
            0, 0]);
    fn fstatat(fd: c_int, path: *const c_char, to: *mut libc::stat, flags: c_int) -> c_int, any,
        calls::look(fd, bytes(path), flags).map(|facts| { *to = stat_of(&facts); 0 }),
        kernel(libc::SYS_newfstatat, [fd.into(), path as i64, to as i64, flags.into(), 0, 0]);
    fn fstatat64(fd: c_int, path: *const c_char, to: *mut libc::stat, flags: c_int) -> c_int, any,
        calls::look(fd, bytes(path), flags).map(|facts| { *to = stat_of(&facts); 0 }),
        kernel(libc::SYS_newfstatat, [fd.into(), path as i64, to as i64, flags.into(), 0, 0]);
    fn statx(fd: c_int, path: *const c_char, flags: c_int, mask: c_uint, to: *mut libc::statx) -> c_int, any,
        calls::look(fd, bytes(path), flags).map(|facts| { *to = statx_of(&facts); 0 }),
        kernel(libc::SYS_statx, [fd.into(), path as i64, flags.into(), mask.into(), to as i64, 0]);
    fn statfs(path: *const c_char, to: *mut libc::statfs) -> c_int, any,
        { let _ = (path, to); Err(libc::ENOSYS) },
        kernel(libc::SYS_statfs, [path as i64, to as i64, 0, 0, 0, 0]);
    fn mkdir(path: *const c_char, mode: mode_t) -> c_int, any,
        calls::make(CWD, bytes(path), Contents::Directory(Default::default()), mode),
        kernel(libc::SYS_mkdirat, [CWD.into(), path as i64, mode.into(), 0, 0, 0]);
    fn mkdirat(fd: c_int, path: *const c_char, mode: mode_t) -> c_int, any,
        calls::make(fd, bytes(path), Contents::Directory(Default::default()), mode),
        kernel(libc::SYS_mkdirat, [fd.into(), path as i64, mode.into(), 0, 0, 0]);
    fn symlinkat(target: *const c_char, fd: c_int, path: *const c_char) -> c_int, any,
        calls::make(fd, bytes(path), Contents::Link(bytes(target).to_vec()), 0o777),
        kernel(libc::SYS_symlinkat, [target as i64, fd.into(), path as i64, 0, 0, 0]);
    fn mknodat(fd: c_int, path: *const c_char, mode: mode_t, device: libc::dev_t) -> c_int, any,
        calls::make(fd, bytes(path), Contents::Special(device as u32), mode),
        kernel(libc::SYS_mknodat, [fd.into(), path as i64, mode.into(), device as i64, 0, 0]);
    fn unlink(path: *const c_char) -> c_int, any,
        calls::remove(CWD, bytes(path), false),
        kernel(libc::SYS_unlinkat, [CWD.into(), path as i64, 0, 0, 0, 0]);
    fn rmdir(path: *const c_char) -> c_int, any,
        calls::remove(CWD, bytes(path), true),
        kernel(libc::SYS_unlinkat, [CWD.into(), path as i64, libc::AT_REMOVEDIR.into(), 0, 0, 0]);
    fn unlinkat(fd: c_int, path: *const c_char, flags: c_int) -> c_int, any,
        calls::remove(fd, bytes(path), flags & libc::AT_REMOVEDIR != 0),
        kernel(libc::SYS_unlinkat, [fd.into(), path as i64, flags.into(), 0, 0, 0]);
    fn rename(from: *const c_char, to: *const c_char) -> c_int, any,
        calls::rename((CWD, bytes(from)), (CWD, bytes(to)), 0),
        kernel(libc::SYS_renameat2, [CWD.into(), from as i64, CWD.into(), to as i64, 0, 0]);
    fn renameat(from_fd: c_int, from: *const c_char, to_fd: c_int, to: *const c_char) -> c_int, any,
        calls::rename((from_fd, bytes(from)), (to_fd, bytes(to)), 0),
        kernel(libc::SYS_renameat2, [from_fd.into(), from as i64, to_fd.into(), to as i64, 0, 0]);
    fn renameat2(from_fd: c_int, from: *const c_char, to_fd: c_int, to: *const c_char,
        flags: c_uint) -> c_int, any,
        calls::rename((from_fd, bytes(from)), (to_fd, bytes(to)), flags),
        kernel(libc::SYS_renameat2, [from_fd.into(), from as i64, to_fd.into(), to as i64, flags.into(), 0]);
    fn linkat(from_fd: c_int, from: *const c_char, to_fd: c_int, to: *const c_char, flags: c_int) -> c_int,
        any,
        calls::link((from_fd, bytes(from)), (to_fd, bytes(to)), flags),
        kernel(libc::SYS_linkat, [from_fd.into(), from as i64, to_fd.into(), to as i64, flags.into(), 0]);
    fn readlink(path: *const c_char, to: *mut c_char, count: size_t) -> ssize_t, any,
        calls::read_link(CWD, bytes(path), slice_mut!(to, count)),
        kernel(libc::SYS_readlinkat, [CWD.into(), path as i64, to as i64, count as i64, 0, 0]);
    fn readlinkat(fd: c_int, path: *const c_char, to: *mut c_char, count: size_t) -> ssize_t, any,
        calls::read_link(fd, bytes(path), slice_mut!(to, count)),
        kernel(libc::SYS_readlinkat, [fd.into(), path as i64, to as i64, count as i64, 0, 0]);
    fn chmod(path: *const c_char, mode: mode_t) -> c_int, any,
        calls::set_attributes(CWD, bytes(path), 0, |_| Attributes { mode: Some(mode),
            ..Attributes::default() }),
        kernel(libc::SYS_fchmodat, [CWD.into(), path as i64, mode.into(), 0, 0, 0]);
    fn fchmodat(fd: c_int, path: *const c_char, mode: mode_t, flags: c_int) -> c_int, any,
        calls::set_attributes(fd, bytes(path), flags, |_| Attributes { mode: Some(mode),
            ..Attributes::default() }),
        kernel(libc::SYS_fchmodat, [fd.into(), path as i64, mode.into(), flags.into(), 0, 0]);
    fn fchownat(fd: c_int, path: *const c_char, uid: c_uint, gid: c_uint, flags: c_int) -> c_int, any,
        calls::set_attributes(fd, bytes(path), flags, |_| owner(uid, gid)),
        kernel(libc::SYS_fchownat, [fd.into(), path as i64, uid.into(), gid.into(), flags.into(), 0]);
    fn utimensat(fd: c_int, path: *const c_char, times: *const libc::timespec, flags: c_int) -> c_int, any,
        {
            let flags = if path.is_null() { libc::AT_EMPTY_PATH } else { flags };
            calls::set_attributes(fd, bytes(path), flags, |now| times_of(times, now))
        },
        kernel(libc::SYS_utimensat, [fd.into(), path as i64, times as i64, flags.into(), 0, 0]);
    fn getxattr(path: *const c_char, name: *const c_char, to: *mut c_void, count: size_t) -> ssize_t, any,
        { let _ = (path, name, to, count); Err(libc::ENOTSUP) },
        kernel(libc::SYS_getxattr, [path as i64, name as i64, to as i64, count as i64, 0, 0]);
    fn lgetxattr(path: *const c_char, name: *const c_char, to: *mut c_void, count: size_t) -> ssize_t, any,
        { let _ = (path, name, to, count); Err(libc::ENOTSUP) },
        kernel(libc::SYS_lgetxattr, [path as i64, name as i64, to as i64, count as i64, 0, 0]);
    fn listxattr(path: *const c_char, to: *mut c_char, count: size_t) -> ssize_t, any,
        { let _ = (path, to, count); Err(libc::ENOTSUP) },
        kernel(libc::SYS_listxattr, [path as i64, to as i64, count as i64, 0, 0, 0]);
    fn llistxattr(path: *const c_char, to: *mut c_char, count: size_t) -> ssize_t, any,
        { let _ = (path, to, count); Err(libc::ENOTSUP) },
        kernel(libc::SYS_llistxattr, [path as i64, to as i64, count as i64, 0, 0, 0]);
    fn lsetxattr(path: *const c_char, name: *const c_char, from: *const c_void, count: size_t,
        flags: c_int) -> c_int, any,
        { let _ = (path, name, from, count, flags); Err(libc::ENOTSUP) },
        kernel(libc::SYS_lsetxattr, [path as i64, name as i64, from as i64, count as i64, flags.into(), 0]);
    fn setxattr(path: *const c_char, name: *const c_char, from: *const c_void, count: size_t,
        flags: c_int) -> c_int, any,
        { let _ = (path, name, from, count, flags); Err(libc::ENOTSUP) },
        kernel(libc::SYS_setxattr, [path as i64, name as i64, from as i64, count as i64, flags.into(), 0]);
    fn access(path: *const c_char, mode: c_int) -> c_int, any,
        { let _ = mode; calls::look(CWD, bytes(path), 0).map(|_| 0) },
        kernel(libc::SYS_faccessat, [CWD.into(), path as i64, mode.into(), 0, 0, 0]);
    fn umask(mask: mode_t) -> mode_t, any,
        Ok(std::mem::replace(&mut world().umask, mask).into()),
        kernel(libc::SYS_umask, [mask.into(), 0, 0, 0, 0, 0]);
}

unsafe fn parts_of<'a>(parts: *const libc::iovec, count: c_int) -> Vec<&'a mut [u8]> {
    // SAFETY: the caller's array, as the C library takes it.
    let parts = unsafe { std::slice::from_raw_parts(parts, count as usize) };
    // SAFETY: memory of the caller for the length of the call.
    let slice = |part: &libc::iovec| unsafe {
        if part.iov_len == 0 { &mut [] } else { slice_mut!(part.iov_base, part.iov_len) }
    };
    parts.iter().map(slice).collect()
}

/// Reads into the first part that has room: a short read.
unsafe fn read_parts(
    fd: c_int,
    parts: *const libc::iovec,
    count: c_int,
    at: off_t,
    flags: c_int,
) -> calls::CallAnswer {
    if flags & libc::RWF_NOWAIT != 0 && world().nothing_cached {
        return Err(libc::EAGAIN);
    }
    // SAFETY: the caller's array.
    let mut parts = unsafe { parts_of(parts, count) };
    let offset = (at >= 0).then_some(at as u64);
    match parts.iter_mut().find(|part| !part.is_empty()) {
        Some(part) => calls::read(fd, part, offset),
        None => Ok(0),
    }
}

unsafe fn write_parts(fd: c_int, parts: *const libc::iovec, count: c_int, at: off_t) -> calls::CallAnswer {
    // SAFETY: the caller's array.
    let parts = unsafe { parts_of(parts, count) };
    if let DescriptorKind::Stream { .. } = world().descriptors.get(fd)?.kind {
        let parts: Vec<&[u8]> = parts.iter().map(|part| &**part).collect();
        return calls::send(fd, &parts, 0);
    }
    let data = parts.concat();
    calls::write(fd, &data, (at >= 0).then_some(at as u64))
}

unsafe fn send_file(to: c_int, from: c_int, at: *mut off_t, count: size_t) -> calls::CallAnswer {
    if at.is_null() {
        return Err(libc::EINVAL);
    }
    // SAFETY: the caller's offset.
    let offset = unsafe { *at };
    let data = calls::bytes_of(from, offset as u64, count)?;
    let sent = calls::send(to, &[&data], 0)?;
    // SAFETY: the caller's offset.
    unsafe { *at = offset + sent };
    Ok(sent)
}

fn owner(uid: c_uint, gid: c_uint) -> Attributes {
    let some = |id: c_uint| (id != c_uint::MAX).then_some(id);
    Attributes { uid: some(uid), gid: some(gid), ..Attributes::default() }
}

unsafe fn times_of(times: *const libc::timespec, now: u64) -> Attributes {
    // SAFETY: two times, or null for the present.
    let of = |index: usize| unsafe {
        if times.is_null() {
            return Some(system_time(now));
        }
        let time = *times.add(index);
        match time.tv_nsec {
            libc::UTIME_OMIT => None,
            libc::UTIME_NOW => Some(system_time(now)),
            nanoseconds => Some(moment(time.tv_sec, nanoseconds as u32)),
        }
    };
    Attributes { atime: of(0), mtime: of(1), ..Attributes::default() }
}

fn moment(seconds: i64, nanoseconds: u32) -> SystemTime {
    let part = Duration::from_nanos(nanoseconds.into());
    match u64::try_from(seconds) {
        Ok(seconds) => UNIX_EPOCH + Duration::from_secs(seconds) + part,
        Err(_) => UNIX_EPOCH - Duration::from_secs(seconds.unsigned_abs()) + part,
    }
}

fn stat_of(facts: &calls::NodeFacts) -> libc::stat {
    // SAFETY: all fields are numbers.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    let parts = |ns: i128| (ns.div_euclid(1_000_000_000) as i64, ns.rem_euclid(1_000_000_000) as i64);
    stat.st_dev = 0x100 + facts.node.volume as u64;
    stat.st_ino = facts.node.ino;
    stat.st_nlink = facts.links.into();
    (stat.st_mode, stat.st_uid, stat.st_gid) = (facts.mode, facts.owner.0, facts.owner.1);
    (stat.st_size, stat.st_blksize, stat.st_blocks) = (facts.size as i64, 4096, facts.blocks as i64);
    stat.st_rdev = facts.device.into();
    (stat.st_atime, stat.st_atime_nsec) = parts(facts.times[0]);
    (stat.st_mtime, stat.st_mtime_nsec) = parts(facts.times[1]);
    (stat.st_ctime, stat.st_ctime_nsec) = parts(facts.times[2]);
    stat
}

fn statx_of(facts: &calls::NodeFacts) -> libc::statx {
    // SAFETY: all fields are numbers.
    let mut found: libc::statx = unsafe { std::mem::zeroed() };
    let set = |time: &mut libc::statx_timestamp, ns: i128| {
        time.tv_sec = ns.div_euclid(1_000_000_000) as i64;
        time.tv_nsec = ns.rem_euclid(1_000_000_000) as u32;
    };
    found.stx_mask = libc::STATX_BASIC_STATS;
    found.stx_blksize = 4096;
    found.stx_nlink = facts.links;
    (found.stx_uid, found.stx_gid) = facts.owner;
    found.stx_mode = facts.mode as u16;
    (found.stx_ino, found.stx_size, found.stx_blocks) = (facts.node.ino, facts.size, facts.blocks);
    set(&mut found.stx_atime, facts.times[0]);
    set(&mut found.stx_mtime, facts.times[1]);
    set(&mut found.stx_ctime, facts.times[2]);
    (found.stx_dev_major, found.stx_dev_minor) = (1, facts.node.volume as u32);
    found
}

fn statfs_of(magic: i64) -> libc::statfs {
    // SAFETY: all fields are numbers.
    let mut found: libc::statfs = unsafe { std::mem::zeroed() };
    (found.f_type, found.f_bsize) = (magic, 4096);
    (found.f_blocks, found.f_bfree, found.f_bavail) = (1 << 30, 1 << 29, 1 << 29);
    (found.f_files, found.f_ffree, found.f_namelen) = (1 << 30, 1 << 29, 255);
    found
}

unsafe fn control(fd: c_int, request: libc::c_ulong, argument: *mut c_void) -> calls::CallAnswer {
    let description = world().descriptors.get_mut(fd)?;
    if request == libc::FIONBIO {
        // SAFETY: FIONBIO takes an integer.
        description.is_nonblocking = unsafe { *argument.cast::<c_int>() } != 0;
        return Ok(0);
    }
    Err(libc::ENOTTY)
}

fn set_flags(fd: c_int, command: c_int, argument: i64) -> calls::CallAnswer {
    let process = world().process();
    let descriptors = &mut world().descriptors;
    match command {
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => Ok(descriptors.duplicate(process, fd)?.into()),
        libc::F_GETFD => Ok(libc::FD_CLOEXEC.into()),
        libc::F_GETFL => {
            let description = descriptors.get(fd)?;
            let mut flags = description.flags;
            if description.is_nonblocking {
                flags |= libc::O_NONBLOCK;
            }
            Ok(flags.into())
        }
        libc::F_SETFL => {
            let description = descriptors.get_mut(fd)?;
            description.is_nonblocking = argument as c_int & libc::O_NONBLOCK != 0;
            Ok(0)
        }
        _ => {
            descriptors.get(fd)?;
            Ok(0)
        }
    }
}

/// A directory stream.
pub struct DirectoryListing {
    fd: c_int,
    entry: libc::dirent64,
}

unsafe fn listing<'a>(stream: *mut libc::DIR) -> &'a mut DirectoryListing {
    // SAFETY: made by `fdopendir` below: simulated threads have no others.
    unsafe { &mut *stream.cast::<DirectoryListing>() }
}

/// As in the C library.
///
/// # Safety
/// As in the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdopendir(fd: c_int) -> *mut libc::DIR {
    let _inside = simulated();
    if fd < FIRST {
        set_errno(libc::EBADF);
        return std::ptr::null_mut();
    }
    // SAFETY: all fields are numbers.
    let entry = unsafe { std::mem::zeroed() };
    Box::into_raw(Box::new(DirectoryListing { fd, entry })).cast()
}

/// As in the C library.
///
/// # Safety
/// As in the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn opendir(path: *const c_char) -> *mut libc::DIR {
    // SAFETY: the caller's path.
    let fd = unsafe { open64(path, libc::O_RDONLY | libc::O_DIRECTORY, 0) };
    // SAFETY: a descriptor that nobody else has.
    if fd < 0 { std::ptr::null_mut() } else { unsafe { fdopendir(fd) } }
}

/// As in the C library.
///
/// # Safety
/// As in the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn readdir64(stream: *mut libc::DIR) -> *mut libc::dirent64 {
    let _inside = simulated();
    // SAFETY: the caller's stream.
    let listing = unsafe { listing(stream) };
    if world().descriptors.get(listing.fd).is_ok_and(|description| description.position == 0)
        && let Err(errno) = calls::begin_listing(listing.fd)
    {
        set_errno(errno);
        return std::ptr::null_mut();
    }
    match calls::next_name(listing.fd) {
        Ok(Some((ino, kind, name))) => {
            let entry = &mut listing.entry;
            (entry.d_ino, entry.d_off, entry.d_type) = (ino, 1, kind);
            entry.d_reclen = std::mem::size_of::<libc::dirent64>() as u16;
            for (to, from) in entry.d_name.iter_mut().zip(name.iter().chain(&[0])) {
                *to = *from as c_char;
            }
            entry
        }
        Ok(None) => std::ptr::null_mut(),
        Err(errno) => {
            set_errno(errno);
            std::ptr::null_mut()
        }
    }
}

/// As in the C library.
///
/// # Safety
/// As in the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn closedir(stream: *mut libc::DIR) -> c_int {
    let _inside = simulated();
    // SAFETY: made by `fdopendir`, and closed once.
    let listing = unsafe { Box::from_raw(stream.cast::<DirectoryListing>()) };
    answer(calls::close(listing.fd)) as c_int
}

/// As in the C library.
///
/// # Safety
/// As in the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dirfd(stream: *mut libc::DIR) -> c_int {
    // SAFETY: the caller's stream.
    unsafe { listing(stream) }.fd
}

/// As in the C library.
///
/// # Safety
/// As in the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rewinddir(stream: *mut libc::DIR) {
    let _inside = simulated();
    // SAFETY: the caller's stream.
    let _ = calls::seek(unsafe { listing(stream) }.fd, 0, libc::SEEK_SET);
}

/// `getdents64`: as many entries as there is room for.
///
/// # Safety
/// Room for `count` bytes at `to`.
pub unsafe fn list(fd: c_int, to: *mut u8, count: usize) -> calls::CallAnswer {
    calls::begin_listing(fd)?;
    // SAFETY: the caller's room.
    let room = unsafe { std::slice::from_raw_parts_mut(to, count) };
    let mut filled = 0;
    loop {
        let before = world().descriptors.get(fd)?.clone();
        let Some((ino, kind, name)) = calls::next_name(fd)? else { return Ok(filled as i64) };
        let length = (19 + name.len() + 1).next_multiple_of(8);
        if filled + length > count {
            *world().descriptors.get_mut(fd)? = before;
            return if filled == 0 { Err(libc::EINVAL) } else { Ok(filled as i64) };
        }
        let entry = &mut room[filled..filled + length];
        entry.fill(0);
        entry[..8].copy_from_slice(&ino.to_ne_bytes());
        entry[8..16].copy_from_slice(&1u64.to_ne_bytes());
        entry[16..18].copy_from_slice(&(length as u16).to_ne_bytes());
        entry[18] = kind;
        entry[19..19 + name.len()].copy_from_slice(&name);
        filled += length;
    }
}

/// As in the C library: paths here have no links above the volumes.
///
/// # Safety
/// As in the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn realpath(path: *const c_char, to: *mut c_char) -> *mut c_char {
    let _inside = simulated();
    // SAFETY: the caller's path and room, or memory that the caller frees.
    unsafe {
        let path = bytes(path);
        let to = if to.is_null() { libc::malloc(path.len() + 1).cast() } else { to };
        std::ptr::copy_nonoverlapping(path.as_ptr().cast(), to, path.len());
        *to.add(path.len()) = 0;
        to
    }
}

/// As in the C library: the root.
///
/// # Safety
/// As in the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getcwd(to: *mut c_char, count: size_t) -> *mut c_char {
    if count < 2 || to.is_null() {
        set_errno(libc::ERANGE);
        return std::ptr::null_mut();
    }
    // SAFETY: room for two bytes.
    unsafe {
        *to = b'/' as c_char;
        *to.add(1) = 0;
    }
    to
}
