//! Whole placements on the machines of `tests/fixtures`, as trees: `CARRACK_UPDATE_GOLDEN=1` writes them
//! anew.

use std::fmt::Write;

use crate::common::fixture;
use carrack_machine::{
    EndThreadPlacement, PlacementScheme, ThreadPlacementRequest, ThreadSeat, Topology, plan_thread_placement,
};

fn seat(topology: &Topology, seat: &ThreadSeat) -> String {
    let core = topology.cores.iter().find(|core| !seat.cpus.is_empty() && seat.cpus.is_subset(&core.cpus));
    let node = core.map_or("-".into(), |core| topology.nodes[core.node].id.to_string());
    let way = seat.device.as_ref().zip(seat.cost);
    let cost = way.map_or(String::new(), |(device, cost)| format!(", {cost:.3} from {device}"));
    format!(
        "cpu {} on node {node}{cost}",
        if seat.cpus.is_empty() { "any".into() } else { seat.cpus.to_string() }
    )
}

fn tree(topology: &Topology, placement: &EndThreadPlacement) -> String {
    let mut text = format!("scheme {}\n", placement.scheme);
    placement.reasons.iter().for_each(|reason| writeln!(text, "  because {reason}").unwrap());
    for (index, lane) in placement.lanes.iter().enumerate() {
        let socket = topology.sockets[lane.socket].id;
        let memory = if lane.memory.is_empty() { "any".into() } else { lane.memory.to_string() };
        let nic = lane.nic.as_deref().unwrap_or("-");
        writeln!(
            text,
            "lane {index}: socket {socket}, buffer on nodes {memory}, nic {nic}, disks {:?}",
            lane.disks
        )
        .unwrap();
        writeln!(text, "  comm   {}", seat(topology, &lane.comm)).unwrap();
        writeln!(text, "  master {}", seat(topology, &lane.master)).unwrap();
        lane.io.iter().for_each(|io| writeln!(text, "  io     {}", seat(topology, io)).unwrap());
    }
    text
}

#[track_caller]
fn assert_golden(name: &str, topology: &Topology, request: &ThreadPlacementRequest) {
    let found = tree(topology, &plan_thread_placement(topology, request));
    let path = crate::common::path(&format!("golden/{name}.txt"));
    if std::env::var_os("CARRACK_UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &found).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(
        found,
        expected,
        "{}: renew it with CARRACK_UPDATE_GOLDEN=1 if the change is meant",
        path.display()
    );
}

fn request(io_threads: usize, nic: &str, disks: &[&str]) -> ThreadPlacementRequest {
    ThreadPlacementRequest {
        io_threads,
        nic: (!nic.is_empty()).then(|| nic.to_owned()),
        disks: disks.iter().map(|&disk| disk.to_owned()).collect(),
        ..ThreadPlacementRequest::default()
    }
}

#[test]
fn one_node() {
    assert_golden("one-node", &fixture("one-node"), &request(8, "eth0", &["vda"]));
}

#[test]
fn the_mts_papers_machine() {
    let machine = fixture("mts-2x2x6");
    assert_golden("mts-2x2x6", &machine, &request(16, "ib0", &[]));
    for scheme in [PlacementScheme::Off, PlacementScheme::Single, PlacementScheme::Mmb] {
        let request = ThreadPlacementRequest { scheme, ..request(8, "ib0", &[]) };
        assert_golden(&format!("mts-2x2x6-{scheme}"), &machine, &request);
    }
    assert_golden("mts-2x2x6-few-threads", &machine, &request(4, "ib0", &[]));
    assert_golden("mts-2x2x6-many-threads", &machine, &request(48, "ib0", &[]));
    let five_lanes = ThreadPlacementRequest { lanes: Some(5), ..request(20, "ib0", &[]) };
    assert_golden("mts-2x2x6-5-lanes", &machine, &five_lanes);
}

#[test]
fn the_mts_papers_machine_in_a_cpuset() {
    assert_golden("mts-2x2x6-cpuset", &fixture("mts-2x2x6-cpuset"), &request(8, "ib0", &[]));
}

#[test]
fn a_node_without_memory() {
    let machine = fixture("mts-2x2x6-node-without-memory");
    assert_golden("mts-2x2x6-node-without-memory", &machine, &request(16, "ib0", &[]));
}

#[test]
fn the_mdtm_papers_machine() {
    let machine = fixture("mdtm-4x6");
    assert_golden("mdtm-4x6", &machine, &request(16, "eth2", &["sda", "sdb"]));
    for (name, disk) in [("raid", "sdb"), ("ssd", "sda")] {
        let request =
            ThreadPlacementRequest { scheme: PlacementScheme::Single, ..request(6, "eth2", &[disk]) };
        assert_golden(&format!("mdtm-4x6-{name}"), &machine, &request);
    }
}

#[test]
fn two_epycs() {
    let disks = ["nvme0n1", "nvme1n1", "nvme2n1", "nvme3n1", "nvme4n1", "nvme5n1"];
    let machine = fixture("epyc-2x64-nps4");
    assert_golden("epyc-2x64-nps4", &machine, &request(32, "enp161s0f0np0", &disks));
    let eight_lanes = ThreadPlacementRequest { lanes: Some(8), ..request(32, "enp161s0f0np0", &disks) };
    assert_golden("epyc-2x64-nps4-8-lanes", &machine, &eight_lanes);
}

#[test]
fn sockets_of_different_size_and_cores_of_different_speed() {
    let machine = fixture("different-sockets");
    assert_golden("different-sockets", &machine, &request(16, "ens2f0", &[]));
    let core_loads = [(0, 0.95), (2, 0.5)].into();
    assert_golden(
        "different-sockets-busy",
        &machine,
        &ThreadPlacementRequest { core_loads, ..request(8, "", &[]) },
    );
}

#[test]
fn memory_without_cpus() {
    assert_golden("memory-without-cpus", &fixture("memory-without-cpus"), &request(12, "", &[]));
}

#[test]
fn sockets_that_share_nodes() {
    assert_golden("shared-nodes", &fixture("shared-nodes"), &request(8, "", &[]));
}
