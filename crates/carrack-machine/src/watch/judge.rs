//! Whether a lane, or threads of it, should sit elsewhere (M5): pure, the time is an argument.
//!
//! Each interval the present placement is compared with the one that would be planned now. What counts on a CPU is the
//! work of others: other programs', and our own other lanes'.
//!
//! * A lane moves if the CPUs planned now, on other nodes, are clearly less taken than those it has, or if its nodes run
//!   out of memory and the others don't.
//! * Its threads change seats if one of them waits for its CPU, which others take, and the seats planned now are clearly
//!   less taken.
//! * A lane that has moved goes back to where it was at first, the place nearest to its devices, once that is free again for a minute and is
//!   planned.
//!
//! One interval says nothing, two in a row count. A lane that has moved rests, and twice as long each time until it has
//! been calm for long: whatever the load does, following the lane about included, a lane moves about ten times an hour.

use std::fmt;
use std::time::Duration;

use super::interval::{Interval, ThreadLoad};
use crate::crew::{Duty, seat_of};
use crate::id_set::{CpuSet, NodeSet};
use crate::placement::{LanePlacement, Placement, Seat};

/// What others take of a lane's CPUs before it counts: half of what one busy program per CPU takes from a busy thread.
const TAKEN_MIN: f64 = 0.25;

/// How much less they must take elsewhere. Less is not worth moving buffers for.
const GAIN_MIN: f64 = 0.2;

/// The share of time that a thread waits for its CPU before it counts.
const DELAY_MIN: f64 = 0.2;

/// The share of pages that nodes can't give before it counts.
const SHORT_MIN: f64 = 0.05;

/// Intervals in a row that say the same.
const STRIKES: u32 = 2;

/// The same before a lane goes back: a minute.
const STRIKES_BACK: u32 = 30;

/// What others may take of the CPUs that it goes back to.
const FREE_MAX: f64 = 0.1;

/// A lane's rest after its first move, and the longest.
const REST: Duration = Duration::from_secs(20);
const REST_MAX: Duration = Duration::from_secs(600);

/// A lane that has not moved for so long begins again with the first rest.
const CALM: Duration = Duration::from_secs(1_800);

/// What should change in one lane, and why.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// The lane.
    pub lane: usize,
    /// What changes.
    pub change: Change,
    /// Why, for people.
    pub reason: String,
}

/// What changes in a lane.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// It moves as a whole, with its memory.
    Lane(Box<LanePlacement>),
    /// These threads change seats.
    Threads(Vec<ThreadMove>),
}

/// A thread's new seat.
#[derive(Clone, Debug, PartialEq)]
pub struct ThreadMove {
    /// The kernel's number of the thread.
    pub tid: i32,
    /// What it does.
    pub duty: Duty,
    /// Where it goes.
    pub to: Seat,
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "lane {}: {}: ", self.lane, self.reason)?;
        match &self.change {
            Change::Lane(to) => write!(f, "it moves to {}", name(to)),
            Change::Threads(moves) => {
                let texts = moves.iter().map(|to| format!("{} goes to CPU {}", to.duty, to.to.cpus));
                f.write_str(&texts.collect::<Vec<_>>().join(", "))
            }
        }
    }
}

/// Remembers what each lane did and wished.
#[derive(Default)]
pub(super) struct Judge {
    lanes: Vec<History>,
}

#[derive(Clone)]
struct History {
    /// Where the lane was at first.
    home: (usize, NodeSet),
    /// What the last intervals said, and how many of them in a row.
    wish: Option<Wish>,
    strikes: u32,
    moved_at: Option<Duration>,
    rest: Duration,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Wish {
    /// Away, to this socket.
    Away(usize),
    /// Back to where it was at first.
    Back,
    /// Other seats for its threads.
    Seats,
}

impl Wish {
    fn strikes_wanted(self) -> u32 {
        if self == Wish::Back { STRIKES_BACK } else { STRIKES }
    }
}

impl Judge {
    /// What should change now; at most one thing for each lane. `now` counts from any beginning.
    pub(super) fn judge(
        &mut self,
        now: Duration,
        seen: &Interval,
        present: &Placement,
        planned: &Placement,
    ) -> Vec<Decision> {
        self.lanes.extend(present.lanes.iter().skip(self.lanes.len()).map(History::of));
        let pairs = present.lanes.iter().zip(&planned.lanes).zip(&mut self.lanes).enumerate();
        pairs
            .filter_map(|(lane, ((present, planned), history))| {
                let wished = View { seen, lane, present, planned, home: &history.home }.decision();
                history.consider(now, wished)
            })
            .collect()
    }
}

impl History {
    fn of(lane: &LanePlacement) -> History {
        let home = (lane.socket, lane.memory.clone());
        History { home, wish: None, strikes: 0, moved_at: None, rest: REST }
    }

    /// Lets a decision pass if it was made before, and the lane has rested.
    fn consider(&mut self, now: Duration, wished: Option<(Wish, Decision)>) -> Option<Decision> {
        let wish = wished.as_ref().map(|(wish, _)| *wish);
        self.strikes = if wish == self.wish { self.strikes.saturating_add(1) } else { 1 };
        self.wish = wish;
        let (wish, decision) = wished?;
        let has_rested = self.moved_at.is_none_or(|moved_at| now >= moved_at + self.rest);
        if self.strikes < wish.strikes_wanted() || !has_rested {
            return None;
        }
        self.move_at(now);
        Some(decision)
    }

    fn move_at(&mut self, now: Duration) {
        let is_calm = self.moved_at.is_none_or(|moved_at| now >= moved_at + CALM);
        self.rest = if is_calm { REST } else { (self.rest * 2).min(REST_MAX) };
        (self.moved_at, self.wish, self.strikes) = (Some(now), None, 0);
    }
}

/// One lane's matter.
struct View<'a> {
    seen: &'a Interval,
    lane: usize,
    present: &'a LanePlacement,
    planned: &'a LanePlacement,
    home: &'a (usize, NodeSet),
}

impl View<'_> {
    fn decision(&self) -> Option<(Wish, Decision)> {
        let is_elsewhere =
            self.present.socket != self.planned.socket || self.present.memory != self.planned.memory;
        let (wish, change, reason) = if is_elsewhere {
            let away = || {
                Some((
                    Wish::Away(self.planned.socket),
                    self.crowded_out().or_else(|| self.short_of_memory())?,
                ))
            };
            let (wish, reason) = away().or_else(|| Some((Wish::Back, self.home_is_free()?)))?;
            (wish, Change::Lane(Box::new(self.planned.clone())), reason)
        } else {
            let (change, reason) = self.threads_in_need()?;
            (Wish::Seats, change, reason)
        };
        Some((wish, Decision { lane: self.lane, change, reason }))
    }

    fn crowded_out(&self) -> Option<String> {
        let here = self.mean_taken(&self.present.cpus())?;
        let there = self.mean_taken(&self.planned.cpus())?;
        is_clearly_less(there, here).then(|| {
            let (from, to) = (name(self.present), name(self.planned));
            format!("{from}'s cores are {} taken by others, {to}'s {}", percent(here), percent(there))
        })
    }

    fn short_of_memory(&self) -> Option<String> {
        let (here, there) = (self.short(self.present), self.short(self.planned));
        let taken = |place: &LanePlacement| self.mean_taken(&place.cpus()).unwrap_or(0.0);
        let is_worse_otherwise = is_clearly_less(taken(self.present), taken(self.planned));
        (here >= SHORT_MIN && there <= here / 2.0 && !is_worse_otherwise).then(|| {
            let (from, to) = (name(self.present), name(self.planned));
            format!(
                "{from} could not give {} of the pages wanted there, {to} {}",
                percent(here),
                percent(there)
            )
        })
    }

    fn home_is_free(&self) -> Option<String> {
        let is_home = (self.planned.socket, &self.planned.memory) == (self.home.0, &self.home.1);
        let taken = self.mean_taken(&self.planned.cpus())?;
        let is_free = taken <= FREE_MAX && self.short(self.planned) < SHORT_MIN;
        (is_home && is_free).then(|| format!("{}, where it was at first, is free again", name(self.planned)))
    }

    fn threads_in_need(&self) -> Option<(Change, String)> {
        let moves: Vec<(&ThreadLoad, Seat)> =
            self.threads().filter_map(|thread| self.better_seat(thread)).collect();
        let in_need: Vec<_> = moves.iter().filter(|(thread, _)| self.is_in_need(thread)).collect();
        let mean = |taken: &dyn Fn(&(&ThreadLoad, Seat)) -> Option<f64>| {
            let all: Option<Vec<f64>> = in_need.iter().map(|pair| taken(pair)).collect();
            all.filter(|all| !all.is_empty()).map(|all| all.iter().sum::<f64>() / all.len() as f64)
        };
        let here = mean(&|(thread, _)| self.mean_taken(&thread.place.cpus))?;
        let there = mean(&|(_, seat)| self.mean_taken(&seat.cpus))?;
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
            let to = |(thread, to): &(&ThreadLoad, Seat)| ThreadMove {
                tid: thread.place.tid,
                duty: thread.place.duty,
                to: to.clone(),
            };
            (Change::Threads(moves.iter().map(to).collect()), reason)
        })
    }

    fn threads(&self) -> impl Iterator<Item = &ThreadLoad> {
        self.seen.threads.iter().filter(|thread| thread.place.lane == self.lane)
    }

    /// The seat planned for a thread, where it is another one than it has.
    fn better_seat<'t>(&self, thread: &'t ThreadLoad) -> Option<(&'t ThreadLoad, Seat)> {
        let seat = seat_of(self.planned, thread.place.duty);
        (!seat.cpus.is_empty() && seat.cpus != thread.place.cpus).then_some((thread, seat))
    }

    fn is_in_need(&self, thread: &ThreadLoad) -> bool {
        let taken = self.mean_taken(&thread.place.cpus);
        thread.delay >= DELAY_MIN && taken.is_some_and(|taken| taken >= TAKEN_MIN)
    }

    fn mean_taken(&self, cpus: &CpuSet) -> Option<f64> {
        let sum: f64 = cpus.iter().map(|cpu| self.taken(cpu)).sum();
        (!cpus.is_empty()).then(|| sum / cpus.len() as f64)
    }

    /// What other programs and other lanes take of a CPU; all of one that is not there.
    fn taken(&self, cpu: u32) -> f64 {
        let Some(others) = self.seen.loads.cpus.get(&cpu) else { return 1.0 };
        let is_there = |thread: &&ThreadLoad| thread.last_cpu == cpu && thread.place.lane != self.lane;
        let lanes: f64 = self.seen.threads.iter().filter(is_there).map(|thread| thread.run).sum();
        (others + lanes).min(1.0)
    }

    fn short(&self, place: &LanePlacement) -> f64 {
        let of_node = |node| self.seen.loads.nodes.get(&node).map_or(0.0, |load| load.short);
        place.memory.iter().map(of_node).fold(0.0, f64::max)
    }
}

fn is_clearly_less(there: f64, here: f64) -> bool {
    here >= TAKEN_MIN && here - there >= GAIN_MIN
}

fn name(place: &LanePlacement) -> String {
    match place.memory.is_empty() {
        true => format!("socket {}", place.socket),
        false => format!("node {}", place.memory),
    }
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

#[cfg(test)]
#[path = "judge_tests.rs"]
mod tests;
