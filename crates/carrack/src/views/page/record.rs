//! The data for the page, gathered from a transfer's events in bounded memory.

use carrack_model::{
    EntryFailure, FailureSide, LaneReport, LimitingStage, SourceReport, TargetReport, TransferEvent,
    TransferProgress, UserNotice,
};

use super::bins::{CounterSeries, TimeBins};

/// Most lines of a list; the rest is counted.
pub const LISTED_MAX: usize = 1_000;

/// Most targets of one end that are recorded; the rest is counted.
pub const TARGETS_MAX: usize = 64;

/// The first entries of a long list, and their number.
#[derive(Debug)]
pub struct FirstItems<T> {
    /// Each with its time, in seconds after the start.
    pub listed: Vec<(f64, T)>,
    /// The number of all entries.
    pub count: u64,
}

impl<T> Default for FirstItems<T> {
    fn default() -> FirstItems<T> {
        FirstItems { listed: Vec::new(), count: 0 }
    }
}

impl<T> FirstItems<T> {
    fn add(&mut self, at_s: f64, it: impl FnOnce() -> T) {
        self.count += 1;
        if self.listed.len() < LISTED_MAX {
            self.listed.push((at_s, it()));
        }
    }

    /// Returns the number of entries that are not listed.
    pub fn omitted_count(&self) -> u64 {
        self.count - self.listed.len() as u64
    }
}

/// A target over time, and its last report.
#[derive(Debug, Default)]
pub struct TargetSeries {
    pub series: CounterSeries,
    pub report: TargetReport,
}

/// The targets of one end.
#[derive(Debug)]
pub struct EndSeries {
    pub side: FailureSide,
    pub listed: Vec<TargetSeries>,
    /// The number of targets that are not listed.
    pub rest: usize,
}

/// A lane of the source over time, and its last report.
#[derive(Debug, Default)]
pub struct LaneSeries {
    pub series: CounterSeries,
    pub report: LaneReport,
}

/// The data of a transfer so far.
#[derive(Debug, Default)]
pub struct HtmlReportData {
    pub read: CounterSeries,
    pub sent: CounterSeries,
    pub written: CounterSeries,
    /// Seconds for which each stage limited the transfer, of the stages that ever did.
    pub limited: Vec<(LimitingStage, TimeBins)>,
    pub targets: Vec<EndSeries>,
    pub lanes: Vec<LaneSeries>,
    /// The last report; `None` from a source that is too old, or where both ends are far.
    pub source: Option<SourceReport>,
    pub progress: TransferProgress,
    pub failures: FirstItems<EntryFailure>,
    pub warnings: FirstItems<String>,
    pub decisions: FirstItems<String>,
    /// Start of the last session.
    began_s: f64,
    /// Time of the last counters.
    last_s: f64,
}

impl HtmlReportData {
    /// Adds an event.
    pub fn add(&mut self, event: &TransferEvent, at_s: f64) {
        match event {
            TransferEvent::Connected { .. } => self.restart(at_s),
            TransferEvent::Progress(progress) => self.record_progress(progress, at_s),
            TransferEvent::Targets { side, targets } => self.record_targets(*side, targets, at_s),
            TransferEvent::Source(report) => self.source(report, at_s),
            TransferEvent::Failed(failure) => self.failures.add(at_s, || failure.clone()),
            TransferEvent::Notice(UserNotice::Warning(text)) => self.warnings.add(at_s, || text.clone()),
            TransferEvent::Notice(UserNotice::StorageDelay(delay)) => {
                self.warnings.add(at_s, || delay.to_string());
            }
            TransferEvent::Notice(UserNotice::Loss(loss)) => self.warnings.add(at_s, || loss.to_string()),
            TransferEvent::Notice(UserNotice::Decision(text)) => self.decisions.add(at_s, || text.clone()),
            TransferEvent::Notice(_)
            | TransferEvent::Placed(_)
            | TransferEvent::WouldCopy { .. }
            | TransferEvent::WouldDelete { .. }
            | TransferEvent::FileDigest { .. } => {}
        }
    }

    fn restart(&mut self, at_s: f64) {
        let stages = [&mut self.read, &mut self.sent, &mut self.written].into_iter();
        let targets = self.targets.iter_mut().flat_map(|end| &mut end.listed);
        let lanes = self.lanes.iter_mut().map(|lane| &mut lane.series);
        let all = stages.chain(targets.map(|target| &mut target.series)).chain(lanes);
        all.for_each(|series| series.restart(at_s));
        (self.began_s, self.last_s) = (at_s, at_s);
    }

    fn record_progress(&mut self, progress: &TransferProgress, at_s: f64) {
        self.read.record_total(progress.bytes_read, at_s);
        self.sent.record_total(progress.bytes_sent, at_s);
        self.written.record_total(progress.bytes_moved, at_s);
        let place = self.limited.iter().position(|(limiter, _)| *limiter == progress.limiter);
        let place = place.unwrap_or_else(|| {
            self.limited.push((progress.limiter, TimeBins::default()));
            self.limited.len() - 1
        });
        self.limited[place].1.add(self.last_s, at_s, at_s - self.last_s);
        (self.progress, self.last_s) = (*progress, at_s);
    }

    fn record_targets(&mut self, side: FailureSide, reports: &[TargetReport], at_s: f64) {
        let place = self.targets.iter().position(|end| end.side == side).unwrap_or_else(|| {
            self.targets.push(EndSeries { side, listed: Vec::new(), rest: 0 });
            self.targets.len() - 1
        });
        let EndSeries { listed, rest, .. } = &mut self.targets[place];
        *rest = 0;
        for report in reports {
            let known = listed.iter().position(|target| target.report.label == report.label);
            if known.is_none() && listed.len() == TARGETS_MAX {
                *rest += 1;
                continue;
            }
            let known = known.unwrap_or_else(|| {
                listed.push(TargetSeries {
                    series: CounterSeries::since(self.began_s),
                    ..TargetSeries::default()
                });
                listed.len() - 1
            });
            listed[known].series.record_total(report.bytes, at_s);
            listed[known].report = report.clone();
        }
    }

    fn source(&mut self, report: &SourceReport, at_s: f64) {
        let count = self.lanes.len().max(report.lanes.len());
        self.lanes.resize_with(count, || LaneSeries {
            series: CounterSeries::since(self.began_s),
            ..LaneSeries::default()
        });
        for (lane, told) in self.lanes.iter_mut().zip(&report.lanes) {
            lane.series.record_total(told.bytes_sent, at_s);
            lane.report = *told;
        }
        self.source = Some(report.clone());
    }
}

#[cfg(test)]
mod tests {
    use carrack_model::FailureKind;

    use super::*;

    #[test]
    fn lists_are_cut_and_counted() {
        let mut record = HtmlReportData::default();
        let failure = EntryFailure { path: b"a"[..].into(), kind: FailureKind::Missing, detail: "x".into() };
        let event = TransferEvent::Failed(failure);
        (0..LISTED_MAX + 7).for_each(|_| record.add(&event, 1.0));
        assert_eq!((record.failures.listed.len(), record.failures.omitted_count()), (LISTED_MAX, 7));
        let targets = (0..TARGETS_MAX + 3).map(|n| TargetReport {
            label: n.to_string(),
            bytes: 9,
            ..TargetReport::default()
        });
        let event = TransferEvent::Targets { side: FailureSide::Sink, targets: targets.collect() };
        (0..2).for_each(|_| record.add(&event, 1.0));
        assert_eq!((record.targets[0].listed.len(), record.targets[0].rest), (TARGETS_MAX, 3));
    }

    #[test]
    fn sessions_add_up() {
        let mut record = HtmlReportData::default();
        let connected = TransferEvent::Connected {
            streams: 1,
            lanes: 1,
            transport: "tcp",
            protection: None,
            cipher: None,
        };
        for (began_s, bytes_moved) in [(1.0, 100), (8.0, 300)] {
            let progress = TransferProgress {
                bytes_moved,
                limiter: LimitingStage::Network,
                ..TransferProgress::default()
            };
            record.add(&connected, began_s);
            record.add(&TransferEvent::Progress(progress), began_s + 1.0);
        }
        assert_eq!(record.written.bins.total(), 400.0);
        let limited: Vec<_> = record.limited.iter().map(|(limiter, bins)| (*limiter, bins.total())).collect();
        assert_eq!(limited, [(LimitingStage::Network, 2.0)]);
    }
}
