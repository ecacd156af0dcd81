//! What a user asked for: the part of it that both ends must agree on, and nothing local.

use crate::{Checksum, Cipher, PartialRange, Protection};

/// Which end dials the data connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DialFrom {
    /// The end that was started by the user dials first, then the other, then the ssh pipe carries the data.
    #[default]
    Either,
    /// Only the source dials.
    Source,
    /// Only the sink dials.
    Sink,
}

/// How the source reads large files (L6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SourceIo {
    /// From the page cache what is there, past it what is not.
    #[default]
    Auto,
    /// Always through the page cache.
    Buffered,
    /// Always past it (`O_DIRECT`), where the file system can.
    Direct,
}

/// How large files are written at the sink (L8).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SinkIo {
    /// By what the storage can: past the page cache or measured where there are several targets to choose from, through
    /// it else.
    #[default]
    Auto,
    /// Through the page cache; the kernel writes when it likes.
    Buffered,
    /// Past the page cache (`O_DIRECT`), where the file system can.
    Direct,
    /// Through the page cache, and each object is on the storage before the next follows (`sync_file_range`).
    Writeback,
}

/// How large files are striped at the sink.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum StripeChoice {
    /// As the destination's directory says.
    #[default]
    Default,
    /// The same stripe count and size as at the source, as far as the destination has so many targets.
    Preserve,
    /// One stripe for each GiB, up to the number of targets.
    Auto,
    /// The same for all.
    Fixed {
        /// Targets; `u32::MAX` for all there are.
        count: u32,
        /// Bytes of a stripe; 0 for the directory's default.
        stripe_bytes: u64,
        /// Pool of targets; empty for the directory's default.
        pool: String,
    },
}

/// Which modification times of the source and the destination are the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ModifyWindow {
    /// Those of which the destination's is what its file system stores of the source's.
    #[default]
    Stored,
    /// Those that are equal to the nanosecond.
    Exact,
    /// Those that are so many nanoseconds apart at most, too.
    Within {
        /// At most that far apart.
        nanoseconds: u64,
    },
}

/// How a destination is made like its sources: what the sink has already is not sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sync {
    /// Files are equal if their contents are; else if size and modification time are.
    pub by_contents: bool,
    /// How far apart the times of equal files may be.
    pub modify_window: ModifyWindow,
    /// A file that is newer at the destination stays.
    pub update: bool,
    /// What is not at the destination is not made.
    pub existing: bool,
    /// What is at the destination stays as it is.
    pub ignore_existing: bool,
    /// What is at the destination and not at the source is removed.
    pub deletion: Option<Deletion>,
}

/// What of the destination is removed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Deletion {
    /// Entries at most; nothing for any number.
    pub most: Option<u64>,
    /// Percent at most of the entries at the destination; nothing for any number.
    pub most_percent: Option<u32>,
    /// Before anything is sent, not when everything is.
    pub first: bool,
    /// Also where a source has no entry at all.
    pub by_empty_sources: bool,
    /// Also what the patterns of the selection leave out.
    pub excluded: bool,
    /// Also in file systems that are mounted beneath the destination.
    pub mounts: bool,
    /// Where entries are moved to in place of being removed.
    pub backup: Option<Backup>,
}

/// Where a sync moves what it would delete, within the destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Backup {
    /// A directory beneath the destination: its path there.
    Directory(Box<[u8]>),
    /// A directory for each run in the destination's `.carrack-trash`.
    Trash,
}

/// The values that both ends of a session must agree on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransferSpec {
    /// Whether directories are copied.
    pub recursive: bool,
    /// The only source becomes the destination, also if a directory is there (`cp -T`).
    pub no_target_directory: bool,
    /// Only scan and report.
    pub dry_run: bool,
    /// The check that travels with each object.
    pub checksum: Checksum,
    /// Whether the sink reports each file with its BLAKE3 digest (for `--manifest`).
    pub report_digests: bool,
    /// Size of a slot in bytes, a multiple of 4,096: no object is larger.
    pub slot_bytes: u32,
    /// Data connections; 0 to choose by the path's round trip.
    pub streams: u16,
    /// Which end dials them.
    pub dial_from: DialFrom,
    /// How large files are striped at the sink.
    pub stripe: StripeChoice,
    /// How the data is protected between two hosts.
    pub protection: Protection,
    /// By which algorithm, where it is.
    pub cipher: Cipher,
    /// What is there already is left out; nothing for a plain copy.
    pub sync: Option<Sync>,
    /// What is copied of the only source, a regular file; nothing for all of it.
    pub part: Option<PartialRange>,
}

impl Default for TransferSpec {
    fn default() -> Self {
        TransferSpec {
            recursive: false,
            no_target_directory: false,
            dry_run: false,
            checksum: Checksum::default(),
            report_digests: false,
            slot_bytes: crate::limits::SLOT_BYTES_DEFAULT as u32,
            streams: 0,
            dial_from: DialFrom::default(),
            stripe: StripeChoice::default(),
            protection: Protection::default(),
            cipher: Cipher::default(),
            sync: None,
            part: None,
        }
    }
}
