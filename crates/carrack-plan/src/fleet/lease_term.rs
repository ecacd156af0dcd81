//! How long the manager that has a transfer's lease may act for it.

use std::time::Duration;

/// A lease that is not renewed ends after so long, by the clock of whoever keeps it.
pub const LEASE_LASTS: Duration = Duration::from_secs(6);

/// How often a lease is renewed.
pub const LEASE_RENEW_EVERY: Duration = Duration::from_secs(2);

/// Beyond this it is no longer sure: it may end a second later, and what is on its way needs its time.
const SURE_FOR: Duration = Duration::from_secs(5);

/// When the last renewal that was confirmed was sent, by a clock that goes on while the machine sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseTerm {
    confirmed: Duration,
}

impl LeaseTerm {
    /// It was acquired by a request that was sent then.
    pub fn new(sent_at: Duration) -> LeaseTerm {
        LeaseTerm { confirmed: sent_at }
    }

    /// A renewal that was sent then was confirmed.
    pub fn confirm(&mut self, sent_at: Duration) {
        self.confirmed = self.confirmed.max(sent_at);
    }

    /// Whether nobody else can have it yet.
    pub fn is_sure(&self, now: Duration) -> bool {
        now.saturating_sub(self.confirmed) < SURE_FOR
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_sure_for_less_than_it_lasts() {
        let s = Duration::from_secs;
        let mut term = LeaseTerm::new(s(10));
        assert!(term.is_sure(s(14)) && !term.is_sure(s(15)) && SURE_FOR < LEASE_LASTS);
        term.confirm(s(12));
        // A confirmation of what was sent before comes late.
        term.confirm(s(11));
        assert!(term.is_sure(s(16)) && !term.is_sure(s(17)));
    }
}
