//! The raw parts of a machine, by the kernel's numbers, and their assembly to a topology.
//!
//! Readers report parts unchecked; the assembly resolves oddities (duplicate cores, nodes without memory,
//! devices on forbidden nodes).

use std::collections::{BTreeMap, BTreeSet};

use super::allowed::AllowedResources;
use super::error::TopologyError;
use super::{CpuCore, CpuSocket, MachineDeviceKind, NumaNode, Topology, TopologyDevice, TopologyOrigin};
use crate::id_set::{CpuSet, IdSet, NodeSet};

/// Capacity of the fastest core, and of all cores if unknown.
const CAPACITY_MAX: u64 = 1_024;

/// The parts that a reader found.
#[derive(Debug, Default)]
pub(super) struct TopologyHardwareParts {
    pub(super) packages: Vec<PackagePart>,
    pub(super) nodes: Vec<NumaNodeFacts>,
    pub(super) cores: Vec<CpuCoreDescription>,
    pub(super) devices: Vec<MachineDeviceFacts>,
    pub(super) distances: Option<NodeDistances>,
    /// Speeds of CPUs, in any unit.
    pub(super) speeds: BTreeMap<u32, u32>,
    pub(super) allowed: AllowedResources,
}

#[derive(Debug)]
pub(super) struct PackagePart {
    pub(super) id: u32,
    pub(super) cpus: CpuSet,
    /// Nodes known to belong to the package, also without CPUs.
    pub(super) nodes: NodeSet,
}

#[derive(Debug)]
pub(super) struct NumaNodeFacts {
    pub(super) id: u32,
    /// Local CPUs; several nodes may have the same (memory without CPUs in hwloc).
    pub(super) cpus: CpuSet,
    pub(super) memory_bytes: u64,
    /// Memory that is not allocated by default.
    pub(super) is_special: bool,
}

#[derive(Debug)]
pub(super) struct CpuCoreDescription {
    pub(super) cpus: CpuSet,
    /// Equal for all cores that share the last-level cache.
    pub(super) cache: Option<u32>,
}

#[derive(Debug)]
pub(super) struct MachineDeviceFacts {
    pub(super) name: String,
    pub(super) kind: MachineDeviceKind,
    pub(super) nodes: NodeSet,
    pub(super) pci: Option<String>,
    pub(super) controller: Option<String>,
}

/// Distances by the kernel's numbers of nodes.
#[derive(Debug)]
pub(super) struct NodeDistances {
    places: BTreeMap<u32, usize>,
    values: Vec<u64>,
}

impl NodeDistances {
    /// `None` unless the matrix is square.
    pub(super) fn new(ids: Vec<u32>, values: Vec<u64>) -> Option<NodeDistances> {
        let places: BTreeMap<u32, usize> = ids.iter().copied().zip(0..).collect();
        let is_square = places.len() == ids.len() && values.len() == ids.len() * ids.len();
        is_square.then_some(NodeDistances { places, values })
    }

    fn get(&self, from: u32, to: u32) -> Option<u32> {
        let (from, to) = (self.places.get(&from)?, self.places.get(&to)?);
        let value = self.values[from * self.places.len() + to];
        u32::try_from(value).ok().filter(|value| *value > 0)
    }
}

impl TopologyHardwareParts {
    /// Restricts the allowed parts further.
    pub(super) fn restrict_allowed(&mut self, allowed: &AllowedResources) {
        fn intersect_optional<K>(a: Option<IdSet<K>>, b: &Option<IdSet<K>>) -> Option<IdSet<K>>
        where
            IdSet<K>: Clone,
        {
            match (a, b) {
                (Some(a), Some(b)) => Some(a.intersection(b)),
                (a, b) => a.or_else(|| b.clone()),
            }
        }
        self.allowed = AllowedResources {
            cpus: intersect_optional(self.allowed.cpus.take(), &allowed.cpus),
            nodes: intersect_optional(self.allowed.nodes.take(), &allowed.nodes),
        };
    }

    /// Assembles the topology.
    pub(super) fn assemble(mut self, origin: TopologyOrigin) -> Result<Topology, TopologyError> {
        self.remove_duplicates();
        if self.cores.is_empty() {
            return Err(TopologyError::NoCpus);
        }
        let sockets = self.sockets();
        let site = TopologyAssembly::new(&self, sockets)?;
        let mut topology = Topology {
            origin,
            sockets: site.sockets(),
            nodes: site.nodes(),
            cores: site.cores(),
            devices: Vec::new(),
            distances: site.distances(),
        };
        topology.devices = site.devices(&topology);
        Ok(topology)
    }

    /// Removes duplicates: a CPU belongs to one core and to one node, the node with default memory.
    fn remove_duplicates(&mut self) {
        self.cores.sort_by_key(|core| core.cpus.first());
        let mut left: CpuSet = self.cores.iter().flat_map(|core| core.cpus.iter()).collect();
        if let Some(allowed) = &self.allowed.cpus {
            left = left.intersection(allowed);
        }
        let usable = left.clone();
        for core in &mut self.cores {
            core.cpus = take_cpus(&mut left, &core.cpus);
        }
        self.cores.retain(|core| !core.cpus.is_empty());
        self.cores.sort_by_key(|core| core.cpus.first());

        self.nodes.sort_by_key(|node| (node.is_special, node.id));
        let mut seen = BTreeSet::new();
        self.nodes.retain(|node| seen.insert(node.id));
        let mut left = usable.clone();
        for node in &mut self.nodes {
            node.cpus = take_cpus(&mut left, &node.cpus);
        }
        self.nodes.sort_by_key(|node| node.id);

        let mut left = usable;
        for package in &mut self.packages {
            package.cpus = take_cpus(&mut left, &package.cpus);
        }
        if !left.is_empty() {
            let id =
                self.packages.iter().map(|package| package.id).max().map_or(0, |id| id.saturating_add(1));
            self.packages.push(PackagePart { id, cpus: left, nodes: NodeSet::new() });
        }
    }

    /// Positions of the packages with CPUs or nodes.
    fn sockets(&self) -> Vec<usize> {
        let packages = self.packages.iter().enumerate().filter(|(_, package)| {
            !package.cpus.is_empty() || self.nodes.iter().any(|node| package.nodes.contains(node.id))
        });
        packages.map(|(index, _)| index).collect()
    }
}

/// Takes the CPUs of `wanted` that are left.
fn take_cpus(left: &mut CpuSet, wanted: &CpuSet) -> CpuSet {
    let taken = left.intersection(wanted);
    *left = left.difference(&taken);
    taken
}

/// Parts with their positions in the topology.
struct TopologyAssembly<'a> {
    parts: &'a TopologyHardwareParts,
    packages: Vec<&'a PackagePart>,
    /// The nodes with usable memory.
    kept: Vec<&'a NumaNodeFacts>,
    socket_of_cpu: BTreeMap<u32, usize>,
    node_of_cpu: BTreeMap<u32, u32>,
}

impl<'a> TopologyAssembly<'a> {
    fn new(
        parts: &'a TopologyHardwareParts,
        sockets: Vec<usize>,
    ) -> Result<TopologyAssembly<'a>, TopologyError> {
        let allowed = parts.allowed.nodes.as_ref();
        let tells_memory = parts.nodes.iter().any(|node| node.memory_bytes > 0);
        let mut kept: Vec<_> = parts.nodes.iter().collect();
        kept.retain(|node| allowed.is_none_or(|allowed| allowed.contains(node.id)));
        kept.retain(|node| !tells_memory || node.memory_bytes > 0);
        if kept.is_empty() {
            return Err(TopologyError::NoNodes);
        }
        let packages: Vec<_> = sockets.into_iter().map(|index| &parts.packages[index]).collect();
        let mut socket_of_cpu = BTreeMap::new();
        for (socket, package) in packages.iter().enumerate() {
            socket_of_cpu.extend(package.cpus.iter().map(|cpu| (cpu, socket)));
        }
        let mut node_of_cpu = BTreeMap::new();
        for node in &parts.nodes {
            node_of_cpu.extend(node.cpus.iter().map(|cpu| (cpu, node.id)));
        }
        Ok(TopologyAssembly { parts, packages, kept, socket_of_cpu, node_of_cpu })
    }

    fn sockets(&self) -> Vec<CpuSocket> {
        self.packages
            .iter()
            .enumerate()
            .map(|(position, package)| {
                let nodes = self
                    .kept
                    .iter()
                    .filter(|node| {
                        self.socket_of_node(node) == position
                            || !node.cpus.intersection(&package.cpus).is_empty()
                    })
                    .map(|node| node.id)
                    .collect();
                CpuSocket { id: package.id, nodes, cpus: package.cpus.clone() }
            })
            .collect()
    }

    fn nodes(&self) -> Vec<NumaNode> {
        self.kept
            .iter()
            .map(|part| NumaNode {
                id: part.id,
                socket: self.socket_of_node(part),
                cpus: part.cpus.clone(),
                memory_bytes: part.memory_bytes,
            })
            .collect()
    }

    /// The socket of its CPUs, or of its package, or of its nearest neighbour with CPUs.
    fn socket_of_node(&self, node: &NumaNodeFacts) -> usize {
        if let Some(socket) = self.socket_of_cpus(&node.cpus) {
            return socket;
        }
        let positions = 0..self.packages.len();
        let mut holders = positions.filter(|&position| self.packages[position].nodes.contains(node.id));
        // Contradictory packages don't count.
        if let (Some(only), None) = (holders.next(), holders.next()) {
            return only;
        }
        let neighbours = self.parts.nodes.iter().filter(|other| !other.cpus.is_empty());
        let nearest = neighbours.min_by_key(|other| self.distance(node.id, other.id).unwrap_or(u32::MAX));
        nearest.and_then(|nearest| self.socket_of_cpus(&nearest.cpus)).unwrap_or(0)
    }

    fn socket_of_cpus(&self, cpus: &CpuSet) -> Option<usize> {
        self.socket_of_cpu.get(&cpus.first()?).copied()
    }

    fn cores(&self) -> Vec<CpuCore> {
        let fastest = self.parts.cores.iter().filter_map(|core| self.speed(core)).max();
        let mut caches = BTreeMap::new();
        self.parts
            .cores
            .iter()
            .map(|part| {
                let first = part.cpus.first().expect("cores without CPUs were left out");
                let node = self.nearest_memory_node(
                    self.node_of_cpu.get(&first).copied(),
                    self.socket_of_cpu.get(&first).copied(),
                );
                let next = caches.len() as u32;
                let cache = *caches.entry(part.cache.ok_or(node)).or_insert(next);
                let capacity = match (self.speed(part), fastest) {
                    (Some(speed), Some(fastest)) => u64::from(speed) * CAPACITY_MAX / u64::from(fastest),
                    _ => CAPACITY_MAX,
                };
                let socket = self.socket_of_cpu.get(&first).copied().unwrap_or(0);
                CpuCore { socket, node, cpus: part.cpus.clone(), cache, capacity: capacity.max(1) as u32 }
            })
            .collect()
    }

    fn speed(&self, core: &CpuCoreDescription) -> Option<u32> {
        self.parts.speeds.get(&core.cpus.first()?).copied().filter(|speed| *speed > 0)
    }

    /// Position of the nearest node with memory to a node of the machine, or to a socket.
    fn nearest_memory_node(&self, from: Option<u32>, socket: Option<usize>) -> usize {
        (0..self.kept.len())
            .min_by_key(|&position| {
                let node = self.kept[position];
                let distance = from.and_then(|from| self.distance(from, node.id)).unwrap_or(u32::MAX);
                let is_same = Some(node.id) == from;
                let is_near = Some(self.socket_of_node(node)) == socket;
                (!is_same, distance, !is_near, node.is_special || node.cpus.is_empty())
            })
            .unwrap_or(0)
    }

    fn distance(&self, from: u32, to: u32) -> Option<u32> {
        self.parts.distances.as_ref()?.get(from, to)
    }

    fn distances(&self) -> Vec<Vec<u32>> {
        self.kept
            .iter()
            .map(|from| self.kept.iter().map(|to| self.distance(from.id, to.id)).collect())
            .collect::<Option<Vec<Vec<u32>>>>()
            .unwrap_or_default()
    }

    fn devices(&self, topology: &Topology) -> Vec<TopologyDevice> {
        let mut devices: Vec<TopologyDevice> =
            self.parts.devices.iter().map(|part| self.device(part, topology)).collect();
        devices.sort_by(|a, b| (a.kind, &a.name).cmp(&(b.kind, &b.name)));
        devices.dedup_by(|a, b| a.name == b.name && a.kind == b.kind);
        devices
    }

    fn device(&self, part: &MachineDeviceFacts, topology: &Topology) -> TopologyDevice {
        let places = part.nodes.iter().filter_map(|id| self.position_of(id));
        let places: BTreeSet<usize> = places.filter(|&node| topology.has_cores(node)).collect();
        let nodes = if places.is_empty() {
            (0..self.kept.len()).filter(|&node| topology.has_cores(node)).collect()
        } else {
            places.into_iter().collect()
        };
        let (name, kind) = (part.name.clone(), part.kind);
        TopologyDevice { name, kind, nodes, pci: part.pci.clone(), controller: part.controller.clone() }
    }

    /// Position of a node of a device. For a node without memory, or a forbidden one, that is the nearest
    /// node, if distances are known.
    fn position_of(&self, id: u32) -> Option<usize> {
        let node = self.parts.nodes.iter().find(|node| node.id == id)?;
        if let Some(position) = self.kept.iter().position(|kept| kept.id == id) {
            return Some(position);
        }
        if node.cpus.is_empty() && self.parts.distances.is_none() {
            return None;
        }
        Some(self.nearest_memory_node(Some(id), self.socket_of_cpus(&node.cpus)))
    }
}
