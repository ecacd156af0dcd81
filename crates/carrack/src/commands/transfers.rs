//! `carrack transfers`: the copies of this user, and the submitted transfers, over or not.

use clap::Args;

use super::transfer_lists::{self, TransferListing};
use crate::exit::{self, ExitStatus};
use crate::options::transfer_server::ServerConnectionArgs;

/// List transfers, the latest first
///
/// These are copies of your own, and submitted transfers.
///
/// Copies (`carrack cp`, `carrack sync`, in the foreground or in the background) are recorded from their
/// start on; some hundred complete ones are kept. Submitted transfers are those of the machine's queue; where
/// an option or a variable names a server or a fleet, only those submitted there are listed. `carrack status
/// ID` shows one, `log`, `wait`, `cancel` and `resume` take its ID, too.
#[derive(Debug, Args)]
#[command(after_long_help = exit::help(""))]
pub struct TransfersArgs {
    /// Most transfers to list, up to 10,000
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    limit: u32,

    /// Only transfers submitted before this ID: the whole ID of the last submitted transfer of an earlier
    /// list
    #[arg(long, value_name = "ID")]
    after: Option<String>,

    /// Write a JSON object a line for each
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    target: ServerConnectionArgs,
}

/// Lists the transfers.
pub fn run(args: &TransfersArgs) -> ExitStatus {
    let limit = args.limit as usize;
    // A named server has submitted transfers only, and so has the rest of a list of them.
    let only_submitted = args.after.is_some() || args.target.is_server_given();
    let copies = if only_submitted { Vec::new() } else { transfer_lists::copies(|_| true) };
    let submitted = transfer_lists::submitted_transfers(&args.target, limit, args.after.as_deref());
    TransferListing { copies, submitted, limit }.write(args.json)
}
