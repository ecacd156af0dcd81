//! `carrack topo --json`: one object on stdout. Field names are stable; new ones may come.
//!
//! | field | what |
//! | --- | --- |
//! | `origin`, `name` | `hwloc` or `sysfs` for this machine, `xml` or `synthetic`; the file or description, else null |
//! | `sockets` | `socket` (the kernel's number), `nodes` (numbers), `cpus` |
//! | `nodes` | `node`, `socket`, `cpus`, `memory_bytes` (null if unknown) |
//! | `cores` | `cpus`, `socket`, `node` (nearest with memory), `cache` (equal: shared), `capacity` (fastest: 1024) |
//! | `devices` | `name`, `kind` (`nic`, `disk`, `rdma`), `nodes` (numbers), `pci`, `controller` |
//! | `distances` | the firmware's, in the order of `nodes`; null if it tells none |
//! | `costs` | `origin` (`distances`, `assumed`, `measured`, `given`), `memory`: rows are the cores' nodes, columns the memory's |
//! | `measured` | null, or `mb_per_s`, `latency_ns` as `costs.memory`, and `ways`: `way`, `pairs`, `mb_per_s`, `latency_ns` |
//! | `placement` | `scheme`, `reasons`, `lanes` |
//! | a lane | `socket`, `memory_nodes`, `nic`, `disks`, `comm`, `master`, `io` (a list) |
//! | a seat | `cpus` (empty: anywhere), `device`, `cost` |

use std::io::{self, Write};

use carrack_machine::{CostOrigin, DeviceKind, LanePlacement, Origin, Seat, Topology};
use serde::Serialize;

use super::{Measured, Report};

impl Report {
    /// Writes the object and the end of the line.
    pub fn write_json(&self, out: &mut dyn Write) -> io::Result<()> {
        serde_json::to_writer(&mut *out, &Whole::of(self))?;
        out.write_all(b"\n")
    }
}

#[derive(Serialize)]
struct Whole<'a> {
    origin: &'static str,
    name: Option<&'a str>,
    sockets: Vec<SocketJson>,
    nodes: Vec<NodeJson>,
    cores: Vec<CoreJson>,
    devices: Vec<DeviceJson<'a>>,
    distances: Option<&'a [Vec<u32>]>,
    costs: CostsJson,
    measured: Option<MeasuredJson<'a>>,
    placement: PlacementJson<'a>,
}

#[derive(Serialize)]
struct SocketJson {
    socket: u32,
    nodes: Vec<u32>,
    cpus: Vec<u32>,
}

#[derive(Serialize)]
struct NodeJson {
    node: u32,
    socket: u32,
    cpus: Vec<u32>,
    memory_bytes: Option<u64>,
}

#[derive(Serialize)]
struct CoreJson {
    cpus: Vec<u32>,
    socket: u32,
    node: u32,
    cache: u32,
    capacity: u32,
}

#[derive(Serialize)]
struct DeviceJson<'a> {
    name: &'a str,
    kind: &'static str,
    nodes: Vec<u32>,
    pci: Option<&'a str>,
    controller: Option<&'a str>,
}

#[derive(Serialize)]
struct CostsJson {
    origin: &'static str,
    memory: Vec<Vec<f64>>,
}

#[derive(Serialize)]
struct MeasuredJson<'a> {
    mb_per_s: &'a [Vec<f64>],
    latency_ns: &'a [Vec<f64>],
    ways: Vec<WayJson>,
}

#[derive(Serialize)]
struct WayJson {
    way: &'static str,
    pairs: usize,
    mb_per_s: f64,
    latency_ns: f64,
}

#[derive(Serialize)]
struct PlacementJson<'a> {
    scheme: String,
    reasons: &'a [String],
    lanes: Vec<LaneJson<'a>>,
}

#[derive(Serialize)]
struct LaneJson<'a> {
    socket: u32,
    memory_nodes: Vec<u32>,
    nic: Option<&'a str>,
    disks: &'a [String],
    comm: SeatJson<'a>,
    master: SeatJson<'a>,
    io: Vec<SeatJson<'a>>,
}

#[derive(Serialize)]
struct SeatJson<'a> {
    cpus: Vec<u32>,
    device: Option<&'a str>,
    cost: Option<f64>,
}

impl<'a> Whole<'a> {
    fn of(report: &'a Report) -> Whole<'a> {
        let Topology { origin, distances, .. } = &report.topology;
        let (origin, name) = match origin {
            Origin::Hwloc => ("hwloc", None),
            Origin::Sysfs => ("sysfs", None),
            Origin::Xml(name) => ("xml", Some(name.as_str())),
            Origin::Synthetic(text) => ("synthetic", Some(text.as_str())),
        };
        let machine = Machine(&report.topology);
        Whole {
            origin,
            name,
            sockets: machine.sockets(),
            nodes: machine.nodes(),
            cores: machine.cores(),
            devices: machine.devices(),
            distances: (!distances.is_empty()).then_some(distances),
            costs: CostsJson::of(report),
            measured: report.measured.as_ref().map(|measured| MeasuredJson::of(measured, &report.topology)),
            placement: PlacementJson::of(report),
        }
    }
}

/// Positions become the kernel's numbers.
struct Machine<'a>(&'a Topology);

impl<'a> Machine<'a> {
    fn sockets(&self) -> Vec<SocketJson> {
        let sockets = self.0.sockets.iter();
        sockets
            .map(|socket| SocketJson {
                socket: socket.id,
                nodes: socket.nodes.iter().collect(),
                cpus: socket.cpus.iter().collect(),
            })
            .collect()
    }

    fn nodes(&self) -> Vec<NodeJson> {
        let nodes = self.0.nodes.iter();
        nodes
            .map(|node| NodeJson {
                node: node.id,
                socket: self.0.sockets[node.socket].id,
                cpus: node.cpus.iter().collect(),
                memory_bytes: (node.memory_bytes > 0).then_some(node.memory_bytes),
            })
            .collect()
    }

    fn cores(&self) -> Vec<CoreJson> {
        let cores = self.0.cores.iter();
        cores
            .map(|core| CoreJson {
                cpus: core.cpus.iter().collect(),
                socket: self.0.sockets[core.socket].id,
                node: self.0.nodes[core.node].id,
                cache: core.cache,
                capacity: core.capacity,
            })
            .collect()
    }

    fn devices(&self) -> Vec<DeviceJson<'a>> {
        let kind = |kind| match kind {
            DeviceKind::Nic => "nic",
            DeviceKind::Disk => "disk",
            DeviceKind::Rdma => "rdma",
        };
        let devices = self.0.devices.iter();
        devices
            .map(|device| DeviceJson {
                name: &device.name,
                kind: kind(device.kind),
                nodes: device.nodes.iter().map(|&node| self.0.nodes[node].id).collect(),
                pci: device.pci.as_deref(),
                controller: device.controller.as_deref(),
            })
            .collect()
    }
}

impl CostsJson {
    fn of(report: &Report) -> CostsJson {
        let origin = match report.costs.origin() {
            CostOrigin::Distances => "distances",
            CostOrigin::Assumed => "assumed",
            CostOrigin::Measured => "measured",
            CostOrigin::Given => "given",
        };
        let nodes = 0..report.topology.nodes.len();
        let row = |from| nodes.clone().map(|to| report.costs.memory(from, to)).collect();
        CostsJson { origin, memory: nodes.clone().map(row).collect() }
    }
}

impl<'a> MeasuredJson<'a> {
    fn of(measured: &'a Measured, topology: &Topology) -> MeasuredJson<'a> {
        let ways = measured.ways(topology).into_iter().map(|way| WayJson {
            way: way.name,
            pairs: way.pairs,
            mb_per_s: way.mb_per_s,
            latency_ns: way.latency_ns,
        });
        MeasuredJson { mb_per_s: &measured.mb_per_s, latency_ns: &measured.latency_ns, ways: ways.collect() }
    }
}

impl<'a> PlacementJson<'a> {
    fn of(report: &'a Report) -> PlacementJson<'a> {
        let placement = &report.placement;
        let lanes = placement.lanes.iter().map(|lane| LaneJson::of(lane, &report.topology));
        let scheme = placement.scheme.to_string();
        PlacementJson { scheme, reasons: &placement.reasons, lanes: lanes.collect() }
    }
}

impl<'a> LaneJson<'a> {
    fn of(lane: &'a LanePlacement, topology: &Topology) -> LaneJson<'a> {
        LaneJson {
            socket: topology.sockets[lane.socket].id,
            memory_nodes: lane.memory.iter().collect(),
            nic: lane.nic.as_deref(),
            disks: &lane.disks,
            comm: SeatJson::of(&lane.comm),
            master: SeatJson::of(&lane.master),
            io: lane.io.iter().map(SeatJson::of).collect(),
        }
    }
}

impl<'a> SeatJson<'a> {
    fn of(seat: &'a Seat) -> SeatJson<'a> {
        SeatJson { cpus: seat.cpus.iter().collect(), device: seat.device.as_deref(), cost: seat.cost }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::topo_report::samples;

    fn object(report: &Report) -> Value {
        let mut text = Vec::new();
        report.write_json(&mut text).unwrap();
        serde_json::from_slice(&text).unwrap()
    }

    #[test]
    fn numbers_are_the_kernels() {
        let found = object(&samples::small());
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
        let found = object(&samples::small())["placement"].clone();
        assert_eq!(found["scheme"], json!("mts"));
        let lane = &found["lanes"][0];
        assert_eq!((&lane["memory_nodes"], &lane["nic"]), (&json!([0]), &json!("eth0")));
        assert_eq!(lane["comm"], json!({"cpus": [0], "device": "eth0", "cost": 1.2}));
        assert_eq!(lane["io"].as_array().unwrap().len(), 4);
        let free = object(&samples::free())["placement"]["lanes"][0].clone();
        assert_eq!(free["io"][0], json!({"cpus": [], "device": null, "cost": null}));
    }

    #[test]
    fn what_was_measured_is_there() {
        let mut report = samples::small();
        let mut measured = Measured::empty(3);
        measured.mb_per_s[0] = vec![3_000.0, 2_000.0, 2_000.0];
        measured.latency_ns[0] = vec![80.0, 120.0, 120.0];
        report.measured = Some(measured);
        let way = json!({"way": "local", "pairs": 1, "mb_per_s": 3000.0, "latency_ns": 80.0});
        assert_eq!(object(&report)["measured"]["ways"][0], way);
    }
}
