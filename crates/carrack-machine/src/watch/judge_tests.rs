//! The judge on a machine with two sockets, nodes 0 and 1, CPUs 0-3 and 4-7.

use proptest::prelude::*;

use super::super::sample_difference::NumaNodeLoad;
use super::*;
use crate::id_set::NodeSet;
use crate::placement::PlacementScheme;
use crate::thread_binding::SeatedThread;

const EVERY: Duration = Duration::from_secs(2);

fn seat(cpu: u32) -> ThreadSeat {
    ThreadSeat { cpus: CpuSet::from_iter([cpu]), ..ThreadSeat::default() }
}

/// A lane whose comm thread is on `comm` and whose only I/O thread is on `io`.
fn lane(comm: u32, io: u32) -> LanePlacement {
    let socket = (comm / 4) as usize;
    LanePlacement {
        socket,
        memory: NodeSet::from_iter([socket as u32]),
        master: seat(comm),
        comm: seat(comm),
        io: vec![seat(io)],
        nic: None,
        disks: Vec::new(),
    }
}

fn placement(lanes: Vec<LanePlacement>) -> EndThreadPlacement {
    EndThreadPlacement { scheme: PlacementScheme::Mts, lanes, reasons: Vec::new() }
}

fn threads_of(placement: &EndThreadPlacement) -> Vec<ThreadLoad> {
    let of_lane = |(i, lane): (usize, &LanePlacement)| {
        [(ThreadDuty::Comm, &lane.comm), (ThreadDuty::Io(0), &lane.io[0])].map(|(duty, seat)| ThreadLoad {
            place: SeatedThread {
                tid: i as i32 * 2 + i32::from(duty == ThreadDuty::Comm) + 1,
                lane: i,
                duty,
                cpus: seat.cpus.clone(),
            },
            last_cpu: seat.cpus.first().unwrap(),
            run: 0.1,
            delay: 0.5,
            migrations: 0,
        })
    };
    placement.lanes.iter().enumerate().flat_map(of_lane).collect()
}

fn seen(cpus: [f64; 8], present: &EndThreadPlacement) -> MachineLoadInterval {
    let mut interval = MachineLoadInterval { threads: threads_of(present), ..MachineLoadInterval::default() };
    interval.loads.cpus = (0..).zip(cpus).collect();
    interval
}

/// Each lane on the socket with the least load, its threads on that socket's CPUs with the least load.
fn plan(cpus: [f64; 8], lanes: usize) -> EndThreadPlacement {
    let sum = |socket: usize| cpus[socket * 4..][..4].iter().sum::<f64>();
    let socket = usize::from(sum(1) < sum(0));
    let mut order: Vec<u32> = (socket as u32 * 4..).take(4).collect();
    order.sort_by(|&a, &b| cpus[a as usize].total_cmp(&cpus[b as usize]));
    placement((0..lanes).map(|i| lane(order[i * 2 % 4], order[(i * 2 + 1) % 4])).collect())
}

fn apply(present: &mut EndThreadPlacement, decision: &LaneMoveDecision) {
    let lane = &mut present.lanes[decision.lane];
    match &decision.change {
        LanePlacementChange::Lane(to) => *lane = (**to).clone(),
        LanePlacementChange::Threads(moves) => moves.iter().for_each(|to| match to.duty {
            ThreadDuty::Io(_) => lane.io[0] = to.to.clone(),
            _ => lane.comm = to.to.clone(),
        }),
    }
}

/// Applies the loads one after the other, and returns the time and lane of each move.
fn run(loads: impl IntoIterator<Item = [f64; 8]>, start: EndThreadPlacement) -> Vec<(Duration, usize)> {
    let (mut judge, mut present, mut moves) = (ThreadMoveJudge::default(), start, Vec::new());
    for (i, cpus) in loads.into_iter().enumerate() {
        let now = EVERY * i as u32;
        let interval = seen(cpus, &present);
        for decision in judge.decide_moves(now, &interval, &present, &plan(cpus, present.lanes.len())) {
            apply(&mut present, &decision);
            moves.push((now, decision.lane));
        }
    }
    moves
}

const ON_NODE_0: [f64; 8] = [0.9, 0.8, 0.9, 0.9, 0.0, 0.1, 0.0, 0.1];
const CALM_EVERYWHERE: [f64; 8] = [0.0; 8];

#[test]
fn a_crowded_lane_moves_after_two_intervals() {
    let present = placement(vec![lane(0, 1)]);
    let interval = seen(ON_NODE_0, &present);
    let planned = plan(ON_NODE_0, 1);
    let mut judge = ThreadMoveJudge::default();
    assert_eq!(judge.decide_moves(Duration::ZERO, &interval, &present, &planned), []);
    let decisions = judge.decide_moves(EVERY, &interval, &present, &planned);
    assert_eq!(decisions[0].change, LanePlacementChange::Lane(Box::new(lane(4, 6))));
    assert_eq!(
        decisions[0].to_string(),
        "lane 0: node 0's cores are 85 % taken by others, node 1's 0 %: it moves to node 1"
    );
}

#[test]
fn one_bad_interval_moves_nobody() {
    let flicker = (0..200).map(|i| if i % 2 == 0 { ON_NODE_0 } else { CALM_EVERYWHERE });
    assert_eq!(run(flicker, placement(vec![lane(0, 1)])), []);
}

#[test]
fn a_thread_that_waits_changes_its_seat_and_one_that_does_not_wait_stays() {
    let present = placement(vec![lane(0, 1)]);
    let cpus = [0.0, 0.9, 0.05, 0.3, 1.0, 1.0, 1.0, 1.0];
    let mut interval = seen(cpus, &present);
    let planned = placement(vec![lane(0, 2)]);
    let mut judge = ThreadMoveJudge::default();
    assert_eq!(judge.decide_moves(Duration::ZERO, &interval, &present, &planned), []);
    let decisions = judge.decide_moves(EVERY, &interval, &present, &planned);
    let to = ThreadMove { tid: 1, duty: ThreadDuty::Io(0), to: seat(2) };
    assert_eq!(decisions[0].change, LanePlacementChange::Threads(vec![to]));
    assert_eq!(
        decisions[0].to_string(),
        "lane 0: I/O thread 0 waited for CPU 1 50 % of the time (0 changes of CPU), which is 90 % taken by others, \
         the new seats 5 %: I/O thread 0 goes to CPU 2"
    );
    interval.threads.iter_mut().for_each(|thread| thread.delay = 0.1);
    let mut judge = ThreadMoveJudge::default();
    let later = (0..9).flat_map(|i| judge.decide_moves(EVERY * i, &interval, &present, &planned));
    assert_eq!(later.count(), 0);
}

#[test]
fn a_lane_does_not_move_onto_another() {
    let present = placement(vec![lane(0, 1), lane(4, 5)]);
    let mut interval = seen(ON_NODE_0, &present);
    let planned = placement(vec![lane(4, 5), lane(4, 5)]);
    let mut decide = |run: f64| {
        let others = interval.threads.iter_mut().filter(|thread| thread.place.lane == 1);
        others.for_each(|thread| thread.run = run);
        let mut judge = ThreadMoveJudge::default();
        (0..9).flat_map(|i| judge.decide_moves(EVERY * i, &interval, &present, &planned)).count()
    };
    assert_eq!(decide(0.9), 0, "the other lane takes as much as the others here");
    assert_eq!(decide(0.1), 1);
}

#[test]
fn a_lane_leaves_nodes_that_have_no_memory_left() {
    let present = placement(vec![lane(0, 1)]);
    let mut interval = seen(CALM_EVERYWHERE, &present);
    interval.loads.nodes.insert(0, NumaNodeLoad { short: 0.3, ..NumaNodeLoad::default() });
    let mut judge = ThreadMoveJudge::default();
    let planned = placement(vec![lane(4, 5)]);
    let decisions: Vec<LaneMoveDecision> =
        (0..2).flat_map(|i| judge.decide_moves(EVERY * i, &interval, &present, &planned)).collect();
    assert!(decisions[0].reason.contains("node 0 could not give 30 % of the pages"), "{}", decisions[0]);
    interval.loads.nodes.insert(1, NumaNodeLoad { short: 0.2, ..NumaNodeLoad::default() });
    let mut judge = ThreadMoveJudge::default();
    assert_eq!((0..9).flat_map(|i| judge.decide_moves(EVERY * i, &interval, &present, &planned)).count(), 0);
}

#[test]
fn a_lane_goes_back_once_its_first_place_is_free_for_a_minute() {
    let for_s = |s: usize, load| std::iter::repeat_n(load, s / 2);
    let loads = for_s(40, ON_NODE_0).chain(for_s(50, CALM_EVERYWHERE)).chain(for_s(10, ON_NODE_0));
    let moves = run(loads.chain(for_s(300, CALM_EVERYWHERE)), placement(vec![lane(0, 1)]));
    assert_eq!(moves, [(Duration::from_secs(2), 0), (Duration::from_secs(158), 0)]);
}

#[test]
fn load_that_follows_the_lane_moves_it_about_ten_times_an_hour() {
    let (mut judge, mut present, mut moves) = (ThreadMoveJudge::default(), placement(vec![lane(0, 1)]), 0);
    for i in 0..1_800 {
        let mut cpus = [0.0; 8];
        cpus[present.lanes[0].socket * 4..][..4].fill(0.9);
        let decisions = judge.decide_moves(EVERY * i, &seen(cpus, &present), &present, &plan(cpus, 1));
        decisions.iter().for_each(|decision| apply(&mut present, decision));
        moves += decisions.len();
    }
    assert!((2..=12).contains(&moves), "{moves}");
}

#[test]
fn a_lane_that_was_calm_for_long_moves_soon_again() {
    let mut history = LaneMoveHistory::of(&lane(0, 1));
    let hour = Duration::from_secs(3_600);
    [0, 30, 100].into_iter().for_each(|s| history.record_move(Duration::from_secs(s)));
    assert_eq!(history.rest, REST * 4);
    history.record_move(hour);
    assert_eq!(history.rest, REST);
}

fn any_load() -> impl Strategy<Value = [f64; 8]> {
    prop_oneof![
        proptest::array::uniform8(0.0..1.0_f64),
        Just(ON_NODE_0),
        Just(CALM_EVERYWHERE),
        (0..8_usize).prop_map(|cpu| std::array::from_fn(|i| if i == cpu { 1.0 } else { 0.0 })),
    ]
}

proptest! {
    #[test]
    fn a_lane_rests_after_each_move(
        loads in proptest::collection::vec((any_load(), 1_usize..15), 1..60),
        lanes in 1_usize..3,
    ) {
        let start = placement((0..lanes as u32).map(|i| lane(i * 4, i * 4 + 1)).collect());
        let loads = loads.into_iter().flat_map(|(load, times)| std::iter::repeat_n(load, times));
        let moves = run(loads, start);
        for lane in 0..lanes {
            let times: Vec<Duration> = moves.iter().filter(|(_, of)| *of == lane).map(|(at, _)| *at).collect();
            let gaps: Vec<Duration> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
            // All of it is shorter than the calm time: each rest is twice the previous one.
            let rests = (0..).map(|i| (REST * (1 << i)).min(REST_MAX));
            prop_assert!(gaps.iter().zip(rests).all(|(gap, rest)| *gap >= rest), "{gaps:?}");
        }
    }

    #[test]
    fn constant_load_settles(load in any_load(), lanes in 1_usize..3) {
        let start = placement((0..lanes as u32).map(|i| lane(i * 4, i * 4 + 1)).collect());
        let moves = run(std::iter::repeat_n(load, 900), start);
        prop_assert!((0..lanes).all(|lane| moves.iter().filter(|(_, of)| *of == lane).count() <= 1), "{moves:?}");
    }
}
