//! Placing small files and links at the sink, each under its final name only when it is complete.
//!
//! Payload is written with one call, or one for each part between holes, and the whole file costs five. Owns nothing: directories are the caller's. Any
//! number of threads may place files in the same directory. See [`crate::GrowingFile`] for large files.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::time::SystemTime;

use carrack_model::{ByteRange, Metadata, RangeSet, Timestamp};
use rustix::fs::{
    AtFlags, Mode, OFlags, Timespec, Timestamps, UTIME_OMIT, ftruncate, linkat, openat, statat, symlinkat,
    utimensat,
};
use rustix::io::{Errno, pwrite, write};
use rustix::path::DecInt;

use crate::durable::settle_size;
use crate::extras_sink::{FOLLOWS_LINKS, MODE, TIME, kept};
use crate::link_times::LinkTimes;
use crate::modes::{Owned, SET_IDS, mode_to_create, take_over};
use crate::scratch::Placing;
use crate::{Care, Dress, ScratchNames, SinkError, SyncFirst, holds, sync_whole};

/// Set-user-id, set-group-id and sticky: the kernel may drop them at the creation or at a write.
const SPECIAL_BITS: u32 = 0o7000;

/// Larger writes reach a FUSE or network file system in pieces, which may overtake each other (FUSE's default is the least).
const ONE_REQUEST: usize = 128 << 10;

/// Lets files be created with exactly the mode that is asked for. Call it once, before there are other threads.
///
/// Everything that is created unfinished has mode 0600 or 0700, so nothing becomes more open by it.
pub fn clear_umask() {
    let users = rustix::process::umask(Mode::empty());
    // Only the first call sees it.
    USERS_UMASK.get_or_init(|| users);
}

static USERS_UMASK: OnceLock<Mode> = OnceLock::new();

/// What the user's umask takes from the modes of new entries.
pub fn users_umask() -> u32 {
    // Without a call of `clear_umask` the kernel takes the umask off.
    USERS_UMASK.get().copied().unwrap_or(Mode::empty()).as_raw_mode()
}

/// The mode of a directory that nobody gave one, as mkdir(1) makes it: what the user's umask leaves of 0777.
pub(crate) fn mode_of_new_directory() -> Mode {
    Mode::from_raw_mode(0o777 & !users_umask())
}

/// Places the file `name` with this `content` in `directory`, in place of a file or link that has the name.
///
/// Atomic: other processes see what stood there before, or the complete new file. With [`crate::ModePolicy::perms`] the mode is exact if
/// [`clear_umask`] was called; else a file that is replaced passes its permissions on, and a new one gets those that POSIX gives it.
///
/// # Errors
/// After [`SinkError::Metadata`] the file is in place; after any other error nothing has changed.
pub fn place_small<'a>(
    directory: BorrowedFd<'_>,
    name: &[u8],
    content: impl Into<SmallContent<'a>>,
    dress: impl Into<Dress<'a>>,
    care: Care,
    scratch: &ScratchNames,
) -> Result<(), SinkError> {
    let dress = dress.into();
    let (sync, is_new) = care.sync.for_name(directory, name);
    let care = Care { sync, ..care };
    let created = match dress.policy.perms {
        true => dress.metadata.mode & !SET_IDS,
        false => mode_to_create(directory, dress.metadata.mode),
    };
    let metadata =
        Metadata { mode: if dress.policy.perms { dress.metadata.mode } else { created }, ..*dress.metadata };
    let new = New {
        name,
        content: content.into(),
        dress: Dress { metadata: &metadata, ..dress },
        created: Mode::from_raw_mode(created),
        is_new,
        care,
    };
    if scratch.placing() != Placing::Rename
        && let Some(placed) = place_by_link(directory, &new, scratch)
    {
        return placed;
    }
    let placed = place_by_rename(directory, &new, scratch);
    if matches!(placed, Ok(()) | Err(SinkError::Metadata { .. })) {
        scratch.remember(Placing::Rename);
    }
    placed
}

/// What a small file is to hold.
#[derive(Clone, Copy, Debug)]
pub struct SmallContent<'a> {
    /// All of it, zeros where it has holes.
    pub bytes: &'a [u8],
    /// Where nothing but zeros is and nothing needs to be stored; what holds something else there is written.
    pub holes: Option<&'a RangeSet>,
}

impl<'a, T: AsRef<[u8]> + ?Sized> From<&'a T> for SmallContent<'a> {
    fn from(bytes: &'a T) -> SmallContent<'a> {
        SmallContent { bytes: bytes.as_ref(), holes: None }
    }
}

/// A small file that is to be placed.
#[derive(Clone, Copy)]
struct New<'a> {
    name: &'a [u8],
    content: SmallContent<'a>,
    dress: Dress<'a>,
    /// The mode that it is created with.
    created: Mode,
    /// Whether nothing had the name a moment ago; false where nobody looked.
    is_new: bool,
    care: Care,
}

impl SyncFirst {
    /// Whether the file that is about to get this name has to be durable before; and whether nothing has the name, as far as that
    /// was asked for.
    fn for_name(self, directory: BorrowedFd<'_>, name: &[u8]) -> (SyncFirst, bool) {
        match self {
            SyncFirst::Replacing if statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).is_ok() => {
                (SyncFirst::Always, false)
            }
            SyncFirst::Replacing => (SyncFirst::Never, true),
            sync => (sync, false),
        }
    }
}

/// Nothing if the file system has no nameless files, or no way to name them.
fn place_by_link(
    directory: BorrowedFd<'_>,
    new: &New<'_>,
    scratch: &ScratchNames,
) -> Option<Result<(), SinkError>> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let file = match openat(directory, c".", flags, new.created) {
        Ok(file) => file,
        Err(errno) if is_unsupported(errno) => return None,
        Err(errno) => return Some(Err(SinkError::writing("creating", errno))),
    };
    let (filled, owned) = match fill(file.as_fd(), new) {
        Err(failed @ SinkError::Metadata { .. }) => (Err(failed), Owned::default()),
        Err(failed) => return Some(Err(failed)),
        Ok(owned) => (Ok(()), owned),
    };
    match link(&file, directory, new.name, scratch) {
        Ok(()) => Some(filled),
        Err(Errno::EXIST) => match new.prepare_to_replace(file.as_fd(), directory, owned, scratch) {
            Ok(Prepared::Ready(moded)) => {
                Some(link_over(&file, directory, new.name, scratch).and(filled).and(moded))
            }
            Ok(Prepared::Exceeding(created)) => place_by_link(directory, &New { created, ..*new }, scratch),
            Err(failed) => Some(Err(failed)),
        },
        Err(errno) if is_unsupported(errno) && errno != Errno::ISDIR => None,
        Err(errno) => Some(Err(SinkError::naming("linking", errno))),
    }
}

impl New<'_> {
    /// Before the file replaces what has its name: gives it the permissions of that.
    fn prepare_to_replace(
        &self,
        file: BorrowedFd<'_>,
        directory: BorrowedFd<'_>,
        owned: Owned,
        scratch: &ScratchNames,
    ) -> Result<Prepared, SinkError> {
        const ACTION: &str = "setting the mode";
        scratch.check_replaced(directory, self.name)?;
        if self.dress.policy.perms {
            return Ok(Prepared::Ready(Ok(())));
        }
        let Err(not_taken) = take_over(file, directory, self.name, owned) else {
            return Ok(Prepared::Ready(Ok(())));
        };
        match not_taken.is_exceeded_by(file) {
            false => Ok(Prepared::Ready(kept(self.dress.losses, MODE, ACTION, Err(not_taken.errno)))),
            true if self.created != not_taken.mode => Ok(Prepared::Exceeding(not_taken.mode)),
            true => Err(SinkError::writing(ACTION, not_taken.errno)),
        }
    }
}

/// What became of the permissions of a file that is about to replace another.
enum Prepared {
    /// It has them, or fewer, which is the error or a loss.
    Ready(Result<(), SinkError>),
    /// Its mode allows more and can't be set: the file is to be created once more, with this one.
    Exceeding(Mode),
}

/// What a kernel or file system says that does not know `O_TMPFILE`, or does not let it be linked.
fn is_unsupported(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::OPNOTSUPP
            | Errno::ISDIR
            | Errno::INVAL
            | Errno::NOENT
            | Errno::NOSYS
            | Errno::PERM
            | Errno::ACCESS
            | Errno::XDEV
            | Errno::MLINK
            | Errno::NOTTY
    )
}

/// Names a nameless file, in place of what has the name.
fn link_over(
    file: &OwnedFd,
    directory: BorrowedFd<'_>,
    name: &[u8],
    scratch: &ScratchNames,
) -> Result<(), SinkError> {
    let made = scratch.create(name, |free| link(file, directory, free, scratch));
    let linked = made.and_then(|(_, temporary)| temporary.rename(directory, name));
    linked.map_err(|errno| SinkError::naming("linking", errno))
}

fn link(file: &OwnedFd, directory: BorrowedFd<'_>, name: &[u8], scratch: &ScratchNames) -> Result<(), Errno> {
    if scratch.placing() == Placing::LinkDescriptor {
        match linkat(file, c"", directory, name, AtFlags::EMPTY_PATH) {
            Err(Errno::NOENT | Errno::PERM | Errno::ACCESS | Errno::INVAL) => {}
            answer => return answer,
        }
    }
    let descriptors = scratch.descriptors().ok_or(Errno::NOENT)?;
    let linked = linkat(descriptors, DecInt::from_fd(file), directory, name, AtFlags::SYMLINK_FOLLOW);
    if matches!(linked, Ok(()) | Err(Errno::EXIST)) {
        scratch.remember(Placing::LinkProc);
    }
    linked
}

fn place_by_rename(
    directory: BorrowedFd<'_>,
    new: &New<'_>,
    scratch: &ScratchNames,
) -> Result<(), SinkError> {
    let (file, temporary) = scratch
        .create(new.name, |free| openat(directory, free, create_flags(), new.created))
        .map_err(|errno| SinkError::naming("creating", errno))?;
    let (filled, owned) = match fill(file.as_fd(), new) {
        Err(failed @ SinkError::Metadata { .. }) => (Err(failed), Owned::default()),
        Err(failed) => {
            temporary.remove(directory);
            return Err(failed);
        }
        Ok(owned) => (Ok(()), owned),
    };
    // The rename looks the name up anyway.
    let mut moded = Ok(());
    if !new.is_new {
        match new.prepare_to_replace(file.as_fd(), directory, owned, scratch) {
            Ok(Prepared::Ready(result)) => moded = result,
            Ok(Prepared::Exceeding(created)) => {
                temporary.remove(directory);
                return place_by_rename(directory, &New { created, ..*new }, scratch);
            }
            Err(failed) => {
                temporary.remove(directory);
                return Err(failed);
            }
        }
    }
    temporary.rename(directory, new.name).map_err(|errno| SinkError::naming("renaming", errno))?;
    filled.and(moded)
}

/// Flags that create a file that nobody else has.
pub(crate) fn create_flags() -> OFlags {
    OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC
}

/// Contents, then time, then what of the mode the creation could not give.
fn fill(file: BorrowedFd<'_>, new: &New<'_>) -> Result<Owned, SinkError> {
    let New { content, dress, care, .. } = *new;
    content.write_to(file).map_err(|errno| SinkError::writing("writing", errno))?;
    if content.bytes.len() > ONE_REQUEST {
        settle_size(file, content.bytes.len() as u64)?;
    }
    if care.readback && !holds(file, 0, content.bytes)? {
        return Err(SinkError::Damaged);
    }
    let owned = dress.put_on(file, dress.metadata.mode & SPECIAL_BITS != 0)?;
    let timed = dress.set_time(file, None);
    if care.sync == SyncFirst::Always {
        sync_whole(file)?;
    }
    timed.map(|()| owned)
}

impl SmallContent<'_> {
    /// To an empty file. Where it can't be made longer without being written, holes are written too.
    fn write_to(&self, file: BorrowedFd<'_>) -> Result<(), Errno> {
        let size = self.bytes.len() as u64;
        match self.true_holes() {
            Some(holes) if ftruncate(file, size).is_ok() => {
                holes.gaps(size).try_for_each(|data| write_at(file, self.part(data), data.offset))
            }
            _ => write_all(file, self.bytes),
        }
    }

    /// Holes that the source did not make up.
    fn true_holes(&self) -> Option<RangeSet> {
        let mut holes = RangeSet::new();
        let told = self.holes?.iter().filter(|hole| self.part(*hole).iter().all(|&byte| byte == 0));
        told.for_each(|hole| {
            holes.cover(hole);
        });
        Some(holes).filter(|holes| !holes.is_empty())
    }

    fn part(&self, range: ByteRange) -> &[u8] {
        let (start, end) = (range.offset, range.end().unwrap_or(u64::MAX));
        let within = |at: u64| usize::try_from(at).unwrap_or(usize::MAX).min(self.bytes.len());
        &self.bytes[within(start)..within(end)]
    }
}

fn write_all(file: BorrowedFd<'_>, content: &[u8]) -> Result<(), Errno> {
    write_parts(content, |rest, _| write(file, rest))
}

fn write_at(file: BorrowedFd<'_>, content: &[u8], offset: u64) -> Result<(), Errno> {
    write_parts(content, |rest, done| pwrite(file, rest, offset + done as u64))
}

/// Calls `write` with what is left, and the number of bytes before that.
fn write_parts(
    content: &[u8],
    mut write: impl FnMut(&[u8], usize) -> Result<usize, Errno>,
) -> Result<(), Errno> {
    let mut done = 0;
    while done < content.len() {
        match write(&content[done..], done) {
            Ok(0) => return Err(Errno::IO),
            Ok(count) => done += count,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// The time of last access is left alone.
pub(crate) fn times(mtime: Timestamp) -> Timestamps {
    Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        last_modification: Timespec { tv_sec: mtime.seconds, tv_nsec: mtime.nanoseconds.into() },
    }
}

/// With the time of last access, for file systems that set both or none (libfuse 2 without `utime_omit_ok`).
pub(crate) fn both_times(mtime: Timestamp) -> Timestamps {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamps {
        last_access: Timespec { tv_sec: now.as_secs() as i64, tv_nsec: now.subsec_nanos().into() },
        ..times(mtime)
    }
}

/// Places the symbolic link `name` that points to `target` in `directory`, in place of a file or link of that name.
///
/// # Errors
/// After [`SinkError::Metadata`] the link is in place; after any other error nothing has changed.
pub fn place_symlink<'a>(
    directory: BorrowedFd<'_>,
    name: &[u8],
    target: &[u8],
    dress: impl Into<Dress<'a>>,
    scratch: &ScratchNames,
) -> Result<(), SinkError> {
    let dress = dress.into();
    match symlinkat(target, directory, name) {
        Ok(()) => dress_link(directory, name, dress, scratch),
        Err(Errno::EXIST) => replace_by_symlink(directory, name, target, dress, scratch),
        Err(errno) => Err(SinkError::symlinking(errno)),
    }
}

fn replace_by_symlink(
    directory: BorrowedFd<'_>,
    name: &[u8],
    target: &[u8],
    dress: Dress<'_>,
    scratch: &ScratchNames,
) -> Result<(), SinkError> {
    scratch.check_replaced(directory, name)?;
    let (_, temporary) =
        scratch.create(name, |free| symlinkat(target, directory, free)).map_err(SinkError::symlinking)?;
    let timed = dress_link(directory, temporary.as_bytes(), dress, scratch);
    temporary.rename(directory, name).map_err(|errno| SinkError::naming("renaming", errno))?;
    timed
}

fn dress_link(
    directory: BorrowedFd<'_>,
    name: &[u8],
    dress: Dress<'_>,
    scratch: &ScratchNames,
) -> Result<(), SinkError> {
    if let Some((extras, keeper)) = dress.extras {
        keeper.dress_link(extras, directory, name, scratch);
    }
    if !dress.policy.times {
        return Ok(());
    }
    let way = dress.losses.map_or(LinkTimes::Alone, |losses| losses.link_times(directory, scratch));
    let times = match way {
        LinkTimes::Alone => times(dress.metadata.mtime),
        LinkTimes::Both => both_times(dress.metadata.mtime),
        LinkTimes::Ignored => return Ok(()),
        LinkTimes::Followed => {
            dress.losses.inspect(|losses| losses.count(TIME, FOLLOWS_LINKS));
            return Ok(());
        }
    };
    // File systems that keep no times of links are taken as they are.
    match utimensat(directory, name, &times, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
        set => dress.timed(set),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use carrack_model::{FailureKind, Metadata};
    use std::ffi::OsStr;
    use std::fs::{self, File};
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
    use std::path::Path;

    const METADATA: Metadata =
        Metadata { mode: 0o640, mtime: Timestamp { seconds: 1_234_567_890, nanoseconds: 123_456_789 } };
    const WAYS: [Placing; 3] = [Placing::LinkDescriptor, Placing::LinkProc, Placing::Rename];

    fn names(placing: Placing) -> ScratchNames {
        clear_umask();
        let scratch = ScratchNames::new(None).unwrap();
        scratch.remember(placing);
        scratch
    }

    fn assert_placed(path: &Path, content: &[u8], metadata: &Metadata) {
        let found = fs::symlink_metadata(path).unwrap();
        assert!(found.is_file());
        assert_eq!(found.mode() & 0o7777, metadata.mode & !SET_IDS, "set-ID bits go with the owner");
        assert_eq!(found.mtime(), metadata.mtime.seconds);
        assert_eq!(found.mtime_nsec(), i64::from(metadata.mtime.nanoseconds));
        // Its mode may forbid even its owner to look.
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(fs::read(path).unwrap(), content);
    }

    fn count(dir: &Path) -> usize {
        fs::read_dir(dir).unwrap().count()
    }

    #[test]
    fn every_way_places_any_name_mode_and_time() {
        for way in WAYS {
            let dir = tempfile::tempdir().unwrap();
            let (handle, scratch) = (File::open(dir.path()).unwrap(), names(way));
            let long = [b'n'; 255];
            let contents = [&b""[..], b"x", &[7; 100_000]];
            for (name, content) in [&b"new\nline"[..], b"\xff\xfe", &long].into_iter().zip(contents) {
                for mode in [0o640, 0o4755, 0o2711, 0o7777, 0o000, 0o666] {
                    let metadata = Metadata { mode, ..METADATA };
                    place_small(handle.as_fd(), name, content, &metadata, Care::default(), &scratch).unwrap();
                    assert_placed(&dir.path().join(OsStr::from_bytes(name)), content, &metadata);
                }
            }
            assert_eq!(count(dir.path()), 3, "temporary names are left after {way:?}");
        }
    }

    #[test]
    fn holes_hold_nothing_unless_something_is_in_them() {
        const SIZE: usize = 900 << 10;
        let mut holes = RangeSet::new();
        for (offset, len) in [(4_096, 200 << 10), (400 << 10, (500 << 10))] {
            assert!(holes.insert(ByteRange::new(offset, len)));
        }
        let mut content = vec![7; SIZE];
        holes.iter().for_each(|hole| content[hole.offset as usize..hole.end().unwrap() as usize].fill(0));
        let mut lying = content.clone();
        lying[8_192] = 1;
        for way in WAYS {
            let dir = tempfile::tempdir_in("/var/tmp").unwrap();
            let (handle, scratch) = (File::open(dir.path()).unwrap(), names(way));
            let care = Care { readback: true, ..Care::default() };
            let place = |name: &str, content: SmallContent<'_>| {
                place_small(handle.as_fd(), name.as_bytes(), content, &METADATA, care, &scratch).unwrap();
                let path = dir.path().join(name);
                assert_placed(&path, content.bytes, &METADATA);
                fs::metadata(&path).unwrap().blocks() * 512
            };
            let full = place("full", SmallContent::from(&content));
            let sparse = place("sparse", SmallContent { bytes: &content, holes: Some(&holes) });
            let partly = place("partly", SmallContent { bytes: &lying, holes: Some(&holes) });
            if full >= SIZE as u64 {
                assert!(sparse < 300 << 10 && sparse < partly && partly < 600 << 10, "{sparse} {partly}");
            }
            // Beyond the end, as nobody should tell it.
            let mut beyond = RangeSet::new();
            beyond.cover(ByteRange::new(2, u64::MAX - 2));
            place("beyond", SmallContent { bytes: &[1, 1, 0, 0], holes: Some(&beyond) });
        }
    }

    #[test]
    fn a_file_or_link_is_replaced_and_what_it_led_to_is_left() {
        for way in WAYS {
            let dir = tempfile::tempdir().unwrap();
            let outside = tempfile::tempdir().unwrap();
            let victim = outside.path().join("victim");
            fs::write(&victim, b"precious").unwrap();
            fs::write(dir.path().join("file"), b"old").unwrap();
            let old = File::open(dir.path().join("file")).unwrap();
            symlink(&victim, dir.path().join("link")).unwrap();
            symlink("nowhere", dir.path().join("dangling")).unwrap();
            let (handle, scratch) = (File::open(dir.path()).unwrap(), names(way));
            for name in ["file", "link", "dangling"] {
                place_small(handle.as_fd(), name.as_bytes(), b"new", &METADATA, Care::default(), &scratch)
                    .unwrap();
                assert_placed(&dir.path().join(name), b"new", &METADATA);
            }
            assert_eq!(fs::read(&victim).unwrap(), b"precious");
            assert_eq!(std::io::read_to_string(old).unwrap(), "old", "an open old file keeps its contents");
            assert_eq!(count(dir.path()), 3);
        }
    }

    #[test]
    fn a_directory_is_in_the_way() {
        for way in WAYS {
            let dir = tempfile::tempdir().unwrap();
            fs::create_dir(dir.path().join("d")).unwrap();
            let (handle, scratch) = (File::open(dir.path()).unwrap(), names(way));
            let error =
                place_small(handle.as_fd(), b"d", b"x", &METADATA, Care::default(), &scratch).unwrap_err();
            assert_eq!(error.kind(), FailureKind::InTheWay);
            assert_eq!(scratch.placing(), way, "one failure teaches nothing");
            let error = place_symlink(handle.as_fd(), b"d", b"x", &METADATA, &scratch).unwrap_err();
            assert_eq!(error.kind(), FailureKind::InTheWay);
            assert_eq!(count(dir.path()), 1);
        }
    }

    #[test]
    fn readers_never_see_a_part() {
        for way in WAYS {
            let dir = tempfile::tempdir().unwrap();
            let (handle, scratch) = (File::open(dir.path()).unwrap(), names(way));
            let path = dir.path().join("f");
            let place = |n: usize| {
                let content = vec![n as u8; 20_000];
                place_small(handle.as_fd(), b"f", &content, &METADATA, Care::default(), &scratch).unwrap();
            };
            place(0);
            std::thread::scope(|scope| {
                let writer = scope.spawn(|| (0..200).for_each(place));
                while !writer.is_finished() {
                    let seen = fs::read(&path).unwrap();
                    assert!(seen.len() == 20_000 && seen.iter().all(|&b| b == seen[0]));
                }
            });
        }
    }

    #[test]
    fn what_the_destination_can_not_do_is_found_out_once() {
        // /proc has neither nameless files nor ordinary ones: nothing is learnt from it.
        let handle = File::open("/proc/self").unwrap();
        let scratch = names(Placing::LinkDescriptor);
        let error =
            place_small(handle.as_fd(), b"f", b"x", &METADATA, Care::default(), &scratch).unwrap_err();
        assert_eq!(error.kind(), FailureKind::WriteError);
        assert_eq!(scratch.placing(), Placing::LinkDescriptor);
    }

    #[test]
    fn links_are_placed_with_their_time_and_replace_atomically() {
        let dir = tempfile::tempdir().unwrap();
        let (handle, scratch) = (File::open(dir.path()).unwrap(), names(Placing::LinkDescriptor));
        fs::write(dir.path().join("old"), b"x").unwrap();
        for (name, target) in [("new", &b"../somewhere\xff"[..]), ("old", b"a"), ("old", b"b")] {
            place_symlink(handle.as_fd(), name.as_bytes(), target, &METADATA, &scratch).unwrap();
            let path = dir.path().join(name);
            assert_eq!(fs::read_link(&path).unwrap().as_os_str().as_bytes(), target);
            let found = fs::symlink_metadata(&path).unwrap();
            assert_eq!((found.mtime(), found.mtime_nsec()), (1_234_567_890, 123_456_789));
        }
        assert_eq!(count(dir.path()), 2);
    }

    #[test]
    fn a_bad_time_is_told_and_the_file_is_there() {
        let dir = tempfile::tempdir().unwrap();
        let metadata = Metadata { mtime: Timestamp { seconds: 0, nanoseconds: 2_000_000_000 }, ..METADATA };
        for (n, way) in WAYS.into_iter().enumerate() {
            let (handle, scratch) = (File::open(dir.path()).unwrap(), names(way));
            let name = format!("f{n}");
            let error =
                place_small(handle.as_fd(), name.as_bytes(), b"x", &metadata, Care::default(), &scratch)
                    .unwrap_err();
            assert_eq!(error.kind(), FailureKind::Metadata);
            assert_eq!(fs::read(dir.path().join(name)).unwrap(), b"x");
        }
    }
}
