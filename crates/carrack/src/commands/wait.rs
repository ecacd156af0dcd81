//! `carrack wait`: the end of a submitted transfer, as an exit code.

use carrack_register::transfer_operations::TransferOperationError;
use carrack_register::transfer_records::{TransferRecord, TransferState};
use clap::Args;
use futures_util::StreamExt;

use super::transfer_lists::find_own_copy;
use crate::exit::{self, ExitStatus};
use crate::options::transfer_server::{ServerConnectionArgs, TransferServerConnection, connect_to_register};
use crate::register::background;
use crate::user_error::{UserError, escape_control_characters};
use crate::views::transfer::entries;

/// Wait until a transfer is over
///
/// It may be a submitted transfer, or a copy of your own.
///
/// The exit code is that of the same `carrack cp`; 130 if it was cancelled. A daemon that is restarted in
/// between is waited for, for half a minute. The output of a copy in the background is shown at its end.
#[derive(Debug, Args)]
#[command(after_long_help = exit::help(""))]
pub struct WaitArgs {
    /// The transfer's ID, or its first digits
    #[arg(value_name = "ID")]
    id: String,

    #[command(flatten)]
    target: ServerConnectionArgs,
}

/// Waits for the transfer.
pub fn run(args: &WaitArgs) -> ExitStatus {
    let ended = find_own_copy(&args.id, &args.target).and_then(|copy| match copy {
        Some(copy) => background::wait(&copy),
        None => connect_to_register(&args.target).and_then(|target| await_end(&target, &args.id)),
    });
    ExitStatus::of_command_result(ended)
}

/// Waits until a transfer is over, prints its failures, and returns the exit code that `carrack cp` would
/// have had.
pub fn await_end(target: &TransferServerConnection, id: &str) -> Result<ExitStatus, UserError> {
    let mut told = String::new();
    let record = target.wait(await_last_record(target, id, |record| {
        print_wait_reason(record, &mut told);
        Ok(())
    }))?;
    if record.tally.entries_skipped > 0 {
        eprintln!("carrack: left out: {}", entries(record.tally.entries_skipped));
    }
    if record.tally.entries_deleted > 0 {
        eprintln!("carrack: deleted: {}", entries(record.tally.entries_deleted));
    }
    record.undeleted.iter().for_each(|words| eprintln!("carrack: {}", escape_control_characters(words)));
    if let Some(trouble) = outcome_error(&record) {
        trouble.print();
    }
    Ok(ExitStatus::of_record(&record))
}

/// Prints the reason for which the transfer waits, if it has changed.
fn print_wait_reason(record: &TransferRecord, told: &mut String) {
    if !record.waits_for.is_empty() && record.waits_for != *told {
        eprintln!(
            "carrack: transfer {} waits: {}",
            escape_control_characters(&record.id),
            escape_control_characters(&record.waits_for)
        );
    }
    told.clone_from(&record.waits_for);
}

/// Returns the last record of a transfer; `seen` gets each record.
pub async fn await_last_record(
    target: &TransferServerConnection,
    id: &str,
    mut seen: impl FnMut(&TransferRecord) -> Result<(), TransferOperationError>,
) -> Result<TransferRecord, TransferOperationError> {
    let mut watched = target.control.watch(id);
    let mut last = None;
    while let Some(record) = watched.next().await {
        let record = record?;
        seen(&record)?;
        last = Some(record);
    }
    match last {
        Some(record) if record.state.is_over() => Ok(record),
        _ => Err(TransferOperationError::Away("nobody says any more how the transfer is".to_owned())),
    }
}

fn outcome_error(record: &TransferRecord) -> Option<UserError> {
    let id = &record.id;
    let trouble = match record.state {
        TransferState::Failed => UserError::new(format!("transfer {id} failed: {}", record.reason))
            .hint(format!("`carrack resume {id}` goes on where it ended")),
        TransferState::Cancelled => UserError::new(format!("transfer {id} was cancelled")),
        _ if record.tally.entries_failed > 0 => {
            let failed = entries(record.tally.entries_failed);
            UserError::new(format!("{failed} of transfer {id} could not be copied"))
                .hint(format!("`carrack status {id}` names them; `carrack resume {id}` tries them again"))
        }
        _ if record.violates_strict() => UserError::new(format!(
            "something of transfer {id} could not be kept, which is a failure with --strict"
        ))
        .hint(format!("`carrack status {id}` tells what")),
        _ => return None,
    };
    Some(trouble.escaped())
}
