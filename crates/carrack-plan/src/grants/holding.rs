//! One privilege, as the server has it.

use std::time::Duration;

use super::messages::{Grant, Held, micros};
use super::turns::{ClientKey, Turn};

/// A client's privilege to use a target for a while.
#[derive(Clone, Debug)]
pub(super) struct Holding {
    pub(super) id: u64,
    pub(super) client: ClientKey,
    /// When it begins; later than now where it follows another one.
    pub(super) start: Duration,
    /// When the present burst began.
    pub(super) burst_start: Duration,
    /// When it ends, if somebody waits.
    pub(super) burst_end: Duration,
    /// Until when the client was told that it has it.
    pub(super) until: Duration,
    /// What the present burst was charged.
    pub(super) turn: Turn,
    /// What the client has told.
    pub(super) used: Use,
    /// Bytes after which it stops, and those moved when the burst began.
    pub(super) bytes_max: Option<u64>,
    pub(super) bytes_at_burst: u64,
    /// Requests at a time.
    pub(super) requests_max: Option<u32>,
    pub(super) others_wait: bool,
}

/// What a grant was used for, as far as it was told.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Use {
    pub(super) bytes: u64,
    pub(super) at: Duration,
    pub(super) is_idle: bool,
}

impl Holding {
    /// A burst from `start` on.
    pub(super) fn new(id: u64, client: ClientKey, start: Duration, burst: Duration, turn: Turn) -> Holding {
        Holding {
            id,
            client,
            start,
            burst_start: start,
            burst_end: start + burst,
            until: start + burst,
            turn,
            used: Use::default(),
            bytes_max: None,
            bytes_at_burst: 0,
            requests_max: None,
            others_wait: false,
        }
    }

    pub(super) fn is_running(&self, now: Duration) -> bool {
        self.start <= now
    }

    /// Begins another burst, as nobody waits.
    pub(super) fn go_on(&mut self, now: Duration, burst: Duration, turn: Turn) {
        self.burst_start = now;
        self.burst_end = now + burst;
        self.turn = turn;
        self.bytes_at_burst = self.used.bytes;
    }

    /// Begins earlier than it was planned.
    pub(super) fn pull_to(&mut self, now: Duration) {
        let earlier = self.start.saturating_sub(now);
        for time in [&mut self.start, &mut self.burst_start, &mut self.burst_end, &mut self.until] {
            *time -= earlier;
        }
    }

    /// How long the present burst took if it ends at `at`.
    pub(super) fn took(&self, at: Duration) -> Duration {
        at.saturating_sub(self.burst_start)
    }

    /// What it was used for so far.
    pub(super) fn tell(&mut self, now: Duration, held: &Held) {
        self.used = Use { bytes: held.bytes.max(self.used.bytes), at: now, is_idle: held.is_idle };
    }

    /// The rate at which it was used, once it was used for long enough to tell.
    pub(super) fn bytes_per_s(&self) -> Option<f64> {
        let span = self.used.at.saturating_sub(self.start).as_secs_f64();
        (span >= 0.02 && self.used.bytes > 0).then(|| self.used.bytes as f64 / span)
    }

    pub(super) fn to_grant(&self, target: &str, now: Duration) -> Grant {
        Grant {
            id: self.id,
            target: target.into(),
            starts_in_us: micros(self.start.saturating_sub(now)),
            ends_in_us: micros(self.until.saturating_sub(now)),
            bytes_max: self.bytes_max,
            requests_max: self.requests_max,
            others_wait: self.others_wait,
        }
    }
}
