//! `carrack config`: the options that hold, and their sources.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;

use clap::{Args, Subcommand};

use crate::exit::{self, ExitStatus};
use crate::options::config::{
    self, COMMANDS, CommandLineError, ConfigSourceChoice, ConfigSources, ConfiguredOptionRow,
};
use crate::user_error::UserError;
use crate::views::config::{write_json, write_table};
use crate::views::output::write_outcome;

/// Show the options in effect, with their sources
///
/// An option that is not typed comes from, in this order, the environment (CARRACK_BWLIMIT for --bwlimit), a
/// profile (--profile), the user's file (~/.config/carrack/config.toml, XDG_CONFIG_HOME), the system's
/// (/etc/carrack/config.toml); else it has its default.
#[derive(Debug, Args)]
pub struct ConfigArgs {
    #[command(subcommand)]
    what: ConfigCommand,
}

#[derive(Debug, Subcommand)]
enum ConfigCommand {
    Show(ConfigShowArgs),
    Path(PrintConfigPathArgs),
}

/// List every option of a command, or of all, with its value, unit, source and default
#[derive(Debug, Args)]
#[command(after_long_help = exit::help(EXAMPLES))]
struct ConfigShowArgs {
    /// The command; without it, all that take options from elsewhere
    #[arg(value_name = "COMMAND", value_parser = COMMANDS)]
    command: Option<String>,

    /// As for the command
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,

    /// As for the command
    #[arg(long)]
    no_config: bool,

    /// Only options that are set
    #[arg(long)]
    set: bool,

    /// Write one JSON object a line for each option
    #[arg(long)]
    json: bool,

    /// Options to be taken as typed with the command
    #[arg(last = true, value_name = "OPTIONS", requires = "command")]
    typed: Vec<OsString>,
}

/// Print the path of the user's file, even if it does not exist
#[derive(Debug, Args)]
struct PrintConfigPathArgs {
    /// That of the system's instead
    #[arg(long)]
    system: bool,
}

/// Runs the command.
pub fn run(args: &ConfigArgs) -> ExitStatus {
    let done = match &args.what {
        ConfigCommand::Show(args) => show(args),
        ConfigCommand::Path(args) => {
            print_config_path(args).map_err(|trouble| (trouble, ExitStatus::Nothing))
        }
    };
    done.unwrap_or_else(|(trouble, exit)| {
        trouble.print();
        exit
    })
}

fn show(args: &ConfigShowArgs) -> Result<ExitStatus, (UserError, ExitStatus)> {
    let asked = ConfigSourceChoice { profile: args.profile.clone(), no_config: args.no_config };
    let commands: Vec<String> = match &args.command {
        Some(command) => vec![command.clone()],
        None => COMMANDS.map(str::to_owned).into(),
    };
    let (carrack, sources) = (config::command_with_valued_flags(), ConfigSources::of_process());
    let mut tables: Vec<(&str, Vec<ConfiguredOptionRow>)> = Vec::new();
    for command in &commands {
        let rows =
            config::rows(&carrack, command, &args.typed, &asked, &sources).map_err(
                |problem| match problem {
                    CommandLineError::Typed(error) => error.exit(),
                    CommandLineError::Elsewhere(trouble) => (trouble, ExitStatus::Usage),
                },
            )?;
        tables.push((command, rows.into_iter().filter(|row| !args.set || row.is_set()).collect()));
    }
    let mut out = io::stdout().lock();
    let shown = if args.json { write_json(&tables, &mut out) } else { write_table(&tables, &mut out) };
    write_outcome(shown).map_err(|trouble| (trouble, ExitStatus::Nothing))
}

fn print_config_path(args: &PrintConfigPathArgs) -> Result<ExitStatus, UserError> {
    let path = if args.system { Some(config::system_file()) } else { config::user_file() };
    let path = path.ok_or_else(|| {
        UserError::new("there is no place for a user's file").hint("set HOME or XDG_CONFIG_HOME")
    })?;
    let line: &OsStr = path.as_os_str();
    write_outcome(io::stdout().lock().write_all(&[line.as_bytes(), b"\n"].concat()))
}

const EXAMPLES: &str = "\
Examples:
  carrack config show cp
  carrack config show --set             what was set, for every command
  carrack config show cp --profile wan -- --buffer 2GiB
  $EDITOR \"$(carrack config path)\"

";
