//! Histories with known patterns, and their forecasts.

use super::*;
use proptest::prelude::*;

const DAY_S: i64 = 86_400;
const HOUR_S: i64 = 3600;
/// A Monday.
const START_S: i64 = 1_767_571_200;

/// From -1 to 1, deterministic by place.
fn noise(place: i64) -> f64 {
    let mut x = (place as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0xD1B5_4A32_D192_ED03;
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    (x >> 11) as f64 / (1_u64 << 52) as f64 - 1.0
}

/// Computations write from 9 to 17 o'clock; with weekends, not on those.
fn site(at_s: i64, has_weekends: bool) -> f64 {
    let hour = at_s.rem_euclid(DAY_S) / HOUR_S;
    let is_weekend = (at_s - START_S).div_euclid(DAY_S).rem_euclid(7) >= 5;
    if (9..17).contains(&hour) && !(has_weekends && is_weekend) { 0.8 } else { 0.1 }
}

/// A sample a minute, up to some days, with noise.
fn history(days: i64, load: impl Fn(i64) -> Option<f64>) -> LoadHistory {
    let end_s = START_S + days * DAY_S;
    let mut history = LoadHistory::default();
    for at_s in (START_S..end_s).step_by(60) {
        if let Some(load) = load(at_s) {
            assert!(
                history
                    .add(TargetLoadSample { at_s, load: (load + 0.1 * noise(at_s / 900)).max(0.0) }, end_s)
            );
        }
    }
    history
}

/// Returns the error of a day's forecast, and that of the last load.
fn off(forecast: &LoadForecast, last: f64, load: impl Fn(i64) -> f64) -> (f64, f64) {
    let steps = forecast.expected.iter().zip((forecast.start_s..).step_by(STEP_S as usize));
    let (mut of_forecast, mut of_last) = (0.0, 0.0);
    for (expected, at_s) in steps {
        of_forecast += (expected - load(at_s)).abs() / forecast.expected.len() as f64;
        of_last += (last - load(at_s)).abs() / forecast.expected.len() as f64;
    }
    (of_forecast, of_last)
}

#[test]
fn a_daily_pattern_is_found() {
    let end_s = START_S + 10 * DAY_S;
    let forecast = history(10, |at_s| Some(site(at_s, false))).forecast(end_s, DAY_S).expect("a forecast");
    let (of_forecast, of_last) = off(&forecast, 0.1, |at_s| site(at_s, false));
    assert!(of_forecast < 0.06 && of_last > 0.2, "{of_forecast} {of_last}");
    let far = forecast.error(ForecastHorizon::Day).expect("an error");
    assert!(far.mae < 0.08 && far.rmse >= far.mae && far.compared > 800, "{far:?}");
    let naive = forecast.error_of(ForecastMethod::SameAsNow, ForecastHorizon::Day).expect("an error");
    assert!(far.mae < naive.mae / 2.0, "{far:?} {naive:?}");
    assert!(forecast.load_at(end_s + 12 * HOUR_S).expect("within") > 0.6);
    assert!(forecast.load_at(end_s + 20 * HOUR_S).expect("within") < 0.3);
}

#[test]
fn weekends_are_found_after_some_weeks() {
    let end_s = START_S + 26 * DAY_S;
    let forecast = history(26, |at_s| Some(site(at_s, true))).forecast(end_s, 3 * DAY_S).expect("a forecast");
    // It begins on a Saturday.
    assert_eq!(forecast.far, ForecastMethod::DailyAndWeekly, "{:?}", forecast.backtests);
    let (of_forecast, _) = off(&forecast, 0.1, |at_s| site(at_s, true));
    assert!(of_forecast < 0.1, "{of_forecast}");
    let daily = forecast.error_of(ForecastMethod::Daily, ForecastHorizon::Day).expect("an error");
    assert!(forecast.error(ForecastHorizon::Day).expect("an error").mae < daily.mae);
}

#[test]
fn days_without_samples_do_not_hide_the_pattern() {
    let known = |at_s: i64| {
        let day = (at_s - START_S) / DAY_S;
        let is_known = !(4..7).contains(&day) && at_s % DAY_S > 2 * HOUR_S;
        is_known.then(|| site(at_s, false))
    };
    let history = history(12, known);
    assert!((0.6..0.8).contains(&history.coverage()), "{}", history.coverage());
    let forecast = history.forecast(START_S + 12 * DAY_S, DAY_S).expect("a forecast");
    let (of_forecast, _) = off(&forecast, 0.1, |at_s| site(at_s, false));
    assert!(of_forecast < 0.1, "{of_forecast} {:?}", forecast.backtests);
}

#[test]
fn a_load_that_just_rose_is_expected_to_stay_for_a_while() {
    let end_s = START_S + 8 * DAY_S;
    let load = |at_s| site(at_s, false) + if at_s >= end_s - 2 * HOUR_S { 0.5 } else { 0.0 };
    let forecast = history(8, |at_s| Some(load(at_s))).forecast(end_s, DAY_S).expect("a forecast");
    assert!(forecast.expected[0] > 0.45, "{}", forecast.expected[0]);
    assert!(forecast.load_at(end_s + 20 * HOUR_S).expect("within") < 0.35);
}

#[test]
fn a_short_history_gives_the_last_load_and_no_error() {
    let mut history = LoadHistory::default();
    assert_eq!(history.forecast(START_S, DAY_S), None);
    assert!(history.add(TargetLoadSample { at_s: START_S, load: 0.4 }, START_S));
    let forecast = history.forecast(START_S + 100, HOUR_S).expect("a forecast");
    assert_eq!((forecast.near, forecast.far), (ForecastMethod::SameAsNow, ForecastMethod::SameAsNow));
    assert!(forecast.expected.iter().all(|load| (load - 0.4).abs() < 1e-6));
    assert_eq!(forecast.start_s, START_S);
    assert!(forecast.end_s() >= START_S + HOUR_S && forecast.error(ForecastHorizon::Hour).is_none());
}

#[test]
fn a_feed_that_is_silent_is_foretold_through() {
    let history = history(10, |at_s| Some(site(at_s, false)));
    let now_s = START_S + 10 * DAY_S + 10 * HOUR_S;
    let forecast = history.forecast(now_s, DAY_S).expect("a forecast");
    assert_eq!(forecast.start_s, now_s);
    let (of_forecast, _) = off(&forecast, 0.1, |at_s| site(at_s, false));
    assert!(of_forecast < 0.1, "{of_forecast}");
    assert_eq!(history.forecast(now_s + 60 * DAY_S, DAY_S), None);
}

#[test]
fn a_sample_that_is_none_changes_nothing() {
    let mut history = history(2, |at_s| Some(site(at_s, false)));
    let before: Vec<_> = history.measured_samples().collect();
    let now_s = START_S + 2 * DAY_S;
    for (at_s, load) in [
        (now_s, f64::NAN),
        (now_s, -0.1),
        (now_s, f64::INFINITY),
        (now_s + 2 * STEP_S, 0.5),
        (i64::MAX, 0.5),
        (now_s - 40 * DAY_S, 0.5),
    ] {
        assert!(!history.add(TargetLoadSample { at_s, load }, now_s), "{at_s} {load}");
    }
    assert_eq!(history.measured_samples().collect::<Vec<_>>(), before);
}

#[test]
fn missing_slots_are_those_of_the_days_around_or_the_last_known() {
    let mut known = vec![None; 3 * DAY];
    known[5] = Some(1.0);
    known[6] = Some(4.0);
    known[2 * DAY + 5] = Some(3.0);
    let filled = fill(&known).expect("something is known");
    assert_eq!((filled[0], filled[5], filled[6], filled[7]), (1.0, 1.0, 4.0, 4.0));
    assert_eq!((filled[DAY + 4], filled[DAY + 5], filled[DAY + 6], filled[DAY + 7]), (4.0, 2.0, 4.0, 4.0));
    assert_eq!(fill(&[None, None]), None);
}

#[test]
fn a_leap_of_ages_forgets_the_past_at_once() {
    let mut history = LoadHistory::default();
    for at_s in [0, 10_i64.pow(15)] {
        assert!(history.add(TargetLoadSample { at_s, load: 1.0 }, 10_i64.pow(15)));
    }
    assert_eq!(history.measured_samples().count(), 1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn slots_are_the_means_of_their_samples_in_any_order(
        samples in prop::collection::vec((0_i64..50_000, 0.0_f64..100.0), 1..80),
    ) {
        let mut history = LoadHistory::default();
        for &(at_s, load) in &samples {
            let is_kept = history.add(TargetLoadSample { at_s, load }, 50_000);
            prop_assert!(is_kept);
        }
        for slot in history.measured_samples() {
            let of_slot = samples.iter().filter(|(at_s, _)| (0..STEP_S).contains(&(at_s - slot.at_s)));
            let (sum, count) = of_slot.fold((0.0, 0), |(sum, count), (_, load)| (sum + load, count + 1));
            prop_assert!(count > 0 && (slot.load - sum / f64::from(count)).abs() < 1e-3);
        }
        let slots: std::collections::BTreeSet<i64> = samples.iter().map(|(at_s, _)| at_s / STEP_S).collect();
        prop_assert_eq!(history.measured_samples().count(), slots.len());
    }

    #[test]
    fn it_is_bounded_and_keeps_the_newest(times in prop::collection::vec(0_i64..400 * DAY_S, 1..60)) {
        let mut history = LoadHistory::default();
        for &at_s in &times {
            let _ = history.add(TargetLoadSample { at_s, load: 1.0 }, 400 * DAY_S);
        }
        let newest = times.iter().max().expect("one") / STEP_S;
        let kept: Vec<i64> = history.measured_samples().map(|slot| slot.at_s / STEP_S).collect();
        prop_assert!(history.slots.len() <= SLOTS_MOST);
        prop_assert_eq!(kept.last(), Some(&newest));
        prop_assert!(kept.iter().all(|slot| newest - slot < SLOTS_MOST as i64));
    }

    #[test]
    fn what_is_foretold_was_never_worse_than_the_last_load(
        parts in prop::collection::vec((0.0_f64..2.0, 10_usize..300, any::<bool>()), 1..12),
        ahead_h in 1_i64..200,
    ) {
        let mut history = LoadHistory::default();
        let mut at_s = 0;
        for (load, slots, is_known) in parts {
            for slot in 0..slots as i64 {
                at_s += STEP_S;
                if is_known {
                    history.add(TargetLoadSample { at_s, load: load + 0.05 * (1.0 + noise(slot)) }, at_s);
                }
            }
        }
        let Some(forecast) = history.forecast(at_s, ahead_h * HOUR_S) else {
            prop_assert!(history.is_empty());
            return Ok(());
        };
        prop_assert!(forecast.expected.iter().all(|load| load.is_finite() && *load >= 0.0));
        prop_assert_eq!(forecast.start_s, at_s.div_euclid(STEP_S) * STEP_S);
        prop_assert!(forecast.end_s() >= (at_s + ahead_h * HOUR_S).min(forecast.start_s + 7 * DAY_S));
        for horizon in ForecastHorizon::ALL {
            if let Some(naive) = forecast.error_of(ForecastMethod::SameAsNow, horizon) {
                prop_assert!(forecast.error(horizon).expect("an error").mae <= naive.mae);
            }
        }
    }
}
