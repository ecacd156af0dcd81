//! Comm threads follow their flows (M9): where a lane's connections arrive on another of its nodes than its comm thread
//! sits on, the comm thread goes there.
//!
//! The kernel handles what comes from the network on the CPU that the NIC's queue interrupts (`SO_INCOMING_CPU`, socket(7));
//! whoever reads it next finds it in that node's memory and caches. Beside that CPU, not on it: there the interrupts run. A
//! flow that arrives on another socket is left alone: the lane belongs where its slots are, and `carrack doctor` tells of
//! interrupts that are spread badly.

use crate::crew::{Crew, Duty};
use crate::id_set::CpuSet;
use crate::placement::{LanePlacement, Seat};
use crate::topology::Topology;

/// Moves the comm thread of each lane to where most of its flows arrive: `arriving` has, for each lane, the CPUs of its
/// connections. Returns what was moved and why, for people.
pub fn follow_flows(crew: &Crew, topology: &Topology, arriving: &[Vec<u32>]) -> Vec<String> {
    let threads = crew.threads();
    let comm_of = |lane| threads.iter().find(|thread| thread.lane == lane && thread.duty == Duty::Comm);
    let follow = |(lane, cpus): (usize, &Vec<u32>)| {
        let place = crew.lane(lane).place();
        let seat = seat_beside(topology, &place, cpus)?;
        let comm = comm_of(lane)?;
        crew.move_thread(comm.tid, &seat).ok()?;
        let (from, to) = (&place.comm.cpus, &seat.cpus);
        Some(format!(
            "lane {lane}: its flows arrive on CPU {}: the comm thread goes from CPU {from} to {to}",
            listed(cpus)
        ))
    };
    arriving.iter().enumerate().filter_map(follow).collect()
}

/// A seat for the comm thread on the node where most of the lane's flows arrive; nothing if it sits there, or if that is not
/// one of the lane's nodes.
fn seat_beside(topology: &Topology, lane: &LanePlacement, arriving: &[u32]) -> Option<Seat> {
    let node_of = |cpu: u32| topology.nodes.iter().position(|node| node.cpus.contains(cpu));
    let flows_at = |node: usize| arriving.iter().filter(|cpu| node_of(**cpu) == Some(node)).count();
    let is_ours = |node: &usize| lane.memory.contains(topology.nodes[*node].id);
    // Of nodes with as many flows the first: the choice doesn't depend on the order of the connections.
    let node = (0..topology.nodes.len()).filter(is_ours).rev().max_by_key(|node| flows_at(*node))?;
    let sits_at = lane.comm.cpus.first().and_then(node_of);
    if flows_at(node) == 0 || sits_at == Some(node) {
        return None;
    }
    let here = topology.nodes[node].cpus.intersection(&lane.cpus());
    let beside = here.difference(&arriving.iter().copied().collect());
    // The seat of an I/O thread, which shares it from now on; one is enough for a thread that mostly sleeps.
    let cpu = beside.first().or_else(|| here.first())?;
    Some(Seat { cpus: CpuSet::from_iter([cpu]), ..Seat::default() })
}

fn listed(cpus: &[u32]) -> CpuSet {
    cpus.iter().copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id_set::NodeSet;
    use crate::topology::{Core, Node, Origin, Socket};

    /// Two sockets of two nodes of two cores each.
    fn machine() -> Topology {
        let cpus = |from: u32, count: u32| (from..from + count).collect::<CpuSet>();
        let socket =
            |id: u32| Socket { id, nodes: NodeSet::from_iter([2 * id, 2 * id + 1]), cpus: cpus(4 * id, 4) };
        let node =
            |id: u32| Node { id, socket: id as usize / 2, cpus: cpus(2 * id, 2), memory_bytes: 1 << 30 };
        let core = |cpu: u32| Core {
            socket: cpu as usize / 4,
            node: cpu as usize / 2,
            cpus: cpus(cpu, 1),
            cache: cpu / 4,
            capacity: 1024,
        };
        Topology {
            origin: Origin::Sysfs,
            sockets: (0..2).map(socket).collect(),
            nodes: (0..4).map(node).collect(),
            cores: (0..8).map(core).collect(),
            devices: Vec::new(),
            distances: Vec::new(),
        }
    }

    fn seat(cpu: u32) -> Seat {
        Seat { cpus: CpuSet::from_iter([cpu]), ..Seat::default() }
    }

    #[test]
    fn a_comm_thread_goes_to_the_node_of_its_flows_within_its_lane() {
        let lane = LanePlacement {
            memory: NodeSet::from_iter([0, 1]),
            master: seat(0),
            comm: seat(1),
            io: vec![seat(2), seat(3)],
            ..LanePlacement::default()
        };
        let beside =
            |arriving: &[u32]| seat_beside(&machine(), &lane, arriving).map(|seat| seat.cpus.to_string());
        assert_eq!(beside(&[2]), Some("3".into()), "beside the CPU that the interrupts take");
        assert_eq!(beside(&[2, 3]), Some("2".into()), "where they take all, with them");
        assert_eq!(beside(&[0, 1]), None, "it sits there");
        assert_eq!(beside(&[0, 2, 3]), Some("2".into()), "where most arrive");
        assert_eq!(beside(&[6]), None, "another socket's flows are no reason to leave the slots");
        assert_eq!(beside(&[]), None);
    }
}
