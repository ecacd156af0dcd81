//! The machine cut into the lanes' parts: sockets, and parts of sockets where there are more lanes (N1, N2).

use std::collections::BTreeSet;

use crate::id_set::NodeSet;
use crate::topology::Topology;

/// A socket with memory and cores; or several that share a node, as virtual machines have them.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Place {
    /// Positions of the sockets.
    pub(super) sockets: Vec<usize>,
    /// Its nodes.
    pub(super) nodes: Vec<NodePlace>,
}

/// A node and the cores to be used with it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct NodePlace {
    /// Its position.
    pub(super) node: usize,
    /// Positions of cores. At least one.
    pub(super) cores: Vec<usize>,
}

impl Place {
    /// The kernel's numbers of its nodes.
    pub(super) fn memory(&self, topology: &Topology) -> NodeSet {
        self.nodes.iter().map(|place| topology.nodes[place.node].id).collect()
    }

    /// Positions of its cores.
    pub(super) fn cores(&self) -> impl Iterator<Item = usize> + '_ {
        self.nodes.iter().flat_map(|place| place.cores.iter().copied())
    }

    fn has_own_memory(&self, topology: &Topology) -> bool {
        let is_own = |node: usize| {
            self.sockets
                .iter()
                .any(|&socket| topology.sockets[socket].nodes.contains(topology.nodes[node].id))
        };
        self.nodes.iter().any(|place| is_own(place.node))
    }

    fn shares_nodes(&self, other: &Place) -> bool {
        let nodes: BTreeSet<usize> = self.nodes.iter().map(|place| place.node).collect();
        other.nodes.iter().any(|place| nodes.contains(&place.node))
    }

    fn join(&mut self, other: Place) {
        self.sockets.extend(other.sockets);
        for theirs in other.nodes {
            match self.nodes.iter_mut().find(|ours| ours.node == theirs.node) {
                Some(ours) => ours.cores.extend(theirs.cores),
                None => self.nodes.push(theirs),
            }
        }
        self.nodes.sort_by_key(|place| place.node);
    }

    /// Cuts it into as many parts as there are lanes: each has nodes of its own while there are enough, then cores of its
    /// own, then they share.
    pub(super) fn split(&self, lanes: usize) -> Vec<Place> {
        if lanes <= self.nodes.len() {
            let parts = chunks(&self.nodes, lanes).into_iter();
            return parts.map(|nodes| Place { sockets: self.sockets.clone(), nodes }).collect();
        }
        let count = self.nodes.len();
        let part = |lane: usize| {
            let NodePlace { node, cores } = &self.nodes[lane % count];
            // Lanes of this node, and this one's place among them.
            let (of_node, turn) = ((lanes - lane % count).div_ceil(count), lane / count);
            let cores = match cores.len() >= of_node {
                true => chunks(cores, of_node).swap_remove(turn),
                false => vec![cores[turn % cores.len()]],
            };
            Place { sockets: self.sockets.clone(), nodes: vec![NodePlace { node: *node, cores }] }
        };
        (0..lanes).map(part).collect()
    }
}

/// Neighbours together, no part longer than another by more than one.
fn chunks<T: Clone>(items: &[T], parts: usize) -> Vec<Vec<T>> {
    let cut = |part: usize| part * items.len() / parts;
    (0..parts).map(|part| items[cut(part)..cut(part + 1)].to_vec()).collect()
}

/// The places for lanes: sockets with cores and memory; with cores only, if none has both. At least one.
pub(super) fn places(topology: &Topology) -> Vec<Place> {
    let all: Vec<Place> =
        (0..topology.sockets.len()).filter_map(|socket| of_socket(topology, socket)).collect();
    let own: Vec<Place> = all.iter().filter(|place| place.has_own_memory(topology)).cloned().collect();
    let chosen = if own.is_empty() { all } else { own };
    chosen.into_iter().fold(Vec::new(), |mut places: Vec<Place>, place| {
        match places.iter_mut().find(|known| known.shares_nodes(&place)) {
            Some(known) => known.join(place),
            None => places.push(place),
        }
        places
    })
}

fn of_socket(topology: &Topology, socket: usize) -> Option<Place> {
    let cores_of = |node: usize| {
        let cores = topology.cores.iter().enumerate();
        cores
            .filter(move |(_, core)| core.socket == socket && core.node == node)
            .map(|(position, _)| position)
    };
    let nodes = (0..topology.nodes.len()).map(|node| NodePlace { node, cores: cores_of(node).collect() });
    let nodes: Vec<NodePlace> = nodes.filter(|place| !place.cores.is_empty()).collect();
    (!nodes.is_empty()).then_some(Place { sockets: vec![socket], nodes })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(cores_of_nodes: &[&[usize]]) -> Place {
        let nodes = cores_of_nodes.iter().enumerate();
        let nodes = nodes.map(|(node, cores)| NodePlace { node, cores: cores.to_vec() }).collect();
        Place { sockets: vec![0], nodes }
    }

    fn split(place: &Place, lanes: usize) -> Vec<Vec<(usize, Vec<usize>)>> {
        let nodes = |part: Place| part.nodes.into_iter().map(|node| (node.node, node.cores)).collect();
        place.split(lanes).into_iter().map(nodes).collect()
    }

    #[test]
    fn lanes_share_nodes_out_before_cores() {
        let socket = place(&[&[0, 1], &[2, 3], &[4, 5]]);
        let node = |node: usize| (node, vec![2 * node, 2 * node + 1]);
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
