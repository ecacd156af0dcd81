//! From a request to lanes: their number, sockets and disks, with reasons.

use carrack_model::limits::{LANE_IO_THREADS_MIN, LANES_MAX};

use super::cost_graph::{CostGraph, known_devices};
use super::machine_division::{NumaSocketGroup, lane_socket_groups};
use super::seats::{LaneThreadCores, ThreadCoreAssigner};
use super::{
    CostOrigin, EndThreadPlacement, LanePlacement, NumaMemoryCosts, PlacementScheme, ThreadPlacementRequest,
    ThreadSeat,
};
use crate::topology::Topology;

/// Number of lanes for this machine: that of the request, or else one for each socket with memory and cores,
/// fewer with few I/O threads; at most [`LANES_MAX`].
pub fn lanes_wanted(topology: &Topology, request: &ThreadPlacementRequest) -> usize {
    if let Some(lanes) = request.lanes {
        return lanes.clamp(1, LANES_MAX);
    }
    match effective_scheme(topology, request.scheme) {
        PlacementScheme::Mmb | PlacementScheme::Mts => (request.io_threads / LANE_IO_THREADS_MIN)
            .clamp(1, lane_socket_groups(topology).len().min(LANES_MAX)),
        PlacementScheme::Auto | PlacementScheme::Off | PlacementScheme::Single => 1,
    }
}

/// Places a transfer's lanes on a machine.
pub fn plan_thread_placement(topology: &Topology, request: &ThreadPlacementRequest) -> EndThreadPlacement {
    let costs = request.costs.clone().unwrap_or_else(|| NumaMemoryCosts::from_distances(topology));
    ThreadPlacementPlanner::new(topology, request, &costs).plan()
}

/// With one node there is no choice.
fn effective_scheme(topology: &Topology, scheme: PlacementScheme) -> PlacementScheme {
    match scheme {
        _ if topology.nodes_with_cores() <= 1 => PlacementScheme::Off,
        PlacementScheme::Auto => PlacementScheme::Mts,
        wanted => wanted,
    }
}

struct ThreadPlacementPlanner<'a> {
    topology: &'a Topology,
    request: &'a ThreadPlacementRequest,
    scheme: PlacementScheme,
    nic: Option<&'a str>,
    disks: Vec<&'a str>,
    seating: ThreadCoreAssigner<'a>,
    reasons: Vec<String>,
}

impl<'a> ThreadPlacementPlanner<'a> {
    fn new(
        topology: &'a Topology,
        request: &'a ThreadPlacementRequest,
        costs: &'a NumaMemoryCosts,
    ) -> ThreadPlacementPlanner<'a> {
        ThreadPlacementPlanner {
            topology,
            request,
            scheme: effective_scheme(topology, request.scheme),
            nic: known_devices(topology, &request.nic).first().map(|device| device.name.as_str()),
            disks: known_devices(topology, &request.disks)
                .into_iter()
                .map(|device| device.name.as_str())
                .collect(),
            seating: ThreadCoreAssigner::new(topology, costs, CostGraph::new(topology, request, costs)),
            reasons: Vec::new(),
        }
    }

    fn plan(mut self) -> EndThreadPlacement {
        self.explain_scheme();
        let count = lanes_wanted(self.topology, self.request);
        self.explain_lanes(count);
        let lanes = match self.scheme {
            PlacementScheme::Off | PlacementScheme::Auto => {
                (0..count).map(|lane| self.unbound_lane(lane, count)).collect()
            }
            PlacementScheme::Single | PlacementScheme::Mmb | PlacementScheme::Mts => self.bound_lanes(count),
        };
        EndThreadPlacement { scheme: self.scheme, lanes, reasons: self.reasons }
    }

    fn bound_lanes(&mut self, count: usize) -> Vec<LanePlacement> {
        self.explain_costs();
        let parts = self.divide_machine(count);
        let disks = self.share_out_disks(&parts);
        let parts = parts.iter().zip(&disks).enumerate();
        parts.map(|(lane, (part, disks))| self.bound_lane(lane, count, part, disks)).collect()
    }

    /// The lanes' parts of the machine, cheapest first; more lanes than sockets are assigned round-robin.
    fn divide_machine(&mut self, count: usize) -> Vec<NumaSocketGroup> {
        let mut places = lane_socket_groups(self.topology);
        self.sort_by_cost(&mut places);
        self.explain_order(&places);
        if self.scheme == PlacementScheme::Single {
            places.truncate(1);
        }
        let sockets = places.len().min(count);
        let mut split: Vec<_> = places[..sockets]
            .iter()
            .enumerate()
            .map(|(position, place)| {
                let mut parts = place.split((count - position).div_ceil(sockets));
                self.sort_by_cost(&mut parts);
                parts.into_iter()
            })
            .collect();
        (0..count).filter_map(|lane| split[lane % sockets].next()).collect()
    }

    /// Stable: equally good places keep their order.
    fn sort_by_cost(&self, places: &mut [NumaSocketGroup]) {
        places.sort_by(|a, b| self.place_cost(a).total_cmp(&self.place_cost(b)));
    }

    /// The mean cost from the NIC and the disks to the cheapest cores of a place; the cost of the cores alone
    /// without devices.
    fn place_cost(&self, place: &NumaSocketGroup) -> f64 {
        let devices = self.nic.iter().chain(&self.disks);
        let costs: Vec<f64> = devices.map(|device| self.cheapest_path_cost(Some(device), place)).collect();
        if costs.is_empty() {
            return self.cheapest_path_cost(None, place);
        }
        costs.iter().sum::<f64>() / costs.len() as f64
    }

    /// Cost from a device to the cheapest core of a place.
    fn cheapest_path_cost(&self, device: Option<&str>, place: &NumaSocketGroup) -> f64 {
        let costs = self.seating.roads.costs_from(device);
        place.cores().map(|core| costs[core]).fold(f64::INFINITY, f64::min)
    }

    /// Assigns each disk to the nearest lane, of equally near ones to the lane with the fewest disks.
    fn share_out_disks(&self, parts: &[NumaSocketGroup]) -> Vec<Vec<&'a str>> {
        let mut shares: Vec<Vec<&str>> = vec![Vec::new(); parts.len()];
        for &disk in &self.disks {
            let costs: Vec<f64> =
                parts.iter().map(|part| self.cheapest_path_cost(Some(disk), part)).collect();
            let best = (0..parts.len())
                .min_by(|&a, &b| costs[a].total_cmp(&costs[b]).then(shares[a].len().cmp(&shares[b].len())));
            best.into_iter().for_each(|lane| shares[lane].push(disk));
        }
        shares
    }

    fn bound_lane(
        &mut self,
        lane: usize,
        count: usize,
        part: &NumaSocketGroup,
        disks: &[&str],
    ) -> LanePlacement {
        let mut placement = self.unbound_lane(lane, count);
        placement.socket = part.sockets[0];
        placement.memory = part.memory(self.topology);
        placement.disks = disks.iter().map(|&disk| disk.to_owned()).collect();
        if self.scheme != PlacementScheme::Mmb {
            // A lane without near disks reads all of them.
            let sources = if disks.is_empty() { self.disks.clone() } else { disks.to_vec() };
            let LaneThreadCores { home, master, comm, io } =
                self.seating.assign_lane_cores(part, self.nic, &sources, placement.io.len());
            self.explain_home(lane, home);
            (placement.master, placement.comm, placement.io) = (master, comm, io);
        }
        placement
    }

    /// An unbound lane.
    fn unbound_lane(&self, lane: usize, count: usize) -> LanePlacement {
        let threads = self.request.io_threads / count + usize::from(lane < self.request.io_threads % count);
        LanePlacement {
            socket: 0,
            memory: Default::default(),
            master: ThreadSeat::default(),
            comm: ThreadSeat::default(),
            io: vec![ThreadSeat::default(); threads.max(1)],
            nic: self.request.nic.clone(),
            disks: if count == 1 { self.request.disks.clone() } else { Vec::new() },
        }
    }
}

/// Reasons, for people.
impl ThreadPlacementPlanner<'_> {
    fn explain_scheme(&mut self) {
        let nodes = self.topology.nodes_with_cores();
        let reason = match (self.request.scheme, self.scheme) {
            _ if nodes <= 1 => "one NUMA node: nothing to choose, nothing bound".to_owned(),
            (PlacementScheme::Auto, _) => format!("{nodes} NUMA nodes with cores: buffers and threads bound"),
            (_, scheme) => format!("{scheme} was asked for"),
        };
        self.reasons.push(reason);
    }

    fn explain_lanes(&mut self, count: usize) {
        let threads = self.request.io_threads;
        let sockets = lane_socket_groups(self.topology).len();
        let reason = match (self.request.lanes, self.scheme) {
            (Some(_), _) => format!("{}, as asked for or agreed on", lanes_text(count)),
            (None, PlacementScheme::Mmb | PlacementScheme::Mts) if count < sockets => {
                let min = LANE_IO_THREADS_MIN;
                format!(
                    "{threads} I/O threads on {sockets} sockets: {count} lanes, as one is worth {min} threads"
                )
            }
            (None, PlacementScheme::Mmb | PlacementScheme::Mts) => {
                format!("a lane for each of {count} sockets")
            }
            (None, _) => "one lane".to_owned(),
        };
        self.reasons.push(reason);
    }

    fn explain_costs(&mut self) {
        let reason = match self.seating.costs.origin() {
            CostOrigin::Distances => "memory costs: the firmware's distances",
            CostOrigin::Assumed => "memory costs: usual distances, as the firmware tells none",
            CostOrigin::Measured => "memory costs: measured bandwidths",
            CostOrigin::Given => "memory costs: given",
        };
        self.reasons.push(reason.to_owned());
        let wanted = self.request.nic.iter().chain(&self.request.disks);
        let unknown = wanted.filter(|name| self.topology.device(name).is_none());
        let reasons = unknown.map(|name| format!("{name}: its place is not known, so it does not count"));
        self.reasons.extend(reasons.collect::<Vec<_>>());
    }

    fn explain_order(&mut self, places: &[NumaSocketGroup]) {
        let devices: Vec<&str> = self.nic.iter().chain(&self.disks).copied().collect();
        if devices.is_empty() || places.len() < 2 {
            return;
        }
        let costs: Vec<String> = places
            .iter()
            .map(|place| {
                let socket = self.topology.sockets[place.sockets[0]].id;
                format!("socket {socket} {:.2}", self.place_cost(place))
            })
            .collect();
        self.reasons.push(format!("cheapest ways from {}: {}", devices.join(", "), costs.join(", ")));
    }

    fn explain_home(&mut self, lane: usize, home: usize) {
        let node = self.topology.nodes[home].id;
        self.reasons.push(format!("lane {lane}: Master and Comm on node {node}"));
    }
}

fn lanes_text(count: usize) -> String {
    format!("{count} lane{}", if count == 1 { "" } else { "s" })
}
