//! Several transfers on one path, each with a tuner of its own.

use super::*;

/// The last five of ten minutes: the largest deviation from an equal share, as a part of the share, and the
/// streams of each, as a part of the most.
fn unfairness(
    count: u32,
    gap: f64,
    noise: f64,
    seed: u64,
    (each, link, round_trip): (f64, f64, f64),
) -> (f64, f64) {
    let start = if round_trip > 0.0 { 8 } else { 2 };
    let range = KnobRange::doubling(start, 2 * start, start);
    let ranges =
        PerKnob::from_fn(|knob| if knob == TunerKnob::Streams { range } else { KnobRange::fixed(4) });
    let setup = TunerSetup { ranges, round_trip: Duration::from_secs_f64(round_trip) };
    let session = |index: u32| {
        let begin = gap * f64::from(index);
        (begin, SimulatedSession::new(SessionTuner::new(setup), noise, seed * 10 + u64::from(index)))
    };
    let mut sessions: Vec<_> = (0..count).map(session).collect();
    share_a_path(&mut sessions, each, link, round_trip, 600.0);
    let rates: Vec<f64> = sessions.iter().map(|(_, session)| session.mean(300.0, 600.0)).collect();
    let equal = rates.iter().sum::<f64>() / f64::from(count);
    assert!(equal * f64::from(count) > 0.98 * link, "together they fill the path: {rates:?}");
    let late =
        || sessions.iter().flat_map(|(_, session)| session.trace.iter()).filter(|(at, ..)| *at > 300.0);
    let streams = late().map(|(_, values, _)| f64::from(values[1])).sum::<f64>() / late().count() as f64;
    let streams = streams / f64::from(2 * start);
    (rates.iter().map(|rate| (rate / equal - 1.0).abs()).fold(0.0, f64::max), streams)
}

#[test]
fn two_and_four_transfers_get_equal_shares() {
    // Streams of which one, five or ten fill the path.
    let paths = [(2.0, 10.0, 0.0), (1.0, 10.0, 0.05), (10.0, 10.0, 0.0)];
    for (count, noise, typical, rare) in [
        (2, 0.0, 0.01, 0.02),
        (2, 0.02, 0.02, 0.05),
        (2, 0.05, 0.02, 0.05),
        (4, 0.02, 0.02, 0.05),
        (4, 0.05, 0.02, 0.05),
    ] {
        let mut all = Vec::new();
        for path in paths {
            for gap in [10.0, 15.0, 20.0] {
                all.extend((0..4).map(|seed| unfairness(count, gap, noise, seed, path)));
            }
        }
        let streams = all.iter().map(|(_, streams)| streams).sum::<f64>() / all.len() as f64;
        let all: Vec<f64> = all.into_iter().map(|(unfairness, _)| unfairness).collect();
        let (median, high) = (quantile(all.clone(), 0.5), quantile(all, 0.9));
        println!(
            "{count} transfers, noise {noise}: median {median:.3}, 10 % above {high:.3}; {streams:.2} of all streams"
        );
        // The equilibrium of `docs/design/tuner.md`.
        assert!(streams > 0.95, "{streams} of all");
        assert!(median <= typical && high <= rare, "{count} transfers, noise {noise}: {median}, {high}");
    }
}
