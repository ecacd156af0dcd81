//! Which sessions of a transfer work now, and with what, for `carrack status`.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::records::{SESSIONS_KEPT, SessionState};
use crate::reports::PairReport;

/// A report older than this says nothing about now: pairs report every second.
const REPORT_LASTS: Duration = Duration::from_secs(4);

/// The last report of each pair of one transfer.
#[derive(Default)]
pub(super) struct Sessions(BTreeMap<(String, u32), (Duration, SessionState)>);

impl Sessions {
    /// A pair reports; one that is not connected yet has nothing to tell.
    pub fn report(&mut self, now: Duration, report: &PairReport) {
        if report.transport.is_empty() {
            return;
        }
        let state = SessionState {
            source: report.mover.clone(),
            sink: report.sink.clone(),
            transport: report.transport.clone(),
            readers: report.readers,
            streams: report.streams,
        };
        self.0.insert((report.mover.clone(), report.pair), (now, state));
    }

    /// Those that work now, [`SESSIONS_KEPT`] at most.
    pub fn at_work(&mut self, now: Duration) -> Vec<SessionState> {
        self.0.retain(|_, (at, _)| now.saturating_sub(*at) < REPORT_LASTS);
        self.0.values().take(SESSIONS_KEPT).map(|(_, state)| state.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_are_listed_while_they_report_and_once_connected() {
        let mut sessions = Sessions::default();
        let at = Duration::from_secs;
        let connected = |pair| PairReport {
            transport: "tcp".into(),
            readers: 4,
            streams: 2,
            sink: "m2".into(),
            ..PairReport::new("m1", pair)
        };
        sessions.report(at(0), &PairReport::new("m1", 0));
        assert_eq!(sessions.at_work(at(0)), []);
        sessions.report(at(1), &connected(0));
        sessions.report(at(3), &connected(1));
        sessions.report(at(3), &PairReport { readers: 8, ..connected(1) });
        let readers = |sessions: &mut Sessions, now| {
            sessions.at_work(now).iter().map(|session| session.readers).collect::<Vec<_>>()
        };
        assert_eq!(readers(&mut sessions, at(4)), [4, 8]);
        assert_eq!(readers(&mut sessions, at(6)), [8]);
        (0..100).for_each(|pair| sessions.report(at(7), &connected(pair)));
        assert_eq!(sessions.at_work(at(7)).len(), SESSIONS_KEPT);
    }
}
