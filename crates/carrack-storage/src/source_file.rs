//! Reads at the source: a large file in pieces, a small one with four system calls.
//!
//! Owns one descriptor for each [`SourceFile`], which any number of threads may read at once. Never writes,
//! follows a link only on request, and never waits for a pipe that has replaced a file. Each read can be
//! checked against a change of the file.

use std::io::{self, IoSliceMut};
use std::mem;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use carrack_model::limits::RANGES_MAX;
use carrack_model::{ByteRange, Entry, Metadata, RangeSet, SourceReadMethod, Timestamp};
use rustix::fs::{
    Advice, AtFlags, Mode, OFlags, SeekFrom, StatxFlags, fadvise, fcntl_setfl, fstat, openat, seek, statx,
};
use rustix::io::{Errno, ReadWriteFlags, pread, preadv2, read};

use crate::status::{allocated_bytes_of, is_regular, metadata_of, mtime_of, size_of};
use crate::{FileStamp, SourceError};

/// Offset, length and memory of a direct read are multiples of this: no storage in use requires more.
const DIRECT_ALIGNMENT: u64 = 4_096;

/// `STATX_DIOALIGN` (Linux 6.1, include/uapi/linux/stat.h), which rustix does not define yet.
const STATX_DIOALIGN: StatxFlags = StatxFlags::from_bits_retain(0x2000);

/// Granularity of skipped holes: smaller ones would cost more in ranges and requests than their zeros do.
const HOLE_ALIGNMENT: u64 = 64 << 10;

/// The same for small files: the smallest block of most file systems. Their zeros travel, so only storage is
/// saved.
const SMALL_HOLE_ALIGNMENT: u64 = 4 << 10;

/// Bound of the announced holes of one small file: each takes 8 bytes of the bundle.
const SMALL_HOLES_MAX: usize = 128;

/// Bytes of one probe of the page cache, at each of [`PROBES`] places.
const PROBE_BYTES: u64 = 4_096;

/// Probes of the page cache: start, middle and end show a file that was written or read as a whole.
const PROBES: u64 = 3;

/// A regular file that is open for reading at the source.
#[derive(Debug)]
pub struct SourceFile {
    handle: OwnedFd,
    metadata: Metadata,
    stamp: FileStamp,
    /// Bytes that the storage has allocated for it.
    allocated_bytes: u64,
    /// True while reads bypass the page cache; may be cleared by the first read.
    direct: AtomicBool,
}

impl SourceFile {
    /// Opens `name` in `directory`. Follows a link only with `follow`.
    ///
    /// With [`SourceReadMethod::Auto`] a file in the page cache is read from there, and other files bypass
    /// it.
    ///
    /// # Errors
    /// [`SourceError::NotRegular`] for anything but a regular file, else those of `open` and `stat`.
    pub fn open(
        directory: BorrowedFd<'_>,
        name: &[u8],
        follow: bool,
        io: SourceReadMethod,
    ) -> Result<SourceFile, SourceError> {
        let handle = open_to_read(directory, name, follow)?;
        let stat = fstat(&handle).map_err(SourceError::of_call)?;
        if !is_regular(&stat) {
            return Err(SourceError::NotRegular);
        }
        let stamp = FileStamp::of(&stat);
        let direct = wants_direct(handle.as_fd(), stamp.size, io) && enable_direct_io(handle.as_fd());
        if !direct {
            expect_sequential(handle.as_fd());
        }
        let (metadata, direct) = (metadata_of(&stat), AtomicBool::new(direct));
        Ok(SourceFile { handle, metadata, stamp, allocated_bytes: allocated_bytes_of(&stat), direct })
    }

    /// Mode and modification time at the opening.
    pub fn metadata(&self) -> Metadata {
        self.metadata
    }

    /// State at the opening.
    pub fn stamp(&self) -> FileStamp {
        self.stamp
    }

    /// The descriptor, open for reading. Its file offset is unused.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.handle.as_fd()
    }

    /// The holes of 64 KiB or more, bounded by the size of a message. They read as zeros and take no storage.
    /// Asks the file system only if less is allocated than the file's size. Uses the file offset.
    pub fn holes(&self) -> RangeSet {
        self.holes_within(ByteRange::new(0, self.stamp.size))
    }

    /// The parts of these holes that lie in a range.
    pub fn holes_within(&self, range: ByteRange) -> RangeSet {
        if self.allocated_bytes < self.stamp.size {
            holes_of(self.handle.as_fd(), self.stamp.size, range, HOLE_ALIGNMENT, RANGES_MAX)
        } else {
            RangeSet::new()
        }
    }

    /// Returns true while reads bypass the page cache.
    pub fn is_direct(&self) -> bool {
        self.direct.load(Ordering::Relaxed)
    }

    /// Reads at `offset` until `buffer` is full or the file ends; returns the bytes read.
    ///
    /// For direct I/O `buffer` starts on a 4,096-byte boundary and its length is a multiple of that, as is
    /// `offset`. Otherwise, or if the storage requires more, the file is read through the page cache from
    /// then on. If the file has grown, bytes beyond its stamp's size may be read, too.
    ///
    /// # Errors
    /// Those of `pread`.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut done = 0;
        // Once for each read, as several threads may find out at the same time.
        let mut may_leave_direct = true;
        while done < buffer.len() {
            let at = offset + done as u64;
            match pread(&self.handle, &mut buffer[done..], at) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(Errno::INTR) => continue,
                Err(Errno::INVAL) if mem::take(&mut may_leave_direct) && self.disable_direct_io() => continue,
                Err(errno) => return Err(errno.into()),
            }
            if offset + done as u64 >= self.stamp.size {
                break;
            }
        }
        Ok(done)
    }

    /// Returns true if the file is unchanged since its opening.
    ///
    /// # Errors
    /// Those of `fstat`.
    pub fn is_unchanged(&self) -> io::Result<bool> {
        Ok(FileStamp::of(&fstat(&self.handle)?) == self.stamp)
    }

    /// Drops the cached pages of a file that is read through the page cache, so that reads see the storage. A
    /// hint: mapped and dirty pages stay.
    pub fn drop_cached(&self) {
        if !self.is_direct() {
            let _ = fadvise(&self.handle, 0, None, Advice::DontNeed);
        }
    }

    /// Switches to reads through the page cache; returns false if the kernel refuses that.
    fn disable_direct_io(&self) -> bool {
        self.direct.store(false, Ordering::Relaxed);
        expect_sequential(self.handle.as_fd());
        fcntl_setfl(&self.handle, OFlags::empty()).is_ok()
    }
}

/// The holes of an open file of `size` bytes that lie in a range, cut to multiples of `alignment`, at most
/// `count_max`. Uses the file offset.
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
            // The rest is a hole.
            Err(Errno::NXIO) => size,
            // The file system does not report holes, so the rest counts as data.
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

/// The part of a hole that starts and ends on multiples of the alignment, or at the file's end.
fn aligned_hole(from: u64, to: u64, size: u64, alignment: u64) -> ByteRange {
    let from = from.next_multiple_of(alignment);
    let to = if to == size { to } else { to - to % alignment };
    ByteRange::new(from, to.saturating_sub(from))
}

/// The state of a small file as the scan or the last attempt to read it saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScannedFileState {
    /// Size in bytes.
    pub size: u64,
    /// Modification time.
    pub mtime: Timestamp,
}

impl From<&Entry> for ScannedFileState {
    fn from(entry: &Entry) -> ScannedFileState {
        ScannedFileState { size: entry.size(), mtime: entry.metadata.mtime }
    }
}

/// A small file that was read as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SmallFile {
    /// Bytes in the buffer.
    pub size: usize,
    /// Mode and modification time.
    pub metadata: Metadata,
    /// Its inode number.
    pub identity: u64,
    /// The holes of 4 KiB or more, which were read as zeros.
    pub holes: RangeSet,
}

/// Reads the whole small file `name` in `directory` to the start of `buffer`, with four system calls, or with
/// some more if less storage is allocated than its size.
///
/// `buffer` is at least one byte longer than the expected size, which shows if the file has grown. The status
/// is read after the contents: if size and time are still those of the scan, so are the contents.
///
/// # Errors
/// [`SourceError::Changed`] if the file is not as expected: try again with the state in the error.
pub fn read_small(
    directory: BorrowedFd<'_>,
    name: &[u8],
    follow: bool,
    expected: ScannedFileState,
    buffer: &mut [u8],
) -> Result<SmallFile, SourceError> {
    let wanted = usize::try_from(expected.size).ok().and_then(|size| buffer.get_mut(..=size));
    let Some(wanted) = wanted else {
        let detail = "a small file is larger than the buffer for it";
        return Err(SourceError::ReadError(io::Error::new(io::ErrorKind::InvalidInput, detail)));
    };
    let handle = open_to_read(directory, name, follow)?;
    let size = read_until_short(handle.as_fd(), wanted).map_err(SourceError::of_call)?;
    let stat = fstat(&handle).map_err(SourceError::of_call)?;
    let now = ScannedFileState { size: size_of(&stat), mtime: mtime_of(&stat) };
    if !is_regular(&stat) {
        Err(SourceError::NotRegular)
    } else if now != expected || size as u64 != expected.size {
        Err(SourceError::Changed { size: now.size, mtime: now.mtime })
    } else {
        let holes = if allocated_bytes_of(&stat).saturating_add(SMALL_HOLE_ALIGNMENT) <= expected.size {
            holes_of(
                handle.as_fd(),
                expected.size,
                ByteRange::new(0, expected.size),
                SMALL_HOLE_ALIGNMENT,
                SMALL_HOLES_MAX,
            )
        } else {
            RangeSet::new()
        };
        Ok(SmallFile { size, metadata: metadata_of(&stat), identity: stat.st_ino, holes })
    }
}

/// Fills `wanted` except its last byte, with one call if the kernel returns all bytes at once.
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

/// Opens a file. `O_NONBLOCK` keeps the open from waiting for a pipe's writer; regular files ignore it.
fn open_to_read(directory: BorrowedFd<'_>, name: &[u8], follow: bool) -> Result<OwnedFd, SourceError> {
    let mut flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
    flags.set(OFlags::NOFOLLOW, !follow);
    openat(directory, name, flags, Mode::empty()).map_err(SourceError::of_open)
}

fn wants_direct(handle: BorrowedFd<'_>, size: u64, io: SourceReadMethod) -> bool {
    match io {
        SourceReadMethod::Buffered => false,
        SourceReadMethod::Direct => supports_direct_io(handle),
        SourceReadMethod::Auto => size > 0 && !is_cached(handle, size) && supports_direct_io(handle),
    }
}

/// Doubles the kernel's readahead. A hint that file systems may ignore.
fn expect_sequential(handle: BorrowedFd<'_>) {
    let _ = fadvise(handle, 0, None, Advice::Sequential);
}

/// Returns true if the page cache holds the file, or can't tell.
fn is_cached(handle: BorrowedFd<'_>, size: u64) -> bool {
    // Otherwise a probe that misses would start the readahead of a whole window.
    let _ = fadvise(handle, 0, None, Advice::Random);
    let last = size.saturating_sub(1) / PROBE_BYTES;
    (0..PROBES).all(|n| page_is_cached(handle, last * n / (PROBES - 1) * PROBE_BYTES))
}

fn page_is_cached(handle: BorrowedFd<'_>, offset: u64) -> bool {
    let mut page = [0; PROBE_BYTES as usize];
    let answer = preadv2(handle, &mut [IoSliceMut::new(&mut page)], offset, ReadWriteFlags::NOWAIT);
    !matches!(answer, Err(Errno::AGAIN))
}

/// Returns true if the storage accepts direct reads of this program's alignment, as far as it reports.
pub(crate) fn supports_direct_io(handle: BorrowedFd<'_>) -> bool {
    let Ok(found) = statx(handle, c"", AtFlags::EMPTY_PATH, STATX_DIOALIGN) else { return true };
    if found.stx_mask & STATX_DIOALIGN.bits() == 0 {
        return true;
    }
    fits_alignment(found.stx_dio_offset_align) && fits_alignment(found.stx_dio_mem_align)
}

fn fits_alignment(alignment: u32) -> bool {
    (1..=DIRECT_ALIGNMENT).contains(&u64::from(alignment))
}

/// Returns false if the file system has no direct I/O.
fn enable_direct_io(handle: BorrowedFd<'_>) -> bool {
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

    /// Usually not on tmpfs, whose files are always in the page cache.
    const DISK: &str = "/var/tmp";

    fn expected(path: &Path) -> ScannedFileState {
        let stat = rustix::fs::stat(path).unwrap();
        ScannedFileState { size: size_of(&stat), mtime: mtime_of(&stat) }
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
            let again = ScannedFileState { size, mtime };
            let read = read_small(handle.as_fd(), b"f", false, again, &mut buffer).unwrap();
            assert_eq!(&buffer[..read.size], content);
        }
        let too_large = ScannedFileState { size: 64, ..before };
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
            let error =
                SourceFile::open(handle.as_fd(), name.as_bytes(), false, SourceReadMethod::Auto).unwrap_err();
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
            for io in [
                SourceReadMethod::Direct,
                SourceReadMethod::Auto,
                SourceReadMethod::Buffered,
                SourceReadMethod::Auto,
            ] {
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
        fn is_direct(directory: &File, io: SourceReadMethod) -> bool {
            SourceFile::open(directory.as_fd(), b"f", false, io).unwrap().is_direct()
        }
        assert!(!is_direct(&handle, SourceReadMethod::Auto));
        drop_from_cache(&path);
        if !is_direct(&handle, SourceReadMethod::Direct) {
            println!("skipped: no direct I/O on the file system of {DISK}");
            return;
        }
        assert!(is_direct(&handle, SourceReadMethod::Auto));
    }

    #[test]
    fn an_unaligned_direct_read_falls_back_to_the_cache() {
        let dir = tempfile::tempdir_in(DISK).unwrap();
        let handle = File::open(dir.path()).unwrap();
        let content = pattern(10_000);
        fs::write(dir.path().join("f"), &content).unwrap();
        let file = SourceFile::open(handle.as_fd(), b"f", false, SourceReadMethod::Direct).unwrap();
        let mut buffer = vec![0; 9_000];
        assert_eq!(file.read_at(&mut buffer, 3).unwrap(), 9_000);
        assert_eq!(buffer, content[3..9_003]);
    }

    #[test]
    fn holes_are_found_in_large_pieces() {
        fn pairs(holes: &RangeSet) -> Vec<(u64, u64)> {
            holes.iter().map(|hole| (hole.offset, hole.len)).collect()
        }
        fn open(dir: &Path, name: &str) -> SourceFile {
            let directory = File::open(dir).unwrap();
            SourceFile::open(directory.as_fd(), name.as_bytes(), false, SourceReadMethod::Auto).unwrap()
        }
        fn holes(dir: &Path, name: &str, size: u64, data: &[(u64, usize)]) -> Vec<(u64, u64)> {
            let file = File::create(dir.join(name)).unwrap();
            file.set_len(size).unwrap();
            data.iter().for_each(|&(offset, bytes)| file.write_all_at(&pattern(bytes), offset).unwrap());
            pairs(&open(dir, name).holes())
        }
        const M: u64 = 1 << 20;
        let dir = tempfile::tempdir_in(DISK).unwrap();
        let dir = dir.path();
        holes(dir, "some", 8 * M + 7, &[(4 * M, 1 << 16)]);
        for (from, len, expected) in [
            (M, M, &[(M, M)][..]),
            (3 * M, 2 * M, &[(3 * M, M), (4 * M + (1 << 16), M - (1 << 16))]),
            (8 * M, 7, &[(8 * M, 7)]),
            (4 * M, 1 << 16, &[]),
            (0, 0, &[]),
        ] {
            assert_eq!(pairs(&open(dir, "some").holes_within(ByteRange::new(from, len))), expected);
        }
        assert_eq!(holes(dir, "none", 0, &[(0, 1 << 20)]), []);
        assert_eq!(holes(dir, "all", M + 7, &[]), [(0, M + 7)]);
        assert_eq!(
            holes(dir, "ends", 8 * M, &[(4 * M, 1 << 16)]),
            [(0, 4 * M), (4 * M + (1 << 16), 4 * M - (1 << 16))]
        );
        // Blocks may be larger than the data, and the remaining hole is aligned.
        let found = holes(dir, "odd", 8 * M + 1, &[(0, 10), (3 * M + 5, 10)]);
        assert_eq!(found.len(), 2);
        assert!(found.iter().all(|(offset, _)| offset % HOLE_ALIGNMENT == 0), "{found:?}");
        assert_eq!(found[1].0 + found[1].1, 8 * M + 1);
        assert_eq!(aligned_hole(1, 2, 10 * M, HOLE_ALIGNMENT).len, 0);
    }

    #[test]
    fn a_small_file_is_told_with_its_holes() {
        const SIZE: u64 = 900 << 10;
        fn holes(dir: &Path, name: &str, data: &[(u64, usize)]) -> Vec<(u64, u64)> {
            let file = File::create(dir.join(name)).unwrap();
            file.set_len(SIZE).unwrap();
            data.iter().for_each(|&(offset, bytes)| file.write_all_at(&vec![1; bytes], offset).unwrap());
            let mut buffer = vec![7; SIZE as usize + 1];
            let (expected, directory) = (expected(&dir.join(name)), File::open(dir).unwrap());
            let read = read_small(directory.as_fd(), name.as_bytes(), false, expected, &mut buffer).unwrap();
            for hole in read.holes.iter() {
                let (start, end) = (hole.offset as usize, hole.end().unwrap() as usize);
                assert!(buffer[start..end].iter().all(|&byte| byte == 0), "{name} {hole:?}");
            }
            read.holes.iter().map(|hole| (hole.offset, hole.len)).collect()
        }
        let dir = tempfile::tempdir_in(DISK).unwrap();
        let dir = dir.path();
        assert_eq!(holes(dir, "none", &[(0, SIZE as usize)]), []);
        if fs::metadata(dir.join("none")).unwrap().blocks() * 512 < SIZE {
            println!("skipped: the file system of {DISK} compresses");
            return;
        }
        assert_eq!(holes(dir, "all", &[]), [(0, SIZE)]);
        let between = holes(dir, "between", &[(0, 10), (SIZE - 10, 10)]);
        assert!(
            between.len() == 1 && between[0].0 >= 4_096 && between[0].1 > SIZE - (256 << 10),
            "{between:?}"
        );
        let many: Vec<_> = (0..225).step_by(2).map(|n| (n * 4_096, 4_096)).collect();
        assert!(holes(dir, "many", &many).len() <= SMALL_HOLES_MAX);
    }

    #[test]
    fn a_large_file_that_changes_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let handle = File::open(dir.path()).unwrap();
        let path = dir.path().join("f");
        fs::write(&path, pattern(100_000)).unwrap();
        let writer = File::options().write(true).open(&path).unwrap();
        let file = SourceFile::open(handle.as_fd(), b"f", false, SourceReadMethod::Buffered).unwrap();
        assert!(file.is_unchanged().unwrap());
        writer.write_all_at(b"more", 100_000).unwrap();
        assert!(!file.is_unchanged().unwrap());
        let file = SourceFile::open(handle.as_fd(), b"f", false, SourceReadMethod::Buffered).unwrap();
        writer.set_len(50_000).unwrap();
        let mut buffer = vec![0; 100_000];
        assert_eq!(file.read_at(&mut buffer, 0).unwrap(), 50_000);
        assert!(!file.is_unchanged().unwrap());
    }
}
