//! The movers that can serve a transfer at one of its ends, and the reasons why others that reach it can't.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use carrack_plan::fleet::{MoverHealth, MoverStorageMark, SameStorageMovers, same_storage};

use crate::transfer_records::MoverRecord;

/// The movers of a site that reach a path.
#[derive(Debug, Default)]
pub(super) struct SiteMovers {
    /// All of them, by their index among all movers.
    pub reaching: Vec<usize>,
    /// Those that can be used now.
    pub able: Vec<usize>,
    /// Movers that don't see what the others see, with the reason for people.
    pub odd: HashMap<String, String>,
    /// The reason why no mover is trusted to see the site's storage; empty if one is.
    pub at_odds: String,
    /// The illnesses of the trusted movers if none of them can be used; empty otherwise.
    pub ill: String,
}

/// Returns the IDs of movers by their indexes.
pub(super) fn ids(movers: &[Arc<MoverRecord>], indexes: &[usize]) -> Vec<String> {
    indexes.iter().map(|&index| movers[index].id.clone()).collect()
}

/// One end of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TransferEndRole {
    /// Movers whose marks differ are not trusted.
    Sink,
    /// The equality of the source was checked when the leg was determined.
    Source,
}

/// Returns the movers for `transfer` at `path`.
pub(super) fn eligible_movers(
    movers: &[Arc<MoverRecord>],
    health: &MoverHealth,
    now: Duration,
    transfer: &str,
    (which, site, path): (TransferEndRole, &str, &str),
) -> SiteMovers {
    let reaching: Vec<usize> =
        (0..movers.len()).filter(|&index| movers[index].can_access(site, path)).collect();
    let sights = reaching.iter().map(|&index| {
        let mover = &movers[index];
        let (directory, mark) = mover.directory_containing(path).unwrap_or_default();
        let is_doubtful = !mover.ill.is_empty() || health.refuses(transfer, &mover.id);
        MoverStorageMark { directory, mark, is_doubtful }
    });
    let sights: Vec<MoverStorageMark<'_>> = sights.collect();
    let SameStorageMovers { is_believed, at_odds } = same_storage(&sights);
    let mut end = SiteMovers::default();
    let mut ill = Vec::new();
    for ((&index, sight), is_believed) in reaching.iter().zip(&sights).zip(is_believed) {
        let mover = &movers[index];
        let is_believed = is_believed
            || which == TransferEndRole::Source
                && at_odds.iter().any(|directory| directory == sight.directory);
        if !is_believed {
            end.odd.insert(mover.id.clone(), storage_mismatch_reason(sight.directory));
        } else if !mover.ill.is_empty() {
            ill.push(format!("{}: {}", mover.id, mover.ill));
        } else if let Some(left_out) = health.quarantine_of(now, transfer, &mover.id) {
            ill.push(format!("{}: {}", mover.id, left_out.reason));
        } else {
            end.able.push(index);
        }
    }
    if end.able.is_empty() && !ill.is_empty() {
        end.ill = format!("no mover of site {site} that reaches {path} is well: {}", ill.join("; "));
    }
    if let (Some(directory), true) = (at_odds.first(), end.able.is_empty()) {
        let mut ids: Vec<&str> = end.odd.keys().map(|id| &**id).collect();
        ids.sort_unstable();
        end.at_odds = format!(
            "the movers {} of site {site} do not see the same storage at {directory}: is a file system not mounted at one of them?",
            ids.join(" and ")
        );
    }
    end.reaching = reaching;
    end
}

/// Returns all movers that see another storage than most of their site, with the reason.
pub(super) fn storage_mismatches(movers: &[Arc<MoverRecord>]) -> HashMap<String, String> {
    let mut places: BTreeMap<(&str, &str), Vec<(&MoverRecord, &str)>> = BTreeMap::new();
    for mover in movers {
        for (directory, mark) in mover.paths.iter().zip(&mover.site_marks) {
            places.entry((&mover.site, directory)).or_default().push((mover, mark));
        }
    }
    let mut all = HashMap::new();
    for ((_, directory), seen) in places {
        let sights: Vec<MoverStorageMark<'_>> = seen
            .iter()
            .map(|&(mover, mark)| MoverStorageMark { directory, mark, is_doubtful: !mover.ill.is_empty() })
            .collect();
        let SameStorageMovers { is_believed, at_odds } = same_storage(&sights);
        // Without a majority, no mover is reported.
        for ((mover, _), _) in seen.iter().zip(is_believed).filter(|(_, is)| !is && at_odds.is_empty()) {
            all.insert(mover.id.clone(), storage_mismatch_reason(directory));
        }
    }
    all
}

fn storage_mismatch_reason(directory: &str) -> String {
    format!("{directory} is not what other movers of the site see there: is its file system mounted?")
}

#[cfg(test)]
mod tests {
    use carrack_plan::fleet::{MoverFault, MoverFaultKind};

    use super::*;
    use crate::transfer_records::{MoverAvailability, RECORD_VERSION};

    fn mover(id: &str, mark: &str) -> Arc<MoverRecord> {
        Arc::new(MoverRecord {
            version: RECORD_VERSION,
            id: id.into(),
            site: "s".into(),
            host: id.into(),
            addresses: Vec::new(),
            ca_pem: String::new(),
            paths: vec!["/d".into()],
            pairs_max: 1,
            pairs: 0,
            lanes: 1,
            software: String::new(),
            protocol: 1,
            state: MoverAvailability::Idle,
            bytes_per_s: 0,
            site_marks: vec![mark.into()],
            ill: String::new(),
            left_out: String::new(),
        })
    }

    #[test]
    fn of_two_that_differ_the_one_that_refuses_is_the_odd_one() {
        let movers = [mover("a", "x"), mover("b", "y")];
        let now = Duration::ZERO;
        let mut health = MoverHealth::new();
        let both = eligible_movers(&movers, &health, now, "t", (TransferEndRole::Sink, "s", "/d/e"));
        assert!(both.able.is_empty() && both.at_odds.contains("a and b") && both.odd.len() == 2);
        let (transfer, mover, other) = ("t".into(), "b".into(), String::new());
        health.record_fault(
            now,
            &MoverFault { transfer, mover, other, kind: MoverFaultKind::Refused, reason: String::new() },
        );
        let one = eligible_movers(&movers, &health, now, "t", (TransferEndRole::Sink, "s", "/d/e"));
        assert_eq!((one.able, one.reaching), (vec![0], vec![0, 1]));
        assert!(one.at_odds.is_empty() && one.odd.contains_key("b"));
        assert!(
            eligible_movers(&movers, &health, now, "t", (TransferEndRole::Sink, "s", "/elsewhere"))
                .reaching
                .is_empty()
        );
        let source =
            eligible_movers(&movers, &MoverHealth::new(), now, "t", (TransferEndRole::Source, "s", "/d/e"));
        assert_eq!((source.able, source.at_odds.as_str()), (vec![0, 1], ""));
    }

    #[test]
    fn movers_that_see_another_storage_than_most_are_odd_without_any_transfer() {
        let movers = [mover("a", "x"), mover("b", "y"), mover("c", "y")];
        assert_eq!(storage_mismatches(&movers).into_keys().collect::<Vec<_>>(), ["a"]);
        assert!(storage_mismatches(&movers[..2]).is_empty());
    }
}
