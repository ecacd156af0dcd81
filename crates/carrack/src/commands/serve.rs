//! `carrack serve`: the daemon, and the hidden command that it starts for each client.

use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;

use carrack_service::{Plan, ServeError, Verbosity, serve, serve_session};
use clap::Args;

use crate::exit::Exit;
use crate::trouble::Trouble;

/// Answer carrack:// clients on one port, for the directories and people that a configuration names
///
/// Who comes is known by a certificate, a public key or a token, and may do in an export what its rules say. SIGHUP reads
/// the configuration anew, SIGTERM lets running sessions come to their end. packaging/carrack.toml is a configuration
/// to begin with.
#[derive(Debug, Args)]
pub struct ServeArgs {
    /// The configuration
    #[arg(long, value_name = "FILE", default_value = "/etc/carrack/carrack.toml")]
    config: PathBuf,

    /// Say what the daemon would do, or what keeps it from running, and end
    #[arg(long)]
    check: bool,

    /// Log what strangers do and how each session is confined too
    #[arg(long, short, conflicts_with = "quiet")]
    verbose: bool,

    /// Log only what goes wrong
    #[arg(long, short)]
    quiet: bool,
}

impl ServeArgs {
    fn verbosity(&self) -> Verbosity {
        match (self.quiet, self.verbose) {
            (true, _) => Verbosity::Quiet,
            (_, true) => Verbosity::Verbose,
            _ => Verbosity::Normal,
        }
    }
}

/// Serves until SIGTERM.
pub fn run(args: &ServeArgs) -> Exit {
    let ended = if args.check { check(args) } else { serve(&args.config, args.verbosity()) };
    match ended {
        Ok(()) => Exit::Complete,
        Err(error) => {
            let trouble = Trouble::new(error.to_string());
            let hint = error.hint();
            if hint.is_empty() {
                trouble.tell()
            } else {
                trouble.hint(hint).tell()
            }
            Exit::Nothing
        }
    }
}

fn check(args: &ServeArgs) -> Result<(), ServeError> {
    let plan = Plan::load(&args.config)?;
    let mut stdout = io::stdout().lock();
    for line in plan.describe() {
        // A reader who leaves early has seen enough.
        let _ = writeln!(stdout, "{line}");
    }
    for notice in &plan.notices {
        let _ = writeln!(io::stderr(), "carrack: note: {notice}");
    }
    Ok(())
}

/// Answers one client.
pub fn run_session() -> Exit {
    if io::stdin().is_terminal() {
        let trouble = Trouble::new("carrack serve-session is started by carrack serve, not by people");
        trouble.hint("use `carrack serve --config FILE`").tell();
        return Exit::Usage;
    }
    if serve_session() { Exit::Complete } else { Exit::Nothing }
}
