//! Every bound that keeps memory, descriptors and patience finite, with its reason.

/// Longest path component that Linux file systems store (`NAME_MAX`).
pub const NAME_BYTES_MAX: usize = 255;

/// Longest relative path: sixteen times `PATH_MAX`, for trees that were built with `openat` and friends.
pub const PATH_BYTES_MAX: usize = 65_535;

/// Longest text of a symbolic link (`PATH_MAX` without its NUL).
pub const SYMLINK_BYTES_MAX: usize = 4_095;

/// Default size of a slot and with it of the largest object: the stripe unit of the paper's Lustre (L1).
pub const SLOT_BYTES_DEFAULT: usize = 1 << 20;

/// Smallest slot: the largest path has to fit into a bundle's entry table.
pub const SLOT_BYTES_MIN: usize = 128 << 10;

/// Largest slot. 64 MiB is far beyond the size at which a larger request still gains anything.
pub const SLOT_BYTES_MAX: usize = 64 << 20;

/// Default size of the slot pool: the paper found 256 MiB at each end sufficient (L6).
pub const POOL_BYTES_DEFAULT: u64 = 256 << 20;

/// Fewest slots: one for each of two streams at work and at rest.
pub const SLOT_COUNT_MIN: usize = 4;

/// Most entries of one bundle: what is kept for each bundle in flight stays below 128 KiB.
pub const BUNDLE_ENTRIES_MAX: usize = 512;

/// Entries of one batch that the scan hands on.
pub const SCAN_BATCH_ENTRIES_MAX: usize = 256;

/// Batches that may wait between the scan and the plan: with the batch size, 16,384 entries, a few MiB.
pub const SCAN_QUEUE_BATCHES_MAX: usize = 64;

/// Entries that wait in the source's target queues, in bundles or as files to be opened: with names of usual length, 8 MiB.
/// So many that the targets' queues don't run dry although the scan finds one directory after the other.
pub const QUEUE_ENTRIES_MAX: usize = 32_768;

/// Directories that objects which can't leave may go to.
pub const SPILL_DIRECTORIES_MAX: usize = 64;

/// Objects of a lane that an end may have on flash: what is known of each stays in the source's memory, some 300 bytes.
pub const SPILLED_OBJECTS_MAX: usize = 1 << 20;

/// Large files that may be open at once at each end: two descriptors each stay below the usual limit of 1,024, and
/// files of 1 MiB still fill a gigabit path with a round trip of 100 ms.
pub const OPEN_FILES_MAX: usize = 128;

/// Largest control message: an open-file message with the longest path, three times over.
pub const CONTROL_BODY_BYTES_MAX: usize = 256 << 10;

/// Lanes of one session: machines have eight sockets at most.
pub const LANES_MAX: usize = 8;

/// I/O threads for which a lane of its own pays: with two to four the papers' authors found that a split buffer costs more
/// than it brings (N7).
pub const LANE_IO_THREADS_MIN: usize = 4;

/// Data streams of one session.
pub const STREAMS_MAX: usize = 64;

/// Streams on a near path (round trip below 1 ms) where the user names no number: one for each core's worth of copying
/// on two cores; one lost to two on loopback by a fifth, three and four won nothing.
pub const STREAMS_NEAR: u16 = 2;

/// Streams on a far path where the user names no number: a kernel that lets a socket send 4 MiB ahead (Linux's default)
/// fills 1 Gbit/s × 100 ms with 4; twice that leaves room for streams that recover from a loss.
pub const STREAMS_FAR: u16 = 8;

/// Streams that are opened on a near and on a far path where the tuner may come to use more: 16 fill 5 Gbit/s × 100 ms with
/// a kernel's default buffers.
pub const STREAMS_NEAR_MOST: u16 = 4;
/// The same on a far path.
pub const STREAMS_FAR_MOST: u16 = 16;

/// I/O threads of one end.
pub const IO_THREADS_MAX: usize = 256;

/// How often an object whose check failed is read again before the file is given up.
pub const OBJECT_ATTEMPTS_MAX: u32 = 3;

/// How often a file that changed while it was read is copied again.
pub const FILE_ATTEMPTS_MAX: u32 = 2;

/// Failures that the summary lists; the rest are counted (each was reported when it happened).
pub const FAILURES_LISTED_MAX: usize = 1_000;

/// Silence after which the other end counts as dead, and a data path on which nothing moves as stalled, in milliseconds. A
/// route that changes, or a server that fails over, takes tens of seconds.
pub const STALL_MS_DEFAULT: u32 = 60_000;

/// The least of it: heartbeats come four times as often, and a busy machine may be late by some of that.
pub const STALL_MS_MIN: u32 = 1_000;

/// Tries to go on after the network broke that may come to nothing, one after the other: with the waits between them,
/// half a minute, in which a daemon is started again.
pub const RETRIES_DEFAULT: u32 = 8;

/// Ranges of one file in one message: they rarely have more gaps than objects were on their way, and what is left out
/// is only sent once more. With offsets of ten digits 64 KiB.
pub const RANGES_MAX: usize = 4_096;

/// Entries of one offer: a message for each directory would cost more than what is asked.
pub const OFFER_ENTRIES_MAX: usize = 512;

/// Offers that the source lets wait for their answers: 16,384 entries, enough for 100,000 a second over a round trip
/// of 150 ms.
pub const OFFERS_MAX: usize = 32;

/// Bytes that are written before they are made durable and recorded together, where nothing else is said. Two round trips to
/// a disk of 1 GB/s; a run that was killed writes so much once more.
pub const GROUP_BYTES: u64 = 64 << 20;

/// How long what was written waits at most to be made durable, in milliseconds.
pub const GROUP_MS: u64 = 500;

/// Longest name of a class of transfers.
pub const CLASS_BYTES_MAX: usize = 64;
