//! Modes at the sink: what a new entry gets, what stays of the file that is replaced, and which set-ID bits are kept.
//!
//! Without `--perms` a new entry gets what open(2) and mkdir(2) would give it: the permission bits of the source less the umask, or
//! those that the directory's default ACL allows (acl(5)). An entry that is there keeps its mode.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use carrack_model::Fidelity;
use rustix::fs::{
    AtFlags, Gid, Mode, Stat, Uid, XattrFlags, fchmod, fchown, fgetxattr, fremovexattr, fsetxattr, fstat,
    getxattr, lgetxattr, statat,
};
use rustix::io::Errno;

use crate::extras_source::{grown, path_of};
use crate::sink_file::users_umask;
use crate::status::is_regular;

/// Set-user-ID and set-group-ID (inode(7)): a program that has them runs with the rights of its owner or group.
pub(crate) const SET_IDS: u32 = SET_USER_ID | SET_GROUP_ID;
/// Set-user-ID.
pub(crate) const SET_USER_ID: u32 = 0o4000;
/// Set-group-ID.
pub(crate) const SET_GROUP_ID: u32 = 0o2000;

const STICKY: u32 = 0o1000;
const PERMISSIONS: u32 = 0o777;
const GROUP: u32 = 0o070;
const NOT_OWNERS: u32 = 0o077;

/// The ACL by which access is decided.
pub(crate) const ACCESS_ACL: &CStr = c"system.posix_acl_access";
/// The ACL that entries of a directory begin with.
const DEFAULT_ACL: &CStr = c"system.posix_acl_default";

/// Mode of a directory that this program made and whose own is not set yet. The sticky bit means nothing where only the owner has
/// permissions, so it tells the directory from those that were there, for later sessions too.
pub(crate) const PROVISIONAL: Mode = Mode::RWXU.union(Mode::SVTX);

/// Whether a directory has the mode that [`PROVISIONAL`] becomes, whatever a default ACL takes from it.
pub(crate) fn is_provisional(mode: u32) -> bool {
    mode & (STICKY | NOT_OWNERS) == STICKY
}

/// What a sink keeps of modes and times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModePolicy {
    /// Entries get the mode of the source, whatever they had.
    pub perms: bool,
    /// Modification times of files, links and special files.
    pub times: bool,
    /// Those of directories.
    pub directory_times: bool,
    /// Directories get the set-group-ID bit of the told mode though their group is not the source's.
    pub sets_group_id: bool,
}

impl Default for ModePolicy {
    fn default() -> ModePolicy {
        ModePolicy { perms: true, times: true, directory_times: true, sets_group_id: false }
    }
}

impl ModePolicy {
    /// What the user asked for.
    pub fn of(fidelity: &Fidelity) -> ModePolicy {
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
    /// Nothing if it is no ACL.
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

    /// The permission bits of a mode that belong to it.
    fn mode(self) -> u32 {
        self.user << 6 | self.mask.unwrap_or(self.group) << 3 | self.other
    }

    /// `mode`, whose group bits are the mask of this ACL, for an entry that does not have the ACL: what the owning group may.
    pub(crate) fn without(self, mode: u32) -> u32 {
        mode & !GROUP | mode & (self.group & self.mask.unwrap_or(self.group)) << 3
    }
}

/// The permission bits that a file or special file made in `directory` gets where the source has `mode`.
pub(crate) fn mode_of_new(directory: BorrowedFd<'_>, mode: u32) -> u32 {
    let mode = mode & PERMISSIONS;
    match default_acl(directory) {
        Some(acl) => mode & acl.mode(),
        None => mode & !users_umask(),
    }
}

/// What open(2) is to be given to make such a file, with the umask cleared: a default ACL is honoured by the kernel.
pub(crate) fn mode_to_create(directory: BorrowedFd<'_>, mode: u32) -> u32 {
    let mode = mode & PERMISSIONS;
    let is_masked = mode & users_umask() != 0 && default_acl(directory).is_none();
    if is_masked { mode & !users_umask() } else { mode }
}

/// The mode of a directory that this program made: `found` is its provisional one.
pub(crate) fn mode_of_new_directory_in(made: BorrowedFd<'_>, mode: u32, found: u32) -> u32 {
    // It inherited the default ACL of its parent.
    mode_of_new(made, mode) | mode & STICKY | found & SET_GROUP_ID
}

fn default_acl(directory: BorrowedFd<'_>) -> Option<AclBits> {
    let value = match grown(|value| fgetxattr(directory, DEFAULT_ACL, value)) {
        // Of a descriptor that is a path only.
        Err(Errno::BADF) => {
            let path = format!("/proc/self/fd/{}", directory.as_raw_fd());
            grown(|value| getxattr(&*path, DEFAULT_ACL, value))
        }
        answer => answer,
    };
    value.ok().and_then(|value| AclBits::of(&value))
}

/// Which of its owner and group a file got by request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Owned {
    pub(crate) user: Option<u32>,
    pub(crate) group: Option<u32>,
}

/// Gives `file`, which is about to replace the regular file `name`, its permissions: mode without set-ID bits, access ACL and, as far
/// as they can be had and nothing else was asked for, owner and group. What the group may is cut to what all may where it can't be had.
pub(crate) fn take_over(
    file: BorrowedFd<'_>,
    directory: BorrowedFd<'_>,
    name: &[u8],
    owned: Owned,
) -> Result<(), Errno> {
    let Ok(replaced) = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) else { return Ok(()) };
    if !is_regular(&replaced) {
        return Ok(());
    }
    let has_group = take_owner(file, &replaced, owned)?;
    let mut mode = replaced.st_mode & (PERMISSIONS | STICKY);
    if !has_group {
        mode = mode & !GROUP | mode & (mode & 7) << 3;
    }
    let acl = CString::new(name)
        .map_err(|_| Errno::INVAL)
        .and_then(|name| grown(|value| lgetxattr(&*path_of(directory, &name), ACCESS_ACL, value)));
    match acl {
        Ok(value) => {
            // Where the ACL can't be set, the mask is more than the group had.
            let narrow = AclBits::of(&value).map_or(mode & !GROUP, |acl| acl.without(mode));
            fchmod(file, Mode::from_raw_mode(narrow))?;
            if has_group {
                let _ = fsetxattr(file, ACCESS_ACL, &value, XattrFlags::empty());
            }
            Ok(())
        }
        Err(errno) => {
            if errno == Errno::NODATA {
                // The directory may have given it one.
                let _ = fremovexattr(file, ACCESS_ACL);
            }
            fchmod(file, Mode::from_raw_mode(mode))
        }
    }
}

/// Whether the file has the group of the one that it replaces, or the one that was asked for.
fn take_owner(file: BorrowedFd<'_>, replaced: &Stat, owned: Owned) -> Result<bool, Errno> {
    let made = fstat(file)?;
    if owned.user.is_none() && made.st_uid != replaced.st_uid && rustix::process::geteuid().is_root() {
        // Whoever may not give it away owns it.
        let _ = fchown(file, Some(Uid::from_raw(replaced.st_uid)), None);
    }
    let is_kept = owned.group.is_some() || made.st_gid == replaced.st_gid;
    Ok(is_kept || fchown(file, None, Some(Gid::from_raw(replaced.st_gid))).is_ok())
}

/// Gives a directory that nobody told the mode of, if this program made it, the mode that mkdir(1) would have given it.
pub(crate) fn settle_provisional(directory: impl AsFd) -> Result<(), Errno> {
    let directory = directory.as_fd();
    let found = fstat(directory)?.st_mode;
    if !is_provisional(found) {
        return Ok(());
    }
    fchmod(directory, Mode::from_raw_mode(mode_of_new_directory_in(directory, PERMISSIONS, found)))
}
