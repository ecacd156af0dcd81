//! A running mover: its pairs and scans follow the pairs' bucket.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use carrack_plan::fleet::{AssignedMoverPair, MoverPairId, MoverPairReconciler, MoverReconcilerAction};
use futures_util::StreamExt;
use tokio::sync::{OnceCell, watch};
use tokio::task::JoinSet;

use super::pair::MoverPairOutcome;
use super::{AGAIN_AFTER, MoverContext, MoverError, clock_skew, look, pair, scan, site_mark};
use crate::error::BusError;
use crate::mover_requests::serve_requests;
use crate::pairs::{MoverPairKey, MoverPairRecord, PairAssignmentStore, PairFilter, PairRecordChange};
use crate::startup_retry::retry_at_startup;
use crate::transfer_records::{MoverAvailability, TransferRecord};

/// Time limit for the pairs in which it writes to end when it drains; later they are cut off.
const OTHERS_LEAVE_WITHIN: Duration = Duration::from_secs(120);

/// The signal for a task to end.
type Stop = watch::Sender<bool>;

/// A transfer's record, read once for the tasks that share it.
type CachedTransferRecord = Arc<OnceCell<TransferRecord>>;

/// The result of a task: a pair's ID, or `None` for a transfer's scans.
type FinishedTask = Option<MoverPairId>;

/// The tasks of a mover's pairs and scans.
#[derive(Default)]
struct MoverTasks {
    set: MoverPairReconciler,
    pairs: HashMap<MoverPairId, Stop>,
    scans: HashMap<String, Stop>,
    tasks: JoinSet<FinishedTask>,
}

pub(super) async fn run(
    mover: Arc<MoverContext>,
    mut drain: watch::Receiver<bool>,
) -> Result<(), MoverError> {
    let asked = Arc::clone(&mover);
    let _asks =
        serve_requests(&mover.bus, &mover.id, move |ask| look::answer(Arc::clone(&asked), ask)).await?;
    let marks = tokio::spawn(site_mark::watch(Arc::clone(&mover)));
    let clock = tokio::spawn(clock_skew::watch(Arc::clone(&mover)));
    // A manager that has just begun may not have made the bucket yet.
    let begun = retry_at_startup(&mover.options.say, BusError::is_transient, || async {
        PairAssignmentStore::open(&mover.bus).await?.watch(PairFilter::Mover(&mover.id)).await
    });
    let mut changes = Box::pin(begun.await?);
    let mut running = MoverTasks::default();
    loop {
        tokio::select! {
            Some(change) = changes.next() => running.apply_pair_change(&mover, change),
            Some(ended) = running.tasks.join_next() => running.handle_finished_task(&mover, ended.ok().flatten()),
            changed = drain.changed() => {
                if changed.is_err() || *drain.borrow() {
                    break;
                }
            }
        }
    }
    mover.registration.update(|record| record.state = MoverAvailability::Draining);
    mover.notify_user("draining: its chunks are finished, no new work is accepted".to_owned());
    let acts = running.set.drain();
    running.carry_out(&mover, acts);
    while running.tasks.join_next().await.is_some() {}
    let others_leave = async {
        while mover.writing.load(std::sync::atomic::Ordering::Relaxed) > 0 {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let _ = tokio::time::timeout(OTHERS_LEAVE_WITHIN, others_leave).await;
    marks.abort();
    clock.abort();
    mover.registration.retire().await;
    mover.bus.close().await;
    Ok(())
}

impl MoverTasks {
    fn apply_pair_change(&mut self, mover: &Arc<MoverContext>, change: PairRecordChange) {
        let acts = match change {
            PairRecordChange::All(all) => {
                self.set.set_wanted_pairs(all.into_iter().map(AssignedMoverPair::from).collect())
            }
            PairRecordChange::Put(pair) => self.set.put(pair.into()),
            PairRecordChange::Gone(key) => self.set.remove_wanted(&(key.transfer, key.number)),
        };
        self.carry_out(mover, acts);
    }

    fn handle_finished_task(&mut self, mover: &Arc<MoverContext>, ended: FinishedTask) {
        let Some(id) = ended else { return };
        self.pairs.remove(&id);
        let acts = self.set.record_ended(&id);
        self.carry_out(mover, acts);
    }

    fn carry_out(&mut self, mover: &Arc<MoverContext>, acts: Vec<MoverReconcilerAction>) {
        // Tasks that begin together read their transfer's record once.
        let mut records: HashMap<String, CachedTransferRecord> = HashMap::new();
        for act in acts {
            match act {
                MoverReconcilerAction::Begin(pair) => {
                    let record = Arc::clone(records.entry(pair.transfer.clone()).or_default());
                    self.begin(mover, pair, record);
                }
                MoverReconcilerAction::BeginScans(transfer) => {
                    let record = Arc::clone(records.entry(transfer.clone()).or_default());
                    self.begin_scans(mover, transfer, record);
                }
                MoverReconcilerAction::Stop(id) => send_stop(self.pairs.get(&id)),
                MoverReconcilerAction::StopScans(transfer) => {
                    send_stop(self.scans.remove(&transfer).as_ref())
                }
            }
        }
    }

    fn begin(&mut self, mover: &Arc<MoverContext>, pair: AssignedMoverPair, record: CachedTransferRecord) {
        let id = (pair.transfer.clone(), pair.number);
        let (stop, stopped) = watch::channel(false);
        self.pairs.insert(id.clone(), stop);
        let mover = Arc::clone(mover);
        self.tasks.spawn(async move {
            run_pair_sessions(mover, pair.into(), record, stopped).await;
            Some(id)
        });
    }

    fn begin_scans(&mut self, mover: &Arc<MoverContext>, transfer: String, record: CachedTransferRecord) {
        let (stop, stopped) = watch::channel(false);
        self.scans.insert(transfer.clone(), stop);
        let mover = Arc::clone(mover);
        self.tasks.spawn(async move {
            if let Some(record) = wait_for_resolved_record(&mover, &transfer, &record, stopped.clone()).await
            {
                scan::run(mover, record.clone(), stopped).await;
            }
            None
        });
    }
}

fn send_stop(stop: Option<&Stop>) {
    if let Some(stop) = stop {
        let _ = stop.send(true);
    }
}

/// Returns the transfer's record once it has source and destination directories.
async fn wait_for_resolved_record<'a>(
    mover: &MoverContext,
    transfer: &str,
    shared: &'a OnceCell<TransferRecord>,
    mut stop: watch::Receiver<bool>,
) -> Option<&'a TransferRecord> {
    let read = async || match mover.transfers.get(transfer).await {
        Ok(record) if record.leg.is_some() => Ok(record),
        _ => Err(()),
    };
    loop {
        if *stop.borrow() {
            return None;
        }
        if let Ok(record) = shared.get_or_try_init(&read).await {
            return Some(record);
        }
        tokio::select! {
            () = tokio::time::sleep(AGAIN_AFTER) => {}
            _ = stop.changed() => return None,
        }
    }
}

/// Runs a pair's sessions as long as the pair exists.
async fn run_pair_sessions(
    mover: Arc<MoverContext>,
    pair: MoverPairRecord,
    record: CachedTransferRecord,
    mut stop: watch::Receiver<bool>,
) {
    let Some(record) = wait_for_resolved_record(&mover, &pair.transfer, &record, stop.clone()).await else {
        return;
    };
    while !*stop.borrow() {
        let counted = Arc::clone(&mover);
        let _sending = counted.count_reading_session();
        let end = pair::run(Arc::clone(&mover), pair.clone(), record, stop.clone()).await;
        mover.remove_pair_rate(&MoverPairKey::of(&pair));
        let reason = match end {
            // The transfer is closed, or has no work left: the manager decides what follows.
            MoverPairOutcome::Well => None,
            MoverPairOutcome::Failed(fault) => {
                mover.report_fault(&pair.transfer, &pair.sink, &fault).await;
                Some(fault.reason)
            }
        };
        if let Some(reason) = reason {
            mover.notify_user(format!("transfer {}, with {}: {reason}", pair.transfer, pair.sink));
        }
        tokio::select! {
            () = tokio::time::sleep(AGAIN_AFTER) => {}
            _ = stop.changed() => return,
        }
    }
}
