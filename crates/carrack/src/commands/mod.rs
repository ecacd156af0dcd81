//! The subcommands: one file for each.

pub mod completions;
pub mod cp;
mod cp_options;
mod daemon_options;
pub mod doctor;
mod far_options;
pub mod fleet;
mod journal_options;
pub mod journals;
pub mod keys;
pub mod layout;
pub mod ls;
mod machine_options;
pub mod man;
pub mod mkdir;
pub mod movers;
mod nats_options;
mod not_here;
pub mod orders;
pub mod resume;
pub mod rm;
pub mod serve;
pub mod session;
pub mod stat;
pub mod status;
mod storage_options;
pub mod submit;
mod target_options;
pub mod topo;
pub mod transfers;
pub mod verify;
pub mod wait;

pub use daemon_options::DaemonArgs;
use daemon_options::token_of;
pub use far_options::FarArgs;
