//! `carrack cp`: a transfer, from its arguments to its exit code.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, IsTerminal};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use carrack_engine::{
    DataPathFallback, EndSettings, FabricWanted, PeerChannel, RetryChance, SessionError, SessionRole,
    SessionTransport, SpillSettings, ThirdPartyEndChannels, TransferIdentity, TransferOutcome,
    TransferRequest, TunerHistory, copy_between, copy_local, copy_with_peer, run_with_retries,
};

use carrack_model::TransferExecutionId;
use carrack_options::{MetaSchedulerChoice, colour};
use rustix::rand::{GetRandomFlags, getrandom};

use crate::commands::output_files::check_output_files;
use crate::exit::{ExitReason, ExitStatus};
use crate::lifetime::{format_moment, now_s};
pub use crate::options::cp::CpArgs;
use crate::output_watch;
use crate::register::home_directory;
use crate::register::transfer_id::transfer_id;
use crate::register::tuner_store::TunerStore;
use crate::register::{
    CopyLogFile, CopyProgressRecord, CopyStatusRecorder, CopyStore, NotedCopy, background, no_register_error,
};
use crate::remote::far_end::{self, FailedFarEnd, FarEndAccess, ReachedFarEnd, connect_to_far_end};
use crate::remote::location::FarEndAddress;
use crate::remote::route::{RemoteEnds, TransferEndsAndPaths};
use crate::remote::stop_control::StopControl;
use crate::remote::tuner_endpoints::TransferEndNames;
use crate::sharing::grant_exchange;
use crate::signals::OutputSignals;
use crate::user_error::{UserError, warn};
use crate::views::live::LiveView;
use crate::views::manifest::ManifestWriter;
use crate::views::page::{HtmlReportView, PageHeadline};
use crate::views::report::{
    self, DryRunListView, JsonView, StderrTextView, TalkVolume, TransferEventPresenter, TransferReporter,
};

/// Maximum segment size that passes on every IPv4 path (RFC 9293, 3.7.1), and the number of data connections,
/// of a session in cautious mode: firewalls that inspect each connection pass few.
const CAUTIOUS_SEGMENT_BYTES: u32 = 536;
const CAUTIOUS_STREAMS: u16 = 2;

/// Runs the copy.
pub fn run(args: &CpArgs) -> ExitStatus {
    if let Err(trouble) = args.foreign.check() {
        trouble.print();
        return ExitStatus::Usage;
    }
    if args.in_background {
        background::leave_terminal();
    } else if args.background {
        return launch_in_background(args);
    }
    match CopyJob::new(args).and_then(|job| Ok((job.reporter()?, job))) {
        Ok((reporter, mut job)) => {
            if let Err((trouble, exit)) = job.watch_output(&reporter) {
                trouble.print();
                return exit;
            }
            let conclusion = job.copy(&reporter);
            let was_mistaken = conclusion.did_nothing() && !reporter.has_moved();
            let exit = reporter.finish(conclusion);
            // A mistyped command is not worth a record; an earlier run may have left more than the present
            // one.
            if let Some(noted) =
                job.noted.filter(|_| exit == ExitStatus::Nothing && was_mistaken && !args.in_background)
            {
                let noted = noted.lock().unwrap_or_else(PoisonError::into_inner);
                if noted.is_new() {
                    noted.forget();
                }
            }
            exit
        }
        Err((trouble, exit)) => {
            trouble.print();
            exit
        }
    }
}

/// Starts the copy in the background, if its options are valid.
fn launch_in_background(args: &CpArgs) -> ExitStatus {
    let launched = valid_identity(args).map_err(with_usage_exit).and_then(|identity| {
        background::launch(&identity.id.to_string()).map_err(|trouble| (trouble, ExitStatus::Nothing))
    });
    launched.unwrap_or_else(|(trouble, exit)| {
        trouble.print();
        exit
    })
}

/// Returns the identity of the copy, if its options are valid and it can run in the background.
fn valid_identity(args: &CpArgs) -> Result<TransferIdentity, UserError> {
    if let Some(option) = args.transfer.single_read_option() {
        let message =
            format!("{option} reads from standard input or a pipe, which a copy in the background has not");
        return Err(UserError::new(message).hint("write it to a file, and name that"));
    }
    let (sources, destination) = args.paths()?;
    let route = TransferEndsAndPaths::parse(sources, destination)?;
    let identity = identify(args, &route, sources, destination)?;
    args.spec(route.far != RemoteEnds::Neither)?;
    args.settings()?;
    check_output_files(args, &route)?;
    Ok(identity)
}

fn unwatched_signals(error: io::Error) -> (UserError, ExitStatus) {
    (UserError::new(format!("signals can't be watched: {error}")), ExitStatus::Nothing)
}

fn with_usage_exit(trouble: UserError) -> (UserError, ExitStatus) {
    (trouble, ExitStatus::Usage)
}

/// A copy with valid options.
struct CopyJob<'a> {
    args: &'a CpArgs,
    far: RemoteEnds,
    transfer: TransferRequest,
    stop_control: StopControl,
    /// The signals that request output, until a thread watches them.
    output_signals: Option<OutputSignals>,
    /// Its record in the register.
    noted: Option<Arc<Mutex<NotedCopy>>>,
}

/// Refuses options that have no meaning for such a copy.
fn refuse_meaningless_options(
    args: &CpArgs,
    far: &RemoteEnds,
    settings: &EndSettings,
) -> Result<(), UserError> {
    let are_both_far = matches!(far, RemoteEnds::Both(..));
    if let Some(moment_s) = args.transfer.stop_at.filter(|&moment_s| moment_s <= now_s()) {
        let trouble = UserError::new(format!("--stop-at {} is over", format_moment(moment_s)));
        return Err(trouble.hint("name a time to come"));
    }
    if args.relay && !are_both_far {
        return Err(UserError::new("--relay is for copies between two far hosts").hint("leave it out"));
    }
    if settings.timetable.is_some() && are_both_far {
        let words = "a timetable of --bwlimit is followed by an end that is here, and both are far";
        return Err(UserError::new(words).hint("give one rate, or copy from one of the two hosts"));
    }
    refuse_daemon_spill_directories(far, &settings.spill)
}

/// Refuses sync with deletion for `host:` and `/`, unless it was confirmed: an unset variable leaves such a
/// path.
fn refuse_deletion_by_chance(args: &CpArgs, route: &TransferEndsAndPaths) -> Result<(), UserError> {
    let deletion = args.sync.as_ref().and_then(|sync| sync.deletion.as_ref());
    if deletion.is_none_or(|deletion| deletion.by_empty_sources) {
        return Ok(());
    }
    let (source_end, sink_end) = route.far.ends();
    let path = &route.destination;
    let end = if route.sources.iter().any(|path| is_top_directory(path, source_end)) {
        "a source"
    } else if (is_top_directory(path, sink_end) || sink_end.is_none() && is_root(path))
        && route.sources.iter().any(|path| path.as_os_str().as_bytes().ends_with(b"/"))
    {
        "the destination"
    } else {
        return Ok(());
    };
    let what = "a whole machine, a home directory or an export with an empty name";
    Err(UserError::new(format!("{end} is {what}, and something is to be deleted"))
        .hint("is a variable unset? if that directory is meant, add --delete-all"))
}

/// Returns true for a top directory, and for the rest of a path beneath one after an unset variable.
fn is_top_directory(path: &Path, end: Option<&FarEndAddress>) -> bool {
    let path = path.as_os_str().as_bytes();
    path.iter().all(|&byte| byte == b'/')
        || end.is_some() && matches!(path, b"." | b"./")
        // This is `carrack://host/export/$UNSET/` without the variable.
        || matches!(end, Some(FarEndAddress::Daemon(_))) && path.ends_with(b"//")
}

fn is_root(path: &Path) -> bool {
    let [found, root] = [path, Path::new("/")].map(|path| path.metadata().ok());
    found.zip(root).is_some_and(|(found, root)| (found.dev(), found.ino()) == (root.dev(), root.ino()))
}

/// Refuses spill directories at a daemon, which lets no client choose a directory.
fn refuse_daemon_spill_directories(far: &RemoteEnds, spill: &SpillSettings) -> Result<(), UserError> {
    let (source, sink) = far.ends();
    let option = if matches!(source, Some(FarEndAddress::Daemon(_))) && !spill.source.is_empty() {
        "--spill is for a directory at the source"
    } else if matches!(sink, Some(FarEndAddress::Daemon(_))) && !spill.sink.is_empty() {
        "--sink-spill is for a directory at the destination's end"
    } else {
        return Ok(());
    };
    Err(UserError::new(format!("{option}, and a daemon lets nobody choose one"))
        .hint("leave it out, or go there by ssh"))
}

impl<'a> CopyJob<'a> {
    fn new(args: &'a CpArgs) -> Result<CopyJob<'a>, (UserError, ExitStatus)> {
        let begun = Some(SystemTime::now());
        let (sources, destination) = args.paths().map_err(with_usage_exit)?;
        let route = TransferEndsAndPaths::parse(sources, destination)
            .map_err(|error| with_usage_exit(error.into()))?;
        let identity = Some(
            identify(args, &route, sources, destination).map_err(|trouble| (trouble, ExitStatus::Nothing))?,
        );
        let is_far = route.far != RemoteEnds::Neither;
        let (spec, mut settings) =
            (args.spec(is_far).map_err(with_usage_exit)?, args.settings().map_err(with_usage_exit)?);
        settings.begun = begun;
        refuse_meaningless_options(args, &route.far, &settings).map_err(with_usage_exit)?;
        refuse_deletion_by_chance(args, &route).map_err(with_usage_exit)?;
        check_output_files(args, &route).map_err(with_usage_exit)?;
        // Where both ends are far, this process uses no storage targets.
        if !matches!(route.far, RemoteEnds::Both(..)) && !args.dry_run {
            settings.sharing = grant_exchange(args.transfer.meta_scheduler());
        }
        if settings.tunes && !args.dry_run {
            settings.history = history(&route);
        }
        if let (true, Err(why)) = (args.verbose, home_directory::user_home()) {
            warn(&format!("{why}: no configuration is read there, and no notes are kept"));
        }
        let noted = register_copy(args, &route).map(|noted| Arc::new(Mutex::new(noted)));
        let transfer = TransferRequest {
            spec,
            settings,
            sources: route.sources,
            destination: route.destination,
            identity,
            source_base: carrack_storage::PathBase::Anywhere,
            feed: None,
        };
        let stop_control = StopControl::watch_signals().map_err(|trouble| (trouble, ExitStatus::Nothing))?;
        let output_signals = Some(OutputSignals::watch().map_err(unwatched_signals)?);
        let timed = args.transfer.timeout.map_or(Ok(()), |longest| stop_control.end_after(longest));
        let timed = timed
            .and_then(|()| args.transfer.stop_at.map_or(Ok(()), |moment_s| stop_control.end_at(moment_s)));
        timed.map_err(|trouble| (trouble, ExitStatus::Nothing))?;
        Ok(CopyJob { args, far: route.far, transfer, stop_control, output_signals, noted })
    }

    /// Starts the thread that shows the status on request, and regularly in a batch job.
    fn watch_output(&mut self, reporter: &TransferReporter) -> Result<(), (UserError, ExitStatus)> {
        let Some(signals) = self.output_signals.take() else { return Ok(()) };
        let (abort, every) = (self.stop_control.abort.clone(), self.args.status_interval());
        output_watch::start(signals, abort, every, reporter.output()).map_err(unwatched_signals)
    }

    fn reporter(&self) -> Result<TransferReporter, (UserError, ExitStatus)> {
        let manifest = self.args.manifest.as_deref().map(begin_manifest).transpose()?;
        let spec = &self.transfer.spec;
        let page = self.args.report.as_deref().map(|path| create_html_report(self.args, path)).transpose()?;
        let log = self.args.log_file.as_deref().map(open_log).transpose()?;
        if self.args.in_background && self.noted.is_none() {
            let trouble = match CopyStore::of_user() {
                None => no_register_error(),
                Some(_) => UserError::new("this copy runs already, or it can't be noted that it does")
                    .hint("`carrack transfers` lists those that run"),
            };
            return Err((trouble, ExitStatus::Nothing));
        }
        Ok(TransferReporter::new(
            create_views(self.args, &self.far, page, log, self.noted.as_ref()),
            manifest,
            spec.dry_run,
            spec.checksum,
            self.stop_control.abort.clone(),
        )
        .with_destination(
            self.args.paths().map_err(|trouble| (trouble, ExitStatus::Usage))?.1,
            self.has_made_destination(),
        )
        .strict(self.args.transfer.fidelity().strict))
    }

    /// Returns true if an earlier run of the same command has made the destination.
    fn has_made_destination(&self) -> bool {
        let noted = self.noted.as_ref().map(|noted| noted.lock().unwrap_or_else(PoisonError::into_inner));
        noted.is_some_and(|noted| noted.has_made_destination())
    }

    fn copy(&self, observer: &TransferReporter) -> report::SessionConclusion {
        match &self.far {
            RemoteEnds::Neither => {
                let abort = &self.stop_control.abort;
                let mut session = self.with_stop_check(|way| {
                    Ok(copy_local(&self.request_for_next_session(way, observer), observer, abort))
                });
                let outcome = run_with_retries(self.args.transfer.retry, observer, abort, &mut session);
                drop(session);
                self.conclude(outcome, |error| far_end::explain(error, None))
            }
            RemoteEnds::Source(far) => self.copy_with_far_end(far, SessionRole::Sink, observer),
            RemoteEnds::Sink(far) => self.copy_with_far_end(far, SessionRole::Source, observer),
            RemoteEnds::Both(source, sink) => self.copy_between(source, sink, observer),
        }
    }

    fn copy_with_far_end(
        &self,
        far: &FarEndAddress,
        role: SessionRole,
        observer: &TransferReporter,
    ) -> report::SessionConclusion {
        let mut left = None;
        let retry = self.args.transfer.retry;
        let mut session = self.with_stop_check(|way| {
            let (reached, peer) = self.connect_to_far_end(far)?;
            let transfer = self.request_for_next_session(way, observer);
            let outcome = copy_with_peer(&transfer, role, peer, observer, &self.stop_control.abort);
            left = Some(reached.disconnect(&self.stop_control, far_end::is_far_end_hanging(&outcome)));
            Ok(far_end::explain_silent_daemon(outcome, far))
        });
        let outcome = run_with_retries(retry, observer, &self.stop_control.abort, &mut session);
        drop(session);
        self.conclude(outcome, |error| far_end::explain(error, left))
    }

    /// Copies between two far hosts; this process only controls the session.
    fn copy_between(
        &self,
        source: &FarEndAddress,
        sink: &FarEndAddress,
        observer: &TransferReporter,
    ) -> report::SessionConclusion {
        let mut left: Option<(FailedFarEnd<'_>, FailedFarEnd<'_>)> = None;
        let retry = self.args.transfer.retry;
        let mut session = self.with_stop_check(|way| {
            let ((source, source_peer), (sink, sink_peer)) =
                (self.connect_to_far_end(source)?, self.connect_to_far_end(sink)?);
            let ends =
                ThirdPartyEndChannels { source: source_peer, sink: sink_peer, relays: self.args.relay };
            let transfer = self.request_for_next_session(way, observer);
            let outcome = copy_between(&transfer, ends, observer, &self.stop_control.abort);
            left = Some((
                source.disconnect(&self.stop_control, false),
                sink.disconnect(&self.stop_control, false),
            ));
            Ok(outcome)
        });
        let outcome = run_with_retries(retry, observer, &self.stop_control.abort, &mut session);
        drop(session);
        self.conclude(outcome, |error| match left {
            Some((source, sink)) => far_end::explain_between(error, source, sink),
            None => far_end::explain(error, None),
        })
    }

    /// Returns the transfer for the next session, changed after the failures of earlier sessions.
    fn request_for_next_session(
        &self,
        way: SessionTransport,
        reporter: &TransferReporter,
    ) -> Cow<'_, TransferRequest> {
        let mut transfer = Cow::Borrowed(&self.transfer);
        if reporter.makes_destination() {
            // It may exist by now, and there may be no journal that shows that an earlier session has made
            // it.
            transfer.to_mut().spec.no_target_directory = true;
        }
        if way.over_tcp || way.data > DataPathFallback::Usual {
            transfer.to_mut().settings.fabric = FabricWanted::Off;
        }
        match way.data {
            DataPathFallback::Usual => {}
            DataPathFallback::Cautious => {
                let TransferRequest { spec, settings, .. } = transfer.to_mut();
                settings.segment_bytes = Some(CAUTIOUS_SEGMENT_BYTES);
                spec.streams =
                    if spec.streams == 0 { CAUTIOUS_STREAMS } else { spec.streams.min(CAUTIOUS_STREAMS) };
            }
            DataPathFallback::Control => transfer.to_mut().settings.over_control = true,
        }
        transfer
    }

    /// Makes of `session` one that does not begin after a signal: Ctrl-C ends ssh too, which looks like a
    /// broken network, and the session would be repeated.
    fn with_stop_check(
        &self,
        mut session: impl FnMut(SessionTransport) -> Result<TransferOutcome, SessionError>,
    ) -> impl FnMut(SessionTransport) -> TransferOutcome {
        move |way| {
            if self.stop_control.is_stop_requested() {
                return TransferOutcome::failed(SessionError::Interrupted);
            }
            session(way).unwrap_or_else(TransferOutcome::failed)
        }
    }

    fn connect_to_far_end<'f>(
        &'f self,
        far: &'f FarEndAddress,
    ) -> Result<(ReachedFarEnd<'f>, PeerChannel), SessionError> {
        let (protection, stall) = (self.args.transfer.protection(), self.args.transfer.stall_timeout);
        let shares = *self.args.transfer.meta_scheduler() != MetaSchedulerChoice::Off;
        let is_quiet = self.args.quiet;
        let approach = FarEndAccess { args: &self.args.far, protection, stall, shares, is_quiet };
        connect_to_far_end(far, approach, &self.stop_control)?.ok_or(SessionError::Interrupted)
    }

    /// Concludes the transfer. After a signal the connection's end is not reported as an error.
    fn conclude(
        &self,
        outcome: TransferOutcome,
        explain: impl FnOnce(&SessionError) -> UserError,
    ) -> report::SessionConclusion {
        let (end, trouble, is_final) = match outcome.result {
            Ok(()) => (ExitReason::Reached, None, true),
            Err(_) if self.stop_control.has_timed_out() => {
                (ExitReason::TimedOut, Some(self.time_limit_error()), false)
            }
            Err(error) if error.is_interrupted() || self.stop_control.is_stop_requested() => {
                (ExitReason::Interrupted, None, false)
            }
            Err(error) => {
                let is_final = matches!(error.retry_chance(), RetryChance::Never | RetryChance::OnceMet)
                    && !error.is_storage_fault();
                (ExitReason::Failed, Some(explain(&error)), is_final)
            }
        };
        report::SessionConclusion { end, summary: outcome.summary, trouble, is_final }
    }

    fn time_limit_error(&self) -> UserError {
        let late = match (
            self.args.transfer.stop_at.filter(|&moment_s| moment_s <= now_s()),
            self.args.transfer.timeout,
        ) {
            (Some(moment_s), _) => format!("before {} (--stop-at)", format_moment(moment_s)),
            (None, longest) => format!("within {} s (--timeout)", longest.unwrap_or_default().as_secs()),
        };
        UserError::new(format!("the transfer did not end {late}"))
            .hint("run the same command again, or `carrack resume`; files that are complete stay")
    }
}

/// Records the copy in the register. The record is a convenience: without it the copy runs all the same.
fn register_copy(args: &CpArgs, route: &TransferEndsAndPaths) -> Option<NotedCopy> {
    if args.dry_run {
        return None;
    }
    // A secret is not kept; nor is a command that read from a pipe, since it would read other data.
    let arguments = if args.far.daemon.has_token_argument() || args.transfer.single_read_option().is_some() {
        Vec::new()
    } else {
        without_stop(std::env::args_os())
    };
    let (sources, destination) = args.paths().ok()?;
    let standing = CopyProgressRecord {
        label: args.label.clone(),
        sources: sources.iter().map(|source| source.to_string_lossy().into_owned()).collect(),
        destination: destination.to_string_lossy().into_owned(),
        in_background: args.in_background,
        ..CopyProgressRecord::default()
    };
    let id = transfer_id(route, &args.transfer.fidelity().fidelity(), args.transfer.partial_range()).ok()?;
    CopyStore::of_user()?.begin(id, &arguments, standing).ok()?
}

/// Returns the command for another run: without its stop time, which is over by then.
fn without_stop(words: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let (mut kept, mut words) = (Vec::new(), words);
    while let Some(word) = words.next() {
        match word.as_bytes() {
            b"--" => {
                kept.push(word);
                kept.extend(words.by_ref());
            }
            // The command runs again in the foreground.
            b"--background" | b"--in-background" => {}
            long if long.starts_with(b"--background=") => {}
            b"--stop-at" => drop(words.next()),
            long if long.starts_with(b"--stop-at=") => {}
            _ => kept.push(word),
        }
    }
    kept
}

/// Returns the history of earlier transfers between these ends. It is a convenience, too.
fn history(route: &TransferEndsAndPaths) -> Option<TunerHistory> {
    Some(TunerStore::of_user()?.history(TransferEndNames::of_route(route)?))
}

fn transfer_id_error(error: &io::Error) -> UserError {
    UserError::new(format!("naming the transfer: {error}"))
}

/// Returns the identity by which the transfer is recognised when the same command runs again.
fn identify(
    args: &CpArgs,
    route: &TransferEndsAndPaths,
    sources: &[OsString],
    destination: &OsStr,
) -> Result<TransferIdentity, UserError> {
    let mut run = [0; 16];
    getrandom(&mut run, GetRandomFlags::empty()).map_err(|errno| transfer_id_error(&errno.into()))?;
    Ok(TransferIdentity {
        id: transfer_id(route, &args.transfer.fidelity().fidelity(), args.transfer.partial_range())
            .map_err(|error| transfer_id_error(&error))?,
        run: TransferExecutionId(run),
        sources: sources.iter().map(|source| source.as_bytes().to_vec()).collect(),
        destination: destination.as_bytes().to_vec(),
        is_shared: false,
    })
}

fn begin_manifest(path: &Path) -> Result<ManifestWriter, (UserError, ExitStatus)> {
    ManifestWriter::create(path).map_err(|error| {
        let path = carrack_model::escape(path.as_os_str().as_bytes());
        (UserError::new(format!("--manifest {path}: {error}")), ExitStatus::Nothing)
    })
}

/// Returns the name of the command.
fn command_name(args: &CpArgs) -> &'static str {
    if args.sync.is_some() { "sync" } else { "cp" }
}

fn create_html_report(args: &CpArgs, path: &Path) -> Result<HtmlReportView, (UserError, ExitStatus)> {
    let (sources, destination) = args.paths().map_err(|trouble| (trouble, ExitStatus::Usage))?;
    let headline = PageHeadline {
        command: command_name(args),
        sources: sources.to_vec(),
        destination: destination.to_owned(),
    };
    HtmlReportView::new(path, headline).map_err(|error| {
        let path = carrack_model::escape(path.as_os_str().as_bytes());
        (UserError::new(format!("--report {path}: {error}")), ExitStatus::Nothing)
    })
}

/// Opens the file of `--log-file`, which may hold the messages of earlier copies.
fn open_log(path: &Path) -> Result<File, (UserError, ExitStatus)> {
    File::options().append(true).create(true).open(path).map_err(|error| {
        let path = carrack_model::escape(path.as_os_str().as_bytes());
        (UserError::new(format!("--log-file {path}: {error}")), ExitStatus::Nothing)
    })
}

/// Creates the views. stdout is data, stderr is talk.
fn create_views(
    args: &CpArgs,
    far: &RemoteEnds,
    page: Option<HtmlReportView>,
    log: Option<File>,
    noted: Option<&Arc<Mutex<NotedCopy>>>,
) -> Vec<Box<dyn TransferEventPresenter>> {
    let mut views: Vec<Box<dyn TransferEventPresenter>> = Vec::new();
    if args.json {
        views.push(Box::new(JsonView::new(io::stdout())));
    } else if args.dry_run {
        views.push(Box::new(DryRunListView::new(io::stdout(), io::stdout().is_terminal())));
    }
    views.extend(page.map(|page| Box::new(page) as Box<dyn TransferEventPresenter>));
    if let Some(log) = log {
        let volume = if args.verbose { TalkVolume::Verbose } else { TalkVolume::Normal };
        views.push(Box::new(StderrTextView::new(log, volume, None).with_ends(far.clone())));
    }
    if let Some(noted) = noted {
        // The output to a terminal is kept in a log too; in the background stderr is that log already.
        if !args.in_background {
            let log = noted.lock().unwrap_or_else(PoisonError::into_inner).log_path();
            let view = StderrTextView::new(CopyLogFile::new(log), TalkVolume::Normal, None);
            views.push(Box::new(view.with_ends(far.clone())));
        }
        views.push(Box::new(CopyStatusRecorder::new(Arc::clone(noted), args.in_background)));
    }
    let volume = volume(args);
    match args.paths() {
        Ok((sources, destination)) if args.tui && is_live_terminal() => {
            let view = LiveView::new(command_name(args), sources, destination, volume);
            views.push(Box::new(view.with_ends(far.clone())));
            return views;
        }
        _ if args.tui => warn("--tui needs a terminal at stderr: going on without"),
        _ => {}
    }
    let bar = (volume >= TalkVolume::Normal && !args.dry_run && is_live_terminal())
        .then(report::ProgressLine::on_stderr);
    let talk = StderrTextView::new(io::stderr(), volume, bar).with_status().with_ends(far.clone());
    views.push(Box::new(talk.in_colour(colour::wants_colour(&io::stderr()))));
    views
}

fn volume(args: &CpArgs) -> TalkVolume {
    match (args.json, args.quiet, args.verbose) {
        (true, ..) => TalkVolume::Errors,
        (_, true, _) => TalkVolume::Quiet,
        (.., true) => TalkVolume::Verbose,
        _ => TalkVolume::Normal,
    }
}

/// Returns true if stderr is a terminal that can rewrite a line.
fn is_live_terminal() -> bool {
    io::stderr().is_terminal() && std::env::var_os("TERM").is_some_and(|term| term != "dumb")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_run_again_does_not_stop() {
        for (typed, noted) in [
            ("carrack cp --stop-at 18:30 a b", "carrack cp a b"),
            ("carrack cp a --stop-at=@7 b", "carrack cp a b"),
            ("carrack cp a b --stop-at 1h", "carrack cp a b"),
            ("carrack cp -- --stop-at b", "carrack cp -- --stop-at b"),
        ] {
            let noted: Vec<OsString> = noted.split(' ').map(OsString::from).collect();
            assert_eq!(without_stop(typed.split(' ').map(OsString::from)), noted, "{typed}");
        }
    }
}
