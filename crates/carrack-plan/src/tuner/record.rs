//! What a session leaves for later ones between the same ends.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::curve::CurvePoint;
use super::knob::{Knob, PerKnob};

/// Below this mean size files go mostly in bundles, and each costs as much as its bytes.
const SMALL_BYTES: u64 = 1 << 20;

/// From this mean size on a file's own costs are lost among those of its bytes.
const LARGE_BYTES: u64 = 64 << 20;

/// Of what size a transfer's files are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SizeClass {
    /// Less than 1 MiB on the average.
    Small,
    /// Between.
    Mixed,
    /// 64 MiB or more on the average.
    Large,
}

impl SizeClass {
    /// Of so many bytes in so many files.
    pub fn of(bytes: u64, files: u64) -> SizeClass {
        match bytes / files.max(1) {
            mean if mean < SMALL_BYTES => SizeClass::Small,
            mean if mean < LARGE_BYTES => SizeClass::Mixed,
            _ => SizeClass::Large,
        }
    }
}

/// Transfers that should have much the same curves.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Workload {
    /// The source's site, as the caller names it.
    pub source: String,
    /// The sink's site.
    pub sink: String,
    /// The files.
    pub size: SizeClass,
}

/// Of the most that is known, what the level part brings at least.
const LEVEL: f64 = 0.95;

/// What was found: the settings that a later session begins with, and the curves for people.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TunerRecord {
    /// When it was made, in Unix seconds.
    pub at_s: u64,
    /// The best known settings.
    pub values: PerKnob<u32>,
    /// Whether nothing promised more than these.
    pub is_settled: bool,
    /// The session's time then: a point's age is what this is later than the point's own time.
    pub session: Duration,
    /// What they bring, in bytes per second.
    pub bytes_per_s: u64,
    /// All points that were seen, by rising value; those that are not current were seen under other circumstances.
    pub curves: PerKnob<Vec<CurvePoint>>,
}

impl TunerRecord {
    /// Where a knob's curve stops rising, as far as it is known: the smallest value that brings 95 % of the most.
    pub fn level_from(&self, knob: Knob) -> Option<u32> {
        let current = || self.curves[knob].iter().filter(|point| point.is_current);
        let most = current().map(CurvePoint::bytes_per_s).fold(0.0, f64::max);
        current().filter(|point| point.bytes_per_s() >= LEVEL * most).map(|point| point.value).min()
    }
}
