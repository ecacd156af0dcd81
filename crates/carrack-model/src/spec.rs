//! The transfer specification: the values that both ends must agree on, without local ones.

use serde::{Deserialize, Serialize};

use crate::limits::{SLOT_BYTES_DEFAULT, SLOT_BYTES_MAX, SLOT_BYTES_MIN, STREAMS_MAX};
use crate::{ObjectChecksumAlgorithm, PartialCopyRange, ProtectionLevel, SealCipher};

/// The end that dials the data connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum DialingEnd {
    /// The end that the user started dials first, then the other one; then the ssh pipe carries the data.
    #[default]
    Either,
    /// Only the source dials.
    Source,
    /// Only the sink dials.
    Sink,
}

/// The source's way to read large files (L6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum SourceReadMethod {
    /// Cached pages from the page cache, others past it.
    #[default]
    Auto,
    /// Always through the page cache.
    Buffered,
    /// Always past the page cache (`O_DIRECT`), if the file system supports it.
    Direct,
}

/// The sink's way to write large files (L8).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum SinkIoMethod {
    /// By the storage: past the page cache or measured if there are several targets to choose from, otherwise
    /// through the page cache.
    #[default]
    Auto,
    /// Through the page cache, written back by the kernel.
    Buffered,
    /// Past the page cache (`O_DIRECT`), if the file system supports it.
    Direct,
    /// Through the page cache, with each object on the storage before the next one (`sync_file_range`).
    Writeback,
}

/// Striping of large files at the sink.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum StripeChoice {
    /// The default of the destination's directory.
    #[default]
    Default,
    /// The stripe count and size of the source, limited by the destination's number of targets.
    Preserve,
    /// One stripe for each GiB, up to the number of targets.
    Auto,
    /// The same striping for all files.
    Fixed {
        /// Number of targets; `u32::MAX` for all.
        count: u32,
        /// Bytes of a stripe; 0 for the directory's default.
        stripe_bytes: u64,
        /// Pool of targets; empty for the directory's default.
        pool: String,
    },
}

/// The comparison of modification times at the source and the destination.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ModifyWindow {
    /// Equal if the destination's time is the source's at the file system's resolution.
    #[default]
    Stored,
    /// Equal to the nanosecond.
    Exact,
    /// Equal within a tolerance.
    Within {
        /// Tolerance.
        nanoseconds: u64,
    },
}

/// A sync, which makes the destination equal to its sources without sending data that the sink has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SyncRules {
    /// Files are equal if their contents are; otherwise if size and modification time are.
    pub by_contents: bool,
    /// The comparison of modification times.
    pub modify_window: ModifyWindow,
    /// Files that are newer at the destination are not copied.
    pub update: bool,
    /// Entries that the destination does not have are not copied.
    pub existing: bool,
    /// Entries that the destination has are not copied.
    pub ignore_existing: bool,
    /// Deletion of entries that the source does not have.
    pub deletion: Option<DeletionRules>,
}

/// Bounds and rules of a deletion.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeletionRules {
    /// Most entries to delete; `None` for no limit.
    pub most: Option<u64>,
    /// Most entries to delete, in percent of those at the destination; `None` for no limit.
    pub most_percent: Option<u32>,
    /// Deletes before any data is sent, and not at the end.
    pub first: bool,
    /// Deletes also if a source has no entries at all.
    pub by_empty_sources: bool,
    /// Deletes also entries that the selection's patterns exclude.
    pub excluded: bool,
    /// Deletes also in file systems mounted within the destination.
    pub mounts: bool,
    /// Moves entries to a backup in place of deleting them.
    pub backup: Option<DeletionBackup>,
}

/// Backup of deleted entries within the destination.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DeletionBackup {
    /// A directory, by its path relative to the destination.
    Directory(#[serde(with = "crate::json_bytes")] Box<[u8]>),
    /// A directory for each run in the destination's `.carrack-trash`.
    Trash,
}

/// The values that both ends of a session must agree on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgreedTransferSpec {
    /// Directories are copied.
    pub recursive: bool,
    /// The only source becomes the destination, even if that is an existing directory (`cp -T`).
    pub no_target_directory: bool,
    /// Only scan and report.
    pub dry_run: bool,
    /// The check that travels with each object.
    pub checksum: ObjectChecksumAlgorithm,
    /// The sink reports each file's BLAKE3 digest (for `--manifest`).
    pub report_digests: bool,
    /// Size of a slot in bytes, a multiple of 4,096: no object is larger.
    pub slot_bytes: u32,
    /// True if the user chose the size of objects: slots keep theirs, and objects of large files fill them on
    /// all storage. Not a member of the JSON, but a field of the hello.
    #[serde(skip)]
    pub has_chosen_object_size: bool,
    /// Data connections; 0 to choose by the path's round-trip time.
    pub streams: u16,
    /// The end that dials the data connections.
    pub dial_from: DialingEnd,
    /// Striping of large files at the sink.
    pub stripe: StripeChoice,
    /// Protection level of the data between two hosts.
    pub protection: ProtectionLevel,
    /// Algorithm of the seals.
    pub cipher: SealCipher,
    /// Sync mode; `None` for a plain copy.
    pub sync: Option<SyncRules>,
    /// Range of the only source, a regular file; `None` for the whole file.
    pub part: Option<PartialCopyRange>,
}

impl Default for AgreedTransferSpec {
    fn default() -> Self {
        AgreedTransferSpec {
            recursive: false,
            no_target_directory: false,
            dry_run: false,
            checksum: ObjectChecksumAlgorithm::default(),
            report_digests: false,
            slot_bytes: SLOT_BYTES_DEFAULT as u32,
            has_chosen_object_size: false,
            streams: 0,
            dial_from: DialingEnd::default(),
            stripe: StripeChoice::default(),
            protection: ProtectionLevel::default(),
            cipher: SealCipher::default(),
            sync: None,
            part: None,
        }
    }
}

impl AgreedTransferSpec {
    /// Checks that a session can have these values.
    ///
    /// # Errors
    /// The value out of range.
    pub fn check(&self) -> Result<(), &'static str> {
        let slot_bytes = self.slot_bytes as usize;
        if !(SLOT_BYTES_MIN..=SLOT_BYTES_MAX).contains(&slot_bytes) || !slot_bytes.is_power_of_two() {
            return Err("the slot size");
        }
        if usize::from(self.streams) > STREAMS_MAX {
            return Err("the number of streams");
        }
        if self.report_digests && self.checksum != ObjectChecksumAlgorithm::Blake3 {
            return Err("digests without BLAKE3");
        }
        let is_alone = !self.recursive && !self.report_digests && self.sync.is_none();
        match &self.part {
            Some(part) if part.length == Some(0) || !is_alone => Err("the part of a file"),
            _ => Ok(()),
        }
    }
}
