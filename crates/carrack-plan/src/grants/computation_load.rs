//! The part of a target that computation leaves to transfers (L11, L15).

use std::time::Duration;

use super::settings::GrantSettings;

/// Lower bound of the part of the time that transfers get, however busy the target is.
pub const SHARE_MIN: f64 = 0.05;

/// Load below this counts as none: feeds report as much of an idle target, and a target that is not rested
/// need not change hands. Not larger than necessary: load from computation that transfers displace is hardly
/// visible there.
const LOAD_IGNORED: f64 = 0.05;

/// Factor between the load of computation and the part left to it, so that its load can grow: it can't be
/// seen to use more than it is left.
const HEADROOM: f64 = 1.5;

/// Upper bound of a client's requests at a target that computation uses. With a second one waiting a disk
/// continues where its head is and delays computation's requests.
const REQUESTS_BESIDE_COMPUTATION: u32 = 1;

/// Validity of a reported load.
const VALID: Duration = Duration::from_secs(300);

/// The part of a target that computation uses, from 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TargetComputeLoad {
    /// The recent load.
    pub present: f64,
    /// The load that the regular pattern predicts for the next minutes.
    pub expected: f64,
}

/// The last reported load, with its time.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReportedTargetLoad {
    pub(super) load: TargetComputeLoad,
    pub(super) at: Duration,
}

/// The permitted use of a target.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct TargetAllowance {
    /// Number of clients at a time.
    pub(super) users: usize,
    /// The part of the time in which each of these places is used.
    duty: f64,
    /// Upper bound of a burst.
    pub(super) burst: Duration,
    /// Upper bound of each client's requests where computation uses the target: its requests shall not wait
    /// behind all threads of a client.
    pub(super) requests_max: Option<u32>,
}

impl ReportedTargetLoad {
    pub(super) fn is_known(&self, now: Duration) -> bool {
        now.saturating_sub(self.at) < VALID
    }
}

/// Returns the part of a target's time that transfers have besides computation with this load: `1 − 1.5 ·
/// load`, all the time below 0.05, and never less than [`SHARE_MIN`].
pub fn share_left(load: f64) -> f64 {
    if load < LOAD_IGNORED { 1.0 } else { (1.0 - HEADROOM * load).max(SHARE_MIN) }
}

impl TargetAllowance {
    /// Computes the allowance: computation leaves `users ·` [`share_left`] of `users` privileged users. The
    /// number of places is that, rounded up, and each is used for its part of the time: so one rule holds
    /// above one user and below. Bursts become shorter by the same part, so that rests are short as well.
    pub(super) fn new(
        settings: &GrantSettings,
        told: Option<ReportedTargetLoad>,
        now: Duration,
    ) -> TargetAllowance {
        let load = told.filter(|told| told.is_known(now)).map_or(0.0, |told| told.load.worst());
        let left = share_left(load);
        let users = f64::from(settings.users.max(1)) * left;
        let places = users.ceil().max(1.0);
        let duty = users / places;
        let burst = settings.burst.mul_f64(duty).max(settings.burst_min).min(settings.burst);
        let requests_max = (left < 1.0).then_some(REQUESTS_BESIDE_COMPUTATION);
        TargetAllowance { users: places as usize, duty, burst, requests_max }
    }

    /// Returns true if places are never rested: a holder may continue if no other client waits.
    pub(super) fn is_unrestricted(&self) -> bool {
        self.duty >= 1.0
    }

    /// Returns the time that a burst takes a place, with the rest after it.
    pub(super) fn cycle(&self) -> Duration {
        self.burst + self.rest(self.burst)
    }

    /// Returns the rest of a place after a use of this length.
    pub(super) fn rest(&self, used: Duration) -> Duration {
        if self.is_unrestricted() { Duration::ZERO } else { used.mul_f64(1.0 / self.duty - 1.0) }
    }
}

impl TargetComputeLoad {
    /// Returns the higher load: a target that will be busy in a minute is left alone in advance.
    fn worst(self) -> f64 {
        clamp_load(self.present).max(clamp_load(self.expected))
    }
}

/// Bounds a load to 0 to 1; a feed's division by zero counts as no load.
fn clamp_load(load: f64) -> f64 {
    if load.is_finite() { load.clamp(0.0, 1.0) } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn allowance(users: u32, load: f64) -> TargetAllowance {
        let settings = GrantSettings { users, ..GrantSettings::default() };
        let told = ReportedTargetLoad {
            load: TargetComputeLoad { present: load, expected: 0.0 },
            at: Duration::ZERO,
        };
        TargetAllowance::new(&settings, Some(told), Duration::from_secs(1))
    }

    #[test]
    fn shrinks_below_one_user_and_grows_back() {
        let ms = Duration::from_millis;
        assert_eq!(
            allowance(1, 0.04),
            TargetAllowance { users: 1, duty: 1.0, burst: ms(500), requests_max: None }
        );
        assert_eq!(
            allowance(1, 0.5),
            TargetAllowance { users: 1, duty: 0.25, burst: ms(125), requests_max: Some(1) }
        );
        assert_eq!(allowance(1, 0.5).rest(ms(125)), ms(375));
        assert_eq!(
            allowance(4, 0.5),
            TargetAllowance { users: 1, duty: 1.0, burst: ms(500), requests_max: Some(1) }
        );
        assert_eq!(allowance(4, 0.9).users, 1);
        assert_eq!(allowance(1, 1.0).burst, ms(50));
    }

    #[test]
    fn a_feed_that_has_ended_limits_nobody() {
        let told = ReportedTargetLoad {
            load: TargetComputeLoad { present: 1.0, expected: 1.0 },
            at: Duration::ZERO,
        };
        let settings = GrantSettings::default();
        assert!(
            !TargetAllowance::new(&settings, Some(told), VALID - Duration::from_millis(1)).is_unrestricted()
        );
        assert!(TargetAllowance::new(&settings, Some(told), VALID).is_unrestricted());
        let nonsense = ReportedTargetLoad {
            load: TargetComputeLoad { present: f64::NAN, expected: f64::INFINITY },
            at: VALID,
        };
        assert!(TargetAllowance::new(&settings, Some(nonsense), VALID).is_unrestricted());
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
