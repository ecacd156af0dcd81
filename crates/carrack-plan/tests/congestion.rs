//! The policies against modelled storage, in virtual time: the proportions of the LADS paper's section 5.2.
//!
//! Every target serves its requests one after the other. While it is congested, others' requests stand
//! between ours: each takes `SLOWDOWN` times as long.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use carrack_model::{SchedulingPolicyChoice, TargetId};
use carrack_plan::{IoQueueArrivalPattern, StorageRequestTiming, TargetQueues, create_policy};

const MIB: u64 = 1 << 20;
const NORMAL: Duration = Duration::from_millis(64);
const SLOWDOWN: u32 = 17;

#[derive(Clone)]
struct Experiment {
    targets: u64,
    threads: usize,
    objects_each: u64,
    /// Targets congested at a time, and for how long before the next ones are.
    congested: u64,
    step: Duration,
    /// Objects that may wait at once: a sink's slots.
    window: usize,
}

impl Experiment {
    fn paper() -> Experiment {
        Experiment {
            targets: 32,
            threads: 8,
            objects_each: 64,
            congested: 4,
            step: Duration::from_secs(5),
            window: usize::MAX,
        }
    }

    fn is_congested(&self, target: u64, at: Duration) -> bool {
        let step = (at.as_nanos() / self.step.as_nanos()) as u64;
        let first = step * self.congested % self.targets;
        (target + self.targets - first) % self.targets < self.congested
    }

    /// Lets come what the window has room for; no target gets more than its share of it, as the engine sees
    /// to.
    fn fill(&self, queues: &mut TargetQueues<()>, coming: &mut [u64]) {
        let share = (self.window / self.targets as usize).max(2);
        loop {
            let room = self.window.saturating_sub(queues.len() + queues.in_service());
            let has_share = |target: u64| {
                let state = queues.states()[target as usize];
                state.waiting + (state.in_service as usize) < share
            };
            let targets =
                (0..self.targets).filter(|&target| coming[target as usize] > 0 && has_share(target));
            let targets: Vec<u64> = targets.take(room).collect();
            if targets.is_empty() {
                return;
            }
            for target in targets {
                coming[target as usize] -= 1;
                queues.push(TargetId(target), MIB, ());
            }
        }
    }

    fn feed(&self) -> IoQueueArrivalPattern {
        if self.window == usize::MAX {
            IoQueueArrivalPattern::Queued
        } else {
            IoQueueArrivalPattern::Arriving
        }
    }

    /// How long it takes to serve everything.
    fn run(&self, choice: SchedulingPolicyChoice) -> Duration {
        let mut queues = TargetQueues::new(create_policy(&choice, self.threads, self.feed()));
        (0..self.targets).for_each(|target| queues.set_depth(TargetId(target), 8));
        // What has not come yet, in the order in which it comes.
        let mut coming = vec![self.objects_each; self.targets as usize];
        let mut busy_until = vec![Duration::ZERO; self.targets as usize];
        let mut running: BinaryHeap<Reverse<(Duration, u64, Duration)>> = BinaryHeap::new();
        let mut now = Duration::ZERO;
        loop {
            self.fill(&mut queues, &mut coming);
            while running.len() < self.threads {
                let Some((TargetId(target), ())) = queues.take(now) else { break };
                let time = if self.is_congested(target, now) { NORMAL * SLOWDOWN } else { NORMAL };
                let free_at = &mut busy_until[target as usize];
                *free_at = (*free_at).max(now) + time;
                running.push(Reverse((*free_at, target, now)));
            }
            let next_end = running.peek().map(|Reverse((end, ..))| *end);
            let next_wake = queues.wake_at(now).filter(|wake| *wake > now && running.len() < self.threads);
            match (next_end, next_wake) {
                (None, None) => {
                    assert!(
                        queues.is_empty() && coming.iter().all(|count| *count == 0),
                        "{choice}: work is left and nobody does it"
                    );
                    return now;
                }
                (Some(end), wake) if wake.is_none_or(|wake| end <= wake) => {
                    now = end;
                    if let Some(Reverse((_, target, began))) = running.pop() {
                        let service = StorageRequestTiming { time: now - began, bytes: MIB };
                        queues.finish_service(TargetId(target), Some(service), now);
                    }
                }
                (_, wake) => now = wake.unwrap_or(now),
            }
            assert!(now < Duration::from_secs(3_600), "{choice}: it does not end");
        }
    }

    fn ratio(&self, ours: SchedulingPolicyChoice, other: SchedulingPolicyChoice) -> f64 {
        self.run(ours).as_secs_f64() / self.run(other).as_secs_f64()
    }
}

const ADAPTIVE: SchedulingPolicyChoice = SchedulingPolicyChoice::Adaptive { nice: false };

fn threshold(window_ms: u64, threshold_ms: u64, skips: u32) -> SchedulingPolicyChoice {
    SchedulingPolicyChoice::Threshold {
        window: Duration::from_millis(window_ms),
        threshold: Duration::from_millis(threshold_ms),
        skips,
    }
}

/// What somebody who knows the storage might set.
fn best_threshold(experiment: &Experiment) -> Duration {
    let mut candidates = Vec::new();
    for window in [500, 2_000, 10_000] {
        for limit in [100, 200, 500] {
            for skips in [2, 10, 30, 100] {
                candidates.push(threshold(window, limit, skips));
            }
        }
    }
    candidates.into_iter().map(|choice| experiment.run(choice)).min().unwrap_or_default()
}

#[test]
fn adaptive_avoids_congested_targets_as_well_as_the_best_threshold() {
    let (mut round_robin, mut best, mut adaptive) = (Duration::ZERO, Duration::ZERO, Duration::ZERO);
    for objects_each in [64, 128] {
        for step_s in [3, 5, 10] {
            let step = Duration::from_secs(step_s);
            let experiment = Experiment { objects_each, step, ..Experiment::paper() };
            round_robin += experiment.run(SchedulingPolicyChoice::RoundRobin);
            best += best_threshold(&experiment);
            adaptive += experiment.run(ADAPTIVE);
        }
    }
    println!("round-robin {round_robin:?}, best thresholds {best:?}, adaptive {adaptive:?}");
    assert!(adaptive <= round_robin.mul_f64(0.65), "{adaptive:?} against {round_robin:?}");
    assert!(adaptive <= best.mul_f64(1.02), "{adaptive:?} against {best:?}");
}

#[test]
fn a_window_of_objects_does_not_defeat_it() {
    let experiment = Experiment { window: 256, ..Experiment::paper() };
    let ratio = experiment.ratio(ADAPTIVE, SchedulingPolicyChoice::RoundRobin);
    assert!(ratio < 0.75, "{ratio}");
}

#[test]
fn without_congestion_it_costs_nothing() {
    for (targets, threads) in [(32, 8), (32, 32), (4, 8), (1, 8), (8, 1)] {
        let calm = Experiment { congested: 0, targets, threads, ..Experiment::paper() };
        let ratio = calm.ratio(ADAPTIVE, SchedulingPolicyChoice::RoundRobin);
        assert!(ratio < 1.03, "{targets} targets, {threads} threads: {ratio}");
    }
}

#[test]
fn more_threads_bring_more_up_to_the_number_of_targets() {
    let time = |threads| {
        let calm = Experiment { congested: 0, threads, ..Experiment::paper() };
        calm.run(ADAPTIVE).as_secs_f64()
    };
    let alone = time(1);
    for threads in [2, 4, 8, 16, 32] {
        let speedup = alone / time(threads);
        assert!(speedup > 0.95 * threads as f64, "{threads} threads: {speedup}");
    }
}

#[test]
fn everything_congested_is_nothing_congested() {
    let all = Experiment { congested: 32, objects_each: 4, ..Experiment::paper() };
    let ratio = all.ratio(ADAPTIVE, SchedulingPolicyChoice::RoundRobin);
    assert!(ratio < 1.03, "{ratio}");
}

#[test]
fn what_is_always_congested_is_served_too() {
    // The congested ones never change, and the transfer ends.
    let stuck = Experiment { step: Duration::from_secs(10_000), objects_each: 16, ..Experiment::paper() };
    for choice in [ADAPTIVE, SchedulingPolicyChoice::Adaptive { nice: true }, threshold(2_000, 200, 30)] {
        let time = stuck.run(choice);
        // One thread at each of the four, from the start.
        let floor = NORMAL * SLOWDOWN * 16;
        assert!(time >= floor && time < Duration::from_secs(600), "{choice}: {time:?}");
    }
}

#[test]
fn nice_leaves_a_shared_target_to_others() {
    // One target, and somebody else who doubles every service time: of the time, at most a fifth is ours.
    let mut queues = TargetQueues::new(create_policy(
        &SchedulingPolicyChoice::Adaptive { nice: true },
        8,
        IoQueueArrivalPattern::Queued,
    ));
    queues.set_depth(TargetId(0), 8);
    (0..200).for_each(|_| queues.push(TargetId(0), MIB, ()));
    let mut now = Duration::ZERO;
    let mut ours = Duration::ZERO;
    let mut served = 0;
    while served < 200 {
        let Some((target, ())) = queues.take(now) else {
            now = queues.wake_at(now).expect("it will go on");
            continue;
        };
        // The first ones find the target at rest.
        let time = if served < 20 { NORMAL } else { NORMAL * 2 };
        now += time;
        ours += NORMAL;
        served += 1;
        queues.finish_service(target, Some(StorageRequestTiming { time, bytes: MIB }), now);
    }
    assert!(ours < now.mul_f64(0.25), "{ours:?} of {now:?}");
}
