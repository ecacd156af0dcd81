//! Reads owners by name, extended attributes and ACLs at the source, besides mode and time.
//!
//! The scan's threads call it with the status that they have anyway; no file is opened. Attributes are read
//! through `/proc/self/fd/DIRECTORY/NAME`, which works for links and unreadable files, too.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use carrack_model::{
    CompleteAttributeKinds, ExtendedAttribute, ExtraMetadata, FileFlags, HardLinkTarget, MetadataFidelity,
    RelPath, SpecialFile, UserOrGroup,
};
use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, fgetxattr, flistxattr, getxattr, lgetxattr, listxattr, llistxattr,
    openat, statat,
};
use rustix::io::Errno;

use crate::account_names::{group_name, user_name};
use crate::file_flags::flags_of;
use crate::modes::{ACCESS_ACL, AclBits};
use crate::source_owner_maps::OwnerMappingRules;
use crate::{FileIdentity, MetadataLossCounter};

/// The longest list of names (`XATTR_LIST_MAX`), and the longest value (`XATTR_SIZE_MAX`).
const XATTR_BYTES_MAX: usize = 64 << 10;

/// Where Lustre keeps layouts, identities and states of files. A copy has its own; a directory that is given
/// another one's `trusted.lov` would stripe its files as the old place does.
const LUSTRE_INTERNAL: [&[u8]; 8] = [
    b"trusted.lov",
    b"trusted.lma",
    b"trusted.lmv",
    b"trusted.link",
    b"trusted.fid",
    b"trusted.som",
    b"trusted.hsm",
    b"trusted.dmv",
];

/// Bound of one entry's extras: with the longest path they fit into a message that announces a file.
const EXTRAS_BYTES_MAX: usize = 160 << 10;

/// The same bound for the smallest slots, which hold little more than the longest path.
const EXTRAS_BYTES_SMALL: usize = 48 << 10;

/// Bound of the cache of account names; further ones are looked up each time.
const NAMES_MAX: usize = 10_000;

/// Reads the requested extras. Any number of threads may call it.
#[derive(Debug)]
pub struct ExtraMetadataReader {
    fidelity: MetadataFidelity,
    bytes_max: usize,
    is_root: bool,
    user_rules: OwnerMappingRules,
    group_rules: OwnerMappingRules,
    users: AccountNames,
    groups: AccountNames,
    losses: MetadataLossCounter,
    links: Mutex<HashMap<FileIdentity, UnscannedHardLinks>>,
    /// True if the file system of the first directory does not list its ACLs.
    hides_acls: OnceLock<bool>,
}

/// A cache of account names.
#[derive(Debug, Default)]
struct AccountNames(Mutex<HashMap<u32, Arc<[u8]>>>);

/// A file with hard links that the scan has not all met: about 150 bytes and its path. Files with one name
/// cost nothing.
#[derive(Debug)]
struct UnscannedHardLinks {
    path: RelPath,
    size: u64,
    names_left: u32,
}

/// The location of an entry.
#[derive(Clone, Copy)]
pub(crate) enum AttributeHolder<'a> {
    Open(BorrowedFd<'a>),
    Named { directory: BorrowedFd<'a>, name: &'a CStr, follow: bool },
}

impl ExtraMetadataReader {
    /// Reads the extras that `fidelity` requests, for slots of this size; none if it requests none.
    pub fn new(fidelity: MetadataFidelity, slot_bytes: usize) -> Option<ExtraMetadataReader> {
        let bytes_max = if slot_bytes >= 256 << 10 { EXTRAS_BYTES_MAX } else { EXTRAS_BYTES_SMALL };
        (!fidelity.kept.is_nothing()).then(|| ExtraMetadataReader {
            user_rules: OwnerMappingRules::new(&fidelity.user_map),
            group_rules: OwnerMappingRules::new(&fidelity.group_map),
            fidelity,
            bytes_max,
            is_root: rustix::process::geteuid().is_root(),
            users: AccountNames::default(),
            groups: AccountNames::default(),
            losses: MetadataLossCounter::default(),
            links: Mutex::default(),
            hides_acls: OnceLock::new(),
        })
    }

    /// The extras that could not be read.
    pub fn losses(&self) -> &MetadataLossCounter {
        &self.losses
    }

    /// Reads the extras of one entry with this owner and group.
    pub(crate) fn read(&self, spot: AttributeHolder<'_>, uid: u32, gid: u32) -> Option<Box<ExtraMetadata>> {
        let extras = self
            .read_extras(spot, (uid, gid), &mut |reason| self.losses.count("extended attributes", reason));
        (!extras.is_empty()).then(|| Box::new(extras))
    }

    /// Reads the extras of `name` in `directory`, or of the directory itself, and the first reason why an
    /// attribute could not be read.
    ///
    /// # Errors
    /// A name with a NUL.
    pub fn read_by_name(
        &self,
        directory: BorrowedFd<'_>,
        name: Option<&[u8]>,
        owner: (u32, u32),
    ) -> io::Result<(ExtraMetadata, Option<String>)> {
        // The directory may be open with `O_PATH`, which gives no access to its own attributes.
        let name = CString::new(name.unwrap_or(b"."))?;
        let spot = AttributeHolder::Named { directory, name: &name, follow: false };
        let mut problem = None;
        let extras = self.read_extras(spot, owner, &mut |reason| {
            problem.get_or_insert_with(|| reason.to_owned());
        });
        Ok((extras, problem))
    }

    /// Returns true if it sees the attributes that only root may set.
    pub fn sees_privileged(&self) -> bool {
        self.is_root
    }

    /// Calls `lost` with the reason for each unreadable attribute.
    fn read_extras(
        &self,
        spot: AttributeHolder<'_>,
        (uid, gid): (u32, u32),
        lost: &mut dyn FnMut(&str),
    ) -> ExtraMetadata {
        let MetadataFidelity { kept, user, group, .. } = &self.fidelity;
        let is_asked = kept.attributes || kept.acls;
        let (attributes, all_told) = if is_asked { self.attributes(spot, lost) } else { Default::default() };
        ExtraMetadata {
            user: kept.users.then(|| self.account(user, uid, (&self.user_rules, &self.users), user_name)),
            group: kept
                .groups
                .then(|| self.account(group, gid, (&self.group_rules, &self.groups), group_name)),
            attributes,
            all_told,
            flags: if kept.file_flags { flags_at(spot) } else { None },
            striping: None,
            same_as: None,
        }
    }

    /// Returns true if a device, pipe or socket of this type is requested.
    pub(crate) fn keeps(&self, special: &SpecialFile) -> bool {
        self.fidelity.kept.keeps_special(special)
    }

    /// Returns true if any special files are requested.
    pub(crate) fn keeps_specials(&self) -> bool {
        self.fidelity.kept.devices || self.fidelity.kept.specials
    }

    /// Returns true if hard links are kept.
    pub(crate) fn follows_links(&self) -> bool {
        self.fidelity.kept.hard_links
    }

    /// Returns the first name of the file of `size` bytes that the scan meets at `path`; none if `path` is
    /// the first of its `names` names.
    pub(crate) fn hard_link_target(
        &self,
        file: FileIdentity,
        names: u32,
        size: u64,
        path: RelPath,
    ) -> Option<HardLinkTarget> {
        let mut links = self.links.lock().unwrap_or_else(PoisonError::into_inner);
        match links.entry(file) {
            Entry::Vacant(vacant) => {
                vacant.insert(UnscannedHardLinks { path, size, names_left: names.saturating_sub(1) });
                None
            }
            Entry::Occupied(mut occupied) => {
                let first = occupied.get_mut();
                first.names_left = first.names_left.saturating_sub(1);
                let same_as = HardLinkTarget { path: first.path.clone(), size: first.size };
                // All names were met.
                if first.names_left == 0 {
                    occupied.remove();
                }
                Some(same_as)
            }
        }
    }

    /// The requested account, or that of the number. Number 0 is root on every host and gets no name.
    fn account(
        &self,
        requested: &Option<UserOrGroup>,
        number: u32,
        (rules, names): (&OwnerMappingRules, &AccountNames),
        look_up: fn(u32) -> Option<String>,
    ) -> UserOrGroup {
        if let Some(account) = requested {
            return account.clone();
        }
        if let Some(account) = rules.mapped_account(number, || names.of(number, look_up)) {
            return account;
        }
        let is_number = self.fidelity.numeric_ids || number == 0;
        let name = if is_number { Arc::default() } else { names.of(number, look_up) };
        UserOrGroup { number, name }
    }

    /// Reads the requested attributes. If one is unreadable or too large, the others are not marked as
    /// complete.
    fn attributes(
        &self,
        spot: AttributeHolder<'_>,
        lost: &mut dyn FnMut(&str),
    ) -> (Vec<ExtendedAttribute>, CompleteAttributeKinds) {
        let mut names = match list_attributes(spot) {
            Ok(names) => names,
            Err(Errno::OPNOTSUPP) => return Default::default(),
            Err(errno) => {
                lost(&loss_reason(errno));
                return Default::default();
            }
        };
        let kept = self.fidelity.kept;
        if kept.acls && self.has_hidden_acl(spot, &names) {
            names.extend_from_slice(ACCESS_ACL.to_bytes_with_nul());
        }
        let mut all_told = CompleteAttributeKinds { attributes: kept.attributes, acls: kept.acls };
        let mut found = Vec::new();
        let mut bytes = 0;
        for name in names.split(|&byte| byte == 0).filter(|name| self.is_wanted(name)) {
            let value = match get(spot, name) {
                Ok(value) => value,
                // Removed since the list was read.
                Err(Errno::NODATA) => continue,
                Err(errno) => {
                    lost(&loss_reason(errno));
                    all_told = CompleteAttributeKinds::default();
                    continue;
                }
            };
            // The 8 bytes are the lengths of name and value, and the tag.
            let with_this = bytes + name.len() + value.len() + 8;
            if with_this > self.bytes_max {
                lost("too large to travel with an entry");
                all_told = CompleteAttributeKinds::default();
                continue;
            }
            bytes = with_this;
            found.push(ExtendedAttribute { name: name.into(), value: value.into() });
        }
        (found, all_told)
    }

    /// Returns true if an entry has an access ACL that `names` does not list and that says more than its
    /// mode: NTFS-3G lists none. The first directory shows if the file system hides ACLs. A file system that
    /// derives ACLs from modes has one for every entry.
    fn has_hidden_acl(&self, spot: AttributeHolder<'_>, names: &[u8]) -> bool {
        let is_listed = names.split(|&byte| byte == 0).any(|name| name == ACCESS_ACL.to_bytes());
        let hides = match (self.hides_acls.get(), spot) {
            (Some(&hides), _) => hides,
            (None, AttributeHolder::Open(_)) => {
                let hides = !is_listed && get(spot, ACCESS_ACL.to_bytes()).is_ok();
                *self.hides_acls.get_or_init(|| hides)
            }
            (None, AttributeHolder::Named { .. }) => false,
        };
        if !hides || is_listed {
            return false;
        }
        let acl = get(spot, ACCESS_ACL.to_bytes()).ok().and_then(|value| AclBits::of(&value));
        acl.is_some_and(AclBits::has_mask)
    }

    /// Other users than root see more attributes than they may set. The rest of `system` belongs to the file
    /// system, and so does [`LUSTRE_INTERNAL`].
    fn is_wanted(&self, name: &[u8]) -> bool {
        if LUSTRE_INTERNAL.contains(&name) {
            return false;
        }
        let kept = self.fidelity.kept;
        let is_acl = name.starts_with(b"system.posix_acl_");
        let is_plain = name.starts_with(b"user.");
        let is_privileged = name.starts_with(b"trusted.") || name.starts_with(b"security.");
        is_acl && kept.acls || kept.attributes && (is_plain || is_privileged && self.is_root)
    }
}

/// Reads the flags with a further `statx`: the scan's own one lacks them, and directories have none.
fn flags_at(spot: AttributeHolder<'_>) -> Option<FileFlags> {
    match spot {
        AttributeHolder::Open(fd) => flags_of(fd, c"", AtFlags::EMPTY_PATH),
        AttributeHolder::Named { directory, name, follow: true } => {
            flags_of(directory, name, AtFlags::empty())
        }
        AttributeHolder::Named { directory, name, follow: false } => {
            flags_of(directory, name, AtFlags::SYMLINK_NOFOLLOW)
        }
    }
}

impl AccountNames {
    fn of(&self, number: u32, look_up: fn(u32) -> Option<String>) -> Arc<[u8]> {
        if let Some(name) = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&number).cloned() {
            return name;
        }
        // Without the lock, as the lookup may ask other hosts.
        let name: Arc<[u8]> = look_up(number).unwrap_or_default().into_bytes().into();
        let mut names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if names.len() < NAMES_MAX {
            names.insert(number, Arc::clone(&name));
        }
        name
    }
}

/// The names of an entry's attributes, each followed by a NUL.
pub(crate) fn list_attributes(spot: AttributeHolder<'_>) -> Result<Vec<u8>, Errno> {
    call_with_growing_buffer(|buffer| match spot {
        AttributeHolder::Open(file) => flistxattr(file, buffer),
        AttributeHolder::Named { directory, name, follow } => {
            let path = path_of(directory, name);
            let listed =
                if follow { listxattr(&*path, &mut *buffer) } else { llistxattr(&*path, &mut *buffer) };
            match listed {
                Err(Errno::NOENT) => flistxattr(open_plain(directory, name, follow)?, buffer),
                answer => answer,
            }
        }
    })
}

/// The value of one attribute.
pub(crate) fn get(spot: AttributeHolder<'_>, attribute: &[u8]) -> Result<Vec<u8>, Errno> {
    call_with_growing_buffer(|buffer| match spot {
        AttributeHolder::Open(file) => fgetxattr(file, attribute, buffer),
        AttributeHolder::Named { directory, name, follow } => {
            let path = path_of(directory, name);
            let got = if follow {
                getxattr(&*path, attribute, &mut *buffer)
            } else {
                lgetxattr(&*path, attribute, &mut *buffer)
            };
            match got {
                Err(Errno::NOENT) => fgetxattr(open_plain(directory, name, follow)?, attribute, buffer),
                answer => answer,
            }
        }
    })
}

/// Opens a file or directory for its attributes where `/proc` is missing. Special files are refused, as
/// opening them may have side effects.
fn open_plain(directory: BorrowedFd<'_>, name: &CStr, follow: bool) -> Result<OwnedFd, Errno> {
    let (looking, opening) = if follow {
        (AtFlags::empty(), OFlags::empty())
    } else {
        (AtFlags::SYMLINK_NOFOLLOW, OFlags::NOFOLLOW)
    };
    let found = FileType::from_raw_mode(statat(directory, name, looking)?.st_mode);
    if !matches!(found, FileType::RegularFile | FileType::Directory) {
        return Err(Errno::OPNOTSUPP);
    }
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    openat(directory, name, flags | opening, Mode::empty())
}

/// Calls `get` or `list` with a short buffer, then with a long one. Most entries have no attributes, or short
/// ones.
pub(crate) fn call_with_growing_buffer(
    mut call: impl FnMut(&mut [u8]) -> Result<usize, Errno>,
) -> Result<Vec<u8>, Errno> {
    let mut short = [0; 256];
    match call(&mut short) {
        Err(Errno::RANGE) => {}
        answer => return answer.map(|count| short[..count].to_vec()),
    }
    let mut long = vec![0; XATTR_BYTES_MAX];
    let count = call(&mut long)?;
    long.truncate(count);
    Ok(long)
}

/// The path of a name in a held directory, for calls that take no directory descriptor.
pub(crate) fn path_of(directory: BorrowedFd<'_>, name: &CStr) -> Vec<u8> {
    let mut path = format!("/proc/self/fd/{}/", directory.as_raw_fd()).into_bytes();
    path.extend_from_slice(name.to_bytes());
    path
}

/// The error as text without its number.
pub(crate) fn loss_reason(errno: Errno) -> String {
    match errno {
        Errno::PERM | Errno::ACCESS => "not permitted".to_owned(),
        Errno::OPNOTSUPP => "the file system does not have them".to_owned(),
        errno => std::io::Error::from(errno).to_string(),
    }
}
