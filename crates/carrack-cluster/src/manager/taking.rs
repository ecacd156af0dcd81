//! Which transfers a manager takes: those whose turn has come. What waits costs a record and nothing else: no lease, no consumer,
//! no question.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::{Duration, Instant};

use carrack_plan::fleet::{Candidate, OwnedTransfer, Waiting, to_take};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::waiting::nobody;
use super::{Known, Manager, Owned, owning};
use crate::ids::is_prefix;
use crate::lease::{Lease, Term};
use crate::records::{MoverRecord, TransferRecord, TransferState, now_ms};

/// How often it is looked for more to take while nothing was put down.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Reasons that are written in one look: what waits for a mover is told so, however much it is.
const REASONS_AT_ONCE: usize = 20;

/// What a look has found.
#[derive(Default)]
struct Free {
    /// To be taken, in this order.
    take: Vec<String>,
    /// What waits for movers, with the reason.
    reasons: Vec<(String, String)>,
}

impl Manager {
    /// Takes what nobody owns, and whose turn has come.
    pub(super) async fn take_free(
        self: &Arc<Self>,
        owning: &mut JoinSet<String>,
        stop: &watch::Receiver<bool>,
    ) {
        let Free { take, reasons } = self.free();
        for (id, reason) in reasons {
            let change = |record: &mut TransferRecord| {
                if record.state == TransferState::Queued && record.manager.is_empty() {
                    record.waits_for.clone_from(&reason);
                }
            };
            // The next look will do.
            let _ = self.transfers.update(&id, change).await;
        }
        for id in take {
            // Another manager may be faster, and NATS away: then the next look finds it free, or not.
            let Ok(Some(lease)) = Lease::acquire(&self.bus, &id, &self.id).await else { continue };
            let wanted = Arc::new(AtomicU32::new(0));
            self.take(&id, Arc::clone(&wanted), lease.term());
            let (manager, stop) = (Arc::clone(self), stop.clone());
            owning.spawn(async move {
                owning::run(manager, lease, wanted, stop).await;
                id
            });
        }
    }

    fn take(&self, transfer: &str, wanted: Arc<AtomicU32>, term: Term) {
        let mut known = self.known();
        let record = known.records.get(transfer);
        let user = record.map(|record| record.user.clone()).unwrap_or_default();
        if let Some(waiting) = record.map(waiting) {
            self.ranks().began(&waiting, now_ms());
        }
        known.owned.insert(transfer.to_owned(), Owned { wanted, term, user, since: Instant::now() });
    }

    /// A transfer is not this manager's any more.
    pub(super) fn put_down(&self, transfer: &str) {
        let mut known = self.known();
        known.stuck.remove(transfer);
        if let Some(owned) = known.owned.remove(transfer) {
            self.ranks().used(&owned.user, owned.since.elapsed().as_secs_f64(), now_ms());
        }
    }

    fn free(&self) -> Free {
        let movers = self.movers.all();
        let places: usize = movers.iter().map(|mover| mover.pairs_max as usize).sum::<usize>() / 2;
        let leases = self.leases.all();
        let owned_by_all = leases.iter().filter(|(id, _)| id.len() == 16 && is_prefix(id)).count();
        let known = self.known();
        let now_ms = now_ms();
        let is_free = |id: &str| !known.owned.contains_key(id) && self.leases.owner(id).is_none();
        let mut free = Free::default();
        let mut candidates = Vec::new();
        for record in known.records.values().filter(|record| record.is_due(now_ms) && is_free(&record.id)) {
            let is_begun = matches!(record.state, TransferState::Running | TransferState::Cancelled);
            if !is_begun && record.state != TransferState::Queued {
                continue;
            }
            match lacks_mover(record, &movers).filter(|_| !is_begun) {
                None => candidates.push(Candidate { waiting: waiting(record), is_begun }),
                Some(reason) if record.waits_for != reason && free.reasons.len() < REASONS_AT_ONCE => {
                    free.reasons.push((record.id.clone(), reason));
                }
                Some(_) => {}
            }
        }
        let owned = known.owned_transfers();
        let take = to_take(&self.ranks(), now_ms, (places, owned_by_all), &owned, &candidates);
        free.take = take.into_iter().map(str::to_owned).collect();
        free
    }
}

impl Known {
    fn owned_transfers(&self) -> Vec<OwnedTransfer<'_>> {
        let served: HashSet<&str> = self.pairs.keys().map(|key| &*key.transfer).collect();
        // Those that are over have no record here, and go in a moment.
        self.owned
            .iter()
            .map(|(id, owned)| OwnedTransfer {
                account: &owned.user,
                priority: self.records.get(id).map_or(u8::MAX, |record| record.submission.priority),
                is_stuck: self.stuck.contains(id),
                has_pairs: served.contains(&**id),
            })
            .collect()
    }
}

fn waiting(record: &TransferRecord) -> Waiting<'_> {
    Waiting {
        id: &record.id,
        account: &record.user,
        priority: record.submission.priority,
        submitted_ms: record.submitted_ms,
        deadline_ms: record.submission.options.deadline_ms,
        not_before_ms: record.submission.not_before_ms,
    }
}

/// Why a transfer need not be looked at yet: at one of its sites nobody reaches its path.
fn lacks_mover(record: &TransferRecord, movers: &[Arc<MoverRecord>]) -> Option<String> {
    let submission = &record.submission;
    let lacking = [&submission.source, &submission.destination]
        .into_iter()
        .find(|end| !movers.iter().any(|mover| mover.reaches(&end.site, &end.path)))?;
    let somebody_is_there = movers.iter().any(|mover| mover.site == lacking.site);
    Some(nobody(&lacking.site, &lacking.path, somebody_is_there))
}
