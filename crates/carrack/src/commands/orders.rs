//! `carrack cancel`, `carrack pause`, and `carrack resume` of a submitted transfer.

use carrack_register::transfer_operations::TransferControlOrder;
use clap::Args;

use super::transfer_lists::own_copy;
use crate::exit::{self, ExitStatus};
use crate::options::transfer_server::{ServerConnectionArgs, control};
use crate::register::background;
use crate::user_error::UserError;

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
    match own_copy(&args.order.id, &args.order.target) {
        Ok(Some(copy)) => done(background::cancel(&copy)),
        Ok(None) => give(&args.order.id, &args.order.target, TransferControlOrder::Cancel),
        Err(trouble) => done::<()>(Err(trouble)),
    }
}

/// Pauses the transfer.
pub fn pause(args: &PauseArgs) -> ExitStatus {
    let copy = match own_copy(&args.order.id, &args.order.target) {
        Ok(copy) => copy,
        Err(trouble) => return done::<()>(Err(trouble)),
    };
    if let Some(copy) = copy {
        let id = copy.short_id();
        let trouble = UserError::new(format!("{id} is a copy of your own, and no copy waits"));
        return done::<()>(Err(trouble.hint(format!(
            "`carrack cancel {id}` ends it, and `carrack resume {id}` goes on where it ended"
        ))));
    }
    give(&args.order.id, &args.order.target, TransferControlOrder::Pause)
}

/// Sends an order; returns when it is stored.
pub fn give(id: &str, target: &ServerConnectionArgs, order: TransferControlOrder) -> ExitStatus {
    done(control(target).and_then(|target| target.wait(target.control.order(&target.user, id, order))))
}

fn done<T>(given: Result<T, UserError>) -> ExitStatus {
    ExitStatus::of_command(given.map(|_| ExitStatus::Complete))
}
