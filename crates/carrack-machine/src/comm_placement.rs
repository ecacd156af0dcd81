//! Placement of comm threads by their flows (M9): if a lane's connections arrive on another node of the lane
//! than its comm thread's, the comm thread moves there.
//!
//! The kernel handles received packets on the CPU that the NIC's queue interrupts (`SO_INCOMING_CPU`,
//! socket(7)); the next reader finds them in that node's memory and caches. The comm thread gets a CPU next
//! to that one, as interrupts run there. Flows that arrive on another socket change nothing: the lane belongs
//! to its slots, and `carrack doctor` reports badly spread interrupts.

use crate::id_set::CpuSet;
use crate::placement::{LanePlacement, ThreadSeat};
use crate::thread_binding::{EndThreadBindings, ThreadDuty};
use crate::topology::Topology;

/// Moves the comm thread of each lane to the node where most of its flows arrive: `arriving` holds the CPUs
/// of each lane's connections. Returns descriptions of the moves, for people.
pub fn move_comm_threads_to_flows(
    crew: &EndThreadBindings,
    topology: &Topology,
    arriving: &[Vec<u32>],
) -> Vec<String> {
    let threads = crew.threads();
    arriving
        .iter()
        .enumerate()
        .filter_map(|(lane, cpus)| {
            let place = crew.lane(lane).placement();
            let seat = seat_on_flow_node(topology, &place, cpus)?;
            let comm =
                threads.iter().find(|thread| thread.lane == lane && thread.duty == ThreadDuty::Comm)?;
            crew.move_thread(comm.tid, &seat).ok()?;
            let (from, to) = (&place.comm.cpus, &seat.cpus);
            Some(format!(
                "lane {lane}: its flows arrive on CPU {}: the comm thread goes from CPU {from} to {to}",
                to_cpu_set(cpus)
            ))
        })
        .collect()
}

/// A seat for the comm thread on the node where most of the lane's flows arrive; `None` if it is there
/// already, or if that is no node of the lane.
fn seat_on_flow_node(topology: &Topology, lane: &LanePlacement, arriving: &[u32]) -> Option<ThreadSeat> {
    let mut flows = vec![0_usize; topology.nodes.len()];
    for &cpu in arriving {
        if let Some(node) = node_of_cpu(topology, cpu) {
            flows[node] += 1;
        }
    }
    // Of nodes with equal counts the first wins: the choice does not depend on the order of the connections.
    let nodes = (0..topology.nodes.len()).filter(|&node| lane.memory.contains(topology.nodes[node].id));
    let node = nodes.rev().max_by_key(|&node| flows[node])?;
    let sits_at = lane.comm.cpus.first().and_then(|cpu| node_of_cpu(topology, cpu));
    if flows[node] == 0 || sits_at == Some(node) {
        return None;
    }
    let here = topology.nodes[node].cpus.intersection(&lane.cpus());
    let beside = here.difference(&arriving.iter().copied().collect());
    // The seat may be an I/O thread's, which then shares it with the mostly sleeping comm thread.
    let cpu = beside.first().or_else(|| here.first())?;
    Some(ThreadSeat { cpus: CpuSet::from_iter([cpu]), ..ThreadSeat::default() })
}

fn node_of_cpu(topology: &Topology, cpu: u32) -> Option<usize> {
    topology.nodes.iter().position(|node| node.cpus.contains(cpu))
}

fn to_cpu_set(cpus: &[u32]) -> CpuSet {
    cpus.iter().copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id_set::NodeSet;
    use crate::topology::{CpuCore, CpuSocket, NumaNode, TopologyOrigin};

    /// Two sockets with two nodes of two cores each.
    fn machine() -> Topology {
        fn cpus(from: u32, count: u32) -> CpuSet {
            (from..from + count).collect()
        }
        Topology {
            origin: TopologyOrigin::Sysfs,
            sockets: (0..2)
                .map(|id| CpuSocket {
                    id,
                    nodes: NodeSet::from_iter([2 * id, 2 * id + 1]),
                    cpus: cpus(4 * id, 4),
                })
                .collect(),
            nodes: (0..4)
                .map(|id| NumaNode {
                    id,
                    socket: id as usize / 2,
                    cpus: cpus(2 * id, 2),
                    memory_bytes: 1 << 30,
                })
                .collect(),
            cores: (0..8)
                .map(|cpu| CpuCore {
                    socket: cpu as usize / 4,
                    node: cpu as usize / 2,
                    cpus: cpus(cpu, 1),
                    cache: cpu / 4,
                    capacity: 1024,
                })
                .collect(),
            devices: Vec::new(),
            distances: Vec::new(),
        }
    }

    fn seat(cpu: u32) -> ThreadSeat {
        ThreadSeat { cpus: CpuSet::from_iter([cpu]), ..ThreadSeat::default() }
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
        for (arriving, seat, why) in [
            (&[2][..], Some("3"), "next to the CPU of the interrupts"),
            (&[2, 3], Some("2"), "on a CPU of the interrupts, as there is no other"),
            (&[0, 1], None, "it is there already"),
            (&[0, 2, 3], Some("2"), "on the node of most flows"),
            (&[6], None, "another socket's flows are no reason to leave the slots"),
            (&[], None, "no flows"),
        ] {
            let found = seat_on_flow_node(&machine(), &lane, arriving).map(|seat| seat.cpus.to_string());
            assert_eq!(found.as_deref(), seat, "{why}");
        }
    }
}
