//! What an administrator sets: bursts, privileged users, leases, classes; and the bound of waiting that follows.

use std::time::Duration;

use super::health::SHARE_MIN;

/// How much of a target's time guarantees may take, for each second of it that goes by weight: at most three quarters.
pub const RESERVED_TO_FAIR: u32 = 3;

/// How a server grants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrantSettings {
    /// Clients that work on a target at a time, if computation leaves it alone. One: whatever more there are compete.
    pub users: u32,
    /// How long a holder goes on while others wait. Half a second: a change of hands costs a disk tens of milliseconds.
    pub burst: Duration,
    /// Where many wait, bursts become shorter, so that everybody has had a turn after so long, ...
    pub round: Duration,
    /// ... but not shorter than this.
    pub burst_short: Duration,
    /// The bytes after which it stops, should these come first.
    pub burst_bytes: u64,
    /// What a burst is not shortened below, however busy the target is.
    pub burst_min: Duration,
    /// How long a client's grants last that nobody else waits for and that it does not renew. Longer than
    /// [`away_after`](super::ClientSettings::away_after), so that nobody stops in between when the server is away.
    pub lease: Duration,
    /// How often clients send batches. A burst is several of them.
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
    /// A client that was not heard of for two periods is passed by; so long is a target free for nobody at most, too, when
    /// somebody gives it back early.
    pub fn silence(&self) -> Duration {
        self.period * 2
    }

    /// After so long a wish comes before what its own client would go on with.
    pub fn aged(&self) -> Duration {
        self.burst * 4
    }

    /// How long a place at a target is taken by one burst at most, with the rest after it and the gap to the next, if computation leaves
    /// this share of it.
    fn cycle(&self, share: f64) -> Duration {
        let rested = self.burst_min.mul_f64(1.0 / share.clamp(SHARE_MIN, 1.0));
        self.burst.max(rested) + self.silence()
    }
}

/// Clients that are treated alike. Their weight is that of each client, not of all together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Class {
    /// The part of a target's time, in proportion to others'; at least 1.
    pub weight: u32,
    /// Guaranteed to each client, over all targets, in bytes per second; 0 for none.
    pub client_bytes_per_s: u64,
    /// Guaranteed to all of its clients together; 0 for none.
    pub class_bytes_per_s: u64,
    /// What a client's deadline may claim at most; 0 if it can't have one.
    pub deadline_bytes_per_s: u64,
}

impl Default for Class {
    fn default() -> Class {
        Class { weight: 1, client_bytes_per_s: 0, class_bytes_per_s: 0, deadline_bytes_per_s: 0 }
    }
}

/// How long a client waits for a target at most, if it has threads to spare.
#[derive(Clone, Debug, PartialEq)]
pub struct WaitingBound {
    /// Its class's weight.
    pub weight: u32,
    /// The weights of all others that use the target.
    pub others: Vec<u32>,
    /// Whether any of them has a guarantee.
    pub has_guarantees: bool,
    /// Clients that die meanwhile.
    pub deaths: u32,
    /// What computation leaves of the target at least; 1 if nobody computes.
    pub share: f64,
}

impl WaitingBound {
    /// From when the server hears of the wish to the beginning of the grant, with batches at most two periods apart.
    ///
    /// With `C` the longest cycle of burst, rest and gap, `P` places and `Q = C · Σ (1 + w_j / w)`: `2C + Q/P`, with guarantees
    /// `2C + (4Q + 4C)/P`; each death adds a lease and a cycle.
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
