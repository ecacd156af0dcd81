//! Names that are compared together, and the keys under which equal entries are kept. Pure.

use carrack_model::{ByteRange, RelPath};

use super::compared_name::VerifyNameState;
use super::file_check::{FileComparisonState, RANGE_BYTES};
use super::finding::path_of;
use crate::examine::ExaminedEntryFacts;

/// Names of one directory. The path is that at the source, or beneath the place at the sink.
#[derive(Default)]
pub(super) struct NameBatch {
    pub(super) directory: Option<RelPath>,
    pub(super) items: Vec<VerifyNameState>,
}

impl NameBatch {
    pub(super) fn of(directory: RelPath, names: Vec<Box<[u8]>>) -> NameBatch {
        let items = names.into_iter().map(|name| VerifyNameState::new(name, None)).collect();
        NameBatch { directory: Some(directory), items }
    }

    pub(super) fn directory(&self) -> RelPath {
        self.directory.clone().unwrap_or_else(RelPath::root)
    }

    pub(super) fn names(&self) -> (RelPath, Vec<Box<[u8]>>) {
        (self.directory(), self.items.iter().map(|item| item.name.clone()).collect())
    }
}

/// Returns the key of an equal entry. It changes once either file may have changed.
pub(super) fn key(
    index: u64,
    directory: &RelPath,
    item: &VerifyNameState,
    source: Option<&ExaminedEntryFacts>,
    sink: &ExaminedEntryFacts,
) -> u128 {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&index.to_le_bytes());
    for sight in [source, Some(sink)].into_iter().flatten() {
        hasher.update(&sight.size.to_le_bytes()).update(&sight.stamp.to_le_bytes());
    }
    hasher.update(&item.digest.unwrap_or_default()).update(&path_of(directory, &item.name));
    number(&hasher)
}

/// Returns the key of a range of a file that is compared with another file. Small files have no keys of
/// ranges.
pub(super) fn range_key(file: &FileComparisonState, range: ByteRange) -> Option<u128> {
    let key = file.item.key.filter(|_| file.item.size > RANGE_BYTES && !file.has_digest())?;
    let mut hasher = blake3::Hasher::new();
    hasher.update(&key.to_le_bytes()).update(&range.offset.to_le_bytes());
    Some(number(&hasher))
}

fn number(hasher: &blake3::Hasher) -> u128 {
    let mut bytes = [0; 16];
    hasher.finalize_xof().fill(&mut bytes);
    u128::from_le_bytes(bytes)
}
