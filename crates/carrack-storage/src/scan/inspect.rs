//! Inspects one name: it is an entry to copy, a directory to enter, or left out.
//!
//! One `statx` for each name, and a `readlink` for a link. No call is made for a name that the listing
//! reports as a directory, or as a device, pipe or socket when none of these is kept.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd};

use carrack_model::limits::SYMLINK_BYTES_MAX;
use carrack_model::{
    CopiedDirectoryPaths, DeviceNumber, Entry, EntryKind, FailureKind, Metadata, Timestamp, check_name,
    escape,
};
use rustix::fs::{AtFlags, FileType, StatxFlags, major, makedev, minor, readlinkat_raw, statat, statx};
use rustix::io::Errno;

use super::retries::{ScanRetries, request_with_errno};
use crate::extras_source::AttributeHolder;
use crate::source_error::source_failure_kind;
use crate::special::special_of;
use crate::status::{metadata_of, permissions, size_of};
use crate::{ExtraMetadataReader, FileIdentity, RootDirectory};

/// The result for one name.
pub(super) enum ScannedNameResult {
    /// An entry; with its file and the number of its names, if it has several and hard links are kept.
    Entry(Entry, Option<(FileIdentity, u32)>),
    Directory,
    Skipped(&'static str),
    Failed(FailureKind, String),
}

impl From<Errno> for ScannedNameResult {
    fn from(errno: Errno) -> ScannedNameResult {
        let (kind, detail) = failure_of(errno);
        ScannedNameResult::Failed(kind, detail)
    }
}

fn failure_of(errno: Errno) -> (FailureKind, String) {
    (source_failure_kind(errno), std::io::Error::from(errno).to_string())
}

/// The used part of an entry's status.
struct EntryStatFields {
    file_type: FileType,
    size: u64,
    metadata: Metadata,
    identity: u64,
    uid: u32,
    gid: u32,
    names: u32,
    device: u64,
    /// The device number of a device.
    number: DeviceNumber,
}

/// The location at which an entry's status was read.
struct EntryStatLocation<'a> {
    directory: BorrowedFd<'a>,
    name: &'a CStr,
    follow: bool,
}

/// Inspects names; holds a buffer for the text of links.
pub(super) struct ScannedNameClassifier<'a> {
    link_text: Box<[u8]>,
    extras: Option<&'a ExtraMetadataReader>,
    retries: Option<&'a dyn ScanRetries>,
}

impl<'a> ScannedNameClassifier<'a> {
    pub fn new(
        extras: Option<&'a ExtraMetadataReader>,
        retries: Option<&'a dyn ScanRetries>,
    ) -> ScannedNameClassifier<'a> {
        let link_text = vec![0; SYMLINK_BYTES_MAX + 1].into_boxed_slice();
        ScannedNameClassifier { link_text, extras, retries }
    }

    fn status_of(
        &self,
        directory: BorrowedFd<'_>,
        name: &CStr,
        follow: bool,
    ) -> Result<EntryStatFields, Errno> {
        request_with_errno(self.retries, || status_of(directory, name, follow, self.extras.is_some()))
    }

    /// Inspects `name` in `directory`. `listed_type` is its type in the listing, which may be `Unknown`. With
    /// `follow` a link is followed.
    pub fn inspect(
        &mut self,
        directory: BorrowedFd<'_>,
        name: &CStr,
        listed_type: FileType,
        follow: bool,
    ) -> ScannedNameResult {
        match self.classify_by_type(name, listed_type) {
            Some(known) => known,
            None => match self.status_of(directory, name, follow) {
                Ok(status) => {
                    let spot = EntryStatLocation { directory, name, follow };
                    // A link's target is copied for each link.
                    let was_link = follow && self.read_link(directory, name).is_ok();
                    self.entry(name, spot, &status, was_link)
                }
                Err(errno @ (Errno::NOENT | Errno::LOOP)) if follow => {
                    self.broken_link_failure(directory, name, errno)
                }
                Err(errno) => errno.into(),
            },
        }
    }

    /// Inspects the target of the link `name` in a directory beneath `root`, which must lie within the root's
    /// base.
    pub fn inspect_within(
        &mut self,
        root: &RootDirectory,
        directory: &CopiedDirectoryPaths,
        handle: BorrowedFd<'_>,
        name: &CStr,
    ) -> ScannedNameResult {
        if let Err(problem) = check_name(name.to_bytes()) {
            return ScannedNameResult::Failed(FailureKind::BadName, problem.to_string());
        }
        let located = match root.locate(handle, &directory.source, name.to_bytes()) {
            Ok(located) => located,
            Err(errno @ (Errno::NOENT | Errno::LOOP | Errno::XDEV)) => {
                return self.broken_link_failure(handle, name, errno);
            }
            Err(errno) => return errno.into(),
        };
        let Ok(target) = CString::new(located.name()) else { return Errno::INVAL.into() };
        match self.status_of(located.as_fd(), &target, false) {
            // The target was replaced by a link.
            Ok(status) if status.file_type == FileType::Symlink => Errno::LOOP.into(),
            Ok(status) => {
                let spot = EntryStatLocation { directory: located.as_fd(), name: &target, follow: false };
                self.entry(name, spot, &status, located.was_link())
            }
            Err(Errno::NOENT) if located.was_link() => self.broken_link_failure(handle, name, Errno::NOENT),
            Err(errno) => errno.into(),
        }
    }

    /// The failure for a link that can't be followed.
    fn broken_link_failure(
        &mut self,
        directory: BorrowedFd<'_>,
        name: &CStr,
        errno: Errno,
    ) -> ScannedNameResult {
        let Ok(target) = self.read_link(directory, name) else { return errno.into() };
        let target = escape(&target);
        match errno {
            Errno::LOOP => {
                let detail = format!("a link to '{target}', which leads back to itself");
                ScannedNameResult::Failed(FailureKind::ReadError, detail)
            }
            Errno::XDEV => {
                let detail = format!("a link to '{target}', which leads out of what may be read here");
                ScannedNameResult::Failed(FailureKind::Unreadable, detail)
            }
            _ => ScannedNameResult::Failed(
                FailureKind::Missing,
                format!("a link to '{target}', which is not there"),
            ),
        }
    }

    /// Makes the entry of a name, or of the target of a link of that name; `spot` is its location.
    fn entry(
        &mut self,
        name: &CStr,
        spot: EntryStatLocation<'_>,
        status: &EntryStatFields,
        was_link: bool,
    ) -> ScannedNameResult {
        let kind = match status.file_type {
            FileType::RegularFile => EntryKind::Regular { size: status.size },
            FileType::Symlink => match self.read_link(spot.directory, spot.name) {
                Ok(target) => EntryKind::Symlink { target },
                Err((kind, detail)) => return ScannedNameResult::Failed(kind, detail),
            },
            FileType::Directory => return ScannedNameResult::Directory,
            other => match special_of(other, status.number) {
                Some(special) if self.extras.is_some_and(|extras| extras.keeps(&special)) => {
                    EntryKind::Special(special)
                }
                _ => return ScannedNameResult::Skipped(skip_reason(other)),
            },
        };
        let EntryStatFields { metadata, identity, uid, gid, .. } = *status;
        let EntryStatLocation { directory, name: at, follow } = spot;
        let spot = AttributeHolder::Named { directory, name: at, follow };
        let extras = self.extras.and_then(|extras| extras.read(spot, uid, gid));
        let is_one_of_several = status.file_type == FileType::RegularFile
            && status.names > 1
            && self.extras.is_some_and(ExtraMetadataReader::follows_links)
            && !was_link;
        let file = FileIdentity { dev: status.device, ino: identity };
        let name = name.to_bytes().into();
        let entry = Entry { name, source_name: None, kind, metadata, identity, extras };
        ScannedNameResult::Entry(entry, is_one_of_several.then_some((file, status.names)))
    }

    fn classify_by_type(&self, name: &CStr, listed_type: FileType) -> Option<ScannedNameResult> {
        if let Err(problem) = check_name(name.to_bytes()) {
            return Some(ScannedNameResult::Failed(FailureKind::BadName, problem.to_string()));
        }
        match listed_type {
            FileType::Directory => Some(ScannedNameResult::Directory),
            FileType::RegularFile | FileType::Symlink | FileType::Unknown => None,
            _ if self.extras.is_some_and(ExtraMetadataReader::keeps_specials) => None,
            other => Some(ScannedNameResult::Skipped(skip_reason(other))),
        }
    }

    fn read_link(
        &mut self,
        directory: BorrowedFd<'_>,
        name: &CStr,
    ) -> Result<Box<[u8]>, (FailureKind, String)> {
        let text = &mut self.link_text[..];
        let read = request_with_errno(self.retries, || readlinkat_raw(directory, name, &mut *text));
        match read.map_err(failure_of)? {
            length if (1..=SYMLINK_BYTES_MAX).contains(&length) => Ok(self.link_text[..length].into()),
            length => {
                let detail = format!("a link with a text of {length} bytes");
                Err((FailureKind::ReadError, detail))
            }
        }
    }
}

fn skip_reason(file_type: FileType) -> &'static str {
    match file_type {
        FileType::Socket => "a socket",
        FileType::Fifo => "a named pipe",
        FileType::CharacterDevice | FileType::BlockDevice => "a device",
        _ => "of an unknown type",
    }
}

fn status_of(
    directory: BorrowedFd<'_>,
    name: &CStr,
    follow: bool,
    with_owner: bool,
) -> Result<EntryStatFields, Errno> {
    let flags = if follow { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW };
    let mut wanted =
        StatxFlags::TYPE | StatxFlags::MODE | StatxFlags::SIZE | StatxFlags::MTIME | StatxFlags::INO;
    wanted.set(StatxFlags::UID | StatxFlags::GID | StatxFlags::NLINK, with_owner);
    let found = match statx(directory, name, flags, wanted) {
        Err(Errno::NOSYS) => return status_without_statx(directory, name, flags),
        answer => answer?,
    };
    let mode = u32::from(found.stx_mode);
    let mtime = Timestamp { seconds: found.stx_mtime.tv_sec, nanoseconds: found.stx_mtime.tv_nsec };
    Ok(EntryStatFields {
        file_type: FileType::from_raw_mode(mode),
        size: found.stx_size,
        metadata: Metadata { mode: permissions(mode), mtime },
        identity: found.stx_ino,
        uid: found.stx_uid,
        gid: found.stx_gid,
        names: found.stx_nlink,
        device: makedev(found.stx_dev_major, found.stx_dev_minor),
        number: DeviceNumber { major: found.stx_rdev_major, minor: found.stx_rdev_minor },
    })
}

/// For seccomp filters that are older than `statx`.
fn status_without_statx(
    directory: BorrowedFd<'_>,
    name: &CStr,
    flags: AtFlags,
) -> Result<EntryStatFields, Errno> {
    let stat = statat(directory, name, flags)?;
    Ok(EntryStatFields {
        file_type: FileType::from_raw_mode(stat.st_mode),
        size: size_of(&stat),
        metadata: metadata_of(&stat),
        identity: stat.st_ino,
        uid: stat.st_uid,
        gid: stat.st_gid,
        names: u32::try_from(stat.st_nlink).unwrap_or(u32::MAX),
        device: stat.st_dev,
        number: DeviceNumber { major: major(stat.st_rdev), minor: minor(stat.st_rdev) },
    })
}
