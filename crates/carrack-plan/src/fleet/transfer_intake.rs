//! The transfers that a manager takes, and the pairs that should not exist: by its followed copy of the
//! records, which may be stale.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use super::transfer_ranking::{TransferRanking, WaitingTransfer};

/// Transfers beyond the fleet's places that are prepared, so that no place waits.
const AHEAD: usize = 8;

/// Length of the list of next transfers: as many as end until the next intake, and some more.
const IN_LINE: usize = 128;

/// Upper bound of one manager's transfers: each costs two consumers, and a stream has 1,000.
const OWNED_MAX: usize = 256;

/// Time after which a pair of an unknown or ended transfer is investigated.
const PHANTOM_AFTER: Duration = Duration::from_secs(5);

/// A transfer that has no manager, and may have one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransferCandidate<'a> {
    /// Its data for the order of waiting transfers.
    pub waiting: WaitingTransfer<'a>,
    /// True if a manager has begun it, or it is due for removal: it does not wait for a turn.
    pub is_begun: bool,
}

/// A transfer of the present manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ManagerOwnedTransfer<'a> {
    /// Account whose turn it took.
    pub account: &'a str,
    /// 0 to 9.
    pub priority: u8,
    /// True if it waits for something else than a place: it keeps no other transfer from being taken.
    pub is_stuck: bool,
    /// True if it has pairs.
    pub has_pairs: bool,
}

/// The result of a search through all candidates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SelectedIntakeTransfers<'a> {
    /// Transfers to take now, in this order: all that were begun, and of the others those whose turn has
    /// come, as far as there is room.
    pub take: Vec<&'a str>,
    /// The next transfers, until the next intake.
    pub line: Vec<&'a str>,
}

/// Returns how many more transfers a manager may take: the `places` (pairs that the fleet's movers take
/// together) and some, beyond the transfers of all managers.
pub fn room((places, owned_by_all): (usize, usize), owned: &[ManagerOwnedTransfer<'_>]) -> usize {
    let idle = owned.iter().filter(|owned| owned.is_stuck).count();
    let room = (places + AHEAD).saturating_sub(owned_by_all.saturating_sub(idle));
    room.min(OWNED_MAX.saturating_sub(owned.len()))
}

/// Returns the candidates that a manager takes; `places` as for [`room`].
pub fn select_transfers<'a>(
    ranks: &TransferRanking,
    now_ms: u64,
    places: (usize, usize),
    owned: &[ManagerOwnedTransfer<'_>],
    candidates: &[TransferCandidate<'a>],
) -> SelectedIntakeTransfers<'a> {
    let begun = candidates.iter().filter(|candidate| candidate.is_begun);
    let most = OWNED_MAX.saturating_sub(owned.len());
    let mut take: Vec<&'a str> = begun.map(|candidate| candidate.waiting.id).take(most).collect();
    let waiting: Vec<WaitingTransfer<'a>> = candidates
        .iter()
        .filter(|candidate| !candidate.is_begun)
        .map(|candidate| candidate.waiting)
        .collect();
    let urgent = waiting.iter().map(|one| one.priority).max();
    let unserved = owned.iter().filter(|owned| !owned.is_stuck && !owned.has_pairs);
    let least = unserved.map(|owned| owned.priority).min();
    let room = room(places, owned);
    // A transfer does not wait behind a less urgent transfer that was taken and has no pair yet.
    let room = if room == 0 && urgent > least && least.is_some() { 1 } else { room };
    let mut line = Vec::new();
    if !waiting.is_empty() {
        let running: Vec<&str> = owned.iter().map(|owned| owned.account).collect();
        let mut order = ranks.order(now_ms, &running, &waiting, room + IN_LINE);
        line = order.split_off(room.min(order.len()));
        take.extend(order);
    }
    SelectedIntakeTransfers { take, line }
}

/// Pairs of unknown or ended transfers, each with the time of its first sight: a stale watch shows such pairs
/// for a moment.
#[derive(Clone, Debug)]
pub struct OrphanedMoverPairs<K>(HashMap<K, Duration>);

impl<K> Default for OrphanedMoverPairs<K> {
    fn default() -> OrphanedMoverPairs<K> {
        OrphanedMoverPairs(HashMap::new())
    }
}

impl<K: Clone + Eq + Hash + Ord> OrphanedMoverPairs<K> {
    /// Returns the pairs that have been phantoms for too long, in their order: the records of their transfers
    /// must be read. `phantoms` are all pairs without an open transfer.
    pub fn find_long_orphaned<'a>(&mut self, now: Duration, phantoms: impl Iterator<Item = &'a K>) -> Vec<K>
    where
        K: 'a,
    {
        let seen: HashMap<K, Duration> =
            phantoms.map(|key| (key.clone(), self.0.get(key).copied().unwrap_or(now))).collect();
        self.0 = seen;
        let old = self.0.iter().filter(|(_, since)| now.saturating_sub(**since) > PHANTOM_AFTER);
        let mut old: Vec<K> = old.map(|(key, _)| key.clone()).collect();
        old.sort_unstable();
        old
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::RankRules;

    fn candidate(id: &str, priority: u8, is_begun: bool) -> TransferCandidate<'_> {
        let waiting = WaitingTransfer {
            id,
            account: "u",
            priority,
            submitted_ms: 0,
            deadline_ms: None,
            not_before_ms: None,
        };
        TransferCandidate { waiting, is_begun }
    }

    fn owned(priority: u8, is_stuck: bool, has_pairs: bool) -> ManagerOwnedTransfer<'static> {
        ManagerOwnedTransfer { account: "u", priority, is_stuck, has_pairs }
    }

    fn taken<'a>(
        ranks: &TransferRanking,
        now_ms: u64,
        places: (usize, usize),
        owned: &[ManagerOwnedTransfer<'_>],
        candidates: &[TransferCandidate<'a>],
    ) -> Vec<&'a str> {
        select_transfers(ranks, now_ms, places, owned, candidates).take
    }

    #[test]
    fn those_that_are_not_taken_stand_in_line() {
        let ranks = TransferRanking::new(RankRules::default());
        let waiting = ["a", "b", "c"].map(|id| candidate(id, 5, false));
        let full = vec![owned(5, false, true); 9];
        let found = select_transfers(&ranks, 1, (2, 9), &full, &waiting);
        assert_eq!((found.take, found.line), (vec!["a"], vec!["b", "c"]));
        assert_eq!((room((2, 9), &full), room((2, 11), &full)), (1, 0));
    }

    #[test]
    fn what_was_begun_is_taken_and_others_as_far_as_there_is_room() {
        let ranks = TransferRanking::new(RankRules::default());
        let waiting = ["a", "b", "c"].map(|id| candidate(id, 5, false));
        let begun = candidate("x", 0, true);
        let all = [&waiting[..], &[begun]].concat();
        let full = vec![owned(5, false, true); 10];
        assert_eq!(taken(&ranks, 1, (2, 10), &full, &all), ["x"]);
        assert_eq!(taken(&ranks, 1, (2, 9), &full[1..], &all), ["x", "a"]);
        assert_eq!(taken(&ranks, 1, (2, 0), &[], &all), ["x", "a", "b", "c"]);
        // Transfers that wait for something else than a place take none.
        let stuck = vec![owned(5, true, false); 10];
        assert_eq!(taken(&ranks, 1, (2, 10), &stuck, &waiting), ["a", "b", "c"]);
    }

    #[test]
    fn what_is_urgent_does_not_wait_behind_what_has_no_pair_yet() {
        let ranks = TransferRanking::new(RankRules::default());
        let full = vec![owned(5, false, false); 10];
        assert_eq!(taken(&ranks, 1, (2, 10), &full, &[candidate("u", 6, false)]), ["u"]);
        assert!(taken(&ranks, 1, (2, 10), &full, &[candidate("u", 5, false)]).is_empty());
        let served = vec![owned(5, false, true); 10];
        assert!(taken(&ranks, 1, (2, 10), &served, &[candidate("u", 6, false)]).is_empty());
        let most = vec![owned(5, true, false); OWNED_MAX];
        assert!(taken(&ranks, 1, (900, 0), &most, &[candidate("u", 6, true)]).is_empty());
    }

    #[test]
    fn a_pair_is_a_phantom_when_it_has_been_one_for_some_seconds() {
        let s = Duration::from_secs;
        let mut phantoms = OrphanedMoverPairs::default();
        assert!(phantoms.find_long_orphaned(s(0), [1, 2].iter()).is_empty());
        assert!(phantoms.find_long_orphaned(s(4), [2].iter()).is_empty());
        assert_eq!(phantoms.find_long_orphaned(s(6), [1, 2].iter()), [2]);
        assert_eq!(phantoms.find_long_orphaned(s(10), [1].iter()), [0; 0]);
        assert_eq!(phantoms.find_long_orphaned(s(12), [1].iter()), [1]);
    }
}
