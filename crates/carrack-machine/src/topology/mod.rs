//! The machine as a value: sockets, NUMA nodes, cores, devices, and their distances.
//!
//! A [`Topology`] is created from this machine, from an XML file of another, or from a description, and is
//! immutable; [`crate::placement`] plans on it.
//!
//! hwloc discovers the machine (loaded if installed, `hwloc.rs`) and exports XML, which `xml.rs` reads like a
//! file of another machine; without hwloc `sysfs.rs` reads the kernel's files. Both produce
//! [`parts::TopologyHardwareParts`], which become a topology in one place.

mod allowed;
mod error;
mod hwloc;
mod parts;
mod sysfs;
mod xml;

use std::path::Path;
use std::time::Duration;

use serde::Serialize;

use crate::cached_fact::CachedFact;
use crate::id_set::{CpuSet, NodeSet};

pub use error::TopologyError;

/// The kernel's distance of a node to itself (ACPI 6.5, section 5.2.17, SLIT).
pub const LOCAL_DISTANCE: u32 = 10;

/// Maximum age of the topology of a machine with one NUMA node, where CPU hotplug does not matter as no
/// thread is bound.
const FRESH_FOR: Duration = Duration::from_secs(1);

/// Returns true if hwloc's library can be loaded.
pub(crate) fn has_hwloc() -> bool {
    hwloc::is_available()
}

/// The parts of a machine that matter for a transfer, by the kernel's numbers and not by positions in the
/// lists. Contains only parts that this process may use (cpusets and containers are respected).
#[derive(Clone, Debug, PartialEq)]
pub struct Topology {
    /// Source of the topology.
    pub origin: TopologyOrigin,
    /// CPU sockets (hwloc: packages). At least one, which stands for the machine if none is known.
    pub sockets: Vec<CpuSocket>,
    /// NUMA nodes with memory, with or without CPUs. At least one.
    pub nodes: Vec<NumaNode>,
    /// Cores. At least one.
    pub cores: Vec<CpuCore>,
    /// NICs and disks with known nodes.
    pub devices: Vec<TopologyDevice>,
    /// Relative latency between nodes by the firmware (ACPI SLIT: 10 is local), by positions in `nodes`.
    /// Empty if unknown.
    pub distances: Vec<Vec<u32>>,
}

/// Source of a topology.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TopologyOrigin {
    /// hwloc, on this machine.
    Hwloc,
    /// The kernel's sysfs, on this machine, without hwloc.
    Sysfs,
    /// An XML file of any machine.
    Xml(String),
    /// hwloc's synthetic description.
    Synthetic(String),
}

/// One CPU socket, with its fields as in `carrack topo --json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CpuSocket {
    /// The kernel's number.
    #[serde(rename = "socket")]
    pub id: u32,
    /// Its NUMA nodes; sockets may share a node.
    pub nodes: NodeSet,
    /// Its logical CPUs.
    pub cpus: CpuSet,
}

/// One NUMA node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NumaNode {
    /// The kernel's number.
    pub id: u32,
    /// Position of its socket.
    pub socket: usize,
    /// Logical CPUs of the node; empty for memory without CPUs (HBM, CXL).
    pub cpus: CpuSet,
    /// Bytes of memory; 0 if unknown.
    pub memory_bytes: u64,
}

/// One core.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuCore {
    /// Position of its socket.
    pub socket: usize,
    /// Position of the nearest node with memory.
    pub node: usize,
    /// Its logical CPUs (hardware threads). At least one.
    pub cpus: CpuSet,
    /// Equal for cores that share the last-level cache, or a node if caches are unknown.
    pub cache: u32,
    /// Speed in 1/1024 of the fastest core's (the kernel's `cpu_capacity`).
    pub capacity: u32,
}

/// A device with its nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopologyDevice {
    /// The kernel's name: "eth0", "nvme0n1".
    pub name: String,
    /// Kind of the device.
    pub kind: MachineDeviceKind,
    /// Positions of its nodes; all nodes if unknown. At least one.
    pub nodes: Vec<usize>,
    /// Address on the PCI bus: "0000:81:00.0".
    pub pci: Option<String>,
    /// PCI host bridge by the kernel's name: "pci0000:80".
    pub controller: Option<String>,
}

/// Kinds of devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum MachineDeviceKind {
    /// A network interface.
    Nic,
    /// A disk.
    Disk,
    /// An RDMA device.
    Rdma,
}

impl Topology {
    /// This machine, as far as this process may use it. Never fails: without hwloc the kernel's sysfs is
    /// read, and without sysfs the machine is one node with the allowed CPUs.
    pub fn this_machine() -> Topology {
        let allowed = allowed::AllowedResources::of_this_thread();
        Topology::from_hwloc(&allowed).unwrap_or_else(|_| sysfs::this_machine(Path::new("/sys"), &allowed))
    }

    fn from_hwloc(allowed: &allowed::AllowedResources) -> Result<Topology, TopologyError> {
        let mut parts = xml::parse_parts(&hwloc::this_machine_xml()?)?;
        parts.restrict_allowed(allowed);
        parts.assemble(TopologyOrigin::Hwloc)
    }

    /// This machine for a placement, quickly: with one NUMA node there is no choice, so that hwloc is not
    /// loaded, devices are left out, and a result of the last second is reused.
    pub fn for_transfer() -> Topology {
        static ONE_NODE: CachedFact<Option<Topology>> = CachedFact::new(FRESH_FOR);
        let sys = Path::new("/sys");
        ONE_NODE
            .get(|| {
                let has_one = sysfs::has_one_node(sys);
                has_one.then(|| sysfs::one_node_topology(sys, &allowed::AllowedResources::of_this_thread()))
            })
            .unwrap_or_else(Topology::this_machine)
    }

    /// The machine of an hwloc XML file (format 2 or 3: `lstopo FILE.xml`) named `name`.
    ///
    /// # Errors
    /// The text has another format, or describes no usable machine.
    pub fn from_xml(text: &str, name: &str) -> Result<Topology, TopologyError> {
        xml::parse_parts(text)?.assemble(TopologyOrigin::Xml(name.to_owned()))
    }

    /// The machine of one of hwloc's synthetic descriptions: `pack:2 numa:2 core:6 pu:1`.
    ///
    /// # Errors
    /// hwloc is missing, or refuses the description.
    pub fn from_synthetic(text: &str) -> Result<Topology, TopologyError> {
        xml::parse_parts(&hwloc::synthetic_xml(text)?)?.assemble(TopologyOrigin::Synthetic(text.to_owned()))
    }

    /// All logical CPUs.
    pub fn cpus(&self) -> CpuSet {
        self.cores.iter().flat_map(|core| core.cpus.iter()).collect()
    }

    /// The kernel's numbers of all nodes.
    pub fn node_ids(&self) -> NodeSet {
        self.nodes.iter().map(|node| node.id).collect()
    }

    /// The device with this name.
    pub fn device(&self, name: &str) -> Option<&TopologyDevice> {
        self.devices.iter().find(|device| device.name == name)
    }

    /// Number of nodes with memory and cores.
    pub fn nodes_with_cores(&self) -> usize {
        (0..self.nodes.len()).filter(|&node| self.has_cores(node)).count()
    }

    /// Returns true if the node at this position has cores.
    pub fn has_cores(&self, node: usize) -> bool {
        self.cores.iter().any(|core| core.node == node)
    }

    /// Returns true if two nodes are on one socket.
    pub fn same_socket(&self, a: usize, b: usize) -> bool {
        let (a, b) = (&self.nodes[a], &self.nodes[b]);
        a.socket == b.socket || self.sockets.iter().any(|s| s.nodes.contains(a.id) && s.nodes.contains(b.id))
    }
}
