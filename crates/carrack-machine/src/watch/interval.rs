//! What happened between two samples: how much of each CPU others took, and how our threads fared.

use std::collections::BTreeMap;

use super::sample::{NodePages, Sample, ThreadTimes};
use crate::crew::ThreadPlace;

/// Fewer pages than these in an interval (4 MiB) say nothing about a node.
const PAGES_MIN: u64 = 1_024;

/// What others do on the machine, by the kernel's numbers: what a placement should avoid.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Loads {
    /// The share of each logical CPU that others took, 0 to 1.
    pub cpus: BTreeMap<u32, f64>,
    /// How the nodes' memory fared.
    pub nodes: BTreeMap<u32, NodeLoad>,
}

/// How a node's memory fared in an interval; all processes' pages count.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct NodeLoad {
    /// The share of pages that were wanted here and had to be given elsewhere (`numa_foreign`), 0 to 1.
    pub short: f64,
    /// Pages wanted elsewhere that were given here (`numa_miss`).
    pub missed: u64,
    /// Pages given here to CPUs of other nodes (`other_node`).
    pub remote: u64,
}

/// What happened in an interval.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Interval {
    pub(super) loads: Loads,
    pub(super) threads: Vec<ThreadLoad>,
}

/// How one of our threads fared.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ThreadLoad {
    pub(super) place: ThreadPlace,
    pub(super) last_cpu: u32,
    /// The share of the interval in which it ran.
    pub(super) run: f64,
    /// The share in which it could have run, but something else did.
    pub(super) delay: f64,
    pub(super) migrations: u64,
}

impl Interval {
    /// The difference of two samples. Of a thread that sat down in between all its work until now counts, so that it is
    /// not taken for others', and no delay; one that has got up is left out.
    pub(super) fn between(before: &Sample, after: &Sample, places: &[ThreadPlace]) -> Interval {
        let elapsed_ns = after.at.saturating_sub(before.at).as_nanos().max(1) as f64;
        let of_place = |place: &ThreadPlace| {
            let is = after.threads.get(&place.tid)?;
            let new = ThreadTimes { run_ns: 0, ..*is };
            Some(thread_load(place, before.threads.get(&place.tid).unwrap_or(&new), is, elapsed_ns))
        };
        let threads: Vec<ThreadLoad> = places.iter().filter_map(of_place).collect();
        let nodes = both(&before.nodes, &after.nodes).map(|(node, was, is)| (node, node_load(was, is)));
        let loads = Loads { cpus: taken_by_others(before, after, &threads), nodes: nodes.collect() };
        Interval { loads, threads }
    }
}

fn thread_load(place: &ThreadPlace, was: &ThreadTimes, is: &ThreadTimes, elapsed_ns: f64) -> ThreadLoad {
    let share = |was: u64, is: u64| (is.saturating_sub(was) as f64 / elapsed_ns).min(1.0);
    ThreadLoad {
        place: place.clone(),
        last_cpu: is.last_cpu,
        run: share(was.run_ns, is.run_ns),
        delay: share(was.delay_ns, is.delay_ns),
        migrations: is.migrations.saturating_sub(was.migrations),
    }
}

/// The work on each CPU without that of our threads: taken off the CPU where each ran last, and what can't have been
/// there, off the others of its seat.
fn taken_by_others(before: &Sample, after: &Sample, threads: &[ThreadLoad]) -> BTreeMap<u32, f64> {
    let work = both(&before.cpus, &after.cpus).map(|(cpu, was, is)| {
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

fn node_load(was: &NodePages, is: &NodePages) -> NodeLoad {
    let grown = |of: fn(&NodePages) -> u64| of(is).saturating_sub(of(was));
    let (hit, foreign) = (grown(|pages| pages.hit), grown(|pages| pages.foreign));
    let wanted = hit + foreign;
    let short = if wanted < PAGES_MIN { 0.0 } else { foreign as f64 / wanted as f64 };
    NodeLoad { short, missed: grown(|pages| pages.miss), remote: grown(|pages| pages.other) }
}

fn both<'a, V>(
    before: &'a BTreeMap<u32, V>,
    after: &'a BTreeMap<u32, V>,
) -> impl Iterator<Item = (u32, &'a V, &'a V)> {
    after.iter().filter_map(|(id, is)| Some((*id, before.get(id)?, is)))
}

#[cfg(test)]
mod tests {
    use super::super::sample::CpuTicks;
    use super::*;
    use crate::crew::Duty;
    use std::time::Duration;

    fn place(tid: i32, cpus: &[u32]) -> ThreadPlace {
        ThreadPlace { tid, lane: 0, duty: Duty::Comm, cpus: cpus.iter().copied().collect() }
    }

    fn ran(last_cpu: u32, run_ms: u64) -> ThreadTimes {
        ThreadTimes { last_cpu, run_ns: run_ms * 1_000_000, delay_ns: 500_000_000, migrations: 3 }
    }

    #[test]
    fn our_own_work_is_not_others() {
        let ticks = |work| CpuTicks { work, all: 200 };
        let zero = CpuTicks::default();
        let idle = ThreadTimes::default();
        let before = Sample {
            cpus: (0..4).map(|cpu| (cpu, zero)).collect(),
            threads: [1, 2].into_iter().map(|tid| (tid, idle)).collect(),
            ..Sample::default()
        };
        let after = Sample {
            at: Duration::from_secs(2),
            cpus: [ticks(200), ticks(100), ticks(20), ticks(200)]
                .into_iter()
                .zip(0..)
                .map(|(t, i)| (i, t))
                .collect(),
            threads: BTreeMap::from([(1, ran(0, 1_200)), (2, ran(2, 1_000)), (3, ran(3, 900_000))]),
            ..Sample::default()
        };
        let places = [place(1, &[0]), place(2, &[1, 2]), place(3, &[3]), place(4, &[3])];
        let Interval { loads, threads } = Interval::between(&before, &after, &places);
        let rounded = loads.cpus.values().map(|share| (share * 100.0).round() as u32).collect::<Vec<_>>();
        // CPU 0: 100 % busy, 60 % of it us. Thread 2 ran half the time, 10 % of which fits on CPU 2, the rest was on CPU 1.
        assert_eq!(rounded, [40, 10, 0, 0]);
        let new = &threads[2];
        assert_eq!((threads.len(), new.run, new.delay, new.migrations), (3, 1.0, 0.0, 0), "one has got up");
        assert_eq!((threads[0].run, threads[0].delay, threads[0].migrations), (0.6, 0.25, 3));
    }

    #[test]
    fn a_node_is_short_when_its_pages_come_from_elsewhere() {
        let pages = |hit, foreign| NodePages { hit, miss: 7, foreign, other: 9 };
        let load = node_load(&pages(100, 100), &pages(9_100, 1_100));
        assert_eq!((load.short, load.missed, load.remote), (0.1, 0, 0));
        assert_eq!(node_load(&pages(0, 0), &pages(0, 90)).short, 0.0, "too few to say");
        assert_eq!(
            node_load(&NodePages::default(), &pages(5, 5)),
            NodeLoad { short: 0.0, missed: 7, remote: 9 }
        );
    }
}
