//! One privilege, as the server keeps it.

use std::time::Duration;

use super::messages::{GrantUseReport, TargetGrant, micros};
use super::turns::{GrantClientNumber, GrantTurn};

/// A client's privilege to use a target for a while.
#[derive(Clone, Debug)]
pub(super) struct ServerGrantRecord {
    pub(super) id: u64,
    pub(super) client: GrantClientNumber,
    /// Begin; in the future where it follows another privilege.
    pub(super) start: Duration,
    /// Begin of the present burst.
    pub(super) burst_start: Duration,
    /// End of the present burst, if others wait.
    pub(super) burst_end: Duration,
    /// End of the grant as the client knows it.
    pub(super) until: Duration,
    /// The charge for the present burst.
    pub(super) turn: GrantTurn,
    /// The use that the client has reported.
    pub(super) used: GrantUse,
    /// Bytes after which it stops, and those moved when the burst began.
    pub(super) bytes_max: Option<u64>,
    pub(super) bytes_at_burst: u64,
    /// Upper bound of requests in flight.
    pub(super) requests_max: Option<u32>,
    pub(super) others_wait: bool,
}

/// The use of a grant, by the client's reports.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct GrantUse {
    pub(super) bytes: u64,
    pub(super) at: Duration,
    pub(super) is_idle: bool,
}

impl ServerGrantRecord {
    /// Creates a privilege with a burst from `start` on.
    pub(super) fn new(
        id: u64,
        client: GrantClientNumber,
        start: Duration,
        burst: Duration,
        turn: GrantTurn,
    ) -> ServerGrantRecord {
        ServerGrantRecord {
            id,
            client,
            start,
            burst_start: start,
            burst_end: start + burst,
            until: start + burst,
            turn,
            used: GrantUse::default(),
            bytes_max: None,
            bytes_at_burst: 0,
            requests_max: None,
            others_wait: false,
        }
    }

    pub(super) fn is_running(&self, now: Duration) -> bool {
        self.start <= now
    }

    /// Begins another burst, as no other client waits.
    pub(super) fn start_next_burst(&mut self, now: Duration, burst: Duration, turn: GrantTurn) {
        self.burst_start = now;
        self.burst_end = now + burst;
        self.turn = turn;
        self.bytes_at_burst = self.used.bytes;
    }

    /// Begins earlier than planned.
    pub(super) fn bring_forward_to(&mut self, now: Duration) {
        let earlier = self.start.saturating_sub(now);
        for time in [&mut self.start, &mut self.burst_start, &mut self.burst_end, &mut self.until] {
            *time -= earlier;
        }
    }

    /// Returns the length of the present burst if it ends at `at`.
    pub(super) fn burst_length(&self, at: Duration) -> Duration {
        at.saturating_sub(self.burst_start)
    }

    /// Records the use so far.
    pub(super) fn record_use(&mut self, now: Duration, held: &GrantUseReport) {
        self.used = GrantUse { bytes: held.bytes.max(self.used.bytes), at: now, is_idle: held.is_idle };
    }

    /// Returns the rate of its use, once it was used for long enough to tell.
    pub(super) fn bytes_per_s(&self) -> Option<f64> {
        let span = self.used.at.saturating_sub(self.start).as_secs_f64();
        (span >= 0.02 && self.used.bytes > 0).then(|| self.used.bytes as f64 / span)
    }

    pub(super) fn to_grant(&self, target: &str, now: Duration) -> TargetGrant {
        TargetGrant {
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
