//! The present sessions of a transfer with their resources, for `carrack status`.

use std::collections::BTreeMap;

use crate::reports::MoverPairReport;
use crate::transfer_records::{MoverSessionRecord, SESSIONS_KEPT};

/// The last report of each pair of one transfer.
#[derive(Default)]
pub(super) struct LatestMoverPairReports(BTreeMap<(String, u32), MoverSessionRecord>);

impl LatestMoverPairReports {
    /// Records a pair's report; a pair without a connection has none of these values.
    pub fn record_report(&mut self, report: &MoverPairReport) {
        if report.transport.is_empty() {
            return;
        }
        let state = MoverSessionRecord {
            source: report.mover.clone(),
            sink: report.sink.clone(),
            transport: report.transport.clone(),
            readers: report.readers,
            streams: report.streams,
        };
        self.0.insert((report.mover.clone(), report.pair), state);
    }

    /// Returns the sessions whose pairs work now, [`SESSIONS_KEPT`] at most.
    pub fn working_sessions(&mut self, works: impl Fn(&(String, u32)) -> bool) -> Vec<MoverSessionRecord> {
        self.0.retain(|pair, _| works(pair));
        self.0.values().take(SESSIONS_KEPT).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connected(pair: u32) -> MoverPairReport {
        MoverPairReport {
            transport: "tcp".into(),
            readers: 4,
            streams: 2,
            sink: "m2".into(),
            ..MoverPairReport::new("m1", pair)
        }
    }

    #[test]
    fn sessions_are_listed_while_they_report_and_once_connected() {
        let mut sessions = LatestMoverPairReports::default();
        sessions.record_report(&MoverPairReport::new("m1", 0));
        assert_eq!(sessions.working_sessions(|_| true), []);
        sessions.record_report(&connected(0));
        sessions.record_report(&connected(1));
        sessions.record_report(&MoverPairReport { readers: 8, ..connected(1) });
        let found = sessions.working_sessions(|(_, pair)| *pair > 0);
        assert_eq!(found.iter().map(|session| session.readers).collect::<Vec<_>>(), [8]);
        (0..100).for_each(|pair| sessions.record_report(&connected(pair)));
        assert_eq!(sessions.working_sessions(|_| true).len(), SESSIONS_KEPT);
    }
}
