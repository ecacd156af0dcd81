//! What the tuner decided, for the engine and for people.

use std::fmt;
use std::time::Duration;

use super::knob::Knob;
use super::sample::Bottleneck;

/// Why the tuner has begun to try values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cause {
    /// The session has begun.
    Start,
    /// The throughput is another one, in bytes per second.
    Moved {
        /// What it was.
        from: f64,
        /// What it is.
        to: f64,
    },
    /// Another stage holds the others up.
    Bottleneck,
    /// It is time to look whether the settings are still the best.
    Look,
}

/// What a value that was tried has brought.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trial {
    /// The knob.
    pub knob: Knob,
    /// The value before it.
    pub from: u32,
    /// The value that was tried.
    pub to: u32,
    /// How much more throughput that is, as a part; negative if it is less.
    pub gain: f64,
    /// Whether it stays.
    pub outcome: Outcome,
}

/// What follows from a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is better, and stays.
    Kept,
    /// It has made another stage the bottleneck, and stays while that one is tried.
    Relieved,
    /// It is not better.
    Rejected,
}

/// What the knob is turned for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Move {
    /// To see what another value brings.
    Try,
    /// To see whether less of what is not the bottleneck does as well.
    Release,
    /// Back to what is known to be better.
    Back,
    /// Nothing promises more: it stays until the next look.
    Settle,
}

/// One decision. The engine sets `knob` to `to`; where everything stays as it is, `from` is the same.
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
    /// What for.
    pub action: Move,
    /// The stage that holds the others up.
    pub bottleneck: Bottleneck,
    /// Why values are tried.
    pub cause: Cause,
    /// What the trial before has shown, if this follows one.
    pub trial: Option<Trial>,
}

impl Decision {
    /// Whether a knob is turned at all.
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
