//! The command line of carrack: arguments in, a transfer started, what happens told to people and to machines.
//!
//! `commands` has one file for each subcommand, `options` what is typed and configured, `remote` the ways to other hosts,
//! `register` what is kept from one command to the next, and `views` everything that is rendered. stdout is data, stderr is talk.

mod cli;
mod commands;
mod exit;
mod options;
#[cfg(test)]
mod pages;
mod register;
mod remote;
mod sharing;
mod signals;
mod stack;
mod views;

use carrack_options::{lifetime, size, trouble};

fn main() -> std::process::ExitCode {
    // The Rust runtime ignores SIGPIPE: a reader of stdout who leaves is an error code, not a death.
    signals::survive_file_size_limit();
    carrack_machine::keep_heaps_few();
    carrack_machine::raise_descriptors();
    let run = || options::config::parse().run();
    if stack::is_short() { stack::with_enough(run) } else { run() }.into()
}
