//! The difference of two samples: the use of each CPU by others, and the progress of our threads.

use std::collections::BTreeMap;

use super::sample::{MachineCounterSample, NodePages, ThreadTimes};
use crate::thread_binding::SeatedThread;

/// Minimum of pages in an interval (4 MiB) for a meaningful share.
const PAGES_MIN: u64 = 1_024;

/// Load of the machine by others, by the kernel's numbers, for a placement to avoid.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MachineLoads {
    /// Share of each logical CPU that others used, 0 to 1.
    pub cpus: BTreeMap<u32, f64>,
    /// Loads of the nodes' memory.
    pub nodes: BTreeMap<u32, NumaNodeLoad>,
}

/// Memory load of a node in an interval, by the pages of all processes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct NumaNodeLoad {
    /// Share of pages requested here and allocated elsewhere (`numa_foreign`), 0 to 1.
    pub short: f64,
    /// Pages requested elsewhere and allocated here (`numa_miss`).
    pub missed: u64,
    /// Pages allocated here for CPUs of other nodes (`other_node`).
    pub remote: u64,
}

/// Loads of an interval.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct MachineLoadInterval {
    pub(super) loads: MachineLoads,
    pub(super) threads: Vec<ThreadLoad>,
}

/// Progress of one of our threads.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ThreadLoad {
    pub(super) place: SeatedThread,
    pub(super) last_cpu: u32,
    /// Share of the interval in which it ran.
    pub(super) run: f64,
    /// Share in which it was runnable, but another thread ran.
    pub(super) delay: f64,
    pub(super) migrations: u64,
}

impl MachineLoadInterval {
    /// The difference of two samples. For a thread that took its seat in between, its whole run time counts,
    /// so that others are not charged for it, and no delay; ended threads are left out.
    pub(super) fn between(
        before: &MachineCounterSample,
        after: &MachineCounterSample,
        places: &[SeatedThread],
    ) -> MachineLoadInterval {
        let elapsed_ns = after.at.saturating_sub(before.at).as_nanos().max(1) as f64;
        let threads: Vec<ThreadLoad> = places
            .iter()
            .filter_map(|place| {
                let is = after.threads.get(&place.tid)?;
                let new = ThreadTimes { run_ns: 0, ..*is };
                Some(thread_load(place, before.threads.get(&place.tid).unwrap_or(&new), is, elapsed_ns))
            })
            .collect();
        let nodes = pair_by_id(&before.nodes, &after.nodes).map(|(node, was, is)| (node, node_load(was, is)));
        let loads = MachineLoads { cpus: load_of_others(before, after, &threads), nodes: nodes.collect() };
        MachineLoadInterval { loads, threads }
    }
}

fn thread_load(place: &SeatedThread, was: &ThreadTimes, is: &ThreadTimes, elapsed_ns: f64) -> ThreadLoad {
    let [run_ns, delay_ns] = [is.run_ns.saturating_sub(was.run_ns), is.delay_ns.saturating_sub(was.delay_ns)];
    ThreadLoad {
        place: place.clone(),
        last_cpu: is.last_cpu,
        run: (run_ns as f64 / elapsed_ns).min(1.0),
        delay: (delay_ns as f64 / elapsed_ns).min(1.0),
        migrations: is.migrations.saturating_sub(was.migrations),
    }
}

/// The work on each CPU without that of our threads: subtracted from the CPU where each ran last, and the
/// remainder from the other CPUs of its seat.
fn load_of_others(
    before: &MachineCounterSample,
    after: &MachineCounterSample,
    threads: &[ThreadLoad],
) -> BTreeMap<u32, f64> {
    let work = pair_by_id(&before.cpus, &after.cpus).map(|(cpu, was, is)| {
        let all = is.all.saturating_sub(was.all).max(1) as f64;
        (cpu, (is.work.saturating_sub(was.work) as f64 / all).min(1.0))
    });
    let mut taken: BTreeMap<u32, f64> = work.collect();
    for thread in threads {
        let mut left = thread.run;
        for cpu in std::iter::once(thread.last_cpu).chain(thread.place.cpus.iter()) {
            if let Some(taken) = taken.get_mut(&cpu) {
                let ours = left.min(*taken);
                *taken -= ours;
                left -= ours;
            }
        }
    }
    taken
}

fn node_load(was: &NodePages, is: &NodePages) -> NumaNodeLoad {
    let hit = is.hit.saturating_sub(was.hit);
    let foreign = is.foreign.saturating_sub(was.foreign);
    let wanted = hit + foreign;
    let short = if wanted < PAGES_MIN { 0.0 } else { foreign as f64 / wanted as f64 };
    let missed = is.miss.saturating_sub(was.miss);
    NumaNodeLoad { short, missed, remote: is.other.saturating_sub(was.other) }
}

fn pair_by_id<'a, V>(
    before: &'a BTreeMap<u32, V>,
    after: &'a BTreeMap<u32, V>,
) -> impl Iterator<Item = (u32, &'a V, &'a V)> {
    after.iter().filter_map(|(id, is)| Some((*id, before.get(id)?, is)))
}

#[cfg(test)]
mod tests {
    use super::super::sample::CpuTicks;
    use super::*;
    use crate::thread_binding::ThreadDuty;
    use std::time::Duration;

    fn place(tid: i32, cpus: &[u32]) -> SeatedThread {
        SeatedThread { tid, lane: 0, duty: ThreadDuty::Comm, cpus: cpus.iter().copied().collect() }
    }

    fn ran(last_cpu: u32, run_ms: u64) -> ThreadTimes {
        ThreadTimes { last_cpu, run_ns: run_ms * 1_000_000, delay_ns: 500_000_000, migrations: 3 }
    }

    #[test]
    fn our_own_work_is_not_others() {
        fn ticks(work: u64) -> CpuTicks {
            CpuTicks { work, all: 200 }
        }
        let zero = CpuTicks::default();
        let idle = ThreadTimes::default();
        let before = MachineCounterSample {
            cpus: (0..4).map(|cpu| (cpu, zero)).collect(),
            threads: [1, 2].into_iter().map(|tid| (tid, idle)).collect(),
            ..MachineCounterSample::default()
        };
        let after = MachineCounterSample {
            at: Duration::from_secs(2),
            cpus: [ticks(200), ticks(100), ticks(20), ticks(200)]
                .into_iter()
                .zip(0..)
                .map(|(t, i)| (i, t))
                .collect(),
            threads: BTreeMap::from([(1, ran(0, 1_200)), (2, ran(2, 1_000)), (3, ran(3, 900_000))]),
            ..MachineCounterSample::default()
        };
        let places = [place(1, &[0]), place(2, &[1, 2]), place(3, &[3]), place(4, &[3])];
        let MachineLoadInterval { loads, threads } = MachineLoadInterval::between(&before, &after, &places);
        let rounded = loads.cpus.values().map(|share| (share * 100.0).round() as u32).collect::<Vec<_>>();
        // CPU 0: 100 % busy, 60 % by us. Thread 2 ran half the time, of which 10 % fit on CPU 2, the rest was
        // on CPU 1.
        assert_eq!(rounded, [40, 10, 0, 0]);
        let new = &threads[2];
        assert_eq!((threads.len(), new.run, new.delay, new.migrations), (3, 1.0, 0.0, 0), "one has got up");
        assert_eq!((threads[0].run, threads[0].delay, threads[0].migrations), (0.6, 0.25, 3));
    }

    #[test]
    fn a_node_is_short_when_its_pages_come_from_elsewhere() {
        fn pages(hit: u64, foreign: u64) -> NodePages {
            NodePages { hit, miss: 7, foreign, other: 9 }
        }
        let load = node_load(&pages(100, 100), &pages(9_100, 1_100));
        assert_eq!((load.short, load.missed, load.remote), (0.1, 0, 0));
        assert_eq!(node_load(&pages(0, 0), &pages(0, 90)).short, 0.0, "too few to say");
        assert_eq!(
            node_load(&NodePages::default(), &pages(5, 5)),
            NumaNodeLoad { short: 0.0, missed: 7, remote: 9 }
        );
    }
}
