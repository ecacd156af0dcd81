//! The machine as a value: sockets, NUMA nodes, cores, devices, and how far they are from each other.
//!
//! A [`Topology`] is made from this machine, from an XML file of another, or from a description, and is only looked at
//! afterwards: what is planned on it is the matter of [`crate::placement`].

use crate::id_set::{CpuSet, NodeSet};

/// What a machine consists of, as far as a transfer cares. Numbers are the kernel's; positions in the lists are not
/// numbers. Only what this process may use is in it (cpusets and containers are respected).
#[derive(Clone, Debug, PartialEq)]
pub struct Topology {
    /// Where this was learnt.
    pub origin: Origin,
    /// CPU sockets (hwloc: packages). At least one, which stands for the machine where nothing is known.
    pub sockets: Vec<Socket>,
    /// NUMA nodes with memory, with or without CPUs. At least one.
    pub nodes: Vec<Node>,
    /// Cores. At least one.
    pub cores: Vec<Core>,
    /// NICs and disks whose place is known.
    pub devices: Vec<Device>,
    /// Relative latency between nodes as the firmware tells it (ACPI SLIT: 10 is local), by positions in `nodes`.
    pub distances: Vec<Vec<u32>>,
}

/// Where a topology was learnt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// hwloc, on this machine.
    Hwloc,
    /// The kernel's sysfs, on this machine, as hwloc is not there.
    Sysfs,
    /// An XML file, of whatever machine.
    Xml(String),
    /// hwloc's synthetic description.
    Synthetic(String),
}

/// One CPU socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Socket {
    /// The kernel's number.
    pub id: u32,
    /// Its NUMA nodes.
    pub nodes: NodeSet,
    /// Its logical CPUs.
    pub cpus: CpuSet,
}

/// One NUMA node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// The kernel's number.
    pub id: u32,
    /// Position of its socket.
    pub socket: usize,
    /// The logical CPUs next to it; none for memory without CPUs.
    pub cpus: CpuSet,
    /// Bytes of memory.
    pub memory_bytes: u64,
}

/// One core.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Core {
    /// Position of its socket.
    pub socket: usize,
    /// Position of the node with memory that is nearest.
    pub node: usize,
    /// Its logical CPUs (hardware threads).
    pub cpus: CpuSet,
    /// Cores with the same number share the last level of cache.
    pub cache: u32,
}

/// A device with a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// The kernel's name: "eth0", "nvme0n1".
    pub name: String,
    /// What it is.
    pub kind: DeviceKind,
    /// Positions of the nodes that it is attached to; all of them where no place is known.
    pub nodes: Vec<usize>,
    /// Its address on the PCI bus: "0000:81:00.0".
    pub pci: Option<String>,
}

/// Kinds of devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceKind {
    /// A network interface.
    Nic,
    /// A disk.
    Disk,
    /// An RDMA device.
    Rdma,
}
