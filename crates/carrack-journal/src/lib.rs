//! State of completed files: the journal at the sink, digests and manifests.
//!
//! A transfer's [`Journal`] records the completed objects and files, so that a later session resumes the
//! transfer.
//!
//! A file's BLAKE3 digest is assembled from [`Blake3Subtree`]s of its objects, which arrive in any order
//! ([`FileDigestBuilder`]); [`manifest_line`] writes it as `b3sum` does, and [`read_manifest_line`] parses
//! such a line.
//!
//! Digests and manifests are pure. The journal does I/O with one file and its directory; no code here reads a
//! clock or starts a thread.

mod file_digest;
mod hash_subtree;
mod log;
mod manifest;

pub use file_digest::FileDigestBuilder;
pub use hash_subtree::{
    Blake3Subtree, Blake3SubtreeHashes, CHUNK_BYTES, FileDigestError, HashSubtreeRanges, hash_subtrees,
    subtree_ranges,
};
#[doc(hidden)]
pub use log::fuzzing;
pub use log::{
    EntryKey, Journal, JournalContents, JournalError, JournalFollower, JournalStatistics, JournalSubject,
    JournalWriterIdentity, PartialFile, RecordBatch, RecoveredJournal, boot_id, file_name, id_of_file_name,
    inspect, peek, remove_damaged, remove_unfinished,
};
pub use manifest::{BadManifestLine, ManifestLine, manifest_line, read_manifest_line};

/// The examples of the crate's README, as doc tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme_examples {}
