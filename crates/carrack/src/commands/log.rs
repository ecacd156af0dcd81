//! `carrack log`: the messages of a transfer.

use std::fs::File;
use std::io::{self, ErrorKind, Write};

use carrack_register::transfer_records::TransferRecord;
use clap::Args;

use super::transfer_lists::own_copy;
use crate::exit::{self, ExitStatus};
use crate::options::transfer_server::{ServerConnectionArgs, control};
use crate::register::{CopyStore, LocalCopyRecord};
use crate::user_error::tame;
use crate::views::output::written;

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
    let shown = own_copy(&args.id, &args.target).and_then(|copy| match (copy, CopyStore::of_user()) {
        (Some(copy), Some(copies)) => written(of_copy(&copies, &copy)),
        _ => control(&args.target).and_then(|target| {
            let record = target.wait(target.control.transfer(&args.id))?;
            written(of_record(&record, &mut io::stdout().lock()))
        }),
    });
    ExitStatus::of_command(shown)
}

fn of_copy(copies: &CopyStore, copy: &LocalCopyRecord) -> io::Result<()> {
    match File::open(copies.log(&copy.id)) {
        Ok(mut log) => io::copy(&mut log, &mut io::stdout().lock()).map(drop),
        // It has no messages so far.
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

fn of_record(record: &TransferRecord, out: &mut impl Write) -> io::Result<()> {
    for loss in &record.losses {
        writeln!(out, "lost: {}", tame(loss))?;
    }
    for skipped in &record.skipped {
        writeln!(out, "left out: {}: {}", tame(&skipped.path), tame(&skipped.reason))?;
    }
    for failure in &record.failures {
        writeln!(out, "failed: {}: {}", tame(&failure.path), tame(&failure.detail))?;
    }
    if !record.waits_for.is_empty() {
        writeln!(out, "waits for: {}", tame(&record.waits_for))?;
    }
    let reason = if record.reason.is_empty() { String::new() } else { format!(": {}", tame(&record.reason)) };
    writeln!(out, "{}{reason}", record.state)
}
