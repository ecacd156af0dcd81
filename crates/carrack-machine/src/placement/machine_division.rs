//! The division of the machine among lanes: sockets, and parts of sockets for more lanes than sockets (N1,
//! N2).

use std::collections::BTreeSet;

use crate::id_set::NodeSet;
use crate::topology::Topology;

/// A socket with memory and cores, or several that share a node, as in virtual machines.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct NumaSocketGroup {
    /// Positions of the sockets.
    pub(super) sockets: Vec<usize>,
    /// Nodes with their cores.
    pub(super) nodes: Vec<NodeCores>,
}

/// A node with the cores to use.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct NodeCores {
    /// Position of the node.
    pub(super) node: usize,
    /// Positions of the cores. At least one.
    pub(super) cores: Vec<usize>,
}

impl NumaSocketGroup {
    /// The nodes, by the kernel's numbers.
    pub(super) fn memory(&self, topology: &Topology) -> NodeSet {
        self.nodes.iter().map(|place| topology.nodes[place.node].id).collect()
    }

    /// Positions of the cores.
    pub(super) fn cores(&self) -> impl Iterator<Item = usize> + '_ {
        self.nodes.iter().flat_map(|place| place.cores.iter().copied())
    }

    fn has_own_memory(&self, topology: &Topology) -> bool {
        let mut nodes = self.sockets.iter().map(|&socket| &topology.sockets[socket].nodes);
        nodes.any(|own| self.nodes.iter().any(|place| own.contains(topology.nodes[place.node].id)))
    }

    fn shares_nodes(&self, other: &NumaSocketGroup) -> bool {
        let nodes: BTreeSet<usize> = self.nodes.iter().map(|place| place.node).collect();
        other.nodes.iter().any(|place| nodes.contains(&place.node))
    }

    fn join(&mut self, other: NumaSocketGroup) {
        self.sockets.extend(other.sockets);
        for theirs in other.nodes {
            match self.nodes.iter_mut().find(|ours| ours.node == theirs.node) {
                Some(ours) => ours.cores.extend(theirs.cores),
                None => self.nodes.push(theirs),
            }
        }
        self.nodes.sort_by_key(|place| place.node);
    }

    /// Divides the place among lanes: each gets its own nodes while there are enough, then its own cores,
    /// then they share.
    pub(super) fn split(&self, lanes: usize) -> Vec<NumaSocketGroup> {
        if lanes <= self.nodes.len() {
            let parts = split_evenly(&self.nodes, lanes).into_iter();
            return parts.map(|nodes| NumaSocketGroup { sockets: self.sockets.clone(), nodes }).collect();
        }
        let count = self.nodes.len();
        let parts = (0..lanes).map(|lane| {
            let NodeCores { node, cores } = &self.nodes[lane % count];
            // Number of lanes on this node, and this lane's position among them.
            let (of_node, turn) = ((lanes - lane % count).div_ceil(count), lane / count);
            let cores = if cores.len() >= of_node {
                split_evenly(cores, of_node).swap_remove(turn)
            } else {
                vec![cores[turn % cores.len()]]
            };
            NumaSocketGroup { sockets: self.sockets.clone(), nodes: vec![NodeCores { node: *node, cores }] }
        });
        parts.collect()
    }
}

/// Divides items into contiguous parts whose lengths differ by at most one.
fn split_evenly<T: Clone>(items: &[T], parts: usize) -> Vec<Vec<T>> {
    let count = items.len();
    (0..parts).map(|part| items[part * count / parts..(part + 1) * count / parts].to_vec()).collect()
}

/// The places for lanes: sockets with cores and memory, or those with cores if none has both. At least one.
pub(super) fn lane_socket_groups(topology: &Topology) -> Vec<NumaSocketGroup> {
    let all: Vec<NumaSocketGroup> =
        (0..topology.sockets.len()).filter_map(|socket| group_of_socket(topology, socket)).collect();
    let own: Vec<NumaSocketGroup> =
        all.iter().filter(|place| place.has_own_memory(topology)).cloned().collect();
    let chosen = if own.is_empty() { all } else { own };
    chosen.into_iter().fold(Vec::new(), |mut places: Vec<NumaSocketGroup>, place| {
        match places.iter_mut().find(|known| known.shares_nodes(&place)) {
            Some(known) => known.join(place),
            None => places.push(place),
        }
        places
    })
}

fn group_of_socket(topology: &Topology, socket: usize) -> Option<NumaSocketGroup> {
    let nodes = (0..topology.nodes.len()).map(|node| {
        let cores = topology.cores.iter().enumerate();
        let cores = cores.filter(|(_, core)| core.socket == socket && core.node == node);
        NodeCores { node, cores: cores.map(|(position, _)| position).collect() }
    });
    let nodes: Vec<NodeCores> = nodes.filter(|place| !place.cores.is_empty()).collect();
    (!nodes.is_empty()).then_some(NumaSocketGroup { sockets: vec![socket], nodes })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(cores_of_nodes: &[&[usize]]) -> NumaSocketGroup {
        let nodes = cores_of_nodes.iter().enumerate();
        let nodes = nodes.map(|(node, cores)| NodeCores { node, cores: cores.to_vec() }).collect();
        NumaSocketGroup { sockets: vec![0], nodes }
    }

    fn split(place: &NumaSocketGroup, lanes: usize) -> Vec<Vec<(usize, Vec<usize>)>> {
        let parts = place.split(lanes).into_iter();
        parts.map(|part| part.nodes.into_iter().map(|node| (node.node, node.cores)).collect()).collect()
    }

    #[test]
    fn lanes_share_nodes_out_before_cores() {
        let socket = place(&[&[0, 1], &[2, 3], &[4, 5]]);
        fn node(node: usize) -> (usize, Vec<usize>) {
            (node, vec![2 * node, 2 * node + 1])
        }
        assert_eq!(split(&socket, 1), [vec![node(0), node(1), node(2)]]);
        assert_eq!(split(&socket, 2), [vec![node(0)], vec![node(1), node(2)]]);
        let four = [vec![(0, vec![0])], vec![node(1)], vec![node(2)], vec![(0, vec![1])]];
        assert_eq!(split(&socket, 4), four);
    }

    #[test]
    fn more_lanes_than_cores_share_them() {
        let socket = place(&[&[7, 8]]);
        assert_eq!(split(&socket, 3), [7, 8, 7].map(|core| vec![(0, vec![core])]));
    }
}
