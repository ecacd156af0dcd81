//! Throughput over one knob's value, as far as it is known, and what a value is worth.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::meter::{Reading, StageRates};

/// Samples over which a mean is smoothed once there are so many; older ones fade. Eight seconds' worth.
const MEMORY: u32 = 32;

/// What a doubling has to bring, as an exponent: `2^0.03` is 2.1 %. On the level part the smaller of two values wins by it.
const ELASTICITY_MIN: f64 = 0.03;

/// Retransmissions up to this part cost nothing: a path loses that much by itself.
const LOSS_FREE: f64 = 0.01;

/// A part of 1 % more that is sent again has to bring 5 % more throughput.
const LOSS_PRICE: f64 = 5.0;

/// The relative deviation of samples before any is known.
const NOISE_FIRST: f64 = 0.03;

/// Less noise than this is not believed.
const NOISE_MIN: f64 = 0.005;

/// A sample counts for no more than so many deviations: a step of the rate is not noise (Huber 1981, winsorizing).
const NOISE_OUTLIER: f64 = 3.0;

/// The weight of a new sample in what is known of the noise.
const NOISE_WEIGHT: f64 = 1.0 / 16.0;

/// The same for what neighbours have in common, which takes more of them to tell from nothing.
const CORRELATION_WEIGHT: f64 = 1.0 / 64.0;

/// Noise that lasts longer is a curve that moves.
const CORRELATION_MAX: f64 = 0.6;

/// What is known of one value of a knob.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CurvePoint {
    /// The knob's value.
    pub value: u32,
    /// Mean rates, later samples weighing more.
    pub rates: StageRates,
    /// Variance of what was written in bytes per second, in the square of that.
    pub variance: f64,
    /// The part of what was sent that was sent again, 0 to 1.
    pub loss: f64,
    /// Samples that are in it.
    pub samples: u32,
    /// When the last of them was taken, since the session's start.
    pub at: Duration,
    /// Whether it still counts: nothing has changed since but this knob.
    pub is_current: bool,
}

impl CurvePoint {
    fn new(value: u32) -> CurvePoint {
        let at = Duration::ZERO;
        let rates = StageRates::default();
        CurvePoint { value, rates, variance: 0.0, loss: 0.0, samples: 0, at, is_current: true }
    }

    /// The throughput that it brings and keeps up, in bytes per second.
    pub fn bytes_per_s(&self) -> f64 {
        self.rates.lasting()
    }

    /// What it is worth.
    pub(super) fn utility(&self) -> f64 {
        utility(self.value, self.bytes_per_s(), self.loss)
    }

    /// A running mean and variance; exponentially smoothed once they have their full memory (Welford; Finch 2009).
    fn add(&mut self, at: Duration, reading: &Reading) {
        self.samples = self.samples.saturating_add(1);
        self.at = at;
        let weight = 1.0 / f64::from(self.samples.min(MEMORY));
        let difference = reading.rates.written - self.rates.written;
        self.rates.approach(&reading.rates, weight);
        self.variance = (1.0 - weight) * (self.variance + weight * difference * difference);
        self.loss += weight * (reading.loss - self.loss);
    }

    /// The samples' standard deviation, as a part of what was written.
    pub fn deviation(&self) -> f64 {
        self.variance.sqrt() / self.rates.written.max(1.0)
    }

    /// The square of the mean's relative standard error, for such a noise of samples.
    pub(super) fn error(&self, noise: &Noise) -> f64 {
        noise.deviation().powi(2) / f64::from(self.samples.clamp(1, MEMORY))
    }
}

/// The samples' relative deviation from their means, the same for all values: three samples at one value would by chance often agree
/// too well.
#[derive(Clone, Copy, Debug)]
pub(super) struct Noise {
    variance: f64,
    /// Of a sample and the next one: noise that lasts makes means less certain than its size says.
    covariance: f64,
    last: f64,
}

impl Default for Noise {
    fn default() -> Noise {
        Noise { variance: NOISE_FIRST * NOISE_FIRST, covariance: 0.0, last: 0.0 }
    }
}

impl Noise {
    /// The deviation of samples that are independent and whose means are as uncertain, as a part of the mean: `(1 + r) / (1 - r)` times the
    /// variance, where `r` is the correlation of neighbours (a first-order autoregression; Bayley and Hammersley 1946).
    pub fn deviation(&self) -> f64 {
        let correlation = (self.covariance / self.variance).clamp(0.0, CORRELATION_MAX);
        (self.variance * (1.0 + correlation) / (1.0 - correlation)).sqrt()
    }

    /// Learns from a sample beside the mean that was expected.
    pub fn learn(&mut self, rate: f64, expected: f64) {
        let most = NOISE_OUTLIER * self.variance.sqrt();
        let deviation = (rate / expected.max(1.0) - 1.0).clamp(-most, most);
        self.variance += NOISE_WEIGHT * (deviation * deviation - self.variance);
        self.variance = self.variance.max(NOISE_MIN * NOISE_MIN);
        self.covariance += CORRELATION_WEIGHT * (deviation * self.last - self.covariance);
        self.last = deviation;
    }
}

/// What a value is worth: the logarithm of what it brings, weighed against concurrency and loss.
pub(super) fn utility(value: u32, bytes_per_s: f64, loss: f64) -> f64 {
    bytes_per_s.max(1.0).ln()
        - ELASTICITY_MIN * f64::from(value).ln()
        - LOSS_PRICE * (loss - LOSS_FREE).max(0.0)
}

/// One knob's curve.
#[derive(Clone, Debug, Default)]
pub(super) struct Curve {
    points: BTreeMap<u32, CurvePoint>,
}

impl Curve {
    pub fn add(&mut self, value: u32, at: Duration, reading: &Reading) {
        let point = self.points.entry(value).or_insert(CurvePoint::new(value));
        if !point.is_current {
            *point = CurvePoint::new(value);
        }
        point.add(at, reading);
    }

    /// What still counts for a value.
    pub fn get(&self, value: u32) -> Option<&CurvePoint> {
        self.points.get(&value).filter(|point| point.is_current)
    }

    /// What still counts, by rising value.
    pub fn current(&self) -> impl DoubleEndedIterator<Item = &CurvePoint> {
        self.points.values().filter(|point| point.is_current)
    }

    /// All that was seen, by rising value.
    pub fn all(&self) -> impl Iterator<Item = &CurvePoint> {
        self.points.values()
    }

    /// What is known of larger values does not count any more.
    pub fn forget_above(&mut self, value: u32) {
        self.points.range_mut(value + 1..).for_each(|(_, point)| point.is_current = false);
    }

    /// From now on nothing else counts.
    pub fn keep_only(&mut self, point: Option<CurvePoint>) {
        self.points.values_mut().for_each(|point| point.is_current = false);
        if let Some(point) = point {
            self.points.insert(point.value, CurvePoint { is_current: true, ..point });
        }
    }
}
