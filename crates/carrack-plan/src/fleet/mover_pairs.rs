//! The running pairs of one mover, kept equal to those that its manager wants.
//!
//! A pair ends before another pair of its key begins, and a transfer's scans are taken while the mover has a
//! pair of the transfer.

use std::collections::{BTreeMap, BTreeSet};

use super::AssignedMoverPair;

/// Key of a pair at the mover that reads: transfer and number.
pub type MoverPairId = (String, u32);

/// An action of the mover.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MoverReconcilerAction {
    /// Begin a pair; its end is reported to [`MoverPairReconciler::record_ended`].
    Begin(AssignedMoverPair),
    /// Tell a pair to end.
    Stop(MoverPairId),
    /// Take scans of this transfer.
    BeginScans(String),
    /// Stop taking scans of this transfer.
    StopScans(String),
}

/// The pairs of one mover.
#[derive(Clone, Debug, Default)]
pub struct MoverPairReconciler {
    /// The pairs that the manager wants.
    wanted: BTreeMap<MoverPairId, AssignedMoverPair>,
    /// The running pairs, each with its sink; some of them are ending.
    running: BTreeMap<MoverPairId, String>,
    scans: BTreeSet<String>,
}

impl MoverPairReconciler {
    /// Sets all wanted pairs.
    pub fn set_wanted_pairs(&mut self, pairs: Vec<AssignedMoverPair>) -> Vec<MoverReconcilerAction> {
        let ids: BTreeSet<MoverPairId> = pairs.iter().map(id).collect();
        let gone: Vec<MoverPairId> = self.wanted.keys().filter(|id| !ids.contains(*id)).cloned().collect();
        let mut acts: Vec<MoverReconcilerAction> =
            gone.iter().flat_map(|id| self.remove_wanted(id)).collect();
        acts.extend(pairs.into_iter().flat_map(|pair| self.put(pair)));
        acts
    }

    /// Adds or changes a wanted pair.
    pub fn put(&mut self, pair: AssignedMoverPair) -> Vec<MoverReconcilerAction> {
        let id = id(&pair);
        self.wanted.insert(id.clone(), pair.clone());
        match self.running.get(&id) {
            None => self.begin(pair),
            Some(sink) if *sink != pair.sink => vec![MoverReconcilerAction::Stop(id)],
            Some(_) => Vec::new(),
        }
    }

    /// Removes a wanted pair.
    pub fn remove_wanted(&mut self, id: &MoverPairId) -> Vec<MoverReconcilerAction> {
        self.wanted.remove(id);
        self.running.contains_key(id).then(|| MoverReconcilerAction::Stop(id.clone())).into_iter().collect()
    }

    /// Records that a pair has ended.
    pub fn record_ended(&mut self, id: &MoverPairId) -> Vec<MoverReconcilerAction> {
        self.running.remove(id);
        if let Some(pair) = self.wanted.get(id).cloned() {
            return self.begin(pair);
        }
        let is_last = !self.running.keys().any(|(transfer, _)| *transfer == id.0);
        let stops = is_last && self.scans.remove(&id.0);
        stops.then(|| MoverReconcilerAction::StopScans(id.0.clone())).into_iter().collect()
    }

    /// Ends all pairs, and begins no other.
    pub fn drain(&mut self) -> Vec<MoverReconcilerAction> {
        self.wanted.clear();
        let scans = std::mem::take(&mut self.scans).into_iter().map(MoverReconcilerAction::StopScans);
        self.running.keys().cloned().map(MoverReconcilerAction::Stop).chain(scans).collect()
    }

    fn begin(&mut self, pair: AssignedMoverPair) -> Vec<MoverReconcilerAction> {
        self.running.insert(id(&pair), pair.sink.clone());
        let scans = self.scans.insert(pair.transfer.clone());
        let scans = scans.then(|| MoverReconcilerAction::BeginScans(pair.transfer.clone()));
        scans.into_iter().chain([MoverReconcilerAction::Begin(pair)]).collect()
    }
}

fn id(pair: &AssignedMoverPair) -> MoverPairId {
    (pair.transfer.clone(), pair.number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(number: u32, sink: &str) -> AssignedMoverPair {
        AssignedMoverPair { transfer: "t".into(), number, source: "a".into(), sink: sink.into() }
    }

    fn id(number: u32) -> MoverPairId {
        ("t".into(), number)
    }

    #[test]
    fn a_pair_with_another_sink_begins_when_the_one_before_has_ended() {
        let mut set = MoverPairReconciler::default();
        let begun =
            [MoverReconcilerAction::BeginScans("t".into()), MoverReconcilerAction::Begin(pair(0, "x"))];
        assert_eq!(set.put(pair(0, "x")), begun);
        assert!(set.put(pair(0, "x")).is_empty());
        assert_eq!(set.put(pair(0, "y")), [MoverReconcilerAction::Stop(id(0))]);
        assert_eq!(set.record_ended(&id(0)), [MoverReconcilerAction::Begin(pair(0, "y"))]);
        assert_eq!(
            set.set_wanted_pairs(vec![pair(1, "x")]),
            [MoverReconcilerAction::Stop(id(0)), MoverReconcilerAction::Begin(pair(1, "x"))]
        );
        assert!(set.record_ended(&id(0)).is_empty());
        assert_eq!(set.remove_wanted(&id(1)), [MoverReconcilerAction::Stop(id(1))]);
        assert_eq!(set.record_ended(&id(1)), [MoverReconcilerAction::StopScans("t".into())]);
    }

    #[test]
    fn what_drains_begins_nothing() {
        let mut set = MoverPairReconciler::default();
        set.put(pair(0, "x"));
        assert_eq!(
            set.drain(),
            [MoverReconcilerAction::Stop(id(0)), MoverReconcilerAction::StopScans("t".into())]
        );
        assert!(set.record_ended(&id(0)).is_empty());
    }
}
