//! Kinds of entries on the wire.

use carrack_storage::BrowsedKind;

/// The kinds of what stands under a name, in all messages that tell it.
pub(super) const KINDS: [(u32, BrowsedKind); 7] = [
    (0, BrowsedKind::Other),
    (1, BrowsedKind::File),
    (2, BrowsedKind::Directory),
    (3, BrowsedKind::Symlink),
    (4, BrowsedKind::Pipe),
    (5, BrowsedKind::Socket),
    (6, BrowsedKind::Device),
];
