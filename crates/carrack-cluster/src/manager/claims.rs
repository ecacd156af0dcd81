//! What the planning is told of the fleet: movers, and what transfers would like of them.

use std::path::Path;
use std::sync::Arc;

use carrack_plan::fleet::{Claim, FleetMover, FleetPair};

use super::Known;
use crate::mover::pairs_of;
use crate::records::{MoverRecord, MoverState, Pair};

pub(super) fn fleet(movers: &[Arc<MoverRecord>]) -> Vec<FleetMover> {
    let mover = |mover: &Arc<MoverRecord>| FleetMover {
        id: mover.id.clone(),
        site: mover.site.clone(),
        host: mover.host.clone(),
        protocol: mover.protocol,
        pairs_max: mover.pairs_max,
        is_draining: mover.state == MoverState::Draining,
    };
    movers.iter().map(mover).collect()
}

/// Of all transfers that go on, by this manager's knowledge.
pub(super) fn claims(known: &Known, movers: &[Arc<MoverRecord>]) -> Vec<Claim> {
    let mut records: Vec<_> = known.records.values().filter(|record| record.leg.is_some()).collect();
    records.sort_by(|a, b| (a.submitted_ms, &a.id).cmp(&(b.submitted_ms, &b.id)));
    let claim = |record: &&crate::records::TransferRecord| {
        let submission = &record.submission;
        let leg = record.leg.as_ref()?;
        let options = &submission.options;
        Some(Claim {
            transfer: record.id.clone(),
            submitted_ms: record.submitted_ms,
            priority: submission.priority,
            user: record.user.clone(),
            source_site: submission.source.site.clone(),
            sink_site: submission.destination.site.clone(),
            sources: reaching(movers, &submission.source.site, &leg.source),
            sinks: reaching(movers, &submission.destination.site, &leg.sink),
            wanted: known.wanted(record),
            pairs_max: if options.static_striping { Some(pairs_of(record)) } else { options.pairs_max },
            is_mine: known.owned.contains_key(&record.id),
        })
    };
    records.iter().filter_map(claim).collect()
}

/// The movers of a site that reach a path.
pub(super) fn reaching(movers: &[Arc<MoverRecord>], site: &str, path: &str) -> Vec<usize> {
    let reaches = |mover: &MoverRecord| {
        mover.site == site && mover.paths.iter().any(|prefix| Path::new(path).starts_with(prefix))
    };
    (0..movers.len()).filter(|&index| reaches(&movers[index])).collect()
}

pub(super) fn to_plan(pair: &Pair) -> FleetPair {
    FleetPair {
        transfer: pair.transfer.clone(),
        number: pair.number,
        source: pair.source.clone(),
        sink: pair.sink.clone(),
    }
}
