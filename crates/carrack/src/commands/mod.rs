//! The subcommands: one file for each.

pub mod completions;
pub mod cp;
mod cp_options;
mod daemon_options;
pub mod doctor;
mod far_options;
pub mod keys;
pub mod layout;
pub mod ls;
mod machine_options;
pub mod man;
pub mod mkdir;
pub mod rm;
pub mod serve;
pub mod session;
pub mod stat;
mod storage_options;
pub mod topo;

pub use daemon_options::DaemonArgs;
pub use far_options::FarArgs;
