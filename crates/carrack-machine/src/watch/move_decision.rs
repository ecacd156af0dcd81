//! Decisions to move lanes or their threads (M5): pure, the time is an argument.
//!
//! Each interval the current placement is compared with a new plan. The load of a CPU is the work of others:
//! other programs, and our other lanes.
//!
//! * A lane moves if the planned CPUs, on other nodes, have clearly less load than its own, or if its nodes
//!   run out of memory and the others don't.
//! * Its threads change seats if one of them waits for its CPU, which others use, and the planned seats have
//!   clearly less load.
//! * A lane that has moved returns to its first place, the nearest to its devices, once that place has been
//!   free for a minute and is planned.
//!
//! A move needs two equal results in a row. A lane that has moved rests, and twice as long each time until it
//! has been calm for long: whatever the load does, even if it follows the lane, a lane moves about ten times
//! an hour.

use std::fmt;
use std::time::Duration;

use super::sample_difference::{MachineLoadInterval, ThreadLoad};
use crate::id_set::{CpuSet, NodeSet};
use crate::placement::{EndThreadPlacement, LanePlacement, ThreadSeat};
use crate::thread_binding::{ThreadDuty, seat_of};

/// Minimum load of a lane's CPUs for a move: half of the share that one busy program takes from a busy
/// thread.
const TAKEN_MIN: f64 = 0.25;

/// Minimum gain of a move. A smaller gain does not justify moving buffers.
const GAIN_MIN: f64 = 0.2;

/// Minimum share of time that a thread waits for its CPU.
const DELAY_MIN: f64 = 0.2;

/// Minimum share of pages that nodes can't allocate.
const SHORT_MIN: f64 = 0.05;

/// Equal results in a row for a move.
const STRIKES: u32 = 2;

/// Equal results in a row for a return: a minute.
const STRIKES_BACK: u32 = 30;

/// Maximum load of the CPUs for a return.
const FREE_MAX: f64 = 0.1;

/// First and longest rest after a move.
const REST: Duration = Duration::from_secs(20);
const REST_MAX: Duration = Duration::from_secs(600);

/// Time without a move after which the first rest applies again.
const CALM: Duration = Duration::from_secs(1_800);

/// A change of one lane, with its reason.
#[derive(Clone, Debug, PartialEq)]
pub struct LaneMoveDecision {
    /// The lane.
    pub lane: usize,
    /// The change itself.
    pub change: LanePlacementChange,
    /// Reason, for people.
    pub reason: String,
}

/// A change of a lane.
#[derive(Clone, Debug, PartialEq)]
pub enum LanePlacementChange {
    /// The whole lane moves, with its memory.
    Lane(Box<LanePlacement>),
    /// These threads change seats.
    Threads(Vec<ThreadMove>),
}

/// A thread's new seat.
#[derive(Clone, Debug, PartialEq)]
pub struct ThreadMove {
    /// Thread ID.
    pub tid: i32,
    /// Role of the thread.
    pub duty: ThreadDuty,
    /// New seat.
    pub to: ThreadSeat,
}

impl fmt::Display for LaneMoveDecision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "lane {}: {}: ", self.lane, self.reason)?;
        match &self.change {
            LanePlacementChange::Lane(to) => write!(f, "it moves to {}", name(to)),
            LanePlacementChange::Threads(moves) => {
                let texts = moves.iter().map(|to| format!("{} goes to CPU {}", to.duty, to.to.cpus));
                f.write_str(&texts.collect::<Vec<_>>().join(", "))
            }
        }
    }
}

/// Keeps the history of each lane.
#[derive(Default)]
pub(super) struct ThreadMoveJudge {
    lanes: Vec<LaneMoveHistory>,
}

#[derive(Clone)]
struct LaneMoveHistory {
    /// First place of the lane.
    home: (usize, NodeSet),
    /// Result of the last intervals, and their number in a row.
    wish: Option<WantedLaneMove>,
    strikes: u32,
    moved_at: Option<Duration>,
    rest: Duration,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum WantedLaneMove {
    /// A move to this socket.
    Away(usize),
    /// A return to the first place.
    Back,
    /// New seats for its threads.
    Seats,
}

impl WantedLaneMove {
    fn required_repetitions(self) -> u32 {
        if self == WantedLaneMove::Back { STRIKES_BACK } else { STRIKES }
    }
}

impl ThreadMoveJudge {
    /// Decides on changes; at most one for each lane. `now` counts from any origin.
    pub(super) fn decide_moves(
        &mut self,
        now: Duration,
        seen: &MachineLoadInterval,
        present: &EndThreadPlacement,
        planned: &EndThreadPlacement,
    ) -> Vec<LaneMoveDecision> {
        self.lanes.extend(present.lanes.iter().skip(self.lanes.len()).map(LaneMoveHistory::of));
        let pairs = present.lanes.iter().zip(&planned.lanes).zip(&mut self.lanes).enumerate();
        pairs
            .filter_map(|(lane, ((present, planned), history))| {
                let wished = LaneMoveFacts { seen, lane, present, planned, home: &history.home }.decision();
                history.confirm_decision(now, wished)
            })
            .collect()
    }
}

impl LaneMoveHistory {
    fn of(lane: &LanePlacement) -> LaneMoveHistory {
        let home = (lane.socket, lane.memory.clone());
        LaneMoveHistory { home, wish: None, strikes: 0, moved_at: None, rest: REST }
    }

    /// Passes a decision if it was repeated often enough, and the lane has rested.
    fn confirm_decision(
        &mut self,
        now: Duration,
        wished: Option<(WantedLaneMove, LaneMoveDecision)>,
    ) -> Option<LaneMoveDecision> {
        let wish = wished.as_ref().map(|(wish, _)| *wish);
        self.strikes = if wish == self.wish { self.strikes.saturating_add(1) } else { 1 };
        self.wish = wish;
        let (wish, decision) = wished?;
        let has_rested = self.moved_at.is_none_or(|moved_at| now >= moved_at + self.rest);
        if self.strikes < wish.required_repetitions() || !has_rested {
            return None;
        }
        self.record_move(now);
        Some(decision)
    }

    fn record_move(&mut self, now: Duration) {
        let is_calm = self.moved_at.is_none_or(|moved_at| now >= moved_at + CALM);
        self.rest = if is_calm { REST } else { (self.rest * 2).min(REST_MAX) };
        (self.moved_at, self.wish, self.strikes) = (Some(now), None, 0);
    }
}

/// The facts about one lane.
struct LaneMoveFacts<'a> {
    seen: &'a MachineLoadInterval,
    lane: usize,
    present: &'a LanePlacement,
    planned: &'a LanePlacement,
    home: &'a (usize, NodeSet),
}

impl LaneMoveFacts<'_> {
    fn decision(&self) -> Option<(WantedLaneMove, LaneMoveDecision)> {
        let is_elsewhere =
            self.present.socket != self.planned.socket || self.present.memory != self.planned.memory;
        let (wish, change, reason) = if is_elsewhere {
            let (wish, reason) = match self.crowding_reason().or_else(|| self.memory_shortage_reason()) {
                Some(reason) => (WantedLaneMove::Away(self.planned.socket), reason),
                None => (WantedLaneMove::Back, self.return_home_reason()?),
            };
            (wish, LanePlacementChange::Lane(Box::new(self.planned.clone())), reason)
        } else {
            let (change, reason) = self.starved_thread_moves()?;
            (WantedLaneMove::Seats, change, reason)
        };
        Some((wish, LaneMoveDecision { lane: self.lane, change, reason }))
    }

    fn crowding_reason(&self) -> Option<String> {
        let here = self.mean_foreign_load(&self.present.cpus())?;
        let there = self.mean_foreign_load(&self.planned.cpus())?;
        is_clearly_less(there, here).then(|| {
            let (from, to) = (name(self.present), name(self.planned));
            format!("{from}'s cores are {} taken by others, {to}'s {}", percent(here), percent(there))
        })
    }

    fn memory_shortage_reason(&self) -> Option<String> {
        let (here, there) = (self.memory_shortage(self.present), self.memory_shortage(self.planned));
        let [taken_here, taken_there] =
            [self.present, self.planned].map(|place| self.mean_foreign_load(&place.cpus()).unwrap_or(0.0));
        let is_worse_otherwise = is_clearly_less(taken_here, taken_there);
        (here >= SHORT_MIN && there <= here / 2.0 && !is_worse_otherwise).then(|| {
            let (from, to) = (name(self.present), name(self.planned));
            format!(
                "{from} could not give {} of the pages wanted there, {to} {}",
                percent(here),
                percent(there)
            )
        })
    }

    fn return_home_reason(&self) -> Option<String> {
        let is_home = (self.planned.socket, &self.planned.memory) == (self.home.0, &self.home.1);
        let taken = self.mean_foreign_load(&self.planned.cpus())?;
        let is_free = taken <= FREE_MAX && self.memory_shortage(self.planned) < SHORT_MIN;
        (is_home && is_free).then(|| format!("{}, where it was at first, is free again", name(self.planned)))
    }

    fn starved_thread_moves(&self) -> Option<(LanePlacementChange, String)> {
        let moves: Vec<(&ThreadLoad, ThreadSeat)> =
            self.threads().filter_map(|thread| self.better_seat(thread)).collect();
        let in_need: Vec<_> = moves.iter().filter(|(thread, _)| self.is_starved(thread)).collect();
        let here = mean(in_need.iter().map(|(thread, _)| self.mean_foreign_load(&thread.place.cpus)))?;
        let there = mean(in_need.iter().map(|(_, seat)| self.mean_foreign_load(&seat.cpus)))?;
        let (worst, _) = in_need.iter().max_by(|a, b| a.0.delay.total_cmp(&b.0.delay))?;
        is_clearly_less(there, here).then(|| {
            let reason = format!(
                "{} waited for CPU {} {} of the time ({} changes of CPU), which is {} taken by others, the new seats {}",
                worst.place.duty,
                worst.place.cpus,
                percent(worst.delay),
                worst.migrations,
                percent(here),
                percent(there)
            );
            (LanePlacementChange::Threads(moves.iter().map(|(thread, to)| ThreadMove {
                tid: thread.place.tid,
                duty: thread.place.duty,
                to: to.clone(),
            }).collect()), reason)
        })
    }

    fn threads(&self) -> impl Iterator<Item = &ThreadLoad> {
        self.seen.threads.iter().filter(|thread| thread.place.lane == self.lane)
    }

    /// The planned seat of a thread, if it differs from its current seat.
    fn better_seat<'t>(&self, thread: &'t ThreadLoad) -> Option<(&'t ThreadLoad, ThreadSeat)> {
        let seat = seat_of(self.planned, thread.place.duty);
        (!seat.cpus.is_empty() && seat.cpus != thread.place.cpus).then_some((thread, seat))
    }

    fn is_starved(&self, thread: &ThreadLoad) -> bool {
        let taken = self.mean_foreign_load(&thread.place.cpus);
        thread.delay >= DELAY_MIN && taken.is_some_and(|taken| taken >= TAKEN_MIN)
    }

    fn mean_foreign_load(&self, cpus: &CpuSet) -> Option<f64> {
        let sum: f64 = cpus.iter().map(|cpu| self.foreign_load(cpu)).sum();
        (!cpus.is_empty()).then(|| sum / cpus.len() as f64)
    }

    /// Load of a CPU by other programs and other lanes; 1 for a CPU that does not exist.
    fn foreign_load(&self, cpu: u32) -> f64 {
        let Some(others) = self.seen.loads.cpus.get(&cpu) else { return 1.0 };
        let lanes: f64 = self
            .seen
            .threads
            .iter()
            .filter(|thread| thread.last_cpu == cpu && thread.place.lane != self.lane)
            .map(|thread| thread.run)
            .sum();
        (others + lanes).min(1.0)
    }

    fn memory_shortage(&self, place: &LanePlacement) -> f64 {
        place
            .memory
            .iter()
            .map(|node| self.seen.loads.nodes.get(&node).map_or(0.0, |load| load.short))
            .fold(0.0, f64::max)
    }
}

/// The mean; `None` without values, or if one is unknown.
fn mean(values: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    let all: Vec<f64> = values.collect::<Option<_>>()?;
    (!all.is_empty()).then(|| all.iter().sum::<f64>() / all.len() as f64)
}

fn is_clearly_less(there: f64, here: f64) -> bool {
    here >= TAKEN_MIN && here - there >= GAIN_MIN
}

fn name(place: &LanePlacement) -> String {
    if place.memory.is_empty() {
        format!("socket {}", place.socket)
    } else {
        format!("node {}", place.memory)
    }
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

#[cfg(test)]
#[path = "judge_tests.rs"]
mod tests;
