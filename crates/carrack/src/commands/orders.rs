//! `carrack cancel`, `carrack pause`, and `carrack resume` of a submitted transfer.

use std::io::{self, Write};

use carrack_register::transfer_operations::TransferControlOrder;
use clap::Args;

use super::transfer_lists::find_own_copy;
use crate::exit::{self, ExitStatus};
use crate::options::transfer_server::{ServerConnectionArgs, connect_to_register};
use crate::register::background;
use crate::user_error::{UserError, escape_control_characters};
use crate::views::output::stdout_error;

/// End a transfer
///
/// It may be a submitted transfer, or a copy of your own.
///
/// Complete files stay at the destination. Submitting it again moves the missing ones.
#[derive(Debug, Args)]
#[command(after_long_help = exit::help(""))]
pub struct CancelArgs {
    #[command(flatten)]
    order: TransferControlArgs,
}

/// Pause a submitted transfer until `carrack resume ID`
#[derive(Debug, Args)]
#[command(after_long_help = exit::help(""))]
pub struct PauseArgs {
    #[command(flatten)]
    order: TransferControlArgs,
}

// No documentation comment: clap would take it for the command's.
#[derive(Debug, Args)]
struct TransferControlArgs {
    /// The transfer's ID, or its first digits
    #[arg(value_name = "ID")]
    id: String,

    #[command(flatten)]
    target: ServerConnectionArgs,
}

/// Ends the transfer.
pub fn cancel(args: &CancelArgs) -> ExitStatus {
    match find_own_copy(&args.order.id, &args.order.target) {
        Ok(Some(copy)) => exit_status_of(background::cancel(&copy)),
        Ok(None) => send_order(&args.order.id, &args.order.target, TransferControlOrder::Cancel),
        Err(trouble) => exit_status_of::<()>(Err(trouble)),
    }
}

/// Pauses the transfer.
pub fn pause(args: &PauseArgs) -> ExitStatus {
    let copy = match find_own_copy(&args.order.id, &args.order.target) {
        Ok(copy) => copy,
        Err(trouble) => return exit_status_of::<()>(Err(trouble)),
    };
    if let Some(copy) = copy {
        let id = copy.short_id();
        let trouble = UserError::new(format!("{id} is a copy of your own, and no copy waits"));
        return exit_status_of::<()>(Err(trouble.hint(format!(
            "`carrack cancel {id}` ends it, and `carrack resume {id}` goes on where it ended"
        ))));
    }
    send_order(&args.order.id, &args.order.target, TransferControlOrder::Pause)
}

/// Sends an order; returns when it is stored. Prints the ID of a transfer that continues as another one.
pub fn send_order(id: &str, target: &ServerConnectionArgs, order: TransferControlOrder) -> ExitStatus {
    let given = connect_to_register(target)
        .and_then(|target| target.wait(target.control.issue_order(&target.user, id, order)))
        .and_then(|record| if record.id.starts_with(id) { Ok(()) } else { print_new_id(id, &record.id) });
    exit_status_of(given)
}

fn print_new_id(id: &str, new: &str) -> Result<(), UserError> {
    let [id, shown] = [id, new].map(escape_control_characters);
    eprintln!("carrack: transfer {id} goes on as {shown}");
    writeln!(io::stdout(), "{shown}").map_err(|error| stdout_error(&error))
}

fn exit_status_of<T>(given: Result<T, UserError>) -> ExitStatus {
    ExitStatus::of_command_result(given.map(|_| ExitStatus::Complete))
}
