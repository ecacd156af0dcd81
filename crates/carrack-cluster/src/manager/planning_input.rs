//! The planner's input: the fleet's movers, and the transfers' claims to them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use carrack_plan::fleet::{FleetMover, MoverHealth, TransferPairDemand};

use super::ManagerFleetState;
use super::eligible_movers::{TransferEndRole, eligible_movers};
use super::free_transfers::to_waiting_transfer;
use crate::transfer_records::{MoverAvailability, MoverRecord, TransferRecord, now_ms};

/// The transfers' claims, and the movers that can't serve them.
#[derive(Default)]
pub(super) struct MoverPairClaims {
    pub claims: Vec<TransferPairDemand>,
    /// Movers that don't see what the others of their site see, with the reason.
    pub odd: HashMap<String, String>,
    /// Transfers that have no usable mover at one of their ends, with the reason.
    pub unserved: HashMap<String, String>,
}

pub(super) fn fleet(movers: &[Arc<MoverRecord>]) -> Vec<FleetMover> {
    let movers = movers.iter().map(|mover| FleetMover {
        id: mover.id.clone(),
        site: mover.site.clone(),
        host: mover.host.clone(),
        protocol: mover.protocol,
        pairs_max: mover.pairs_max,
        is_draining: mover.state == MoverAvailability::Draining,
    });
    movers.collect()
}

/// Returns the claims of all running transfers, by this manager's knowledge.
pub(super) fn claims(
    known: &ManagerFleetState,
    movers: &[Arc<MoverRecord>],
    health: &MoverHealth,
    now: Duration,
) -> MoverPairClaims {
    let mut records: Vec<&TransferRecord> =
        known.records.started_transfers().filter(|record| record.leg.is_some()).collect();
    records.sort_by(|a, b| (a.submitted_ms, &a.id).cmp(&(b.submitted_ms, &b.id)));
    let mut all = MoverPairClaims::default();
    for record in records {
        let wanted = known.wanted_pairs(record);
        let is_mine = known.owned.get(&record.id).is_some_and(|owned| owned.term.is_certainly_held());
        let Some(leg) = record.leg.as_ref().filter(|_| wanted > 0 || is_mine) else { continue };
        let submission = &record.submission;
        let (source_site, sink_site) = (&submission.source.site, &submission.destination.site);
        let ends = [
            (TransferEndRole::Source, source_site, &leg.source),
            (TransferEndRole::Sink, sink_site, &leg.sink),
        ]
        .map(|(which, site, path)| eligible_movers(movers, health, now, &record.id, (which, site, path)));
        for end in &ends {
            all.odd.extend(end.odd.clone());
            if let Some(why) = [&end.at_odds, &end.ill].into_iter().find(|why| !why.is_empty()) {
                all.unserved.insert(record.id.clone(), why.clone());
            }
        }
        let [sources, sinks] = ends.map(|end| end.able);
        all.claims.push(TransferPairDemand {
            transfer: record.id.clone(),
            submitted_ms: record.submitted_ms,
            // The priority rises as the deadline comes nearer.
            priority: to_waiting_transfer(record).level(now_ms()),
            user: record.user.clone(),
            source_site: source_site.clone(),
            sink_site: sink_site.clone(),
            sources,
            sinks,
            wanted,
            pairs_max: submission.options.pairs(),
            is_mine,
        });
    }
    all
}
