//! The common part of the FUSE test doubles: replies from results, conversions of kinds and times, and the end.

use std::io;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use fuser::{
    FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, ReplyAttr, ReplyData, ReplyEmpty,
    ReplyEntry, ReplyOpen, Session, TimeOrNow,
};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;

/// Time for which the kernel may keep a reply: all changes go through the same kernel.
pub const TTL: Duration = Duration::from_secs(1);

/// The generation of all inodes: a number isn't used again while the kernel remembers the inode.
pub const GENERATION: Generation = Generation(0);

/// Longest time for which a mount may stay busy: a process that tests fork has their open files until its `exec`.
const UNMOUNT_WITHIN: Duration = Duration::from_secs(30);

/// Pause between two attempts to unmount.
const UNMOUNT_PAUSE: Duration = Duration::from_millis(5);

/// Unmounts what is mounted at `mount_point`, as soon as it is not busy; no error if nothing is mounted. fuser's
/// own way attempts it once only.
pub fn unmount(mount_point: &Path) -> io::Result<()> {
    let deadline = Instant::now() + UNMOUNT_WITHIN;
    loop {
        match rustix::mount::unmount(mount_point, UnmountFlags::empty()) {
            // It is not mounted: another process has unmounted it.
            Ok(()) | Err(Errno::INVAL) => return Ok(()),
            Err(Errno::BUSY) if Instant::now() < deadline => thread::sleep(UNMOUNT_PAUSE),
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Serves a mount until it is gone.
pub fn run<F: Filesystem>(session: Session<F>) -> io::Result<()> {
    match session.run() {
        // A read that is on its way as the mount goes.
        Err(error) if error.raw_os_error() == Some(Errno::CONNABORTED.raw_os_error()) => Ok(()),
        ended => ended,
    }
}

/// Returns an error number for FUSE.
pub fn fuse_errno(errno: Errno) -> fuser::Errno {
    fuser::Errno::from_i32(errno.raw_os_error())
}

/// Returns the kind of an inode for FUSE.
pub fn fuse_kind(kind: rustix::fs::FileType) -> FileType {
    match kind {
        rustix::fs::FileType::Directory => FileType::Directory,
        rustix::fs::FileType::Symlink => FileType::Symlink,
        rustix::fs::FileType::Fifo => FileType::NamedPipe,
        rustix::fs::FileType::Socket => FileType::Socket,
        rustix::fs::FileType::CharacterDevice => FileType::CharDevice,
        rustix::fs::FileType::BlockDevice => FileType::BlockDevice,
        _ => FileType::RegularFile,
    }
}

/// Returns the time that a client sets. fuser 0.18 decodes nanoseconds before the epoch the wrong way round;
/// this undoes it.
pub fn set_time(given: TimeOrNow) -> SystemTime {
    match given {
        TimeOrNow::Now => SystemTime::now(),
        TimeOrNow::SpecificTime(time) => match UNIX_EPOCH.duration_since(time) {
            Ok(before) if before.subsec_nanos() > 0 => {
                UNIX_EPOCH - Duration::from_secs(before.as_secs())
                    + Duration::from_nanos(before.subsec_nanos().into())
            }
            _ => time,
        },
    }
}

/// Replies without data.
pub fn reply_empty(reply: ReplyEmpty, result: Result<(), Errno>) {
    match result {
        Ok(()) => reply.ok(),
        Err(errno) => reply.error(fuse_errno(errno)),
    }
}

/// Replies with an entry that was found or made.
pub fn reply_entry(reply: ReplyEntry, result: Result<FileAttr, Errno>) {
    match result {
        Ok(attributes) => reply.entry(&TTL, &attributes, GENERATION),
        Err(errno) => reply.error(fuse_errno(errno)),
    }
}

/// Replies with attributes.
pub fn reply_attributes(reply: ReplyAttr, result: Result<FileAttr, Errno>) {
    match result {
        Ok(attributes) => reply.attr(&TTL, &attributes),
        Err(errno) => reply.error(fuse_errno(errno)),
    }
}

/// Replies with bytes.
pub fn reply_data(reply: ReplyData, result: Result<Vec<u8>, Errno>) {
    match result {
        Ok(data) => reply.data(&data),
        Err(errno) => reply.error(fuse_errno(errno)),
    }
}

/// Replies with a handle.
pub fn reply_open(reply: ReplyOpen, result: Result<FileHandle, Errno>, flags: FopenFlags) {
    match result {
        Ok(handle) => reply.opened(handle, flags),
        Err(errno) => reply.error(fuse_errno(errno)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_the_epoch_come_back() {
        // fuser delivers one nanosecond before the epoch like this.
        let given = UNIX_EPOCH - Duration::new(1, 999_999_999);
        assert_eq!(set_time(TimeOrNow::SpecificTime(given)), UNIX_EPOCH - Duration::from_nanos(1));
        let whole = UNIX_EPOCH - Duration::from_secs(7);
        assert_eq!(set_time(TimeOrNow::SpecificTime(whole)), whole);
    }
}
