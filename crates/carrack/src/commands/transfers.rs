//! `carrack transfers`: what was submitted, over or not.

use clap::Args;

use super::status::write_all;
use super::target_options::{TargetArgs, control};
use crate::exit::{self, Exit};

/// List submitted transfers, the latest first
#[derive(Debug, Args)]
#[command(after_long_help = exit::help())]
pub struct TransfersArgs {
    /// How many at most, up to 10,000
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    limit: u32,

    /// Only those that were submitted before this one: the whole ID of the last one that was listed
    #[arg(long, value_name = "ID")]
    after: Option<String>,

    /// Write a JSON object a line for each
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    target: TargetArgs,
}

/// Lists them.
pub fn run(args: &TransfersArgs) -> Exit {
    let listed = control(&args.target).and_then(|target| {
        let records = target.wait(target.control.transfers(args.limit as usize, args.after.as_deref()))?;
        write_all(&records, args.json)
    });
    listed.unwrap_or_else(|trouble| {
        trouble.tell();
        Exit::Nothing
    })
}
