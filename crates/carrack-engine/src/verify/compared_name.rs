//! One name in a comparison.

/// One name, with the facts so far.
pub(super) struct VerifyNameState {
    pub(super) name: Box<[u8]>,
    /// Its size in bytes, once it was examined.
    pub(super) size: u64,
    /// The key under which it is kept once it is equal.
    pub(super) key: Option<u128>,
    /// The digest in the manifest.
    pub(super) digest: Option<[u8; 32]>,
    /// True if a difference of its metadata was reported and counted.
    pub(super) is_told: bool,
}

impl VerifyNameState {
    /// Creates an item that was not examined.
    pub(super) fn new(name: Box<[u8]>, digest: Option<[u8; 32]>) -> VerifyNameState {
        VerifyNameState { name, size: 0, key: None, digest, is_told: false }
    }
}
