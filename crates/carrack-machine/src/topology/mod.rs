//! The machine as a value: sockets, NUMA nodes, cores, devices, and how far they are from each other.
//!
//! A [`Topology`] is made from this machine, from an XML file of another, or from a description, and is only looked at
//! afterwards: what is planned on it is the matter of [`crate::placement`].
//!
//! hwloc looks at the machine (it is loaded when it is there, `hwloc.rs`) and hands over XML, which `xml.rs` reads as it
//! reads files of other machines; without hwloc `sysfs.rs` reads what the kernel tells. Both find [`parts::Parts`], which
//! become a topology in one place.

mod allowed;
mod error;
mod hwloc;
mod parts;
mod sysfs;
mod xml;

use std::path::Path;
use std::time::Duration;

use crate::id_set::{CpuSet, NodeSet};
use crate::recent::Recent;

pub use error::TopologyError;

/// What the kernel gives as the distance of a node to itself (ACPI 6.5, section 5.2.17, SLIT).
pub const LOCAL_DISTANCE: u32 = 10;

/// How long a look at a machine with one NUMA node counts: on it nothing is bound to a CPU, whatever CPUs come and go.
const FRESH_FOR: Duration = Duration::from_secs(1);

/// Whether hwloc's library can be loaded.
pub(crate) fn has_hwloc() -> bool {
    hwloc::is_there()
}

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
    /// Relative latency between nodes as the firmware tells it (ACPI SLIT: 10 is local), by positions in `nodes`. Empty
    /// where nobody tells.
    pub distances: Vec<Vec<u32>>,
}

/// Where a topology was learnt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// hwloc, on this machine.
    Hwloc,
    /// The kernel's sysfs, on this machine, as hwloc is not there or not needed.
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
    /// Its NUMA nodes; sockets that share a node have it both.
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
    /// The logical CPUs next to it; none for memory without CPUs (HBM, CXL).
    pub cpus: CpuSet,
    /// Bytes of memory; 0 where they are not known.
    pub memory_bytes: u64,
}

/// One core.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Core {
    /// Position of its socket.
    pub socket: usize,
    /// Position of the node with memory that is nearest.
    pub node: usize,
    /// Its logical CPUs (hardware threads). At least one.
    pub cpus: CpuSet,
    /// Cores with the same number share the last level of cache, or a node where caches are not known.
    pub cache: u32,
    /// Its speed in 1/1024 of that of the fastest core (the kernel's `cpu_capacity`).
    pub capacity: u32,
}

/// A device with a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// The kernel's name: "eth0", "nvme0n1".
    pub name: String,
    /// What it is.
    pub kind: DeviceKind,
    /// Positions of the nodes that it is attached to; all of them where no place is known. At least one.
    pub nodes: Vec<usize>,
    /// Its address on the PCI bus: "0000:81:00.0".
    pub pci: Option<String>,
    /// The PCI host bridge that it hangs on, by the kernel's name: "pci0000:80".
    pub controller: Option<String>,
}

/// Kinds of devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DeviceKind {
    /// A network interface.
    Nic,
    /// A disk.
    Disk,
    /// An RDMA device.
    Rdma,
}

impl Topology {
    /// This machine, as far as this process may use it. Never fails: where hwloc is not there or knows nothing, the
    /// kernel's sysfs is read, and where that says nothing the machine is one node with the allowed CPUs.
    pub fn this_machine() -> Topology {
        let allowed = allowed::Allowed::of_this_thread();
        let from_hwloc = || {
            let mut parts = xml::parts(&hwloc::this_machine()?)?;
            parts.allow(&allowed);
            parts.assemble(Origin::Hwloc)
        };
        from_hwloc().unwrap_or_else(|_| sysfs::this_machine(Path::new("/sys"), &allowed))
    }

    /// This machine for those who want to place a transfer on it, quickly: with one NUMA node there is nothing to
    /// choose, so hwloc is not loaded, devices are not looked for, and what was read within the last second will do.
    pub fn for_transfer() -> Topology {
        static ONE_NODE: Recent<Option<Topology>> = Recent::new(FRESH_FOR);
        let sys = Path::new("/sys");
        let one_node = || {
            let has_one = sysfs::has_one_node(sys);
            has_one.then(|| sysfs::one_node(sys, &allowed::Allowed::of_this_thread()))
        };
        ONE_NODE.get(one_node).unwrap_or_else(Topology::this_machine)
    }

    /// What an XML file of hwloc (format 2 or 3: `lstopo FILE.xml`) says; `name` is the file's.
    ///
    /// # Errors
    /// It is not such a file, or describes no machine that can be used.
    pub fn from_xml(text: &str, name: &str) -> Result<Topology, TopologyError> {
        xml::parts(text)?.assemble(Origin::Xml(name.to_owned()))
    }

    /// The machine of one of hwloc's synthetic descriptions: `pack:2 numa:2 core:6 pu:1`.
    ///
    /// # Errors
    /// hwloc is not there, or does not understand it.
    pub fn from_synthetic(text: &str) -> Result<Topology, TopologyError> {
        xml::parts(&hwloc::synthetic(text)?)?.assemble(Origin::Synthetic(text.to_owned()))
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
    pub fn device(&self, name: &str) -> Option<&Device> {
        self.devices.iter().find(|device| device.name == name)
    }

    /// How many nodes have memory and cores next to it.
    pub fn nodes_with_cores(&self) -> usize {
        (0..self.nodes.len()).filter(|&node| self.has_cores(node)).count()
    }

    /// Whether cores lie next to the node at this position.
    pub fn has_cores(&self, node: usize) -> bool {
        self.cores.iter().any(|core| core.node == node)
    }

    /// Whether two nodes lie on one socket.
    pub fn same_socket(&self, a: usize, b: usize) -> bool {
        let (a, b) = (&self.nodes[a], &self.nodes[b]);
        a.socket == b.socket || self.sockets.iter().any(|s| s.nodes.contains(a.id) && s.nodes.contains(b.id))
    }
}
