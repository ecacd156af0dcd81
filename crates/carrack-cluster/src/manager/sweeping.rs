//! Removes what nobody needs any more: transfers that were over long ago, and work, logs and pairs of transfers that are over or
//! not known. Every manager does it; what two do at the same time is done once.

use std::collections::HashSet;
use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt};

use crate::bus::Bus;
use crate::error::BusError;
use crate::ids::is_prefix;
use crate::log::Log;
use crate::pairs::{Pairs, Whose};
use crate::queue::Queue;
use crate::records::{TransferRecord, now_ms};
use crate::transfers::Transfers;

/// How often it is looked, if history is kept for long; a tenth of that time if it is not.
const EVERY: Duration = Duration::from_secs(600);
const EVERY_AT_LEAST: Duration = Duration::from_secs(2);

/// After this nobody who was slow adds to the work of a transfer that is over.
const LATE: Duration = Duration::from_secs(120);

/// One who sweeps.
pub(super) struct Sweeper {
    bus: Bus,
    transfers: Transfers,
    pairs: Pairs,
    keep_history: Duration,
    /// What was not needed the last time. A copy of a bucket may be behind: what is not needed twice is not.
    suspects: HashSet<String>,
}

impl Sweeper {
    pub fn new(bus: &Bus, transfers: &Transfers, pairs: &Pairs, keep_history: Duration) -> Sweeper {
        let (bus, transfers, pairs) = (bus.clone(), transfers.clone(), pairs.clone());
        Sweeper { bus, transfers, pairs, keep_history, suspects: HashSet::new() }
    }

    /// Sweeps now and then, for ever.
    pub async fn run(mut self, say: impl Fn(String)) {
        let mut clock = tokio::time::interval((self.keep_history / 10).clamp(EVERY_AT_LEAST, EVERY));
        loop {
            clock.tick().await;
            match self.sweep().await {
                Ok(0) => {}
                Ok(count) => say(format!("{count} old transfers are forgotten")),
                // The next time will do.
                Err(error) => say(format!("removing what is old: {error}")),
            }
        }
    }

    /// Returns how many transfers were forgotten.
    async fn sweep(&mut self) -> Result<usize, BusError> {
        // In this order: who is new has a record before it has work.
        let with_work = self.with_work().await?;
        let known: HashSet<String> = self.transfers.ids().await?.into_iter().collect();
        let records = self.transfers.all().await?;
        let over_for = |record: &&TransferRecord, time: Duration| {
            let since = record.ended_ms.filter(|_| record.state.is_over());
            since.is_some_and(|ended_ms| Duration::from_millis(now_ms().saturating_sub(ended_ms)) > time)
        };
        let ended: HashSet<&String> =
            records.iter().filter(|record| over_for(record, LATE)).map(|record| &record.id).collect();
        let needless = |id: &&String| !known.contains(*id) || ended.contains(*id);
        let suspects: HashSet<String> = with_work.iter().filter(needless).cloned().collect();
        for id in suspects.intersection(&self.suspects) {
            self.clear(id).await?;
        }
        self.suspects = suspects;
        let mut forgotten = 0;
        for record in records.iter().filter(|record| over_for(record, self.keep_history)) {
            self.clear(&record.id).await?;
            self.transfers.forget(&record.id).await?;
            forgotten += 1;
        }
        Ok(forgotten)
    }

    async fn clear(&self, id: &str) -> Result<(), BusError> {
        self.pairs.remove_all(id).await?;
        Queue::open(&self.bus, id).await?.remove().await?;
        Log::open(&self.bus, id)?.remove().await
    }

    /// The transfers of which something lies in the streams, or in the pairs' bucket.
    async fn with_work(&self) -> Result<HashSet<String>, BusError> {
        let names = self.bus.names();
        let (work, log) = (names.work(), names.log());
        let mut found: HashSet<String> = HashSet::new();
        // Of large files there are many subjects, and never without a scan's.
        for (stream, filter, prefix) in [
            (&work, names.work_of_all("scan"), names.work_prefix()),
            (&work, names.work_of_all("chunk.*"), names.work_prefix()),
            (&work, names.work_of_all("dirs"), names.work_prefix()),
            (&log, names.log_of("*"), names.log_of("")),
        ] {
            found.extend(self.ids_beneath(stream, &filter, &prefix).await?);
        }
        let stream = self.bus.context().get_stream_no_info(&work).await;
        let stream = stream.map_err(|error| BusError::refused(&work, &error))?;
        let consumers: Vec<String> =
            stream.consumer_names().try_collect().await.map_err(|error| BusError::away(&work, &error))?;
        found.extend(consumers.iter().filter_map(|name| Some(name.split_once('_')?.0.to_owned())));
        found.extend(self.pairs.list(Whose::Everybody).await?.into_iter().map(|pair| pair.transfer));
        // Whatever else somebody has put there is not ours to remove.
        found.retain(|id| is_prefix(id) && id.len() == 16);
        Ok(found)
    }

    async fn ids_beneath(&self, stream: &str, filter: &str, prefix: &str) -> Result<Vec<String>, BusError> {
        let away = |error: &dyn std::fmt::Display| self.bus.explain(BusError::away(stream, error));
        let there = self.bus.context().get_stream_no_info(stream).await.map_err(|error| away(&error))?;
        let mut subjects = there.info_with_subjects(filter).await.map_err(|error| away(&error))?;
        let mut ids = Vec::new();
        while let Some(subject) = subjects.next().await {
            let (subject, _) = subject.map_err(|error| away(&error))?;
            let rest = subject.strip_prefix(prefix).unwrap_or_default();
            ids.push(rest.split('.').next().unwrap_or_default().to_owned());
        }
        Ok(ids)
    }
}
