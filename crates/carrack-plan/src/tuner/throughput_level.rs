//! The throughput of the kept settings, and the detection of its changes.

use std::collections::VecDeque;

use super::curve::SampleNoise;
use super::meter::StageRates;

/// Samples over which the level is smoothed. Eight seconds' worth.
const MEMORY: u32 = 32;

/// A level that has moved by this part indicates another curve. A smaller change is followed, and causes an
/// early look.
const MOVED: f64 = 0.25;

/// Standard errors from which the change is significant.
const MOVED_SURE: f64 = 4.0;

/// Latest samples whose mean is compared: one second for changes far beyond the noise, four for others.
const WINDOWS: [usize; 2] = [4, 16];

/// A level that has drifted by this part since the settings were found to be the best, and by this many
/// standard errors, causes a look.
const DRIFTED: f64 = 0.03;
const DRIFTED_SURE: f64 = 3.0;

/// The mean of the kept settings until a while ago, and the latest samples.
#[derive(Clone, Debug, Default)]
pub(super) struct KeptSettingsThroughput {
    past: RateMean,
    latest: VecDeque<StageRates>,
    /// The mean at the time when the settings were found to be the best.
    settled: RateMean,
}

/// A mean of samples, the later ones weighing more.
#[derive(Clone, Copy, Debug, Default)]
struct RateMean {
    rates: StageRates,
    samples: u32,
}

impl RateMean {
    fn add(&mut self, rates: &StageRates) {
        self.samples = (self.samples + 1).min(MEMORY);
        self.rates.approach(rates, 1.0 / f64::from(self.samples));
    }

    /// Returns true if both differ by this part and by this many standard errors, in the lasting and in the
    /// written rate: a stage that rests for a second while a queue bridges the rest is no other curve.
    fn differs(self, other: RateMean, noise: &SampleNoise, part: f64, sure: f64) -> bool {
        let inverse_samples = 1.0 / f64::from(self.samples) + 1.0 / f64::from(other.samples);
        let mark = part.max(sure * noise.deviation() * inverse_samples.sqrt());
        let lasting = (self.rates.sustained_rate() / other.rates.sustained_rate()).ln();
        let written = (self.rates.written / other.rates.written).ln();
        lasting.abs() > mark && written.abs() > mark && (lasting > 0.0) == (written > 0.0)
    }
}

impl KeptSettingsThroughput {
    /// Takes a sample; returns the level before and now, if it has moved.
    pub fn learn(&mut self, rates: StageRates, noise: &SampleNoise) -> Option<(f64, f64)> {
        self.latest.push_front(rates);
        if self.latest.len() > WINDOWS[1] {
            self.latest.pop_back().iter().for_each(|rates| self.past.add(rates));
        }
        if self.past.samples == 0 {
            return None;
        }
        WINDOWS.into_iter().filter(|window| *window <= self.latest.len()).find_map(|window| {
            let mut now = RateMean::default();
            self.latest.iter().take(window).for_each(|rates| now.add(rates));
            let is_other = now.differs(self.past, noise, MOVED, MOVED_SURE);
            is_other.then(|| (self.past.rates.sustained_rate(), now.rates.sustained_rate()))
        })
    }

    /// Records that these settings were found to be the best.
    pub fn record_settled_level(&mut self) {
        self.settled = self.overall_mean();
    }

    /// Returns true if the level has drifted since: the curve may have changed, although the throughput is
    /// similar.
    pub fn has_drifted(&self, noise: &SampleNoise) -> bool {
        let now = self.overall_mean();
        now.samples >= MEMORY && now.differs(self.settled, noise, DRIFTED, DRIFTED_SURE)
    }

    /// Returns bytes per second.
    pub fn mean(&self) -> f64 {
        self.overall_mean().rates.sustained_rate()
    }

    fn overall_mean(&self) -> RateMean {
        let mut all = self.past;
        self.latest.iter().rev().for_each(|rates| all.add(rates));
        all
    }

    /// Starts a pause with other settings: samples before and after it are not compared as if they were in a
    /// row.
    pub fn pause(&mut self) {
        self.past = self.overall_mean();
        self.latest.clear();
    }

    /// Sets the level of newly kept settings.
    pub fn set(&mut self, rates: StageRates, samples: u32) {
        *self = KeptSettingsThroughput {
            past: RateMean { rates, samples: samples.min(MEMORY) },
            ..KeptSettingsThroughput::default()
        };
    }

    /// Forgets all samples.
    pub fn forget(&mut self) {
        *self = KeptSettingsThroughput::default();
    }
}
