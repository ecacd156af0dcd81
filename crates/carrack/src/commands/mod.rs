//! The subcommands: one file for each.

pub mod completions;
pub mod cp;
mod cp_options;
pub mod doctor;
pub mod keys;
pub mod layout;
mod machine_options;
pub mod man;
pub mod serve;
pub mod session;
mod storage_options;
pub mod topo;
