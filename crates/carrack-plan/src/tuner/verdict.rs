//! The verdict on a tried value: pure comparisons of two points.

use super::curve::{KnobCurvePoint, SampleNoise};
use super::decision::TrialOutcome;
use super::knob::TunerKnob;
use super::search::SearchReach;

/// Samples before a verdict on a setting.
pub(super) const SAMPLES_MIN: u32 = 3;

/// Samples after which a verdict needs no significance: three seconds in a search, and twelve in a look,
/// whose settings are nearly as good.
const SAMPLES_MAX_WIDE: u32 = 12;
const SAMPLES_MAX_NEAR: u32 = 48;

/// Samples that show whether less of a knob that is not the bottleneck suffices: the queues must have had
/// time to change.
const SAMPLES_RELEASE: u32 = 8;

/// A difference is significant at this many standard errors.
const SURE: f64 = 2.0;

/// Tolerated loss of throughput of a change that should cost nothing.
const LOSS_SMALL: f64 = 0.02;

/// A stage whose rate exceeds the lasting one by this part fills or empties a queue.
const OUTRUNS: f64 = 0.03;

/// A tried value, compared with the kept one.
pub(super) struct TrialComparison<'a> {
    pub knob: TunerKnob,
    pub home: &'a KnobCurvePoint,
    pub there: &'a KnobCurvePoint,
    pub noise: &'a SampleNoise,
    pub reach: SearchReach,
    /// Samples since the begin of the trial.
    pub samples: u32,
    /// True if another stage is the bottleneck there.
    pub has_moved: bool,
    /// True if that other stage's knob could be raised.
    pub can_follow: bool,
}

impl TrialComparison<'_> {
    /// Returns the outcome of a value that may be better; `None` while that is open.
    pub fn outcome(&self) -> Option<TrialOutcome> {
        if self.samples < SAMPLES_MIN {
            return None;
        }
        match self.is_better() {
            Some(true) => Some(TrialOutcome::Kept),
            _ if self.relieves() => Some(TrialOutcome::Relieved),
            // The bottleneck is about to move.
            Some(false) if self.samples < SAMPLES_MAX_WIDE && self.outruns() => None,
            other => other.map(|_| TrialOutcome::Rejected),
        }
    }

    /// Returns the outcome of less of a knob that is not the bottleneck: it suffices if bottleneck and
    /// throughput stay the same.
    pub fn sufficiency(&self) -> Option<TrialOutcome> {
        let suffices = !self.has_moved && self.is_no_worse();
        (self.samples >= SAMPLES_RELEASE).then_some(if suffices {
            TrialOutcome::Kept
        } else {
            TrialOutcome::Rejected
        })
    }

    /// Returns the relative gain of throughput.
    pub fn gain(&self) -> f64 {
        self.there.bytes_per_s() / self.home.bytes_per_s().max(1.0) - 1.0
    }

    /// Returns true if the utility is higher. A look needs significance, as the kept value was found to be
    /// good; a search takes the likelier value.
    fn is_better(&self) -> Option<bool> {
        let difference = self.there.utility() - self.home.utility();
        let is_sure = difference.abs() >= SURE * self.error();
        match self.reach {
            _ if is_sure => Some(difference > 0.0),
            SearchReach::Wide => (self.samples >= SAMPLES_MAX_WIDE).then_some(difference > 0.0),
            SearchReach::Near(_) => (self.samples >= SAMPLES_MAX_NEAR).then_some(false),
        }
    }

    /// Returns true if more of the knob has moved the bottleneck to another stage, without harm. Of equally
    /// slow stages each one alone brings no gain.
    fn relieves(&self) -> bool {
        self.has_moved && self.can_follow && self.there.value > self.home.value && self.is_no_worse()
    }

    fn is_no_worse(&self) -> bool {
        -self.gain().ln_1p() < LOSS_SMALL + self.error()
    }

    /// Returns true if the rate of the knob's stage exceeds the lasting one.
    fn outruns(&self) -> bool {
        let rates = &self.there.rates;
        let own = match self.knob {
            TunerKnob::Readers => rates.read,
            TunerKnob::Streams => rates.sent,
            TunerKnob::Writers => rates.written,
        };
        own > (1.0 + OUTRUNS) * rates.sustained_rate()
    }

    /// Returns the standard error of the difference of both points' logarithms.
    fn error(&self) -> f64 {
        (self.home.squared_error(self.noise) + self.there.squared_error(self.noise)).sqrt()
    }
}
