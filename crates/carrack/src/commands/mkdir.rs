//! `carrack mkdir`: makes directories, from its arguments to its exit code.

use std::ffi::OsString;
use std::ops::ControlFlow;

use carrack_engine::RemotePathOperation;
use clap::{Args, ValueHint};

use crate::exit::{self, ExitStatus};
use crate::options::far_end_connection::FarArgs;
use crate::remote::browser::{RemoteBrowser, RemotePathCommandOutcome, locations};

/// Make directories here, on another host or at a daemon
#[derive(Debug, Args)]
#[command(after_long_help = exit::help(EXAMPLES))]
pub struct MkdirArgs {
    #[arg(help = "Directories to make: PATH, [user@]host:PATH or carrack://host[:port]/EXPORT/PATH")]
    #[arg(required = true, num_args = 1.., value_name = "LOCATION", value_hint = ValueHint::AnyPath)]
    locations: Vec<OsString>,

    /// Make missing directories above too; an existing directory is no error
    #[arg(short, long)]
    parents: bool,

    #[command(flatten)]
    far: FarArgs,
}

/// Makes the directories.
pub fn run(args: &MkdirArgs) -> ExitStatus {
    make(args).unwrap_or_else(|exit| exit)
}

/// Makes the directories. An error is the exit code of a command that could not begin.
fn make(args: &MkdirArgs) -> Result<ExitStatus, ExitStatus> {
    let locations = locations(&args.locations)?;
    let browser = RemoteBrowser::new(&args.far)?;
    let operation = RemotePathOperation::MakeDirectory { parents: args.parents };
    let mut tally = RemotePathCommandOutcome::default();
    for location in &locations {
        let ended = browser.run(location, operation, &mut |_| ControlFlow::Continue(()));
        if !tally.add(ended) {
            break;
        }
    }
    Ok(tally.exit_status())
}

const EXAMPLES: &str = "\
Examples:
  carrack mkdir carrack://dtn1.site.org/data/run8
  carrack mkdir -p me@dtn1:data/2026/run8

";
