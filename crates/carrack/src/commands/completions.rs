//! `carrack completions`: scripts by which shells complete carrack's command line.

use std::io::{self, Write};

use clap_complete::Shell;

use crate::exit::ExitStatus;
use crate::options::{config, help};

/// Print completions for a shell: bash, zsh, fish and others
#[derive(Debug, clap::Args)]
pub struct CompletionsArgs {
    /// The shell that they are for
    shell: Shell,
}

/// Prints the script to stdout.
pub fn run(args: &CompletionsArgs) -> ExitStatus {
    let mut script = Vec::new();
    clap_complete::generate(
        args.shell,
        &mut help::without_hidden(&config::carrack_command()),
        "carrack",
        &mut script,
    );
    match io::stdout().write_all(&script) {
        Ok(()) => ExitStatus::Complete,
        Err(_) => ExitStatus::Nothing,
    }
}
