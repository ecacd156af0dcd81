//! Details for observers beyond the counters: lanes, queues, file sizes, and slow files. The comm thread
//! gathers them twice a second. The data path adds nothing to them under a lock.

use std::sync::Arc;

use carrack_model::{LaneReport, LargeFileProgress, SourceReport, StageFill};
use carrack_wire::message::CountersMessage;

use super::context::SourceContext;
use super::lane::SourceLane;
use super::large_file::OpenSourceLargeFile;
use crate::event_delivery::FILES_TOLD_MAX;

/// Returns the source's counters with the fill of its queues.
pub(super) fn with_queues(counters: CountersMessage, lanes: &[SourceLane<'_>]) -> CountersMessage {
    let (read_waiting, read_room) = sum(lanes.iter().map(|lane| lane.read_queue.room_fill()));
    let (send_waiting, send_room) = sum(lanes.iter().map(|lane| lane.send_queue.fill()));
    let bytes_sent = lanes.iter().map(|lane| lane.send_queue.departed_bytes()).sum();
    let held_by_rate = lanes.iter().any(|lane| lane.read_queue.is_held_by_rate());
    CountersMessage { bytes_sent, read_waiting, read_room, send_waiting, send_room, held_by_rate, ..counters }
}

fn sum(fills: impl Iterator<Item = (usize, usize)>) -> (u64, u64) {
    fills.fold((0, 0), |sum, (waiting, room)| (sum.0 + waiting as u64, sum.1 + room as u64))
}

/// Returns a report of the source's present state.
pub(super) fn report(source: &SourceContext<'_>, lanes: &[SourceLane<'_>]) -> SourceReport {
    let mut open: Vec<Arc<OpenSourceLargeFile>> = lanes.iter().flat_map(|lane| lane.files.open()).collect();
    open.sort_by_key(|file| std::cmp::Reverse(file.age()));
    open.truncate(FILES_TOLD_MAX);
    let mut slowest: Vec<LargeFileProgress> = lanes.iter().flat_map(|lane| lane.files.slowest()).collect();
    slowest.sort_by_key(|file| std::cmp::Reverse(file.open_ms));
    slowest.truncate(FILES_TOLD_MAX);
    SourceReport {
        lanes: lanes.iter().map(lane_report).collect(),
        size_counts: source.counts.files_by_size(),
        open: open
            .iter()
            .map(|file| file.report(source.tree.path(&file.found.directory, &file.found.entry)))
            .collect(),
        slowest,
    }
}

fn lane_report(lane: &SourceLane<'_>) -> LaneReport {
    let (waiting, room) = lane.send_queue.fill();
    LaneReport {
        bytes_sent: lane.send_queue.departed_bytes(),
        objects_sent: lane.in_flight.sent_count(),
        to_send: StageFill { waiting: waiting as u64, room: room as u64 },
        readers: lane.read_queue.reader_count() as u32,
        streams: lane.send_queue.used_count() as u32,
    }
}
