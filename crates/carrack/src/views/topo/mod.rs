//! The report of `carrack topo`: a machine, and a placement on it.
//!
//! `tree.rs` writes it for people, `json.rs` for programs, `svg.rs` draws it, `measured.rs` measures memory
//! (N5), `core_threads.rs` finds the threads of each core.

mod core_threads;
mod json;
mod measured;
mod svg;
#[cfg(test)]
mod test_reports;
mod tree;

use std::fs;

use carrack_machine::{EndThreadPlacement, NumaMemoryCosts, Topology, TopologyOrigin};

use crate::views::quantity::count_with_noun;
pub use measured::MeasuredMemorySpeeds;

/// A machine and a placement.
#[derive(Debug)]
pub struct TopologyReport {
    /// The machine.
    pub topology: Topology,
    /// The placement of threads and buffers.
    pub placement: EndThreadPlacement,
    /// The costs that the placement is based on.
    pub costs: NumaMemoryCosts,
    /// The measurements, if there were any.
    pub measured: Option<MeasuredMemorySpeeds>,
}

impl TopologyReport {
    /// Returns the name of the machine.
    fn title(&self) -> String {
        match &self.topology.origin {
            TopologyOrigin::Hwloc => "this machine".to_owned(),
            TopologyOrigin::Sysfs => "this machine, without hwloc".to_owned(),
            TopologyOrigin::Xml(name) => name.clone(),
            TopologyOrigin::Synthetic(text) => text.clone(),
        }
    }

    /// Returns the numbers of sockets, nodes, cores and CPUs.
    fn component_counts(&self) -> String {
        let Topology { sockets, nodes, cores, .. } = &self.topology;
        let cpus = self.topology.cpus().len();
        let parts = [
            count_with_noun(sockets.len() as u64, "socket", "sockets"),
            count_with_noun(nodes.len() as u64, "NUMA node", "NUMA nodes"),
            count_with_noun(cores.len() as u64, "core", "cores"),
            count_with_noun(cpus as u64, "CPU", "CPUs"),
        ];
        parts.join(", ")
    }
}

/// Returns the interface of the default route, if its place is known (proc(5), `/proc/net/route`;
/// `ipv6_route` is not read).
pub fn default_nic(topology: &Topology) -> Option<String> {
    let table = fs::read_to_string("/proc/net/route").ok()?;
    let name = interface_of_default_route(&table)?;
    topology.device(name).map(|device| device.name.clone())
}

/// Parses columns: interface, destination, ...; the destination of the default route is 0.
fn interface_of_default_route(table: &str) -> Option<&str> {
    let routes = table.lines().skip(1).map(|line| line.split_ascii_whitespace());
    routes
        .filter_map(|mut fields| Some((fields.next()?, fields.next()?)))
        .find(|(_, to)| *to == "00000000")
        .map(|(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_route_has_an_interface() {
        let head = "Iface\tDestination\tGateway \tFlags\n";
        let table = format!("{head}eth1\t0000A8C0\t00000000\t0001\neth0\t00000000\t0100A8C0\t0003\n");
        assert_eq!(interface_of_default_route(&table), Some("eth0"));
        assert_eq!(interface_of_default_route(head), None);
    }

    #[test]
    fn a_machine_has_a_title_and_a_size() {
        let report = test_reports::small();
        assert_eq!(report.title(), "small.xml");
        assert_eq!(report.component_counts(), "2 sockets, 3 NUMA nodes, 4 cores, 6 CPUs");
    }
}
