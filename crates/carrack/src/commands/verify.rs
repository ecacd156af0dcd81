//! `carrack verify`: a comparison of sources and destination, from its arguments to its exit code.

use std::ffi::OsString;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use carrack_engine::{
    EntryDifference, EqualPairs, SessionError, SessionRole, TreeVerification, VerifyEndExaminer,
    VerifyEndSettings, VerifyFinding, VerifyTotals,
};
use carrack_model::{PartialCopyRange, RelPath};
use carrack_options::size;
use carrack_storage::typed_path::{ends_with_slash, last_name};
use clap::{Args, ValueEnum, ValueHint};

use crate::exit::{self, ExitStatus};
use crate::options::compared_metadata::VerifyMetadataArgs;
use crate::options::far_end_connection::FarArgs;
use crate::output_watch::{self, StatusOutput};
use crate::remote::browser::{BrowseStop, RemoteBrowser, locations};
use crate::remote::far_end::{self, FailedFarEnd, FarEndAccess, ReachedFarEnd, connect_to_far_end};
use crate::remote::location::EndLocation;
use crate::remote::stop_control::StopControl;
use crate::remote::wildcards;
use crate::signals::OutputSignals;
use crate::user_error::UserError;
use crate::views::manifest_reader::ManifestLines;
use crate::views::output::print_stdout_error;
use crate::views::quantity::{clock, group_digits};
use crate::views::verify::{VerifyOutputFormat, write_finding, write_summary};

const PART: &str = "Partial comparison";

/// Options for whole files or trees, which exclude a part.
const WHOLE: [&str; 14] = [
    "manifest",
    "extra",
    "archive",
    "preserve",
    "perms",
    "owner",
    "group",
    "xattrs",
    "acls",
    "hard_links",
    "file_flags",
    "sparse",
    "omit_dir_times",
    "numeric_ids",
];

/// Compare a destination with its sources, or with a manifest
///
/// Everything in the sources is looked for at the destination: files of the same size are read at both ends
/// and their digests compared; the bytes that differ are reported. Modification times are compared too, and
/// with --archive or the options below modes, owners and everything else that `carrack cp` keeps by the same
/// options. Only metadata and digests travel.
///
/// A source goes by the rules of `cp -r`: DIRECTORY is looked for as DST/DIRECTORY, or, where there is no
/// such name, as DST itself; DIRECTORY/ is DST itself.
#[derive(Debug, Args)]
#[command(after_long_help = exit::help_of_verify(EXAMPLES))]
pub struct VerifyArgs {
    /// The sources, and last the destination; with --manifest only the destination
    ///
    /// Each is PATH, `[user@]host:PATH` or `carrack://host[:port]/EXPORT/PATH`.
    #[arg(required = true, num_args = 1.., value_name = "LOCATION", value_hint = ValueHint::AnyPath)]
    locations: Vec<OsString>,

    /// Compare with the BLAKE3 digests in FILE
    ///
    /// `carrack cp --manifest` and b3sum write such files. The paths in it begin at the destination, a
    /// directory. Contents alone are compared: it holds nothing else.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "extra")]
    manifest: Option<PathBuf>,

    /// Report destination entries that the sources lack, too
    #[arg(long)]
    extra: bool,

    /// Compare only the bytes from this offset on, of one regular file
    ///
    /// The destination has them at the same offset. As `carrack cp` with the same options copies it. Metadata
    /// are not compared then.
    #[arg(long, value_name = "SIZE", value_parser = size::parse_offset, conflicts_with_all = WHOLE, help_heading = PART)]
    offset: Option<u64>,

    /// Compare only this number of bytes [default: up to the source's end]
    ///
    /// From --offset on, or from the beginning.
    #[arg(long, value_name = "SIZE", value_parser = size::parse, conflicts_with_all = WHOLE, help_heading = PART)]
    length: Option<u64>,

    /// Record equal files in FILE, from which the same command resumes
    ///
    /// Files that were changed since are read again. The file is removed when everything is equal.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    state: Option<PathBuf>,

    /// End that is read past the page cache
    ///
    /// The storage's own contents are compared then, where the file system permits it.
    #[arg(long, value_name = "END", value_enum, default_value_t = ReadbackOption::Destination)]
    readback: ReadbackOption,

    /// Threads that read at each end; 0: one for each core, 4 to 16
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u16).range(0..=256))]
    threads: u16,

    /// Write each difference and a summary to stdout, as JSON lines
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    metadata: VerifyMetadataArgs,

    #[command(flatten)]
    far: FarArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ReadbackOption {
    /// Only the destination
    Destination,
    /// The sources too
    Both,
    /// Neither: faster just after a copy
    None,
}

/// Runs the comparison.
pub fn run(args: &VerifyArgs) -> ExitStatus {
    ValidatedVerifyCommand::new(args).map_or_else(|exit| exit, |job| job.run())
}

impl VerifyArgs {
    fn end_settings(&self, role: SessionRole) -> VerifyEndSettings {
        let is_destination = role == SessionRole::Sink;
        let past_cache = match self.readback {
            ReadbackOption::Destination => is_destination,
            ReadbackOption::Both => true,
            ReadbackOption::None => false,
        };
        VerifyEndSettings { is_destination, past_cache, threads: self.threads.into() }
    }

    fn style(&self) -> VerifyOutputFormat {
        match (self.json, io::stdout().is_terminal()) {
            (true, _) => VerifyOutputFormat::Json,
            (_, true) => VerifyOutputFormat::Terminal,
            _ => VerifyOutputFormat::Bytes,
        }
    }

    /// Returns the part of a file that is compared; `None` for the whole.
    fn partial_range(&self) -> Option<PartialCopyRange> {
        let is_asked = self.offset.is_some() || self.length.is_some();
        is_asked.then(|| PartialCopyRange { offset: self.offset.unwrap_or(0), length: self.length })
    }

    /// Returns a hash over the sources and the destination, by which a state file belongs to one comparison.
    fn comparison_hash(&self) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new();
        let here = std::env::current_dir().unwrap_or_default();
        let manifest = self.manifest.as_deref().map(Path::as_os_str);
        let texts = self.locations.iter().map(|text| text.as_os_str());
        for text in [here.as_os_str()].into_iter().chain(manifest).chain(texts) {
            hasher.update(&(text.len() as u64).to_le_bytes()).update(text.as_bytes());
        }
        hasher.update(&[u8::from(self.manifest.is_some()), self.readback as u8]);
        if let Some(PartialCopyRange { offset, length }) = self.partial_range() {
            hasher.update(&offset.to_le_bytes()).update(&length.unwrap_or(0).to_le_bytes());
        }
        *hasher.finalize().as_bytes()
    }
}

/// A comparison with valid options.
struct ValidatedVerifyCommand<'a> {
    args: &'a VerifyArgs,
    sources: Vec<EndLocation>,
    destination: EndLocation,
    stop_control: StopControl,
    status: VerifyStatus,
}

/// The counts of a running comparison, which SIGUSR1 prints.
#[derive(Clone)]
struct VerifyStatus {
    began: Instant,
    totals: Arc<Mutex<VerifyTotals>>,
}

impl StatusOutput for VerifyStatus {
    fn show_status(&self, _is_requested: bool) {
        let totals = *self.totals.lock().unwrap_or_else(PoisonError::into_inner);
        let (equal, bytes) = (group_digits(totals.equal), size::format_size(totals.bytes_equal));
        let after = clock(self.began.elapsed().as_secs());
        let failed = group_digits(totals.failed());
        let _ = writeln!(
            io::stderr(),
            "carrack: after {after}: {equal} entries are equal ({bytes}), {failed} differ or could not be compared"
        );
    }
}

fn print_usage_error(message: &str, hint: &str) -> ExitStatus {
    UserError::new(message).hint(hint).print();
    ExitStatus::Usage
}

impl<'a> ValidatedVerifyCommand<'a> {
    fn new(args: &'a VerifyArgs) -> Result<ValidatedVerifyCommand<'a>, ExitStatus> {
        let stop_control = StopControl::watch_signals().map_err(|trouble| {
            trouble.print();
            ExitStatus::Nothing
        })?;
        let mut sources = locations(&args.locations)?;
        let destination = sources
            .pop()
            .ok_or_else(|| print_usage_error("no destination", "name it as the last argument"))?;
        match &args.manifest {
            Some(_) if !sources.is_empty() => {
                return Err(print_usage_error(
                    "a manifest stands for the sources",
                    "name the destination only",
                ));
            }
            None if sources.is_empty() => {
                return Err(print_usage_error(
                    "nothing to compare with",
                    "name the sources first, or a --manifest",
                ));
            }
            _ => {}
        }
        let browser = RemoteBrowser::with_stop_control(&args.far, stop_control.clone());
        let matching = sources.into_iter().map(|source| wildcards::expand(&browser, source));
        let sources = matching.collect::<Result<Vec<_>, _>>().map_err(BrowseStop::print)?.concat();
        if args.extra && sources.len() > 1 && sources.iter().any(|source| name_of(source).is_none()) {
            let message =
                "with several sources, nobody can tell which of them lacks what is in the destination itself";
            return Err(print_usage_error(message, "leave --extra out, or the slashes behind the sources"));
        }
        if args.partial_range().is_some() && sources.len() != 1 {
            let message = format!("a part is of one file, and these are {}", sources.len());
            return Err(print_usage_error(&message, "name one regular file and the destination"));
        }
        let status = VerifyStatus { began: Instant::now(), totals: Arc::default() };
        OutputSignals::watch()
            .and_then(|signals| {
                output_watch::start(signals, stop_control.abort.clone(), None, status.clone())
            })
            .map_err(|error| {
                UserError::new(format!("signals can't be watched: {error}")).print();
                ExitStatus::Nothing
            })?;
        Ok(ValidatedVerifyCommand { args, sources, destination, stop_control, status })
    }

    fn run(&self) -> ExitStatus {
        let mut kept = match self.open_state() {
            Ok(kept) => kept,
            Err(trouble) => {
                trouble.print();
                return ExitStatus::Nothing;
            }
        };
        let mut out = BufWriter::new(io::stdout().lock());
        let mut report = FindingWriter { style: self.args.style(), out: &mut out, unwritten: None };
        let mut lost = 0;
        let (mut verified, ended) = self.compare(&mut kept, &mut report, &mut lost);
        verified.unreadable += lost;
        report.finish(&verified, ended.is_ok());
        let unwritten = report.unwritten.take();
        let is_equal = ended.is_ok() && verified.failed() == 0;
        let loss = self.store_or_remove_state(kept, is_equal).is_err() || unwritten.is_some();
        let exit = match ended {
            Err(BrowseStop::Interrupted) => ExitStatus::Interrupted,
            Err(BrowseStop::Trouble(trouble)) => {
                trouble.print();
                ExitStatus::of_counts(verified.equal, 1)
            }
            Ok(()) if self.args.manifest.is_some() && verified.equal + verified.failed() == 0 => {
                UserError::new("the manifest names no file: nothing was compared").print();
                ExitStatus::Nothing
            }
            Ok(()) => ExitStatus::of_counts(verified.equal, verified.failed()),
        };
        if loss { exit.partial_if_complete() } else { exit }
    }

    fn open_state(&self) -> Result<EqualPairs, UserError> {
        let Some(path) = &self.args.state else { return Ok(EqualPairs::disabled()) };
        EqualPairs::open(path, &self.args.comparison_hash()).map_err(|error| state_file_error(path, &error))
    }

    /// Stores or removes the state file; prints an error.
    fn store_or_remove_state(&self, kept: EqualPairs, is_equal: bool) -> Result<(), ()> {
        let put = if is_equal { kept.remove() } else { kept.finish() };
        let path = self.args.state.clone().unwrap_or_default();
        put.map_err(|error| state_file_error(&path, &error).print())
    }

    /// Runs the comparison. `lost` gets the number of lines of a manifest that name no file.
    fn compare(
        &self,
        kept: &mut EqualPairs,
        report: &mut FindingWriter<'_>,
        lost: &mut u64,
    ) -> (VerifyTotals, Result<(), BrowseStop>) {
        let (sink_reached, mut sink) = match self.open(&self.destination, SessionRole::Sink) {
            Ok(found) => found,
            Err(stop) => return (VerifyTotals::default(), Err(stop)),
        };
        let checks = self.args.metadata.checks();
        let told: &mut dyn FnMut(VerifyFinding) = &mut |finding| report.report_finding(&finding);
        let mut verifying = TreeVerification::new(&mut sink, kept, told)
            .checking(checks)
            .sharing_totals(Arc::clone(&self.status.totals));
        let compared = match &self.args.manifest {
            Some(path) => self.compare_manifest(path, &mut verifying, lost),
            None => self.sources.iter().try_for_each(|source| self.compare_tree(source, &mut verifying)),
        };
        let verified = verifying.totals();
        let ended = compared.and_then(|()| sink.end().map_err(|error| (error, None)));
        let sink_left = sink_reached.map(|reached| reached.disconnect(&self.stop_control, false));
        (
            verified,
            ended.map_err(|(error, source_left)| {
                self.stop_reason(error, source_left.map(|left| *left), sink_left)
            }),
        )
    }

    fn compare_manifest(
        &self,
        path: &Path,
        verifying: &mut TreeVerification<'_>,
        lost: &mut u64,
    ) -> Result<(), AbortedComparisonError<'_>> {
        let mut listed = ManifestLines::open(path)
            .map_err(|error| (SessionError::Local { what: "reading the manifest", error }, None))?;
        let compared = verifying.compare_manifest(&mut listed).map_err(|error| (error, None));
        *lost = listed.lost_count();
        compared
    }

    fn compare_tree<'j>(
        &'j self,
        location: &'j EndLocation,
        verifying: &mut TreeVerification<'_>,
    ) -> Result<(), AbortedComparisonError<'j>> {
        let (reached, mut source) = match self.open(location, SessionRole::Source) {
            Ok(found) => found,
            Err(stop) => {
                return Err((
                    SessionError::Interrupted,
                    Some(Box::new(VerifySourceEndFailure::Unreached(stop))),
                ));
            }
        };
        let compared = match (name_of(location), self.sources.len()) {
            (None, _) => Ok(RelPath::root()),
            (Some(name), 1) => verifying.locate_in_destination(&mut source, name),
            (Some(name), _) => {
                RelPath::root().join(name).map_err(|problem| SessionError::refused(problem.to_string(), ""))
            }
        };
        let compared = compared
            .and_then(|place| match self.args.partial_range() {
                Some(part) => {
                    verifying.compare_part(&mut source, &place, part, location.path.as_os_str().as_bytes())
                }
                None => verifying.compare_tree(&mut source, &place, self.args.extra),
            })
            .and_then(|()| source.end());
        let left = reached.map(|reached| reached.disconnect(&self.stop_control, false));
        compared.map_err(|error| (error, left.map(|left| Box::new(VerifySourceEndFailure::Left(left)))))
    }

    fn open<'j>(
        &'j self,
        location: &'j EndLocation,
        role: SessionRole,
    ) -> Result<(Option<ReachedFarEnd<'j>>, VerifyEndExaminer), BrowseStop> {
        let how = self.args.end_settings(role);
        let Some(far) = &location.far else {
            let examiner = VerifyEndExaminer::open_local(&location.path, how, &self.stop_control.abort);
            return Ok((None, examiner.map_err(|error| self.stop_reason(error, None, None))?));
        };
        let abort = &self.stop_control.abort;
        let opened = far_end::retry_while_busy(abort, &mut || {
            let reached =
                connect_to_far_end(far, FarEndAccess::without_transfer(&self.args.far), &self.stop_control);
            let reached = reached.map_err(|unreached| (unreached.into(), None))?;
            let (reached, peer) = reached.ok_or((SessionError::Interrupted, None))?;
            match VerifyEndExaminer::open_remote(peer, &location.path, how, abort) {
                Ok(examiner) => Ok((Some(reached), examiner)),
                Err(error) => Err((error, Some(reached.disconnect(&self.stop_control, false)))),
            }
        });
        opened.map_err(|(error, left)| match role {
            SessionRole::Source => self.stop_reason(error, left.map(VerifySourceEndFailure::Left), None),
            SessionRole::Sink => self.stop_reason(error, None, left),
        })
    }

    /// Returns the reason for an early end. After a signal the connection's end is not reported as an error.
    fn stop_reason(
        &self,
        error: SessionError,
        source: Option<VerifySourceEndFailure<'_>>,
        sink: Option<FailedFarEnd<'_>>,
    ) -> BrowseStop {
        let source = match source {
            Some(VerifySourceEndFailure::Unreached(stop)) => return stop,
            Some(VerifySourceEndFailure::Left(left)) => Some(left),
            None => None,
        };
        if error.is_interrupted() || self.stop_control.is_stop_requested() {
            return BrowseStop::Interrupted;
        }
        BrowseStop::Trouble(match error {
            SessionError::At { role: SessionRole::Source, error } => far_end::explain(&error, source),
            SessionError::At { role: SessionRole::Sink, error } => far_end::explain(&error, sink),
            error => far_end::explain(&error, None),
        })
    }
}

/// The error that ended a comparison, and the state of the source's end.
type AbortedComparisonError<'a> = (SessionError, Option<Box<VerifySourceEndFailure<'a>>>);

/// A source's end after the comparison.
enum VerifySourceEndFailure<'a> {
    Unreached(BrowseStop),
    Left(FailedFarEnd<'a>),
}

/// The writer of findings.
struct FindingWriter<'a> {
    style: VerifyOutputFormat,
    out: &'a mut dyn Write,
    unwritten: Option<io::Error>,
}

impl FindingWriter<'_> {
    fn report_finding(&mut self, finding: &VerifyFinding) {
        // Skipped entries, such as pipes and sockets, are not differences.
        let is_talk =
            matches!(finding.what, EntryDifference::Skipped { .. }) && self.style != VerifyOutputFormat::Json;
        let written = if is_talk {
            write_finding(finding, VerifyOutputFormat::Terminal, &mut io::stderr())
        } else {
            write_finding(finding, self.style, self.out).and_then(|()| self.out.flush())
        };
        if let Err(error) = written {
            self.unwritten.get_or_insert(error);
        }
    }

    fn finish(&mut self, verified: &VerifyTotals, is_whole: bool) {
        let written = match self.style {
            VerifyOutputFormat::Json => write_summary(verified, is_whole, self.style, self.out),
            _ => write_summary(verified, is_whole, self.style, &mut io::stderr()),
        };
        if let Err(error) = written.and_then(|()| self.out.flush()) {
            self.unwritten.get_or_insert(error);
        }
        self.unwritten.iter().for_each(print_stdout_error);
    }
}

/// Returns the name by which it is looked for; `None` if its contents are meant.
fn name_of(source: &EndLocation) -> Option<&[u8]> {
    last_name(&source.path).filter(|_| !ends_with_slash(&source.path))
}

fn state_file_error(path: &Path, error: &dyn std::fmt::Display) -> UserError {
    let path = carrack_model::escape(path.as_os_str().as_bytes());
    UserError::new(format!("--state {path}: {error}"))
}

const EXAMPLES: &str = "\
Examples:
  carrack verify /data/run7 me@dtn1:/scratch/
  carrack verify -a /data/run7 me@dtn1:/scratch/
  carrack verify --extra /data/run7/ carrack://dtn1.site.org/data/run7
  carrack verify --state run7.state dtn1:/data/run7 dtn2:/data/
  carrack verify --manifest run7.b3 /scratch/run7
  carrack verify --offset 64GiB --length 4GiB big dtn1:big

";
