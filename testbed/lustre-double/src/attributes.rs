//! Attributes of inodes, converted from the MDT's form to FUSE's and back. Pure.
//!
//! Times are whole seconds, as Lustre's are (2.17 still).

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use carrack_testbed_fuse::{fuse_kind, set_time};
use fuser::{FileAttr, FileType, INodeNo, TimeOrNow};
use rustix::fs::{Stat, Timespec, UTIME_NOW, UTIME_OMIT};

use crate::control::{self, Control};

/// Bytes that a client should read and write at once, as a Lustre client reports them.
pub const IO_BYTES: u32 = 4 << 20;

/// Returns the attributes of `.control` or one of its files, if the inode is one.
pub fn control_attributes(number: INodeNo) -> Option<FileAttr> {
    let is_directory = number == control::DIRECTORY;
    (is_directory || Control::by_number(number).is_some()).then_some(FileAttr {
        ino: number,
        size: 0,
        blocks: 0,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind: if is_directory { FileType::Directory } else { FileType::RegularFile },
        perm: if is_directory { 0o755 } else { 0o644 },
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 4096,
        flags: 0,
    })
}

/// Returns the attributes of an inode at the MDT.
pub fn attributes_of(number: INodeNo, stat: &Stat) -> FileAttr {
    let kind = rustix::fs::FileType::from_raw_mode(stat.st_mode);
    let is_regular = kind == rustix::fs::FileType::RegularFile;
    let bytes = stat.st_size as u64;
    FileAttr {
        ino: number,
        size: bytes,
        // The underlying file has no data, and must not look like a hole.
        blocks: if is_regular { bytes.div_ceil(512) } else { stat.st_blocks as u64 },
        atime: time(stat.st_atime),
        mtime: time(stat.st_mtime),
        ctime: time(stat.st_ctime),
        crtime: UNIX_EPOCH,
        kind: fuse_kind(kind),
        perm: (stat.st_mode & 0o7777) as u16,
        nlink: stat.st_nlink as u32,
        uid: stat.st_uid,
        gid: stat.st_gid,
        rdev: stat.st_rdev as u32,
        blksize: IO_BYTES,
        flags: 0,
    }
}

fn time(seconds: i64) -> SystemTime {
    let whole = Duration::from_secs(seconds.unsigned_abs());
    if seconds >= 0 { UNIX_EPOCH + whole } else { UNIX_EPOCH - whole }
}

/// Converts a time that a client sets; `None` leaves it.
pub fn timespec(time: Option<TimeOrNow>) -> Timespec {
    match time {
        None => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        Some(TimeOrNow::Now) => Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
        Some(given) => match set_time(given).duration_since(UNIX_EPOCH) {
            Ok(after) => Timespec { tv_sec: after.as_secs() as i64, tv_nsec: after.subsec_nanos().into() },
            Err(before) => before_the_epoch(before.duration()),
        },
    }
}

fn before_the_epoch(before: Duration) -> Timespec {
    let whole = before.as_secs() as i64 + i64::from(before.subsec_nanos() > 0);
    let nanoseconds = (1_000_000_000 - i64::from(before.subsec_nanos())) % 1_000_000_000;
    Timespec { tv_sec: -whole, tv_nsec: nanoseconds }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_the_epoch() {
        assert_eq!(time(-1), UNIX_EPOCH - Duration::from_secs(1));
        // As fuser delivers it: see `set_time`.
        let given = UNIX_EPOCH - Duration::new(1, 999_999_999);
        let back = timespec(Some(TimeOrNow::SpecificTime(given)));
        assert_eq!((back.tv_sec, back.tv_nsec), (-1, 999_999_999));
    }
}
