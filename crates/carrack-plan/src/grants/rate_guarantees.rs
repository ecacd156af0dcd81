//! Guaranteed rates: how far a client or a class is behind its own (L13).

use std::time::Duration;

use super::messages::TransferDeadlineDemand;
use super::settings::GrantClientClass;

/// Upper bound of the lateness: bytes denied earlier are lost, as the client could not take them, or there
/// was not enough for all.
const BEHIND_MAX: Duration = Duration::from_secs(5);

/// Upper bound of the time for which a client ahead of its minimum gets no guarantee: about the bytes of
/// bursts on all targets at once.
const AHEAD_MAX: Duration = Duration::from_secs(1);

/// A clock that each byte advances by its time at the guaranteed rate: behind the wall clock, the guarantee
/// is not kept.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct GuaranteedRateClock {
    paid_until: Duration,
}

impl GuaranteedRateClock {
    /// Books bytes that were moved. With `is_hungry` the client would have moved more; otherwise no byte was
    /// denied.
    pub(super) fn charge(&mut self, now: Duration, bytes: u64, bytes_per_s: u64, is_hungry: bool) {
        let oldest = if is_hungry { now.saturating_sub(BEHIND_MAX) } else { now };
        if bytes_per_s == 0 {
            self.paid_until = now;
            return;
        }
        let span = Duration::try_from_secs_f64(bytes as f64 / bytes_per_s as f64).unwrap_or(AHEAD_MAX);
        self.paid_until = self.paid_until.saturating_add(span).clamp(oldest, now + AHEAD_MAX);
    }

    /// Returns how far the client is behind.
    pub(super) fn lateness(&self, now: Duration) -> Duration {
        now.saturating_sub(self.paid_until)
    }

    /// Creates a clock that begins now.
    pub(super) fn starting(now: Duration) -> GuaranteedRateClock {
        GuaranteedRateClock { paid_until: now }
    }
}

/// A class, and the clock of its common guarantee.
#[derive(Debug)]
pub(super) struct ClassState {
    pub(super) class: GrantClientClass,
    pub(super) clock: GuaranteedRateClock,
}

/// Returns the guaranteed rate of a client of this class: its minimum, or the rate of its deadline if that is
/// higher.
pub(super) fn guaranteed_to_client(
    class: &GrantClientClass,
    deadline: Option<TransferDeadlineDemand>,
) -> u64 {
    let by_deadline = deadline.map_or(0, |deadline| {
        let rate = u128::from(deadline.bytes_left) * 1_000 / u128::from(deadline.in_ms.max(1));
        u64::try_from(rate).unwrap_or(u64::MAX).min(class.deadline_bytes_per_s)
    });
    class.client_bytes_per_s.max(by_deadline)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn is_behind_by_what_was_denied_and_no_more() {
        let mut clock = GuaranteedRateClock::starting(s(10));
        clock.charge(s(11), 50, 100, true);
        assert_eq!(clock.lateness(s(11)), Duration::from_millis(500));
        clock.charge(s(12), 1_000, 100, true);
        assert_eq!((clock.lateness(s(12)), clock.lateness(s(14))), (s(0), s(1)), "ahead by a second at most");
        clock.charge(s(60), 0, 100, true);
        assert_eq!(clock.lateness(s(60)), BEHIND_MAX);
        clock.charge(s(61), 0, 100, false);
        assert_eq!(clock.lateness(s(61)), s(0), "who asks for nothing is denied nothing");
    }

    #[test]
    fn a_deadline_makes_a_rate_as_far_as_the_class_allows() {
        let class = GrantClientClass {
            client_bytes_per_s: 10,
            deadline_bytes_per_s: 1_000,
            ..GrantClientClass::default()
        };
        fn rate(class: &GrantClientClass, bytes_left: u64, in_ms: u64) -> u64 {
            guaranteed_to_client(class, Some(TransferDeadlineDemand { bytes_left, in_ms }))
        }
        let rates = [rate(&class, 5_000, 10_000), rate(&class, 50, 10_000), rate(&class, u64::MAX, 0)];
        assert_eq!(rates, [500, 10, 1_000]);
        assert_eq!(
            guaranteed_to_client(
                &GrantClientClass::default(),
                Some(TransferDeadlineDemand { bytes_left: 9, in_ms: 1 })
            ),
            0
        );
    }
}
