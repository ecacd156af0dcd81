use proptest::prelude::*;

use super::*;

/// Rate of one pair without a bottleneck.
const RATE: f64 = 1e9;

/// A transfer whose pairs are granted at once, with reports each second.
struct PairTunerSimulation {
    tuner: PairCountTuner,
    now: Duration,
    /// Largest noise, as a part of a report.
    noise: f64,
    seed: u64,
    changes: u32,
}

impl PairTunerSimulation {
    fn new(start: u32, noise: f64, seed: u64) -> PairTunerSimulation {
        PairTunerSimulation {
            tuner: PairCountTuner::new(start, 32),
            now: Duration::ZERO,
            noise,
            seed,
            changes: 0,
        }
    }

    /// From -1 to 1 (Knuth's MMIX generator).
    fn chance(&mut self) -> f64 {
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.seed >> 33) as f64 / f64::from(1u32 << 30) - 1.0
    }

    /// Lets seconds pass under a curve; returns the number wanted at the end.
    fn run(&mut self, seconds: u64, curve: impl Fn(u32) -> f64) -> u32 {
        for _ in 0..seconds {
            self.now += Duration::from_secs(1);
            let pairs = self.tuner.pairs_wanted();
            let rate = curve(pairs) * (1.0 + self.noise * self.chance());
            self.tuner.observe(self.now, pairs, rate as u64);
            self.changes += u32::from(self.tuner.pairs_wanted() != pairs);
        }
        self.tuner.pairs_wanted()
    }

    /// Returns the number at rest after this time, or soon after it.
    fn rest(&mut self, seconds: u64, curve: impl Fn(u32) -> f64) -> u32 {
        self.run(seconds, &curve);
        self.settle(curve)
    }

    /// Returns the number wanted once settled.
    fn settle(&mut self, curve: impl Fn(u32) -> f64) -> u32 {
        for _ in 0..2_000 {
            self.run(1, &curve);
            if matches!(self.tuner.aim, PairCountTrialPhase::Settled { .. }) {
                return self.tuner.pairs_wanted();
            }
        }
        panic!("{}", self.tuner.explain());
    }
}

fn linear_to(knee: u32) -> impl Fn(u32) -> f64 {
    move |pairs| RATE * f64::from(pairs.min(knee))
}

/// Rises to the knee and falls behind it: more pairs crowd the storage.
fn hump_at(knee: u32) -> impl Fn(u32) -> f64 {
    move |pairs| RATE * (f64::from(pairs.min(knee)) - 0.5 * f64::from(pairs.saturating_sub(knee))).max(0.1)
}

#[test]
fn finds_the_knee_from_below_and_from_above() {
    for knee in [1, 2, 3, 8, 17] {
        for start in [1, 4, 16, 32] {
            let found = PairTunerSimulation::new(start, 0.0, 0).rest(300, linear_to(knee));
            assert_eq!(found, knee, "from {start}");
            let found = PairTunerSimulation::new(start, 0.0, 0).rest(300, hump_at(knee));
            assert_eq!(found, knee, "from {start} over the hump");
        }
    }
    assert_eq!(PairTunerSimulation::new(4, 0.0, 0).rest(300, |_| RATE), 1, "immediately flat");
    assert_eq!(PairTunerSimulation::new(4, 0.0, 0).rest(300, linear_to(99)), 32, "rising for ever");
    assert_eq!(PairTunerSimulation::new(4, 0.0, 0).rest(300, |_| 0.0), 1, "nothing moves");
}

#[test]
fn in_its_first_minute_it_has_no_fewer_than_it_began_with() {
    let mut simulation = PairTunerSimulation::new(4, 0.05, 1);
    for _ in 0..60 {
        assert!(simulation.run(1, linear_to(4)) >= 4);
    }
}

#[test]
fn a_step_up_takes_seconds() {
    let mut simulation = PairTunerSimulation::new(1, 0.0, 0);
    simulation.settle(linear_to(8));
    // Nine numbers of pairs, each settled for 2 s and then reported five times.
    assert!(simulation.now <= Duration::from_secs(9 * 8), "{:?}", simulation.now);
}

#[test]
fn between_its_marks_it_stays_where_it_is() {
    // From the fifth on, each brings a sixth of an average pair: too little to add, too much to release.
    let curve = |pairs: u32| RATE * (f64::from(pairs.min(4)) + 0.16 * f64::from(pairs.saturating_sub(4)));
    assert_eq!(PairTunerSimulation::new(2, 0.0, 0).settle(curve), 4);
    assert_eq!(PairTunerSimulation::new(6, 0.0, 0).settle(curve), 6);
}

#[test]
fn a_curve_that_changes_is_followed() {
    let mut simulation = PairTunerSimulation::new(4, 0.0, 0);
    assert_eq!(simulation.rest(3_600, linear_to(4)), 4);
    // The rate of four is as before: only a look finds it, after 8 minutes at most.
    assert_eq!(simulation.rest(480 + 60, linear_to(9)), 9);
    // A path that becomes shared is noticed at once.
    assert_eq!(simulation.rest(3_600, linear_to(9)), 9);
    assert_eq!(simulation.rest(60, linear_to(3)), 3);
    // So is one on which all pairs became faster.
    assert_eq!(simulation.rest(3_600, linear_to(3)), 3);
    assert_eq!(simulation.rest(60, |pairs| 2.0 * linear_to(8)(pairs)), 8);
}

#[test]
fn what_it_knew_of_another_curve_is_not_compared() {
    let mut simulation = PairTunerSimulation::new(8, 0.0, 0);
    simulation.settle(linear_to(8));
    assert_eq!(simulation.run(40, linear_to(8)), 8);
    // With its old mean, eight would look as if a ninth brought much.
    assert_eq!(simulation.rest(20, |pairs| 2.0 * linear_to(8)(pairs)), 8);

    // A fifth is granted when all are slower.
    let mut tuner = PairCountTuner::new(4, 32);
    let mut now = Duration::ZERO;
    let mut run = |tuner: &mut PairCountTuner, seconds: u64, pairs: u32, rate: u64| {
        for _ in 0..seconds {
            now += Duration::from_secs(1);
            tuner.observe(now, pairs, u64::from(pairs) * rate);
        }
        tuner.pairs_wanted()
    };
    assert_eq!(run(&mut tuner, 10, 4, 1_000_000), 5);
    assert_eq!(run(&mut tuner, 300, 3, 500_000), 5);
    assert_eq!(run(&mut tuner, 10, 5, 500_000), 6);
}

#[test]
fn it_makes_three_changes_for_a_look_and_looks_seldom() {
    let mut simulation = PairTunerSimulation::new(5, 0.0, 0);
    simulation.settle(linear_to(5));
    simulation.changes = 0;
    simulation.run(3_600, linear_to(5));
    // Looks after 1, 2, 4, and then each 8 minutes.
    assert!(simulation.changes <= 3 * 10 && simulation.changes >= 3 * 8, "{}", simulation.changes);
}

#[test]
fn shares_that_are_smaller_than_the_wish_move_nothing() {
    let mut tuner = PairCountTuner::new(6, 32);
    for second in 0..1_000 {
        tuner.observe(Duration::from_secs(second), 2, 2_000_000_000);
    }
    assert_eq!(tuner.pairs_wanted(), 6);
    assert_eq!(tuner.points().collect::<Vec<_>>(), [(2, 2_000_000_000)]);
    // Old points are forgotten.
    tuner.observe(Duration::from_secs(1_000), 3, 0);
    tuner.observe(Duration::from_secs(2_000), 3, 7);
    assert_eq!(tuner.points().collect::<Vec<_>>(), [(3, 7)]);
    assert!(tuner.explain().starts_with("6 pairs wanted; measuring"), "{}", tuner.explain());
}

#[test]
fn the_most_there_can_be_is_kept_to() {
    let mut simulation = PairTunerSimulation::new(40, 0.0, 0);
    assert_eq!(simulation.tuner.pairs_wanted(), 32);
    simulation.settle(linear_to(99));
    simulation.tuner.set_most(simulation.now, 5);
    assert_eq!(simulation.rest(30, linear_to(99)), 5);
    simulation.tuner.set_most(simulation.now, 8);
    assert_eq!(simulation.rest(120, linear_to(99)), 8);
    assert!(simulation.tuner.explain().contains("the most there can be"));
    assert_eq!(PairCountTuner::new(0, 0).pairs_wanted(), 1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// An hour under one curve: the final number, and the number of changes.
    #[test]
    fn noise_does_not_make_it_oscillate(
        seed in any::<u64>(),
        knee in 1u32..12,
        start in 1u32..20,
        noise in 0.0f64..0.1,
        has_hump in any::<bool>(),
    ) {
        let mut simulation = PairTunerSimulation::new(start, noise, seed);
        let curve = |pairs| if has_hump { hump_at(knee)(pairs) } else { linear_to(knee)(pairs) };
        simulation.run(600, curve);
        let way = simulation.changes;
        prop_assert!(way <= 40, "{way} changes to begin with");
        simulation.changes = 0;
        simulation.run(3_600, curve);
        prop_assert!(simulation.changes <= 100, "{} changes in an hour", simulation.changes);
        let wanted = simulation.settle(curve);
        prop_assert!(wanted.abs_diff(knee) <= 2, "{wanted} instead of {knee}");
    }
}
