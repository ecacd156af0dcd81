//! `carrack cp`: a transfer, from its arguments to its exit code.

use std::io::{self, IsTerminal};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use carrack_engine::{
    FarEnds, Observer, Outcome, Peer, Role, SessionError, Transfer, copy_between, copy_local, copy_with_peer,
};

pub use super::cp_options::CpArgs;
use crate::exit::{End, Exit};
use crate::far::{self, Reached, reach};
use crate::location::FarEnd;
use crate::manifest::Manifest;
use crate::reins::Reins;
use crate::report::{self, JsonView, ListView, Reporter, TalkView, View, Volume};
use crate::route::{Far, Route};
use crate::trouble::Trouble;

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
    reins: Reins,
}

impl<'a> Job<'a> {
    fn new(args: &'a CpArgs) -> Result<Job<'a>, (Trouble, Exit)> {
        let usage = |trouble| (trouble, Exit::Usage);
        let (sources, destination) = args.paths().map_err(usage)?;
        let route = Route::parse(sources, destination).map_err(|error| usage(error.into()))?;
        if args.relay && !matches!(route.far, Far::Both(..)) {
            let trouble = Trouble::new("--relay is for copies between two far hosts");
            return Err(usage(trouble.hint("leave it out")));
        }
        let transfer = Transfer {
            spec: args.spec(route.far != Far::Neither).map_err(usage)?,
            settings: args.settings().map_err(usage)?,
            sources: route.sources,
            destination: route.destination,
        };
        let reins = Reins::take().map_err(|trouble| (trouble, Exit::Nothing))?;
        Ok(Job { args, far: route.far, transfer, reins })
    }

    fn reporter(&self) -> Result<Reporter, (Trouble, Exit)> {
        let manifest = self.args.manifest.as_deref().map(begin_manifest).transpose()?;
        let spec = &self.transfer.spec;
        Ok(Reporter::new(views(self.args), manifest, spec.dry_run, spec.checksum, self.reins.abort.clone()))
    }

    fn copy(&self, observer: &dyn Observer) -> report::Conclusion {
        match &self.far {
            Far::Neither => self.conclude(copy_local(&self.transfer, observer, &self.reins.abort), None),
            Far::Source(far) => self.copy_with(far, Role::Sink, observer),
            Far::Sink(far) => self.copy_with(far, Role::Source, observer),
            Far::Both(source, sink) => self.copy_between(source, sink, observer),
        }
    }

    fn copy_with(&self, far: &FarEnd, role: Role, observer: &dyn Observer) -> report::Conclusion {
        let (reached, peer) = match self.reach(far) {
            Ok(found) => found,
            Err(conclusion) => return *conclusion,
        };
        let outcome = copy_with_peer(&self.transfer, role, peer, observer, &self.reins.abort);
        self.conclude(outcome, Some(reached))
    }

    /// Here is only who controls.
    fn copy_between(&self, source: &FarEnd, sink: &FarEnd, observer: &dyn Observer) -> report::Conclusion {
        let ((source, source_peer), (sink, sink_peer)) =
            match self.reach(source).and_then(|found| Ok((found, self.reach(sink)?))) {
                Ok(found) => found,
                Err(conclusion) => return *conclusion,
            };
        let ends = FarEnds { source: source_peer, sink: sink_peer, relays: self.args.relay };
        let outcome = copy_between(&self.transfer, ends, observer, &self.reins.abort);
        let (source, sink) = (source.leave(&self.reins), sink.leave(&self.reins));
        self.conclude_as(outcome, |error| far::explain_between(error, source, sink))
    }

    /// A far end, or how the transfer ended without one.
    fn reach<'f>(&'f self, far: &'f FarEnd) -> Result<(Reached<'f>, Peer), Box<report::Conclusion>> {
        let failed =
            |end, trouble| Box::new(report::Conclusion { end, summary: Default::default(), trouble });
        match reach(far, &self.args.far, self.args.protection(), &self.reins) {
            Ok(Some(found)) => Ok(found),
            Ok(None) => Err(failed(End::Interrupted, None)),
            Err(_) if self.reins.is_told_to_end() => Err(failed(End::Interrupted, None)),
            Err(trouble) => Err(failed(End::Failed, Some(trouble))),
        }
    }

    /// After a signal the connection's end is no error of its own.
    fn conclude(&self, outcome: Outcome, reached: Option<Reached<'_>>) -> report::Conclusion {
        let far = reached.map(|reached| reached.leave(&self.reins));
        self.conclude_as(outcome, |error| far::explain(error, far))
    }

    fn conclude_as(
        &self,
        outcome: Outcome,
        explain: impl FnOnce(&SessionError) -> Trouble,
    ) -> report::Conclusion {
        let (end, trouble) = match outcome.result {
            Ok(()) => (End::Reached, None),
            Err(error) if error.is_interrupted() || self.reins.is_told_to_end() => (End::Interrupted, None),
            Err(error) => (End::Failed, Some(explain(&error))),
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
