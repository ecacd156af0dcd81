//! `carrack log`: the messages of a transfer.

use std::fs::File;
use std::io::{self, ErrorKind, Write};

use carrack_register::transfer_records::TransferRecord;
use clap::Args;

use super::transfer_lists::find_own_copy;
use crate::exit::{self, ExitStatus};
use crate::options::transfer_server::{ServerConnectionArgs, connect_to_register};
use crate::register::{CopyStore, LocalCopyRecord};
use crate::user_error::escape_control_characters;
use crate::views::output::write_outcome;

/// Show the messages of a transfer
///
/// Warnings, entries that failed or were left out, and its end.
///
/// For a copy of your own its output to people; for a submitted transfer the messages in its record.
#[derive(Debug, Args)]
#[command(after_long_help = exit::help(""))]
pub struct ShowTransferLogArgs {
    /// Its ID, or the first digits
    #[arg(value_name = "ID")]
    id: String,

    #[command(flatten)]
    target: ServerConnectionArgs,
}

/// Prints the log.
pub fn run(args: &ShowTransferLogArgs) -> ExitStatus {
    let shown = find_own_copy(&args.id, &args.target).and_then(|copy| match (copy, CopyStore::of_user()) {
        (Some(copy), Some(copies)) => write_outcome(print_copy_log(&copies, &copy)),
        _ => connect_to_register(&args.target).and_then(|target| {
            let record = target.wait(target.control.transfer(&args.id))?;
            write_outcome(write_transfer_log(&record, &mut io::stdout().lock()))
        }),
    });
    ExitStatus::of_command_result(shown)
}

fn print_copy_log(copies: &CopyStore, copy: &LocalCopyRecord) -> io::Result<()> {
    match File::open(copies.log_path(&copy.id)) {
        Ok(mut log) => io::copy(&mut log, &mut io::stdout().lock()).map(drop),
        // It has no messages so far.
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

fn write_transfer_log(record: &TransferRecord, out: &mut impl Write) -> io::Result<()> {
    for loss in &record.losses {
        writeln!(out, "lost: {}", escape_control_characters(loss))?;
    }
    for skipped in &record.skipped {
        writeln!(
            out,
            "left out: {}: {}",
            escape_control_characters(&skipped.path),
            escape_control_characters(&skipped.reason)
        )?;
    }
    for failure in &record.failures {
        writeln!(
            out,
            "failed: {}: {}",
            escape_control_characters(&failure.path),
            escape_control_characters(&failure.detail)
        )?;
    }
    if !record.waits_for.is_empty() {
        writeln!(out, "waits for: {}", escape_control_characters(&record.waits_for))?;
    }
    let reason = if record.reason.is_empty() {
        String::new()
    } else {
        format!(": {}", escape_control_characters(&record.reason))
    };
    writeln!(out, "{}{reason}", record.state)
}
