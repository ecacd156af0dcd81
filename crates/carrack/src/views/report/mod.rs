//! Reports of a transfer: engine threads deliver events, the views show them, the manifest keeps the digests.
//!
//! The [`TransferReporter`] is the engine's observer. One lock orders the events; only a few lines are
//! written under it.

mod dry_run_list;
mod json;
mod progress;
pub mod summary;
mod talk;
pub mod tally;
mod targets;

use std::borrow::Cow;
use std::ffi::OsStr;
use std::io;
use std::mem;
use std::os::unix::ffi::OsStrExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use carrack_engine::{AbortHandle, TransferObserver};
use carrack_model::{
    EntryFailure, MetadataLoss, ObjectChecksumAlgorithm, RepeatEffect, ResolvedDestination, TransferEvent,
    TransferSummary, UserNotice, escape, text_without_errno,
};

use crate::exit::{ExitReason, ExitStatus};
use crate::user_error::UserError;
use crate::views::manifest::{ManifestLineCounts, ManifestWriter};
pub use dry_run_list::DryRunListView;
pub use json::JsonView;
pub use progress::{ProgressLine, SmoothedRate, text as progress_text};
pub use talk::{StderrTextView, TalkVolume};
use tally::EventTally;

/// Counters of the other end come by a clock of its own, so that between two readings there may be none, and
/// then two. A counter that stands still for no more seconds than these counts as not reported.
pub const STILL_S: f64 = 0.8;

/// A view of a transfer's events.
pub trait TransferEventPresenter: Send {
    /// Shows an event, `elapsed` after the start.
    fn show_event(&mut self, event: &TransferEvent, elapsed: Duration) -> io::Result<()>;
    /// Shows the end.
    fn show_end(&mut self, ending: &FinishedTransfer) -> io::Result<()>;
    /// Shows the status; `is_requested` is false for the regular one of a batch job.
    fn show_status(&mut self, _elapsed: Duration, _is_requested: bool) -> io::Result<()> {
        Ok(())
    }
    /// Shows more messages from now on, or fewer again.
    fn toggle_verbosity(&mut self) {}
    /// Returns the error for a failed write.
    fn write_error(&self, error: &io::Error) -> UserError {
        UserError::new(format!("can't write to stdout: {error}"))
    }
}

/// The end of a transfer, with all data for a report.
#[derive(Debug)]
pub struct FinishedTransfer {
    /// The exit code.
    pub exit: ExitStatus,
    /// The reason for the end.
    pub end: ExitReason,
    /// The engine's counts.
    pub summary: TransferSummary,
    /// Errors other than those of entries.
    pub troubles: Vec<UserError>,
    /// The sums of the events.
    pub tally: EventTally,
    /// Time from the start to the end.
    pub elapsed: Duration,
    /// The path at the destination: as it was typed, with the only source's name if it went into a directory.
    pub destination: Option<Vec<u8>>,
    /// True for a dry run.
    pub dry_run: bool,
    /// The checksum that travelled with the objects.
    pub checksum: ObjectChecksumAlgorithm,
    /// The counts of the manifest, if one was asked for and written.
    pub manifest: Option<ManifestLineCounts>,
}

/// The end of a transfer, as the engine and the start of the session know it.
pub struct SessionConclusion {
    /// The reason for the end.
    pub end: ExitReason,
    /// The engine's counts.
    pub summary: TransferSummary,
    /// The error that ended it early.
    pub trouble: Option<UserError>,
    /// True if the same command would end the same way: an entry that it names does not exist, or can't.
    pub is_final: bool,
}

impl SessionConclusion {
    /// Returns true if nothing was done, and another run would do nothing either.
    pub fn did_nothing(&self) -> bool {
        let summary = &self.summary;
        let has_done =
            summary.entries_done() + summary.entries_kept + summary.bytes_done + summary.bytes_kept > 0;
        self.is_final && !has_done
    }
}

/// The engine's observer.
pub struct TransferReporter {
    state: Arc<Mutex<ReporterState>>,
    started: Instant,
    /// The destination as it was typed.
    destination: Vec<u8>,
    /// True if an earlier run of the same command has made the destination.
    has_made_it: bool,
    dry_run: bool,
    checksum: ObjectChecksumAlgorithm,
    /// True if metadata that could not be kept are a failure.
    is_strict: bool,
    /// Ends a dry run whose list has no reader any more.
    abort: AbortHandle,
}

/// The output of a running transfer, for threads other than the engine's.
#[derive(Clone)]
pub struct TransferOutput {
    state: Arc<Mutex<ReporterState>>,
    started: Instant,
}

impl TransferOutput {
    /// Shows the status. Shows nothing after the transfer's end.
    pub fn show_status(&self, is_requested: bool) {
        lock(&self.state).show_in_views(|view| view.show_status(self.started.elapsed(), is_requested));
    }

    /// Shows more messages from now on, or fewer again.
    pub fn toggle_verbosity(&self) {
        lock(&self.state).views.iter_mut().for_each(|view| view.toggle_verbosity());
    }

    /// Shows a warning.
    pub fn warn(&self, text: String) {
        let event = TransferEvent::Notice(UserNotice::Warning(text));
        lock(&self.state).show(&event, self.started.elapsed());
    }
}

struct ReporterState {
    views: Vec<Box<dyn TransferEventPresenter>>,
    tally: EventTally,
    manifest: Option<ManifestWriter>,
    /// Failures other than those of entries: each is reported once, at the end.
    troubles: Vec<UserError>,
    /// True if a dry run was ended because its list has no reader any more.
    is_list_lost: bool,
}

impl TransferReporter {
    /// Creates the reporter of a transfer that starts now. The end is shown by the views in their order.
    pub fn new(
        views: Vec<Box<dyn TransferEventPresenter>>,
        manifest: Option<ManifestWriter>,
        dry_run: bool,
        checksum: ObjectChecksumAlgorithm,
        abort: AbortHandle,
    ) -> TransferReporter {
        let state = ReporterState {
            views,
            tally: EventTally::default(),
            manifest,
            troubles: Vec::new(),
            is_list_lost: false,
        };
        let started = Instant::now();
        TransferReporter {
            state: Arc::new(Mutex::new(state)),
            started,
            destination: Vec::new(),
            has_made_it: false,
            dry_run,
            checksum,
            is_strict: false,
            abort,
        }
    }

    /// Sets the destination, as it was typed; `has_made` is true if an earlier run of the same command has
    /// made it.
    pub fn with_destination(self, destination: &OsStr, has_made: bool) -> TransferReporter {
        TransferReporter { destination: destination.as_bytes().to_vec(), has_made_it: has_made, ..self }
    }

    /// With `is_strict`, metadata that could not be kept are a failure.
    pub fn strict(self, is_strict: bool) -> TransferReporter {
        TransferReporter { is_strict, ..self }
    }

    /// Returns true if bytes were moved or entries made so far, by the reported counters.
    pub fn has_moved(&self) -> bool {
        self.lock().tally.has_moved
    }

    /// Returns true if the only source becomes the destination, which did not exist at first.
    pub fn makes_destination(&self) -> bool {
        let state = self.lock();
        state.tally.arrival.as_ref().is_some_and(|arrival| arrival.nesting == RepeatEffect::NextTime)
    }

    /// Returns the output for other threads.
    pub fn output(&self) -> TransferOutput {
        TransferOutput { state: Arc::clone(&self.state), started: self.started }
    }

    fn lock(&self) -> MutexGuard<'_, ReporterState> {
        lock(&self.state)
    }

    /// Gives the manifest its name, shows the end, and returns the exit code.
    pub fn finish(self, conclusion: SessionConclusion) -> ExitStatus {
        let elapsed = self.started.elapsed();
        let mut state = self.lock();
        let end = if state.is_list_lost { ExitReason::Failed } else { conclusion.end };
        let manifest = state.finish_manifest(end);
        let done = if self.dry_run {
            // A dry run does not count existing directories, whose metadata a run would set again.
            state.tally.listed + state.tally.goes + conclusion.summary.entries_kept
        } else {
            conclusion.summary.entries_done()
        };
        if self.is_strict && state.tally.lost > 0 {
            let told = "with --strict, what can't be kept at the destination is a failure";
            let lost = state.tally.lost;
            state.troubles.push(UserError::new(format!("{lost} not kept: {told}")));
        }
        let is_empty = done == 0 && conclusion.summary.entries_kept == 0 && end == ExitReason::Reached;
        let mut exit = ExitStatus::of_transfer(end, &conclusion.summary, done);
        if is_empty && state.tally.lost > 0 {
            state.troubles.push(UserError::new("the destination can have nothing of what was named"));
            exit = ExitStatus::Nothing;
        }
        let exit = if state.troubles.is_empty() { exit } else { exit.partial_if_complete() };
        state.troubles.extend(conclusion.trouble);
        let destination = state.tally.arrival.as_ref().filter(|_| !self.destination.is_empty());
        let destination = destination.map(|arrival| arrival_path(&self.destination, arrival));
        let mut ending = FinishedTransfer {
            destination,
            exit,
            end,
            summary: conclusion.summary,
            troubles: mem::take(&mut state.troubles),
            tally: mem::take(&mut state.tally),
            elapsed,
            dry_run: self.dry_run,
            checksum: self.checksum,
            manifest,
        };
        // Nothing else is shown from now on.
        let mut views = mem::take(&mut state.views);
        drop(state);
        show_end_in_views(&mut views, &mut ending);
        ending.exit
    }
}

/// Returns the path that the source becomes, or the directory that the sources go into.
fn arrival_path(destination: &[u8], arrival: &ResolvedDestination) -> Vec<u8> {
    let Some(name) = &arrival.name else {
        // The slash of a host's root stays: without it the path would be a home directory, which ends with a
        // colon.
        let trimmed = destination.strip_suffix(b"/").filter(|path| !path.is_empty() && !path.ends_with(b":"));
        return trimmed.unwrap_or(destination).to_vec();
    };
    let slash = if destination.ends_with(b"/") || destination.ends_with(b":") { "" } else { "/" };
    [destination, slash.as_bytes(), name].concat()
}

/// Shows the end. A view that can't be written changes the end for the later views.
fn show_end_in_views(views: &mut [Box<dyn TransferEventPresenter>], ending: &mut FinishedTransfer) {
    for view in views {
        if let Err(error) = view.show_end(ending) {
            ending.troubles.push(view.write_error(&error));
            ending.exit = ending.exit.partial_if_complete();
        }
    }
}

impl TransferObserver for TransferReporter {
    fn handle_event(&self, event: &TransferEvent) {
        let event = &*with_plain_errors(event);
        let mut state = self.lock();
        state.tally.add(event);
        state.keep_digest(event);
        if !state.show(event, self.started.elapsed()) && self.dry_run {
            state.is_list_lost = true;
            self.abort.interrupt();
        }
        if let (
            TransferEvent::Placed(arrival @ ResolvedDestination { nesting: RepeatEffect::Inside, .. }),
            true,
        ) = (event, self.has_made_it)
        {
            let (made, now) = (escape(&self.destination), escape(&arrival_path(&self.destination, arrival)));
            let text = format!(
                "this command made {made} before, and copies to {now} this time; with -T it goes to {made} each time"
            );
            state.show(&TransferEvent::Notice(UserNotice::Warning(text)), self.started.elapsed());
        }
    }
}

/// Locks the state. A panic of another thread while it wrote a line leaves no state half changed that matters
/// here.
fn lock(state: &Mutex<ReporterState>) -> MutexGuard<'_, ReporterState> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the event with the texts of errors as people read them, also those from the other end.
fn with_plain_errors(event: &TransferEvent) -> Cow<'_, TransferEvent> {
    Cow::Owned(match event {
        TransferEvent::Failed(failure) => TransferEvent::Failed(EntryFailure {
            detail: text_without_errno(&failure.detail),
            ..failure.clone()
        }),
        TransferEvent::Notice(notice) => TransferEvent::Notice(match notice.clone() {
            UserNotice::Text(text) => UserNotice::Text(text_without_errno(&text)),
            UserNotice::Detail(text) => UserNotice::Detail(text_without_errno(&text)),
            UserNotice::Warning(text) => UserNotice::Warning(text_without_errno(&text)),
            UserNotice::Decision(text) => UserNotice::Decision(text_without_errno(&text)),
            UserNotice::StorageDelay(delay) => UserNotice::StorageDelay(delay),
            UserNotice::Loss(loss) => {
                UserNotice::Loss(MetadataLoss { reason: text_without_errno(&loss.reason), ..loss })
            }
            UserNotice::Skipped { path, reason } => {
                UserNotice::Skipped { path, reason: text_without_errno(&reason) }
            }
        }),
        _ => return Cow::Borrowed(event),
    })
}

impl ReporterState {
    /// Shows an event; returns false if a view could not be written, which then gets no more events.
    fn show(&mut self, event: &TransferEvent, elapsed: Duration) -> bool {
        self.show_in_views(|view| view.show_event(event, elapsed))
    }

    fn show_in_views(
        &mut self,
        mut show: impl FnMut(&mut dyn TransferEventPresenter) -> io::Result<()>,
    ) -> bool {
        let before = self.views.len();
        let troubles = &mut self.troubles;
        self.views.retain_mut(|view| match show(view.as_mut()) {
            Ok(()) => true,
            Err(error) => {
                troubles.push(view.write_error(&error));
                false
            }
        });
        self.views.len() == before
    }

    fn keep_digest(&mut self, event: &TransferEvent) {
        let (Some(manifest), TransferEvent::FileDigest { path, digest, .. }) = (&mut self.manifest, event)
        else {
            return;
        };
        if let Err(error) = manifest.add(digest, path) {
            self.drop_manifest(&error);
        }
    }

    fn drop_manifest(&mut self, error: &io::Error) {
        self.manifest = None;
        let trouble = UserError::new(format!("the manifest could not be written: {error}"));
        self.troubles.push(trouble.hint("write one with `b3sum` at the destination"));
    }

    /// Finishes the manifest. A transfer that ended early and completed nothing leaves an older manifest
    /// alone.
    fn finish_manifest(&mut self, end: ExitReason) -> Option<ManifestLineCounts> {
        let manifest = self
            .manifest
            .take()
            .filter(|manifest| end == ExitReason::Reached || manifest.line_count() > 0)?;
        manifest.finish().map_err(|error| self.drop_manifest(&error)).ok()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use carrack_model::{MetadataLoss, MetadataLossKind};

    use super::*;

    /// Records the events that it is shown, and fails after `patience` events.
    struct CountingView {
        seen: Arc<Mutex<Vec<String>>>,
        patience: usize,
    }

    impl TransferEventPresenter for CountingView {
        fn show_event(&mut self, event: &TransferEvent, _elapsed: Duration) -> io::Result<()> {
            let mut seen = self.seen.lock().unwrap();
            if seen.len() == self.patience {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            seen.push(format!("{event:?}"));
            Ok(())
        }

        fn show_end(&mut self, ending: &FinishedTransfer) -> io::Result<()> {
            self.seen.lock().unwrap().push(format!("{:?} {}", ending.exit, ending.troubles.len()));
            Ok(())
        }
    }

    fn digest(path: &[u8]) -> TransferEvent {
        TransferEvent::FileDigest { path: path.into(), size: 1, digest: [7; 32] }
    }

    fn reporter(
        patience: usize,
        manifest: Option<ManifestWriter>,
    ) -> (TransferReporter, Arc<Mutex<Vec<String>>>) {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let view = CountingView { seen: seen.clone(), patience };
        let abort = AbortHandle::new().unwrap();
        (
            TransferReporter::new(
                vec![Box::new(view)],
                manifest,
                false,
                ObjectChecksumAlgorithm::Blake3,
                abort,
            ),
            seen,
        )
    }

    fn ended(end: ExitReason, files_done: u64) -> SessionConclusion {
        SessionConclusion {
            end,
            summary: TransferSummary { files_done, ..TransferSummary::default() },
            trouble: None,
            is_final: false,
        }
    }

    #[test]
    fn a_loss_is_a_failure_for_who_insists() {
        for (is_strict, exit, troubles) in [(false, ExitStatus::Complete, 0), (true, ExitStatus::Partial, 1)]
        {
            let (reporter, seen) = reporter(9, None);
            let reporter = reporter.strict(is_strict);
            let lost = MetadataLossKind::Part("the mode".into());
            reporter.handle_event(&TransferEvent::Notice(UserNotice::Loss(MetadataLoss {
                lost,
                reason: "so".into(),
                count: 2,
            })));
            assert_eq!(reporter.finish(ended(ExitReason::Reached, 3)), exit);
            assert_eq!(*seen.lock().unwrap().last().unwrap(), format!("{exit:?} {troubles}"));
        }
    }

    #[test]
    fn a_copy_into_what_the_same_command_has_made_is_told_of() {
        for (has_made, events) in [(false, 1), (true, 2)] {
            let (reporter, seen) = reporter(9, None);
            let reporter = reporter.with_destination(OsStr::new("h:b"), has_made);
            let name = Some(b"a"[..].into());
            reporter.handle_event(&TransferEvent::Placed(ResolvedDestination {
                name,
                nesting: RepeatEffect::Inside,
            }));
            let seen = seen.lock().unwrap();
            assert_eq!(seen.len(), events, "{seen:?}");
            assert!(
                !has_made || seen[1].contains("made h:b before, and copies to h:b/a this time"),
                "{seen:?}"
            );
        }
    }

    #[test]
    fn a_name_within_the_destination_is_added_as_it_would_be_typed() {
        let within = ResolvedDestination { name: Some(b"a"[..].into()), nesting: RepeatEffect::Never };
        for (typed, shown) in [("b", "b/a"), ("b/", "b/a"), ("h:", "h:a"), ("/", "/a")] {
            assert_eq!(arrival_path(typed.as_bytes(), &within), shown.as_bytes());
        }
        for (typed, shown) in [("b/", "b"), ("/", "/"), ("h:/", "h:/"), ("h:", "h:")] {
            assert_eq!(arrival_path(typed.as_bytes(), &ResolvedDestination::default()), shown.as_bytes());
        }
    }

    #[test]
    fn a_reader_who_leaves_is_told_of_once_and_is_no_success() {
        let (reporter, seen) = reporter(1, None);
        for _ in 0..3 {
            reporter.handle_event(&digest(b"a"));
        }
        assert_eq!(reporter.lock().troubles.len(), 1);
        assert_eq!(reporter.finish(ended(ExitReason::Reached, 3)), ExitStatus::Partial);
        assert_eq!(seen.lock().unwrap().len(), 1);
    }

    #[test]
    fn an_early_end_keeps_the_lines_that_are_done() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("sums");
        let (reporter, seen) = reporter(9, Some(ManifestWriter::create(&path).unwrap()));
        reporter.handle_event(&digest(b"a"));
        assert_eq!(reporter.finish(ended(ExitReason::Interrupted, 1)), ExitStatus::Interrupted);
        assert!(std::fs::read_to_string(&path).unwrap().ends_with("  a\n"));
        assert_eq!(seen.lock().unwrap()[1], "Interrupted 0");
    }

    #[test]
    fn an_early_end_with_nothing_leaves_the_old_manifest() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("sums");
        std::fs::write(&path, "old").unwrap();
        let (reporter, _) = reporter(9, Some(ManifestWriter::create(&path).unwrap()));
        assert_eq!(reporter.finish(ended(ExitReason::Failed, 0)), ExitStatus::Nothing);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "old");
    }
}
