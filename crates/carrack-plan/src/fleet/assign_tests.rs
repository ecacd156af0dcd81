use proptest::prelude::*;

use super::super::MoverPairLimits;
use super::super::shares::shares;
use super::super::shares::tests::fleets;
use super::*;

fn mover(site: &str, number: usize, pairs_max: u32) -> FleetMover {
    FleetMover {
        id: format!("{site}{number}"),
        site: site.into(),
        host: format!("{site}-host-{}", number / 2),
        protocol: 1,
        pairs_max,
        is_draining: false,
    }
}

/// Four movers on two hosts at each of two sites.
fn fleet(pairs_max: u32) -> Vec<FleetMover> {
    (0..4).map(|n| mover("a", n, pairs_max)).chain((0..4).map(|n| mover("b", n, pairs_max))).collect()
}

fn claim(number: u64, is_mine: bool) -> TransferPairDemand {
    TransferPairDemand {
        transfer: format!("t{number}"),
        submitted_ms: number,
        priority: 5,
        user: "alice".into(),
        source_site: "a".into(),
        sink_site: "b".into(),
        sources: vec![0, 1, 2, 3],
        sinks: vec![4, 5, 6, 7],
        wanted: 99,
        pairs_max: None,
        is_mine,
    }
}

fn pair(transfer: &str, number: u32, source: &str, sink: &str) -> AssignedMoverPair {
    AssignedMoverPair { transfer: transfer.into(), number, source: source.into(), sink: sink.into() }
}

fn apply(present: &[AssignedMoverPair], changes: &MoverPairChanges) -> Vec<AssignedMoverPair> {
    let stays = |pair: &&AssignedMoverPair| !changes.drop.contains(pair);
    present.iter().filter(stays).chain(&changes.add).cloned().collect()
}

#[test]
fn pairs_are_spread_over_hosts_and_movers() {
    let changes = assign(&fleet(2), &[claim(0, true)], &[4], &[]);
    let ends: Vec<(&str, &str)> = changes.add.iter().map(|pair| (&*pair.source, &*pair.sink)).collect();
    assert_eq!(ends, [("a0", "b0"), ("a2", "b2"), ("a1", "b1"), ("a3", "b3")]);
    assert_eq!(changes.add.iter().map(|pair| pair.number).collect::<Vec<_>>(), [0, 1, 2, 3]);
    assert_eq!(changes.drop, []);
}

#[test]
fn what_is_there_stays_and_what_can_not_stay_goes() {
    let mut movers = fleet(2);
    let present = [
        pair("t0", 0, "a0", "b0"),
        pair("t0", 1, "a0", "b0"),
        pair("t0", 2, "a1", "gone"),
        pair("t0", 3, "a2", "b2"),
    ];
    movers[6].is_draining = true;
    let changes = assign(&movers, &[claim(0, true)], &[3], &present);
    assert_eq!(changes.drop, [present[2].clone(), present[3].clone()]);
    // b0 is full, b2 drains: the new pair gets the first free number and the free host's mover.
    assert_eq!(changes.add, [pair("t0", 2, "a2", "b3")]);
    movers[4].protocol = 2;
    let changes = assign(&movers, &[claim(0, true)], &[3], &present);
    assert_eq!(changes.drop.len(), 4, "b0 speaks another version than a0 now");
    assert!(changes.add.iter().all(|pair| pair.sink != "b0"));
}

#[test]
fn what_is_beyond_the_share_goes_from_where_it_is_crowded() {
    let present = [pair("t0", 0, "a0", "b0"), pair("t0", 1, "a1", "b1"), pair("t0", 2, "a2", "b2")];
    let changes = assign(&fleet(2), &[claim(0, true)], &[2], &present);
    assert_eq!((changes.add.len(), changes.drop), (0, vec![present[1].clone()]));
}

#[test]
fn others_pairs_are_left_alone_but_counted() {
    let present = [pair("t0", 0, "a0", "b0"), pair("unknown", 0, "a1", "b1"), pair("t0", 1, "gone", "b2")];
    let claims = [claim(0, false), claim(1, true)];
    let changes = assign(&fleet(1), &claims, &[0, 4], &present);
    let ends: Vec<(&str, &str)> = changes.add.iter().map(|pair| (&*pair.source, &*pair.sink)).collect();
    assert_eq!((ends, changes.drop), (vec![("a2", "b3")], vec![]));
}

#[test]
fn a_mover_takes_no_more_than_it_said() {
    let mut movers = fleet(2);
    movers[0].pairs_max = 1;
    let present = [pair("t0", 0, "a0", "b0"), pair("t1", 0, "a0", "b1")];
    let changes = assign(&movers, &[claim(0, true), claim(1, true)], &[1, 1], &present);
    assert_eq!(changes.drop, [present[1].clone()]);
    assert_eq!(changes.add, [pair("t1", 0, "a1", "b1")]);
}

/// Without free places the most urgent transfer takes the place of the least urgent one, whose pair ends with
/// its present chunk.
#[test]
fn what_is_urgent_takes_the_place_of_what_is_least_so() {
    let movers = fleet(2);
    let of = |number, priority| TransferPairDemand { priority, wanted: 1, ..claim(number, true) };
    let mut claims: Vec<TransferPairDemand> =
        (0..8).map(|number| of(number, if number == 3 { 0 } else { 5 })).collect();
    let dealt = |claims: &[TransferPairDemand], present: &[AssignedMoverPair]| {
        assign(&movers, claims, &shares(&movers, claims, &MoverPairLimits::default()), present)
    };
    let present = dealt(&claims, &[]).add;
    assert_eq!(present.len(), 8, "all places are taken");
    claims.push(of(8, 9));
    let changes = dealt(&claims, &present);
    let transfers =
        |pairs: &[AssignedMoverPair]| pairs.iter().map(|pair| pair.transfer.clone()).collect::<Vec<_>>();
    assert_eq!((transfers(&changes.drop), transfers(&changes.add)), (vec!["t3".into()], vec!["t8".into()]));
}

#[test]
fn a_lone_mover_sends_to_itself() {
    let within = |ends: &[usize]| TransferPairDemand {
        sink_site: "a".into(),
        sources: ends.to_vec(),
        sinks: ends.to_vec(),
        ..claim(0, true)
    };
    let changes = assign(&[mover("a", 0, 3)], &[within(&[0])], &[1], &[]);
    assert_eq!(changes.add, [pair("t0", 0, "a0", "a0")]);
    let two = [mover("a", 0, 2), mover("a", 1, 2)];
    let changes = assign(&two, &[within(&[0, 1])], &[2], &[]);
    assert!(changes.add.len() == 2 && changes.add.iter().all(|pair| pair.source != pair.sink));
    // The mover that can only be a source is the source.
    let mixed = TransferPairDemand { sinks: vec![0], ..within(&[0, 1]) };
    let changes = assign(&[mover("a", 0, 1), mover("a", 1, 1)], &[mixed], &[1], &[]);
    assert_eq!(changes.add, [pair("t0", 0, "a1", "a0")]);
}

#[test]
fn a_mover_that_joins_is_used_and_one_that_leaves_replaced() {
    let mut movers = fleet(1);
    let claims = [claim(0, true)];
    let without = movers.remove(7);
    let claims_without = [TransferPairDemand { sinks: vec![4, 5, 6], ..claims[0].clone() }];
    let limits = MoverPairLimits::default();
    let few = shares(&movers, &claims_without, &limits);
    let present = apply(&[], &assign(&movers, &claims_without, &few, &[]));
    assert_eq!(present.len(), 3);
    movers.push(without);
    let more = shares(&movers, &claims, &limits);
    let changes = assign(&movers, &claims, &more, &present);
    assert_eq!((changes.add.len(), changes.drop.len(), &*changes.add[0].sink), (1, 0, "b3"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn limits_are_kept_and_the_second_time_nothing_changes(
        (movers, claims, limits) in fleets(),
        present in prop::collection::vec((0usize..10, 0u32..4, 0usize..16, 0usize..16), 0..20),
        versions in prop::collection::vec(prop::bool::weighted(0.2), 14),
    ) {
        let mut movers = movers;
        movers.iter_mut().zip(versions).for_each(|(mover, is_new)| mover.protocol += u32::from(is_new));
        let id = |index: usize| movers.get(index).map_or_else(|| "gone".into(), |mover| mover.id.clone());
        let mut present: Vec<AssignedMoverPair> = present
            .into_iter()
            .map(|(claim, number, source, sink)| pair(&format!("t{claim:03}"), number, &id(source), &id(sink)))
            .collect();
        present.sort();
        present.dedup_by_key(|pair| (pair.transfer.clone(), pair.number));
        let shares = shares(&movers, &claims, &limits);
        let changes = assign(&movers, &claims, &shares, &present);
        let after = apply(&present, &changes);

        let find = |id: &str| movers.iter().find(|mover| mover.id == id);
        let load = |pairs: &[AssignedMoverPair], id: &str| {
            pairs.iter().map(|pair| u32::from(pair.source == id) + u32::from(pair.sink == id)).sum::<u32>()
        };
        for mover in &movers {
            let others: Vec<AssignedMoverPair> = present.iter().filter(|pair| {
                !claims.iter().any(|claim| claim.is_mine && claim.transfer == pair.transfer)
            }).cloned().collect();
            prop_assert!(load(&after, &mover.id) <= mover.pairs_max.max(load(&others, &mover.id)));
        }
        for (claim, share) in claims.iter().zip(&shares) {
            let of_claim = |pair: &&AssignedMoverPair| pair.transfer == claim.transfer;
            let touched = changes.add.iter().chain(&changes.drop).any(|pair| of_claim(&pair));
            prop_assert!(claim.is_mine || !touched);
            if claim.is_mine {
                let pairs: Vec<&AssignedMoverPair> = after.iter().filter(of_claim).collect();
                prop_assert!(pairs.len() <= *share as usize);
                let numbers: BTreeSet<u32> = pairs.iter().map(|pair| pair.number).collect();
                prop_assert_eq!(numbers.len(), pairs.len());
                for pair in pairs {
                    let (source, sink) = (find(&pair.source).unwrap(), find(&pair.sink).unwrap());
                    prop_assert!(!source.is_draining && !sink.is_draining);
                    prop_assert_eq!(source.protocol, sink.protocol);
                    prop_assert!(claim.sources.iter().any(|&index| movers[index] == *source));
                    prop_assert!(claim.sinks.iter().any(|&index| movers[index] == *sink));
                }
            }
        }
        prop_assert!(changes.drop.iter().all(|pair| present.contains(pair) && !changes.add.contains(pair)));
        prop_assert_eq!(assign(&movers, &claims, &shares, &after), MoverPairChanges::default());
    }

    /// Where movers reach everything at their sites and share a protocol, every share is made.
    #[test]
    fn shares_are_made((movers, claims, limits) in fleets()) {
        let at = |site: &str| (0..movers.len()).filter(|&index| movers[index].site == site).collect();
        let whole = |claim: TransferPairDemand| TransferPairDemand {
            sources: at(&claim.source_site),
            sinks: at(&claim.sink_site),
            is_mine: true,
            ..claim
        };
        let claims: Vec<TransferPairDemand> = claims.into_iter().map(whole).collect();
        let shares = shares(&movers, &claims, &limits);
        let changes = assign(&movers, &claims, &shares, &[]);
        for (claim, share) in claims.iter().zip(&shares) {
            let pairs = changes.add.iter().filter(|pair| pair.transfer == claim.transfer).count();
            prop_assert_eq!(pairs, *share as usize);
        }
    }
}
