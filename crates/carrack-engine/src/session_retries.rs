//! A run: the sessions of one command, one after the other. After a network failure another session
//! continues.
//!
//! Owns the decisions on further sessions and their times. The caller connects to the other end, anew for
//! each session: names are resolved again, ssh is started again.

use std::time::{Duration, Instant};

use carrack_model::{TransferEvent, TransferSummary, UserNotice};
use carrack_plan::Backoff;
use carrack_transport::random;

use crate::abort::AbortHandle;
use crate::error::{RetryChance, SessionError};
use crate::event_delivery::TransferObserver;
use crate::session::{FurthestSessionPoint, TransferOutcome};
use crate::stall::CRAWL_BYTES_PER_S;

/// The time in which a new run tries to reach the other end if no process listens there.
const SOON: Duration = Duration::from_secs(10);

/// The time in a row in which the other end may have no room before this counts as failed tries.
const TURN_MAX: Duration = Duration::from_secs(3_600);

/// The number of sessions in a row whose data connections may break before any data moved: one break may be
/// another end that was killed, several are more often a fault of the path.
const BROKEN_DATA_MAX: u32 = 3;

/// The sessions of a run that may end with a fault of the destination's storage, and the wait after the first
/// one, which doubles: 30 s in total. A disk that loses every write must not be written forever.
const STORAGE_FAULTS_MAX: u32 = 4;
const STORAGE_WAIT: Duration = Duration::from_secs(2);

/// A shorter session does not show the speed of its path.
const CRAWL_MIN: Duration = Duration::from_secs(5);

/// The transport of a session, after the failures of earlier sessions of its run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionTransport {
    /// True to use no fabric.
    pub over_tcp: bool,
    /// The connections for objects.
    pub data: DataPathFallback,
}

/// The connections for objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum DataPathFallback {
    /// Data connections.
    #[default]
    Usual,
    /// Few data connections with small segments: the path may lose large packets.
    Cautious,
    /// The control channel.
    Control,
}

/// Runs sessions until one completes, or fails for a reason that would repeat, or `retries` of them in a row
/// moved nothing. After a first session that never met the other end, the error decides on another try
/// ([`RetryChance`]). Waits while the other end has no room are no failed tries; but with no `retries` there
/// is one session.
///
/// `session` connects to the other end and runs one session, with this transport: over TCP after a session
/// that broke over a fabric on which the user had not insisted; with smaller segments after a session whose
/// data connections were established and moved nothing. `abort` ends the wait between two sessions.
pub fn run_with_retries(
    retries: u32,
    observer: &dyn TransferObserver,
    abort: &AbortHandle,
    session: &mut dyn FnMut(SessionTransport) -> TransferOutcome,
) -> TransferOutcome {
    let mut run = SessionRetries::new(retries);
    loop {
        let began = Instant::now();
        let outcome = session(run.way);
        run.record_outcome(&outcome);
        // A crawl with small segments is no better than a stall with large ones.
        let most = outcome.summary.bytes_done / began.elapsed().as_secs().max(1);
        let crawled = run.way.data == DataPathFallback::Cautious
            && began.elapsed() > CRAWL_MIN
            && most < CRAWL_BYTES_PER_S;
        let advance =
            if crawled { outcome.advance.min(FurthestSessionPoint::Stood) } else { outcome.advance };
        let error = match outcome.result {
            Err(error) if run.should_retry(&error) && !abort.is_set() => error,
            result => return run.final_outcome(result),
        };
        if let Err(interrupted) = run.wait(&error, advance, observer, abort) {
            return run.final_outcome(Err(interrupted));
        }
    }
}

struct SessionRetries {
    retries: u32,
    began: Instant,
    backoff: Backoff,
    /// The backoff between sessions for which the other end had no room.
    turns: Backoff,
    /// The time of these waits in a row.
    waited_for_turn: Duration,
    has_stood: bool,
    /// For the next sessions.
    way: SessionTransport,
    /// Sessions in a row that moved nothing and whose data connections broke.
    broken_data_count: u32,
    /// Sessions that ended with a fault of the destination's storage.
    storage_fault_count: u32,
    /// Sessions that were established.
    session_count: u32,
    summary: TransferSummary,
}

impl SessionRetries {
    fn new(retries: u32) -> SessionRetries {
        SessionRetries {
            retries,
            began: Instant::now(),
            backoff: Backoff::default(),
            turns: Backoff::default(),
            waited_for_turn: Duration::ZERO,
            has_stood: false,
            way: SessionTransport::default(),
            broken_data_count: 0,
            storage_fault_count: 0,
            session_count: 0,
            summary: TransferSummary::default(),
        }
    }

    fn record_outcome(&mut self, outcome: &TransferOutcome) {
        self.has_stood |= outcome.advance >= FurthestSessionPoint::Stood;
        if outcome.advance >= FurthestSessionPoint::Stood {
            self.turns.reset();
            self.waited_for_turn = Duration::ZERO;
        }
        if outcome.advance == FurthestSessionPoint::Moved {
            self.backoff.reset();
        }
        self.summary = match self.session_count {
            0 => outcome.summary,
            _ => combine_summaries(self.summary, outcome.summary, outcome.result.is_ok()),
        };
        self.session_count += u32::from(outcome.advance >= FurthestSessionPoint::Stood);
    }

    fn should_retry(&self, error: &SessionError) -> bool {
        let is_plausible = match error.retry_chance() {
            RetryChance::Never => false,
            RetryChance::OnceMet => self.has_stood,
            RetryChance::Soon => self.has_stood || self.began.elapsed() < SOON,
            RetryChance::Always => true,
        };
        if error.is_storage_fault() {
            return is_plausible && self.retries > 0 && self.storage_fault_count < STORAGE_FAULTS_MAX;
        }
        is_plausible
            && self.retries > 0
            && (self.is_uncounted_wait(error) || self.backoff.tries() < self.retries)
    }

    /// Returns true if the other end has no room, and this does not count as a failed try.
    fn is_uncounted_wait(&self, error: &SessionError) -> bool {
        error.retry_after().is_some() && self.waited_for_turn < TURN_MAX
    }

    /// Reports the error, and waits.
    fn wait(
        &mut self,
        error: &SessionError,
        advance: FurthestSessionPoint,
        observer: &dyn TransferObserver,
        abort: &AbortHandle,
    ) -> Result<(), SessionError> {
        assert!(self.retries > 0, "without retries there is one session");
        // Without random bytes the wait is the shortest, which harms only a server to which many clients
        // return.
        let chance = random().map_or(0, u64::from_le_bytes);
        let (wait, count) = if self.is_uncounted_wait(error) {
            let wait = self.turns.next_wait(chance);
            // Between half and one and a half of the suggested wait.
            let told = error.retry_after().flatten().map(|told| told / 2 + told.mul_f64(to_fraction(chance)));
            let wait = told.unwrap_or(wait).min(TURN_MAX);
            self.waited_for_turn += wait;
            (wait, String::new())
        } else if error.is_storage_fault() {
            self.storage_fault_count += 1;
            let wait = STORAGE_WAIT * (1 << (self.storage_fault_count - 1));
            (wait, format!(" ({} of {STORAGE_FAULTS_MAX})", self.storage_fault_count))
        } else {
            let wait = self.backoff.next_wait(chance);
            assert!(self.backoff.tries() <= self.retries, "no more tries fail than may");
            (wait, format!(" ({} of {})", self.backoff.tries(), self.retries))
        };
        let how = self.choose_transport(error, advance);
        let text = format!("{error}; {how} in {:.1} s{count}", wait.as_secs_f64());
        observer.handle_event(&TransferEvent::Notice(UserNotice::Warning(text)));
        if abort.wait(wait) { Err(abort.error()) } else { Ok(()) }
    }

    /// Chooses the transport of the next session after this error. Returns the choice as a text.
    fn choose_transport(&mut self, error: &SessionError, advance: FurthestSessionPoint) -> &'static str {
        assert!(self.broken_data_count < BROKEN_DATA_MAX, "after so many breaks the way has changed");
        if error.should_retry_over_tcp() {
            self.way.over_tcp = true;
            return "trying TCP";
        }
        if advance == FurthestSessionPoint::Moved {
            self.broken_data_count = 0;
            return "trying again";
        }
        self.broken_data_count += u32::from(error.is_data_connection_lost());
        if !error.is_data_stall() && self.broken_data_count < BROKEN_DATA_MAX {
            return "trying again";
        }
        self.broken_data_count = 0;
        match self.way.data {
            DataPathFallback::Usual => {
                self.way.data = DataPathFallback::Cautious;
                "large packets may be lost on the way: trying fewer data connections with small segments"
            }
            DataPathFallback::Cautious => {
                self.way.data = DataPathFallback::Control;
                "the data connections don't work: trying through the control channel, which is slower,"
            }
            DataPathFallback::Control => "trying again",
        }
    }

    /// Later sessions may have advanced less than earlier ones.
    fn final_outcome(&self, result: Result<(), SessionError>) -> TransferOutcome {
        let moved = self.summary.entries_done() > 0 || self.summary.bytes_done > 0;
        let advance = match (moved, self.has_stood) {
            (true, _) => FurthestSessionPoint::Moved,
            (false, true) => FurthestSessionPoint::Stood,
            (false, false) => FurthestSessionPoint::None,
        };
        TransferOutcome { summary: self.summary, result, advance }
    }
}

/// Returns a random number as a part of the largest one.
fn to_fraction(chance: u64) -> f64 {
    (chance >> 32) as f64 / f64::from(u32::MAX)
}

/// Returns the work of several sessions of a run. An entry or a byte counts once, however many sessions wrote
/// it: each session keeps the entries that earlier ones had completed. So the last session counts if it
/// completed, and otherwise the session with the most work.
fn combine_summaries(before: TransferSummary, last: TransferSummary, is_complete: bool) -> TransferSummary {
    let [mut files, mut symlinks, mut specials, mut bytes] = [
        (last.files_done, files_kept(&last), files_kept(&before)),
        (last.symlinks_done, last.symlinks_kept, before.symlinks_kept),
        (last.specials_done, last.specials_kept, before.specials_kept),
        (last.bytes_done, last.bytes_kept, before.bytes_kept),
    ]
    .map(|(done, kept, kept_before)| done.saturating_add(kept).saturating_sub(kept_before));
    if !is_complete {
        files = files.max(before.files_done);
        symlinks = symlinks.max(before.symlinks_done);
        specials = specials.max(before.specials_done);
        bytes = bytes.max(before.bytes_done);
    }
    TransferSummary {
        files_done: files,
        directories_done: before.directories_done.max(last.directories_done),
        symlinks_done: symlinks,
        specials_done: specials,
        bytes_done: bytes,
        entries_failed: before.entries_failed.max(last.entries_failed),
        entries_skipped: before.entries_skipped.max(last.entries_skipped),
        objects_reread: before.objects_reread.saturating_add(last.objects_reread),
        entries_deleted: before.entries_deleted.saturating_add(last.entries_deleted),
        // Those of earlier runs.
        ..before
    }
}

fn files_kept(summary: &TransferSummary) -> u64 {
    summary.entries_kept.saturating_sub(summary.symlinks_kept).saturating_sub(summary.specials_kept)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[derive(Default)]
    struct CollectedWarnings(Mutex<Vec<String>>);

    impl TransferObserver for CollectedWarnings {
        fn handle_event(&self, event: &TransferEvent) {
            if let TransferEvent::Notice(UserNotice::Warning(text)) = event {
                self.0.lock().unwrap().push(text.clone());
            }
        }
    }

    fn moved(files_done: u64, result: Result<(), SessionError>) -> TransferOutcome {
        TransferOutcome {
            summary: TransferSummary { files_done, ..TransferSummary::default() },
            result,
            advance: FurthestSessionPoint::Moved,
        }
    }

    /// The summary of a session that kept these entries, symlinks and bytes.
    fn summary(files_done: u64, bytes_done: u64, symlinks_done: u64, kept: [u64; 3]) -> TransferSummary {
        let [entries_kept, symlinks_kept, bytes_kept] = kept;
        TransferSummary {
            files_done,
            bytes_done,
            symlinks_done,
            entries_kept,
            symlinks_kept,
            bytes_kept,
            ..TransferSummary::default()
        }
    }

    #[test]
    fn a_file_counts_once_however_many_sessions_it_took() {
        // Eleven files and links of an earlier run; the second session copies one file again, the third
        // copies hardly anything.
        let sessions =
            [summary(10, 100, 2, [11, 1, 50]), summary(5, 60, 1, [22, 3, 140]), summary(0, 0, 0, [3, 0, 9])];
        let sum = sessions.into_iter().reduce(|before, last| combine_summaries(before, last, false)).unwrap();
        assert_eq!((sum.files_done, sum.symlinks_done, sum.bytes_done), (14, 3, 150));
        assert_eq!((sum.entries_kept, sum.bytes_kept), (11, 50));
        // An entry that a session wrote and lost counts once, also if the last session has fewer.
        let lost = combine_summaries(summary(0, 70, 0, [0; 3]), summary(3, 46, 0, [0, 0, 10]), true);
        assert_eq!((lost.files_done, lost.bytes_done, lost.bytes_kept), (3, 56, 0));
    }

    fn gone() -> Result<(), SessionError> {
        Err(SessionError::PeerGone)
    }

    /// Runs these sessions. Returns the outcome, the number of sessions, and the messages.
    fn run(retries: u32, mut sessions: Vec<TransferOutcome>) -> (TransferOutcome, usize, Vec<String>) {
        let (told, count) = (CollectedWarnings::default(), sessions.len());
        sessions.reverse();
        let outcome = run_with_retries(retries, &told, &AbortHandle::new().unwrap(), &mut |_| {
            sessions.pop().expect("one more")
        });
        (outcome, count - sessions.len(), told.0.into_inner().unwrap())
    }

    fn unreached(again: RetryChance) -> TransferOutcome {
        TransferOutcome::failed(SessionError::Unreachable { message: "away".into(), hint: None, again })
    }

    fn away() -> TransferOutcome {
        unreached(RetryChance::OnceMet)
    }

    #[test]
    fn goes_on_until_the_end_and_counts_files_once() {
        let (outcome, held, told) = run(
            3,
            vec![moved(7, gone()), away(), away(), moved(9, gone()), away(), away(), moved(8, Ok(()))],
        );
        assert!(outcome.result.is_ok());
        assert_eq!((outcome.summary.files_done, held, told.len()), (8, 7, 6));
        assert!(
            told[0].starts_with("the connection to the other end was cut; trying again in 0.1 s (1 of 3)"),
            "{told:?}"
        );
        assert!(told[2].starts_with("away; ") && told[2].ends_with("(3 of 3)"), "{told:?}");
        assert!(told[3].ends_with("(1 of 3)"), "{told:?}");
    }

    #[test]
    fn gives_up_after_so_many_tries_in_vain() {
        let (outcome, held, told) = run(2, vec![moved(7, gone()), away(), away(), away()]);
        assert!(matches!(outcome.result, Err(SessionError::Unreachable { .. })));
        assert_eq!((outcome.summary.files_done, held, told.len()), (7, 3, 2));
        let (outcome, held, told) = run(0, vec![moved(7, gone()), away()]);
        assert!(matches!(outcome.result, Err(SessionError::PeerGone)));
        assert_eq!((held, told.len()), (1, 0));
    }

    #[test]
    fn a_first_session_that_met_nobody_is_the_last_and_so_is_one_that_would_be_the_same_again() {
        for outcome in
            [away(), unreached(RetryChance::Never), TransferOutcome::failed(SessionError::PeerSilent)]
        {
            assert_eq!(run(8, vec![outcome]).1, 1);
        }
        for error in [SessionError::PeerGone, SessionError::PeerStalled(1)] {
            assert_eq!(run(8, vec![TransferOutcome::failed(error), moved(1, Ok(()))]).1, 2);
        }
        for again in [RetryChance::Soon, RetryChance::Always] {
            assert_eq!(run(8, vec![unreached(again), moved(1, Ok(()))]).1, 2, "{again:?}");
        }
        let full = SessionError::NoSpace { path: "x".into(), detail: "full".into() };
        for error in [full, SessionError::Protocol("x".into()), SessionError::refused("no", "")] {
            assert_eq!(run(8, vec![moved(1, Err(error))]).1, 1);
        }
    }

    /// Three sessions for which the other end has no room, and one that completes.
    fn turns() -> Vec<TransferOutcome> {
        let waits = [Some(Duration::from_millis(1)), None, Some(Duration::from_millis(200))];
        let full = waits.map(|wait| TransferOutcome::failed(SessionError::later("full", "", wait)));
        full.into_iter().chain([moved(1, Ok(()))]).collect()
    }

    fn stood(error: SessionError) -> TransferOutcome {
        TransferOutcome { advance: FurthestSessionPoint::Stood, ..TransferOutcome::failed(error) }
    }

    /// A session whose data connection broke, which may mean that the other end was killed.
    fn reset() -> TransferOutcome {
        let reset = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
        stood(SessionError::Transport(carrack_transport::TransportError::Io(reset)))
    }

    #[test]
    fn waits_for_a_turn_are_no_tries_in_vain() {
        let (outcome, held, told) = run(1, turns());
        assert!(outcome.result.is_ok() && held == 4);
        assert!(told[0].starts_with("full; trying again in 0.0 s") && !told[0].contains(" of "), "{told:?}");
        let (outcome, held, _) = run(0, turns());
        assert!(
            matches!(outcome.result, Err(SessionError::Later { .. })) && held == 1,
            "no retries, no waits"
        );
    }

    #[test]
    fn data_connections_that_move_nothing_are_done_without_in_the_end() {
        let left = SessionError::PeerLeft { message: "stalled".into(), hint: None, is_of_data: true };
        let told = CollectedWarnings::default();
        let (mut ways, mut sessions) = (
            Vec::new(),
            vec![
                moved(5, Ok(())),
                moved(2, Err(SessionError::Stalled(3))),
                stood(left),
                moved(1, Err(SessionError::Stalled(3))),
                stood(SessionError::Stalled(3)),
                stood(SessionError::PeerGone),
            ],
        );
        let outcome = run_with_retries(3, &told, &AbortHandle::new().unwrap(), &mut |way| {
            ways.push(way.data);
            sessions.pop().unwrap()
        });
        assert!(outcome.result.is_ok());
        use DataPathFallback::{Cautious, Control, Usual};
        assert_eq!(ways, [Usual, Usual, Cautious, Cautious, Control, Control]);
        let told = told.0.lock().unwrap();
        assert!(
            told[1].contains("small segments in ") && told[3].contains("the control channel"),
            "{told:?}"
        );

        let (mut ways, mut sessions) = (Vec::new(), vec![moved(1, Ok(())), reset(), reset(), reset()]);
        run_with_retries(4, &CollectedWarnings::default(), &AbortHandle::new().unwrap(), &mut |way| {
            ways.push(way.data);
            sessions.pop().unwrap()
        });
        assert_eq!(ways, [Usual, Usual, Usual, Cautious]);
    }

    #[test]
    fn after_a_fabric_that_broke_it_is_tcp_until_the_end_unless_the_user_insists() {
        for is_forced in [false, true] {
            let error = Box::new(SessionError::PeerGone);
            let broken = SessionError::Over { provider: "efa".into(), is_forced, error };
            let told = CollectedWarnings::default();
            let mut sessions = vec![moved(3, Ok(())), moved(2, gone()), moved(1, Err(broken))];
            let mut over_tcp = Vec::new();
            let outcome = run_with_retries(3, &told, &AbortHandle::new().unwrap(), &mut |way| {
                over_tcp.push(way.over_tcp);
                sessions.pop().unwrap()
            });
            assert!(outcome.result.is_ok());
            assert_eq!(over_tcp, [false, !is_forced, !is_forced]);
            let how = if is_forced { "trying again in" } else { "trying TCP in" };
            let first = &told.0.lock().unwrap()[0];
            assert!(
                first.starts_with(&format!("over efa: the connection to the other end was cut; {how}")),
                "{first}"
            );
        }
    }

    #[test]
    fn a_fault_of_the_storage_is_tried_again_a_few_times_however_much_was_moved() {
        let fault = || Err(SessionError::not_durable("x".into(), "lost".into(), true));
        let abort = AbortHandle::new().unwrap();
        let mut run = SessionRetries::new(8);
        abort.interrupt();
        for _ in 0..STORAGE_FAULTS_MAX {
            let outcome = moved(1, fault());
            run.record_outcome(&outcome);
            let error = outcome.result.unwrap_err();
            assert!(run.should_retry(&error));
            // The interrupt ends each wait at once.
            assert!(run.wait(&error, outcome.advance, &CollectedWarnings::default(), &abort).is_err());
        }
        assert!(!run.should_retry(&fault().unwrap_err()));
    }

    #[test]
    fn an_interrupt_ends_the_wait() {
        let abort = AbortHandle::new().unwrap();
        let began = Instant::now();
        let mut count = 0;
        let outcome = std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(600));
                abort.interrupt();
            });
            run_with_retries(64, &CollectedWarnings::default(), &abort, &mut |_| {
                count += 1;
                stood(SessionError::PeerGone)
            })
        });
        assert!(outcome.result.is_err_and(|error| error.is_interrupted()));
        assert!(began.elapsed() < Duration::from_secs(5) && count < 10, "{count}");
    }
}
