//! State of completed files: the journal at the sink, digests and manifests.
//!
//! A transfer's [`Journal`] records the completed objects and files, so that a later session resumes the
//! transfer.
//!
//! A file's BLAKE3 digest is assembled from [`HashSubtree`]s of its objects, which arrive in any order
//! ([`FileDigest`]); [`manifest_line`] writes it as `b3sum` does, and [`read_manifest_line`] parses such a
//! line.
//!
//! Digests and manifests are pure. The journal does I/O with one file and its directory; no code here reads a
//! clock or starts a thread.

mod file_digest;
mod hash_subtree;
mod log;
mod manifest;

pub use file_digest::FileDigest;
pub use hash_subtree::{
    CHUNK_BYTES, DigestError, HashSubtree, HashSubtreeRanges, SubtreeHashes, subtree_ranges, subtrees,
};
#[doc(hidden)]
pub use log::fuzzing;
pub use log::{
    EntryKey, Journal, JournalContents, JournalError, JournalFollower, JournalStatistics, JournalSubject,
    PartialFile, RecordBatch, RecoveredJournal, SessionInfo, boot_id, file_name, id_of_file_name, inspect,
    peek, set_aside,
};
pub use manifest::{ManifestLine, ManifestProblem, manifest_line, read_manifest_line};

/// The examples of the crate's README, as doc tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme_examples {}
