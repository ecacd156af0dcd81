//! Devices, named pipes and sockets: their types, and how they are made at the sink.
//!
//! None is opened for reading or writing, which has side effects and may block. Metadata are set with a
//! descriptor opened with `O_PATH` (open(2)), through `/proc/self/fd`.

use std::ffi::CStr;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use carrack_model::{DeviceNumber, Metadata, SpecialFile, Timestamp};
use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, OFlags, Stat, Timestamps, Uid, XattrFlags, chmodat, chownat, fstat,
    listxattr, major, makedev, minor, mknodat, openat, removexattr, setxattr, unlinkat, utimensat,
};
use rustix::io::Errno;

use crate::attribute_writer::EntryMetadataSetter;
use crate::modes::new_file_mode;
use crate::status::mtime_of;
use crate::{AttributeWriter, MetadataToSet, ScratchNames, SinkError};

/// Mode of a new special file until it has its owner, so that no other user can open another user's device.
const MODE_AT_FIRST: Mode = Mode::RUSR.union(Mode::WUSR);

/// The special file of this type and device number; none for files, directories and links.
pub(crate) fn special_of(file_type: FileType, number: DeviceNumber) -> Option<SpecialFile> {
    match file_type {
        FileType::CharacterDevice => Some(SpecialFile::CharacterDevice(number)),
        FileType::BlockDevice => Some(SpecialFile::BlockDevice(number)),
        FileType::Fifo => Some(SpecialFile::Fifo),
        FileType::Socket => Some(SpecialFile::Socket),
        _ => None,
    }
}

/// The special file that a status describes.
pub(crate) fn special_of_stat(stat: &Stat) -> Option<SpecialFile> {
    let number = DeviceNumber { major: major(stat.st_rdev), minor: minor(stat.st_rdev) };
    special_of(FileType::from_raw_mode(stat.st_mode), number)
}

/// Makes the device, pipe or socket `name` in `directory`, replacing any entry but a directory. Returns false
/// if this sink or its storage refuses special files of this type: the keeper has counted it, and the former
/// entry stays.
///
/// # Errors
/// After [`SinkError::Metadata`] the special file is in place; after any other error nothing has changed.
pub fn place_special<'a>(
    directory: BorrowedFd<'_>,
    name: &[u8],
    special: &SpecialFile,
    dress: impl Into<MetadataToSet<'a>>,
    keeper: &AttributeWriter,
    scratch: &ScratchNames,
) -> Result<bool, SinkError> {
    if !keeper.may_create(special) {
        return Ok(false);
    }
    let temporary = match scratch.create(name, |free| make(directory, free, special)) {
        Ok(((), temporary)) => temporary,
        Err(errno @ (Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS)) => {
            keeper.count_creation_failure(special, errno);
            return Ok(false);
        }
        Err(errno) => return Err(SinkError::of_name_call("making it", errno)),
    };
    let dress = dress.into();
    let mode =
        if dress.policy.perms { dress.metadata.mode } else { new_file_mode(directory, dress.metadata.mode) };
    let metadata = Metadata { mode, ..*dress.metadata };
    let dress = MetadataToSet { metadata: &metadata, ..dress };
    let dressed = set_special_metadata(directory, temporary.as_bytes(), special, dress);
    if let Err(failed) = &dressed
        && !matches!(failed, SinkError::Metadata { .. })
    {
        temporary.remove(directory);
        return dressed.map(|()| false);
    }
    temporary.rename(directory, name).map_err(|errno| SinkError::of_name_call("renaming", errno))?;
    dressed.map(|()| true)
}

fn make(directory: BorrowedFd<'_>, name: &[u8], special: &SpecialFile) -> Result<(), Errno> {
    let (file_type, device) = match special {
        SpecialFile::CharacterDevice(number) => {
            (FileType::CharacterDevice, makedev(number.major, number.minor))
        }
        SpecialFile::BlockDevice(number) => (FileType::BlockDevice, makedev(number.major, number.minor)),
        SpecialFile::Fifo => (FileType::Fifo, 0),
        SpecialFile::Socket => (FileType::Socket, 0),
    };
    match mknodat(directory, name, file_type, MODE_AT_FIRST, device) {
        // Some FUSE file systems create a regular file and fail afterwards.
        Err(errno) if errno != Errno::EXIST && unlinkat(directory, name, AtFlags::empty()).is_ok() => {
            Err(Errno::OPNOTSUPP)
        }
        made => made,
    }
}

/// Sets the metadata of an existing special file.
///
/// # Errors
/// If the entry is not `special` or has several names, and those of setting mode and times. The keeper counts
/// other failures.
pub fn set_special_metadata<'a>(
    directory: BorrowedFd<'_>,
    name: &[u8],
    special: &SpecialFile,
    dress: impl Into<MetadataToSet<'a>>,
) -> Result<(), SinkError> {
    let dress = dress.into();
    let (node, mtime) = OpenSpecialFile::open(directory, name, special)?;
    dress.apply_to(&node, true)?;
    dress.set_time_by(Some(mtime), |times| node.set_times(times), || fstat(&node.held))
}

/// A special file that is held with `O_PATH`.
struct OpenSpecialFile {
    /// Its path in `/proc`, which stays valid after a rename.
    path: String,
    held: OwnedFd,
}

impl OpenSpecialFile {
    /// Opens and checks the special file: a user who may write to the directory could have replaced it. A
    /// file with another device number, or with a further name, is refused. Also returns its modification
    /// time.
    fn open(
        directory: BorrowedFd<'_>,
        name: &[u8],
        special: &SpecialFile,
    ) -> Result<(OpenSpecialFile, Timestamp), SinkError> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let looked = openat(directory, name, flags, Mode::empty()).and_then(|held| Ok((fstat(&held)?, held)));
        let (stat, held) = looked.map_err(|errno| SinkError::of_name_call("looking at it", errno))?;
        if special_of_stat(&stat) != Some(*special) || stat.st_nlink != 1 {
            return Err(SinkError::InTheWay(Errno::EXIST.into()));
        }
        Ok((OpenSpecialFile { path: format!("/proc/self/fd/{}", held.as_raw_fd()), held }, mtime_of(&stat)))
    }

    fn set_times(&self, times: &Timestamps) -> Result<(), Errno> {
        match utimensat(CWD, &*self.path, times, AtFlags::empty()) {
            Err(Errno::NOENT) => utimensat(&self.held, c"", times, AtFlags::EMPTY_PATH),
            answer => answer,
        }
    }
}

impl EntryMetadataSetter for &OpenSpecialFile {
    fn status(&self) -> Result<Stat, Errno> {
        fstat(&self.held)
    }

    fn set_owner(&self, uid: Option<Uid>, gid: Option<Gid>) -> Result<(), Errno> {
        chownat(&self.held, c"", uid, gid, AtFlags::EMPTY_PATH)
    }

    fn set_mode(&self, mode: Mode) -> Result<(), Errno> {
        match chmodat(CWD, &*self.path, mode, AtFlags::empty()) {
            // Without `/proc` no call sets the mode of a file held with `O_PATH`.
            Err(Errno::NOENT) => Err(Errno::NOSYS),
            answer => answer,
        }
    }

    fn set_attribute(&self, name: &CStr, value: &[u8]) -> Result<(), Errno> {
        setxattr(&*self.path, name, value, XattrFlags::empty())
    }

    fn list_attributes(&self, names: &mut [u8]) -> Result<usize, Errno> {
        listxattr(&*self.path, names)
    }

    fn remove_attribute(&self, name: &CStr) -> Result<(), Errno> {
        removexattr(&*self.path, name)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::fd::AsFd;
    use std::os::unix::fs::{FileTypeExt, MetadataExt, symlink};
    use std::path::Path;

    use carrack_model::{FailureKind, Metadata};

    use super::*;
    use crate::{ExistingEntry, clear_umask, read_existing_entry};

    const METADATA: Metadata =
        Metadata { mode: 0o642, mtime: Timestamp { seconds: 1_234_567_890, nanoseconds: 5 } };
    const NULL: SpecialFile = SpecialFile::CharacterDevice(DeviceNumber { major: 1, minor: 3 });

    fn place(
        dir: &Path,
        name: &str,
        special: &SpecialFile,
        keeper: &AttributeWriter,
    ) -> Result<bool, SinkError> {
        clear_umask();
        let held = File::open(dir).unwrap();
        place_special(
            held.as_fd(),
            name.as_bytes(),
            special,
            &METADATA,
            keeper,
            &ScratchNames::new(None).unwrap(),
        )
    }

    fn seen(dir: &Path, name: &str) -> Option<ExistingEntry> {
        read_existing_entry(File::open(dir).unwrap().as_fd(), name.as_bytes()).unwrap()
    }

    fn assert_is(dir: &Path, name: &str, expected: &SpecialFile) {
        let Some(ExistingEntry::Special { special, metadata, .. }) = seen(dir, name) else {
            panic!("{name}")
        };
        assert_eq!((special, metadata), (*expected, METADATA));
    }

    #[test]
    fn pipes_and_sockets_take_the_place_of_what_is_no_directory() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("file"), "old").unwrap();
        symlink("file", dir.path().join("link")).unwrap();
        fs::create_dir(dir.path().join("d")).unwrap();
        let keeper = AttributeWriter::new(false);
        for special in [SpecialFile::Fifo, SpecialFile::Socket] {
            for name in ["new", "file", "link", "new"] {
                assert!(place(dir.path(), name, &special, &keeper).unwrap());
                assert_is(dir.path(), name, &special);
            }
            let failed = place(dir.path(), "d", &special, &keeper).unwrap_err();
            assert_eq!(failed.kind(), FailureKind::InTheWay);
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 4, "temporary names are left");
        assert!(keeper.losses().take_lines().is_empty());
    }

    /// Root makes the device; another user counts a loss. The untrusting keeper refuses in both cases.
    #[test]
    fn devices_are_made_or_told() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("device"), "old").unwrap();
        let untrusting = AttributeWriter::new(false);
        assert!(!place(dir.path(), "device", &NULL, &untrusting).unwrap());
        assert_eq!(untrusting.losses().take_lines(), ["1 device not made: the sink makes none"]);
        assert_eq!(fs::read(dir.path().join("device")).unwrap(), b"old");
        let keeper = AttributeWriter::new(true);
        if place(dir.path(), "device", &NULL, &keeper).unwrap() {
            assert_is(dir.path(), "device", &NULL);
            let found = fs::symlink_metadata(dir.path().join("device")).unwrap();
            assert!(found.file_type().is_char_device() && found.rdev() == makedev(1, 3));
        } else {
            assert_eq!(keeper.losses().take_lines(), ["1 device not made: not permitted"]);
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn only_the_very_thing_is_dressed() {
        let dir = tempfile::tempdir().unwrap();
        let keeper = AttributeWriter::new(false);
        place(dir.path(), "pipe", &SpecialFile::Fifo, &keeper).unwrap();
        let held = File::open(dir.path()).unwrap();
        let open = Metadata { mode: 0o666, mtime: Timestamp { seconds: 1, nanoseconds: 2 } };
        set_special_metadata(held.as_fd(), b"pipe", &SpecialFile::Fifo, &open).unwrap();
        let found = fs::symlink_metadata(dir.path().join("pipe")).unwrap();
        assert_eq!((found.mode() & 0o7777, found.mtime(), found.mtime_nsec()), (0o666, 1, 2));
        assert!(set_special_metadata(held.as_fd(), b"pipe", &SpecialFile::Socket, &METADATA).is_err());
        assert!(set_special_metadata(held.as_fd(), b"missing", &SpecialFile::Fifo, &METADATA).is_err());
        fs::hard_link(dir.path().join("pipe"), dir.path().join("again")).unwrap();
        assert!(set_special_metadata(held.as_fd(), b"pipe", &SpecialFile::Fifo, &METADATA).is_err());
        symlink("pipe", dir.path().join("link")).unwrap();
        assert!(set_special_metadata(held.as_fd(), b"link", &SpecialFile::Fifo, &METADATA).is_err());
        assert_eq!(fs::symlink_metadata(dir.path().join("pipe")).unwrap().mode() & 0o7777, 0o666);
    }
}
