//! Reading at the source: a large file piece by piece, a small one in four system calls.
//!
//! Owns one descriptor for each [`SourceFile`], which any number of threads may read at once. Never writes, never
//! follows a link unless told, and never waits for a pipe that took a file's place. Every read can be checked against
//! a change of the file.

use std::io::{self, IoSliceMut};
use std::mem;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use carrack_model::limits::RANGES_MAX;
use carrack_model::{ByteRange, Entry, Metadata, RangeSet, SourceIo, Timestamp};
use rustix::fs::{
    Advice, AtFlags, Mode, OFlags, SeekFrom, StatxFlags, fadvise, fcntl_setfl, fstat, openat, seek, statx,
};
use rustix::io::{Errno, ReadWriteFlags, pread, preadv2, read};

use crate::status::{allocated_bytes_of, is_regular, metadata_of, mtime_of, size_of};
use crate::{FileStamp, SourceError};

/// Offset, length and memory of a direct read are multiples of this: no storage in use asks for more.
const DIRECT_ALIGNMENT: u64 = 4_096;

/// `STATX_DIOALIGN` (Linux 6.1, include/uapi/linux/stat.h), which rustix does not name yet.
const STATX_DIOALIGN: StatxFlags = StatxFlags::from_bits_retain(0x2000);

/// Holes are left out in multiples of this: smaller ones would cost more in ranges and requests than their zeros do.
const HOLE_ALIGNMENT: u64 = 64 << 10;

/// Those of small files: what most file systems store at least. Their zeros travel, so nothing but the storage is saved.
const SMALL_HOLE_ALIGNMENT: u64 = 4 << 10;

/// Holes of one small file that are told: each takes 8 bytes of the bundle.
const SMALL_HOLES_MAX: usize = 128;

/// What the page cache is asked for, at each of [`PROBES`] places.
const PROBE_BYTES: u64 = 4_096;

/// Places at which the page cache is probed: start, middle and end see a file that was written or read as a whole.
const PROBES: u64 = 3;

/// A regular file that is read at the source.
#[derive(Debug)]
pub struct SourceFile {
    handle: OwnedFd,
    metadata: Metadata,
    stamp: FileStamp,
    /// Bytes that the storage holds of it.
    allocated_bytes: u64,
    /// Whether reads go past the page cache; may turn false at the first read.
    direct: AtomicBool,
}

impl SourceFile {
    /// Opens `name` in `directory`; a link is followed only if `follow` says so.
    ///
    /// With [`SourceIo::Auto`] a file that lies in the page cache is read from there, others past it.
    ///
    /// # Errors
    /// [`SourceError::NotRegular`] for anything but a regular file, else what `open` and `stat` say.
    pub fn open(
        directory: BorrowedFd<'_>,
        name: &[u8],
        follow: bool,
        io: SourceIo,
    ) -> Result<SourceFile, SourceError> {
        let handle = open_to_read(directory, name, follow)?;
        let stat = fstat(&handle).map_err(SourceError::reading)?;
        if !is_regular(&stat) {
            return Err(SourceError::NotRegular);
        }
        let stamp = FileStamp::of(&stat);
        let direct = wants_direct(handle.as_fd(), stamp.size, io) && set_direct(handle.as_fd());
        if !direct {
            expect_sequential(handle.as_fd());
        }
        let (metadata, direct) = (metadata_of(&stat), AtomicBool::new(direct));
        Ok(SourceFile { handle, metadata, stamp, allocated_bytes: allocated_bytes_of(&stat), direct })
    }

    /// Mode and time of last change when it was opened.
    pub fn metadata(&self) -> Metadata {
        self.metadata
    }

    /// Its state when it was opened.
    pub fn stamp(&self) -> FileStamp {
        self.stamp
    }

    /// Open for reading; nobody uses its position.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.handle.as_fd()
    }

    /// Where it has holes of 64 KiB or more, as many as a message can tell. They read as zeros, and hold nothing.
    /// Asks only of a file that is longer than what the storage holds of it. Uses the descriptor's position.
    pub fn holes(&self) -> RangeSet {
        self.holes_within(ByteRange::new(0, self.stamp.size))
    }

    /// Likewise, those parts of them that lie in a range.
    pub fn holes_within(&self, range: ByteRange) -> RangeSet {
        match self.allocated_bytes < self.stamp.size {
            true => holes_of(self.handle.as_fd(), self.stamp.size, range, HOLE_ALIGNMENT, RANGES_MAX),
            false => RangeSet::new(),
        }
    }

    /// Whether reads go past the page cache at present.
    pub fn is_direct(&self) -> bool {
        self.direct.load(Ordering::Relaxed)
    }

    /// Reads at `offset` until `buffer` is full or the file ends; returns the bytes read.
    ///
    /// For direct I/O `buffer` starts on a 4,096-byte boundary and is a multiple of that long, as is `offset`; where
    /// one of them is not, or the storage asks for more, the file is read through the page cache from then on. If the
    /// file has grown, bytes beyond its stamp's size may be read too.
    ///
    /// # Errors
    /// What `pread` says.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut done = 0;
        // Once for each read: several threads may find out at the same time.
        let mut may_leave_direct = true;
        while done < buffer.len() {
            let at = offset + done as u64;
            match pread(&self.handle, &mut buffer[done..], at) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(Errno::INTR) => continue,
                Err(Errno::INVAL) if mem::take(&mut may_leave_direct) && self.leave_direct() => continue,
                Err(errno) => return Err(errno.into()),
            }
            if offset + done as u64 >= self.stamp.size {
                break;
            }
        }
        Ok(done)
    }

    /// Whether nobody has changed the file since it was opened.
    ///
    /// # Errors
    /// What `fstat` says.
    pub fn is_unchanged(&self) -> io::Result<bool> {
        Ok(FileStamp::of(&fstat(&self.handle)?) == self.stamp)
    }

    /// Where it is read through the page cache, drops what is there and is on the storage too, so that reads see that.
    /// A hint: pages that somebody maps or that are not written yet stay.
    pub fn drop_cached(&self) {
        if !self.is_direct() {
            let _ = fadvise(&self.handle, 0, None, Advice::DontNeed);
        }
    }

    /// Reads through the page cache from now on; false where the kernel does not allow it.
    fn leave_direct(&self) -> bool {
        self.direct.store(false, Ordering::Relaxed);
        expect_sequential(self.handle.as_fd());
        fcntl_setfl(&self.handle, OFlags::empty()).is_ok()
    }
}

/// The holes of an open file of `size` bytes that lie in a range, cut to multiples of `alignment`, `count_max` of them at most. Uses its
/// position.
pub(crate) fn holes_of(
    file: BorrowedFd<'_>,
    size: u64,
    within: ByteRange,
    alignment: u64,
    count_max: usize,
) -> RangeSet {
    let mut holes = RangeSet::new();
    let (mut from, end) = (within.offset, within.end().unwrap_or(u64::MAX).min(size));
    while from < end && holes.run_count() < count_max {
        let data = match seek(file, SeekFrom::Data(from)) {
            Ok(offset) => offset.min(size),
            // Nothing but a hole to the end.
            Err(Errno::NXIO) => size,
            // A file system that does not know: all of the rest is data.
            Err(_) => break,
        };
        if let Some(hole) = aligned_hole(from, data, size, alignment).overlap(within) {
            holes.cover(hole);
        }
        let Ok(hole) = seek(file, SeekFrom::Hole(data)) else { break };
        from = hole;
    }
    holes
}

/// The part of a hole that begins and ends on multiples of the alignment, or at the file's end.
fn aligned_hole(from: u64, to: u64, size: u64, alignment: u64) -> ByteRange {
    let from = from.next_multiple_of(alignment);
    let to = if to == size { to } else { to - to % alignment };
    ByteRange::new(from, to.saturating_sub(from))
}

/// What the scan saw of a small file, or what the last try to read it found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected {
    /// Bytes.
    pub size: u64,
    /// Time of last change.
    pub mtime: Timestamp,
}

impl From<&Entry> for Expected {
    fn from(entry: &Entry) -> Expected {
        Expected { size: entry.size(), mtime: entry.metadata.mtime }
    }
}

/// A small file that was read as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SmallFile {
    /// Bytes in the buffer.
    pub size: usize,
    /// Mode and time of last change.
    pub metadata: Metadata,
    /// Its inode number.
    pub identity: u64,
    /// Where it has holes of 4 KiB or more, which were read as zeros.
    pub holes: RangeSet,
}

/// Reads all of the small file `name` in `directory` to the start of `buffer`, with four system calls; with some more where the
/// storage holds less than its size.
///
/// `buffer` is longer than the expected size by at least one byte, which shows whether the file has grown. The status
/// is taken after the contents: with the size and time of the scan still in place, what was read is what the scan saw.
///
/// # Errors
/// [`SourceError::Changed`] if it is not as expected: try again with what the error says.
pub fn read_small(
    directory: BorrowedFd<'_>,
    name: &[u8],
    follow: bool,
    expected: Expected,
    buffer: &mut [u8],
) -> Result<SmallFile, SourceError> {
    let wanted = usize::try_from(expected.size).ok().and_then(|size| buffer.get_mut(..=size));
    let Some(wanted) = wanted else {
        let detail = "a small file is larger than the buffer for it";
        return Err(SourceError::ReadError(io::Error::new(io::ErrorKind::InvalidInput, detail)));
    };
    let handle = open_to_read(directory, name, follow)?;
    let size = read_until_short(handle.as_fd(), wanted).map_err(SourceError::reading)?;
    let stat = fstat(&handle).map_err(SourceError::reading)?;
    let now = Expected { size: size_of(&stat), mtime: mtime_of(&stat) };
    if !is_regular(&stat) {
        Err(SourceError::NotRegular)
    } else if now != expected || size as u64 != expected.size {
        Err(SourceError::Changed { size: now.size, mtime: now.mtime })
    } else {
        let holes = match allocated_bytes_of(&stat).saturating_add(SMALL_HOLE_ALIGNMENT) <= expected.size {
            true => holes_of(
                handle.as_fd(),
                expected.size,
                ByteRange::new(0, expected.size),
                SMALL_HOLE_ALIGNMENT,
                SMALL_HOLES_MAX,
            ),
            false => RangeSet::new(),
        };
        Ok(SmallFile { size, metadata: metadata_of(&stat), identity: stat.st_ino, holes })
    }
}

/// Fills all of `wanted` but its last byte, with one call where the kernel gives everything at once.
fn read_until_short(handle: BorrowedFd<'_>, wanted: &mut [u8]) -> Result<usize, Errno> {
    let mut done = 0;
    loop {
        match read(handle, &mut wanted[done..]) {
            Ok(0) => return Ok(done),
            Ok(count) => done += count,
            Err(Errno::INTR) => continue,
            Err(errno) => return Err(errno),
        }
        if done + 1 >= wanted.len() {
            return Ok(done);
        }
    }
}

/// `O_NONBLOCK` keeps the open from waiting for a pipe's writer; it means nothing to a regular file.
fn open_to_read(directory: BorrowedFd<'_>, name: &[u8], follow: bool) -> Result<OwnedFd, SourceError> {
    let mut flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
    flags.set(OFlags::NOFOLLOW, !follow);
    openat(directory, name, flags, Mode::empty()).map_err(SourceError::opening)
}

fn wants_direct(handle: BorrowedFd<'_>, size: u64, io: SourceIo) -> bool {
    match io {
        SourceIo::Buffered => false,
        SourceIo::Direct => direct_fits(handle),
        SourceIo::Auto => size > 0 && !is_cached(handle, size) && direct_fits(handle),
    }
}

/// Doubles the kernel's readahead. A hint: whoever does not take it is read as well.
fn expect_sequential(handle: BorrowedFd<'_>) {
    let _ = fadvise(handle, 0, None, Advice::Sequential);
}

/// Whether the page cache has the file, or can't say.
fn is_cached(handle: BorrowedFd<'_>, size: u64) -> bool {
    // Else a probe that misses would start the readahead of a whole window.
    let _ = fadvise(handle, 0, None, Advice::Random);
    let last = size.saturating_sub(1) / PROBE_BYTES;
    (0..PROBES).all(|n| page_is_cached(handle, last * n / (PROBES - 1) * PROBE_BYTES))
}

fn page_is_cached(handle: BorrowedFd<'_>, offset: u64) -> bool {
    let mut page = [0; PROBE_BYTES as usize];
    let answer = preadv2(handle, &mut [IoSliceMut::new(&mut page)], offset, ReadWriteFlags::NOWAIT);
    !matches!(answer, Err(Errno::AGAIN))
}

/// Whether the storage takes direct reads of our alignment, as far as it tells.
pub(crate) fn direct_fits(handle: BorrowedFd<'_>) -> bool {
    let Ok(found) = statx(handle, c"", AtFlags::EMPTY_PATH, STATX_DIOALIGN) else { return true };
    if found.stx_mask & STATX_DIOALIGN.bits() == 0 {
        return true;
    }
    let fits = |alignment: u32| (1..=DIRECT_ALIGNMENT).contains(&u64::from(alignment));
    fits(found.stx_dio_offset_align) && fits(found.stx_dio_mem_align)
}

/// Fails where the file system has no direct I/O at all.
fn set_direct(handle: BorrowedFd<'_>) -> bool {
    fcntl_setfl(handle, OFlags::DIRECT).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{FileType, mknodat};
    use std::fs::{self, File};
    use std::os::fd::AsFd;
    use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
    use std::path::Path;

    /// Mostly no tmpfs, which has a cache only.
    const DISK: &str = "/var/tmp";

    fn expected(path: &Path) -> Expected {
        let stat = rustix::fs::stat(path).unwrap();
        Expected { size: size_of(&stat), mtime: mtime_of(&stat) }
    }

    fn pattern(bytes: usize) -> Vec<u8> {
        (0..bytes).map(|n| (n / 7 + n * 31) as u8).collect()
    }

    /// A buffer that starts on a page, as a slot does.
    fn aligned(memory: &mut Vec<u8>, bytes: usize) -> &mut [u8] {
        memory.resize(bytes + 4_096, 0);
        let start = memory.as_ptr().align_offset(4_096);
        &mut memory[start..start + bytes]
    }

    fn drop_from_cache(path: &Path) {
        let file = File::open(path).unwrap();
        file.sync_all().unwrap();
        fadvise(&file, 0, None, Advice::DontNeed).unwrap();
    }

    #[test]
    fn small_files_are_read_with_their_metadata() {
        let dir = tempfile::tempdir().unwrap();
        let handle = File::open(dir.path()).unwrap();
        for (name, size) in [("empty", 0), ("one", 1), ("some", 5_000)] {
            let path = dir.path().join(name);
            fs::write(&path, pattern(size)).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
            let mut buffer = vec![0; size + 1];
            let read =
                read_small(handle.as_fd(), name.as_bytes(), false, expected(&path), &mut buffer).unwrap();
            assert_eq!(read.size, size);
            assert_eq!(read.metadata.mode, 0o640);
            assert_eq!(read.identity, fs::metadata(&path).unwrap().ino());
            assert_eq!(buffer[..size], pattern(size));
        }
    }

    #[test]
    fn a_small_file_that_changed_is_told_with_its_new_size() {
        let dir = tempfile::tempdir().unwrap();
        let handle = File::open(dir.path()).unwrap();
        let path = dir.path().join("f");
        fs::write(&path, b"12345").unwrap();
        let before = expected(&path);
        let mut buffer = [0; 64];
        for content in [&b"123456789"[..], b"123", b"54321"] {
            fs::write(&path, content).unwrap();
            File::open(&path).unwrap().set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
            let error = read_small(handle.as_fd(), b"f", false, before, &mut buffer).unwrap_err();
            let SourceError::Changed { size, mtime } = error else { panic!("{error:?}") };
            assert_eq!(size, content.len() as u64);
            let again = Expected { size, mtime };
            let read = read_small(handle.as_fd(), b"f", false, again, &mut buffer).unwrap();
            assert_eq!(&buffer[..read.size], content);
        }
        let too_large = Expected { size: 64, ..before };
        let error = read_small(handle.as_fd(), b"f", false, too_large, &mut buffer).unwrap_err();
        assert!(matches!(error, SourceError::ReadError(_)));
    }

    #[test]
    fn what_is_no_regular_file_is_refused_without_waiting() {
        let dir = tempfile::tempdir().unwrap();
        let handle = File::open(dir.path()).unwrap();
        mknodat(&handle, "pipe", FileType::Fifo, Mode::RWXU, 0).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(dir.path().join("socket")).unwrap();
        fs::create_dir(dir.path().join("directory")).unwrap();
        fs::write(dir.path().join("file"), b"x").unwrap();
        symlink("file", dir.path().join("link")).unwrap();
        let expected = expected(&dir.path().join("file"));
        let mut buffer = [0; 8];
        for name in ["pipe", "socket", "directory", "link"] {
            let error =
                read_small(handle.as_fd(), name.as_bytes(), false, expected, &mut buffer).unwrap_err();
            assert!(matches!(error, SourceError::NotRegular), "{name}: {error:?}");
            let error = SourceFile::open(handle.as_fd(), name.as_bytes(), false, SourceIo::Auto).unwrap_err();
            assert!(matches!(error, SourceError::NotRegular), "{name}: {error:?}");
        }
        assert!(read_small(handle.as_fd(), b"link", true, expected, &mut buffer).is_ok());
        let error = read_small(handle.as_fd(), b"none", false, expected, &mut buffer).unwrap_err();
        assert!(matches!(error, SourceError::Missing));
    }

    #[test]
    fn large_files_are_read_whole_in_every_mode() {
        for place in [DISK, "/dev/shm"] {
            let Ok(dir) = tempfile::tempdir_in(place) else { continue };
            let handle = File::open(dir.path()).unwrap();
            let content = pattern(300_001);
            fs::write(dir.path().join("f"), &content).unwrap();
            drop_from_cache(&dir.path().join("f"));
            for io in [SourceIo::Direct, SourceIo::Auto, SourceIo::Buffered, SourceIo::Auto] {
                let file = SourceFile::open(handle.as_fd(), b"f", false, io).unwrap();
                assert_eq!(file.stamp().size, 300_001);
                let (mut memory, mut whole) = (Vec::new(), Vec::new());
                for offset in (0..content.len()).step_by(65_536) {
                    let buffer = aligned(&mut memory, 65_536);
                    let count = file.read_at(buffer, offset as u64).unwrap();
                    whole.extend_from_slice(&buffer[..count]);
                }
                assert_eq!(whole, content, "{io:?}");
                assert!(file.is_unchanged().unwrap());
                assert_eq!(file.read_at(aligned(&mut memory, 4_096), 327_680).unwrap(), 0);
            }
        }
    }

    #[test]
    fn auto_reads_from_the_page_cache_what_is_there() {
        let dir = tempfile::tempdir_in(DISK).unwrap();
        let handle = File::open(dir.path()).unwrap();
        let path = dir.path().join("f");
        fs::write(&path, pattern(1 << 20)).unwrap();
        let open = || SourceFile::open(handle.as_fd(), b"f", false, SourceIo::Auto).unwrap();
        assert!(!open().is_direct());
        drop_from_cache(&path);
        if !SourceFile::open(handle.as_fd(), b"f", false, SourceIo::Direct).unwrap().is_direct() {
            println!("skipped: no direct I/O on the file system of {DISK}");
            return;
        }
        assert!(open().is_direct());
    }

    #[test]
    fn an_unaligned_direct_read_falls_back_to_the_cache() {
        let dir = tempfile::tempdir_in(DISK).unwrap();
        let handle = File::open(dir.path()).unwrap();
        let content = pattern(10_000);
        fs::write(dir.path().join("f"), &content).unwrap();
        let file = SourceFile::open(handle.as_fd(), b"f", false, SourceIo::Direct).unwrap();
        let mut buffer = vec![0; 9_000];
        assert_eq!(file.read_at(&mut buffer, 3).unwrap(), 9_000);
        assert_eq!(buffer, content[3..9_003]);
    }

    #[test]
    fn holes_are_found_in_large_pieces() {
        let dir = tempfile::tempdir_in(DISK).unwrap();
        let handle = File::open(dir.path()).unwrap();
        let holes = |name: &str, size: u64, data: &[(u64, usize)]| {
            let file = File::create(dir.path().join(name)).unwrap();
            file.set_len(size).unwrap();
            data.iter().for_each(|&(offset, bytes)| file.write_all_at(&pattern(bytes), offset).unwrap());
            let file = SourceFile::open(handle.as_fd(), name.as_bytes(), false, SourceIo::Auto).unwrap();
            file.holes().iter().map(|hole| (hole.offset, hole.len)).collect::<Vec<_>>()
        };
        const M: u64 = 1 << 20;
        let within = |name: &str, from: u64, len: u64| {
            let file = SourceFile::open(handle.as_fd(), name.as_bytes(), false, SourceIo::Auto).unwrap();
            let holes = file.holes_within(ByteRange::new(from, len));
            holes.iter().map(|hole| (hole.offset, hole.len)).collect::<Vec<_>>()
        };
        holes("some", 8 * M + 7, &[(4 * M, 1 << 16)]);
        assert_eq!(within("some", M, M), [(M, M)]);
        assert_eq!(within("some", 3 * M, 2 * M), [(3 * M, M), (4 * M + (1 << 16), M - (1 << 16))]);
        assert_eq!(within("some", 8 * M, 7), [(8 * M, 7)]);
        assert_eq!(within("some", 4 * M, 1 << 16), []);
        assert_eq!(within("some", 0, 0), []);
        assert_eq!(holes("none", 0, &[(0, 1 << 20)]), []);
        assert_eq!(holes("all", M + 7, &[]), [(0, M + 7)]);
        assert_eq!(
            holes("ends", 8 * M, &[(4 * M, 1 << 16)]),
            [(0, 4 * M), (4 * M + (1 << 16), 4 * M - (1 << 16))]
        );
        // Blocks may be larger than what was written, and what is left of a hole is aligned.
        let found = holes("odd", 8 * M + 1, &[(0, 10), (3 * M + 5, 10)]);
        assert_eq!(found.len(), 2);
        assert!(found.iter().all(|(offset, _)| offset % HOLE_ALIGNMENT == 0), "{found:?}");
        assert_eq!(found[1].0 + found[1].1, 8 * M + 1);
        assert_eq!(aligned_hole(1, 2, 10 * M, HOLE_ALIGNMENT).len, 0);
    }

    #[test]
    fn a_small_file_is_told_with_its_holes() {
        let dir = tempfile::tempdir_in(DISK).unwrap();
        let handle = File::open(dir.path()).unwrap();
        const SIZE: u64 = 900 << 10;
        let holes = |name: &str, data: &[(u64, usize)]| {
            let file = File::create(dir.path().join(name)).unwrap();
            file.set_len(SIZE).unwrap();
            data.iter().for_each(|&(offset, bytes)| file.write_all_at(&vec![1; bytes], offset).unwrap());
            let mut buffer = vec![7; SIZE as usize + 1];
            let expected = expected(&dir.path().join(name));
            let read = read_small(handle.as_fd(), name.as_bytes(), false, expected, &mut buffer).unwrap();
            for hole in read.holes.iter() {
                let (start, end) = (hole.offset as usize, hole.end().unwrap() as usize);
                assert!(buffer[start..end].iter().all(|&byte| byte == 0), "{name} {hole:?}");
            }
            read.holes.iter().map(|hole| (hole.offset, hole.len)).collect::<Vec<_>>()
        };
        assert_eq!(holes("none", &[(0, SIZE as usize)]), []);
        if fs::metadata(dir.path().join("none")).unwrap().blocks() * 512 < SIZE {
            println!("skipped: the file system of {DISK} compresses");
            return;
        }
        assert_eq!(holes("all", &[]), [(0, SIZE)]);
        let between = holes("between", &[(0, 10), (SIZE - 10, 10)]);
        assert!(
            between.len() == 1 && between[0].0 >= 4_096 && between[0].1 > SIZE - (256 << 10),
            "{between:?}"
        );
        let many: Vec<_> = (0..225).step_by(2).map(|n| (n * 4_096, 4_096)).collect();
        assert!(holes("many", &many).len() <= SMALL_HOLES_MAX);
    }

    #[test]
    fn a_large_file_that_changes_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let handle = File::open(dir.path()).unwrap();
        let path = dir.path().join("f");
        fs::write(&path, pattern(100_000)).unwrap();
        let writer = File::options().write(true).open(&path).unwrap();
        let file = SourceFile::open(handle.as_fd(), b"f", false, SourceIo::Buffered).unwrap();
        assert!(file.is_unchanged().unwrap());
        writer.write_all_at(b"more", 100_000).unwrap();
        assert!(!file.is_unchanged().unwrap());
        let file = SourceFile::open(handle.as_fd(), b"f", false, SourceIo::Buffered).unwrap();
        writer.set_len(50_000).unwrap();
        let mut buffer = vec![0; 100_000];
        assert_eq!(file.read_at(&mut buffer, 0).unwrap(), 50_000);
        assert!(!file.is_unchanged().unwrap());
    }
}
