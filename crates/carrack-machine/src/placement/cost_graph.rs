//! The graph of paths from devices to cores, and the cheapest of them (M2: minimum-cost path scheduling,
//! section III.B of the MDTM paper).
//!
//! Vertices are devices, PCI host bridges, nodes, interconnects between two nodes, and cores. An edge's cost
//! is that of a byte on it, so that a path's cost is the time of a byte from the device until a core has
//! processed it, as a multiple of local memory's time. Placed threads raise the costs of the interconnects
//! and the core on their path, which affects the next thread.

use std::collections::{BTreeMap, HashMap};

use petgraph::algo::{astar, dijkstra};
use petgraph::graph::{DiGraph, NodeIndex};

use super::{NumaMemoryCosts, ThreadPlacementRequest};
use crate::topology::{CpuCore, Topology, TopologyDevice};

/// Cost from a device to its host bridge, and from there to a node: equal for all cores, so that it decides
/// nothing; it shows the hops in the sum.
const HOP: f64 = 0.1;

/// The share of an interconnect that one thread uses: some GB/s of some tens of GB/s.
const LINK_SHARE: f64 = 0.1;

/// The share of a busy core that always remains for a thread, as the scheduler is fair.
const LEFT_MIN: f64 = 0.1;

/// Slowdown of a core without local memory, which uses the nearest node's.
const NO_MEMORY: f64 = 1.2;

const CAPACITY_MAX: f64 = 1_024.0;

/// The graph of a machine's devices, cores and interconnects.
pub(super) struct CostGraph {
    graph: DiGraph<(), CostEdge>,
    devices: HashMap<String, NodeIndex>,
    cores: Vec<NodeIndex>,
    /// Threads on each interconnect, by its sockets: all nodes of two sockets share one.
    links: BTreeMap<(usize, usize), u32>,
    /// Threads on each core.
    threads: Vec<u32>,
}

#[derive(Clone, Copy)]
struct CostEdge {
    cost: f64,
    load: PlacementEdgeLoad,
}

/// The load that raises an edge's cost.
#[derive(Clone, Copy)]
enum PlacementEdgeLoad {
    /// Constant cost.
    None,
    /// Threads between these sockets.
    Link(usize, usize),
    /// Threads on this core.
    Core(usize),
}

impl CostGraph {
    pub(super) fn new(
        topology: &Topology,
        request: &ThreadPlacementRequest,
        costs: &NumaMemoryCosts,
    ) -> CostGraph {
        let mut roads = CostGraph {
            graph: DiGraph::new(),
            devices: HashMap::new(),
            cores: Vec::new(),
            links: BTreeMap::new(),
            threads: vec![0; topology.cores.len()],
        };
        let nodes: Vec<NodeIndex> = topology.nodes.iter().map(|_| roads.graph.add_node(())).collect();
        roads.add_interconnects(topology, costs, &nodes);
        for (position, core) in topology.cores.iter().enumerate() {
            let vertex = roads.graph.add_node(());
            let cost = core_cost(topology, request, costs, core);
            roads.graph.add_edge(
                nodes[core.node],
                vertex,
                CostEdge { cost, load: PlacementEdgeLoad::Core(position) },
            );
            roads.cores.push(vertex);
        }
        roads.add_devices(topology, &nodes);
        roads
    }

    /// The distance matrix has no routes through other nodes: each pair gets an interconnect.
    fn add_interconnects(&mut self, topology: &Topology, costs: &NumaMemoryCosts, nodes: &[NodeIndex]) {
        for (from, &from_vertex) in nodes.iter().enumerate() {
            for (to, &to_vertex) in nodes.iter().enumerate().filter(|(to, _)| *to != from) {
                let (a, b) = (topology.nodes[from].socket, topology.nodes[to].socket);
                let load = PlacementEdgeLoad::Link(a.min(b), a.max(b));
                let vertex = self.graph.add_node(());
                self.graph.add_edge(from_vertex, vertex, CostEdge { cost: costs.extra_cost(from, to), load });
                self.graph.add_edge(vertex, to_vertex, CostEdge { cost: 0.0, load: PlacementEdgeLoad::None });
            }
        }
    }

    /// Devices share their host bridge; a device with an unknown bridge gets one of its own.
    fn add_devices(&mut self, topology: &Topology, nodes: &[NodeIndex]) {
        let hop = CostEdge { cost: HOP, load: PlacementEdgeLoad::None };
        let mut controllers: HashMap<(&str, &[usize]), NodeIndex> = HashMap::new();
        for device in &topology.devices {
            let name = device.controller.as_deref().unwrap_or(&device.name);
            let controller = *controllers.entry((name, &device.nodes)).or_insert_with(|| {
                let vertex = self.graph.add_node(());
                for &node in &device.nodes {
                    self.graph.add_edge(vertex, nodes[node], hop);
                }
                vertex
            });
            let vertex = self.graph.add_node(());
            self.graph.add_edge(vertex, controller, hop);
            self.devices.insert(device.name.clone(), vertex);
        }
    }

    /// The cost of the cheapest path from a device to each core, by position; of the core alone without a
    /// device.
    pub(super) fn costs_from(&self, device: Option<&str>) -> Vec<f64> {
        let vertex = device.and_then(|name| self.devices.get(name));
        let Some(&vertex) = vertex else {
            return self.cores.iter().map(|&core| self.last_edge_cost(core)).collect();
        };
        let found = dijkstra(&self.graph, vertex, None, |edge| self.cost(edge.weight()));
        self.cores.iter().map(|core| found.get(core).copied().unwrap_or(f64::INFINITY)).collect()
    }

    /// Places a thread for a device on a core: adds a thread to the core and the interconnects on the path.
    pub(super) fn add_thread_load(&mut self, device: Option<&str>, core: usize) {
        self.threads[core] += 1;
        let Some(&vertex) = device.and_then(|name| self.devices.get(name)) else { return };
        let path =
            astar(&self.graph, vertex, |at| at == self.cores[core], |edge| self.cost(edge.weight()), |_| 0.0);
        let path = path.map(|(_, path)| path).unwrap_or_default();
        for step in path.windows(2) {
            let edge = self.graph.find_edge(step[0], step[1]).and_then(|edge| self.graph.edge_weight(edge));
            if let Some(CostEdge { load: PlacementEdgeLoad::Link(a, b), .. }) = edge {
                *self.links.entry((*a, *b)).or_default() += 1;
            }
        }
    }

    fn cost(&self, edge: &CostEdge) -> f64 {
        match edge.load {
            PlacementEdgeLoad::None => edge.cost,
            PlacementEdgeLoad::Link(a, b) => {
                let threads = self.links.get(&(a, b)).copied().unwrap_or(0);
                edge.cost * (1.0 + LINK_SHARE * f64::from(threads))
            }
            PlacementEdgeLoad::Core(core) => edge.cost * f64::from(1 + self.threads[core]),
        }
    }

    fn last_edge_cost(&self, core: NodeIndex) -> f64 {
        let mut edges = self.graph.edges_directed(core, petgraph::Direction::Incoming);
        edges.next().map_or(f64::INFINITY, |edge| self.cost(edge.weight()))
    }
}

/// Time of a byte on an otherwise idle core, from its node's memory.
fn core_cost(
    topology: &Topology,
    request: &ThreadPlacementRequest,
    costs: &NumaMemoryCosts,
    core: &CpuCore,
) -> f64 {
    let busy = core.cpus.iter().filter_map(|cpu| request.core_loads.get(&cpu)).copied().fold(0.0, f64::max);
    let left = (1.0 - busy).clamp(LEFT_MIN, 1.0);
    let is_next = core.cpus.is_subset(&topology.nodes[core.node].cpus);
    let memory = costs.memory(core.node, core.node) * if is_next { 1.0 } else { NO_MEMORY };
    memory * CAPACITY_MAX / f64::from(core.capacity.max(1)) / left
}

/// The devices of a request that are in the topology.
pub(super) fn known_devices<'a>(
    topology: &'a Topology,
    names: impl IntoIterator<Item = &'a String>,
) -> Vec<&'a TopologyDevice> {
    names.into_iter().filter_map(|name| topology.device(name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The MTS paper's machine, with its NIC on node 0: cores 0, 6 and 12 are the first of nodes 0, 1 and 2.
    fn machine() -> Topology {
        let text = include_str!("../../tests/fixtures/mts-2x2x6.xml");
        Topology::from_xml(text, "mts-2x2x6").unwrap()
    }

    fn costs(roads: &CostGraph, device: Option<&str>, cores: [usize; 3]) -> [f64; 3] {
        let costs = roads.costs_from(device);
        cores.map(|core| (costs[core] * 1_000.0).round() / 1_000.0)
    }

    #[test]
    fn ways_get_dearer_with_distance_and_with_threads() {
        let machine = machine();
        let memory = NumaMemoryCosts::from_distances(&machine);
        let mut roads = CostGraph::new(&machine, &ThreadPlacementRequest::default(), &memory);
        assert_eq!(costs(&roads, Some("ib0"), [0, 6, 12]), [1.2, 1.3, 2.3]);
        assert_eq!(costs(&roads, None, [0, 6, 12]), [1.0, 1.0, 1.0]);
        // A thread on core 0 uses no interconnect; a thread on core 12 uses that of the sockets.
        roads.add_thread_load(Some("ib0"), 0);
        assert_eq!(costs(&roads, Some("ib0"), [0, 1, 12]), [2.2, 1.2, 2.3]);
        roads.add_thread_load(Some("ib0"), 12);
        assert_eq!(costs(&roads, Some("ib0"), [6, 12, 18]), [1.3, 3.41, 2.41]);
    }

    #[test]
    fn busy_cores_and_dear_memory_count() {
        let machine = machine();
        let request = ThreadPlacementRequest {
            core_loads: [(1, 0.5), (2, 1.0), (3, 7.0)].into(),
            ..ThreadPlacementRequest::default()
        };
        let memory = NumaMemoryCosts::from_kinds(&machine, 1.0, 1.04, 1.48);
        let roads = CostGraph::new(&machine, &request, &memory);
        assert_eq!(costs(&roads, None, [1, 2, 3]), [2.0, 10.0, 10.0]);
        assert_eq!(costs(&roads, Some("ib0"), [0, 6, 12]), [1.2, 1.24, 1.68]);
        assert_eq!(costs(&roads, Some("nowhere0"), [0, 6, 12]), [1.0, 1.0, 1.0]);
    }
}
