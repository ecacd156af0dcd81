//! The placement of a transfer's threads and buffers: a value, computed from a topology by pure code (N1–N3,
//! N7, M2).
//!
//! `plan.rs` turns the request into lanes, `machine_division.rs` divides the machine among them, `seats.rs`
//! assigns cores to threads, `cost_graph.rs` is the graph of costs from devices to cores, `memory_costs.rs`
//! holds the costs of memory. docs/design/placement.md has the rules and their sources.

mod cost_graph;
mod machine_division;
mod memory_costs;
mod plan;
mod seats;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::id_set::{CpuSet, NodeSet};

pub use memory_costs::{CostOrigin, NumaMemoryCosts};
pub use plan::{lanes_wanted, plan_thread_placement};

/// A request for a placement, with the machine's present load.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ThreadPlacementRequest {
    /// The wanted scheme.
    pub scheme: PlacementScheme,
    /// Number of lanes, if the user set it or both ends agreed on it.
    pub lanes: Option<usize>,
    /// I/O threads of this end, in all lanes together. Each lane gets at least one.
    pub io_threads: usize,
    /// Network interface of the connections.
    pub nic: Option<String>,
    /// Disks that are read or written.
    pub disks: Vec<String>,
    /// Share of each logical CPU's time (0 to 1) that others use.
    pub core_loads: BTreeMap<u32, f64>,
    /// Costs of memory; [`NumaMemoryCosts::from_distances`] if `None`.
    pub costs: Option<NumaMemoryCosts>,
}

/// Placement schemes: the paper's cases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum PlacementScheme {
    /// `Mts` with several nodes, `Off` with one.
    #[default]
    Auto,
    /// One buffer, no binding.
    Off,
    /// One lane: buffer and threads bound to one socket (the papers' NB).
    Single,
    /// A lane for each socket, buffers bound, threads not (N1).
    Mmb,
    /// A lane for each socket, buffers and threads bound (N2, N3).
    Mts,
}

impl std::fmt::Display for PlacementScheme {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            PlacementScheme::Auto => "auto",
            PlacementScheme::Off => "off",
            PlacementScheme::Single => "single",
            PlacementScheme::Mmb => "mmb",
            PlacementScheme::Mts => "mts",
        })
    }
}

/// The planned placement of one end of a session.
#[derive(Clone, Debug, PartialEq)]
pub struct EndThreadPlacement {
    /// The scheme in use; never `Auto`.
    pub scheme: PlacementScheme,
    /// One for each lane.
    pub lanes: Vec<LanePlacement>,
    /// Reasons for people, in the order of the decisions.
    pub reasons: Vec<String>,
}

/// The placement of one lane.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LanePlacement {
    /// Position of its socket in the topology.
    pub socket: usize,
    /// Nodes of its buffer; empty if it is not bound.
    pub memory: NodeSet,
    /// Seat of the scan threads (the paper's Master).
    pub master: ThreadSeat,
    /// Seat of the comm thread.
    pub comm: ThreadSeat,
    /// Seats of the I/O threads. Further threads share the seats from the first one on.
    pub io: Vec<ThreadSeat>,
    /// Network interface of the lane.
    pub nic: Option<String>,
    /// Disks of the lane.
    pub disks: Vec<String>,
}

impl LanePlacement {
    /// The logical CPUs of all seats.
    pub fn cpus(&self) -> CpuSet {
        let seats = [&self.master, &self.comm].into_iter().chain(&self.io);
        seats.fold(CpuSet::new(), |cpus, seat| cpus.union(&seat.cpus))
    }
}

/// The seat of one thread, with its fields as in `carrack topo --json`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ThreadSeat {
    /// Logical CPUs of the thread; empty if it is not bound.
    pub cpus: CpuSet,
    /// NIC or disk that it serves, if that is in the topology.
    pub device: Option<String>,
    /// Cost from this device to the core, as a multiple of local memory's time.
    pub cost: Option<f64>,
}
