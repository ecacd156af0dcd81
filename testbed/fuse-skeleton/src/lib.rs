//! The part that the FUSE test doubles have in common: how results become answers, and how kinds and times are told.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{
    FileAttr, FileHandle, FileType, FopenFlags, Generation, ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry,
    ReplyOpen, TimeOrNow,
};
use rustix::io::Errno;

/// How long the kernel may keep an answer: nobody but the kernel that asks changes anything.
pub const TTL: Duration = Duration::from_secs(1);

/// Inode numbers aren't used again while the kernel remembers them.
pub const GENERATION: Generation = Generation(0);

/// An error number for FUSE.
pub fn fuse_errno(errno: Errno) -> fuser::Errno {
    fuser::Errno::from_i32(errno.raw_os_error())
}

/// The kind of an inode for FUSE.
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

/// The time that a client sets. fuser 0.18 takes nanoseconds before the epoch the wrong way round; this is the way back.
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

/// Answers with nothing.
pub fn reply_empty(reply: ReplyEmpty, result: Result<(), Errno>) {
    match result {
        Ok(()) => reply.ok(),
        Err(errno) => reply.error(fuse_errno(errno)),
    }
}

/// Answers with an entry that was found or made.
pub fn reply_entry(reply: ReplyEntry, result: Result<FileAttr, Errno>) {
    match result {
        Ok(attributes) => reply.entry(&TTL, &attributes, GENERATION),
        Err(errno) => reply.error(fuse_errno(errno)),
    }
}

/// Answers with attributes.
pub fn reply_attributes(reply: ReplyAttr, result: Result<FileAttr, Errno>) {
    match result {
        Ok(attributes) => reply.attr(&TTL, &attributes),
        Err(errno) => reply.error(fuse_errno(errno)),
    }
}

/// Answers with bytes.
pub fn reply_data(reply: ReplyData, result: Result<Vec<u8>, Errno>) {
    match result {
        Ok(data) => reply.data(&data),
        Err(errno) => reply.error(fuse_errno(errno)),
    }
}

/// Answers with a handle.
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
        // As fuser gives one nanosecond before it.
        let given = UNIX_EPOCH - Duration::new(1, 999_999_999);
        assert_eq!(set_time(TimeOrNow::SpecificTime(given)), UNIX_EPOCH - Duration::from_nanos(1));
        let whole = UNIX_EPOCH - Duration::from_secs(7);
        assert_eq!(set_time(TimeOrNow::SpecificTime(whole)), whole);
    }
}
