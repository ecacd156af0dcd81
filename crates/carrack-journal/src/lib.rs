//! What is known of completed files: their digests and manifests. The completion log joins them later.
//!
//! A file's BLAKE3 digest is assembled from [`Subtree`]s of its objects, which arrive in any order ([`FileDigest`]);
//! a [`manifest_line`] writes it as `b3sum` does.
//!
//! Everything here is pure: no I/O, no clock, no threads.

mod file_digest;
mod manifest;
mod subtree;

pub use file_digest::FileDigest;
pub use manifest::{ManifestLine, manifest_line};
pub use subtree::{CHUNK_BYTES, DigestError, Subtree, SubtreeRanges, Subtrees, subtree_ranges, subtrees};
