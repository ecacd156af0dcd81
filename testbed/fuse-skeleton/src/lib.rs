//! The common part of the FUSE test doubles: replies from results, and conversions of kinds and times.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{
    FileAttr, FileHandle, FileType, FopenFlags, Generation, ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry,
    ReplyOpen, TimeOrNow,
};
use rustix::io::Errno;

/// Time for which the kernel may keep a reply: all changes go through the same kernel.
pub const TTL: Duration = Duration::from_secs(1);

/// The generation of all inodes: a number isn't used again while the kernel remembers the inode.
pub const GENERATION: Generation = Generation(0);

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
