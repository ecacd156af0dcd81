//! The tuner in models of sessions.
//!
//! Guarantees for every run (limits, one knob at a time) are tested with random samples. Guarantees of rates
//! are statistical, and tested over many constant seeds; `docs/design/tuner.md` has the figures.

mod baseline_rules;
mod comparison_tables;
mod models;
mod parts;
mod pipelines;
mod promises;
mod shared_path;
mod single;
mod steps;

use std::time::Duration;

use models::*;

use super::*;

/// Runs a session of this condition with its tuner for some seconds.
fn tuned(
    condition: &SimulatedKnobThroughput,
    noise: f64,
    seed: u64,
    seconds: f64,
) -> SimulatedSession<SessionTuner> {
    let mut session = SimulatedSession::new(SessionTuner::new(condition.setup()), noise, seed);
    condition.run(&mut session, seconds);
    session
}

/// A random condition: curve, round trip, limit and start.
fn any_condition(seed: u64, knob: TunerKnob) -> SimulatedKnobThroughput {
    let mut chance = TestRandomGenerator(seed.wrapping_mul(77));
    chance.next();
    let most = if chance.next() < 0.5 { 16 } else { 64 };
    let start = 1 + (chance.next() * f64::from(most.min(16))) as u32;
    let range = if knob == TunerKnob::Streams { KnobRange::doubling } else { KnobRange::new };
    let range = range(1, most, start);
    let (name, curve) = any_curve(&mut chance, most);
    let round_trip = [0.0, 0.0, 0.01, 0.05, 0.1][(chance.next() * 5.0) as usize];
    SimulatedKnobThroughput { round_trip, ..SimulatedKnobThroughput::new(name, knob, range, curve) }
}

/// Returns the quantile of the values.
fn quantile(mut values: Vec<f64>, part: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    values[((values.len() - 1) as f64 * part) as usize]
}
