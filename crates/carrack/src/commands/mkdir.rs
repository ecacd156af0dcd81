//! `carrack mkdir`: directories, from its arguments to its exit code.

use std::ffi::OsString;
use std::ops::ControlFlow;

use carrack_engine::Operation;
use clap::{Args, ValueHint};

use super::far_options::FarArgs;
use crate::browsing::{Browser, Tally, locations};
use crate::exit::{self, Exit};

/// Make directories here, on another host or at a daemon
#[derive(Debug, Args)]
#[command(after_long_help = after_long_help())]
pub struct MkdirArgs {
    #[arg(help = "What to make: PATH, [user@]host:PATH or carrack://host[:port]/EXPORT/PATH")]
    #[arg(required = true, num_args = 1.., value_name = "LOCATION", value_hint = ValueHint::AnyPath)]
    locations: Vec<OsString>,

    /// Make the directories above too, where there are none; one that is there already will do
    #[arg(short, long)]
    parents: bool,

    #[command(flatten)]
    far: FarArgs,
}

/// Makes them.
pub fn run(args: &MkdirArgs) -> Exit {
    let locations = match locations(&args.locations) {
        Ok(locations) => locations,
        Err(trouble) => {
            trouble.tell();
            return Exit::Usage;
        }
    };
    let browser = match Browser::new(&args.far) {
        Ok(browser) => browser,
        Err(trouble) => {
            trouble.tell();
            return Exit::Nothing;
        }
    };
    let operation = Operation::MakeDirectory { parents: args.parents };
    let mut tally = Tally::default();
    for location in &locations {
        let ended = browser.run(location, operation, &mut |_| ControlFlow::Continue(()));
        if !tally.add(ended) {
            break;
        }
    }
    tally.exit()
}

fn after_long_help() -> String {
    const EXAMPLES: &str = "\
Examples:
  carrack mkdir carrack://dtn1.site.org/data/run8
  carrack mkdir -p me@dtn1:data/2026/run8

";
    format!("{EXAMPLES}{}", exit::help())
}
