//! The tuner compared with simpler controllers: the tables of `docs/design/tuner.md`.
//! `cargo test -p carrack-plan table -- --nocapture` prints them.

use super::baseline_rules::{BaselineTunerRule, SimulatedBaselineTuner};
use super::*;

const RUNS: u64 = 20;

/// Means over some seeds.
#[derive(Default)]
struct TestComparisonCell {
    /// Parts of the best fixed value, until 20 s and from there to 60 s.
    first: f64,
    later: f64,
    /// Changes a minute from 20 s on.
    changes: f64,
}

fn cell<C: TestedKnobController>(
    condition: &SimulatedKnobThroughput,
    noise: f64,
    make: impl Fn(&SimulatedKnobThroughput) -> C,
) -> TestComparisonCell {
    let mut cell = TestComparisonCell::default();
    for seed in 0..RUNS {
        let mut session = SimulatedSession::new(make(condition), noise, seed);
        condition.run(&mut session, 60.0);
        cell.first += session.mean(0.0, 20.0) / condition.best() / RUNS as f64;
        cell.later += session.mean(20.0, 60.0) / condition.best() / RUNS as f64;
        cell.changes += session.changes.iter().filter(|at| **at > 20.0).count() as f64 * 1.5 / RUNS as f64;
    }
    cell
}

#[test]
fn table() {
    for (noise, better_least) in [(0.05, 4), (0.1, 6)] {
        println!(
            "\nnoise {noise}: tuner, one more each time, rise and level; to 20 s, from 20 s to 60 s, changes a minute"
        );
        let mut better = 0;
        for condition in conditions() {
            let ours = cell(&condition, noise, |it| SessionTuner::new(it.setup()));
            let rival = |rule| {
                cell(&condition, noise, |it| {
                    TestBaselineController(it.knob, SimulatedBaselineTuner::new(rule, it.range))
                })
            };
            let (additive, paper) =
                (rival(BaselineTunerRule::OneMore), rival(BaselineTunerRule::RiseAndLevel));
            print!("| {} ", condition.name);
            for TestComparisonCell { first, later, changes } in [&ours, &additive, &paper] {
                print!("| {:.0} % | {:.0} % | {changes:.0} ", 100.0 * first, 100.0 * later);
            }
            println!("|");
            for other in [additive, paper] {
                assert!(
                    ours.later > other.later - 0.02,
                    "{}: {} and {}",
                    condition.name,
                    ours.later,
                    other.later
                );
                assert!(
                    ours.first > other.first - 0.02,
                    "{}: {} and {}",
                    condition.name,
                    ours.first,
                    other.first
                );
                better += usize::from(ours.later > other.later + 0.05);
            }
        }
        assert!(better >= better_least, "noise {noise}: better on {better}");
    }
}
