//! What an entry gets beyond mode and time, at the sink: its owner, its extended attributes and ACLs.
//!
//! What can't be set is counted and does not stop the entry. In this order: owner, attributes that go, attributes, mode, ACLs: a change of the owner
//! clears set-id bits, a mode without the owner's write permission keeps attributes from being set, and an ACL holds what of the
//! mode is its mask. What gives rights to programs (`security.*`, `trusted.*`) and owners are set only where the sink's house
//! lets modes do the same.

use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::os::fd::BorrowedFd;
use std::sync::{Mutex, PoisonError};

use carrack_model::{
    Account, AccountMap, AllTold, Attribute, Extras, Fidelity, FileFlags, Kept, Metadata, NO_DUMP, NO_NUMBER,
    Special, Timestamp, escape,
};
use nix::unistd::{Group, User};
use rustix::fs::{
    AtFlags, Gid, IFlags, Mode, Stat, Timestamps, Uid, XattrFlags, chownat, fchmod, fchown, flistxattr,
    fremovexattr, fsetxattr, fstat, futimens, ioctl_getflags, ioctl_setflags, lsetxattr,
};
use rustix::io::Errno;

use crate::extras_source::{Spot, get, grown, list, path_of, reason};
use crate::file_flags::flags_of;
use crate::link_times::LinkTimes;
use crate::modes::{ACCESS_ACL, AclBits, Owned, SET_GROUP_ID, SET_IDS, SET_USER_ID};
use crate::sink_file::times;
use crate::status::is_regular;
use crate::{Losses, ModePolicy, ScratchNames, SinkError};

/// Accounts whose numbers are remembered.
const NUMBERS_MAX: usize = 10_000;

/// Lets the owner do everything, for as long as he sets attributes.
const OWNERS: Mode = Mode::RUSR.union(Mode::WUSR).union(Mode::XUSR);

pub(crate) const MODE: &str = "the mode";
pub(crate) const TIME: &str = "the time";
const OWNER: &str = "the owner";
const GROUP: &str = "the group";
const ATTRIBUTES: &str = "extended attributes";
const ACLS: &str = "ACLs";
const FLAGS: &str = "file flags";
const CAPABILITIES: &str = "file capabilities";

pub(crate) const FOLLOWS_LINKS: &str = "the file system follows symbolic links";

/// The attribute that gives rights to a program whoever starts it (capabilities(7)).
const CAPABILITY: &[u8] = b"security.capability";

/// What a file gets when its contents are complete.
#[derive(Clone, Copy, Debug)]
pub struct Dress<'a> {
    /// Mode and time.
    pub metadata: &'a Metadata,
    /// The rest, if it is kept, and who sets it.
    pub extras: Option<(&'a Extras, &'a Keeper)>,
    /// Where a mode or time is counted that the file system refuses; without it that is an error.
    pub losses: Option<&'a Losses>,
    /// Whether the mode is the one that the entry gets, and which times are set.
    pub policy: ModePolicy,
    /// Set-ID bits of the mode that stay whoever the owner is.
    pub lasting: u32,
}

impl<'a> From<&'a Metadata> for Dress<'a> {
    fn from(metadata: &'a Metadata) -> Dress<'a> {
        Dress { metadata, extras: None, losses: None, policy: ModePolicy::default(), lasting: 0 }
    }
}

/// Whether a file system or its server does not set that, for this user or at all. Errors of the storage are none of these.
fn is_refusal(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::PERM | Errno::ACCESS | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL | Errno::NOTTY
    )
}

/// What is dressed: a file that is open, or a special file that must not be opened.
pub(crate) trait Wearer {
    fn status(&self) -> Result<Stat, Errno>;
    fn own(&self, uid: Option<Uid>, gid: Option<Gid>) -> Result<(), Errno>;
    fn set_mode(&self, mode: Mode) -> Result<(), Errno>;
    fn set_attribute(&self, name: &CStr, value: &[u8]) -> Result<(), Errno>;
    fn list_attributes(&self, names: &mut [u8]) -> Result<usize, Errno>;
    fn remove_attribute(&self, name: &CStr) -> Result<(), Errno>;
    /// The descriptor, if it can have file flags.
    fn flagged(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

impl Wearer for BorrowedFd<'_> {
    fn status(&self) -> Result<Stat, Errno> {
        fstat(self)
    }

    fn own(&self, uid: Option<Uid>, gid: Option<Gid>) -> Result<(), Errno> {
        fchown(self, uid, gid)
    }

    fn set_mode(&self, mode: Mode) -> Result<(), Errno> {
        fchmod(self, mode)
    }

    fn set_attribute(&self, name: &CStr, value: &[u8]) -> Result<(), Errno> {
        fsetxattr(self, name, value, XattrFlags::empty())
    }

    fn list_attributes(&self, names: &mut [u8]) -> Result<usize, Errno> {
        flistxattr(self, names)
    }

    fn remove_attribute(&self, name: &CStr) -> Result<(), Errno> {
        fremovexattr(self, name)
    }

    fn flagged(&self) -> Option<BorrowedFd<'_>> {
        Some(*self)
    }
}

impl Dress<'_> {
    /// Everything but the time, and file flags that would keep it from being set; the mode if `sets_mode`, or if something may have changed it.
    ///
    /// Returns the owner and group that were asked for and set.
    pub(crate) fn put_on(&self, wearer: impl Wearer, sets_mode: bool) -> Result<Owned, SinkError> {
        let set_mode = |mode: u32| {
            let set = match wearer.set_mode(Mode::from_raw_mode(mode)) {
                Err(Errno::PERM) => self.set_mode_as_owner(&wearer, mode),
                answer => answer,
            };
            if set.is_ok() {
                self.tell_mode(&wearer, mode);
            }
            self.kept(MODE, "setting the mode", set)
        };
        // An exact mode has no ACL of the directory beside it, which would give more.
        let is_told = self.extras.is_some_and(|(extras, _)| extras.all_told.acls);
        let is_bare = self.policy.perms && !is_told && wearer.remove_attribute(ACCESS_ACL).is_ok();
        let Some((extras, keeper)) = self.extras else {
            let mode = self.mode_with(0);
            self.tell_set_ids(mode);
            if sets_mode || is_bare {
                set_mode(mode)?;
            } else if self.policy.perms {
                self.tell_mode(&wearer, mode);
            }
            return Ok(Owned::default());
        };
        keeper.loosen(&wearer, extras);
        let mut owned = keeper.own(extras, |uid, gid| wearer.own(uid, gid));
        let gives_rights = self.metadata.mode & SET_IDS != 0 || extras.attributes.iter().any(is_capability);
        owned = if gives_rights { keeper.seen(&wearer, owned) } else { keeper.seen_once(&wearer, owned) };
        keeper.strip(&wearer, extras);
        let (acls, attributes): (Vec<_>, Vec<_>) =
            extras.attributes.iter().partition(|attribute| attribute.is_acl());
        attributes.iter().for_each(|attribute| keeper.attribute(&wearer, attribute, extras, owned));
        let mode = self.mode_with(keeper.set_ids_of(extras, owned, self.metadata.mode));
        self.tell_set_ids(mode);
        let access = acls.iter().find(|acl| *acl.name == *ACCESS_ACL.to_bytes());
        // The group bits are the mask of the ACL, which may be refused.
        let narrow = access.map_or(mode, |acl| AclBits::of(&acl.value).map_or(mode, |acl| acl.without(mode)));
        let moded = set_mode(narrow);
        acls.iter().for_each(|acl| keeper.attribute(&wearer, acl, extras, owned));
        moded.map(|()| owned)
    }

    fn mode_with(&self, set_ids: u32) -> u32 {
        self.metadata.mode & (!SET_IDS | set_ids | self.lasting)
    }

    /// Counts a mode that was set and is not shown.
    fn tell_mode(&self, wearer: &impl Wearer, mode: u32) {
        if let Some(losses) = self.losses
            && !losses.shows_mode(mode, || wearer.status())
        {
            losses.count(MODE, "the file system shows another");
        }
    }

    /// Counts set-ID bits that are not in `mode`, which is about to be set.
    fn tell_set_ids(&self, mode: u32) {
        if let Some(losses) = self.losses.filter(|_| self.policy.perms)
            && self.metadata.mode & SET_IDS & !mode != 0
        {
            losses
                .count("set-user-ID and set-group-ID", "the owner or group that they belong to is not kept");
        }
    }

    /// The time of an open file; `before` is that of one that was there already.
    pub(crate) fn set_time(&self, file: BorrowedFd<'_>, before: Option<Timestamp>) -> Result<(), SinkError> {
        let set = |times: &Timestamps| match futimens(file, times) {
            Err(Errno::PERM) => self.as_owner(&file, &fstat(file)?, || futimens(file, times)),
            answer => answer,
        };
        self.set_time_by(before, set, || fstat(file))
    }

    /// A regular file gets its owner back without set-ID bits.
    fn set_mode_as_owner(&self, wearer: &impl Wearer, mode: u32) -> Result<(), Errno> {
        let found = wearer.status()?;
        let lasting = if is_regular(&found) { mode & !SET_IDS } else { mode };
        self.as_owner(wearer, &found, || wearer.set_mode(Mode::from_raw_mode(lasting)))?;
        if lasting == mode { Ok(()) } else { Err(Errno::PERM) }
    }

    /// Does what was refused as only the owner may do it: root without `CAP_FOWNER` may not, of a file that it gave away, and takes it
    /// back for that long. Set-ID bits would be lost by it.
    fn as_owner(
        &self,
        wearer: &impl Wearer,
        found: &Stat,
        action: impl Fn() -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let own = rustix::process::geteuid();
        let gives = self.extras.is_some_and(|(_, keeper)| keeper.is_root && keeper.is_trusting);
        let has_set_ids = is_regular(found) && found.st_mode & SET_IDS != 0;
        if !gives || has_set_ids || found.st_uid == own.as_raw() {
            return Err(Errno::PERM);
        }
        wearer.own(Some(own), None)?;
        let done = action();
        wearer.own(Some(Uid::from_raw(found.st_uid)), None).and(done)
    }

    /// The time, if it is kept, which `set` sets and `look` reads back where that tells something of the file system.
    pub(crate) fn set_time_by(
        &self,
        before: Option<Timestamp>,
        set: impl Fn(&Timestamps) -> Result<(), Errno>,
        look: impl Fn() -> Result<Stat, Errno>,
    ) -> Result<(), SinkError> {
        if !self.policy.times {
            return Ok(());
        }
        let told = self.metadata.mtime;
        let set = match self.losses {
            Some(losses) => losses.set_time(told, before, set, look),
            None => set(&times(told)),
        };
        self.timed(set)
    }

    /// What setting the time said.
    pub(crate) fn timed(&self, set: Result<(), Errno>) -> Result<(), SinkError> {
        self.kept(TIME, "setting the times", set)
    }

    fn kept(&self, what: &str, action: &'static str, set: Result<(), Errno>) -> Result<(), SinkError> {
        kept(self.losses, what, action, set)
    }
}

/// A file system that refuses something is a loss, where losses are counted.
pub(crate) fn kept(
    losses: Option<&Losses>,
    what: &str,
    action: &'static str,
    set: Result<(), Errno>,
) -> Result<(), SinkError> {
    match (set, losses) {
        (Err(errno), Some(losses)) if is_refusal(errno) => {
            if what == TIME {
                losses.lost_time();
            }
            losses.count(what, &reason(errno));
            Ok(())
        }
        (set, _) => set.map_err(|errno| SinkError::metadata(action, errno)),
    }
}

/// Owners and groups that are looked at once; what comes beyond them is looked at for each entry.
const SHOWN_MAX: usize = 4_096;

/// Numbers of accounts by their names; nothing for names that nobody has.
type Numbers = Mutex<HashMap<Box<[u8]>, Option<u32>>>;

/// Sets them. Any number of threads may ask.
#[derive(Debug)]
pub struct Keeper {
    is_root: bool,
    /// Whether entries may get other owners, and attributes that give rights.
    is_trusting: bool,
    /// What was asked for, whatever the source tells.
    kept: Kept,
    /// Whether users or groups become others than those of the source.
    maps_users: bool,
    maps_groups: bool,
    policy: ModePolicy,
    users: Mutex<HashMap<Box<[u8]>, Option<u32>>>,
    groups: Mutex<HashMap<Box<[u8]>, Option<u32>>>,
    /// What entries show whose owner and group were set so.
    shown: Mutex<HashMap<Owned, Owned>>,
    losses: Losses,
}

impl Keeper {
    /// Of a sink that lets entries have other owners than this process, or not.
    pub fn new(is_trusting: bool) -> Keeper {
        Keeper {
            is_root: rustix::process::geteuid().is_root(),
            is_trusting,
            kept: Kept::ALL,
            maps_users: false,
            maps_groups: false,
            policy: ModePolicy::default(),
            users: Mutex::default(),
            groups: Mutex::default(),
            shown: Mutex::default(),
            losses: Losses::default(),
        }
    }

    /// Sets no more than was asked for.
    pub fn keeping(self, fidelity: &Fidelity) -> Keeper {
        let mut policy = ModePolicy::of(fidelity);
        policy.sets_group_id &= self.is_trusting;
        Keeper {
            kept: fidelity.kept,
            maps_users: fidelity.user.is_some() || !fidelity.user_map.is_empty(),
            maps_groups: fidelity.group.is_some() || !fidelity.group_map.is_empty(),
            policy,
            ..self
        }
    }

    /// What of modes and times is kept.
    pub fn policy(&self) -> ModePolicy {
        self.policy
    }

    /// What could not be set.
    pub fn losses(&self) -> &Losses {
        &self.losses
    }

    /// Whether an owner is another than an entry is to have, as far as that can be had.
    pub fn would_own(&self, extras: &Extras, (uid, gid): (u32, u32)) -> bool {
        let Owned { user, group } = self.wanted(extras);
        let differs = user.is_some_and(|user| user != uid) || group.is_some_and(|group| group != gid);
        // Where none is set, nothing could be done.
        self.is_trusting && differs
    }

    /// Whose an entry is to be, as far as that was asked for and is known here.
    fn wanted(&self, extras: &Extras) -> Owned {
        let number = |account: Option<&Account>, known, look_up| {
            account.and_then(|account| numbered(account, known, look_up))
        };
        let (user, group) = (self.user_of(extras), self.group_of(extras));
        Owned {
            user: number(user, &self.users, user_number as fn(&str) -> Option<u32>),
            group: number(group, &self.groups, group_number as fn(&str) -> Option<u32>),
        }
    }

    /// The file flags that an entry is to have, if they are kept.
    pub fn flags_of(&self, extras: &Extras) -> Option<FileFlags> {
        extras.flags.filter(|_| self.kept.file_flags)
    }

    fn user_of<'e>(&self, extras: &'e Extras) -> Option<&'e Account> {
        extras.user.as_ref().filter(|_| self.kept.users)
    }

    fn group_of<'e>(&self, extras: &'e Extras) -> Option<&'e Account> {
        extras.group.as_ref().filter(|_| self.kept.groups)
    }

    /// The set-ID bits that an entry of `mode` at the source may have where it has this owner and group.
    pub fn set_ids(&self, extras: Option<&Extras>, (user, group): (u32, u32), mode: u32) -> u32 {
        let owned = Owned { user: Some(user), group: Some(group) };
        extras.map_or(0, |extras| self.set_ids_of(extras, owned, mode))
    }

    /// Those whose owner or group is the source's, by request. None where one that was asked for could not be had, as with GNU cp.
    fn set_ids_of(&self, extras: &Extras, owned: Owned, mode: u32) -> u32 {
        let has_all = || {
            let wanted = self.wanted(extras);
            (self.user_of(extras).is_none() || wanted.user.is_some() && wanted.user == owned.user)
                && (self.group_of(extras).is_none() || wanted.group.is_some() && wanted.group == owned.group)
        };
        if mode & SET_IDS == 0 || !has_all() {
            return 0;
        }
        let bit = |bit, keeps: &dyn Fn() -> bool| if mode & bit != 0 && keeps() { bit } else { 0 };
        bit(SET_USER_ID, &|| self.keeps_user(extras, owned))
            | bit(SET_GROUP_ID, &|| self.keeps_group(extras, owned))
    }

    /// Whether the owner is the one at the source: a number that is somebody else's here does not count.
    fn keeps_user(&self, extras: &Extras, owned: Owned) -> bool {
        let (Some(number), Some(account)) = (owned.user, self.user_of(extras)) else { return false };
        let is_named = || matches!(User::from_uid(number.into()), Ok(Some(_)));
        let is_same = || is_same_account(account, number, (&self.users, user_number), is_named);
        self.is_trusting && !self.maps_users && self.wanted(extras).user == Some(number) && is_same()
    }

    /// The same for the group.
    fn keeps_group(&self, extras: &Extras, owned: Owned) -> bool {
        let (Some(number), Some(account)) = (owned.group, self.group_of(extras)) else { return false };
        let is_named = || matches!(Group::from_gid(number.into()), Ok(Some(_)));
        let is_same = || is_same_account(account, number, (&self.groups, group_number), is_named);
        self.is_trusting && !self.maps_groups && self.wanted(extras).group == Some(number) && is_same()
    }

    /// Whether the attributes of `name` in `directory` are others than they are to be, as far as that can be had. Asks for
    /// them only where it was told which they are.
    pub fn would_change(
        &self,
        extras: &Extras,
        directory: BorrowedFd<'_>,
        name: &[u8],
        (user, group): (u32, u32),
    ) -> bool {
        if extras.all_told == AllTold::default() {
            return false;
        }
        let Ok(name) = CString::new(name) else { return false };
        let spot = Spot::Named { directory, name: &name, follow: false };
        let present = list(spot).unwrap_or_default();
        let has =
            |attribute: &Attribute| get(spot, &attribute.name).is_ok_and(|own| *own == *attribute.value);
        let owned = Owned { user: Some(user), group: Some(group) };
        let is_wanted = |attribute: &Attribute| {
            self.may_set(attribute) && (!is_capability(attribute) || self.keeps_user(extras, owned))
        };
        stale(&present, extras).next().is_some()
            || extras.attributes.iter().any(|attribute| is_wanted(attribute) && !has(attribute))
    }

    /// Whether the file flags of `name` in `directory` are others than they are to be, as far as that can be had.
    pub fn would_flag(&self, extras: &Extras, directory: BorrowedFd<'_>, name: &[u8]) -> bool {
        let (Some(flags), Ok(name)) = (self.flags_of(extras), CString::new(name)) else { return false };
        let present = flags_of(directory, &name, AtFlags::SYMLINK_NOFOLLOW);
        let may_be = if self.is_trusting { flags } else { flags.among(NO_DUMP) };
        present.is_some_and(|present| may_be.differs_from(present))
    }

    /// What does not keep a file from being changed is set, and what does is taken away: it comes back by [`Keeper::fasten`].
    fn loosen(&self, wearer: &impl Wearer, extras: &Extras) {
        if let (Some(flags), Some(fd)) = (self.flags_of(extras), wearer.flagged()) {
            self.flag(fd, FileFlags::new(flags.known(), flags.among(NO_DUMP).set()));
        }
    }

    /// Sets what keeps a file or directory from being changed. Nothing else can be done with it afterwards.
    pub(crate) fn fasten(&self, fd: BorrowedFd<'_>, flags: FileFlags) {
        let flags = flags.fastening();
        if flags.set() == 0 {
            return;
        }
        match self.is_trusting {
            true => self.flag(fd, flags),
            false => self.losses.count(FLAGS, "the sink sets none"),
        }
    }

    /// What the directory gets that holds the journals of several sessions: without flags that keep it from being changed, which are a loss, as
    /// the journals could not be taken away from it any more. Nothing if it was to have none of these.
    pub fn without_fastening(&self, extras: &Extras) -> Option<Extras> {
        let flags = self.flags_of(extras).filter(|flags| flags.fastening().set() != 0)?;
        self.losses.count(FLAGS, "the transfer's journals are in it until it is over");
        let flags = Some(flags.among(NO_DUMP));
        Some(Extras { flags, ..extras.clone() })
    }

    /// Counts flags that could not be set.
    pub(crate) fn not_flagged(&self, errno: Errno) {
        self.losses.count(FLAGS, &reason(errno));
    }

    /// Where a file system has no flags, none that are wanted are missing.
    fn flag(&self, fd: BorrowedFd<'_>, flags: FileFlags) {
        let flagged = ioctl_getflags(fd).and_then(|present| {
            let wanted = present.bits() & !flags.known() | flags.set();
            if wanted == present.bits() {
                Ok(())
            } else {
                ioctl_setflags(fd, IFlags::from_bits_retain(wanted))
            }
        });
        match flagged {
            Err(Errno::NOTTY | Errno::OPNOTSUPP) if flags.set() == 0 => {}
            Err(errno) => self.not_flagged(errno),
            Ok(()) => {}
        }
    }

    /// Whether a device, pipe or socket may be made. Counts those that may not: a device gives rights on its machine.
    pub(crate) fn makes(&self, special: &Special) -> bool {
        let makes = self.is_trusting || !special.is_device();
        if !makes {
            self.losses.count_whole(special.noun(), "the sink makes none");
        }
        makes
    }

    /// Counts one that could not be made.
    pub(crate) fn not_made(&self, special: &Special, errno: Errno) {
        self.losses.count_whole(special.noun(), &reason(errno));
    }

    /// Owner and attributes of a link, which has no descriptor. What can't be set is counted.
    pub fn dress_link(
        &self,
        extras: &Extras,
        directory: BorrowedFd<'_>,
        name: &[u8],
        scratch: &ScratchNames,
    ) {
        let is_bare = self.user_of(extras).is_none() && self.group_of(extras).is_none();
        if is_bare && extras.attributes.is_empty() {
            return;
        }
        if self.losses.link_times(directory, scratch) == LinkTimes::Followed {
            return self.losses.count("owner and attributes", FOLLOWS_LINKS);
        }
        let owned =
            self.own(extras, |uid, gid| chownat(directory, name, uid, gid, AtFlags::SYMLINK_NOFOLLOW));
        let Ok(name) = CString::new(name) else { return };
        for attribute in &extras.attributes {
            self.set(attribute, extras, owned, |own| {
                lsetxattr(&*path_of(directory, &name), own, &attribute.value, XattrFlags::empty())
            });
        }
    }

    /// Each of the two by itself where both can't be had.
    fn own(&self, extras: &Extras, chown: impl Fn(Option<Uid>, Option<Gid>) -> Result<(), Errno>) -> Owned {
        let number = |account: Option<&Account>, what, known, look_up| {
            account.and_then(|account| self.number(account, what, known, look_up))
        };
        let (user, group) = (self.user_of(extras), self.group_of(extras));
        if !self.is_trusting {
            if user.is_some() || group.is_some() {
                self.losses.count("owner and group", "the sink sets none");
            }
            return Owned::default();
        }
        let user = number(user, OWNER, &self.users, user_number as fn(&str) -> Option<u32>);
        let group = number(group, GROUP, &self.groups, group_number as fn(&str) -> Option<u32>);
        let mut owned = Owned { user, group };
        if owned == Owned::default() {
            return owned;
        }
        let (uid, gid) = (user.map(Uid::from_raw), group.map(Gid::from_raw));
        // Whoever is not root may give nothing away; root may be one in his own name space only.
        if self.is_root && chown(uid, gid).is_ok() {
            return owned;
        }
        for (what, uid, gid, number) in
            [(OWNER, uid, None, &mut owned.user), (GROUP, None, gid, &mut owned.group)]
        {
            if (uid.is_some() || gid.is_some())
                && let Err(errno) = chown(uid, gid)
            {
                *number = None;
                self.losses.count(what, &reason(errno));
            }
        }
        owned
    }

    /// Which of the owner and group that were set the entry shows: a file system may ignore the call, or show others to all.
    fn seen(&self, wearer: &impl Wearer, owned: Owned) -> Owned {
        let Ok(found) = wearer.status() else { return Owned::default() };
        self.compared(owned, owned_of(&found))
    }

    /// Counts what of an owner and group that were set is not shown, and returns the rest.
    fn compared(&self, set: Owned, found: Owned) -> Owned {
        let shown = |what, set: Option<u32>, found: Option<u32>| {
            if set.is_some() && set != found {
                self.losses.count(what, "the file system shows another");
            }
            set.filter(|_| set == found)
        };
        Owned { user: shown(OWNER, set.user, found.user), group: shown(GROUP, set.group, found.group) }
    }

    /// As [`Keeper::seen`], where an owner and group that were seen once count for all entries.
    fn seen_once(&self, wearer: &impl Wearer, owned: Owned) -> Owned {
        if owned == Owned::default() {
            return owned;
        }
        let mut known = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        let found = match known.get(&owned) {
            Some(found) => *found,
            None => {
                let Ok(found) = wearer.status().map(|found| owned_of(&found)) else { return owned };
                if known.len() < SHOWN_MAX {
                    known.insert(owned, found);
                }
                found
            }
        };
        drop(known);
        self.compared(owned, found)
    }

    /// Counts who can't be found.
    fn number(
        &self,
        account: &Account,
        what: &str,
        known: &Mutex<HashMap<Box<[u8]>, Option<u32>>>,
        look_up: fn(&str) -> Option<u32>,
    ) -> Option<u32> {
        let number = numbered(account, known, look_up);
        if number.is_none() {
            self.losses.count(what, "there is none of that name at the destination");
        }
        number
    }

    /// Takes away what it has and is not to have: of an earlier version, or by an ACL of the directory that it was made in.
    fn strip(&self, wearer: &impl Wearer, extras: &Extras) {
        if extras.all_told == AllTold::default() {
            return;
        }
        // Without attributes at the sink there is nothing to take away.
        let Ok(present) = grown(|names| wearer.list_attributes(names)) else { return };
        for name in stale(&present, extras) {
            let removed = match wearer.remove_attribute(name) {
                Err(Errno::ACCESS) => {
                    let opened = wearer.set_mode(OWNERS);
                    opened.and_then(|()| wearer.remove_attribute(name))
                }
                answer => answer,
            };
            if let Err(errno) = removed
                && errno != Errno::NODATA
            {
                self.losses.count("the removal of attributes and ACLs", &reason(errno));
            }
        }
    }

    /// Whoever may not write to the file by its mode, may not set its attributes either, its owner included.
    fn attribute(&self, wearer: &impl Wearer, attribute: &Attribute, extras: &Extras, owned: Owned) {
        let set = |name: &CStr| wearer.set_attribute(name, &attribute.value);
        self.set(attribute, extras, owned, |name| match set(name) {
            Err(Errno::ACCESS) if !attribute.is_acl() => {
                let opened = wearer.set_mode(OWNERS);
                opened.and_then(|()| set(name))
            }
            answer => answer,
        });
    }

    fn set(
        &self,
        attribute: &Attribute,
        extras: &Extras,
        owned: Owned,
        set: impl Fn(&CStr) -> Result<(), Errno>,
    ) {
        let what = if attribute.is_acl() { ACLS } else { ATTRIBUTES };
        let Ok(name) = CString::new(&*attribute.name) else {
            return self.losses.count_several(what, "a name that can't be");
        };
        if !self.may_set(attribute) {
            return self.losses.count_several(what, "the sink does not set those of their kind");
        }
        if is_capability(attribute) && !self.keeps_user(extras, owned) {
            return self.losses.count(CAPABILITIES, "the owner is not kept");
        }
        if let Err(errno) = set(&name) {
            self.losses.count_several(what, &reason(errno));
        }
    }

    fn may_set(&self, attribute: &Attribute) -> bool {
        let is_of = |kind: &[u8]| attribute.name.starts_with(kind);
        let is_for_root = is_of(b"security.") || is_of(b"trusted.");
        match attribute.is_acl() {
            true => self.kept.acls,
            false => self.kept.attributes && (is_of(b"user.") || self.is_trusting && is_for_root),
        }
    }
}

fn owned_of(found: &Stat) -> Owned {
    Owned { user: Some(found.st_uid), group: Some(found.st_gid) }
}

fn is_capability(attribute: &Attribute) -> bool {
    *attribute.name == *CAPABILITY
}

/// Whether `number` is the account of the source: not if it stands for a name that is not known here, and is somebody else's.
fn is_same_account(
    account: &Account,
    number: u32,
    (known, look_up): (&Numbers, fn(&str) -> Option<u32>),
    is_named: impl Fn() -> bool,
) -> bool {
    account.name.is_empty() || remembered(known, &account.name, look_up) == Some(number) || !is_named()
}

/// Of the `present` names, each with a NUL behind it, those that are not to be there.
fn stale<'a>(present: &'a [u8], extras: &'a Extras) -> impl Iterator<Item = &'a CStr> {
    let names = present.split_inclusive(|&byte| byte == 0).flat_map(CStr::from_bytes_with_nul);
    names.filter(|name| {
        let name = name.to_bytes();
        extras.all_told.excludes(name) && extras.attributes.iter().all(|told| *told.name != *name)
    })
}

/// By its name if there is one here, else by its number.
fn numbered(
    account: &Account,
    known: &Mutex<HashMap<Box<[u8]>, Option<u32>>>,
    look_up: fn(&str) -> Option<u32>,
) -> Option<u32> {
    let by_name = if account.name.is_empty() { None } else { remembered(known, &account.name, look_up) };
    by_name.or((account.number != NO_NUMBER).then_some(account.number))
}

fn remembered(
    known: &Mutex<HashMap<Box<[u8]>, Option<u32>>>,
    name: &[u8],
    look_up: fn(&str) -> Option<u32>,
) -> Option<u32> {
    if let Some(&number) = known.lock().unwrap_or_else(PoisonError::into_inner).get(name) {
        return number;
    }
    // Without the lock: it may ask other hosts.
    let number = std::str::from_utf8(name).ok().and_then(look_up);
    let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
    if known.len() < NUMBERS_MAX {
        known.insert(name.into(), number);
    }
    number
}

/// The first user or group that the user named and that does not exist on this host, in words.
pub fn unknown_account(fidelity: &Fidelity) -> Option<String> {
    let of_rules = |map: &AccountMap| map.rules().iter().map(|rule| rule.becomes.clone()).collect::<Vec<_>>();
    let users = fidelity.user.iter().cloned().chain(of_rules(&fidelity.user_map));
    let groups = fidelity.group.iter().cloned().chain(of_rules(&fidelity.group_map));
    let user = unknown_of(users, user_number).map(|name| format!("user '{name}'"));
    user.or_else(|| unknown_of(groups, group_number).map(|name| format!("group '{name}'")))
}

fn unknown_of(
    mut accounts: impl Iterator<Item = Account>,
    look_up: fn(&str) -> Option<u32>,
) -> Option<String> {
    let is_unknown = |account: &Account| {
        account.number == NO_NUMBER && std::str::from_utf8(&account.name).ok().and_then(look_up).is_none()
    };
    accounts.find(is_unknown).map(|account| escape(&account.name))
}

fn user_number(name: &str) -> Option<u32> {
    User::from_name(name).ok().flatten().map(|user| user.uid.as_raw())
}

fn group_number(name: &str) -> Option<u32> {
    Group::from_name(name).ok().flatten().map(|group| group.gid.as_raw())
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::fd::AsFd;
    use std::os::unix::fs::MetadataExt;

    use carrack_model::AccountMap;
    use rustix::fs::lgetxattr;

    use super::*;

    const MODE: u32 = 0o6755;

    fn numbered(number: u32) -> Account {
        Account { number, name: b""[..].into() }
    }

    fn extras(user: Account, group: Account) -> Extras {
        Extras { user: Some(user), group: Some(group), ..Extras::default() }
    }

    fn keeping(kept: Kept) -> Fidelity {
        Fidelity { kept, perms: true, ..Fidelity::default() }
    }

    #[test]
    fn set_id_bits_stay_where_owner_and_group_are_kept_by_request() {
        let told = extras(numbered(54_321), numbered(54_322));
        let ids = |fidelity: &Fidelity, told: &Extras, owner| {
            Keeper::new(true).keeping(fidelity).set_ids(Some(told), owner, MODE)
        };
        let (all, here) = (keeping(Kept::ALL), (54_321, 54_322));
        assert_eq!(ids(&all, &told, here), 0o6000);
        assert_eq!((ids(&all, &told, (0, 54_322)), ids(&all, &told, (54_321, 0))), (0, 0), "one is lacking");
        // Whatever the source says.
        assert_eq!(ids(&keeping(Kept::default()), &told, here), 0);
        assert_eq!(ids(&keeping(Kept { users: true, ..Kept::default() }), &told, here), 0o4000);
        let mapped = Fidelity { user_map: AccountMap::parse("*:54321").unwrap(), ..all.clone() };
        assert_eq!(ids(&mapped, &told, here), 0o2000);
        assert_eq!(ids(&Fidelity { group: Some(numbered(54_322)), ..all.clone() }, &told, here), 0o4000);
        assert_eq!(Keeper::new(false).keeping(&all).set_ids(Some(&told), here, MODE), 0);
        assert_eq!(Keeper::new(true).set_ids(None, here, MODE), 0);
        assert_eq!(Keeper::new(true).set_ids(Some(&told), here, 0o755), 0);
        // An unknown name whose number is somebody else's here.
        let stranger = |number| Account { number, name: b"no-such-account"[..].into() };
        assert_eq!(ids(&all, &extras(stranger(0), stranger(54_322)), (0, 54_322)), 0o2000);
    }

    /// A file on a file system that only says that it changes owners.
    struct Ignoring<'a>(BorrowedFd<'a>);

    impl Wearer for Ignoring<'_> {
        fn status(&self) -> Result<Stat, Errno> {
            self.0.status()
        }

        fn own(&self, _: Option<Uid>, _: Option<Gid>) -> Result<(), Errno> {
            Ok(())
        }

        fn set_mode(&self, mode: Mode) -> Result<(), Errno> {
            self.0.set_mode(mode)
        }

        fn set_attribute(&self, name: &CStr, value: &[u8]) -> Result<(), Errno> {
            self.0.set_attribute(name, value)
        }

        fn list_attributes(&self, names: &mut [u8]) -> Result<usize, Errno> {
            self.0.list_attributes(names)
        }

        fn remove_attribute(&self, name: &CStr) -> Result<(), Errno> {
            self.0.remove_attribute(name)
        }
    }

    #[test]
    fn set_id_bits_go_where_a_change_of_the_owner_has_no_effect() {
        let file = tempfile::tempfile().unwrap();
        let own = file.metadata().unwrap();
        let dressed = |user, group| {
            let (metadata, keeper) = (Metadata { mode: MODE, ..Metadata::default() }, Keeper::new(true));
            let told = extras(numbered(user), numbered(group));
            let dress = Dress { extras: Some((&told, &keeper)), ..Dress::from(&metadata) };
            dress.put_on(Ignoring(file.as_fd()), true).unwrap();
            (file.metadata().unwrap().mode() & 0o7777, keeper.losses().take_lines())
        };
        assert_eq!(dressed(own.uid(), own.gid()), (MODE, vec![]));
        let (mode, lines) = dressed(own.uid() + 1, own.gid());
        assert_eq!(mode, 0o755);
        assert_eq!(lines, ["the owner of 1 entry not kept: the file system shows another"]);
        assert_eq!(dressed(own.uid(), own.gid() + 1).0, 0o755);
    }

    #[test]
    fn capabilities_and_acls_give_nothing_without_what_they_belong_to() {
        let dir = tempfile::tempdir().unwrap();
        let (path, metadata) = (dir.path().join("f"), Metadata { mode: 0o670, ..Metadata::default() });
        let attribute = |name: &[u8], value: &[u8]| Attribute { name: name.into(), value: value.into() };
        let mut acl = 2_u32.to_le_bytes().to_vec();
        for (tag, perm) in [(1_u8, 6_u8), (4, 4), (16, 7), (32, 0)] {
            acl.extend_from_slice(&[tag, 0, perm, 0, 255, 255, 255, 255]);
        }
        // `cap_net_raw+ep`, capabilities(7).
        let capability = [1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let told = Extras {
            attributes: vec![attribute(CAPABILITY, &capability), attribute(ACCESS_ACL.to_bytes(), &acl)],
            ..Extras::default()
        };
        fs::write(&path, "x").unwrap();
        let file = File::options().write(true).open(&path).unwrap();
        let dress = |keeper: &Keeper| {
            let policy = keeper.policy();
            let dress = Dress {
                metadata: &metadata,
                extras: Some((&told, keeper)),
                losses: None,
                policy,
                lasting: 0,
            };
            dress.put_on(file.as_fd(), true).unwrap();
            let has = lgetxattr(&path, "security.capability", &mut [0; 100][..]).is_ok();
            (fs::metadata(&path).unwrap().mode() & 0o777, has, keeper.losses().take_lines())
        };
        // The ACL was not asked for: the mask that the mode shows is no right of the group.
        let kept = Kept { attributes: true, ..Kept::default() };
        let (mode, has, lines) = dress(&Keeper::new(true).keeping(&keeping(kept)));
        assert_eq!((mode, has), (0o640, false));
        assert!(
            lines.iter().any(|line| line.contains("file capabilities") && line.contains("owner")),
            "{lines:?}"
        );
    }
}
