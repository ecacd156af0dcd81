//! The watch (M5): every two seconds it checks the load of a crew's CPUs and nodes, and moves lanes and
//! threads to clearly better places.
//!
//! Runs on a thread of the caller, on machines with several nodes. [`sample`] reads the counters,
//! [`interval`] computes the difference of two samples, and [`judge`] decides; none of them changes anything.

mod move_decision;
mod sample;
mod sample_difference;

use std::path::Path;
use std::time::{Duration, Instant};

pub use move_decision::{LaneMoveDecision, LanePlacementChange, ThreadMove};
pub use sample::KernelCountersError;
pub use sample_difference::{MachineLoads, NumaNodeLoad};

use crate::fifo_monitor::{ConditionWaitAttempt, FifoConditionLock};
use crate::placement::EndThreadPlacement;
use crate::thread_binding::{BindingLevel, EndThreadBindings, SeatedThread, ThreadMoveResult};
use move_decision::ThreadMoveJudge;
use sample::KernelCounterSampler;
use sample_difference::MachineLoadInterval;

/// Long enough for ticks of 10 ms, and short enough for transfers of minutes.
const EVERY: Duration = Duration::from_secs(2);

/// Watches `crew` until `stop` is closed. `replan` computes the placement on this machine under the given
/// load; it must not depend on the current placement, and must keep the number of lanes. `tell` is called
/// after each decision, with its result.
pub fn watch_thread_bindings(
    crew: &EndThreadBindings,
    stop: &FifoConditionLock<()>,
    replan: &dyn Fn(&MachineLoads) -> EndThreadPlacement,
    tell: &dyn Fn(&LaneMoveDecision, &ThreadMoveResult),
) -> Result<(), KernelCountersError> {
    ThreadPlacementWatch { crew, replan, tell, sampler: KernelCounterSampler::with_root(Path::new("/")) }
        .run(stop, EVERY)
}

struct ThreadPlacementWatch<'a> {
    crew: &'a EndThreadBindings,
    replan: &'a dyn Fn(&MachineLoads) -> EndThreadPlacement,
    tell: &'a dyn Fn(&LaneMoveDecision, &ThreadMoveResult),
    sampler: KernelCounterSampler,
}

impl ThreadPlacementWatch<'_> {
    fn run(&self, stop: &FifoConditionLock<()>, every: Duration) -> Result<(), KernelCountersError> {
        let start = Instant::now();
        let mut judge = ThreadMoveJudge::default();
        let mut before = self.sampler.read(start.elapsed(), &tids(&self.crew.threads()))?;
        while sleep_unless_stopped(stop, every) {
            let threads = self.crew.threads();
            let now = self.sampler.read(start.elapsed(), &tids(&threads))?;
            let seen = MachineLoadInterval::between(&before, &now, &threads);
            let (present, planned) = (self.crew.placement(), (self.replan)(&seen.loads));
            for decision in judge.decide_moves(now.at, &seen, &present, &planned) {
                if let Some(moved) = self.apply_decision(&decision) {
                    (self.tell)(&decision, &moved);
                }
            }
            before = now;
        }
        Ok(())
    }

    /// `None` if all threads to move have ended meanwhile.
    fn apply_decision(&self, decision: &LaneMoveDecision) -> Option<ThreadMoveResult> {
        match &decision.change {
            LanePlacementChange::Lane(to) => self.crew.move_lane(decision.lane, to).ok(),
            LanePlacementChange::Threads(moves) => {
                let steps: Vec<BindingLevel> =
                    moves.iter().filter_map(|to| self.crew.move_thread(to.tid, &to.to).ok()).collect();
                steps.into_iter().max().map(|step| ThreadMoveResult { step, backings: Vec::new() })
            }
        }
    }
}

fn tids(threads: &[SeatedThread]) -> Vec<i32> {
    threads.iter().map(|thread| thread.tid).collect()
}

/// Returns true if it slept to the end.
fn sleep_unless_stopped(stop: &FifoConditionLock<()>, time: Duration) -> bool {
    let until = Instant::now() + time;
    stop.take_timed(|_| {
        if Instant::now() >= until {
            ConditionWaitAttempt::Done(())
        } else {
            ConditionWaitAttempt::Until(until)
        }
    })
    .is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::binding::{cpus_of, this_thread};
    use crate::id_set::{CpuSet, NodeSet};
    use crate::placement::{LanePlacement, PlacementScheme, ThreadSeat};
    use crate::thread_binding::ThreadDuty;
    use std::fs;
    use std::sync::{Arc, mpsc};
    use std::thread;

    fn on(cpus: &CpuSet, socket: usize) -> EndThreadPlacement {
        let seat = ThreadSeat { cpus: cpus.clone(), ..ThreadSeat::default() };
        let lane = LanePlacement {
            socket,
            memory: NodeSet::from_iter([0]),
            master: seat.clone(),
            comm: seat,
            io: Vec::new(),
            nic: None,
            disks: Vec::new(),
        };
        EndThreadPlacement { scheme: PlacementScheme::Mts, lanes: vec![lane], reasons: Vec::new() }
    }

    /// A machine whose first CPU is used by others more and more, while its last one idles. Each reading of
    /// the counters by the watch is announced by a call of `replan`, which lets time pass there.
    fn pass_time(root: &Path, cpus: &[u32], ticks: u64) {
        let lines = cpus.iter().map(|cpu| {
            let (busy, idle) = if cpu == &cpus[0] { (ticks, 0) } else { (0, ticks) };
            format!("cpu{cpu} {busy} 0 0 {idle} 0 0 0 0 0 0\n")
        });
        fs::write(root.join("proc/stat"), lines.collect::<String>()).unwrap();
    }

    #[test]
    fn a_real_thread_is_moved_away_from_a_core_that_others_take() {
        let all: Vec<u32> = cpus_of(this_thread()).unwrap().iter().collect();
        let (first, last) = (CpuSet::from_iter([all[0]]), CpuSet::from_iter([all[all.len() - 1]]));
        if first == last {
            eprintln!("skipped: one CPU only");
            return;
        }
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("proc")).unwrap();
        pass_time(root.path(), &all, 0);
        let crew = EndThreadBindings::new(on(&first, 0));
        let _seated = crew.lane(0).bind_current_thread(ThreadDuty::Comm);
        let stop = Arc::new(FifoConditionLock::new(()));
        let (told, hear) = mpsc::channel();
        let watching = {
            let (crew, stop, root, last) =
                (crew.clone(), Arc::clone(&stop), root.path().to_path_buf(), last.clone());
            thread::spawn(move || {
                let ticks = std::cell::Cell::new(0);
                let watch = ThreadPlacementWatch {
                    crew: &crew,
                    replan: &|_| {
                        ticks.set(ticks.get() + 200);
                        pass_time(&root, &all, ticks.get());
                        on(&last, 1)
                    },
                    tell: &|decision, moved| told.send((decision.to_string(), moved.to_string())).unwrap(),
                    sampler: KernelCounterSampler::with_root(&root),
                };
                watch.run(&stop, Duration::from_millis(5))
            })
        };
        let (decision, moved) = hear.recv_timeout(Duration::from_secs(20)).unwrap();
        assert!(decision.contains("100 % taken by others"), "{decision}");
        assert_eq!(moved, "threads in their seats");
        assert_eq!(cpus_of(this_thread()).unwrap(), last);
        stop.close();
        watching.join().unwrap().unwrap();
    }

    #[test]
    fn the_watch_ends_at_once_when_it_is_stopped() {
        let stop = Arc::new(FifoConditionLock::new(()));
        let (ended, hear) = mpsc::channel();
        {
            let stop = Arc::clone(&stop);
            thread::spawn(move || {
                let (crew, sampler) =
                    (EndThreadBindings::unbound(), KernelCounterSampler::with_root(Path::new("/")));
                let (replan, tell) = (
                    |_: &MachineLoads| crew.placement(),
                    |decision: &LaneMoveDecision, _: &ThreadMoveResult| panic!("{decision}"),
                );
                let watch = ThreadPlacementWatch { crew: &crew, replan: &replan, tell: &tell, sampler };
                ended.send(watch.run(&stop, Duration::from_secs(3_600)).is_ok()).unwrap();
            });
        }
        while stop.waiter_count() == 0 {
            thread::yield_now();
        }
        stop.close();
        assert_eq!(hear.recv_timeout(Duration::from_secs(20)), Ok(true));
    }
}
