//! The time in which the manager that holds a transfer's lease may act on it.

use std::time::Duration;

/// Lifetime of a lease that is not renewed, by the clock of the store.
pub const LEASE_LASTS: Duration = Duration::from_secs(6);

/// Interval between renewals of a lease.
pub const LEASE_RENEW_EVERY: Duration = Duration::from_secs(2);

/// Time after a renewal in which the holder acts: the lease ends a second later, which requests on their way
/// need.
const SURE_FOR: Duration = Duration::from_secs(5);

/// Send time of the last confirmed renewal, by a clock that counts suspend time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseRenewalTime {
    confirmed: Duration,
}

impl LeaseRenewalTime {
    /// Creates the term of a lease that was acquired by a request of this time.
    pub fn new(sent_at: Duration) -> LeaseRenewalTime {
        LeaseRenewalTime { confirmed: sent_at }
    }

    /// Confirms a renewal by its send time.
    pub fn confirm(&mut self, sent_at: Duration) {
        self.confirmed = self.confirmed.max(sent_at);
    }

    /// Returns true while no other manager can have the lease.
    pub fn is_certainly_held(&self, now: Duration) -> bool {
        now.saturating_sub(self.confirmed) < SURE_FOR
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_sure_for_less_than_it_lasts() {
        let s = Duration::from_secs;
        let mut term = LeaseRenewalTime::new(s(10));
        assert!(term.is_certainly_held(s(14)) && !term.is_certainly_held(s(15)) && SURE_FOR < LEASE_LASTS);
        term.confirm(s(12));
        // A confirmation of an earlier renewal comes late.
        term.confirm(s(11));
        assert!(term.is_certainly_held(s(16)) && !term.is_certainly_held(s(17)));
    }
}
