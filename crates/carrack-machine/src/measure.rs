//! Measured memory performance between CPUs and nodes (N5), for `carrack topo --measure` and for the costs of
//! edges.
//!
//! One thread at a time on a machine that should be quiet. A buffer is bound to each node in turn, larger
//! than the caches and never more than 1 GiB; the threads run on each set of CPUs in turn. About a tenth of a
//! second for each pair.

use std::hint::black_box;
use std::io;
use std::path::Path;
use std::time::Instant;

use crate::binding::{set_thread_affinity, this_thread};
use crate::id_set::{CpuSet, NodeSet};
use crate::node_memory::NodeMemoryFiles;
use crate::pool::{PoolError, SlotPool};
use crate::region::MemoryBinding;

/// A cache line on x86-64 and on most of arm64: the chase reads each line once.
const LINE_BYTES: usize = 64;

/// The buffer: twice the largest cache, within these bounds, and at most a quarter of the node's memory.
const BUFFER_MIN_BYTES: u64 = 128 << 20;
const BUFFER_MAX_BYTES: u64 = 1 << 30;

/// A smaller buffer would measure caches.
const BUFFER_SMALLEST_BYTES: u64 = 32 << 20;

/// Repetitions, of which the best counts: disturbances only make a result worse.
const REPETITIONS: usize = 4;

/// Lines read in one chase: 10 ms at 100 ns each.
const CHASE_STEPS: usize = 100_000;

/// Bandwidth and latency between sets of CPUs (rows) and nodes (columns).
#[derive(Clone, Debug, PartialEq)]
pub struct MemoryMatrix {
    /// CPUs of each row.
    pub cpu_sets: Vec<CpuSet>,
    /// Node of each column, by the kernel's number.
    pub nodes: Vec<u32>,
    /// Sequential reads of one thread, in MB/s (10^6 bytes).
    pub read_mb_per_s: Vec<Vec<f64>>,
    /// Time of one dependent read, in ns.
    pub latency_ns: Vec<Vec<f64>>,
}

/// Reasons why a measurement failed.
#[derive(Debug, thiserror::Error)]
pub enum MemoryMeasureError {
    /// The node has less free memory than a buffer larger than the caches.
    #[error("node {0} has too little free memory to measure")]
    NoRoom(u32),
    /// No memory.
    #[error(transparent)]
    NoMemory(#[from] PoolError),
    /// The memory lies on another node: the reason.
    #[error("no memory of node {0} to measure: {1}")]
    Elsewhere(u32, String),
    /// The thread could not be bound to the CPUs.
    #[error("can't run on CPU {0}: {1}")]
    Refused(CpuSet, #[source] io::Error),
}

/// Measures from each of `cpu_sets` (usually one for each node with CPUs) to each of `nodes`.
pub fn measure_memory(cpu_sets: &[CpuSet], nodes: &[u32]) -> Result<MemoryMatrix, MemoryMeasureError> {
    let unknown = vec![vec![0.0; nodes.len()]; cpu_sets.len()];
    let mut matrix = MemoryMatrix {
        cpu_sets: cpu_sets.to_vec(),
        nodes: nodes.to_vec(),
        read_mb_per_s: unknown.clone(),
        latency_ns: unknown,
    };
    for (column, &node) in nodes.iter().enumerate() {
        let field = MemoryBenchmarkBuffer::on_node(node)?;
        for (row, cpus) in cpu_sets.iter().enumerate() {
            let (read_mb_per_s, latency_ns) = field.measure_from(cpus)?;
            matrix.read_mb_per_s[row][column] = read_mb_per_s;
            matrix.latency_ns[row][column] = latency_ns;
        }
    }
    Ok(matrix)
}

/// A buffer on one node, with a linked list of its lines in an order that no prefetcher predicts.
struct MemoryBenchmarkBuffer {
    slot: crate::pool::Slot,
}

impl MemoryBenchmarkBuffer {
    fn on_node(node: u32) -> Result<MemoryBenchmarkBuffer, MemoryMeasureError> {
        let nodes = NodeSet::from_iter([node]);
        let bytes = buffer_bytes(&nodes).ok_or(MemoryMeasureError::NoRoom(node))?;
        let pool = SlotPool::on_nodes(&nodes, bytes as u64, bytes)?;
        let backing = pool.backing();
        if backing.bound != MemoryBinding::Bound {
            return Err(MemoryMeasureError::Elsewhere(node, backing.notes.join("; ")));
        }
        let mut slot = pool.try_lease().expect("a new pool has its one slot");
        write_pointer_chain(slot.bytes_mut());
        let found =
            pool.pages_by_node().map_err(|error| MemoryMeasureError::Elsewhere(node, error.to_string()))?;
        if found.keys().any(|&on| on != node) {
            return Err(MemoryMeasureError::Elsewhere(node, format!("pages by node: {found:?}")));
        }
        Ok(MemoryBenchmarkBuffer { slot })
    }

    fn measure_from(&self, cpus: &CpuSet) -> Result<(f64, f64), MemoryMeasureError> {
        let bytes = self.slot.bytes();
        let measured = std::thread::scope(|scope| {
            let started = std::thread::Builder::new().spawn_scoped(scope, || measure_on(cpus, bytes))?;
            started.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        measured.map_err(|error| MemoryMeasureError::Refused(cpus.clone(), error))
    }
}

/// Measures on the calling thread.
fn measure_on(cpus: &CpuSet, bytes: &[u8]) -> io::Result<(f64, f64)> {
    set_thread_affinity(this_thread(), cpus)?;
    let read_s = fastest_seconds(|| black_box(sum_words(bytes)));
    let chase_s = fastest_seconds(|| black_box(chase_pointers(bytes, CHASE_STEPS)));
    Ok((bytes.len() as f64 / read_s / 1e6, chase_s * 1e9 / CHASE_STEPS as f64))
}

fn buffer_bytes(nodes: &NodeSet) -> Option<usize> {
    let wanted = (2 * largest_cache_bytes()).clamp(BUFFER_MIN_BYTES, BUFFER_MAX_BYTES);
    let available = NodeMemoryFiles::of_this_machine().available_bytes(nodes).unwrap_or(u64::MAX);
    let bytes = wanted.min(available / 4).next_multiple_of(2 << 20);
    if bytes < BUFFER_SMALLEST_BYTES { None } else { usize::try_from(bytes).ok() }
}

/// Bytes of the first CPU's largest cache; 0 if unknown.
fn largest_cache_bytes() -> u64 {
    (0..8)
        .filter_map(|index| {
            let path = format!("/sys/devices/system/cpu/cpu0/cache/index{index}/size");
            let text = std::fs::read_to_string(Path::new(&path)).ok()?;
            text.trim().strip_suffix('K')?.parse::<u64>().ok().map(|kib| kib << 10)
        })
        .max()
        .unwrap_or(0)
}

/// Seconds of the fastest repetition.
fn fastest_seconds<R>(mut work: impl FnMut() -> R) -> f64 {
    (0..REPETITIONS)
        .map(|_| {
            let start = Instant::now();
            work();
            start.elapsed().as_secs_f64()
        })
        .fold(f64::INFINITY, f64::min)
        .max(1e-9)
}

/// Adds up all words, so that each is read.
fn sum_words(bytes: &[u8]) -> u64 {
    let mut sums = [0_u64; 8];
    for line in bytes.chunks_exact(LINE_BYTES) {
        for (sum, word) in sums.iter_mut().zip(line.chunks_exact(8)) {
            *sum = sum.wrapping_add(u64::from_le_bytes(word.try_into().expect("8 bytes")));
        }
    }
    sums.into_iter().fold(0, u64::wrapping_add)
}

/// Follows the list from the first line.
fn chase_pointers(bytes: &[u8], steps: usize) -> usize {
    (0..steps).fold(0, |line, _| next_line(bytes, line))
}

fn next_line(bytes: &[u8], line: usize) -> usize {
    let at = line * LINE_BYTES;
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes")) as usize
}

/// Links all lines into one cycle.
fn write_pointer_chain(bytes: &mut [u8]) {
    let count = bytes.len() / LINE_BYTES;
    let mut order: Vec<u32> = (0..count as u32).collect();
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    for i in (1..count).rev() {
        // Xorshift64 (Marsaglia 2003): any order suffices except the lines' own.
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        order.swap(i, (random % (i as u64 + 1)) as usize);
    }
    for (i, &line) in order.iter().enumerate() {
        let at = line as usize * LINE_BYTES;
        bytes[at..at + 4].copy_from_slice(&order[(i + 1) % count].to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::binding::cpus_of;

    #[test]
    fn the_chain_visits_every_line_once() {
        let mut bytes = vec![0; 300 * LINE_BYTES];
        write_pointer_chain(&mut bytes);
        let mut seen = std::collections::BTreeSet::new();
        let mut line = 0;
        while seen.insert(line) {
            line = next_line(&bytes, line);
        }
        assert_eq!((seen.len(), line), (300, 0));
        assert_eq!(chase_pointers(&bytes, 300), 0);
    }

    #[test]
    fn this_machines_memory_is_measured() {
        let cpus = cpus_of(this_thread()).unwrap();
        match measure_memory(std::slice::from_ref(&cpus), &[0]) {
            Ok(matrix) => {
                assert_eq!((matrix.cpu_sets, matrix.nodes), (vec![cpus], vec![0]));
                assert!(matrix.read_mb_per_s[0][0] > 0.0 && matrix.latency_ns[0][0] > 0.0);
            }
            Err(error @ (MemoryMeasureError::NoRoom(_) | MemoryMeasureError::Elsewhere(..))) => {
                eprintln!("skipped: {error}")
            }
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    fn a_node_or_a_cpu_that_is_not_there_is_refused() {
        assert!(matches!(measure_memory(&[], &[900]), Err(MemoryMeasureError::Elsewhere(900, _))));
        let absent = CpuSet::from_iter([60_000]);
        let measured = measure_memory(std::slice::from_ref(&absent), &[0]);
        assert!(measured.is_err());
    }
}
