//! The source in detail, as `--json` tells it.

use carrack_model::{FileReport, Fill, LaneReport, SourceReport};
use serde::Serialize;

use super::json::Path;

/// The line of a `source` event.
#[derive(Serialize)]
pub struct SourceLine<'a> {
    lanes: Vec<LaneLine>,
    /// Regular files found so far by the number of bits of their sizes: 0 bytes, 1, 2 to 3, 4 to 7 and so on.
    size_counts: &'a [u64],
    /// Large files on their way.
    open: Vec<FileLine<'a>>,
    /// Large files that are complete.
    slowest: Vec<FileLine<'a>>,
}

impl<'a> SourceLine<'a> {
    /// Of a report.
    pub fn of(report: &'a SourceReport) -> SourceLine<'a> {
        SourceLine {
            lanes: report.lanes.iter().map(LaneLine::of).collect(),
            size_counts: &report.size_counts,
            open: report.open.iter().map(FileLine::of).collect(),
            slowest: report.slowest.iter().map(FileLine::of).collect(),
        }
    }
}

#[derive(Serialize)]
struct LaneLine {
    bytes_sent: u64,
    objects_sent: u64,
    to_send: FillLine,
    readers: u32,
    streams: u32,
}

impl LaneLine {
    fn of(lane: &LaneReport) -> LaneLine {
        LaneLine {
            bytes_sent: lane.bytes_sent,
            objects_sent: lane.objects_sent,
            to_send: FillLine::of(lane.to_send),
            readers: lane.readers,
            streams: lane.streams,
        }
    }
}

#[derive(Serialize)]
struct FileLine<'a> {
    #[serde(flatten)]
    path: Path<'a>,
    bytes: u64,
    bytes_done: u64,
    open_ms: u64,
}

impl<'a> FileLine<'a> {
    fn of(file: &'a FileReport) -> FileLine<'a> {
        FileLine {
            path: Path::of(&file.path),
            bytes: file.bytes,
            bytes_done: file.bytes_done,
            open_ms: file.open_ms,
        }
    }
}

/// How full a queue is.
#[derive(Serialize)]
pub struct FillLine {
    waiting: u64,
    room: u64,
}

impl FillLine {
    /// Of a queue.
    pub fn of(fill: Fill) -> FillLine {
        FillLine { waiting: fill.waiting, room: fill.room }
    }
}
