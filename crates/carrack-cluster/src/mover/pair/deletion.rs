//! Removes destination entries that the source lacks (`--delete`), when the transfer has copied everything
//! else.
//!
//! A separate session over the whole tree, as that of `carrack sync --existing --ignore-existing --delete`,
//! scans, sends nothing, and removes the entries that this scan proves absent. Two pairs may carry out the
//! item, also at the same time: removed entries stay removed. For `--max-delete N` a dry run comes first, and
//! nothing is removed if it counts more than N. A limit for each try could remove more than N in all.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use carrack_engine::{
    AbortHandle, SessionRole, TransferIdentity, TransferObserver, TransferOutcome, TransferRequest,
    copy_with_peer, since_boot,
};
use carrack_model::{
    AgreedTransferSpec, DeletionRules, EntryFailure, FailureKind, KeptMetadata, MetadataFidelity, SyncRules,
    TransferEvent, UserNotice,
};
use carrack_plan::fleet::{ChunkDeliveryState, MoverFaultKind};
use tokio::time::MissedTickBehavior;

use super::{
    GIVEN_BACK_FOR, MoverPairTaskContext, MoverSessionObserver, PairFault, TICK, new_run, open_source,
};
use crate::mover::UserMessageCallback;
use crate::mover::ack_extender::AckExtender;
use crate::mover::dial::dial;
use crate::mover::held_chunk::HeldChunkDelivery;
use crate::mover::session_name::SessionName;
use crate::queue::{QueueDelivery, WorkItemHeader};
use crate::transfer_records::{TransferRecord, TransferState};

/// The keeper's number for the item.
const ITEM: u64 = 0;

/// Upper bound of messages about kept entries.
const STAYS_MAX: usize = 20;

/// The end of a session that did not remove its entries.
enum UndoneDeletion {
    /// The user cancelled it, or the mover may not continue: no mover is at fault.
    Interrupted,
    Fault(PairFault),
}

/// The observer of the session.
struct DeletionObserver {
    pair: MoverSessionObserver,
    stays: Mutex<Vec<String>>,
    going: AtomicU64,
    /// Ends a dry run that has found more entries than this.
    most: u64,
    abort: AbortHandle,
}

impl DeletionObserver {
    fn new(say: UserMessageCallback, most: u64, abort: &AbortHandle) -> DeletionObserver {
        let (pair, going) = (MoverSessionObserver::new(say), AtomicU64::new(0));
        DeletionObserver { pair, stays: Mutex::default(), going, most, abort: abort.clone() }
    }

    fn has_too_many(&self) -> bool {
        self.going.load(Relaxed) > self.most
    }

    fn take_stays(&self) -> Vec<String> {
        std::mem::take(&mut *self.stays.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl TransferObserver for DeletionObserver {
    fn handle_event(&self, event: &TransferEvent) {
        match event {
            TransferEvent::WouldDelete { .. } => {
                self.going.fetch_add(1, Relaxed);
                if self.has_too_many() {
                    self.abort.interrupt();
                }
            }
            TransferEvent::Notice(UserNotice::Warning(text)) => {
                let mut stays = self.stays.lock().unwrap_or_else(PoisonError::into_inner);
                if stays.len() < STAYS_MAX && !stays.contains(text) {
                    stays.push(text.clone());
                }
            }
            _ => self.pair.handle_event(event),
        }
    }
}

impl MoverPairTaskContext {
    /// Carries out the deletion item: it is then logged and acknowledged, or left to others.
    pub(super) async fn delete(
        self: &Arc<Self>,
        delivery: QueueDelivery<WorkItemHeader>,
        case: ChunkDeliveryState,
    ) {
        let mut held = HeldChunkDelivery::new(delivery, case);
        let keeper = Arc::new(AckExtender::new());
        keeper.add_delivery(ITEM, held.acker.clone(), since_boot());
        match self.try_delete(&keeper, &mut held).await {
            Ok(()) => {
                if let (_, Some(mut held)) = self.check_settled_chunk(&keeper, ITEM, held).await {
                    let movers = [&*self.mover.id, &*self.pair.sink];
                    let entry = held.take_log_entry(movers, 0, "", 0);
                    self.log_and_acknowledge(&mut held.case, &entry, &held.acker).await;
                }
            }
            Err(undone) => {
                if !keeper.may_be_redelivered(ITEM) {
                    // Without an answer it is redelivered after its ack deadline.
                    let _ = self.retry_transient(|| held.acker.nak(GIVEN_BACK_FOR)).await;
                }
                if let UndoneDeletion::Fault(fault) = undone {
                    self.mover.notify_user(format!(
                        "transfer {}: the deletion: {}",
                        self.pair.transfer, fault.reason
                    ));
                    self.mover.report_fault(&self.pair.transfer, &self.pair.sink, &fault).await;
                }
            }
        }
        keeper.remove_delivery(ITEM);
    }

    async fn try_delete(
        self: &Arc<Self>,
        keeper: &Arc<AckExtender>,
        held: &mut HeldChunkDelivery,
    ) -> Result<(), UndoneDeletion> {
        // Without an answer from NATS the user's wish is unknown.
        let record =
            self.mover.transfers.get(&self.pair.transfer).await.map_err(|_| UndoneDeletion::Interrupted)?;
        if !matches!(record.state, TransferState::Queued | TransferState::Running) {
            return Err(UndoneDeletion::Interrupted);
        }
        let sync = self.whole.spec.sync.as_ref();
        let Some(deletion) = sync.and_then(|sync| sync.deletion.clone()).filter(|_| record.deletes()) else {
            return Ok(());
        };
        if record.tally.entries_failed > 0 {
            held.stays.push("nothing was deleted, as something failed".to_owned());
            return Ok(());
        }
        self.check_sink(&record)?;
        if let Some(most) = deletion.most
            && self.run_deletion(keeper, &deletion, true, held).await? > most
        {
            let detail = "more entries are to be deleted than --max-delete allows: they stay".to_owned();
            let path = self.leg.sink.as_bytes().into();
            held.record_failure(&EntryFailure { path, kind: FailureKind::WriteError, detail });
        }
        if !held.has_failures() {
            self.run_deletion(keeper, &deletion, false, held).await?;
        }
        // Another try would count removed entries against the limit again, and lose their number.
        if deletion.most.is_some() || deletion.most_percent.is_some() || held.deleted > 0 {
            held.make_failures_final();
        }
        Ok(())
    }

    /// Refuses a deletion on a mover that sees another storage than the other movers of its site.
    fn check_sink(&self, record: &TransferRecord) -> Result<(), UndoneDeletion> {
        let site = &record.submission.destination.site;
        let sinks = self.mover.movers.recently_ready_mover_ids(site, &self.leg.sink);
        if sinks.contains(&self.pair.sink) {
            return Ok(());
        }
        let reason = "it is ill, or does not see the storage that others of its site see";
        Err(UndoneDeletion::Fault(PairFault::at_sink(MoverFaultKind::Passing, reason)))
    }

    /// Runs a session; returns the number of entries that a dry run would remove.
    async fn run_deletion(
        self: &Arc<Self>,
        keeper: &Arc<AckExtender>,
        deletion: &DeletionRules,
        is_dry: bool,
        held: &mut HeldChunkDelivery,
    ) -> Result<u64, UndoneDeletion> {
        open_source(&self.mover, &self.leg).await.map_err(UndoneDeletion::Fault)?;
        let transfer = self
            .deletion_of(deletion, is_dry)
            .map_err(|error| UndoneDeletion::Fault(PairFault::passing(error)))?;
        let abort = AbortHandle::new().map_err(|error| UndoneDeletion::Fault(PairFault::passing(error)))?;
        let most = deletion.most.filter(|_| is_dry).unwrap_or(u64::MAX);
        let observer = Arc::new(DeletionObserver::new(Arc::clone(&self.mover.options.say), most, &abort));
        let mut session = tokio::task::spawn_blocking({
            let (work, abort, observer) = (Arc::clone(self), abort.clone(), Arc::clone(&observer));
            move || {
                let name = SessionName::new(&work.pair.transfer);
                let peer = dial(&work.mover, &work.sink, &name)?;
                Ok::<TransferOutcome, String>(copy_with_peer(
                    &transfer,
                    SessionRole::Source,
                    peer,
                    &*observer,
                    &abort,
                ))
            }
        });
        let keeping = tokio::spawn(Arc::clone(keeper).extend_until_aborted(abort.clone()));
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut is_told = false;
        let ended = loop {
            tokio::select! {
                ended = &mut session => break Ok(ended),
                _ = ticks.tick() => {
                    if let Some(fault) = observer.pair.storage_hang() {
                        break Err(UndoneDeletion::Fault(fault));
                    }
                    if self.feed.is_ended() && self.is_left_out() {
                        break Err(UndoneDeletion::Interrupted);
                    }
                    // A paused or cancelled transfer deletes nothing, with or without a manager.
                    if !is_told && self.should_end_now().await {
                        is_told = true;
                        abort.interrupt();
                    }
                }
            }
        };
        keeping.abort();
        let outcome = match ended {
            Ok(Ok(Ok(outcome))) => outcome,
            Ok(Ok(Err(unreached))) => {
                return Err(UndoneDeletion::Fault(PairFault::at_sink(
                    MoverFaultKind::Unreachable,
                    unreached,
                )));
            }
            Ok(Err(panic)) => return Err(UndoneDeletion::Fault(PairFault::passing(panic))),
            Err(undone) => {
                abort.interrupt();
                let is_own = matches!(&undone, UndoneDeletion::Fault(fault) if fault.is_source);
                self.mover.abandon(session, is_own);
                return Err(undone);
            }
        };
        if is_dry && observer.has_too_many() {
            return Ok(observer.going.load(Relaxed));
        }
        match outcome.result {
            Ok(()) => {}
            Err(error) if error.is_interrupted() => return Err(UndoneDeletion::Interrupted),
            Err(error) => return Err(UndoneDeletion::Fault(PairFault::of(&error))),
        }
        observer.pair.take_failures().iter().for_each(|failure| held.record_failure(failure));
        held.deleted += outcome.summary.entries_deleted;
        held.stays = observer.take_stays();
        Ok(observer.going.load(Relaxed))
    }

    /// Returns the session that removes entries, or for a dry run only counts them.
    fn deletion_of(&self, deletion: &DeletionRules, is_dry: bool) -> std::io::Result<TransferRequest> {
        let TransferRequest { spec, mut settings, identity, .. } = self.whole.clone();
        let sync = SyncRules {
            existing: true,
            ignore_existing: true,
            // A dry run with the limit would stop there, and report the rest. Without it, the run counts all.
            deletion: Some(DeletionRules { most: deletion.most.filter(|_| !is_dry), ..deletion.clone() }),
            ..SyncRules::default()
        };
        // The scan has reported the losses.
        settings.fidelity = MetadataFidelity { kept: KeptMetadata::default(), ..settings.fidelity };
        let run = new_run()?;
        Ok(TransferRequest {
            spec: AgreedTransferSpec { sync: Some(sync), dry_run: is_dry, ..spec },
            settings,
            // The ID tells which temporary files and journals are the transfer's.
            identity: identity.map(|identity| TransferIdentity { run, ..identity }),
            ..self.whole.clone()
        })
    }
}
