//! Every option of a command with its value and the source of that value, for `carrack config show`.

use std::ffi::{OsStr, OsString};

use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command};

use super::command_line_defaults::{
    CommandLineError, ConfigSourceChoice, effective_settings, find_configurable_command, is_flag, options,
    with_defaults, with_value_origin,
};
use super::layers::{ConfigLayers, ConfigSources, OptionSetting, ValueOrigin};

/// An option and its value.
#[derive(Debug, PartialEq, Eq)]
pub struct ConfiguredOptionRow {
    /// Its name, without the dashes.
    pub option: String,
    /// Its values; empty if it has none.
    pub values: Vec<OsString>,
    /// The source of the values.
    pub origin: ValueOrigin,
    /// The value without any source; empty if there is none.
    pub default: String,
    /// Unit of the value, if it has one.
    pub unit: Option<&'static str>,
}

impl ConfiguredOptionRow {
    /// Returns true if a source other than the default sets the option.
    pub fn is_set(&self) -> bool {
        self.origin != ValueOrigin::Default
    }
}

/// Returns the options of a command, as they are if `words` are typed after its name.
///
/// # Errors
/// If an option that is typed or comes from another source is invalid.
pub fn rows(
    carrack: &Command,
    name: &str,
    words: &[OsString],
    asked: &ConfigSourceChoice,
    sources: &ConfigSources,
) -> Result<Vec<ConfiguredOptionRow>, CommandLineError> {
    let Some(plain) = find_configurable_command(carrack, name) else { return Ok(Vec::new()) };
    // Only options are of interest: no argument is required.
    let command = plain.clone().mut_args(|arg| arg.required(false));
    let words: Vec<OsString> = [OsString::from(name)].into_iter().chain(words.iter().cloned()).collect();
    let typed = command.clone().try_get_matches_from(&words)?;
    let of_words = ConfigSourceChoice::of(&typed);
    let asked = ConfigSourceChoice {
        profile: of_words.profile.or_else(|| asked.profile.clone()),
        no_config: of_words.no_config || asked.no_config,
    };
    let layers = ConfigLayers::new(&asked, sources, carrack)?;
    let settings = effective_settings(&command, &typed, layers.settings_for(&command))?;
    let settled = with_defaults(command, &settings).try_get_matches_from(&words);
    let settled = settled.map_err(|error| with_value_origin(error, &settings))?;
    Ok(options(plain).map(|(option, arg)| row(option, arg, &settled, &settings)).collect())
}

fn row(option: &str, arg: &Arg, settled: &ArgMatches, settings: &[OptionSetting]) -> ConfiguredOptionRow {
    let id = arg.get_id().as_str();
    let origin = match settled.value_source(id) {
        Some(ValueSource::CommandLine) => ValueOrigin::CommandLine,
        Some(ValueSource::EnvVariable) => {
            ValueOrigin::Environment(arg.get_env().unwrap_or_default().to_string_lossy().into_owned())
        }
        _ => {
            let setting = settings.iter().find(|setting| setting.option == option);
            setting.map_or(ValueOrigin::Default, |setting| setting.origin.clone())
        }
    };
    let values = settled.get_raw(id).into_iter().flatten().map(OsStr::to_owned).collect();
    ConfiguredOptionRow { option: option.to_owned(), values, origin, default: default(arg), unit: unit(arg) }
}

/// Returns clap's default, or the default that the help names.
fn default(arg: &Arg) -> String {
    let values: Vec<_> = arg.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
    if !values.is_empty() {
        return values.join(" ");
    }
    let help = arg.get_long_help().or(arg.get_help()).map(ToString::to_string).unwrap_or_default();
    let words = help.split_once("[default: ").and_then(|(_, words)| words.split_once(']'));
    words.map(|(words, _)| words.replace('\n', " ")).unwrap_or_default()
}

fn unit(arg: &Arg) -> Option<&'static str> {
    if is_flag(arg) {
        return None;
    }
    match arg.get_value_names()?.first()?.as_str() {
        "SIZE" => Some("bytes"),
        "RATE" => Some("bytes/s"),
        "SECONDS" => Some("s"),
        "MS" => Some("ms"),
        "GBITS" => Some("Gbit/s"),
        _ => None,
    }
}
