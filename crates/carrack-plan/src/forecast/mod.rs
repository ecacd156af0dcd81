//! The load of storage targets: what was measured, what is expected, and when a transfer disturbs least (L11, L14).
//!
//! A [`History`] keeps four weeks of a target's load in slots of five minutes, whatever times the samples have; its
//! [`forecast`](History::forecast) continues the daily and the weekly pattern and says how far it would have been off
//! on history that was held back, beside what "same as now" would have been. [`best_window`] picks a start from it. Load is
//! in whatever unit the samples have: a share that is busy, bytes per second, requests.
//!
//! Decomposition into trend and seasons is by the crate `stlrs` (MSTL: Bandara, Hyndman and Bergmeir 2021; STL: Cleveland and
//! others 1990). It has no dependencies, and is what the larger `augurs` decomposes by; of `augurs` only a model for the
//! trend would be added, with forty crates, and its exponential smoothing has no seasons. A trend over four weeks says little
//! about the next day, so here it is carried on level, which takes no model. None of these takes gaps or uneven times: slots
//! and filling are carrack's own.
//!
//! Pure: no clock, no I/O; times are Unix seconds. Days are UTC days: a change to summer time shifts the pattern by an
//! hour for as long as old days outweigh new ones.

mod backtest;
mod csv;
mod history;
mod models;
mod window;

pub use backtest::{Backtest, Horizon};
pub use csv::{CsvError, CsvSample, parse_csv};
pub use history::{History, Sample};
pub use models::Method;
pub use window::{RateModel, Window, best_window};

/// The length of a slot, and of a forecast's steps. Below it, load is what happens to be running; the pattern of a day has
/// no finer parts.
pub const STEP_S: i64 = 300;

/// Slots in a day.
const DAY: usize = 86_400 / STEP_S as usize;
/// Slots in a week.
const WEEK: usize = 7 * DAY;

/// The load that is expected, step by step, and how far such forecasts were off.
#[derive(Clone, Debug, PartialEq)]
pub struct Forecast {
    /// When the first step begins, in Unix seconds: the slot that "now" lies in.
    pub start_s: i64,
    /// The expected load of each step of [`STEP_S`] seconds.
    pub expected: Vec<f64>,
    /// What [`far`](Forecast::far) says of each step, of the first hour as well. Where a load changes a few times in a day, few
    /// hours of held-back history have such a change, and "same as now" wins there: whoever must not be surprised looks here too.
    pub by_far: Vec<f64>,
    /// By what the first hour is foretold: what was off least over an hour.
    pub near: Method,
    /// By what the rest is foretold: what was off least over a day.
    pub far: Method,
    /// Every method's error on history that was held back. Empty where there is too little history.
    pub backtests: Vec<Backtest>,
}

impl Forecast {
    /// The load expected at a time, if the forecast reaches it.
    pub fn load_at(&self, at_s: i64) -> Option<f64> {
        self.expected.get(self.step_at(at_s)?).copied()
    }

    /// The number of the step that a time lies in; the forecast may end before.
    pub fn step_at(&self, at_s: i64) -> Option<usize> {
        usize::try_from((at_s - self.start_s).div_euclid(STEP_S)).ok()
    }

    /// When the last step ends.
    pub fn end_s(&self) -> i64 {
        self.start_s + self.expected.len() as i64 * STEP_S
    }

    /// The error of what this forecast is made by. None where there was too little history to hold any back.
    pub fn error(&self, horizon: Horizon) -> Option<&Backtest> {
        let method = match horizon {
            Horizon::Hour => self.near,
            Horizon::Day => self.far,
        };
        self.error_of(method, horizon)
    }

    /// The error of another method, to compare: [`Method::SameAsNow`] and [`Method::DayAgo`] are the naive ones.
    pub fn error_of(&self, method: Method, horizon: Horizon) -> Option<&Backtest> {
        self.backtests.iter().find(|test| test.method == method && test.horizon == horizon)
    }
}
