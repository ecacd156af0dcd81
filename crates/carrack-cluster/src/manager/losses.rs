//! Losses of a transfer, as reported by all of its sessions.

use std::collections::BTreeMap;

use carrack_model::{MetadataLoss, MetadataLossKind};

use crate::transfer_records::FAILURES_KEPT;

/// Counts by kind and reason; [`FAILURES_KEPT`] kinds at most.
#[derive(Clone, Debug, Default)]
pub(super) struct LossTotals(BTreeMap<(MetadataLossKind, String), u64>);

impl LossTotals {
    /// Adds losses.
    pub(super) fn add(&mut self, losses: Vec<MetadataLoss>) {
        for MetadataLoss { lost, reason, count } in losses {
            let key = (lost, reason);
            if self.0.len() < FAILURES_KEPT || self.0.contains_key(&key) {
                let sum = self.0.entry(key).or_default();
                *sum = sum.saturating_add(count);
            }
        }
    }

    /// Returns a line for each kind and reason, for records.
    pub(super) fn lines(&self) -> Vec<String> {
        let lines = self.0.iter().map(|((lost, reason), count)| {
            MetadataLoss { lost: lost.clone(), reason: reason.clone(), count: *count }.to_string()
        });
        lines.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loss(what: &str, count: u64) -> MetadataLoss {
        MetadataLoss {
            lost: MetadataLossKind::Part(what.to_owned()),
            reason: "not permitted".to_owned(),
            count,
        }
    }

    #[test]
    fn what_several_sessions_have_lost_is_told_once() {
        let mut losses = LossTotals::default();
        losses.add(vec![loss("the owner", 1), loss("the group", 1)]);
        losses.add(vec![loss("the owner", 2)]);
        let lines = [
            "the group of 1 entry not kept: not permitted",
            "the owner of 3 entries not kept: not permitted",
        ];
        assert_eq!(losses.lines(), lines);
        losses.add((0..200).map(|number| loss(&number.to_string(), 1)).collect());
        losses.add(vec![loss("the owner", 4)]);
        assert_eq!(losses.lines().len(), FAILURES_KEPT);
        assert!(losses.lines().iter().any(|line| line.starts_with("the owner of 7 ")));
    }
}
