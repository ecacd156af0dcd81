//! The tuner's decisions, for the engine and for people.

use std::fmt;
use std::time::Duration;

use super::knob::Knob;
use super::sample::Bottleneck;

/// The reason why the tuner has begun to try values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cause {
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
pub struct Trial {
    /// The knob.
    pub knob: Knob,
    /// The value before it.
    pub from: u32,
    /// The value that was tried.
    pub to: u32,
    /// Relative gain of throughput; negative for a loss.
    pub gain: f64,
    /// The verdict.
    pub outcome: Outcome,
}

/// The verdict on a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is better, and stays.
    Kept,
    /// It has moved the bottleneck to another stage, and stays while that stage's knob is tried.
    Relieved,
    /// It is not better.
    Rejected,
}

/// The purpose of turning a knob.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Move {
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
pub struct Decision {
    /// The sample's time.
    pub at: Duration,
    /// The knob that is turned.
    pub knob: Knob,
    /// Its value until now.
    pub from: u32,
    /// Its value from now on.
    pub to: u32,
    /// Purpose of the turn.
    pub action: Move,
    /// The limiting stage.
    pub bottleneck: Bottleneck,
    /// Reason for the trials.
    pub cause: Cause,
    /// Result of the trial before, if this follows one.
    pub trial: Option<Trial>,
}

impl Decision {
    /// Returns true if a knob is turned.
    pub fn is_change(&self) -> bool {
        self.from != self.to
    }
}

impl fmt::Display for Trial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Trial { knob, from, to, gain, outcome } = self;
        let did = if *gain < 0.0 { "took" } else { "brought" };
        let end = match outcome {
            Outcome::Kept => "kept",
            Outcome::Relieved => "another stage is the bottleneck now",
            Outcome::Rejected => "not kept",
        };
        write!(f, "{from} → {to} {knob} {did} {:.0} %: {end}", 100.0 * gain.abs())
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cause::Start => f.write_str("at the start"),
            Cause::Moved { from, to } => {
                write!(f, "the throughput has moved from {:.1} to {:.1} MB/s", from / 1e6, to / 1e6)
            }
            Cause::Bottleneck => f.write_str("the bottleneck has moved"),
            Cause::Look => f.write_str("another look"),
        }
    }
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Decision { knob, to, bottleneck, .. } = self;
        match &self.trial {
            Some(trial) => write!(f, "{bottleneck} is the bottleneck; {trial}; ")?,
            None => write!(f, "{}: {bottleneck} is the bottleneck; ", self.cause)?,
        }
        match self.action {
            Move::Try => write!(f, "trying {to} {knob}"),
            Move::Release => write!(f, "do {to} {knob} suffice?"),
            Move::Back => write!(f, "back to {to} {knob}"),
            Move::Settle => write!(f, "settled at {to} {knob}"),
        }
    }
}
