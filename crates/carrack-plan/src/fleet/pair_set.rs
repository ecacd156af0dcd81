//! The running pairs of one mover, kept equal to those that its manager wants.
//!
//! A pair ends before another pair of its key begins, and a transfer's scans are taken while the mover has a
//! pair of the transfer.

use std::collections::{BTreeMap, BTreeSet};

use super::FleetPair;

/// Key of a pair at the mover that reads: transfer and number.
pub type PairId = (String, u32);

/// An action of the mover.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PairAct {
    /// Begin a pair; its end is reported to [`MoverPairs::ended`].
    Begin(FleetPair),
    /// Tell a pair to end.
    Stop(PairId),
    /// Take scans of this transfer.
    BeginScans(String),
    /// Stop taking scans of this transfer.
    StopScans(String),
}

/// The pairs of one mover.
#[derive(Clone, Debug, Default)]
pub struct MoverPairs {
    /// The pairs that the manager wants.
    wanted: BTreeMap<PairId, FleetPair>,
    /// The running pairs, each with its sink; some of them are ending.
    running: BTreeMap<PairId, String>,
    scans: BTreeSet<String>,
}

impl MoverPairs {
    /// Sets all wanted pairs.
    pub fn all(&mut self, pairs: Vec<FleetPair>) -> Vec<PairAct> {
        let ids: BTreeSet<PairId> = pairs.iter().map(id).collect();
        let gone: Vec<PairId> = self.wanted.keys().filter(|id| !ids.contains(*id)).cloned().collect();
        let mut acts: Vec<PairAct> = gone.iter().flat_map(|id| self.gone(id)).collect();
        acts.extend(pairs.into_iter().flat_map(|pair| self.put(pair)));
        acts
    }

    /// Adds or changes a wanted pair.
    pub fn put(&mut self, pair: FleetPair) -> Vec<PairAct> {
        let id = id(&pair);
        self.wanted.insert(id.clone(), pair.clone());
        match self.running.get(&id) {
            None => self.begin(pair),
            Some(sink) if *sink != pair.sink => vec![PairAct::Stop(id)],
            Some(_) => Vec::new(),
        }
    }

    /// Removes a wanted pair.
    pub fn gone(&mut self, id: &PairId) -> Vec<PairAct> {
        self.wanted.remove(id);
        self.running.contains_key(id).then(|| PairAct::Stop(id.clone())).into_iter().collect()
    }

    /// Records that a pair has ended.
    pub fn ended(&mut self, id: &PairId) -> Vec<PairAct> {
        self.running.remove(id);
        if let Some(pair) = self.wanted.get(id).cloned() {
            return self.begin(pair);
        }
        let is_last = !self.running.keys().any(|(transfer, _)| *transfer == id.0);
        let stops = is_last && self.scans.remove(&id.0);
        stops.then(|| PairAct::StopScans(id.0.clone())).into_iter().collect()
    }

    /// Ends all pairs, and begins no other.
    pub fn drain(&mut self) -> Vec<PairAct> {
        self.wanted.clear();
        let scans = std::mem::take(&mut self.scans).into_iter().map(PairAct::StopScans);
        self.running.keys().cloned().map(PairAct::Stop).chain(scans).collect()
    }

    fn begin(&mut self, pair: FleetPair) -> Vec<PairAct> {
        self.running.insert(id(&pair), pair.sink.clone());
        let scans = self.scans.insert(pair.transfer.clone());
        let scans = scans.then(|| PairAct::BeginScans(pair.transfer.clone()));
        scans.into_iter().chain([PairAct::Begin(pair)]).collect()
    }
}

fn id(pair: &FleetPair) -> PairId {
    (pair.transfer.clone(), pair.number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(number: u32, sink: &str) -> FleetPair {
        FleetPair { transfer: "t".into(), number, source: "a".into(), sink: sink.into() }
    }

    fn id(number: u32) -> PairId {
        ("t".into(), number)
    }

    #[test]
    fn a_pair_with_another_sink_begins_when_the_one_before_has_ended() {
        let mut set = MoverPairs::default();
        let begun = [PairAct::BeginScans("t".into()), PairAct::Begin(pair(0, "x"))];
        assert_eq!(set.put(pair(0, "x")), begun);
        assert!(set.put(pair(0, "x")).is_empty());
        assert_eq!(set.put(pair(0, "y")), [PairAct::Stop(id(0))]);
        assert_eq!(set.ended(&id(0)), [PairAct::Begin(pair(0, "y"))]);
        assert_eq!(set.all(vec![pair(1, "x")]), [PairAct::Stop(id(0)), PairAct::Begin(pair(1, "x"))]);
        assert!(set.ended(&id(0)).is_empty());
        assert_eq!(set.gone(&id(1)), [PairAct::Stop(id(1))]);
        assert_eq!(set.ended(&id(1)), [PairAct::StopScans("t".into())]);
    }

    #[test]
    fn what_drains_begins_nothing() {
        let mut set = MoverPairs::default();
        set.put(pair(0, "x"));
        assert_eq!(set.drain(), [PairAct::Stop(id(0)), PairAct::StopScans("t".into())]);
        assert!(set.ended(&id(0)).is_empty());
    }
}
