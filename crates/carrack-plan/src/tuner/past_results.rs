//! The tuner's results for later sessions between the same ends.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::curve::KnobCurvePoint;
use super::knob::{PerKnob, TunerKnob};

/// Below this mean size files go mostly in bundles, and each costs as much as its bytes.
const SMALL_BYTES: u64 = 1 << 20;

/// From this mean size on a file's own costs are lost among those of its bytes.
const LARGE_BYTES: u64 = 64 << 20;

/// Class of a transfer's mean file size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MeanSizeClass {
    /// Less than 1 MiB on the average.
    Small,
    /// Between.
    Mixed,
    /// 64 MiB or more on the average.
    Large,
}

impl MeanSizeClass {
    /// Returns the class of these bytes in these files.
    pub fn of(bytes: u64, files: u64) -> MeanSizeClass {
        match bytes / files.max(1) {
            mean if mean < SMALL_BYTES => MeanSizeClass::Small,
            mean if mean < LARGE_BYTES => MeanSizeClass::Mixed,
            _ => MeanSizeClass::Large,
        }
    }
}

/// Key of transfers with similar curves.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TunerWorkload {
    /// The source's site, as the caller names it.
    pub source: String,
    /// The sink's site.
    pub sink: String,
    /// Class of the files' sizes.
    pub size: MeanSizeClass,
}

/// The level part brings at least this part of the largest known throughput.
const LEVEL: f64 = 0.95;

/// The result of a session: the settings that a later session begins with, and the curves for people.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SessionTuningResult {
    /// Time of the record, in Unix seconds.
    pub at_s: u64,
    /// The best known settings.
    pub values: PerKnob<u32>,
    /// True if no other value promised more.
    pub is_settled: bool,
    /// The session's time then: a point's age is the difference to its own time.
    pub session: Duration,
    /// Throughput of these settings, in bytes per second.
    pub bytes_per_s: u64,
    /// All measured points, by rising value; points that are not current were measured under other
    /// circumstances.
    pub curves: PerKnob<Vec<KnobCurvePoint>>,
    /// True if BBR had replaced the system's congestion control on all connections at the end
    /// ([`crate::CongestionControlTrial`]).
    #[serde(default)]
    pub uses_bbr: bool,
}

impl SessionTuningResult {
    /// Returns the start of a knob's level part, as far as it is known: the smallest value that brings 95 %
    /// of the most.
    pub fn level_from(&self, knob: TunerKnob) -> Option<u32> {
        let current: Vec<&KnobCurvePoint> =
            self.curves[knob].iter().filter(|point| point.is_current).collect();
        let most = current.iter().map(|point| point.bytes_per_s()).fold(0.0, f64::max);
        let level = current.iter().filter(|point| point.bytes_per_s() >= LEVEL * most);
        level.map(|point| point.value).min()
    }
}
