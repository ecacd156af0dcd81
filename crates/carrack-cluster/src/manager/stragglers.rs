//! Slow movers at the end of a transfer: they are left out, and their chunks go to others.

use carrack_plan::fleet::{MoverFault, MoverFaultKind, StragglingMover};

use super::transfer_task::TransferManagementTask;
use crate::log::LoggedChunkResult;
use crate::reports::MoverPairReport;

impl TransferManagementTask {
    /// Records a pair's report.
    pub(super) fn record_pair_report(&mut self, report: &MoverPairReport) {
        let now = self.manager.now();
        self.stragglers.record_report(now, &report.mover, &report.sink, report.chunks_held, report.waits_at);
    }

    /// Records that a pair has settled a chunk.
    pub(super) fn record_settled_chunk(&mut self, done: &LoggedChunkResult) {
        self.stragglers.record_settled_chunk(self.manager.now(), &done.by, &done.sink);
    }

    /// Records progress of a mover that has finished or discarded a large file.
    pub(super) fn record_file_progress(&mut self, by: &str) {
        self.stragglers.record_other_progress(self.manager.now(), by);
    }

    /// Once no chunks are left in the queue, a mover that has had its chunks for too long is left out: its
    /// pairs end, and return their chunks.
    pub(super) fn quarantine_stragglers(&mut self) {
        let (now, totals) = (self.manager.now(), self.coordinator.totals());
        let left = totals.chunks_found.saturating_sub(totals.chunks_done);
        if !totals.is_scanned || left > self.stragglers.held_chunks(now) {
            return;
        }
        for StragglingMover { mover, other, held_for, others_take, .. } in self.stragglers.stragglers(now) {
            if self.manager.health().quarantine_of(now, &self.id, &mover).is_some() {
                continue;
            }
            let reason = format!(
                "it is slow: for {} s it has brought nothing to its end, where others take {} s at most",
                held_for.as_secs(),
                others_take.as_secs() + 1
            );
            self.handle_fault(MoverFault {
                transfer: self.id.clone(),
                mover,
                other,
                kind: MoverFaultKind::Slow,
                reason,
            });
        }
    }
}
