//! The three knobs together: stages with their curves, and the queues between them.

use super::*;

type TestStageRateCurve = Box<dyn Fn(f64, f64) -> f64>;

/// Each thread brings `each`, and all together at most `most`.
fn knee(each: f64, most: f64) -> TestStageRateCurve {
    Box::new(move |n, _| (n * each).min(most))
}

/// The same, with another maximum from 30 s on.
fn changing(each: f64, most: f64, then: f64) -> TestStageRateCurve {
    Box::new(move |n, at| (n * each).min(if at < 30.0 { most } else { then }))
}

/// Falls beyond its peak.
fn peak(each: f64, at: f64) -> TestStageRateCurve {
    Box::new(move |n, _| each * (n.min(at) - 0.1 * (n - at).max(0.0)))
}

fn pipelines() -> Vec<(&'static str, [TestStageRateCurve; 3])> {
    vec![
        ("reading is slow", [knee(0.5, 8.0), knee(3.0, 12.0), knee(2.0, 14.0)]),
        ("the network is slow", [knee(1.0, 14.0), knee(0.6, 10.0), knee(2.0, 14.0)]),
        ("writing is slow", [knee(2.0, 20.0), knee(3.0, 12.0), knee(0.5, 9.0)]),
        ("each in its turn", [knee(0.6, 12.0), knee(0.8, 12.0), knee(0.7, 12.0)]),
        ("all equally slow", [knee(0.3, 12.0), knee(0.3, 12.0), knee(0.3, 12.0)]),
        ("peaks", [peak(1.0, 10.0), peak(1.5, 8.0), peak(0.8, 14.0)]),
        ("to the network", [knee(0.5, 10.0), changing(1.0, 12.0, 5.0), knee(2.0, 14.0)]),
        ("to the sink", [knee(0.5, 10.0), knee(1.0, 12.0), changing(1.0, 12.0, 4.0)]),
        ("to the source", [changing(0.5, 14.0, 5.0), knee(1.0, 8.0), knee(2.0, 14.0)]),
        ("away from the network", [knee(0.5, 12.0), changing(1.0, 4.0, 12.0), knee(1.0, 14.0)]),
    ]
}

fn setup() -> TunerSetup {
    let range = KnobRange::new(1, 32, 4);
    TunerSetup { ranges: PerKnob::from_fn(|_| range), round_trip: Duration::from_millis(10) }
}

#[test]
fn finds_the_bottleneck_and_follows_it() {
    for (name, stages) in pipelines() {
        let pipeline = SimulatedPipeline { stages, room: 1.3, jitter: 0.0 };
        for (noise, typical, least) in [(0.0, 0.93, 0.93), (0.05, 0.93, 0.7)] {
            let run = |seed| {
                let mut session = SimulatedSession::new(SessionTuner::new(setup()), noise, seed);
                pipeline.run(&mut session, 90.0);
                let before = session.mean(20.0, 30.0) / pipeline.best(32, 25.0);
                before.min(session.mean(40.0, 90.0) / pipeline.best(32, 60.0))
            };
            let parts: Vec<f64> = (0..10).map(run).collect();
            let (median, lowest) = (quantile(parts.clone(), 0.5), quantile(parts, 0.0));
            println!("{name}, noise {noise}: median {median:.3}, lowest {lowest:.3}");
            assert!(median >= typical && lowest >= least, "{name}, noise {noise}: {median}, {lowest}");
        }
    }
}

#[test]
fn what_is_not_the_bottleneck_is_released() {
    // Begins with many more readers than the path takes.
    let pipeline = SimulatedPipeline {
        stages: [knee(1.0, 20.0), knee(0.6, 5.0), knee(2.0, 20.0)],
        room: 1.3,
        jitter: 0.0,
    };
    let ranges = PerKnob::from_fn(|_| KnobRange::new(1, 32, 4));
    let setup = TunerSetup { ranges, round_trip: Duration::ZERO };
    let values = PerKnob { readers: 32, streams: 10, writers: 4 };
    let record = SessionTuningResult {
        values,
        is_settled: true,
        bytes_per_s: 500_000_000,
        ..SessionTuner::new(setup).tuning_result(0)
    };
    let mut session = SimulatedSession::new(SessionTuner::from_history(setup, &record), 0.0, 0);
    pipeline.run(&mut session, 300.0);
    let [readers, streams, _] = session.values();
    assert!(readers <= 8 && streams <= 12, "{:?}", session.values());
    assert!(session.mean(0.0, 300.0) > 4.75, "and that has cost nothing");
}

#[test]
fn stages_that_stray_from_their_curves_are_tuned() {
    // Independent deviation of each stage in each tenth of a second, as a part of its rate.
    for (jitter, typical, rare) in [(0.1, 0.97, 0.94), (0.3, 0.95, 0.85)] {
        let mut parts = Vec::new();
        for (_, stages) in pipelines() {
            let pipeline = SimulatedPipeline { stages, room: 1.3, jitter };
            for seed in 0..5 {
                let mut session = SimulatedSession::new(SessionTuner::new(setup()), 0.0, seed);
                pipeline.run(&mut session, 90.0);
                parts.push(session.mean(40.0, 90.0) / pipeline.best(32, 60.0));
            }
        }
        let (median, low) = (quantile(parts.clone(), 0.5), quantile(parts, 0.1));
        println!("stages that stray by {jitter}: median {median:.3}, 10 % below {low:.3}");
        assert!(median >= typical && low >= rare, "{jitter}: {median}, {low}");
    }
}

#[test]
fn a_rest_that_a_queue_bridges_is_no_other_curve() {
    let reading: TestStageRateCurve = Box::new(|n, at| if (40.0..42.0).contains(&at) { 0.0 } else { n });
    let pipeline =
        SimulatedPipeline { stages: [reading, knee(0.5, 2.0), knee(2.0, 20.0)], room: 5.0, jitter: 0.0 };
    let mut session = SimulatedSession::new(SessionTuner::new(setup()), 0.02, 0);
    pipeline.run(&mut session, 60.0);
    let moved = |it: &&TunerDecision| {
        matches!(it.cause, TunerSearchCause::Moved { .. }) && it.at > Duration::from_secs(40)
    };
    assert_eq!(session.decisions.iter().find(moved), None);
    assert!(session.mean(40.0, 45.0) > 1.9, "the queue has bridged it");
}
