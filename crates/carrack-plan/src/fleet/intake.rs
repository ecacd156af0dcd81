//! Which transfers a manager takes, and which pairs should not be: by what it follows, which may be behind.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use super::rank::{Ranks, Waiting};

/// Transfers beyond the fleet's places that are prepared, so that no place waits.
const AHEAD: usize = 8;

/// Transfers that a look puts in line beyond those that are taken: as many as come to their ends until the next look, and some more.
const IN_LINE: usize = 128;

/// Transfers that one manager has at most: each costs two consumers, and a stream has 1,000.
const OWNED_MAX: usize = 256;

/// A pair of a transfer that is not known, or over, is looked into after so long.
const PHANTOM_AFTER: Duration = Duration::from_secs(5);

/// A transfer that has no manager, and may have one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate<'a> {
    /// Its place among those that wait.
    pub waiting: Waiting<'a>,
    /// Somebody has begun it, or it is to be cleared away: it does not wait for a turn.
    pub is_begun: bool,
}

/// A transfer that the manager has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnedTransfer<'a> {
    /// Whose turn it took.
    pub account: &'a str,
    /// 0 to 9.
    pub priority: u8,
    /// It waits for something else than a place: it keeps no others from being taken.
    pub is_stuck: bool,
    /// It has pairs.
    pub has_pairs: bool,
}

/// What a look at all candidates has found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Intake<'a> {
    /// To be taken now, in this order: all that were begun, and of the others those whose turn has come, as far as there is room.
    pub take: Vec<&'a str>,
    /// Those that come next, until it is looked again.
    pub line: Vec<&'a str>,
}

/// How many more a manager may take: as many as there are `places` (pairs that the fleet's movers take together), and some, beyond what all
/// managers have.
pub fn room((places, owned_by_all): (usize, usize), owned: &[OwnedTransfer<'_>]) -> usize {
    let idle = owned.iter().filter(|owned| owned.is_stuck).count();
    let room = (places + AHEAD).saturating_sub(owned_by_all.saturating_sub(idle));
    room.min(OWNED_MAX.saturating_sub(owned.len()))
}

/// Which of the candidates a manager takes; `places` as for [`room`].
pub fn intake<'a>(
    ranks: &Ranks,
    now_ms: u64,
    places: (usize, usize),
    owned: &[OwnedTransfer<'_>],
    candidates: &[Candidate<'a>],
) -> Intake<'a> {
    let begun = candidates.iter().filter(|candidate| candidate.is_begun);
    let most = OWNED_MAX.saturating_sub(owned.len());
    let mut take: Vec<&'a str> = begun.map(|candidate| candidate.waiting.id).take(most).collect();
    let waiting: Vec<Waiting<'a>> = candidates
        .iter()
        .filter(|candidate| !candidate.is_begun)
        .map(|candidate| candidate.waiting)
        .collect();
    let urgent = waiting.iter().map(|one| one.priority).max();
    let unserved = owned.iter().filter(|owned| !owned.is_stuck && !owned.has_pairs);
    let least = unserved.map(|owned| owned.priority).min();
    let room = room(places, owned);
    // What is more urgent than something that was taken and has no pair yet does not wait behind it.
    let room = if room == 0 && urgent > least && least.is_some() { 1 } else { room };
    let mut line = Vec::new();
    if !waiting.is_empty() {
        let running: Vec<&str> = owned.iter().map(|owned| owned.account).collect();
        let mut order = ranks.order(now_ms, &running, &waiting, room + IN_LINE);
        line = order.split_off(room.min(order.len()));
        take.extend(order);
    }
    Intake { take, line }
}

/// Pairs of transfers that are over, or not known, since when: a watch that is behind shows such for a moment.
#[derive(Clone, Debug)]
pub struct Phantoms<K>(HashMap<K, Duration>);

impl<K> Default for Phantoms<K> {
    fn default() -> Phantoms<K> {
        Phantoms(HashMap::new())
    }
}

impl<K: Clone + Eq + Hash + Ord> Phantoms<K> {
    /// Those that have been there for too long, in their order: of their transfers the record itself is to be read. `phantoms` are all
    /// pairs whose transfer is not among those that are open.
    pub fn look<'a>(&mut self, now: Duration, phantoms: impl Iterator<Item = &'a K>) -> Vec<K>
    where
        K: 'a,
    {
        let seen: HashMap<K, Duration> =
            phantoms.map(|key| (key.clone(), self.0.get(key).copied().unwrap_or(now))).collect();
        self.0 = seen;
        let old =
            |(key, since): (&K, &Duration)| (now.saturating_sub(*since) > PHANTOM_AFTER).then(|| key.clone());
        let mut old: Vec<K> = self.0.iter().filter_map(old).collect();
        old.sort_unstable();
        old
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::RankRules;

    fn candidate(id: &str, priority: u8, is_begun: bool) -> Candidate<'_> {
        let waiting =
            Waiting { id, account: "u", priority, submitted_ms: 0, deadline_ms: None, not_before_ms: None };
        Candidate { waiting, is_begun }
    }

    fn owned(priority: u8, is_stuck: bool, has_pairs: bool) -> OwnedTransfer<'static> {
        OwnedTransfer { account: "u", priority, is_stuck, has_pairs }
    }

    fn taken<'a>(
        ranks: &Ranks,
        now_ms: u64,
        places: (usize, usize),
        owned: &[OwnedTransfer<'_>],
        candidates: &[Candidate<'a>],
    ) -> Vec<&'a str> {
        intake(ranks, now_ms, places, owned, candidates).take
    }

    #[test]
    fn those_that_are_not_taken_stand_in_line() {
        let ranks = Ranks::new(RankRules::default());
        let waiting = ["a", "b", "c"].map(|id| candidate(id, 5, false));
        let full = vec![owned(5, false, true); 9];
        let found = intake(&ranks, 1, (2, 9), &full, &waiting);
        assert_eq!((found.take, found.line), (vec!["a"], vec!["b", "c"]));
        assert_eq!((room((2, 9), &full), room((2, 11), &full)), (1, 0));
    }

    #[test]
    fn what_was_begun_is_taken_and_others_as_far_as_there_is_room() {
        let ranks = Ranks::new(RankRules::default());
        let waiting = ["a", "b", "c"].map(|id| candidate(id, 5, false));
        let begun = candidate("x", 0, true);
        let all = [&waiting[..], &[begun]].concat();
        let full = vec![owned(5, false, true); 10];
        assert_eq!(taken(&ranks, 1, (2, 10), &full, &all), ["x"]);
        assert_eq!(taken(&ranks, 1, (2, 9), &full[1..], &all), ["x", "a"]);
        assert_eq!(taken(&ranks, 1, (2, 0), &[], &all), ["x", "a", "b", "c"]);
        // Those that wait for something else than a place take none.
        let stuck = vec![owned(5, true, false); 10];
        assert_eq!(taken(&ranks, 1, (2, 10), &stuck, &waiting), ["a", "b", "c"]);
    }

    #[test]
    fn what_is_urgent_does_not_wait_behind_what_has_no_pair_yet() {
        let ranks = Ranks::new(RankRules::default());
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
        let mut phantoms = Phantoms::default();
        assert!(phantoms.look(s(0), [1, 2].iter()).is_empty());
        assert!(phantoms.look(s(4), [2].iter()).is_empty());
        assert_eq!(phantoms.look(s(6), [1, 2].iter()), [2]);
        assert_eq!(phantoms.look(s(10), [1].iter()), [0; 0]);
        assert_eq!(phantoms.look(s(12), [1].iter()), [1]);
    }
}
