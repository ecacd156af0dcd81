//! What holds for every placement, on the machines of `tests/fixtures` and for any request.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use carrack_machine::{
    CpuSet, EndThreadPlacement, LanePlacement, PlacementScheme, ThreadPlacementRequest, ThreadSeat, Topology,
    lanes_wanted, plan_thread_placement,
};
use carrack_model::limits::LANE_IO_THREADS_MIN;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};

static MACHINES: LazyLock<Vec<Topology>> =
    LazyLock::new(|| crate::common::FIXTURES.iter().map(|name| crate::common::fixture(name)).collect());

fn machine() -> impl Strategy<Value = &'static Topology> {
    (0..MACHINES.len()).prop_map(|index| &MACHINES[index])
}

/// A machine and something to be placed on it; the devices are the machine's, or unknown.
fn case() -> impl Strategy<Value = (&'static Topology, ThreadPlacementRequest)> {
    machine().prop_flat_map(|topology| {
        let mut names: Vec<String> = topology.devices.iter().map(|device| device.name.clone()).collect();
        names.push("nowhere0".into());
        let cpus: Vec<u32> = topology.cpus().iter().collect();
        let loads = proptest::collection::btree_map(select(cpus), 0.0..=1.0, 0..8);
        let schemes = [
            PlacementScheme::Auto,
            PlacementScheme::Off,
            PlacementScheme::Single,
            PlacementScheme::Mmb,
            PlacementScheme::Mts,
        ];
        let lanes = proptest::option::weighted(0.4, 1..12usize);
        let nic = proptest::option::of(select(names.clone()));
        let disks = subsequence(names.clone(), 0..=names.len());
        (select(schemes.to_vec()), lanes, 0..80usize, nic, disks, loads).prop_map(
            move |(scheme, lanes, io_threads, nic, disks, core_loads)| {
                (
                    topology,
                    ThreadPlacementRequest { scheme, lanes, io_threads, nic, disks, core_loads, costs: None },
                )
            },
        )
    })
}

fn is_bound(placement: &EndThreadPlacement) -> bool {
    matches!(placement.scheme, PlacementScheme::Single | PlacementScheme::Mts)
}

fn seats(lane: &LanePlacement) -> impl Iterator<Item = &ThreadSeat> {
    [&lane.comm, &lane.master].into_iter().chain(&lane.io)
}

/// Position of a seat's core.
fn core_of(topology: &Topology, seat: &ThreadSeat) -> usize {
    let found =
        topology.cores.iter().position(|core| !seat.cpus.is_empty() && seat.cpus.is_subset(&core.cpus));
    found.expect("a bound seat is on a core")
}

fn cores_used(topology: &Topology, lane: &LanePlacement) -> BTreeSet<usize> {
    seats(lane).map(|seat| core_of(topology, seat)).collect()
}

/// Cores that belong to the nodes of a lane's buffer, on the sockets that have these nodes.
fn cores_of(topology: &Topology, lane: &LanePlacement) -> Vec<usize> {
    let is_near = |core: &carrack_machine::CpuCore| {
        let socket = &topology.sockets[core.socket];
        let is_own = !socket.nodes.intersection(&lane.memory).is_empty();
        lane.memory.contains(topology.nodes[core.node].id) && is_own
    };
    let cores = topology.cores.iter().enumerate();
    cores.filter(|(_, core)| is_near(core)).map(|(position, _)| position).collect()
}

/// A core's logical CPUs, again and again.
fn in_turn(cpus: &CpuSet, count: usize) -> Vec<u32> {
    let cpus: Vec<u32> = cpus.iter().collect();
    cpus.iter().copied().cycle().take(count).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn it_is_what_was_asked_for((topology, request) in case()) {
        let placement = plan_thread_placement(topology, &request);
        prop_assert_eq!(&placement, &plan_thread_placement(topology, &request), "twice the same");
        prop_assert_eq!(placement.lanes.len(), lanes_wanted(topology, &request));
        prop_assert!(placement.scheme != PlacementScheme::Auto && !placement.reasons.is_empty());
        if topology.nodes_with_cores() == 1 {
            prop_assert_eq!(placement.scheme, PlacementScheme::Off);
        } else if request.scheme != PlacementScheme::Auto {
            prop_assert_eq!(placement.scheme, request.scheme);
        }
        let threads: usize = placement.lanes.iter().map(|lane| lane.io.len()).sum();
        prop_assert_eq!(threads, request.io_threads.max(placement.lanes.len()));
        if request.lanes.is_none() && placement.lanes.len() > 1 {
            prop_assert!(placement.lanes.iter().all(|lane| lane.io.len() >= LANE_IO_THREADS_MIN));
        }
    }

    #[test]
    fn everything_is_inside_the_allowed_set((topology, request) in case()) {
        let placement = plan_thread_placement(topology, &request);
        for lane in &placement.lanes {
            prop_assert!(lane.memory.is_subset(&topology.node_ids()));
            prop_assert!(lane.socket < topology.sockets.len());
            for seat in seats(lane) {
                prop_assert!(seat.cpus.is_subset(&topology.cpus()));
                prop_assert_eq!(seat.cpus.len(), usize::from(is_bound(&placement)));
                prop_assert_eq!(seat.cost.is_some(), seat.device.is_some());
                prop_assert!(seat.cost.is_none_or(|cost| cost.is_finite() && cost > 0.0));
            }
            prop_assert_eq!(lane.memory.is_empty(), placement.scheme == PlacementScheme::Off);
        }
    }

    #[test]
    fn threads_and_buffer_of_a_lane_lie_together((topology, request) in case()) {
        let placement = plan_thread_placement(topology, &request);
        prop_assume!(is_bound(&placement));
        for lane in &placement.lanes {
            let node = |seat: &ThreadSeat| topology.cores[core_of(topology, seat)].node;
            prop_assert_eq!(node(&lane.master), node(&lane.comm));
            for seat in seats(lane) {
                prop_assert!(lane.memory.contains(topology.nodes[node(seat)].id));
            }
        }
    }

    /// With no more lanes than sockets, a lane has its socket's cores for itself.
    #[test]
    fn no_core_is_used_twice_before_all_were_used_once((topology, request) in case()) {
        let placement = plan_thread_placement(topology, &ThreadPlacementRequest { lanes: None, ..request });
        prop_assume!(is_bound(&placement));
        for lane in &placement.lanes {
            let used: Vec<usize> = lane.io.iter().map(|seat| core_of(topology, seat)).collect();
            let all = cores_of(topology, lane);
            // A node of one core has Master and Comm on it; they count once.
            let control: BTreeSet<usize> =
                [&lane.comm, &lane.master].map(|seat| core_of(topology, seat)).into_iter().collect();
            let home = topology.cores[*control.first().unwrap()].node;
            let at_home = all.iter().filter(|core| topology.cores[**core].node == home).count();
            prop_assert!(control.len() == 2 || at_home == 1 || all.len() == 1);
            let mut counts: BTreeMap<usize, usize> = all.iter().map(|&core| (core, 0)).collect();
            control.iter().for_each(|core| *counts.get_mut(core).unwrap() += 1);
            for core in used {
                let least = *counts.values().min().unwrap();
                prop_assert_eq!(counts[&core], least, "core {} of {:?}", core, counts);
                *counts.get_mut(&core).unwrap() += 1;
            }
        }
    }

    /// The difference is one at most, as long as the emptier node has a core left that was used less.
    #[test]
    fn io_threads_are_spread_evenly_over_a_lanes_nodes((topology, request) in case()) {
        let placement = plan_thread_placement(topology, &ThreadPlacementRequest { lanes: None, ..request });
        prop_assume!(is_bound(&placement));
        for lane in &placement.lanes {
            let all = cores_of(topology, lane);
            let node = |core: usize| topology.cores[core].node;
            let mut on_node: BTreeMap<usize, usize> = all.iter().map(|&core| (node(core), 0)).collect();
            lane.io.iter().for_each(|seat| *on_node.get_mut(&node(core_of(topology, seat))).unwrap() += 1);
            let (least, most) = (*on_node.values().min().unwrap(), *on_node.values().max().unwrap());
            let cores_on = |wanted: usize| all.iter().filter(|&&core| node(core) == wanted).count();
            let smallest = on_node.keys().map(|&node| cores_on(node)).min().unwrap();
            // Master and Comm take two cores of one node.
            if most + 2 <= smallest {
                prop_assert!(most - least <= 1, "{:?}", on_node);
            }
            let is_equal = on_node.keys().all(|&node| cores_on(node) == smallest);
            if is_equal {
                prop_assert!(most - least <= 2, "{:?}", on_node);
            }
        }
    }

    #[test]
    fn lanes_are_disjoint_where_cores_suffice((topology, request) in case()) {
        let placement = plan_thread_placement(topology, &request);
        prop_assume!(is_bound(&placement));
        let used: Vec<BTreeSet<usize>> =
            placement.lanes.iter().map(|lane| cores_used(topology, lane)).collect();
        let sockets: BTreeSet<usize> = placement.lanes.iter().map(|lane| lane.socket).collect();
        for socket in sockets {
            let lanes: Vec<usize> =
                (0..used.len()).filter(|&lane| placement.lanes[lane].socket == socket).collect();
            // Lanes of one node share its cores out; the least node has to have one for each of its lanes.
            let nodes: BTreeSet<u32> =
                lanes.iter().flat_map(|&lane| placement.lanes[lane].memory.iter()).collect();
            let count = |id: u32| {
                let position = topology.nodes.iter().position(|node| node.id == id).unwrap();
                let is_here = |core: &&carrack_machine::CpuCore| core.node == position && core.socket == socket;
                topology.cores.iter().filter(is_here).count()
            };
            let least = nodes.iter().map(|&id| count(id)).min().unwrap();
            if least >= lanes.len().div_ceil(nodes.len()) {
                for (a, b) in lanes.iter().flat_map(|a| lanes.iter().map(move |b| (a, b))).filter(|(a, b)| a < b) {
                    prop_assert!(used[*a].is_disjoint(&used[*b]), "lanes {} and {}", a, b);
                }
            }
        }
    }

    #[test]
    fn first_threads_of_cores_are_used_before_second_ones((topology, request) in case()) {
        let placement = plan_thread_placement(topology, &request);
        prop_assume!(is_bound(&placement));
        let mut used: BTreeMap<usize, Vec<u32>> = BTreeMap::new();
        for seat in placement.lanes.iter().flat_map(seats) {
            used.entry(core_of(topology, seat)).or_default().extend(seat.cpus.iter());
        }
        for (core, cpus) in used {
            let turns: Vec<u32> = in_turn(&topology.cores[core].cpus, cpus.len());
            prop_assert_eq!(cpus, turns);
        }
    }
}
