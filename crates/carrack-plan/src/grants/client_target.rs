//! A client's state of one target, with its grants.

use std::sync::Arc;
use std::time::Duration;

use super::messages::{GrantRequest, GrantUseReport, MovedBytes, TargetGrant, micros};
use crate::policy::{StorageRequestTiming, TargetState};

/// Weight of the last request in the interval between requests.
const APART_WEIGHT: f64 = 0.2;

/// One target, as the client keeps it.
#[derive(Clone, Debug)]
pub(super) struct GrantClientTarget {
    pub(super) name: Arc<str>,
    pub(super) waiting: usize,
    waiting_bytes: u64,
    pub(super) in_service: u32,
    /// Time since which it has been wanted without a grant.
    wanted_since: Option<Duration>,
    /// The first and the last of the batches that have asked for it ever since.
    asked_in: Option<(u64, u64)>,
    /// Time of the server's last word on it.
    known_at: Option<Duration>,
    pub(super) used_at: Duration,
    /// End of its last request, and the recent interval between its requests while it has some; zero while
    /// unknown.
    ended_at: Duration,
    apart: Duration,
    pub(super) grants: Vec<OwnGrant>,
    moved: OwnBytes,
}

/// Bytes moved from or to a target: in all, in the last batch that reported it, and in the last answered
/// batch.
#[derive(Clone, Copy, Debug, Default)]
struct OwnBytes {
    all: u64,
    said: u64,
    said_in: u64,
    heard: u64,
}

/// A grant as the client has it. It starts at the later and ends at the earlier of the possible times, as the
/// travel time of batch and answer is unknown.
#[derive(Clone, Copy, Debug)]
pub(super) struct OwnGrant {
    pub(super) id: u64,
    pub(super) from: Duration,
    pub(super) until: Duration,
    bytes_max: Option<u64>,
    requests_max: Option<u32>,
    pub(super) others_wait: bool,
    bytes_begun: u64,
    bytes: u64,
    objects: u64,
    busy: Duration,
}

impl GrantClientTarget {
    pub(super) fn new(name: Arc<str>) -> GrantClientTarget {
        GrantClientTarget {
            name,
            waiting: 0,
            waiting_bytes: 0,
            in_service: 0,
            wanted_since: None,
            asked_in: None,
            known_at: None,
            used_at: Duration::ZERO,
            ended_at: Duration::ZERO,
            apart: Duration::ZERO,
            grants: Vec::new(),
            moved: OwnBytes::default(),
        }
    }

    /// Returns true if bytes were moved that no answered batch has reported.
    pub(super) fn has_unreported(&self) -> bool {
        self.moved.all > self.moved.heard
    }

    /// Returns the unreported bytes, for the batch with this number.
    pub(super) fn report_moved_bytes(&mut self, number: u64) -> Option<MovedBytes> {
        if !self.has_unreported() {
            return None;
        }
        self.moved = OwnBytes { said: self.moved.all, said_in: number, ..self.moved };
        Some(MovedBytes { target: (*self.name).to_owned(), bytes: self.moved.all })
    }

    /// Returns true if the server has answered about it: before, one request may start.
    pub(super) fn is_known(&self) -> bool {
        self.known_at.is_some()
    }

    /// Returns the grant under which an object may be begun now.
    pub(super) fn open_grant(
        &mut self,
        now: Duration,
        silent_since: Option<Duration>,
    ) -> Option<&mut OwnGrant> {
        self.grants.iter_mut().find(|grant| grant.is_open(now, silent_since))
    }

    /// Records a finished request, under the latest grant that has begun.
    pub(super) fn record_finish(&mut self, service: StorageRequestTiming, now: Duration) {
        self.used_at = now;
        self.record_service_time(service, now);
        self.moved.all = self.moved.all.saturating_add(service.bytes);
        let grant = self.grants.iter_mut().filter(|grant| grant.from <= now).max_by_key(|grant| grant.from);
        if let Some(grant) = grant {
            grant.objects += 1;
            grant.bytes = grant.bytes.saturating_add(service.bytes);
            grant.busy += service.time;
        }
    }

    /// Measures a request: its own time if the target was idle before, else the time since the request before
    /// it. Waiting for other requests does not count.
    fn record_service_time(&mut self, service: StorageRequestTiming, now: Duration) {
        let apart = service.time.min(now.saturating_sub(self.ended_at));
        self.ended_at = now;
        self.apart = match self.apart {
            Duration::ZERO => apart,
            known => known.mul_f64(1.0 - APART_WEIGHT) + apart.mul_f64(APART_WEIGHT),
        };
    }

    /// Returns true if one more request may start while `in_service` are in service.
    pub(super) fn may_start_request(
        &self,
        in_service: u32,
        now: Duration,
        silent_since: Option<Duration>,
    ) -> bool {
        // With an answer missing, a grant's end is no end.
        let done_at =
            now + if silent_since.is_some() { Duration::ZERO } else { self.apart * (in_service + 1) };
        let grants = &mut self.grants.iter().filter(|grant| grant.is_open(now, silent_since));
        grants.any(|grant| grant.allows_request(in_service, done_at))
    }

    /// Resets the queue's state until [`set_queue_state`](Self::set_queue_state) updates it, and removes
    /// grants that have ended.
    pub(super) fn expire_grants(
        &mut self,
        now: Duration,
        missing_since: Option<Duration>,
        stale_after: Duration,
    ) {
        (self.waiting, self.waiting_bytes, self.in_service) = (0, 0, 0);
        self.grants.retain(|grant| grant.until > now || missing_since.is_some_and(|at| grant.until > at));
        let is_stale = self.known_at.is_some_and(|at| at + stale_after <= now);
        if is_stale && self.grants.is_empty() {
            self.known_at = None;
            self.asked_in = None;
        }
    }

    /// Returns true if it has no work, no grants and no unreported bytes.
    pub(super) fn is_quiet(&self) -> bool {
        self.waiting == 0 && self.in_service == 0 && self.grants.is_empty() && !self.has_unreported()
    }

    /// Takes the state of its queue.
    pub(super) fn set_queue_state(&mut self, now: Duration, state: &TargetState) {
        self.waiting = state.waiting;
        self.waiting_bytes = state.waiting_bytes;
        self.in_service = state.in_service;
        let has_none = !self.grants.iter().any(|grant| grant.from <= now);
        self.wanted_since = (state.waiting > 0 && has_none).then(|| self.wanted_since.unwrap_or(now));
    }

    /// Returns true for work that the last batch, with this number, did not ask for.
    pub(super) fn has_unrequested_work(&self, last: u64) -> bool {
        let was_asked = self.asked_in.is_some_and(|(_, in_last)| in_last == last);
        self.waiting > 0 && self.grants.is_empty() && !was_asked
    }

    /// Returns true if it has been without work for the linger time, so that probably no more comes.
    pub(super) fn is_dry(&self, grant: &OwnGrant, now: Duration, linger: Duration) -> bool {
        let idle_since = self.used_at.max(grant.from);
        self.waiting == 0 && self.in_service == 0 && idle_since + linger <= now
    }

    /// Returns true if others wait for a grant that is not used any more.
    pub(super) fn should_return(&self, grant: &OwnGrant, now: Duration, linger: Duration) -> bool {
        let is_used_up = grant.is_used_up() && self.in_service == 0;
        grant.others_wait && grant.from <= now && (is_used_up || self.is_dry(grant, now, linger))
    }

    /// Returns the wish for it, if there is one, for the batch with this number.
    pub(super) fn make_request(&mut self, number: u64, now: Duration) -> Option<GrantRequest> {
        if self.waiting == 0 {
            self.asked_in = None;
            return None;
        }
        self.asked_in = Some((self.asked_in.map_or(number, |(first, _)| first), number));
        Some(GrantRequest {
            target: (*self.name).to_owned(),
            objects: self.waiting as u64,
            bytes: self.waiting_bytes,
            waits_us: self.wanted_since.map_or(0, |since| micros(now.saturating_sub(since))),
        })
    }

    /// Learns from the answer to the batch with this number that the use of the target is decided.
    pub(super) fn record_answer(&mut self, number: u64, now: Duration) {
        if self.moved.said_in <= number {
            self.moved.heard = self.moved.said;
        }
        if !self.grants.is_empty() || self.asked_in.is_some_and(|(first, _)| first <= number) {
            self.known_at = Some(now);
        }
    }

    /// Replaces the grants by those of the answer to a batch sent at `sent_at`.
    pub(super) fn take_grants(&mut self, grants: &[&TargetGrant], sent_at: Duration, now: Duration) {
        let known = std::mem::take(&mut self.grants);
        let grants = grants.iter().map(|grant| {
            let known = known.iter().find(|known| known.id == grant.id);
            OwnGrant::new(grant, known, sent_at, now)
        });
        self.grants = grants.collect();
    }
}

impl OwnGrant {
    fn new(grant: &TargetGrant, known: Option<&OwnGrant>, sent_at: Duration, now: Duration) -> OwnGrant {
        let from = match grant.starts_in_us {
            0 => known.map_or(now, |known| known.from.min(now)),
            starts_in => now + Duration::from_micros(starts_in),
        };
        OwnGrant {
            id: grant.id,
            from,
            until: sent_at + Duration::from_micros(grant.ends_in_us),
            bytes_max: grant.bytes_max,
            requests_max: grant.requests_max,
            others_wait: grant.others_wait,
            bytes_begun: known.map_or(0, |known| known.bytes_begun),
            bytes: known.map_or(0, |known| known.bytes),
            objects: known.map_or(0, |known| known.objects),
            busy: known.map_or(Duration::ZERO, |known| known.busy),
        }
    }

    /// Returns true if the grant allows a request. `silent_since` is set if the server has owed an answer
    /// since then, for longer than usual. A grant that ended meanwhile stays open: most likely the server
    /// granted the target to no other client.
    pub(super) fn is_open(&self, now: Duration, silent_since: Option<Duration>) -> bool {
        let until = if silent_since.is_some_and(|at| self.until > at) { Duration::MAX } else { self.until };
        self.from <= now && now < until && !self.is_used_up()
    }

    /// Returns true if one more request may start while `in_service` are in service; it would be done at
    /// `done_at`.
    ///
    /// While others wait, a request must end before the grant, except for a single one. Requests left over
    /// delay the next client, which then leaves more of them: such a queue never gets shorter, and the
    /// threads waiting in it are missing at other targets.
    fn allows_request(&self, in_service: u32, done_at: Duration) -> bool {
        let is_in_time = !self.others_wait || in_service == 0 || done_at <= self.until;
        is_in_time && self.requests_max.is_none_or(|most| in_service < most)
    }

    pub(super) fn record_begun_bytes(&mut self, bytes: u64) {
        self.bytes_begun = self.bytes_begun.saturating_add(bytes);
    }

    fn is_used_up(&self) -> bool {
        self.bytes_max.is_some_and(|most| self.bytes_begun >= most)
    }

    pub(super) fn use_report(&self, target: &str, now: Duration, is_idle: bool) -> GrantUseReport {
        GrantUseReport {
            id: self.id,
            target: target.to_owned(),
            starts_in_us: micros(self.from.saturating_sub(now)),
            ends_in_us: micros(self.until.saturating_sub(now)),
            objects: self.objects,
            bytes: self.bytes,
            busy_us: micros(self.busy),
            is_idle,
        }
    }
}
