//! The order of turns at a target: start-time fair queueing of bursts, with turns reserved for guarantees
//! (L13).
//!
//! Each wish has a start tag: the virtual time of its arrival, or the end of its client's last burst in
//! virtual time if that is later. A burst of length `c` advances its client by `c / weight`. The smallest tag
//! comes first; the virtual time is the tag of the last wish served. Goyal, Vin and Cheng, *Start-time Fair
//! Queueing* (SIGCOMM 1996); with several places at once, Jin, Chase and Kaur's SFQ(D) (SIGMETRICS 2004).
//! Guarantees come first and have a clock of their own, as in mClock (Gulati, Merchant and Varman, OSDI
//! 2010).

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use super::settings::RESERVED_TO_FAIR;

/// A client, by the number that the server has given it.
pub(super) type GrantClientNumber = u64;

/// A nanosecond in virtual time at weight 1: no weight up to a million rounds to zero.
const SCALE: u128 = 1 << 20;

/// A client that may have the next turn.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct GrantTurnCandidate {
    /// True if it has threads to spare for one more contended target.
    pub(super) has_room: bool,
    /// Lateness behind its guarantee.
    pub(super) lateness: Duration,
}

/// A turn that was given.
#[derive(Clone, Copy, Debug)]
pub(super) struct GrantTurn {
    pub(super) weight: u32,
    pub(super) is_reserved: bool,
    /// The charge at its begin.
    pub(super) planned: Duration,
}

#[derive(Clone, Copy, Debug)]
struct QueuedWish {
    since: Duration,
    weight: u32,
    /// Virtual time of its arrival.
    arrival: u128,
    /// Upper bound of its tag: the cost of a guarantee or a gap counts for no longer than a burst.
    latest: u128,
    /// True if it is new, or could not have the last turn that was given: it arrives when it can have one.
    was_passed_by: bool,
}

/// The clients that wait for a target, and the past use of each.
#[derive(Clone, Debug, Default)]
pub(super) struct TurnQueue {
    virtual_time: u128,
    /// End of each client's last burst in virtual time.
    finish: BTreeMap<GrantClientNumber, u128>,
    wishes: BTreeMap<GrantClientNumber, QueuedWish>,
    /// Time of guarantees that was not matched by time given by weight.
    reserved: Duration,
}

fn virtual_span(cost: Duration, weight: u32) -> u128 {
    cost.as_nanos() * SCALE / u128::from(weight.max(1))
}

impl TurnQueue {
    /// Adds a client's wish, with the start of its wait.
    pub(super) fn add_wish(&mut self, client: GrantClientNumber, weight: u32, since: Duration) {
        let new = QueuedWish { since, weight, arrival: 0, latest: 0, was_passed_by: true };
        let wish = self.wishes.entry(client).or_insert(new);
        wish.weight = weight;
        wish.since = wish.since.min(since);
    }

    /// Removes a client's wish.
    pub(super) fn remove_wish(&mut self, client: GrantClientNumber) {
        self.wishes.remove(&client);
    }

    /// Removes a client.
    pub(super) fn forget(&mut self, client: GrantClientNumber) {
        self.wishes.remove(&client);
        self.finish.remove(&client);
    }

    /// Returns the waiting clients with the start of their wait.
    pub(super) fn waiting_clients(&self) -> impl Iterator<Item = (GrantClientNumber, Duration)> {
        self.wishes.iter().map(|(client, wish)| (*client, wish.since))
    }

    /// Chooses the next client among those with a `standing`, and tells whether the turn is reserved for a
    /// guarantee.
    ///
    /// Clients without room come only if no client has room: a target that others could use is not for a
    /// client without a thread for it. Guarantees come first, the latest before others, as long as they took
    /// no more than [`RESERVED_TO_FAIR`] times the time given by weight, plus one burst.
    pub(super) fn choose(
        &mut self,
        burst: Duration,
        standing: impl Fn(GrantClientNumber) -> Option<GrantTurnCandidate>,
    ) -> Option<(GrantClientNumber, bool)> {
        let may_reserve = self.reserved < burst * RESERVED_TO_FAIR;
        let standings: Vec<Option<GrantTurnCandidate>> =
            self.wishes.keys().map(|client| standing(*client)).collect();
        let needs_room = standings.iter().flatten().any(|standing| standing.has_room);
        let (mut late, mut fair) = (None, None);
        for ((&client, wish), standing) in self.wishes.iter_mut().zip(standings) {
            let Some(standing) = standing.filter(|standing| standing.has_room || !needs_room) else {
                wish.was_passed_by = true;
                continue;
            };
            if std::mem::take(&mut wish.was_passed_by) {
                wish.arrival = self.virtual_time;
                wish.latest = self.virtual_time + virtual_span(burst, wish.weight);
            }
            let tag = wish.tag(self.finish.get(&client).copied().unwrap_or(0));
            let key = (tag, wish.since, client);
            if standing.lateness > Duration::ZERO && may_reserve {
                late = late.max(Some((standing.lateness, Reverse(key))));
            }
            fair = Some(fair.map_or(key, |best: (u128, Duration, GrantClientNumber)| best.min(key)));
        }
        match (late, fair) {
            // A guaranteed turn that the weights give as well is not reserved.
            (Some((_, Reverse((_, _, client)))), Some((_, _, first))) => Some((client, client != first)),
            (None, Some((_, _, client))) => Some((client, false)),
            (_, None) => None,
        }
    }

    /// Gives a turn, and charges a burst for it.
    pub(super) fn grant_turn(
        &mut self,
        client: GrantClientNumber,
        is_reserved: bool,
        burst: Duration,
    ) -> Option<GrantTurn> {
        let wish = self.wishes.remove(&client)?;
        let finish = self.finish.entry(client).or_insert(0);
        let tag = wish.tag(*finish);
        *finish = tag + virtual_span(burst, wish.weight);
        if is_reserved {
            self.reserved += burst;
        } else {
            self.virtual_time = self.virtual_time.max(tag);
        }
        Some(GrantTurn { weight: wish.weight, is_reserved, planned: burst })
    }

    /// Charges another burst to a client that continues because no other waits. It advances the virtual time,
    /// so that later clients are not behind by time that no other client wanted.
    pub(super) fn charge_next_burst(
        &mut self,
        client: GrantClientNumber,
        weight: u32,
        burst: Duration,
    ) -> GrantTurn {
        let finish = self.finish.entry(client).or_insert(0);
        let tag = (*finish).max(self.virtual_time);
        *finish = tag + virtual_span(burst, weight);
        self.virtual_time = tag;
        self.wishes.values_mut().for_each(|wish| wish.was_passed_by = true);
        GrantTurn { weight, is_reserved: false, planned: burst }
    }

    /// Settles a turn that has ended by its real length.
    pub(super) fn settle(&mut self, client: GrantClientNumber, turn: GrantTurn, took: Duration) {
        if let Some(finish) = self.finish.get_mut(&client) {
            let planned = virtual_span(turn.planned, turn.weight);
            *finish = (*finish + virtual_span(took, turn.weight)).saturating_sub(planned);
        }
        self.reserved = if turn.is_reserved {
            (self.reserved + took).saturating_sub(turn.planned)
        } else {
            self.reserved.saturating_sub(took * RESERVED_TO_FAIR)
        };
    }
}

impl QueuedWish {
    fn tag(&self, finish: u128) -> u128 {
        finish.clamp(self.arrival, self.latest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BURST: Duration = Duration::from_millis(500);

    /// Returns the bursts of clients with these weights, all of which always want one.
    fn run(weights: &[u32], late: &[GrantClientNumber], turns: usize) -> Vec<u32> {
        let mut queue = TurnQueue::default();
        let mut given = vec![0; weights.len()];
        for _ in 0..turns {
            for (client, &weight) in (0..).zip(weights) {
                queue.add_wish(client, weight, Duration::ZERO);
            }
            let chosen = queue.choose(BURST, |client| {
                let lateness = if late.contains(&client) { BURST } else { Duration::ZERO };
                Some(GrantTurnCandidate { has_room: true, lateness })
            });
            let (client, is_reserved) = chosen.unwrap();
            let turn = queue.grant_turn(client, is_reserved, BURST).unwrap();
            queue.settle(client, turn, BURST);
            given[client as usize] += 1;
        }
        given
    }

    #[test]
    fn turns_are_in_proportion_to_weights() {
        assert_eq!(run(&[1, 1, 1], &[], 30), [10, 10, 10]);
        let given = run(&[1, 2, 5], &[], 80);
        for (&given, expected) in given.iter().zip([10u32, 20, 50]) {
            assert!(given.abs_diff(expected) <= 1, "{given} for {expected}");
        }
    }

    #[test]
    fn guarantees_take_three_quarters_at_most() {
        let given = run(&[1, 1, 1], &[0], 400);
        // Some of the turns by weight are its own.
        assert!((300..=335).contains(&given[0]), "{given:?}");
        assert!(given[1].abs_diff(given[2]) <= 1);
        let given = run(&[1, 1, 1], &[0, 1], 400);
        assert!(given[2] >= 33, "{given:?}");
    }

    #[test]
    fn who_had_it_alone_is_not_behind_for_it() {
        let mut queue = TurnQueue::default();
        for _ in 0..100 {
            let turn = queue.charge_next_burst(1, 1, BURST);
            queue.settle(1, turn, BURST);
        }
        let mut given = [0, 0];
        for _ in 0..20 {
            (1..3).for_each(|client| queue.add_wish(client, 1, Duration::ZERO));
            let (client, is_reserved) = queue.choose(BURST, |_| Some(GrantTurnCandidate::default())).unwrap();
            let turn = queue.grant_turn(client, is_reserved, BURST).unwrap();
            queue.settle(client, turn, BURST);
            given[client as usize - 1] += 1;
        }
        assert_eq!(given, [10, 10]);
    }
}
