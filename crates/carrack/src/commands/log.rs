//! `carrack log`: what a transfer has said.

use std::fs::File;
use std::io::{self, ErrorKind, Write};

use carrack_register::records::TransferRecord;
use clap::Args;

use super::listing::own_copy;
use crate::exit::{self, Exit};
use crate::options::target::{TargetArgs, control};
use crate::register::{Copies, Copy};
use crate::trouble::tame;
use crate::views::output::written;

/// Show what a transfer has said: warnings, what failed or was left out, how it ended
///
/// Of a copy of your own what it has said to people; of a submitted transfer what its record names.
#[derive(Debug, Args)]
#[command(after_long_help = exit::help(""))]
pub struct LogArgs {
    /// Its ID, or the beginning of it
    #[arg(value_name = "ID")]
    id: String,

    #[command(flatten)]
    target: TargetArgs,
}

/// Shows it.
pub fn run(args: &LogArgs) -> Exit {
    let shown = own_copy(&args.id, &args.target).and_then(|copy| match (copy, Copies::of_user()) {
        (Some(copy), Some(copies)) => written(of_copy(&copies, &copy)),
        _ => control(&args.target).and_then(|target| {
            let record = target.wait(target.control.transfer(&args.id))?;
            written(of_record(&record, &mut io::stdout().lock()))
        }),
    });
    Exit::of_command(shown)
}

fn of_copy(copies: &Copies, copy: &Copy) -> io::Result<()> {
    match File::open(copies.log(&copy.id)) {
        Ok(mut log) => io::copy(&mut log, &mut io::stdout().lock()).map(drop),
        // It has said nothing so far.
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
