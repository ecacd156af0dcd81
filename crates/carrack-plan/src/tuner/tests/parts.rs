//! The parts of the controller.

use super::super::curve::{KnobCurve, SampleNoise, utility};
use super::super::meter::{RateMeter, RateReading};
use super::super::search::{CurveSearch, SearchReach};
use super::*;

fn reading(rate: f64) -> RateReading {
    let rates = StageRates { read: rate, sent: rate, written: rate };
    RateReading { since: Duration::ZERO, rates, loss: 0.0 }
}

/// Follows a search while its values are better, until it has no more; returns the final value and the number
/// of trials.
fn search(start: u32, range: KnobRange, curve: impl Fn(f64) -> f64) -> (u32, usize) {
    let mut known = KnobCurve::default();
    let mut home = range.clamp(start);
    known.add(home, Duration::ZERO, &reading(curve(f64::from(home))));
    for trials in 0.. {
        let search = CurveSearch { curve: &known, range, reach: SearchReach::Wide, fewer_first: false };
        let Some(value) = search.next(home) else { return (home, trials) };
        assert!(value >= range.least && value <= range.most && known.get(value).is_none(), "{value}");
        known.add(value, Duration::ZERO, &reading(curve(f64::from(value))));
        let worth = |value: u32| utility(value, curve(f64::from(value)), 0.0);
        home = if worth(value) > worth(home) { value } else { home };
    }
    unreachable!("there are fewer values than that")
}

#[test]
fn a_search_ends_near_the_best_of_any_concave_curve() {
    for seed in 0..2_000 {
        let condition = any_condition(seed, TunerKnob::Readers);
        let (home, trials) =
            search(condition.range.start, condition.range, |value| UNIT * (condition.curve)(value));
        let part = (condition.curve)(f64::from(home)) / condition.best();
        // Far behind its peak the universal scalability law is not concave.
        let least = if condition.name.contains("contention") { 0.9 } else { 0.95 };
        assert!(part > least && trials <= 14, "{seed}, {}: {part} at {home} after {trials}", condition.name);
    }
}

#[test]
fn a_search_tries_nothing_where_a_level_curve_leaves_no_room() {
    // 4, 8 and 16 are known; no value between 8 and 16 can be better, and below 4 all are worse.
    let (home, trials) = search(4, KnobRange::new(1, 16, 4), |n| UNIT * n.min(8.0));
    assert_eq!((home, trials), (8, 2 + 1), "and one between 8 and 16, where a peak could hide");
}

#[test]
fn what_lasts_is_the_least_of_the_stages() {
    // The sink writes from its queue while no object comes.
    let mut meter = RateMeter::default();
    let queue = |waiting| QueueFill { waiting, capacity: 1_000 };
    let begin = SessionSample {
        work: 1,
        sink_queue: Some(queue(600)),
        outbox: queue(100),
        ..SessionSample::default()
    };
    let after = |ms, bytes, waiting, outbox| SessionSample {
        at: Duration::from_millis(ms),
        bytes,
        objects: bytes / 500,
        sink_queue: Some(queue(waiting)),
        outbox: queue(outbox),
        ..begin
    };
    meter.read(&after(250, 500, 600, 100), 1);
    let rates = meter.read(&after(500, 1_000, 200, 150), 1).expect("bytes have come").rates;
    assert_eq!((rates.written, rates.sent, rates.read), (2_000.0, 400.0, 600.0));
    assert_eq!(rates.sustained_rate(), 400.0);
    // A burst's rate is over the time since the last one.
    assert_eq!(meter.read(&after(750, 1_000, 200, 150), 1), None);
    assert_eq!(meter.read(&after(1_000, 2_000, 200, 150), 1).expect("bytes again").rates.written, 2_000.0);
    // So is the rate of threads that end together.
    assert_eq!(meter.read(&after(1_250, 3_000, 200, 150), 4), None);
    assert_eq!(meter.read(&after(2_000, 4_000, 200, 150), 4).expect("one of each").rates.written, 2_000.0);
}

#[test]
fn noise_that_lasts_counts_for_more() {
    let mut chance = TestRandomGenerator(1);
    let (mut fresh, mut lasting, mut deviation) = (SampleNoise::default(), SampleNoise::default(), 0.0);
    let mut means = [0.0; 2];
    for _ in 0..2_000 {
        let next = chance.normal();
        deviation = 0.5 * deviation + 0.75f64.sqrt() * next;
        fresh.learn(1e9 * (1.0 + 0.05 * next), 1e9);
        lasting.learn(1e9 * (1.0 + 0.05 * deviation), 1e9);
        means[0] += fresh.deviation() / 2_000.0;
        means[1] += lasting.deviation() / 2_000.0;
    }
    // With a correlation of a half the variance is three times as large.
    assert!((means[0] - 0.05).abs() < 0.01 && (means[1] - 0.05 * 3f64.sqrt()).abs() < 0.02, "{means:?}");
}
