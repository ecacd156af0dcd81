//! The choice of transfers that a manager takes: those whose turn has come. A waiting transfer costs a record
//! and nothing else: no lease, no consumer, no request. The manager examines all waiting ones only
//! periodically; in between it takes those that were next in line.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::{Duration, Instant};

use carrack_plan::fleet::{
    ManagerOwnedTransfer, SelectedIntakeTransfers, TransferCandidate, WaitingTransfer, room, select_transfers,
};
use futures_util::future::join_all;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::wait_reasons::no_mover_reason;
use super::{FleetManager, ManagedTransfer, ManagerFleetState, transfer_task};
use crate::transfer_lease::{SharedManagerLeaseTerm, TransferManagerLease};
use crate::transfer_records::{MoverRecord, TransferRecord, TransferState, now_ms};
use crate::unique_ids::is_prefix;

/// Interval at which all waiting transfers are examined.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(200);

/// If that takes long, it may use one of this many parts of the time.
pub(super) const LOOKS_ONE_OF: u32 = 10;

/// Time for which a manager leaves transfers of other sites than its near ones to nearer managers.
const LEFT_TO_NEAR: Duration = Duration::from_secs(1);

/// Upper bound of reasons written after one look: each costs a write, however many transfers wait for movers.
const REASONS_AT_ONCE: usize = 20;

/// The result of a look.
#[derive(Default)]
struct WaitingTransferIntake {
    /// Transfers to take, in this order.
    take: Vec<String>,
    /// Transfers that wait for movers, with the reason.
    reasons: Vec<(String, String)>,
}

impl FleetManager {
    /// Takes transfers without an owner whose turn has come: of all waiting ones (`looks`), or of those next
    /// in line.
    pub(super) async fn take_unowned_transfers(
        self: &Arc<Self>,
        owning: &mut JoinSet<String>,
        stop: &watch::Receiver<bool>,
        looks: bool,
    ) {
        let WaitingTransferIntake { take, reasons } =
            if looks { self.select_unowned() } else { self.pop_next_in_line() };
        for (id, reason) in reasons {
            let updated = self.transfers.update(&id, |record| {
                if record.state == TransferState::Queued && record.manager.is_empty() {
                    record.waits_for.clone_from(&reason);
                }
            });
            // A later look will do.
            let _ = updated.await;
        }
        let acquired =
            join_all(take.iter().map(|id| TransferManagerLease::acquire(&self.bus, id, &self.id))).await;
        for (id, lease) in take.into_iter().zip(acquired) {
            // Another manager may be faster, or NATS away: the next look shows it.
            let Ok(Some(lease)) = lease else { continue };
            let wanted = Arc::new(AtomicU32::new(0));
            self.add_owned(&id, Arc::clone(&wanted), lease.term());
            let (manager, stop) = (Arc::clone(self), stop.clone());
            owning.spawn(async move {
                transfer_task::run(manager, lease, wanted, stop).await;
                id
            });
        }
    }

    fn add_owned(&self, transfer: &str, wanted: Arc<AtomicU32>, term: SharedManagerLeaseTerm) {
        let mut known = self.lock_state();
        let record = known.records.get(transfer);
        let user = record.map(|record| record.user.clone()).unwrap_or_default();
        if let Some(waiting) = record.map(to_waiting_transfer) {
            self.ranks().record_start(&waiting, now_ms());
        }
        known
            .owned
            .insert(transfer.to_owned(), ManagedTransfer { wanted, term, user, since: Instant::now() });
    }

    /// Returns a reason to wait if another transfer copies between the same places: they would have their
    /// journals and temporary files in common.
    pub(super) fn rival_reason(&self, record: &TransferRecord) -> Option<String> {
        let (known, now_ms) = (self.lock_state(), now_ms());
        let rival = known.records.all().find(|other| is_rival(other, record, now_ms))?;
        Some(format!("transfer {} copies between the same places", rival.id))
    }

    /// Records that a transfer is no longer this manager's.
    pub(super) fn remove_owned(&self, transfer: &str) {
        let mut known = self.lock_state();
        known.stuck.remove(transfer);
        if let Some(owned) = known.owned.remove(transfer) {
            self.ranks().record_use(&owned.user, owned.since.elapsed().as_secs_f64(), now_ms());
        }
    }

    /// Returns transfers of the line, as many as there is room for.
    fn pop_next_in_line(&self) -> WaitingTransferIntake {
        let (movers, leased) = (self.movers.all(), self.leased_transfers());
        let mut known = self.lock_state();
        let room = room((pair_capacity(&movers), leased.len()), &known.owned_transfers());
        let mut free = WaitingTransferIntake::default();
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

    /// Returns the transfers with a known lease.
    fn leased_transfers(&self) -> HashSet<String> {
        let leases = self.leases.all().into_iter().map(|(id, _)| id);
        leases.filter(|id| id.len() == 16 && is_prefix(id)).collect()
    }

    fn select_unowned(&self) -> WaitingTransferIntake {
        let (movers, leased) = (self.movers.all(), self.leased_transfers());
        let mut known = self.lock_state();
        let now_ms = now_ms();
        let mut free = WaitingTransferIntake::default();
        let mut candidates = Vec::new();
        for record in known.records.all().filter(|record| record.is_due(now_ms)) {
            if known.owned.contains_key(&record.id) || leased.contains(&record.id) {
                continue;
            }
            // A transfer that was begun, or that needs clearing after a cancel.
            let is_begun = matches!(record.state, TransferState::Running | TransferState::Cancelled);
            let is_wanted = record.state == TransferState::Queued
                && !is_reserved_for_nearer(record, &self.options.near, now_ms);
            if !is_begun && !is_wanted {
                continue;
            }
            match missing_mover_reason(record, &movers).filter(|_| !is_begun) {
                None => candidates.push(TransferCandidate { waiting: to_waiting_transfer(record), is_begun }),
                Some(reason) if record.waits_for != reason && free.reasons.len() < REASONS_AT_ONCE => {
                    free.reasons.push((record.id.clone(), reason));
                }
                Some(_) => {}
            }
        }
        let owned = known.owned_transfers();
        let places = (pair_capacity(&movers), leased.len());
        let SelectedIntakeTransfers { take, line } =
            select_transfers(&self.ranks(), now_ms, places, &owned, &candidates);
        free.take = take.into_iter().map(str::to_owned).collect();
        let line = line.into_iter().map(str::to_owned).collect();
        known.line = line;
        free
    }
}

impl ManagerFleetState {
    fn owned_transfers(&self) -> Vec<ManagerOwnedTransfer<'_>> {
        let served: HashSet<&str> = self.pairs.keys().map(|key| &*key.transfer).collect();
        // Finished transfers have no record here, and are about to leave.
        self.owned
            .iter()
            .map(|(id, owned)| ManagerOwnedTransfer {
                account: &owned.user,
                priority: self
                    .records
                    .get(id)
                    .map_or(u8::MAX, |record| to_waiting_transfer(record).level(now_ms())),
                is_stuck: self.stuck.contains(id),
                has_pairs: served.contains(&**id),
            })
            .collect()
    }
}

/// Returns true while managers nearer to the source have the first chance.
fn is_reserved_for_nearer(record: &TransferRecord, near: &[String], now_ms: u64) -> bool {
    let is_near = near.is_empty() || near.contains(&record.submission.source.site);
    !is_near && now_ms < record.submitted_ms + LEFT_TO_NEAR.as_millis() as u64
}

/// Returns a transfer's data for the ranking of waiting transfers.
pub(super) fn to_waiting_transfer(record: &TransferRecord) -> WaitingTransfer<'_> {
    WaitingTransfer {
        id: &record.id,
        account: &record.user,
        priority: record.submission.priority,
        submitted_ms: record.submitted_ms,
        deadline_ms: record.submission.options.deadline_ms(),
        not_before_ms: record.submission.not_before_ms,
    }
}

/// Returns the reason if no mover reaches the path at one of its sites: there is no need to look at it yet.
fn missing_mover_reason(record: &TransferRecord, movers: &[Arc<MoverRecord>]) -> Option<String> {
    let submission = &record.submission;
    let lacking = [&submission.source, &submission.destination]
        .into_iter()
        .find(|end| !movers.iter().any(|mover| mover.can_access(&end.site, &end.path)))?;
    let somebody_is_there = movers.iter().any(|mover| mover.site == lacking.site);
    Some(no_mover_reason(&lacking.site, &lacking.path, somebody_is_there))
}

/// Returns true if `other` copies between the places of `record`, and comes first: it has begun, or was
/// submitted before.
fn is_rival(other: &TransferRecord, record: &TransferRecord, now_ms: u64) -> bool {
    let is_before = (other.submitted_ms, &other.id) < (record.submitted_ms, &record.id);
    let waits = other.state == TransferState::Queued && other.is_due(now_ms);
    let [ours, theirs] = [record, other].map(|record| &record.submission);
    other.id != record.id
        && (&ours.source, &ours.destination) == (&theirs.source, &theirs.destination)
        && (other.leg.is_some() || waits && is_before)
}

/// Returns the number of pairs that all movers take together.
fn pair_capacity(movers: &[Arc<MoverRecord>]) -> usize {
    movers.iter().map(|mover| mover.pairs_max as usize).sum::<usize>() / 2
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transfer_records::ResolvedTransferPaths;

    fn record(id: &str, submitted_ms: u64) -> TransferRecord {
        let submission = serde_json::from_str(r#"{"source":"east:/a","destination":"west:/b"}"#).unwrap();
        TransferRecord::queued(id.into(), "alice", submission, submitted_ms)
    }

    #[test]
    fn one_of_two_copies_between_the_same_places_waits() {
        let (first, second) = (record("1", 10_000), record("2", 10_000));
        assert!(is_rival(&first, &second, 10_000) && !is_rival(&second, &first, 10_000));
        assert!(!is_rival(&first, &first, 10_000));
        let mut begun = second.clone();
        begun.leg = Some(ResolvedTransferPaths { source: "/a".into(), sink: "/b".into(), only: None });
        assert!(is_rival(&begun, &first, 10_000));
        let mut other = first.clone();
        other.submission.destination = "west:/c".parse().unwrap();
        assert!(!is_rival(&other, &second, 10_000));
        let mut later = first;
        later.submission.not_before_ms = Some(20_000);
        assert!(!is_rival(&later, &second, 10_000));
    }

    #[test]
    fn what_is_read_elsewhere_is_left_to_nearer_managers_for_a_moment() {
        let record = record("1", 10_000);
        for (near, now_ms, left) in [
            (&["west"][..], 10_000, true),
            (&["west"], 10_999, true),
            // No manager near the source has taken it.
            (&["west"], 11_000, false),
            (&["west", "east"], 10_000, false),
            (&[], 10_000, false),
        ] {
            let near: Vec<String> = near.iter().map(|&site| site.to_owned()).collect();
            assert_eq!(is_reserved_for_nearer(&record, &near, now_ms), left, "{near:?} at {now_ms}");
        }
    }
}
