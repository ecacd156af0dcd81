//! The command line of carrack: parses arguments, runs transfers, and reports to people and programs.
//!
//! `commands` has one file for each subcommand, `options` the command line and the configuration, `remote`
//! the connections to other hosts, `register` the state that is kept between commands, and `views` all
//! rendering. stdout is data, stderr is talk.

mod cli;
mod commands;
#[cfg(test)]
mod doc_commands;
mod exit;
mod options;
mod output_watch;
mod register;
mod remote;
mod sharing;
mod signals;
mod stack_limit;
mod views;

use carrack_options::{lifetime, size, user_error};

fn main() -> std::process::ExitCode {
    // The Rust runtime ignores SIGPIPE: a closed stdout makes writes fail, and doesn't kill the process.
    signals::survive_file_size_limit();
    signals::survive_output_signals();
    carrack_machine::limit_malloc_arenas();
    carrack_machine::raise_descriptor_limit();
    if stack_limit::is_stack_short() { stack_limit::run_with_enough_stack(run) } else { run() }.into()
}

fn run() -> exit::ExitStatus {
    options::config::parse().run()
}
