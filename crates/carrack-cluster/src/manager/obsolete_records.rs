//! Removes obsolete data: old finished transfers, and work, logs and pairs of transfers that are over or
//! unknown. Also restores the order of submission. Every manager does it; two at the same time do no harm.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt};

use crate::bus::NatsBus;
use crate::destination_leftovers::{ClearedLeftovers, clear_surveyed_leftovers};
use crate::error::BusError;
use crate::log::FleetTransferLog;
use crate::manager::ManagerOptions;
use crate::pairs::{PairAssignmentStore, PairFilter};
use crate::queue::TransferWorkStream;
use crate::transfer_records::now_ms;
use crate::transfers::{TransferCleanupFacts, TransferStore};
use crate::unique_ids::is_prefix;

/// Interval of sweeps for a long history; a tenth of the retention for a short one.
const EVERY: Duration = Duration::from_secs(600);
const EVERY_AT_LEAST: Duration = Duration::from_secs(2);

/// Time after which even a slow process no longer adds to the work of a finished transfer.
const LATE: Duration = Duration::from_secs(120);

/// The result of a sweep.
struct SweepResult {
    /// Removed leftovers of unfinished transfers.
    cleared: Vec<ClearedLeftovers>,
    /// Number of removed transfers.
    forgotten: usize,
}

/// A periodic sweep.
pub(super) struct ObsoleteRecordSweeper {
    bus: NatsBus,
    transfers: TransferStore,
    pairs: PairAssignmentStore,
    keep_history: Duration,
    keep_leftovers: Duration,
    /// Obsolete IDs of the last sweep. A replica of a bucket may lag, so that data must be obsolete twice.
    suspects: HashSet<String>,
}

impl ObsoleteRecordSweeper {
    pub fn new(
        bus: &NatsBus,
        transfers: &TransferStore,
        pairs: &PairAssignmentStore,
        options: &ManagerOptions,
    ) -> ObsoleteRecordSweeper {
        let (bus, transfers, pairs) = (bus.clone(), transfers.clone(), pairs.clone());
        let &ManagerOptions { keep_history, keep_leftovers, .. } = options;
        ObsoleteRecordSweeper {
            bus,
            transfers,
            pairs,
            keep_history,
            keep_leftovers,
            suspects: HashSet::new(),
        }
    }

    /// Sweeps periodically, for ever.
    pub async fn run(mut self, say: impl Fn(String)) {
        let shortest = self.keep_history.min(self.keep_leftovers);
        let mut clock = tokio::time::interval((shortest / 10).clamp(EVERY_AT_LEAST, EVERY));
        let mut stays: HashSet<String> = HashSet::new();
        loop {
            clock.tick().await;
            let SweepResult { cleared, forgotten } = match self.sweep().await {
                Ok(swept) => swept,
                // A later sweep will do.
                Err(error) => {
                    say(format!("removing what is old: {error}"));
                    continue;
                }
            };
            if forgotten > 0 {
                say(format!("{forgotten} old transfers are forgotten"));
            }
            // The reason for a failed removal is reported once, and not with each attempt.
            for cleared in &cleared {
                if cleared.removed.is_ok() || !stays.contains(&cleared.transfer) {
                    say(cleared.to_string());
                }
            }
            let left = cleared.into_iter().filter(|cleared| cleared.removed.is_err());
            stays = left.map(|cleared| cleared.transfer).collect();
        }
    }

    async fn sweep(&mut self) -> Result<SweepResult, BusError> {
        // In this order: a new transfer has a record before it has work.
        let with_work = self.transfers_with_data().await?;
        let placed = self.transfers.submission_order_ids().await?;
        let known = self.transfers.summarize_all().await?;
        let needless =
            with_work.iter().filter(|id| known.get(*id).is_none_or(|brief| is_over_for(brief, LATE)));
        let unknown = placed.iter().filter(|id| !known.contains_key(*id));
        let suspects: HashSet<String> = needless.chain(unknown).cloned().collect();
        for id in suspects.intersection(&self.suspects) {
            self.remove_transfer_data(id).await?;
            if !known.contains_key(id) && placed.contains(id) {
                self.transfers.remove_from_order(id).await?;
            }
        }
        self.suspects = suspects;
        self.add_missing_to_order(&known, &placed).await?;
        let cleared =
            clear_surveyed_leftovers(&self.bus, &self.transfers, &known, self.keep_leftovers).await?;
        let mut forgotten = 0;
        for (id, brief) in &known {
            if is_over_for(brief, self.keep_history) {
                self.remove_transfer_data(id).await?;
                self.transfers.forget(id).await?;
                forgotten += 1;
            }
        }
        Ok(SweepResult { cleared, forgotten })
    }

    /// Adds transfers to the order of submission that are missing from it: submitted before the order
    /// existed, or lost.
    async fn add_missing_to_order(
        &self,
        known: &HashMap<String, Option<TransferCleanupFacts>>,
        placed: &HashSet<String>,
    ) -> Result<(), BusError> {
        let lacking = known.iter().filter(|(id, _)| !placed.contains(*id));
        let lacking = lacking.filter_map(|(id, brief)| Some((brief.as_ref()?.submitted_ms, id.clone())));
        let mut lacking: Vec<(u64, String)> = lacking.collect();
        lacking.sort();
        for (submitted_ms, id) in lacking {
            self.transfers.add_to_order(&id, submitted_ms).await?;
        }
        Ok(())
    }

    async fn remove_transfer_data(&self, id: &str) -> Result<(), BusError> {
        self.pairs.remove_all(id).await?;
        TransferWorkStream::open(&self.bus, id).await?.remove().await?;
        FleetTransferLog::open(&self.bus, id)?.remove().await
    }

    /// Returns the transfers with data in the streams, or in the pairs' bucket.
    async fn transfers_with_data(&self) -> Result<HashSet<String>, BusError> {
        let names = self.bus.names();
        let (work, log) = (names.work_stream(), names.log_stream());
        let mut found: HashSet<String> = HashSet::new();
        // Large files have many subjects, and never without a scan's subject.
        for (stream, filter, prefix) in [
            (&work, names.work_subjects_ending("scan"), names.work_prefix()),
            (&work, names.work_subjects_ending("chunk.*"), names.work_prefix()),
            (&work, names.work_subjects_ending("dirs"), names.work_prefix()),
            (&log, names.log_subject("*"), names.log_subject("")),
        ] {
            found.extend(self.transfer_ids_in_subjects(stream, &filter, &prefix).await?);
        }
        let stream = self.bus.context().get_stream_no_info(&work).await;
        let stream = stream.map_err(|error| BusError::refused(&work, &error))?;
        let consumers: Vec<String> = stream
            .consumer_names()
            .try_collect()
            .await
            .map_err(|error| BusError::no_answer(&work, &error))?;
        found.extend(consumers.iter().filter_map(|name| Some(name.split_once('_')?.0.to_owned())));
        found.extend(self.pairs.list(PairFilter::Everybody).await?.into_iter().map(|pair| pair.transfer));
        // Foreign data is not carrack's to remove.
        found.retain(|id| is_prefix(id) && id.len() == 16);
        Ok(found)
    }

    async fn transfer_ids_in_subjects(
        &self,
        stream: &str,
        filter: &str,
        prefix: &str,
    ) -> Result<Vec<String>, BusError> {
        let there = self.bus.context().get_stream_no_info(stream).await;
        let there = there.map_err(|error| self.bus.no_answer_error(stream, &error))?;
        let subjects = there.info_with_subjects(filter).await;
        let mut subjects = subjects.map_err(|error| self.bus.no_answer_error(stream, &error))?;
        let mut ids = Vec::new();
        while let Some(subject) = subjects.next().await {
            let (subject, _) = subject.map_err(|error| self.bus.no_answer_error(stream, &error))?;
            let rest = subject.strip_prefix(prefix).unwrap_or_default();
            ids.push(rest.split('.').next().unwrap_or_default().to_owned());
        }
        Ok(ids)
    }
}

/// Returns true if a transfer ended more than `time` ago.
fn is_over_for(brief: &Option<TransferCleanupFacts>, time: Duration) -> bool {
    let ended_ms = brief.as_ref().and_then(|brief| brief.ended_ms);
    ended_ms.is_some_and(|ended_ms| Duration::from_millis(now_ms().saturating_sub(ended_ms)) > time)
}
