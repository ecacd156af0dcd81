//! One knob under constant curves.

use super::*;

/// Returns the throughput of sessions under random curves from 20 s to 60 s, trials included, as parts of the
/// best fixed value.
fn parts(knob: TunerKnob, noise: f64, runs: u64, is_wanted: impl Fn(&str) -> bool) -> Vec<f64> {
    (0..runs)
        .map(|seed| (seed, any_condition(seed, knob)))
        .filter(|(_, condition)| is_wanted(condition.name))
        .map(|(seed, condition)| tuned(&condition, noise, seed, 60.0).mean(20.0, 60.0) / condition.best())
        .collect()
}

#[test]
fn finds_95_percent_of_the_best_on_any_concave_curve() {
    // The part of all curves that may miss the mark, and the least result of each.
    for (noise, missed_most, least) in [(0.0, 0.005, 0.9), (0.05, 0.02, 0.85), (0.1, 0.08, 0.75)] {
        let parts = parts(TunerKnob::Readers, noise, 2_000, |_| true);
        let missed = parts.iter().filter(|part| **part < 0.95).count() as f64 / parts.len() as f64;
        let lowest = quantile(parts, 0.0);
        println!("readers, noise {noise}: {missed} miss 95 %, the lowest brings {lowest}");
        assert!(missed <= missed_most && lowest >= least, "noise {noise}: {missed} miss it, {lowest}");
    }
}

#[test]
fn streams_find_a_paths_knee() {
    // A path's curve is a line to its knee.
    for (noise, typical, rare) in [(0.0, 0.96, 0.94), (0.05, 0.96, 0.93), (0.1, 0.95, 0.92)] {
        let parts = parts(TunerKnob::Streams, noise, 4_000, |name| name.contains("level"));
        let (low, lower) = (quantile(parts.clone(), 0.05), quantile(parts, 0.01));
        println!("streams, noise {noise}: 5 % below {low}, 1 % below {lower}");
        assert!(low >= typical && lower >= rare, "noise {noise}: {low}, {lower}");
    }
}

#[test]
fn the_conditions_of_the_issue() {
    for condition in conditions() {
        for (noise, median, least) in [(0.0, 0.96, 0.96), (0.05, 0.95, 0.9), (0.1, 0.95, 0.85)] {
            let part = |seed| tuned(&condition, noise, seed, 60.0).mean(20.0, 60.0) / condition.best();
            let parts: Vec<f64> = (0..20).map(part).collect();
            let (typical, lowest) = (quantile(parts.clone(), 0.5), quantile(parts, 0.0));
            assert!(
                typical >= median && lowest >= least,
                "{}, noise {noise}: {typical}, {lowest}",
                condition.name
            );
        }
    }
}

#[test]
fn never_oscillates() {
    // Five minutes of a constant curve: changes in the first minute, in any minute after it, and in the last.
    for noise in [0.0, 0.05, 0.1] {
        let mut most = [0, 0];
        let mut late = Vec::new();
        for seed in 0..300 {
            let knob = TunerKnob::ALL[(seed % 3) as usize];
            let session = tuned(&any_condition(seed, knob), noise, seed, 300.0);
            most = [
                most[0].max(session.changes_in_a_minute(0.0)),
                most[1].max(session.changes_in_a_minute(60.0)),
            ];
            late.push(session.changes.iter().filter(|at| **at > 240.0).count() as f64);
        }
        let late = quantile(late, 0.5);
        println!("noise {noise}: {most:?} changes, {late} in the last minute of half of the runs");
        assert!(most[0] <= 24 && most[1] <= 16 && late <= 4.0, "noise {noise}: {most:?}, {late}");
    }
}

/// Returns how often in five minutes the kept value changes at the knee of a curve, after the first rest.
fn moves(noise: f64, correlation: f64, seed: u64) -> f64 {
    let knee = SimulatedKnobThroughput::new("", TunerKnob::Readers, KnobRange::new(1, 64, 4), |n| n.min(8.0));
    let mut session = SimulatedSession::new(SessionTuner::new(knee.setup()), noise, seed);
    session.correlation = correlation;
    knee.run(&mut session, 300.0);
    let kept = session.decisions.iter().filter(|decision| decision.action == KnobMovePurpose::Settle);
    let kept: Vec<u32> = kept.map(|decision| decision.to).collect();
    kept.windows(2).filter(|pair| pair[0] != pair[1]).count() as f64
}

#[test]
fn noise_moves_nothing_that_is_settled() {
    // Independent samples, and a neighbour's load that comes and goes in seconds.
    for (correlation, half, most) in [(0.0, 0.0, 3.0), (0.8, 1.0, 5.0)] {
        for noise in [0.05, 0.1] {
            let moved: Vec<f64> = (0..100).map(|seed| moves(noise, correlation, seed)).collect();
            let found = (quantile(moved.clone(), 0.5), quantile(moved, 1.0));
            println!("noise {noise} that lasts {correlation}: {found:?} moves in five minutes");
            assert!(found.0 <= half && found.1 <= most, "noise {noise}, {correlation}: {found:?}");
        }
    }
}

#[test]
fn answers_may_come_in_bursts() {
    // Twice a second it makes little difference.
    let part = |seed| {
        let condition = any_condition(seed, TunerKnob::Readers);
        let mut session = SimulatedSession::new(SessionTuner::new(condition.setup()), 0.05, seed);
        session.answers_every = 2;
        condition.run(&mut session, 60.0);
        session.mean(20.0, 60.0) / condition.best()
    };
    let low = quantile((0..500).map(part).collect(), 0.02);
    assert!(low >= 0.95, "{low}");
}

#[test]
fn releases_what_brings_nothing() {
    // Level at once: from 16 it goes down, and from 4 not far up.
    for start in [4, 16] {
        let condition =
            SimulatedKnobThroughput::new("", TunerKnob::Readers, KnobRange::new(1, 64, start), |_| 10.0);
        let session = tuned(&condition, 0.0, 0, 50.0);
        assert_eq!(session.values()[0], 1, "from {start}");
    }
}

#[test]
fn a_full_cpu_has_fewer_tried_first() {
    let mut condition = SimulatedKnobThroughput::new("", TunerKnob::Readers, KnobRange::new(1, 64, 8), |n| {
        4.0 - 0.05 * (n - 4.0).abs()
    });
    condition.cpu = Box::new(|_| 1.0);
    let session = tuned(&condition, 0.0, 0, 60.0);
    assert_eq!((session.decisions[0].from, session.decisions[0].to), (8, 4), "{}", session.decisions[0]);
}

#[test]
fn a_loss_that_grows_with_the_streams_is_paid_for() {
    // Beyond 8 streams throughput still rises a bit, and so do retransmissions.
    let run = |is_lossy: bool| {
        let mut condition =
            SimulatedKnobThroughput::new("", TunerKnob::Streams, KnobRange::doubling(1, 32, 4), |n| {
                n.min(8.0) + 0.25 * (n - 8.0).max(0.0)
            });
        condition.loss = Box::new(move |n| if is_lossy { 0.01 * (n - 8.0).max(0.0) } else { 0.0 });
        tuned(&condition, 0.0, 0, 60.0).values()[1]
    };
    assert!(run(true) == 8 && run(false) >= 16, "{} and {}", run(true), run(false));
}

/// Bundles of small files whose storage takes its time for each file: a reader has one in some five seconds,
/// so that no bundle comes for seconds, and then several at once.
#[test]
fn objects_that_take_seconds_are_counted_by_the_round() {
    const TAKES_S: f64 = 5.0;
    const AT_ONCE: u32 = 16;
    const RUNS: u64 = 20;
    let ranges = PerKnob::from_fn(|knob| match knob {
        TunerKnob::Readers => KnobRange::new(1, 64, 8),
        _ => KnobRange::fixed(2),
    });
    let mut parts = Vec::new();
    for seed in 0..RUNS {
        let mut tuner = SessionTuner::new(TunerSetup { ranges, round_trip: Duration::ZERO });
        let mut sample = SessionSample { work: 1_000, ..SessionSample::default() };
        let (mut ends, mut now, mut done_late, mut chance) = (Vec::new(), 0.0, 0, TestRandomGenerator(seed));
        while now < 600.0 {
            now += SAMPLE.as_secs_f64();
            let readers = tuner.value(TunerKnob::Readers);
            let takes_s = TAKES_S * f64::from(readers.max(AT_ONCE)) / f64::from(AT_ONCE);
            let began = ends.len() as u32..readers;
            ends.extend(began.map(|_| now + takes_s * (1.0 + 0.1 * chance.normal()).max(0.1)));
            let done = ends.iter().filter(|end| **end <= now).count() as u64;
            ends.retain(|end| *end > now);
            sample.at += SAMPLE;
            (sample.objects, sample.bytes) = (sample.objects + done, sample.bytes + (done << 20));
            done_late += if now > 120.0 { done } else { 0 };
            tuner.observe(&sample);
        }
        parts.push(done_late as f64 / 480.0 / (f64::from(AT_ONCE) / TAKES_S));
    }
    let (least, median) = (quantile(parts.clone(), 0.0), quantile(parts, 0.5));
    println!(
        "objects of five seconds: {:.0} % of the best, the lowest {:.0} %",
        100.0 * median,
        100.0 * least
    );
    assert!(median > 0.9 && least > 0.8, "{median} {least}");
}
