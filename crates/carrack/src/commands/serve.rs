//! `carrack serve`: the daemon, and the hidden command that it starts for each client.

use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;

use carrack_register::transfer_records::Umask;
use carrack_service::queue::{LaunchRequest, become_copy};
use carrack_service::{LogVerbosity, ServeError, serve, serve_local_config_file, serve_session};
use clap::Args;

use crate::exit::ExitStatus;
use crate::user_error::UserError;

/// Run a daemon: serve directories to carrack:// clients
///
/// It listens on one port; a configuration names the directories and the users.
///
/// Clients are known by a certificate, a public key or a token, and have the rights in an export that its
/// rules give them. SIGHUP reads the configuration anew, SIGTERM lets running sessions come to their end.
/// With a `[queue]` it carries out what `carrack submit` asks for, too; with `[sharing]` transfers take turns
/// at storage targets. packaging/carrack.toml is a configuration to begin with.
#[derive(Debug, Args)]
pub struct ServeArgs {
    /// The configuration
    #[arg(long, value_name = "FILE", default_value = "/etc/carrack/carrack.toml")]
    config: PathBuf,

    /// Check the configuration, print the plan or the error, and end
    #[arg(long)]
    check: bool,

    /// Log unauthenticated connections and the confinement of each session, too
    #[arg(long, short, conflicts_with = "quiet")]
    verbose: bool,

    /// Log only errors
    #[arg(long, short)]
    quiet: bool,
}

impl ServeArgs {
    fn verbosity(&self) -> LogVerbosity {
        match (self.quiet, self.verbose) {
            (true, _) => LogVerbosity::Quiet,
            (_, true) => LogVerbosity::Verbose,
            _ => LogVerbosity::Normal,
        }
    }
}

/// Serves until SIGTERM.
pub fn run(args: &ServeArgs) -> ExitStatus {
    report_outcome(if args.check { check_config(args) } else { serve(&args.config, args.verbosity()) })
}

fn report_outcome(ended: Result<(), ServeError>) -> ExitStatus {
    match ended {
        Ok(()) => ExitStatus::Complete,
        Err(error) => {
            let trouble = UserError::new(error.to_string());
            let hint = error.hint();
            if hint.is_empty() {
                trouble.print()
            } else {
                trouble.hint(hint).print()
            }
            ExitStatus::Nothing
        }
    }
}

fn check_config(args: &ServeArgs) -> Result<(), ServeError> {
    let (lines, notices) = carrack_service::check_config(&args.config)?;
    let mut stdout = io::stdout().lock();
    for line in lines {
        // A reader may close stdout early.
        let _ = writeln!(stdout, "{line}");
    }
    for notice in notices {
        let _ = writeln!(io::stderr(), "carrack: note: {notice}");
    }
    Ok(())
}

/// Answers one client.
pub fn run_session() -> ExitStatus {
    if io::stdin().is_terminal() {
        let trouble = UserError::new("carrack serve-session is started by carrack serve, not by people");
        trouble.hint("use `carrack serve --config FILE`").print();
        return ExitStatus::Usage;
    }
    if serve_session() { ExitStatus::Complete } else { ExitStatus::Nothing }
}

// No documentation comment: clap would take it for the command's.
#[derive(Debug, Args)]
pub struct QueueProcessArgs {
    #[command(flatten)]
    serve: ServeArgs,
}

/// Keeps the queue of a daemon that has more than one.
pub fn run_queue(args: &QueueProcessArgs) -> ExitStatus {
    report_outcome(serve_local_config_file(&args.serve.config, args.serve.verbosity()))
}

// No documentation comment, as above.
#[derive(Debug, Args)]
pub struct CopyLauncherArgs {
    /// The user to become
    #[arg(long)]
    user: Option<String>,

    /// The umask of new entries
    #[arg(long)]
    umask: Option<Umask>,

    /// The process that started the copy
    #[arg(long)]
    parent: u32,

    /// The command that it becomes
    #[arg(last = true, required = true)]
    words: Vec<OsString>,
}

/// Executes a copy in place of this process; returns only if that fails.
pub fn run_copy(args: &CopyLauncherArgs) -> ExitStatus {
    let errand = LaunchRequest {
        user: args.user.as_deref(),
        umask: args.umask,
        parent: args.parent,
        words: &args.words,
    };
    let error = become_copy(&errand);
    let whose = args.user.as_deref().map_or(String::new(), |user| format!(" as {user}"));
    UserError::new(format!("the copy can't be started{whose}: {error}")).print();
    ExitStatus::Nothing
}
