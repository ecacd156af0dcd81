//! Precedence of the sources other than the command line: the environment, a profile, the user's file, the
//! system's file, in this order.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Path, PathBuf};

use clap::Command;

use super::command_line_defaults::{
    ConfigSourceChoice, NO_CONFIG, PROFILE, accepts_shared_entry, is_flag, options,
};
use super::file::{ConfigEntry, ConfigFile, ConfigLineLocation, nearest};
use crate::register::home_directory;
use crate::user_error::UserError;

/// The built-in profiles.
const BUILT_IN: &str = include_str!("profiles.toml");

/// Their path in messages.
const BUILT_IN_PATH: &str = "built in";

/// Prefix of the variables that set options.
const VARIABLES: &str = "CARRACK_";

/// The source of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ValueOrigin {
    /// The command line.
    CommandLine,
    /// A variable of the environment.
    Environment(String),
    /// A profile, and its line.
    Profile(String, ConfigLineLocation),
    /// A line of a file.
    File(ConfigLineLocation),
    /// The default.
    Default,
}

impl fmt::Display for ValueOrigin {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ValueOrigin::CommandLine => out.write_str("command line"),
            ValueOrigin::Environment(variable) => out.write_str(variable),
            ValueOrigin::Profile(name, place) if place.path == Path::new(BUILT_IN_PATH) => {
                write!(out, "profile {name}, built in")
            }
            ValueOrigin::Profile(name, place) => write!(out, "profile {name}, {place}"),
            ValueOrigin::File(place) => place.fmt(out),
            ValueOrigin::Default => out.write_str("default"),
        }
    }
}

/// An option of a command, and its values from one source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptionSetting {
    /// As on the command line, without the dashes.
    pub option: String,
    /// One, but for options that may be given several times.
    pub values: Vec<OsString>,
    /// The source.
    pub origin: ValueOrigin,
}

/// The options of all sources other than the command line.
#[derive(Debug)]
pub struct ConfigLayers {
    environment: BTreeMap<String, OsString>,
    profile: Option<(String, Vec<ConfigEntry>)>,
    /// The user's first.
    files: Vec<ConfigFile>,
}

/// The sources to read.
#[derive(Debug, Default)]
pub struct ConfigSources {
    /// Variables by their names.
    pub environment: BTreeMap<String, OsString>,
    /// Files in the order of precedence; they need not exist.
    pub files: Vec<PathBuf>,
}

impl ConfigSources {
    /// Returns this process's environment, and the files that it names.
    pub fn of_process() -> ConfigSources {
        let variables =
            std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value)));
        let ours = variables.filter(|(name, value)| name.starts_with(VARIABLES) && !value.is_empty());
        let files = [user_file(), Some(system_file())].into_iter().flatten().collect();
        ConfigSources { environment: ours.collect(), files }
    }

    fn environment_value(&self, option: &str) -> Option<String> {
        self.environment.get(&variable_name(option)).map(|value| value.to_string_lossy().into_owned())
    }
}

impl ConfigLayers {
    /// Reads all sources.
    ///
    /// # Errors
    /// If a file or the profile can't be used.
    pub fn new(
        asked: &ConfigSourceChoice,
        sources: &ConfigSources,
        carrack: &Command,
    ) -> Result<ConfigLayers, UserError> {
        let reads_files = !asked.no_config && sources.environment_value(NO_CONFIG).is_none();
        let files = sources.files.iter().filter(|_| reads_files);
        let files = files.filter_map(|path| ConfigFile::read(path, carrack).transpose());
        let files = files.collect::<Result<Vec<ConfigFile>, UserError>>()?;
        let by_name =
            asked.profile.clone().or_else(|| sources.environment_value(PROFILE)).map(|name| (name, None));
        let named = by_name.or_else(|| {
            let (name, place) = files.iter().find_map(|file| file.default_profile.clone())?;
            Some((name, Some(place)))
        });
        let profile =
            named.map(|(name, place)| profile(name, place.as_ref(), &files, carrack)).transpose()?;
        Ok(ConfigLayers { environment: sources.environment.clone(), profile, files })
    }

    /// Returns the settings of a command's options, for each option in the order of precedence.
    pub fn settings_for<'l>(&'l self, command: &'l Command) -> impl Iterator<Item = OptionSetting> + 'l {
        let profile = self.profile.iter().flat_map(|(name, entries)| {
            entries.iter().map(|entry| {
                setting_from_entry(entry, ValueOrigin::Profile(name.clone(), entry.place.clone()))
            })
        });
        let files = self.files.iter().flat_map(move |file| {
            let own = file.commands.get(command.get_name()).into_iter().flatten().map(setting_from_file);
            let all = file.all.iter().map(setting_from_file);
            own.chain(all.filter(|setting| accepts_shared_entry(command, &setting.option)))
        });
        let above = self.environment_settings(command).chain(profile);
        above.filter(|setting| accepts_shared_entry(command, &setting.option)).chain(files)
    }

    /// Variables that clap reads itself are left out: it treats them as typed.
    fn environment_settings<'l>(&'l self, command: &'l Command) -> impl Iterator<Item = OptionSetting> + 'l {
        options(command).filter(|(_, arg)| arg.get_env().is_none()).filter_map(|(option, arg)| {
            let variable = variable_name(option);
            let value = self.environment.get(&variable)?;
            let values = vec![if is_flag(arg) { normalize_bool(value) } else { value.clone() }];
            Some(OptionSetting {
                option: option.to_owned(),
                values,
                origin: ValueOrigin::Environment(variable),
            })
        })
    }
}

/// Translates the usual words of variables to `true` and `false`.
fn normalize_bool(value: &OsStr) -> OsString {
    match value.to_str() {
        Some("1" | "yes" | "on") => "true".into(),
        Some("0" | "no" | "off") => "false".into(),
        _ => value.to_owned(),
    }
}

fn setting_from_entry(entry: &ConfigEntry, origin: ValueOrigin) -> OptionSetting {
    OptionSetting { option: entry.option.clone(), values: entry.values.clone(), origin }
}

fn setting_from_file(entry: &ConfigEntry) -> OptionSetting {
    setting_from_entry(entry, ValueOrigin::File(entry.place.clone()))
}

/// Returns the name of the variable that sets an option.
pub fn variable_name(option: &str) -> String {
    format!("{VARIABLES}{}", option.to_uppercase().replace('-', "_"))
}

/// Returns the first profile of this name in the files, or the built-in one.
fn profile(
    name: String,
    asked_in: Option<&ConfigLineLocation>,
    files: &[ConfigFile],
    carrack: &Command,
) -> Result<(String, Vec<ConfigEntry>), UserError> {
    let built_in = ConfigFile::parse(BUILT_IN, Path::new(BUILT_IN_PATH), carrack)?;
    let all = files.iter().chain([&built_in]);
    if let Some(entries) = all.clone().find_map(|file| file.profiles.get(&name)) {
        return Ok((name, entries.clone()));
    }
    let known: Vec<&str> = all.flat_map(|file| file.profiles.keys()).map(String::as_str).collect();
    let place = asked_in.map_or(String::new(), |place| format!("{place}: "));
    let trouble = UserError::new(format!("{place}there is no profile {name}")).escaped();
    Err(match nearest(&name, known.iter().copied()) {
        Some(near) => trouble.hint(format!("is it {near}?")),
        None => trouble.hint(format!("there are {}", known.join(", "))),
    })
}

/// Returns the user's file (XDG Base Directory Specification); `None` if the user has no home directory.
pub fn user_file() -> Option<PathBuf> {
    Some(home_directory::xdg("XDG_CONFIG_HOME", ".config")?.join("carrack/config.toml"))
}

/// Returns the system's file.
pub fn system_file() -> PathBuf {
    "/etc/carrack/config.toml".into()
}
