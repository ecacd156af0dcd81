//! Where a transfer's threads and buffers belong: a value, computed from a topology by pure code (N1–N3, N7, M2).
//!
//! `plan.rs` goes from the request to the lanes, `domain.rs` cuts the machine into the lanes' parts, `seats.rs` gives each
//! thread its core, `roads.rs` is the graph that says what the way from a device to a core costs, `costs.rs` what memory
//! costs. The rules and their sources are in docs/placement.md.

mod costs;
mod domain;
mod plan;
mod roads;
mod seats;

use std::collections::BTreeMap;

use crate::id_set::{CpuSet, NodeSet};

pub use costs::{CostOrigin, Costs};
pub use plan::{lanes_wanted, place};

/// What is to be placed, and what is known of the machine's present state.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Request {
    /// The wanted scheme.
    pub scheme: Scheme,
    /// The number of lanes, if the user gave it or both ends agreed on it.
    pub lanes: Option<usize>,
    /// I/O threads of this end, in all lanes together. Each lane gets one at least.
    pub io_threads: usize,
    /// The network interface of the connections.
    pub nic: Option<String>,
    /// The disks that are read or written.
    pub disks: Vec<String>,
    /// By logical CPU, the share of its time (0 to 1) for which others keep it busy.
    pub core_loads: BTreeMap<u32, f64>,
    /// What memory costs; [`Costs::from_distances`] if it is not given.
    pub costs: Option<Costs>,
}

/// How threads and buffers are placed: the paper's cases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scheme {
    /// `Mts` where there are several nodes, `Off` where there is one.
    #[default]
    Auto,
    /// One buffer, nothing bound: the kernel does as it likes.
    Off,
    /// One lane: its buffer and threads bound to one socket (the papers' NB).
    Single,
    /// A lane for each socket, buffers bound, threads not (N1).
    Mmb,
    /// A lane for each socket, buffers and threads bound (N2, N3).
    Mts,
}

impl std::fmt::Display for Scheme {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Scheme::Auto => "auto",
            Scheme::Off => "off",
            Scheme::Single => "single",
            Scheme::Mmb => "mmb",
            Scheme::Mts => "mts",
        })
    }
}

/// The planned placement of one process's part in a session.
#[derive(Clone, Debug, PartialEq)]
pub struct Placement {
    /// The scheme that was followed; never `Auto`.
    pub scheme: Scheme,
    /// One for each lane.
    pub lanes: Vec<LanePlacement>,
    /// Why so, for people, in the order of the decisions.
    pub reasons: Vec<String>,
}

/// The place of one lane.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LanePlacement {
    /// Position of its socket in the topology.
    pub socket: usize,
    /// The nodes on which its buffer lies; empty: where the kernel likes.
    pub memory: NodeSet,
    /// Where its scan threads run (the paper's Master).
    pub master: Seat,
    /// Where its comm thread runs.
    pub comm: Seat,
    /// Where its I/O threads run, one for each. A lane with more threads than this begins again at the first.
    pub io: Vec<Seat>,
    /// The network interface that it serves.
    pub nic: Option<String>,
    /// The disks that it serves.
    pub disks: Vec<String>,
}

impl LanePlacement {
    /// The logical CPUs of all its seats.
    pub fn cpus(&self) -> CpuSet {
        let seats = [&self.master, &self.comm].into_iter().chain(&self.io);
        seats.fold(CpuSet::new(), |cpus, seat| cpus.union(&seat.cpus))
    }
}

/// Where one thread runs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Seat {
    /// The logical CPUs that it may run on; empty: where the kernel likes.
    pub cpus: CpuSet,
    /// The NIC or disk that it works for, if its place is known.
    pub device: Option<String>,
    /// What the way from this device to the core costs, as a multiple of local memory's time.
    pub cost: Option<f64>,
}
