//! Throughput over one knob's value, as far as it is known, and the utility of a value.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::meter::{RateReading, StageRates};

/// Samples over which a mean is smoothed; older ones fade. Eight seconds' worth.
const MEMORY: u32 = 32;

/// The least gain of a doubling, as an exponent: `2^0.03` is 2.1 %. On the level part the smaller of two
/// values wins by it.
const ELASTICITY_MIN: f64 = 0.03;

/// Retransmissions up to this part cost nothing: they happen on any path.
const LOSS_FREE: f64 = 0.01;

/// A part of 1 % more retransmissions must bring 5 % more throughput.
const LOSS_PRICE: f64 = 5.0;

/// The relative deviation of samples before the first estimate.
const NOISE_FIRST: f64 = 0.03;

/// Lower bound of the noise.
const NOISE_MIN: f64 = 0.005;

/// A sample's deviation is limited to this multiple of the standard deviation: a step of the rate is not
/// noise (Huber 1981, winsorizing).
const NOISE_OUTLIER: f64 = 3.0;

/// The weight of a new sample in the noise.
const NOISE_WEIGHT: f64 = 1.0 / 16.0;

/// The same for the covariance of neighbours, which takes more of them to distinguish from zero.
const CORRELATION_WEIGHT: f64 = 1.0 / 64.0;

/// Noise with a higher correlation is a curve that moves.
const CORRELATION_MAX: f64 = 0.6;

/// The measurements at one value of a knob.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct KnobCurvePoint {
    /// The knob's value.
    pub value: u32,
    /// Mean rates, later samples weighing more.
    pub rates: StageRates,
    /// Variance of the written bytes per second, in the square of that.
    pub variance: f64,
    /// The retransmitted part of the bytes sent, 0 to 1.
    pub loss: f64,
    /// Number of samples.
    pub samples: u32,
    /// Time of the last sample, since the session's start.
    pub at: Duration,
    /// True if it still counts: only this knob has changed since.
    pub is_current: bool,
}

impl KnobCurvePoint {
    fn new(value: u32) -> KnobCurvePoint {
        let at = Duration::ZERO;
        let rates = StageRates::default();
        KnobCurvePoint { value, rates, variance: 0.0, loss: 0.0, samples: 0, at, is_current: true }
    }

    /// Returns the throughput that it reaches and keeps up, in bytes per second.
    pub fn bytes_per_s(&self) -> f64 {
        self.rates.sustained_rate()
    }

    /// Returns its utility.
    pub(super) fn utility(&self) -> f64 {
        utility(self.value, self.bytes_per_s(), self.loss)
    }

    /// A running mean and variance, exponentially smoothed once the memory is full (Welford; Finch 2009).
    fn add(&mut self, at: Duration, reading: &RateReading) {
        self.samples = self.samples.saturating_add(1);
        self.at = at;
        let weight = 1.0 / f64::from(self.samples.min(MEMORY));
        let difference = reading.rates.written - self.rates.written;
        self.rates.approach(&reading.rates, weight);
        self.variance = (1.0 - weight) * (self.variance + weight * difference * difference);
        self.loss += weight * (reading.loss - self.loss);
    }

    /// Returns the samples' standard deviation, as a part of the written bytes.
    pub fn deviation(&self) -> f64 {
        self.variance.sqrt() / self.rates.written.max(1.0)
    }

    /// Returns the square of the mean's relative standard error, under this noise of samples.
    pub(super) fn squared_error(&self, noise: &SampleNoise) -> f64 {
        noise.deviation().powi(2) / f64::from(self.samples.clamp(1, MEMORY))
    }
}

/// The samples' relative deviation from their means, common to all values: three samples at one value would
/// by chance often agree too well.
#[derive(Clone, Copy, Debug)]
pub(super) struct SampleNoise {
    variance: f64,
    /// Of a sample and the next one: lasting noise makes means less certain than its size suggests.
    covariance: f64,
    last: f64,
}

impl Default for SampleNoise {
    fn default() -> SampleNoise {
        SampleNoise { variance: NOISE_FIRST * NOISE_FIRST, covariance: 0.0, last: 0.0 }
    }
}

impl SampleNoise {
    /// Returns the deviation of independent samples with equally uncertain means, as a part of the mean.
    /// The variance is multiplied by `(1 + r) / (1 - r)`, where `r` is the correlation of neighbours
    /// (a first-order autoregression; Bayley and Hammersley 1946).
    pub fn deviation(&self) -> f64 {
        let correlation = (self.covariance / self.variance).clamp(0.0, CORRELATION_MAX);
        (self.variance * (1.0 + correlation) / (1.0 - correlation)).sqrt()
    }

    /// Learns from a sample and the mean that was expected.
    pub fn learn(&mut self, rate: f64, expected: f64) {
        let most = NOISE_OUTLIER * self.variance.sqrt();
        let deviation = (rate / expected.max(1.0) - 1.0).clamp(-most, most);
        self.variance += NOISE_WEIGHT * (deviation * deviation - self.variance);
        self.variance = self.variance.max(NOISE_MIN * NOISE_MIN);
        self.covariance += CORRELATION_WEIGHT * (deviation * self.last - self.covariance);
        self.last = deviation;
    }
}

/// Returns the utility of a value: the logarithm of its throughput, weighed against concurrency and loss.
pub(super) fn utility(value: u32, bytes_per_s: f64, loss: f64) -> f64 {
    bytes_per_s.max(1.0).ln()
        - ELASTICITY_MIN * f64::from(value).ln()
        - LOSS_PRICE * (loss - LOSS_FREE).max(0.0)
}

/// One knob's curve.
#[derive(Clone, Debug, Default)]
pub(super) struct KnobCurve {
    points: BTreeMap<u32, KnobCurvePoint>,
}

impl KnobCurve {
    pub fn add(&mut self, value: u32, at: Duration, reading: &RateReading) {
        let point = self.points.entry(value).or_insert(KnobCurvePoint::new(value));
        if !point.is_current {
            *point = KnobCurvePoint::new(value);
        }
        point.add(at, reading);
    }

    /// Returns the current point of a value.
    pub fn get(&self, value: u32) -> Option<&KnobCurvePoint> {
        self.points.get(&value).filter(|point| point.is_current)
    }

    /// Returns the current points, by rising value.
    pub fn current(&self) -> impl DoubleEndedIterator<Item = &KnobCurvePoint> {
        self.points.values().filter(|point| point.is_current)
    }

    /// Returns all points ever measured, by rising value.
    pub fn all(&self) -> impl Iterator<Item = &KnobCurvePoint> {
        self.points.values()
    }

    /// Invalidates the points of larger values.
    pub fn forget_above(&mut self, value: u32) {
        self.points.range_mut(value + 1..).for_each(|(_, point)| point.is_current = false);
    }

    /// Invalidates all points except the given one.
    pub fn keep_only(&mut self, point: Option<KnobCurvePoint>) {
        self.points.values_mut().for_each(|point| point.is_current = false);
        if let Some(point) = point {
            self.points.insert(point.value, KnobCurvePoint { is_current: true, ..point });
        }
    }
}
