//! The target queues behind a single lock, which every I/O thread takes for every object.
//!
//! Each policy is measured with one target (a local disk), eight (a small parallel file system) and a
//! thousand (a large one). A new policy in `carrack-plan` gets a line in [`queue`] here.

mod common;

use std::hint::black_box;
use std::time::Duration;

use carrack_model::TargetId;
use carrack_plan::{
    AdaptivePolicy, IoQueueArrivalPattern, RoundRobinPolicy, SchedulingPolicy, StorageRequestTiming,
    TargetQueues, ThresholdPolicy,
};
use criterion::measurement::WallTime;
use criterion::{
    BatchSize, BenchmarkGroup, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main,
};

const TARGET_COUNTS: [u64; 3] = [1, 8, 1_000];

/// Waiting items, over all targets; more than targets, so that no queue runs empty.
const ITEMS: u64 = 8_000;

/// Bytes of each item, and the storage's time for them.
const BYTES: u64 = 1 << 20;
const TIME: Duration = Duration::from_millis(5);

/// Items of one measured iteration.
const MOVES: u64 = 1_000;

fn queue(criterion: &mut Criterion) {
    measure(criterion, "round robin", || Box::new(RoundRobinPolicy::new()));
    measure(criterion, "threshold", || {
        Box::new(ThresholdPolicy::new(Duration::from_secs(1), Duration::from_millis(100), 30))
    });
    measure(criterion, "adaptive", || Box::new(AdaptivePolicy::new(8, IoQueueArrivalPattern::Queued, false)));
}

type Make = fn() -> Box<dyn SchedulingPolicy>;

fn measure(criterion: &mut Criterion, policy: &str, make: Make) {
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

/// Measures adding items as the scan does, into queues that grow from nothing.
fn push(group: &mut BenchmarkGroup<'_, WallTime>, target_count: u64, make: Make) {
    group.throughput(Throughput::Elements(ITEMS));
    group.bench_function(id("push", target_count), |bencher| {
        let empty = || TargetQueues::new(make());
        bencher.iter_batched(empty, |queues| filled(queues, target_count), BatchSize::SmallInput);
    });
}

/// Measures an object's way through the queue: taken, its file's cursor put back, finished. Other threads
/// serve `in_service` objects of every target all the while: with 0 the policy stops at the first target with
/// work, with 1 it must look at all targets.
fn take_and_put_back(
    group: &mut BenchmarkGroup<'_, WallTime>,
    target_count: u64,
    make: Make,
    in_service: u64,
) {
    let mut queues = filled(TargetQueues::new(make()), target_count);
    for _ in 0..in_service * target_count {
        queues.take(Duration::ZERO).expect("more items wait than there are targets");
    }
    let what = if in_service == 0 { "take, no target served" } else { "take, every target served" };
    let mut now = Duration::ZERO;
    group.throughput(Throughput::Elements(MOVES));
    group.bench_function(id(what, target_count), |bencher| {
        bencher.iter(|| {
            for _ in 0..MOVES {
                now += TIME;
                let (target, item) = queues.take(now).expect("every item is put back");
                queues.push(target, BYTES, black_box(item));
                queues.finish_service(target, Some(StorageRequestTiming { time: TIME, bytes: BYTES }), now);
            }
        });
    });
}

fn filled(mut queues: TargetQueues<u64>, target_count: u64) -> TargetQueues<u64> {
    (0..target_count).for_each(|target| queues.set_depth(TargetId(target), 8));
    for item in 0..ITEMS {
        queues.push(TargetId(item % target_count), BYTES, item);
    }
    queues
}

criterion_group! { name = benches; config = common::config(); targets = queue }
criterion_main!(benches);
