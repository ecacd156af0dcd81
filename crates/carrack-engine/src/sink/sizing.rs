//! Numbers of a sink's lanes, data connections and threads, and their limits.

use carrack_layout::TargetAttachmentKind;
use carrack_model::{AgreedTransferSpec, SchedulingOptions};
use carrack_transport::StreamCount;

use super::write_method::SinkStorageFacts;
use crate::settings::{EndRateLimits, EndSettings};

/// Counts are those of all lanes together unless stated otherwise.
pub(super) struct SinkSizing {
    /// The scheduling of one lane.
    pub(super) scheduling: SchedulingOptions,
    /// The limits of all lanes together.
    pub(super) limits: EndRateLimits,
    pub(super) lane_count: usize,
    /// I/O threads that the storage can use.
    pub(super) io_threads: usize,
    /// The most that the tuner may use.
    pub(super) io_threads_most: usize,
    /// Data connections used at first, of those established.
    pub(super) streams: StreamCount,
    /// True if one thread at a time writes to a file. A local file system locks the file for a buffered
    /// write, and a second writer would spin on that lock: 15 % of all CPU time with one large file and two
    /// streams on two cores.
    pub(super) writes_in_turn: bool,
    /// True if objects wait in the queues of their targets. Otherwise the threads that receive them write
    /// them.
    pub(super) is_sorting: bool,
}

impl SinkSizing {
    pub(super) fn new(
        spec: &AgreedTransferSpec,
        settings: &EndSettings,
        storage: &SinkStorageFacts,
        lane_count: usize,
    ) -> SinkSizing {
        let io_threads = settings.io_thread_count(storage.depth());
        let is_sorting = storage.has_targets();
        let io_threads_most = if is_sorting { settings.io_threads_most(io_threads) } else { io_threads };
        assert!(lane_count > 0 && io_threads > 0, "a session has a lane and an I/O thread");
        assert!(io_threads <= io_threads_most, "the tuner begins with no more threads than it may come to");
        SinkSizing {
            scheduling: settings.scheduling.per_lane(lane_count),
            limits: settings.limits(),
            lane_count,
            io_threads,
            io_threads_most,
            streams: StreamCount::new(spec.streams, lane_count as u16, settings.tunes),
            writes_in_turn: storage.destination_file_system().own_target().medium
                != TargetAttachmentKind::Network,
            is_sorting,
        }
    }

    /// Returns the I/O threads of a lane for these numbers of connections and writers. There is one thread
    /// more than connections, as all others may wait for their connections when a file ends. If objects wait
    /// for their targets, the threads that drive connections do nothing else.
    pub(super) fn threads_for(&self, streams: usize, writers: usize) -> usize {
        if self.is_sorting { writers + streams } else { writers.max(streams + 1) }
    }
}
