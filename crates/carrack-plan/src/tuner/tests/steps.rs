//! Curves that change while a session runs.

use super::*;

/// A curve of the value and the time in seconds, and the throughput of the best value at a time.
struct SimulatedCurveChange {
    name: &'static str,
    round_trip: f64,
    curve: Box<dyn Fn(f64, f64) -> f64>,
    best: Box<dyn Fn(f64) -> f64>,
}

/// A factor of 0.5 from 20 s to 40 s, and of 1 otherwise.
fn halved(at: f64) -> f64 {
    if at > 20.0 && at <= 40.0 { 0.5 } else { 1.0 }
}

fn changes() -> Vec<SimulatedCurveChange> {
    vec![
        SimulatedCurveChange {
            name: "the whole curve",
            round_trip: 0.0,
            curve: Box::new(|n, at| n.min(8.0) * halved(at)),
            best: Box::new(|at| 8.0 * halved(at)),
        },
        SimulatedCurveChange {
            name: "the link's rate",
            round_trip: 0.05,
            curve: Box::new(|n, at| n.min(20.0 * halved(at))),
            best: Box::new(|at| 20.0 * halved(at)),
        },
        SimulatedCurveChange {
            name: "each stream's rate: a round trip or loss that has grown",
            round_trip: 0.05,
            curve: Box::new(|n, at| (n * halved(at)).min(16.0)),
            best: Box::new(|_| 16.0),
        },
        SimulatedCurveChange {
            name: "the peak's place",
            round_trip: 0.0,
            curve: Box::new(|n, at| n.min(16.0 * halved(at)) - 0.2 * (n - 16.0 * halved(at)).max(0.0)),
            best: Box::new(|at| 16.0 * halved(at)),
        },
    ]
}

#[test]
fn follows_a_step_within_ten_seconds() {
    for SimulatedCurveChange { name, round_trip, curve, best } in changes() {
        for (noise, typical, rare) in [(0.0, 0.95, 0.95), (0.05, 0.95, 0.9)] {
            let knob = if round_trip > 0.0 { TunerKnob::Streams } else { TunerKnob::Readers };
            let condition = SimulatedKnobThroughput {
                round_trip,
                ..SimulatedKnobThroughput::new(name, knob, KnobRange::new(1, 64, 4), |_| 0.0)
            };
            let mut parts = [Vec::new(), Vec::new()];
            for seed in 0..50 {
                let mut session = SimulatedSession::new(SessionTuner::new(condition.setup()), noise, seed);
                condition.run_as(&mut session, 60.0, &curve);
                for (parts, from) in parts.iter_mut().zip([30.0, 50.0]) {
                    parts.push(session.mean(from, from + 10.0) / best(from + 5.0));
                }
            }
            for (parts, what) in parts.into_iter().zip(["halved", "restored"]) {
                let (median, low) = (quantile(parts.clone(), 0.5), quantile(parts, 0.1));
                println!("{name}, {what}, noise {noise}: median {median:.3}, 10 % below {low:.3}");
                assert!(median >= typical && low >= rare, "{name} {what}, noise {noise}: {median}, {low}");
            }
        }
    }
}

#[test]
fn a_capacity_that_grows_unseen_is_found_by_a_look() {
    // At the knee nothing shows that the link has become faster.
    let condition = SimulatedKnobThroughput::new("", TunerKnob::Streams, KnobRange::new(1, 64, 4), |_| 0.0);
    let mut session = SimulatedSession::new(SessionTuner::new(condition.setup()), 0.0, 0);
    condition.run_as(&mut session, 200.0, |n, at| n.min(if at < 90.0 { 6.0 } else { 30.0 }));
    assert!(session.mean(80.0, 90.0) > 5.9);
    let found = session.trace.iter().find(|(at, _, rate)| *at > 90.0 && *rate > 28.0).map(|(at, ..)| *at);
    assert!(found.is_some_and(|at| at < 90.0 + 60.0 + 15.0), "{found:?}");
}
