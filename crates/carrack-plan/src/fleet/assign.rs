//! The movers of each share: from the present pairs to those of the shares, with the fewest changes.
//!
//! Owns nothing. Every manager changes the pairs of its own transfers only, but counts all pairs, so that no
//! mover exceeds its limit.

use std::collections::{BTreeMap, BTreeSet};

use super::{FleetMover, TransferPairDemand};

/// A source mover and a sink mover that carry a transfer together.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AssignedMoverPair {
    /// The transfer's id.
    pub transfer: String,
    /// Number of the pair among the transfer's pairs.
    pub number: u32,
    /// The mover that reads.
    pub source: String,
    /// The mover that writes.
    pub sink: String,
}

/// The changes that a manager makes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MoverPairChanges {
    /// Pairs to make.
    pub add: Vec<AssignedMoverPair>,
    /// Pairs to end.
    pub drop: Vec<AssignedMoverPair>,
}

/// Computes the changes from the present pairs to those of the shares (one number for each claim, as `shares`
/// returns them).
///
/// - The manager's own pairs end if a mover is gone, drains, may not serve the transfer any more, or speaks
///   another protocol than the other. Then pairs of movers beyond their limit end, then those beyond the
///   share (all pairs of a transfer that wants none), beginning with the most crowded hosts and movers.
/// - Other pairs stay, wherever they are: moving a pair costs more than a better place brings.
/// - New pairs are made one at a time for the transfer with the least of its share. Each end is the mover
///   whose host has the fewest pairs of that transfer; then room decides, and then the ID.
///
/// Movers that `shares` counted on may still have pairs of other managers, which will end them: until then
/// fewer pairs are added than the share allows. The result is stable: with the same input, a second call
/// changes nothing.
pub fn assign(
    movers: &[FleetMover],
    claims: &[TransferPairDemand],
    shares: &[u32],
    present: &[AssignedMoverPair],
) -> MoverPairChanges {
    let mut table = MoverPairAssigner::new(movers, claims, shares);
    let mut sorted = present.to_vec();
    sorted.sort();
    sorted.dedup();
    for pair in sorted {
        table.add_present_pair(pair);
    }
    table.end_crowded();
    table.end_beyond_shares();
    table.add_missing();
    table.changes
}

/// A pair that stays, with its movers' indexes.
struct UnchangedMoverPair {
    pair: AssignedMoverPair,
    claim: Option<usize>,
    ends: [Option<usize>; 2],
}

struct MoverPairAssigner<'a> {
    movers: &'a [FleetMover],
    claims: &'a [TransferPairDemand],
    shares: &'a [u32],
    by_id: BTreeMap<&'a str, usize>,
    claim_of: BTreeMap<&'a str, usize>,
    kept: Vec<UnchangedMoverPair>,
    /// Ends of pairs that each mover has.
    load: Vec<u32>,
    /// Each mover's host, by number.
    hosts: Vec<usize>,
    /// For each claim, the number of ends on each host.
    on_host: Vec<Vec<u32>>,
    /// Movers that could be at either end of a claim's pairs.
    at_both_ends: Vec<BTreeSet<usize>>,
    changes: MoverPairChanges,
}

impl<'a> MoverPairAssigner<'a> {
    fn new(
        movers: &'a [FleetMover],
        claims: &'a [TransferPairDemand],
        shares: &'a [u32],
    ) -> MoverPairAssigner<'a> {
        let mut numbers = BTreeMap::new();
        let mut hosts = Vec::with_capacity(movers.len());
        for mover in movers {
            let next = numbers.len();
            hosts.push(*numbers.entry(&*mover.host).or_insert(next));
        }
        MoverPairAssigner {
            movers,
            claims,
            shares,
            on_host: vec![vec![0; numbers.len()]; claims.len()],
            hosts,
            at_both_ends: claims.iter().map(movers_at_both_ends).collect(),
            by_id: movers.iter().enumerate().map(|(index, mover)| (&*mover.id, index)).collect(),
            claim_of: claims.iter().enumerate().map(|(index, claim)| (&*claim.transfer, index)).collect(),
            kept: Vec::new(),
            load: vec![0; movers.len()],
            changes: MoverPairChanges::default(),
        }
    }

    /// Counts a pair, unless it is the manager's own and can't stay.
    fn add_present_pair(&mut self, pair: AssignedMoverPair) {
        let claim = self.claim_of.get(&*pair.transfer).copied();
        let ends = [&pair.source, &pair.sink].map(|id| self.by_id.get(&**id).copied());
        let kept = UnchangedMoverPair { pair, claim, ends };
        if self.is_mine(&kept) && !self.can_stay(&kept) {
            self.changes.drop.push(kept.pair);
        } else {
            self.adjust_load(&kept, true);
            self.kept.push(kept);
        }
    }

    fn is_mine(&self, kept: &UnchangedMoverPair) -> bool {
        kept.claim.is_some_and(|claim| self.claims[claim].is_mine)
    }

    fn can_stay(&self, kept: &UnchangedMoverPair) -> bool {
        let (Some(claim), [Some(source), Some(sink)]) = (kept.claim, kept.ends) else { return false };
        let claim = &self.claims[claim];
        claim.sources.contains(&source)
            && claim.sinks.contains(&sink)
            && !self.movers[source].is_draining
            && !self.movers[sink].is_draining
            && self.movers[source].protocol == self.movers[sink].protocol
    }

    fn adjust_load(&mut self, kept: &UnchangedMoverPair, is_there: bool) {
        for mover in kept.ends.into_iter().flatten() {
            let on_host = kept.claim.map(|claim| &mut self.on_host[claim][self.hosts[mover]]);
            for count in on_host.into_iter().chain([&mut self.load[mover]]) {
                *count = if is_there { *count + 1 } else { *count - 1 };
            }
        }
    }

    /// Ends the manager's own pairs of movers beyond their limit, the last first.
    fn end_crowded(&mut self) {
        for position in (0..self.kept.len()).rev() {
            let kept = &self.kept[position];
            let mut movers = kept.ends.iter().flatten();
            let is_crowded = movers.any(|&mover| self.load[mover] > self.movers[mover].pairs_max);
            if self.is_mine(kept) && is_crowded {
                self.drop_pair(position);
            }
        }
    }

    fn end_beyond_shares(&mut self) {
        for claim in (0..self.claims.len()).filter(|&claim| self.claims[claim].is_mine) {
            while self.pairs_of(claim) > self.shares[claim] {
                let of_claim = (0..self.kept.len()).filter(|&at| self.kept[at].claim == Some(claim));
                let most_crowded = of_claim
                    .max_by_key(|&at| (self.pair_load(claim, &self.kept[at]), self.kept[at].pair.number));
                let Some(position) = most_crowded else { break };
                self.drop_pair(position);
            }
        }
    }

    /// Returns the load of a pair's hosts by its transfer, and of its movers by all transfers.
    fn pair_load(&self, claim: usize, kept: &UnchangedMoverPair) -> (u32, u32) {
        let (mut on_hosts, mut on_movers) = (0, 0);
        for mover in kept.ends.into_iter().flatten() {
            on_hosts += self.host_load(claim, mover);
            on_movers += self.load[mover];
        }
        (on_hosts, on_movers)
    }

    fn host_load(&self, claim: usize, mover: usize) -> u32 {
        self.on_host[claim][self.hosts[mover]]
    }

    fn drop_pair(&mut self, position: usize) {
        let kept = self.kept.remove(position);
        self.adjust_load(&kept, false);
        self.changes.drop.push(kept.pair);
    }

    fn pairs_of(&self, claim: usize) -> u32 {
        self.kept.iter().filter(|kept| kept.claim == Some(claim)).count() as u32
    }

    fn add_missing(&mut self) {
        let mut counts: Vec<u32> = (0..self.claims.len()).map(|claim| self.pairs_of(claim)).collect();
        let mut numbers: Vec<BTreeSet<u32>> = vec![BTreeSet::new(); self.claims.len()];
        for kept in &self.kept {
            if let Some(claim) = kept.claim {
                numbers[claim].insert(kept.pair.number);
            }
        }
        let mut hungry: Vec<usize> =
            (0..self.claims.len()).filter(|&claim| self.claims[claim].is_mine).collect();
        hungry.sort_by_key(|&claim| (self.claims[claim].submitted_ms, &self.claims[claim].transfer));
        loop {
            hungry.retain(|&claim| counts[claim] < self.shares[claim]);
            let next = hungry
                .iter()
                .copied()
                .min_by_key(|&claim| (u64::from(counts[claim]) << 32) / u64::from(self.shares[claim]));
            let Some(claim) = next else { return };
            let Some(ends) = self.best_ends(claim) else {
                hungry.retain(|&other| other != claim);
                continue;
            };
            let free = (0..).find(|number| !numbers[claim].contains(number));
            let number = free.expect("a claim has fewer pairs than there are numbers");
            numbers[claim].insert(number);
            counts[claim] += 1;
            self.add(claim, number, ends);
        }
    }

    fn add(&mut self, claim: usize, number: u32, [source, sink]: [usize; 2]) {
        let pair = AssignedMoverPair {
            transfer: self.claims[claim].transfer.clone(),
            number,
            source: self.movers[source].id.clone(),
            sink: self.movers[sink].id.clone(),
        };
        self.changes.add.push(pair.clone());
        let kept = UnchangedMoverPair { pair, claim: Some(claim), ends: [Some(source), Some(sink)] };
        self.adjust_load(&kept, true);
        self.kept.push(kept);
    }

    /// Returns the source and the sink of a claim's next pair, if there are any.
    fn best_ends(&self, claim: usize) -> Option<[usize; 2]> {
        let TransferPairDemand { sources, sinks, .. } = &self.claims[claim];
        let protocols: BTreeSet<u32> =
            sources.iter().filter_map(|&mover| self.movers.get(mover)).map(|mover| mover.protocol).collect();
        let pairs = protocols.into_iter().rev().filter_map(|protocol| {
            let [sources, sinks] = [sources, sinks].map(|ends| self.open(protocol, ends));
            // The end with less room chooses first, and takes no mover that the other end may need instead.
            let [source_room, sink_room] = [&sources, &sinks]
                .map(|ends| ends.iter().map(|&mover| u64::from(self.room(mover))).sum::<u64>());
            if source_room <= sink_room {
                let source = self.best_mover(claim, &sources, None)?;
                Some([source, self.best_mover(claim, &sinks, Some(source))?])
            } else {
                let sink = self.best_mover(claim, &sinks, None)?;
                Some([self.best_mover(claim, &sources, Some(sink))?, sink])
            }
        });
        pairs.min_by_key(|ends| {
            let hosts: u32 = ends.iter().map(|&mover| self.host_load(claim, mover)).sum();
            let room: u32 = ends.iter().map(|&mover| self.room(mover)).sum();
            (hosts, std::cmp::Reverse(room))
        })
    }

    /// Returns the movers of one protocol that take another pair.
    fn open(&self, protocol: u32, movers: &[usize]) -> Vec<usize> {
        let mut open = movers.to_vec();
        open.retain(|&index| {
            self.movers
                .get(index)
                .is_some_and(|mover| mover.protocol == protocol && !mover.is_draining && self.room(index) > 0)
        });
        open
    }

    fn room(&self, mover: usize) -> u32 {
        self.movers[mover].pairs_max.saturating_sub(self.load[mover])
    }

    /// Returns the best mover. The first end of a pair is rather a mover that can't be its other end. The
    /// second is not `taken`, the first, unless there is no other: a mover can send to itself if it has room
    /// for both ends.
    fn best_mover(&self, claim: usize, movers: &[usize], taken: Option<usize>) -> Option<usize> {
        let free = movers.iter().copied().filter(|&index| Some(index) != taken || self.room(index) > 1);
        free.min_by_key(|&index| {
            let is_needed = taken.is_none() && self.at_both_ends[claim].contains(&index);
            let (hosts, room) = (self.host_load(claim, index), std::cmp::Reverse(self.room(index)));
            (Some(index) == taken, is_needed, hosts, room, &self.movers[index].id)
        })
    }
}

fn movers_at_both_ends(claim: &TransferPairDemand) -> BTreeSet<usize> {
    let sources: BTreeSet<usize> = claim.sources.iter().copied().collect();
    claim.sinks.iter().copied().filter(|sink| sources.contains(sink)).collect()
}

#[cfg(test)]
#[path = "assign_tests.rs"]
mod tests;
