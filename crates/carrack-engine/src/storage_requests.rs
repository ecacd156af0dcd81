//! Requests to storage that have not returned, of the ends in this process: their targets and ages.
//!
//! I/O threads enter a request before its system call and remove it afterwards, without a lock. The comm
//! thread of each end's first lane looks at old ones twice a second; after a signal any thread may.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use carrack_model::{StorageDelay, TargetId};

use crate::role::SessionRole;
use crate::storage_retries::{RetryingLane, StorageRetries};
use crate::suspension_detector::SuspensionDetector;

/// The age at which a request is reported first: a busy disk array or a failover of a server's path takes a
/// few seconds.
const REPORTED_AFTER: Duration = Duration::from_secs(10);

/// The largest number of requests that are noted at a time: more than the threads of any session. Further
/// ones run unnoted.
const REQUESTS_MAX: usize = 512;

/// The start of a request in a free entry, and in one that is being filled.
const FREE: u64 = 0;
const CLAIMED: u64 = u64::MAX;

/// The bit of [`RequestEntry::target`] that is set for requests of the sink.
const OF_SINK: u64 = 1 << 63;

/// The noted requests of all ends in a process that belong to one transfer.
pub(crate) struct StorageRequests {
    entries: Box<[RequestEntry]>,
    /// The entry at which the next search for a free one begins.
    next: AtomicUsize,
    created: Instant,
    /// Names of targets with requests, which are needed after the session's own tables are gone.
    labels: Mutex<HashMap<(SessionRole, TargetId), String>>,
}

#[derive(Default)]
struct RequestEntry {
    /// Milliseconds from the table's creation to the request's start, plus 1; [`FREE`] or [`CLAIMED`].
    began: AtomicU64,
    target: AtomicU64,
}

/// A request in progress; it ends when this is dropped.
pub(crate) struct OutstandingRequest<'a>(Option<&'a RequestEntry>);

impl Drop for OutstandingRequest<'_> {
    fn drop(&mut self) {
        if let Some(entry) = self.0 {
            entry.began.store(FREE, Release);
        }
    }
}

/// The outstanding requests of one target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TargetRequests {
    role: SessionRole,
    target: TargetId,
    count: u64,
    oldest: Duration,
}

impl StorageRequests {
    pub(crate) fn new() -> StorageRequests {
        StorageRequests {
            entries: (0..REQUESTS_MAX).map(|_| RequestEntry::default()).collect(),
            next: AtomicUsize::new(0),
            created: Instant::now(),
            labels: Mutex::default(),
        }
    }

    fn begin(&self, role: SessionRole, target: TargetId) -> OutstandingRequest<'_> {
        let first = self.next.fetch_add(1, Relaxed) % REQUESTS_MAX;
        let (before, after) = self.entries.split_at(first);
        let free = after.iter().chain(before).find(|entry| {
            entry.began.load(Relaxed) == FREE
                && entry.began.compare_exchange(FREE, CLAIMED, Acquire, Relaxed).is_ok()
        });
        if let Some(entry) = free {
            let side = if role == SessionRole::Sink { OF_SINK } else { 0 };
            entry.target.store(target.0 & !OF_SINK | side, Relaxed);
            entry.began.store(self.created.elapsed().as_millis() as u64 + 1, Release);
        }
        OutstandingRequest(free)
    }

    /// Returns the outstanding requests by target, the oldest first.
    fn by_target(&self, now: Instant) -> Vec<TargetRequests> {
        let mut targets: Vec<TargetRequests> = Vec::new();
        let now_ms = now.saturating_duration_since(self.created).as_millis() as u64;
        for entry in &self.entries {
            let (began, target) = (entry.began.load(Acquire), entry.target.load(Acquire));
            // An entry that changed in between holds another request.
            if matches!(began, FREE | CLAIMED) || entry.began.load(Relaxed) != began {
                continue;
            }
            let role = if target & OF_SINK != 0 { SessionRole::Sink } else { SessionRole::Source };
            let target = TargetId(target & !OF_SINK);
            let age = Duration::from_millis(now_ms.saturating_sub(began - 1));
            match targets.iter_mut().find(|known| (known.role, known.target) == (role, target)) {
                Some(known) => {
                    known.count += 1;
                    known.oldest = known.oldest.max(age);
                }
                None => targets.push(TargetRequests { role, target, count: 1, oldest: age }),
            }
        }
        targets.sort_by_key(|target| std::cmp::Reverse(target.oldest));
        targets
    }

    fn labels(&self) -> MutexGuard<'_, HashMap<(SessionRole, TargetId), String>> {
        self.labels.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the outstanding requests in words: "3 requests to OST0004, the oldest for 42 s". `None` if
    /// there are none.
    pub(crate) fn describe(&self, now: Instant) -> Option<String> {
        let labels = self.labels();
        let texts: Vec<String> = self
            .by_target(now)
            .iter()
            .map(|requests| {
                let label =
                    labels.get(&(requests.role, requests.target)).map_or("the storage", String::as_str);
                let (count, age) = (requests.count, requests.oldest.as_secs());
                match count {
                    1 => format!("1 request to {label}, for {age} s"),
                    _ => format!("{count} requests to {label}, the oldest for {age} s"),
                }
            })
            .collect();
        (!texts.is_empty()).then(|| texts.join("; "))
    }
}

/// The requests of one end.
#[derive(Clone)]
pub(crate) struct EndStorageRequests {
    table: Arc<StorageRequests>,
    role: SessionRole,
    /// The target of requests that concern no other one.
    own: TargetId,
    retries: Arc<StorageRetries>,
}

impl EndStorageRequests {
    /// Notes the requests of an end in `table`. Those without a target of their own are to `own`, which has
    /// this label for messages.
    pub(crate) fn new(
        table: Arc<StorageRequests>,
        role: SessionRole,
        (own, label): (TargetId, Option<String>),
    ) -> EndStorageRequests {
        let mut labels = table.labels();
        // Another session numbers its targets anew.
        labels.retain(|(other, _), _| *other != role);
        labels.extend(label.map(|label| ((role, own), label)));
        drop(labels);
        EndStorageRequests { table, role, own, retries: Arc::default() }
    }

    /// Returns the errors of this end's storage.
    pub(crate) fn retries(&self) -> &StorageRetries {
        &self.retries
    }

    /// Runs a request, which is noted until it returns, and repeats it after an error that may pass.
    pub(crate) fn run_with_retries<T, E: std::fmt::Display>(
        &self,
        target: Option<TargetId>,
        lane: &dyn RetryingLane,
        mut request: impl FnMut(u32) -> Result<T, E>,
        may_pass: impl Fn(&E) -> bool,
    ) -> Result<T, E> {
        let target = target.unwrap_or(self.own);
        let noted = |failed| {
            let _outstanding = self.table.begin(self.role, target);
            request(failed)
        };
        self.retries.run(target, lane, noted, may_pass)
    }

    /// Counts an entry that failed by an error that did not pass.
    pub(crate) fn count_failed(&self, target: Option<TargetId>) {
        self.retries.count_failed(target.unwrap_or(self.own));
    }

    /// Notes a request that begins now, to a target if it is known.
    pub(crate) fn begin(&self, target: Option<TargetId>) -> OutstandingRequest<'_> {
        self.table.begin(self.role, target.unwrap_or(self.own))
    }
}

/// Reports targets of one end that do not answer. Checked twice a second.
pub(crate) struct StorageDelayWatch {
    requests: EndStorageRequests,
    reported: HashMap<TargetId, ReportedDelay>,
    presence: SuspensionDetector,
}

/// A delay that the user knows.
struct ReportedDelay {
    label: String,
    /// The age of the oldest request at which it is reported again.
    next: Duration,
    longest: Duration,
}

impl StorageDelayWatch {
    pub(crate) fn new(requests: EndStorageRequests) -> StorageDelayWatch {
        let presence = SuspensionDetector::new(Instant::now());
        StorageDelayWatch { requests, reported: HashMap::new(), presence }
    }

    /// Returns the delays to report now: a target's oldest request is 10, 20, 40 s old and so on, or a
    /// reported target answers again. `label` names a target.
    pub(crate) fn check(
        &mut self,
        now: Instant,
        label: impl Fn(TargetId) -> Option<String>,
    ) -> Vec<StorageDelay> {
        // Requests of a process that was stopped are old without fault of the storage.
        if self.presence.take_suspended_time(now) > Duration::ZERO {
            return Vec::new();
        }
        let EndStorageRequests { table, role, .. } = &self.requests;
        let own = table.by_target(now);
        let own: Vec<TargetRequests> = own.into_iter().filter(|requests| requests.role == *role).collect();
        let mut labels = table.labels();
        for requests in &own {
            let entry = labels.entry((*role, requests.target));
            entry.or_insert_with(|| label(requests.target).unwrap_or_else(|| "the storage".into()));
        }
        drop(labels);
        let mut delays = self.take_ended(&own);
        for requests in own.iter().filter(|requests| requests.oldest >= REPORTED_AFTER) {
            delays.extend(self.report_late(requests));
        }
        delays
    }

    fn take_ended(&mut self, own: &[TargetRequests]) -> Vec<StorageDelay> {
        let side = self.requests.role.side();
        let is_late = |target: TargetId| {
            own.iter().any(|requests| requests.target == target && requests.oldest >= REPORTED_AFTER)
        };
        let ended = self.reported.extract_if(|target, _| !is_late(*target));
        ended
            .map(|(_, reported)| StorageDelay {
                side,
                target: reported.label,
                requests: 0,
                seconds: reported.longest.as_secs(),
            })
            .collect()
    }

    fn report_late(&mut self, requests: &TargetRequests) -> Option<StorageDelay> {
        let (role, target) = (self.requests.role, requests.target);
        let label = self.requests.table.labels().get(&(role, target)).cloned().unwrap_or_default();
        let first = || ReportedDelay { label, next: REPORTED_AFTER, longest: Duration::ZERO };
        let reported = self.reported.entry(target).or_insert_with(first);
        reported.longest = reported.longest.max(requests.oldest);
        if requests.oldest < reported.next {
            return None;
        }
        while reported.next <= requests.oldest {
            reported.next *= 2;
        }
        Some(StorageDelay {
            side: role.side(),
            target: reported.label.clone(),
            requests: requests.count,
            seconds: requests.oldest.as_secs(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(table: &Arc<StorageRequests>, role: SessionRole) -> EndStorageRequests {
        EndStorageRequests::new(Arc::clone(table), role, (TargetId(1), None))
    }

    /// Returns the delays that a watch reports when it looks twice a second from `seconds` on.
    fn reported(watch: &mut StorageDelayWatch, from: Instant, seconds: std::ops::Range<u64>) -> Vec<String> {
        let times = seconds.start * 2..seconds.end * 2;
        let delays = times.flat_map(|half| {
            watch.check(from + Duration::from_millis(500 * half), |id| Some(format!("OST{:04}", id.0)))
        });
        delays.map(|delay| delay.to_string()).collect()
    }

    #[test]
    fn a_target_that_does_not_answer_is_reported_at_doubling_intervals() {
        let table = Arc::new(StorageRequests::new());
        let (sink, source) = (of(&table, SessionRole::Sink), of(&table, SessionRole::Source));
        let start = Instant::now();
        let mut watch = StorageDelayWatch::new(sink.clone());
        let old = [sink.begin(Some(TargetId(4))), sink.begin(Some(TargetId(4)))];
        let _of_the_source = source.begin(None);
        let said = reported(&mut watch, start, 0..50);
        assert_eq!(said.len(), 3, "{said:?}");
        assert!(said[0].starts_with("OST0004 (destination) has not answered for 1"), "{said:?}");
        assert!(said.iter().all(|line| line.ends_with("(2 requests)")), "{said:?}");
        drop(old);
        let said = reported(&mut watch, start, 50..60);
        assert!(said.len() == 1 && said[0].starts_with("OST0004 (destination) answers again, after 4"));
        assert!(reported(&mut watch, start, 60..70).is_empty());
    }

    #[test]
    fn what_returns_in_time_is_not_reported() {
        let table = Arc::new(StorageRequests::new());
        let own = of(&table, SessionRole::Source);
        let start = Instant::now();
        let mut watch = StorageDelayWatch::new(own.clone());
        let request = own.begin(None);
        assert!(reported(&mut watch, start, 0..9).is_empty());
        drop(request);
        assert!(reported(&mut watch, start, 9..40).is_empty());
    }

    #[test]
    fn requests_are_described_with_their_targets() {
        let table = Arc::new(StorageRequests::new());
        let own = of(&table, SessionRole::Sink);
        assert_eq!(table.describe(Instant::now()), None);
        let first = own.begin(Some(TargetId(7)));
        StorageDelayWatch::new(own.clone()).check(Instant::now(), |_| Some("OST0007".into()));
        let later = Instant::now() + Duration::from_secs(42);
        let said = table.describe(later).unwrap();
        assert!(said.starts_with("1 request to OST0007, for 4"), "{said}");
        let more: Vec<_> = (0..REQUESTS_MAX + 3).map(|_| own.begin(Some(TargetId(7)))).collect();
        let said = table.describe(later).unwrap();
        assert!(said.starts_with(&format!("{REQUESTS_MAX} requests to OST0007, the oldest for 4")), "{said}");
        drop((first, more));
        assert_eq!(table.describe(later), None);
    }
}
