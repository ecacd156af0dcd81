//! `carrack cp`: a transfer, from its arguments to its exit code.

use std::io::{self, IsTerminal};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use carrack_engine::{
    Abort, Observer, Outcome, Peer, Role, SessionError, Transfer, copy_local, copy_with_peer,
};

pub use super::cp_options::CpArgs;
use crate::exit::{End, Exit};
use crate::location::Host;
use crate::manifest::Manifest;
use crate::report::{self, JsonView, ListView, Reporter, TalkView, View, Volume};
use crate::route::{Far, Route};
use crate::signals::{self, Signalled};
use crate::ssh::{self, Leash, Remote};
use crate::trouble::Trouble;

/// How long ssh may take to end after the session has: the far side may still be removing temporary names.
const SSH_PATIENCE: Duration = Duration::from_secs(10);

/// The same after a signal, when somebody waits for the prompt; the far side cleans up without ssh's help.
const SSH_PATIENCE_INTERRUPTED: Duration = Duration::from_secs(1);

/// Copies.
pub fn run(args: &CpArgs) -> Exit {
    match Job::new(args).and_then(|job| Ok((job.reporter()?, job))) {
        Ok((reporter, job)) => {
            let result = job.copy(&reporter);
            reporter.finish(result)
        }
        Err((trouble, exit)) => {
            trouble.tell();
            exit
        }
    }
}

/// A command line that makes sense.
struct Job<'a> {
    args: &'a CpArgs,
    far: Far,
    transfer: Transfer,
    abort: Abort,
    signalled: Signalled,
    leash: Leash,
}

impl<'a> Job<'a> {
    fn new(args: &'a CpArgs) -> Result<Job<'a>, (Trouble, Exit)> {
        let usage = |trouble| (trouble, Exit::Usage);
        let (sources, destination) = args.paths().map_err(usage)?;
        let route = Route::parse(sources, destination).map_err(|error| usage(error.into()))?;
        let transfer = Transfer {
            spec: args.spec(route.far != Far::Neither).map_err(usage)?,
            settings: args.settings().map_err(usage)?,
            sources: route.sources,
            destination: route.destination,
        };
        let (abort, signalled, leash) = watch_signals()
            .map_err(|error| (Trouble::new(format!("signals can't be watched: {error}")), Exit::Nothing))?;
        Ok(Job { args, far: route.far, transfer, abort, signalled, leash })
    }

    fn reporter(&self) -> Result<Reporter, (Trouble, Exit)> {
        let manifest = self.args.manifest.as_deref().map(begin_manifest).transpose()?;
        let spec = &self.transfer.spec;
        Ok(Reporter::new(views(self.args), manifest, spec.dry_run, spec.checksum, self.abort.clone()))
    }

    fn copy(&self, observer: &dyn Observer) -> report::Conclusion {
        match &self.far {
            Far::Neither => self.conclude(copy_local(&self.transfer, observer, &self.abort), None),
            Far::Source(host) => self.copy_over_ssh(host, Role::Sink, observer),
            Far::Sink(host) => self.copy_over_ssh(host, Role::Source, observer),
        }
    }

    fn copy_over_ssh(&self, host: &Host, role: Role, observer: &dyn Observer) -> report::Conclusion {
        let (command, carrack) = (&self.args.ssh, &self.args.remote_carrack);
        match Remote::start(command, host, carrack, self.args.protection(), self.leash.clone()) {
            Ok((remote, peer)) => self.copy_with_remote(host, role, remote, peer, observer),
            Err(trouble) => {
                report::Conclusion { end: End::Failed, summary: Default::default(), trouble: Some(trouble) }
            }
        }
    }

    fn copy_with_remote(
        &self,
        host: &Host,
        role: Role,
        remote: Remote<'_>,
        peer: Peer,
        observer: &dyn Observer,
    ) -> report::Conclusion {
        let outcome = copy_with_peer(&self.transfer, role, peer, observer, &self.abort);
        let patience = if self.is_told_to_end() { SSH_PATIENCE_INTERRUPTED } else { SSH_PATIENCE };
        let ended = remote.stop(patience);
        self.conclude(outcome, Some(ended.unwrap_or_else(|| ssh::silent(host))))
    }

    fn is_told_to_end(&self) -> bool {
        self.signalled.is_set() || self.abort.is_set()
    }

    /// `silence` explains why a peer that never spoke did not. After a signal the connection's end is no error of its
    /// own.
    fn conclude(&self, outcome: Outcome, silence: Option<Trouble>) -> report::Conclusion {
        let (end, trouble) = match outcome.result {
            Ok(()) => (End::Reached, None),
            Err(error) if error.is_interrupted() || self.is_told_to_end() => (End::Interrupted, None),
            Err(error) => (End::Failed, Some(explain(&error, silence))),
        };
        report::Conclusion { end, summary: outcome.summary, trouble }
    }
}

fn begin_manifest(path: &Path) -> Result<Manifest, (Trouble, Exit)> {
    Manifest::create(path).map_err(|error| {
        let path = carrack_model::escape(path.as_os_str().as_bytes());
        (Trouble::new(format!("--manifest {path}: {error}")), Exit::Nothing)
    })
}

fn watch_signals() -> io::Result<(Abort, Signalled, Leash)> {
    let (abort, leash) = (Abort::new()?, Leash::default());
    let cut = {
        let leash = leash.clone();
        move || leash.kill()
    };
    let signalled = signals::watch(abort.clone(), cut)?;
    Ok((abort, signalled, leash))
}

fn explain(error: &SessionError, silence: Option<Trouble>) -> Trouble {
    match silence {
        Some(trouble) if error.is_peer_silent() => trouble,
        _ => Trouble { message: error.to_string(), hint: error.hint() },
    }
}

/// stdout is data, stderr is talk.
fn views(args: &CpArgs) -> Vec<Box<dyn View>> {
    let mut views: Vec<Box<dyn View>> = Vec::new();
    if args.json {
        views.push(Box::new(JsonView::new(io::stdout())));
    } else if args.dry_run {
        views.push(Box::new(ListView::new(io::stdout(), io::stdout().is_terminal())));
    }
    let volume = volume(args);
    let bar = (volume >= Volume::Normal && !args.dry_run && is_live_terminal()).then(report::Bar::on_stderr);
    views.push(Box::new(TalkView::new(io::stderr(), volume, bar)));
    views
}

fn volume(args: &CpArgs) -> Volume {
    match (args.json, args.quiet, args.verbose) {
        (true, ..) => Volume::Errors,
        (_, true, _) => Volume::Quiet,
        (.., true) => Volume::Verbose,
        _ => Volume::Normal,
    }
}

/// A terminal that can take a line back.
fn is_live_terminal() -> bool {
    io::stderr().is_terminal() && std::env::var_os("TERM").is_some_and(|term| term != "dumb")
}
