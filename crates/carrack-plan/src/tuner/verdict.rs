//! Whether a value that is tried stays: pure comparisons of two points.

use super::curve::{CurvePoint, Noise};
use super::decision::Outcome;
use super::knob::Knob;
use super::search::Reach;

/// Samples before anything is said of a setting.
pub(super) const SAMPLES_MIN: u32 = 3;

/// With so many something is decided, sure or not: after three seconds in a search, and after twelve in a look, which goes to settings that
/// are nearly as good.
const SAMPLES_MAX_WIDE: u32 = 12;
const SAMPLES_MAX_NEAR: u32 = 48;

/// Samples that show whether less of what is not the bottleneck does as well: the queues must have had time to change.
const SAMPLES_RELEASE: u32 = 8;

/// A difference is sure if it is so many of its standard errors.
const SURE: f64 = 2.0;

/// What something may seem to cost that should cost nothing.
const LOSS_SMALL: f64 = 0.02;

/// A stage that moves this part more than lasts fills or empties a queue.
const OUTRUNS: f64 = 0.03;

/// A value that is tried, beside the one that is kept.
pub(super) struct Comparison<'a> {
    pub knob: Knob,
    pub home: &'a CurvePoint,
    pub there: &'a CurvePoint,
    pub noise: &'a Noise,
    pub reach: Reach,
    /// Samples since it is tried.
    pub samples: u32,
    /// Whether another stage is the bottleneck there.
    pub has_moved: bool,
    /// Whether that other stage's knob could be raised.
    pub can_follow: bool,
}

impl Comparison<'_> {
    /// Of a value that may be better; nothing while that is open.
    pub fn outcome(&self) -> Option<Outcome> {
        if self.samples < SAMPLES_MIN {
            return None;
        }
        match self.is_better() {
            Some(true) => Some(Outcome::Kept),
            _ if self.relieves() => Some(Outcome::Relieved),
            // The bottleneck is about to move.
            Some(false) if self.samples < SAMPLES_MAX_WIDE && self.outruns() => None,
            other => other.map(|_| Outcome::Rejected),
        }
    }

    /// Of less of something that is not the bottleneck: it does as well if the bottleneck stays where it is, and the throughput what it is.
    pub fn sufficiency(&self) -> Option<Outcome> {
        let suffices = !self.has_moved && self.is_no_worse();
        (self.samples >= SAMPLES_RELEASE).then_some(if suffices { Outcome::Kept } else { Outcome::Rejected })
    }

    /// How much more throughput it brings, as a part.
    pub fn gain(&self) -> f64 {
        self.there.bytes_per_s() / self.home.bytes_per_s().max(1.0) - 1.0
    }

    /// Whether there is more utility. A look needs to be sure, as what is kept was found to be good; a search takes what is likelier.
    fn is_better(&self) -> Option<bool> {
        let difference = self.there.utility() - self.home.utility();
        let is_sure = difference.abs() >= SURE * self.error();
        match self.reach {
            _ if is_sure => Some(difference > 0.0),
            Reach::Wide => (self.samples >= SAMPLES_MAX_WIDE).then_some(difference > 0.0),
            Reach::Near(_) => (self.samples >= SAMPLES_MAX_NEAR).then_some(false),
        }
    }

    /// Whether more of the knob has made another stage the bottleneck, without harm. Of stages that are equally slow each one alone
    /// brings nothing.
    fn relieves(&self) -> bool {
        self.has_moved && self.can_follow && self.there.value > self.home.value && self.is_no_worse()
    }

    fn is_no_worse(&self) -> bool {
        -self.gain().ln_1p() < LOSS_SMALL + self.error()
    }

    /// Whether the knob's stage moves more than lasts.
    fn outruns(&self) -> bool {
        let rates = &self.there.rates;
        let own = match self.knob {
            Knob::Readers => rates.read,
            Knob::Streams => rates.sent,
            Knob::Writers => rates.written,
        };
        own > (1.0 + OUTRUNS) * rates.lasting()
    }

    /// The standard error of the difference of both points' logarithms.
    fn error(&self) -> f64 {
        (self.home.error(self.noise) + self.there.error(self.noise)).sqrt()
    }
}
