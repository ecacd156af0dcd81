//! `carrack status`: the state of transfers.

use std::io::{self, IsTerminal, Write};

use carrack_register::transfer_operations::TransferOperationError;
use clap::Args;

use super::transfer_lists::{self, TransferListing, find_own_copy};
use super::wait::await_last_record;
use crate::exit::{self, ExitStatus};
use crate::options::transfer_server::{ServerConnectionArgs, TransferServerConnection, connect_to_register};
use crate::register::{CopyStore, LocalCopyRecord, background};
use crate::user_error::UserError;
use crate::views::json::write_line;
use crate::views::output::write_outcome;
use crate::views::transfer::{line, write_transfer};

/// Most transfers that are read: those that are not over are among the latest.
const LOOKED_AT: usize = 10_000;

/// Show a transfer, or all that are not over
///
/// These are copies of your own, and submitted transfers.
#[derive(Debug, Args)]
#[command(after_long_help = exit::help(""))]
pub struct StatusArgs {
    /// Its ID, or the first digits; without it all that are not over are listed
    #[arg(value_name = "ID")]
    id: Option<String>,

    /// Show it again whenever it changes (a copy of your own: at its end), until it is over; the exit code is
    /// its own then
    #[arg(long, short, requires = "id")]
    watch: bool,

    /// Write a JSON object a line for each
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    target: ServerConnectionArgs,
}

/// Prints the state.
pub fn run(args: &StatusArgs) -> ExitStatus {
    let Some(id) = &args.id else {
        let submitted =
            transfer_lists::submitted_transfers(&args.target, LOOKED_AT, None).map(|mut records| {
                records.retain(|record| !record.state.is_over());
                records
            });
        return TransferListing {
            copies: transfer_lists::copies(LocalCopyRecord::is_running),
            submitted,
            limit: LOOKED_AT,
        }
        .write(args.json);
    };
    let shown = find_own_copy(id, &args.target).and_then(|copy| match copy {
        Some(copy) if args.watch => watch_copy(&copy, args.json),
        Some(copy) => write_outcome(show_copy(&copy, args.json)),
        None => connect_to_register(&args.target).and_then(|target| {
            if args.watch { watch(&target, id, args.json) } else { show(&target, id, args.json) }
        }),
    });
    ExitStatus::of_command_result(shown)
}

/// Prints the state of a copy of this user's, once it is over.
fn watch_copy(copy: &LocalCopyRecord, as_json: bool) -> Result<ExitStatus, UserError> {
    let exit = background::wait(copy)?;
    let again = CopyStore::of_user().and_then(|copies| copies.reload(copy).ok());
    write_outcome(show_copy(again.as_ref().unwrap_or(copy), as_json))?;
    Ok(exit)
}

/// Prints the state of a copy of this user's.
fn show_copy(copy: &LocalCopyRecord, as_json: bool) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if as_json {
        return write_line(&copy.to_row(), &mut out);
    }
    let log = CopyStore::of_user().map(|copies| copies.log_path(&copy.id)).filter(|log| log.exists());
    copy.show(log.as_deref(), &mut out)
}

fn show(target: &TransferServerConnection, id: &str, as_json: bool) -> Result<ExitStatus, UserError> {
    let record = target.wait(target.control.transfer(id))?;
    let mut out = io::stdout().lock();
    write_outcome(if as_json { write_line(&record, &mut out) } else { write_transfer(&record, &mut out) })
}

fn watch(target: &TransferServerConnection, id: &str, as_json: bool) -> Result<ExitStatus, UserError> {
    let mut out = io::stdout().lock();
    // A terminal that can rewrite a line shows one line that changes.
    let is_live =
        !as_json && out.is_terminal() && std::env::var_os("TERM").is_some_and(|term| term != "dumb");
    let last = await_last_record(target, id, |record| {
        let shown = match (as_json, is_live) {
            (true, _) => write_line(record, &mut out),
            (_, true) => write!(out, "\r\x1b[K{}", line(record)),
            _ => writeln!(out, "{}", line(record)),
        };
        let shown = shown.and_then(|()| out.flush());
        shown.map_err(|error| TransferOperationError::Away(format!("writing to stdout: {error}")))
    });
    let record = target.wait(last)?;
    let mut out = io::stdout().lock();
    if is_live {
        let _ = writeln!(out, "\r\x1b[K");
    }
    if !as_json {
        write_outcome(write_transfer(&record, &mut out))?;
    }
    Ok(ExitStatus::of_record(&record))
}
