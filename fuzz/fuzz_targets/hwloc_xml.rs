//! A machine in hwloc's XML. Input: the text.
#![no_main]

use std::fmt::Write;

use carrack_machine::{IdSet, ThreadPlacementRequest, Topology, lanes_wanted, plan_thread_placement};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(topology) = Topology::from_xml(text, "input") else { return };
    is_sound(&topology);
    is_read_again(&topology);
    let names = || topology.devices.iter().map(|device| device.name.clone());
    let request =
        ThreadPlacementRequest { io_threads: 9, nic: names().next(), disks: names().collect(), ..ThreadPlacementRequest::default() };
    let placement = plan_thread_placement(&topology, &request);
    assert_eq!(placement.lanes.len(), lanes_wanted(&topology, &request));
    for lane in &placement.lanes {
        assert!(lane.memory.is_subset(&topology.node_ids()));
        for seat in [&lane.comm, &lane.master].into_iter().chain(&lane.io) {
            assert!(seat.cpus.is_subset(&topology.cpus()) && seat.cost.is_none_or(f64::is_finite));
        }
    }
});

fn is_sound(topology: &Topology) {
    let (sockets, nodes) = (topology.sockets.len(), topology.nodes.len());
    assert!(sockets > 0 && nodes > 0 && !topology.cores.is_empty());
    assert!(
        topology.cores.iter().all(|core| core.socket < sockets && core.node < nodes && !core.cpus.is_empty())
    );
    let cpus: usize = topology.cores.iter().map(|core| core.cpus.len()).sum();
    assert_eq!(cpus, topology.cpus().len(), "a CPU is in one core");
    assert!(topology.nodes.iter().all(|node| node.socket < sockets));
    assert!(topology.devices.iter().all(|device| !device.nodes.is_empty()));
    assert!(topology.devices.iter().flat_map(|device| &device.nodes).all(|&node| node < nodes));
    let is_square =
        topology.distances.iter().all(|row| row.len() == nodes) && topology.distances.len() == nodes;
    assert!(topology.distances.is_empty() || is_square);
}

/// Written plainly, it says the same of sockets, nodes and cores.
fn is_read_again(topology: &Topology) {
    let is_empty = |socket: usize| {
        topology.sockets[socket].cpus.is_empty() && topology.nodes.iter().all(|node| node.socket != socket)
    };
    if (0..topology.sockets.len()).any(is_empty) {
        // Several sockets said to have a node, and none was believed.
        return;
    }
    let mut text = String::from("<topology version=\"2.0\">");
    for (position, socket) in topology.sockets.iter().enumerate() {
        let nodes = topology.nodes.iter().filter(|node| node.socket == position).map(|node| node.id);
        let nodes: IdSet<()> = nodes.collect();
        let (id, cpus, nodes) = (socket.id, bitmap(&socket.cpus), bitmap(&nodes));
        let _ = write!(text, "<object type='Package' os_index='{id}' cpuset='{cpus}' nodeset='{nodes}'/>");
    }
    for node in &topology.nodes {
        let (id, cpus, bytes) = (node.id, bitmap(&node.cpus), node.memory_bytes);
        let _ =
            write!(text, "<object type='NUMANode' os_index='{id}' cpuset='{cpus}' local_memory='{bytes}'/>");
    }
    for core in &topology.cores {
        let _ = write!(text, "<object type='Core' cpuset='{}'/>", bitmap(&core.cpus));
    }
    text.push_str("</topology>");
    let again = Topology::from_xml(&text, "again").unwrap();
    let cores =
        |topology: &Topology| topology.cores.iter().map(|c| (c.cpus.clone(), c.socket)).collect::<Vec<_>>();
    assert_eq!((&again.nodes, cores(&again)), (&topology.nodes, cores(topology)), "{text}");
}

/// Words of 32 bits, the highest first.
fn bitmap<K>(set: &IdSet<K>) -> String {
    let count = set.iter().last().map_or(1, |last| last / 32 + 1);
    let word =
        |word: u32| set.iter().filter(|id| id / 32 == word).fold(0_u32, |bits, id| bits | 1 << (id % 32));
    let words: Vec<String> = (0..count).rev().map(|index| format!("0x{:08x}", word(index))).collect();
    words.join(",")
}
