//! The machine of an end, and the placement of its lanes (N1–N3, M2, M3, M5).
//!
//! It is examined before the ends agree on their lanes ([`HostPlacementInput`]), and again when the
//! connections are established and the storage is known ([`PlacedLanes`]). On a machine with one NUMA node
//! nothing is bound, watched, or examined further.

use std::net::TcpStream;
use std::os::fd::BorrowedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, Scope};

use carrack_layout::disks_of;
use carrack_machine::{
    BindingLevel, CgroupTree, CoreIsolationMode, EndThreadBindings, EndThreadPlacement, FifoConditionLock,
    LaneCrew, LaneMoveDecision, LanePlacement, MachineLoads, NodeSet, PlacementScheme, ProtectedCoresGuard,
    SlotPool, ThreadMoveResult, ThreadPlacementRequest, Topology, lanes_wanted, move_comm_threads_to_flows,
    nic, plan_thread_placement, remove_stale_zones, watch_thread_bindings,
};
use carrack_model::{AgreedTransferSpec, FailureSide};
use carrack_transport::{DataConnection, SessionControlLink};

use crate::error::SessionError;
use crate::lanes::{EstablishedLaneResources, LaneDataTransport, deal};
use crate::settings::EndSettings;

/// The machine, as far as the placement needs it.
pub(crate) struct HostPlacementInput {
    scheme: PlacementScheme,
    zone: CoreIsolationMode,
    /// The reason for small buffers, if they are.
    pool_reason: Option<String>,
    /// `None` if nothing is placed.
    topology: Option<Topology>,
}

/// The demand of an end's lanes.
pub(crate) struct LanePlacementDemand<'a> {
    pub(crate) side: FailureSide,
    pub(crate) lane_count: usize,
    /// I/O threads of all lanes.
    pub(crate) io_threads: usize,
    pub(crate) streams: &'a [DataConnection],
    /// Directories on the storage that is read or written.
    pub(crate) directories: Vec<BorrowedFd<'a>>,
}

impl HostPlacementInput {
    pub(crate) fn detect(settings: &EndSettings) -> HostPlacementInput {
        let is_placed = settings.placement != PlacementScheme::Off;
        let topology = is_placed.then(|| free_stale_zones(Topology::for_transfer()));
        let pool_reason = settings.pool_share.as_ref().map(|share| share.reason.clone());
        HostPlacementInput { scheme: settings.placement, zone: settings.zone, pool_reason, topology }
    }

    /// Returns the number of lanes that the machine has separate places for.
    pub(crate) fn lane_places(&self) -> usize {
        // The number of threads does not count here: the lanes that they keep busy are computed elsewhere.
        let request = ThreadPlacementRequest {
            scheme: self.scheme,
            io_threads: usize::MAX,
            ..ThreadPlacementRequest::default()
        };
        self.topology.as_ref().map_or(1, |topology| lanes_wanted(topology, &request))
    }

    /// Places the lanes for a demand.
    pub(crate) fn place(self, demand: &LanePlacementDemand<'_>) -> Result<PlacedLanes, SessionError> {
        let request = self.placement_request(demand);
        let placement = match &self.topology {
            Some(topology) => plan_thread_placement(topology, &request),
            None => unbound_placement(demand.lane_count),
        };
        let is_bound = placement.lanes.iter().any(|lane| !lane.cpus().is_empty());
        let zone = self.protect_cores(&placement)?;
        let is_worth_telling =
            placement.scheme != PlacementScheme::Off || self.scheme != PlacementScheme::Auto;
        let reasons = if is_worth_telling { placement.reasons.clone() } else { Vec::new() };
        let reasons = self.pool_reason.iter().cloned().chain(reasons);
        let words = reasons.chain(zone.as_ref().map(|zone| zone.note().to_string())).collect();
        let news = Mutex::new(ThreadPlacementNotices { words, has_told_steps: false });
        let plan = self
            .topology
            .filter(|_| is_bound)
            .map(|topology| PlacementComputationInput { topology, request });
        let flows = if plan.is_some() { flows_of(demand)? } else { Vec::new() };
        let (crew, stop) = (EndThreadBindings::new(placement), FifoConditionLock::new(()));
        Ok(PlacedLanes { side: demand.side, crew, plan, flows, zone, news, stop })
    }

    /// Devices count only if there is more than one NUMA node to choose from.
    fn placement_request(&self, demand: &LanePlacementDemand<'_>) -> ThreadPlacementRequest {
        let has_choice = self.topology.as_ref().is_some_and(|topology| topology.nodes_with_cores() > 1);
        let streams = if has_choice { demand.streams } else { &[] };
        let directories = if has_choice { &demand.directories[..] } else { &[] };
        let address = streams.first().and_then(|stream| stream.socket().local_addr().ok());
        ThreadPlacementRequest {
            scheme: self.scheme,
            lanes: Some(demand.lane_count),
            io_threads: demand.io_threads,
            nic: address.and_then(|address| nic::nic_of_address(address.ip())),
            disks: directories.iter().flat_map(|directory| disks_of(*directory)).collect(),
            ..ThreadPlacementRequest::default()
        }
    }

    fn protect_cores(
        &self,
        placement: &EndThreadPlacement,
    ) -> Result<Option<ProtectedCoresGuard>, SessionError> {
        let kind = self.zone;
        if kind == CoreIsolationMode::Off {
            return Ok(None);
        }
        let cpus = placement.lanes.iter().fold(Default::default(), |cpus, lane| lane.cpus().union(&cpus));
        let mems = placement.lanes.iter().fold(NodeSet::new(), |mems, lane| mems.union(&lane.memory));
        let zone = ProtectedCoresGuard::open(kind, &cpus, &mems);
        zone.map(Some).map_err(|error| SessionError::refused(format!("--zone: {error}"), ""))
    }
}

/// The placement of an end's lanes, kept until this is dropped.
pub(crate) struct PlacedLanes {
    side: FailureSide,
    crew: EndThreadBindings,
    /// The input of the placement, if threads are bound.
    plan: Option<PlacementComputationInput>,
    /// Each lane's data connections, if threads are bound.
    flows: Vec<Vec<TcpStream>>,
    zone: Option<ProtectedCoresGuard>,
    news: Mutex<ThreadPlacementNotices>,
    /// Closed when the lanes are not watched any more.
    stop: FifoConditionLock<()>,
}

struct PlacementComputationInput {
    topology: Topology,
    request: ThreadPlacementRequest,
}

impl PlacementComputationInput {
    /// Computes the placement for the present load.
    fn compute_placement(&self, loads: &MachineLoads) -> EndThreadPlacement {
        plan_thread_placement(
            &self.topology,
            &ThreadPlacementRequest { core_loads: loads.cpus.clone(), ..self.request.clone() },
        )
    }
}

struct ThreadPlacementNotices {
    /// Decisions that were not reported yet.
    words: Vec<String>,
    /// True if the outcome of binding was reported.
    has_told_steps: bool,
}

impl PlacedLanes {
    /// Returns the placement of a lane's threads.
    pub(crate) fn lane(&self, index: usize) -> LaneCrew {
        self.crew.lane(index)
    }

    /// Allocates a lane's slots on its nodes.
    pub(crate) fn allocate_pool(
        &self,
        index: usize,
        spec: &AgreedTransferSpec,
        slots: usize,
    ) -> Result<SlotPool, SessionError> {
        assert!(slots > 0, "a lane has a slot");
        let slot_bytes = spec.slot_bytes as usize;
        Ok(self.lane(index).create_pool((slots * slot_bytes) as u64, slot_bytes)?)
    }

    /// Allocates the slots of all lanes.
    pub(crate) fn allocate_pools(
        &self,
        settings: &EndSettings,
        spec: &AgreedTransferSpec,
        lane_count: usize,
    ) -> Result<Vec<SlotPool>, SessionError> {
        let slots = settings.lane_slot_count(spec.slot_bytes, lane_count);
        (0..lane_count).map(|index| self.allocate_pool(index, spec, slots)).collect()
    }

    /// Combines each lane with its resources.
    pub(crate) fn combine_lane_resources<E>(
        &self,
        links: Vec<SessionControlLink>,
        pools: Vec<SlotPool>,
        transports: Vec<LaneDataTransport<E>>,
    ) -> Vec<EstablishedLaneResources<E>> {
        assert!(
            links.len() == pools.len() && links.len() == transports.len(),
            "each lane has all that it needs"
        );
        let lanes = links.into_iter().zip(pools).zip(transports).enumerate();
        let starts = lanes.map(|(index, ((link, pool), LaneDataTransport { endpoints, hub }))| {
            EstablishedLaneResources { link, endpoints, hub, pool, crew: self.lane(index) }
        });
        starts.collect()
    }

    /// Returns the news since the last call: decisions with their reasons, and, once the threads have
    /// started, the actual places of threads and buffers.
    pub(crate) fn take_notices(&self) -> Vec<String> {
        let mut news = self.lock();
        let mut words = std::mem::take(&mut news.words);
        if !std::mem::replace(&mut news.has_told_steps, true) {
            words.extend(self.crew.notes());
        }
        let end = if self.side == FailureSide::Source { "source" } else { "sink" };
        words.into_iter().map(|word| format!("{end}: {word}")).collect()
    }

    /// Watches the lanes (M5), and lets their comm threads follow their flows (M9), if threads are bound,
    /// until the guard is dropped. Called once.
    pub(crate) fn watch<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>) -> WatchGuard<'scope> {
        if let Some(plan) = &self.plan {
            let watching = thread::Builder::new().name("carrack-watch".into());
            let started = watching.spawn_scoped(scope, || self.watch_lanes(plan));
            if let Err(error) = started {
                self.add_notice(format!("the lanes are not watched: {error}"));
            }
        }
        WatchGuard(&self.stop)
    }

    fn watch_lanes(&self, plan: &PlacementComputationInput) {
        let watched = watch_thread_bindings(
            &self.crew,
            &self.stop,
            &|loads| self.replan(plan, loads),
            &|decision, moved| self.report_decision(decision, moved),
        );
        if let Err(error) = watched {
            self.add_notice(format!("the lanes are not watched: {error}"));
        }
    }

    fn replan(&self, plan: &PlacementComputationInput, loads: &MachineLoads) -> EndThreadPlacement {
        self.follow_flows(plan);
        // No other process runs in a hard zone, and the lanes can't leave it.
        let is_alone = self.zone.as_ref().is_some_and(ProtectedCoresGuard::is_hard);
        if is_alone { self.crew.placement() } else { plan.compute_placement(loads) }
    }

    fn report_decision(&self, decision: &LaneMoveDecision, moved: &ThreadMoveResult) {
        let how = if moved.step == BindingLevel::Seat { "" } else { " (as far as the kernel lets it)" };
        self.add_notice(format!("{decision}{how}"));
    }

    fn follow_flows(&self, plan: &PlacementComputationInput) {
        let arriving: Vec<Vec<u32>> =
            self.flows.iter().map(|streams| streams.iter().filter_map(nic::incoming_cpu).collect()).collect();
        move_comm_threads_to_flows(&self.crew, &plan.topology, &arriving)
            .into_iter()
            .for_each(|word| self.add_notice(word));
    }

    /// Adds a message to the user.
    pub(crate) fn add_notice(&self, word: String) {
        self.lock().words.push(word);
    }

    fn lock(&self) -> MutexGuard<'_, ThreadPlacementNotices> {
        self.news.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the machine after freeing the cores that a killed process had kept. Freeing needs root; `carrack
/// doctor` reports the zones that are left.
fn free_stale_zones(topology: Topology) -> Topology {
    if topology.nodes.len() <= 1 {
        return topology;
    }
    let repaired = CgroupTree::of_this_machine().and_then(|tree| remove_stale_zones(&tree).ok());
    if repaired.is_some_and(|zones| !zones.is_empty()) { Topology::for_transfer() } else { topology }
}

/// Ends the watch, also after a panic.
pub(crate) struct WatchGuard<'a>(&'a FifoConditionLock<()>);

impl Drop for WatchGuard<'_> {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Duplicates the data connections of each lane, to ask for the CPUs where they arrive.
fn flows_of(demand: &LanePlacementDemand<'_>) -> Result<Vec<Vec<TcpStream>>, SessionError> {
    let streams: std::io::Result<Vec<TcpStream>> =
        demand.streams.iter().map(|stream| stream.socket().try_clone()).collect();
    let streams = streams.map_err(SessionError::local("watching a data connection"))?;
    Ok(deal(streams, demand.lane_count))
}

/// Returns lanes without binding.
fn unbound_placement(lane_count: usize) -> EndThreadPlacement {
    let lanes = vec![LanePlacement::default(); lane_count];
    EndThreadPlacement { scheme: PlacementScheme::Off, lanes, reasons: Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use carrack_machine::ThreadDuty;

    const PAPERS: &str = include_str!("../../carrack-machine/tests/fixtures/mts-2x2x6.xml");

    fn host(scheme: PlacementScheme) -> HostPlacementInput {
        let topology = Topology::from_xml(PAPERS, "mts-2x2x6.xml").unwrap();
        HostPlacementInput {
            scheme,
            zone: CoreIsolationMode::Off,
            topology: Some(topology),
            pool_reason: None,
        }
    }

    fn demand(lane_count: usize) -> LanePlacementDemand<'static> {
        LanePlacementDemand {
            side: FailureSide::Sink,
            lane_count,
            io_threads: 8,
            streams: &[],
            directories: Vec::new(),
        }
    }

    fn spec() -> AgreedTransferSpec {
        AgreedTransferSpec { slot_bytes: 128 << 10, ..AgreedTransferSpec::default() }
    }

    #[test]
    fn a_machine_wants_a_lane_for_each_socket_where_lanes_are_bound() {
        for (scheme, places) in [
            (PlacementScheme::Auto, 2),
            (PlacementScheme::Mts, 2),
            (PlacementScheme::Mmb, 2),
            (PlacementScheme::Single, 1),
            (PlacementScheme::Off, 1),
        ] {
            assert_eq!(host(scheme).lane_places(), places, "{scheme:?}");
        }
    }

    /// The plan of another machine: its CPUs and nodes don't exist here and are refused, and the lanes run
    /// without binding.
    #[test]
    fn places_that_are_refused_are_done_without_and_said() {
        let lanes = host(PlacementScheme::Mts).place(&demand(2)).unwrap();
        let mut pool = lanes.allocate_pool(1, &spec(), 4).unwrap();
        let seated = std::thread::scope(|scope| {
            let lane = lanes.lane(1);
            scope.spawn(move || drop(lane.bind_current_thread(ThreadDuty::Io(0)))).join()
        });
        assert!(seated.is_ok());
        assert_eq!(pool.slot_count(), 4);
        pool.lease().unwrap().bytes_mut().fill(1);
        let news = lanes.take_notices().join("\n");
        assert!(news.lines().all(|line| line.starts_with("sink: ")), "{news}");
        assert!(news.contains("mts") && news.contains("lane 1: 1 thread where the kernel likes"), "{news}");
        assert!(lanes.take_notices().is_empty(), "told once");
        pool.close();
        pool = lanes.allocate_pool(0, &spec(), 4).unwrap();
        pool.lease().unwrap().bytes_mut().fill(2);
    }

    #[test]
    fn work_is_watched_where_threads_are_bound_and_its_result_comes_back() {
        for scheme in [PlacementScheme::Mts, PlacementScheme::Off] {
            assert_eq!(watched(scheme, || 7), 7);
            let panicked = std::panic::catch_unwind(|| watched(scheme, || panic!("on purpose")));
            assert!(panicked.is_err());
        }
    }

    fn watched(scheme: PlacementScheme, work: fn() -> u32) -> u32 {
        let lanes = host(scheme).place(&demand(2)).unwrap();
        std::thread::scope(|scope| {
            let _watch = lanes.watch(scope);
            work()
        })
    }
}
