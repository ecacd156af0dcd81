//! Simpler controllers of one knob, to compare with.

use std::time::Duration;

use super::super::*;
use super::models::Controller;

/// One more each two seconds while it does not bring less.
pub struct Additive {
    knob: Knob,
    range: KnobRange,
    value: u32,
    window: Window,
    last: f64,
}

/// The paper's rule (Y4): in the rising part one more, in the level part one less. Rising is a slope of 10 % of the average
/// between the last two different values; a report each second, as its movers send.
pub struct RiseLevel {
    knob: Knob,
    range: KnobRange,
    value: u32,
    window: Window,
    last: Option<(u32, f64)>,
}

/// The rate since a moment.
#[derive(Default)]
struct Window {
    at: Duration,
    bytes: u64,
}

impl Window {
    fn rate(&mut self, sample: &Sample, span: Duration) -> Option<f64> {
        let passed = sample.at.saturating_sub(self.at);
        if passed < span {
            return None;
        }
        let rate = (sample.bytes - self.bytes) as f64 / passed.as_secs_f64();
        *self = Window { at: sample.at, bytes: sample.bytes };
        Some(rate)
    }
}

impl Additive {
    pub fn new(knob: Knob, range: KnobRange) -> Additive {
        Additive { knob, range, value: range.start, window: Window::default(), last: 0.0 }
    }
}

impl Controller for Additive {
    fn value(&self, knob: Knob) -> u32 {
        if knob == self.knob { self.value } else { 4 }
    }

    fn observe(&mut self, sample: &Sample) -> Option<Decision> {
        let rate = self.window.rate(sample, Duration::from_secs(2))?;
        self.value = self.range.clamp(if rate >= self.last { self.value + 1 } else { self.value - 1 });
        self.last = rate;
        None
    }
}

impl RiseLevel {
    pub fn new(knob: Knob, range: KnobRange) -> RiseLevel {
        RiseLevel { knob, range, value: range.start, window: Window::default(), last: None }
    }
}

impl Controller for RiseLevel {
    fn value(&self, knob: Knob) -> u32 {
        if knob == self.knob { self.value } else { 4 }
    }

    fn observe(&mut self, sample: &Sample) -> Option<Decision> {
        let rate = self.window.rate(sample, Duration::from_secs(1))?;
        let is_rising = self.last.is_none_or(|(value, last)| {
            let slope = (rate - last) / (f64::from(self.value) - f64::from(value));
            slope > 0.1 * rate / f64::from(self.value)
        });
        let next = self.range.clamp(if is_rising { self.value + 1 } else { self.value - 1 });
        if next != self.value {
            self.last = Some((self.value, rate));
        }
        self.value = next;
        None
    }
}
