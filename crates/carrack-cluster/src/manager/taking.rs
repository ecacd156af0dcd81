//! Which transfers a manager takes: those whose turn has come. What waits costs a record and nothing else: no lease, no consumer,
//! no question. It looks at all that wait now and then only; until it looks again it takes those that the last look has put in line.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::{Duration, Instant};

use carrack_plan::fleet::Waiting;
use futures_util::future::join_all;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::waiting::nobody;
use super::{Known, Manager, Owned, owning};
use crate::ids::is_prefix;
use crate::lease::Lease;
use crate::records::{MoverRecord, TransferRecord, TransferState, now_ms};

/// How often it is looked at all that wait.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Where that takes long it is looked less often: one of so many parts of the time.
pub(super) const LOOKS_ONE_OF: u32 = 10;

/// Transfers beyond the fleet's places that are prepared, so that no place waits.
const AHEAD: usize = 8;

/// Transfers beyond those that a look takes that it puts in line: as many as come to their ends until the next look, and some more.
const IN_LINE: usize = 128;

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
    /// Takes what nobody owns, and whose turn has come: by a look at all that wait, or of those that stand in line.
    pub(super) async fn take_free(
        self: &Arc<Self>,
        owning: &mut JoinSet<String>,
        stop: &watch::Receiver<bool>,
        looks: bool,
    ) {
        let Free { take, reasons } = if looks { self.free() } else { self.in_line() };
        for (id, reason) in reasons {
            let change = |record: &mut TransferRecord| {
                if record.state == TransferState::Queued && record.manager.is_empty() {
                    record.waits_for.clone_from(&reason);
                }
            };
            // The next look will do.
            let _ = self.transfers.update(&id, change).await;
        }
        let acquired = join_all(take.iter().map(|id| Lease::acquire(&self.bus, id, &self.id))).await;
        for (id, lease) in take.into_iter().zip(acquired) {
            // Another manager may be faster, and NATS away: then the next look finds it free, or not.
            let Ok(Some(lease)) = lease else { continue };
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

    /// Of those that the last look has put in line, as many as there is room for now.
    fn in_line(&self) -> Free {
        let (movers, leased) = (self.movers.all(), self.leased());
        let mut known = self.known();
        let room = known.room(&movers, &leased);
        let mut free = Free::default();
        while free.take.len() < room
            && let Some(id) = known.line.pop_front()
        {
            let is_queued =
                known.records.get(&id).is_some_and(|record| record.state == TransferState::Queued);
            if is_queued && !known.owned.contains_key(&id) && !leased.contains(&id) {
                free.take.push(id);
            }
        }
        free
    }

    /// The transfers that managers own, by what is known of their leases.
    fn leased(&self) -> HashSet<String> {
        let leases = self.leases.all().into_iter().map(|(id, _)| id);
        leases.filter(|id| id.len() == 16 && is_prefix(id)).collect()
    }

    fn free(&self) -> Free {
        let (movers, leased) = (self.movers.all(), self.leased());
        let mut known = self.known();
        let room = known.room(&movers, &leased);
        let now_ms = now_ms();
        let is_free = |id: &str| !known.owned.contains_key(id) && !leased.contains(id);
        let due = known.records.all().filter(|record| record.is_due(now_ms) && is_free(&record.id));
        let mut free = Free::default();
        let (mut queued, mut line) = (Vec::new(), VecDeque::new());
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
        if !queued.is_empty() {
            let waiting: Vec<Waiting<'_>> = queued.iter().map(|record| waiting(record)).collect();
            let running: Vec<&str> = known.owned.values().map(|owned| &*owned.user).collect();
            let order = self.ranks().order(now_ms, &running, &waiting, room + IN_LINE);
            let mut order = order.into_iter().map(str::to_owned);
            free.take.extend(order.by_ref().take(room));
            line.extend(order);
        }
        known.line = line;
        free
    }
}

impl Known {
    /// How many more this manager may take: as many as all have places, and some.
    fn room(&self, movers: &[Arc<MoverRecord>], leased: &HashSet<String>) -> usize {
        let places: usize = movers.iter().map(|mover| mover.pairs_max as usize).sum::<usize>() / 2;
        let idle = self.owned.keys().filter(|id| self.stuck.contains(*id)).count();
        let room = (places + AHEAD).saturating_sub(leased.len().saturating_sub(idle));
        room.min(OWNED_MAX.saturating_sub(self.owned.len()))
    }

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
