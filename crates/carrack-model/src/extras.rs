//! What is kept of an entry beyond its mode and time, where the user asks for it (`carrack cp --archive`): owner, extended
//! attributes and access control lists.
//!
//! [`Extras::tags`] and [`Extras::keep`] are the two ends of one format: `docs/formats/wire.md`, extras 3, 5, 11, 13 and 135.

use std::sync::Arc;

use crate::{AccountMap, FileFlags, ModeChange, RelPath, Special};

/// A number that means nobody (`chown(2)`): an account that is known by its name only.
pub const NO_NUMBER: u32 = u32::MAX;

/// The longest name of an attribute (`XATTR_NAME_MAX`), and of an account here.
const NAME_BYTES_MAX: usize = 255;

/// The longest value of an attribute (`XATTR_SIZE_MAX`).
const VALUE_BYTES_MAX: usize = 64 << 10;

/// An owner's tag in an entry table.
const TAG_OWNER: u8 = 3;
/// An attribute's; an entry may have several.
const TAG_ATTRIBUTE: u8 = 5;

/// Another name's; who does not know it would make an empty file.
const TAG_SAME_AS: u8 = 135;

/// That attributes are all told.
const TAG_ALL_TOLD: u8 = 11;

/// File flags'.
const TAG_FLAGS: u8 = 13;

const HAS_USER: u8 = 1;
const HAS_GROUP: u8 = 2;

const ALL_ATTRIBUTES: u8 = 1;
const ALL_ACLS: u8 = 2;

/// A user or a group.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Account {
    /// Its number at the source, or [`NO_NUMBER`].
    pub number: u32,
    /// Its name there; empty if it has none, or only the number counts.
    pub name: Arc<[u8]>,
}

/// An extended attribute. POSIX ACLs are those that Linux calls `system.posix_acl_access` and `system.posix_acl_default`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Attribute {
    /// With its name space: `user.comment`.
    pub name: Box<[u8]>,
    /// Any bytes.
    pub value: Box<[u8]>,
}

impl Attribute {
    /// Whether it is a POSIX ACL.
    pub fn is_acl(&self) -> bool {
        is_acl(&self.name)
    }
}

/// Of which kinds an entry's [`Extras::attributes`] are all that it has. Others of that kind go at the sink.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct AllTold {
    /// Those in `user`.
    pub attributes: bool,
    /// POSIX ACLs.
    pub acls: bool,
}

impl AllTold {
    /// Whether an attribute of this name that is not told is not to be there.
    pub fn excludes(self, name: &[u8]) -> bool {
        self.attributes && name.starts_with(b"user.") || self.acls && is_acl(name)
    }
}

fn is_acl(name: &[u8]) -> bool {
    name.starts_with(b"system.posix_acl_")
}

/// The file that an entry is another name of (a hard link). Such an entry has no contents of its own.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SameAs {
    /// Beneath the destination.
    pub path: RelPath,
    /// Bytes of it.
    pub size: u64,
}

/// What is kept beyond mode and time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Extras {
    /// Whose it is, if that is kept.
    pub user: Option<Account>,
    /// Its group, if that is kept.
    pub group: Option<Account>,
    /// Its attributes and ACLs, if they are kept.
    pub attributes: Vec<Attribute>,
    /// Whether these are all.
    pub all_told: AllTold,
    /// Its file flags, if they are kept.
    pub flags: Option<FileFlags>,
    /// What it is another name of, if it is one.
    pub same_as: Option<SameAs>,
}

/// A value that is no owner or attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an owner or attribute that can't be read")]
pub struct BadExtra;

impl Extras {
    /// Whether nothing is kept.
    pub fn is_empty(&self) -> bool {
        *self == Extras::default()
    }

    /// Calls `put` with each tag and value.
    pub fn tags(&self, mut put: impl FnMut(u8, &[u8])) {
        if self.user.is_some() || self.group.is_some() {
            let mut value = vec![0];
            for (account, bit) in [(&self.user, HAS_USER), (&self.group, HAS_GROUP)] {
                let Some(account) = account else { continue };
                value[0] |= bit;
                value.extend_from_slice(&account.number.to_le_bytes());
                put_name(&mut value, &account.name);
            }
            put(TAG_OWNER, &value);
        }
        for attribute in &self.attributes {
            let mut value = Vec::with_capacity(1 + attribute.name.len() + attribute.value.len());
            put_name(&mut value, &attribute.name);
            value.extend_from_slice(&attribute.value);
            put(TAG_ATTRIBUTE, &value);
        }
        if self.all_told != AllTold::default() {
            let AllTold { attributes, acls } = self.all_told;
            put(TAG_ALL_TOLD, &[u8::from(attributes) * ALL_ATTRIBUTES + u8::from(acls) * ALL_ACLS]);
        }
        if let Some(flags) = self.flags {
            put(TAG_FLAGS, &flags.to_bytes());
        }
        if let Some(SameAs { path, size }) = &self.same_as {
            put(TAG_SAME_AS, &[&size.to_le_bytes(), path.as_bytes()].concat());
        }
    }

    /// Bytes of all tags, each with `head_bytes` before its value.
    pub fn tag_bytes(&self, head_bytes: usize) -> usize {
        let mut bytes = 0;
        self.tags(|_, value| bytes += head_bytes + value.len());
        bytes
    }

    /// Whether [`Extras::tags`] gives such a tag.
    pub fn knows(tag: u8) -> bool {
        matches!(tag, TAG_OWNER | TAG_ATTRIBUTE | TAG_ALL_TOLD | TAG_FLAGS | TAG_SAME_AS)
    }

    /// Takes in what [`Extras::tags`] gave; `false` for another tag.
    ///
    /// # Errors
    /// If the value is none of this tag's.
    pub fn keep(&mut self, tag: u8, value: &[u8]) -> Result<bool, BadExtra> {
        match tag {
            TAG_OWNER => self.keep_owner(value).ok_or(BadExtra)?,
            TAG_ATTRIBUTE => self.attributes.push(attribute_of(value).ok_or(BadExtra)?),
            TAG_ALL_TOLD => self.all_told = all_told_of(value).ok_or(BadExtra)?,
            TAG_FLAGS => self.flags = Some(FileFlags::of_bytes(value).ok_or(BadExtra)?),
            TAG_SAME_AS => self.same_as = Some(same_as_of(value).ok_or(BadExtra)?),
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn keep_owner(&mut self, value: &[u8]) -> Option<()> {
        let (&which, mut rest) = value.split_first()?;
        for (account, bit) in [(&mut self.user, HAS_USER), (&mut self.group, HAS_GROUP)] {
            if which & bit == 0 {
                continue;
            }
            let (number, after) = rest.split_first_chunk::<4>()?;
            let (name, after) = split_name(after)?;
            rest = after;
            *account = Some(Account { number: u32::from_le_bytes(*number), name: name.into() });
        }
        (which <= HAS_USER | HAS_GROUP && rest.is_empty()).then_some(())
    }
}

/// A name with its length in front; what is too long is nobody's.
fn put_name(value: &mut Vec<u8>, name: &[u8]) {
    let name = if name.len() <= NAME_BYTES_MAX { name } else { b"" };
    value.push(name.len() as u8);
    value.extend_from_slice(name);
}

fn split_name(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (&length, rest) = bytes.split_first()?;
    let (name, rest) = rest.split_at_checked(length.into())?;
    (!name.contains(&0)).then_some((name, rest))
}

fn attribute_of(bytes: &[u8]) -> Option<Attribute> {
    let (name, value) = split_name(bytes)?;
    let is_good = !name.is_empty() && value.len() <= VALUE_BYTES_MAX;
    is_good.then(|| Attribute { name: name.into(), value: value.into() })
}

fn all_told_of(bytes: &[u8]) -> Option<AllTold> {
    let [bits] = bytes else { return None };
    Some(AllTold { attributes: bits & ALL_ATTRIBUTES != 0, acls: bits & ALL_ACLS != 0 })
}

fn same_as_of(bytes: &[u8]) -> Option<SameAs> {
    let (size, path) = bytes.split_first_chunk::<8>()?;
    let path = RelPath::new(path).ok().filter(|path| !path.is_root())?;
    Some(SameAs { path, size: u64::from_le_bytes(*size) })
}

/// What is kept beside contents, mode and times of files, directories and links.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// Whose it is.
    pub users: bool,
    /// Its group.
    pub groups: bool,
    /// Extended attributes.
    pub attributes: bool,
    /// POSIX ACLs.
    pub acls: bool,
    /// Which names are one file's.
    pub hard_links: bool,
    /// Character and block devices.
    pub devices: bool,
    /// Named pipes and sockets.
    pub specials: bool,
    /// File flags.
    pub file_flags: bool,
}

impl Kept {
    /// Everything that this build knows of.
    pub const ALL: Kept = Kept {
        users: true,
        groups: true,
        attributes: true,
        acls: true,
        hard_links: true,
        devices: true,
        specials: true,
        file_flags: true,
    };

    /// As a set of bits, which travels.
    pub fn bits(self) -> u32 {
        self.flags().into_iter().enumerate().map(|(bit, is_set)| u32::from(is_set) << bit).sum()
    }

    /// Bits that are not known here mean what can't be kept.
    pub fn from_bits(bits: u32) -> Kept {
        let is_set = |bit: u32| bits >> bit & 1 != 0;
        Kept {
            users: is_set(0),
            groups: is_set(1),
            attributes: is_set(2),
            acls: is_set(3),
            hard_links: is_set(4),
            devices: is_set(5),
            specials: is_set(6),
            file_flags: is_set(7),
        }
    }

    /// Whether nothing is.
    pub fn is_nothing(self) -> bool {
        self == Kept::default()
    }

    /// Whether a device, pipe or socket is made at the sink.
    pub fn has(self, special: &Special) -> bool {
        if special.is_device() { self.devices } else { self.specials }
    }

    /// What both keep.
    pub fn and(self, other: Kept) -> Kept {
        Kept::from_bits(self.bits() & other.bits())
    }

    /// What of it the other does not keep, in words; empty if it keeps all.
    pub fn lacking_in(self, other: Kept) -> String {
        let lacking = Kept::from_bits(self.bits() & !other.bits());
        let words = [
            "owners",
            "groups",
            "extended attributes",
            "ACLs",
            "hard links",
            "devices",
            "named pipes and sockets",
            "file flags",
        ];
        let named = lacking.flags().into_iter().zip(words).filter(|(is_set, _)| *is_set);
        named.map(|(_, word)| word).collect::<Vec<_>>().join(", ")
    }

    fn flags(self) -> [bool; 8] {
        let Kept { users, groups, attributes, acls, hard_links, devices, specials, file_flags } = self;
        [users, groups, attributes, acls, hard_links, devices, specials, file_flags]
    }
}

/// What is kept, and how owners are told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fidelity {
    /// What is kept.
    pub kept: Kept,
    /// Owners by their numbers, whatever they are called at the sink.
    pub numeric_ids: bool,
    /// Whose everything becomes, instead of whose it is.
    pub user: Option<Account>,
    /// The group that everything gets instead of its own.
    pub group: Option<Account>,
    /// Whose it becomes, by whose it is.
    pub user_map: AccountMap,
    /// Likewise for groups.
    pub group_map: AccountMap,
    /// Every entry gets the mode that it has at the source. Without it what is there keeps its mode, and new entries get the permission
    /// bits of the source less the umask.
    pub perms: bool,
    /// What the sink changes in the modes of the source before anything else.
    pub mode_change: ModeChange,
    /// Modification times are not kept.
    pub omit_times: bool,
    /// Those of directories are not.
    pub omit_dir_times: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Extras {
        let attribute = |name: &[u8], value: &[u8]| Attribute { name: name.into(), value: value.into() };
        Extras {
            user: Some(Account { number: 7, name: b"alice"[..].into() }),
            group: Some(Account { number: NO_NUMBER, name: b"data"[..].into() }),
            attributes: vec![attribute(b"user.a", b""), attribute(b"user.b", &[0; VALUE_BYTES_MAX])],
            all_told: AllTold { attributes: false, acls: true },
            flags: Some(FileFlags::new(crate::IMMUTABLE | crate::NO_DUMP, crate::NO_DUMP)),
            same_as: Some(SameAs { path: RelPath::new(b"a/b").unwrap(), size: 7 }),
        }
    }

    fn through(extras: &Extras) -> Extras {
        let mut read = Extras::default();
        extras.tags(|tag, value| assert_eq!((Extras::knows(tag), read.keep(tag, value)), (true, Ok(true))));
        read
    }

    #[test]
    fn extras_survive_their_tags() {
        let whole = example();
        assert_eq!(through(&whole), whole);
        let group_only = Extras { user: None, attributes: Vec::new(), same_as: None, ..whole.clone() };
        assert_eq!(through(&group_only), group_only);
        assert_eq!(through(&Extras::default()), Extras::default());
        let mut bytes = 0;
        whole.tags(|_, value| bytes += 4 + value.len());
        assert_eq!(whole.tag_bytes(4), bytes);
    }

    #[test]
    fn the_examples_of_the_format_document() {
        let mut owner = Vec::new();
        let extras = Extras {
            attributes: Vec::new(),
            all_told: AllTold::default(),
            flags: None,
            same_as: None,
            ..example()
        };
        extras.tags(|_, value| owner = value.to_vec());
        assert_eq!(owner, b"\x03\x07\0\0\0\x05alice\xff\xff\xff\xff\x04data");
    }

    #[test]
    fn what_is_no_extra_is_refused() {
        let mut extras = Extras::default();
        assert_eq!(extras.keep(1, b""), Ok(false));
        for bad in [&b""[..], b"\x01", b"\x01\0\0\0\0", b"\x01\0\0\0\0\x02a", b"\x08", b"\x00\x00"] {
            assert_eq!(extras.keep(TAG_OWNER, bad), Err(BadExtra), "{bad:?}");
        }
        assert_eq!(extras.keep(TAG_FLAGS, b"1234567"), Err(BadExtra));
        for bad in [&b""[..], b"\x01\x00"] {
            assert_eq!(extras.keep(TAG_ALL_TOLD, bad), Err(BadExtra));
        }
        let long = [&b"\x01a"[..], &[0; VALUE_BYTES_MAX + 1]].concat();
        for bad in [&b""[..], b"\x00v", b"\x05user", b"\x01\x00", &long] {
            assert_eq!(extras.keep(TAG_ATTRIBUTE, bad), Err(BadExtra));
        }
        for bad in [&b""[..], b"\x01\0\0\0\0\0\0\0", b"\x01\0\0\0\0\0\0\0../a"] {
            assert_eq!(extras.keep(TAG_SAME_AS, bad), Err(BadExtra));
        }
    }

    #[test]
    fn what_is_not_told_is_excluded_by_its_kind() {
        let (user, acl, label) = (&b"user.a"[..], &b"system.posix_acl_access"[..], &b"security.selinux"[..]);
        for (attributes, acls) in [(false, false), (true, false), (false, true), (true, true)] {
            let told = AllTold { attributes, acls };
            assert_eq!([user, acl, label].map(|name| told.excludes(name)), [attributes, acls, false]);
        }
    }

    #[test]
    fn what_is_kept_survives_its_bits() {
        for bits in 0..256 {
            assert_eq!(Kept::from_bits(bits).bits(), bits);
        }
        assert_eq!(Kept::from_bits(u32::MAX), Kept::ALL);
        assert_eq!(
            Kept::ALL.lacking_in(Kept { users: true, acls: true, ..Kept::default() }),
            "groups, extended attributes, hard links, devices, named pipes and sockets, file flags"
        );
        assert_eq!(Kept::ALL.lacking_in(Kept::ALL), "");
    }
}
