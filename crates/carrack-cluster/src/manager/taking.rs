//! Which transfers a manager takes: those whose turn has come. What waits costs a record and nothing else: no lease, no consumer,
//! no question.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::{Duration, Instant};

use carrack_plan::fleet::Waiting;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::waiting::nobody;
use super::{Known, Manager, Owned, owning};
use crate::ids::is_prefix;
use crate::lease::Lease;
use crate::records::{MoverRecord, TransferRecord, TransferState, now_ms};

/// How often it is looked for more to take while nothing was put down.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Transfers beyond the fleet's places that are prepared, so that no place waits.
const AHEAD: usize = 8;

/// Transfers that one manager has at most: each costs two consumers, and a stream has 1,000.
const OWNED_MAX: usize = 256;

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
            self.take(&id, Arc::clone(&wanted));
            let (manager, stop) = (Arc::clone(self), stop.clone());
            owning.spawn(async move {
                owning::run(manager, lease, wanted, stop).await;
                id
            });
        }
    }

    fn take(&self, transfer: &str, wanted: Arc<AtomicU32>) {
        let mut known = self.known();
        let record = known.records.get(transfer);
        let user = record.map(|record| record.user.clone()).unwrap_or_default();
        if let Some(waiting) = record.map(waiting) {
            self.ranks().began(&waiting, now_ms());
        }
        known.owned.insert(transfer.to_owned(), Owned { wanted, user, since: Instant::now() });
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
        let idle = known.owned.keys().filter(|id| known.stuck.contains(*id)).count();
        let most = places + AHEAD;
        let room = most.saturating_sub(owned_by_all.saturating_sub(idle));
        let room = room.min(OWNED_MAX.saturating_sub(known.owned.len()));
        let now_ms = now_ms();
        let is_free = |id: &str| !known.owned.contains_key(id) && self.leases.owner(id).is_none();
        let due = known.records.values().filter(|record| record.is_due(now_ms) && is_free(&record.id));
        let mut free = Free::default();
        let mut queued = Vec::new();
        for record in due {
            match record.state {
                // Somebody has begun it, or it is to be cleared away.
                TransferState::Running | TransferState::Cancelled => free.take.push(record.id.clone()),
                TransferState::Queued => match lacks_mover(record, &movers) {
                    None => queued.push(record),
                    Some(reason) if record.waits_for != reason && free.reasons.len() < REASONS_AT_ONCE => {
                        free.reasons.push((record.id.clone(), reason));
                    }
                    Some(_) => {}
                },
                _ => {}
            }
        }
        free.take.truncate(OWNED_MAX.saturating_sub(known.owned.len()));
        let urgent = queued.iter().map(|record| record.submission.priority).max();
        let least = known.unserved_priority();
        // What is more urgent than something that was taken and has no pair yet does not wait behind it.
        let room = if room == 0 && urgent > least && least.is_some() { 1 } else { room };
        if room > 0 && !queued.is_empty() {
            let waiting: Vec<Waiting<'_>> = queued.iter().map(|record| waiting(record)).collect();
            let running: Vec<&str> = known.owned.values().map(|owned| &*owned.user).collect();
            let order = self.ranks().order(now_ms, &running, &waiting, room);
            free.take.extend(order.into_iter().map(str::to_owned));
        }
        free
    }
}

impl Known {
    /// The least priority of what this manager has taken and what waits for nothing but a place.
    fn unserved_priority(&self) -> Option<u8> {
        let is_served = |id: &String| self.pairs.keys().any(|key| key.transfer == *id);
        let unserved = self.owned.keys().filter(|id| !self.stuck.contains(*id) && !is_served(id));
        unserved.filter_map(|id| Some(self.records.get(id)?.submission.priority)).min()
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
