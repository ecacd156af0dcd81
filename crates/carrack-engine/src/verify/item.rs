//! One name that is compared.

/// One of the names, as far as it is known.
pub(super) struct Item {
    pub(super) name: Box<[u8]>,
    /// Bytes, once it was looked at.
    pub(super) size: u64,
    /// By which it is remembered.
    pub(super) key: Option<u128>,
    /// What a manifest says.
    pub(super) digest: Option<[u8; 32]>,
    /// Its metadata differ: it is told and counted, whatever its contents are.
    pub(super) is_told: bool,
}

impl Item {
    /// Of which nothing but the name is known, and what a manifest says.
    pub(super) fn new(name: Box<[u8]>, digest: Option<[u8; 32]>) -> Item {
        Item { name, size: 0, key: None, digest, is_told: false }
    }
}
