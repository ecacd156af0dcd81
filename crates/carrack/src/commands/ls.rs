//! `carrack ls`: the entries of a directory, from its arguments to its exit code.

use std::ffi::OsString;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::ops::ControlFlow;

use carrack_engine::{BrowseItem, RemotePathOperation};
use clap::{Args, ValueHint};

use crate::exit::{self, ExitStatus};
use crate::options::far_end_connection::FarArgs;
use crate::remote::browser::{
    RemoteBrowser, RemotePathCommandOutcome, location_or_exit_status, print_entry_failure,
};
use crate::remote::location::EndLocation;
use crate::views::entry::{ListingStyle, write_line};

/// List a directory here, on another host or at a daemon
///
/// The names come in the order of the file system, as they are read: a directory of millions is not held in
/// memory to be sorted (`| sort` does that). For a location that is no directory, links included, the entry
/// itself is shown. A terminal gets names escaped, a pipe gets their bytes; `--json` keeps names that hold
/// newlines apart.
#[derive(Debug, Args)]
#[command(after_long_help = exit::help(EXAMPLES))]
pub struct LsArgs {
    #[arg(
        help = "A directory: PATH, [user@]host:PATH, carrack://host[:port]/EXPORT/PATH, or carrack://host/ for the exports there"
    )]
    #[arg(default_value = ".", value_hint = ValueHint::AnyPath)]
    location: OsString,

    /// Show modes, owners, bytes and modification times (UTC) too
    #[arg(short, long, conflicts_with = "json")]
    long: bool,

    /// Write one JSON object a line for each entry to stdout
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    far: FarArgs,
}

/// Lists the directory.
pub fn run(args: &LsArgs) -> ExitStatus {
    let begun = location_or_exit_status(EndLocation::parse(&args.location))
        .and_then(|location| Ok((location, RemoteBrowser::new(&args.far)?)));
    match begun {
        Ok((location, browser)) => list(&browser, &location, args.style()),
        Err(exit) => exit,
    }
}

impl LsArgs {
    fn style(&self) -> ListingStyle {
        match (self.json, self.long) {
            (true, _) => ListingStyle::Json,
            (_, true) => ListingStyle::Long,
            _ if io::stdout().is_terminal() => ListingStyle::Names,
            _ => ListingStyle::Bytes,
        }
    }
}

fn list(browser: &RemoteBrowser<'_>, location: &EndLocation, style: ListingStyle) -> ExitStatus {
    let mut out: Box<dyn Write> = if io::stdout().is_terminal() {
        Box::new(io::stdout().lock())
    } else {
        Box::new(BufWriter::new(io::stdout().lock()))
    };
    let (mut shown, mut unwritten) = (0, None);
    let ended = browser.run(location, RemotePathOperation::List, &mut |found| {
        if let BrowseItem::Failed { path, detail } = &found {
            print_entry_failure(location.far.as_ref(), path, detail);
            return ControlFlow::Continue(());
        }
        match write_line(&found, style, &mut out) {
            Ok(()) => {
                shown += 1;
                ControlFlow::Continue(())
            }
            Err(error) => {
                unwritten = Some(error);
                ControlFlow::Break(())
            }
        }
    });
    let unwritten = unwritten.or(out.flush().err());
    let mut tally = RemotePathCommandOutcome::default();
    if ended.is_err() {
        tally.add_done(shown);
    }
    tally.add(ended);
    unwritten.iter().for_each(|error| tally.report_write_failure(error));
    tally.exit_status()
}

const EXAMPLES: &str = "\
Examples:
  carrack ls carrack://dtn1.site.org/      the exports open to you
  carrack ls -l carrack://dtn1.site.org/data/run7
  carrack ls --json me@dtn1:/data | jq -r .path
  carrack ls --token-file token carrack://dtn1.site.org/data

";
