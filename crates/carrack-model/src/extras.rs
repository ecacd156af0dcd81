//! Metadata beyond mode and time, kept on request (`carrack cp --archive`): owner, extended attributes and
//! access control lists.
//!
//! [`ExtraMetadata::encode_tags`] and [`ExtraMetadata::decode_tag`] encode and decode one format:
//! `docs/formats/wire.md`, extras 3, 5, 11, 13, 17 and 135.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{FileFlags, FileOwnerMap, ModeChange, RelPath, SpecialFile};

/// A number of no account (`chown(2)`), for accounts that are known by name only.
pub const NO_NUMBER: u32 = u32::MAX;

/// Longest name of an attribute (`XATTR_NAME_MAX`) or an account.
const NAME_BYTES_MAX: usize = 255;

/// Longest value of an attribute (`XATTR_SIZE_MAX`).
const VALUE_BYTES_MAX: usize = 64 << 10;

/// Tag of an owner in an entry table.
const TAG_OWNER: u8 = 3;
/// Tag of an attribute; an entry may have several.
const TAG_ATTRIBUTE: u8 = 5;

/// Tag of a hard link; a reader without support would create an empty file.
const TAG_SAME_AS: u8 = 135;

/// Tag of [`CompleteAttributeKinds`].
const TAG_ALL_TOLD: u8 = 11;

/// Tag of file flags.
const TAG_FLAGS: u8 = 13;

/// Tag of a directory's striping.
const TAG_STRIPING: u8 = 17;

/// Longest encoded striping: more than a hundred components.
const STRIPING_BYTES_MAX: usize = 4 << 10;

const HAS_USER: u8 = 1;
const HAS_GROUP: u8 = 2;

const ALL_ATTRIBUTES: u8 = 1;
const ALL_ACLS: u8 = 2;

/// A user or a group.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UserOrGroup {
    /// Number at the source, or [`NO_NUMBER`].
    pub number: u32,
    /// Name at the source; empty if the account has none, or if only the number counts.
    #[serde(with = "crate::json_bytes")]
    pub name: Arc<[u8]>,
}

/// An extended attribute. Linux names POSIX ACLs `system.posix_acl_access` and `system.posix_acl_default`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ExtendedAttribute {
    /// Name with its name space: `user.comment`.
    pub name: Box<[u8]>,
    /// Any bytes.
    pub value: Box<[u8]>,
}

impl ExtendedAttribute {
    /// Returns true for a POSIX ACL.
    pub fn is_acl(&self) -> bool {
        is_acl(&self.name)
    }
}

/// The kinds of which [`ExtraMetadata::attributes`] is complete. The sink removes others of these kinds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CompleteAttributeKinds {
    /// Attributes in `user`.
    pub attributes: bool,
    /// POSIX ACLs.
    pub acls: bool,
}

impl CompleteAttributeKinds {
    /// Returns true if an attribute of this name must not exist unless it is listed.
    pub fn excludes(self, name: &[u8]) -> bool {
        self.attributes && name.starts_with(b"user.") || self.acls && is_acl(name)
    }
}

fn is_acl(name: &[u8]) -> bool {
    name.starts_with(b"system.posix_acl_")
}

/// The file that a hard link shares. The link's entry has no contents.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HardLinkTarget {
    /// Path relative to the destination.
    pub path: RelPath,
    /// Bytes of the file.
    pub size: u64,
}

/// The metadata kept beyond mode and time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ExtraMetadata {
    /// Owner, if it is kept.
    pub user: Option<UserOrGroup>,
    /// Group, if it is kept.
    pub group: Option<UserOrGroup>,
    /// Attributes and ACLs, if they are kept.
    pub attributes: Vec<ExtendedAttribute>,
    /// The kinds of which `attributes` is complete.
    pub all_told: CompleteAttributeKinds,
    /// File flags, if they are kept.
    pub flags: Option<FileFlags>,
    /// The striping that a directory gives to new files, as a message of the wire protocol.
    pub striping: Option<Box<[u8]>>,
    /// The shared file, for a hard link.
    pub same_as: Option<HardLinkTarget>,
}

/// A value that can't be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an owner or attribute that can't be read")]
pub struct ExtraMetadataError;

impl ExtraMetadata {
    /// Returns true if nothing is kept.
    pub fn is_empty(&self) -> bool {
        *self == ExtraMetadata::default()
    }

    /// Returns the striping alone, for each further part of a directory's section; `None` if there is none.
    pub fn striping_only(&self) -> Option<Box<ExtraMetadata>> {
        let striping = self.striping.clone()?;
        Some(Box::new(ExtraMetadata { striping: Some(striping), ..ExtraMetadata::default() }))
    }

    /// Encodes the metadata: calls `put` with each tag and value.
    pub fn encode_tags(&self, mut put: impl FnMut(u8, &[u8])) {
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
        if self.all_told != CompleteAttributeKinds::default() {
            let CompleteAttributeKinds { attributes, acls } = self.all_told;
            put(TAG_ALL_TOLD, &[u8::from(attributes) * ALL_ATTRIBUTES + u8::from(acls) * ALL_ACLS]);
        }
        if let Some(flags) = self.flags {
            put(TAG_FLAGS, &flags.to_bytes());
        }
        if let Some(striping) = self.striping.as_ref().filter(|bytes| bytes.len() <= STRIPING_BYTES_MAX) {
            put(TAG_STRIPING, striping);
        }
        if let Some(HardLinkTarget { path, size }) = &self.same_as {
            put(TAG_SAME_AS, &[&size.to_le_bytes(), path.as_bytes()].concat());
        }
    }

    /// Bytes of all tags, with `head_bytes` for each in front of its value.
    pub fn tag_bytes(&self, head_bytes: usize) -> usize {
        let mut bytes = 0;
        self.encode_tags(|_, value| bytes += head_bytes + value.len());
        bytes
    }

    /// Returns true for a tag of [`ExtraMetadata::encode_tags`].
    pub fn is_known_tag(tag: u8) -> bool {
        matches!(tag, TAG_OWNER | TAG_ATTRIBUTE | TAG_ALL_TOLD | TAG_FLAGS | TAG_STRIPING | TAG_SAME_AS)
    }

    /// Decodes a value of [`ExtraMetadata::encode_tags`]; returns false for an unknown tag.
    ///
    /// # Errors
    /// The value does not fit its tag.
    pub fn decode_tag(&mut self, tag: u8, value: &[u8]) -> Result<bool, ExtraMetadataError> {
        match tag {
            TAG_OWNER => self.decode_owner(value).ok_or(ExtraMetadataError)?,
            TAG_ATTRIBUTE => self.attributes.push(attribute_of(value).ok_or(ExtraMetadataError)?),
            TAG_ALL_TOLD => self.all_told = decode_complete_kinds(value).ok_or(ExtraMetadataError)?,
            TAG_FLAGS => self.flags = Some(FileFlags::from_bytes(value).ok_or(ExtraMetadataError)?),
            TAG_STRIPING if value.len() > STRIPING_BYTES_MAX => return Err(ExtraMetadataError),
            TAG_STRIPING => self.striping = Some(value.into()),
            TAG_SAME_AS => self.same_as = Some(decode_hard_link_target(value).ok_or(ExtraMetadataError)?),
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn decode_owner(&mut self, value: &[u8]) -> Option<()> {
        let (&which, mut rest) = value.split_first()?;
        for (account, bit) in [(&mut self.user, HAS_USER), (&mut self.group, HAS_GROUP)] {
            if which & bit == 0 {
                continue;
            }
            let (number, after) = rest.split_first_chunk::<4>()?;
            let (name, after) = split_name(after)?;
            rest = after;
            *account = Some(UserOrGroup { number: u32::from_le_bytes(*number), name: name.into() });
        }
        (which <= HAS_USER | HAS_GROUP && rest.is_empty()).then_some(())
    }
}

/// Appends a name behind its length; an overlong name is replaced by none.
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

fn attribute_of(bytes: &[u8]) -> Option<ExtendedAttribute> {
    let (name, value) = split_name(bytes)?;
    let is_good = !name.is_empty() && value.len() <= VALUE_BYTES_MAX;
    is_good.then(|| ExtendedAttribute { name: name.into(), value: value.into() })
}

fn decode_complete_kinds(bytes: &[u8]) -> Option<CompleteAttributeKinds> {
    let [bits] = bytes else { return None };
    Some(CompleteAttributeKinds { attributes: bits & ALL_ATTRIBUTES != 0, acls: bits & ALL_ACLS != 0 })
}

fn decode_hard_link_target(bytes: &[u8]) -> Option<HardLinkTarget> {
    let (size, path) = bytes.split_first_chunk::<8>()?;
    let path = RelPath::new(path).ok().filter(|path| !path.is_root())?;
    Some(HardLinkTarget { path, size: u64::from_le_bytes(*size) })
}

/// The kinds of metadata kept beyond mode and time, for files, directories and links.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeptMetadata {
    /// Owners.
    pub users: bool,
    /// Groups.
    pub groups: bool,
    /// Extended attributes.
    pub attributes: bool,
    /// POSIX ACLs.
    pub acls: bool,
    /// Hard links.
    pub hard_links: bool,
    /// Character and block devices.
    pub devices: bool,
    /// Named pipes and sockets.
    pub specials: bool,
    /// File flags.
    pub file_flags: bool,
}

impl KeptMetadata {
    /// Everything that this build supports.
    pub const ALL: KeptMetadata = KeptMetadata {
        users: true,
        groups: true,
        attributes: true,
        acls: true,
        hard_links: true,
        devices: true,
        specials: true,
        file_flags: true,
    };

    /// Encodes the kinds as bits.
    pub fn bits(self) -> u32 {
        self.flags().into_iter().enumerate().map(|(bit, is_set)| u32::from(is_set) << bit).sum()
    }

    /// Decodes bits; unknown ones are dropped, as this build can't keep them.
    pub fn from_bits(bits: u32) -> KeptMetadata {
        KeptMetadata {
            users: bits & 1 != 0,
            groups: bits & (1 << 1) != 0,
            attributes: bits & (1 << 2) != 0,
            acls: bits & (1 << 3) != 0,
            hard_links: bits & (1 << 4) != 0,
            devices: bits & (1 << 5) != 0,
            specials: bits & (1 << 6) != 0,
            file_flags: bits & (1 << 7) != 0,
        }
    }

    /// Returns true if nothing is kept.
    pub fn is_nothing(self) -> bool {
        self == KeptMetadata::default()
    }

    /// Returns true if this device, pipe or socket is created at the sink.
    pub fn keeps_special(self, special: &SpecialFile) -> bool {
        if special.is_device() { self.devices } else { self.specials }
    }

    /// The kinds that both keep.
    pub fn intersection(self, other: KeptMetadata) -> KeptMetadata {
        KeptMetadata::from_bits(self.bits() & other.bits())
    }

    /// Lists the kinds that `other` does not keep, in words; empty if it keeps all.
    pub fn kinds_missing_in(self, other: KeptMetadata) -> String {
        let lacking = KeptMetadata::from_bits(self.bits() & !other.bits());
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
        let KeptMetadata { users, groups, attributes, acls, hard_links, devices, specials, file_flags } =
            self;
        [users, groups, attributes, acls, hard_links, devices, specials, file_flags]
    }
}

/// The metadata that are kept, and the changes to them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MetadataFidelity {
    /// The kinds that are kept.
    pub kept: KeptMetadata,
    /// Owners keep their numbers, even under other names at the sink.
    pub numeric_ids: bool,
    /// Owner of everything at the sink, in place of the original one.
    pub user: Option<UserOrGroup>,
    /// Group of everything at the sink, in place of the original one.
    pub group: Option<UserOrGroup>,
    /// Map of owners from the source to the sink.
    pub user_map: FileOwnerMap,
    /// Map of groups from the source to the sink.
    pub group_map: FileOwnerMap,
    /// Every entry gets its mode at the source. If not set, existing entries keep their mode, and new ones
    /// get the permission bits of the source less the umask.
    pub perms: bool,
    /// Changes to the modes of the source, before any other rule.
    pub mode_change: ModeChange,
    /// Modification times are not kept.
    pub omit_times: bool,
    /// Modification times of directories are not kept.
    pub omit_dir_times: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> ExtraMetadata {
        fn attribute(name: &[u8], value: &[u8]) -> ExtendedAttribute {
            ExtendedAttribute { name: name.into(), value: value.into() }
        }
        ExtraMetadata {
            user: Some(UserOrGroup { number: 7, name: b"alice"[..].into() }),
            group: Some(UserOrGroup { number: NO_NUMBER, name: b"data"[..].into() }),
            attributes: vec![attribute(b"user.a", b""), attribute(b"user.b", &[0; VALUE_BYTES_MAX])],
            all_told: CompleteAttributeKinds { attributes: false, acls: true },
            flags: Some(FileFlags::new(crate::IMMUTABLE | crate::NO_DUMP, crate::NO_DUMP)),
            striping: Some([7; STRIPING_BYTES_MAX].into()),
            same_as: Some(HardLinkTarget { path: RelPath::new(b"a/b").unwrap(), size: 7 }),
        }
    }

    fn through(extras: &ExtraMetadata) -> ExtraMetadata {
        let mut read = ExtraMetadata::default();
        extras.encode_tags(|tag, value| {
            assert_eq!((ExtraMetadata::is_known_tag(tag), read.decode_tag(tag, value)), (true, Ok(true)))
        });
        read
    }

    #[test]
    fn extras_survive_their_tags() {
        let whole = example();
        assert_eq!(through(&whole), whole);
        let group_only = ExtraMetadata { user: None, attributes: Vec::new(), same_as: None, ..whole.clone() };
        assert_eq!(through(&group_only), group_only);
        assert_eq!(through(&ExtraMetadata::default()), ExtraMetadata::default());
        let mut bytes = 0;
        whole.encode_tags(|_, value| bytes += 4 + value.len());
        assert_eq!(whole.tag_bytes(4), bytes);
    }

    #[test]
    fn the_examples_of_the_format_document() {
        let mut owner = Vec::new();
        let extras = ExtraMetadata {
            attributes: Vec::new(),
            all_told: CompleteAttributeKinds::default(),
            flags: None,
            striping: None,
            same_as: None,
            ..example()
        };
        extras.encode_tags(|_, value| owner = value.to_vec());
        assert_eq!(owner, b"\x03\x07\0\0\0\x05alice\xff\xff\xff\xff\x04data");
    }

    #[test]
    fn what_is_no_extra_is_refused() {
        let mut extras = ExtraMetadata::default();
        assert_eq!(extras.decode_tag(1, b""), Ok(false));
        for bad in [&b""[..], b"\x01", b"\x01\0\0\0\0", b"\x01\0\0\0\0\x02a", b"\x08", b"\x00\x00"] {
            assert_eq!(extras.decode_tag(TAG_OWNER, bad), Err(ExtraMetadataError), "{bad:?}");
        }
        assert_eq!(extras.decode_tag(TAG_FLAGS, b"1234567"), Err(ExtraMetadataError));
        for bad in [&b""[..], b"\x01\x00"] {
            assert_eq!(extras.decode_tag(TAG_ALL_TOLD, bad), Err(ExtraMetadataError));
        }
        assert_eq!(extras.decode_tag(TAG_STRIPING, &[0; STRIPING_BYTES_MAX + 1]), Err(ExtraMetadataError));
        let long = [&b"\x01a"[..], &[0; VALUE_BYTES_MAX + 1]].concat();
        for bad in [&b""[..], b"\x00v", b"\x05user", b"\x01\x00", &long] {
            assert_eq!(extras.decode_tag(TAG_ATTRIBUTE, bad), Err(ExtraMetadataError));
        }
        for bad in [&b""[..], b"\x01\0\0\0\0\0\0\0", b"\x01\0\0\0\0\0\0\0../a"] {
            assert_eq!(extras.decode_tag(TAG_SAME_AS, bad), Err(ExtraMetadataError));
        }
    }

    #[test]
    fn what_is_not_told_is_excluded_by_its_kind() {
        let (user, acl, label) = (&b"user.a"[..], &b"system.posix_acl_access"[..], &b"security.selinux"[..]);
        for (attributes, acls) in [(false, false), (true, false), (false, true), (true, true)] {
            let told = CompleteAttributeKinds { attributes, acls };
            assert_eq!([user, acl, label].map(|name| told.excludes(name)), [attributes, acls, false]);
        }
    }

    #[test]
    fn what_is_kept_survives_its_bits() {
        for bits in 0..256 {
            assert_eq!(KeptMetadata::from_bits(bits).bits(), bits);
        }
        assert_eq!(KeptMetadata::from_bits(u32::MAX), KeptMetadata::ALL);
        assert_eq!(
            KeptMetadata::ALL.kinds_missing_in(KeptMetadata {
                users: true,
                acls: true,
                ..KeptMetadata::default()
            }),
            "groups, extended attributes, hard links, devices, named pipes and sockets, file flags"
        );
        assert_eq!(KeptMetadata::ALL.kinds_missing_in(KeptMetadata::ALL), "");
    }
}
