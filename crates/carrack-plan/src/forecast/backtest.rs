//! How far each method would have been off: on the last days of the history, which are held back.
//!
//! All methods are compared at the same times and only where load was measured; a filled slot proves nothing.

use super::history::fill;
use super::models::Method;

/// Times from which history is held back: enough that their hours of the day differ.
const ORIGINS: usize = 7;

/// From one to the next: 21 hours, so that seven of them lie in six days and at eight times of the day.
const BETWEEN: usize = 21 * HOUR;

/// Slots in an hour.
const HOUR: usize = 3600 / super::STEP_S as usize;

/// Below so much of known slots, patterns are those of the filling: only naive methods are tried.
const KNOWN_MIN: f64 = 0.5;

/// How far ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Horizon {
    /// The next hour.
    Hour,
    /// The next day.
    Day,
}

impl Horizon {
    /// Both.
    pub const ALL: [Horizon; 2] = [Horizon::Hour, Horizon::Day];

    pub(super) fn slots(self) -> usize {
        match self {
            Self::Hour => HOUR,
            Self::Day => super::DAY,
        }
    }
}

/// A method's error over a horizon, in the unit of the load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Backtest {
    /// The method.
    pub method: Method,
    /// How far ahead it foretold.
    pub horizon: Horizon,
    /// The mean of how far it was off.
    pub mae: f64,
    /// The root of the mean of the squares of that: large errors count more.
    pub rmse: f64,
    /// How many slots were compared.
    pub compared: usize,
}

/// Every method's errors, for those that the history is long enough for beside what is held back.
pub(super) fn run(known: &[Option<f32>]) -> Vec<Backtest> {
    let share = known.iter().flatten().count() as f64 / known.len().max(1) as f64;
    let mut methods: Vec<Method> = Method::ALL.to_vec();
    if share < KNOWN_MIN {
        methods.retain(|method| !matches!(method, Method::Daily | Method::DailyAndWeekly));
    }
    // The first origin is an hour before the end, so that a method is tried as soon as it can be.
    let origins: Vec<usize> =
        (0..ORIGINS).map_while(|n| known.len().checked_sub(HOUR + n * BETWEEN)).collect();
    methods.retain(|method| origins.first().is_some_and(|&first| first >= method.slots()));
    let most = methods.iter().map(|method| method.slots()).max().unwrap_or(0);
    let origins: Vec<usize> = origins.into_iter().filter(|&origin| origin >= most.max(1)).collect();
    // Filled by what was known then: a later day that stands in for a missing one would be knowledge of the future.
    let pasts: Vec<Vec<f32>> = origins.iter().filter_map(|&origin| fill(&known[..origin])).collect();
    methods.iter().flat_map(|&method| errors_of(method, known, &pasts)).collect()
}

fn errors_of(method: Method, known: &[Option<f32>], pasts: &[Vec<f32>]) -> Vec<Backtest> {
    let mut off: [Vec<f64>; 2] = Default::default();
    for past in pasts {
        let foretold = method.foretell(past, Horizon::Day.slots());
        let pairs = foretold.iter().zip(&known[past.len()..]).enumerate();
        for (step, error) in
            pairs.filter_map(|(step, (load, known))| Some((step, f64::from(load.max(0.0) - (*known)?))))
        {
            for (off, horizon) in off.iter_mut().zip(Horizon::ALL) {
                if step < horizon.slots() {
                    off.push(error);
                }
            }
        }
    }
    let measured = off.iter().zip(Horizon::ALL).filter(|(off, _)| !off.is_empty());
    measured.map(|(off, horizon)| summary(method, horizon, off)).collect()
}

fn summary(method: Method, horizon: Horizon, off: &[f64]) -> Backtest {
    let compared = off.len();
    let mae = off.iter().map(|x| x.abs()).sum::<f64>() / compared as f64;
    let rmse = (off.iter().map(|x| x * x).sum::<f64>() / compared as f64).sqrt();
    Backtest { method, horizon, mae, rmse, compared }
}

/// The method with the smallest mean error; of equal ones the simplest. Without any history held back: the last load.
pub(super) fn best(backtests: &[Backtest], horizon: Horizon) -> Method {
    let tried = backtests.iter().filter(|test| test.horizon == horizon);
    tried.min_by(|a, b| a.mae.total_cmp(&b.mae)).map_or(Method::SameAsNow, |test| test.method)
}
