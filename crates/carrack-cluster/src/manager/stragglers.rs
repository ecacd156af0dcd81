//! The end of a transfer that slow movers hold up: they are left out, and what they have goes to others.

use carrack_plan::fleet::{Fault, FaultKind, Straggler};

use super::owning::Owning;
use crate::log::ChunkDone;
use crate::reports::PairReport;

impl Owning {
    /// A pair tells how it does.
    pub(super) fn follow_pace(&mut self, report: &PairReport) {
        let now = self.manager.now();
        self.stragglers.report(now, &report.mover, &report.sink, report.chunks_held, report.waits_at);
    }

    /// A pair has brought a chunk to its end.
    pub(super) fn follow_chunk(&mut self, done: &ChunkDone) {
        self.stragglers.settled(self.manager.now(), &done.by, &done.sink);
    }

    /// A mover has put a large file together, or has taken away what there was of it: it goes on.
    pub(super) fn follow_file(&mut self, by: &str) {
        self.stragglers.goes_on(self.manager.now(), by);
    }

    /// Where nothing is left to be taken, who has had something for too long is left out: its pairs end, and give back what they have.
    pub(super) fn relieve_stragglers(&mut self) {
        let (now, totals) = (self.manager.now(), self.coordinator.totals());
        let left = totals.chunks_found.saturating_sub(totals.chunks_done);
        if !totals.is_scanned || left > self.stragglers.held(now) {
            return;
        }
        for Straggler { mover, other, held_for, others_take, .. } in self.stragglers.behind(now) {
            if self.manager.health().left_out(now, &self.id, &mover).is_some() {
                continue;
            }
            let reason = format!(
                "it is slow: for {} s it has brought nothing to its end, where others take {} s at most",
                held_for.as_secs(),
                others_take.as_secs() + 1
            );
            self.fault(Fault { transfer: self.id.clone(), mover, other, kind: FaultKind::Slow, reason });
        }
    }
}
