//! The load of storage targets: measured load, expected load, and the start at which a transfer disturbs
//! least (L11, L14).
//!
//! A [`LoadHistory`] keeps four weeks of a target's load in slots of five minutes, from samples at any times.
//! Its [`forecast`](LoadHistory::forecast) continues the daily and the weekly pattern and reports its error
//! on held-back history, next to the error of "same as now". [`best_window`] picks a start from it. The
//! samples choose the unit of load: a share that is busy, bytes per second, requests.
//!
//! The crate `stlrs` decomposes load into trend and seasons (MSTL: Bandara, Hyndman and Bergmeir 2021; STL:
//! Cleveland and others 1990). It has no dependencies, and the larger `augurs` uses it as well; `augurs`
//! would add only a model for the trend, with forty crates, and its exponential smoothing has no seasons. A
//! trend over four weeks says little about the next day, so here it continues level, without a model. None of
//! these crates accepts gaps or uneven times: slots and filling are carrack's own.
//!
//! Pure: no clock, no I/O; times are Unix seconds. Days are UTC days: a change to summer time shifts the
//! pattern by an hour until new days outweigh old ones.

mod backtest;
mod csv;
mod history;
mod models;
mod window;

pub use backtest::{BacktestAccuracy, ForecastHorizon};
pub use csv::{CsvError, CsvSample, parse_csv};
pub use history::{LoadHistory, TargetLoadSample};
pub use models::ForecastMethod;
pub use window::{ForecastTransferWindow, TransferRateUnderLoad, best_window};

/// Length of a slot, and of a forecast's steps. Below it, load depends on the jobs that happen to run; the
/// pattern of a day has no finer parts.
pub const STEP_S: i64 = 300;

/// Slots in a day.
const DAY: usize = 86_400 / STEP_S as usize;
/// Slots in a week.
const WEEK: usize = 7 * DAY;

/// The expected load, step by step, and the error of such forecasts.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadForecast {
    /// Begin of the first step, in Unix seconds: the slot that "now" lies in.
    pub start_s: i64,
    /// The expected load of each step of [`STEP_S`] seconds.
    pub expected: Vec<f64>,
    /// The forecast by [`far`](LoadForecast::far) for each step, also of the first hour. Where a load changes
    /// a few times in a day, few hours of held-back history have such a change, and "same as now" wins there:
    /// a cautious caller looks here too.
    pub by_far: Vec<f64>,
    /// Method of the first hour: the smallest error over an hour.
    pub near: ForecastMethod,
    /// Method of the rest: the smallest error over a day.
    pub far: ForecastMethod,
    /// Errors of every method on held-back history. Empty with too little history.
    pub backtests: Vec<BacktestAccuracy>,
}

impl LoadForecast {
    /// Returns the load expected at a time, if the forecast reaches it.
    pub fn load_at(&self, at_s: i64) -> Option<f64> {
        self.expected.get(self.step_at(at_s)?).copied()
    }

    /// Returns the number of the step that a time lies in; the forecast may end before.
    pub fn step_at(&self, at_s: i64) -> Option<usize> {
        usize::try_from((at_s - self.start_s).div_euclid(STEP_S)).ok()
    }

    /// Returns the end of the last step.
    pub fn end_s(&self) -> i64 {
        self.start_s + self.expected.len() as i64 * STEP_S
    }

    /// Returns the error of the forecast's own method. `None` if the history was too short for a backtest.
    pub fn error(&self, horizon: ForecastHorizon) -> Option<&BacktestAccuracy> {
        let method = match horizon {
            ForecastHorizon::Hour => self.near,
            ForecastHorizon::Day => self.far,
        };
        self.error_of(method, horizon)
    }

    /// Returns the error of another method, to compare: [`ForecastMethod::SameAsNow`] and
    /// [`ForecastMethod::DayAgo`] are the naive ones.
    pub fn error_of(&self, method: ForecastMethod, horizon: ForecastHorizon) -> Option<&BacktestAccuracy> {
        self.backtests.iter().find(|test| test.method == method && test.horizon == horizon)
    }
}
