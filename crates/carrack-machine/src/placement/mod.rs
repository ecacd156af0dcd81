//! Where a transfer's threads and buffers belong: a value, computed from a topology by pure code (N1–N3, N7, M2).

use crate::id_set::{CpuSet, NodeSet};

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
#[derive(Clone, Debug, PartialEq)]
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

/// Where one thread runs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Seat {
    /// The logical CPUs that it may run on; empty: where the kernel likes.
    pub cpus: CpuSet,
    /// What the way from its device to this core costs; nothing where no device counted.
    pub cost: Option<f64>,
}
