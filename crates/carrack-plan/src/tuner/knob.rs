//! The numbers that can change while a session runs, and their ranges.

use std::fmt;
use std::ops::{Index, IndexMut};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A number that may change while a session runs. The sizes of objects and bundles and the number of lanes
/// are fixed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TunerKnob {
    /// Active I/O threads of the source.
    Readers,
    /// Data connections in use.
    Streams,
    /// Active I/O threads of the sink.
    Writers,
}

impl TunerKnob {
    /// All knobs, in the order of an object's way.
    pub const ALL: [TunerKnob; 3] = [TunerKnob::Readers, TunerKnob::Streams, TunerKnob::Writers];
}

impl fmt::Display for TunerKnob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TunerKnob::Readers => "readers",
            TunerKnob::Streams => "streams",
            TunerKnob::Writers => "writers",
        })
    }
}

/// The values that a knob may have, and the first one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnobRange {
    /// The smallest value, at least 1.
    pub least: u32,
    /// The largest value.
    pub most: u32,
    /// The value at the session's start. The value of a knob that is not the bottleneck never falls below
    /// this.
    pub start: u32,
    /// True if only `least`, twice as many, four times as many and so on are values.
    pub doubles: bool,
}

impl KnobRange {
    /// From `least` to `most`, beginning with `start`; inconsistent arguments are clamped.
    pub fn new(least: u32, most: u32, start: u32) -> KnobRange {
        let least = least.max(1);
        let most = most.max(least);
        KnobRange { least, most, start: start.clamp(least, most), doubles: false }
    }

    /// The same with values that double.
    pub fn doubling(least: u32, most: u32, start: u32) -> KnobRange {
        let range = KnobRange { doubles: true, ..KnobRange::new(least, most, start) };
        KnobRange { most: range.clamp(range.most), start: range.clamp(range.start), ..range }
    }

    /// A value that the user chose: it never changes.
    pub fn fixed(value: u32) -> KnobRange {
        KnobRange::new(value, value, value)
    }

    /// The same without values above `most`.
    #[must_use]
    pub fn at_most(self, most: u32) -> KnobRange {
        let most = self.clamp(most.min(self.most));
        KnobRange { most, start: self.start.min(most), ..self }
    }

    /// Returns true if the range has a single value.
    pub fn is_fixed(&self) -> bool {
        self.least == self.most
    }

    /// Returns the nearest value; of a doubling range the next lower one.
    pub fn clamp(&self, value: u32) -> u32 {
        let value = value.clamp(self.least, self.most);
        if self.doubles { self.least << (value / self.least).ilog2() } else { value }
    }
}

/// A value for each knob.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PerKnob<T> {
    /// For [`TunerKnob::Readers`].
    pub readers: T,
    /// For [`TunerKnob::Streams`].
    pub streams: T,
    /// For [`TunerKnob::Writers`].
    pub writers: T,
}

impl<T> PerKnob<T> {
    /// Made knob by knob.
    pub fn from_fn(mut make: impl FnMut(TunerKnob) -> T) -> PerKnob<T> {
        PerKnob {
            readers: make(TunerKnob::Readers),
            streams: make(TunerKnob::Streams),
            writers: make(TunerKnob::Writers),
        }
    }
}

impl<T> Index<TunerKnob> for PerKnob<T> {
    type Output = T;

    fn index(&self, knob: TunerKnob) -> &T {
        match knob {
            TunerKnob::Readers => &self.readers,
            TunerKnob::Streams => &self.streams,
            TunerKnob::Writers => &self.writers,
        }
    }
}

impl<T> IndexMut<TunerKnob> for PerKnob<T> {
    fn index_mut(&mut self, knob: TunerKnob) -> &mut T {
        match knob {
            TunerKnob::Readers => &mut self.readers,
            TunerKnob::Streams => &mut self.streams,
            TunerKnob::Writers => &mut self.writers,
        }
    }
}

/// The data that a tuner needs at a session's start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TunerSetup {
    /// The values that may be chosen.
    pub ranges: PerKnob<KnobRange>,
    /// The path's round trip; zero within one host.
    pub round_trip: Duration,
}
