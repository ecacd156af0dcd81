//! `carrack forecast --json`: one object on stdout. Field names are stable; new ones may come.
//!
//! | field | what |
//! | --- | --- |
//! | `name`, `targets` | as it was asked for; how many targets that are |
//! | `unit` | `bytes_per_s`, or null where a file has its own |
//! | `capacity` | what it can bear, or null |
//! | `history` | `days`, `coverage` (0 to 1) |
//! | `methods` | `hour` and `day`: the names of what was chosen |
//! | `errors` | `method`, `horizon` (`hour`, `day`), `mae`, `rmse`, `compared` (slots) |
//! | `hours` | `start` (Unix seconds), `load`, `part` (of the capacity, or null) |
//! | `steps` | `start`, `step_s`, `loads`: as `hours`, finer |

use std::io::{self, Write};

use carrack_plan::forecast::{Backtest, Horizon, STEP_S};
use serde::Serialize;

use super::{Hour, Report, Unit};

#[derive(Serialize)]
struct Whole<'a> {
    name: &'a str,
    targets: usize,
    unit: Option<&'static str>,
    capacity: Option<f64>,
    history: HistoryJson,
    methods: MethodsJson,
    errors: Vec<ErrorJson>,
    hours: Vec<HourJson>,
    steps: StepsJson<'a>,
}

#[derive(Serialize)]
struct HistoryJson {
    days: f64,
    coverage: f64,
}

#[derive(Serialize)]
struct MethodsJson {
    hour: &'static str,
    day: &'static str,
}

#[derive(Serialize)]
struct ErrorJson {
    method: &'static str,
    horizon: &'static str,
    mae: f64,
    rmse: f64,
    compared: usize,
}

#[derive(Serialize)]
struct HourJson {
    start: i64,
    load: f64,
    part: Option<f64>,
}

#[derive(Serialize)]
struct StepsJson<'a> {
    start: i64,
    step_s: i64,
    loads: &'a [f64],
}

impl Report {
    /// Writes the object and the end of the line.
    pub fn write_json(&self, out: &mut dyn Write) -> io::Result<()> {
        serde_json::to_writer(&mut *out, &self.whole())?;
        out.write_all(b"\n")
    }

    fn whole(&self) -> Whole<'_> {
        let (storage, forecast) = (&self.storage, &self.forecast);
        let hour = |hour: Hour| HourJson { start: hour.start_s, load: hour.load, part: self.part(hour.load) };
        Whole {
            name: &self.name,
            targets: storage.targets,
            unit: (self.unit == Unit::BytesPerSecond).then_some("bytes_per_s"),
            capacity: storage.capacity,
            history: HistoryJson { days: self.days(), coverage: storage.history.coverage() },
            methods: MethodsJson { hour: forecast.near.name(), day: forecast.far.name() },
            errors: forecast.backtests.iter().map(error).collect(),
            hours: self.hours().into_iter().map(hour).collect(),
            steps: StepsJson { start: forecast.start_s, step_s: STEP_S, loads: &forecast.expected },
        }
    }
}

fn error(test: &Backtest) -> ErrorJson {
    let horizon = match test.horizon {
        Horizon::Hour => "hour",
        Horizon::Day => "day",
    };
    ErrorJson { method: test.method.name(), horizon, mae: test.mae, rmse: test.rmse, compared: test.compared }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{NOW_S, waves};

    #[test]
    fn has_every_step_and_every_error() {
        let mut out = Vec::new();
        waves().write_json(&mut out).unwrap();
        let value: serde_json::Value = serde_json::from_slice(&out).unwrap();
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
