//! The command line, with defaults from the other sources.
//!
//! A command line is parsed twice: first without defaults from elsewhere. The values that the layers hold for
//! its command then become the defaults of the options that it leaves out. clap doesn't treat a default as an
//! option that was given: it conflicts with no option that is typed, and requires none.

use std::ffi::OsString;

use clap::builder::OsStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command, CommandFactory, FromArgMatches, value_parser};

use super::layers::{ConfigLayers, ConfigSources, OptionSetting};
use crate::cli::Cli;
use crate::exit::ExitStatus;
use crate::options::{foreign, help};
use crate::user_error::UserError;

/// The commands whose options have layers. Daemons have configurations of their own, and the processes that
/// carrack itself starts get all options on their command lines.
pub const COMMANDS: [&str; 22] = [
    "cp",
    "sync",
    "resume",
    "submit",
    "status",
    "transfers",
    "log",
    "wait",
    "pause",
    "cancel",
    "movers",
    "targets",
    "ls",
    "stat",
    "mkdir",
    "rm",
    "verify",
    "layout",
    "doctor",
    "topo",
    "fabric",
    "forecast",
];

/// The option that names a profile.
pub const PROFILE: &str = "profile";

/// The option that turns configuration files off.
pub const NO_CONFIG: &str = "no-config";

/// The heading of both in the help.
const HEADING: &str = "Configuration";

/// Options that are valid only on the command line: a secret in a configuration doesn't stay secret for long,
/// and the others belong to a single command line.
const ONLY_TYPED: [&str; 9] =
    ["token", "help", "version", "background", "no-target-directory", "offset", "length", PROFILE, NO_CONFIG];

/// Options that are valid only in the table of their own command: under the same name, other commands have
/// options that delete nothing.
const ONLY_IN_OWN_TABLE: [(&str, &str); 2] = [("rm", "recursive"), ("rm", "yes")];

/// The choice of sources that the user made.
#[derive(Clone, Debug, Default)]
pub struct ConfigSourceChoice {
    /// Name of a profile.
    pub profile: Option<String>,
    /// True if no file is read.
    pub no_config: bool,
}

impl ConfigSourceChoice {
    /// Reads the choice from a command line.
    pub fn of(given: &ArgMatches) -> ConfigSourceChoice {
        let profile = given.get_one::<String>(PROFILE).cloned();
        ConfigSourceChoice {
            profile,
            no_config: given.get_one::<bool>(NO_CONFIG).copied().unwrap_or_default(),
        }
    }
}

/// Returns the command with the options as users type them, for the help, the manual page and the
/// completions.
pub fn carrack_command() -> Command {
    help::arrange_help(plain_command())
}

/// Returns the command without the arrangement of its help, which few command lines ask for.
fn plain_command() -> Command {
    let profile = Arg::new(PROFILE)
        .long(PROFILE)
        .value_name("NAME")
        .help("Options for a kind of path or place: lan, wan, hpc, or a profile of your own [default: none]")
        .help_heading(HEADING);
    let no_config = Arg::new(NO_CONFIG)
        .long(NO_CONFIG)
        .action(ArgAction::SetTrue)
        .help("Read no configuration file (~/.config/carrack/config.toml, /etc/carrack/config.toml)")
        .help_heading(HEADING);
    COMMANDS.iter().fold(Cli::command().styles(help::STYLES), |carrack, name| {
        carrack.mut_subcommand(name, |command| command.arg(profile.clone()).arg(no_config.clone()))
    })
}

/// Returns the same command with flags that take `=false`, so that a command line can take back a flag that a
/// file sets.
pub fn command_with_valued_flags() -> Command {
    COMMANDS
        .iter()
        .fold(plain_command(), |carrack, name| carrack.mut_subcommand(name, |sub| sub.mut_args(open)))
}

/// The reason why a command line can't be carried out.
#[derive(Debug)]
pub enum CommandLineError {
    /// The command line is invalid, or asks for help.
    Typed(clap::Error),
    /// An option from another source is invalid.
    Elsewhere(UserError),
}

impl From<clap::Error> for CommandLineError {
    fn from(error: clap::Error) -> CommandLineError {
        CommandLineError::Typed(error)
    }
}

impl From<UserError> for CommandLineError {
    fn from(trouble: UserError) -> CommandLineError {
        CommandLineError::Elsewhere(trouble)
    }
}

/// Parses the command line of this process. Prints the error or the help and ends the process if there is no
/// command to carry out.
pub fn parse() -> Cli {
    let words: Vec<OsString> = std::env::args_os().collect();
    let carrack = command_with_valued_flags();
    let given = carrack.clone().try_get_matches_from(&words).map_err(CommandLineError::from);
    let settled =
        given.and_then(|given| apply_config_sources(&carrack, given, &words, &ConfigSources::of_process()));
    let parsed = settled.and_then(|settled| Ok(Cli::from_arg_matches(&settled)?));
    parsed.unwrap_or_else(|problem| match problem {
        // Without any argument a beginner is told where to begin.
        CommandLineError::Typed(error)
            if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand && words.len() < 2 =>
        {
            eprint!("{}", help::BEGINNING);
            std::process::exit(ExitStatus::Usage.code().into())
        }
        CommandLineError::Typed(error) if error.use_stderr() => {
            if let Some(trouble) = foreign::foreign_word_error(&error) {
                trouble.print();
                std::process::exit(ExitStatus::Usage.code().into())
            }
            error.exit()
        }
        CommandLineError::Typed(error) if error.kind() == ErrorKind::DisplayHelp => {
            if let Some(trouble) = foreign::help_beside_words_error(&words) {
                trouble.print();
                std::process::exit(ExitStatus::Usage.code().into())
            }
            exit_with_help(error, &words)
        }
        CommandLineError::Typed(error) => exit_with_help(error, &words),
        CommandLineError::Elsewhere(trouble) => {
            trouble.print();
            std::process::exit(ExitStatus::Usage.code().into())
        }
    })
}

/// Prints the help or the version and ends the process. Help shows flags without `=false`, and the defaults
/// without a configuration.
fn exit_with_help(error: clap::Error, words: &[OsString]) -> ! {
    match carrack_command().try_get_matches_from(words) {
        Err(plain) => plain.exit(),
        Ok(_) => error.exit(),
    }
}

/// Parses again, with the options of the other sources as defaults, if there are any.
pub fn apply_config_sources(
    carrack: &Command,
    given: ArgMatches,
    words: &[OsString],
    sources: &ConfigSources,
) -> Result<ArgMatches, CommandLineError> {
    let Some((name, typed)) = given.subcommand() else { return Ok(given) };
    let Some(command) = find_configurable_command(carrack, name) else { return Ok(given) };
    let layers = ConfigLayers::new(&ConfigSourceChoice::of(typed), sources, carrack)?;
    let settings = effective_settings(command, typed, layers.settings_for(command))?;
    if settings.is_empty() {
        return Ok(given);
    }
    let carrack = carrack.clone().mut_subcommand(name, |command| with_defaults(command, &settings));
    carrack.try_get_matches_from(words).map_err(|error| with_value_origin(error, &settings))
}

/// Returns the command of this name, if its options have layers.
pub fn find_configurable_command<'c>(carrack: &'c Command, name: &str) -> Option<&'c Command> {
    carrack.find_subcommand(name).filter(|_| COMMANDS.contains(&name))
}

/// Returns the options of a command that other sources may set.
pub fn options(command: &Command) -> impl Iterator<Item = (&str, &Arg)> {
    let named = command.get_arguments().filter_map(|arg| Some((arg.get_long()?, arg)));
    named.filter(|(name, arg)| !arg.is_hide_set() && !ONLY_TYPED.contains(name))
}

/// The names of the options of one command, or of all.
pub fn option_names<'c>(carrack: &'c Command, of: Option<&'c Command>) -> Vec<&'c str> {
    let all = COMMANDS.iter().filter_map(|name| carrack.find_subcommand(name));
    let commands: Vec<&Command> = of.map_or_else(|| all.collect(), |command| vec![command]);
    commands.into_iter().flat_map(options).map(|(name, _)| name).collect()
}

/// Returns true if an entry for all commands holds for this option of the command.
pub fn accepts_shared_entry(command: &Command, option: &str) -> bool {
    !ONLY_IN_OWN_TABLE.contains(&(command.get_name(), option))
}

/// Returns true if the option was typed, or is set in a variable that clap reads.
pub fn is_explicit(given: &ArgMatches, arg: &Arg) -> bool {
    matches!(
        given.value_source(arg.get_id().as_str()),
        Some(ValueSource::CommandLine | ValueSource::EnvVariable)
    )
}

fn open(arg: Arg) -> Arg {
    match arg.get_action() {
        ArgAction::SetTrue => arg
            .action(ArgAction::Set)
            .value_parser(value_parser!(bool))
            .num_args(0..=1)
            .require_equals(true)
            .default_missing_value("true")
            .default_value("false"),
        _ => arg,
    }
}

/// Returns the settings that hold: those that neither the command line nor an earlier setting overrides. The
/// first of `settings` takes precedence.
///
/// # Errors
/// If an option gets more values than it takes.
pub fn effective_settings(
    command: &Command,
    typed: &ArgMatches,
    settings: impl Iterator<Item = OptionSetting>,
) -> Result<Vec<OptionSetting>, UserError> {
    let explicit = options(command).filter(|(_, arg)| is_explicit(typed, arg));
    let settled = explicit.map(|(_, arg)| {
        let values = typed.get_raw(arg.get_id().as_str());
        (arg, is_flag(arg) && values.is_some_and(|mut values| values.any(|value| value == "false")))
    });
    let mut settled: Vec<(&Arg, bool)> = settled.collect();
    let mut standing = Vec::new();
    for setting in settings {
        let Some((_, arg)) = options(command).find(|(name, _)| *name == setting.option) else { continue };
        if settled.iter().any(|(other, is_off)| {
            other.get_id() == arg.get_id() || !is_off && are_exclusive(command, arg, other)
        }) {
            continue;
        }
        let takes_several =
            matches!(arg.get_action(), ArgAction::Append) || arg.get_value_delimiter().is_some();
        if setting.values.len() != 1 && !takes_several {
            return Err(UserError::new(format!("{}: {} takes one value", setting.origin, setting.option)));
        }
        settled.push((arg, is_flag(arg) && setting.values == ["false"]));
        standing.push(setting);
    }
    Ok(standing)
}

/// Returns true if the option is true or false.
pub fn is_flag(arg: &Arg) -> bool {
    matches!(arg.get_action(), ArgAction::Set) && arg.is_require_equals_set()
}

/// Returns true if the two options conflict, or one takes the other back.
fn are_exclusive(command: &Command, one: &Arg, other: &Arg) -> bool {
    [(one, other), (other, one)].into_iter().any(|(one, other)| {
        let conflicts = command.get_arg_conflicts_with(one);
        let taken_back = one.get_long().and_then(|name| name.strip_prefix("no-"));
        conflicts.iter().any(|arg| arg.get_id() == other.get_id()) || taken_back == other.get_long()
    })
}

/// Returns the command with the settings as its defaults.
pub fn with_defaults(command: Command, settings: &[OptionSetting]) -> Command {
    command.mut_args(|arg| {
        let name = arg.get_long().filter(|_| !arg.is_hide_set());
        match settings.iter().find(|setting| Some(&*setting.option) == name) {
            Some(setting) => arg.default_values(setting.values.iter().cloned().map(OsStr::from)),
            None => arg,
        }
    })
}

/// Adds the origin of the value to an error about a value of a setting.
pub fn with_value_origin(error: clap::Error, settings: &[OptionSetting]) -> CommandLineError {
    let [option, value] =
        [ContextKind::InvalidArg, ContextKind::InvalidValue].map(|kind| match error.get(kind) {
            Some(ContextValue::String(text)) => text.as_str(),
            _ => "",
        });
    let option = option.trim_start_matches('-');
    let option = option.split([' ', '=', '[']).next().unwrap_or_default();
    let is_of_value = matches!(error.kind(), ErrorKind::InvalidValue | ErrorKind::ValueValidation);
    let wrong = settings
        .iter()
        .find(|setting| setting.option == option && setting.values.iter().any(|own| own == value));
    match wrong {
        Some(setting) if is_of_value => {
            let said = error.to_string();
            let said = said.trim_start_matches("error: ").split("\n\n").next().unwrap_or_default();
            UserError::new(format!("{}: {}", setting.origin, said.replace("\n ", ""))).into()
        }
        _ => error.into(),
    }
}
