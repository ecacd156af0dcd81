//! The number of readers, streams and writers of a session: one controller with a knob for each (Y4, Y5, Y7).
//!
//! The engine gives a [`SessionTuner`] about four [`SessionSample`]s a second and turns the knob that a
//! [`TunerDecision`] names. The tuner finds the limiting stage from the queues, climbs the curve of
//! throughput over that stage's knob, stays where more would bring less than it costs, and looks again after
//! a change. A [`SessionTuningResult`] keeps the result, from which a later session between the same ends
//! begins.
//!
//! `docs/design/tuner.md` has the mathematics, every constant's reason and the measurements. Fleets choose
//! the number of pairs by a simpler rule ([`PairCountTuner`](crate::fleet::PairCountTuner)).

mod controller;
mod curve;
mod decision;
mod episode;
mod knob;
mod meter;
mod past_results;
mod sample;
mod search;
mod throughput_level;
mod verdict;

pub use controller::SessionTuner;
pub use curve::KnobCurvePoint;
pub use decision::{KnobMovePurpose, KnobTrialResult, TrialOutcome, TunerDecision, TunerSearchCause};
pub use knob::{KnobRange, PerKnob, TunerKnob, TunerSetup};
pub use meter::StageRates;
pub use past_results::{MeanSizeClass, SessionTuningResult, TunerWorkload};
pub use sample::{Bottleneck, QueueFill, SessionSample};

#[cfg(test)]
mod tests;
