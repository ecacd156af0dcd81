//! One transfer as long as this manager has its lease: carries out the decisions of its coordinator.

use std::future::pending;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use carrack_plan::fleet::{
    CoordinatedTransferFields, CoordinatorInputs, CoordinatorStep, CoordinatorStepResult, FleetTransferState,
    LargeFileNumber, MoverFault, PairCountTuner, PairStragglerDetector, TransferCoordinator,
    TransferHealthVerdict, TransferResult,
};
use futures_util::future::{try_join, try_join_all};
use futures_util::{Stream, StreamExt, stream};
use tokio::sync::watch;
use tokio::time::{Instant, Interval, MissedTickBehavior};

use super::FleetManager;
use super::destination_resolution::{DestinationResolutionFailure, resolve_destination, set_leg_if_missing};
use super::eligible_movers::{TransferEndRole, eligible_movers, ids};
use super::log_dispatcher::LogSubscription;
use super::sessions::LatestMoverPairReports;
use super::transfer_results::TransferLogTotals;
use crate::curves::{PairCountCurveStore, PairCountRate, PairCurveRecord};
use crate::error::BusError;
use crate::log::{FleetTransferLog, LogFollowEvent, LoggedChunkResult, TransferLogEntry};
use crate::pairs::MoverPairKey;
use crate::queue::{ACK_WAIT, ScanWorkHeader, TransferWorkStream, WorkItemHeader, WorkItemKind};
use crate::reports::{MoverPairReport, subscribe_reports};
use crate::transfer_lease::{LeaseRenewError, RENEW_EVERY, TransferManagerLease};
use crate::transfer_records::{RECORD_VERSION, TransferRecord, TransferState, now_ms};
use crate::transfers::{FindError, ReadTransfer, TransferRecordWatchEvent};

/// Delay before a decision after a log entry, so that entries that arrive together cause one decision.
const SOON: Duration = Duration::from_millis(5);

/// The reason why entries that the source lacks stay, as `carrack sync` words it.
const NOTHING_DELETED: &str = "nothing was deleted, as something failed";

/// The reason why the work for a transfer ends here.
enum ManagedTransferExitReason {
    /// Another manager has the lease.
    Lost,
    /// No work is left for it.
    Over,
    /// This manager ends.
    Told,
    /// Log entries have arrived faster than they were handled: the next owner reads the whole log.
    Behind,
}

type TransferLogEvents = Pin<Box<dyn Stream<Item = LogFollowEvent> + Send>>;
type MoverPairReportStream = Pin<Box<dyn Stream<Item = MoverPairReport> + Send>>;

pub(super) struct TransferManagementTask {
    pub(super) manager: Arc<FleetManager>,
    pub(super) id: String,
    wanted: Arc<AtomicU32>,
    pub(super) coordinator: TransferCoordinator,
    pub(super) stragglers: PairStragglerDetector,
    sessions: LatestMoverPairReports,
    began: Instant,
    /// The record as last read or written.
    record: Option<ReadTransfer>,
    /// True if no other manager has ever worked for the transfer.
    is_first: bool,
    /// The log of a transfer that no manager has begun before, from its beginning.
    new_log: Option<LogSubscription>,
    work: Option<FleetTransferStreams>,
    /// The log names large files, whose ends have a queue of their own.
    has_large_files: bool,
}

/// The queue and log of a running transfer, and the results from them.
struct FleetTransferStreams {
    queue: TransferWorkStream,
    entries: TransferLogEvents,
    reports: MoverPairReportStream,
    account: TransferLogTotals,
}

/// Works until the transfer is over, the lease is lost, or `stop` turns true.
pub(super) async fn run(
    manager: Arc<FleetManager>,
    mut lease: TransferManagerLease,
    wanted: Arc<AtomicU32>,
    stop: watch::Receiver<bool>,
) {
    let id = lease.transfer().to_owned();
    manager.notify_user(format!("transfer {id}: its lease is taken"));
    let mut owning = TransferManagementTask {
        manager: Arc::clone(&manager),
        id: id.clone(),
        wanted,
        coordinator: TransferCoordinator::new(Duration::ZERO),
        stragglers: PairStragglerDetector::new(),
        sessions: LatestMoverPairReports::default(),
        began: Instant::now(),
        record: None,
        is_first: false,
        new_log: None,
        work: None,
        has_large_files: false,
    };
    match owning.run_steps(&mut lease, stop).await {
        ManagedTransferExitReason::Lost => {
            manager.notify_user(format!("transfer {id}: its lease went to another manager"))
        }
        ManagedTransferExitReason::Over
        | ManagedTransferExitReason::Told
        | ManagedTransferExitReason::Behind => {
            // If the release fails, the lease expires.
            let _ = lease.release().await;
        }
    }
    manager.changed.notify_one();
}

/// Returns true if the lease is lost, or may be another manager's.
async fn is_lost_on_renewal(lease: &mut TransferManagerLease) -> bool {
    match lease.renew().await {
        Err(LeaseRenewError::Lost(_)) => true,
        Err(_) => !lease.is_certainly_held(),
        Ok(()) => false,
    }
}

/// Waits for the next item; `None` if the stream has ended. Without a stream it never returns.
async fn next_or_pending<T>(stream: Option<&mut Pin<Box<dyn Stream<Item = T> + Send>>>) -> Option<T> {
    match stream {
        Some(stream) => stream.next().await,
        None => pending().await,
    }
}

/// Returns the part of a record that its coordinator needs.
fn coordinated_fields(record: &TransferRecord) -> CoordinatedTransferFields {
    let options = &record.submission.options;
    let state = match record.state {
        TransferState::Queued | TransferState::Running => FleetTransferState::Open,
        TransferState::Paused => FleetTransferState::Paused,
        TransferState::Cancelled if record.ended_ms.is_none() => FleetTransferState::Cancelled,
        TransferState::Done | TransferState::Failed | TransferState::Cancelled => FleetTransferState::Over,
    };
    CoordinatedTransferFields {
        state,
        is_settled: record.leg.is_some(),
        has_begun: record.started_ms.is_some(),
        pairs_max: options.pairs(),
        failed_entries: record.tally.entries_failed,
        deletes: record.deletes(),
    }
}

impl TransferManagementTask {
    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    async fn run_steps(
        &mut self,
        lease: &mut TransferManagerLease,
        mut stop: watch::Receiver<bool>,
    ) -> ManagedTransferExitReason {
        // The lease was acquired a moment ago: the first renewal is due after one period.
        let mut renewals = tokio::time::interval_at(Instant::now() + RENEW_EVERY, RENEW_EVERY);
        renewals.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let step = self.next(lease);
            match step {
                CoordinatorStep::Release => return ManagedTransferExitReason::Over,
                CoordinatorStep::Wait(until) => {
                    let until = self.began + until;
                    let (entries, reports) = match &mut self.work {
                        Some(work) => (Some(&mut work.entries), Some(&mut work.reports)),
                        None => (None, None),
                    };
                    tokio::select! {
                        logged = next_or_pending(entries) => match logged {
                            Some(logged) => self.handle_log_event(logged),
                            None => return ManagedTransferExitReason::Behind,
                        },
                        Some(report) = next_or_pending(reports) => self.handle_report(&report),
                        () = tokio::time::sleep_until(until) => {}
                        _ = renewals.tick() => if is_lost_on_renewal(lease).await {
                            return ManagedTransferExitReason::Lost;
                        },
                        changed = stop.changed() => if changed.is_err() || *stop.borrow() {
                            return ManagedTransferExitReason::Told;
                        },
                    }
                }
                step => {
                    let Some(answer) = self.carry_out_under_lease(&step, lease, &mut renewals).await else {
                        return ManagedTransferExitReason::Lost;
                    };
                    let now = self.now();
                    self.coordinator.apply_step_result(now, &step, answer);
                    if *stop.borrow() {
                        return ManagedTransferExitReason::Told;
                    }
                }
            }
        }
    }

    /// Carries a step out while it renews the lease; `None` if the lease is lost.
    async fn carry_out_under_lease(
        &mut self,
        step: &CoordinatorStep,
        lease: &mut TransferManagerLease,
        renewals: &mut Interval,
    ) -> Option<CoordinatorStepResult> {
        let mut carried = std::pin::pin!(self.carry_out(step));
        loop {
            tokio::select! {
                answer = &mut carried => return Some(answer),
                _ = renewals.tick() => if is_lost_on_renewal(lease).await {
                    return None;
                },
            }
        }
    }

    fn next(&mut self, lease: &TransferManagerLease) -> CoordinatorStep {
        let (manager, now) = (Arc::clone(&self.manager), self.now());
        let record = manager.lock_state().records.get(&self.id).map(coordinated_fields);
        let outlook = CoordinatorInputs {
            lease_is_sure: lease.is_certainly_held(),
            record,
            verdict: &|| verdict(&manager, self.record.as_ref().map(|read| &read.record)),
            pairs_most: capacity(&manager),
        };
        let step = self.coordinator.next(now, &outlook);
        if matches!(step, CoordinatorStep::Wait(_))
            && self.coordinator.is_current()
            && lease.is_certainly_held()
        {
            self.quarantine_stragglers();
        }
        let wanted = self.coordinator.pairs_wanted();
        if self.wanted.swap(wanted, Relaxed) != wanted {
            manager.changed.notify_one();
        }
        step
    }

    fn handle_log_event(&mut self, logged: LogFollowEvent) {
        match logged {
            LogFollowEvent::Current => self.coordinator.mark_current(),
            LogFollowEvent::Entry { entry, .. } => self.handle_log_entry(entry),
        }
        let soon = self.now() + SOON;
        self.coordinator.decide_by(soon);
    }

    fn handle_log_entry(&mut self, entry: TransferLogEntry) {
        if let Some(event) = entry.to_tracker_event() {
            self.coordinator.observe(&event);
        }
        match &entry {
            TransferLogEntry::LargeFiles { .. } => self.has_large_files = true,
            TransferLogEntry::ScanFailed { reason, .. } => {
                self.coordinator.record_scan_failure(reason.clone())
            }
            TransferLogEntry::ChunkDone(done) => self.handle_chunk_done(done),
            TransferLogEntry::FileFinished { by, .. } | TransferLogEntry::FileDiscarded { by, .. } => {
                self.record_file_progress(by)
            }
            TransferLogEntry::PairBroken { by, sink, is_source, kind, reason } => {
                let (mover, other) = if *is_source { (by, sink) } else { (sink, by) };
                let (transfer, mover, other) = (self.id.clone(), mover.clone(), other.clone());
                self.handle_fault(MoverFault { transfer, mover, other, kind: *kind, reason: reason.clone() });
            }
            _ => {}
        }
        if let Some(work) = &mut self.work {
            work.account.add_entry(entry);
        }
    }

    /// Records movers that have settled a chunk as healthy. If entries failed at every mover, no mover is at
    /// fault.
    fn handle_chunk_done(&mut self, done: &LoggedChunkResult) {
        if !self.coordinator.is_current() {
            return;
        }
        if done.failed_entries > 0 {
            return self.manager.health().clear_doubts(&self.id);
        }
        self.record_settled_chunk(done);
        for mover in [&done.by, &done.sink].into_iter().filter(|mover| !mover.is_empty()) {
            self.manager.record_success(&self.id, mover);
        }
    }

    /// Handles a fault. Faults before this manager owned the transfer are obsolete.
    pub(super) fn handle_fault(&mut self, fault: MoverFault) {
        if self.coordinator.is_current() {
            self.coordinator.record_fault(format!("{}: {}", fault.mover, fault.reason));
            self.manager.handle_fault(&fault);
        }
    }

    fn handle_report(&mut self, report: &MoverPairReport) {
        let now = self.now();
        self.record_pair_report(report);
        self.sessions.record_report(report);
        self.coordinator.record_pair_rate(now, &report.mover, report.pair, report.bytes_per_s);
    }

    async fn carry_out(&mut self, step: &CoordinatorStep) -> CoordinatorStepResult {
        match self.try_carry_out(step).await {
            Ok(answer) => answer,
            Err(error) => {
                self.manager.notify_user(format!("transfer {}: {error}", self.id));
                CoordinatorStepResult::Failed
            }
        }
    }

    async fn try_carry_out(&mut self, step: &CoordinatorStep) -> Result<CoordinatorStepResult, BusError> {
        match step {
            CoordinatorStep::ReadRecord => self.read().await,
            CoordinatorStep::Settle => self.resolve_and_store_paths().await,
            CoordinatorStep::WriteReason(reason) => self.write_reason(reason).await,
            CoordinatorStep::Open => self.open().await,
            CoordinatorStep::OrderScan { again } => self.order_scan(*again).await,
            CoordinatorStep::FinishFiles(files) => {
                self.publish_large_file_items(files, |file| WorkItemKind::Finish { file }).await
            }
            CoordinatorStep::DiscardFiles(files) => {
                self.publish_large_file_items(files, |file| WorkItemKind::Discard { file }).await
            }
            CoordinatorStep::CheckQueue => self.is_idle().await.map(CoordinatorStepResult::Idle),
            CoordinatorStep::PublishDelete => self.publish_last(WorkItemKind::Delete).await,
            CoordinatorStep::PublishClose => self.publish_last(WorkItemKind::Close).await,
            CoordinatorStep::WriteProgress(reason) => self.write_progress(reason).await,
            CoordinatorStep::TrimQueue => self.trim().await,
            CoordinatorStep::KeepCurve => self.keep_curve().await,
            CoordinatorStep::RemovePairs => {
                self.remove_pairs().await?;
                self.manager.health().forget(&self.id);
                Ok(CoordinatorStepResult::Done)
            }
            CoordinatorStep::WriteEnd(ending) => self.write_end(ending).await,
            CoordinatorStep::RemoveWork => self.remove_work().await,
            CoordinatorStep::Release | CoordinatorStep::Wait(_) => Ok(CoordinatorStepResult::Done),
        }
    }

    /// Removes the pairs of the transfer. If this is its first manager, its own list is complete.
    async fn remove_pairs(&mut self) -> Result<(), BusError> {
        if !self.is_first {
            return self.manager.pairs.remove_all(&self.id).await.map(|_| ());
        }
        let known: Vec<MoverPairKey> =
            self.manager.lock_state().pairs.keys().filter(|key| key.transfer == self.id).cloned().collect();
        try_join_all(known.iter().map(|key| self.manager.pairs.remove(key))).await.map(|_| ())
    }

    async fn read(&mut self) -> Result<CoordinatorStepResult, BusError> {
        match self.manager.transfers.read(&self.id).await {
            Ok(read) => {
                let view = coordinated_fields(&read.record);
                self.record = Some(read);
                Ok(CoordinatorStepResult::Record(Some(view)))
            }
            Err(FindError::Bus(error)) => Err(error),
            Err(_) => Ok(CoordinatorStepResult::Record(None)),
        }
    }

    fn record(&self) -> Result<&TransferRecord, BusError> {
        self.versioned_record().map(|read| &read.record)
    }

    fn versioned_record(&self) -> Result<&ReadTransfer, BusError> {
        self.record.as_ref().ok_or_else(|| BusError::Missing(format!("transfer {}", self.id)))
    }

    fn work(&mut self) -> Result<&mut FleetTransferStreams, BusError> {
        self.work.as_mut().ok_or_else(|| BusError::Missing(format!("the work of transfer {}", self.id)))
    }

    async fn resolve_and_store_paths(&mut self) -> Result<CoordinatorStepResult, BusError> {
        let manager = Arc::clone(&self.manager);
        let resolved = match manager.rival_reason(self.record()?) {
            Some(reason) => Err(DestinationResolutionFailure::Later(reason)),
            None => resolve_destination(&manager, self.record()?).await,
        };
        let (leg, resumes) = match resolved {
            Ok(settled) => settled,
            Err(
                DestinationResolutionFailure::Later(reason) | DestinationResolutionFailure::AtOdds(reason),
            ) => {
                manager.lock_state().stuck.insert(self.id.clone());
                return Ok(CoordinatorStepResult::Unsettled(reason));
            }
            Err(DestinationResolutionFailure::Never(reason)) => {
                return Ok(CoordinatorStepResult::Impossible(reason));
            }
        };
        manager.lock_state().stuck.remove(&self.id);
        // No process writes to the log of a transfer before its record has a leg, so this subscription misses
        // no entry.
        let (new_log, is_first) = (manager.logs.subscribe(&self.id), AtomicBool::new(false));
        let updated = self.update(|record| {
            is_first.store(set_leg_if_missing(record, &leg, resumes, &manager.id), Relaxed);
        });
        let answer = updated.await?;
        self.is_first = is_first.into_inner();
        self.new_log = self.is_first.then_some(new_log);
        if let (Some(read), true) = (&self.record, matches!(answer, CoordinatorStepResult::Done)) {
            // Followed before the watch reports it, as pairs are dealt by the followed records.
            manager
                .lock_state()
                .records
                .apply_change(TransferRecordWatchEvent::Put(Box::new(read.record.clone())));
        }
        Ok(answer)
    }

    /// Changes the record; a removed record is no error.
    async fn update(
        &mut self,
        change: impl Fn(&mut TransferRecord),
    ) -> Result<CoordinatorStepResult, BusError> {
        match self.manager.transfers.update_from(self.versioned_record()?, change).await {
            Ok(written) => {
                self.record = Some(written);
                Ok(CoordinatorStepResult::Done)
            }
            Err(FindError::Bus(error)) => Err(error),
            Err(_) => Ok(CoordinatorStepResult::Done),
        }
    }

    async fn write_reason(&mut self, reason: &str) -> Result<CoordinatorStepResult, BusError> {
        let manager = self.manager.id.clone();
        let updated = self.update(|record| {
            record.manager.clone_from(&manager);
            if record.state == TransferState::Queued {
                reason.clone_into(&mut record.waits_for);
            }
        });
        updated.await
    }

    async fn open(&mut self) -> Result<CoordinatorStepResult, BusError> {
        let manager = Arc::clone(&self.manager);
        let tuner = initial_pair_tuner(&manager, self.record()?).await;
        let queue = TransferWorkStream::open(&manager.bus, &self.id).await?;
        let log = FleetTransferLog::open(&manager.bus, &self.id)?;
        queue.create_consumers(ACK_WAIT).await?;
        let entries: TransferLogEvents = match self.new_log.take() {
            Some(new_log) => Box::pin(stream::iter([LogFollowEvent::Current]).chain(new_log)),
            None => Box::pin(log.replay_and_follow().await?),
        };
        let reports: MoverPairReportStream = Box::pin(subscribe_reports(&manager.bus, &self.id).await?);
        self.stragglers = PairStragglerDetector::new();
        self.work =
            Some(FleetTransferStreams { queue, entries, reports, account: TransferLogTotals::default() });
        Ok(CoordinatorStepResult::Opened(Box::new(tuner)))
    }

    async fn order_scan(&mut self, again: bool) -> Result<CoordinatorStepResult, BusError> {
        let queue = &self.work()?.queue;
        if !again || queue.pending_scans().await?.unacknowledged() == 0 {
            queue.publish_scan(&ScanWorkHeader { version: RECORD_VERSION, attempt: 1 }).await?;
        }
        Ok(CoordinatorStepResult::Done)
    }

    async fn publish_large_file_items(
        &mut self,
        files: &[LargeFileNumber],
        kind: impl Fn(u64) -> WorkItemKind,
    ) -> Result<CoordinatorStepResult, BusError> {
        let attempt = self.coordinator.counting_attempt().unwrap_or(1);
        let queue = &self.work()?.queue;
        let mut publisher = queue.publisher();
        for LargeFileNumber(file) in files {
            let Some(table) = queue.read_large(attempt, *file).await? else {
                return Err(BusError::Missing(format!("the entry of large file {file}")));
            };
            publisher.publish_chunk(&WorkItemHeader::new(attempt, *file, kind(*file), 1, 0), table).await?;
        }
        publisher.flush().await?;
        Ok(CoordinatorStepResult::Done)
    }

    /// Returns true if neither a chunk, the end of a file nor a scan is in flight.
    async fn is_idle(&mut self) -> Result<bool, BusError> {
        let has_large_files = self.has_large_files;
        let queue = &self.work()?.queue;
        Ok(queue.pending_chunks().await?.unacknowledged() == 0
            && (!has_large_files || queue.pending_file_ends().await?.unacknowledged() == 0)
            && queue.pending_scans().await?.unacknowledged() == 0)
    }

    async fn publish_last(&mut self, kind: WorkItemKind) -> Result<CoordinatorStepResult, BusError> {
        let head = WorkItemHeader::new(self.coordinator.counting_attempt().unwrap_or(1), 0, kind, 0, 0);
        let mut publisher = self.work()?.queue.publisher();
        publisher.publish_chunk(&head, Vec::new()).await?;
        publisher.flush().await?;
        Ok(CoordinatorStepResult::Done)
    }

    async fn trim(&mut self) -> Result<CoordinatorStepResult, BusError> {
        let has_large_files = self.has_large_files;
        let queue = &self.work()?.queue;
        // A later call will do.
        let _ = queue.trim().await;
        if has_large_files {
            let _ = queue.trim_file_ends().await;
        }
        Ok(CoordinatorStepResult::Done)
    }

    async fn write_progress(&mut self, reason: &str) -> Result<CoordinatorStepResult, BusError> {
        let now = self.now();
        let (pairs, bytes_per_s) = self.coordinator.working_pairs_and_rate(now);
        let (totals, wanted) = (self.coordinator.totals(), self.coordinator.pairs_wanted());
        let sessions = self.sessions.working_sessions(|pair| self.coordinator.is_pair_working(pair));
        let manager = self.manager.id.clone();
        let waits_for = if reason.is_empty() {
            self.manager.lock_state().wait_reason(&self.id)
        } else {
            reason.to_owned()
        };
        let Some(FleetTransferStreams { account, .. }) = &self.work else {
            return Ok(CoordinatorStepResult::Failed);
        };
        let updated = self.manager.transfers.update_from(self.versioned_record()?, |record| {
            if record.state == TransferState::Queued {
                record.state = TransferState::Running;
                record.started_ms.get_or_insert(now_ms());
            }
            account.write(record, &totals);
            record.tally.pairs = pairs;
            record.tally.pairs_wanted = wanted;
            record.tally.bytes_per_s = bytes_per_s;
            record.sessions.clone_from(&sessions);
            record.manager.clone_from(&manager);
            if record.state == TransferState::Running {
                record.waits_for.clone_from(&waits_for);
            }
        });
        let updated = updated.await;
        match updated {
            Ok(written) => {
                self.record = Some(written);
                Ok(CoordinatorStepResult::Done)
            }
            Err(FindError::Unknown(_) | FindError::Several { .. }) => Ok(CoordinatorStepResult::Done),
            Err(FindError::Bus(error)) if error.is_transient() => Ok(CoordinatorStepResult::Failed),
            Err(FindError::Bus(error)) => Err(error),
        }
    }

    /// Stores the measured curve of the path for later transfers.
    async fn keep_curve(&mut self) -> Result<CoordinatorStepResult, BusError> {
        let points = self.coordinator.curve();
        let points = points.map(|(pairs, bytes_per_s)| PairCountRate { pairs, bytes_per_s });
        let points: Vec<PairCountRate> = points.collect();
        let submission = &self.record()?.submission;
        if !points.is_empty() {
            let (source, sink) = (&submission.source.site, &submission.destination.site);
            let curve = PairCurveRecord::new(points, now_ms());
            PairCountCurveStore::open(&self.manager.bus).await?.put(source, sink, &curve).await?;
            self.manager.paths.forget(source, sink);
        }
        Ok(CoordinatorStepResult::Done)
    }

    /// Writes the final state; the record stays.
    async fn write_end(&mut self, ending: &TransferResult) -> Result<CoordinatorStepResult, BusError> {
        let (state, reason) = match ending {
            TransferResult::Done => (TransferState::Done, ""),
            TransferResult::Failed(reason) => (TransferState::Failed, &**reason),
            TransferResult::Cancelled => (TransferState::Cancelled, ""),
        };
        let totals = self.coordinator.totals();
        let account = self.work.as_ref().map(|work| &work.account).filter(|_| self.coordinator.is_current());
        let updated = self.manager.transfers.update_from(self.versioned_record()?, |record| {
            if let Some(account) = account {
                account.write(record, &totals);
                if *ending == TransferResult::Done && record.deletes() && !account.has_deletion() {
                    record.undeleted = vec![NOTHING_DELETED.to_owned()];
                }
            }
            record.tally.pairs = 0;
            record.tally.pairs_wanted = 0;
            record.tally.bytes_per_s = 0;
            record.sessions.clear();
            record.waits_for.clear();
            if !record.state.is_over() {
                record.state = state;
                reason.clone_into(&mut record.reason);
            }
            record.ended_ms.get_or_insert(now_ms());
        });
        let updated = updated.await;
        match updated {
            Ok(written) => {
                self.manager.notify_user(format!("transfer {}: {}", self.id, written.record.state));
                // Followed before the watch reports it.
                self.manager
                    .lock_state()
                    .records
                    .apply_change(TransferRecordWatchEvent::Put(Box::new(written.record.clone())));
                self.manager.changed.notify_one();
                self.record = Some(written);
            }
            Err(FindError::Bus(error)) => return Err(error),
            Err(_) => {}
        }
        Ok(CoordinatorStepResult::Done)
    }

    async fn remove_work(&mut self) -> Result<CoordinatorStepResult, BusError> {
        self.work = None;
        let queue = TransferWorkStream::open(&self.manager.bus, &self.id).await?;
        let log = FleetTransferLog::open(&self.manager.bus, &self.id)?;
        try_join(queue.remove(), log.remove()).await?;
        Ok(CoordinatorStepResult::Done)
    }
}

/// Returns the verdict on the movers that reach both ends.
fn verdict(manager: &FleetManager, record: Option<&TransferRecord>) -> TransferHealthVerdict {
    let Some((record, leg)) = record.and_then(|record| Some((record, record.leg.as_ref()?))) else {
        return TransferHealthVerdict::GoOn;
    };
    let (movers, now) = (manager.movers.recent_movers(), manager.now());
    let submission = &record.submission;
    let ends = [
        (TransferEndRole::Source, &submission.source.site, &leg.source),
        (TransferEndRole::Sink, &submission.destination.site, &leg.sink),
    ];
    let health = manager.health();
    let usable = ends.map(|(which, site, path)| {
        let end = eligible_movers(&movers, &health, now, &record.id, (which, site, path));
        let mut usable = end.reaching;
        usable.retain(|&index| !end.odd.contains_key(&movers[index].id));
        ids(&movers, &usable)
    });
    let [sources, sinks] = usable.each_ref().map(|ids| ids.iter().map(|id| &**id).collect::<Vec<_>>());
    health.verdict(now, &record.id, &sources, &sinks)
}

/// Returns the pairs with which an earlier transfer between the sites was fastest, or one for each mover of
/// the smaller site.
async fn initial_pair_tuner(manager: &FleetManager, record: &TransferRecord) -> PairCountTuner {
    let (movers, submission) = (manager.movers.all(), &record.submission);
    let (source, sink) = (&submission.source.site, &submission.destination.site);
    let [sources, sinks] =
        [source, sink].map(|site| movers.iter().filter(|mover| mover.site == *site).count() as u32);
    let fewest = sources.min(sinks).max(1);
    let before = manager.paths.fastest(&manager.bus, source, sink).await;
    let start = before.unwrap_or(fewest).min(capacity(manager));
    PairCountTuner::new(start.min(submission.options.pairs().unwrap_or(u32::MAX)), start)
}

/// Returns the number of pairs that all movers together could have, at least one.
fn capacity(manager: &FleetManager) -> u32 {
    manager.movers.all().iter().map(|mover| mover.pairs_max).sum::<u32>().max(1)
}
