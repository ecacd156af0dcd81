//! `carrack topo` for people: the machine as a tree, the costs of memory as a table, the lanes, and the
//! reasons.
//!
//! Names are escaped: a file's can't drive the terminal.

use std::fmt::Display;
use std::io::{self, Write};
use std::iter;

use carrack_machine::{CostOrigin, CpuCore, CpuSet, LanePlacement, MachineDeviceKind, TopologyDevice};
use carrack_model::escape;

use super::TopologyReport;
use super::core_threads::{self, CoreOccupant, ThreadRole};
use crate::size;
use crate::views::quantity::count_with_noun;
use crate::views::table::TextTable;

/// Most nodes of a table: a wider one fits no terminal; the JSON has all.
const TABLE_NODES_MAX: usize = 16;

/// A line of the tree and the lines below.
struct TextTreeNode {
    text: String,
    twigs: Vec<TextTreeNode>,
}

impl TextTreeNode {
    fn leaf(text: String) -> TextTreeNode {
        TextTreeNode { text, twigs: Vec::new() }
    }
}

impl TopologyReport {
    /// Writes the report.
    pub fn write_tree(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "{}: {}", escaped_text(&self.title()), self.component_counts())?;
        write_branches(out, &self.machine_tree(), "")?;
        self.write_costs(out)?;
        self.write_measured(out)?;
        self.write_lanes(out)
    }

    fn machine_tree(&self) -> Vec<TextTreeNode> {
        let occupants = core_threads::threads_by_core(&self.topology, &self.placement);
        let sockets = self.topology.sockets.iter().enumerate().map(|(position, socket)| TextTreeNode {
            text: format!("socket {}", socket.id),
            twigs: self.nodes_of(position, &occupants),
        });
        sockets.chain(self.devices(|device| device.nodes.len() != 1)).collect()
    }

    fn nodes_of(&self, socket: usize, occupants: &[Vec<CoreOccupant<'_>>]) -> Vec<TextTreeNode> {
        let mut branches = Vec::new();
        for (position, node) in self.topology.nodes.iter().enumerate() {
            let cores = self.cores_of(socket, position, occupants);
            if node.socket == socket {
                let mut twigs = cores;
                twigs.extend(self.devices(|device| device.nodes == [position]));
                branches.push(TextTreeNode { text: self.node_text(position), twigs });
            } else if !cores.is_empty() {
                // The node lies elsewhere: sockets share it, or have no memory.
                let text = format!("cores next to node {}", node.id);
                branches.push(TextTreeNode { text, twigs: cores });
            }
        }
        branches
    }

    fn node_text(&self, position: usize) -> String {
        let node = &self.topology.nodes[position];
        let memory = match node.memory_bytes {
            0 => String::new(),
            bytes => format!("  {}", size::format_size(bytes)),
        };
        let without = if self.topology.has_cores(position) { "" } else { "  no cores" };
        let lanes = core_threads::lanes_on(&self.placement, node.id);
        let lanes: Vec<String> = lanes.iter().map(|lane| format!("  buffer of lane {lane}")).collect();
        format!("node {}{memory}{without}{}", node.id, lanes.concat())
    }

    /// Returns a line for each core in use, and one for each run of free cores between them.
    fn cores_of(&self, socket: usize, node: usize, occupants: &[Vec<CoreOccupant<'_>>]) -> Vec<TextTreeNode> {
        let cores = self.topology.cores.iter().enumerate();
        let cores: Vec<(usize, &CpuCore)> =
            cores.filter(|(_, core)| core.socket == socket && core.node == node).collect();
        let runs = cores.chunk_by(|(a, _), (b, _)| occupants[*a].is_empty() && occupants[*b].is_empty());
        runs.map(|run| match run {
            [(position, core)] if !occupants[*position].is_empty() => {
                TextTreeNode::leaf(core_text(core, &occupants[*position]))
            }
            idle => TextTreeNode::leaf(idle_text(idle)),
        })
        .collect()
    }

    fn devices<'a>(
        &'a self,
        is_meant: impl Fn(&TopologyDevice) -> bool + 'a,
    ) -> impl Iterator<Item = TextTreeNode> + 'a {
        let devices = self.topology.devices.iter().filter(move |device| is_meant(device));
        devices.map(|device| TextTreeNode::leaf(self.device_text(device)))
    }

    fn device_text(&self, device: &TopologyDevice) -> String {
        let place = [device.pci.as_deref(), device.controller.as_deref()].map(|part| part.map(escaped_text));
        let place = match place {
            [Some(pci), Some(controller)] => format!("  {pci} on {controller}"),
            [Some(part), None] | [None, Some(part)] => format!("  {part}"),
            [None, None] => String::new(),
        };
        let nodes: Vec<String> =
            device.nodes.iter().map(|&node| self.topology.nodes[node].id.to_string()).collect();
        let nodes =
            if nodes.len() == 1 { String::new() } else { format!("  next to nodes {}", nodes.join(",")) };
        format!("{} {}{place}{nodes}", kind_name(device.kind), escaped_text(&device.name))
    }

    fn write_costs(&self, out: &mut dyn Write) -> io::Result<()> {
        let nodes = &self.topology.nodes;
        if !(2..=TABLE_NODES_MAX).contains(&nodes.len()) {
            return Ok(());
        }
        let source = match self.costs.origin() {
            CostOrigin::Distances => "the firmware's distances",
            CostOrigin::Assumed => "assumed, as the firmware tells no distances",
            CostOrigin::Measured => "measured bandwidths",
            CostOrigin::Given => "given",
        };
        writeln!(out, "\ncost of memory, from a node's cores ({source})")?;
        let mut table = TextTable::new(&format!("<{}", ">".repeat(nodes.len())));
        let names: Vec<String> = nodes.iter().map(|node| format!("node {}", node.id)).collect();
        let mut rows = vec![(String::new(), names.clone())];
        for (from, name) in names.into_iter().enumerate().filter(|(from, _)| self.topology.has_cores(*from)) {
            let costs = (0..nodes.len()).map(|to| format!("{:.2}", self.costs.memory(from, to)));
            rows.push((name, costs.collect()));
        }
        for (name, cells) in &rows {
            let cells = cells.iter().map(|cell| cell as &dyn Display);
            table.row(&iter::once(name as &dyn Display).chain(cells).collect::<Vec<_>>());
        }
        table.write("  ", out)
    }

    fn write_measured(&self, out: &mut dyn Write) -> io::Result<()> {
        let Some(measured) = &self.measured else { return Ok(()) };
        writeln!(out, "\nmeasured, one thread reading")?;
        let mut table = TextTable::headed(&["<memory", ">pairs", ">MB/s", ">latency ns"]);
        for way in measured.node_pair_speeds(&self.topology) {
            let (rate, latency) = (way.mb_per_s, way.latency_ns);
            table.row(&[&way.name, &way.pairs, &format_args!("{rate:.0}"), &format_args!("{latency:.1}")]);
        }
        table.write("  ", out)
    }

    fn write_lanes(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "\nplacement {}", self.placement.scheme)?;
        for reason in &self.placement.reasons {
            writeln!(out, "  {}", escaped_text(reason))?;
        }
        self.placement.lanes.iter().enumerate().try_for_each(|(lane, placement)| {
            writeln!(out, "lane {lane}  {}", self.lane_text(placement))?;
            for (role, threads) in threads_by_role(lane, placement) {
                writeln!(out, "  {:7} {}", role.name(), seats_text(&threads))?;
            }
            Ok(())
        })
    }

    fn lane_text(&self, lane: &LanePlacement) -> String {
        let mut parts = Vec::new();
        if lane.memory.is_empty() {
            parts.push("not bound".to_owned());
        } else {
            parts.push(format!("socket {}", self.topology.sockets[lane.socket].id));
            parts.push(format!(
                "buffer on node{} {}",
                if lane.memory.len() == 1 { "" } else { "s" },
                lane.memory
            ));
        }
        parts.extend(lane.nic.as_deref().map(|nic| format!("NIC {}", escaped_text(nic))));
        if !lane.disks.is_empty() {
            let disks: Vec<String> = lane.disks.iter().map(|disk| escaped_text(disk)).collect();
            parts.push(format!("disks {}", disks.join(" ")));
        }
        parts.join("  ")
    }
}

fn threads_by_role(lane: usize, placement: &LanePlacement) -> Vec<(ThreadRole, Vec<CoreOccupant<'_>>)> {
    let roles = [ThreadRole::Comm, ThreadRole::Master, ThreadRole::Io];
    let roles = roles.map(|role| {
        let occupants = core_threads::lane_threads(lane, placement);
        (role, occupants.filter(|occupant| occupant.role == role).collect())
    });
    roles.into()
}

/// Returns the CPUs in the order of the threads, and the range of their costs.
fn seats_text(threads: &[CoreOccupant<'_>]) -> String {
    if threads.iter().all(|thread| thread.seat.cpus.is_empty()) {
        return format!("{} anywhere", count_with_noun(threads.len() as u64, "thread", "threads"));
    }
    let cpus: Vec<String> = threads.iter().map(|thread| thread.seat.cpus.to_string()).collect();
    let costs: Vec<f64> = threads.iter().filter_map(|thread| thread.seat.cost).collect();
    let (least, most) =
        costs.iter().fold((f64::INFINITY, 0.0_f64), |(a, b), &cost| (a.min(cost), b.max(cost)));
    let cost = match costs.len() {
        0 => String::new(),
        _ if most - least < 0.005 => format!("  cost {least:.2}"),
        _ => format!("  cost {least:.2} to {most:.2}"),
    };
    format!("CPU {}{cost}", cpus.join(" "))
}

fn core_text(core: &CpuCore, occupants: &[CoreOccupant<'_>]) -> String {
    let threads: Vec<String> =
        occupants.iter().map(|who| format!("lane {}: {}", who.lane, escaped_text(&who.text()))).collect();
    format!("core of CPU {}{}  {}", core.cpus, speed_text(core), threads.join("; "))
}

fn idle_text(cores: &[(usize, &CpuCore)]) -> String {
    let cpus: CpuSet = cores.iter().flat_map(|(_, core)| core.cpus.iter()).collect();
    format!("{} of CPU {cpus}  free", count_with_noun(cores.len() as u64, "core", "cores"))
}

fn speed_text(core: &CpuCore) -> String {
    match core.capacity {
        1_024 => String::new(),
        capacity => format!(" ({}% of the fastest)", capacity * 100 / 1_024),
    }
}

pub(super) fn kind_name(kind: MachineDeviceKind) -> &'static str {
    match kind {
        MachineDeviceKind::Nic => "NIC",
        MachineDeviceKind::Disk => "disk",
        MachineDeviceKind::Rdma => "RDMA",
    }
}

fn escaped_text(text: &str) -> String {
    escape(text.as_bytes())
}

fn write_branches(out: &mut dyn Write, branches: &[TextTreeNode], indent: &str) -> io::Result<()> {
    for (index, branch) in branches.iter().enumerate() {
        let is_last = index + 1 == branches.len();
        let (fork, beneath) = if is_last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
        writeln!(out, "{indent}{fork}{}", branch.text)?;
        write_branches(out, &branch.twigs, &format!("{indent}{beneath}"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::views::output::tests::text_of;
    use crate::views::topo::{MeasuredMemorySpeeds, test_reports};

    fn text(report: &TopologyReport) -> String {
        text_of(|out| report.write_tree(out))
    }

    #[test]
    fn the_whole_is_shown() {
        let expected = "\
small.xml: 2 sockets, 3 NUMA nodes, 4 cores, 6 CPUs
├─ socket 0
│  └─ node 0  1.0 GiB  buffer of lane 0
│     ├─ core of CPU 0,2  lane 0: comm 1.20 from eth0; lane 0: I/O 3.20 from <d&\\tk>;";
        let found = text(&test_reports::small());
        assert!(found.starts_with(expected), "{found}");
        for words in [
            "│     └─ NIC eth0  0000:01:00.0 on pci0000:00\n",
            "   ├─ node 1  2.0 GiB  buffer of lane 1\n",
            "   └─ node 2  1.0 GiB  no cores\n",
            "disk <d&\\tk>  0000:81:00.0\n",
            "\ncost of memory, from a node's cores (assumed, as the firmware tells no distances)\n",
            "  node 0    1.00    2.00    2.00\n",
            "\nplacement mts\n  2 NUMA nodes with cores",
            "lane 1  socket 1  buffer on node 1  NIC eth0  disks <d&\\tk>\n",
        ] {
            assert!(found.contains(words), "{words}: {found}");
        }
    }

    #[test]
    fn what_is_not_bound_is_said_to_be_free() {
        let found = text(&test_reports::free());
        assert!(found.contains("   ├─ 2 cores of CPU 0-3  free\n"), "{found}");
        assert!(found.contains("lane 0  not bound\n  comm    1 thread anywhere\n"), "{found}");
        assert!(found.contains("  I/O     3 threads anywhere\n"), "{found}");
    }

    #[test]
    fn what_was_measured_is_shown() {
        let mut report = test_reports::small();
        let mut measured = MeasuredMemorySpeeds::empty(3);
        measured.mb_per_s[0] = vec![3160.43, 2131.24, 2000.0];
        measured.latency_ns[0] = vec![81.25, 130.0, 140.0];
        report.measured = Some(measured);
        let found = text(&report);
        assert!(found.contains("  local             1  3160        81.2\n"), "{found}");
        assert!(found.contains("  other socket      2  2066       135.0\n"), "{found}");
    }
}
