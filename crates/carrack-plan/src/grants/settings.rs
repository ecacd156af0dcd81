//! The administrator's settings: bursts, privileged users, leases, classes; and the resulting bound of
//! waiting.

use std::time::Duration;

use super::computation_load::SHARE_MIN;

/// Upper bound of a target's time for guarantees, per second of its time by weight: at most three quarters in
/// all.
pub const RESERVED_TO_FAIR: u32 = 3;

/// Settings of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrantSettings {
    /// Clients that work on a target at a time, if computation leaves it alone. One: more of them would
    /// compete.
    pub users: u32,
    /// Length of a burst while others wait. Half a second: a change of hands costs a disk tens of
    /// milliseconds.
    pub burst: Duration,
    /// Time in which each of many waiting clients has had a turn: bursts become shorter for it, ...
    pub round: Duration,
    /// ... but not shorter than this.
    pub burst_short: Duration,
    /// Bytes after which a burst ends early.
    pub burst_bytes: u64,
    /// Lower bound of a burst, however busy the target is.
    pub burst_min: Duration,
    /// Lifetime of a client's grants that no other client waits for and that it does not renew. Longer than
    /// [`away_after`](super::GrantClientSettings::away_after), so that no client stops in between when the
    /// server is away.
    pub lease: Duration,
    /// Interval between a client's batches. A burst is several of them.
    pub period: Duration,
}

impl Default for GrantSettings {
    fn default() -> GrantSettings {
        GrantSettings {
            users: 1,
            burst: Duration::from_millis(500),
            round: Duration::from_secs(3),
            burst_short: Duration::from_millis(250),
            burst_bytes: 256 << 20,
            burst_min: Duration::from_millis(50),
            lease: Duration::from_secs(2),
            period: Duration::from_millis(100),
        }
    }
}

impl GrantSettings {
    /// Time without a batch after which a client is passed by: two periods. A target that is given back early
    /// is idle for as long at most, too.
    pub fn silence_limit(&self) -> Duration {
        self.period * 2
    }

    /// Age from which a wish precedes the other targets of its own client.
    pub fn aged_after(&self) -> Duration {
        self.burst * 4
    }

    /// Returns the longest time for which a burst takes a place at a target, with the rest after it and the
    /// gap to the next, if computation leaves this share of the target.
    fn cycle(&self, share: f64) -> Duration {
        let rested = self.burst_min.mul_f64(1.0 / share.clamp(SHARE_MIN, 1.0));
        self.burst.max(rested) + self.silence_limit()
    }
}

/// Clients that are treated alike. The weight is that of each client, not of all together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrantClientClass {
    /// The part of a target's time, in proportion to the weights of others; at least 1.
    pub weight: u32,
    /// Guaranteed to each client, over all targets, in bytes per second; 0 for none.
    pub client_bytes_per_s: u64,
    /// Guaranteed to all of its clients together; 0 for none.
    pub class_bytes_per_s: u64,
    /// Upper bound of the rate that a client's deadline guarantees; 0 for none.
    pub deadline_bytes_per_s: u64,
}

impl Default for GrantClientClass {
    fn default() -> GrantClientClass {
        GrantClientClass { weight: 1, client_bytes_per_s: 0, class_bytes_per_s: 0, deadline_bytes_per_s: 0 }
    }
}

/// The longest wait of a client for a target, if it has threads to spare.
#[derive(Clone, Debug, PartialEq)]
pub struct GrantWaitBound {
    /// Its class's weight.
    pub weight: u32,
    /// The weights of all others that use the target.
    pub others: Vec<u32>,
    /// True if any of them has a guarantee.
    pub has_guarantees: bool,
    /// Number of clients that die meanwhile.
    pub deaths: u32,
    /// The least share of the target that computation leaves; 1 without computation.
    pub share: f64,
}

impl GrantWaitBound {
    /// Returns the bound from the server's first sight of the wish to the begin of the grant, with batches at
    /// most two periods apart.
    ///
    /// With `C` the longest cycle of burst, rest and gap, `P` places and `Q = C · Σ (1 + w_j / w)`: `2C +
    /// Q/P`, with guarantees `2C + (4Q + 4C)/P`; each death adds a lease and a cycle.
    pub fn limit(&self, settings: &GrantSettings) -> Duration {
        let cycle = settings.cycle(self.share);
        let weight = f64::from(self.weight.max(1));
        let turns: f64 = self.others.iter().map(|&other| 1.0 + f64::from(other.max(1)) / weight).sum();
        let fair = cycle.mul_f64(turns);
        let reserved =
            if self.has_guarantees { (fair + cycle) * RESERVED_TO_FAIR + cycle } else { Duration::ZERO };
        let places = (f64::from(settings.users.max(1)) * self.share).ceil().max(1.0);
        let of_dead = (settings.lease + cycle) * self.deaths;
        cycle * 2 + (fair + reserved).div_f64(places) + of_dead
    }
}
