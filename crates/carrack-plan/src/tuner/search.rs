//! The next value of a knob to try, from the known points of its curve.
//!
//! Owns no state: the same points give the same answer, so that a search can be interrupted, and continued
//! with other points.

use super::curve::{KnobCurve, KnobCurvePoint, utility};
use super::knob::KnobRange;

/// The least possible gain of a value to be tried, in utility: about 2 % of the throughput.
const GAIN_MIN: f64 = 0.02;

/// Closing in ends at this part of a value.
const GRAIN: u32 = 16;

/// The reach of a search around its present value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum SearchReach {
    /// Doubles and halves, then closes in from both sides: no point is known yet.
    Wide,
    /// This part more and this part less: the value was good until now.
    Near(f64),
}

/// One knob's search, at one moment.
#[derive(Clone, Copy)]
pub(super) struct CurveSearch<'a> {
    pub curve: &'a KnobCurve,
    pub range: KnobRange,
    pub reach: SearchReach,
    /// True if less is tried before more: the CPU is full.
    pub fewer_first: bool,
}

impl CurveSearch<'_> {
    /// Returns the value to try next from `home`; `None` if no value promises enough.
    pub fn next(&self, home: u32) -> Option<u32> {
        let here = self.curve.get(home)?;
        match self.neighbours(home) {
            // A short step says little.
            (None, None) if self.fewer_first || self.range.most < home.saturating_add(home / 2) => {
                self.next_below(here).or_else(|| self.next_above(here))
            }
            (None, None) => self.next_above(here).or_else(|| self.next_below(here)),
            (None, Some(above)) => {
                self.next_below(here).or_else(|| self.next_between(here, home, above.value))
            }
            (Some(below), None) => {
                self.next_above(here).or_else(|| self.next_between(here, below.value, home))
            }
            (Some(below), Some(above)) => self
                .next_between(here, home, above.value)
                .or_else(|| self.next_between(here, below.value, home)),
        }
    }

    /// Returns true if a value could bring enough more utility than the present one.
    fn is_promising(&self, here: &KnobCurvePoint, value: u32) -> bool {
        utility(value, self.bound(value), here.loss) >= here.utility() + GAIN_MIN
    }

    /// Returns a promising value above all known ones.
    fn next_above(&self, here: &KnobCurvePoint) -> Option<u32> {
        let home = here.value;
        let value = match self.reach {
            SearchReach::Near(step) if !self.range.doubles => home.saturating_add(part(home, step)),
            _ => home.saturating_mul(2),
        };
        Some(self.range.clamp(value)).filter(|value| *value > home && self.is_promising(here, *value))
    }

    /// Returns a promising value below all known ones.
    fn next_below(&self, here: &KnobCurvePoint) -> Option<u32> {
        let home = here.value;
        let value = match self.reach {
            SearchReach::Near(step) if !self.range.doubles => home.saturating_sub(part(home, step)),
            _ => home / 2,
        };
        Some(self.range.clamp(value)).filter(|value| *value < home && self.is_promising(here, *value))
    }

    /// Returns the middle of the promising values between two known ones, under a concave curve.
    fn next_between(&self, here: &KnobCurvePoint, low: u32, high: u32) -> Option<u32> {
        if self.range.doubles || self.reach != SearchReach::Wide || high - low <= (low / GRAIN).max(1) {
            return None;
        }
        let mut open = (low + 1..high).filter(|value| self.is_promising(here, *value));
        let first = open.next()?;
        Some(first.midpoint(open.next_back().unwrap_or(first)))
    }

    /// Returns the nearest known points on both sides of a value.
    fn neighbours(&self, value: u32) -> (Option<&KnobCurvePoint>, Option<&KnobCurvePoint>) {
        let below = self.curve.current().rev().find(|point| point.value < value);
        (below, self.curve.current().find(|point| point.value > value))
    }

    /// Returns the upper bound of a concave curve through the known points and the origin at an unknown
    /// value.
    fn bound(&self, value: u32) -> f64 {
        let from_below =
            line(self.curve.current().rev().filter(|point| point.value < value), value, Some((0.0, 0.0)));
        let from_above = line(self.curve.current().filter(|point| point.value > value), value, None);
        from_below.unwrap_or(f64::INFINITY).min(from_above.unwrap_or(f64::INFINITY))
    }
}

/// Returns the value of a line through the first point and a further one. The distance of both is at least
/// half of the extrapolated one, if there is such a point, as noise grows with the extrapolation; `last` is
/// behind all points.
fn line<'a>(
    mut points: impl Iterator<Item = &'a KnobCurvePoint>,
    value: u32,
    last: Option<(f64, f64)>,
) -> Option<f64> {
    let (value, near) = (f64::from(value), coordinates(points.next()?));
    let far = points
        .map(coordinates)
        .find(|far| 2.0 * (far.0 - near.0).abs() >= (value - near.0).abs())
        .or(last)?;
    let slope = (near.1 - far.1) / (near.0 - far.0);
    Some((near.1 + slope * (value - near.0)).max(0.0))
}

fn coordinates(point: &KnobCurvePoint) -> (f64, f64) {
    (f64::from(point.value), point.bytes_per_s())
}

/// Returns this part of a value, at least 1.
fn part(value: u32, step: f64) -> u32 {
    ((f64::from(value) * step).round() as u32).max(1)
}
