//! The threads on each core.

use carrack_machine::{EndThreadPlacement, LanePlacement, ThreadSeat, Topology};

/// The role of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ThreadRole {
    /// Serves the connections.
    Comm,
    /// Runs the scan.
    Master,
    /// Reads or writes storage.
    Io,
}

impl ThreadRole {
    /// Returns the name that is printed.
    pub fn name(self) -> &'static str {
        match self {
            ThreadRole::Comm => "comm",
            ThreadRole::Master => "master",
            ThreadRole::Io => "I/O",
        }
    }
}

/// A thread.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CoreOccupant<'a> {
    /// Its lane.
    pub lane: usize,
    /// Its role.
    pub role: ThreadRole,
    /// Its cores, and their cost.
    pub seat: &'a ThreadSeat,
}

impl CoreOccupant<'_> {
    /// Returns a text such as "comm 1.20 from ib0".
    pub fn text(&self) -> String {
        let cost = self.seat.device.as_ref().zip(self.seat.cost);
        let cost = cost.map(|(device, cost)| format!(" {cost:.2} from {device}"));
        format!("{}{}", self.role.name(), cost.unwrap_or_default())
    }
}

/// Returns a lane's threads.
pub fn lane_threads(lane: usize, placement: &LanePlacement) -> impl Iterator<Item = CoreOccupant<'_>> {
    let control = [(ThreadRole::Comm, &placement.comm), (ThreadRole::Master, &placement.master)];
    let io = placement.io.iter().map(|seat| (ThreadRole::Io, seat));
    control.into_iter().chain(io).map(move |(role, seat)| CoreOccupant { lane, role, seat })
}

/// Returns for each core, by position, the threads that are bound to it.
pub fn threads_by_core<'a>(
    topology: &Topology,
    placement: &'a EndThreadPlacement,
) -> Vec<Vec<CoreOccupant<'a>>> {
    let mut cores = vec![Vec::new(); topology.cores.len()];
    let lanes = placement.lanes.iter().enumerate();
    for occupant in lanes.flat_map(|(lane, placement)| lane_threads(lane, placement)) {
        let cpus = &occupant.seat.cpus;
        let core = topology.cores.iter().position(|core| !cpus.is_empty() && cpus.is_subset(&core.cpus));
        if let Some(core) = core {
            cores[core].push(occupant);
        }
    }
    cores
}

/// Returns the lanes whose buffer lies on a node, by the kernel's number.
pub fn lanes_on(placement: &EndThreadPlacement, node: u32) -> Vec<usize> {
    let lanes = placement.lanes.iter().enumerate();
    lanes.filter(|(_, lane)| lane.memory.contains(node)).map(|(lane, _)| lane).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::views::topo::test_reports;

    #[test]
    fn every_thread_sits_once() {
        let report = test_reports::small();
        let cores = threads_by_core(&report.topology, &report.placement);
        let threads: usize = report.placement.lanes.iter().map(|lane| 2 + lane.io.len()).sum();
        assert_eq!(cores.iter().map(Vec::len).sum::<usize>(), threads);
        let first: Vec<_> = cores[0].iter().map(|occupant| (occupant.lane, occupant.role)).collect();
        assert_eq!(first[0], (0, ThreadRole::Comm));
        assert_eq!(cores[0][0].text(), "comm 1.20 from eth0");
    }

    #[test]
    fn buffers_are_found() {
        let report = test_reports::small();
        assert_eq!((lanes_on(&report.placement, 0), lanes_on(&report.placement, 2)), (vec![0], vec![]));
    }
}
