//! Simpler rules than the tuner's for a number of readers, streams or writers, to compare with in the models.

use std::time::Duration;

use super::super::{KnobRange, SessionSample};

/// Reaction of a rule to the result of the last value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BaselineTunerRule {
    /// One more each two seconds unless it brings less, otherwise one less.
    OneMore,
    /// The paper's (Y4): in the rising part one more, in the level part one less. Rising is a slope of 10 %
    /// of the average between the last two different values; a report each second, as its movers send.
    RiseAndLevel,
}

/// A number that follows a rule.
#[derive(Clone, Debug)]
pub struct SimulatedBaselineTuner {
    rule: BaselineTunerRule,
    range: KnobRange,
    value: u32,
    /// Begin of the present report: time and bytes.
    since: (Duration, u64),
    last: Option<(u32, f64)>,
}

impl SimulatedBaselineTuner {
    /// Begins with the range's start; every value in it may be tried.
    pub fn new(rule: BaselineTunerRule, range: KnobRange) -> SimulatedBaselineTuner {
        let range = KnobRange::new(range.least, range.most, range.start);
        SimulatedBaselineTuner { rule, range, value: range.start, since: (Duration::ZERO, 0), last: None }
    }

    /// The present value.
    pub fn value(&self) -> u32 {
        self.value
    }

    /// Takes a sample.
    pub fn observe(&mut self, sample: &SessionSample) {
        let span = sample.at.saturating_sub(self.since.0);
        let report = Duration::from_secs(if self.rule == BaselineTunerRule::OneMore { 2 } else { 1 });
        if span < report {
            return;
        }
        let rate = (sample.bytes - self.since.1) as f64 / span.as_secs_f64();
        self.since = (sample.at, sample.bytes);
        let is_rising = self.last.is_none_or(|(value, last)| match self.rule {
            BaselineTunerRule::OneMore => rate >= last,
            BaselineTunerRule::RiseAndLevel => {
                let slope = (rate - last) / (f64::from(self.value) - f64::from(value));
                slope > 0.1 * rate / f64::from(self.value)
            }
        });
        let next = self.range.clamp(if is_rising { self.value + 1 } else { self.value - 1 });
        if self.rule == BaselineTunerRule::OneMore || next != self.value {
            self.last = Some((self.value, rate));
        }
        self.value = next;
    }
}
