//! All bounds on memory, descriptors and waiting, with their reasons.

/// Longest path component that Linux file systems store (`NAME_MAX`).
pub const NAME_BYTES_MAX: usize = 255;

/// Longest relative path: sixteen times `PATH_MAX`, for trees that were built with openat(2).
pub const PATH_BYTES_MAX: usize = 65_535;

/// Longest text of a symbolic link (`PATH_MAX` without its NUL).
pub const SYMLINK_BYTES_MAX: usize = 4_095;

/// Default size of a slot and so of the largest object: the stripe unit of the paper's Lustre (L1).
pub const SLOT_BYTES_DEFAULT: usize = 1 << 20;

/// Smallest slot: the longest path must fit into a bundle's entry table.
pub const SLOT_BYTES_MIN: usize = 128 << 10;

/// Largest slot: far beyond the size at which larger requests still help.
pub const SLOT_BYTES_MAX: usize = 64 << 20;

/// Default size of the slot pool: the paper found 256 MiB at each end sufficient (L6).
pub const POOL_BYTES_DEFAULT: u64 = 256 << 20;

/// Fewest slots: for each of two streams one in use and one free.
pub const SLOT_COUNT_MIN: usize = 4;

/// Most entries of one bundle: the state of each bundle in flight stays below 128 KiB.
pub const BUNDLE_ENTRIES_MAX: usize = 512;

/// Entries of one batch from the scan.
pub const SCAN_BATCH_ENTRIES_MAX: usize = 256;

/// Batches that wait between the scan and the plan: 16,384 entries, a few MiB.
pub const SCAN_QUEUE_BATCHES_MAX: usize = 64;

/// Entries that wait in the source's read queue, in bundles or as files to open: with names of usual length,
/// 8 MiB. Enough to keep all target queues filled while the scan finds one directory after the other.
pub const QUEUE_ENTRIES_MAX: usize = 32_768;

/// Directories for spilled objects.
pub const SPILL_DIRECTORIES_MAX: usize = 64;

/// Spilled objects of a lane at one end: the state of each stays in the source's memory, some 300 bytes.
pub const SPILLED_OBJECTS_MAX: usize = 1 << 20;

/// Large files that are open at once at each end: two descriptors each stay below the usual limit of 1,024,
/// and files of 1 MiB still fill a gigabit path with a round-trip time of 100 ms.
pub const OPEN_FILES_MAX: usize = 128;

/// Largest control message: an open-file message with the longest path, three times over.
pub const CONTROL_BODY_BYTES_MAX: usize = 256 << 10;

/// Lanes of one session: machines have eight sockets at most.
pub const LANES_MAX: usize = 8;

/// I/O threads that justify a separate lane: with two to four the papers' authors found that a split buffer
/// costs more than it gains (N7).
pub const LANE_IO_THREADS_MIN: usize = 4;

/// Data streams of one session.
pub const STREAMS_MAX: usize = 64;

/// Default number of streams on a near path (round-trip time below 1 ms): one for each core's worth of
/// copying on two cores. On loopback one stream was slower than two by a fifth, three and four gained
/// nothing.
pub const STREAMS_NEAR: u16 = 2;

/// Default number of streams on a far path: a kernel that lets a socket send 4 MiB ahead (Linux's default)
/// fills 1 Gbit/s × 100 ms with 4; twice that leaves room for streams that recover from a loss.
pub const STREAMS_FAR: u16 = 8;

/// Streams that are opened on a near path if the tuner may use more than the default.
pub const STREAMS_NEAR_MOST: u16 = 4;
/// Streams that are opened on a far path if the tuner may use more than the default: 16 fill 5 Gbit/s × 100
/// ms with a kernel's default buffers.
pub const STREAMS_FAR_MOST: u16 = 16;

/// I/O threads of one end.
pub const IO_THREADS_MAX: usize = 256;

/// Reads of an object whose check fails, before the file is given up.
pub const OBJECT_ATTEMPTS_MAX: u32 = 3;

/// Further copies of a file that changed during the read.
pub const FILE_ATTEMPTS_MAX: u32 = 2;

/// Failures in the summary; the others are counted (each was reported when it occurred).
pub const FAILURES_LISTED_MAX: usize = 1_000;

/// Time without messages after which the other end counts as dead, and a data path without progress as
/// stalled, in milliseconds. A route change or a server's failover takes tens of seconds.
pub const STALL_MS_DEFAULT: u32 = 60_000;

/// Minimum of this time: heartbeats are four times as frequent, and a busy machine may delay some of them.
pub const STALL_MS_MIN: u32 = 1_000;

/// Consecutive failed attempts to resume after the network broke: with the pauses between them half a minute,
/// in which a daemon is restarted.
pub const RETRIES_DEFAULT: u32 = 8;

/// Ranges of one file in one message: files rarely have more gaps than objects in flight, and ranges left out
/// are only sent again. With offsets of ten digits 64 KiB.
pub const RANGES_MAX: usize = 4_096;

/// Entries of one offer: one message for each directory would cost more than the query.
pub const OFFER_ENTRIES_MAX: usize = 512;

/// Existence queries in flight: enough that a far source does not slow the sink's walk.
pub const EXISTENCE_QUESTIONS_MAX: usize = 32;

/// Offers in flight: 16,384 entries, enough for 100,000 a second over a round-trip time of 150 ms.
pub const OFFERS_MAX: usize = 32;

/// Default size of a group commit, in bytes: two round trips to a disk of 1 GB/s. A killed run writes as many
/// bytes again.
pub const GROUP_BYTES: u64 = 64 << 20;

/// Longest delay of a group commit, in milliseconds.
pub const GROUP_MS: u64 = 500;

/// Longest name of a class of transfers.
pub const CLASS_BYTES_MAX: usize = 64;
