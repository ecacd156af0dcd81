//! The bytes that a partial transfer keeps: those of its destination file before and behind the part.
//!
//! They are copied into the new version when the part is complete, by the kernel if it can
//! (`copy_file_range(2)`, which shares blocks on file systems with that feature). Partial transfers into the
//! same file hold its lock in turn, so that none reverts another. The lock is advisory (`flock(2)`); a change
//! by another program shows in the file's status.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::thread;
use std::time::{Duration, Instant};

use carrack_model::limits::RANGES_MAX;
use carrack_model::{ByteRange, RangeSet};
use rustix::fs::{
    AtFlags, FallocateFlags, FlockOperation, Mode, OFlags, RenameFlags, Timespec, Timestamps, XattrFlags,
    copy_file_range, fallocate, flock, fsetxattr, fstat, ftruncate, linkat, openat, renameat, renameat_with,
    statat,
};
use rustix::fs::{UTIME_NOW, UTIME_OMIT};
use rustix::io::{Errno, pread, pwrite};

use crate::SinkError;
use crate::durable::enforce_size;
use crate::extras_source::{AttributeHolder, get, list_attributes};
use crate::source_file::holes_of;
use crate::status::{FileIdentity, FileStamp, is_regular};
use crate::temporary_names::ScratchName;

/// Time for which another program may lock the file, enough for a partial transfer to copy a large file's
/// other bytes.
const LOCK_PATIENCE: Duration = Duration::from_secs(600);

/// Pause between two attempts to lock.
const LOCK_PAUSE: Duration = Duration::from_millis(20);

/// Bytes of one copy call, which the end of a session waits for.
const STEP_BYTES: u64 = 64 << 20;

/// Bytes of one copy through memory, if the kernel does not copy.
const BUFFER_BYTES: usize = 256 << 10;

/// Largest block that file systems share between files.
const BLOCK_BYTES: u64 = 64 << 10;

/// The present file of the name that a partial transfer writes: a regular file, locked until this is dropped,
/// or none.
pub(crate) struct ReplacedFile(Option<OldVersion>);

struct OldVersion {
    file: OwnedFd,
    stamp: FileStamp,
}

impl ReplacedFile {
    /// Opens and locks the file of the name.
    pub(crate) fn open_and_lock(
        directory: BorrowedFd<'_>,
        name: &[u8],
        goes_on: &dyn Fn() -> bool,
    ) -> Result<ReplacedFile, SinkError> {
        loop {
            match statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
                Err(Errno::NOENT) => return Ok(ReplacedFile(None)),
                Err(errno) => return Err(lookup_error(errno)),
                Ok(found) if !is_regular(&found) => return Err(SinkError::NotRegular),
                Ok(_) => {}
            }
            let Some(file) = open_locked(directory, name, goes_on)? else { continue };
            let stat = fstat(&file).map_err(lookup_error)?;
            if is_regular(&stat) && has_name(directory, name, &stat) {
                return Ok(ReplacedFile(Some(OldVersion { file, stamp: FileStamp::of(&stat) })));
            }
        }
    }

    /// Returns true if there is a file.
    pub(crate) fn is_some(&self) -> bool {
        self.0.is_some()
    }

    /// Copies the `user.*` attributes of the held file to `file`, and calls `lost` for each failure.
    pub(crate) fn copy_attributes(&self, file: BorrowedFd<'_>, mut lost: impl FnMut(Errno)) {
        let Some(old) = &self.0 else { return };
        let held = AttributeHolder::Open(old.file.as_fd());
        let names = match list_attributes(held) {
            Ok(names) => names,
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => return,
            Err(errno) => return lost(errno),
        };
        for name in names.split(|&byte| byte == 0).filter(|name| name.starts_with(b"user.")) {
            let copied = get(held, name).and_then(|value| fsetxattr(file, name, &value, XattrFlags::empty()));
            match copied {
                // Removed since the list was read.
                Ok(()) | Err(Errno::NODATA) => {}
                Err(errno) => lost(errno),
            }
        }
    }

    /// Renames `temporary` to the name. Returns false, without a rename, if the held file does not have the
    /// name any more.
    pub(crate) fn replace_with(
        &self,
        directory: BorrowedFd<'_>,
        temporary: &ScratchName,
        name: &[u8],
    ) -> Result<bool, SinkError> {
        let from = temporary.as_bytes();
        let renamed = match &self.0 {
            Some(old) if !old.is_unchanged_at(directory, name) => return Ok(false),
            Some(_) => renameat(directory, from, directory, name),
            None => match renameat_with(directory, from, directory, name, RenameFlags::NOREPLACE) {
                Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => rename_by_link(directory, from, name),
                renamed => renamed,
            },
        };
        match renamed {
            Ok(()) => Ok(true),
            Err(Errno::EXIST) => Ok(false),
            Err(errno) => Err(SinkError::of_name_call("renaming", errno)),
        }
    }
}

impl OldVersion {
    fn is_unchanged(&self) -> bool {
        fstat(&self.file).is_ok_and(|stat| FileStamp::of(&stat) == self.stamp)
    }

    fn is_unchanged_at(&self, directory: BorrowedFd<'_>, name: &[u8]) -> bool {
        self.is_unchanged() && fstat(&self.file).is_ok_and(|stat| has_name(directory, name, &stat))
    }
}

/// Opens and locks a file; none if it was removed meanwhile.
fn open_locked(
    directory: BorrowedFd<'_>,
    name: &[u8],
    goes_on: &dyn Fn() -> bool,
) -> Result<Option<OwnedFd>, SinkError> {
    let file = match open(directory, name, OFlags::RDONLY) {
        Ok(file) => file,
        Err(Errno::NOENT) => return Ok(None),
        Err(Errno::LOOP | Errno::NXIO) => return Err(SinkError::NotRegular),
        Err(errno) => return Err(SinkError::of_call("reading what stands there", errno)),
    };
    let began = Instant::now();
    let mut file = file;
    let mut may_write = false;
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::INTR) => {}
            Err(Errno::WOULDBLOCK) if !goes_on() => return Err(SinkError::Ended),
            Err(Errno::WOULDBLOCK) if began.elapsed() > LOCK_PATIENCE => return Err(SinkError::Locked),
            Err(Errno::WOULDBLOCK) => thread::sleep(LOCK_PAUSE),
            // NFS locks a file for writing only if it is open for writing.
            Err(Errno::BADF) if !may_write => {
                may_write = true;
                match open(directory, name, OFlags::RDWR) {
                    Ok(writable) => file = writable,
                    Err(_) => return Ok(Some(file)),
                }
            }
            // The file system has no locks.
            _ => return Ok(Some(file)),
        }
    }
}

fn open(directory: BorrowedFd<'_>, name: &[u8], access: OFlags) -> Result<OwnedFd, Errno> {
    openat(directory, name, access | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())
}

fn lookup_error(errno: Errno) -> SinkError {
    SinkError::of_name_call("looking at what stands there", errno)
}

fn has_name(directory: BorrowedFd<'_>, name: &[u8], stat: &rustix::fs::Stat) -> bool {
    let found = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW);
    found.is_ok_and(|found| FileIdentity::of(&found) == FileIdentity::of(stat))
}

/// Renames without replacing on a file system that lacks such a rename, by way of a hard link.
fn rename_by_link(directory: BorrowedFd<'_>, from: &[u8], name: &[u8]) -> Result<(), Errno> {
    match linkat(directory, from, directory, name, AtFlags::empty()) {
        Ok(()) => {
            ScratchName::from_existing(from).remove(directory);
            Ok(())
        }
        Err(Errno::EXIST) => Err(Errno::EXIST),
        // There are no hard links either.
        Err(_) => match statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => Err(Errno::EXIST),
            Err(_) => renameat(directory, from, directory, name),
        },
    }
}

/// The new version of a file into which the part was written.
pub(crate) struct SurroundingBytesCopier<'a> {
    pub(crate) file: BorrowedFd<'a>,
    pub(crate) part: ByteRange,
    /// Set if only the part was ever written to the file.
    pub(crate) is_blank: bool,
    pub(crate) goes_on: &'a dyn Fn() -> bool,
}

impl SurroundingBytesCopier<'_> {
    /// Copies all bytes but those of the part; returns false if the old file was changed meanwhile.
    pub(crate) fn copy_from(&mut self, replaced: &ReplacedFile) -> Result<bool, SinkError> {
        let part_end = self.part.offset + self.part.len;
        let held_size = replaced.0.as_ref().map_or(0, |old| old.stamp.size);
        let size = held_size.max(part_end);
        let is_blank = self.clear_earlier_copy(part_end)?;
        self.set_size(size)?;
        if let Some(old) = &replaced.0 {
            let head = ByteRange::new(0, self.part.offset.min(held_size));
            let tail = ByteRange::new(part_end, held_size.saturating_sub(part_end));
            for range in [head, tail] {
                if !self.copy(old, range, is_blank || range.offset > 0)? {
                    return Ok(false);
                }
            }
            if !old.is_unchanged() {
                return Ok(false);
            }
        }
        if !is_blank {
            self.write_zeros(held_size, self.part.offset)?;
        }
        enforce_size(self.file, size)?;
        Ok(true)
    }

    /// Removes the result of an earlier copy; returns false if the bytes before the part may not be zeros.
    fn clear_earlier_copy(&mut self, part_end: u64) -> Result<bool, SinkError> {
        let was_blank = std::mem::replace(&mut self.is_blank, false);
        self.set_size(part_end)?;
        if was_blank || self.part.offset == 0 {
            return Ok(true);
        }
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(fallocate(self.file, flags, 0, self.part.offset).is_ok())
    }

    fn set_size(&self, size: u64) -> Result<(), SinkError> {
        ftruncate(self.file, size).map_err(|errno| SinkError::of_call("setting its size", errno))
    }

    /// Copies a range, without its holes if the new version is blank there; returns false if the old file is
    /// too short.
    fn copy(&self, old: &OldVersion, range: ByteRange, is_blank: bool) -> Result<bool, SinkError> {
        let Some(end) = range.end().filter(|_| range.len > 0) else { return Ok(true) };
        let holes = if is_blank {
            holes_of(old.file.as_fd(), old.stamp.size, range, BLOCK_BYTES, RANGES_MAX)
        } else {
            RangeSet::new()
        };
        for gap in holes.gaps(end) {
            let Some(data) = gap.overlap(range) else { continue };
            let (mut at, data_end) = (data.offset, data.offset + data.len);
            while at < data_end {
                if !(self.goes_on)() {
                    return Err(SinkError::Ended);
                }
                let count = self.copy_some(old, at, next_step_bytes(at, data_end))?;
                if count == 0 {
                    return Ok(false);
                }
                at += count;
            }
        }
        Ok(true)
    }

    /// Copies some bytes and returns their number, which is zero behind the old file's end.
    fn copy_some(&self, old: &OldVersion, at: u64, len: u64) -> Result<u64, SinkError> {
        let (mut from, mut to) = (at, at);
        match copy_file_range(&old.file, Some(&mut from), self.file, Some(&mut to), len as usize) {
            Ok(count) if count > 0 => return Ok(count as u64),
            Err(errno @ (Errno::NOSPC | Errno::DQUOT)) => {
                return Err(SinkError::of_call("copying the other bytes", errno));
            }
            // The kernel can't copy here, or the file ends here; a read shows which.
            _ => {}
        }
        let mut buffer = [0; BUFFER_BYTES];
        let wanted = buffer.len().min(len as usize);
        let count = retry(|| pread(&old.file, &mut buffer[..wanted], at))
            .map_err(|errno| SinkError::of_call("reading what stands there", errno))?;
        self.write(&buffer[..count], at)?;
        Ok(count as u64)
    }

    /// Writes zeros.
    fn write_zeros(&self, from: u64, end: u64) -> Result<(), SinkError> {
        let zeros = [0; BUFFER_BYTES];
        let mut at = from;
        while at < end {
            if !(self.goes_on)() {
                return Err(SinkError::Ended);
            }
            let count = (end - at).min(BUFFER_BYTES as u64);
            self.write(&zeros[..count as usize], at)?;
            at += count;
        }
        Ok(())
    }

    fn write(&self, bytes: &[u8], at: u64) -> Result<(), SinkError> {
        let mut done = 0;
        while done < bytes.len() {
            match retry(|| pwrite(self.file, &bytes[done..], at + done as u64)) {
                Ok(0) => return Err(SinkError::of_call("copying the other bytes", Errno::IO)),
                Ok(count) => done += count,
                Err(errno) => return Err(SinkError::of_call("copying the other bytes", errno)),
            }
        }
        Ok(())
    }
}

fn retry<T>(mut call: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            answer => return answer,
        }
    }
}

/// Bytes of the next call. Calls for whole blocks let file systems share them.
fn next_step_bytes(at: u64, end: u64) -> u64 {
    let left = end - at;
    let to_block = at.next_multiple_of(BLOCK_BYTES) - at;
    if to_block > 0 {
        return to_block.min(left);
    }
    let whole = left - left % BLOCK_BYTES;
    if whole > 0 { whole.min(STEP_BYTES) } else { left }
}

/// The present as modification time; the access time stays.
pub(crate) fn mtime_now() -> Timestamps {
    Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        last_modification: Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
    use std::path::Path;

    use carrack_model::{FailureKind, Metadata, Timestamp};
    use proptest::prelude::*;
    use rustix::fs::{getxattr, setxattr};

    use super::*;
    use crate::{
        MetadataToSet, ModePolicy, NewLargeFileSpec, ScratchNames, UncommittedFile, WriteIoMethod,
        clear_umask,
    };
    use carrack_layout::{FileSystems, RequestedLayout};

    const SOURCE: Metadata = Metadata { mode: 0o666, mtime: Timestamp { seconds: 1_000, nanoseconds: 0 } };

    fn dress() -> MetadataToSet<'static> {
        let policy = ModePolicy { perms: false, times: false, directory_times: false, sets_group_id: false };
        MetadataToSet { metadata: &SOURCE, extras: None, losses: None, policy, lasting: 0 }
    }

    /// A file that holds `part` at `offset` and waits for its commit.
    fn grown(path: &Path, offset: u64, part: &[u8]) -> UncommittedFile {
        clear_umask();
        let directory = File::open(path.parent().unwrap()).unwrap();
        let (sets, scratch) = (FileSystems::new(&[]).unwrap(), ScratchNames::new(None).unwrap());
        let file_system = sets.file_system_of(directory.as_fd()).unwrap();
        let spec = NewLargeFileSpec {
            size: offset + part.len() as u64,
            file_system: &file_system,
            stripe: &RequestedLayout::Default,
            io: WriteIoMethod::Cached,
            part_offset: Some(offset),
        };
        let name = path.file_name().unwrap().as_bytes();
        let (growing, _) = UncommittedFile::create(directory.into(), name, spec, &scratch).unwrap();
        growing.write_at(part, offset).unwrap();
        growing
    }

    fn put(path: &Path, offset: u64, part: &[u8]) -> Result<(), SinkError> {
        grown(path, offset, part).commit_part(dress(), false, &|| true)
    }

    /// The expected contents after a partial transfer.
    fn overlaid(old: &[u8], offset: usize, part: &[u8]) -> Vec<u8> {
        let mut expected = old.to_vec();
        expected.resize(old.len().max(offset + part.len()), 0);
        expected[offset..offset + part.len()].copy_from_slice(part);
        expected
    }

    fn noise(seed: u64, size: usize) -> Vec<u8> {
        (0..size as u64)
            .map(|at| (at.wrapping_add(seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8)
            .collect()
    }

    fn names(directory: &Path) -> usize {
        fs::read_dir(directory).unwrap().count()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        #[test]
        fn a_part_lies_over_the_old_bytes(
            old in prop_oneof![Just(None), (0usize..400_000).prop_map(Some)],
            offset in prop_oneof![0usize..5_000, 0usize..400_000, (0usize..6).prop_map(|block| block << 16)],
            len in prop_oneof![1usize..5_000, 1usize..300_000, (1usize..4).prop_map(|block| block << 16)],
            hole in any::<bool>(),
        ) {
            let directory = tempfile::tempdir_in("/var/tmp").unwrap();
            let path = directory.path().join("f");
            let mut before = noise(1, old.unwrap_or(0));
            if hole {
                let end = before.len().min(250_000);
                before[end.min(70_000)..end].fill(0);
            }
            if old.is_some() {
                fs::write(&path, &before).unwrap();
            }
            let part = noise(2, len);
            put(&path, offset as u64, &part).unwrap();
            prop_assert!(fs::read(&path).unwrap() == overlaid(&before, offset, &part));
            prop_assert_eq!(names(directory.path()), 1);
        }
    }

    #[test]
    fn mode_and_time_are_not_the_sources() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("f");
        put(&path, 5, b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"\0\0\0\0\0new");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o604)).unwrap();
        let old = fs::metadata(&path).unwrap();
        put(&path, 1, b"x").unwrap();
        let found = fs::metadata(&path).unwrap();
        assert_eq!((found.mode() & 0o7777, found.uid(), found.gid()), (0o604, old.uid(), old.gid()));
        assert!(found.modified().unwrap().elapsed().unwrap() < Duration::from_secs(60), "{found:?}");
    }

    #[test]
    fn attributes_of_the_old_file_stay() {
        let directory = tempfile::tempdir_in("/var/tmp").unwrap();
        let path = directory.path().join("f");
        fs::write(&path, b"old bytes").unwrap();
        fn set(path: &Path, name: &str, value: &[u8]) -> Result<(), Errno> {
            setxattr(path, name, value, XattrFlags::empty())
        }
        fn get(path: &Path, name: &str) -> Vec<u8> {
            let mut value = vec![0; 4_096];
            let len = getxattr(path, name, &mut value[..]).unwrap();
            value[..len].to_vec()
        }
        if set(&path, "user.short", b"1").is_err() {
            return;
        }
        let long = noise(3, 2_000);
        set(&path, "user.long", &long).unwrap();
        put(&path, 4, b"BYTES").unwrap();
        assert_eq!((get(&path, "user.short"), get(&path, "user.long")), (b"1".to_vec(), long));
        assert_eq!(fs::read(&path).unwrap(), b"old BYTES");
    }

    #[test]
    fn holes_stay_holes() {
        let directory = tempfile::tempdir_in("/var/tmp").unwrap();
        let path = directory.path().join("f");
        File::create(&path).unwrap().set_len(64 << 20).unwrap();
        put(&path, 32 << 20, &[7; 4_096]).unwrap();
        let found = fs::metadata(&path).unwrap();
        assert_eq!(found.len(), 64 << 20);
        assert!(found.blocks() * 512 < 4 << 20, "{} blocks", found.blocks());
    }

    #[test]
    fn what_is_no_regular_file_takes_no_part() {
        let directory = tempfile::tempdir().unwrap();
        let victim = directory.path().join("victim");
        fs::write(&victim, b"precious").unwrap();
        symlink(&victim, directory.path().join("link")).unwrap();
        fs::create_dir(directory.path().join("directory")).unwrap();
        for name in ["link", "directory"] {
            let error = put(&directory.path().join(name), 1, b"x").unwrap_err();
            assert_eq!(error.kind(), FailureKind::InTheWay, "{name}: {error}");
        }
        assert_eq!((fs::read(&victim).unwrap(), names(directory.path())), (b"precious".to_vec(), 3));
    }

    #[test]
    fn a_later_session_takes_the_file_as_it_is_then() {
        let directory = tempfile::tempdir_in("/var/tmp").unwrap();
        let path = directory.path().join("f");
        let (part, later) = (noise(3, 100_000), noise(5, 90_000));
        fs::write(&path, noise(4, 500_000)).unwrap();
        let growing = grown(&path, 200_001, &part);
        // The session ended after it had copied a part of the old file.
        let all = ByteRange::new(200_001, 100_000);
        let mut kept = SurroundingBytesCopier {
            file: growing.descriptor(),
            part: all,
            is_blank: true,
            goes_on: &|| true,
        };
        let held = File::open(directory.path()).unwrap();
        let replaced = ReplacedFile::open_and_lock(held.as_fd(), b"f", &|| true).unwrap();
        assert!(kept.copy_from(&replaced).unwrap());
        drop(replaced);
        growing.keep();
        let temporary = growing.temporary_name().to_vec();
        drop(growing);
        fs::write(&path, &later).unwrap();
        assert!(crate::can_resume(held.as_fd(), &temporary, 300_001, u64::MAX));
        let sets = FileSystems::new(&[]).unwrap();
        let file_system = sets.file_system_of(held.as_fd()).unwrap();
        let spec = NewLargeFileSpec {
            size: 300_001,
            file_system: &file_system,
            stripe: &RequestedLayout::Default,
            io: WriteIoMethod::Cached,
            part_offset: Some(200_001),
        };
        let growing = UncommittedFile::resume(held.into(), b"f", &temporary, 300_001, spec).unwrap().unwrap();
        growing.commit_part(dress(), false, &|| true).unwrap();
        assert!(fs::read(&path).unwrap() == overlaid(&later, 200_001, &part));
    }

    #[test]
    fn parts_that_come_at_the_same_time_are_all_there() {
        const LEN: usize = 40_000;
        for there in [false, true] {
            let directory = tempfile::tempdir_in("/var/tmp").unwrap();
            let path = directory.path().join("f");
            let all = noise(9, 12 * LEN);
            if there {
                fs::write(&path, noise(8, 6 * LEN)).unwrap();
            }
            thread::scope(|scope| {
                for (index, part) in all.chunks(LEN).enumerate() {
                    let path = &path;
                    scope.spawn(move || put(path, (index * LEN) as u64, part).unwrap());
                }
            });
            assert!(fs::read(&path).unwrap() == all, "{there}");
            assert_eq!(names(directory.path()), 1);
        }
    }

    #[test]
    fn whoever_is_to_end_waits_for_no_lock_and_changes_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("f");
        fs::write(&path, b"old").unwrap();
        let other = File::open(&path).unwrap();
        flock(&other, FlockOperation::LockExclusive).unwrap();
        let growing = grown(&path, 1, b"x");
        growing.keep();
        let ended = growing.commit_part(dress(), false, &|| false);
        assert!(matches!(ended, Err(SinkError::Ended)), "{ended:?}");
        drop(other);
        let ended = growing.commit_part(dress(), false, &|| false);
        assert!(matches!(ended, Err(SinkError::Ended)), "{ended:?}");
        assert_eq!(fs::read(&path).unwrap(), b"old");
        growing.commit_part(dress(), false, &|| true).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"oxd");
    }
}
