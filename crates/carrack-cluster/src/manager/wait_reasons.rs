//! Reasons why transfers wait, worded for their users.

use std::collections::HashMap;

use carrack_plan::fleet::{
    FleetMover, MoverPairLimits, MoverPairWaitReason, TransferPairDemand, find_wait_reason,
};

use super::ManagerFleetState;
use crate::transfer_records::TransferRecord;

impl ManagerFleetState {
    /// Records the reasons why transfers of this manager have no pair, once the shares are dealt.
    pub(super) fn record_wait_reasons(
        &mut self,
        fleet: &[FleetMover],
        claims: &[TransferPairDemand],
        shares: &[u32],
        limits: &MoverPairLimits,
        unserved: &HashMap<String, String>,
    ) {
        self.waits.clear();
        for (index, claim) in claims.iter().enumerate().filter(|(_, claim)| claim.is_mine) {
            let has_pairs = self.pairs.keys().any(|key| key.transfer == claim.transfer);
            let lacked = find_wait_reason(fleet, claims, shares, limits, index).filter(|_| !has_pairs);
            let Some(record) = self.records.get(&claim.transfer) else { continue };
            let is_stuck = matches!(
                lacked,
                Some(
                    MoverPairWaitReason::Reach { .. }
                        | MoverPairWaitReason::Staying { .. }
                        | MoverPairWaitReason::Match
                )
            );
            if is_stuck {
                self.stuck.insert(claim.transfer.clone());
            } else {
                self.stuck.remove(&claim.transfer);
            }
            if let Some(lacked) = lacked {
                let unserved = unserved.get(&claim.transfer).cloned();
                let words = unserved.unwrap_or_else(|| describe_wait_reason(&lacked, record, fleet));
                self.waits.insert(claim.transfer.clone(), words);
            }
        }
    }

    /// Returns the reason why a transfer waits; empty if it does not.
    pub(super) fn wait_reason(&self, transfer: &str) -> String {
        self.waits.get(transfer).cloned().unwrap_or_default()
    }
}

/// The reason of a transfer that waits only for others.
pub(crate) const TURN: &str = "its turn has not come: other transfers are before it";

fn describe_wait_reason(
    lacked: &MoverPairWaitReason,
    record: &TransferRecord,
    fleet: &[FleetMover],
) -> String {
    match lacked {
        MoverPairWaitReason::Reach { site, is_source } => {
            let path = record.leg.as_ref().map(|leg| if *is_source { &*leg.source } else { &*leg.sink });
            no_mover_reason(site, path.unwrap_or_default(), fleet.iter().any(|mover| mover.site == *site))
        }
        MoverPairWaitReason::Staying { site } => format!("all movers at site {site} that reach it are ending (draining)"),
        MoverPairWaitReason::Match => "no two of the movers that reach both ends can be paired: they are of unlike versions, or there is \
                        one for both ends, with --pairs 1"
            .to_owned(),
        MoverPairWaitReason::User { most } => {
            format!("its turn has not come: limits of user {}, who has {most} pairs at most", record.user)
        }
        MoverPairWaitReason::Site { site, most } => {
            format!("its turn has not come: limits of site {site}, which has {most} pairs at most")
        }
        MoverPairWaitReason::Room { site, movers: 1 } => format!("the only mover of site {site} is full"),
        MoverPairWaitReason::Room { site, movers } => format!("all {movers} movers of site {site} are full"),
        MoverPairWaitReason::Turn => TURN.to_owned(),
    }
}

/// Words that no mover of a site reaches a path.
pub(super) fn no_mover_reason(site: &str, path: &str, somebody_is_there: bool) -> String {
    if somebody_is_there {
        format!("no mover at site {site} reaches {path}")
    } else {
        format!("no mover at site {site} is there")
    }
}
