//! Machines as they are read: hwloc's XML of either format, synthetic descriptions, this machine; and odd
//! input.

use crate::common::{fixture, fixture_text, synthetic};
use carrack_machine::{MachineDeviceKind, NumaMemoryCosts, Topology, TopologyError, TopologyOrigin};
use proptest::prelude::*;

/// Sockets, nodes and cores; what each node has.
fn shape(topology: &Topology) -> (usize, Vec<String>, usize) {
    let node = |node: &carrack_machine::NumaNode| format!("{}@{}:{}", node.id, node.socket, node.cpus);
    (topology.sockets.len(), topology.nodes.iter().map(node).collect(), topology.cores.len())
}

#[test]
fn the_mts_papers_machine() {
    let topology = fixture("mts-2x2x6");
    let nodes = ["0@0:0-5", "1@0:6-11", "2@1:12-17", "3@1:18-23"].map(String::from).to_vec();
    assert_eq!(shape(&topology), (2, nodes, 24));
    assert_eq!(topology.distances[1], [11, 10, 21, 21]);
    let devices: Vec<_> =
        topology.devices.iter().map(|d| (d.name.as_str(), d.kind, d.nodes.clone())).collect();
    assert_eq!(
        devices,
        [("ib0", MachineDeviceKind::Nic, vec![0]), ("mlx5_0", MachineDeviceKind::Rdma, vec![0])]
    );
    assert_eq!(topology.device("ib0").unwrap().pci.as_deref(), Some("0000:03:00.0"));
    assert_eq!(topology.device("ib0").unwrap().controller.as_deref(), Some("pci0000:00"));
}

#[test]
fn format_3_has_flags_for_devices() {
    let topology = fixture("mdtm-4x6");
    let place = |name: &str| topology.device(name).map(|device| (device.kind, device.nodes.clone()));
    assert_eq!(place("eth2"), Some((MachineDeviceKind::Nic, vec![0])));
    assert_eq!(place("sdb"), Some((MachineDeviceKind::Disk, vec![0])));
    assert_eq!(place("sda"), Some((MachineDeviceKind::Disk, vec![3])));
}

#[test]
fn only_what_is_allowed_is_there() {
    let topology = fixture("mts-2x2x6-cpuset");
    assert_eq!(shape(&topology), (2, ["1@0:8-11", "3@1:18-19"].map(String::from).to_vec(), 6));
    assert_eq!(topology.distances, [[10, 21], [21, 10]]);
    // The NIC's own node may not be used: it counts as being at the nearest.
    assert_eq!(topology.device("ib0").unwrap().nodes, [0]);
}

#[test]
fn cores_without_memory_take_the_nearest() {
    let topology = fixture("mts-2x2x6-node-without-memory");
    assert_eq!(topology.node_ids().to_string(), "0,2-3");
    assert!(topology.cores.iter().filter(|core| core.socket == 0).all(|core| core.node == 0));
    assert_eq!(topology.nodes[0].cpus.to_string(), "0-5");
}

#[test]
fn memory_without_cpus_has_no_cores() {
    let topology = fixture("memory-without-cpus");
    let nodes = ["0@0:0-7", "1@0:", "2@1:8-15", "3@1:", "4@0:"].map(String::from).to_vec();
    assert_eq!(shape(&topology), (2, nodes, 8));
    assert_eq!(topology.nodes_with_cores(), 2);
}

#[test]
fn cores_have_threads_caches_and_speeds() {
    let epyc = fixture("epyc-2x64-nps4");
    assert_eq!(epyc.cores[1].cpus.to_string(), "1,129");
    assert_eq!(
        (epyc.cores[7].cache == epyc.cores[0].cache, epyc.cores[8].cache == epyc.cores[0].cache),
        (true, false)
    );
    let different = fixture("different-sockets");
    assert_eq!((different.cores[0].capacity, different.cores[4].capacity), (1_024, 512));
}

#[test]
fn sockets_may_share_nodes() {
    let topology = fixture("shared-nodes");
    let nodes: Vec<String> = topology.sockets.iter().map(|socket| socket.nodes.to_string()).collect();
    assert_eq!(nodes, ["0", "0", "1", "1"]);
    assert!(topology.same_socket(0, 0) && !topology.same_socket(0, 1));
}

#[test]
fn descriptions_are_read() {
    let Some(topology) = synthetic("pack:2 numa:2 core:6 pu:1") else { return };
    assert_eq!(shape(&topology), shape(&fixture("mts-2x2x6")));
    assert_eq!(topology.origin, TopologyOrigin::Synthetic("pack:2 numa:2 core:6 pu:1".into()));
    let bad = Topology::from_synthetic("no machine").unwrap_err();
    assert!(matches!(bad, TopologyError::BadSynthetic(_)) && bad.hint().is_some(), "{bad}");
    assert!(Topology::from_synthetic("pack:2\0").is_err());
}

#[test]
fn this_machine_is_what_the_process_may_use() {
    let here = rustix::thread::sched_getaffinity(None).unwrap();
    for topology in [Topology::this_machine(), Topology::for_transfer()] {
        assert_eq!(topology.cpus().len() as u32, here.count(), "{topology:?}");
        assert!(topology.cpus().iter().all(|cpu| here.is_set(cpu as usize)));
        assert!(matches!(topology.origin, TopologyOrigin::Hwloc | TopologyOrigin::Sysfs));
    }
}

#[test]
fn costs_follow_distances_bandwidths_or_kinds() {
    let topology = fixture("mts-2x2x6");
    let costs = NumaMemoryCosts::from_distances(&topology);
    assert_eq!([costs.memory(0, 0), costs.memory(0, 1), costs.memory(0, 2)], [1.0, 1.1, 2.1]);
    // Table 1 of the MTS paper; the last row was not measured.
    let (local, same, other) = (3160.43, 3038.85, 2131.24);
    let row = |node: usize| {
        (0..4).map(move |to| {
            if to == node {
                local
            } else if to / 2 == node / 2 {
                same
            } else {
                other
            }
        })
    };
    let measured: Vec<Vec<f64>> = (0..3).map(|node| row(node).collect()).collect();
    let costs = NumaMemoryCosts::from_bandwidths(&topology, &measured);
    assert!((costs.memory(0, 1) - 1.04).abs() < 0.01 && (costs.memory(0, 2) - 1.48).abs() < 0.01);
    assert_eq!(costs.memory(3, 0), 2.1);
    let costs = NumaMemoryCosts::from_kinds(&topology, 1.0, 1.04, f64::NAN);
    assert_eq!((costs.memory(2, 3), costs.memory(9, 9)), (1.04, 1.0));
    assert!(costs.memory(0, 3) > 100.0);
}

#[test]
fn what_is_no_topology_is_refused() {
    let deep = format!(
        "<topology version=\"2.0\">{}{}</topology>",
        "<object>".repeat(20_000),
        "</object>".repeat(20_000)
    );
    let bombs: String =
        (1..9).map(|i| format!("<!ENTITY e{i} \"{}\">", format!("&e{};", i - 1).repeat(50))).collect();
    let bomb =
        format!("<!DOCTYPE topology [<!ENTITY e0 \"x\">{bombs}]><topology version=\"2.0\">&e8;</topology>");
    let texts = [
        "",
        "<a/>",
        "<topology/>",
        "<topology version=\"1.0\"/>",
        "<topology version=\"4.1\"/>",
        "<topology version=\"2.0\"/>",
        "<topology version=\"2.0\"><object type=\"PU\" cpuset=\"0xf...f\"/></topology>",
        "<topology version=\"2.0\"><object type=\"Core\" cpuset=\"0x1\"/></topology>",
        &deep,
        &bomb,
    ];
    for text in texts {
        let error = Topology::from_xml(text, "x").unwrap_err();
        assert!(!error.to_string().is_empty(), "{text:.80}");
    }
    let other = Topology::from_xml("<a/>", "x").unwrap_err();
    assert!(matches!(other, TopologyError::OtherFormat) && other.hint().is_some());
}

/// What has to hold for whatever was read, so that planning on it does not fail.
fn is_sound(topology: &Topology) -> bool {
    let (sockets, nodes) = (topology.sockets.len(), topology.nodes.len());
    let count = topology.distances.len();
    let mut cpus = 0;
    topology.cores.iter().for_each(|core| cpus += core.cpus.len());
    sockets > 0
        && nodes > 0
        && cpus == topology.cpus().len()
        && topology
            .cores
            .iter()
            .all(|c| c.socket < sockets && c.node < nodes && !c.cpus.is_empty() && c.capacity > 0)
        && topology.nodes.iter().all(|node| node.socket < sockets)
        && topology.devices.iter().all(|d| !d.nodes.is_empty() && d.nodes.iter().all(|&node| node < nodes))
        && (count == 0 || count == nodes && topology.distances.iter().all(|row| row.len() == nodes))
}

fn number() -> impl Strategy<Value = String> {
    prop_oneof![
        "[0-9]{1,3}",
        "0x[0-9a-f]{1,8}",
        "0x[0-9a-f]{8},,0x[0-9a-f]{1,8}",
        Just(String::new()),
        Just("0xf...f".into()),
        Just("-1".into()),
        Just("99999999999999999999".into()),
        "\\PC{0,8}",
    ]
}

proptest! {
    /// A machine's file with some of its attributes replaced: an error or a sound machine, on which can be
    /// planned.
    #[test]
    fn odd_files_do_no_harm(
        name in proptest::sample::select(crate::common::FIXTURES.to_vec()),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), number()), 1..6),
    ) {
        let text = fixture_text(name);
        let mut pieces: Vec<String> = text.split('"').map(str::to_owned).collect();
        for (index, value) in changes {
            let place = index.index(pieces.len() / 2) * 2 + 1;
            pieces[place] = value.replace(['"', '<', '&'], "");
        }
        if let Ok(topology) = Topology::from_xml(&pieces.join("\""), name) {
            prop_assert!(is_sound(&topology), "{topology:?}");
            let request = carrack_machine::ThreadPlacementRequest { io_threads: 9, ..Default::default() };
            prop_assert!(!carrack_machine::plan_thread_placement(&topology, &request).lanes.is_empty());
        }
    }

    /// The same with pieces of the text cut out or twice.
    #[test]
    fn damaged_files_do_no_harm(
        name in proptest::sample::select(crate::common::FIXTURES.to_vec()),
        from in any::<prop::sample::Index>(),
        length in 0..400usize,
        doubled in any::<bool>(),
    ) {
        let mut lines: Vec<String> = fixture_text(name).split_inclusive('>').map(str::to_owned).collect();
        let from = from.index(lines.len());
        let to = (from + length / 20).min(lines.len());
        if doubled {
            let again = lines[from..to].to_vec();
            lines.splice(to..to, again);
        } else {
            lines.drain(from..to);
        }
        if let Ok(topology) = Topology::from_xml(&lines.concat(), name) {
            prop_assert!(is_sound(&topology), "{topology:?}");
        }
    }
}
