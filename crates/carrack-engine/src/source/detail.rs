//! What who watches is told beyond the counters: lanes, queues, the sizes of the files, and the files that take long. Gathered by the
//! comm thread, twice a second; the data path adds nothing to it under a lock.

use std::array;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use carrack_model::{
    EntryKind, FileReport, Fill, LaneReport, SIZE_CLASSES, Section, SourceReport, size_class,
};
use carrack_wire::message::Counters;

use super::Source;
use super::lane::Lane;
use super::large_file::LargeFile;
use crate::report::FILES_TOLD_MAX;

/// Regular files that were found, by the class of their size.
pub(super) struct Sizes([AtomicU64; SIZE_CLASSES]);

impl Default for Sizes {
    fn default() -> Sizes {
        Sizes(array::from_fn(|_| AtomicU64::new(0)))
    }
}

impl Sizes {
    /// Counts what a scan's thread has found.
    pub(super) fn add(&self, section: &Section) {
        for entry in &section.entries {
            if let EntryKind::Regular { size } = entry.kind {
                self.0[size_class(size)].fetch_add(1, Relaxed);
            }
        }
    }

    fn counts(&self) -> Vec<u64> {
        let mut counts: Vec<u64> = self.0.iter().map(|count| count.load(Relaxed)).collect();
        let used = counts.iter().rposition(|&count| count > 0).map_or(0, |last| last + 1);
        counts.truncate(used);
        counts
    }
}

/// The large files that are complete and took longest, those first that took most.
#[derive(Default)]
pub(super) struct Slowest(Vec<FileReport>);

impl Slowest {
    /// A file is complete.
    pub(super) fn note(&mut self, source: &Source<'_>, file: &Arc<LargeFile>) {
        let open_ms = file.age().as_millis() as u64;
        let place = self.0.partition_point(|slower| slower.open_ms >= open_ms);
        if place < FILES_TOLD_MAX {
            self.0.insert(place, look_at(source, file));
            self.0.truncate(FILES_TOLD_MAX);
        }
    }
}

/// The source's counters with how full its queues are.
pub(super) fn with_queues(counters: Counters, lanes: &[Lane<'_>]) -> Counters {
    let sum = |fill: fn(&Lane<'_>) -> (usize, usize)| {
        let add = |sum: (u64, u64), (waiting, room)| (sum.0 + waiting as u64, sum.1 + room as u64);
        lanes.iter().map(fill).fold((0, 0), add)
    };
    let (read_waiting, read_room) = sum(|lane| lane.room.with(|room| room.fill()));
    let (send_waiting, send_room) = sum(|lane| lane.outbox.fill());
    let bytes_sent = lanes.iter().map(|lane| lane.outbox.left_bytes()).sum();
    let held_by_rate = lanes.iter().any(|lane| lane.queue.with(|queue| queue.is_held_by_rate()));
    Counters { bytes_sent, read_waiting, read_room, send_waiting, send_room, held_by_rate, ..counters }
}

/// The source as it is now.
pub(super) fn report(source: &Source<'_>, lanes: &[Lane<'_>]) -> SourceReport {
    let open = lanes.iter().flat_map(|lane| lane.files().values().cloned().collect::<Vec<_>>());
    let mut open: Vec<Arc<LargeFile>> = open.collect();
    open.sort_by_key(|file| std::cmp::Reverse(file.age()));
    open.truncate(FILES_TOLD_MAX);
    let mut slowest: Vec<FileReport> = lanes.iter().flat_map(|lane| lane.slowest().0.clone()).collect();
    slowest.sort_by_key(|file| std::cmp::Reverse(file.open_ms));
    slowest.truncate(FILES_TOLD_MAX);
    SourceReport {
        lanes: lanes.iter().map(look_at_lane).collect(),
        size_counts: source.sizes.counts(),
        open: open.iter().map(|file| look_at(source, file)).collect(),
        slowest,
    }
}

fn look_at_lane(lane: &Lane<'_>) -> LaneReport {
    let (waiting, room) = lane.outbox.fill();
    LaneReport {
        bytes_sent: lane.outbox.left_bytes(),
        objects_sent: lane.objects_sent(),
        to_send: Fill { waiting: waiting as u64, room: room as u64 },
        readers: lane.readers.open_to() as u32,
        streams: lane.outbox.used_count() as u32,
    }
}

fn look_at(source: &Source<'_>, file: &LargeFile) -> FileReport {
    FileReport {
        path: source.path(&file.directory, &file.entry),
        bytes: file.wanted_bytes,
        bytes_done: file.confirmed_bytes(),
        open_ms: file.age().as_millis() as u64,
    }
}
