use proptest::prelude::*;

use super::*;

fn mover(site: &str, number: usize, pairs_max: u32) -> FleetMover {
    FleetMover {
        id: format!("{site}-{number}"),
        site: site.into(),
        host: format!("{site}-host-{}", number / 2),
        protocol: 1,
        pairs_max,
        is_draining: false,
    }
}

/// Two sites with movers of one pair each.
fn two_sites(a: usize, b: usize) -> Vec<FleetMover> {
    (0..a).map(|n| mover("a", n, 1)).chain((0..b).map(|n| mover("b", n, 1))).collect()
}

fn at(movers: &[FleetMover], site: &str) -> Vec<usize> {
    (0..movers.len()).filter(|&index| movers[index].site == site).collect()
}

fn claim(
    movers: &[FleetMover],
    number: u64,
    priority: u8,
    wanted: u32,
    sites: [&str; 2],
) -> TransferPairDemand {
    TransferPairDemand {
        transfer: format!("t{number:03}"),
        submitted_ms: number,
        priority,
        user: "alice".into(),
        source_site: sites[0].into(),
        sink_site: sites[1].into(),
        sources: at(movers, sites[0]),
        sinks: at(movers, sites[1]),
        wanted,
        pairs_max: None,
        is_mine: true,
    }
}

/// Shares of transfers from a to b, given their priorities and wishes.
fn shares_of(movers: &[FleetMover], asked: &[(u8, u32)]) -> Vec<u32> {
    let claims: Vec<TransferPairDemand> = (0..)
        .zip(asked)
        .map(|(number, (priority, wanted))| claim(movers, number, *priority, *wanted, ["a", "b"]))
        .collect();
    shares(movers, &claims, &MoverPairLimits::default())
}

#[test]
fn weights_are_exact() {
    assert_eq!((weight(0), weight(1), weight(9), weight(200)), (512, 768, 19_683, 19_683));
    assert!((0..9).all(|priority| weight(priority + 1) * 2 == weight(priority) * 3));
}

#[test]
fn what_one_does_not_want_others_have() {
    let movers = two_sites(16, 20);
    assert_eq!(shares_of(&movers, &[(5, 99)]), [16]);
    assert_eq!(shares_of(&movers, &[(5, 99), (5, 99)]), [8, 8]);
    assert_eq!(shares_of(&movers, &[(5, 2), (5, 99), (5, 99)]), [2, 7, 7]);
    assert_eq!(shares_of(&movers, &[(5, 3), (5, 4)]), [3, 4]);
    assert_eq!(shares_of(&movers, &[]), [0; 0]);
}

#[test]
fn priorities_are_weights() {
    let movers = two_sites(25, 25);
    assert_eq!(shares_of(&movers, &[(5, 99), (6, 99)]), [10, 15]);
    // 10.4 and 15.6: the larger fraction is rounded up, although the other is older.
    assert_eq!(shares_of(&two_sites(26, 26), &[(5, 99), (6, 99)]), [10, 16]);
    // The least claim gets a pair nevertheless.
    assert_eq!(shares_of(&movers, &[(0, 99), (9, 99)]), [1, 24]);
    // 19 of them would round up to two: the fractions come first, the large claim keeps its pairs.
    let mut asked = vec![(5, 99); 10];
    asked.push((9, 99));
    let shares = shares_of(&two_sites(24, 24), &asked);
    assert_eq!((shares[10], shares.iter().sum::<u32>()), (8, 24));
}

#[test]
fn the_highest_priority_and_then_the_oldest_come_first_where_not_all_can() {
    assert_eq!(shares_of(&two_sites(2, 9), &[(5, 9), (5, 9), (5, 9)]), [1, 1, 0]);
    assert_eq!(shares_of(&two_sites(2, 9), &[(0, 9), (0, 9), (9, 9)]), [1, 0, 1]);
    assert_eq!(shares_of(&two_sites(3, 9), &[(0, 9), (0, 9), (9, 9)]), [1, 1, 1]);
    assert_eq!(shares_of(&two_sites(0, 9), &[(5, 9)]), [0]);
}

#[test]
fn users_and_sites_have_limits() {
    let movers = two_sites(12, 12);
    let mut claims: Vec<TransferPairDemand> = (0..3).map(|n| claim(&movers, n, 5, 99, ["a", "b"])).collect();
    claims[2].user = "bob".into();
    let of = |limits: MoverPairLimits, claims: &[TransferPairDemand]| shares(&movers, claims, &limits);
    assert_eq!(of(MoverPairLimits::default(), &claims), [4, 4, 4]);
    assert_eq!(of(MoverPairLimits { per_user: Some(3), ..MoverPairLimits::default() }, &claims), [2, 1, 3]);
    let users = BTreeMap::from([("bob".to_owned(), 12)]);
    assert_eq!(
        of(MoverPairLimits { per_user: Some(3), users, ..MoverPairLimits::default() }, &claims),
        [2, 1, 9]
    );
    let sites = BTreeMap::from([("b".to_owned(), 6)]);
    assert_eq!(
        of(MoverPairLimits { sites: sites.clone(), ..MoverPairLimits::default() }, &claims),
        [2, 2, 2]
    );
    claims[0].pairs_max = Some(1);
    assert_eq!(of(MoverPairLimits { sites, ..MoverPairLimits::default() }, &claims), [1, 3, 2]);
}

#[test]
fn within_a_site_a_pair_takes_two_ends_and_one_of_the_limit() {
    let movers: Vec<FleetMover> = (0..3).map(|n| mover("a", n, 3)).collect();
    let claims = [claim(&movers, 0, 5, 99, ["a", "a"])];
    assert_eq!(shares(&movers, &claims, &MoverPairLimits::default()), [4]);
    let sites = BTreeMap::from([("a".to_owned(), 3)]);
    assert_eq!(shares(&movers, &claims, &MoverPairLimits { sites, ..MoverPairLimits::default() }), [3]);
}

#[test]
fn movers_that_drain_or_speak_otherwise_do_not_count() {
    let mut movers = two_sites(4, 4);
    movers[0].is_draining = true;
    assert_eq!(shares_of(&movers, &[(5, 99)]), [3]);
    // 1 and 2 speak version 2, as does only one mover at the other site.
    (movers[1].protocol, movers[2].protocol, movers[7].protocol) = (2, 2, 2);
    assert_eq!(shares_of(&movers, &[(5, 99)]), [2]);
}

/// Sites, movers and claims of a fleet, and its limits.
pub(in crate::fleet) fn fleets()
-> impl Strategy<Value = (Vec<FleetMover>, Vec<TransferPairDemand>, MoverPairLimits)> {
    let movers = prop::collection::vec((0usize..3, 0u32..6, prop::bool::weighted(0.1)), 0..14);
    let wanted = prop_oneof![0u32..6, Just(99u32)];
    let asked = (0u8..10, 0usize..3, 0usize..3, wanted, 0usize..3, any::<u64>(), any::<bool>());
    let limits = (prop::option::of(1u32..9), prop::option::of(0u32..12));
    (movers, prop::collection::vec(asked, 0..9), limits).prop_map(|(movers, asked, (per_user, of_site))| {
        const SITES: [&str; 3] = ["a", "b", "c"];
        let movers: Vec<FleetMover> = (0..)
            .zip(movers)
            .map(|(n, (site, pairs_max, is_draining))| FleetMover {
                is_draining,
                ..mover(SITES[site], n, pairs_max)
            })
            .collect();
        let claims = (0..)
            .zip(asked)
            .map(|(n, (priority, source, sink, wanted, user, reach, is_mine))| {
                let mut claim = claim(&movers, n, priority, wanted, [SITES[source], SITES[sink]]);
                claim.user = ["alice", "bob", "carol"][user].into();
                claim.is_mine = is_mine;
                // Every fourth claim is served by a part of the movers only.
                if reach % 4 == 0 {
                    claim.sources.retain(|mover| reach >> (mover + 2) & 1 == 1);
                }
                claim
            })
            .collect();
        let sites = of_site.map(|limit| ("b".to_owned(), limit)).into_iter().collect();
        (movers, claims, MoverPairLimits { per_user, sites, ..MoverPairLimits::default() })
    })
}

/// Max-min fair shares of one pool, by weight and at least 1, in floating point.
fn reference(capacity: u32, asked: &[(u8, u32)]) -> Vec<f64> {
    let at = |level: f64| -> Vec<f64> {
        asked
            .iter()
            .map(|(priority, wanted)| {
                (level * 1.5f64.powi((*priority).into())).max(1.0).min((*wanted).into())
            })
            .collect()
    };
    let (mut low, mut high) = (0.0, 1e6);
    for _ in 0..100 {
        let middle = (low + high) / 2.0;
        let is_enough = at(middle).iter().sum::<f64>() <= f64::from(capacity);
        *(if is_enough { &mut low } else { &mut high }) = middle;
    }
    at(low)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn shares_are_within_one_pair_of_the_ideal(
        asked in prop::collection::vec((0u8..10, prop_oneof![1u32..8, Just(200u32)]), 1..20),
        more in 0usize..100,
    ) {
        let capacity = asked.len() + more;
        let shares = shares_of(&two_sites(capacity, capacity + 3), &asked);
        for (share, ideal) in shares.iter().zip(reference(capacity as u32, &asked)) {
            prop_assert!((f64::from(*share) - ideal).abs() < 1.0 + 1e-3, "{shares:?} {share} {ideal}");
            prop_assert!(*share > 0);
        }
        let most: u32 = asked.iter().map(|(_, wanted)| wanted).sum();
        prop_assert_eq!(shares.iter().sum::<u32>(), most.min(capacity as u32));
    }

    #[test]
    fn nothing_is_exceeded_left_over_or_unfair((movers, claims, limits) in fleets()) {
        let given = shares(&movers, &claims, &limits);
        prop_assert_eq!(&given, &shares(&movers, &claims, &limits));
        let mut plan = MoverPairCountAllocator::new(&movers, &claims, &limits);
        (0..claims.len()).for_each(|claim| plan.raise_to(claim, given[claim]));
        for pool in &plan.pools {
            prop_assert!(pool.used <= pool.capacity);
        }
        for (claim, given) in given.iter().enumerate() {
            prop_assert!(*given <= plan.most[claim]);
            prop_assert!(!plan.try_add(claim), "{claim} could have another");
        }
    }

    /// Bertsekas and Gallager's criterion: each claim has its wish, or meets a full pool in which no other
    /// has more for its weight.
    #[test]
    fn ideal_shares_are_max_min_fair((movers, claims, limits) in fleets()) {
        let mut plan = MoverPairCountAllocator::new(&movers, &claims, &limits);
        (0..claims.len()).for_each(|claim| {
            plan.try_add(claim);
        });
        let ideal = plan.ideal();
        let slack: u128 = 1 << 24;
        let fair = |claim: usize| ideal[claim] / plan.weights[claim];
        for claim in (0..claims.len()).filter(|&claim| plan.given[claim] > 0) {
            prop_assert!(ideal[claim] <= u128::from(plan.most[claim]) * ONE);
            let is_content = ideal[claim] == u128::from(plan.most[claim]) * ONE;
            let has_bottleneck = plan.pools_of[claim].iter().any(|&(pool, _)| {
                let pool = &plan.pools[pool];
                let used: u128 =
                    pool.users.iter().map(|&(user, takes)| ideal[user] * u128::from(takes)).sum();
                let mut rich = pool.users.iter().filter(|&&(user, _)| ideal[user] > ONE);
                used + slack >= u128::from(pool.capacity) * ONE
                    && rich.all(|&(user, _)| fair(user) <= fair(claim) + 1)
            });
            prop_assert!(is_content || has_bottleneck, "{claim}: {ideal:?}");
        }
    }
}
