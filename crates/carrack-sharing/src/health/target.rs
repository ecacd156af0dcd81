//! One target: its history, what it can bear, and what is expected of it. Pure.

use carrack_plan::forecast::{Forecast, History, Method, STEP_S, Sample};
use carrack_plan::grants::Load;

use super::storage::percentile_99;

/// A target that was never measured with more than this has not shown what it can bear: a slow disk's bytes per second.
const CAPACITY_LEAST: f64 = 100e6;

/// What a target can bear is found from a day of measurements at least.
const CAPACITY_SLOTS: usize = (86_400 / STEP_S) as usize;

/// How far a forecast reaches. It is made anew in each slot if there is time for it.
const AHEAD_S: i64 = 3600;

/// Load is foretold for now and so much later.
const SOON_S: [i64; 2] = [0, STEP_S];

/// What is known of a target.
#[derive(Debug, Default)]
pub(super) struct Target {
    /// What others than transfers do.
    others: History,
    /// What everybody does, where its most is to be found from it.
    all: Option<History>,
    /// What it can bear, bytes per second; none while it is not known.
    capacity: Option<f64>,
    /// When what is expected was made, as a slot's number; and what.
    foretold: Option<(i64, Option<Forecast>)>,
}

impl Target {
    /// `capacity` is what it can bear, if that is known beforehand.
    pub(super) fn new(capacity: Option<f64>) -> Target {
        Target { all: capacity.is_none().then(History::default), capacity, ..Target::default() }
    }

    /// Notes what was measured at a time.
    pub(super) fn note(&mut self, at_s: i64, others: f64, all: f64, now_s: i64) {
        self.others.add(Sample { at_s, load: others }, now_s);
        if let Some(history) = &mut self.all {
            history.add(Sample { at_s, load: all }, now_s);
        }
    }

    /// What others do, in bytes per second.
    pub(super) fn history(&self) -> &History {
        &self.others
    }

    /// What it can bear, as far as that is known.
    pub(super) fn capacity(&self) -> Option<f64> {
        self.capacity
    }

    /// When it was last looked ahead from; nothing sorts first.
    pub(super) fn foretold_in(&self) -> Option<i64> {
        self.foretold.as_ref().map(|(slot, _)| *slot)
    }

    /// Looks ahead, and finds what it can bear. Takes some 80 ms with four weeks of history.
    pub(super) fn foretell(&mut self, now_s: i64) {
        self.find_capacity();
        let forecast = self.others.forecast(now_s, AHEAD_S);
        self.foretold = Some((now_s.div_euclid(STEP_S), forecast));
    }

    /// Finds what it can bear, unless that is configured: what it has borne in all but the busiest hundredth of the time.
    pub(super) fn find_capacity(&mut self) {
        if let Some(all) = &self.all {
            let is_long = all.measured().count() >= CAPACITY_SLOTS;
            let most = percentile_99(all).filter(|_| is_long);
            self.capacity = most.map(|most| most.max(CAPACITY_LEAST));
        }
    }

    /// The part of it that others use who do `present` bytes per second, and will use soon. None while nothing is known of what
    /// it can bear.
    pub(super) fn load(&self, present: f64, now_s: i64) -> Option<Load> {
        let capacity = self.capacity?;
        let part = |bytes_per_s: f64| (bytes_per_s / capacity).clamp(0.0, 1.0);
        let expected = self.expected(now_s).map_or(part(present), part);
        Some(Load { present: part(present), expected })
    }

    /// The most that is foretold of the next minutes, by what is best for an hour or for a day. None where it is best to say that all
    /// stays as it is: of that the latest measurement knows more.
    fn expected(&self, now_s: i64) -> Option<f64> {
        let forecast = self.foretold.as_ref()?.1.as_ref()?;
        let by_near = forecast.expected.as_slice();
        let by_far = forecast.by_far.as_slice();
        let ways = [(forecast.near, by_near), (forecast.far, by_far)].into_iter();
        let steps = ways.filter(|(method, _)| *method != Method::SameAsNow).map(|(_, steps)| steps);
        let soon = SOON_S.iter().filter_map(|later_s| forecast.step_at(now_s + later_s));
        steps.flat_map(|steps| soon.clone().filter_map(|step| steps.get(step).copied())).reduce(f64::max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY_S: i64 = 86_400;

    /// Busy with `busy` bytes per second in the second half of each hour.
    fn busy_half_hours(target: &mut Target, busy: f64, days: i64) {
        for at_s in (0..days * DAY_S).step_by(STEP_S as usize) {
            let bytes = if at_s % 3600 >= 1800 { busy } else { 0.0 };
            target.note(at_s, bytes, bytes, days * DAY_S);
        }
    }

    #[test]
    fn what_is_to_come_counts_before_it_is_there() {
        let mut target = Target::new(Some(200e6));
        busy_half_hours(&mut target, 100e6, 5);
        let now_s = 5 * DAY_S + 1500;
        target.note(now_s, 0.0, 0.0, now_s);
        target.foretell(now_s);
        let load = target.load(0.0, now_s).unwrap();
        assert_eq!(load.present, 0.0);
        assert!((0.4..0.6).contains(&load.expected), "{load:?}");
        let early = target.load(0.0, now_s - 900).unwrap();
        assert!(early.expected < 0.1, "{early:?}");
    }

    #[test]
    fn without_a_pattern_the_latest_measurement_is_all() {
        let mut target = Target::new(Some(100e6));
        target.note(0, 80e6, 80e6, 0);
        target.foretell(0);
        assert_eq!(target.load(20e6, 300), Some(Load { present: 0.2, expected: 0.2 }));
        assert_eq!(target.load(900e6, 300), Some(Load { present: 1.0, expected: 1.0 }));
    }

    #[test]
    fn what_it_can_bear_is_found_from_a_day_of_everybody() {
        let mut target = Target::new(None);
        target.note(0, 500e6, 500e6, 0);
        target.foretell(0);
        assert_eq!(target.load(1.0, 0), None, "a minute tells nothing");
        for at_s in (0..DAY_S).step_by(STEP_S as usize) {
            target.note(at_s, 0.0, 400e6, DAY_S);
        }
        target.foretell(DAY_S);
        let load = target.load(100e6, DAY_S).unwrap();
        assert!((load.present - 0.25).abs() < 0.01, "{load:?}");
        let mut idle = Target::new(None);
        busy_half_hours(&mut idle, 1e3, 2);
        idle.foretell(2 * DAY_S);
        assert!(idle.load(1e3, 2 * DAY_S).unwrap().present < 0.001, "a whisper is no load");
    }
}
