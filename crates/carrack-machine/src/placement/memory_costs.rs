//! Memory costs: the time of a byte between cores and each node's memory, as a multiple of the best.

use serde::Serialize;

use crate::topology::{LOCAL_DISTANCE, Topology};

/// Assumed for nodes of one socket without firmware distances: typical of servers with several nodes in a
/// socket.
const SAME_SOCKET_DISTANCE: u32 = 12;

/// Assumed for nodes of different sockets: the kernel's `REMOTE_DISTANCE` (include/linux/topology.h).
const OTHER_SOCKET_DISTANCE: u32 = 20;

/// Origin of costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CostOrigin {
    /// The firmware's distances.
    Distances,
    /// Typical distances of nodes on one socket and on different ones, as the firmware reports none.
    Assumed,
    /// Measured bandwidths.
    Measured,
    /// Given for nodes on one socket and on different ones.
    Given,
}

/// The cost of a byte between a node's cores and a node's memory: 1 for the best pair of nodes, 2 for twice
/// the time.
#[derive(Clone, Debug, PartialEq)]
pub struct NumaMemoryCosts {
    origin: CostOrigin,
    memory: Vec<Vec<f64>>,
}

impl NumaMemoryCosts {
    /// Costs by the firmware's distances (ACPI SLIT), or by typical ones.
    pub fn from_distances(topology: &Topology) -> NumaMemoryCosts {
        let is_unknown = topology.distances.is_empty();
        let origin = if is_unknown { CostOrigin::Assumed } else { CostOrigin::Distances };
        NumaMemoryCosts::new(origin, topology, |from, to| by_distance(topology, from, to))
    }

    /// Costs by measured bandwidths (N5): MB/s by the positions of the cores' node and of the memory's node.
    /// Pairs without a measurement (absent, not finite, or not above 0) keep the cost of their distance.
    pub fn from_bandwidths(topology: &Topology, mb_per_s: &[Vec<f64>]) -> NumaMemoryCosts {
        let best = mb_per_s.iter().flatten().copied().filter(|rate| rate.is_finite()).fold(0.0, f64::max);
        NumaMemoryCosts::new(CostOrigin::Measured, topology, |from, to| {
            let rate = mb_per_s.get(from).and_then(|row| row.get(to)).copied();
            match rate.filter(|rate| rate.is_finite() && *rate > 0.0) {
                Some(rate) => best / rate,
                None => by_distance(topology, from, to),
            }
        })
    }

    /// Costs by kind of access: the node's own memory, that of another node on its socket, and that of
    /// another socket.
    pub fn from_kinds(
        topology: &Topology,
        local: f64,
        same_socket: f64,
        other_socket: f64,
    ) -> NumaMemoryCosts {
        NumaMemoryCosts::new(CostOrigin::Given, topology, |from, to| {
            match (from == to, topology.same_socket(from, to)) {
                (true, _) => local,
                (false, true) => same_socket,
                (false, false) => other_socket,
            }
        })
    }

    fn new(origin: CostOrigin, topology: &Topology, cost: impl Fn(usize, usize) -> f64) -> NumaMemoryCosts {
        let nodes = 0..topology.nodes.len();
        let memory =
            nodes.clone().map(|from| nodes.clone().map(|to| bound_cost(cost(from, to))).collect()).collect();
        NumaMemoryCosts { origin, memory }
    }

    /// Origin of the costs.
    pub fn origin(&self) -> CostOrigin {
        self.origin
    }

    /// Cost from the cores of one node to the memory of another, by position; 1 for unknown positions.
    pub fn memory(&self, from: usize, to: usize) -> f64 {
        self.memory.get(from).and_then(|row| row.get(to)).copied().unwrap_or(1.0)
    }

    /// Additional cost of another node's memory over the node's own; at least 0.
    pub(super) fn extra_cost(&self, from: usize, to: usize) -> f64 {
        (self.memory(from, to) - self.memory(from, from)).max(0.0)
    }
}

/// Bounds a cost, so that sums of measured costs stay valid.
fn bound_cost(cost: f64) -> f64 {
    if cost.is_finite() { cost.clamp(0.001, 1_000.0) } else { 1_000.0 }
}

fn by_distance(topology: &Topology, from: usize, to: usize) -> f64 {
    let told = topology.distances.get(from).and_then(|row| row.get(to)).copied();
    let distance = match (told, from == to) {
        (Some(distance), _) => distance,
        (None, true) => LOCAL_DISTANCE,
        (None, false) if topology.same_socket(from, to) => SAME_SOCKET_DISTANCE,
        (None, false) => OTHER_SOCKET_DISTANCE,
    };
    f64::from(distance) / f64::from(LOCAL_DISTANCE)
}
