//! How many pairs a transfer wants: throughput over the number of pairs, from what the movers report (Y4).
//!
//! Owns one transfer's curve and where it stands on it. Whether the pairs are granted is for `shares` to say.

use std::collections::BTreeMap;
use std::time::Duration;

/// A pair more is kept if it brings at least so much of what the pairs bring on the average. Less than that is the level part:
/// what the pair would move here, another transfer needs a quarter of a pair for.
const KEEP_GAIN: f64 = 0.25;

/// A pair less is kept if it takes at most so much. Well below [`KEEP_GAIN`], so that a gain between them keeps the number
/// as it is, and noise moves nothing.
const RELEASE_LOSS: f64 = 0.10;

/// Reports are not looked at for so long after the number of pairs has changed: connections rise to their rate.
const SETTLE: Duration = Duration::from_secs(2);

/// Reports at one number of pairs before anything is decided.
const REPORTS_MIN: u32 = 5;

/// With so many reports something is decided, sure or not.
const REPORTS_MAX: u32 = 30;

/// A difference is sure if it is beyond the mark by so many of its standard errors.
const SURE: f64 = 2.0;

/// Reports over which a value is smoothed once there are so many; older ones fade.
const MEMORY: u32 = 30;

/// What was measured so long before says nothing about a number of pairs that is tried now.
const FADE: Duration = Duration::from_secs(120);

/// What was measured so long ago is forgotten.
const FORGET: Duration = Duration::from_secs(900);

/// After the curve was found as it was, its neighbourhood is tried again after this time; twice as long each time.
const AGAIN_FIRST: Duration = Duration::from_secs(60);

/// The longest time between two looks: one that costs some seconds' worth of a pair.
const AGAIN_MAX: Duration = Duration::from_secs(480);

/// A throughput that has moved by so much since the number of pairs was settled is another curve.
const CHANGED: f64 = 0.25;

/// Finds the number of pairs above which another brings little, and follows it.
///
/// It asks for one more as long as the last one brought a quarter of an average pair ([`wanted`](Self::wanted) rises), releases
/// one as long as that takes less than a tenth of one, and settles between. Of many pairs it releases a quarter at once, and
/// fewer if that was too much: among many, what one takes is lost in the noise. Settled, it looks at both neighbours again after 1, 2, 4
/// and at most 8 minutes, or at once when the throughput has moved by a quarter. So under a curve that stays as it is, it
/// makes a few changes for a look, and no others.
///
/// Reports at another number of pairs than it asked for move nothing: a share may be smaller than the wish.
#[derive(Clone, Debug)]
pub struct PairTuner {
    most: u32,
    wanted: u32,
    aim: Aim,
    points: BTreeMap<u32, Point>,
    /// The number of pairs in the last report, and since when it is that.
    seen: Option<(u32, Duration)>,
    again_after: Duration,
}

/// What the present number of pairs is for.
#[derive(Clone, Copy, Debug)]
enum Aim {
    /// To have something to compare with; `has_risen` if the pair before this one is known to have paid.
    Begin { has_risen: bool },
    /// To see whether one more than `from` pays.
    Up { from: u32, has_risen: bool },
    /// To see what so many less than `from` cost.
    Down { from: u32, step: u32 },
    /// To move data, until it is time to look again, or the throughput is no longer this one.
    Settled { again_at: Duration, bytes_per_s: f64 },
}

/// What is known of one number of pairs.
#[derive(Clone, Copy, Debug)]
struct Point {
    mean: f64,
    variance: f64,
    reports: u32,
    /// When the present or last visit's first report came, and when the last.
    since: Duration,
    at: Duration,
}

impl PairTuner {
    /// Begins with so many pairs, from 1 to `most`: those of an earlier transfer between the same ends, or one for each mover.
    /// It tries more of them before it tries fewer, which costs what the pairs that end would have moved.
    pub fn new(start: u32, most: u32) -> PairTuner {
        let most = most.max(1);
        PairTuner {
            most,
            wanted: start.clamp(1, most),
            aim: Aim::Begin { has_risen: true },
            points: BTreeMap::new(),
            seen: None,
            again_after: AGAIN_FIRST,
        }
    }

    /// Pairs that the transfer should have.
    pub fn wanted(&self) -> u32 {
        self.wanted
    }

    /// The pairs that there could be at most have changed, as movers have come or gone.
    pub fn set_most(&mut self, now: Duration, most: u32) {
        let most = most.max(1);
        if most < self.wanted {
            self.begin(most);
        } else if most > self.most && matches!(self.aim, Aim::Settled { .. }) && self.wanted == self.most {
            // It stood at the limit: the new one is tried soon.
            self.again_after = AGAIN_FIRST;
            self.settle_at(self.wanted, now);
        }
        self.most = most;
    }

    /// So much do all pairs of the transfer move, with so many at work. To be told about once a second, and not while there is
    /// nothing for them to do.
    pub fn observe(&mut self, now: Duration, pairs: u32, bytes_per_s: u64) {
        let since = match self.seen {
            Some((seen, since)) if seen == pairs => since,
            _ => {
                // The curve may have moved since: a visit begins with nothing.
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
            .or_insert(Point { mean: 0.0, variance: 0.0, reports: 0, since: now, at: now })
            .add(now, bytes_per_s as f64);
        if pairs == self.wanted {
            self.decide(now);
        }
    }

    /// The smoothed bytes per second for each number of pairs that was seen of late, for curves that are kept and shown.
    pub fn points(&self) -> impl Iterator<Item = (u32, u64)> {
        self.points.iter().map(|(pairs, point)| (*pairs, point.mean as u64))
    }

    /// Where it stands and why, for people.
    pub fn explain(&self) -> String {
        let wanted = self.wanted;
        let aim = match self.aim {
            Aim::Begin { .. } => "measuring".into(),
            Aim::Up { from, .. } => format!("does one more than {from} bring a quarter of a pair?"),
            Aim::Down { from, step } => format!("do {step} less than {from} cost a tenth of a pair each?"),
            Aim::Settled { again_at, .. } if wanted == self.most => {
                format!("settled at the most there can be until {} s", again_at.as_secs())
            }
            Aim::Settled { again_at, .. } => {
                format!("settled until {} s: another brings too little", again_at.as_secs())
            }
        };
        let curve: Vec<String> =
            self.points().map(|(pairs, rate)| format!("{pairs}: {} MB/s", rate / 1_000_000)).collect();
        format!("{wanted} pairs wanted; {aim}; [{}]", curve.join(", "))
    }

    /// Looks whether what is known of the wanted number suffices for a step.
    fn decide(&mut self, now: Duration) {
        let Some(&here) = self.points.get(&self.wanted) else { return };
        match self.aim {
            Aim::Settled { again_at, bytes_per_s } => {
                let has_moved = (here.mean - bytes_per_s).abs() > CHANGED * bytes_per_s;
                if has_moved && here.reports >= 2 * REPORTS_MIN {
                    // Its mean is of both curves, the old and the new.
                    self.again_after = AGAIN_FIRST;
                    self.points.clear();
                    self.begin(self.wanted);
                } else if now >= again_at && here.reports >= REPORTS_MIN {
                    self.look_around(false, now);
                }
            }
            Aim::Begin { has_risen } if here.reports >= REPORTS_MIN => self.look_around(has_risen, now),
            Aim::Begin { .. } => {}
            Aim::Up { from, has_risen } => match self.gain(from, self.wanted, KEEP_GAIN) {
                None => {}
                Some(Verdict::Stale) => self.begin(self.wanted),
                Some(Verdict::Above) => {
                    self.again_after = AGAIN_FIRST;
                    self.look_around(true, now);
                }
                Some(Verdict::Below) if has_risen || from == 1 => self.settle_at(from, now),
                Some(Verdict::Below) => self.try_less(from, from, now),
            },
            Aim::Down { from, step } => match self.gain(self.wanted, from, RELEASE_LOSS) {
                None => {}
                Some(Verdict::Stale) => self.begin(self.wanted),
                Some(Verdict::Above) => self.try_less(from, step / 2, now),
                Some(Verdict::Below) => {
                    self.again_after = AGAIN_FIRST;
                    self.try_less(self.wanted, step, now);
                }
            },
        }
    }

    /// Whether the step from one number of pairs to another brings more than `mark` of an average pair for each; nothing while
    /// that is open. One of both is the number that is being tried.
    fn gain(&self, low: u32, high: u32, mark: f64) -> Option<Verdict> {
        let (Some(low_point), Some(high_point)) = (self.points.get(&low), self.points.get(&high)) else {
            return Some(Verdict::Stale);
        };
        let (here, other) =
            if low == self.wanted { (low_point, high_point) } else { (high_point, low_point) };
        if here.since.saturating_sub(other.at) > FADE {
            return Some(Verdict::Stale);
        }
        if here.reports < REPORTS_MIN {
            return None;
        }
        let average = low_point.mean / f64::from(low);
        let beyond = high_point.mean - low_point.mean - mark * f64::from(high - low) * average;
        let error = (low_point.error() + high_point.error()).sqrt();
        let is_open = beyond.abs() < SURE * error && here.reports < REPORTS_MAX;
        (!is_open).then_some(if beyond > 0.0 { Verdict::Above } else { Verdict::Below })
    }

    /// Tries one more; where that can't be, one less, unless the last one is known to have paid.
    fn look_around(&mut self, has_risen: bool, now: Duration) {
        let from = self.wanted;
        if from < self.most {
            self.move_to(from + 1, Aim::Up { from, has_risen });
        } else if from > 1 && !has_risen {
            self.try_less(from, from, now);
        } else {
            self.settle_at(self.wanted, now);
        }
    }

    /// Tries so many less than `from`, a quarter of them at most; where that can't be, stays there.
    fn try_less(&mut self, from: u32, step: u32, now: Duration) {
        match step.min((from / 4).max(1)) {
            step if step > 0 && step < from => self.move_to(from - step, Aim::Down { from, step }),
            _ => self.settle_at(from, now),
        }
    }

    /// Stays there, for longer each time that nothing new was found.
    fn settle_at(&mut self, wanted: u32, now: Duration) {
        self.wanted = wanted;
        let bytes_per_s = self.points.get(&self.wanted).map_or(0.0, |point| point.mean);
        self.aim = Aim::Settled { again_at: now + self.again_after, bytes_per_s };
        self.again_after = (2 * self.again_after).min(AGAIN_MAX);
    }

    fn move_to(&mut self, wanted: u32, aim: Aim) {
        (self.wanted, self.aim) = (wanted, aim);
    }

    fn begin(&mut self, wanted: u32) {
        self.move_to(wanted, Aim::Begin { has_risen: false });
    }
}

/// How a difference compares with its mark.
enum Verdict {
    Above,
    Below,
    /// One side was measured too long ago.
    Stale,
}

impl Point {
    /// A running mean and variance; exponentially smoothed once they have their full memory (Welford; Finch 2009).
    fn add(&mut self, now: Duration, value: f64) {
        self.reports = self.reports.saturating_add(1);
        self.at = now;
        let weight = 1.0 / f64::from(self.reports.min(MEMORY));
        let difference = value - self.mean;
        self.mean += weight * difference;
        self.variance = (1.0 - weight) * (self.variance + weight * difference * difference);
    }

    /// The square of the mean's standard error.
    fn error(&self) -> f64 {
        self.variance / f64::from(self.reports.clamp(2, MEMORY) - 1)
    }
}

#[cfg(test)]
#[path = "curve_tests.rs"]
mod tests;
