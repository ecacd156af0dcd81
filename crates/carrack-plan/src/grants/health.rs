//! What computation leaves of a target (L11, L15).

use std::time::Duration;

use super::settings::GrantSettings;

/// The floor: however busy a target is, transfers have it for so much of the time.
pub const SHARE_MIN: f64 = 0.05;

/// Less load than this counts as none: it is within what feeds tell of an idle target, and a target that is not rested at all
/// need not change hands. Not more than needed: computation that transfers keep from a target is hardly seen there.
const LOAD_IGNORED: f64 = 0.05;

/// Computation is left so many times what it was seen to use, so that it can use more if it wants more: what it is left is
/// the most that it can be seen to use.
const HEADROOM: f64 = 1.5;

/// Requests that a client makes at a time of a target that computation uses. With a second one waiting a disk goes on
/// where its head is and lets computation's requests stand.
const REQUESTS_BESIDE_COMPUTATION: u32 = 1;

/// A load that was not told anew for so long is not known any more.
const VALID: Duration = Duration::from_secs(300);

/// The part of a target that computation uses, from 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Load {
    /// Of late.
    pub present: f64,
    /// What its regular pattern says of the next minutes.
    pub expected: f64,
}

/// The last that was told, and when.
#[derive(Clone, Copy, Debug)]
pub(super) struct Told {
    pub(super) load: Load,
    pub(super) at: Duration,
}

/// How a target may be used now.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Allowance {
    /// Clients at a time.
    pub(super) users: usize,
    /// The part of the time in which each of these places is used.
    duty: f64,
    /// How long a burst lasts at most.
    pub(super) burst: Duration,
    /// Requests at a time of each of them, where computation is: what it asks for shall not stand behind a client's whole threads.
    pub(super) requests_max: Option<u32>,
}

impl Told {
    pub(super) fn is_known(&self, now: Duration) -> bool {
        now.saturating_sub(self.at) < VALID
    }
}

/// The part of a target's time that transfers have beside computation that uses so much of it: `1 − 1.5 · load`, the whole of it below
/// 0.05, and never less than [`SHARE_MIN`].
pub fn share_left(load: f64) -> f64 {
    if load < LOAD_IGNORED { 1.0 } else { (1.0 - HEADROOM * load).max(SHARE_MIN) }
}

impl Allowance {
    /// Of `users` privileged users computation leaves `users ·` [`share_left`]. That many places there are, rounded up, each used for
    /// its part of the time: so it is one rule above one user and below. Bursts become shorter by the same part, so that
    /// rests are short as well.
    pub(super) fn new(settings: &GrantSettings, told: Option<Told>, now: Duration) -> Allowance {
        let load = told.filter(|told| told.is_known(now)).map_or(0.0, |told| told.load.worst());
        let left = share_left(load);
        let users = f64::from(settings.users.max(1)) * left;
        let places = users.ceil().max(1.0);
        let duty = users / places;
        let burst = settings.burst.mul_f64(duty).max(settings.burst_min).min(settings.burst);
        let requests_max = (left < 1.0).then_some(REQUESTS_BESIDE_COMPUTATION);
        Allowance { users: places as usize, duty, burst, requests_max }
    }

    /// Whether places are never rested: a holder may go on if nobody waits.
    pub(super) fn is_full(&self) -> bool {
        self.duty >= 1.0
    }

    /// How long a burst takes a place, the rest after it included.
    pub(super) fn cycle(&self) -> Duration {
        self.burst + self.rest(self.burst)
    }

    /// How long a place is left alone after it was used for so long.
    pub(super) fn rest(&self, used: Duration) -> Duration {
        if self.is_full() { Duration::ZERO } else { used.mul_f64(1.0 / self.duty - 1.0) }
    }
}

impl Load {
    /// The higher one: a target that will be busy in a minute is left alone before, as one that is busy now.
    fn worst(self) -> f64 {
        // What a feed makes of a division by zero is no load.
        let sane = |value: f64| if value.is_finite() { value.clamp(0.0, 1.0) } else { 0.0 };
        sane(self.present).max(sane(self.expected))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn allowance(users: u32, load: f64) -> Allowance {
        let settings = GrantSettings { users, ..GrantSettings::default() };
        let told = Told { load: Load { present: load, expected: 0.0 }, at: Duration::ZERO };
        Allowance::new(&settings, Some(told), Duration::from_secs(1))
    }

    #[test]
    fn shrinks_below_one_user_and_grows_back() {
        let ms = Duration::from_millis;
        assert_eq!(allowance(1, 0.04), Allowance { users: 1, duty: 1.0, burst: ms(500), requests_max: None });
        assert_eq!(
            allowance(1, 0.5),
            Allowance { users: 1, duty: 0.25, burst: ms(125), requests_max: Some(1) }
        );
        assert_eq!(allowance(1, 0.5).rest(ms(125)), ms(375));
        assert_eq!(
            allowance(4, 0.5),
            Allowance { users: 1, duty: 1.0, burst: ms(500), requests_max: Some(1) }
        );
        assert_eq!(allowance(4, 0.9).users, 1);
        assert_eq!(allowance(1, 1.0).burst, ms(50));
    }

    #[test]
    fn a_feed_that_has_ended_limits_nobody() {
        let told = Told { load: Load { present: 1.0, expected: 1.0 }, at: Duration::ZERO };
        let settings = GrantSettings::default();
        assert!(!Allowance::new(&settings, Some(told), VALID - Duration::from_millis(1)).is_full());
        assert!(Allowance::new(&settings, Some(told), VALID).is_full());
        let nonsense = Told { load: Load { present: f64::NAN, expected: f64::INFINITY }, at: VALID };
        assert!(Allowance::new(&settings, Some(nonsense), VALID).is_full());
    }

    proptest! {
        #[test]
        fn leaves_computation_its_part_and_never_takes_all(users in 1u32..9, load in LOAD_IGNORED..2.0f64) {
            let allowance = allowance(users, load);
            let rest = allowance.rest(allowance.burst).as_secs_f64();
            let burst = allowance.burst.as_secs_f64();
            let used = allowance.users as f64 * burst / (burst + rest) / f64::from(users);
            prop_assert!((used - share_left(load)).abs() < 1e-6, "{used}");
            let cycle = GrantSettings::default().burst.as_secs_f64().max(0.05 / SHARE_MIN);
            prop_assert!(burst + rest <= cycle + 1e-6, "{burst} and {rest}");
        }
    }
}
