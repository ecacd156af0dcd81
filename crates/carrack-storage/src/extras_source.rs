//! What an entry has beyond mode and time, at the source: its owner by name, its extended attributes and ACLs.
//!
//! Looked at by the scan's threads, beside the status that they ask for anyway: no file is opened for it. Attributes are
//! asked for by way of `/proc/self/fd/DIRECTORY/NAME`, which links and files that can't be read have too.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use carrack_model::{Account, AllTold, Attribute, Extras, Fidelity, FileFlags, RelPath, SameAs, Special};
use nix::unistd::{Gid, Group, Uid, User};
use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, fgetxattr, flistxattr, getxattr, lgetxattr, listxattr, llistxattr,
    openat, statat,
};
use rustix::io::Errno;

use crate::account_rules::AccountRules;
use crate::file_flags::flags_of;
use crate::modes::{ACCESS_ACL, AclBits};
use crate::{Identity, Losses};

/// The longest list of names (`XATTR_LIST_MAX`), and the longest value (`XATTR_SIZE_MAX`).
const XATTR_BYTES_MAX: usize = 64 << 10;

/// Most of what may travel with one entry: with the longest path it fits into a message that announces a file.
const EXTRAS_BYTES_MAX: usize = 160 << 10;

/// The same in the smallest slots, which hold little more than the longest path.
const EXTRAS_BYTES_SMALL: usize = 48 << 10;

/// Accounts whose names are remembered; further ones are looked up each time.
const NAMES_MAX: usize = 10_000;

/// Reads them, as far as they are wanted. Any number of threads may ask.
#[derive(Debug)]
pub struct ExtrasReader {
    fidelity: Fidelity,
    bytes_max: usize,
    is_root: bool,
    user_rules: AccountRules,
    group_rules: AccountRules,
    users: Names,
    groups: Names,
    losses: Losses,
    links: Mutex<HashMap<Identity, FirstName>>,
    /// Whether the file system of the first directory has ACLs that it does not list.
    hides_acls: OnceLock<bool>,
}

/// Names that were looked up.
#[derive(Debug, Default)]
struct Names(Mutex<HashMap<u32, Arc<[u8]>>>);

/// A file of which not all names were met: about 150 bytes and its path. Who has but one name costs nothing.
#[derive(Debug)]
struct FirstName {
    path: RelPath,
    size: u64,
    names_left: u32,
}

/// Where an entry is.
#[derive(Clone, Copy)]
pub(crate) enum Spot<'a> {
    Open(BorrowedFd<'a>),
    Named { directory: BorrowedFd<'a>, name: &'a CStr, follow: bool },
}

impl ExtrasReader {
    /// For what is to be kept, in slots of this size; nothing if nothing is.
    pub fn new(fidelity: Fidelity, slot_bytes: usize) -> Option<ExtrasReader> {
        let bytes_max = if slot_bytes >= 256 << 10 { EXTRAS_BYTES_MAX } else { EXTRAS_BYTES_SMALL };
        (!fidelity.kept.is_nothing()).then(|| ExtrasReader {
            user_rules: AccountRules::new(&fidelity.user_map),
            group_rules: AccountRules::new(&fidelity.group_map),
            fidelity,
            bytes_max,
            is_root: rustix::process::geteuid().is_root(),
            users: Names::default(),
            groups: Names::default(),
            losses: Losses::default(),
            links: Mutex::default(),
            hides_acls: OnceLock::new(),
        })
    }

    /// What could not be read.
    pub fn losses(&self) -> &Losses {
        &self.losses
    }

    /// Of one entry with this owner and group.
    pub(crate) fn read(&self, spot: Spot<'_>, uid: u32, gid: u32) -> Option<Box<Extras>> {
        let extras =
            self.extras(spot, (uid, gid), &mut |reason| self.losses.count("extended attributes", reason));
        (!extras.is_empty()).then(|| Box::new(extras))
    }

    /// Of `name` in `directory`, or of the directory itself; also why not all of its attributes can be read, if that is so.
    ///
    /// # Errors
    /// A name with a NUL.
    pub fn look_at(
        &self,
        directory: BorrowedFd<'_>,
        name: Option<&[u8]>,
        owner: (u32, u32),
    ) -> io::Result<(Extras, Option<String>)> {
        // The directory may be held as a path only, which has no attributes itself.
        let name = CString::new(name.unwrap_or(b"."))?;
        let spot = Spot::Named { directory, name: &name, follow: false };
        let mut problem = None;
        let extras = self.extras(spot, owner, &mut |reason| {
            problem.get_or_insert_with(|| reason.to_owned());
        });
        Ok((extras, problem))
    }

    /// Whether it sees the attributes that only root may set.
    pub fn sees_privileged(&self) -> bool {
        self.is_root
    }

    /// `lost` gets the reason of each attribute that can't be read.
    fn extras(&self, spot: Spot<'_>, (uid, gid): (u32, u32), lost: &mut dyn FnMut(&str)) -> Extras {
        let Fidelity { kept, user, group, .. } = &self.fidelity;
        let own_user = || self.account(uid, &self.user_rules, &self.users, user_name);
        let own_group = || self.account(gid, &self.group_rules, &self.groups, group_name);
        let is_asked = kept.attributes || kept.acls;
        let (attributes, all_told) = if is_asked { self.attributes(spot, lost) } else { Default::default() };
        Extras {
            user: kept.users.then(|| user.clone().unwrap_or_else(own_user)),
            group: kept.groups.then(|| group.clone().unwrap_or_else(own_group)),
            attributes,
            all_told,
            flags: if kept.file_flags { flags_at(spot) } else { None },
            same_as: None,
        }
    }

    /// Whether a device, pipe or socket is wanted.
    pub(crate) fn keeps(&self, special: &Special) -> bool {
        self.fidelity.kept.has(special)
    }

    /// Whether any of them are.
    pub(crate) fn keeps_specials(&self) -> bool {
        self.fidelity.kept.devices || self.fidelity.kept.specials
    }

    /// Whether it asks which names are one file's.
    pub(crate) fn follows_links(&self) -> bool {
        self.fidelity.kept.hard_links
    }

    /// What the file of `size` bytes that is met at `path` is another name of; nothing for the first of its `names`.
    pub(crate) fn same_as(&self, file: Identity, names: u32, size: u64, path: RelPath) -> Option<SameAs> {
        let mut links = self.links.lock().unwrap_or_else(PoisonError::into_inner);
        match links.entry(file) {
            Entry::Vacant(vacant) => {
                vacant.insert(FirstName { path, size, names_left: names.saturating_sub(1) });
                None
            }
            Entry::Occupied(mut occupied) => {
                let first = occupied.get_mut();
                first.names_left = first.names_left.saturating_sub(1);
                let same_as = SameAs { path: first.path.clone(), size: first.size };
                // Nobody else will ask.
                if first.names_left == 0 {
                    occupied.remove();
                }
                Some(same_as)
            }
        }
    }

    /// Root is root everywhere.
    fn account(
        &self,
        number: u32,
        rules: &AccountRules,
        names: &Names,
        look_up: fn(u32) -> Option<String>,
    ) -> Account {
        if let Some(account) = rules.of(number, || names.of(number, look_up)) {
            return account;
        }
        let is_number = self.fidelity.numeric_ids || number == 0;
        let name = if is_number { Arc::default() } else { names.of(number, look_up) };
        Account { number, name }
    }

    /// With what is not told as it can't be read, or is too large, nothing is said of the rest.
    fn attributes(&self, spot: Spot<'_>, lost: &mut dyn FnMut(&str)) -> (Vec<Attribute>, AllTold) {
        let mut names = match list(spot) {
            Ok(names) => names,
            Err(Errno::OPNOTSUPP) => return Default::default(),
            Err(errno) => {
                lost(&reason(errno));
                return Default::default();
            }
        };
        let kept = self.fidelity.kept;
        if kept.acls && self.has_hidden_acl(spot, &names) {
            names.extend_from_slice(ACCESS_ACL.to_bytes_with_nul());
        }
        let mut all_told = AllTold { attributes: kept.attributes, acls: kept.acls };
        let mut found = Vec::new();
        let mut bytes = 0;
        for name in names.split(|&byte| byte == 0).filter(|name| self.is_wanted(name)) {
            let value = match get(spot, name) {
                Ok(value) => value,
                // Gone by now.
                Err(Errno::NODATA) => continue,
                Err(errno) => {
                    lost(&reason(errno));
                    all_told = AllTold::default();
                    continue;
                }
            };
            // Beside name and value: their lengths, and the tag.
            let with_this = bytes + name.len() + value.len() + 8;
            if with_this > self.bytes_max {
                lost("too large to travel with an entry");
                all_told = AllTold::default();
                continue;
            }
            bytes = with_this;
            found.push(Attribute { name: name.into(), value: value.into() });
        }
        (found, all_told)
    }

    /// Whether an entry has an access ACL that is not among its `names`, and that says more than its mode: NTFS-3G lists none. The first
    /// directory shows whether the others have to be asked; one that makes an ACL of the mode has it for all of them.
    fn has_hidden_acl(&self, spot: Spot<'_>, names: &[u8]) -> bool {
        let is_listed = || names.split(|&byte| byte == 0).any(|name| name == ACCESS_ACL.to_bytes());
        let hides = match (self.hides_acls.get(), spot) {
            (Some(&hides), _) => hides,
            (None, Spot::Open(_)) => {
                let hides = !is_listed() && get(spot, ACCESS_ACL.to_bytes()).is_ok();
                *self.hides_acls.get_or_init(|| hides)
            }
            (None, Spot::Named { .. }) => false,
        };
        let has_mask = || {
            let acl = get(spot, ACCESS_ACL.to_bytes()).ok().and_then(|value| AclBits::of(&value));
            acl.is_some_and(AclBits::has_mask)
        };
        hides && !is_listed() && has_mask()
    }

    /// Who is not root sees more of them than he may set anywhere; what else is in `system` is the file system's own.
    fn is_wanted(&self, name: &[u8]) -> bool {
        let kept = self.fidelity.kept;
        let is_acl = name.starts_with(b"system.posix_acl_");
        let is_plain = name.starts_with(b"user.");
        let is_privileged = name.starts_with(b"trusted.") || name.starts_with(b"security.");
        is_acl && kept.acls || kept.attributes && (is_plain || is_privileged && self.is_root)
    }
}

/// One more `statx`: the one of the scan comes from another room, and directories have none.
fn flags_at(spot: Spot<'_>) -> Option<FileFlags> {
    match spot {
        Spot::Open(fd) => flags_of(fd, c"", AtFlags::EMPTY_PATH),
        Spot::Named { directory, name, follow: true } => flags_of(directory, name, AtFlags::empty()),
        Spot::Named { directory, name, follow: false } => {
            flags_of(directory, name, AtFlags::SYMLINK_NOFOLLOW)
        }
    }
}

impl Names {
    fn of(&self, number: u32, look_up: fn(u32) -> Option<String>) -> Arc<[u8]> {
        let known = |names: &HashMap<u32, Arc<[u8]>>| names.get(&number).cloned();
        if let Some(name) = known(&self.0.lock().unwrap_or_else(PoisonError::into_inner)) {
            return name;
        }
        // Without the lock: it may ask other hosts.
        let name: Arc<[u8]> = look_up(number).unwrap_or_default().into_bytes().into();
        let mut names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if names.len() < NAMES_MAX {
            names.insert(number, Arc::clone(&name));
        }
        name
    }
}

/// Who has no name, or whose name can't be looked up, is a number.
fn user_name(uid: u32) -> Option<String> {
    User::from_uid(Uid::from_raw(uid)).ok().flatten().map(|user| user.name)
}

fn group_name(gid: u32) -> Option<String> {
    Group::from_gid(Gid::from_raw(gid)).ok().flatten().map(|group| group.name)
}

/// The names of its attributes, each with a NUL behind it.
pub(crate) fn list(spot: Spot<'_>) -> Result<Vec<u8>, Errno> {
    grown(|buffer| match spot {
        Spot::Open(file) => flistxattr(file, buffer),
        Spot::Named { directory, name, follow } => {
            let path = path_of(directory, name);
            let listed = match follow {
                true => listxattr(&*path, &mut *buffer),
                false => llistxattr(&*path, &mut *buffer),
            };
            match listed {
                Err(Errno::NOENT) => flistxattr(open_plain(directory, name, follow)?, buffer),
                answer => answer,
            }
        }
    })
}

/// The value of one of them.
pub(crate) fn get(spot: Spot<'_>, attribute: &[u8]) -> Result<Vec<u8>, Errno> {
    grown(|buffer| match spot {
        Spot::Open(file) => fgetxattr(file, attribute, buffer),
        Spot::Named { directory, name, follow } => {
            let path = path_of(directory, name);
            let got = match follow {
                true => getxattr(&*path, attribute, &mut *buffer),
                false => lgetxattr(&*path, attribute, &mut *buffer),
            };
            match got {
                Err(Errno::NOENT) => fgetxattr(open_plain(directory, name, follow)?, attribute, buffer),
                answer => answer,
            }
        }
    })
}

/// Opens a file or directory for its attributes, where there is no `/proc` to reach it by. Nothing else is opened, which may have effects.
fn open_plain(directory: BorrowedFd<'_>, name: &CStr, follow: bool) -> Result<OwnedFd, Errno> {
    let (looking, opening) = match follow {
        true => (AtFlags::empty(), OFlags::empty()),
        false => (AtFlags::SYMLINK_NOFOLLOW, OFlags::NOFOLLOW),
    };
    let found = FileType::from_raw_mode(statat(directory, name, looking)?.st_mode);
    if !matches!(found, FileType::RegularFile | FileType::Directory) {
        return Err(Errno::OPNOTSUPP);
    }
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    openat(directory, name, flags | opening, Mode::empty())
}

/// What `get` and `list` give in a buffer. Most have no attributes, or short ones.
pub(crate) fn grown(mut call: impl FnMut(&mut [u8]) -> Result<usize, Errno>) -> Result<Vec<u8>, Errno> {
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

/// The way to a name in a held directory for calls that take no descriptor of one.
pub(crate) fn path_of(directory: BorrowedFd<'_>, name: &CStr) -> Vec<u8> {
    let mut path = format!("/proc/self/fd/{}/", directory.as_raw_fd()).into_bytes();
    path.extend_from_slice(name.to_bytes());
    path
}

/// In words, without the number.
pub(crate) fn reason(errno: Errno) -> String {
    match errno {
        Errno::PERM | Errno::ACCESS => "not permitted".to_owned(),
        Errno::OPNOTSUPP => "the file system does not have them".to_owned(),
        errno => std::io::Error::from(errno).to_string(),
    }
}
