//! Metadata of an entry for a comparison: that of its `stat`, and further metadata that was requested.
//!
//! Values of attributes are not sent, only their digests, and no more of an entry than fits into its part of
//! an answer.

use std::io;
use std::os::fd::BorrowedFd;

use carrack_model::{ExtendedAttribute, FileFlags, Metadata, UserOrGroup};
use carrack_storage::{EntryStatResult, ExtraMetadataReader, FileStamp, time_unit_of};

/// The longest name of a user or group that is sent. Accounts with longer names are compared by number.
pub(crate) const ACCOUNT_NAME_BYTES_MAX: usize = 64;

/// Bytes of an attribute's digest.
pub(crate) const ATTRIBUTE_DIGEST_BYTES: usize = 16;

/// Attributes of one entry that are sent one by one, and the bytes of their names. 257 entries of one answer,
/// each with these maximums, fit into a message.
pub(crate) const ATTRIBUTES_MAX: usize = 10;
const ATTRIBUTE_NAMES_BYTES_MAX: usize = 260;

/// The metadata of one entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ComparedEntryMetadata {
    /// Mode and modification time.
    pub(crate) metadata: Metadata,
    /// The granularity of times in its file system, in nanoseconds, as its times suggest.
    pub(crate) time_unit_ns: u32,
    /// The number of its hard links.
    pub(crate) names: u32,
    /// A number that is the same under each of its names.
    pub(crate) identity: u64,
    /// Bytes allocated on the storage.
    pub(crate) allocated_bytes: u64,
    /// Its owner, if owners were requested.
    pub(crate) user: Option<UserOrGroup>,
    /// Its group, if groups were requested.
    pub(crate) group: Option<UserOrGroup>,
    /// Its attributes and ACLs, if they were requested, in the order of their names.
    pub(crate) attributes: Vec<AttributeDigest>,
    /// The reason why not all of these can be read.
    pub(crate) attributes_problem: Option<String>,
    /// True if attributes that only root may set are included.
    pub(crate) has_privileged: bool,
    /// Its file flags, if they were requested and its file system supports them.
    pub(crate) flags: Option<FileFlags>,
}

/// An attribute or ACL. A name that ends with `.*` stands for all attributes of a name space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AttributeDigest {
    pub(crate) name: Box<[u8]>,
    pub(crate) digest: [u8; ATTRIBUTE_DIGEST_BYTES],
}

impl ComparedEntryMetadata {
    /// Creates the metadata from a look at `name` in `directory`; `reader` reads the further metadata.
    pub(crate) fn read(
        glance: &EntryStatResult,
        directory: BorrowedFd<'_>,
        name: Option<&[u8]>,
        reader: Option<&ExtraMetadataReader>,
    ) -> io::Result<ComparedEntryMetadata> {
        let read = reader.map(|reader| reader.read_by_name(directory, name, glance.owner)).transpose()?;
        let (extras, attributes_problem) = read.unwrap_or_default();
        Ok(ComparedEntryMetadata {
            metadata: glance.metadata,
            time_unit_ns: time_unit_of(&glance.stamp),
            names: glance.names,
            identity: identity_of(&glance.stamp),
            allocated_bytes: glance.allocated_bytes,
            user: extras.user.map(omit_long_name),
            group: extras.group.map(omit_long_name),
            attributes: digests_of(extras.attributes),
            attributes_problem,
            has_privileged: reader.is_some_and(ExtraMetadataReader::sees_privileged),
            flags: extras.flags,
        })
    }
}

/// Leaves out a long name, as both ends do; they compare the number.
fn omit_long_name(account: UserOrGroup) -> UserOrGroup {
    if account.name.len() <= ACCOUNT_NAME_BYTES_MAX {
        return account;
    }
    UserOrGroup { name: b""[..].into(), ..account }
}

/// Returns a number for the file on its host.
fn identity_of(stamp: &FileStamp) -> u64 {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&stamp.dev.to_le_bytes()).update(&stamp.ino.to_le_bytes());
    let mut number = [0; 8];
    hasher.finalize_xof().fill(&mut number);
    u64::from_le_bytes(number)
}

/// Returns a digest for each of a few attributes, and otherwise one for each name space.
fn digests_of(mut attributes: Vec<ExtendedAttribute>) -> Vec<AttributeDigest> {
    attributes.sort_by(|one, other| one.name.cmp(&other.name));
    let names_bytes: usize = attributes.iter().map(|attribute| attribute.name.len()).sum();
    if attributes.len() <= ATTRIBUTES_MAX && names_bytes <= ATTRIBUTE_NAMES_BYTES_MAX {
        let digests = attributes.into_iter().map(|attribute| AttributeDigest {
            digest: digest_of(blake3::Hasher::new().update(&attribute.value)),
            name: attribute.name,
        });
        return digests.collect();
    }
    let spaces = attributes.chunk_by(|one, other| name_space(one) == name_space(other));
    spaces.map(name_space_digest).collect()
}

fn name_space(attribute: &ExtendedAttribute) -> &[u8] {
    attribute.name.split(|&byte| byte == b'.').next().unwrap_or_default()
}

fn name_space_digest(attributes: &[ExtendedAttribute]) -> AttributeDigest {
    let mut hasher = blake3::Hasher::new();
    for ExtendedAttribute { name, value } in attributes {
        for bytes in [name, value] {
            hasher.update(&(bytes.len() as u64).to_le_bytes()).update(bytes);
        }
    }
    let space = attributes.first().map(name_space).unwrap_or_default();
    AttributeDigest { name: [space, b".*"].concat().into(), digest: digest_of(&hasher) }
}

fn digest_of(hasher: &blake3::Hasher) -> [u8; ATTRIBUTE_DIGEST_BYTES] {
    let mut digest = [0; ATTRIBUTE_DIGEST_BYTES];
    hasher.finalize_xof().fill(&mut digest);
    digest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attributes(names: impl IntoIterator<Item = String>) -> Vec<ExtendedAttribute> {
        let names = names.into_iter();
        names
            .map(|name| ExtendedAttribute { name: name.into_bytes().into(), value: b"v"[..].into() })
            .collect()
    }

    #[test]
    fn few_attributes_are_told_by_their_names_and_many_by_their_name_spaces() {
        let few = digests_of(attributes(["user.b".into(), "user.a".into()]));
        let names: Vec<_> = few.iter().map(|told| &*told.name).collect();
        assert_eq!(names, [b"user.a", b"user.b"]);
        let many: Vec<String> = (0..50).map(|n| format!("user.{n}")).chain(["trusted.a".into()]).collect();
        let told = digests_of(attributes(many.clone()));
        let names: Vec<_> = told.iter().map(|told| &*told.name).collect();
        assert_eq!(names, [&b"trusted.*"[..], b"user.*"]);
        let mut other = attributes(many.into_iter().rev());
        assert_eq!(digests_of(other.clone()), told, "their order is of no meaning");
        other[7].value = b"w"[..].into();
        assert_eq!(digests_of(other)[0], told[0]);
        let long = digests_of(attributes(["x", "y"].map(|end| format!("user.{}{end}", "n".repeat(200)))));
        assert_eq!(&*long[0].name, b"user.*");
    }

    #[test]
    fn other_values_have_other_digests() {
        let [one, other] = [b"v", b"w"].map(|value| {
            digests_of(vec![ExtendedAttribute { name: b"user.a"[..].into(), value: value[..].into() }])
        });
        assert_ne!(one, other);
    }
}
