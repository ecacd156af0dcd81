//! The policies against modelled storage, in virtual time: the proportions of the LADS paper's section 5.2.
//!
//! Every target serves its requests one after the other. While it is congested, others' requests stand
//! between ours: each takes `SLOWDOWN` times as long.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use carrack_model::{SchedulingPolicyChoice, ServerId, TargetId};
use carrack_plan::{IoQueueArrivalPattern, StorageRequestTiming, TargetQueues, TargetState, create_policy};

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
    /// Objects that the client reads ahead with one request to the target: the next ones are in its cache.
    read_ahead: u32,
    /// Targets of each server; 0 if the policy does not know servers.
    per_server: u64,
}

/// The time of an object in the client's cache.
const CACHED: Duration = Duration::from_micros(300);

/// The state of one modelled target.
#[derive(Clone, Copy, Default)]
struct ModelledTarget {
    busy_until: Duration,
    /// Objects in the client's cache.
    cached: u32,
}

impl ModelledTarget {
    /// Returns the time at which a request ends that begins now.
    fn serve(&mut self, experiment: &Experiment, target: u64, now: Duration) -> Duration {
        if self.cached > 0 {
            self.cached -= 1;
            return now + CACHED;
        }
        self.cached = experiment.read_ahead - 1;
        let time = NORMAL * experiment.read_ahead;
        let slowdown = if experiment.is_congested(target, now) { SLOWDOWN } else { 1 };
        self.busy_until = self.busy_until.max(now) + time * slowdown;
        self.busy_until
    }
}

/// How a run went.
struct RunResult {
    time: Duration,
    /// Times that a target was found congested.
    avoided_count: u64,
    /// The time at which each target's work was done.
    ends: Vec<Duration>,
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
            read_ahead: 1,
            per_server: 0,
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

    fn queues(&self, choice: SchedulingPolicyChoice) -> TargetQueues<()> {
        let mut queues = TargetQueues::new(create_policy(&choice, self.threads, self.feed()));
        for target in 0..self.targets {
            queues.set_depth(TargetId(target), 8);
            let server = target.checked_div(self.per_server).map(|number| ServerId(number as u32));
            queues.set_server(TargetId(target), server);
        }
        queues
    }

    /// How long it takes to serve everything.
    fn run(&self, choice: SchedulingPolicyChoice) -> Duration {
        self.run_with_result(choice).time
    }

    fn run_with_result(&self, choice: SchedulingPolicyChoice) -> RunResult {
        self.run_watched(choice, |_, _| ())
    }

    /// The same; `watch` sees the state of the targets after each choice.
    fn run_watched(
        &self,
        choice: SchedulingPolicyChoice,
        mut watch: impl FnMut(Duration, &[TargetState]),
    ) -> RunResult {
        let mut queues = self.queues(choice);
        // What has not come yet, in the order in which it comes.
        let mut coming = vec![self.objects_each; self.targets as usize];
        let mut ends = vec![Duration::ZERO; self.targets as usize];
        let mut modelled = vec![ModelledTarget::default(); self.targets as usize];
        let mut running: BinaryHeap<Reverse<(Duration, u64, Duration)>> = BinaryHeap::new();
        let mut now = Duration::ZERO;
        loop {
            self.fill(&mut queues, &mut coming);
            while running.len() < self.threads {
                let Some((TargetId(target), ())) = queues.take(now) else { break };
                watch(now, queues.states());
                let end = modelled[target as usize].serve(self, target, now);
                running.push(Reverse((end, target, now)));
            }
            let next_end = running.peek().map(|Reverse((end, ..))| *end);
            let next_wake = queues.wake_at(now).filter(|wake| *wake > now && running.len() < self.threads);
            match (next_end, next_wake) {
                (None, None) => {
                    assert!(
                        queues.is_empty() && coming.iter().all(|count| *count == 0),
                        "{choice}: work is left and nobody does it"
                    );
                    let avoided_count =
                        queues.verdicts(now).map(|(_, verdict, _)| verdict.avoided_count).sum();
                    return RunResult { time: now, avoided_count, ends };
                }
                (Some(end), wake) if wake.is_none_or(|wake| end <= wake) => {
                    now = end;
                    if let Some(Reverse((_, target, began))) = running.pop() {
                        ends[target as usize] = now;
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

/// Four servers of eight targets, one of which is slow at a time.
fn slow_servers(step_s: u64) -> Experiment {
    Experiment { congested: 8, per_server: 8, step: Duration::from_secs(step_s), ..Experiment::paper() }
}

#[test]
fn a_slow_server_is_avoided_as_one() {
    let (mut with, mut without) = (Duration::ZERO, Duration::ZERO);
    for window in [usize::MAX, 256] {
        for step_s in [3, 5, 10] {
            let servers = Experiment { window, ..slow_servers(step_s) };
            let (known, unknown) =
                (servers.run(ADAPTIVE), Experiment { per_server: 0, ..servers }.run(ADAPTIVE));
            println!("window {window}, {step_s} s: servers known {known:?}, unknown {unknown:?}");
            with += known;
            without += unknown;
        }
    }
    println!("servers known {with:?}, unknown {without:?}");
    assert!(with <= without.mul_f64(0.92), "{with:?} against {without:?}");
}

#[test]
fn threads_at_a_slow_server_are_its_share_at_most() {
    // From the start, before anything is known of it, and until the others have half of their work done.
    let slow = Experiment { step: Duration::from_secs(10_000), ..slow_servers(1) };
    let (mut most, mut looks) = (0, 0);
    slow.run_watched(ADAPTIVE, |_, states| {
        let (of_slow, others) = states.split_at(8);
        if others.iter().map(|state| state.waiting).sum::<usize>() > 24 * 64 / 2 {
            most = most.max(of_slow.iter().map(|state| state.in_service).sum::<u32>());
            looks += 1;
        }
    });
    assert!(most == 2 && looks > 500, "{most} of 8 threads at one of four servers, {looks} looks");
}

#[test]
fn servers_without_congestion_cost_nothing() {
    for (threads, per_server) in [(8, 8), (32, 8), (8, 1), (64, 16), (1, 4)] {
        let calm = Experiment { congested: 0, threads, per_server, ..Experiment::paper() };
        let unknown = Experiment { per_server: 0, ..calm.clone() };
        let ratio = calm.run(ADAPTIVE).as_secs_f64() / unknown.run(ADAPTIVE).as_secs_f64();
        assert!(ratio < 1.03, "{threads} threads, {per_server} targets of a server: {ratio}");
    }
}

#[test]
fn a_single_server_changes_nothing() {
    let one = Experiment { per_server: 32, ..Experiment::paper() };
    assert_eq!(one.run(ADAPTIVE), Experiment { per_server: 0, ..one }.run(ADAPTIVE));
}

#[test]
fn a_clients_read_ahead_is_no_congestion() {
    for read_ahead in [2, 4, 8] {
        let calm = Experiment { congested: 0, read_ahead, ..Experiment::paper() };
        let found = calm.run_with_result(ADAPTIVE);
        // With one normal for all, every request to a target is a congestion: 1,024, 512 and 256.
        assert!(found.avoided_count <= calm.targets, "one in {read_ahead}: {}", found.avoided_count);
        let round_robin = calm.run(SchedulingPolicyChoice::RoundRobin);
        assert!(
            found.time < round_robin.mul_f64(1.03),
            "one in {read_ahead}: {:?} against {round_robin:?}",
            found.time
        );
    }
}

#[test]
fn congestion_is_found_behind_a_clients_cache() {
    for read_ahead in [2, 4, 8] {
        // A congestion lasts for as many requests as without the cache.
        let step = Duration::from_secs(5) * read_ahead;
        let objects_each = 64 * u64::from(read_ahead);
        let experiment = Experiment { read_ahead, objects_each, step, ..Experiment::paper() };
        let ratio = experiment.ratio(ADAPTIVE, SchedulingPolicyChoice::RoundRobin);
        assert!(ratio < 0.75, "one in {read_ahead}: {ratio}");
    }
}

#[test]
fn healthy_targets_do_not_wait_behind_a_clients_cache() {
    for read_ahead in [1, 2, 4] {
        let half = Experiment {
            targets: 6,
            threads: 3,
            congested: 3,
            step: Duration::from_secs(10_000),
            read_ahead,
            ..Experiment::paper()
        };
        let healthy_end =
            |choice| half.run_with_result(choice).ends[3..].iter().max().copied().unwrap_or_default();
        let (ours, round_robin) = (healthy_end(ADAPTIVE), healthy_end(SchedulingPolicyChoice::RoundRobin));
        assert!(ours < round_robin.mul_f64(0.5), "one in {read_ahead}: {ours:?} against {round_robin:?}");
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
    for per_server in [0, 8] {
        let all = Experiment { congested: 32, objects_each: 4, per_server, ..Experiment::paper() };
        let ratio = all.ratio(ADAPTIVE, SchedulingPolicyChoice::RoundRobin);
        assert!(ratio < 1.03, "{ratio}");
    }
}

#[test]
fn what_is_always_congested_is_served_too() {
    // The congested ones never change, and the transfer ends.
    let stuck = Experiment { step: Duration::from_secs(10_000), objects_each: 16, ..Experiment::paper() };
    let server = Experiment { congested: 8, per_server: 8, ..stuck.clone() };
    let nice = SchedulingPolicyChoice::Adaptive { nice: true };
    for (stuck, choice) in [
        (&stuck, ADAPTIVE),
        (&stuck, nice),
        (&stuck, threshold(2_000, 200, 30)),
        (&server, ADAPTIVE),
        (&server, nice),
    ] {
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
