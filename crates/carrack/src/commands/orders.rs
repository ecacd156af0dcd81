//! `carrack cancel`, `carrack pause`, and what `carrack resume` does with a submitted transfer.

use carrack_cluster::control::Order;
use clap::Args;

use super::target_options::{TargetArgs, control};
use crate::background::{self, Background};
use crate::exit::{self, Exit};
use crate::trouble::Trouble;

/// End a submitted transfer or a copy in the background
///
/// What is complete at the destination stays. Submitting it again moves what is missing.
#[derive(Debug, Args)]
#[command(after_long_help = exit::help())]
pub struct CancelArgs {
    #[command(flatten)]
    order: OrderArgs,
}

/// Have a submitted transfer wait until `carrack resume ID`
#[derive(Debug, Args)]
#[command(after_long_help = exit::help())]
pub struct PauseArgs {
    #[command(flatten)]
    order: OrderArgs,
}

// No documentation comment: clap would take it for the command's.
#[derive(Debug, Args)]
struct OrderArgs {
    /// The transfer's ID, or the beginning of it
    #[arg(value_name = "ID")]
    id: String,

    #[command(flatten)]
    target: TargetArgs,
}

/// Ends it.
pub fn cancel(args: &CancelArgs) -> Exit {
    match Background::of_user().and_then(|background| background.find(&args.order.id)) {
        Some(copy) => done(background::cancel(&copy)),
        None => give(&args.order.id, &args.order.target, Order::Cancel),
    }
}

/// Has it wait.
pub fn pause(args: &PauseArgs) -> Exit {
    give(&args.order.id, &args.order.target, Order::Pause)
}

/// Gives an order; done when it is kept.
pub fn give(id: &str, target: &TargetArgs, order: Order) -> Exit {
    done(control(target).and_then(|target| target.wait(target.control.order("", id, order))))
}

fn done<T>(given: Result<T, Trouble>) -> Exit {
    match given {
        Ok(_) => Exit::Complete,
        Err(trouble) => {
            trouble.tell();
            Exit::Nothing
        }
    }
}
