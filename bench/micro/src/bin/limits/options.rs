//! The command line.

use std::path::PathBuf;

use bytesize::ByteSize;
use clap::{Args, Parser, Subcommand};
use serde::{Deserialize, Serialize};

/// Measure the limits of this machine: copies, hashes, files on tmpfs, TCP over loopback, whole paths, small
/// files.
#[derive(Parser)]
#[command(name = "limits", args_conflicts_with_subcommands = true)]
pub struct Cli {
    /// Unset for the measurement itself.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// The options of the measurement.
    #[command(flatten)]
    pub options: Options,
}

/// The commands that the program runs itself with.
#[derive(Subcommand)]
pub enum Command {
    /// One end of one measurement; exchanges lines with its parent over its standard streams.
    #[command(hide = true)]
    Worker {
        /// A `Job` as JSON.
        job: String,
    },
}

/// Options of the measurement and of the output.
#[derive(Args)]
pub struct Options {
    /// Runs of each measurement; all measurements run once before one runs again
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repetitions: u32,
    /// The amounts to copy.
    #[command(flatten)]
    pub sizes: Sizes,
    /// Measure only rows with WORDS in their names, as the tables print them
    #[arg(long, value_name = "WORDS")]
    pub only: Option<String>,
    /// Directory of the files; should be tmpfs, as bench/compare uses it
    #[arg(long, value_name = "DIR", default_value = "/dev/shm", overrides_with = "work_dir")]
    pub work_dir: PathBuf,
    /// Write all runs to FILE
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Measure nothing, take the limits from a FILE that --json wrote
    #[arg(long, value_name = "FILE", conflicts_with_all = ["only", "json"])]
    pub from: Option<PathBuf>,
    /// Compare carrack's rows in this results.json of bench/compare with the limits
    #[arg(long, value_name = "FILE")]
    pub compare: Option<PathBuf>,
}

/// The amounts that each measurement moves; all sizes in bytes.
#[derive(Args, Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Sizes {
    /// Large files; with several streams each takes its share of them, or of the blocks of one
    #[arg(long = "files", value_name = "COUNT", default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub file_count: u64,
    /// Size of each; the sum of all is also the amount that is copied, hashed or sent from memory
    #[arg(long = "file-size", value_name = "SIZE", default_value = "1GiB", value_parser = parse_size)]
    pub file_bytes: u64,
    /// Bytes of one read, write, send, receive or splice
    #[arg(long = "block-size", value_name = "SIZE", default_value = "256KiB", value_parser = parse_block)]
    pub block_bytes: u64,
    /// Small files, a hundred in each directory
    #[arg(long = "small-files", value_name = "COUNT", default_value_t = 50_000, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub small_count: u64,
    /// Size of each small file
    #[arg(long = "small-size", value_name = "SIZE", default_value = "4KiB", value_parser = parse_block)]
    pub small_bytes: u64,
}

impl Sizes {
    /// Bytes of all large files together.
    pub fn volume_bytes(&self) -> u64 {
        self.file_count * self.file_bytes
    }
}

/// Parses `1GiB`, `256KiB`, `500M` or `4096`, as in carrack's own options.
fn parse_size(text: &str) -> Result<u64, String> {
    match text.trim().parse::<ByteSize>() {
        Ok(ByteSize(bytes)) if (1..=1 << 40).contains(&bytes) => Ok(bytes),
        Ok(_) => Err("a size is between 1 byte and 1 TiB".into()),
        Err(_) => Err("a size is a number with a unit, such as 256KiB or 1GiB".into()),
    }
}

/// Parses the size of a block that is held in memory in one piece.
fn parse_block(text: &str) -> Result<u64, String> {
    match parse_size(text)? {
        bytes if bytes <= 64 << 20 => Ok(bytes),
        _ => Err("at most 64 MiB".into()),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_holds_together() {
        Cli::command().debug_assert();
        let cli = Cli::try_parse_from(["limits", "--file-size", "1MiB", "--files=2"]).unwrap();
        assert_eq!(cli.options.sizes.volume_bytes(), 2 << 20);
        assert_eq!((cli.options.repetitions, cli.options.sizes.block_bytes), (5, 256 << 10));
    }

    #[test]
    fn refuses_sizes_that_nothing_can_be_done_with() {
        for wrong in [["--file-size", "0"], ["--block-size", "1GiB"], ["--files", "0"], ["--small-size", "x"]]
        {
            assert!(Cli::try_parse_from(["limits"].iter().chain(&wrong)).is_err(), "{wrong:?}");
        }
    }
}
