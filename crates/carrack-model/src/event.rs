//! What a transfer tells whoever watches it: events, progress, and the summary at the end.

use crate::{Cipher, EntryFailure, Protection, Side};

/// What limits the transfer at present.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Limiter {
    /// Nothing can be said yet.
    #[default]
    Unknown,
    /// The scan does not find entries fast enough.
    Scan,
    /// Reading at the source.
    SourceStorage,
    /// The connection between the ends.
    Network,
    /// Writing at the sink.
    SinkStorage,
}

impl Limiter {
    /// The name in progress lines and `--json` reports.
    pub fn name(self) -> &'static str {
        match self {
            Limiter::Unknown => "unknown",
            Limiter::Scan => "scan",
            Limiter::SourceStorage => "source storage",
            Limiter::Network => "network",
            Limiter::SinkStorage => "sink storage",
        }
    }
}

/// A snapshot of the counters, both ends together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Entries found so far (files, directories, links).
    pub entries_found: u64,
    /// Bytes in the files found so far.
    pub bytes_found: u64,
    /// Whether the scan has ended, so that the two above are totals.
    pub scan_done: bool,
    /// Entries complete at the destination.
    pub entries_done: u64,
    /// Bytes written at the destination.
    pub bytes_done: u64,
    /// Those of them that were written in this session.
    pub bytes_moved: u64,
    /// Entries that failed.
    pub entries_failed: u64,
    /// What limits now.
    pub limiter: Limiter,
}

/// Something that the user should know and that is not a failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A socket, device or pipe was left out, or what the user does not want.
    Skipped {
        /// The path at the source.
        path: Box<[u8]>,
        /// Why, in words.
        reason: String,
    },
    /// Anything else, in words.
    Text(String),
    /// What only who asks for everything wants to know, in words.
    Detail(String),
    /// Something that costs speed or safety, in words.
    Warning(String),
}

/// One storage target as its end sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TargetReport {
    /// Its name, for people.
    pub label: String,
    /// Bytes read from it or written to it.
    pub bytes: u64,
    /// Items in its queue.
    pub waiting: u64,
    /// Requests in flight.
    pub in_flight: u32,
    /// Most requests that the policy allows at a time; 0 for no limit.
    pub limit: u32,
    /// Service time of a 1 MiB object when nothing disturbs the target, in microseconds; 0 while it is not known.
    pub normal_us: u64,
    /// The same of late.
    pub recent_us: u64,
    /// Whether it is being avoided.
    pub is_avoided: bool,
    /// How often it was found congested.
    pub avoided_count: u64,
}

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The session stands and data can flow.
    Connected {
        /// Data connections; 0 if the data shares the ssh pipe or stays within this process.
        streams: u32,
        /// Lanes of the session, 1 to 8.
        lanes: u32,
        /// How the data travels: `tcp`, `ssh pipe`, `tls` (both with the control messages) or `local`; between two far ends
        /// `direct`, or through this process, `relay`.
        transport: &'static str,
        /// How it is protected; nothing within one process.
        protection: Option<Protection>,
        /// By which algorithm, where carrack seals it.
        cipher: Option<Cipher>,
    },
    /// The counters, about twice a second.
    Progress(Progress),
    /// A dry run would copy this entry.
    WouldCopy {
        /// The path beneath the destination.
        path: Box<[u8]>,
        /// Bytes.
        size: u64,
    },
    /// A dry run would remove this entry.
    WouldDelete {
        /// The path beneath the destination.
        path: Box<[u8]>,
    },
    /// A file is complete; sent only where digests were asked for.
    FileDigest {
        /// The path beneath the destination.
        path: Box<[u8]>,
        /// Bytes.
        size: u64,
        /// BLAKE3 of the contents.
        digest: [u8; 32],
    },
    /// The storage targets of one end, about twice a second where there are several, and at the end.
    Targets {
        /// Which end.
        side: Side,
        /// Those that were used, in the order in which they were met.
        targets: Vec<TargetReport>,
    },
    /// An entry failed.
    Failed(EntryFailure),
    /// Something worth knowing.
    Notice(Notice),
}

/// How it ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Regular files complete at the destination.
    pub files_done: u64,
    /// Directories complete at the destination.
    pub directories_done: u64,
    /// Symbolic links complete at the destination.
    pub symlinks_done: u64,
    /// Bytes of content written.
    pub bytes_done: u64,
    /// Entries that failed.
    pub entries_failed: u64,
    /// Entries that were left out: sockets, devices and pipes, and what the user does not want.
    pub entries_skipped: u64,
    /// Objects that were read again because their check failed.
    pub objects_reread: u64,
    /// Files and links that an earlier session of the transfer had completed, or that a sync left as they were.
    pub entries_kept: u64,
    /// The links among them.
    pub symlinks_kept: u64,
    /// Bytes that an earlier session had written.
    pub bytes_kept: u64,
    /// Entries that were removed at the destination.
    pub entries_deleted: u64,
}

impl Summary {
    /// Entries complete at the destination.
    pub fn entries_done(&self) -> u64 {
        self.files_done.saturating_add(self.directories_done).saturating_add(self.symlinks_done)
    }
}
