//! One target: its history, capacity and forecast. Pure.

use carrack_plan::forecast::{ForecastMethod, LoadForecast, LoadHistory, STEP_S, TargetLoadSample};
use carrack_plan::grants::TargetComputeLoad;

use super::storage_history::percentile_99;

/// The least capacity that is found from a history, a slow disk's bytes per second: a target with less load
/// has not shown its capacity.
const CAPACITY_LEAST: f64 = 100e6;

/// A capacity is found from at least a day of measurements.
const CAPACITY_SLOTS: usize = (86_400 / STEP_S) as usize;

/// The length of a forecast. It is renewed in each slot if there is time.
const AHEAD_S: i64 = 3600;

/// The load is forecast for these times from now.
const SOON_S: [i64; 2] = [0, STEP_S];

/// The state of a target.
#[derive(Debug, Default)]
pub(super) struct TargetLoadHistory {
    /// The load without transfers.
    others: LoadHistory,
    /// The whole load, if the capacity is found from it.
    all: Option<LoadHistory>,
    /// The capacity in bytes per second; `None` while unknown.
    capacity: Option<f64>,
    /// The number of the slot in which the forecast was made, and the forecast.
    foretold: Option<(i64, Option<LoadForecast>)>,
}

impl TargetLoadHistory {
    /// A target with its configured capacity, if there is one.
    pub(super) fn new(capacity: Option<f64>) -> TargetLoadHistory {
        TargetLoadHistory {
            all: capacity.is_none().then(LoadHistory::default),
            capacity,
            ..TargetLoadHistory::default()
        }
    }

    /// Adds a measurement.
    pub(super) fn add_measurement(&mut self, at_s: i64, others: f64, all: f64, now_s: i64) {
        self.others.add(TargetLoadSample { at_s, load: others }, now_s);
        if let Some(history) = &mut self.all {
            history.add(TargetLoadSample { at_s, load: all }, now_s);
        }
    }

    /// The load without transfers, in bytes per second.
    pub(super) fn history(&self) -> &LoadHistory {
        &self.others
    }

    /// The capacity, if known.
    pub(super) fn capacity(&self) -> Option<f64> {
        self.capacity
    }

    /// The slot of the last forecast. `None` sorts first.
    pub(super) fn forecast_slot(&self) -> Option<i64> {
        self.foretold.as_ref().map(|(slot, _)| *slot)
    }

    /// Forecasts the load, and finds the capacity. Takes some 80 ms with four weeks of history.
    pub(super) fn update_forecast(&mut self, now_s: i64) {
        self.find_capacity();
        let forecast = self.others.forecast(now_s, AHEAD_S);
        self.foretold = Some((now_s.div_euclid(STEP_S), forecast));
    }

    /// Finds the capacity, unless configured: the load in all but the busiest hundredth of the time.
    pub(super) fn find_capacity(&mut self) {
        if let Some(all) = &self.all {
            let is_long = all.measured_samples().count() >= CAPACITY_SLOTS;
            let most = percentile_99(all).filter(|_| is_long);
            self.capacity = most.map(|most| most.max(CAPACITY_LEAST));
        }
    }

    /// The parts of the capacity that others use now, with `present` bytes per second, and soon. `None` while
    /// the capacity is unknown.
    pub(super) fn load(&self, present: f64, now_s: i64) -> Option<TargetComputeLoad> {
        let capacity = self.capacity?;
        let expected = self.expected_load(now_s).unwrap_or(present);
        Some(TargetComputeLoad {
            present: load_fraction(present, capacity),
            expected: load_fraction(expected, capacity),
        })
    }

    /// The highest load of the next minutes, by the best methods for an hour and for a day. `None` if the
    /// best method is to expect no change: the latest measurement is newer.
    fn expected_load(&self, now_s: i64) -> Option<f64> {
        let forecast = self.foretold.as_ref()?.1.as_ref()?;
        let by_near = forecast.expected.as_slice();
        let by_far = forecast.by_far.as_slice();
        let ways = [(forecast.near, by_near), (forecast.far, by_far)].into_iter();
        let steps = ways.filter(|(method, _)| *method != ForecastMethod::SameAsNow).map(|(_, steps)| steps);
        let soon = SOON_S.iter().filter_map(|later_s| forecast.step_at(now_s + later_s));
        steps.flat_map(|steps| soon.clone().filter_map(|step| steps.get(step).copied())).reduce(f64::max)
    }
}

fn load_fraction(bytes_per_s: f64, capacity: f64) -> f64 {
    (bytes_per_s / capacity).clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY_S: i64 = 86_400;

    /// Busy with `busy` bytes per second in the second half of each hour.
    fn busy_half_hours(target: &mut TargetLoadHistory, busy: f64, days: i64) {
        for at_s in (0..days * DAY_S).step_by(STEP_S as usize) {
            let bytes = if at_s % 3600 >= 1800 { busy } else { 0.0 };
            target.add_measurement(at_s, bytes, bytes, days * DAY_S);
        }
    }

    #[test]
    fn what_is_to_come_counts_before_it_is_there() {
        let mut target = TargetLoadHistory::new(Some(200e6));
        busy_half_hours(&mut target, 100e6, 5);
        let now_s = 5 * DAY_S + 1500;
        target.add_measurement(now_s, 0.0, 0.0, now_s);
        target.update_forecast(now_s);
        let load = target.load(0.0, now_s).unwrap();
        assert_eq!(load.present, 0.0);
        assert!((0.4..0.6).contains(&load.expected), "{load:?}");
        let early = target.load(0.0, now_s - 900).unwrap();
        assert!(early.expected < 0.1, "{early:?}");
    }

    #[test]
    fn without_a_pattern_the_latest_measurement_is_all() {
        let mut target = TargetLoadHistory::new(Some(100e6));
        target.add_measurement(0, 80e6, 80e6, 0);
        target.update_forecast(0);
        assert_eq!(target.load(20e6, 300), Some(TargetComputeLoad { present: 0.2, expected: 0.2 }));
        assert_eq!(target.load(900e6, 300), Some(TargetComputeLoad { present: 1.0, expected: 1.0 }));
    }

    #[test]
    fn what_it_can_bear_is_found_from_a_day_of_everybody() {
        let mut target = TargetLoadHistory::new(None);
        target.add_measurement(0, 500e6, 500e6, 0);
        target.update_forecast(0);
        assert_eq!(target.load(1.0, 0), None, "a minute tells nothing");
        for at_s in (0..DAY_S).step_by(STEP_S as usize) {
            target.add_measurement(at_s, 0.0, 400e6, DAY_S);
        }
        target.update_forecast(DAY_S);
        let load = target.load(100e6, DAY_S).unwrap();
        assert!((load.present - 0.25).abs() < 0.01, "{load:?}");
        let mut idle = TargetLoadHistory::new(None);
        busy_half_hours(&mut idle, 1e3, 2);
        idle.update_forecast(2 * DAY_S);
        assert!(idle.load(1e3, 2 * DAY_S).unwrap().present < 0.001, "a whisper is no load");
    }
}
