//! `carrack ls`: the entries of a directory, from its arguments to its exit code.

use std::ffi::OsString;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::ops::ControlFlow;

use carrack_engine::{BrowseItem, RemotePathOperation, RemotePathOperationCounts};
use carrack_storage::SourceNameWildcard;
use clap::{Args, ValueHint};

use crate::exit::{self, ExitStatus};
use crate::options::far_end_connection::FarArgs;
use crate::remote::browser::{
    BrowseStop, RemoteBrowser, RemotePathCommandOutcome, location_or_exit_status, print_entry_failure,
};
use crate::remote::location::EndLocation;
use crate::remote::wildcards::last_wildcard;
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

/// The output of a listing.
struct Listing {
    style: ListingStyle,
    out: Box<dyn Write>,
    shown: u64,
    unwritten: Option<io::Error>,
}

impl Listing {
    fn new(style: ListingStyle) -> Listing {
        let out: Box<dyn Write> = if io::stdout().is_terminal() {
            Box::new(io::stdout().lock())
        } else {
            Box::new(BufWriter::new(io::stdout().lock()))
        };
        Listing { style, out, shown: 0, unwritten: None }
    }

    /// Lists a location; with a wildcard only the names that match.
    fn list(
        &mut self,
        browser: &RemoteBrowser<'_>,
        location: &EndLocation,
        wildcard: Option<&SourceNameWildcard>,
    ) -> Result<RemotePathOperationCounts, BrowseStop> {
        let listed = browser.run(location, RemotePathOperation::List, &mut |found| {
            let name = match &found {
                BrowseItem::Failed { path, detail } => {
                    print_entry_failure(location.far.as_ref(), path, detail);
                    return ControlFlow::Continue(());
                }
                BrowseItem::Entry(entry) => &entry.name,
                BrowseItem::Export(name) => name,
            };
            if wildcard.is_some_and(|wildcard| !wildcard.matches(name)) {
                return ControlFlow::Continue(());
            }
            match write_line(&found, self.style, &mut self.out) {
                Ok(()) => self.shown += 1,
                Err(error) => self.unwritten = Some(error),
            }
            if self.unwritten.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        self.unwritten = self.unwritten.take().or(self.out.flush().err());
        listed
    }
}

fn list(browser: &RemoteBrowser<'_>, location: &EndLocation, style: ListingStyle) -> ExitStatus {
    let mut listing = Listing::new(style);
    let mut ended = listing.list(browser, location, None);
    if let (Err(BrowseStop::Trouble(_)), Some((directory, wildcard))) = (&ended, last_wildcard(location)) {
        let matching = listing.list(browser, &directory, Some(&wildcard));
        // The location's own error says more than that nothing matches.
        if listing.shown > 0 {
            ended = matching.map(|counts| RemotePathOperationCounts { done_count: listing.shown, ..counts });
        }
    }
    let mut tally = RemotePathCommandOutcome::default();
    if ended.is_err() {
        tally.add_done(listing.shown);
    }
    tally.add(ended);
    listing.unwritten.iter().for_each(|error| tally.report_write_failure(error));
    tally.exit_status()
}

const EXAMPLES: &str = "\
Examples:
  carrack ls carrack://dtn1.site.org/      the exports open to you
  carrack ls -l carrack://dtn1.site.org/data/run7
  carrack ls 'me@dtn1:/data/*.nc'          the names that match
  carrack ls --json me@dtn1:/data | jq -r .path
  carrack ls --token-file token carrack://dtn1.site.org/data

";
