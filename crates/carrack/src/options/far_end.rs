//! The options of every command that may reach another host: the ssh command, and those for a daemon.

use carrack_options::CONNECTION;
use clap::Args;

use crate::options::daemon::DaemonArgs;
use crate::remote::ssh::{FarCommand, SshCommand};

// No documentation comment: clap would take it for the command's.
#[derive(Clone, Debug, Args)]
pub struct FarArgs {
    /// The command that logs in to the far host, with arguments if need be
    ///
    /// A program named `ssh` gets some of OpenSSH's options from carrack, any other only `[user@]host` and
    /// what to run.
    #[arg(long, value_name = "COMMAND", env = "CARRACK_SSH", default_value = "ssh", help_heading = CONNECTION)]
    pub ssh: SshCommand,

    /// Name or path of carrack on the far host, or a command that starts it, such as 'sudo -n carrack'
    ///
    /// The far shell reads it: a path with blanks needs quotes of its own.
    #[arg(long, value_name = "COMMAND", default_value = "carrack", help_heading = CONNECTION)]
    pub remote_carrack: FarCommand,

    #[command(flatten)]
    pub daemon: DaemonArgs,
}
