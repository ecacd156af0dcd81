//! The assignment of cores to a lane's threads: Master and Comm on one node, I/O threads spread over the
//! lane's nodes (N3), the cheapest core of a node first (M2), and no core twice before all were used once.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use super::cost_graph::CostGraph;
use super::machine_division::{NodeCores, NumaSocketGroup};
use super::{NumaMemoryCosts, ThreadSeat};
use crate::id_set::CpuSet;
use crate::topology::Topology;

/// The state of the machine during the assignment.
pub(super) struct ThreadCoreAssigner<'a> {
    pub(super) topology: &'a Topology,
    pub(super) costs: &'a NumaMemoryCosts,
    pub(super) roads: CostGraph,
    /// Threads on each core, of all lanes.
    threads: Vec<usize>,
    /// Masters and Comms among these.
    control: Vec<usize>,
}

/// The seats of a lane's threads.
pub(super) struct LaneThreadCores {
    pub(super) home: usize,
    pub(super) master: ThreadSeat,
    pub(super) comm: ThreadSeat,
    pub(super) io: Vec<ThreadSeat>,
}

/// A candidate core for one thread, with its rank; lower is better. Costs come after the rules of N3.
struct CoreCandidate {
    core: usize,
    rank: [f64; 6],
}

impl CoreCandidate {
    fn order(&self, other: &CoreCandidate) -> Ordering {
        let ranks = self.rank.iter().zip(&other.rank).map(|(a, b)| a.total_cmp(b));
        ranks.fold(Ordering::Equal, Ordering::then).then(self.core.cmp(&other.core))
    }
}

impl<'a> ThreadCoreAssigner<'a> {
    pub(super) fn new(
        topology: &'a Topology,
        costs: &'a NumaMemoryCosts,
        roads: CostGraph,
    ) -> ThreadCoreAssigner<'a> {
        let count = topology.cores.len();
        ThreadCoreAssigner { topology, costs, roads, threads: vec![0; count], control: vec![0; count] }
    }

    /// Assigns the seats of a lane; I/O threads serve the disks in turn, or the NIC without disks.
    pub(super) fn assign_lane_cores(
        &mut self,
        place: &NumaSocketGroup,
        nic: Option<&str>,
        disks: &[&str],
        io_threads: usize,
    ) -> LaneThreadCores {
        let home = self.control_node(place, nic.or(disks.first().copied()));
        let cores =
            &place.nodes.iter().find(|node| node.node == home).expect("home is a node of the place").cores;
        let comm_core = self.control_core(cores, nic, None);
        let comm = self.place_thread(comm_core, nic);
        let master_core = self.control_core(cores, None, Some(comm_core));
        let master = self.place_thread(master_core, None);
        self.control[comm_core] += 1;
        self.control[master_core] += 1;
        let mut on_node = BTreeMap::new();
        let mut io = Vec::with_capacity(io_threads);
        for thread in 0..io_threads {
            let device = if disks.is_empty() { nic } else { Some(disks[thread % disks.len()]) };
            io.push(self.assign_io_core(place, home, device, &mut on_node));
        }
        LaneThreadCores { home, master, comm, io }
    }

    /// The node of Master and Comm: one with two free cores if possible, then the nearest to the device.
    fn control_node(&self, place: &NumaSocketGroup, device: Option<&str>) -> usize {
        let costs = self.roads.costs_from(device);
        let candidates = place.nodes.iter().map(|NodeCores { node, cores }| {
            let free = cores.iter().filter(|&&core| self.threads[core] == 0).count();
            let cheapest = cores.iter().map(|&core| costs[core]).fold(f64::INFINITY, f64::min);
            CoreCandidate { core: *node, rank: [2.0 - free.min(2) as f64, cheapest, 0.0, 0.0, 0.0, 0.0] }
        });
        candidates.min_by(CoreCandidate::order).expect("a place has a node").core
    }

    /// The core for Comm, or for Master near it: cores that share a cache share their queues in it.
    fn control_core(&self, cores: &[usize], device: Option<&str>, beside: Option<usize>) -> usize {
        let costs = self.roads.costs_from(device);
        let cache = beside.map(|other| self.topology.cores[other].cache);
        let candidates = cores.iter().map(|&core| {
            let is_far = cache.is_some_and(|cache| cache != self.topology.cores[core].cache);
            CoreCandidate {
                core,
                rank: [self.threads[core] as f64, is_far.into(), costs[core], 0.0, 0.0, 0.0],
            }
        });
        candidates.min_by(CoreCandidate::order).expect("a node of a place has a core").core
    }

    fn assign_io_core(
        &mut self,
        place: &NumaSocketGroup,
        home: usize,
        device: Option<&str>,
        on_node: &mut BTreeMap<usize, usize>,
    ) -> ThreadSeat {
        let costs = self.roads.costs_from(device);
        let candidates = place.cores().map(|core| {
            let node = self.topology.cores[core].node;
            let rank = [
                self.core_use_count(core) as f64,
                on_node.get(&node).copied().unwrap_or(0) as f64,
                (node != home).into(),
                self.costs.memory(home, node),
                self.control[core] as f64,
                costs[core],
            ];
            CoreCandidate { core, rank }
        });
        let core = candidates.min_by(CoreCandidate::order).expect("a place has a core").core;
        *on_node.entry(self.topology.cores[core].node).or_default() += 1;
        self.place_thread(core, device)
    }

    /// Number of uses of a core; Master and Comm on one core count once.
    fn core_use_count(&self, core: usize) -> usize {
        self.threads[core] - self.control[core] + self.control[core].min(1)
    }

    /// Places a thread on a core's next logical CPU.
    fn place_thread(&mut self, core: usize, device: Option<&str>) -> ThreadSeat {
        let cost = device.map(|_| self.roads.costs_from(device)[core]);
        let cpus: Vec<u32> = self.topology.cores[core].cpus.iter().collect();
        let cpu = cpus[self.threads[core] % cpus.len()];
        self.threads[core] += 1;
        self.roads.add_thread_load(device, core);
        ThreadSeat { cpus: CpuSet::from_iter([cpu]), device: device.map(str::to_owned), cost }
    }
}
