//! Which movers make up the shares: from the pairs that there are to those that there should be, with the fewest changes.
//!
//! Owns nothing. Every manager changes the pairs of its own transfers only, but counts all of them, so that no mover gets
//! more than it takes.

use std::collections::{BTreeMap, BTreeSet};

use super::{Claim, FleetMover};

/// A source mover and a sink mover that carry a transfer together.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FleetPair {
    /// The transfer's id.
    pub transfer: String,
    /// Of the transfer's pairs, which it is.
    pub number: u32,
    /// The mover that reads.
    pub source: String,
    /// The mover that writes.
    pub sink: String,
}

/// What a manager has to change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Pairs to make.
    pub add: Vec<FleetPair>,
    /// Pairs to end.
    pub drop: Vec<FleetPair>,
}

/// From the pairs that there are to those of the shares (one number for each claim, as `shares` gives them).
///
/// - Pairs of one's own end whose mover is gone, drains, may not serve the transfer any more, or speaks another protocol than
///   the other; those of a mover that has more than it takes; those of transfers that ask for nothing; then what is
///   beyond the share, beginning with the most crowded hosts and movers.
/// - Others stay, wherever they are: moving a pair costs more than a better place for it brings.
/// - New ones are made one by one for the transfer that has least of its share. Each end is the mover whose host has the fewest
///   pairs of that transfer, of those the one with the most room, and of those the first by its id.
///
/// Movers that `shares` counted on may still be taken by pairs of other managers, which they will end: then less is added
/// than the share says, until they have. With the same input, what it has done once needs no change.
pub fn assign(movers: &[FleetMover], claims: &[Claim], shares: &[u32], present: &[FleetPair]) -> Changes {
    let mut table = Table::new(movers, claims, shares);
    let mut sorted = present.to_vec();
    sorted.sort();
    sorted.dedup();
    for pair in sorted {
        table.take_in(pair);
    }
    table.end_crowded();
    table.end_beyond_shares();
    table.add_missing();
    table.changes
}

/// A pair that stays, with its movers' indexes.
struct Kept {
    pair: FleetPair,
    claim: Option<usize>,
    ends: [Option<usize>; 2],
}

struct Table<'a> {
    movers: &'a [FleetMover],
    claims: &'a [Claim],
    shares: &'a [u32],
    by_id: BTreeMap<&'a str, usize>,
    claim_of: BTreeMap<&'a str, usize>,
    kept: Vec<Kept>,
    /// Ends of pairs that each mover has.
    load: Vec<u32>,
    /// Each mover's host, by a number.
    hosts: Vec<usize>,
    /// Of each claim's pairs, ends on each host.
    on_host: Vec<Vec<u32>>,
    /// Movers that could be at either end of a claim's pairs.
    at_both_ends: Vec<BTreeSet<usize>>,
    changes: Changes,
}

impl<'a> Table<'a> {
    fn new(movers: &'a [FleetMover], claims: &'a [Claim], shares: &'a [u32]) -> Table<'a> {
        let mut numbers = BTreeMap::new();
        let mut number = |mover: &'a FleetMover| {
            let next = numbers.len();
            *numbers.entry(&*mover.host).or_insert(next)
        };
        let hosts: Vec<usize> = movers.iter().map(&mut number).collect();
        let of_both = |claim: &Claim| {
            let sources: BTreeSet<usize> = claim.sources.iter().copied().collect();
            claim.sinks.iter().copied().filter(|sink| sources.contains(sink)).collect()
        };
        Table {
            movers,
            claims,
            shares,
            on_host: vec![vec![0; numbers.len()]; claims.len()],
            hosts,
            at_both_ends: claims.iter().map(of_both).collect(),
            by_id: movers.iter().enumerate().map(|(index, mover)| (&*mover.id, index)).collect(),
            claim_of: claims.iter().enumerate().map(|(index, claim)| (&*claim.transfer, index)).collect(),
            kept: Vec::new(),
            load: vec![0; movers.len()],
            changes: Changes::default(),
        }
    }

    /// Counts a pair, unless it is one's own and can't stay.
    fn take_in(&mut self, pair: FleetPair) {
        let claim = self.claim_of.get(&*pair.transfer).copied();
        let ends = [&pair.source, &pair.sink].map(|id| self.by_id.get(&**id).copied());
        let kept = Kept { pair, claim, ends };
        if self.is_mine(&kept) && !self.can_stay(&kept) {
            self.changes.drop.push(kept.pair);
        } else {
            self.count(&kept, true);
            self.kept.push(kept);
        }
    }

    fn is_mine(&self, kept: &Kept) -> bool {
        kept.claim.is_some_and(|claim| self.claims[claim].is_mine)
    }

    fn can_stay(&self, kept: &Kept) -> bool {
        let (Some(claim), [Some(source), Some(sink)]) = (kept.claim, kept.ends) else { return false };
        let claim = &self.claims[claim];
        claim.sources.contains(&source)
            && claim.sinks.contains(&sink)
            && !self.movers[source].is_draining
            && !self.movers[sink].is_draining
            && self.movers[source].protocol == self.movers[sink].protocol
    }

    fn count(&mut self, kept: &Kept, is_there: bool) {
        for mover in kept.ends.into_iter().flatten() {
            let step = |count: &mut u32| *count = if is_there { *count + 1 } else { *count - 1 };
            step(&mut self.load[mover]);
            if let Some(claim) = kept.claim {
                step(&mut self.on_host[claim][self.hosts[mover]]);
            }
        }
    }

    /// Ends one's own pairs of movers that have more than they take, the last first.
    fn end_crowded(&mut self) {
        for position in (0..self.kept.len()).rev() {
            let kept = &self.kept[position];
            let is_crowded = |mover: &usize| self.load[*mover] > self.movers[*mover].pairs_max;
            if self.is_mine(kept) && kept.ends.iter().flatten().any(is_crowded) {
                self.end(position);
            }
        }
    }

    fn end_beyond_shares(&mut self) {
        for claim in (0..self.claims.len()).filter(|&claim| self.claims[claim].is_mine) {
            while self.pairs_of(claim) > self.shares[claim] {
                let of_claim = (0..self.kept.len()).filter(|&at| self.kept[at].claim == Some(claim));
                let crowd = |&at: &usize| (self.crowd(claim, &self.kept[at]), self.kept[at].pair.number);
                let Some(position) = of_claim.max_by_key(crowd) else { break };
                self.end(position);
            }
        }
    }

    /// How crowded a pair's hosts are by its transfer, and its movers by all.
    fn crowd(&self, claim: usize, kept: &Kept) -> (u32, u32) {
        let ends = || kept.ends.into_iter().flatten();
        let hosts = ends().map(|mover| self.host_load(claim, mover)).sum();
        (hosts, ends().map(|mover| self.load[mover]).sum())
    }

    fn host_load(&self, claim: usize, mover: usize) -> u32 {
        self.on_host[claim][self.hosts[mover]]
    }

    fn end(&mut self, position: usize) {
        let kept = self.kept.remove(position);
        self.count(&kept, false);
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
            // Of its share it has n / share.
            let part = |&&claim: &&usize| (u64::from(counts[claim]) << 32) / u64::from(self.shares[claim]);
            let Some(&claim) = hungry.iter().min_by_key(part) else { return };
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
        let pair = FleetPair {
            transfer: self.claims[claim].transfer.clone(),
            number,
            source: self.movers[source].id.clone(),
            sink: self.movers[sink].id.clone(),
        };
        self.changes.add.push(pair.clone());
        let kept = Kept { pair, claim: Some(claim), ends: [Some(source), Some(sink)] };
        self.count(&kept, true);
        self.kept.push(kept);
    }

    /// The source and the sink of a claim's next pair, if there are any.
    fn best_ends(&self, claim: usize) -> Option<[usize; 2]> {
        let Claim { sources, sinks, .. } = &self.claims[claim];
        let protocols: BTreeSet<u32> =
            sources.iter().filter_map(|&mover| self.movers.get(mover)).map(|mover| mover.protocol).collect();
        let pairs = protocols.into_iter().rev().filter_map(|protocol| {
            let [sources, sinks] = [sources, sinks].map(|ends| self.open(protocol, ends));
            // The end with less room chooses first, and takes none that the other end may need instead.
            let room = |ends: &[usize]| ends.iter().map(|&mover| u64::from(self.room(mover))).sum::<u64>();
            if room(&sources) <= room(&sinks) {
                let source = self.best(claim, &sources, None)?;
                Some([source, self.best(claim, &sinks, Some(source))?])
            } else {
                let sink = self.best(claim, &sinks, None)?;
                Some([self.best(claim, &sources, Some(sink))?, sink])
            }
        });
        pairs.min_by_key(|ends| {
            let hosts: u32 = ends.iter().map(|&mover| self.host_load(claim, mover)).sum();
            let room: u32 = ends.iter().map(|&mover| self.room(mover)).sum();
            (hosts, std::cmp::Reverse(room))
        })
    }

    /// Movers of one protocol that take another pair.
    fn open(&self, protocol: u32, movers: &[usize]) -> Vec<usize> {
        let is_open = |&&index: &&usize| {
            let mover = self.movers.get(index);
            mover
                .is_some_and(|mover| mover.protocol == protocol && !mover.is_draining && self.room(index) > 0)
        };
        movers.iter().filter(is_open).copied().collect()
    }

    fn room(&self, mover: usize) -> u32 {
        self.movers[mover].pairs_max.saturating_sub(self.load[mover])
    }

    /// The best of these. The first end of a pair is rather one that can't be its other end; the second is not `taken`, the
    /// first, unless there is no other: a mover can send to itself if it has room for both ends.
    fn best(&self, claim: usize, movers: &[usize], taken: Option<usize>) -> Option<usize> {
        let has_room = |&&index: &&usize| Some(index) != taken || self.room(index) > 1;
        let rank = |&&index: &&usize| {
            let is_needed = taken.is_none() && self.at_both_ends[claim].contains(&index);
            let (hosts, room) = (self.host_load(claim, index), std::cmp::Reverse(self.room(index)));
            (Some(index) == taken, is_needed, hosts, room, &self.movers[index].id)
        };
        movers.iter().filter(has_room).min_by_key(rank).copied()
    }
}

#[cfg(test)]
#[path = "assign_tests.rs"]
mod tests;
