//! What is expected of a storage system: `table.rs` says it to people, `json.rs` to machines, `svg.rs` draws it.

mod json;
mod svg;
mod table;

use carrack_plan::forecast::{Forecast, Sample};
use carrack_sharing::health::StorageHistory;

use crate::size;

/// What a load is measured in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Bytes per second.
    BytesPerSecond,
    /// Whatever a file's author has counted.
    Unnamed,
}

/// What is known and expected.
pub struct Report {
    /// The target's or the file system's name.
    pub name: String,
    /// What was measured.
    pub storage: StorageHistory,
    /// What follows.
    pub forecast: Forecast,
    /// Of the load.
    pub unit: Unit,
    /// Now, in Unix seconds.
    pub now_s: i64,
}

/// An hour that is to come.
pub struct Hour {
    /// When it begins, in Unix seconds; the first one has begun.
    pub start_s: i64,
    /// The mean of what is expected in it.
    pub load: f64,
}

impl Unit {
    /// A load for people.
    pub fn show(self, load: f64) -> String {
        match self {
            Unit::BytesPerSecond => format!("{}/s", size::show(load.round() as u64)),
            Unit::Unnamed => format!("{load:.3}"),
        }
    }
}

impl Report {
    /// The 24 hours from the one that it is.
    pub fn hours(&self) -> Vec<Hour> {
        let first_s = self.now_s.div_euclid(3600) * 3600;
        let hour = |start_s: i64| {
            let slots = (start_s..start_s + 3600).step_by(carrack_plan::forecast::STEP_S as usize);
            let loads: Vec<f64> = slots.filter_map(|at_s| self.forecast.load_at(at_s)).collect();
            let mean = loads.iter().sum::<f64>() / loads.len() as f64;
            (!loads.is_empty()).then_some(Hour { start_s, load: mean })
        };
        (0..24).filter_map(|n| hour(first_s + n * 3600)).collect()
    }

    /// The part of what it can bear, from 0 to 1.
    pub fn part(&self, load: f64) -> Option<f64> {
        self.storage.capacity.map(|capacity| (load / capacity).min(1.0))
    }

    /// Days from the first measurement to the last.
    pub fn days(&self) -> f64 {
        let mut measured = self.storage.history.measured();
        let first = measured.next();
        let (first, last) = (first, measured.last().or(first));
        let at_s = |sample: Option<Sample>| sample.map_or(0, |sample| sample.at_s);
        (at_s(last) - at_s(first)) as f64 / 86_400.0
    }
}

#[cfg(test)]
mod tests {
    use carrack_plan::forecast::{History, STEP_S};

    use super::*;

    pub(super) const NOW_S: i64 = 1_767_484_800 + 10 * 3600 + 1000;

    /// A week of waves, and its forecast.
    pub(super) fn waves() -> Report {
        let mut history = History::default();
        let begin_s = (NOW_S - 8 * 86_400).div_euclid(STEP_S) * STEP_S;
        for at_s in (begin_s..=NOW_S).step_by(STEP_S as usize) {
            let noise = (at_s / STEP_S * 7919 % 101) as f64 * 1e5;
            let load = 100e6 * (1.0 + (at_s as f64 / 86_400.0 * std::f64::consts::TAU).sin()) + noise;
            history.add(Sample { at_s, load }, NOW_S);
        }
        let forecast = history.forecast(NOW_S, 86_400).unwrap();
        let storage = StorageHistory { targets: 3, history, capacity: Some(250e6) };
        Report { name: "lfs01".into(), storage, forecast, unit: Unit::BytesPerSecond, now_s: NOW_S }
    }

    #[test]
    fn hours_are_those_of_the_clock() {
        let report = waves();
        let hours = report.hours();
        assert_eq!((hours.len(), hours[0].start_s, hours[1].start_s % 3600), (24, NOW_S - 1000, 0));
        assert!(hours[0].load > 100e6 && hours[8].load < 50e6, "{} {}", hours[0].load, hours[8].load);
        assert!((7.9..8.1).contains(&report.days()), "{}", report.days());
        assert_eq!(report.part(500e6), Some(1.0));
    }
}
