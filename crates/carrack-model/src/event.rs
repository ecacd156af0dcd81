//! What a transfer tells whoever watches it: events, progress, and the summary at the end.

use crate::{Cipher, EntryFailure, Loss, Protection, Side};

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
    /// A rate that the user set.
    Rate,
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
            Limiter::Rate => "rate limit",
            Limiter::Network => "network",
            Limiter::SinkStorage => "sink storage",
        }
    }
}

/// How full a queue between two stages is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fill {
    /// What waits in it.
    pub waiting: u64,
    /// What can; 0 while that is not known.
    pub room: u64,
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
    /// Bytes of objects that were read in this session, and of those that have left the source, the entry tables of small files
    /// included; 0 from a source that does not tell.
    pub bytes_read: u64,
    /// The same, on their way or there.
    pub bytes_sent: u64,
    /// Entries between the scan and the reading.
    pub to_read: Fill,
    /// Objects between the reading and the network.
    pub to_send: Fill,
    /// Objects between the network and the writing.
    pub to_write: Fill,
    /// What limits now.
    pub limiter: Limiter,
    /// Whether a thread of the source is in a call to its storage now, and one of the sink.
    pub storage_busy: (bool, bool),
}

/// Whether the same command means another path once it was run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Nesting {
    /// It means the same each time.
    #[default]
    Never,
    /// A directory goes into the destination, a directory that is there.
    Inside,
    /// A directory becomes the destination, which is not there yet: run again, the command copies into it.
    NextTime,
}

impl Nesting {
    /// The name in `--json` reports.
    pub fn name(self) -> &'static str {
        match self {
            Nesting::Never => "never",
            Nesting::Inside => "inside",
            Nesting::NextTime => "next time",
        }
    }
}

/// Where the sources go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Arrival {
    /// The name that the only source has within the destination; nothing if it becomes the destination, or if there are several.
    pub name: Option<Box<[u8]>>,
    /// What the same command means next.
    pub nesting: Nesting,
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
    /// What the tuner has decided, in words.
    Decision(String),
    /// What could not be kept.
    Loss(Loss),
}

/// Classes of file sizes: 0 bytes, then one for each number of bits that a size has, 1, 2 to 3, 4 to 7 bytes and so on.
pub const SIZE_CLASSES: usize = 65;

/// The class of a size.
pub fn size_class(bytes: u64) -> usize {
    (u64::BITS - bytes.leading_zeros()) as usize
}

/// One lane of the source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaneReport {
    /// Bytes of objects that have left on it.
    pub bytes_sent: u64,
    /// Objects that have left on it.
    pub objects_sent: u64,
    /// Objects that were read and are not with the kernel.
    pub to_send: Fill,
    /// I/O threads that read.
    pub readers: u32,
    /// Connections that are used, of those that are open; 0 from a source that does not tell.
    pub streams: u32,
}

/// A large file: one that travels as objects of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileReport {
    /// The path at the source.
    pub path: Box<[u8]>,
    /// Bytes of it that are sent in this session.
    pub bytes: u64,
    /// Those of them that are written.
    pub bytes_done: u64,
    /// How long it has been open, in milliseconds.
    pub open_ms: u64,
}

/// What the source knows beyond the counters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceReport {
    /// Its lanes.
    pub lanes: Vec<LaneReport>,
    /// Regular files found so far, by [`size_class`]; the classes behind the last one that has any are left out.
    pub size_counts: Vec<u64>,
    /// Large files on their way, those first that have been for longest.
    pub open: Vec<FileReport>,
    /// Large files that are complete, those first that took longest.
    pub slowest: Vec<FileReport>,
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
    /// Both ends know where the sources go.
    Placed(Arrival),
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
    /// The source in detail, about twice a second and at the end.
    Source(SourceReport),
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
    /// Devices, pipes and sockets made at the destination.
    pub specials_done: u64,
    /// Bytes of content written.
    pub bytes_done: u64,
    /// Entries that failed.
    pub entries_failed: u64,
    /// Entries that were left out: sockets, devices and pipes, and what the user does not want.
    pub entries_skipped: u64,
    /// Objects that were read again because their check failed.
    pub objects_reread: u64,
    /// Files, links and special files that an earlier session of the transfer had completed, or that a sync left as they were.
    pub entries_kept: u64,
    /// The links among them.
    pub symlinks_kept: u64,
    /// The devices, pipes and sockets among them.
    pub specials_kept: u64,
    /// Bytes that an earlier session had written.
    pub bytes_kept: u64,
    /// Entries that were removed at the destination.
    pub entries_deleted: u64,
}

impl Summary {
    /// Entries complete at the destination.
    pub fn entries_done(&self) -> u64 {
        let Summary { files_done, directories_done, symlinks_done, specials_done, .. } = *self;
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
