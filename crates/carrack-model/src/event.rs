//! The events of a transfer: progress, notices, and the summary at the end.

use std::fmt;

use serde::{Serialize, Serializer};

use crate::{EntryFailure, FailureSide, MetadataLoss, ProtectionLevel, SealCipher};

/// The stage that limits the transfer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LimitingStage {
    /// Not known yet.
    #[default]
    Unknown,
    /// The scan does not find entries fast enough.
    Scan,
    /// Reading at the source.
    SourceStorage,
    /// A rate that the user set.
    Rate,
    /// The connection between the ends.
    Network,
    /// Writing at the sink.
    SinkStorage,
}

impl LimitingStage {
    /// The name in progress lines and `--json` reports.
    pub fn name(self) -> &'static str {
        match self {
            LimitingStage::Unknown => "unknown",
            LimitingStage::Scan => "scan",
            LimitingStage::SourceStorage => "source storage",
            LimitingStage::Rate => "rate limit",
            LimitingStage::Network => "network",
            LimitingStage::SinkStorage => "sink storage",
        }
    }
}

impl Serialize for LimitingStage {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// The fill of a queue between two stages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct StageFill {
    /// Waiting items.
    pub waiting: u64,
    /// Capacity; 0 if unknown.
    pub room: u64,
}

/// A snapshot of the counters of both ends, with its fields as in `--json` reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TransferProgress {
    /// Entries found so far (files, directories, links).
    pub entries_found: u64,
    /// Bytes in the files found so far.
    pub bytes_found: u64,
    /// True once the scan has ended, so that both counts are totals.
    pub scan_done: bool,
    /// Entries complete at the destination.
    pub entries_done: u64,
    /// Bytes written at the destination.
    pub bytes_done: u64,
    /// Bytes written in this session.
    #[serde(skip)]
    pub bytes_moved: u64,
    /// Entries that failed.
    pub entries_failed: u64,
    /// Bytes of objects that were read in this session, entry tables of bundles included; 0 from a source
    /// that does not report it.
    pub bytes_read: u64,
    /// Bytes of these that have left the source.
    pub bytes_sent: u64,
    /// Entries between the scan and the reading.
    pub to_read: StageFill,
    /// Objects between the reading and the network.
    pub to_send: StageFill,
    /// Objects between the network and the writing.
    pub to_write: StageFill,
    /// The stage that limits now.
    pub limiter: LimitingStage,
    /// True for the source and for the sink if one of its threads is in a storage call.
    #[serde(skip)]
    pub storage_busy: (bool, bool),
}

/// Effect of repeating the command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RepeatEffect {
    /// Every run has the same effect.
    #[default]
    Never,
    /// A directory is copied into the destination, an existing directory.
    Inside,
    /// A directory becomes the destination, which does not exist yet; the next run copies into it.
    NextTime,
}

impl RepeatEffect {
    /// The name in `--json` reports.
    pub fn name(self) -> &'static str {
        match self {
            RepeatEffect::Never => "never",
            RepeatEffect::Inside => "inside",
            RepeatEffect::NextTime => "next time",
        }
    }
}

/// Place of the sources at the destination.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResolvedDestination {
    /// Name of the only source within the destination; `None` if the source becomes the destination, or with
    /// several sources.
    pub name: Option<Box<[u8]>>,
    /// Effect of repeating the command.
    pub nesting: RepeatEffect,
}

/// Information for the user that is not a failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UserNotice {
    /// An entry was left out: a socket, device or pipe, or by the user's selection.
    Skipped {
        /// The path at the source.
        path: Box<[u8]>,
        /// The reason, in words.
        reason: String,
    },
    /// Anything else, in words.
    Text(String),
    /// A detail for verbose output, in words.
    Detail(String),
    /// A cost in speed or safety, in words.
    Warning(String),
    /// A decision of the tuner, in words.
    Decision(String),
    /// Metadata or entries that could not be kept.
    Loss(MetadataLoss),
    /// A storage target that does not answer, or answers again.
    StorageDelay(StorageDelay),
}

/// A storage target that does not answer requests, or answers again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StorageDelay {
    /// The end that has the target.
    pub side: FailureSide,
    /// Name of the target, for people.
    pub target: String,
    /// Requests that have not returned; 0 if the target answers again.
    pub requests: u64,
    /// Age of the oldest of them, or the time after which the target answers again.
    pub seconds: u64,
}

impl fmt::Display for StorageDelay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let StorageDelay { side, target, requests, seconds } = self;
        let end = match side {
            FailureSide::Source => "source",
            FailureSide::Sink => "destination",
            FailureSide::Network => "network",
        };
        match requests {
            0 => write!(f, "{target} ({end}) answers again, after {seconds} s"),
            1 => write!(f, "{target} ({end}) has not answered for {seconds} s (1 request)"),
            _ => write!(f, "{target} ({end}) has not answered for {seconds} s ({requests} requests)"),
        }
    }
}

/// Number of size classes: 0 bytes, then one for each bit length of a size: 1, 2 to 3, 4 to 7 bytes and so
/// on.
pub const SIZE_CLASSES: usize = 65;

/// The class of a size.
pub fn size_class(bytes: u64) -> usize {
    (u64::BITS - bytes.leading_zeros()) as usize
}

/// One lane of the source, as in `--json` reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LaneReport {
    /// Bytes of objects sent on the lane.
    pub bytes_sent: u64,
    /// Objects sent on the lane.
    pub objects_sent: u64,
    /// Objects read and not yet passed to the kernel.
    pub to_send: StageFill,
    /// I/O threads that read.
    pub readers: u32,
    /// Connections in use, of the open ones; 0 from a source that does not report it.
    pub streams: u32,
}

/// A large file: a file with objects of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LargeFileProgress {
    /// The path at the source.
    pub path: Box<[u8]>,
    /// Bytes of the file that this session sends.
    pub bytes: u64,
    /// Bytes of these that are written.
    pub bytes_done: u64,
    /// Time since the file was opened, in milliseconds.
    pub open_ms: u64,
}

/// The source's state beyond the counters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceReport {
    /// Reports of the lanes.
    pub lanes: Vec<LaneReport>,
    /// Regular files found so far, by [`size_class`], without the empty classes at the end.
    pub size_counts: Vec<u64>,
    /// Large files in progress, longest open first.
    pub open: Vec<LargeFileProgress>,
    /// Completed large files, slowest first.
    pub slowest: Vec<LargeFileProgress>,
}

/// One storage target, with its fields as in `--json` reports.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TargetReport {
    /// Name of the target, for people.
    #[serde(rename = "target")]
    pub label: String,
    /// Name of its server, where the storage has several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// Bytes read or written.
    pub bytes: u64,
    /// Items in the target queue.
    pub waiting: u64,
    /// Requests in flight.
    pub in_flight: u32,
    /// Limit of requests in flight by the policy; 0 for none.
    pub limit: u32,
    /// Service time of a 1 MiB object without congestion, in microseconds; 0 if unknown.
    pub normal_us: u64,
    /// Recent service time, in the same unit.
    pub recent_us: u64,
    /// True while the policy avoids the target.
    #[serde(rename = "avoided")]
    pub is_avoided: bool,
    /// Number of times that congestion was found.
    pub avoided_count: u64,
}

/// An event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TransferEvent {
    /// Both ends know the destination of the sources.
    Placed(ResolvedDestination),
    /// The session is established and data can flow.
    Connected {
        /// Data connections; 0 if the data shares the ssh pipe or stays within this process.
        streams: u32,
        /// Lanes of the session, 1 to 8.
        lanes: u32,
        /// Transport of the data: `tcp`, `ssh pipe`, `tls` (both with the control messages) or `local`;
        /// between two far ends `direct`, or through this process, `relay`.
        transport: &'static str,
        /// Protection level; `None` within one process.
        protection: Option<ProtectionLevel>,
        /// Algorithm of the seals, if carrack seals the data.
        cipher: Option<SealCipher>,
    },
    /// The counters, about twice a second.
    Progress(TransferProgress),
    /// A dry run would copy this entry.
    WouldCopy {
        /// Path relative to the destination.
        path: Box<[u8]>,
        /// Bytes.
        size: u64,
    },
    /// A dry run would delete this entry.
    WouldDelete {
        /// Path relative to the destination.
        path: Box<[u8]>,
    },
    /// A file is complete; sent only if digests were requested.
    FileDigest {
        /// Path relative to the destination.
        path: Box<[u8]>,
        /// Bytes.
        size: u64,
        /// BLAKE3 of the contents.
        digest: [u8; 32],
    },
    /// The storage targets of one end, about twice a second if there are several, and at the end.
    Targets {
        /// The end that has them.
        side: FailureSide,
        /// The targets that were used, in the order of their first use.
        targets: Vec<TargetReport>,
    },
    /// The source in detail, about twice a second and at the end.
    Source(SourceReport),
    /// An entry failed.
    Failed(EntryFailure),
    /// Information for the user.
    Notice(UserNotice),
}

/// The counts at the end of a transfer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransferSummary {
    /// Regular files complete at the destination.
    pub files_done: u64,
    /// Directories complete at the destination.
    pub directories_done: u64,
    /// Symbolic links complete at the destination.
    pub symlinks_done: u64,
    /// Devices, pipes and sockets made at the destination.
    pub specials_done: u64,
    /// Bytes of content written.
    pub bytes_done: u64,
    /// Entries that failed.
    pub entries_failed: u64,
    /// Entries that were left out: sockets, devices and pipes, and by the user's selection.
    pub entries_skipped: u64,
    /// Objects that were read again because their check failed.
    pub objects_reread: u64,
    /// Files, links and special files that an earlier session had completed, or that a sync left unchanged.
    pub entries_kept: u64,
    /// Links of `entries_kept`.
    pub symlinks_kept: u64,
    /// Devices, pipes and sockets of `entries_kept`.
    pub specials_kept: u64,
    /// Bytes that an earlier session had written.
    pub bytes_kept: u64,
    /// Entries deleted at the destination.
    pub entries_deleted: u64,
}

impl TransferSummary {
    /// Entries complete at the destination.
    pub fn entries_done(&self) -> u64 {
        let TransferSummary { files_done, directories_done, symlinks_done, specials_done, .. } = *self;
        [directories_done, symlinks_done, specials_done].into_iter().fold(files_done, u64::saturating_add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_size_has_its_class() {
        for (bytes, class) in
            [(0, 0), (1, 1), (2, 2), (3, 2), (4, 3), (1 << 20, 21), (u64::MAX, SIZE_CLASSES - 1)]
        {
            assert_eq!(size_class(bytes), class, "{bytes}");
        }
    }
}
