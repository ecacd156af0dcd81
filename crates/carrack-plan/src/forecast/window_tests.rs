//! Starts, compared with a search through every second.

use super::*;
use proptest::prelude::*;

use crate::forecast::ForecastMethod;

fn forecast(start_s: i64, expected: Vec<f64>) -> LoadForecast {
    let (near, far) = (ForecastMethod::SameAsNow, ForecastMethod::SameAsNow);
    LoadForecast { start_s, by_far: expected.clone(), expected, near, far, backtests: Vec::new() }
}

fn rate() -> TransferRateUnderLoad {
    TransferRateUnderLoad::new(1e6, 1.0).expect("a possible rate")
}

/// Busy, then idle for an hour, then busy, without rounding.
fn day_with_a_gap() -> LoadForecast {
    const BUSY: f64 = 19.0 / 32.0;
    forecast(0, [vec![BUSY; 24], vec![0.0; 12], vec![BUSY; 252]].concat())
}

#[test]
fn the_idle_hour_is_taken() {
    let window = best_window(&day_with_a_gap(), 3_600_000_000, &rate(), 100, 80_000);
    assert_eq!((window.start_s, window.end_s, window.is_late), (7200, 10_800, false));
    assert!(window.end_if_now_s > 10_000 && window.end_if_now_s < 10_800, "{window:?}");
}

#[test]
fn a_deadline_before_the_idle_hour_ends_moves_the_start() {
    let window = best_window(&day_with_a_gap(), 3_600_000_000, &rate(), 0, 10_300);
    assert!(!window.is_late && window.end_s <= 10_300 && window.start_s < 7200, "{window:?}");
    let late = best_window(&day_with_a_gap(), 3_600_000_000, &rate(), 0, 7000);
    assert_eq!((late.start_s, late.is_late), (0, true));
}

#[test]
fn nobody_waits_for_little() {
    let level = forecast(0, vec![0.30; 288]);
    assert_eq!(best_window(&level, 1_000_000_000, &rate(), 1234, 80_000).start_s, 1234);
    let hardly_better = forecast(0, [vec![0.30; 144], vec![0.29; 144]].concat());
    assert_eq!(best_window(&hardly_better, 1_000_000_000, &rate(), 0, 80_000).start_s, 0);
    let better = forecast(0, [vec![0.30; 144], vec![0.10; 144]].concat());
    assert_eq!(best_window(&better, 1_000_000_000, &rate(), 0, 80_000).start_s, 43_200);
}

#[test]
fn what_would_never_end_is_no_rate() {
    assert_eq!(TransferRateUnderLoad::new(0.0, 1.0), None);
    assert_eq!(TransferRateUnderLoad::new(1e6, 0.0), None);
    assert_eq!(TransferRateUnderLoad::new(f64::NAN, 1.0), None);
    assert_eq!(TransferRateUnderLoad::new(1e6, f64::INFINITY), None);
}

/// Returns the end of a transfer from a start, second by second.
fn end_by_seconds(forecast: &LoadForecast, start_s: i64, bytes: f64) -> f64 {
    let mean = forecast.expected.iter().sum::<f64>() / forecast.expected.len() as f64;
    let (mut at_s, mut left) = (start_s, bytes);
    loop {
        let rate = rate().rate(forecast.load_at(at_s).unwrap_or(mean));
        if left <= rate {
            return at_s as f64 + left / rate;
        }
        left -= rate;
        at_s += 1;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn no_start_is_better(
        loads in prop::collection::vec(0.0_f64..1.5, 1..14),
        megabytes in 1_u64..1500,
        now_s in 1000_i64..2500,
        time_s in 0_i64..5000,
    ) {
        let forecast = forecast(900, loads);
        let (bytes, deadline_s) = (megabytes * 1_000_000, now_s + time_s);
        let window = best_window(&forecast, bytes, &rate(), now_s, deadline_s);
        let end = |start_s| end_by_seconds(&forecast, start_s, bytes as f64);
        prop_assert!((end(window.start_s) - window.end_s as f64).abs() <= 1.01);
        prop_assert!((end(now_s) - window.end_if_now_s as f64).abs() <= 1.01);
        prop_assert!(window.start_s >= now_s);
        // A second at either side is rounding.
        let met: Vec<i64> = (now_s..=deadline_s).filter(|&start_s| end(start_s) <= (deadline_s - 1) as f64).collect();
        if window.is_late {
            prop_assert_eq!(window.start_s, now_s);
            prop_assert!(met.is_empty(), "{} would have met it", met[0]);
        } else {
            prop_assert!(window.end_s <= deadline_s);
            let shortest = met.iter().map(|&start_s| end(start_s) - start_s as f64).fold(f64::INFINITY, f64::min);
            let chosen = end(window.start_s) - window.start_s as f64;
            prop_assert!(chosen * (1.0 - WORTH) <= shortest + 2.0, "{chosen} s, {shortest} were possible");
        }
    }
}
