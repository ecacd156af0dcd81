//! The normal service times of one target, with those of its cache apart.
//!
//! Where a client reads ahead or writes behind, most requests end in memory, and one of a few waits for the
//! target. The short times say nothing about the target's load, and a long one among them is no congestion.
//! The signs of such a mixture are two kinds of times, far apart, that take turns; a congested target has
//! long ones in a row, and is avoided after the first.

/// Weight of a service time below the normal one in the new normal.
const NORMAL_DOWN: f64 = 0.25;

/// Rise of the normal service time with each longer one: a target that has become slower for good counts as
/// normal after some fifty services.
pub(super) const NORMAL_UP: f64 = 0.02;

/// The same when nice: after some thousand services.
pub(super) const NORMAL_UP_NICE: f64 = 0.001;

/// Services of a target that are looked at for a mixture.
const RECENT: usize = 16;

/// Least ratio of the long to the short times of a mixture.
const GAP: f64 = 4.0;

/// Longest time of a short service, in seconds: the client's memory is quick, and other clients' requests
/// make times differ, too.
const SHORT_MAX_S: f64 = 0.005;

/// Changes from a long to a short service among the recent ones by which a target alone shows a mixture.
const CHANGES_ALONE: u32 = 3;

/// The same of all targets together: then one change is enough for each of them.
const CHANGES_TOGETHER: u32 = 4;

/// Services per change of all targets together, at most.
const SERVICES_PER_CHANGE: u32 = 24;

/// The normal service times of a target, in seconds for a reference object; 0 while unknown.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct NormalServiceTimes {
    /// A low quantile of all times, or of the short ones of a mixture.
    pub(super) short: f64,
    /// The same of the long ones of a mixture; 0 if there is none.
    pub(super) long: f64,
    recent: RecentServices,
}

/// The last services of a target.
#[derive(Clone, Copy, Debug, Default)]
struct RecentServices {
    /// Their times, a ring.
    seconds: [f64; RECENT],
    next: usize,
    count: usize,
    /// The two kinds of them.
    kinds: Option<ServiceKinds>,
}

/// Recent service times in two kinds.
#[derive(Clone, Copy, Debug)]
struct ServiceKinds {
    /// The longest of the short times.
    short_max: f64,
    /// The shortest of the long times.
    long_min: f64,
    /// Long services that were followed by a short one.
    changes: u32,
    long_share: f64,
}

/// The part of a mixture that a service belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ServiceKind {
    /// All services of a target without a mixture, and the long ones of a mixture.
    AtTarget,
    /// A short one of a mixture: it tells nothing about the target's load.
    InCache,
}

impl RecentServices {
    fn add(&mut self, seconds: f64) {
        self.seconds[self.next] = seconds;
        self.next = (self.next + 1) % RECENT;
        self.count = (self.count + 1).min(RECENT);
        self.kinds = self.find_kinds();
    }

    /// Divides the times at the widest gap.
    fn find_kinds(&self) -> Option<ServiceKinds> {
        let mut sorted = self.seconds;
        let sorted = &mut sorted[..self.count];
        sorted.sort_unstable_by(f64::total_cmp);
        let gaps = sorted.windows(2).map(|pair| (pair[1] / pair[0], pair[0], pair[1]));
        let (ratio, short_max, long_min) = gaps.max_by(|a, b| a.0.total_cmp(&b.0))?;
        if ratio < GAP || short_max > SHORT_MAX_S {
            return None;
        }
        let first = if self.count < RECENT { 0 } else { self.next };
        let at = |index: usize| self.seconds[(first + index) % RECENT] > short_max;
        let changes = (1..self.count).filter(|&index| at(index - 1) && !at(index)).count() as u32;
        let long_share = (0..self.count).filter(|&index| at(index)).count() as f64 / self.count as f64;
        Some(ServiceKinds { short_max, long_min, changes, long_share })
    }

    fn changes(&self) -> u32 {
        self.kinds.map_or(0, |kinds| kinds.changes)
    }
}

/// Returns true if services of these targets keep changing between long and short ones.
pub(super) fn have_mixture<'a>(targets: impl Iterator<Item = &'a NormalServiceTimes>) -> bool {
    let (changes, services) = targets.fold((0, 0), |(changes, services), target| {
        (changes + target.recent.changes(), services + target.recent.count as u32)
    });
    changes >= CHANGES_TOGETHER && changes * SERVICES_PER_CHANGE >= services
}

impl NormalServiceTimes {
    /// Learns from a service. With `is_mixed` the services of all targets together are a mixture; `up` is the
    /// rise of a normal time with each longer one.
    pub(super) fn learn(&mut self, seconds: f64, is_mixed: bool, up: f64) -> ServiceKind {
        self.recent.add(seconds);
        let changes_min = if is_mixed { 1 } else { CHANGES_ALONE };
        let Some(kinds) = self.recent.kinds.filter(|kinds| kinds.changes >= changes_min) else {
            self.long = 0.0;
            self.short = moved(self.short, seconds, up);
            return ServiceKind::AtTarget;
        };
        if self.long == 0.0 {
            self.short = self.short.min(kinds.short_max);
            self.long = kinds.long_min;
        }
        if seconds > kinds.short_max {
            self.long = moved(self.long, seconds, up);
            ServiceKind::AtTarget
        } else {
            self.short = moved(self.short, seconds, up);
            ServiceKind::InCache
        }
    }

    /// The same with upper bounds of both times.
    pub(super) fn bounded(mut self, short: f64, long: f64) -> NormalServiceTimes {
        self.short = self.short.min(short);
        self.long = self.long.min(long);
        self
    }

    /// The normal time of a service at the target itself.
    pub(super) fn at_target(&self) -> f64 {
        if self.long > 0.0 { self.long } else { self.short }
    }

    /// The mean of a mixture's normal times.
    pub(super) fn mean(&self) -> f64 {
        let long_share = self.recent.kinds.map_or(0.0, |kinds| kinds.long_share);
        if self.long > 0.0 { self.short + long_share * (self.long - self.short) } else { self.short }
    }
}

fn moved(normal: f64, seconds: f64, up: f64) -> f64 {
    match normal {
        0.0 => seconds,
        normal if seconds < normal => normal + NORMAL_DOWN * (seconds - normal),
        normal => (normal * (1.0 + up)).min(seconds),
    }
}
