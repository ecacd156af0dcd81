//! A run: the sessions of one command, one after the other. What the network breaks is taken up by another session.
//!
//! Owns the decision whether and when there is another one. How an end is reached is the caller's matter, and done anew for
//! each session: names are resolved again, ssh is started again.

use carrack_model::{Event, Notice, Summary};
use carrack_plan::Backoff;
use carrack_transport::random;

use crate::abort::Abort;
use crate::error::SessionError;
use crate::report::Observer;
use crate::session::{Advance, Outcome};

/// Holds sessions until one comes to its end, or fails for a reason that another one would not mend, or `retries` of them in
/// a row moved nothing. A first session that never met the other end is not tried again: its name may be wrong.
///
/// `session` goes to the other end and holds one session, over TCP if it is told so: after one that went over a fabric which the
/// user had not insisted on, and broke. `abort` ends the waiting between two.
pub fn persist(
    retries: u32,
    observer: &dyn Observer,
    abort: &Abort,
    session: &mut dyn FnMut(bool) -> Outcome,
) -> Outcome {
    let mut run = Run {
        retries,
        backoff: Backoff::default(),
        has_stood: false,
        over_tcp: false,
        session_count: 0,
        summary: Summary::default(),
    };
    loop {
        let outcome = session(run.over_tcp);
        run.note(&outcome);
        let error = match outcome.result {
            Err(error) if run.goes_on(&error) && !abort.is_set() => error,
            result => return run.end(result),
        };
        if let Err(interrupted) = run.wait(&error, observer, abort) {
            return run.end(Err(interrupted));
        }
    }
}

struct Run {
    retries: u32,
    backoff: Backoff,
    has_stood: bool,
    /// Whether fabrics are left alone from now on.
    over_tcp: bool,
    /// Sessions that stood.
    session_count: u32,
    summary: Summary,
}

impl Run {
    fn note(&mut self, outcome: &Outcome) {
        self.has_stood |= outcome.advance >= Advance::Stood;
        if outcome.advance == Advance::Moved {
            self.backoff.reset();
        }
        self.summary = match self.session_count {
            0 => outcome.summary,
            _ => together(self.summary, outcome.summary, outcome.result.is_ok()),
        };
        self.session_count += u32::from(outcome.advance >= Advance::Stood);
    }

    fn goes_on(&self, error: &SessionError) -> bool {
        let was_met = self.has_stood || !error.is_not_met();
        error.may_pass() && was_met && self.backoff.tries() < self.retries
    }

    /// Tells what happened, and waits.
    fn wait(
        &mut self,
        error: &SessionError,
        observer: &dyn Observer,
        abort: &Abort,
    ) -> Result<(), SessionError> {
        // Without chance the wait is the shortest: no harm but to a server that many come back to.
        let chance = random().map_or(0, u64::from_le_bytes);
        let wait = self.backoff.next_wait(chance);
        let (count, most) = (self.backoff.tries(), self.retries);
        self.over_tcp |= error.speaks_for_tcp();
        let how = if error.speaks_for_tcp() { "trying TCP" } else { "trying again" };
        let text = format!("{error}; {how} in {:.1} s ({count} of {most})", wait.as_secs_f64());
        observer.event(&Event::Notice(Notice::Warning(text)));
        if abort.wait(wait) { Err(abort.error()) } else { Ok(()) }
    }

    /// Later sessions may not have come as far as earlier ones.
    fn end(&self, result: Result<(), SessionError>) -> Outcome {
        let moved = self.summary.entries_done() > 0 || self.summary.bytes_done > 0;
        let advance = match (moved, self.has_stood) {
            (true, _) => Advance::Moved,
            (false, true) => Advance::Stood,
            (false, false) => Advance::None,
        };
        Outcome { summary: self.summary, result, advance }
    }
}

/// What several sessions of a run did. An entry or a byte counts once, however many sessions wrote it: each session keeps what
/// the ones before it had completed. So the last one tells if it came to its end, else the one that came farthest.
fn together(before: Summary, last: Summary, is_complete: bool) -> Summary {
    let files_kept = |summary: &Summary| {
        summary.entries_kept.saturating_sub(summary.symlinks_kept).saturating_sub(summary.specials_kept)
    };
    let farthest = |before, last| if is_complete { last } else { u64::max(before, last) };
    let since = |done: u64, kept, kept_before| done.saturating_add(kept).saturating_sub(kept_before);
    let files = since(last.files_done, files_kept(&last), files_kept(&before));
    let symlinks = since(last.symlinks_done, last.symlinks_kept, before.symlinks_kept);
    let specials = since(last.specials_done, last.specials_kept, before.specials_kept);
    let bytes = since(last.bytes_done, last.bytes_kept, before.bytes_kept);
    Summary {
        files_done: farthest(before.files_done, files),
        directories_done: before.directories_done.max(last.directories_done),
        symlinks_done: farthest(before.symlinks_done, symlinks),
        specials_done: farthest(before.specials_done, specials),
        bytes_done: farthest(before.bytes_done, bytes),
        entries_failed: before.entries_failed.max(last.entries_failed),
        entries_skipped: before.entries_skipped.max(last.entries_skipped),
        objects_reread: before.objects_reread.saturating_add(last.objects_reread),
        entries_deleted: before.entries_deleted.saturating_add(last.entries_deleted),
        // Of earlier runs.
        ..before
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::time::{Duration, Instant};

    use super::*;

    #[derive(Default)]
    struct Told(Mutex<Vec<String>>);

    impl Observer for Told {
        fn event(&self, event: &Event) {
            if let Event::Notice(Notice::Warning(text)) = event {
                self.0.lock().unwrap().push(text.clone());
            }
        }
    }

    fn moved(files_done: u64, result: Result<(), SessionError>) -> Outcome {
        Outcome { summary: Summary { files_done, ..Summary::default() }, result, advance: Advance::Moved }
    }

    #[test]
    fn a_file_counts_once_however_many_sessions_it_took() {
        let session =
            |files_done, bytes_done, symlinks_done, entries_kept, symlinks_kept, bytes_kept| Summary {
                files_done,
                bytes_done,
                symlinks_done,
                entries_kept,
                symlinks_kept,
                bytes_kept,
                ..Summary::default()
            };
        // Eleven files and links of an earlier run; the second session redoes one file, the third hardly begins.
        let sessions =
            [session(10, 100, 2, 11, 1, 50), session(5, 60, 1, 22, 3, 140), session(0, 0, 0, 3, 0, 9)];
        let sum = sessions.into_iter().reduce(|before, last| together(before, last, false)).unwrap();
        assert_eq!((sum.files_done, sum.symlinks_done, sum.bytes_done), (14, 3, 150));
        assert_eq!((sum.entries_kept, sum.bytes_kept), (11, 50));
        // What a session wrote and lost counts once, also where the last one has less of it.
        let lost = together(session(0, 70, 0, 0, 0, 0), session(3, 46, 0, 0, 0, 10), true);
        assert_eq!((lost.files_done, lost.bytes_done, lost.bytes_kept), (3, 56, 0));
    }

    fn gone() -> Result<(), SessionError> {
        Err(SessionError::PeerGone)
    }

    /// Runs these sessions; what came of it, how many were held, and what was told.
    fn run(retries: u32, mut sessions: Vec<Outcome>) -> (Outcome, usize, Vec<String>) {
        let (told, count) = (Told::default(), sessions.len());
        sessions.reverse();
        let outcome =
            persist(retries, &told, &Abort::new().unwrap(), &mut |_| sessions.pop().expect("one more"));
        (outcome, count - sessions.len(), told.0.into_inner().unwrap())
    }

    fn away() -> Outcome {
        Outcome::failed(SessionError::Unreachable { message: "away".into(), hint: None, may_pass: true })
    }

    #[test]
    fn goes_on_until_the_end_and_counts_files_once() {
        let (outcome, held, told) = run(
            3,
            vec![moved(7, gone()), away(), away(), moved(9, gone()), away(), away(), moved(8, Ok(()))],
        );
        assert!(outcome.result.is_ok());
        assert_eq!((outcome.summary.files_done, held, told.len()), (9, 7, 6));
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
        for outcome in [away(), Outcome::failed(SessionError::PeerSilent)] {
            assert_eq!(run(8, vec![outcome]).1, 1);
        }
        assert_eq!(run(8, vec![Outcome::failed(SessionError::PeerGone), moved(1, Ok(()))]).1, 2);
        let full = SessionError::NoSpace { path: "x".into(), detail: "full".into() };
        for error in [full, SessionError::Protocol("x".into()), SessionError::refused("no", "")] {
            assert_eq!(run(8, vec![moved(1, Err(error))]).1, 1);
        }
    }

    #[test]
    fn after_a_fabric_that_broke_it_is_tcp_until_the_end_unless_the_user_insists() {
        for is_forced in [false, true] {
            let error = || {
                Err(SessionError::Over {
                    provider: "efa".into(),
                    is_forced,
                    error: Box::new(SessionError::PeerGone),
                })
            };
            let told = Told::default();
            let mut sessions = vec![moved(3, Ok(())), moved(2, gone()), moved(1, error())];
            let mut over_tcp = Vec::new();
            let outcome = persist(3, &told, &Abort::new().unwrap(), &mut |tcp| {
                over_tcp.push(tcp);
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
    fn an_interrupt_ends_the_wait() {
        let abort = Abort::new().unwrap();
        let began = Instant::now();
        let mut count = 0;
        let outcome = std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(600));
                abort.interrupt();
            });
            persist(64, &Told::default(), &abort, &mut |_| {
                count += 1;
                Outcome { advance: Advance::Stood, ..Outcome::failed(SessionError::PeerGone) }
            })
        });
        assert!(outcome.result.is_err_and(|error| error.is_interrupted()));
        assert!(began.elapsed() < Duration::from_secs(5) && count < 10, "{count}");
    }
}
