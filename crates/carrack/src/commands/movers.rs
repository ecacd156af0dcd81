//! `carrack movers`: the movers of a fleet, and the leftovers of unfinished transfers at their sites.

use std::io::{self, Write};
use std::time::Duration;

use carrack_cluster::bus::NatsBus;
use carrack_cluster::destination_leftovers::{ClearedLeftovers, LEFTOVERS_KEPT_MIN, clear_leftovers};
use carrack_cluster::error::BusError;
use carrack_cluster::transfers::TransferStore;
use clap::{Args, Subcommand};

use super::fleet_processes::{bus_user_error, runtime};
use crate::exit::{self, ExitStatus};
use crate::lifetime;
use crate::options::nats::NatsArgs;
use crate::options::transfer_server::{ServerConnectionArgs, connect_to_register};
use crate::user_error::UserError;
use crate::views::json::write_lines;
use crate::views::output::write_outcome;
use crate::views::transfer::write_movers;

/// List the movers of a fleet
///
/// The queue of one machine has none: its daemon carries transfers out itself.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, after_long_help = exit::help(""))]
pub struct MoversArgs {
    #[command(subcommand)]
    command: Option<MoversCommand>,

    /// Write a JSON object a line for each
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    target: ServerConnectionArgs,
}

#[derive(Debug, Subcommand)]
enum MoversCommand {
    Clean(Box<LeftoversCleanArgs>),
}

/// Remove what transfers that failed or were cancelled have left at their destinations
///
/// These are journals and temporary files, from which the same transfer would resume if it were submitted
/// again. Complete files stay, and so does all that an open transfer between the same places resumes from.
/// Managers remove the same after a while (--keep-leftovers). The command sends requests to movers, for which
/// it needs the rights of a manager at NATS. One line for each transfer goes to stdout.
#[derive(Debug, Args)]
#[command(after_long_help = exit::help(""))]
struct LeftoversCleanArgs {
    /// Only of transfers that ended longer ago: two minutes at least
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = parse_leftovers_age)]
    older: Duration,

    #[command(flatten)]
    nats: NatsArgs,
}

/// Reads the age of what may be removed. Messages of the transfer's end may still be on their way.
pub fn parse_leftovers_age(text: &str) -> Result<Duration, String> {
    let age = lifetime::parse(text)?;
    if age < LEFTOVERS_KEPT_MIN { Err("two minutes at least: 2m".to_owned()) } else { Ok(age) }
}

/// Lists the movers, or cleans up.
pub fn run(args: &MoversArgs) -> ExitStatus {
    let ended = match &args.command {
        None => list(args),
        Some(MoversCommand::Clean(clean)) => clean.run(),
    };
    ExitStatus::of_command_result(ended)
}

fn list(args: &MoversArgs) -> Result<ExitStatus, UserError> {
    let target = connect_to_register(&args.target)?;
    let movers = target.wait(target.control.movers())?;
    let mut out = io::stdout().lock();
    write_outcome(if args.json { write_lines(&movers, &mut out) } else { write_movers(&movers, &mut out) })
}

impl LeftoversCleanArgs {
    fn run(&self) -> Result<ExitStatus, UserError> {
        let options = self.nats.options("clean")?;
        let cleared: Result<Vec<ClearedLeftovers>, BusError> = runtime()?.block_on(async {
            let bus = NatsBus::connect(&options).await?;
            let transfers = TransferStore::open(&bus).await?;
            let cleared = clear_leftovers(&bus, &transfers, self.older).await;
            bus.close().await;
            cleared
        });
        let cleared = cleared.map_err(|error| bus_user_error(&error))?;
        let failed = cleared.iter().filter(|cleared| cleared.removed.is_err()).count();
        let mut out = io::stdout().lock();
        let lines = cleared.iter().try_for_each(|cleared| writeln!(out, "{cleared}"));
        write_outcome(lines)?;
        Ok(ExitStatus::of_counts((cleared.len() - failed) as u64, failed as u64))
    }
}
