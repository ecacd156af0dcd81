//! The numbers of lanes, data connections and threads of a source, and their limits.

use carrack_model::AgreedTransferSpec;
use carrack_model::limits::SLOT_BYTES_MIN;
use carrack_transport::StreamCount;

use super::source_roots::SourceStorageFacts;
use crate::lanes::open_files_max;
use crate::settings::{EndRateLimits, EndSettings};

/// Numbers for all lanes together, unless a field says otherwise.
pub(super) struct SourceSizing {
    /// The limits of all lanes together.
    pub(super) limits: EndRateLimits,
    pub(super) lane_count: usize,
    /// I/O threads at the start.
    pub(super) io_threads: usize,
    /// The most I/O threads that the tuner may use.
    pub(super) io_threads_most: usize,
    /// True if all roots are in memory.
    pub(super) is_memory: bool,
    /// Data connections used at first, of those established.
    pub(super) streams: StreamCount,
    /// Free slots that the sink has promised each lane.
    pub(super) credits: u32,
    /// Large files that may be open here and at the sink.
    pub(super) open_files: usize,
    /// True if objects are counted by their places at the sink.
    pub(super) counts_flow: bool,
    /// The size of the objects of all large files, by the user's choice or the sink's storage; `None` for
    /// that of the file's target.
    pub(super) object_bytes: Option<u32>,
    /// True if the sink records a range of a file that is sent from the page cache only when the source has
    /// confirmed it.
    pub(super) confirms: bool,
}

/// The capacity of a sink, from which a source derives its numbers.
pub(crate) struct SinkObjectCapacity {
    /// Free slots of all lanes.
    pub(crate) credits: u32,
    /// Large files that it may have open.
    pub(crate) open_files: usize,
    /// True if it has several targets and sends the layouts of files.
    pub(crate) has_targets: bool,
    /// The size of objects that suits its storage; 0 for any.
    pub(crate) object_bytes: u32,
    /// True if it can wait until the source confirms what it has read.
    pub(crate) takes_confirmations: bool,
}

/// Threads and data connections of one lane.
pub(super) struct LaneThreadStreamCounts {
    /// I/O threads at the start.
    pub(super) threads_at_start: usize,
    /// I/O threads that are started: the tuner lets some of them work.
    pub(super) thread_count: usize,
    /// Data connections used at first.
    pub(super) streams_at_start: usize,
}

/// Returns the size of the objects of large files on any target; `sink_wish` is 0 for none.
fn object_bytes(spec: &AgreedTransferSpec, sink_wish: u32) -> Option<u32> {
    if spec.has_chosen_object_size {
        return Some(spec.slot_bytes);
    }
    // Objects are a power of two for their digests.
    sink_wish.checked_ilog2().map(|bits| (1 << bits).max(SLOT_BYTES_MIN as u32))
}

impl SourceSizing {
    pub(super) fn new(
        spec: &AgreedTransferSpec,
        settings: &EndSettings,
        storage: &SourceStorageFacts,
        sink: &SinkObjectCapacity,
        lane_count: usize,
    ) -> SourceSizing {
        assert!(lane_count > 0, "a session has at least one lane");
        let io_threads = settings.io_thread_count(storage.depth);
        SourceSizing {
            limits: settings.limits(),
            lane_count,
            io_threads,
            io_threads_most: settings.io_threads_most(io_threads),
            is_memory: storage.is_memory,
            streams: StreamCount::new(spec.streams, lane_count as u16, settings.tunes),
            credits: sink.credits / lane_count as u32,
            open_files: open_files_max().min(sink.open_files),
            counts_flow: sink.has_targets,
            object_bytes: object_bytes(spec, sink.object_bytes),
            confirms: sink.takes_confirmations,
        }
    }

    /// Returns the numbers of a lane with this number of data connections.
    pub(super) fn lane(&self, endpoint_count: usize) -> LaneThreadStreamCounts {
        let streams_at_start = self.streams.used(endpoint_count * self.lane_count).div_ceil(self.lane_count);
        // At least one thread for each stream: a sending thread keeps its stream until the object is out.
        let threads_at_start = self.io_threads.div_ceil(self.lane_count).max(streams_at_start);
        let most = self.io_threads_most.div_ceil(self.lane_count);
        let most = if self.is_memory { threads_at_start } else { most };
        assert!(threads_at_start >= streams_at_start, "each stream has a thread that sends");
        LaneThreadStreamCounts {
            threads_at_start,
            thread_count: most.max(threads_at_start).max(endpoint_count),
            streams_at_start,
        }
    }
}
