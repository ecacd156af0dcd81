//! Placing small files and links at the sink, each under its final name only when it is complete.
//!
//! Payload is written with one call, or with one for each part between holes; a file takes five calls. Owns
//! nothing: the caller owns the directories. Any number of threads may place files in the same directory. See
//! [`crate::UncommittedFile`] for large files.

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

use crate::attribute_writer::{FOLLOWS_LINKS, MODE, TIME, count_refusal};
use crate::durable::enforce_size;
use crate::link_time_support::LinkTimeSupport;
use crate::modes::{RequestedOwner, SET_IDS, mode_to_create, take_over_permissions};
use crate::temporary_names::FinalNameMethod;
use crate::{
    CommitCare, FsyncBeforeCommit, MetadataToSet, ScratchNames, SinkError, readback_matches, sync_all,
};

/// Set-user-ID, set-group-ID and sticky bit, which the kernel may clear at the creation or at a write.
const SPECIAL_BITS: u32 = 0o7000;

/// Larger writes reach a FUSE or network file system as several requests, in any order (FUSE's default is the
/// smallest).
const ONE_REQUEST: usize = 128 << 10;

/// Lets files be created with exactly the requested mode. Call it once, before other threads start.
///
/// Unfinished entries are created with mode 0600 or 0700, so this exposes nothing.
pub fn clear_umask() {
    // Later calls would return the umask that the first one has set.
    USERS_UMASK.get_or_init(|| rustix::process::umask(Mode::empty()));
}

static USERS_UMASK: OnceLock<Mode> = OnceLock::new();

/// The bits that the user's umask clears in the modes of new entries.
pub fn users_umask() -> u32 {
    // Without a call of `clear_umask` the kernel applies the umask.
    USERS_UMASK.get().copied().unwrap_or(Mode::empty()).as_raw_mode()
}

/// The mode of a directory without one from the source, as mkdir(1) makes it: 0777 less the user's umask.
pub(crate) fn mode_of_new_directory() -> Mode {
    Mode::from_raw_mode(0o777 & !users_umask())
}

/// Places the file `name` with this `content` in `directory`, in place of a file or link that has the name.
///
/// Atomic: other processes see the former entry or the complete new file. With [`crate::ModePolicy::perms`]
/// the mode is exact if [`clear_umask`] was called. Otherwise a replaced file passes its permissions on, and
/// a new file gets those of POSIX.
///
/// # Errors
/// After [`SinkError::Metadata`] the file is in place; after any other error nothing has changed.
pub fn place_small<'a>(
    directory: BorrowedFd<'_>,
    name: &[u8],
    content: impl Into<SmallContent<'a>>,
    dress: impl Into<MetadataToSet<'a>>,
    care: CommitCare,
    scratch: &ScratchNames,
) -> Result<(), SinkError> {
    let dress = dress.into();
    let (sync, is_new) = care.sync.for_name(directory, name);
    let care = CommitCare { sync, ..care };
    let created = if dress.policy.perms {
        dress.metadata.mode & !SET_IDS
    } else {
        mode_to_create(directory, dress.metadata.mode)
    };
    let metadata =
        Metadata { mode: if dress.policy.perms { dress.metadata.mode } else { created }, ..*dress.metadata };
    let new = NewSmallFile {
        name,
        content: content.into(),
        dress: MetadataToSet { metadata: &metadata, ..dress },
        created: Mode::from_raw_mode(created),
        is_new,
        care,
    };
    if scratch.final_name_method() != FinalNameMethod::Rename
        && let Some(placed) = place_by_link(directory, &new, scratch)
    {
        return placed;
    }
    let placed = place_by_rename(directory, &new, scratch);
    if matches!(placed, Ok(()) | Err(SinkError::Metadata { .. })) {
        scratch.record_final_name_method(FinalNameMethod::Rename);
    }
    placed
}

/// The contents of a small file.
#[derive(Clone, Copy, Debug)]
pub struct SmallContent<'a> {
    /// The whole contents, with zeros in holes.
    pub bytes: &'a [u8],
    /// Ranges of zeros that need no storage. A range with other bytes is written.
    pub holes: Option<&'a RangeSet>,
}

impl<'a, T: AsRef<[u8]> + ?Sized> From<&'a T> for SmallContent<'a> {
    fn from(bytes: &'a T) -> SmallContent<'a> {
        SmallContent { bytes: bytes.as_ref(), holes: None }
    }
}

/// A small file before it is placed.
#[derive(Clone, Copy)]
struct NewSmallFile<'a> {
    name: &'a [u8],
    content: SmallContent<'a>,
    dress: MetadataToSet<'a>,
    /// The mode of its creation.
    created: Mode,
    /// True if no entry had the name a moment ago; false if that was not checked.
    is_new: bool,
    care: CommitCare,
}

impl FsyncBeforeCommit {
    /// Resolves [`FsyncBeforeCommit::Replacing`] for this name. Also returns true if no entry has the name,
    /// as far as that was checked.
    fn for_name(self, directory: BorrowedFd<'_>, name: &[u8]) -> (FsyncBeforeCommit, bool) {
        match self {
            FsyncBeforeCommit::Replacing if statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).is_ok() => {
                (FsyncBeforeCommit::Always, false)
            }
            FsyncBeforeCommit::Replacing => (FsyncBeforeCommit::Never, true),
            sync => (sync, false),
        }
    }
}

/// Places a file by linking it. Returns none if the file system has no nameless files, or can't link them.
fn place_by_link(
    directory: BorrowedFd<'_>,
    new: &NewSmallFile<'_>,
    scratch: &ScratchNames,
) -> Option<Result<(), SinkError>> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let file = match openat(directory, c".", flags, new.created) {
        Ok(file) => file,
        Err(errno) if is_unsupported(errno) => return None,
        Err(errno) => return Some(Err(SinkError::of_call("creating", errno))),
    };
    let (filled, owned) = match write_file(file.as_fd(), new) {
        Err(failed @ SinkError::Metadata { .. }) => (Err(failed), RequestedOwner::default()),
        Err(failed) => return Some(Err(failed)),
        Ok(owned) => (Ok(()), owned),
    };
    match link(&file, directory, new.name, scratch) {
        Ok(()) => Some(filled),
        Err(Errno::EXIST) => match new.prepare_to_replace(file.as_fd(), directory, owned, scratch) {
            Ok(ReplacementPermissions::Ready(moded)) => {
                Some(link_and_replace(&file, directory, new.name, scratch).and(filled).and(moded))
            }
            Ok(ReplacementPermissions::Exceeding(created)) => {
                place_by_link(directory, &NewSmallFile { created, ..*new }, scratch)
            }
            Err(failed) => Some(Err(failed)),
        },
        Err(errno) if is_unsupported(errno) && errno != Errno::ISDIR => None,
        Err(errno) => Some(Err(SinkError::of_name_call("linking", errno))),
    }
}

impl NewSmallFile<'_> {
    /// Gives the file the permissions of the entry that it is about to replace.
    fn prepare_to_replace(
        &self,
        file: BorrowedFd<'_>,
        directory: BorrowedFd<'_>,
        owned: RequestedOwner,
        scratch: &ScratchNames,
    ) -> Result<ReplacementPermissions, SinkError> {
        const ACTION: &str = "setting the mode";
        scratch.check_replaced(directory, self.name)?;
        if self.dress.policy.perms {
            return Ok(ReplacementPermissions::Ready(Ok(())));
        }
        let Err(not_taken) = take_over_permissions(file, directory, self.name, owned) else {
            return Ok(ReplacementPermissions::Ready(Ok(())));
        };
        if !not_taken.is_exceeded_by(file) {
            return Ok(ReplacementPermissions::Ready(count_refusal(
                self.dress.losses,
                MODE,
                ACTION,
                Err(not_taken.errno),
            )));
        }
        if self.created == not_taken.mode {
            return Err(SinkError::of_call(ACTION, not_taken.errno));
        }
        Ok(ReplacementPermissions::Exceeding(not_taken.mode))
    }
}

/// The permissions of a file that is about to replace another file.
enum ReplacementPermissions {
    /// They are right, or fewer, which is the error or a loss.
    Ready(Result<(), SinkError>),
    /// They exceed the requested mode and can't be set: the file is created again, with this mode.
    Exceeding(Mode),
}

/// Returns true for errors of kernels and file systems that lack `O_TMPFILE` or don't link such a file.
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

/// Links a nameless file, replacing the entry of that name.
fn link_and_replace(
    file: &OwnedFd,
    directory: BorrowedFd<'_>,
    name: &[u8],
    scratch: &ScratchNames,
) -> Result<(), SinkError> {
    let made = scratch.create(name, |free| link(file, directory, free, scratch));
    let linked = made.and_then(|(_, temporary)| temporary.rename(directory, name));
    linked.map_err(|errno| SinkError::of_name_call("linking", errno))
}

fn link(file: &OwnedFd, directory: BorrowedFd<'_>, name: &[u8], scratch: &ScratchNames) -> Result<(), Errno> {
    if scratch.final_name_method() == FinalNameMethod::LinkDescriptor {
        match linkat(file, c"", directory, name, AtFlags::EMPTY_PATH) {
            Err(Errno::NOENT | Errno::PERM | Errno::ACCESS | Errno::INVAL) => {}
            answer => return answer,
        }
    }
    let descriptors = scratch.descriptors().ok_or(Errno::NOENT)?;
    let linked = linkat(descriptors, DecInt::from_fd(file), directory, name, AtFlags::SYMLINK_FOLLOW);
    if matches!(linked, Ok(()) | Err(Errno::EXIST)) {
        scratch.record_final_name_method(FinalNameMethod::LinkProc);
    }
    linked
}

fn place_by_rename(
    directory: BorrowedFd<'_>,
    new: &NewSmallFile<'_>,
    scratch: &ScratchNames,
) -> Result<(), SinkError> {
    let (file, temporary) = scratch
        .create(new.name, |free| openat(directory, free, create_flags(), new.created))
        .map_err(|errno| SinkError::of_name_call("creating", errno))?;
    let (filled, owned) = match write_file(file.as_fd(), new) {
        Err(failed @ SinkError::Metadata { .. }) => (Err(failed), RequestedOwner::default()),
        Err(failed) => {
            temporary.remove(directory);
            return Err(failed);
        }
        Ok(owned) => (Ok(()), owned),
    };
    // For a new name, the rename is the only lookup.
    let mut moded = Ok(());
    if !new.is_new {
        match new.prepare_to_replace(file.as_fd(), directory, owned, scratch) {
            Ok(ReplacementPermissions::Ready(result)) => moded = result,
            Ok(ReplacementPermissions::Exceeding(created)) => {
                temporary.remove(directory);
                return place_by_rename(directory, &NewSmallFile { created, ..*new }, scratch);
            }
            Err(failed) => {
                temporary.remove(directory);
                return Err(failed);
            }
        }
    }
    temporary.rename(directory, new.name).map_err(|errno| SinkError::of_name_call("renaming", errno))?;
    filled.and(moded)
}

/// Flags that create a file, and fail if it exists.
pub(crate) fn create_flags() -> OFlags {
    OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC
}

/// Writes the contents, then sets the time, then the mode bits that the creation could not set.
fn write_file(file: BorrowedFd<'_>, new: &NewSmallFile<'_>) -> Result<RequestedOwner, SinkError> {
    let NewSmallFile { content, dress, care, .. } = *new;
    content.write_to(file).map_err(|errno| SinkError::of_call("writing", errno))?;
    if content.bytes.len() > ONE_REQUEST {
        enforce_size(file, content.bytes.len() as u64)?;
    }
    if care.readback && !readback_matches(file, 0, content.bytes)? {
        return Err(SinkError::Damaged);
    }
    let owned = dress.apply_to(file, dress.metadata.mode & SPECIAL_BITS != 0)?;
    let timed = dress.set_time(file, None);
    if care.sync == FsyncBeforeCommit::Always {
        sync_all(file)?;
    }
    timed.map(|()| owned)
}

impl SmallContent<'_> {
    /// Writes to an empty file. Holes are written, too, if the file can't be extended.
    fn write_to(&self, file: BorrowedFd<'_>) -> Result<(), Errno> {
        let size = self.bytes.len() as u64;
        match self.zero_holes() {
            Some(holes) if ftruncate(file, size).is_ok() => {
                holes.gaps(size).try_for_each(|data| write_at(file, self.part(data), data.offset))
            }
            _ => write_all(file, self.bytes),
        }
    }

    /// The holes that contain only zeros.
    fn zero_holes(&self) -> Option<RangeSet> {
        let mut holes = RangeSet::new();
        let told = self.holes?.iter().filter(|hole| self.part(*hole).iter().all(|&byte| byte == 0));
        told.for_each(|hole| {
            holes.cover(hole);
        });
        Some(holes).filter(|holes| !holes.is_empty())
    }

    fn part(&self, range: ByteRange) -> &[u8] {
        let (start, end) = (range.offset, range.end().unwrap_or(u64::MAX));
        &self.bytes[self.index_of(start)..self.index_of(end)]
    }

    fn index_of(&self, offset: u64) -> usize {
        usize::try_from(offset).unwrap_or(usize::MAX).min(self.bytes.len())
    }
}

fn write_all(file: BorrowedFd<'_>, content: &[u8]) -> Result<(), Errno> {
    write_parts(content, |rest, _| write(file, rest))
}

fn write_at(file: BorrowedFd<'_>, content: &[u8], offset: u64) -> Result<(), Errno> {
    write_parts(content, |rest, done| pwrite(file, rest, offset + done as u64))
}

/// Calls `write` with the rest of the contents and the number of bytes before it.
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

/// A modification time; the access time stays.
pub(crate) fn times(mtime: Timestamp) -> Timestamps {
    Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        last_modification: Timespec { tv_sec: mtime.seconds, tv_nsec: mtime.nanoseconds.into() },
    }
}

/// The same with the access time, for file systems that set both or none (libfuse 2 without `utime_omit_ok`).
pub(crate) fn both_times(mtime: Timestamp) -> Timestamps {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamps {
        last_access: Timespec { tv_sec: now.as_secs() as i64, tv_nsec: now.subsec_nanos().into() },
        ..times(mtime)
    }
}

/// Places the symbolic link `name` that points to `target` in `directory`, in place of a file or link of that
/// name.
///
/// # Errors
/// After [`SinkError::Metadata`] the link is in place; after any other error nothing has changed.
pub fn place_symlink<'a>(
    directory: BorrowedFd<'_>,
    name: &[u8],
    target: &[u8],
    dress: impl Into<MetadataToSet<'a>>,
    scratch: &ScratchNames,
) -> Result<(), SinkError> {
    let dress = dress.into();
    match symlinkat(target, directory, name) {
        Ok(()) => set_link_metadata(directory, name, dress, scratch),
        Err(Errno::EXIST) => replace_by_symlink(directory, name, target, dress, scratch),
        Err(errno) => Err(SinkError::of_symlink_call(errno)),
    }
}

fn replace_by_symlink(
    directory: BorrowedFd<'_>,
    name: &[u8],
    target: &[u8],
    dress: MetadataToSet<'_>,
    scratch: &ScratchNames,
) -> Result<(), SinkError> {
    scratch.check_replaced(directory, name)?;
    let (_, temporary) = scratch
        .create(name, |free| symlinkat(target, directory, free))
        .map_err(SinkError::of_symlink_call)?;
    let timed = set_link_metadata(directory, temporary.as_bytes(), dress, scratch);
    temporary.rename(directory, name).map_err(|errno| SinkError::of_name_call("renaming", errno))?;
    timed
}

fn set_link_metadata(
    directory: BorrowedFd<'_>,
    name: &[u8],
    dress: MetadataToSet<'_>,
    scratch: &ScratchNames,
) -> Result<(), SinkError> {
    if let Some((extras, keeper)) = dress.extras {
        keeper.set_link_attributes(extras, directory, name, scratch);
    }
    if !dress.policy.times {
        return Ok(());
    }
    let way = dress.losses.map_or(LinkTimeSupport::Alone, |losses| losses.link_times(directory, scratch));
    let times = match way {
        LinkTimeSupport::Alone => times(dress.metadata.mtime),
        LinkTimeSupport::Both => both_times(dress.metadata.mtime),
        LinkTimeSupport::Ignored => return Ok(()),
        LinkTimeSupport::Followed => {
            dress.losses.inspect(|losses| losses.count(TIME, FOLLOWS_LINKS));
            return Ok(());
        }
    };
    // A file system that keeps no times of links is no failure.
    match utimensat(directory, name, &times, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
        set => dress.count_time_refusal(set),
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
    const WAYS: [FinalNameMethod; 3] =
        [FinalNameMethod::LinkDescriptor, FinalNameMethod::LinkProc, FinalNameMethod::Rename];

    fn names(placing: FinalNameMethod) -> ScratchNames {
        clear_umask();
        let scratch = ScratchNames::new(None).unwrap();
        scratch.record_final_name_method(placing);
        scratch
    }

    fn assert_placed(path: &Path, content: &[u8], metadata: &Metadata) {
        let found = fs::symlink_metadata(path).unwrap();
        assert!(found.is_file());
        assert_eq!(found.mode() & 0o7777, metadata.mode & !SET_IDS, "set-ID bits go with the owner");
        assert_eq!(found.mtime(), metadata.mtime.seconds);
        assert_eq!(found.mtime_nsec(), i64::from(metadata.mtime.nanoseconds));
        // The mode may deny even its owner to read the file.
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
                    place_small(handle.as_fd(), name, content, &metadata, CommitCare::default(), &scratch)
                        .unwrap();
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
        fn place(dir: &Path, way: FinalNameMethod, name: &str, content: SmallContent<'_>) -> u64 {
            let care = CommitCare { readback: true, ..CommitCare::default() };
            let held = File::open(dir).unwrap();
            place_small(held.as_fd(), name.as_bytes(), content, &METADATA, care, &names(way)).unwrap();
            let path = dir.join(name);
            assert_placed(&path, content.bytes, &METADATA);
            fs::metadata(&path).unwrap().blocks() * 512
        }
        for way in WAYS {
            let dir = tempfile::tempdir_in("/var/tmp").unwrap();
            let dir = dir.path();
            let full = place(dir, way, "full", SmallContent::from(&content));
            let sparse = place(dir, way, "sparse", SmallContent { bytes: &content, holes: Some(&holes) });
            let partly = place(dir, way, "partly", SmallContent { bytes: &lying, holes: Some(&holes) });
            if full >= SIZE as u64 {
                assert!(sparse < 300 << 10 && sparse < partly && partly < 600 << 10, "{sparse} {partly}");
            }
            // A range beyond the end, which no correct peer sends.
            let mut beyond = RangeSet::new();
            beyond.cover(ByteRange::new(2, u64::MAX - 2));
            place(dir, way, "beyond", SmallContent { bytes: &[1, 1, 0, 0], holes: Some(&beyond) });
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
                place_small(
                    handle.as_fd(),
                    name.as_bytes(),
                    b"new",
                    &METADATA,
                    CommitCare::default(),
                    &scratch,
                )
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
            let error = place_small(handle.as_fd(), b"d", b"x", &METADATA, CommitCare::default(), &scratch)
                .unwrap_err();
            assert_eq!(error.kind(), FailureKind::InTheWay);
            assert_eq!(scratch.final_name_method(), way, "one failure teaches nothing");
            let error = place_symlink(handle.as_fd(), b"d", b"x", &METADATA, &scratch).unwrap_err();
            assert_eq!(error.kind(), FailureKind::InTheWay);
            assert_eq!(count(dir.path()), 1);
        }
    }

    #[test]
    fn readers_never_see_a_part() {
        fn place(directory: &File, scratch: &ScratchNames, n: usize) {
            let content = vec![n as u8; 20_000];
            place_small(directory.as_fd(), b"f", &content, &METADATA, CommitCare::default(), scratch)
                .unwrap();
        }
        for way in WAYS {
            let dir = tempfile::tempdir().unwrap();
            let (handle, scratch) = (File::open(dir.path()).unwrap(), names(way));
            let path = dir.path().join("f");
            place(&handle, &scratch, 0);
            std::thread::scope(|scope| {
                let writer = scope.spawn(|| (0..200).for_each(|n| place(&handle, &scratch, n)));
                while !writer.is_finished() {
                    let seen = fs::read(&path).unwrap();
                    assert!(seen.len() == 20_000 && seen.iter().all(|&b| b == seen[0]));
                }
            });
        }
    }

    #[test]
    fn what_the_destination_can_not_do_is_found_out_once() {
        // /proc supports neither nameless files nor ordinary ones, so the failure shows no property of a file
        // system.
        let handle = File::open("/proc/self").unwrap();
        let scratch = names(FinalNameMethod::LinkDescriptor);
        let error =
            place_small(handle.as_fd(), b"f", b"x", &METADATA, CommitCare::default(), &scratch).unwrap_err();
        assert_eq!(error.kind(), FailureKind::WriteError);
        assert_eq!(scratch.final_name_method(), FinalNameMethod::LinkDescriptor);
    }

    #[test]
    fn links_are_placed_with_their_time_and_replace_atomically() {
        let dir = tempfile::tempdir().unwrap();
        let (handle, scratch) = (File::open(dir.path()).unwrap(), names(FinalNameMethod::LinkDescriptor));
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
            let error = place_small(
                handle.as_fd(),
                name.as_bytes(),
                b"x",
                &metadata,
                CommitCare::default(),
                &scratch,
            )
            .unwrap_err();
            assert_eq!(error.kind(), FailureKind::Metadata);
            assert_eq!(fs::read(dir.path().join(name)).unwrap(), b"x");
        }
    }
}
