//! Sets owners, extended attributes, ACLs and file flags at the sink, besides mode and time.
//!
//! A refused attribute is counted and does not fail the entry. The order is: owner, removed attributes,
//! attributes, mode, ACLs. A change of the owner clears set-ID bits, a mode without the owner's write
//! permission denies setting attributes, and the mode's group bits are the mask of an ACL. Owners, and
//! attributes that give rights to programs (`security.*`, `trusted.*`), are set only if the sink is trusting,
//! as are set-ID bits.

use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::os::fd::BorrowedFd;
use std::sync::{Mutex, PoisonError};

use carrack_model::{
    CompleteAttributeKinds, ExtendedAttribute, ExtraMetadata, FileFlags, FileOwnerMap, KeptMetadata,
    Metadata, MetadataFidelity, NO_DUMP, NO_NUMBER, SpecialFile, Timestamp, UserOrGroup, escape,
};
use rustix::fs::{
    AtFlags, Gid, IFlags, Mode, Stat, Timestamps, Uid, XattrFlags, chownat, fchmod, fchown, flistxattr,
    fremovexattr, fsetxattr, fstat, futimens, ioctl_getflags, ioctl_setflags, lsetxattr,
};
use rustix::io::Errno;

use crate::account_names::{group_name, group_number, user_name, user_number};
use crate::extras_source::{
    AttributeHolder, call_with_growing_buffer, get, list_attributes, loss_reason, path_of,
};
use crate::file_flags::flags_of;
use crate::link_time_support::LinkTimeSupport;
use crate::modes::{ACCESS_ACL, AclBits, RequestedOwner, SET_GROUP_ID, SET_IDS, SET_USER_ID};
use crate::small_file_placement::times;
use crate::status::is_regular;
use crate::{MetadataLossCounter, ModePolicy, ScratchNames, SinkError};

/// Bound of the cache of account numbers.
const NUMBERS_MAX: usize = 10_000;

/// Permits the owner everything while attributes are set.
const OWNERS: Mode = Mode::RUSR.union(Mode::WUSR).union(Mode::XUSR);

pub(crate) const MODE: &str = "the mode";
pub(crate) const TIME: &str = "the time";
const OWNER: &str = "the owner";
const GROUP: &str = "the group";
pub(crate) const ATTRIBUTES: &str = "extended attributes";
const ACLS: &str = "ACLs";
const FLAGS: &str = "file flags";
const CAPABILITIES: &str = "file capabilities";

pub(crate) const FOLLOWS_LINKS: &str = "the file system follows symbolic links";

/// The attribute that gives capabilities to a program for every user who starts it (capabilities(7)).
const CAPABILITY: &[u8] = b"security.capability";

/// The metadata of a file whose contents are complete.
#[derive(Clone, Copy, Debug)]
pub struct MetadataToSet<'a> {
    /// Mode and time.
    pub metadata: &'a Metadata,
    /// The extras, if they are kept, and the keeper that sets them.
    pub extras: Option<(&'a ExtraMetadata, &'a AttributeWriter)>,
    /// Counts a mode or time that the file system refuses; without it, that is an error.
    pub losses: Option<&'a MetadataLossCounter>,
    /// Says if the mode is exact, and which times are set.
    pub policy: ModePolicy,
    /// Set-ID bits of the mode that stay under any owner.
    pub lasting: u32,
}

impl<'a> From<&'a Metadata> for MetadataToSet<'a> {
    fn from(metadata: &'a Metadata) -> MetadataToSet<'a> {
        MetadataToSet { metadata, extras: None, losses: None, policy: ModePolicy::default(), lasting: 0 }
    }
}

/// Returns true if a file system or its server refuses the change, for this user or for all. Storage errors
/// are not refusals.
fn is_refusal(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::PERM | Errno::ACCESS | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL | Errno::NOTTY
    )
}

/// An entry that gets metadata: an open file, or a special file that must not be opened.
pub(crate) trait EntryMetadataSetter {
    fn status(&self) -> Result<Stat, Errno>;
    fn set_owner(&self, uid: Option<Uid>, gid: Option<Gid>) -> Result<(), Errno>;
    fn set_mode(&self, mode: Mode) -> Result<(), Errno>;
    fn set_attribute(&self, name: &CStr, value: &[u8]) -> Result<(), Errno>;
    fn list_attributes(&self, names: &mut [u8]) -> Result<usize, Errno>;
    fn remove_attribute(&self, name: &CStr) -> Result<(), Errno>;
    /// The descriptor, if it can have file flags.
    fn flags_descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

impl EntryMetadataSetter for BorrowedFd<'_> {
    fn status(&self) -> Result<Stat, Errno> {
        fstat(self)
    }

    fn set_owner(&self, uid: Option<Uid>, gid: Option<Gid>) -> Result<(), Errno> {
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

    fn flags_descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(*self)
    }
}

impl MetadataToSet<'_> {
    /// Sets everything but the time and those file flags that would prevent setting it. Sets the mode if
    /// `sets_mode`, or if an earlier step may have changed it.
    ///
    /// Returns the requested owner and group as far as they were set.
    pub(crate) fn apply_to(
        &self,
        target: impl EntryMetadataSetter,
        sets_mode: bool,
    ) -> Result<RequestedOwner, SinkError> {
        // An exact mode must not be widened by an ACL that the directory handed down.
        let is_told = self.extras.is_some_and(|(extras, _)| extras.all_told.acls);
        let is_bare = self.policy.perms && !is_told && target.remove_attribute(ACCESS_ACL).is_ok();
        let Some((extras, keeper)) = self.extras else {
            let mode = self.mode_with(0);
            self.count_set_id_loss(mode);
            if sets_mode || is_bare {
                self.set_mode(&target, mode)?;
            } else if self.policy.perms {
                self.count_mode_loss(&target, mode);
            }
            return Ok(RequestedOwner::default());
        };
        keeper.clear_blocking_flags(&target, extras);
        let mut owned = keeper.set_owner(extras, |uid, gid| target.set_owner(uid, gid));
        let gives_rights = self.metadata.mode & SET_IDS != 0 || extras.attributes.iter().any(is_capability);
        owned = if gives_rights {
            keeper.confirm_owner(&target, owned)
        } else {
            keeper.confirm_owner_once(&target, owned)
        };
        keeper.remove_stale_attributes(&target, extras);
        let (acls, attributes): (Vec<_>, Vec<_>) =
            extras.attributes.iter().partition(|attribute| attribute.is_acl());
        attributes.iter().for_each(|attribute| keeper.set_attribute(&target, attribute, extras, owned));
        let mode = self.mode_with(keeper.set_id_bits_for_owner(extras, owned, self.metadata.mode));
        self.count_set_id_loss(mode);
        let access = acls.iter().find(|acl| *acl.name == *ACCESS_ACL.to_bytes());
        // The group bits are the mask of the ACL, which may be refused.
        let narrow =
            access.map_or(mode, |acl| AclBits::of(&acl.value).map_or(mode, |acl| acl.mode_without_acl(mode)));
        let moded = self.set_mode(&target, narrow);
        acls.iter().for_each(|acl| keeper.set_attribute(&target, acl, extras, owned));
        moded.map(|()| owned)
    }

    /// Sets the mode, and counts a mode that the file system refuses or changes.
    fn set_mode(&self, target: &impl EntryMetadataSetter, mode: u32) -> Result<(), SinkError> {
        let set = match target.set_mode(Mode::from_raw_mode(mode)) {
            Err(Errno::PERM) => self.set_mode_as_owner(target, mode),
            answer => answer,
        };
        if set.is_ok() {
            self.count_mode_loss(target, mode);
        }
        self.count_refusal(MODE, "setting the mode", set)
    }

    fn mode_with(&self, set_ids: u32) -> u32 {
        self.metadata.mode & (!SET_IDS | set_ids | self.lasting)
    }

    /// Counts a mode that was set but is not shown by the file system.
    fn count_mode_loss(&self, target: &impl EntryMetadataSetter, mode: u32) {
        if let Some(losses) = self.losses
            && !losses.shows_mode(mode, || target.status())
        {
            losses.count(MODE, "the file system shows another");
        }
    }

    /// Counts the set-ID bits that are missing in `mode`, which is set next.
    fn count_set_id_loss(&self, mode: u32) {
        if let Some(losses) = self.losses.filter(|_| self.policy.perms)
            && self.metadata.mode & SET_IDS & !mode != 0
        {
            losses
                .count("set-user-ID and set-group-ID", "the owner or group that they belong to is not kept");
        }
    }

    /// Sets the time of an open file; `before` is the former time of a file that existed.
    pub(crate) fn set_time(&self, file: BorrowedFd<'_>, before: Option<Timestamp>) -> Result<(), SinkError> {
        self.set_time_by(
            before,
            |times| match futimens(file, times) {
                Err(Errno::PERM) => self.run_as_owner(&file, &fstat(file)?, || futimens(file, times)),
                answer => answer,
            },
            || fstat(file),
        )
    }

    /// A regular file loses its set-ID bits when its owner is restored.
    fn set_mode_as_owner(&self, target: &impl EntryMetadataSetter, mode: u32) -> Result<(), Errno> {
        let found = target.status()?;
        let lasting = if is_regular(&found) { mode & !SET_IDS } else { mode };
        self.run_as_owner(target, &found, || target.set_mode(Mode::from_raw_mode(lasting)))?;
        if lasting == mode { Ok(()) } else { Err(Errno::PERM) }
    }

    /// Takes ownership for a call that only the owner may make, and gives the file back afterwards. Root
    /// without `CAP_FOWNER` needs this for a file that it gave away. Refused for a file with set-ID bits,
    /// which it would clear.
    fn run_as_owner(
        &self,
        target: &impl EntryMetadataSetter,
        found: &Stat,
        action: impl Fn() -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let own = rustix::process::geteuid();
        let gives = self.extras.is_some_and(|(_, keeper)| keeper.is_root && keeper.is_trusting);
        let has_set_ids = is_regular(found) && found.st_mode & SET_IDS != 0;
        if !gives || has_set_ids || found.st_uid == own.as_raw() {
            return Err(Errno::PERM);
        }
        target.set_owner(Some(own), None)?;
        let done = action();
        target.set_owner(Some(Uid::from_raw(found.st_uid)), None).and(done)
    }

    /// Sets the time, if it is kept, with `set`. `look` reads it back if that shows a property of the file
    /// system.
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
        self.count_time_refusal(set)
    }

    /// Counts or returns the failure to set a time.
    pub(crate) fn count_time_refusal(&self, set: Result<(), Errno>) -> Result<(), SinkError> {
        self.count_refusal(TIME, "setting the times", set)
    }

    fn count_refusal(
        &self,
        what: &str,
        action: &'static str,
        set: Result<(), Errno>,
    ) -> Result<(), SinkError> {
        count_refusal(self.losses, what, action, set)
    }
}

/// Counts a refusal if losses are counted; any other failure is an error.
pub(crate) fn count_refusal(
    losses: Option<&MetadataLossCounter>,
    what: &str,
    action: &'static str,
    set: Result<(), Errno>,
) -> Result<(), SinkError> {
    match (set, losses) {
        (Err(errno), Some(losses)) if is_refusal(errno) => {
            if what == TIME {
                losses.record_lost_time();
            }
            losses.count(what, &loss_reason(errno));
            Ok(())
        }
        (set, _) => set.map_err(|errno| SinkError::of_metadata_call(action, errno)),
    }
}

/// Bound of the cache of owners and groups. Further ones are read back for each entry.
const SHOWN_MAX: usize = 4_096;

/// Numbers of accounts by name; none for names that this host does not know.
type AccountNumbersByName = Mutex<HashMap<Box<[u8]>, Option<u32>>>;

/// Sets owners, attributes, ACLs and flags. Any number of threads may call it.
#[derive(Debug)]
pub struct AttributeWriter {
    is_root: bool,
    /// Set if entries may get other owners, and attributes that give rights.
    is_trusting: bool,
    /// The user's request, independent of the extras that the source sends.
    kept: KeptMetadata,
    /// Set if an option replaces the source's users.
    maps_users: bool,
    /// Set if an option replaces the source's groups.
    maps_groups: bool,
    policy: ModePolicy,
    users: AccountNumbersByName,
    groups: AccountNumbersByName,
    /// The owner and group that entries show after they were set to the key.
    shown: Mutex<HashMap<RequestedOwner, RequestedOwner>>,
    losses: MetadataLossCounter,
}

impl AttributeWriter {
    /// With `is_trusting`, entries may get other owners than this process.
    pub fn new(is_trusting: bool) -> AttributeWriter {
        AttributeWriter {
            is_root: rustix::process::geteuid().is_root(),
            is_trusting,
            kept: KeptMetadata::ALL,
            maps_users: false,
            maps_groups: false,
            policy: ModePolicy::default(),
            users: Mutex::default(),
            groups: Mutex::default(),
            shown: Mutex::default(),
            losses: MetadataLossCounter::default(),
        }
    }

    /// Restricts the keeper to the user's request.
    pub fn with_fidelity(self, fidelity: &MetadataFidelity) -> AttributeWriter {
        let mut policy = ModePolicy::of(fidelity);
        policy.sets_group_id &= self.is_trusting;
        AttributeWriter {
            kept: fidelity.kept,
            maps_users: fidelity.user.is_some() || !fidelity.user_map.is_empty(),
            maps_groups: fidelity.group.is_some() || !fidelity.group_map.is_empty(),
            policy,
            ..self
        }
    }

    /// The request for modes and times.
    pub fn policy(&self) -> ModePolicy {
        self.policy
    }

    /// The metadata that could not be set.
    pub fn losses(&self) -> &MetadataLossCounter {
        &self.losses
    }

    /// Returns true if the requested owner or group differs from these and can be set.
    pub fn would_change_owner(&self, extras: &ExtraMetadata, (uid, gid): (u32, u32)) -> bool {
        let RequestedOwner { user, group } = self.requested_owner(extras);
        let differs = user.is_some_and(|user| user != uid) || group.is_some_and(|group| group != gid);
        // An untrusting sink sets no owners, so no difference could be repaired.
        self.is_trusting && differs
    }

    /// The requested owner and group, as far as this host knows them.
    fn requested_owner(&self, extras: &ExtraMetadata) -> RequestedOwner {
        let (user, group) = (self.user_of(extras), self.group_of(extras));
        RequestedOwner {
            user: user.and_then(|user| account_number(user, &self.users, user_number)),
            group: group.and_then(|group| account_number(group, &self.groups, group_number)),
        }
    }

    /// The file flags for an entry, if they are kept.
    pub fn flags_of(&self, extras: &ExtraMetadata) -> Option<FileFlags> {
        extras.flags.filter(|_| self.kept.file_flags)
    }

    fn user_of<'e>(&self, extras: &'e ExtraMetadata) -> Option<&'e UserOrGroup> {
        extras.user.as_ref().filter(|_| self.kept.users)
    }

    fn group_of<'e>(&self, extras: &'e ExtraMetadata) -> Option<&'e UserOrGroup> {
        extras.group.as_ref().filter(|_| self.kept.groups)
    }

    /// The set-ID bits of `mode`, the source's mode, that an entry with this owner and group may have.
    pub fn allowed_set_id_bits(
        &self,
        extras: Option<&ExtraMetadata>,
        (user, group): (u32, u32),
        mode: u32,
    ) -> u32 {
        let owned = RequestedOwner { user: Some(user), group: Some(group) };
        extras.map_or(0, |extras| self.set_id_bits_for_owner(extras, owned, mode))
    }

    /// The bits whose owner or group is the source's, as requested. None if a requested owner or group could
    /// not be set, as in GNU cp.
    fn set_id_bits_for_owner(&self, extras: &ExtraMetadata, owned: RequestedOwner, mode: u32) -> u32 {
        if mode & SET_IDS == 0 || !self.has_wanted_owners(extras, owned) {
            return 0;
        }
        let mut bits = 0;
        if mode & SET_USER_ID != 0 && self.keeps_user(extras, owned) {
            bits |= SET_USER_ID;
        }
        if mode & SET_GROUP_ID != 0 && self.keeps_group(extras, owned) {
            bits |= SET_GROUP_ID;
        }
        bits
    }

    fn has_wanted_owners(&self, extras: &ExtraMetadata, owned: RequestedOwner) -> bool {
        let wanted = self.requested_owner(extras);
        (self.user_of(extras).is_none() || wanted.user.is_some() && wanted.user == owned.user)
            && (self.group_of(extras).is_none() || wanted.group.is_some() && wanted.group == owned.group)
    }

    /// Returns true if the owner is the source's. A number that another account has on this host does not
    /// count.
    fn keeps_user(&self, extras: &ExtraMetadata, owned: RequestedOwner) -> bool {
        let (Some(number), Some(account)) = (owned.user, self.user_of(extras)) else { return false };
        self.is_trusting
            && !self.maps_users
            && self.requested_owner(extras).user == Some(number)
            && is_same_account(account, number, (&self.users, user_number), || user_name(number).is_some())
    }

    /// The same for the group.
    fn keeps_group(&self, extras: &ExtraMetadata, owned: RequestedOwner) -> bool {
        let (Some(number), Some(account)) = (owned.group, self.group_of(extras)) else { return false };
        self.is_trusting
            && !self.maps_groups
            && self.requested_owner(extras).group == Some(number)
            && is_same_account(account, number, (&self.groups, group_number), || group_name(number).is_some())
    }

    /// Returns true if the attributes of `name` in `directory` differ from the source's and can be set. They
    /// are read only if the source sent its attributes.
    pub fn would_change_attributes(
        &self,
        extras: &ExtraMetadata,
        directory: BorrowedFd<'_>,
        name: &[u8],
        (user, group): (u32, u32),
    ) -> bool {
        if extras.all_told == CompleteAttributeKinds::default() {
            return false;
        }
        let Ok(name) = CString::new(name) else { return false };
        let spot = AttributeHolder::Named { directory, name: &name, follow: false };
        let present = list_attributes(spot).unwrap_or_default();
        let owned = RequestedOwner { user: Some(user), group: Some(group) };
        stale_names(&present, extras).next().is_some()
            || extras.attributes.iter().any(|attribute| {
                let is_wanted =
                    self.may_set(attribute) && (!is_capability(attribute) || self.keeps_user(extras, owned));
                is_wanted && get(spot, &attribute.name).map_or(true, |own| *own != *attribute.value)
            })
    }

    /// Returns true if the file flags of `name` in `directory` differ from the source's and can be set.
    pub fn would_change_flags(&self, extras: &ExtraMetadata, directory: BorrowedFd<'_>, name: &[u8]) -> bool {
        let (Some(flags), Ok(name)) = (self.flags_of(extras), CString::new(name)) else { return false };
        let present = flags_of(directory, &name, AtFlags::SYMLINK_NOFOLLOW);
        let may_be = if self.is_trusting { flags } else { flags.restricted_to(NO_DUMP) };
        present.is_some_and(|present| may_be.differs_from(present))
    }

    /// Sets the flags that permit changes and clears those that prevent them, which
    /// [`AttributeWriter::set_blocking_flags`] sets later.
    fn clear_blocking_flags(&self, target: &impl EntryMetadataSetter, extras: &ExtraMetadata) {
        if let (Some(flags), Some(fd)) = (self.flags_of(extras), target.flags_descriptor()) {
            self.set_flags(fd, FileFlags::new(flags.known(), flags.restricted_to(NO_DUMP).active()));
        }
    }

    /// Sets the flags that prevent changes. No other change of the entry is possible afterwards.
    pub(crate) fn set_blocking_flags(&self, fd: BorrowedFd<'_>, flags: FileFlags) {
        let flags = flags.write_protecting();
        if flags.active() == 0 {
            return;
        }
        if self.is_trusting {
            self.set_flags(fd, flags);
        } else {
            self.losses.count(FLAGS, "the sink sets none");
        }
    }

    /// The extras of the directory that holds the journals of several sessions, without flags that prevent
    /// changes: the journals could not be removed from it any more. These flags are counted as lost. None if
    /// there are none.
    pub fn without_blocking_flags(&self, extras: &ExtraMetadata) -> Option<ExtraMetadata> {
        let flags = self.flags_of(extras).filter(|flags| flags.write_protecting().active() != 0)?;
        self.losses.count(FLAGS, "the transfer's journals are in it until it is over");
        let flags = Some(flags.restricted_to(NO_DUMP));
        Some(ExtraMetadata { flags, ..extras.clone() })
    }

    /// Counts flags that could not be set.
    pub(crate) fn count_flag_failure(&self, errno: Errno) {
        self.losses.count(FLAGS, &loss_reason(errno));
    }

    /// Sets or clears flags. A file system without flags is a loss only if a flag is requested.
    fn set_flags(&self, fd: BorrowedFd<'_>, flags: FileFlags) {
        let flagged = ioctl_getflags(fd).and_then(|present| {
            let wanted = present.bits() & !flags.known() | flags.active();
            if wanted == present.bits() {
                Ok(())
            } else {
                ioctl_setflags(fd, IFlags::from_bits_retain(wanted))
            }
        });
        match flagged {
            Err(Errno::NOTTY | Errno::OPNOTSUPP) if flags.active() == 0 => {}
            Err(errno) => self.count_flag_failure(errno),
            Ok(()) => {}
        }
    }

    /// Returns true if a device, pipe or socket may be made, and counts it otherwise: a device gives rights
    /// on its host.
    pub(crate) fn may_create(&self, special: &SpecialFile) -> bool {
        let makes = self.is_trusting || !special.is_device();
        if !makes {
            self.losses.count_whole(special.noun(), "the sink makes none");
        }
        makes
    }

    /// Counts a special file that could not be made.
    pub(crate) fn count_creation_failure(&self, special: &SpecialFile, errno: Errno) {
        self.losses.count_whole(special.noun(), &loss_reason(errno));
    }

    /// Sets owner and attributes of a link, which has no descriptor. Failures are counted.
    pub fn set_link_attributes(
        &self,
        extras: &ExtraMetadata,
        directory: BorrowedFd<'_>,
        name: &[u8],
        scratch: &ScratchNames,
    ) {
        let is_bare = self.user_of(extras).is_none() && self.group_of(extras).is_none();
        if is_bare && extras.attributes.is_empty() {
            return;
        }
        if self.losses.link_times(directory, scratch) == LinkTimeSupport::Followed {
            return self.losses.count("owner and attributes", FOLLOWS_LINKS);
        }
        let owned =
            self.set_owner(extras, |uid, gid| chownat(directory, name, uid, gid, AtFlags::SYMLINK_NOFOLLOW));
        let Ok(name) = CString::new(name) else { return };
        for attribute in &extras.attributes {
            self.set_attribute_with(attribute, extras, owned, |own| {
                lsetxattr(&*path_of(directory, &name), own, &attribute.value, XattrFlags::empty())
            });
        }
    }

    /// Sets owner and group, each alone if both together are refused.
    fn set_owner(
        &self,
        extras: &ExtraMetadata,
        chown: impl Fn(Option<Uid>, Option<Gid>) -> Result<(), Errno>,
    ) -> RequestedOwner {
        let (user, group) = (self.user_of(extras), self.group_of(extras));
        if !self.is_trusting {
            if user.is_some() || group.is_some() {
                self.losses.count("owner and group", "the sink sets none");
            }
            return RequestedOwner::default();
        }
        let user = user.and_then(|user| self.resolve_account(user, OWNER, &self.users, user_number));
        let group = group.and_then(|group| self.resolve_account(group, GROUP, &self.groups, group_number));
        let mut owned = RequestedOwner { user, group };
        if owned == RequestedOwner::default() {
            return owned;
        }
        let (uid, gid) = (user.map(Uid::from_raw), group.map(Gid::from_raw));
        // Only root may give files away, and a root of a user namespace not even always.
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
                self.losses.count(what, &loss_reason(errno));
            }
        }
        owned
    }

    /// Returns the owner and group as far as the entry shows them: a file system may ignore the call, or show
    /// others.
    fn confirm_owner(&self, target: &impl EntryMetadataSetter, owned: RequestedOwner) -> RequestedOwner {
        let Ok(found) = target.status() else { return RequestedOwner::default() };
        self.count_owner_differences(owned, owned_of(&found))
    }

    /// Counts an owner or group that was set but is not shown, and returns the rest.
    fn count_owner_differences(&self, set: RequestedOwner, found: RequestedOwner) -> RequestedOwner {
        RequestedOwner {
            user: self.count_if_different(OWNER, set.user, found.user),
            group: self.count_if_different(GROUP, set.group, found.group),
        }
    }

    fn count_if_different(&self, what: &str, set: Option<u32>, found: Option<u32>) -> Option<u32> {
        if set.is_some() && set != found {
            self.losses.count(what, "the file system shows another");
        }
        set.filter(|_| set == found)
    }

    /// As [`AttributeWriter::confirm_owner`], but reads each pair of owner and group back only once.
    fn confirm_owner_once(&self, target: &impl EntryMetadataSetter, owned: RequestedOwner) -> RequestedOwner {
        if owned == RequestedOwner::default() {
            return owned;
        }
        let mut known = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        let found = match known.get(&owned) {
            Some(found) => *found,
            None => {
                let Ok(found) = target.status().map(|found| owned_of(&found)) else { return owned };
                if known.len() < SHOWN_MAX {
                    known.insert(owned, found);
                }
                found
            }
        };
        drop(known);
        self.count_owner_differences(owned, found)
    }

    /// Looks up an account, and counts an unknown one.
    fn resolve_account(
        &self,
        account: &UserOrGroup,
        what: &str,
        known: &AccountNumbersByName,
        look_up: fn(&str) -> Option<u32>,
    ) -> Option<u32> {
        let number = account_number(account, known, look_up);
        if number.is_none() {
            self.losses.count(what, "there is none of that name at the destination");
        }
        number
    }

    /// Removes attributes that the source does not have: those of an earlier version, or an ACL that the
    /// directory handed down.
    fn remove_stale_attributes(&self, target: &impl EntryMetadataSetter, extras: &ExtraMetadata) {
        if extras.all_told == CompleteAttributeKinds::default() {
            return;
        }
        // A file system without attributes has none to remove.
        let Ok(present) = call_with_growing_buffer(|names| target.list_attributes(names)) else { return };
        for name in stale_names(&present, extras) {
            let removed = match target.remove_attribute(name) {
                Err(Errno::ACCESS) => {
                    let opened = target.set_mode(OWNERS);
                    opened.and_then(|()| target.remove_attribute(name))
                }
                answer => answer,
            };
            if let Err(errno) = removed
                && errno != Errno::NODATA
            {
                self.losses.count("the removal of attributes and ACLs", &loss_reason(errno));
            }
        }
    }

    /// Sets an attribute. That needs the mode's write permission, for the owner too.
    fn set_attribute(
        &self,
        target: &impl EntryMetadataSetter,
        attribute: &ExtendedAttribute,
        extras: &ExtraMetadata,
        owned: RequestedOwner,
    ) {
        self.set_attribute_with(attribute, extras, owned, |name| {
            match target.set_attribute(name, &attribute.value) {
                Err(Errno::ACCESS) if !attribute.is_acl() => {
                    let opened = target.set_mode(OWNERS);
                    opened.and_then(|()| target.set_attribute(name, &attribute.value))
                }
                answer => answer,
            }
        });
    }

    fn set_attribute_with(
        &self,
        attribute: &ExtendedAttribute,
        extras: &ExtraMetadata,
        owned: RequestedOwner,
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
            self.losses.count_several(what, &loss_reason(errno));
        }
    }

    fn may_set(&self, attribute: &ExtendedAttribute) -> bool {
        if attribute.is_acl() {
            return self.kept.acls;
        }
        let name = &attribute.name;
        let is_for_root = name.starts_with(b"security.") || name.starts_with(b"trusted.");
        self.kept.attributes && (name.starts_with(b"user.") || self.is_trusting && is_for_root)
    }
}

fn owned_of(found: &Stat) -> RequestedOwner {
    RequestedOwner { user: Some(found.st_uid), group: Some(found.st_gid) }
}

fn is_capability(attribute: &ExtendedAttribute) -> bool {
    *attribute.name == *CAPABILITY
}

/// Returns true if `number` is the source's account. False if this host does not know the source's name, and
/// has given the number to another account.
fn is_same_account(
    account: &UserOrGroup,
    number: u32,
    (known, look_up): (&AccountNumbersByName, fn(&str) -> Option<u32>),
    is_named: impl Fn() -> bool,
) -> bool {
    account.name.is_empty()
        || cached_account_number(known, &account.name, look_up) == Some(number)
        || !is_named()
}

/// Those of the `present` names, each followed by a NUL, that the source does not have.
fn stale_names<'a>(present: &'a [u8], extras: &'a ExtraMetadata) -> impl Iterator<Item = &'a CStr> {
    let names = present.split_inclusive(|&byte| byte == 0).flat_map(CStr::from_bytes_with_nul);
    names.filter(|name| {
        let name = name.to_bytes();
        extras.all_told.excludes(name) && extras.attributes.iter().all(|told| *told.name != *name)
    })
}

/// The number of an account: by its name if this host knows it, else the source's number.
fn account_number(
    account: &UserOrGroup,
    known: &AccountNumbersByName,
    look_up: fn(&str) -> Option<u32>,
) -> Option<u32> {
    let by_name =
        if account.name.is_empty() { None } else { cached_account_number(known, &account.name, look_up) };
    by_name.or((account.number != NO_NUMBER).then_some(account.number))
}

fn cached_account_number(
    known: &AccountNumbersByName,
    name: &[u8],
    look_up: fn(&str) -> Option<u32>,
) -> Option<u32> {
    if let Some(&number) = known.lock().unwrap_or_else(PoisonError::into_inner).get(name) {
        return number;
    }
    // Without the lock, as the lookup may ask other hosts.
    let number = std::str::from_utf8(name).ok().and_then(look_up);
    let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
    if known.len() < NUMBERS_MAX {
        known.insert(name.into(), number);
    }
    number
}

/// Describes the first user or group of the options that does not exist on this host.
pub fn unknown_account(fidelity: &MetadataFidelity) -> Option<String> {
    let users = fidelity.user.iter().cloned().chain(replacements(&fidelity.user_map));
    let groups = fidelity.group.iter().cloned().chain(replacements(&fidelity.group_map));
    let user = unknown_of(users, user_number).map(|name| format!("user '{name}'"));
    user.or_else(|| unknown_of(groups, group_number).map(|name| format!("group '{name}'")))
}

fn replacements(map: &FileOwnerMap) -> impl Iterator<Item = UserOrGroup> {
    map.rules().iter().map(|rule| rule.becomes.clone())
}

fn unknown_of(
    mut accounts: impl Iterator<Item = UserOrGroup>,
    look_up: fn(&str) -> Option<u32>,
) -> Option<String> {
    let unknown = accounts.find(|account| {
        account.number == NO_NUMBER && std::str::from_utf8(&account.name).ok().and_then(look_up).is_none()
    });
    unknown.map(|account| escape(&account.name))
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::fd::AsFd;
    use std::os::unix::fs::MetadataExt;

    use carrack_model::FileOwnerMap;
    use rustix::fs::lgetxattr;

    use super::*;

    const MODE: u32 = 0o6755;

    fn numbered(number: u32) -> UserOrGroup {
        UserOrGroup { number, name: b""[..].into() }
    }

    fn extras(user: UserOrGroup, group: UserOrGroup) -> ExtraMetadata {
        ExtraMetadata { user: Some(user), group: Some(group), ..ExtraMetadata::default() }
    }

    fn keeping(kept: KeptMetadata) -> MetadataFidelity {
        MetadataFidelity { kept, perms: true, ..MetadataFidelity::default() }
    }

    #[test]
    fn set_id_bits_stay_where_owner_and_group_are_kept_by_request() {
        let told = extras(numbered(54_321), numbered(54_322));
        fn ids(fidelity: &MetadataFidelity, told: &ExtraMetadata, owner: (u32, u32)) -> u32 {
            AttributeWriter::new(true).with_fidelity(fidelity).allowed_set_id_bits(Some(told), owner, MODE)
        }
        let (all, here) = (keeping(KeptMetadata::ALL), (54_321, 54_322));
        assert_eq!(ids(&all, &told, here), 0o6000);
        assert_eq!((ids(&all, &told, (0, 54_322)), ids(&all, &told, (54_321, 0))), (0, 0), "one is lacking");
        // The request decides, not the extras of the source.
        assert_eq!(ids(&keeping(KeptMetadata::default()), &told, here), 0);
        assert_eq!(
            ids(&keeping(KeptMetadata { users: true, ..KeptMetadata::default() }), &told, here),
            0o4000
        );
        let mapped = MetadataFidelity { user_map: FileOwnerMap::parse("*:54321").unwrap(), ..all.clone() };
        assert_eq!(ids(&mapped, &told, here), 0o2000);
        assert_eq!(
            ids(&MetadataFidelity { group: Some(numbered(54_322)), ..all.clone() }, &told, here),
            0o4000
        );
        assert_eq!(
            AttributeWriter::new(false).with_fidelity(&all).allowed_set_id_bits(Some(&told), here, MODE),
            0
        );
        assert_eq!(AttributeWriter::new(true).allowed_set_id_bits(None, here, MODE), 0);
        assert_eq!(AttributeWriter::new(true).allowed_set_id_bits(Some(&told), here, 0o755), 0);
        // An unknown name whose number belongs to another account of this host.
        let root = UserOrGroup { number: 0, name: b"no-such-account"[..].into() };
        let other = UserOrGroup { number: 54_322, ..root.clone() };
        assert_eq!(ids(&all, &extras(root, other), (0, 54_322)), 0o2000);
    }

    /// A file on a file system that ignores changes of the owner.
    struct OwnerIgnoringFile<'a>(BorrowedFd<'a>);

    impl EntryMetadataSetter for OwnerIgnoringFile<'_> {
        fn status(&self) -> Result<Stat, Errno> {
            self.0.status()
        }

        fn set_owner(&self, _: Option<Uid>, _: Option<Gid>) -> Result<(), Errno> {
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
        fn dressed(file: &File, user: u32, group: u32) -> (u32, Vec<String>) {
            let (metadata, keeper) =
                (Metadata { mode: MODE, ..Metadata::default() }, AttributeWriter::new(true));
            let told = extras(numbered(user), numbered(group));
            let dress = MetadataToSet { extras: Some((&told, &keeper)), ..MetadataToSet::from(&metadata) };
            dress.apply_to(OwnerIgnoringFile(file.as_fd()), true).unwrap();
            (file.metadata().unwrap().mode() & 0o7777, keeper.losses().take_lines())
        }
        let file = tempfile::tempfile().unwrap();
        let own = file.metadata().unwrap();
        assert_eq!(dressed(&file, own.uid(), own.gid()), (MODE, vec![]));
        let (mode, lines) = dressed(&file, own.uid() + 1, own.gid());
        assert_eq!(mode, 0o755);
        assert_eq!(lines, ["the owner of 1 entry not kept: the file system shows another"]);
        assert_eq!(dressed(&file, own.uid(), own.gid() + 1).0, 0o755);
    }

    #[test]
    fn capabilities_and_acls_give_nothing_without_what_they_belong_to() {
        let dir = tempfile::tempdir().unwrap();
        let (path, metadata) = (dir.path().join("f"), Metadata { mode: 0o670, ..Metadata::default() });
        fn attribute(name: &[u8], value: &[u8]) -> ExtendedAttribute {
            ExtendedAttribute { name: name.into(), value: value.into() }
        }
        let mut acl = 2_u32.to_le_bytes().to_vec();
        for (tag, perm) in [(1_u8, 6_u8), (4, 4), (16, 7), (32, 0)] {
            acl.extend_from_slice(&[tag, 0, perm, 0, 255, 255, 255, 255]);
        }
        // `cap_net_raw+ep`, capabilities(7).
        let capability = [1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let told = ExtraMetadata {
            attributes: vec![attribute(CAPABILITY, &capability), attribute(ACCESS_ACL.to_bytes(), &acl)],
            ..ExtraMetadata::default()
        };
        fs::write(&path, "x").unwrap();
        let file = File::options().write(true).open(&path).unwrap();
        // The ACL was not requested: the mask in the mode's group bits is no right of the group.
        let kept = KeptMetadata { attributes: true, ..KeptMetadata::default() };
        let keeper = AttributeWriter::new(true).with_fidelity(&keeping(kept));
        let dress = MetadataToSet {
            metadata: &metadata,
            extras: Some((&told, &keeper)),
            losses: None,
            policy: keeper.policy(),
            lasting: 0,
        };
        dress.apply_to(file.as_fd(), true).unwrap();
        let has = lgetxattr(&path, "security.capability", &mut [0; 100][..]).is_ok();
        assert_eq!((fs::metadata(&path).unwrap().mode() & 0o777, has), (0o640, false));
        let lines = keeper.losses().take_lines();
        assert!(
            lines.iter().any(|line| line.contains("file capabilities") && line.contains("owner")),
            "{lines:?}"
        );
    }
}
