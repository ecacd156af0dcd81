//! The methods that continue a filled history: naive ones, and by its seasons.
//!
//! Each method takes slots without gaps and returns the next ones. `backtest` finds the best one.

use serde::{Serialize, Serializer};
use stlrs::Mstl;

use super::{DAY, WEEK};

/// A method to forecast load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForecastMethod {
    /// The last load, repeated. Naive.
    SameAsNow,
    /// The load of a day before. Naive.
    DayAgo,
    /// The load of a week before. Naive.
    WeekAgo,
    /// Trend and daily pattern. Takes two days of history.
    Daily,
    /// Trend, daily and weekly pattern. Takes two weeks of history.
    DailyAndWeekly,
}

impl Serialize for ForecastMethod {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl ForecastMethod {
    /// All methods, the simplest first: it wins where others are no better.
    pub const ALL: [ForecastMethod; 5] = [
        ForecastMethod::SameAsNow,
        ForecastMethod::DayAgo,
        ForecastMethod::WeekAgo,
        ForecastMethod::Daily,
        ForecastMethod::DailyAndWeekly,
    ];

    /// Returns the name for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::SameAsNow => "same as now",
            Self::DayAgo => "same as a day ago",
            Self::WeekAgo => "same as a week ago",
            Self::Daily => "daily pattern",
            Self::DailyAndWeekly => "daily and weekly pattern",
        }
    }

    /// Returns the number of slots that it needs.
    pub(super) fn slots(self) -> usize {
        match self {
            Self::SameAsNow => 1,
            Self::DayAgo => DAY,
            Self::WeekAgo => WEEK,
            Self::Daily => 2 * DAY,
            Self::DailyAndWeekly => 2 * WEEK,
        }
    }

    /// Returns the next loads after `filled`, which may be shorter than [`slots`](Self::slots): then the last
    /// load is repeated.
    pub(super) fn foretell(self, filled: &[f32], steps: usize) -> Vec<f32> {
        let method = if filled.len() < self.slots() { Self::SameAsNow } else { self };
        match method {
            Self::SameAsNow => vec![filled.last().copied().unwrap_or(0.0); steps],
            Self::DayAgo => repeat_last_period(filled, DAY).take(steps).collect(),
            Self::WeekAgo => repeat_last_period(filled, WEEK).take(steps).collect(),
            Self::Daily => forecast_by_seasons(filled, &[DAY], steps),
            Self::DailyAndWeekly => forecast_by_seasons(filled, &[DAY, WEEK], steps),
        }
    }
}

/// Returns the last period, repeated.
fn repeat_last_period(slots: &[f32], period: usize) -> impl Iterator<Item = f32> + '_ {
    slots[slots.len() - period..].iter().copied().cycle()
}

/// Returns the sum of the last period of each season, the trend's last level, and the fading present
/// deviation.
fn forecast_by_seasons(filled: &[f32], periods: &[usize], steps: usize) -> Vec<f32> {
    let Ok(parts) = Mstl::fit(filled, periods) else {
        return ForecastMethod::SameAsNow.foretell(filled, steps);
    };
    let (seasons, trend, remainder) = parts.into_parts();
    let level = trend.last().copied().unwrap_or(0.0);
    let fading = persistence(&remainder);
    let mut deviation = remainder.last().copied().unwrap_or(0.0);
    let mut next = vec![level; steps];
    for (season, period) in seasons.iter().zip(periods) {
        for (load, part) in next.iter_mut().zip(repeat_last_period(season, *period)) {
            *load += part;
        }
    }
    for load in &mut next {
        deviation *= fading;
        *load += deviation;
    }
    next
}

/// Returns the part of a deviation that is left a slot later: the first autocorrelation, from 0 to below 1.
fn persistence(remainder: &[f32]) -> f32 {
    let square: f32 = remainder.iter().map(|x| x * x).sum();
    let beside: f32 = remainder.iter().zip(remainder.iter().skip(1)).map(|(x, next)| x * next).sum();
    if square > 0.0 { (beside / square).clamp(0.0, 0.99) } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Days of one wave each.
    fn waves(days: usize) -> Vec<f32> {
        let day = (0..DAY).map(|slot| 1.0 + (slot as f32 / DAY as f32 * std::f32::consts::TAU).sin());
        day.cycle().take(days * DAY).collect()
    }

    #[test]
    fn a_pattern_without_noise_is_continued_by_all_that_know_its_period() {
        let (slots, next) = (waves(15), waves(1));
        for method in [
            ForecastMethod::DayAgo,
            ForecastMethod::WeekAgo,
            ForecastMethod::Daily,
            ForecastMethod::DailyAndWeekly,
        ] {
            let foretold = method.foretell(&slots, DAY);
            let most = foretold.iter().zip(&next).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(most < 0.02, "{}: {most}", method.name());
        }
    }

    #[test]
    fn a_deviation_is_carried_on_and_fades() {
        let mut slots = waves(8);
        let end = slots.len();
        slots[end - 6..].iter_mut().for_each(|load| *load += 1.0);
        let (foretold, pattern) = (ForecastMethod::Daily.foretell(&slots, DAY), waves(1));
        let above: Vec<f32> = foretold.iter().zip(&pattern).map(|(a, b)| a - b).collect();
        assert!(
            above[0] > 0.3 && above[0] > above[6] + 0.1 && above[DAY / 2].abs() < 0.15,
            "{:?}",
            &above[..12]
        );
    }

    #[test]
    fn too_short_a_history_is_carried_on() {
        for method in ForecastMethod::ALL {
            let slots = vec![2.0; method.slots() - 1];
            assert_eq!(method.foretell(&slots, 3), vec![slots.last().copied().unwrap_or(0.0); 3]);
        }
    }
}
