//! A manager's decisions about a whole fleet: the next of the waiting transfers, and the pairs that there
//! should be.
//!
//! A manager looks for waiting transfers some times a second, and assigns pairs when a transfer begins, ends
//! or wants another number of pairs; both happen while all other work of the manager waits for the same lock.

use std::hint::black_box;

use carrack_plan::fleet::{
    AssignedMoverPair, FleetMover, MoverPairLimits, RankRules, TransferCandidate, TransferPairDemand,
    TransferRanking, WaitingTransfer, assign, select_transfers, shares,
};
use criterion::{BatchSize, BenchmarkId, Criterion, criterion_group, criterion_main};

/// Pairs that each mover takes.
const PAIRS: u32 = 4;

/// Transfers beyond the places that managers prepare (`transfer_intake.rs`).
const AHEAD: usize = 8;

fn order(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("fleet/take");
    for count in [10_000, 100_000] {
        let ids: Vec<String> = (0..count).map(|number| format!("{number:026}")).collect();
        let users: Vec<String> = (0..50).map(|number| format!("user{number}")).collect();
        let numbered = ids.iter().enumerate();
        let candidates: Vec<TransferCandidate<'_>> = numbered
            .map(|(number, id)| {
                let account = &*users[number % users.len()];
                let (priority, submitted_ms) = ((number % 10) as u8, number as u64);
                let waiting = WaitingTransfer {
                    id,
                    account,
                    priority,
                    submitted_ms,
                    deadline_ms: None,
                    not_before_ms: None,
                };
                TransferCandidate { waiting, is_begun: false }
            })
            .collect();
        let ranks = TransferRanking::new(RankRules::default());
        group.bench_function(BenchmarkId::new("of those that wait", count), |bencher| {
            bencher.iter(|| {
                black_box(
                    select_transfers(&ranks, 1_000_000, (16, 0), &[], black_box(&candidates)).take.len(),
                )
            });
        });
    }
    group.finish();
}

/// Returns movers of two sites, as many begun transfers as they have places for, and the prepared ones.
fn fleet(movers_each: usize) -> (Vec<FleetMover>, Vec<TransferPairDemand>) {
    let movers = (0..2 * movers_each).map(|index| FleetMover {
        id: format!("mover{index}"),
        site: (index % 2).to_string(),
        host: format!("host{index}"),
        protocol: 1,
        pairs_max: PAIRS,
        is_draining: false,
    });
    let at = |site: usize| (0..2 * movers_each).filter(|index| index % 2 == site).collect::<Vec<_>>();
    let claims = (0..movers_each * PAIRS as usize + AHEAD).map(|number| TransferPairDemand {
        transfer: format!("{number:026}"),
        submitted_ms: number as u64,
        priority: (number % 10) as u8,
        user: format!("user{}", number % 50),
        source_site: "0".into(),
        sink_site: "1".into(),
        sources: at(0),
        sinks: at(1),
        wanted: 2,
        pairs_max: None,
        is_mine: true,
    });
    (movers.collect(), claims.collect())
}

fn deal(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("fleet/deal");
    for movers_each in [2, 20, 60] {
        let (movers, claims) = fleet(movers_each);
        let limits = MoverPairLimits::default();
        let deal = |claims: &[TransferPairDemand], present: &[AssignedMoverPair]| {
            let shares = shares(&movers, claims, &limits);
            assign(&movers, claims, &shares, present)
        };
        let present = deal(&claims, &[]).add;
        group.bench_function(BenchmarkId::new("to nobody's pairs, movers", 2 * movers_each), |bencher| {
            bencher.iter(|| deal(black_box(&claims), &[]).add.len());
        });
        // The oldest transfer ends, and a waiting one gets its places.
        let one_less = || claims[1..].to_vec();
        group.bench_function(BenchmarkId::new("after one end, movers", 2 * movers_each), |bencher| {
            bencher.iter_batched(one_less, |claims| deal(&claims, &present).add.len(), BatchSize::SmallInput);
        });
    }
    group.finish();
}

criterion_group!(benches, order, deal);
criterion_main!(benches);
