//! Pulls chunks from NATS, each on the session's demand, and the ends of large files as they come.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use carrack_engine::{ChunkOfEntries, ChunkWorkKind, FILE_COSTS_BYTES, since_boot};
use carrack_model::ByteRange;
use carrack_plan::fleet::{ChunkDeliveryState, ChunkRequestThreshold, ChunkStepResult, QueuedChunkStep};
use futures_util::future::join_all;
use tokio::sync::mpsc;

use super::{AGAIN, MoverPairTaskContext, TakenWorkChunk};
use crate::error::BusError;
use crate::mover::held_chunk::HeldChunkDelivery;
use crate::queue::{QueueDelivery, QueuePuller, WorkItemHeader, WorkItemKind};

/// Time that a pull waits for a message. A pair that is released keeps its session until the answer.
const PULL_WAIT: Duration = Duration::from_secs(1);

impl MoverPairTaskContext {
    /// Updates the threshold with a measurement of the session.
    pub(super) fn update_threshold(&self, learn: impl FnOnce(&mut ChunkRequestThreshold)) {
        let mut threshold = self.threshold();
        learn(&mut threshold);
        self.feed.set_threshold(threshold.bytes());
    }

    pub(super) fn threshold(&self) -> MutexGuard<'_, ChunkRequestThreshold> {
        self.threshold.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Pulls chunks on demand.
    pub(super) async fn get(self: Arc<Self>, taken: mpsc::UnboundedSender<TakenWorkChunk>) {
        let chunks = self.queue.chunks();
        // A session often begins before its first chunk is there, as the scan begins with it.
        let mut some_wait = false;
        while let Some(idle_bytes) = self.feed.wait_for_demand().await {
            let mut deliveries = self.pull(&chunks, some_wait, idle_bytes).await;
            some_wait = deliveries.iter().any(|delivery| delivery.behind > 0);
            // Where chunks are few, the ends of other pairs' files are left.
            if deliveries.is_empty() || deliveries.iter().any(|delivery| is_part(&delivery.head)) {
                self.feed.take_file_ends();
            }
            // The closing chunk must be the last.
            deliveries.sort_by_key(|delivery| delivery.head.kind == WorkItemKind::Close);
            for delivery in deliveries {
                let Some(case) = self.accept_or_leave(&delivery).await else { continue };
                if delivery.head.kind == WorkItemKind::Delete {
                    // In a session of its own; no other work of the transfer is in flight.
                    self.delete(delivery, case).await;
                    continue;
                }
                let head = delivery.head;
                if head.kind == WorkItemKind::Close {
                    self.is_closing.store(true, Relaxed);
                    let Some(chunk) = self.take(delivery, case, &taken) else { return };
                    self.close(head.attempt, chunk.number).await;
                    return;
                }
                self.update_threshold(|threshold| {
                    threshold.record_chunk_size(head.bytes + FILE_COSTS_BYTES * head.entries)
                });
                let Some(chunk) = self.take(delivery, case, &taken) else { return };
                self.feed.add_chunk(chunk);
            }
        }
    }

    /// Pulls the ends of large files, beside the chunks: a file has its name as soon as its last part is
    /// there, however many chunks of other files wait.
    pub(super) async fn get_file_ends(self: Arc<Self>, taken: mpsc::UnboundedSender<TakenWorkChunk>) {
        let ends = self.queue.file_ends();
        while self.feed.wait_for_file_ends().await {
            match ends.next(PULL_WAIT).await {
                Ok(Some(delivery)) => {
                    let Some(case) = self.accept_or_leave(&delivery).await else { continue };
                    let Some(chunk) = self.take(delivery, case, &taken) else { return };
                    self.feed.add_chunk(chunk);
                }
                Ok(None) => {}
                // The transfer is over, or was cancelled.
                Err(BusError::Missing(_)) => return,
                Err(_) => tokio::time::sleep(AGAIN).await,
            }
        }
    }

    /// Informs the task that keeps the books of a delivery, and returns the session's chunk: a settled chunk
    /// is always known there. Returns `None` if the pair has ended.
    fn take(
        &self,
        delivery: QueueDelivery<WorkItemHeader>,
        case: ChunkDeliveryState,
        taken: &mpsc::UnboundedSender<TakenWorkChunk>,
    ) -> Option<ChunkOfEntries> {
        let (number, head, is_again) = (self.next_number(), delivery.head, delivery.is_redelivered());
        let held = HeldChunkDelivery::new(delivery, case);
        let table = held.table().to_vec();
        taken.send(TakenWorkChunk { number, held, at: since_boot() }).ok()?;
        Some(self.chunk(number, &head, is_again, table))
    }

    /// Returns a number for a chunk of this session, each once.
    fn next_number(&self) -> u64 {
        self.chunk_numbers.fetch_add(1, Relaxed)
    }

    /// Returns the case of a chunk that this pair takes; `None` if it is left to others.
    async fn accept_or_leave(&self, delivery: &QueueDelivery<WorkItemHeader>) -> Option<ChunkDeliveryState> {
        if self.feed.is_ended() {
            // The pair was released while it pulled. Others have this chunk at once, not when the pair ends.
            let _ = self.retry_transient(|| delivery.nak(Duration::ZERO)).await;
            return None;
        }
        let mut case = ChunkDeliveryState::new(&self.mover.id, &self.pair.sink, delivery.delivered);
        loop {
            let answer = match case.next() {
                QueuedChunkStep::ReadTried => match self.queue.failed_movers(&delivery.head).await {
                    Ok(tried) => ChunkStepResult::Tried(tried),
                    Err(_) => ChunkStepResult::Failed,
                },
                QueuedChunkStep::TellDoubts(doubts) => self.report_blamed_failures(doubts).await,
                QueuedChunkStep::Leave(time) => match delivery.nak(time).await {
                    Ok(()) => return None,
                    Err(_) => return Some(case.skip_to_carry()),
                },
                _ => return Some(case),
            };
            case.apply_step_result(answer, &self.available_movers());
        }
    }

    /// Pulls the chunks that are there at once, if some are known to wait; else the next one that comes.
    async fn pull(
        &self,
        chunks: &QueuePuller<WorkItemHeader>,
        some_wait: bool,
        idle_bytes: u64,
    ) -> Vec<QueueDelivery<WorkItemHeader>> {
        let (began, count) = (Instant::now(), self.threshold().chunks_at_once(idle_bytes));
        let waiting = if some_wait { pull_available(chunks, count).await } else { Ok(Vec::new()) };
        let pulled = match waiting {
            Ok(deliveries) if !deliveries.is_empty() => {
                self.update_threshold(|threshold| threshold.record_round_trip(began.elapsed()));
                return deliveries;
            }
            Ok(_) => chunks.next(PULL_WAIT).await,
            Err(error) => Err(error),
        };
        match pulled {
            Ok(delivery) => delivery.into_iter().collect(),
            // The transfer is over, or was cancelled.
            Err(BusError::Missing(_)) => {
                self.feed.end();
                Vec::new()
            }
            Err(_) => {
                tokio::time::sleep(AGAIN).await;
                Vec::new()
            }
        }
    }

    fn chunk(&self, number: u64, head: &WorkItemHeader, is_again: bool, table: Vec<u8>) -> ChunkOfEntries {
        let work = match head.kind {
            WorkItemKind::Files => ChunkWorkKind::Files,
            WorkItemKind::Part(part) => ChunkWorkKind::Part(ByteRange::new(part.offset, part.len)),
            WorkItemKind::Finish { .. } => ChunkWorkKind::Finish,
            WorkItemKind::Discard { .. } => ChunkWorkKind::Discard,
            // A deletion is no chunk of this session.
            WorkItemKind::Delete | WorkItemKind::Close => ChunkWorkKind::Close,
        };
        let source_name = self.leg.only.as_ref().map(|(name, _)| name.clone().into_bytes());
        // An earlier, failed transfer of the same source and destination has left journals.
        let is_repeated = is_again || head.attempt > 1 || self.resumes;
        ChunkOfEntries { number, work, is_repeated, table, source_name }
    }

    /// Gives the session the directories, as the scan has stored them, and the end. A transfer with failures
    /// keeps its journals, so that it resumes if it is submitted again.
    async fn close(&self, attempt: u32, number: u64) {
        let mut pages = self.queue.dirs(attempt);
        loop {
            let tables = match pages.next().await {
                Ok(Some(tables)) => tables,
                Ok(None) => break,
                Err(_) if self.feed.is_ended() => return,
                Err(_) => {
                    tokio::time::sleep(AGAIN).await;
                    continue;
                }
            };
            for table in tables {
                let number = self.next_number();
                let work = ChunkWorkKind::Files;
                self.feed.add_chunk(ChunkOfEntries {
                    number,
                    work,
                    is_repeated: false,
                    table,
                    source_name: None,
                });
                if self.feed.wait_for_demand().await.is_none() {
                    return;
                }
            }
        }
        let has_failures = match self.mover.transfers.get(&self.pair.transfer).await {
            Ok(record) => record.tally.entries_failed > 0,
            Err(_) => true,
        };
        let work = if has_failures { ChunkWorkKind::Files } else { ChunkWorkKind::Close };
        self.feed.add_chunk(ChunkOfEntries {
            number,
            work,
            is_repeated: false,
            table: Vec::new(),
            source_name: None,
        });
        if self.feed.wait_for_demand().await.is_some() {
            self.feed.end();
        }
    }
}

fn is_part(head: &WorkItemHeader) -> bool {
    matches!(head.kind, WorkItemKind::Part(_))
}

/// Pulls up to `count` messages that are available at once.
async fn pull_available(
    chunks: &QueuePuller<WorkItemHeader>,
    count: u64,
) -> Result<Vec<QueueDelivery<WorkItemHeader>>, BusError> {
    let mut deliveries = Vec::new();
    let mut failed = None;
    for pulled in join_all((0..count).map(|_| chunks.next(Duration::ZERO))).await {
        match pulled {
            Ok(delivery) => deliveries.extend(delivery),
            Err(error) => failed = Some(error),
        }
    }
    match failed {
        Some(error) if deliveries.is_empty() => Err(error),
        _ => Ok(deliveries),
    }
}
