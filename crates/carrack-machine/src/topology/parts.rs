//! What a reader found, by the kernel's numbers; and how it becomes a topology.
//!
//! The readers say what is written; everything that may be odd in it (cores twice, nodes without memory, devices on nodes
//! that may not be used) is settled here.

use std::collections::{BTreeMap, BTreeSet};

use super::allowed::Allowed;
use super::error::TopologyError;
use super::{Core, Device, DeviceKind, Node, Origin, Socket, Topology};
use crate::id_set::{CpuSet, IdSet, NodeSet};

/// The fastest core's capacity, and of all where nothing is known.
const CAPACITY_MAX: u64 = 1_024;

/// What a reader found.
#[derive(Debug, Default)]
pub(super) struct Parts {
    pub(super) packages: Vec<PackagePart>,
    pub(super) nodes: Vec<NodePart>,
    pub(super) cores: Vec<CorePart>,
    pub(super) devices: Vec<DevicePart>,
    pub(super) distances: Option<Distances>,
    /// Speeds of CPUs, in any unit.
    pub(super) speeds: BTreeMap<u32, u32>,
    pub(super) allowed: Allowed,
}

#[derive(Debug)]
pub(super) struct PackagePart {
    pub(super) id: u32,
    pub(super) cpus: CpuSet,
    /// Nodes that are known to be of it, though they may have no CPUs.
    pub(super) nodes: NodeSet,
}

#[derive(Debug)]
pub(super) struct NodePart {
    pub(super) id: u32,
    /// CPUs near it; other nodes may name the same (memory without CPUs, as hwloc shows it).
    pub(super) cpus: CpuSet,
    pub(super) memory_bytes: u64,
    /// Not the memory that programs get when they ask for some.
    pub(super) is_special: bool,
}

#[derive(Debug)]
pub(super) struct CorePart {
    pub(super) cpus: CpuSet,
    /// The same for all cores that share the last level of cache.
    pub(super) cache: Option<u32>,
}

#[derive(Debug)]
pub(super) struct DevicePart {
    pub(super) name: String,
    pub(super) kind: DeviceKind,
    pub(super) nodes: NodeSet,
    pub(super) pci: Option<String>,
    pub(super) controller: Option<String>,
}

/// Distances by the kernel's numbers of nodes.
#[derive(Debug)]
pub(super) struct Distances {
    places: BTreeMap<u32, usize>,
    values: Vec<u64>,
}

impl Distances {
    /// Nothing, if it is no square matrix.
    pub(super) fn new(ids: Vec<u32>, values: Vec<u64>) -> Option<Distances> {
        let places: BTreeMap<u32, usize> = ids.iter().copied().zip(0..).collect();
        let is_square = places.len() == ids.len() && values.len() == ids.len() * ids.len();
        is_square.then_some(Distances { places, values })
    }

    fn get(&self, from: u32, to: u32) -> Option<u32> {
        let (from, to) = (self.places.get(&from)?, self.places.get(&to)?);
        let value = self.values[from * self.places.len() + to];
        u32::try_from(value).ok().filter(|value| *value > 0)
    }
}

impl Parts {
    /// Leaves only what is allowed here, too.
    pub(super) fn allow(&mut self, allowed: &Allowed) {
        fn both<K>(a: Option<IdSet<K>>, b: &Option<IdSet<K>>) -> Option<IdSet<K>>
        where
            IdSet<K>: Clone,
        {
            match (a, b) {
                (Some(a), Some(b)) => Some(a.intersection(b)),
                (a, b) => a.or_else(|| b.clone()),
            }
        }
        self.allowed = Allowed {
            cpus: both(self.allowed.cpus.take(), &allowed.cpus),
            nodes: both(self.allowed.nodes.take(), &allowed.nodes),
        };
    }

    /// Puts it together.
    pub(super) fn assemble(mut self, origin: Origin) -> Result<Topology, TopologyError> {
        self.tidy();
        if self.cores.is_empty() {
            return Err(TopologyError::NoCpus);
        }
        let sockets = self.sockets();
        let site = Site::new(&self, sockets)?;
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

    /// A CPU is of one core and next to one node, the one whose memory programs get; nothing is there twice.
    fn tidy(&mut self) {
        self.cores.sort_by_key(|core| core.cpus.first());
        let mut left: CpuSet = self.cores.iter().flat_map(|core| core.cpus.iter()).collect();
        if let Some(allowed) = &self.allowed.cpus {
            left = left.intersection(allowed);
        }
        let usable = left.clone();
        for core in &mut self.cores {
            core.cpus = take(&mut left, &core.cpus);
        }
        self.cores.retain(|core| !core.cpus.is_empty());
        self.cores.sort_by_key(|core| core.cpus.first());

        self.nodes.sort_by_key(|node| (node.is_special, node.id));
        let mut seen = BTreeSet::new();
        self.nodes.retain(|node| seen.insert(node.id));
        let mut left = usable.clone();
        for node in &mut self.nodes {
            node.cpus = take(&mut left, &node.cpus);
        }
        self.nodes.sort_by_key(|node| node.id);

        let mut left = usable;
        for package in &mut self.packages {
            package.cpus = take(&mut left, &package.cpus);
        }
        if !left.is_empty() {
            let id =
                self.packages.iter().map(|package| package.id).max().map_or(0, |id| id.saturating_add(1));
            self.packages.push(PackagePart { id, cpus: left, nodes: NodeSet::new() });
        }
    }

    /// Positions of those packages that have something.
    fn sockets(&self) -> Vec<usize> {
        let has_nodes = |package: &PackagePart| self.nodes.iter().any(|node| package.nodes.contains(node.id));
        let packages = self.packages.iter().enumerate();
        packages.filter(|(_, p)| !p.cpus.is_empty() || has_nodes(p)).map(|(index, _)| index).collect()
    }
}

/// Those of `wanted` that are left.
fn take(left: &mut CpuSet, wanted: &CpuSet) -> CpuSet {
    let taken = left.intersection(wanted);
    *left = left.difference(&taken);
    taken
}

/// Parts, and where they will lie.
struct Site<'a> {
    parts: &'a Parts,
    packages: Vec<&'a PackagePart>,
    /// The nodes whose memory may be used.
    kept: Vec<&'a NodePart>,
    socket_of_cpu: BTreeMap<u32, usize>,
    node_of_cpu: BTreeMap<u32, u32>,
}

impl<'a> Site<'a> {
    fn new(parts: &'a Parts, sockets: Vec<usize>) -> Result<Site<'a>, TopologyError> {
        let is_allowed = |id| parts.allowed.nodes.as_ref().is_none_or(|allowed| allowed.contains(id));
        let tells_memory = parts.nodes.iter().any(|node| node.memory_bytes > 0);
        let has_memory = |node: &NodePart| !tells_memory || node.memory_bytes > 0;
        let kept: Vec<_> =
            parts.nodes.iter().filter(|node| is_allowed(node.id) && has_memory(node)).collect();
        if kept.is_empty() {
            return Err(TopologyError::NoNodes);
        }
        let packages: Vec<_> = sockets.into_iter().map(|index| &parts.packages[index]).collect();
        let cpus = |(socket, package): (usize, &&PackagePart)| {
            package.cpus.iter().map(move |cpu| (cpu, socket)).collect::<Vec<_>>()
        };
        let socket_of_cpu = packages.iter().enumerate().flat_map(cpus).collect();
        let near = |node: &NodePart| node.cpus.iter().map(|cpu| (cpu, node.id)).collect::<Vec<_>>();
        let node_of_cpu = parts.nodes.iter().flat_map(near).collect();
        Ok(Site { parts, packages, kept, socket_of_cpu, node_of_cpu })
    }

    fn sockets(&self) -> Vec<Socket> {
        let socket = |(position, package): (usize, &&PackagePart)| {
            let lies_here = |node: &&&NodePart| {
                self.socket_of_node(node) == position || !node.cpus.intersection(&package.cpus).is_empty()
            };
            let nodes = self.kept.iter().filter(lies_here).map(|node| node.id).collect();
            Socket { id: package.id, nodes, cpus: package.cpus.clone() }
        };
        self.packages.iter().enumerate().map(socket).collect()
    }

    fn nodes(&self) -> Vec<Node> {
        let node = |part: &&NodePart| Node {
            id: part.id,
            socket: self.socket_of_node(part),
            cpus: part.cpus.clone(),
            memory_bytes: part.memory_bytes,
        };
        self.kept.iter().map(node).collect()
    }

    /// Where its CPUs are; without any, where it is said to be, or where its nearest neighbour is.
    fn socket_of_node(&self, node: &NodePart) -> usize {
        let of_cpu =
            |node: &NodePart| node.cpus.first().and_then(|cpu| self.socket_of_cpu.get(&cpu).copied());
        let of_package = || {
            let holds = |package: &&PackagePart| package.nodes.contains(node.id);
            let mut holders = (0..self.packages.len()).filter(|&position| holds(&self.packages[position]));
            // Where several claim it, none is believed.
            holders.next().filter(|_| holders.next().is_none())
        };
        let of_neighbour = || {
            let neighbours = self.parts.nodes.iter().filter(|other| !other.cpus.is_empty());
            let far = |other: &&NodePart| self.distance(node.id, other.id).unwrap_or(u32::MAX);
            neighbours.min_by_key(far).and_then(of_cpu)
        };
        of_cpu(node).or_else(of_package).or_else(of_neighbour).unwrap_or(0)
    }

    fn cores(&self) -> Vec<Core> {
        let fastest = self.parts.cores.iter().filter_map(|core| self.speed(core)).max();
        let mut caches = BTreeMap::new();
        let core = |part: &CorePart| {
            let first = part.cpus.first().expect("cores without CPUs were left out");
            let node = self
                .nearest_kept(self.node_of_cpu.get(&first).copied(), self.socket_of_cpu.get(&first).copied());
            let next = caches.len() as u32;
            let cache = *caches.entry(part.cache.ok_or(node)).or_insert(next);
            let capacity = match (self.speed(part), fastest) {
                (Some(speed), Some(fastest)) => u64::from(speed) * CAPACITY_MAX / u64::from(fastest),
                _ => CAPACITY_MAX,
            };
            let socket = self.socket_of_cpu.get(&first).copied().unwrap_or(0);
            Core { socket, node, cpus: part.cpus.clone(), cache, capacity: capacity.max(1) as u32 }
        };
        self.parts.cores.iter().map(core).collect()
    }

    fn speed(&self, core: &CorePart) -> Option<u32> {
        self.parts.speeds.get(&core.cpus.first()?).copied().filter(|speed| *speed > 0)
    }

    /// Position of the node with memory that is nearest to a node of the machine, or to a socket.
    fn nearest_kept(&self, from: Option<u32>, socket: Option<usize>) -> usize {
        let far = |&position: &usize| {
            let node = self.kept[position];
            let distance = from.and_then(|from| self.distance(from, node.id)).unwrap_or(u32::MAX);
            let is_same = Some(node.id) == from;
            let is_near = Some(self.socket_of_node(node)) == socket;
            (!is_same, distance, !is_near, node.is_special || node.cpus.is_empty())
        };
        (0..self.kept.len()).min_by_key(far).unwrap_or(0)
    }

    fn distance(&self, from: u32, to: u32) -> Option<u32> {
        self.parts.distances.as_ref()?.get(from, to)
    }

    fn distances(&self) -> Vec<Vec<u32>> {
        let row = |from: &&NodePart| self.kept.iter().map(|to| self.distance(from.id, to.id)).collect();
        self.kept.iter().map(row).collect::<Option<Vec<Vec<u32>>>>().unwrap_or_default()
    }

    fn devices(&self, topology: &Topology) -> Vec<Device> {
        let mut devices: Vec<Device> =
            self.parts.devices.iter().map(|part| self.device(part, topology)).collect();
        devices.sort_by(|a, b| (a.kind, &a.name).cmp(&(b.kind, &b.name)));
        devices.dedup_by(|a, b| a.name == b.name && a.kind == b.kind);
        devices
    }

    fn device(&self, part: &DevicePart, topology: &Topology) -> Device {
        let place =
            |id: u32| {
                let node = self.parts.nodes.iter().find(|node| node.id == id)?;
                match self.kept.iter().position(|kept| kept.id == id) {
                    Some(position) => Some(position),
                    // Of a node without memory, or one that may not be used: what is nearest, if anybody tells.
                    None if node.cpus.is_empty() && self.parts.distances.is_none() => None,
                    None => {
                        let cpu = node.cpus.first();
                        Some(self.nearest_kept(
                            Some(id),
                            cpu.and_then(|cpu| self.socket_of_cpu.get(&cpu).copied()),
                        ))
                    }
                }
            };
        let has_cores = |position: &usize| topology.has_cores(*position);
        let places: BTreeSet<usize> = part.nodes.iter().filter_map(place).filter(has_cores).collect();
        let nodes = match places.is_empty() {
            true => (0..self.kept.len()).filter(has_cores).collect(),
            false => places.into_iter().collect(),
        };
        let (name, kind) = (part.name.clone(), part.kind);
        Device { name, kind, nodes, pci: part.pci.clone(), controller: part.controller.clone() }
    }
}
