//! The tuner's decisions, for the engine and for people.

use std::fmt;
use std::time::Duration;

use super::knob::TunerKnob;
use super::sample::Bottleneck;

/// The reason why the tuner has begun to try values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TunerSearchCause {
    /// The session has begun.
    Start,
    /// The throughput has changed, in bytes per second.
    Moved {
        /// The throughput before.
        from: f64,
        /// The throughput now.
        to: f64,
    },
    /// Another stage is the bottleneck.
    Bottleneck,
    /// A regular check that the settings are still the best.
    Look,
}

/// The result of a tried value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KnobTrialResult {
    /// The knob.
    pub knob: TunerKnob,
    /// The value before it.
    pub from: u32,
    /// The value that was tried.
    pub to: u32,
    /// Relative gain of throughput; negative for a loss.
    pub gain: f64,
    /// The verdict.
    pub outcome: TrialOutcome,
}

/// The verdict on a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrialOutcome {
    /// It is better, and stays.
    Kept,
    /// It has moved the bottleneck to another stage, and stays while that stage's knob is tried.
    Relieved,
    /// It is not better.
    Rejected,
}

/// The purpose of turning a knob.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KnobMovePurpose {
    /// Try another value.
    Try,
    /// Try less of a knob that is not the bottleneck.
    Release,
    /// Return to a value known to be better.
    Back,
    /// No value promises more: it stays until the next look.
    Settle,
}

/// One decision. The engine sets `knob` to `to`; without a change, `from` is the same.
///
/// Its [`Display`](fmt::Display) is one line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TunerDecision {
    /// The sample's time.
    pub at: Duration,
    /// The knob that is turned.
    pub knob: TunerKnob,
    /// Its value until now.
    pub from: u32,
    /// Its value from now on.
    pub to: u32,
    /// Purpose of the turn.
    pub action: KnobMovePurpose,
    /// The limiting stage.
    pub bottleneck: Bottleneck,
    /// Reason for the trials.
    pub cause: TunerSearchCause,
    /// Result of the trial before, if this follows one.
    pub trial: Option<KnobTrialResult>,
}

impl TunerDecision {
    /// Returns true if a knob is turned.
    pub fn is_change(&self) -> bool {
        self.from != self.to
    }
}

impl fmt::Display for KnobTrialResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let KnobTrialResult { knob, from, to, gain, outcome } = self;
        let did = if *gain < 0.0 { "took" } else { "brought" };
        let end = match outcome {
            TrialOutcome::Kept => "kept",
            TrialOutcome::Relieved => "another stage is the bottleneck now",
            TrialOutcome::Rejected => "not kept",
        };
        write!(f, "{from} → {to} {knob} {did} {:.0} %: {end}", 100.0 * gain.abs())
    }
}

impl fmt::Display for TunerSearchCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TunerSearchCause::Start => f.write_str("at the start"),
            TunerSearchCause::Moved { from, to } => {
                write!(f, "the throughput has moved from {:.1} to {:.1} MB/s", from / 1e6, to / 1e6)
            }
            TunerSearchCause::Bottleneck => f.write_str("the bottleneck has moved"),
            TunerSearchCause::Look => f.write_str("another look"),
        }
    }
}

impl fmt::Display for TunerDecision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TunerDecision { knob, to, bottleneck, .. } = self;
        match &self.trial {
            Some(trial) => write!(f, "{bottleneck} is the bottleneck; {trial}; ")?,
            None => write!(f, "{}: {bottleneck} is the bottleneck; ", self.cause)?,
        }
        match self.action {
            KnobMovePurpose::Try => write!(f, "trying {to} {knob}"),
            KnobMovePurpose::Release => write!(f, "do {to} {knob} suffice?"),
            KnobMovePurpose::Back => write!(f, "back to {to} {knob}"),
            KnobMovePurpose::Settle => write!(f, "settled at {to} {knob}"),
        }
    }
}
