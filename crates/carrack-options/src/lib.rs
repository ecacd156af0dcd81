//! The options of carrack's copies, each defined once.
//!
//! `carrack cp` and `carrack sync` take them from the command line ([`TransferArgs`], [`SyncOptions`]). A
//! submitted transfer has those that differ from their defaults as a value of its record
//! ([`TransferOptions`]); one table lists the options that a submitted transfer can't have
//! ([`SubmissionExecutorKind`]). Names, units, ranges, defaults and help are those of clap's definitions,
//! from which the API's schema is made, too.

#[cfg(feature = "openapi")]
mod api_schema;
pub mod colour;
mod fabric;
mod fidelity;
mod filter_languages;
mod filters;
mod fleet;
mod journal;
pub mod lifetime;
pub mod local_time;
mod machine;
mod modify_window;
mod option_support;
mod parsed_options;
mod ports;
mod samples;
mod selection;
mod sharing;
pub mod size;
mod spill;
mod storage;
mod submitted_options;
mod sync;
mod transfer_args;
pub mod user_error;

pub use fidelity::FidelityArgs;
pub use fleet::{FLEET, FleetDistributionArgs};
pub use machine::PlacementSchemeName;
pub use modify_window::{ModifyWindowOption, parse_window};
pub use option_support::{REFUSED, RefusedOption, SubmissionExecutorKind};
pub use parsed_options::SubmittedValues;
pub use ports::PortRange;
pub use samples::samples;
pub use sharing::MetaSchedulerChoice;
pub use submitted_options::{SubmittedArgs, TransferOptions};
pub use sync::{SYNC, SyncOptions};
pub use transfer_args::{CONNECTION, DATA, TransferArgs};
pub use user_error::UserError;
