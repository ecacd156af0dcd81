//! Modes at the sink: of new entries, of replaced files, and the set-ID bits that are kept.
//!
//! Without `--perms` a new entry gets the mode that open(2) and mkdir(2) would give it: the permission bits
//! of the source less the umask, or those that the directory's default ACL allows (acl(5)). An existing entry
//! keeps its mode.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use carrack_model::MetadataFidelity;
use rustix::fs::{
    AtFlags, Gid, Mode, Stat, Uid, XattrFlags, fchmod, fchown, fgetxattr, fremovexattr, fsetxattr, fstat,
    getxattr, lgetxattr, statat,
};
use rustix::io::Errno;

use crate::directory_access::set_mode;
use crate::extras_source::{call_with_growing_buffer, path_of};
use crate::small_file_placement::users_umask;
use crate::status::is_regular;

/// Set-user-ID and set-group-ID (inode(7)): a program that has them runs with the rights of its owner or
/// group.
pub(crate) const SET_IDS: u32 = SET_USER_ID | SET_GROUP_ID;
/// Set-user-ID.
pub(crate) const SET_USER_ID: u32 = 0o4000;
/// Set-group-ID.
pub(crate) const SET_GROUP_ID: u32 = 0o2000;

const STICKY: u32 = 0o1000;
const PERMISSIONS: u32 = 0o777;
const GROUP: u32 = 0o070;
const NOT_OWNERS: u32 = 0o077;

/// The ACL that decides access.
pub(crate) const ACCESS_ACL: &CStr = c"system.posix_acl_access";
/// The ACL that new entries of a directory inherit.
const DEFAULT_ACL: &CStr = c"system.posix_acl_default";

/// Mode of a directory that this program made and whose final mode is set later. The sticky bit has no effect
/// if only the owner has permissions, so it marks the directory, for later sessions too.
pub(crate) const PROVISIONAL: Mode = Mode::RWXU.union(Mode::SVTX);

/// Returns true if a directory has the mode [`PROVISIONAL`], as far as a default ACL leaves it.
pub(crate) fn is_provisional(mode: u32) -> bool {
    mode & (STICKY | NOT_OWNERS) == STICKY
}

/// Removes permissions of group and others beyond `mode` from an existing directory before entries are placed
/// in it. The rest of its mode is set at the end.
pub fn narrow_directory(directory: BorrowedFd<'_>, mode: u32) {
    let Ok(found) = fstat(directory) else { return };
    let excess = found.st_mode & NOT_OWNERS & !mode;
    if excess != 0 {
        // A refusal recurs at the end and is reported there.
        let _ = set_mode(directory, Mode::from_raw_mode(found.st_mode & 0o7777 & !excess));
    }
}

/// The outcome of marking a new directory as [`PROVISIONAL`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProvisionalModeOutcome {
    /// mkdir(2) has set the mode.
    AtOnce,
    /// chmod(2) has set the mode.
    Afterwards,
    /// The file system changes no modes, and the directory keeps its own.
    Not,
}

/// Sets [`PROVISIONAL`] on a directory that mkdir(2) has just made with it, if the file system takes only
/// permission bits there (some by FUSE do).
pub(crate) fn mark_provisional(directory: BorrowedFd<'_>) -> ProvisionalModeOutcome {
    if is_marked(directory) {
        return ProvisionalModeOutcome::AtOnce;
    }
    let is_set = set_mode(directory, PROVISIONAL).is_ok() && is_marked(directory);
    if is_set { ProvisionalModeOutcome::Afterwards } else { ProvisionalModeOutcome::Not }
}

fn is_marked(directory: BorrowedFd<'_>) -> bool {
    fstat(directory).is_ok_and(|stat| is_provisional(stat.st_mode))
}

/// The modes and times that a sink keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModePolicy {
    /// Set if entries get the mode of the source, also existing ones.
    pub perms: bool,
    /// Set if modification times of files, links and special files are kept.
    pub times: bool,
    /// Set if those of directories are kept.
    pub directory_times: bool,
    /// Set if directories get the set-group-ID bit of the source's mode even though their group is not the
    /// source's.
    pub sets_group_id: bool,
}

impl Default for ModePolicy {
    fn default() -> ModePolicy {
        ModePolicy { perms: true, times: true, directory_times: true, sets_group_id: false }
    }
}

impl ModePolicy {
    /// The policy that the user requests.
    pub fn of(fidelity: &MetadataFidelity) -> ModePolicy {
        ModePolicy {
            perms: fidelity.perms,
            times: !fidelity.omit_times,
            directory_times: !(fidelity.omit_times || fidelity.omit_dir_times),
            sets_group_id: fidelity.mode_change.apply(0, true, 0) & SET_GROUP_ID != 0,
        }
    }
}

/// The permission bits of an ACL in its extended attribute (`linux/posix_acl_xattr.h`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct AclBits {
    user: u32,
    group: u32,
    mask: Option<u32>,
    other: u32,
}

impl AclBits {
    /// Decodes an ACL; none if the value is invalid.
    pub(crate) fn of(value: &[u8]) -> Option<AclBits> {
        let (version, entries) = value.split_first_chunk::<4>()?;
        let (entries, rest) = entries.as_chunks::<8>();
        if u32::from_le_bytes(*version) != 2 || !rest.is_empty() {
            return None;
        }
        let mut bits = AclBits::default();
        for &[tag, tag_high, perm, ..] in entries {
            let perm = u32::from(perm & 7);
            match u16::from_le_bytes([tag, tag_high]) {
                0x01 => bits.user = perm,
                0x04 => bits.group = perm,
                0x10 => bits.mask = Some(perm),
                0x20 => bits.other = perm,
                _ => {}
            }
        }
        Some(bits)
    }

    /// The permission bits of the mode that corresponds to the ACL.
    fn mode(self) -> u32 {
        self.user << 6 | self.mask.unwrap_or(self.group) << 3 | self.other
    }

    /// Returns true if the ACL says more than a mode can.
    pub(crate) fn has_mask(self) -> bool {
        self.mask.is_some()
    }

    /// Narrows `mode`, whose group bits are the mask of this ACL, for an entry without the ACL: its group
    /// bits become the rights of the owning group.
    pub(crate) fn mode_without_acl(self, mode: u32) -> u32 {
        mode & !GROUP | mode & (self.group & self.mask.unwrap_or(self.group)) << 3
    }
}

/// The permission bits of a file or special file that is made in `directory` with the source's `mode`.
pub(crate) fn new_file_mode(directory: BorrowedFd<'_>, mode: u32) -> u32 {
    let mode = mode & PERMISSIONS;
    match default_acl(directory) {
        Some(acl) => mode & acl.mode(),
        None => mode & !users_umask(),
    }
}

/// The mode for open(2), with the umask cleared, that creates such a file. The kernel applies a default ACL.
pub(crate) fn mode_to_create(directory: BorrowedFd<'_>, mode: u32) -> u32 {
    let mode = mode & PERMISSIONS;
    let is_masked = mode & users_umask() != 0 && default_acl(directory).is_none();
    if is_masked { mode & !users_umask() } else { mode }
}

/// The mode of a directory that this program made; `found` is its provisional mode. As in `cp -r`, the umask
/// counts even with a default ACL.
pub(crate) fn mode_of_new_directory_in(made: BorrowedFd<'_>, mode: u32, found: u32) -> u32 {
    // The directory inherited the default ACL of its parent.
    new_file_mode(made, mode) & !users_umask() | mode & STICKY | found & SET_GROUP_ID
}

fn default_acl(directory: BorrowedFd<'_>) -> Option<AclBits> {
    let value = match call_with_growing_buffer(|value| fgetxattr(directory, DEFAULT_ACL, value)) {
        // The descriptor was opened with `O_PATH`.
        Err(Errno::BADF) => {
            let path = format!("/proc/self/fd/{}", directory.as_raw_fd());
            call_with_growing_buffer(|value| getxattr(&*path, DEFAULT_ACL, value))
        }
        answer => answer,
    };
    value.ok().and_then(|value| AclBits::of(&value))
}

/// The owner and group of a file, as far as a request has set them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct RequestedOwner {
    pub(crate) user: Option<u32>,
    pub(crate) group: Option<u32>,
}

/// Reports that a file could not get the permissions of the file that it replaces.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PermissionsNotTaken {
    /// The error of setting the mode.
    pub(crate) errno: Errno,
    /// The requested mode.
    pub(crate) mode: Mode,
}

impl PermissionsNotTaken {
    fn new(mode: u32, errno: Errno) -> PermissionsNotTaken {
        PermissionsNotTaken { errno, mode: Mode::from_raw_mode(mode) }
    }

    /// Returns true if the mode of `file` gives group or others more permissions than requested.
    pub(crate) fn is_exceeded_by(self, file: BorrowedFd<'_>) -> bool {
        fstat(file).map_or(true, |stat| stat.st_mode & NOT_OWNERS & !self.mode.as_raw_mode() != 0)
    }
}

/// Gives `file`, which is about to replace the regular file `name`, the permissions of that file: its mode
/// without set-ID bits, its access ACL and, as far as possible and not requested otherwise, its owner and
/// group. Without the group, the group bits are cut to those of others.
pub(crate) fn take_over_permissions(
    file: BorrowedFd<'_>,
    directory: BorrowedFd<'_>,
    name: &[u8],
    owned: RequestedOwner,
) -> Result<(), PermissionsNotTaken> {
    let Ok(replaced) = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) else { return Ok(()) };
    if !is_regular(&replaced) {
        return Ok(());
    }
    let mut mode = replaced.st_mode & (PERMISSIONS | STICKY);
    let has_group = take_owner(file, &replaced, owned)
        .map_err(|errno| PermissionsNotTaken::new(mode & !NOT_OWNERS, errno))?;
    if !has_group {
        mode = mode & !GROUP | mode & (mode & 7) << 3;
    }
    let acl = CString::new(name).map_err(|_| Errno::INVAL).and_then(|name| {
        call_with_growing_buffer(|value| lgetxattr(&*path_of(directory, &name), ACCESS_ACL, value))
    });
    match acl {
        Ok(value) => {
            // Without the ACL, the mask would exceed the rights of the group.
            let narrow = AclBits::of(&value).map_or(mode & !GROUP, |acl| acl.mode_without_acl(mode));
            fchmod(file, Mode::from_raw_mode(narrow))
                .map_err(|errno| PermissionsNotTaken::new(narrow, errno))?;
            if has_group {
                let _ = fsetxattr(file, ACCESS_ACL, &value, XattrFlags::empty());
            }
            Ok(())
        }
        Err(errno) => {
            if errno == Errno::NODATA {
                // The file may have inherited an ACL from its directory.
                let _ = fremovexattr(file, ACCESS_ACL);
            }
            fchmod(file, Mode::from_raw_mode(mode)).map_err(|errno| PermissionsNotTaken::new(mode, errno))
        }
    }
}

/// Sets owner and group; returns true if the file has the group of the replaced file or the requested one.
fn take_owner(file: BorrowedFd<'_>, replaced: &Stat, owned: RequestedOwner) -> Result<bool, Errno> {
    let made = fstat(file)?;
    if owned.user.is_none() && made.st_uid != replaced.st_uid && rustix::process::geteuid().is_root() {
        // A user who may not give the file away stays its owner.
        let _ = fchown(file, Some(Uid::from_raw(replaced.st_uid)), None);
    }
    let is_kept = owned.group.is_some() || made.st_gid == replaced.st_gid;
    Ok(is_kept || fchown(file, None, Some(Gid::from_raw(replaced.st_gid))).is_ok())
}

/// Gives a directory that this program made, and that got no mode from the source, the mode that mkdir(1)
/// would set.
pub(crate) fn replace_provisional_mode(directory: impl AsFd) -> Result<(), Errno> {
    let directory = directory.as_fd();
    let found = fstat(directory)?.st_mode;
    if !is_provisional(found) {
        return Ok(());
    }
    fchmod(directory, Mode::from_raw_mode(mode_of_new_directory_in(directory, PERMISSIONS, found)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::temporary_names::FinalNameMethod;
    use crate::{
        AttributeWriter, CommitCare, MetadataToSet, NewLargeFileSpec, ScratchNames, UncommittedFile,
        WriteIoMethod, clear_umask, place_small, place_special, place_symlink,
    };
    use carrack_layout::{FileSystems, RequestedLayout};
    use carrack_model::{FailureKind, KeptMetadata, Metadata, SpecialFile};
    use std::fs::{self, File};
    use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
    use std::path::Path;

    const NEW: ModePolicy =
        ModePolicy { perms: false, times: true, directory_times: true, sets_group_id: false };

    /// Entries of an ACL: tag, permissions, and ID.
    fn acl(entries: &[(u16, u16, u32)]) -> Vec<u8> {
        let mut value = 2_u32.to_le_bytes().to_vec();
        for (tag, perm, id) in entries {
            value.extend_from_slice(&tag.to_le_bytes());
            value.extend_from_slice(&perm.to_le_bytes());
            value.extend_from_slice(&id.to_le_bytes());
        }
        value
    }

    fn owners(user: u16, group: u16, other: u16) -> [(u16, u16, u32); 3] {
        [(0x01, user, u32::MAX), (0x04, group, u32::MAX), (0x20, other, u32::MAX)]
    }

    /// An ACL with a named user of all permissions.
    fn named(group: u16, mask: u16, other: u16) -> Vec<u8> {
        let [user, group, other] = owners(7, group, other);
        acl(&[user, (0x02, 7, 1234), group, (0x10, mask, u32::MAX), other])
    }

    fn set_acl(path: &Path, name: &CStr, value: &[u8]) -> bool {
        rustix::fs::setxattr(path, name, value, XattrFlags::empty()).is_ok()
    }

    /// Places `name` by each method of small files, and as a large file, and calls `look` after each.
    fn place(
        dir: &Path,
        name: &str,
        mode: u32,
        policy: ModePolicy,
        before: impl Fn(&Path),
        look: impl Fn(&Path, &str),
    ) {
        clear_umask();
        let (path, held) = (dir.join(name), File::open(dir).unwrap());
        let metadata = Metadata { mode, ..Metadata::default() };
        let dress = MetadataToSet { policy, ..MetadataToSet::from(&metadata) };
        for way in [FinalNameMethod::LinkDescriptor, FinalNameMethod::LinkProc, FinalNameMethod::Rename] {
            let scratch = ScratchNames::new(None).unwrap();
            scratch.record_final_name_method(way);
            before(&path);
            place_small(held.as_fd(), name.as_bytes(), b"new", dress, CommitCare::default(), &scratch)
                .unwrap();
            look(&path, &format!("{way:?}"));
            fs::remove_file(&path).unwrap();
        }
        before(&path);
        let scratch = ScratchNames::new(None).unwrap();
        let file_system = FileSystems::new(&[]).unwrap().file_system_of(held.as_fd()).unwrap();
        let spec = NewLargeFileSpec {
            size: 3,
            file_system: &file_system,
            stripe: &RequestedLayout::Default,
            io: WriteIoMethod::Cached,
            part_offset: None,
        };
        let directory = File::open(dir).unwrap().into();
        let (growing, _) = UncommittedFile::create(directory, name.as_bytes(), spec, &scratch).unwrap();
        growing.write_at(b"new", 0).unwrap();
        growing.commit(dress, false).unwrap();
        look(&path, "large");
        fs::remove_file(&path).unwrap();
    }

    fn access_acl(path: &Path) -> Option<Vec<u8>> {
        call_with_growing_buffer(|acl| getxattr(path, ACCESS_ACL, acl)).ok()
    }

    fn mode_of(path: &Path) -> u32 {
        fs::symlink_metadata(path).unwrap().mode() & 0o7777
    }

    #[test]
    fn a_new_file_gets_what_the_umask_leaves() {
        let dir = tempfile::tempdir().unwrap();
        clear_umask();
        let left = 0o666 & !users_umask();
        place(dir.path(), "f", 0o6666, NEW, |_| {}, |path, way| assert_eq!(mode_of(path), left, "{way}"));
    }

    /// The result is the same as of open(2) with the mode of the source: the umask does not count, but the
    /// directory's ACL.
    #[test]
    fn a_default_acl_stands_in_the_place_of_the_umask() {
        let dir = tempfile::tempdir().unwrap();
        for (value, mode, expected) in [
            (named(5, 7, 0), 0o666, 0o660),
            (named(5, 5, 5), 0o777, 0o755),
            (named(7, 4, 4), 0o600, 0o600),
            (acl(&owners(7, 7, 1)), 0o777, 0o771),
            (acl(&owners(6, 0, 0)), 0o755, 0o600),
        ] {
            if !set_acl(dir.path(), DEFAULT_ACL, &value) {
                println!("skipped: no ACLs here");
                return;
            }
            let like = dir.path().join("like");
            // The kernel's own choice for such a file.
            let flags = rustix::fs::OFlags::CREATE | rustix::fs::OFlags::WRONLY;
            drop(rustix::fs::open(&like, flags, Mode::from_raw_mode(mode)).unwrap());
            place(
                dir.path(),
                "f",
                mode,
                NEW,
                |_| {},
                |path, way| {
                    assert_eq!(mode_of(path), expected, "{way} {mode:o}");
                    assert_eq!(
                        (mode_of(path), access_acl(path)),
                        (mode_of(&like), access_acl(&like)),
                        "{way} {mode:o}"
                    );
                },
            );
            fs::remove_file(&like).unwrap();
            // An exact mode is exact, and no ACL widens it.
            let exact = ModePolicy::default();
            place(
                dir.path(),
                "f",
                0o640,
                exact,
                |_| {},
                |path, way| {
                    assert_eq!((mode_of(path), access_acl(path)), (0o640, None), "{way}");
                },
            );
        }
    }

    #[test]
    fn a_file_that_is_replaced_passes_its_permissions_on() {
        let dir = tempfile::tempdir().unwrap();
        let is_root = rustix::process::geteuid().is_root();
        fn make_old(path: &Path) {
            fs::write(path, "old").unwrap();
            if rustix::process::geteuid().is_root() {
                std::os::unix::fs::chown(path, Some(1_234), Some(1_235)).unwrap();
            }
            fs::set_permissions(path, fs::Permissions::from_mode(0o4664)).unwrap();
        }
        place(dir.path(), "f", 0o755, NEW, make_old, |path, way| {
            assert_eq!((mode_of(path), fs::read(path).unwrap()), (0o664, b"new".to_vec()), "{way}");
            let found = fs::metadata(path).unwrap();
            assert!(!is_root || (found.uid(), found.gid()) == (1_234, 1_235), "{way}");
        });
        place(dir.path(), "f", 0o755, ModePolicy::default(), make_old, |path, _| {
            assert_eq!(mode_of(path), 0o755);
        });
        let value = named(4, 6, 0);
        if !set_acl(dir.path(), DEFAULT_ACL, &named(7, 7, 7)) {
            return;
        }
        place(
            dir.path(),
            "f",
            0o777,
            NEW,
            |path| {
                fs::write(path, "old").unwrap();
                assert!(set_acl(path, ACCESS_ACL, &value));
            },
            |path, way| {
                assert_eq!((mode_of(path), access_acl(path)), (0o760, Some(value.clone())), "{way}");
            },
        );
        fn make_bare(path: &Path) {
            fs::write(path, "old").unwrap();
            let _ = rustix::fs::removexattr(path, ACCESS_ACL);
            fs::set_permissions(path, fs::Permissions::from_mode(0o660)).unwrap();
        }
        place(dir.path(), "f", 0o777, NEW, make_bare, |path, way| {
            assert_eq!((mode_of(path), access_acl(path)), (0o660, None), "{way}");
        });
    }

    /// The mask of an ACL is no right of the group.
    #[test]
    fn without_its_acl_a_mode_is_narrower() {
        let bits = AclBits::of(&named(4, 6, 0)).unwrap();
        assert_eq!((bits.mode(), bits.mode_without_acl(0o4760)), (0o760, 0o4740));
        assert_eq!(AclBits::of(&named(0, 7, 0)).unwrap().mode_without_acl(0o777), 0o707);
        assert_eq!(AclBits::of(&acl(&owners(6, 5, 1))).unwrap().mode(), 0o651);
        for bad in [&b""[..], b"\x02\0\0", b"\x01\0\0\0", b"\x02\0\0\0\x01"] {
            assert_eq!(AclBits::of(bad), None);
        }
    }

    #[test]
    fn what_is_no_file_is_replaced_only_where_its_kind_is_copied() {
        let dir = tempfile::tempdir().unwrap();
        let held = File::open(dir.path()).unwrap();
        let (metadata, keeper) = (Metadata::default(), AttributeWriter::new(true));
        place_special(
            held.as_fd(),
            b"pipe",
            &SpecialFile::Fifo,
            &metadata,
            &keeper,
            &ScratchNames::new(None).unwrap(),
        )
        .unwrap();
        let path = dir.path().join("pipe");
        for way in [FinalNameMethod::LinkDescriptor, FinalNameMethod::LinkProc, FinalNameMethod::Rename] {
            let scratch = ScratchNames::new(None).unwrap();
            scratch.record_final_name_method(way);
            for policy in [NEW, ModePolicy::default()] {
                let dress = MetadataToSet { policy, ..MetadataToSet::from(&metadata) };
                let placed = place_small(held.as_fd(), b"pipe", b"x", dress, CommitCare::default(), &scratch);
                assert_eq!(placed.unwrap_err().kind(), FailureKind::InTheWay, "{way:?}");
                let linked = place_symlink(held.as_fd(), b"pipe", b"x", dress, &scratch);
                assert_eq!(linked.unwrap_err().kind(), FailureKind::InTheWay, "{way:?}");
            }
            assert!(fs::symlink_metadata(&path).unwrap().file_type().is_fifo());
            assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "temporary names are left");
        }
        let scratch = ScratchNames::new(None)
            .unwrap()
            .with_replaceable(KeptMetadata { specials: true, ..KeptMetadata::default() });
        place_small(held.as_fd(), b"pipe", b"x", &metadata, CommitCare::default(), &scratch).unwrap();
        assert!(fs::symlink_metadata(&path).unwrap().is_file());
    }
}
