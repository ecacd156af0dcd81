//! A large file at the sink, which grows under a temporary name until it is complete.
//!
//! Owns two descriptors. Any number of threads may write to it at once, in any order; who counts what has arrived is
//! the caller. What stood under the final name stays there until the commit.

use std::io::IoSlice;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use carrack_model::{ByteRange, Metadata, Timestamp};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat, fstat, ftruncate, futimens, openat, statat};
use rustix::io::{Errno, ReadWriteFlags, pwrite, pwritev2};
use rustix::process::geteuid;

use crate::durable::{settle_size, sync_whole};
use crate::extras_sink::{MODE, kept};
use crate::kept_bytes::{KeptBytes, Stand, now};
use crate::modes::{mode_of_new, take_over};
use crate::scratch::ScratchName;
use crate::sink_file::{create_flags, times};
use crate::source_file::direct_fits;
use crate::writeback::write_back;
use crate::{Dress, FileSystem, ScratchNames, SinkError, Stripe, StripeOutcome};

/// Nobody else reads it before it is complete.
const WORKING_MODE: Mode = Mode::RUSR.union(Mode::WUSR);

/// A file that is being written. Dropped without [`GrowingFile::commit`], it disappears, unless it is to stay for another
/// session ([`GrowingFile::keep`]).
#[derive(Debug)]
pub struct GrowingFile {
    directory: OwnedFd,
    file: OwnedFd,
    name: Box<[u8]>,
    temporary: ScratchName,
    size: u64,
    is_committed: AtomicBool,
    is_kept: AtomicBool,
    /// Whether pages leave the page cache as soon as they are on the storage; turns false at the first write where the
    /// file system can't do that.
    leaves_cache: AtomicBool,
    /// The same file open past the page cache, for [`WriteIo::Direct`].
    direct: Option<OwnedFd>,
    io: WriteIo,
    /// Where what is written begins, if it is a part of a file.
    part_offset: Option<u64>,
    /// An earlier session may have copied bytes into it that are not of the part.
    is_resumed: bool,
}

/// How a large file is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WriteIo {
    /// Through the page cache; the kernel writes soon.
    #[default]
    Cached,
    /// Past the page cache: a write takes as long as the storage does.
    Direct,
    /// Through the page cache, and each write waits until the storage has it.
    Writeback,
}

impl WriteIo {
    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            WriteIo::Cached => "through the page cache",
            WriteIo::Direct => "past the page cache (O_DIRECT)",
            WriteIo::Writeback => "through the page cache, each object waited for (sync_file_range)",
        }
    }
}

/// What a file that is about to grow is like.
#[derive(Clone, Copy, Debug)]
pub struct GrowingSpec<'a> {
    /// Bytes when it is complete.
    pub size: u64,
    /// The file system of its directory.
    pub file_system: &'a FileSystem,
    /// How it shall be striped.
    pub stripe: &'a Stripe,
    /// How it shall be written, as far as the storage can.
    pub io: WriteIo,
    /// Where it begins, if only a part of the file is written, which ends at `size`: its other bytes stay as they are ([`GrowingFile::commit_part`]).
    pub part_offset: Option<u64>,
}

/// How often the bytes around a part are copied anew because what had the name was changed meanwhile.
const PART_TRIES: u32 = 5;

/// What direct writes of this program keep to.
const DIRECT_ALIGNMENT: usize = 4_096;

/// `RWF_DONTCACHE` (Linux 6.14, include/uapi/linux/fs.h), which rustix does not name yet.
const RWF_DONTCACHE: ReadWriteFlags = ReadWriteFlags::from_bits_retain(0x80);

impl GrowingFile {
    /// Creates the temporary file for `name` in `directory`; says too what became of the striping. Whether the name can be had
    /// shows when the file is committed.
    ///
    /// # Errors
    /// What creating it says.
    pub fn create(
        directory: OwnedFd,
        name: &[u8],
        spec: GrowingSpec<'_>,
        scratch: &ScratchNames,
    ) -> Result<(GrowingFile, StripeOutcome), SinkError> {
        let create = |free: &[u8]| {
            spec.file_system.create(directory.as_fd(), free, create_flags(), WORKING_MODE, spec.stripe)
        };
        let ((file, outcome), temporary) =
            scratch.create(name, create).map_err(|errno| SinkError::naming("creating", errno))?;
        let growing = GrowingFile::new(directory, name, file, temporary, spec);
        Ok((growing, outcome))
    }

    /// Goes on with the file that an earlier session left under the name `temporary`; nothing if it is not there, or is not as
    /// [`can_resume`] wants it.
    ///
    /// # Errors
    /// As [`GrowingFile::create`].
    pub fn resume(
        directory: OwnedFd,
        name: &[u8],
        temporary: &[u8],
        held_end: u64,
        spec: GrowingSpec<'_>,
    ) -> Result<Option<GrowingFile>, SinkError> {
        let temporary = ScratchName::existing(temporary);
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = match openat(&directory, temporary.as_bytes(), flags, Mode::empty()) {
            Ok(file) => file,
            Err(Errno::NOENT | Errno::LOOP | Errno::NXIO) => return Ok(None),
            Err(errno) => return Err(SinkError::naming("opening", errno)),
        };
        let found = fstat(&file).map_err(|errno| SinkError::writing("looking at", errno))?;
        let size_max = spec.part_offset.map_or(spec.size, |_| u64::MAX);
        if !fits(directory.as_fd(), &found, held_end, size_max) {
            return Ok(None);
        }
        let mut growing = GrowingFile::new(directory, name, file, temporary, spec);
        growing.is_resumed = true;
        Ok(Some(growing))
    }

    /// Opens the file that several sessions write to under the name `temporary` ([`ScratchNames::shared_name`]), and creates it
    /// if it is not there yet. It stays, also when it is dropped.
    ///
    /// # Errors
    /// As [`GrowingFile::create`]; [`SinkError::Vanished`] if something else has that name.
    pub fn share(
        directory: OwnedFd,
        name: &[u8],
        temporary: &[u8],
        spec: GrowingSpec<'_>,
    ) -> Result<(GrowingFile, StripeOutcome), SinkError> {
        let created =
            spec.file_system.create(directory.as_fd(), temporary, create_flags(), WORKING_MODE, spec.stripe);
        let (growing, outcome) = match created {
            Ok((file, outcome)) => {
                (GrowingFile::new(directory, name, file, ScratchName::existing(temporary), spec), outcome)
            }
            Err(Errno::EXIST) => {
                let found = GrowingFile::resume(directory, name, temporary, 0, spec)?;
                (found.ok_or(SinkError::Vanished)?, StripeOutcome::Default)
            }
            Err(errno) => return Err(SinkError::naming("creating", errno)),
        };
        growing.keep(true);
        Ok((growing, outcome))
    }

    fn new(
        directory: OwnedFd,
        name: &[u8],
        file: OwnedFd,
        temporary: ScratchName,
        spec: GrowingSpec<'_>,
    ) -> GrowingFile {
        let direct = (spec.io == WriteIo::Direct).then(|| open_direct(file.as_fd())).flatten();
        let io = match spec.io {
            WriteIo::Direct if direct.is_none() => WriteIo::Writeback,
            io => io,
        };
        GrowingFile {
            directory,
            file,
            name: name.into(),
            temporary,
            size: spec.size,
            is_committed: AtomicBool::new(false),
            is_kept: AtomicBool::new(false),
            leaves_cache: AtomicBool::new(true),
            direct,
            io,
            part_offset: spec.part_offset,
            is_resumed: false,
        }
    }

    /// The name that it has until it is complete.
    pub fn temporary_name(&self) -> &[u8] {
        self.temporary.as_bytes()
    }

    /// The directory that it stands in.
    pub fn directory(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }

    /// What of it was recorded is for a later session: it stays under its temporary name if it is not completed. `false` takes
    /// that back.
    pub fn keep(&self, is_kept: bool) {
        self.is_kept.store(is_kept, Relaxed);
    }

    /// How it is written.
    pub fn io(&self) -> WriteIo {
        self.io
    }

    /// Open for writing; nobody uses its position.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Writes all of `buffer` at `offset`, past the page cache as far as the system allows: what a mover writes is
    /// not read soon, and pages that are used again at once are hot. On ext4 that takes a quarter of the CPU time
    /// (0.10 against 0.35 to 0.59 s/GB, Linux 6.18) and leaves what others have cached.
    ///
    /// # Errors
    /// [`SinkError::NoSpace`] on a full disk or quota; [`SinkError::Write`] for a range beyond the announced size.
    pub fn write_at(&self, buffer: &[u8], offset: u64) -> Result<(), SinkError> {
        let end = offset.checked_add(buffer.len() as u64);
        if end.is_none_or(|end| end > self.size) {
            return Err(SinkError::writing("writing beyond the announced size", Errno::FBIG));
        }
        let mut done = match &self.direct {
            Some(direct) => write_direct(direct.as_fd(), buffer, offset)?,
            None => 0,
        };
        while done < buffer.len() {
            match self.write_once(&buffer[done..], offset + done as u64) {
                Ok(0) => return Err(SinkError::writing("writing", Errno::IO)),
                Ok(count) => done += count,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(SinkError::writing("writing", errno)),
            }
        }
        if self.io == WriteIo::Writeback {
            write_back(self.file.as_fd(), offset, buffer.len() as u64)
                .map_err(|errno| SinkError::writing("writing back", errno))?;
        }
        Ok(())
    }

    fn write_once(&self, buffer: &[u8], offset: u64) -> Result<usize, Errno> {
        if self.io == WriteIo::Cached && self.leaves_cache.load(Relaxed) {
            match pwritev2(&self.file, &[IoSlice::new(buffer)], offset, RWF_DONTCACHE) {
                // By the file system, and by a kernel that does not know the flag or the call.
                Err(Errno::OPNOTSUPP | Errno::INVAL | Errno::NOSYS) => {
                    self.leaves_cache.store(false, Relaxed)
                }
                answer => return answer,
            }
        }
        pwrite(&self.file, buffer, offset)
    }

    /// Gives the file this modification time, as far as it can be: whoever finishes it does so too.
    pub fn keep_time(&self, mtime: Timestamp) {
        let _ = futimens(&self.file, &times(mtime));
    }

    /// Makes it as long as announced where it ends in a hole, which nobody writes.
    ///
    /// # Errors
    /// What the calls say.
    pub fn extend(&self) -> Result<(), SinkError> {
        let found = fstat(&self.file).map_err(|errno| SinkError::writing("looking at its size", errno))?;
        if u64::try_from(found.st_size).is_ok_and(|held| held >= self.size) {
            return Ok(());
        }
        ftruncate(&self.file, self.size).map_err(|errno| SinkError::writing("extending to its size", errno))
    }

    /// Checks the size, sets mode and time, makes all of it durable if `syncs`, and gives it its name, in place of a file or link that has it.
    /// Once, after the last write.
    ///
    /// # Errors
    /// After [`SinkError::Metadata`] the file is in place; after any other error it has disappeared.
    pub fn commit<'a>(&self, dress: impl Into<Dress<'a>>, syncs: bool) -> Result<(), SinkError> {
        let (file, dress) = (self.file.as_fd(), dress.into());
        settle_size(file, self.size)?;
        let finished = self.dress(dress).and(dress.set_time(file, None));
        if syncs {
            sync_whole(file)?;
        }
        self.is_committed.store(true, Relaxed); // `rename` cleans up after itself
        self.temporary
            .rename(self.directory.as_fd(), &self.name)
            .map_err(|errno| SinkError::naming("renaming", errno))?;
        finished
    }
}

impl GrowingFile {
    /// Likewise for a part of a file: the bytes before and behind it are those of the file that has the name now, or zeros. Its modification
    /// time is now. Waits while another partial transfer gives the same file its bytes. Once, after the last write.
    ///
    /// # Errors
    /// As [`GrowingFile::commit`]; [`SinkError::NotRegular`], [`SinkError::Unsteady`], [`SinkError::Locked`], and [`SinkError::Ended`] once
    /// `goes_on` says no. What had the name has it still, but for [`SinkError::Metadata`].
    pub fn commit_part<'a>(
        &self,
        dress: impl Into<Dress<'a>>,
        syncs: bool,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<(), SinkError> {
        let (file, dress) = (self.file.as_fd(), dress.into());
        let offset = self.part_offset.unwrap_or(0);
        let part = ByteRange::new(offset, self.size - offset);
        let mut kept = KeptBytes { file, part, is_blank: !self.is_resumed, goes_on };
        for _ in 0..PART_TRIES {
            let stand = Stand::hold(self.directory.as_fd(), &self.name, goes_on)?;
            if !kept.take_from(&stand)? {
                continue;
            }
            let finished = self.dress(dress);
            // Where that is refused, it is the time of the last write.
            let _ = futimens(file, &now());
            if syncs || stand.is_some() {
                sync_whole(file)?;
            }
            if stand.give_way(self.directory.as_fd(), &self.temporary, &self.name)? {
                self.is_committed.store(true, Relaxed);
                return finished;
            }
        }
        Err(SinkError::Unsteady)
    }

    /// Without an exact mode it is that of the file that is replaced, or that of a new one.
    fn dress(&self, dress: Dress<'_>) -> Result<(), SinkError> {
        let (file, directory) = (self.file.as_fd(), self.directory.as_fd());
        if dress.policy.perms {
            return dress.put_on(file, true).map(drop);
        }
        let metadata = Metadata { mode: mode_of_new(directory, dress.metadata.mode), ..*dress.metadata };
        let owned = Dress { metadata: &metadata, ..dress }.put_on(file, true)?;
        let taken = take_over(file, directory, &self.name, owned).map_err(|not_taken| not_taken.errno);
        kept(dress.losses, MODE, "setting the mode", taken)
    }
}

impl Drop for GrowingFile {
    fn drop(&mut self) {
        if !self.is_committed.load(Relaxed) && !self.is_kept.load(Relaxed) {
            self.temporary.remove(self.directory.as_fd());
        }
    }
}

/// Whether the file that an earlier session left under the name `temporary` can be gone on with: a regular file with no other name,
/// at least as long as `held_end`, up to which something of it was recorded, at most of `size` bytes, and of this user's. Somebody
/// else would keep it open, and change what is written to it.
///
/// Of a part of a file the size does not matter: bytes behind it may be there, which are of the file that it goes into.
pub fn can_resume(directory: BorrowedFd<'_>, temporary: &[u8], held_end: u64, size: u64) -> bool {
    let found = statat(directory, temporary, AtFlags::SYMLINK_NOFOLLOW);
    found.is_ok_and(|found| fits(directory, &found, held_end, size))
}

fn fits(directory: BorrowedFd<'_>, found: &Stat, held_end: u64, size: u64) -> bool {
    FileType::from_raw_mode(found.st_mode) == FileType::RegularFile
        && found.st_nlink == 1
        && u64::try_from(found.st_size).is_ok_and(|held| (held_end..=size).contains(&held))
        && is_own(directory, found.st_uid)
}

/// Whether a file of this owner was created by this user: some servers give all that a client creates to somebody else, which a
/// fresh file in the same directory shows.
fn is_own(directory: BorrowedFd<'_>, uid: u32) -> bool {
    let fresh = || {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let file = openat(directory, c".", flags, WORKING_MODE).or_else(|_| {
            let scratch = ScratchNames::new(None).map_err(|_| Errno::IO)?;
            let create = |free: &[u8]| openat(directory, free, create_flags(), WORKING_MODE);
            let (file, temporary) = scratch.create(b"owner", create)?;
            temporary.remove(directory);
            Ok(file)
        });
        file.and_then(fstat).map(|fresh: Stat| fresh.st_uid)
    };
    uid == geteuid().as_raw() || fresh() == Ok(uid)
}

/// The file once more, past the page cache, unless the kernel says that writes of this program's alignment can't go there.
fn open_direct(file: BorrowedFd<'_>) -> Option<OwnedFd> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let flags = OFlags::WRONLY | OFlags::DIRECT | OFlags::CLOEXEC;
    direct_fits(file).then(|| openat(CWD, path, flags, Mode::empty()).ok()).flatten()
}

/// Writes what is aligned and returns how much that was; the rest, and what the storage refuses to take that way, is for
/// the page cache.
fn write_direct(direct: BorrowedFd<'_>, buffer: &[u8], offset: u64) -> Result<usize, SinkError> {
    if !offset.is_multiple_of(DIRECT_ALIGNMENT as u64)
        || !buffer.as_ptr().addr().is_multiple_of(DIRECT_ALIGNMENT)
    {
        return Ok(0);
    }
    let aligned = buffer.len() - buffer.len() % DIRECT_ALIGNMENT;
    let mut done = 0;
    while done < aligned {
        match pwrite(direct, &buffer[done..aligned], offset + done as u64) {
            Ok(count) if count % DIRECT_ALIGNMENT == 0 && count > 0 => done += count,
            // Not an error of the storage: what is not aligned any more, it can't take.
            Ok(count) => return Ok(done + count),
            Err(Errno::INTR) => {}
            Err(Errno::INVAL) => return Ok(done),
            Err(errno) => return Err(SinkError::writing("writing", errno)),
        }
    }
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FileSystems;
    use carrack_model::FailureKind;
    use std::fs::{self, File};
    use std::os::unix::fs::MetadataExt;

    fn create(dir: &tempfile::TempDir, name: &[u8], size: u64) -> Result<GrowingFile, SinkError> {
        create_for(dir, name, size, WriteIo::Cached)
    }

    fn create_for(
        dir: &tempfile::TempDir,
        name: &[u8],
        size: u64,
        io: WriteIo,
    ) -> Result<GrowingFile, SinkError> {
        let scratch = ScratchNames::new(None).unwrap();
        let directory = File::open(dir.path()).unwrap();
        let file_system = FileSystems::new(&[]).unwrap().of(directory.as_fd()).unwrap();
        let stripe = &Stripe::Default;
        let spec = GrowingSpec { size, file_system: &file_system, stripe, io, part_offset: None };
        GrowingFile::create(directory.into(), name, spec, &scratch).map(|(growing, _)| growing)
    }

    fn names(dir: &tempfile::TempDir) -> Vec<String> {
        let entries = fs::read_dir(dir.path()).unwrap();
        entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn a_write_behind_the_end_leaves_the_file_its_time() {
        let dir = tempfile::tempdir().unwrap();
        let file = create(&dir, b"f", 5).unwrap();
        file.write_at(b"abcde", 0).unwrap();
        let metadata = Metadata { mode: 0o644, mtime: Timestamp { seconds: 1_234_567_890, nanoseconds: 5 } };
        file.commit(&metadata, false).unwrap();
        let time =
            || fs::metadata(dir.path().join("f")).map(|found| (found.mtime(), found.mtime_nsec())).unwrap();
        file.write_at(b"abcde", 0).unwrap();
        assert_ne!(time(), (1_234_567_890, 5));
        file.keep_time(metadata.mtime);
        assert_eq!(time(), (1_234_567_890, 5));
    }

    #[test]
    fn grows_unseen_and_out_of_order_and_then_takes_its_name() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("f"), b"old").unwrap();
        let file = create(&dir, b"f", 10).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| file.write_at(b"fghij", 5).unwrap());
            scope.spawn(|| file.write_at(b"abcde", 0).unwrap());
        });
        assert_eq!(fs::read(dir.path().join("f")).unwrap(), b"old");
        let metadata = Metadata { mode: 0o4755, mtime: Timestamp { seconds: -1, nanoseconds: 999_999_999 } };
        file.commit(&metadata, true).unwrap();
        assert_eq!(fs::read(dir.path().join("f")).unwrap(), b"abcdefghij");
        let found = fs::metadata(dir.path().join("f")).unwrap();
        assert_eq!(
            (found.mode() & 0o7777, found.mtime(), found.mtime_nsec()),
            (0o755, -1, 999_999_999),
            "set-ID bits go with the owner"
        );
        assert_eq!(names(&dir), ["f"]);
    }

    #[test]
    fn every_way_of_writing_writes_the_same() {
        let dir = tempfile::tempdir().unwrap();
        // Of which three aligned blocks start on a page, as slots do.
        let content: Vec<u8> = (0..5 * 4_096 + 100).map(|i| (i % 251) as u8).collect();
        let pages = content.as_ptr().align_offset(4_096);
        let content = &content[pages..];
        for io in [WriteIo::Cached, WriteIo::Direct, WriteIo::Writeback] {
            let file = create_for(&dir, b"f", content.len() as u64, io).unwrap();
            println!("{io:?} became {:?}", file.io());
            assert!(file.io() == io || io == WriteIo::Direct && file.io() == WriteIo::Writeback);
            // Out of order, aligned and not.
            file.write_at(&content[8_192..], 8_192).unwrap();
            file.write_at(&content[..5_000], 0).unwrap();
            file.write_at(&content[5_000..8_192], 5_000).unwrap();
            file.commit(&Metadata::default(), true).unwrap();
            assert_eq!(fs::read(dir.path().join("f")).unwrap(), content, "{io:?}");
        }
    }

    #[test]
    fn disappears_when_it_is_given_up() {
        let dir = tempfile::tempdir().unwrap();
        let file = create(&dir, &[b'x'; 255], 3).unwrap();
        file.write_at(b"abc", 0).unwrap();
        let name = names(&dir).remove(0);
        assert!(name.starts_with(".x") && name.contains(".carrack-"));
        assert_eq!(fs::metadata(dir.path().join(&name)).unwrap().mode() & 0o777, 0o600);
        drop(file);
        assert!(names(&dir).is_empty());
    }

    #[test]
    fn a_directory_in_the_way_stays() {
        let dir = tempfile::tempdir().unwrap();
        let file = create(&dir, b"e", 1).unwrap();
        file.write_at(b"x", 0).unwrap();
        fs::create_dir(dir.path().join("e")).unwrap();
        assert_eq!(file.commit(&Metadata::default(), true).unwrap_err().kind(), FailureKind::InTheWay);
        assert_eq!(names(&dir), ["e"]);
    }

    #[test]
    fn nothing_is_written_beyond_the_announced_size() {
        let dir = tempfile::tempdir().unwrap();
        let file = create(&dir, b"f", 10).unwrap();
        for offset in [8, 11, u64::MAX] {
            assert_eq!(file.write_at(b"abc", offset).unwrap_err().kind(), FailureKind::WriteError);
        }
        assert!(file.write_at(b"abc", 7).is_ok());
    }

    #[test]
    fn a_full_disk_is_no_space() {
        let Ok(full) = File::options().write(true).open("/dev/full") else {
            println!("skipped: no /dev/full");
            return;
        };
        let dir = tempfile::tempdir().unwrap();
        let mut file = create(&dir, b"f", 10).unwrap();
        file.file = full.into();
        assert_eq!(file.write_at(b"abc", 0).unwrap_err().kind(), FailureKind::NoSpace);
    }

    #[test]
    fn only_an_own_file_without_another_name_is_gone_on_with() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t");
        fs::write(&path, b"12345").unwrap();
        let held = File::open(dir.path()).unwrap();
        let can = || can_resume(held.as_fd(), b"t", 4, 6);
        assert!(can());
        assert!(!can_resume(held.as_fd(), b"t", 6, 9) && !can_resume(held.as_fd(), b"t", 0, 4));
        fs::hard_link(&path, dir.path().join("other")).unwrap();
        assert!(!can());
        fs::remove_file(dir.path().join("other")).unwrap();
        match std::os::unix::fs::chown(&path, Some(4_242), None) {
            Ok(()) => assert!(!can()),
            Err(error) => println!("skipped, only root gives files away: {error}"),
        }
    }
}
