//! The books of a pair: the deliveries that it holds, their settlement by the sink, and the reports about
//! them.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use carrack_engine::TransferOutcome;
use carrack_plan::fleet::{
    AvailableMovers, ChunkDeliveryState, ChunkStepResult, MoverBlamedChunkFailure, MoverFaultKind,
    QueuedChunkStep,
};
use futures_util::future::join_all;

use super::{
    AGAIN, GIVEN_BACK_FOR, MoverPairOutcome, MoverPairTaskContext, PairFault, SessionResources,
    SettledChunkReceiver, TakenWorkChunk,
};
use crate::error::BusError;
use crate::log::TransferLogEntry;
use crate::mover::ack_extender::AckExtender;
use crate::mover::held_chunk::HeldChunkDelivery;
use crate::pairs::MoverPairKey;
use crate::queue::{DeliveryAcker, WorkItemKind};
use crate::reports::{MoverPairReport, report};
use crate::transfer_records::TransferState;

/// The time limit for retrying a request: longer than servers take to elect a leader, and at most the time
/// that a mover without NATS keeps its deliveries.
const TRY_FOR: Duration = Duration::from_secs(20);

impl MoverPairTaskContext {
    /// Decides about a settled chunk: returns it for the log, or `None` if it was left to others.
    pub(super) async fn check_settled_chunk(
        &self,
        keeper: &AckExtender,
        number: u64,
        mut held: HeldChunkDelivery,
    ) -> (u64, Option<HeldChunkDelivery>) {
        held.case.record_settled();
        loop {
            let answer = match held.case.next() {
                QueuedChunkStep::Prove if !self.is_provable => {
                    ChunkStepResult::Doubts(held.blamed_failures())
                }
                QueuedChunkStep::Prove => {
                    let [_, site] = &self.sites;
                    for failure in
                        self.mover.unconfirmed_entries(&held, site, &self.pair.sink, &self.leg.sink).await
                    {
                        held.record_failure(&failure);
                    }
                    ChunkStepResult::Doubts(held.blamed_failures())
                }
                QueuedChunkStep::ReadTried => {
                    match self.retry_transient(|| self.queue.failed_movers(&held.head)).await {
                        Ok(tried) => ChunkStepResult::Tried(tried),
                        Err(_) => ChunkStepResult::Failed,
                    }
                }
                QueuedChunkStep::NoteTried(tried) => to_step_result(
                    self.retry_transient(|| self.queue.store_failed_movers(&held.head, &tried)).await,
                ),
                QueuedChunkStep::TellDoubts(doubts) => self.report_blamed_failures(doubts).await,
                QueuedChunkStep::Leave(time) => {
                    // Without an answer it is redelivered after its ack deadline.
                    if !keeper.may_be_redelivered(number) {
                        let _ = self.retry_transient(|| held.acker.nak(time)).await;
                    }
                    return (number, None);
                }
                QueuedChunkStep::Carry
                | QueuedChunkStep::Log
                | QueuedChunkStep::Acknowledge
                | QueuedChunkStep::Over => {
                    return (number, Some(held));
                }
            };
            held.case.apply_step_result(answer, &self.available_movers());
        }
    }

    /// Logs the result of a chunk, and acknowledges it.
    pub(super) async fn log_and_acknowledge(
        &self,
        case: &mut ChunkDeliveryState,
        entry: &TransferLogEntry,
        acker: &DeliveryAcker,
    ) {
        loop {
            let done = match case.next() {
                QueuedChunkStep::Log => self.retry_transient(|| self.log.append(entry)).await.map(|_| ()),
                QueuedChunkStep::Acknowledge => self.retry_transient(|| acker.ack()).await,
                _ => return,
            };
            if let Err(error) = &done {
                self.mover.notify_user(format!("transfer {}: {error}", self.pair.transfer));
            }
            case.apply_step_result(to_step_result(done), &AvailableMovers::default());
        }
    }

    /// Reports to the manager which of the pair's movers may have caused a chunk's failures.
    pub(super) async fn report_blamed_failures(
        &self,
        doubts: Vec<MoverBlamedChunkFailure>,
    ) -> ChunkStepResult {
        for MoverBlamedChunkFailure { is_source, reason } in doubts {
            let fault = PairFault { is_source, kind: MoverFaultKind::Doubted, reason };
            self.mover.report_fault(&self.pair.transfer, &self.pair.sink, &fault).await;
        }
        ChunkStepResult::Done
    }

    /// Returns the movers that can read, and those that can write, for this transfer.
    pub(super) fn available_movers(&self) -> AvailableMovers {
        let ([source, sink], movers) = (&self.sites, &self.mover.movers);
        AvailableMovers {
            sources: movers.recently_ready_mover_ids(source, &self.leg.source),
            sinks: movers.recently_ready_mover_ids(sink, &self.leg.sink),
        }
    }

    /// Retries a request that may work later, unless the transfer is over and its queue and log are gone.
    pub(super) async fn retry_transient<T, F>(&self, mut tried: impl FnMut() -> F) -> Result<T, BusError>
    where
        F: Future<Output = Result<T, BusError>>,
    {
        let began = Instant::now();
        loop {
            match tried().await {
                Err(error)
                    if error.is_transient()
                        && began.elapsed() < TRY_FOR
                        && !self.is_in_state(TransferState::is_over).await => {}
                answer => return answer,
            }
            tokio::time::sleep(AGAIN).await;
        }
    }
}

fn to_step_result(done: Result<(), BusError>) -> ChunkStepResult {
    if done.is_ok() { ChunkStepResult::Done } else { ChunkStepResult::Failed }
}

/// The state of the task that keeps the books.
pub(super) struct PairHeldDeliveries {
    work: Arc<MoverPairTaskContext>,
    held: HashMap<u64, HeldChunkDelivery>,
    keeper: Arc<AckExtender>,
    /// The transfer's last chunk, after the sink has settled it: it counts when the session has ended without
    /// an error.
    closing: Option<u64>,
    /// True once the pair was told to end.
    pub(super) was_told: bool,
    /// Moved bytes that are in the log.
    told_bytes: u64,
    /// The number of reported losses.
    losses_told: u64,
    /// Time and bytes of the last report.
    reported: (Instant, u64),
}

impl PairHeldDeliveries {
    pub(super) fn new(work: Arc<MoverPairTaskContext>, keeper: Arc<AckExtender>) -> PairHeldDeliveries {
        let now = Instant::now();
        PairHeldDeliveries {
            work,
            held: HashMap::new(),
            keeper,
            closing: None,
            was_told: false,
            told_bytes: 0,
            losses_told: 0,
            reported: (now, 0),
        }
    }

    pub(super) fn add_taken_chunk(&mut self, TakenWorkChunk { number, held, at }: TakenWorkChunk) {
        self.keeper.add_delivery(number, held.acker.clone(), at);
        self.held.insert(number, held);
    }

    /// Assigns failures to the chunks with their entries, and failures at the end to the closing chunk.
    fn assign_failures(&mut self, last: Option<u64>) {
        for failure in self.work.observer.take_failures() {
            let mut owners = matching_chunks(&self.held, &failure.path);
            if owners.is_empty() {
                let close = self.held.iter().find(|(_, held)| held.head.kind == WorkItemKind::Close);
                let last = last.filter(|number| self.held.contains_key(number));
                owners.extend(last.or(close.map(|(number, _)| *number)));
            }
            for number in owners {
                self.held.entry(number).and_modify(|held| held.record_failure(&failure));
            }
        }
    }

    /// Returns true if chunks are in flight.
    pub(super) fn has_chunks(&self) -> bool {
        !self.held.is_empty()
    }

    /// Logs losses, before the chunk that they belong to.
    async fn log_losses(&mut self) {
        let losses = self.work.observer.take_losses();
        if losses.is_empty() {
            return;
        }
        let (by, of) = (self.work.mover.id.clone(), self.work.name.session.clone());
        let entry = TransferLogEntry::Lost { by, of, number: self.losses_told, losses };
        self.losses_told += 1;
        if let Err(error) = self.work.retry_transient(|| self.work.log.append(&entry)).await {
            self.work.mover.notify_user(format!("transfer {}: {error}", self.work.pair.transfer));
        }
    }

    /// Handles a chunk that the sink has settled, and those settled since. They are logged together, as each
    /// append takes time.
    pub(super) async fn handle_settled_chunks(&mut self, number: u64, settling: &mut SettledChunkReceiver) {
        let mut settled = Vec::new();
        let mut next = Some(number);
        while let Some(number) = next {
            self.assign_failures(Some(number));
            if self.held.get(&number).is_some_and(|held| held.head.kind == WorkItemKind::Close) {
                self.closing = Some(number);
            } else if let Some(held) = self.held.remove(&number) {
                settled.push((number, held));
            }
            next = settling.try_recv().ok();
        }
        self.log_losses().await;
        let work = Arc::clone(&self.work);
        let keeper = Arc::clone(&self.keeper);
        let judged =
            settled.into_iter().map(|(number, held)| work.check_settled_chunk(&keeper, number, held));
        let judged = join_all(judged).await;
        let numbers: Vec<u64> = judged.iter().map(|(number, _)| *number).collect();
        let done: Vec<_> =
            judged.into_iter().filter_map(|(_, held)| Some(self.make_log_entry(held?))).collect();
        join_all(done.into_iter().map(|(mut case, entry, acker)| {
            let work = &work;
            async move { work.log_and_acknowledge(&mut case, &entry, &acker).await }
        }))
        .await;
        numbers.iter().for_each(|number| self.keeper.remove_delivery(*number));
    }

    /// Returns the log entry of a delivery, and its acknowledgement.
    fn make_log_entry(
        &mut self,
        mut held: HeldChunkDelivery,
    ) -> (ChunkDeliveryState, TransferLogEntry, DeliveryAcker) {
        let moved = self.work.observer.bytes_moved.load(Relaxed);
        let untold = moved.saturating_sub(self.told_bytes);
        let movers = [&*self.work.mover.id, &*self.work.pair.sink];
        let entry = held.take_log_entry(movers, untold, &self.work.name.session, moved);
        if held.logs_moved_bytes() {
            self.told_bytes = moved;
        }
        (held.case, entry, held.acker)
    }

    /// Logs moved bytes that belong to no chunk's entry, unless the transfer is over and its log may be gone.
    async fn log_remaining_bytes(&mut self) {
        let moved = self.work.observer.bytes_moved.load(Relaxed);
        let bytes = moved.saturating_sub(std::mem::replace(&mut self.told_bytes, moved));
        if bytes == 0 {
            return;
        }
        let record = self.work.mover.transfers.get(&self.work.pair.transfer).await;
        if record.is_ok_and(|record| !record.state.is_over()) {
            // It is for people only.
            let (by, session) = (self.work.mover.id.clone(), self.work.name.session.clone());
            let entry = TransferLogEntry::Moved { by, bytes, session, session_bytes: moved };
            let _ = self.work.log.append(&entry).await;
        }
    }

    pub(super) async fn send_report(&mut self) {
        let work = &self.work;
        let (then, before) = self.reported;
        let bytes_moved = work.observer.bytes_moved.load(Relaxed);
        let elapsed = then.elapsed().as_secs_f64().max(0.001);
        let bytes_per_s = (bytes_moved.saturating_sub(before) as f64 / elapsed) as u64;
        self.reported = (Instant::now(), bytes_moved);
        if bytes_per_s > 0 {
            work.update_threshold(|threshold| threshold.record_read_rate(bytes_per_s));
        }
        let SessionResources { transport, readers, streams } = *work.observer.resources();
        let report_now = MoverPairReport {
            sink: work.pair.sink.clone(),
            bytes_moved,
            bytes_per_s,
            chunks_held: self.held.len() as u32,
            threshold_bytes: work.threshold().bytes(),
            waits_at: work.observer.waiting_side(),
            transport: transport.to_owned(),
            readers,
            streams,
            ..MoverPairReport::new(&work.mover.id, work.pair.number)
        };
        // The next report comes soon.
        let _ = report(&work.mover.bus, &work.pair.transfer, &report_now).await;
        work.mover.set_pair_rate(MoverPairKey::of(&work.pair), bytes_per_s);
    }

    /// Handles the end of the session.
    pub(super) async fn handle_session_end(mut self, outcome: TransferOutcome) -> MoverPairOutcome {
        self.work.observer.bytes_moved.fetch_max(outcome.summary.bytes_done, Relaxed);
        self.assign_failures(None);
        self.log_losses().await;
        self.log_remaining_bytes().await;
        match outcome.result {
            Ok(()) => {
                if let Some(mut held) = self.closing.and_then(|number| self.held.remove(&number)) {
                    held.case.record_session_closed();
                    let (mut case, entry, acker) = self.make_log_entry(held);
                    self.work.log_and_acknowledge(&mut case, &entry, &acker).await;
                }
                // Chunks that the session has not taken.
                self.give_back(Duration::ZERO).await;
                MoverPairOutcome::Well
            }
            Err(error) => {
                if self.was_told && error.is_interrupted() {
                    self.give_back(Duration::ZERO).await;
                    return MoverPairOutcome::Well;
                }
                if error.should_retry_over_tcp() {
                    self.work.mover.known_paths.record_broken_fabric(&self.work.sink.host);
                }
                self.give_back(GIVEN_BACK_FOR).await;
                PairFault::of(&error).into()
            }
        }
    }

    /// Returns all chunks to the queue: at once, or after a failure with a delay, as the next mover may fail
    /// too.
    pub(super) async fn give_back(&mut self, delay: Duration) {
        let all = self.held.drain();
        let held = all.filter(|(number, _)| !self.keeper.may_be_redelivered(*number)).map(|(_, held)| held);
        let held: Vec<HeldChunkDelivery> = held.collect();
        // Without an answer they are redelivered after their ack deadline.
        let work = &self.work;
        join_all(held.iter().map(|held| work.retry_transient(|| held.acker.nak(delay)))).await;
    }
}

/// Returns the chunks that a failure may belong to: those that match most of its path. For a large file these
/// are all held parts, as the failed one is unknown. Bytes of the other parts don't travel again.
fn matching_chunks(held: &HashMap<u64, HeldChunkDelivery>, path: &[u8]) -> Vec<u64> {
    let known: Vec<(u64, usize)> =
        held.iter().filter_map(|(number, held)| Some((*number, held.matching_suffix_len(path)?))).collect();
    let most = known.iter().map(|(_, known)| *known).max();
    known.into_iter().filter(|(_, known)| Some(*known) == most).map(|(number, _)| number).collect()
}
