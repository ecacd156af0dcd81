//! Directories whose mode and times are set at the end of the transfer, after the last entry was created in
//! them.
//!
//! Memory is bounded: beyond [`SPOOL_BYTES_MAX`] the records go to an unlinked file at the destination. One
//! thread at a time uses a spool.
//!
//! Records are read back last first, so children mostly come before their parents; parallel threads don't
//! guarantee it. The order matters only for a parent whose final mode denies its owner the search permission,
//! which would make its children unreachable. Such directories are deferred to further passes, one for each
//! depth that has any, deepest first. A directory's times don't depend on the order, as setting the metadata
//! of its entries does not change them.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use carrack_model::{EntryFailure, ExtraMetadata, FailureKind, FileFlags, Metadata, RelPath, Timestamp};
use rustix::fs::{AtFlags, Mode, OFlags, fstat, openat, unlinkat};
use rustix::io::Errno;

use crate::attribute_writer::{MODE, count_refusal};
use crate::directory_access::{open_own, restore_mode};
use crate::modes::{
    SET_GROUP_ID, SET_IDS, is_provisional, mode_of_new_directory_in, replace_provisional_mode,
};
use crate::small_file_placement::users_umask;
use crate::status::{is_regular, mtime_of};
use crate::{
    AttributeWriter, DestinationTimePrecision, MetadataLossCounter, MetadataToSet, RootDirectory,
    ScratchNames, SinkError,
};

/// Bytes of the records in memory: about 50,000 directories.
const SPOOL_BYTES_MAX: usize = 4 << 20;

/// Bytes of a record behind the path and the extras: mode (4 bytes), seconds (8), nanoseconds (4), bytes of
/// the extras (4), bytes of the path (2), all in little-endian order. They come last so that records can be
/// read backwards. Extras are encoded as in an entry table: `tag | len << 8`, then the value.
const TRAILER_BYTES: usize = 22;

/// The owner's permission to search a directory.
const OWNER_SEARCH: u32 = 0o100;

/// Bit in a record's mode that marks a file (`S_IFREG`, inode(7)).
const IS_FILE: u32 = 0o100_000;

/// Directories that wait for their metadata, see the module's comment.
#[derive(Debug)]
pub struct DirectoryMetadataSpool {
    root: Arc<RootDirectory>,
    keeper: Arc<AttributeWriter>,
    records: Vec<u8>,
    spilled: Option<SpilledRecords>,
}

/// Blocks of whole records in a file without a name.
#[derive(Debug)]
struct SpilledRecords {
    file: File,
    /// The end offset of each block.
    ends: Vec<u64>,
}

impl DirectoryMetadataSpool {
    /// Collects directories beneath `root`; `keeper` sets owners and attributes.
    pub fn new(root: Arc<RootDirectory>, keeper: Arc<AttributeWriter>) -> DirectoryMetadataSpool {
        DirectoryMetadataSpool { root, keeper, records: Vec::new(), spilled: None }
    }

    /// Records that the directory `path` gets `metadata` and, if they are kept, `extras` at the end.
    ///
    /// # Errors
    /// If the records exceed the memory and can't be written at the destination either.
    pub fn record_directory(
        &mut self,
        path: &RelPath,
        metadata: &Metadata,
        extras: Option<&ExtraMetadata>,
    ) -> Result<(), SinkError> {
        let extras_bytes = extras.map_or(0, |extras| extras.tag_bytes(4));
        if self.records.len() + path.as_bytes().len() + extras_bytes + TRAILER_BYTES > SPOOL_BYTES_MAX {
            self.spill()?;
        }
        append_record(&mut self.records, path, metadata, extras);
        Ok(())
    }

    /// Records that the file `path`, last changed at `mtime`, gets file flags that prevent any later change.
    ///
    /// # Errors
    /// As [`DirectoryMetadataSpool::record_directory`].
    pub fn record_file(
        &mut self,
        path: &RelPath,
        mtime: Timestamp,
        flags: FileFlags,
    ) -> Result<(), SinkError> {
        let extras = ExtraMetadata { flags: Some(flags), ..ExtraMetadata::default() };
        self.record_directory(path, &Metadata { mode: IS_FILE, mtime }, Some(&extras))
    }

    /// Sets the metadata of all directories, and the flags of files that have not changed since they were
    /// recorded. Returns the number of finished directories and calls `failed` for each other one.
    pub fn finish(mut self, times: &DestinationTimePrecision, failed: impl FnMut(EntryFailure)) -> u64 {
        let mut closed_depths = BTreeSet::new();
        let records = std::mem::take(&mut self.records);
        let (root, keeper) = (&*self.root, &*self.keeper);
        let mut finisher = MetadataFinisher { root, keeper, times, failed, done_count: 0, has_root: false };
        let umask = if keeper.policy().perms { 0 } else { users_umask() };
        let mut read = self.for_each(&records, |path, record| {
            if denies_owner_search(record.metadata.mode & !umask) {
                closed_depths.insert(path.components().count());
            } else {
                finisher.apply(path, record);
            }
        });
        for depth in closed_depths.into_iter().rev() {
            read = read.and(self.for_each(&records, |path, record| {
                if denies_owner_search(record.metadata.mode & !umask) && path.components().count() == depth {
                    finisher.apply(path, record);
                }
            }));
        }
        if let Err(error) = read {
            let error = SinkError::Metadata { action: "reading the list of directories back", error };
            finisher.fail(&RelPath::root(), &error);
        }
        // If modes are kept, each mode that could not be set is reported as a failure.
        let unmarked = root.take_unmarked_count();
        if !keeper.policy().perms {
            keeper.losses().count_many(MODE, "the file system changes none", unmarked);
        }
        if !finisher.has_root
            && let Err(error) = set_root_mode(root, keeper.losses())
        {
            finisher.fail(&RelPath::root(), &error);
        }
        finisher.done_count
    }

    fn spill(&mut self) -> Result<(), SinkError> {
        let spilled = match &mut self.spilled {
            Some(spilled) => spilled,
            none => none.insert(SpilledRecords { file: nameless_file(&self.root)?, ends: Vec::new() }),
        };
        let start = spilled.ends.last().copied().unwrap_or(0);
        spilled.file.write_all_at(&self.records, start).map_err(spill_error)?;
        spilled.ends.push(start + self.records.len() as u64);
        self.records.clear();
        Ok(())
    }

    /// Calls `visit` for every record, in reverse order.
    fn for_each(
        &self,
        newest: &[u8],
        mut visit: impl FnMut(&RelPath, &SpooledEntryMetadata),
    ) -> io::Result<()> {
        for_each_record(newest, &mut visit)?;
        let Some(SpilledRecords { file, ends }) = &self.spilled else { return Ok(()) };
        let mut block = Vec::new();
        for index in (0..ends.len()).rev() {
            let start = if index == 0 { 0 } else { ends[index - 1] };
            block.resize((ends[index] - start) as usize, 0);
            file.read_exact_at(&mut block, start)?;
            for_each_record(&block, &mut visit)?;
        }
        Ok(())
    }
}

/// The state of one [`DirectoryMetadataSpool::finish`].
struct MetadataFinisher<'a, F> {
    root: &'a RootDirectory,
    keeper: &'a AttributeWriter,
    times: &'a DestinationTimePrecision,
    failed: F,
    done_count: u64,
    /// Set when a record for the root itself was applied.
    has_root: bool,
}

impl<F: FnMut(EntryFailure)> MetadataFinisher<'_, F> {
    fn apply(&mut self, path: &RelPath, record: &SpooledEntryMetadata) {
        let (root, keeper) = (self.root, self.keeper);
        if record.metadata.mode & IS_FILE != 0 {
            return set_file_flags(root, keeper, self.times, path, record);
        }
        self.has_root |= path.is_root();
        match set_metadata(root, keeper, path, record) {
            Ok(()) => self.done_count += 1,
            // A directory of another user that may be written to but not read.
            Err(error) if error.is_denied() => {
                keeper.losses().count("mode and times", "Permission denied");
                self.done_count += 1;
            }
            Err(error) => self.fail(path, &error),
        }
    }

    fn fail(&mut self, path: &RelPath, error: &SinkError) {
        (self.failed)(failure(self.root, path, error));
    }
}

/// The metadata of one directory or file.
struct SpooledEntryMetadata {
    metadata: Metadata,
    extras: Option<ExtraMetadata>,
}

/// Returns true if the final mode makes the directory's entries unreachable for its owner.
fn denies_owner_search(mode: u32) -> bool {
    mode & (OWNER_SEARCH | IS_FILE) == 0
}

fn append_record(records: &mut Vec<u8>, path: &RelPath, metadata: &Metadata, extras: Option<&ExtraMetadata>) {
    let path = path.as_bytes();
    let path_bytes = u16::try_from(path.len()).expect("PATH_BYTES_MAX is 65,535");
    records.extend_from_slice(path);
    let start = records.len();
    if let Some(extras) = extras {
        extras.encode_tags(|tag, value| {
            records.extend_from_slice(&(u32::from(tag) | (value.len() as u32) << 8).to_le_bytes());
            records.extend_from_slice(value);
        });
    }
    let extras_bytes = (records.len() - start) as u32;
    records.extend_from_slice(&metadata.mode.to_le_bytes());
    records.extend_from_slice(&metadata.mtime.seconds.to_le_bytes());
    records.extend_from_slice(&metadata.mtime.nanoseconds.to_le_bytes());
    records.extend_from_slice(&extras_bytes.to_le_bytes());
    records.extend_from_slice(&path_bytes.to_le_bytes());
}

fn for_each_record(
    records: &[u8],
    visit: &mut impl FnMut(&RelPath, &SpooledEntryMetadata),
) -> io::Result<()> {
    let mut rest = records;
    while !rest.is_empty() {
        let (before, path, record) = last_record(rest)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "a damaged record"))?;
        visit(&path, &record);
        rest = before;
    }
    Ok(())
}

/// Splits off the last record; returns the bytes before it first.
fn last_record(records: &[u8]) -> Option<(&[u8], RelPath, SpooledEntryMetadata)> {
    let (rest, path_bytes) = records.split_last_chunk::<2>()?;
    let (rest, extras_bytes) = rest.split_last_chunk::<4>()?;
    let (rest, nanoseconds) = rest.split_last_chunk::<4>()?;
    let (rest, seconds) = rest.split_last_chunk::<8>()?;
    let (rest, mode) = rest.split_last_chunk::<4>()?;
    let extras_at = rest.len().checked_sub(u32::from_le_bytes(*extras_bytes) as usize)?;
    let (rest, extras) = rest.split_at(extras_at);
    let start = rest.len().checked_sub(u16::from_le_bytes(*path_bytes).into())?;
    let (before, path) = rest.split_at(start);
    let seconds = i64::from_le_bytes(*seconds);
    let mtime = Timestamp { seconds, nanoseconds: u32::from_le_bytes(*nanoseconds) };
    let metadata = Metadata { mode: u32::from_le_bytes(*mode), mtime };
    Some((
        before,
        RelPath::new(path).ok()?,
        SpooledEntryMetadata { metadata, extras: decode_extras(extras)? },
    ))
}

/// Decodes extras: an inner none stands for no extras, an outer none for damaged ones.
fn decode_extras(mut rest: &[u8]) -> Option<Option<ExtraMetadata>> {
    let mut extras = ExtraMetadata::default();
    while !rest.is_empty() {
        let (head, after) = rest.split_first_chunk::<4>()?;
        let head = u32::from_le_bytes(*head);
        let (value, after) = after.split_at_checked((head >> 8) as usize)?;
        extras.decode_tag(head as u8, value).ok()?;
        rest = after;
    }
    Some((!extras.is_empty()).then_some(extras))
}

fn set_metadata(
    root: &RootDirectory,
    keeper: &AttributeWriter,
    path: &RelPath,
    record: &SpooledEntryMetadata,
) -> Result<(), SinkError> {
    let (handle, unreadable) = open_to_finish(root, path)?;
    let stat = fstat(&handle).map_err(|errno| SinkError::of_metadata_call("looking at its mode", errno))?;
    let found = unreadable.map_or(stat.st_mode & 0o7777, Mode::as_raw_mode);
    let policy = keeper.policy();
    let is_made = is_provisional(found);
    let (mode, lasting) = match (policy.perms, is_made) {
        // The bit belongs to the directory's group, which new entries inherit.
        (true, _) if policy.sets_group_id => (record.metadata.mode, SET_GROUP_ID),
        (true, _) => (record.metadata.mode, found & SET_GROUP_ID),
        (false, true) => {
            let mode = mode_of_new_directory_in(handle.as_fd(), record.metadata.mode, found);
            let added = if policy.sets_group_id { record.metadata.mode & SET_GROUP_ID } else { 0 };
            (mode | added, SET_IDS)
        }
        (false, false) => (found, SET_IDS),
    };
    let metadata = Metadata { mode, mtime: record.metadata.mtime };
    let extras = record.extras.as_ref().map(|extras| (extras, keeper));
    let losses = Some(keeper.losses());
    let dress = MetadataToSet { metadata: &metadata, extras, losses, policy, lasting };
    let sets_mode = policy.perms || is_made;
    let dressed = dress.apply_to(handle.as_fd(), sets_mode).map(drop);
    let timed =
        if policy.directory_times { dress.set_time(handle.as_fd(), Some(mtime_of(&stat))) } else { Ok(()) };
    let dressed = dressed.and(timed);
    if let Some(flags) = flags_of(keeper, record) {
        keeper.set_blocking_flags(handle.as_fd(), flags);
    }
    // A directory whose mode was set keeps the new one.
    if let Some(mode) = unreadable.filter(|_| dressed.is_err() || !sets_mode) {
        restore_mode(handle.as_fd(), mode)
            .map_err(|errno| SinkError::of_metadata_call("setting the mode", errno))?;
    }
    dressed
}

/// Sets the mode of the destination if it was made for the entries in it and no record gave it one.
fn set_root_mode(root: &RootDirectory, losses: &MetadataLossCounter) -> Result<(), SinkError> {
    if !fstat(root).is_ok_and(|stat| is_provisional(stat.st_mode)) {
        return Ok(());
    }
    let held = root.open_directory(&RelPath::root()).map_err(SinkError::of_directory)?;
    count_refusal(Some(losses), MODE, "setting the mode", replace_provisional_mode(&held))
}

/// Opens a directory to set its metadata. An own directory that may not be read is made readable; its mode is
/// returned then.
fn open_to_finish(root: &RootDirectory, path: &RelPath) -> Result<(OwnedFd, Option<Mode>), SinkError> {
    let denied = match root.open_directory(path) {
        Err(error) if Errno::from_io_error(&error) == Some(Errno::ACCESS) => error,
        opened => return Ok((opened.map_err(SinkError::of_directory)?, None)),
    };
    let held = root.enter_directory(path).map_err(SinkError::of_directory)?;
    let opened = open_own(held.as_fd()).ok_or_else(|| SinkError::of_directory(denied))?;
    Ok((opened.0, Some(opened.1)))
}

fn flags_of(keeper: &AttributeWriter, record: &SpooledEntryMetadata) -> Option<FileFlags> {
    record.extras.as_ref().and_then(|extras| keeper.flags_of(extras))
}

/// Sets the flags of a file, unless it is gone or changed since it was recorded.
fn set_file_flags(
    root: &RootDirectory,
    keeper: &AttributeWriter,
    times: &DestinationTimePrecision,
    path: &RelPath,
    record: &SpooledEntryMetadata,
) {
    let (Some((parent, name)), Some(flags)) = (path.split_last(), flags_of(keeper, record)) else { return };
    let Ok(held) = root.open_directory(&parent) else { return };
    let how = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let opened = openat(&held, name, how, Mode::empty());
    match opened.and_then(|file| Ok((fstat(&file)?, file))) {
        Ok((stat, file))
            if is_regular(&stat)
                && (!keeper.policy().times
                    || times.is_stored(record.metadata.mtime, mtime_of(&stat), held.as_fd())) =>
        {
            keeper.set_blocking_flags(file.as_fd(), flags);
        }
        Ok(_) | Err(Errno::NOENT | Errno::LOOP) => {}
        Err(errno) => keeper.count_flag_failure(errno),
    }
}

fn failure(root: &RootDirectory, path: &RelPath, error: &SinkError) -> EntryFailure {
    let kind = match error.kind() {
        FailureKind::InTheWay => FailureKind::InTheWay,
        _ => FailureKind::Metadata,
    };
    EntryFailure { path: root.full_path(path, b""), kind, detail: error.to_string() }
}

/// A file at the destination that is removed when its descriptor is closed.
pub(crate) fn nameless_file(root: &RootDirectory) -> Result<File, SinkError> {
    let mode = Mode::RUSR | Mode::WUSR;
    match openat(root, c".", OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC, mode) {
        Ok(file) => Ok(file.into()),
        Err(_) => unlinked_file(root, mode).map_err(|error| spill_error(error.into())),
    }
}

/// The same for file systems without `O_TMPFILE`.
fn unlinked_file(root: &RootDirectory, mode: Mode) -> Result<File, Errno> {
    let scratch =
        ScratchNames::new(None).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let (file, temporary) = scratch.create(b"directories", |free| openat(root, free, flags, mode))?;
    unlinkat(root, temporary.as_bytes(), AtFlags::empty())?;
    Ok(file.into())
}

fn spill_error(error: io::Error) -> SinkError {
    let action = "writing the list of directories";
    match Errno::from_io_error(&error) {
        Some(errno) => SinkError::of_call(action, errno),
        None => SinkError::Write { action, error },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use carrack_model::MetadataFidelity;
    use std::fs;
    use std::os::unix::fs::{MetadataExt, symlink};

    fn rel(path: impl AsRef<[u8]>) -> RelPath {
        RelPath::new(path.as_ref()).unwrap()
    }

    fn metadata(mode: u32, seconds: i64) -> Metadata {
        Metadata { mode, mtime: Timestamp { seconds, nanoseconds: 987_654_321 } }
    }

    fn keeper() -> Arc<AttributeWriter> {
        Arc::new(AttributeWriter::new(true))
    }

    fn times() -> DestinationTimePrecision {
        DestinationTimePrecision::new(carrack_model::ModifyWindow::Stored, None)
    }

    fn fixture() -> (tempfile::TempDir, Arc<RootDirectory>) {
        let dir = tempfile::tempdir().unwrap();
        let root = Arc::new(RootDirectory::open(dir.path()).unwrap());
        (dir, root)
    }

    #[test]
    fn sets_modes_and_times_whatever_the_order_of_noting() {
        let (dir, root) = fixture();
        root.make_directory(&rel("a/b/c")).unwrap();
        // Parents come last, as parallel threads may record them, and would make their children unreachable.
        let mut spool = DirectoryMetadataSpool::new(Arc::clone(&root), keeper());
        let noted = [("a/b/c", 0o1777, 3), ("a/b", 0o000, 2), ("a", 0o600, 1), ("", 0o755, 0)];
        for (path, mode, seconds) in noted {
            spool.record_directory(&rel(path), &metadata(mode, seconds), None).unwrap();
        }
        assert_eq!(spool.finish(&times(), |failure| panic!("{failure}")), 4);
        for (path, mode, seconds) in noted {
            match fs::metadata(dir.path().join(path)) {
                Ok(found) => {
                    assert_eq!((found.mode() & 0o7777, found.mtime()), (mode, seconds));
                    assert_eq!(found.mtime_nsec(), 987_654_321);
                }
                Err(error) => println!("skipped {path}, only root can look: {error}"),
            }
        }
        for path in ["a", "a/b"] {
            fs::set_permissions(dir.path().join(path), std::os::unix::fs::PermissionsExt::from_mode(0o700))
                .unwrap();
        }
    }

    fn mode_of(dir: &tempfile::TempDir, path: &str) -> u32 {
        fs::metadata(dir.path().join(path)).unwrap().mode() & 0o7777
    }

    /// A keeper that does not keep modes.
    fn umask_keeper(options: impl Fn(&mut MetadataFidelity)) -> Arc<AttributeWriter> {
        crate::clear_umask();
        let mut fidelity = MetadataFidelity::default();
        options(&mut fidelity);
        Arc::new(AttributeWriter::new(true).with_fidelity(&fidelity))
    }

    #[test]
    fn only_what_was_made_gets_a_mode() {
        let (dir, root) = fixture();
        for (path, mode) in [("", 0o1777), ("old", 0o2775), ("private", 0o700), ("shared", 0o2775)] {
            fs::create_dir_all(dir.path().join(path)).unwrap();
            fs::set_permissions(dir.path().join(path), std::os::unix::fs::PermissionsExt::from_mode(mode))
                .unwrap();
        }
        // A killed session made one of them.
        root.make_directory(&rel("shared/new")).unwrap();
        root.make_directory(&rel("killed")).unwrap();
        let root = Arc::new(RootDirectory::open(dir.path()).unwrap());
        root.make_directory(&rel("killed/new")).unwrap();
        let mut spool = DirectoryMetadataSpool::new(Arc::clone(&root), umask_keeper(|_| {}));
        for path in ["", "old", "private", "shared", "shared/new", "killed", "killed/new"] {
            spool.record_directory(&rel(path), &metadata(0o6777, 5), None).unwrap();
        }
        assert_eq!(spool.finish(&times(), |failure| panic!("{failure}")), 7);
        let made = 0o777 & !users_umask();
        let expected = [
            ("", 0o1777),
            ("old", 0o2775),
            ("private", 0o700),
            ("shared", 0o2775),
            ("shared/new", 0o2000 | made),
            ("killed", made),
            ("killed/new", made),
        ];
        for (path, mode) in expected {
            assert_eq!(mode_of(&dir, path), mode, "{path}");
            assert_eq!(fs::metadata(dir.path().join(path)).unwrap().mtime(), 5, "{path}");
        }
    }

    #[test]
    fn a_destination_that_nobody_told_the_mode_of_is_made_as_by_mkdir() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("new");
        crate::PathBase::Anywhere.make_destination(&path).unwrap();
        let spool =
            DirectoryMetadataSpool::new(Arc::new(RootDirectory::open(&path).unwrap()), umask_keeper(|_| {}));
        assert_eq!(spool.finish(&times(), |failure| panic!("{failure}")), 0);
        assert_eq!(mode_of(&dir, "new"), 0o777 & !users_umask());
    }

    #[test]
    fn set_group_id_and_times_are_as_the_user_wants() {
        fn change(text: &str) -> carrack_model::ModeChange {
            carrack_model::ModeChange::parse(text).unwrap()
        }
        for (options, mode, mtime) in [
            (
                &(|fidelity: &mut MetadataFidelity| fidelity.perms = true) as &dyn Fn(&mut MetadataFidelity),
                0o755,
                Some(5),
            ),
            (&|fidelity| fidelity.mode_change = change("D2775"), 0o2755 & !users_umask(), Some(5)),
            (&|fidelity| fidelity.omit_dir_times = true, 0o755 & !users_umask(), None),
            (&|fidelity| fidelity.omit_times = true, 0o755 & !users_umask(), None),
        ] {
            let (dir, root) = fixture();
            root.make_directory(&rel("d")).unwrap();
            let mut spool = DirectoryMetadataSpool::new(root, umask_keeper(options));
            // The group is not kept, so the bit is cleared.
            spool.record_directory(&rel("d"), &metadata(0o2755, 5), None).unwrap();
            assert_eq!(spool.finish(&times(), |failure| panic!("{failure}")), 1);
            assert_eq!(mode_of(&dir, "d"), mode);
            let found = fs::metadata(dir.path().join("d")).unwrap().mtime();
            assert!(mtime.map_or(found != 5, |mtime| found == mtime));
        }
    }

    #[test]
    fn a_planted_link_is_not_followed_and_failures_are_told() {
        let (dir, root) = fixture();
        let outside = tempfile::tempdir().unwrap();
        let before = fs::metadata(outside.path()).unwrap();
        symlink(outside.path(), dir.path().join("link")).unwrap();
        fs::create_dir(dir.path().join("good")).unwrap();
        let mut spool = DirectoryMetadataSpool::new(root, keeper());
        for path in ["link", "good", "gone"] {
            spool.record_directory(&rel(path), &metadata(0o777, 5), None).unwrap();
        }
        let mut failures = Vec::new();
        assert_eq!(spool.finish(&times(), |failure| failures.push(failure)), 1);
        let kinds: Vec<_> = failures.iter().map(|failure| failure.kind).collect();
        assert_eq!(kinds, [FailureKind::Metadata, FailureKind::InTheWay]);
        assert!(failures[1].path.ends_with(b"/link"));
        let after = fs::metadata(outside.path()).unwrap();
        assert_eq!((after.mode(), after.mtime()), (before.mode(), before.mtime()));
    }

    #[test]
    fn many_records_spill_and_come_back_last_first() {
        let (dir, root) = fixture();
        let mut spool = DirectoryMetadataSpool::new(root, keeper());
        let long = vec![vec![b'x'; 250]; 40].join(&b'/');
        let path_of: Vec<_> =
            (0..1_000u32).map(|n| rel([format!("{n}/").as_bytes(), &long].concat())).collect();
        for n in 0..1_000 {
            spool.record_directory(&path_of[n as usize], &metadata(n, n.into()), None).unwrap();
        }
        let blocks = spool.spilled.as_ref().unwrap().ends.len();
        assert!(blocks >= 2 && spool.records.len() <= SPOOL_BYTES_MAX);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "the spool has no name");
        let mut expected = (0..1_000).rev();
        let records = spool.records.clone();
        spool
            .for_each(&records, |path, found| {
                let n = expected.next().unwrap();
                assert_eq!((path, &found.metadata), (&path_of[n as usize], &metadata(n, n.into())));
                assert_eq!(found.extras, None);
            })
            .unwrap();
        assert!(expected.next().is_none());
    }

    #[test]
    fn spilled_directories_are_finished_too() {
        let (dir, root) = fixture();
        let path = rel("d");
        root.make_directory(&path).unwrap();
        let mut spool = DirectoryMetadataSpool::new(root, keeper());
        let mut count = 0;
        while spool.spilled.is_none() {
            spool.record_directory(&path, &metadata(0o711, 7), None).unwrap();
            count += 1;
        }
        assert_eq!(spool.finish(&times(), |failure| panic!("{failure}")), count);
        assert_eq!(fs::metadata(dir.path().join("d")).unwrap().mtime(), 7);
    }

    #[test]
    fn a_file_is_nameless_without_the_kernels_help_too() {
        let (dir, root) = fixture();
        let file = unlinked_file(&root, Mode::RUSR | Mode::WUSR).unwrap();
        file.write_all_at(b"x", 0).unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn owners_and_attributes_come_back() {
        fn account(name: &[u8]) -> Option<carrack_model::UserOrGroup> {
            Some(carrack_model::UserOrGroup { number: 1, name: name.into() })
        }
        let value = vec![b'v'; 60_000].into();
        let attributes = vec![carrack_model::ExtendedAttribute { name: b"user.a"[..].into(), value }];
        let extras = ExtraMetadata {
            user: account(b"u"),
            group: account(b""),
            attributes,
            ..ExtraMetadata::default()
        };
        let mut records = Vec::new();
        append_record(&mut records, &rel("a"), &metadata(0o700, 1), None);
        append_record(&mut records, &rel("a/b"), &metadata(0o755, 2), Some(&extras));
        let mut seen = Vec::new();
        for_each_record(&records, &mut |path, last| seen.push((path.clone(), last.extras.clone()))).unwrap();
        assert_eq!(seen, [(rel("a/b"), Some(extras)), (rel("a"), None)]);
    }

    #[test]
    fn damaged_records_are_told() {
        assert!(for_each_record(&[1; 5], &mut |_, _| {}).is_err());
        assert!(for_each_record(&[0xff; 40], &mut |_, _| {}).is_err());
    }
}
