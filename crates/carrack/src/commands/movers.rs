//! `carrack movers`: who could carry transfers out.

use std::io;

use clap::Args;

use super::status::written;
use super::target_options::{TargetArgs, control};
use crate::exit::{self, Exit};
use crate::transfer_report::{write_json, write_movers};

/// List the movers of a fleet
///
/// The queue of one machine has none: its daemon carries transfers out itself.
#[derive(Debug, Args)]
#[command(after_long_help = exit::help())]
pub struct MoversArgs {
    /// Write a JSON object a line for each
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    target: TargetArgs,
}

/// Lists them.
pub fn run(args: &MoversArgs) -> Exit {
    let listed = control(&args.target).and_then(|target| {
        let movers = target.wait(target.control.movers())?;
        let mut out = io::stdout().lock();
        written(match args.json {
            true => write_json(&movers, &mut out),
            false => write_movers(&movers, &mut out),
        })
    });
    listed.unwrap_or_else(|trouble| {
        trouble.tell();
        Exit::Nothing
    })
}
