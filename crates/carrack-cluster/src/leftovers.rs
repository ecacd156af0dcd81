//! What transfers that did not come to their end have left at the destination: journals and temporary files. They are kept for a while, as
//! the same transfer goes on with them when it is submitted again; then a mover of the site removes them.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::time::Duration;

use carrack_model::TransferId;

use crate::asks::{Answer, Ask, AskError, ask};
use crate::bus::Bus;
use crate::error::BusError;
use crate::mover::journal_id;
use crate::records::{Leg, MoverRecord, TransferRecord, TransferState, now_ms};
use crate::registry::{Movers, able};
use crate::transfers::{Brief, FindError, Transfers};

/// A mover may take so long. After a minute it may not answer any more (`docs/examples/nats`).
const CLEAR_WITHIN: Duration = Duration::from_secs(50);

/// How long leftovers are kept if nothing is said.
pub const LEFTOVERS_KEPT: Duration = Duration::from_secs(7 * 24 * 3600);

/// A session that is told to end, or is cut off, has ended after so long: before, nothing is removed.
pub const LEFTOVERS_KEPT_MIN: Duration = Duration::from_secs(120);

/// What became of the leftovers of one transfer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cleared {
    /// The transfer's id.
    pub transfer: String,
    /// Where they were: `SITE:/directory`.
    pub place: String,
    /// Journals and temporary files that were removed, or why not all were.
    pub removed: Result<(u64, u64), String>,
}

impl fmt::Display for Cleared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Cleared { transfer, place, removed } = self;
        match removed {
            Ok((journals, temporaries)) => {
                let what = format!("{journals} journals and {temporaries} temporary files removed");
                write!(f, "transfer {transfer}: {place}: {what}")
            }
            Err(reason) => write!(f, "transfer {transfer}: {place}: what it left stays: {reason}"),
        }
    }
}

/// Whether a transfer may have left something that was not removed since.
pub(crate) fn has_leftovers(record: &TransferRecord) -> bool {
    let is_complete = record.state == TransferState::Done && record.tally.entries_failed == 0;
    record.state.is_over() && !is_complete && record.leg.is_some() && !record.leftovers_cleared
}

/// Removes what transfers have left that ended longer ago than `older`, unless a transfer between the same places is open, which goes
/// on with it.
///
/// # Errors
/// If NATS does not answer.
pub async fn clear_leftovers(
    bus: &Bus,
    transfers: &Transfers,
    older: Duration,
) -> Result<Vec<Cleared>, BusError> {
    clear_known(bus, transfers, &transfers.survey().await?, older).await
}

/// The same by a look at all transfers. Where some are of a later version, and may go on with anything, nothing is removed.
pub(crate) async fn clear_known(
    bus: &Bus,
    transfers: &Transfers,
    known: &HashMap<String, Option<Brief>>,
    older: Duration,
) -> Result<Vec<Cleared>, BusError> {
    if known.values().any(Option::is_none) {
        return Ok(Vec::new());
    }
    let briefs = || known.values().flatten();
    let open: HashSet<TransferId> =
        briefs().filter(|brief| brief.ended_ms.is_none()).map(|brief| brief.journals).collect();
    let older = older.max(LEFTOVERS_KEPT_MIN);
    let is_old = |ended_ms: u64| Duration::from_millis(now_ms().saturating_sub(ended_ms)) > older;
    let is_due = |(id, brief): (&String, &Option<Brief>)| {
        let brief = brief.as_ref()?;
        let is_due =
            brief.has_leftovers && brief.ended_ms.is_some_and(is_old) && !open.contains(&brief.journals);
        is_due.then(|| id.clone())
    };
    let due: Vec<String> = known.iter().filter_map(is_due).collect();
    let movers = if due.is_empty() { Vec::new() } else { Movers::list(bus).await? };
    let mut cleared = Vec::new();
    for id in due {
        let record = match transfers.get(&id).await {
            Ok(record) => record,
            Err(FindError::Bus(error)) => return Err(error),
            Err(_) => continue,
        };
        let Some(leg) = record.leg.as_ref().filter(|_| has_leftovers(&record)) else { continue };
        let removed = clear(bus, &movers, &record, leg).await;
        if removed.is_ok() {
            // Whoever forgets the transfer meanwhile has nothing to note.
            let _ = transfers.update(&id, |record| record.leftovers_cleared = true).await;
        }
        let place = format!("{}:{}", record.submission.destination.site, leg.sink);
        cleared.push(Cleared { transfer: id, place, removed });
    }
    Ok(cleared)
}

/// By the first mover of the sink's site that can.
async fn clear(
    bus: &Bus,
    movers: &[MoverRecord],
    record: &TransferRecord,
    leg: &Leg,
) -> Result<(u64, u64), String> {
    let site = &record.submission.destination.site;
    let question =
        Ask::Clear { directory: leg.sink.clone(), transfer: journal_id(&record.submission).to_string() };
    let mut reason = format!("no mover at site {site} reaches {}", leg.sink);
    for mover in able(movers, site, &leg.sink) {
        match ask(bus, &mover, &question, CLEAR_WITHIN).await {
            Ok(Answer::Cleared { journals, temporaries }) => return Ok((journals, temporaries)),
            Ok(other) => reason = format!("the mover {mover} answers something else: {other:?}"),
            Err(AskError::Failed { reason: why, .. }) => reason = why,
            Err(error) => reason = error.to_string(),
        }
    }
    Err(reason)
}
