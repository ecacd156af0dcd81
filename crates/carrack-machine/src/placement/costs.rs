//! What memory costs: how long a byte takes to or from each node's memory, as a multiple of the best.

use crate::topology::{LOCAL_DISTANCE, Topology};

/// Assumed for nodes of one socket where the firmware tells no distances: what servers with several nodes a socket tell.
const SAME_SOCKET_DISTANCE: u32 = 12;

/// Assumed for nodes of different sockets: the kernel's `REMOTE_DISTANCE` (include/linux/topology.h).
const OTHER_SOCKET_DISTANCE: u32 = 20;

/// Where costs come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CostOrigin {
    /// The firmware's distances.
    Distances,
    /// Nobody tells distances: usual ones for nodes of one socket and of different ones.
    Assumed,
    /// Measured bandwidths.
    Measured,
    /// Given for nodes of one socket and of different ones.
    Given,
}

/// The cost of a byte between a node's cores and a node's memory: 1 is the best pair of nodes, 2 takes twice as long.
#[derive(Clone, Debug, PartialEq)]
pub struct Costs {
    origin: CostOrigin,
    memory: Vec<Vec<f64>>,
}

impl Costs {
    /// As the firmware tells (ACPI SLIT), or as is usual where it does not tell.
    pub fn from_distances(topology: &Topology) -> Costs {
        let origin = match topology.distances.is_empty() {
            true => CostOrigin::Assumed,
            false => CostOrigin::Distances,
        };
        Costs::new(origin, topology, |from, to| by_distance(topology, from, to))
    }

    /// As measured (N5): MB/s by the positions of the cores' node and of the memory's node. Pairs that were not measured
    /// (absent, not finite, or not above 0) keep the cost of their distance.
    pub fn from_bandwidths(topology: &Topology, mb_per_s: &[Vec<f64>]) -> Costs {
        let measured = |from: usize, to: usize| {
            mb_per_s.get(from)?.get(to).copied().filter(|rate| rate.is_finite() && *rate > 0.0)
        };
        let best = mb_per_s.iter().flatten().copied().filter(|rate| rate.is_finite()).fold(0.0, f64::max);
        Costs::new(CostOrigin::Measured, topology, |from, to| {
            measured(from, to).map_or_else(|| by_distance(topology, from, to), |rate| best / rate)
        })
    }

    /// For a machine of which only the kinds of ways are known: the node's own memory, that of another node of its socket,
    /// and that of another socket.
    pub fn from_kinds(topology: &Topology, local: f64, same_socket: f64, other_socket: f64) -> Costs {
        Costs::new(CostOrigin::Given, topology, |from, to| {
            match (from == to, topology.same_socket(from, to)) {
                (true, _) => local,
                (false, true) => same_socket,
                (false, false) => other_socket,
            }
        })
    }

    fn new(origin: CostOrigin, topology: &Topology, cost: impl Fn(usize, usize) -> f64) -> Costs {
        let nodes = 0..topology.nodes.len();
        let row = |from| nodes.clone().map(|to| sound(cost(from, to))).collect();
        Costs { origin, memory: nodes.clone().map(row).collect() }
    }

    /// Where they come from.
    pub fn origin(&self) -> CostOrigin {
        self.origin
    }

    /// From the cores of the node at one position to the memory of that at another; 1 for positions of another machine.
    pub fn memory(&self, from: usize, to: usize) -> f64 {
        self.memory.get(from).and_then(|row| row.get(to)).copied().unwrap_or(1.0)
    }

    /// How much dearer another node's memory is than the node's own; never less than nothing.
    pub(super) fn extra(&self, from: usize, to: usize) -> f64 {
        (self.memory(from, to) - self.memory(from, from)).max(0.0)
    }
}

/// Costs that paths can be added up from, whatever was measured.
fn sound(cost: f64) -> f64 {
    if cost.is_finite() { cost.clamp(0.001, 1_000.0) } else { 1_000.0 }
}

fn by_distance(topology: &Topology, from: usize, to: usize) -> f64 {
    let told = topology.distances.get(from).and_then(|row| row.get(to)).copied();
    let usual = || match (from == to, topology.same_socket(from, to)) {
        (true, _) => LOCAL_DISTANCE,
        (false, true) => SAME_SOCKET_DISTANCE,
        (false, false) => OTHER_SOCKET_DISTANCE,
    };
    f64::from(told.unwrap_or_else(usual)) / f64::from(LOCAL_DISTANCE)
}
