//! Further names of files (hard links), which are made after every file has its first name. A file that can't
//! have a further name is copied instead.
//!
//! Memory is bounded: beyond [`SPOOL_BYTES_MAX`] the records go to an unlinked file at the destination. One
//! thread at a time uses a spool.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use carrack_model::{EntryFailure, HardLinkTarget, RelPath, Timestamp};
use rustix::fs::{
    AtFlags, FileType, Gid, Mode, OFlags, Stat, StatxFlags, Uid, XattrFlags, fchmod, fchown, fgetxattr,
    flistxattr, fsetxattr, fstat, futimens, linkat, openat, statat, statx,
};
use rustix::io::Errno;

use crate::directory_spool::nameless_file;
use crate::durable::enforce_size;
use crate::extras_source::{call_with_growing_buffer, loss_reason};
use crate::small_file_placement::{both_times, create_flags};
use crate::status::{is_regular, mtime_of, size_of};
use crate::{
    DestinationTimePrecision, MetadataLossCounter, RootDirectory, ScratchNames, SinkError, sync_all,
};

/// Bytes of the records in memory: about 40,000 names.
const SPOOL_BYTES_MAX: usize = 4 << 20;

/// Bytes of a record's head: length of the directory (2 bytes), of the name (2), of the first name (2),
/// seconds (8), nanoseconds (4), size (8), all in little-endian order. The three strings follow.
const HEAD_BYTES: usize = 26;

const HARD_LINKS: &str = "hard links";

/// Names that wait to be made, see the module's comment.
#[derive(Debug)]
pub struct LinkSpool {
    root: Arc<RootDirectory>,
    checks_times: bool,
    records: Vec<u8>,
    spilled: Option<(File, u64)>,
}

/// The means of making names.
#[derive(Clone, Copy)]
pub struct HardLinkCreationContext<'a> {
    /// Temporary names.
    pub scratch: &'a ScratchNames,
    /// The precision in which the destination stores the time that identifies a first name.
    pub times: &'a DestinationTimePrecision,
    /// Counts names that became copies.
    pub losses: &'a MetadataLossCounter,
    /// Returns true if an operation that a directory's mode denied is worth another try.
    pub grant: &'a dyn Fn(&RelPath) -> bool,
    /// Set if a copy is made durable before its commit.
    pub syncs: bool,
    /// Set if no file failed that may be a first name. Then a first name needs no time if the file system
    /// refused times.
    pub has_all: bool,
}

/// The results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCreationCounts {
    /// Names that were made.
    pub made: u64,
    /// Names that existed already.
    pub present: u64,
}

/// A name and the file that it belongs to.
struct SpooledHardLink {
    directory: RelPath,
    name: Box<[u8]>,
    first: RelPath,
    mtime: Timestamp,
    size: u64,
}

impl LinkSpool {
    /// Collects names beneath `root`.
    pub fn new(root: Arc<RootDirectory>) -> LinkSpool {
        LinkSpool { root, checks_times: true, records: Vec::new(), spilled: None }
    }

    /// Accepts first names that don't get the time of the source.
    pub fn without_times(self) -> LinkSpool {
        LinkSpool { checks_times: false, ..self }
    }

    /// Records that `name` in `directory` is a further name of a file that was last changed at `mtime`.
    ///
    /// # Errors
    /// If the records exceed the memory and can't be written at the destination either.
    pub fn record_link(
        &mut self,
        directory: &RelPath,
        name: &[u8],
        same_as: &HardLinkTarget,
        mtime: Timestamp,
    ) -> Result<(), SinkError> {
        let parts = [directory.as_bytes(), name, same_as.path.as_bytes()];
        for part in parts {
            let length = u16::try_from(part.len()).expect("PATH_BYTES_MAX is 65,535");
            self.records.extend_from_slice(&length.to_le_bytes());
        }
        self.records.extend_from_slice(&mtime.seconds.to_le_bytes());
        self.records.extend_from_slice(&mtime.nanoseconds.to_le_bytes());
        self.records.extend_from_slice(&same_as.size.to_le_bytes());
        parts.iter().for_each(|part| self.records.extend_from_slice(part));
        if self.records.len() > SPOOL_BYTES_MAX { self.spill() } else { Ok(()) }
    }

    fn spill(&mut self) -> Result<(), SinkError> {
        let (file, end) = match &mut self.spilled {
            Some(spilled) => spilled,
            none => none.insert((nameless_file(&self.root)?, 0)),
        };
        // A block follows its length.
        let length = (self.records.len() as u64).to_le_bytes();
        let written =
            file.write_all_at(&length, *end).and_then(|()| file.write_all_at(&self.records, *end + 8));
        written.map_err(|error| SinkError::Write { action: "writing the list of names", error })?;
        *end += 8 + self.records.len() as u64;
        self.records.clear();
        Ok(())
    }

    /// Makes all names and returns their numbers; calls `failed` for each failure. If a directory has a name,
    /// `make_way` is called with the directory that holds it, and returns true if it is gone.
    pub fn finish(
        self,
        ways: &HardLinkCreationContext<'_>,
        make_way: impl FnMut(BorrowedFd<'_>, &RelPath, &[u8]) -> bool,
        failed: impl FnMut(EntryFailure),
    ) -> LinkCreationCounts {
        let LinkSpool { root, checks_times, records, spilled } = self;
        let counts = LinkCreationCounts::default();
        let mut maker = LinkMaker { root: &root, checks_times, ways, make_way, failed, counts };
        let mut read = Ok(());
        if let Some((file, end)) = &spilled {
            read = for_each_block(file, *end, |records| maker.make_all(records));
        }
        maker.make_all(&records);
        if let Err(error) = read {
            let error = SinkError::Write { action: "reading the list of names back", error };
            (maker.failed)(failure(&root, &RelPath::root(), b"", &error));
        }
        maker.counts
    }
}

/// The state of one [`LinkSpool::finish`].
struct LinkMaker<'a, M, F> {
    root: &'a RootDirectory,
    checks_times: bool,
    ways: &'a HardLinkCreationContext<'a>,
    make_way: M,
    failed: F,
    counts: LinkCreationCounts,
}

impl<M, F> LinkMaker<'_, M, F>
where
    M: FnMut(BorrowedFd<'_>, &RelPath, &[u8]) -> bool,
    F: FnMut(EntryFailure),
{
    fn make_all(&mut self, records: &[u8]) {
        let mut rest = records;
        while let Some((link, after)) = first_record(rest) {
            rest = after;
            let made = match self.make(&link) {
                Err(error) if error.is_denied() && (self.ways.grant)(&link.directory) => self.make(&link),
                made => made,
            };
            match made {
                Ok(true) => self.counts.made += 1,
                Ok(false) => self.counts.present += 1,
                Err(error) => (self.failed)(failure(self.root, &link.directory, &link.name, &error)),
            }
        }
    }

    /// Makes a name; returns false if it existed. The first name is checked against the source's size and
    /// time, as its transfer may have failed and an older file may have the name.
    fn make(&mut self, link: &SpooledHardLink) -> Result<bool, SinkError> {
        let (root, ways) = (self.root, self.ways);
        let (parent, first) = link
            .first
            .split_last()
            .ok_or_else(|| SinkError::of_name_call("linking to the first name", Errno::NOENT))?;
        let from = root.enter_directory(&parent).map_err(SinkError::of_directory)?;
        let from = from.as_fd();
        let found = stat_entry(from, first)
            .map_err(|errno| SinkError::of_call("linking to the first name", errno))?;
        let is_file = FileType::from_raw_mode(found.st_mode) == FileType::RegularFile;
        // The status of a file that was just renamed may come from a cache, where gocryptfs has another size.
        let is_found = self.is_expected(link, from, &FirstNameIdentity::of(&found))
            || FirstNameIdentity::read_uncached(from, first)
                .is_ok_and(|found| self.is_expected(link, from, &found));
        if !is_file || !is_found {
            return Err(SinkError::Vanished);
        }
        let into = root.make_directory(&link.directory).map_err(SinkError::of_directory)?;
        let into = into.as_fd();
        let linked = match link_or_replace((from, first, &found), (into, &link.name), ways.scratch)? {
            Err(Errno::ISDIR) if (self.make_way)(into, &link.directory, &link.name) => {
                link_or_replace((from, first, &found), (into, &link.name), ways.scratch)?
            }
            answer => answer,
        };
        match linked {
            Err(errno) if has_no_links(errno) => {
                let copied = copy_first_name((from, first, &found), (into, &link.name), ways)?;
                ways.losses.count_several(HARD_LINKS, &loss_reason(errno));
                Ok(copied)
            }
            linked => linked.map_err(|errno| SinkError::of_name_call("linking", errno)),
        }
    }

    fn is_expected(
        &self,
        link: &SpooledHardLink,
        directory: BorrowedFd<'_>,
        found: &FirstNameIdentity,
    ) -> bool {
        let ways = self.ways;
        found.size == link.size
            && (ways.times.is_stored(link.mtime, found.mtime, directory)
                || !self.checks_times
                || ways.has_all && ways.losses.has_lost_times())
    }
}

fn for_each_block(file: &File, end: u64, mut visit: impl FnMut(&[u8])) -> std::io::Result<()> {
    let (mut at, mut block) = (0, Vec::new());
    while at < end {
        let mut length = [0; 8];
        file.read_exact_at(&mut length, at)?;
        let length = u64::from_le_bytes(length);
        block.resize(length as usize, 0);
        file.read_exact_at(&mut block, at + 8)?;
        visit(&block);
        at += 8 + length;
    }
    Ok(())
}

/// Splits off the first record; none if there is none.
fn first_record(records: &[u8]) -> Option<(SpooledHardLink, &[u8])> {
    let (head, rest) = records.split_first_chunk::<HEAD_BYTES>()?;
    let (directory, rest) = rest.split_at_checked(u16_at(head, 0).into())?;
    let (name, rest) = rest.split_at_checked(u16_at(head, 2).into())?;
    let (first, rest) = rest.split_at_checked(u16_at(head, 4).into())?;
    let nanoseconds = u32::from_le_bytes(head[14..18].try_into().ok()?);
    let link = SpooledHardLink {
        directory: RelPath::new(directory).ok()?,
        name: name.into(),
        first: RelPath::new(first).ok()?,
        mtime: Timestamp { seconds: u64_at(head, 6)? as i64, nanoseconds },
        size: u64_at(head, 18)?,
    };
    Some((link, rest))
}

fn u16_at(head: &[u8; HEAD_BYTES], at: usize) -> u16 {
    u16::from_le_bytes([head[at], head[at + 1]])
}

fn u64_at(head: &[u8; HEAD_BYTES], at: usize) -> Option<u64> {
    head[at..at + 8].try_into().ok().map(u64::from_le_bytes)
}

/// Links a name to a file, in place of another file; the inner result is false if the name existed.
fn link_or_replace(
    (from, first, found): (BorrowedFd<'_>, &[u8], &Stat),
    (into, name): (BorrowedFd<'_>, &[u8]),
    scratch: &ScratchNames,
) -> Result<Result<bool, Errno>, SinkError> {
    match linkat(from, first, into, name, AtFlags::empty()) {
        Err(Errno::EXIST) if is_same(into, name, found) => Ok(Ok(false)),
        Err(Errno::EXIST) => {
            scratch.check_replaced(into, name)?;
            let linked = scratch.create(name, |free| linkat(from, first, into, free, AtFlags::empty()));
            // A rename between two names of one file does nothing. Some file systems report inode numbers
            // that hide it.
            Ok(linked.and_then(|((), made)| made.rename(into, name).map(|()| !made.remove_if_left(into))))
        }
        answer => Ok(answer.map(|()| true)),
    }
}

/// The properties that identify a first name.
struct FirstNameIdentity {
    size: u64,
    mtime: Timestamp,
}

impl FirstNameIdentity {
    fn of(stat: &Stat) -> FirstNameIdentity {
        FirstNameIdentity { size: size_of(stat), mtime: mtime_of(stat) }
    }

    /// Asks the file system itself, past the kernel's cache.
    fn read_uncached(directory: BorrowedFd<'_>, name: &[u8]) -> Result<FirstNameIdentity, Errno> {
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::STATX_FORCE_SYNC;
        let found = statx(directory, name, flags, StatxFlags::BASIC_STATS)?;
        let mtime = found.stx_mtime;
        Ok(FirstNameIdentity {
            size: found.stx_size,
            mtime: Timestamp { seconds: mtime.tv_sec, nanoseconds: mtime.tv_nsec },
        })
    }
}

/// Returns true if a file can't have a further name: the file system has no hard links, the file has the most
/// that it may have, or the name is on another device. Some FUSE programs return `EIO` for missing features;
/// if it comes from the storage, the copy fails, too.
fn has_no_links(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::PERM
            | Errno::ACCESS
            | Errno::INVAL
            | Errno::MLINK
            | Errno::XDEV
            | Errno::OPNOTSUPP
            | Errno::NOSYS
            | Errno::IO
    )
}

/// Copies the contents and metadata of the first name; returns false if the name is such a copy already.
fn copy_first_name(
    (from, first, found): (BorrowedFd<'_>, &[u8], &Stat),
    (into, name): (BorrowedFd<'_>, &[u8]),
    ways: &HardLinkCreationContext<'_>,
) -> Result<bool, SinkError> {
    if stat_entry(into, name).is_ok_and(|own| is_copy(&own, found, into, ways.times)) {
        return Ok(false);
    }
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let mut source = openat(from, first, flags, Mode::empty())
        .map(File::from)
        .map_err(|errno| SinkError::of_name_call("opening the first name", errno))?;
    let (file, temporary) = ways
        .scratch
        .create(name, |free| openat(into, free, create_flags(), Mode::RUSR | Mode::WUSR))
        .map_err(|errno| SinkError::of_name_call("creating", errno))?;
    let mut file = File::from(file);
    let mut filled = copy_file(&mut source, &mut file, found);
    if filled.is_ok() && ways.syncs {
        filled = sync_all(file.as_fd());
    }
    if let Err(error) = filled {
        temporary.remove(into);
        return Err(error);
    }
    temporary.rename(into, name).map_err(|errno| SinkError::of_name_call("renaming", errno))?;
    Ok(true)
}

/// Returns true if size and time are equal, which an earlier run has copied.
fn is_copy(own: &Stat, first: &Stat, directory: BorrowedFd<'_>, times: &DestinationTimePrecision) -> bool {
    is_regular(own)
        && size_of(own) == size_of(first)
        && times.is_stored(mtime_of(first), mtime_of(own), directory)
}

/// Copies contents and metadata. Metadata that can't be set was counted for the first name.
fn copy_file(source: &mut File, file: &mut File, found: &Stat) -> Result<(), SinkError> {
    let copied = io::copy(source, file);
    copied.map_err(|error| match Errno::from_io_error(&error) {
        Some(errno) => SinkError::of_call("copying the first name", errno),
        None => SinkError::Write { action: "copying the first name", error },
    })?;
    enforce_size(file.as_fd(), size_of(found))?;
    let own = fstat(&*file).map_err(|errno| SinkError::of_call("looking at", errno))?;
    let is_owners = (own.st_uid, own.st_gid) == (found.st_uid, found.st_gid)
        || fchown(&*file, Some(Uid::from_raw(found.st_uid)), Some(Gid::from_raw(found.st_gid))).is_ok();
    copy_attributes(source, file);
    let kept = if is_owners { 0o7777 } else { 0o777 };
    let _ = fchmod(&*file, Mode::from_raw_mode(found.st_mode & kept));
    let _ = futimens(&*file, &both_times(mtime_of(found)));
    Ok(())
}

fn copy_attributes(source: &File, file: &File) {
    let Ok(names) = call_with_growing_buffer(|names| flistxattr(source, names)) else { return };
    for name in names.split_inclusive(|&byte| byte == 0).flat_map(CStr::from_bytes_with_nul) {
        if let Ok(value) = call_with_growing_buffer(|value| fgetxattr(source, name, value)) {
            let _ = fsetxattr(file, name, &value, XattrFlags::empty());
        }
    }
}

fn stat_entry(directory: BorrowedFd<'_>, name: &[u8]) -> Result<Stat, Errno> {
    statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)
}

fn is_same(directory: BorrowedFd<'_>, name: &[u8], file: &Stat) -> bool {
    stat_entry(directory, name).is_ok_and(|other| (other.st_dev, other.st_ino) == (file.st_dev, file.st_ino))
}

fn failure(root: &RootDirectory, directory: &RelPath, name: &[u8], error: &SinkError) -> EntryFailure {
    EntryFailure { path: root.full_path(directory, name), kind: error.kind(), detail: error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::MetadataExt;

    fn rel(path: &str) -> RelPath {
        RelPath::new(path.as_bytes()).unwrap()
    }

    fn fixture() -> (tempfile::TempDir, Arc<RootDirectory>, HardLinkTarget, Timestamp) {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("a")).unwrap();
        fs::write(dir.path().join("a/first"), "content").unwrap();
        let found = fs::metadata(dir.path().join("a/first")).unwrap();
        let mtime = Timestamp { seconds: found.mtime(), nanoseconds: found.mtime_nsec() as u32 };
        let root = Arc::new(RootDirectory::open(dir.path()).unwrap());
        (dir, root, HardLinkTarget { path: rel("a/first"), size: 7 }, mtime)
    }

    fn means() -> (ScratchNames, DestinationTimePrecision, MetadataLossCounter) {
        let times = DestinationTimePrecision::new(carrack_model::ModifyWindow::Stored, None);
        (ScratchNames::new(None).unwrap(), times, MetadataLossCounter::default())
    }

    fn made(made: u64) -> LinkCreationCounts {
        LinkCreationCounts { made, present: 0 }
    }

    #[test]
    fn a_name_that_can_be_no_link_is_a_copy_with_the_same_metadata() {
        let (dir, root, _, _) = fixture();
        let (scratch, times, losses) = means();
        let ways = HardLinkCreationContext {
            scratch: &scratch,
            times: &times,
            losses: &losses,
            grant: &|_| false,
            syncs: true,
            has_all: true,
        };
        let first = dir.path().join("a/first");
        fs::set_permissions(&first, std::os::unix::fs::PermissionsExt::from_mode(0o4640)).unwrap();
        let held = root.open_directory(&rel("a")).unwrap();
        let found = stat_entry(held.as_fd(), b"first").unwrap();
        for is_new in [true, false] {
            let copied =
                copy_first_name((held.as_fd(), b"first", &found), (held.as_fd(), b"second"), &ways).unwrap();
            assert_eq!(copied, is_new);
        }
        let second = fs::metadata(dir.path().join("a/second")).unwrap();
        assert_eq!((second.mode() & 0o7777, second.nlink()), (0o4640, 1));
        assert_eq!(second.modified().unwrap(), fs::metadata(&first).unwrap().modified().unwrap());
        assert_eq!(fs::read(dir.path().join("a/second")).unwrap(), b"content");
        assert_eq!(fs::read_dir(dir.path().join("a")).unwrap().count(), 2);
    }

    #[test]
    fn names_are_made_across_directories_over_what_stands_there_and_again() {
        let (dir, root, same_as, mtime) = fixture();
        let (scratch, times, losses) = means();
        let ways = HardLinkCreationContext {
            scratch: &scratch,
            times: &times,
            losses: &losses,
            grant: &|_| false,
            syncs: false,
            has_all: true,
        };
        fs::write(dir.path().join("old"), "something else").unwrap();
        for is_first in [true, false] {
            let mut spool = LinkSpool::new(Arc::clone(&root));
            for (directory, name) in [("", "old"), ("b/c", "new"), ("a", "beside")] {
                spool.record_link(&rel(directory), name.as_bytes(), &same_as, mtime).unwrap();
            }
            let counts = spool.finish(&ways, |_, _, _| false, |failure| panic!("{failure}"));
            assert_eq!(counts, if is_first { made(3) } else { LinkCreationCounts { made: 0, present: 3 } });
            assert_eq!(fs::metadata(dir.path().join("old")).unwrap().nlink(), 4);
        }
        assert_eq!(fs::read(dir.path().join("b/c/new")).unwrap(), b"content");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 3, "nothing temporary stays");
    }

    #[test]
    fn what_is_not_what_the_source_said_is_not_linked_to() {
        let (dir, root, same_as, mtime) = fixture();
        let (scratch, times, losses) = means();
        let ways = HardLinkCreationContext {
            scratch: &scratch,
            times: &times,
            losses: &losses,
            grant: &|_| false,
            syncs: false,
            has_all: true,
        };
        let mut spool = LinkSpool::new(root);
        spool.record_link(&rel(""), b"size", &HardLinkTarget { size: 8, ..same_as.clone() }, mtime).unwrap();
        spool.record_link(&rel(""), b"time", &same_as, Timestamp::default()).unwrap();
        spool
            .record_link(&rel(""), b"gone", &HardLinkTarget { path: rel("none"), ..same_as.clone() }, mtime)
            .unwrap();
        spool.record_link(&rel(""), b"dir", &HardLinkTarget { path: rel("a"), ..same_as }, mtime).unwrap();
        let mut failures = 0;
        assert_eq!(spool.finish(&ways, |_, _, _| false, |_| failures += 1), made(0));
        assert_eq!((failures, fs::read_dir(dir.path()).unwrap().count()), (4, 1));
    }

    #[test]
    fn many_names_spill_and_are_made_all_the_same() {
        let (dir, root, same_as, mtime) = fixture();
        let (scratch, times, losses) = means();
        let ways = HardLinkCreationContext {
            scratch: &scratch,
            times: &times,
            losses: &losses,
            grant: &|_| false,
            syncs: false,
            has_all: true,
        };
        let mut spool = LinkSpool::new(root);
        let mut count = 0;
        // Most of them are the same name, which is accepted when it exists.
        while spool.spilled.as_ref().is_none_or(|(_, end)| *end < 2 * SPOOL_BYTES_MAX as u64)
            || count % 3 != 0
        {
            spool.record_link(&rel(""), format!("{}", count % 100).as_bytes(), &same_as, mtime).unwrap();
            count += 1;
        }
        let counts = spool.finish(&ways, |_, _, _| false, |failure| panic!("{failure}"));
        assert_eq!((counts.made, counts.present), (100, count - 100));
        assert_eq!(fs::metadata(dir.path().join("a/first")).unwrap().nlink(), 101);
    }
}
