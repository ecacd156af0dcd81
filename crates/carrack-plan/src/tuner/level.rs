//! The throughput of the settings that are kept, and whether it is still the same one.

use std::collections::VecDeque;

use super::curve::Noise;
use super::meter::StageRates;

/// Samples over which the level is smoothed once there are so many. Eight seconds' worth.
const MEMORY: u32 = 32;

/// Another curve: a level that has moved by this part. Less is followed, and looked at soon.
const MOVED: f64 = 0.25;

/// Another curve for certain: beyond so many standard errors.
const MOVED_SURE: f64 = 4.0;

/// Latest samples whose mean is compared: one second for what is far beyond the noise, four for what is not.
const WINDOWS: [usize; 2] = [4, 16];

/// A level that has moved by this part since the settings were found to be the best, and by so many standard errors, is looked at.
const DRIFTED: f64 = 0.03;
const DRIFTED_SURE: f64 = 3.0;

/// The mean of the kept settings until a while ago, and the latest samples.
#[derive(Clone, Debug, Default)]
pub(super) struct Level {
    past: Mean,
    latest: VecDeque<StageRates>,
    /// The mean when the settings were found to be the best.
    settled: Mean,
}

/// A mean of so many samples, the later ones weighing more.
#[derive(Clone, Copy, Debug, Default)]
struct Mean {
    rates: StageRates,
    samples: u32,
}

impl Mean {
    fn add(&mut self, rates: &StageRates) {
        self.samples = (self.samples + 1).min(MEMORY);
        self.rates.approach(rates, 1.0 / f64::from(self.samples));
    }

    /// Whether both differ by this part and by so many standard errors: in what lasts and in what was written, as a stage that rests for
    /// a second while a queue bridges it is no other curve.
    fn differs(self, other: Mean, noise: &Noise, part: f64, sure: f64) -> bool {
        let inverse = |mean: Mean| 1.0 / f64::from(mean.samples);
        let mark = part.max(sure * noise.deviation() * (inverse(self) + inverse(other)).sqrt());
        let lasting = (self.rates.lasting() / other.rates.lasting()).ln();
        let written = (self.rates.written / other.rates.written).ln();
        lasting.abs() > mark && written.abs() > mark && (lasting > 0.0) == (written > 0.0)
    }
}

impl Level {
    /// Takes a sample; the level before and now, if it has moved.
    pub fn learn(&mut self, rates: StageRates, noise: &Noise) -> Option<(f64, f64)> {
        self.latest.push_front(rates);
        if self.latest.len() > WINDOWS[1] {
            self.latest.pop_back().iter().for_each(|rates| self.past.add(rates));
        }
        if self.past.samples == 0 {
            return None;
        }
        WINDOWS.into_iter().filter(|window| *window <= self.latest.len()).find_map(|window| {
            let mut now = Mean::default();
            self.latest.iter().take(window).for_each(|rates| now.add(rates));
            let is_other = now.differs(self.past, noise, MOVED, MOVED_SURE);
            is_other.then(|| (self.past.rates.lasting(), now.rates.lasting()))
        })
    }

    /// These settings were found to be the best.
    pub fn settle(&mut self) {
        self.settled = self.all();
    }

    /// Whether the level has moved somewhat since: the curve may be another one, although the throughput is much the same.
    pub fn has_drifted(&self, noise: &Noise) -> bool {
        let now = self.all();
        now.samples >= MEMORY && now.differs(self.settled, noise, DRIFTED, DRIFTED_SURE)
    }

    /// Bytes per second.
    pub fn mean(&self) -> f64 {
        self.all().rates.lasting()
    }

    fn all(&self) -> Mean {
        let mut all = self.past;
        self.latest.iter().rev().for_each(|rates| all.add(rates));
        all
    }

    /// Other settings are in force for a while: samples before and after it are not compared as if they were in a row.
    pub fn pause(&mut self) {
        self.past = self.all();
        self.latest.clear();
    }

    /// Other settings are kept, which bring so much.
    pub fn set(&mut self, rates: StageRates, samples: u32) {
        *self = Level { past: Mean { rates, samples: samples.min(MEMORY) }, ..Level::default() };
    }

    /// Nothing is known any more.
    pub fn forget(&mut self) {
        *self = Level::default();
    }
}
