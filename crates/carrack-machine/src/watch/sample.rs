//! The kernel's counters at one time: the use of each CPU, the times of our threads, the allocations of each
//! node (proc_stat(5), proc_pid_stat(5), Documentation/scheduler/sched-stats.rst,
//! Documentation/admin-guide/numastat.rst).
//!
//! Interrupts don't count as work of others: on a core that serves our NIC or disks they are our own. Kernel
//! threads that work for us, such as writeback, can't be told apart and count as others.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Ticks per second in /proc/PID/stat: the same on every supported architecture.
const TICKS_PER_S: u64 = 100;

/// Reasons why there is no sample.
#[derive(Debug, thiserror::Error)]
pub enum KernelCountersError {
    /// A file that every Linux has can't be read.
    #[error("can't read {}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file has an unknown format.
    #[error("{} is not as expected", .0.display())]
    Unknown(PathBuf),
}

/// All counters at one time; none decreases.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct MachineCounterSample {
    /// Time since the start of the watch.
    pub(super) at: Duration,
    pub(super) cpus: BTreeMap<u32, CpuTicks>,
    pub(super) threads: BTreeMap<i32, ThreadTimes>,
    pub(super) nodes: BTreeMap<u32, NodePages>,
}

/// Counters of one CPU, in ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CpuTicks {
    /// Work of programs and of the kernel for them, and time stolen by a hypervisor.
    pub(super) work: u64,
    /// All time, idle time and interrupts included.
    pub(super) all: u64,
}

/// Counters of one of our threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ThreadTimes {
    /// The CPU that it ran on last.
    pub(super) last_cpu: u32,
    pub(super) run_ns: u64,
    /// Time in which it was runnable, but another thread ran.
    pub(super) delay_ns: u64,
    /// Changes of CPU.
    pub(super) migrations: u64,
}

/// Counters of one node, in pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct NodePages {
    /// Requested here and allocated here.
    pub(super) hit: u64,
    /// Requested elsewhere, allocated here.
    pub(super) miss: u64,
    /// Requested here, allocated elsewhere.
    pub(super) foreign: u64,
    /// Allocated here for a CPU of another node.
    pub(super) other: u64,
}

/// Reads samples.
pub(super) struct KernelCounterSampler {
    root: PathBuf,
}

impl KernelCounterSampler {
    /// For the machine whose /proc and /sys are in `root`.
    pub(super) fn with_root(root: &Path) -> KernelCounterSampler {
        KernelCounterSampler { root: root.to_path_buf() }
    }

    /// Reads all counters; threads that have ended are left out.
    pub(super) fn read(
        &self,
        at: Duration,
        tids: &[i32],
    ) -> Result<MachineCounterSample, KernelCountersError> {
        let threads = tids.iter().filter_map(|&tid| Some((tid, self.read_thread_times(tid)?))).collect();
        Ok(MachineCounterSample { at, cpus: self.read_cpu_ticks()?, threads, nodes: self.read_node_pages() })
    }

    fn read_cpu_ticks(&self) -> Result<BTreeMap<u32, CpuTicks>, KernelCountersError> {
        let path = self.root.join("proc/stat");
        let text = std::fs::read_to_string(&path)
            .map_err(|source| KernelCountersError::Unreadable { path: path.clone(), source })?;
        let cpus: BTreeMap<u32, CpuTicks> = text.lines().filter_map(cpu_line).collect();
        if cpus.is_empty() { Err(KernelCountersError::Unknown(path)) } else { Ok(cpus) }
    }

    fn read_thread_times(&self, tid: i32) -> Option<ThreadTimes> {
        let mut times = thread_line(&self.thread_file(tid, "stat")?)?;
        // Without CONFIG_SCHED_INFO there are only ticks, and delays are unknown.
        if let Some((run_ns, delay_ns)) =
            self.thread_file(tid, "schedstat").as_deref().and_then(schedstat_line)
        {
            times = ThreadTimes { run_ns, delay_ns, ..times };
        }
        if let Some(migrations) = self.thread_file(tid, "sched").as_deref().and_then(migrations_line) {
            times.migrations = migrations;
        }
        Some(times)
    }

    fn thread_file(&self, tid: i32, name: &str) -> Option<String> {
        std::fs::read_to_string(self.root.join(format!("proc/self/task/{tid}/{name}"))).ok()
    }

    fn read_node_pages(&self) -> BTreeMap<u32, NodePages> {
        let directory = self.root.join("sys/devices/system/node");
        let entries = std::fs::read_dir(&directory).into_iter().flatten().filter_map(Result::ok);
        entries
            .filter_map(|entry| {
                let node = entry.file_name().to_str()?.strip_prefix("node")?.parse().ok()?;
                let text = std::fs::read_to_string(entry.path().join("numastat")).ok()?;
                Some((node, node_pages(&text)))
            })
            .collect()
    }
}

/// `cpu3 user nice system idle iowait irq softirq steal guest guest_nice`; guest times are part of the first
/// two.
fn cpu_line(line: &str) -> Option<(u32, CpuTicks)> {
    let mut words = line.split_whitespace();
    let cpu = words.next()?.strip_prefix("cpu")?.parse().ok()?;
    let ticks: Vec<u64> = words.map_while(|word| word.parse().ok()).collect();
    let [user, nice, system, _idle, _iowait, _irq, _softirq, steal] = *ticks.get(..8)? else { return None };
    Some((cpu, CpuTicks { work: user + nice + system + steal, all: ticks[..8].iter().sum() }))
}

fn thread_line(stat: &str) -> Option<ThreadTimes> {
    // The name, in parentheses, may itself have blanks and parentheses; field 3 follows.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let run_ticks: u64 = stat_field(&fields, 14)? + stat_field(&fields, 15)?;
    let run_ns = run_ticks * (1_000_000_000 / TICKS_PER_S);
    let last_cpu = u32::try_from(stat_field(&fields, 39)?).ok()?;
    Some(ThreadTimes { last_cpu, run_ns, delay_ns: 0, migrations: 0 })
}

/// A field of `/proc/PID/stat`, by its number in proc_pid_stat(5); `fields` begins at number 3.
fn stat_field(fields: &[&str], number: usize) -> Option<u64> {
    fields.get(number - 3)?.parse().ok()
}

fn schedstat_line(text: &str) -> Option<(u64, u64)> {
    let mut numbers = text.split_whitespace().map_while(|word| word.parse().ok());
    Some((numbers.next()?, numbers.next()?))
}

fn migrations_line(text: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.starts_with("se.nr_migrations"))?;
    line.rsplit_once(':')?.1.trim().parse().ok()
}

fn node_pages(text: &str) -> NodePages {
    let [hit, miss, foreign, other] =
        ["numa_hit", "numa_miss", "numa_foreign", "other_node"].map(|name| numastat_count(text, name));
    NodePages { hit, miss, foreign, other }
}

fn numastat_count(numastat: &str, name: &str) -> u64 {
    let line = numastat.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::binding::this_thread;
    use std::fs;

    fn machine(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    const STAT: &str =
        "cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 10 2 5 100 7 3 4 1 0 0\ncpu12 1 0 0 50 0 0 0 0 0 0\nintr 5\n";
    const TASK: &str = "7 (io (3)) S 1 7 7 0 -1 0 0 0 0 0 30 12 0 0 20 0 9 0 5 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 17 11 0 0 0 0 0";

    #[test]
    fn a_made_up_machine_is_read() {
        let root = machine(&[
            ("proc/stat", STAT),
            ("proc/self/task/7/stat", TASK),
            ("proc/self/task/7/schedstat", "5000 600 9\n"),
            ("proc/self/task/7/sched", "x\nse.nr_migrations                  :     14\n"),
            ("proc/self/task/8/stat", TASK),
            (
                "sys/devices/system/node/node1/numastat",
                "numa_hit 8\nnuma_miss 1\nnuma_foreign 2\nother_node 3\n",
            ),
            ("sys/devices/system/node/possible", "0-1"),
        ]);
        let at = Duration::from_secs(4);
        let sample = KernelCounterSampler::with_root(root.path()).read(at, &[7, 8, 9]).unwrap();
        let cpus = [(0, CpuTicks { work: 18, all: 132 }), (12, CpuTicks { work: 1, all: 51 })];
        let exact = ThreadTimes { last_cpu: 11, run_ns: 5_000, delay_ns: 600, migrations: 14 };
        let coarse = ThreadTimes { last_cpu: 11, run_ns: 420_000_000, delay_ns: 0, migrations: 0 };
        let nodes = BTreeMap::from([(1, NodePages { hit: 8, miss: 1, foreign: 2, other: 3 })]);
        let threads = BTreeMap::from([(7, exact), (8, coarse)]);
        assert_eq!(sample, MachineCounterSample { at, cpus: cpus.into(), threads, nodes });
    }

    #[test]
    fn a_machine_without_proc_is_an_error() {
        let root = machine(&[]);
        assert!(matches!(
            KernelCounterSampler::with_root(root.path()).read(Duration::ZERO, &[]),
            Err(KernelCountersError::Unreadable { .. })
        ));
        let root = machine(&[("proc/stat", "something else\n")]);
        assert!(matches!(
            KernelCounterSampler::with_root(root.path()).read(Duration::ZERO, &[]),
            Err(KernelCountersError::Unknown(_))
        ));
    }

    #[test]
    fn this_machine_is_read() {
        let tid = this_thread();
        let sample = KernelCounterSampler::with_root(Path::new("/")).read(Duration::ZERO, &[tid]).unwrap();
        assert!(sample.cpus.contains_key(&sample.threads[&tid].last_cpu));
        assert!(sample.cpus.values().any(|ticks| ticks.all > ticks.work));
    }
}
