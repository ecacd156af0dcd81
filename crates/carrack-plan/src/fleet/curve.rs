//! The number of pairs that a transfer wants: throughput over the number of pairs, from the movers' reports
//! (Y4).
//!
//! Owns one transfer's curve and its position on the curve. Whether the pairs are granted is decided in
//! `shares`.

use std::collections::BTreeMap;
use std::time::Duration;

/// A further pair is kept if it brings at least this part of an average pair's rate. Below that the curve is
/// level: the rate of that pair would take another transfer a quarter of a pair.
const KEEP_GAIN: f64 = 0.25;

/// A pair is released if that costs at most this part of an average pair's rate. Well below [`KEEP_GAIN`], so
/// that a gain between both keeps the number, and noise changes nothing.
const RELEASE_LOSS: f64 = 0.10;

/// Reports are ignored for this time after the number of pairs has changed: connections rise to their rate.
const SETTLE: Duration = Duration::from_secs(2);

/// Reports at one number of pairs before a decision.
const REPORTS_MIN: u32 = 5;

/// Reports after which a decision is made without significance.
const REPORTS_MAX: u32 = 30;

/// A difference is significant if it exceeds the threshold by this many standard errors.
const SURE: f64 = 2.0;

/// Reports over which a value is smoothed; older ones fade.
const MEMORY: u32 = 30;

/// A point this much older than the visit that it is compared with does not count.
const FADE: Duration = Duration::from_secs(120);

/// Age at which a point is forgotten.
const FORGET: Duration = Duration::from_secs(900);

/// Time to the next look at the neighbours of an unchanged number; it doubles each time.
const AGAIN_FIRST: Duration = Duration::from_secs(60);

/// The longest time between two looks: a look costs some seconds of one pair's rate.
const AGAIN_MAX: Duration = Duration::from_secs(480);

/// A change of the throughput by this part since the number of pairs was settled indicates another curve.
const CHANGED: f64 = 0.25;

/// Finds the number of pairs above which another pair brings little, and follows it.
///
/// The tuner asks for one more pair as long as the last one brought a quarter of an average pair
/// ([`pairs_wanted`](Self::pairs_wanted) rises), releases one as long as that costs less than a tenth of one,
/// and settles between both. Of many pairs it releases a quarter at once, and fewer if that was too much:
/// among many pairs, the loss of one is below the noise. A settled tuner tries both neighbours again after 1,
/// 2, 4 and at most 8 minutes, or at once when the throughput has changed by a quarter. So under a constant
/// curve it makes a few changes for a look, and no others.
///
/// Reports at another number of pairs than the wanted one change nothing: a share may be smaller than the
/// wish.
#[derive(Clone, Debug)]
pub struct PairCountTuner {
    most: u32,
    wanted: u32,
    aim: PairCountTrialPhase,
    points: BTreeMap<u32, PairCountMeasurement>,
    /// Number of pairs in the last report, and the time since which it is constant.
    seen: Option<(u32, Duration)>,
    again_after: Duration,
}

/// Purpose of the present number of pairs.
#[derive(Clone, Copy, Debug)]
enum PairCountTrialPhase {
    /// Measure a base for comparisons; `has_risen` if the last pair added is known to have paid.
    Begin { has_risen: bool },
    /// Measure whether one more pair than `from` pays.
    Up { from: u32, has_risen: bool },
    /// Measure the cost of `step` pairs less than `from`.
    Down { from: u32, step: u32 },
    /// Move data until the next look, or until the throughput changes.
    Settled { again_at: Duration, bytes_per_s: f64 },
}

/// Measurements at one number of pairs.
#[derive(Clone, Copy, Debug)]
struct PairCountMeasurement {
    mean: f64,
    variance: f64,
    reports: u32,
    /// Times of the first and the last report of the present or last visit.
    since: Duration,
    at: Duration,
}

impl PairCountTuner {
    /// Begins with `start` pairs, from 1 to `most`: the number of an earlier transfer between the same ends,
    /// or one for each mover. More pairs are tried before fewer, because fewer cost the rate of the pairs
    /// that end.
    pub fn new(start: u32, most: u32) -> PairCountTuner {
        let most = most.max(1);
        PairCountTuner {
            most,
            wanted: start.clamp(1, most),
            aim: PairCountTrialPhase::Begin { has_risen: true },
            points: BTreeMap::new(),
            seen: None,
            again_after: AGAIN_FIRST,
        }
    }

    /// Returns the number of pairs that the transfer should have.
    pub fn pairs_wanted(&self) -> u32 {
        self.wanted
    }

    /// Changes the upper bound of pairs, after movers have come or gone.
    pub fn set_most(&mut self, now: Duration, most: u32) {
        let most = most.max(1);
        if most < self.wanted {
            self.begin(most);
        } else if most > self.most
            && matches!(self.aim, PairCountTrialPhase::Settled { .. })
            && self.wanted == self.most
        {
            // The tuner stood at the limit: the new limit is tried soon.
            self.again_after = AGAIN_FIRST;
            self.settle_at(self.wanted, now);
        }
        self.most = most;
    }

    /// Takes the common rate of the `pairs` at work. To be called once a second, except while the pairs have
    /// no work.
    pub fn observe(&mut self, now: Duration, pairs: u32, bytes_per_s: u64) {
        let since = match self.seen {
            Some((seen, since)) if seen == pairs => since,
            _ => {
                // The curve may have changed since: a visit begins without old reports.
                self.points.remove(&pairs);
                now
            }
        };
        self.seen = Some((pairs, since));
        self.points.retain(|_, point| now.saturating_sub(point.at) < FORGET);
        if pairs == 0 || now.saturating_sub(since) < SETTLE {
            return;
        }
        self.points
            .entry(pairs)
            .or_insert(PairCountMeasurement { mean: 0.0, variance: 0.0, reports: 0, since: now, at: now })
            .add(now, bytes_per_s as f64);
        if pairs == self.wanted {
            self.decide(now);
        }
    }

    /// Returns the smoothed bytes per second for each number of pairs seen of late, for curves that are
    /// stored and shown.
    pub fn points(&self) -> impl Iterator<Item = (u32, u64)> {
        self.points.iter().map(|(pairs, point)| (*pairs, point.mean as u64))
    }

    /// Describes the state and its reason, for people.
    pub fn explain(&self) -> String {
        let wanted = self.wanted;
        let aim = match self.aim {
            PairCountTrialPhase::Begin { .. } => "measuring".into(),
            PairCountTrialPhase::Up { from, .. } => {
                format!("does one more than {from} bring a quarter of a pair?")
            }
            PairCountTrialPhase::Down { from, step } => {
                format!("do {step} less than {from} cost a tenth of a pair each?")
            }
            PairCountTrialPhase::Settled { again_at, .. } if wanted == self.most => {
                format!("settled at the most there can be until {} s", again_at.as_secs())
            }
            PairCountTrialPhase::Settled { again_at, .. } => {
                format!("settled until {} s: another brings too little", again_at.as_secs())
            }
        };
        let curve: Vec<String> =
            self.points().map(|(pairs, rate)| format!("{pairs}: {} MB/s", rate / 1_000_000)).collect();
        format!("{wanted} pairs wanted; {aim}; [{}]", curve.join(", "))
    }

    /// Takes a step if the reports at the wanted number suffice.
    fn decide(&mut self, now: Duration) {
        let Some(&here) = self.points.get(&self.wanted) else { return };
        match self.aim {
            PairCountTrialPhase::Settled { again_at, bytes_per_s } => {
                let has_moved = (here.mean - bytes_per_s).abs() > CHANGED * bytes_per_s;
                if has_moved && here.reports >= 2 * REPORTS_MIN {
                    // The mean mixes the old curve and the new one.
                    self.again_after = AGAIN_FIRST;
                    self.points.clear();
                    self.begin(self.wanted);
                } else if now >= again_at && here.reports >= REPORTS_MIN {
                    self.try_neighbour_count(false, now);
                }
            }
            PairCountTrialPhase::Begin { has_risen } if here.reports >= REPORTS_MIN => {
                self.try_neighbour_count(has_risen, now)
            }
            PairCountTrialPhase::Begin { .. } => {}
            PairCountTrialPhase::Up { from, has_risen } => match self.gain(from, self.wanted, KEEP_GAIN) {
                None => {}
                Some(PairGainVerdict::Stale) => self.begin(self.wanted),
                Some(PairGainVerdict::Above) => {
                    self.again_after = AGAIN_FIRST;
                    self.try_neighbour_count(true, now);
                }
                Some(PairGainVerdict::Below) if has_risen || from == 1 => self.settle_at(from, now),
                Some(PairGainVerdict::Below) => self.try_less(from, from, now),
            },
            PairCountTrialPhase::Down { from, step } => match self.gain(self.wanted, from, RELEASE_LOSS) {
                None => {}
                Some(PairGainVerdict::Stale) => self.begin(self.wanted),
                Some(PairGainVerdict::Above) => self.try_less(from, step / 2, now),
                Some(PairGainVerdict::Below) => {
                    self.again_after = AGAIN_FIRST;
                    self.try_less(self.wanted, step, now);
                }
            },
        }
    }

    /// Compares the gain between two numbers of pairs with `mark` of an average pair for each; `None` while
    /// that is open. One of both numbers is being tried.
    fn gain(&self, low: u32, high: u32, mark: f64) -> Option<PairGainVerdict> {
        let (Some(low_point), Some(high_point)) = (self.points.get(&low), self.points.get(&high)) else {
            return Some(PairGainVerdict::Stale);
        };
        let (here, other) =
            if low == self.wanted { (low_point, high_point) } else { (high_point, low_point) };
        if here.since.saturating_sub(other.at) > FADE {
            return Some(PairGainVerdict::Stale);
        }
        if here.reports < REPORTS_MIN {
            return None;
        }
        let average = low_point.mean / f64::from(low);
        let beyond = high_point.mean - low_point.mean - mark * f64::from(high - low) * average;
        let error = (low_point.squared_error() + high_point.squared_error()).sqrt();
        let is_open = beyond.abs() < SURE * error && here.reports < REPORTS_MAX;
        (!is_open).then_some(if beyond > 0.0 { PairGainVerdict::Above } else { PairGainVerdict::Below })
    }

    /// Tries one more pair; at the limit one less, unless the last pair is known to have paid.
    fn try_neighbour_count(&mut self, has_risen: bool, now: Duration) {
        let from = self.wanted;
        if from < self.most {
            self.move_to(from + 1, PairCountTrialPhase::Up { from, has_risen });
        } else if from > 1 && !has_risen {
            self.try_less(from, from, now);
        } else {
            self.settle_at(self.wanted, now);
        }
    }

    /// Tries `step` fewer pairs than `from`, at most a quarter of them; settles at `from` if there are no
    /// fewer.
    fn try_less(&mut self, from: u32, step: u32, now: Duration) {
        match step.min((from / 4).max(1)) {
            step if step > 0 && step < from => {
                self.move_to(from - step, PairCountTrialPhase::Down { from, step })
            }
            _ => self.settle_at(from, now),
        }
    }

    /// Settles at a number, for longer each time that nothing new was found.
    fn settle_at(&mut self, wanted: u32, now: Duration) {
        self.wanted = wanted;
        let bytes_per_s = self.points.get(&self.wanted).map_or(0.0, |point| point.mean);
        self.aim = PairCountTrialPhase::Settled { again_at: now + self.again_after, bytes_per_s };
        self.again_after = (2 * self.again_after).min(AGAIN_MAX);
    }

    fn move_to(&mut self, wanted: u32, aim: PairCountTrialPhase) {
        (self.wanted, self.aim) = (wanted, aim);
    }

    fn begin(&mut self, wanted: u32) {
        self.move_to(wanted, PairCountTrialPhase::Begin { has_risen: false });
    }
}

/// Result of comparing a difference with its threshold.
enum PairGainVerdict {
    Above,
    Below,
    /// One side was measured too long ago.
    Stale,
}

impl PairCountMeasurement {
    /// A running mean and variance, exponentially smoothed once the memory is full (Welford; Finch 2009).
    fn add(&mut self, now: Duration, value: f64) {
        self.reports = self.reports.saturating_add(1);
        self.at = now;
        let weight = 1.0 / f64::from(self.reports.min(MEMORY));
        let difference = value - self.mean;
        self.mean += weight * difference;
        self.variance = (1.0 - weight) * (self.variance + weight * difference * difference);
    }

    /// The square of the mean's standard error.
    fn squared_error(&self) -> f64 {
        self.variance / f64::from(self.reports.clamp(2, MEMORY) - 1)
    }
}

#[cfg(test)]
#[path = "curve_tests.rs"]
mod tests;
