//! The speed of each node's memory from each node's cores, measured (N5), and its summary by the kind of the
//! way.

use carrack_machine::{CpuSet, Topology, measure_memory};
use serde::Serialize;

use crate::user_error::UserError;

/// Rows are positions of nodes whose cores read, columns positions of nodes whose memory is read; rows of
/// nodes without cores are empty.
#[derive(Clone, Debug, PartialEq)]
pub struct MeasuredMemorySpeeds {
    /// Sequential reading by one thread, in MB/s (10^6 bytes).
    pub mb_per_s: Vec<Vec<f64>>,
    /// Time of a read that depends on the read before, in ns.
    pub latency_ns: Vec<Vec<f64>>,
}

/// Ways of one kind: the number of pairs of nodes, and their means; with its fields as `--json` has them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct NodePairMemorySpeed {
    /// Its name: `local`, `same socket` or `other socket`.
    #[serde(rename = "way")]
    pub name: &'static str,
    /// Pairs of nodes.
    pub pairs: usize,
    /// MB/s.
    pub mb_per_s: f64,
    /// Nanoseconds.
    pub latency_ns: f64,
}

impl MeasuredMemorySpeeds {
    /// Measures this machine, which takes some tenths of a second for each pair of nodes.
    pub fn measure(topology: &Topology) -> Result<MeasuredMemorySpeeds, UserError> {
        let readers: Vec<usize> =
            (0..topology.nodes.len()).filter(|&node| topology.has_cores(node)).collect();
        let cpu_sets = readers.iter().map(|&node| {
            let cores = topology.cores.iter().filter(|core| core.node == node);
            cores.flat_map(|core| core.cpus.iter()).collect()
        });
        let cpu_sets: Vec<CpuSet> = cpu_sets.collect();
        let nodes: Vec<u32> = topology.nodes.iter().map(|node| node.id).collect();
        let matrix = measure_memory(&cpu_sets, &nodes)
            .map_err(|error| UserError::new(format!("measuring: {error}")))?;
        let mut measured = MeasuredMemorySpeeds::empty(nodes.len());
        for (row, &node) in readers.iter().enumerate() {
            measured.mb_per_s[node].clone_from(&matrix.read_mb_per_s[row]);
            measured.latency_ns[node].clone_from(&matrix.latency_ns[row]);
        }
        Ok(measured)
    }

    /// Creates empty measurements of this number of nodes.
    pub fn empty(nodes: usize) -> MeasuredMemorySpeeds {
        MeasuredMemorySpeeds { mb_per_s: vec![Vec::new(); nodes], latency_ns: vec![Vec::new(); nodes] }
    }

    /// Returns the table of N5; kinds that the machine does not have are left out.
    pub fn node_pair_speeds(&self, topology: &Topology) -> Vec<NodePairMemorySpeed> {
        let ways = [
            self.node_pair_speed("local", |from, to| from == to),
            self.node_pair_speed("same socket", |from, to| from != to && topology.same_socket(from, to)),
            self.node_pair_speed("other socket", |from, to| from != to && !topology.same_socket(from, to)),
        ];
        ways.into_iter().flatten().collect()
    }

    fn node_pair_speed(
        &self,
        name: &'static str,
        is_meant: impl Fn(usize, usize) -> bool,
    ) -> Option<NodePairMemorySpeed> {
        let pairs =
            self.mb_per_s.iter().zip(&self.latency_ns).enumerate().flat_map(|(from, (rates, latencies))| {
                let pairs = rates.iter().zip(latencies).enumerate();
                pairs.map(move |(to, (rate, latency))| (from, to, *rate, *latency))
            });
        let meant: Vec<(f64, f64)> = pairs
            .filter(|(from, to, ..)| is_meant(*from, *to))
            .map(|(_, _, rate, latency)| (rate, latency))
            .collect();
        let count = meant.len() as f64;
        (!meant.is_empty()).then(|| NodePairMemorySpeed {
            name,
            pairs: meant.len(),
            mb_per_s: meant.iter().map(|(rate, _)| rate).sum::<f64>() / count,
            latency_ns: meant.iter().map(|(_, latency)| latency).sum::<f64>() / count,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::views::topo::test_reports;

    #[test]
    fn ways_are_summed_up_by_kind() {
        let topology = test_reports::small().topology;
        let mut measured = MeasuredMemorySpeeds::empty(3);
        assert_eq!(measured.node_pair_speeds(&topology), []);
        measured.mb_per_s[0] = vec![3_000.0, 2_000.0, 1_000.0];
        measured.latency_ns[0] = vec![80.0, 120.0, 140.0];
        measured.mb_per_s[1] = vec![2_200.0, 3_200.0, 2_900.0];
        measured.latency_ns[1] = vec![130.0, 90.0, 100.0];
        let ways = measured.node_pair_speeds(&topology);
        let told: Vec<_> =
            ways.iter().map(|way| (way.name, way.pairs, way.mb_per_s, way.latency_ns)).collect();
        let other = (2_000.0 + 1_000.0 + 2_200.0) / 3.0;
        assert_eq!(
            told,
            [
                ("local", 2, 3_100.0, 85.0),
                ("same socket", 1, 2_900.0, 100.0),
                ("other socket", 3, other, 130.0)
            ]
        );
    }

    #[test]
    fn this_machine_is_measured() {
        let topology = Topology::this_machine();
        match MeasuredMemorySpeeds::measure(&topology) {
            Ok(measured) => assert!(measured.node_pair_speeds(&topology)[0].mb_per_s > 0.0),
            // A container may have too little memory to measure.
            Err(trouble) => assert!(trouble.message.starts_with("measuring: ")),
        }
    }
}
