//! One target's measured load, in a bounded number of slots.
//!
//! Owns the slots and the values for missing ones. Knows neither the origin of samples nor their unit.

use std::collections::VecDeque;

use super::backtest::{self, ForecastHorizon};
use super::models::ForecastMethod;
use super::{DAY, LoadForecast, STEP_S, WEEK};

/// Four weeks: a weekly pattern takes two at least, and a plan of work at a site rarely holds for longer than
/// four. 64 KiB for each target.
const SLOTS_MOST: usize = 4 * WEEK;

/// Upper bound of a forecast's length: a week.
const STEPS_MOST: usize = WEEK;

/// Days in each direction from which a missing slot is filled; a longer gap has no pattern to be filled by.
const DAYS_AROUND: usize = 7;

/// The load of a target at a time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TargetLoadSample {
    /// Unix seconds.
    pub at_s: i64,
    /// In the unit of the history, 0 or more.
    pub load: f64,
}

/// The mean of a slot's samples; `None` without samples.
#[derive(Clone, Copy, Debug, Default)]
struct LoadSlot {
    mean: f32,
    count: u16,
}

impl LoadSlot {
    fn add(&mut self, load: f64) {
        self.count = self.count.saturating_add(1);
        self.mean += (load as f32 - self.mean) / f32::from(self.count);
    }

    fn load(self) -> Option<f32> {
        (self.count > 0).then_some(self.mean)
    }
}

/// One target's load over the last four weeks at most, in slots of [`STEP_S`].
///
/// Samples may come at any times, in any order, and with gaps; those of one slot are averaged.
#[derive(Clone, Debug, Default)]
pub struct LoadHistory {
    /// Number of the first slot, counted from the epoch.
    first: i64,
    slots: VecDeque<LoadSlot>,
}

impl LoadHistory {
    /// Adds a sample and returns true if it was kept. A sample is dropped if it is no load (negative, not a
    /// number), older than four weeks before the newest, or later than `now_s`: a wrong clock would displace
    /// the whole history.
    pub fn add(&mut self, sample: TargetLoadSample, now_s: i64) -> bool {
        if !(sample.load.is_finite() && sample.load >= 0.0 && sample.at_s <= now_s.saturating_add(STEP_S)) {
            return false;
        }
        match self.slot(sample.at_s.div_euclid(STEP_S)) {
            Some(slot) => {
                slot.add(sample.load);
                true
            }
            None => false,
        }
    }

    /// Returns the slot of a number, created if there is room for it; slots that are then too old are
    /// removed.
    fn slot(&mut self, number: i64) -> Option<&mut LoadSlot> {
        let last = self.first + self.slots.len() as i64 - 1;
        if self.slots.is_empty() || number - last >= SLOTS_MOST as i64 {
            self.slots.clear();
            self.first = number;
        } else if last - number >= SLOTS_MOST as i64 {
            return None;
        }
        while number < self.first {
            self.slots.push_front(LoadSlot::default());
            self.first -= 1;
        }
        while number >= self.first + self.slots.len() as i64 {
            self.slots.push_back(LoadSlot::default());
        }
        while self.slots.len() > SLOTS_MOST {
            self.slots.pop_front();
            self.first += 1;
        }
        self.slots.get_mut(usize::try_from(number - self.first).ok()?)
    }

    /// Returns true if it has no samples.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Returns the part of the time from the first to the last sample that has samples, from 0 to 1.
    pub fn coverage(&self) -> f64 {
        let known = self.slots.iter().filter(|slot| slot.count > 0).count();
        known as f64 / self.slots.len().max(1) as f64
    }

    /// Returns the measured slots: the begin of each, in Unix seconds, and its mean load.
    pub fn measured_samples(&self) -> impl Iterator<Item = TargetLoadSample> + '_ {
        let times = (self.first..).map(|number| number * STEP_S);
        times
            .zip(&self.slots)
            .filter_map(|(at_s, slot)| slot.load().map(|load| TargetLoadSample { at_s, load: load.into() }))
    }

    /// Returns the load expected from `now_s` on for `ahead_s` seconds, a week at most. `None` without a
    /// sample in the four weeks before.
    ///
    /// Each method for which the history is long enough is tested on held-back history. The first hour is by
    /// the method with the smallest error over an hour, the rest by the method with the smallest error over a
    /// day. With four weeks of history that takes some 80 ms.
    pub fn forecast(&self, now_s: i64, ahead_s: i64) -> Option<LoadForecast> {
        let now = now_s.div_euclid(STEP_S);
        let until_now = usize::try_from(now + 1 - self.first).ok()?.min(self.slots.len());
        let known: Vec<Option<f32>> = self.slots.iter().take(until_now).map(|slot| slot.load()).collect();
        let filled = fill(&known)?;
        let end = self.first + known.len() as i64;
        // The present slot may be measured already; the forecast begins with it all the same.
        let silent = usize::try_from(now - end).unwrap_or(0);
        if silent > SLOTS_MOST {
            return None;
        }
        let steps = usize::try_from(ahead_s / STEP_S + 1).unwrap_or(1).min(STEPS_MOST);
        let backtests = backtest::run(&known);
        let near = backtest::best(&backtests, ForecastHorizon::Hour);
        let far = backtest::best(&backtests, ForecastHorizon::Day);
        let ahead = LoadForecastSteps { filled: &filled, measured: usize::from(now < end), silent, steps };
        let by_far = ahead.loads_by_method(far);
        let mut expected = by_far.clone();
        let hour = ForecastHorizon::Hour.slots().min(steps);
        expected[..hour].copy_from_slice(&ahead.loads_by_method(near)[..hour]);
        Some(LoadForecast { start_s: now * STEP_S, expected, by_far, near, far, backtests })
    }
}

/// The steps to forecast, after some unmeasured slots, or from a slot that is measured already.
struct LoadForecastSteps<'a> {
    filled: &'a [f32],
    measured: usize,
    silent: usize,
    steps: usize,
}

impl LoadForecastSteps<'_> {
    fn loads_by_method(&self, method: ForecastMethod) -> Vec<f64> {
        let known = &self.filled[self.filled.len() - self.measured..];
        let foretold = method.foretell(self.filled, self.silent + self.steps);
        let all = known.iter().copied().chain(foretold.into_iter().skip(self.silent));
        all.take(self.steps).map(|load| f64::from(load.max(0.0))).collect()
    }
}

/// Fills every slot: missing ones take the mean of the nearest known ones at the same time of day, or else
/// the last known before them. `None` if no slot is known.
pub(super) fn fill(known: &[Option<f32>]) -> Option<Vec<f32>> {
    let mut last = known.iter().flatten().next().copied()?;
    let slots = known.iter().enumerate();
    let filled = slots.map(|(place, load)| {
        last = load.or_else(|| mean_of_days_around(known, place)).unwrap_or(last);
        last
    });
    Some(filled.collect())
}

fn mean_of_days_around(known: &[Option<f32>], place: usize) -> Option<f32> {
    let before = (1..=DAYS_AROUND).find_map(|days| load_at(known, place.checked_sub(days * DAY)?));
    let after = (1..=DAYS_AROUND).find_map(|days| load_at(known, place + days * DAY));
    match (before, after) {
        (Some(before), Some(after)) => Some(f32::midpoint(before, after)),
        (one, other) => one.or(other),
    }
}

fn load_at(known: &[Option<f32>], place: usize) -> Option<f32> {
    known.get(place).copied().flatten()
}

#[cfg(test)]
#[path = "history_tests.rs"]
mod tests;
