//! `carrack topo --json`: one object on stdout. Field names are stable; new ones may come.
//!
//! | field | content |
//! | --- | --- |
//! | `origin` | `hwloc` or `sysfs` for this machine, `xml` or `synthetic` |
//! | `name` | the file or description, else null |
//! | `sockets` | `socket` (the kernel's number), `nodes` (numbers), `cpus` |
//! | `nodes` | `node`, `socket`, `cpus`, `memory_bytes` (null if unknown) |
//! | `cores` | `cpus`, `socket`, `node` (nearest with memory), `cache` (equal: shared), `capacity` |
//! | `devices` | `name`, `kind` (`nic`, `disk`, `rdma`), `nodes` (numbers), `pci`, `controller` |
//! | `distances` | the firmware's, in the order of `nodes`; null without any |
//! | `costs` | `origin` (`distances`, `assumed`, `measured`, `given`), `memory` |
//! | `measured` | null, or `mb_per_s`, `latency_ns` as `costs.memory`, and `ways` |
//! | `placement` | `scheme`, `reasons`, `lanes` |
//! | a lane | `socket`, `memory_nodes`, `nic`, `disks`, `comm`, `master`, `io` (a list) |
//! | a seat | `cpus` (empty: anywhere), `device`, `cost` |
//! | a way | `way`, `pairs`, `mb_per_s`, `latency_ns` |
//!
//! The fastest core has the capacity 1,024. In `memory`, rows are the cores' nodes, columns the memory's.

use std::io::{self, Write};

use carrack_machine::{
    CostOrigin, CpuCore, CpuSet, CpuSocket, LanePlacement, MachineDeviceKind, NodeSet, NumaNode, ThreadSeat,
    Topology, TopologyDevice, TopologyOrigin,
};
use serde::Serialize;

use super::TopologyReport;
use super::measured::NodePairMemorySpeed;
use crate::views::json::write_line;

impl TopologyReport {
    /// Writes the object and the end of the line.
    pub fn write_json(&self, out: &mut dyn Write) -> io::Result<()> {
        write_line(&TopologyJson::of(self), out)
    }
}

#[derive(Serialize)]
struct TopologyJson<'a> {
    origin: &'static str,
    name: Option<&'a str>,
    sockets: &'a [CpuSocket],
    nodes: Vec<NodeJson<'a>>,
    cores: Vec<CoreJson<'a>>,
    devices: Vec<DeviceJson<'a>>,
    distances: Option<&'a [Vec<u32>]>,
    costs: MemoryCostsJson,
    measured: Option<MeasuredJson<'a>>,
    placement: PlacementJson<'a>,
}

#[derive(Serialize)]
struct NodeJson<'a> {
    node: u32,
    socket: u32,
    cpus: &'a CpuSet,
    memory_bytes: Option<u64>,
}

#[derive(Serialize)]
struct CoreJson<'a> {
    cpus: &'a CpuSet,
    socket: u32,
    node: u32,
    cache: u32,
    capacity: u32,
}

#[derive(Serialize)]
struct DeviceJson<'a> {
    name: &'a str,
    kind: MachineDeviceKind,
    nodes: Vec<u32>,
    pci: Option<&'a str>,
    controller: Option<&'a str>,
}

#[derive(Serialize)]
struct MemoryCostsJson {
    origin: CostOrigin,
    memory: Vec<Vec<f64>>,
}

#[derive(Serialize)]
struct MeasuredJson<'a> {
    mb_per_s: &'a [Vec<f64>],
    latency_ns: &'a [Vec<f64>],
    ways: Vec<NodePairMemorySpeed>,
}

#[derive(Serialize)]
struct PlacementJson<'a> {
    scheme: String,
    reasons: &'a [String],
    lanes: Vec<PlannedLaneJson<'a>>,
}

#[derive(Serialize)]
struct PlannedLaneJson<'a> {
    socket: u32,
    memory_nodes: &'a NodeSet,
    nic: Option<&'a str>,
    disks: &'a [String],
    comm: &'a ThreadSeat,
    master: &'a ThreadSeat,
    io: &'a [ThreadSeat],
}

impl<'a> TopologyJson<'a> {
    fn of(report: &'a TopologyReport) -> TopologyJson<'a> {
        let TopologyReport { topology, placement, costs, measured } = report;
        let (origin, name) = match &topology.origin {
            TopologyOrigin::Hwloc => ("hwloc", None),
            TopologyOrigin::Sysfs => ("sysfs", None),
            TopologyOrigin::Xml(name) => ("xml", Some(name.as_str())),
            TopologyOrigin::Synthetic(text) => ("synthetic", Some(text.as_str())),
        };
        let nodes = 0..topology.nodes.len();
        let memory = nodes.clone().map(|from| nodes.clone().map(|to| costs.memory(from, to)).collect());
        TopologyJson {
            origin,
            name,
            sockets: &topology.sockets,
            nodes: topology.nodes.iter().map(|node| NodeJson::of(node, topology)).collect(),
            cores: topology.cores.iter().map(|core| CoreJson::of(core, topology)).collect(),
            devices: topology.devices.iter().map(|device| DeviceJson::of(device, topology)).collect(),
            distances: (!topology.distances.is_empty()).then_some(&topology.distances),
            costs: MemoryCostsJson { origin: costs.origin(), memory: memory.collect() },
            measured: measured.as_ref().map(|measured| MeasuredJson {
                mb_per_s: &measured.mb_per_s,
                latency_ns: &measured.latency_ns,
                ways: measured.node_pair_speeds(topology),
            }),
            placement: PlacementJson {
                scheme: placement.scheme.to_string(),
                reasons: &placement.reasons,
                lanes: placement.lanes.iter().map(|lane| PlannedLaneJson::of(lane, topology)).collect(),
            },
        }
    }
}

impl<'a> NodeJson<'a> {
    fn of(node: &'a NumaNode, topology: &Topology) -> NodeJson<'a> {
        NodeJson {
            node: node.id,
            socket: topology.sockets[node.socket].id,
            cpus: &node.cpus,
            memory_bytes: (node.memory_bytes > 0).then_some(node.memory_bytes),
        }
    }
}

impl<'a> CoreJson<'a> {
    fn of(core: &'a CpuCore, topology: &Topology) -> CoreJson<'a> {
        CoreJson {
            cpus: &core.cpus,
            socket: topology.sockets[core.socket].id,
            node: topology.nodes[core.node].id,
            cache: core.cache,
            capacity: core.capacity,
        }
    }
}

impl<'a> DeviceJson<'a> {
    fn of(device: &'a TopologyDevice, topology: &Topology) -> DeviceJson<'a> {
        DeviceJson {
            name: &device.name,
            kind: device.kind,
            nodes: device.nodes.iter().map(|&node| topology.nodes[node].id).collect(),
            pci: device.pci.as_deref(),
            controller: device.controller.as_deref(),
        }
    }
}

impl<'a> PlannedLaneJson<'a> {
    fn of(lane: &'a LanePlacement, topology: &Topology) -> PlannedLaneJson<'a> {
        PlannedLaneJson {
            socket: topology.sockets[lane.socket].id,
            memory_nodes: &lane.memory,
            nic: lane.nic.as_deref(),
            disks: &lane.disks,
            comm: &lane.comm,
            master: &lane.master,
            io: &lane.io,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::views::output::tests::text_of;
    use crate::views::topo::{MeasuredMemorySpeeds, test_reports};

    fn object(report: &TopologyReport) -> Value {
        serde_json::from_str(&text_of(|out| report.write_json(out))).unwrap()
    }

    #[test]
    fn numbers_are_the_kernels() {
        let found = object(&test_reports::small());
        assert_eq!((&found["origin"], &found["name"]), (&json!("xml"), &json!("small.xml")));
        assert_eq!(found["sockets"][1], json!({"socket": 1, "nodes": [1, 2], "cpus": [4, 5]}));
        let node = json!({"node": 2, "socket": 1, "cpus": [], "memory_bytes": 1 << 30});
        assert_eq!(found["nodes"][2], node);
        let disk = json!({"name": "<d&\tk>", "kind": "disk", "nodes": [1], "pci": "0000:81:00.0", "controller": null});
        assert_eq!(found["devices"][1], disk);
        assert_eq!((&found["distances"], &found["measured"]), (&Value::Null, &Value::Null));
        assert_eq!(
            found["costs"],
            json!({"origin": "assumed", "memory": [[1.0, 2.0, 2.0], [2.0, 1.0, 1.2], [2.0, 1.2, 1.0]]})
        );
    }

    #[test]
    fn lanes_have_their_seats() {
        let found = object(&test_reports::small())["placement"].clone();
        assert_eq!(found["scheme"], json!("mts"));
        let lane = &found["lanes"][0];
        assert_eq!((&lane["memory_nodes"], &lane["nic"]), (&json!([0]), &json!("eth0")));
        assert_eq!(lane["comm"], json!({"cpus": [0], "device": "eth0", "cost": 1.2}));
        assert_eq!(lane["io"].as_array().unwrap().len(), 4);
        let free = object(&test_reports::free())["placement"]["lanes"][0].clone();
        assert_eq!(free["io"][0], json!({"cpus": [], "device": null, "cost": null}));
    }

    #[test]
    fn what_was_measured_is_there() {
        let mut report = test_reports::small();
        let mut measured = MeasuredMemorySpeeds::empty(3);
        measured.mb_per_s[0] = vec![3_000.0, 2_000.0, 2_000.0];
        measured.latency_ns[0] = vec![80.0, 120.0, 120.0];
        report.measured = Some(measured);
        let way = json!({"way": "local", "pairs": 1, "mb_per_s": 3000.0, "latency_ns": 80.0});
        assert_eq!(object(&report)["measured"]["ways"][0], way);
    }
}
