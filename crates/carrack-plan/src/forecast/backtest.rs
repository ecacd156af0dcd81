//! The error of each forecast method, measured on the last days of the history, which are held back.
//!
//! All methods are compared at the same times and only where load was measured; a filled slot proves nothing.

use serde::Serialize;

use super::history::fill;
use super::models::ForecastMethod;

/// Number of times from which history is held back: enough that their hours of the day differ.
const ORIGINS: usize = 7;

/// Distance between two of them: 21 hours, so that seven lie in six days and at seven times of the day.
const BETWEEN: usize = 21 * HOUR;

/// Slots in an hour.
const HOUR: usize = 3600 / super::STEP_S as usize;

/// Below this part of known slots, the patterns are those of the filling: only naive methods are tried.
const KNOWN_MIN: f64 = 0.5;

/// Length of a forecast.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ForecastHorizon {
    /// The next hour.
    Hour,
    /// The next day.
    Day,
}

impl ForecastHorizon {
    /// Both horizons.
    pub const ALL: [ForecastHorizon; 2] = [ForecastHorizon::Hour, ForecastHorizon::Day];

    pub(super) fn slots(self) -> usize {
        match self {
            Self::Hour => HOUR,
            Self::Day => super::DAY,
        }
    }
}

/// A method's error over a horizon, in the unit of the load; its fields are those of `--json` reports.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct BacktestAccuracy {
    /// The method.
    pub method: ForecastMethod,
    /// Length of the forecast.
    pub horizon: ForecastHorizon,
    /// Mean absolute error.
    pub mae: f64,
    /// Root mean square error: large errors count more.
    pub rmse: f64,
    /// Number of compared slots.
    pub compared: usize,
}

/// Returns the errors of every method for which the history without the held-back part is long enough.
pub(super) fn run(known: &[Option<f32>]) -> Vec<BacktestAccuracy> {
    let share = known.iter().flatten().count() as f64 / known.len().max(1) as f64;
    let mut methods: Vec<ForecastMethod> = ForecastMethod::ALL.to_vec();
    if share < KNOWN_MIN {
        methods.retain(|method| !matches!(method, ForecastMethod::Daily | ForecastMethod::DailyAndWeekly));
    }
    // The first origin is an hour before the end, so that a method is tried as soon as possible.
    let origins: Vec<usize> =
        (0..ORIGINS).map_while(|n| known.len().checked_sub(HOUR + n * BETWEEN)).collect();
    methods.retain(|method| origins.first().is_some_and(|&first| first >= method.slots()));
    let most = methods.iter().map(|method| method.slots()).max().unwrap_or(0);
    let origins: Vec<usize> = origins.into_iter().filter(|&origin| origin >= most.max(1)).collect();
    // Filled from earlier slots only: a later day in place of a missing one would be knowledge of the future.
    let pasts: Vec<Vec<f32>> = origins.iter().filter_map(|&origin| fill(&known[..origin])).collect();
    methods.iter().flat_map(|&method| errors_of(method, known, &pasts)).collect()
}

fn errors_of(method: ForecastMethod, known: &[Option<f32>], pasts: &[Vec<f32>]) -> Vec<BacktestAccuracy> {
    let mut off: [Vec<f64>; 2] = Default::default();
    for past in pasts {
        let foretold = method.foretell(past, ForecastHorizon::Day.slots());
        let pairs = foretold.iter().zip(&known[past.len()..]).enumerate();
        for (step, error) in
            pairs.filter_map(|(step, (load, known))| Some((step, f64::from(load.max(0.0) - (*known)?))))
        {
            for (off, horizon) in off.iter_mut().zip(ForecastHorizon::ALL) {
                if step < horizon.slots() {
                    off.push(error);
                }
            }
        }
    }
    let measured = off.iter().zip(ForecastHorizon::ALL).filter(|(off, _)| !off.is_empty());
    measured.map(|(off, horizon)| summary(method, horizon, off)).collect()
}

fn summary(method: ForecastMethod, horizon: ForecastHorizon, off: &[f64]) -> BacktestAccuracy {
    let compared = off.len();
    let mae = off.iter().map(|x| x.abs()).sum::<f64>() / compared as f64;
    let rmse = (off.iter().map(|x| x * x).sum::<f64>() / compared as f64).sqrt();
    BacktestAccuracy { method, horizon, mae, rmse, compared }
}

/// Returns the method with the smallest mean error; of equal ones the simplest. Without held-back history:
/// the last load.
pub(super) fn best(backtests: &[BacktestAccuracy], horizon: ForecastHorizon) -> ForecastMethod {
    let tried = backtests.iter().filter(|test| test.horizon == horizon);
    tried.min_by(|a, b| a.mae.total_cmp(&b.mae)).map_or(ForecastMethod::SameAsNow, |test| test.method)
}
