//! Leftovers of unfinished transfers at their destinations: journals and temporary files. They are kept for a
//! while, as the same transfer resumes with them when it is submitted again; then a mover of the site removes
//! them.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::time::Duration;

use carrack_model::{TransferId, text_without_errno};

use crate::bus::NatsBus;
use crate::error::BusError;
use crate::mover::journal_id;
use crate::mover_requests::{MoverReply, MoverRequest, MoverRequestError, send_mover_request};
use crate::registry::{MoverTable, ready_mover_ids};
use crate::transfer_records::{MoverRecord, ResolvedTransferPaths, TransferRecord, TransferState, now_ms};
use crate::transfers::{FindError, TransferCleanupFacts, TransferStore};

/// Timeout of a removal. After a minute a mover may not answer any more (`docs/examples/nats`).
const CLEAR_WITHIN: Duration = Duration::from_secs(50);

/// The default retention of leftovers.
pub const LEFTOVERS_KEPT: Duration = Duration::from_secs(7 * 24 * 3600);

/// The minimum retention: a session that was ended or cut off has certainly ended by then.
pub const LEFTOVERS_KEPT_MIN: Duration = Duration::from_secs(120);

/// The result of clearing the leftovers of one transfer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClearedLeftovers {
    /// The transfer's ID.
    pub transfer: String,
    /// Their directory: `SITE:/directory`.
    pub place: String,
    /// Numbers of removed journals and temporary files, or the reason why some remain.
    pub removed: Result<(u64, u64), String>,
}

impl fmt::Display for ClearedLeftovers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ClearedLeftovers { transfer, place, removed } = self;
        match removed {
            Ok((journals, temporaries)) => {
                let what = format!("{journals} journals and {temporaries} temporary files removed");
                write!(f, "transfer {transfer}: {place}: {what}")
            }
            Err(reason) => write!(f, "transfer {transfer}: {place}: what it left stays: {reason}"),
        }
    }
}

/// Returns true if a transfer may have leftovers.
pub(crate) fn has_leftovers(record: &TransferRecord) -> bool {
    let is_complete = record.state == TransferState::Done && record.tally.entries_failed == 0;
    record.state.is_over() && !is_complete && record.leg.is_some() && !record.leftovers_cleared
}

/// Removes the leftovers of transfers that ended longer ago than `older`, except where a transfer between the
/// same places is open, which resumes with them.
///
/// # Errors
/// If NATS does not answer.
pub async fn clear_leftovers(
    bus: &NatsBus,
    transfers: &TransferStore,
    older: Duration,
) -> Result<Vec<ClearedLeftovers>, BusError> {
    clear_surveyed_leftovers(bus, transfers, &transfers.summarize_all().await?, older).await
}

/// The same with a survey of all transfers. If some are of a later version, and may resume with any
/// leftovers, nothing is removed.
pub(crate) async fn clear_surveyed_leftovers(
    bus: &NatsBus,
    transfers: &TransferStore,
    known: &HashMap<String, Option<TransferCleanupFacts>>,
    older: Duration,
) -> Result<Vec<ClearedLeftovers>, BusError> {
    if known.values().any(Option::is_none) {
        return Ok(Vec::new());
    }
    let open = known.values().flatten().filter(|brief| brief.ended_ms.is_none());
    let open: HashSet<TransferId> = open.map(|brief| brief.journals).collect();
    let older = older.max(LEFTOVERS_KEPT_MIN);
    let mut due = Vec::new();
    for (id, brief) in known {
        let Some(brief) = brief else { continue };
        let is_old = brief
            .ended_ms
            .is_some_and(|ended_ms| Duration::from_millis(now_ms().saturating_sub(ended_ms)) > older);
        if brief.has_leftovers && is_old && !open.contains(&brief.journals) {
            due.push(id.clone());
        }
    }
    let movers = if due.is_empty() { Vec::new() } else { MoverTable::list(bus).await? };
    let mut cleared = Vec::new();
    for id in due {
        let record = match transfers.get(&id).await {
            Ok(record) => record,
            Err(FindError::Bus(error)) => return Err(error),
            Err(_) => continue,
        };
        let Some(leg) = record.leg.as_ref().filter(|_| has_leftovers(&record)) else { continue };
        let removed = clear_by_mover(bus, &movers, &record, leg).await;
        if removed.is_ok() {
            // If the record was removed meanwhile, there is nothing to note.
            let _ = transfers.update(&id, |record| record.leftovers_cleared = true).await;
        }
        let place = format!("{}:{}", record.submission.destination.site, leg.sink);
        cleared.push(ClearedLeftovers { transfer: id, place, removed });
    }
    Ok(cleared)
}

/// Clears by the first mover of the sink's site that can.
async fn clear_by_mover(
    bus: &NatsBus,
    movers: &[MoverRecord],
    record: &TransferRecord,
    leg: &ResolvedTransferPaths,
) -> Result<(u64, u64), String> {
    let site = &record.submission.destination.site;
    let question = MoverRequest::Clear {
        directory: leg.sink.clone(),
        transfer: journal_id(&record.submission).to_string(),
    };
    let mut reason = format!("no mover at site {site} reaches {}", leg.sink);
    for mover in ready_mover_ids(movers, site, &leg.sink) {
        match send_mover_request(bus, &mover, &question, CLEAR_WITHIN).await {
            Ok(MoverReply::Cleared { journals, temporaries }) => return Ok((journals, temporaries)),
            Ok(other) => reason = format!("the mover {mover} answers something else: {other:?}"),
            Err(MoverRequestError::Failed { reason: why, .. }) => reason = why,
            Err(error) => reason = text_without_errno(&error),
        }
    }
    Err(reason)
}
