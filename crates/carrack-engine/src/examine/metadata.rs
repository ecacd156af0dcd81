//! What an entry is told to be beside its contents: what a look at it says anyway, and what was asked for.
//!
//! Values of attributes do not travel, only digests of them, and no more of an entry than fits into its part of an answer.

use std::io;
use std::os::fd::BorrowedFd;

use carrack_model::{Account, Attribute, FileFlags, Metadata};
use carrack_storage::{ExtrasReader, FileStamp, Glance, time_unit_of};

/// The longest name of a user or group that is told; whoever has a longer one is known by number.
pub(crate) const ACCOUNT_NAME_BYTES_MAX: usize = 64;

/// Bytes of an attribute's digest.
pub(crate) const ATTRIBUTE_DIGEST_BYTES: usize = 16;

/// Attributes of one entry that are told one by one, and the bytes of their names. 257 entries of one answer, each with all of
/// that, fit into a message.
pub(crate) const ATTRIBUTES_MAX: usize = 10;
const ATTRIBUTE_NAMES_BYTES_MAX: usize = 260;

/// The metadata of one entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SeenMetadata {
    /// Mode and modification time.
    pub(crate) metadata: Metadata,
    /// Nanoseconds of which its file system seems to store multiples.
    pub(crate) time_unit_ns: u32,
    /// Names that it has, anywhere on its file system.
    pub(crate) names: u32,
    /// The same number under each of its names.
    pub(crate) identity: u64,
    /// Bytes that the storage holds of it.
    pub(crate) allocated_bytes: u64,
    /// Whose it is, if owners were asked for.
    pub(crate) user: Option<Account>,
    /// Its group, if groups were asked for.
    pub(crate) group: Option<Account>,
    /// Its attributes and ACLs, if they were asked for, in the order of their names.
    pub(crate) attributes: Vec<AttributeDigest>,
    /// Why not all of these can be read.
    pub(crate) attributes_problem: Option<String>,
    /// Attributes that only root may set are among them.
    pub(crate) has_privileged: bool,
    /// Its file flags, if they were asked for and its file system tells of some.
    pub(crate) flags: Option<FileFlags>,
}

/// An attribute or ACL; under a name that ends with `.*`, all of one name space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AttributeDigest {
    pub(crate) name: Box<[u8]>,
    pub(crate) digest: [u8; ATTRIBUTE_DIGEST_BYTES],
}

impl SeenMetadata {
    /// Of what a look at `name` in `directory` said; `reader` reads what else was asked for.
    pub(crate) fn read(
        glance: &Glance,
        directory: BorrowedFd<'_>,
        name: Option<&[u8]>,
        reader: Option<&ExtrasReader>,
    ) -> io::Result<SeenMetadata> {
        let read = reader.map(|reader| reader.look_at(directory, name, glance.owner)).transpose()?;
        let (extras, attributes_problem) = read.unwrap_or_default();
        Ok(SeenMetadata {
            metadata: glance.metadata,
            time_unit_ns: time_unit_of(&glance.stamp),
            names: glance.names,
            identity: identity_of(&glance.stamp),
            allocated_bytes: glance.allocated_bytes,
            user: extras.user.map(told),
            group: extras.group.map(told),
            attributes: digests_of(extras.attributes),
            attributes_problem,
            has_privileged: reader.is_some_and(ExtrasReader::sees_privileged),
            flags: extras.flags,
        })
    }
}

/// A long name is left out: both ends do, and compare the number.
fn told(account: Account) -> Account {
    match account.name.len() <= ACCOUNT_NAME_BYTES_MAX {
        true => account,
        false => Account { name: b""[..].into(), ..account },
    }
}

/// Which file it is on its host.
fn identity_of(stamp: &FileStamp) -> u64 {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&stamp.dev.to_le_bytes()).update(&stamp.ino.to_le_bytes());
    let mut number = [0; 8];
    hasher.finalize_xof().fill(&mut number);
    u64::from_le_bytes(number)
}

/// One by one if they are few, else a digest for each name space.
fn digests_of(mut attributes: Vec<Attribute>) -> Vec<AttributeDigest> {
    attributes.sort_by(|one, other| one.name.cmp(&other.name));
    let names_bytes: usize = attributes.iter().map(|attribute| attribute.name.len()).sum();
    if attributes.len() <= ATTRIBUTES_MAX && names_bytes <= ATTRIBUTE_NAMES_BYTES_MAX {
        let one = |attribute: Attribute| AttributeDigest {
            digest: digest_of(blake3::Hasher::new().update(&attribute.value)),
            name: attribute.name,
        };
        return attributes.into_iter().map(one).collect();
    }
    let spaces = attributes.chunk_by(|one, other| name_space(one) == name_space(other));
    spaces.map(digest_of_space).collect()
}

fn name_space(attribute: &Attribute) -> &[u8] {
    attribute.name.split(|&byte| byte == b'.').next().unwrap_or_default()
}

fn digest_of_space(attributes: &[Attribute]) -> AttributeDigest {
    let mut hasher = blake3::Hasher::new();
    for Attribute { name, value } in attributes {
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

    fn attributes(names: impl IntoIterator<Item = String>) -> Vec<Attribute> {
        let attribute = |name: String| Attribute { name: name.into_bytes().into(), value: b"v"[..].into() };
        names.into_iter().map(attribute).collect()
    }

    #[test]
    fn few_attributes_are_told_by_their_names_and_many_by_their_name_spaces() {
        let few = digests_of(attributes(["user.b".into(), "user.a".into()]));
        let names: Vec<_> = few.iter().map(|told| &*told.name).collect();
        assert_eq!(names, [b"user.a", b"user.b"]);
        let many = || (0..50).map(|n| format!("user.{n}")).chain(["trusted.a".into()]);
        let told = digests_of(attributes(many()));
        let names: Vec<_> = told.iter().map(|told| &*told.name).collect();
        assert_eq!(names, [&b"trusted.*"[..], b"user.*"]);
        let mut other = attributes(many().rev());
        assert_eq!(digests_of(other.clone()), told, "their order is of no meaning");
        other[7].value = b"w"[..].into();
        assert_eq!(digests_of(other)[0], told[0]);
        let long = digests_of(attributes(["x", "y"].map(|end| format!("user.{}{end}", "n".repeat(200)))));
        assert_eq!(&*long[0].name, b"user.*");
    }

    #[test]
    fn other_values_have_other_digests() {
        let [one, other] = [b"v", b"w"]
            .map(|value| digests_of(vec![Attribute { name: b"user.a"[..].into(), value: value[..].into() }]));
        assert_ne!(one, other);
    }
}
