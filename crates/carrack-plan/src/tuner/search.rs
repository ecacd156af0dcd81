//! Which value of a knob to try next, from what is known of its curve.
//!
//! Owns no state: the same points give the same answer, so that a search can be interrupted, and continued with other points.

use super::curve::{Curve, CurvePoint, utility};
use super::knob::KnobRange;

/// What a value must be able to gain to be tried, in utility: about 2 % of the throughput.
const GAIN_MIN: f64 = 0.02;

/// Closing in ends at this part of a value.
const GRAIN: u32 = 16;

/// How far a search goes from where it stands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Reach {
    /// Doubles and halves, then closes in from both sides: nothing is known yet.
    Wide,
    /// This part more and this part less: it was good until now.
    Near(f64),
}

/// One knob's search, at one moment.
#[derive(Clone, Copy)]
pub(super) struct Search<'a> {
    pub curve: &'a Curve,
    pub range: KnobRange,
    pub reach: Reach,
    /// Whether less is tried before more: the CPU is full.
    pub fewer_first: bool,
}

impl Search<'_> {
    /// The value to try next for one that stands at `home`; none if nothing promises enough.
    pub fn next(&self, home: u32) -> Option<u32> {
        let here = self.curve.get(home)?;
        let mark = here.utility() + GAIN_MIN;
        let promises = |value: &u32| utility(*value, self.bound(*value), here.loss) >= mark;
        let more = || self.more(home).filter(promises);
        let less = || self.less(home).filter(promises);
        let inside = |low, high| self.inside(low, high, promises);
        match self.neighbours(home) {
            // A short step says little.
            (None, None) if self.fewer_first || self.range.most < home.saturating_add(home / 2) => {
                less().or_else(more)
            }
            (None, None) => more().or_else(less),
            (None, Some(above)) => less().or_else(|| inside(home, above.value)),
            (Some(below), None) => more().or_else(|| inside(below.value, home)),
            (Some(below), Some(above)) => inside(home, above.value).or_else(|| inside(below.value, home)),
        }
    }

    /// Beyond all that is known.
    fn more(&self, home: u32) -> Option<u32> {
        let value = match self.reach {
            Reach::Near(step) if !self.range.doubles => home.saturating_add(part(home, step)),
            _ => home.saturating_mul(2),
        };
        Some(self.range.clamp(value)).filter(|value| *value > home)
    }

    /// Below all that is known.
    fn less(&self, home: u32) -> Option<u32> {
        let value = match self.reach {
            Reach::Near(step) if !self.range.doubles => home.saturating_sub(part(home, step)),
            _ => home / 2,
        };
        Some(self.range.clamp(value)).filter(|value| *value < home)
    }

    /// Between two that are known: the middle of where a concave curve could be high enough.
    fn inside(&self, low: u32, high: u32, promises: impl Fn(&u32) -> bool) -> Option<u32> {
        if self.range.doubles || self.reach != Reach::Wide || high - low <= (low / GRAIN).max(1) {
            return None;
        }
        let mut open = (low + 1..high).filter(promises);
        let first = open.next()?;
        Some(first.midpoint(open.next_back().unwrap_or(first)))
    }

    /// The nearest known points on both sides of a value.
    fn neighbours(&self, value: u32) -> (Option<&CurvePoint>, Option<&CurvePoint>) {
        let below = self.curve.current().rev().find(|point| point.value < value);
        (below, self.curve.current().find(|point| point.value > value))
    }

    /// The most that a concave curve through the known points and the origin can have at a value that is not known.
    fn bound(&self, value: u32) -> f64 {
        let from_below =
            line(self.curve.current().rev().filter(|point| point.value < value), value, Some((0.0, 0.0)));
        let from_above = line(self.curve.current().filter(|point| point.value > value), value, None);
        from_below.unwrap_or(f64::INFINITY).min(from_above.unwrap_or(f64::INFINITY))
    }
}

/// The line through the first point and one behind it, at a value. That one is at least half as far from the first as the value
/// is, if there is such a one, as noise grows with what is extrapolated; `last` is behind all points.
fn line<'a>(
    mut points: impl Iterator<Item = &'a CurvePoint>,
    value: u32,
    last: Option<(f64, f64)>,
) -> Option<f64> {
    let place = |point: &CurvePoint| (f64::from(point.value), point.bytes_per_s());
    let (value, near) = (f64::from(value), place(points.next()?));
    let is_far = |far: &(f64, f64)| 2.0 * (far.0 - near.0).abs() >= (value - near.0).abs();
    let far = points.map(place).find(is_far).or(last)?;
    let slope = (near.1 - far.1) / (near.0 - far.0);
    Some((near.1 + slope * (value - near.0)).max(0.0))
}

/// So much of a value, at least 1.
fn part(value: u32, step: f64) -> u32 {
    ((f64::from(value) * step).round() as u32).max(1)
}
