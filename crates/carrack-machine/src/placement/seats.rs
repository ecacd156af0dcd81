//! A lane's threads get their cores: Master and Comm on one node, I/O threads spread over the lane's nodes (N3), the
//! cheapest core of a node first (M2), and none twice before all were used once.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use super::domain::{NodePlace, Place};
use super::roads::Roads;
use super::{Costs, Seat};
use crate::id_set::CpuSet;
use crate::topology::Topology;

/// The whole machine while its lanes are being seated.
pub(super) struct Seating<'a> {
    pub(super) topology: &'a Topology,
    pub(super) costs: &'a Costs,
    pub(super) roads: Roads,
    /// Threads on each core, of all lanes.
    threads: Vec<usize>,
    /// How many of these are Masters and Comms.
    control: Vec<usize>,
}

/// A lane's threads.
pub(super) struct Seats {
    pub(super) home: usize,
    pub(super) master: Seat,
    pub(super) comm: Seat,
    pub(super) io: Vec<Seat>,
}

/// What orders the cores for one thread; less is better. Costs are compared after what the rules of N3 ask for.
struct Wish {
    core: usize,
    rank: [f64; 6],
}

impl Wish {
    fn order(&self, other: &Wish) -> Ordering {
        let ranks = self.rank.iter().zip(&other.rank).map(|(a, b)| a.total_cmp(b));
        ranks.fold(Ordering::Equal, Ordering::then).then(self.core.cmp(&other.core))
    }
}

impl<'a> Seating<'a> {
    pub(super) fn new(topology: &'a Topology, costs: &'a Costs, roads: Roads) -> Seating<'a> {
        let count = topology.cores.len();
        Seating { topology, costs, roads, threads: vec![0; count], control: vec![0; count] }
    }

    /// Seats a lane's threads; those of I/O belong to the disks in turn, or to the NIC if there are none.
    pub(super) fn seat(
        &mut self,
        place: &Place,
        nic: Option<&str>,
        disks: &[&str],
        io_threads: usize,
    ) -> Seats {
        let home = self.home(place, nic.or(disks.first().copied()));
        let cores =
            &place.nodes.iter().find(|node| node.node == home).expect("home is a node of the place").cores;
        let comm_core = self.control_core(cores, nic, None);
        let comm = self.take(comm_core, nic);
        let master_core = self.control_core(cores, None, Some(comm_core));
        let master = self.take(master_core, None);
        self.control[comm_core] += 1;
        self.control[master_core] += 1;
        let mut on_node = BTreeMap::new();
        let device = |thread: usize| match disks.is_empty() {
            true => nic,
            false => Some(disks[thread % disks.len()]),
        };
        let io = (0..io_threads).map(|thread| self.io(place, home, device(thread), &mut on_node)).collect();
        Seats { home, master, comm, io }
    }

    /// The node of Master and Comm: one with two free cores if there is one, then the nearest to the device.
    fn home(&self, place: &Place, device: Option<&str>) -> usize {
        let costs = self.roads.costs_from(device);
        let rank = |place: &NodePlace| {
            let free = place.cores.iter().filter(|&&core| self.threads[core] == 0).count();
            let cheapest = place.cores.iter().map(|&core| costs[core]).fold(f64::INFINITY, f64::min);
            [2.0 - free.min(2) as f64, cheapest, 0.0, 0.0, 0.0, 0.0]
        };
        let wishes = place.nodes.iter().map(|place| Wish { core: place.node, rank: rank(place) });
        wishes.min_by(Wish::order).expect("a place has a node").core
    }

    /// The core for Comm, or for Master beside it: cores that share a cache share their queues in it.
    fn control_core(&self, cores: &[usize], device: Option<&str>, beside: Option<usize>) -> usize {
        let costs = self.roads.costs_from(device);
        let cache = |core: usize| self.topology.cores[core].cache;
        let is_far = |core: usize| beside.is_some_and(|other| cache(other) != cache(core));
        let rank = |core: usize| [self.threads[core] as f64, is_far(core).into(), costs[core], 0.0, 0.0, 0.0];
        let wishes = cores.iter().map(|&core| Wish { core, rank: rank(core) });
        wishes.min_by(Wish::order).expect("a node of a place has a core").core
    }

    fn io(
        &mut self,
        place: &Place,
        home: usize,
        device: Option<&str>,
        on_node: &mut BTreeMap<usize, usize>,
    ) -> Seat {
        let costs = self.roads.costs_from(device);
        let node_of = |core: usize| self.topology.cores[core].node;
        let rank = |core: usize| {
            let node = node_of(core);
            [
                self.round(core) as f64,
                on_node.get(&node).copied().unwrap_or(0) as f64,
                (node != home).into(),
                self.costs.memory(home, node),
                self.control[core] as f64,
                costs[core],
            ]
        };
        let wishes = place.cores().map(|core| Wish { core, rank: rank(core) });
        let core = wishes.min_by(Wish::order).expect("a place has a core").core;
        *on_node.entry(node_of(core)).or_default() += 1;
        self.take(core, device)
    }

    /// How often a core was used; Master and Comm on one core count once.
    fn round(&self, core: usize) -> usize {
        self.threads[core] - self.control[core] + self.control[core].min(1)
    }

    /// Puts a thread on a core's next logical CPU.
    fn take(&mut self, core: usize, device: Option<&str>) -> Seat {
        let cost = device.map(|_| self.roads.costs_from(device)[core]);
        let cpus: Vec<u32> = self.topology.cores[core].cpus.iter().collect();
        let cpu = cpus[self.threads[core] % cpus.len()];
        self.threads[core] += 1;
        self.roads.load(device, core);
        Seat { cpus: CpuSet::from_iter([cpu]), device: device.map(str::to_owned), cost }
    }
}
