//! The state of the live view: events in, numbers out. Pure.

use std::collections::VecDeque;
use std::time::Duration;

use carrack_model::{
    EntryFailure, FailureSide, LaneReport, LargeFileProgress, SourceReport, TargetReport, TransferEvent,
    TransferProgress, UserNotice, escape,
};

use crate::user_error::escape_control_characters;
use crate::views::report::{STILL_S, SmoothedRate};

/// Most rates that are kept: a minute, as counters come twice a second.
const PAST_MAX: usize = 120;

/// Most messages that are kept.
const MESSAGES_MAX: usize = 50;

/// Time constant of the smoothing, in seconds: quicker than the progress line's, since the curve shows the
/// past.
const SMOOTHING_S: f64 = 2.0;

/// A counter's rate.
#[derive(Clone, Debug, Default)]
pub struct RateGauge {
    last: Option<(f64, u64)>,
    /// Smoothed rate per second.
    pub per_s: f64,
    /// Unsmoothed rates, the latest last.
    pub past: VecDeque<u64>,
}

impl RateGauge {
    /// Records the counter's value at a time.
    fn record_total(&mut self, total: u64, at_s: f64) {
        let (then_s, before) = *self.last.get_or_insert((at_s, total));
        let seconds = at_s - then_s;
        if seconds <= 0.0 || total == before && seconds <= STILL_S {
            return;
        }
        self.last = Some((at_s, total));
        // A new session counts from 0.
        let per_s = total.checked_sub(before).unwrap_or(total) as f64 / seconds;
        let weight = if self.past.is_empty() { 1.0 } else { 1.0 - (-seconds / SMOOTHING_S).exp() };
        self.per_s += weight * (per_s - self.per_s);
        if self.past.len() == PAST_MAX {
            self.past.pop_front();
        }
        self.past.push_back(per_s as u64);
    }
}

/// A target or lane with its rate.
#[derive(Clone, Debug, Default)]
pub struct RatedReport<T> {
    pub meter: RateGauge,
    pub report: T,
}

/// The targets of one end.
#[derive(Clone, Debug)]
pub struct EndTargets {
    pub side: FailureSide,
    pub targets: Vec<RatedReport<TargetReport>>,
}

/// The present state of a transfer.
#[derive(Clone, Debug, Default)]
pub struct LiveViewTransfer {
    /// The command, the sources and the destination, for people.
    pub title: String,
    pub elapsed: Duration,
    /// Transport and data connections; empty before they exist.
    pub way: String,
    pub progress: TransferProgress,
    pub pace: SmoothedRate,
    pub read: RateGauge,
    pub sent: RateGauge,
    pub written: RateGauge,
    pub ends: Vec<EndTargets>,
    pub lanes: Vec<RatedReport<LaneReport>>,
    /// The files in transfer that began first.
    pub files: Vec<LargeFileProgress>,
    /// The messages, the latest last.
    pub messages: VecDeque<String>,
    /// True if the user asked for the end.
    pub is_ending: bool,
}

impl LiveViewTransfer {
    /// Creates the state of a transfer that begins.
    pub fn new(title: String) -> LiveViewTransfer {
        LiveViewTransfer { title, ..LiveViewTransfer::default() }
    }

    /// Updates the state from an event.
    pub fn update(&mut self, event: &TransferEvent, elapsed: Duration) {
        let at_s = elapsed.as_secs_f64();
        self.elapsed = elapsed;
        match event {
            TransferEvent::Connected { streams: 0, transport, .. } => self.way = (*transport).to_owned(),
            TransferEvent::Connected { streams, transport, .. } => {
                self.way = format!("{transport} × {streams}")
            }
            TransferEvent::Progress(progress) => self.record_progress(progress, at_s),
            TransferEvent::Targets { side, targets } => self.record_targets(*side, targets, at_s),
            TransferEvent::Source(report) => self.source(report, at_s),
            TransferEvent::Failed(failure) => self.add_message(failure_message(failure)),
            TransferEvent::Notice(UserNotice::Warning(text)) => {
                self.add_message(format!("warning: {}", escape_control_characters(text)))
            }
            TransferEvent::Notice(UserNotice::Loss(loss)) => {
                self.add_message(format!("warning: {}", escape_control_characters(&loss.to_string())))
            }
            TransferEvent::Notice(UserNotice::StorageDelay(delay)) => {
                self.add_message(escape_control_characters(&delay.to_string()))
            }
            TransferEvent::Notice(UserNotice::Text(text) | UserNotice::Decision(text)) => {
                self.add_message(escape_control_characters(text))
            }
            TransferEvent::Notice(UserNotice::Skipped { path, reason }) => {
                self.add_message(format!(
                    "left out: {}: {}",
                    escape(path),
                    escape_control_characters(reason)
                ));
            }
            TransferEvent::Notice(UserNotice::Detail(_))
            | TransferEvent::Placed(_)
            | TransferEvent::WouldCopy { .. }
            | TransferEvent::WouldDelete { .. }
            | TransferEvent::FileDigest { .. } => {}
        }
    }

    fn record_progress(&mut self, progress: &TransferProgress, at_s: f64) {
        self.pace.update(progress, self.elapsed);
        self.read.record_total(progress.bytes_read, at_s);
        self.sent.record_total(progress.bytes_sent, at_s);
        self.written.record_total(progress.bytes_moved, at_s);
        self.progress = *progress;
    }

    fn record_targets(&mut self, side: FailureSide, reports: &[TargetReport], at_s: f64) {
        let place = self.ends.iter().position(|end| end.side == side).unwrap_or_else(|| {
            self.ends.push(EndTargets { side, targets: Vec::new() });
            self.ends.len() - 1
        });
        let known = &mut self.ends[place].targets;
        for report in reports {
            let place = known.iter().position(|target| target.report.label == report.label);
            let place = place.unwrap_or_else(|| {
                known.push(RatedReport::default());
                known.len() - 1
            });
            known[place].meter.record_total(report.bytes, at_s);
            known[place].report = report.clone();
        }
        known.retain(|target| reports.iter().any(|report| report.label == target.report.label));
    }

    fn source(&mut self, report: &SourceReport, at_s: f64) {
        self.lanes.resize_with(report.lanes.len(), RatedReport::default);
        for (lane, told) in self.lanes.iter_mut().zip(&report.lanes) {
            lane.meter.record_total(told.bytes_sent, at_s);
            lane.report = *told;
        }
        self.files.clone_from(&report.open);
    }

    fn add_message(&mut self, text: String) {
        if self.messages.len() == MESSAGES_MAX {
            self.messages.pop_front();
        }
        self.messages.push_back(text);
    }
}

fn failure_message(failure: &EntryFailure) -> String {
    format!("failed: {}: {}", escape(&failure.path), escape_control_characters(&failure.detail))
}

#[cfg(test)]
pub mod tests {
    use carrack_model::{FailureKind, LimitingStage, StageFill};

    use super::*;

    /// Returns the state after three seconds of a transfer between sites.
    pub fn busy() -> LiveViewTransfer {
        let mut watch = LiveViewTransfer::new("carrack cp  tree → host:data".into());
        let connected = TransferEvent::Connected {
            streams: 8,
            lanes: 2,
            transport: "tcp",
            protection: None,
            cipher: None,
        };
        watch.update(&connected, Duration::from_millis(500));
        for second in 1..=3u64 {
            let elapsed = Duration::from_secs(second);
            for event in [progress(second), targets(second), source(second)] {
                watch.update(&event, elapsed);
            }
        }
        let failure =
            EntryFailure { path: b"a\x1b"[..].into(), kind: FailureKind::Missing, detail: "gone".into() };
        watch.update(&TransferEvent::Failed(failure), Duration::from_secs(3));
        watch
    }

    fn progress(second: u64) -> TransferEvent {
        TransferEvent::Progress(TransferProgress {
            entries_found: 2_000,
            bytes_found: 1_000 << 20,
            scan_done: true,
            entries_done: 100 * second,
            bytes_done: second * (100 << 20),
            bytes_moved: second * (100 << 20),
            entries_failed: 1,
            bytes_read: second * (110 << 20),
            bytes_sent: second * (105 << 20),
            to_read: StageFill { waiting: 16_384, room: 32_768 },
            to_send: StageFill { waiting: 9, room: 10 },
            to_write: StageFill { waiting: 0, room: 256 },
            storage_busy: (false, false),
            limiter: LimitingStage::Network,
        })
    }

    fn targets(second: u64) -> TransferEvent {
        let targets = (0..24).map(|number: u64| TargetReport {
            label: format!("OST{number:04}"),
            bytes: second * (number << 20),
            is_avoided: number == 3,
            ..TargetReport::default()
        });
        TransferEvent::Targets { side: FailureSide::Source, targets: targets.collect() }
    }

    fn source(second: u64) -> TransferEvent {
        let lane = LaneReport {
            bytes_sent: second * (50 << 20),
            to_send: StageFill { waiting: 4, room: 5 },
            readers: 4,
            ..LaneReport::default()
        };
        let open = (0..10).map(|number: u64| LargeFileProgress {
            path: format!("tree/run{number}/big\x07.dat").into_bytes().into(),
            bytes: 4 << 30,
            bytes_done: 1 << 30,
            open_ms: 61_000 - 1_000 * number,
        });
        let (lanes, open) = (vec![lane; 2], open.collect());
        TransferEvent::Source(SourceReport { lanes, open, ..SourceReport::default() })
    }

    fn near(meter: &RateGauge, mib: f64) -> bool {
        (meter.per_s / 1_048_576.0 / mib - 1.0).abs() < 0.01
    }

    #[test]
    fn rates_come_from_counters() {
        let watch = busy();
        assert!(near(&watch.written, 100.0) && near(&watch.read, 110.0), "{:?}", watch.written);
        assert_eq!(watch.written.past, [100 << 20, 100 << 20]);
        assert!(near(&watch.lanes[1].meter, 50.0) && near(&watch.ends[0].targets[20].meter, 20.0));
        assert_eq!((watch.way.as_str(), watch.files.len()), ("tcp × 8", 10));
        assert_eq!(watch.messages, ["failed: a\\u{1b}: gone"]);
    }

    #[test]
    fn a_new_session_counts_from_nothing() {
        let mut watch = busy();
        watch.update(&progress(1), Duration::from_secs(4));
        assert_eq!(watch.written.past.back(), Some(&(100 << 20)));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut watch = busy();
        for second in 4..500 {
            watch.update(&progress(second), Duration::from_secs(second));
            watch.update(&TransferEvent::Notice(UserNotice::Text("t".into())), Duration::from_secs(second));
        }
        assert_eq!((watch.written.past.len(), watch.messages.len()), (PAST_MAX, MESSAGES_MAX));
    }
}
