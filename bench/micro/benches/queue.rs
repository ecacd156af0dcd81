//! The target queues, which stand behind one lock that every I/O thread takes for every object.
//!
//! Each policy is measured with one target (a local disk), eight (a small parallel file system) and a thousand (a
//! large one). A policy that joins `carrack-plan` joins [`queue`] here.

mod common;

use std::hint::black_box;

use carrack_model::TargetId;
use carrack_plan::{Policy, RoundRobin, TargetQueues};
use criterion::measurement::WallTime;
use criterion::{
    BatchSize, BenchmarkGroup, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main,
};

const TARGET_COUNTS: [u64; 3] = [1, 8, 1_000];

/// Items that wait, over all targets; more than targets, so that none runs dry.
const ITEMS: u64 = 8_000;

/// Items moved in one measured piece.
const MOVES: u64 = 1_000;

fn queue(criterion: &mut Criterion) {
    measure(criterion, "round robin", RoundRobin::new);
}

fn measure<P: Policy>(criterion: &mut Criterion, policy: &str, make: fn() -> P) {
    let mut group = criterion.benchmark_group(format!("queue/{policy}"));
    for target_count in TARGET_COUNTS {
        push(&mut group, target_count, make);
        take_and_put_back(&mut group, target_count, make, 0);
        take_and_put_back(&mut group, target_count, make, 1);
    }
    group.finish();
}

fn id(what: &str, target_count: u64) -> BenchmarkId {
    BenchmarkId::new(format!("{what}, targets"), target_count)
}

/// Adding items as the scan does, into queues that grow from nothing.
fn push<P: Policy>(group: &mut BenchmarkGroup<'_, WallTime>, target_count: u64, make: fn() -> P) {
    group.throughput(Throughput::Elements(ITEMS));
    group.bench_function(id("push", target_count), |bencher| {
        let empty = || TargetQueues::with_policy(ITEMS as usize, make());
        bencher.iter_batched(empty, |queues| filled(queues, target_count), BatchSize::SmallInput);
    });
}

/// An object's way through the queue: taken, its file's cursor put back, finished. `in_service` objects of every target
/// are being served by other threads all the while: with 0 the policy stops at the first target with work, with 1 it
/// has to look at all.
fn take_and_put_back<P: Policy>(
    group: &mut BenchmarkGroup<'_, WallTime>,
    target_count: u64,
    make: fn() -> P,
    in_service: u64,
) {
    let mut queues = filled(TargetQueues::with_policy(ITEMS as usize, make()), target_count);
    for _ in 0..in_service * target_count {
        queues.take().expect("more items wait than there are targets");
    }
    let what = if in_service == 0 { "take, no target served" } else { "take, every target served" };
    group.throughput(Throughput::Elements(MOVES));
    group.bench_function(id(what, target_count), |bencher| {
        bencher.iter(|| {
            for _ in 0..MOVES {
                let (target, item) = queues.take().expect("every item is put back");
                queues.put_back(target, black_box(item));
                queues.finished(target);
            }
        });
    });
}

fn filled<P: Policy>(mut queues: TargetQueues<u64, P>, target_count: u64) -> TargetQueues<u64, P> {
    for item in 0..ITEMS {
        queues.push(TargetId(item % target_count), item).expect("the queues hold all items");
    }
    queues
}

criterion_group! { name = benches; config = common::config(); targets = queue }
criterion_main!(benches);
