//! Names that are compared together, and by what they are remembered. Pure.

use carrack_model::{ByteRange, RelPath};

use super::file_check::{FileCheck, RANGE_BYTES};
use super::path_of;
use crate::examine::Sight;

/// Some names of one directory. The path is that at the source, or beneath the place at the sink.
#[derive(Default)]
pub(super) struct Batch {
    pub(super) directory: Option<RelPath>,
    pub(super) items: Vec<Item>,
}

/// One of the names, as far as it is known.
pub(super) struct Item {
    pub(super) name: Box<[u8]>,
    /// Bytes, once it was looked at.
    pub(super) size: u64,
    /// By which it is remembered.
    pub(super) key: Option<u128>,
    /// What a manifest says.
    pub(super) digest: Option<[u8; 32]>,
}

impl Batch {
    pub(super) fn of(directory: RelPath, names: Vec<Box<[u8]>>) -> Batch {
        let item = |name| Item { name, size: 0, key: None, digest: None };
        Batch { directory: Some(directory), items: names.into_iter().map(item).collect() }
    }

    pub(super) fn directory(&self) -> RelPath {
        self.directory.clone().unwrap_or_else(RelPath::root)
    }

    pub(super) fn names(&self) -> (RelPath, Vec<Box<[u8]>>) {
        (self.directory(), self.items.iter().map(|item| item.name.clone()).collect())
    }
}

/// What an equal entry is remembered by: it is another one once either file may have changed.
pub(super) fn key(
    index: u64,
    directory: &RelPath,
    item: &Item,
    source: Option<&Sight>,
    sink: &Sight,
) -> u128 {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&index.to_le_bytes());
    for sight in [source, Some(sink)].into_iter().flatten() {
        hasher.update(&sight.size.to_le_bytes()).update(&sight.stamp.to_le_bytes());
    }
    hasher.update(&item.digest.unwrap_or_default()).update(&path_of(directory, &item.name));
    number(&hasher)
}

/// The same of a range of a file that is compared with another one; small ones are not remembered by range.
pub(super) fn range_key(file: &FileCheck, range: ByteRange) -> Option<u128> {
    let key = file.key.filter(|_| file.size > RANGE_BYTES && !file.has_digest())?;
    let mut hasher = blake3::Hasher::new();
    hasher.update(&key.to_le_bytes()).update(&range.offset.to_le_bytes());
    Some(number(&hasher))
}

fn number(hasher: &blake3::Hasher) -> u128 {
    let mut bytes = [0; 16];
    hasher.finalize_xof().fill(&mut bytes);
    u128::from_le_bytes(bytes)
}
