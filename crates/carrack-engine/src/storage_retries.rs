//! Requests to storage that are repeated after an error that may pass: the client was evicted by its server,
//! a server fails over, a connection to it broke.
//!
//! I/O threads repeat their own requests, and sleep in between; the states of the targets have one lock,
//! which is taken only after an error, and while a target is disturbed.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use carrack_layout::TargetAttachmentKind;
use carrack_model::{TargetId, UserNotice};
use carrack_storage::{SinkError, SourceError};
use rustix::io::Errno;

/// The time for which a target's requests are repeated while none of them succeeds. An evicted client has
/// reconnected after a few seconds, and a failover takes longer than a transfer should stand still.
const OUTAGE_MAX: Duration = Duration::from_secs(30);

/// The first and the longest wait between two tries.
const WAIT_MIN: Duration = Duration::from_millis(250);
const WAIT_MAX: Duration = Duration::from_secs(5);

/// The interval at which a waiting thread looks for the session's end.
const LOOK: Duration = Duration::from_millis(100);

/// Tries that may fail while others of the same target succeed: the fault is the file's then.
const FAILURES_BESIDE_SUCCESS: u32 = 3;

/// The duration of an outage after which the user is informed.
const REPORTED_AFTER: Duration = Duration::from_secs(1);

/// Returns true for an error of network storage after which the same request may succeed.
pub(crate) fn may_pass(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(Errno::IO | Errno::SHUTDOWN | Errno::TIMEDOUT | Errno::NOTCONN)
    )
}

/// Returns true for an error of the destination after which the same request may succeed.
pub(crate) fn sink_error_may_pass(error: &SinkError) -> bool {
    matches!(error, SinkError::Write { error, .. } if may_pass(error))
}

/// Returns true for an error of the source after which the same request may succeed.
pub(crate) fn source_error_may_pass(error: &SourceError) -> bool {
    matches!(error, SourceError::ReadError(error) if may_pass(error))
}

/// The session to which a repeated request belongs.
pub(crate) trait RetryingLane {
    /// Returns true if the session ends: nothing is repeated then.
    fn is_stopped(&self) -> bool;

    /// Returns the medium of a target, and its name for messages.
    fn target(&self, id: TargetId) -> Option<(TargetAttachmentKind, String)>;

    /// Delivers a message to the user.
    fn notify(&self, notice: UserNotice);
}

/// The disturbed targets of an end.
#[derive(Default)]
pub(crate) struct StorageRetries {
    /// Targets in an outage.
    outage_count: AtomicUsize,
    targets: Mutex<HashMap<TargetId, TargetErrors>>,
}

/// The errors of a target.
#[derive(Default)]
struct TargetErrors {
    /// The first error of the present outage.
    outage: Option<Outage>,
    /// Requests that succeeded during outages.
    success_count: u64,
    /// Entries that failed.
    failed_count: u64,
}

struct Outage {
    since: Instant,
    is_reported: bool,
    /// Set after [`OUTAGE_MAX`]: requests fail at once, until one succeeds.
    is_given_up: bool,
}

/// One request, with its failed tries.
#[derive(Default)]
struct FailedTries {
    count: u32,
    /// Failed tries while other requests to the target succeeded.
    beside_success: u32,
    /// The target's count of successes at the last failed try.
    success_count: u64,
}

impl StorageRetries {
    fn targets(&self) -> MutexGuard<'_, HashMap<TargetId, TargetErrors>> {
        self.targets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `request`, which gets the number of failed tries, until it succeeds or its error can't pass.
    ///
    /// On another host's storage it is repeated for up to 30 s in which no request to the target succeeds;
    /// on a disk of this host once.
    pub(crate) fn run<T, E: std::fmt::Display>(
        &self,
        target: TargetId,
        lane: &dyn RetryingLane,
        mut request: impl FnMut(u32) -> Result<T, E>,
        may_pass: impl Fn(&E) -> bool,
    ) -> Result<T, E> {
        let mut failed = FailedTries::default();
        loop {
            let error = match request(failed.count) {
                Ok(value) => {
                    self.note_success(target, lane);
                    return Ok(value);
                }
                Err(error) => error,
            };
            if !may_pass(&error) || lane.is_stopped() {
                return Err(error);
            }
            failed.count += 1;
            match self.next_wait(target, lane, &mut failed, &error) {
                Some(wait) if !wait_or_stop(wait, lane) => {}
                _ => return Err(error),
            }
        }
    }

    /// Returns the wait before the next try; `None` if there is none.
    fn next_wait(
        &self,
        id: TargetId,
        lane: &dyn RetryingLane,
        failed: &mut FailedTries,
        error: &dyn std::fmt::Display,
    ) -> Option<Duration> {
        let (medium, label) = lane.target(id)?;
        if medium != TargetAttachmentKind::Network {
            return (failed.count == 1).then_some(WAIT_MIN);
        }
        let mut targets = self.targets();
        let target = targets.entry(id).or_default();
        let has_earlier_try = failed.count > 1;
        failed.beside_success += u32::from(has_earlier_try && target.success_count > failed.success_count);
        failed.success_count = target.success_count;
        let now = Instant::now();
        let outage = target.outage.get_or_insert_with(|| {
            self.outage_count.fetch_add(1, Relaxed);
            Outage { since: now, is_reported: false, is_given_up: false }
        });
        let age = now.saturating_duration_since(outage.since);
        if outage.is_given_up || failed.beside_success >= FAILURES_BESIDE_SUCCESS {
            return None;
        }
        if age >= OUTAGE_MAX {
            outage.is_given_up = true;
            drop(targets);
            let seconds = OUTAGE_MAX.as_secs();
            lane.notify(UserNotice::Warning(format!(
                "{label}: no request has succeeded for {seconds} s; its files fail, those elsewhere continue"
            )));
            return None;
        }
        let is_news = age >= REPORTED_AFTER && !std::mem::replace(&mut outage.is_reported, true);
        drop(targets);
        if is_news {
            let seconds = OUTAGE_MAX.as_secs();
            lane.notify(UserNotice::Warning(format!(
                "{label}: {error}; requests are repeated for up to {seconds} s"
            )));
        }
        let doubled = WAIT_MIN.saturating_mul(1 << (failed.count - 1).min(8)).min(WAIT_MAX);
        Some(doubled.min(OUTAGE_MAX - age))
    }

    fn note_success(&self, id: TargetId, lane: &dyn RetryingLane) {
        if self.outage_count.load(Relaxed) == 0 {
            return;
        }
        let mut targets = self.targets();
        let Some(target) = targets.get_mut(&id) else { return };
        target.success_count += 1;
        let Some(outage) = target.outage.take() else { return };
        self.outage_count.fetch_sub(1, Relaxed);
        drop(targets);
        if let (true, Some((_, label))) = (outage.is_reported, lane.target(id)) {
            let seconds = outage.since.elapsed().as_secs();
            lane.notify(UserNotice::Warning(format!("{label}: requests succeed again, after {seconds} s")));
        }
    }

    /// Counts an entry that failed by an error that did not pass.
    pub(crate) fn count_failed(&self, target: TargetId) {
        self.targets().entry(target).or_default().failed_count += 1;
    }

    /// Returns a message for each target with failed entries.
    pub(crate) fn summary(&self, label: impl Fn(TargetId) -> Option<String>) -> Vec<UserNotice> {
        let targets = self.targets();
        let failed = targets.iter().filter(|(_, target)| target.failed_count > 0);
        failed
            .map(|(id, target)| {
                let label = label(*id).unwrap_or_else(|| "the storage".into());
                let files = if target.failed_count == 1 { "entry" } else { "entries" };
                UserNotice::Warning(format!(
                    "{label}: {} {files} failed by errors of the storage",
                    target.failed_count
                ))
            })
            .collect()
    }
}

/// Waits; returns true if the session ends.
fn wait_or_stop(wait: Duration, lane: &dyn RetryingLane) -> bool {
    let deadline = Instant::now() + wait;
    while !lane.is_stopped() {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return false;
        }
        thread::sleep(left.min(LOOK));
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    struct TestLane {
        medium: TargetAttachmentKind,
        said: Mutex<Vec<String>>,
    }

    impl RetryingLane for TestLane {
        fn is_stopped(&self) -> bool {
            false
        }

        fn target(&self, id: TargetId) -> Option<(TargetAttachmentKind, String)> {
            Some((self.medium, format!("OST{:04}", id.0)))
        }

        fn notify(&self, notice: UserNotice) {
            self.said.lock().unwrap().push(format!("{notice:?}"));
        }
    }

    fn lane(medium: TargetAttachmentKind) -> TestLane {
        TestLane { medium, said: Mutex::default() }
    }

    fn run(retries: &StorageRetries, lane: &TestLane, failures: u32) -> (Result<u32, io::Error>, u32) {
        let mut tries = 0;
        let result = retries.run(
            TargetId(4),
            lane,
            |failed| {
                tries += 1;
                if failed < failures { Err(Errno::IO.into()) } else { Ok(failed) }
            },
            may_pass,
        );
        (result, tries)
    }

    #[test]
    fn network_storage_is_tried_again_and_a_disk_once() {
        let retries = StorageRetries::default();
        let (result, tries) = run(&retries, &lane(TargetAttachmentKind::Network), 2);
        assert_eq!((result.unwrap(), tries), (2, 3));
        let (result, tries) = run(&retries, &lane(TargetAttachmentKind::Device), 2);
        assert_eq!((result.is_err(), tries), (true, 2));
        assert_eq!(retries.outage_count.load(Relaxed), 0);
    }

    #[test]
    fn an_error_that_stays_is_not_tried_again() {
        let (retries, lane) = (StorageRetries::default(), lane(TargetAttachmentKind::Network));
        let mut tries = 0;
        let request = |_| -> Result<(), io::Error> {
            tries += 1;
            Err(Errno::ACCESS.into())
        };
        assert!(retries.run(TargetId(1), &lane, request, may_pass).is_err());
        assert_eq!(tries, 1);
    }

    #[test]
    fn a_bad_file_of_a_healthy_target_is_given_up_soon() {
        let (retries, lane) = (StorageRetries::default(), lane(TargetAttachmentKind::Network));
        let mut tries = 0;
        let request = |_| -> Result<(), io::Error> {
            tries += 1;
            retries.note_success(TargetId(4), &lane);
            Err(Errno::IO.into())
        };
        assert!(retries.run(TargetId(4), &lane, request, may_pass).is_err());
        assert!(tries <= 1 + FAILURES_BESIDE_SUCCESS + 1, "{tries}");
    }

    #[test]
    fn a_target_that_was_given_up_costs_no_time_until_it_works() {
        let (retries, lane) = (StorageRetries::default(), lane(TargetAttachmentKind::Network));
        let gone = Outage { since: Instant::now(), is_reported: true, is_given_up: true };
        retries.outage_count.store(1, Relaxed);
        retries.targets().entry(TargetId(4)).or_default().outage = Some(gone);
        assert_eq!(run(&retries, &lane, 9).1, 1);
        assert_eq!(run(&retries, &lane, 0).1, 1);
        assert!(lane.said.lock().unwrap()[0].contains("OST0004: requests succeed again"));
        assert_eq!(run(&retries, &lane, 1).1, 2);
    }

    #[test]
    fn failed_entries_are_counted_by_target() {
        let retries = StorageRetries::default();
        (0..3).for_each(|_| retries.count_failed(TargetId(4)));
        let said = retries.summary(|id| Some(format!("OST{:04}", id.0)));
        let text = "OST0004: 3 entries failed by errors of the storage";
        assert_eq!(said, [UserNotice::Warning(text.into())]);
    }
}
