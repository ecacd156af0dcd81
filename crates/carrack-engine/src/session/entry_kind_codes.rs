//! Kinds of entries on the wire.

use carrack_storage::BrowsedKind;

/// The kinds of entries in all messages that describe one.
pub(super) const KINDS: [(u32, BrowsedKind); 7] = [
    (0, BrowsedKind::Other),
    (1, BrowsedKind::File),
    (2, BrowsedKind::Directory),
    (3, BrowsedKind::Symlink),
    (4, BrowsedKind::Pipe),
    (5, BrowsedKind::Socket),
    (6, BrowsedKind::Device),
];
