//! The command line of carrack: arguments in, a transfer started, what happens told to people and to machines.
//!
//! One file for each subcommand in `commands`; what decides, parses or renders lives in modules of its own that tests
//! reach without a process. stdout is data, stderr is talk.

mod browsing;
mod canvas;
mod cli;
mod commands;
mod config;
mod config_report;
mod daemon;
mod doctor_report;
mod entry_report;
mod exit;
mod far;
mod forecast_report;
mod home;
mod journals_report;
mod keys_report;
mod layout_report;
mod listed;
mod live;
mod location;
mod manifest;
mod metadata_report;
mod page;
#[cfg(test)]
mod pages;
mod pending_file;
mod register;
mod reins;
mod report;
mod route;
mod sharing;
mod signals;
mod sites;
mod ssh;
mod stack;
mod state;
mod targets_report;
mod topo_report;
mod transfer_id;
mod transfer_report;
mod tune_report;
mod tuner_store;
mod verify_report;

use carrack_options::{lifetime, size, trouble};

fn main() -> std::process::ExitCode {
    // The Rust runtime ignores SIGPIPE: a reader of stdout who leaves is an error code, not a death.
    signals::survive_file_size_limit();
    carrack_machine::keep_heaps_few();
    carrack_machine::raise_descriptors();
    stack::with_enough(|| config::parse().run()).into()
}
