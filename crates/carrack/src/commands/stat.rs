//! `carrack stat`: the entry at a path, from its arguments to its exit code.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;

use carrack_engine::{BrowseItem, RemotePathOperation};
use clap::{Args, ValueHint};

use crate::exit::{self, ExitStatus};
use crate::options::far_end_connection::FarArgs;
use crate::remote::browser::{BrowseStop, RemoteBrowser, RemotePathCommandOutcome, locations};
use crate::remote::location::{EndLocation, path_text};
use crate::remote::wildcards;
use crate::views::entry::write_stat;

/// Show the entry at a path here, on another host or at a daemon
///
/// Links are not followed.
#[derive(Debug, Args)]
#[command(after_long_help = exit::help(EXAMPLES))]
pub struct StatArgs {
    #[arg(help = "Files and directories: PATH, [user@]host:PATH or carrack://host[:port]/EXPORT/PATH")]
    #[arg(required = true, num_args = 1.., value_name = "LOCATION", value_hint = ValueHint::AnyPath)]
    locations: Vec<OsString>,

    /// Write one JSON object a line for each of them to stdout
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    far: FarArgs,
}

/// Prints the entries.
pub fn run(args: &StatArgs) -> ExitStatus {
    show(args).unwrap_or_else(|exit| exit)
}

/// Prints the entries. An error is the exit code of a command that could not begin.
fn show(args: &StatArgs) -> Result<ExitStatus, ExitStatus> {
    let locations = locations(&args.locations)?;
    let browser = RemoteBrowser::new(&args.far)?;
    let mut tally = RemotePathCommandOutcome::default();
    let mut matching = Vec::new();
    for (location, typed) in locations.into_iter().zip(&args.locations) {
        matching.extend(matching_locations(&browser, location, typed)?);
    }
    for (location, shown) in &matching {
        let mut written = Ok(());
        let ended = browser.run(location, RemotePathOperation::Stat, &mut |found| {
            if let BrowseItem::Entry(entry) = &found {
                written = write_stat(shown.as_bytes(), entry, args.json, &mut io::stdout().lock());
            }
            ControlFlow::Continue(())
        });
        let goes_on = tally.add(ended);
        let written = written.and_then(|()| io::stdout().flush());
        if let Err(error) = &written {
            tally.report_write_failure(error);
        }
        if !goes_on || written.is_err() {
            break;
        }
    }
    Ok(tally.exit_status())
}

/// Returns the locations that match, each as it would be typed.
fn matching_locations(
    browser: &RemoteBrowser<'_>,
    location: EndLocation,
    typed: &OsStr,
) -> Result<Vec<(EndLocation, OsString)>, ExitStatus> {
    let literal = location.clone();
    let found = wildcards::expand(browser, location).map_err(BrowseStop::print)?;
    let shown = found.into_iter().map(|found| {
        let shown = if found == literal {
            typed.to_owned()
        } else {
            path_text(found.far.as_ref(), found.path.as_os_str().as_bytes()).into()
        };
        (found, shown)
    });
    Ok(shown.collect())
}

const EXAMPLES: &str = "\
Examples:
  carrack stat carrack://dtn1.site.org/data/run7/big.h5
  carrack stat --json me@dtn1:data

";
