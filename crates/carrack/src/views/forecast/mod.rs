//! The expected load of a storage system, hour by hour, and the expected error; `svg.rs` draws it.
//!
//! With `--json` one object; field names are stable, new ones may come:
//!
//! | field | content |
//! | --- | --- |
//! | `name`, `targets` | the name as typed; the number of its targets |
//! | `unit` | `bytes_per_s`, or null if a file has its own |
//! | `capacity` | the load that it can bear, or null |
//! | `history` | `days`, `coverage` (0 to 1) |
//! | `methods` | `hour` and `day`: the names of the chosen methods |
//! | `errors` | `method`, `horizon` (`hour`, `day`), `mae`, `rmse`, `compared` (slots) |
//! | `hours` | `start` (Unix seconds), `load`, `part` (of the capacity, or null) |
//! | `steps` | `start`, `step_s`, `loads`: as `hours`, finer |

mod svg;

use std::io::{self, Write};

use carrack_plan::forecast::{BacktestAccuracy, ForecastHorizon, ForecastMethod, LoadForecast, STEP_S};
use carrack_sharing::health::StorageHistory;
use serde::Serialize;

use crate::lifetime::format_moment;
use crate::user_error::escape_control_characters;
use crate::views::json::write_line;
use crate::views::quantity::rate;
use crate::views::table::TextTable;

/// Characters of a bar for a load at the capacity.
const BAR: f64 = 30.0;

/// The unit of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadUnit {
    /// Bytes per second.
    BytesPerSecond,
    /// The unit of a file, which has no name.
    Unnamed,
}

/// The measured and the expected load.
pub struct LoadForecastReport {
    /// The target's or the file system's name.
    pub name: String,
    /// The measurements.
    pub storage: StorageHistory,
    /// The expected load.
    pub forecast: LoadForecast,
    /// The unit of the loads.
    pub unit: LoadUnit,
    /// Now, in Unix seconds.
    pub now_s: i64,
}

/// An hour of the forecast, with its fields as `--json` has them.
#[derive(Serialize)]
pub struct ForecastHour {
    /// Start, in Unix seconds; the first hour has begun.
    #[serde(rename = "start")]
    pub start_s: i64,
    /// Mean of the expected loads.
    pub load: f64,
    /// Part of the capacity, from 0 to 1.
    pub part: Option<f64>,
}

impl LoadUnit {
    /// Formats a load for people.
    pub fn format_load(self, load: f64) -> String {
        match self {
            LoadUnit::BytesPerSecond => rate(load.round() as u64),
            LoadUnit::Unnamed => format!("{load:.3}"),
        }
    }
}

impl LoadForecastReport {
    /// Returns the 24 hours from the present one on.
    pub fn hours(&self) -> Vec<ForecastHour> {
        let first_s = self.now_s.div_euclid(3600) * 3600;
        (0..24).filter_map(|n| self.hour(first_s + n * 3600)).collect()
    }

    fn hour(&self, start_s: i64) -> Option<ForecastHour> {
        let slots = (start_s..start_s + 3600).step_by(STEP_S as usize);
        let loads: Vec<f64> = slots.filter_map(|at_s| self.forecast.load_at(at_s)).collect();
        let mean = loads.iter().sum::<f64>() / loads.len() as f64;
        (!loads.is_empty()).then(|| ForecastHour { start_s, load: mean, part: self.capacity_fraction(mean) })
    }

    /// Returns the part of the capacity, from 0 to 1.
    fn capacity_fraction(&self, load: f64) -> Option<f64> {
        self.storage.capacity.map(|capacity| (load / capacity).min(1.0))
    }

    /// Returns the days from the first measurement to the last.
    pub fn days(&self) -> f64 {
        let mut measured = self.storage.history.measured_samples();
        let Some(first) = measured.next() else { return 0.0 };
        let last = measured.last().unwrap_or(first);
        (last.at_s - first.at_s) as f64 / 86_400.0
    }

    /// Writes the report for programs.
    pub fn write_json(&self, out: &mut dyn Write) -> io::Result<()> {
        write_line(&self.to_json(), out)
    }

    /// Writes the report for people.
    pub fn write_table(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "{}: {}", escape_control_characters(&self.name), self.history_summary())?;
        for (horizon, words, method) in [
            (ForecastHorizon::Hour, "next hour", self.forecast.near),
            (ForecastHorizon::Day, "next day", self.forecast.far),
        ] {
            writeln!(out, "  {words:<10} by {}: {}", method.name(), self.error_text(horizon))?;
            let naive = self.naive_errors(horizon);
            if !naive.is_empty() {
                writeln!(out, "  {:<10} MAE of {}", "", naive.join(", of "))?;
            }
        }
        writeln!(out)?;
        let mut table = TextTable::headed(&["<HOUR (UTC)", ">EXPECTED", ">LOAD", "<"]);
        for hour in self.hours() {
            table.row(&[
                &format_moment(hour.start_s),
                &self.unit.format_load(hour.load),
                &hour.part.map_or("?".to_owned(), |part| format!("{:.0} %", part * 100.0)),
                &"#".repeat(hour.part.map_or(0, |part| (part * BAR).round() as usize)),
            ]);
        }
        table.write("", out)
    }

    fn history_summary(&self) -> String {
        let storage = &self.storage;
        let targets = match storage.targets {
            1 => String::new(),
            many => format!("mean of {many} targets; "),
        };
        let capacity = match storage.capacity {
            Some(capacity) => format!("can bear {}", self.unit.format_load(capacity)),
            None => "what it can bear is not known".to_owned(),
        };
        let covered = storage.history.coverage() * 100.0;
        format!("{targets}{:.1} days of history, {covered:.0} % of it measured; {capacity}", self.days())
    }

    fn error_text(&self, horizon: ForecastHorizon) -> String {
        match self.forecast.error(horizon) {
            Some(error) => format!(
                "MAE {}, RMSE {}",
                self.unit.format_load(error.mae),
                self.unit.format_load(error.rmse)
            ),
            None => "error unknown, there is too little history".to_owned(),
        }
    }

    /// Returns the errors of the naive methods, for comparison.
    fn naive_errors(&self, horizon: ForecastHorizon) -> Vec<String> {
        let naive = [ForecastMethod::SameAsNow, ForecastMethod::DayAgo].into_iter();
        let errors = naive.filter_map(|method| self.forecast.error_of(method, horizon));
        errors
            .map(|error| format!("\"{}\" {}", error.method.name(), self.unit.format_load(error.mae)))
            .collect()
    }

    fn to_json(&self) -> ForecastJson<'_> {
        let (storage, forecast) = (&self.storage, &self.forecast);
        ForecastJson {
            name: &self.name,
            targets: storage.targets,
            unit: (self.unit == LoadUnit::BytesPerSecond).then_some("bytes_per_s"),
            capacity: storage.capacity,
            history: HistoryJson { days: self.days(), coverage: storage.history.coverage() },
            methods: ForecastMethodsJson { hour: forecast.near.name(), day: forecast.far.name() },
            errors: &forecast.backtests,
            hours: self.hours(),
            steps: ForecastStepsJson { start: forecast.start_s, step_s: STEP_S, loads: &forecast.expected },
        }
    }
}

#[derive(Serialize)]
struct ForecastJson<'a> {
    name: &'a str,
    targets: usize,
    unit: Option<&'static str>,
    capacity: Option<f64>,
    history: HistoryJson,
    methods: ForecastMethodsJson,
    errors: &'a [BacktestAccuracy],
    hours: Vec<ForecastHour>,
    steps: ForecastStepsJson<'a>,
}

#[derive(Serialize)]
struct HistoryJson {
    days: f64,
    coverage: f64,
}

#[derive(Serialize)]
struct ForecastMethodsJson {
    hour: &'static str,
    day: &'static str,
}

#[derive(Serialize)]
struct ForecastStepsJson<'a> {
    start: i64,
    step_s: i64,
    loads: &'a [f64],
}

#[cfg(test)]
mod tests {
    use carrack_plan::forecast::{LoadHistory, TargetLoadSample};

    use super::*;
    use crate::views::output::tests::text_of;

    pub(super) const NOW_S: i64 = 1_767_484_800 + 10 * 3600 + 1000;

    /// Returns a week of waves, and its forecast.
    pub(super) fn waves() -> LoadForecastReport {
        let mut history = LoadHistory::default();
        let begin_s = (NOW_S - 8 * 86_400).div_euclid(STEP_S) * STEP_S;
        for at_s in (begin_s..=NOW_S).step_by(STEP_S as usize) {
            let noise = (at_s / STEP_S * 7919 % 101) as f64 * 1e5;
            let load = 100e6 * (1.0 + (at_s as f64 / 86_400.0 * std::f64::consts::TAU).sin()) + noise;
            history.add(TargetLoadSample { at_s, load }, NOW_S);
        }
        let forecast = history.forecast(NOW_S, 86_400).unwrap();
        let storage = StorageHistory { targets: 3, history, capacity: Some(250e6) };
        LoadForecastReport {
            name: "lfs01".into(),
            storage,
            forecast,
            unit: LoadUnit::BytesPerSecond,
            now_s: NOW_S,
        }
    }

    #[test]
    fn hours_are_those_of_the_clock() {
        let report = waves();
        let hours = report.hours();
        assert_eq!((hours.len(), hours[0].start_s, hours[1].start_s % 3600), (24, NOW_S - 1000, 0));
        assert!(hours[0].load > 100e6 && hours[8].load < 50e6, "{} {}", hours[0].load, hours[8].load);
        assert!((7.9..8.1).contains(&report.days()), "{}", report.days());
        assert_eq!(report.capacity_fraction(500e6), Some(1.0));
    }

    #[test]
    fn says_hours_and_errors() {
        let text = text_of(|out| waves().write_table(out));
        assert!(
            text.starts_with("lfs01: mean of 3 targets; 8.0 days of history, 100 % of it measured;"),
            "{text}"
        );
        assert!(text.contains("\n  next day   by ") && text.contains("MAE of \"same as now\" "), "{text}");
        assert_eq!(text.lines().filter(|line| line.contains(":00:00Z  ")).count(), 24, "{text}");
        assert!(text.contains("2026-01-04T10:00:00Z") && text.contains(" %  ####"), "{text}");
    }

    #[test]
    fn has_every_step_and_every_error() {
        let text = text_of(|out| waves().write_json(out));
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            (&value["name"], &value["targets"], &value["unit"]),
            (&"lfs01".into(), &3.into(), &"bytes_per_s".into())
        );
        assert_eq!(value["hours"].as_array().unwrap().len(), 24);
        assert_eq!(value["steps"]["loads"].as_array().unwrap().len(), 289);
        assert_eq!(value["steps"]["start"], NOW_S / 300 * 300);
        assert!(value["errors"].as_array().unwrap().iter().any(|error| error["horizon"] == "day"));
    }
}
