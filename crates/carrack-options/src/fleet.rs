//! Options of the distribution of a transfer among a fleet's movers.

use carrack_model::parse_size;
use clap::Args;

/// The heading of these options.
pub const FLEET: &str = "Fleet";

#[expect(missing_docs, reason = "clap would take it for the command's")]
#[derive(Clone, Debug, Default, Args)]
pub struct FleetDistributionArgs {
    /// Bytes of a chunk at most [default: by the transfer's size, up to 1 GiB]
    #[arg(long, value_name = "SIZE", value_parser = parse_size, help_heading = FLEET)]
    chunk_size: Option<u64>,

    /// Pairs of movers at most
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), help_heading = FLEET)]
    pairs: Option<u32>,
}
