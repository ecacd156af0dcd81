//! A configuration file: options by their names on the command line, for all commands, for one, or in
//! profiles.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::fs::File as OpenFile;
use std::io::{self, ErrorKind, Read};
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use carrack_model::escape;
use clap::Command;
use std::os::unix::ffi::OsStrExt;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::command_line_defaults::{find_configurable_command, option_names};
use crate::user_error::UserError;

/// The longest file that is read, in bytes, as for a daemon's configuration.
const BYTES_MAX: u64 = 1 << 20;

/// The bits of a mode by which users other than the owner could write.
const OTHERS_WRITE: u32 = 0o022;

/// Key of the profile that holds where no profile is named.
const DEFAULT_PROFILE: &str = "default-profile";

/// The tables of profiles.
const PROFILES: &str = "profile";

/// Similarity (`strsim`, 0 to 1) from which on a name is suggested in place of an unknown one; clap's own
/// value.
const ALIKE: f64 = 0.7;

/// A line in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigLineLocation {
    /// The file.
    pub path: PathBuf,
    /// From 1 on.
    pub line: usize,
}

impl fmt::Display for ConfigLineLocation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}", escape(self.path.as_os_str().as_bytes()), self.line)
    }
}

/// An option and its values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigEntry {
    /// As on the command line, without the dashes.
    pub option: String,
    /// One, but for options that may be given several times.
    pub values: Vec<OsString>,
    /// The line that sets it.
    pub place: ConfigLineLocation,
}

/// The contents of a file.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ConfigFile {
    /// The profile that holds where no profile is named.
    pub default_profile: Option<(String, ConfigLineLocation)>,
    /// For every command that has the option.
    pub all: Vec<ConfigEntry>,
    /// For one command.
    pub commands: BTreeMap<String, Vec<ConfigEntry>>,
    /// For every command that has the option, if the profile is chosen.
    pub profiles: BTreeMap<String, Vec<ConfigEntry>>,
}

fn file_error(shown: &str, error: &io::Error) -> UserError {
    UserError::new(format!("{shown}: {error}")).hint("--no-config goes on without")
}

impl ConfigFile {
    /// Reads a file; returns `None` if it does not exist. As with ssh_config(5), it must belong to the user
    /// or to root, and no other user may write to it: it names programs that are started.
    ///
    /// # Errors
    /// If it can't be read, or is invalid.
    pub fn read(path: &Path, carrack: &Command) -> Result<Option<ConfigFile>, UserError> {
        let shown = escape(path.as_os_str().as_bytes());
        let mut file = match OpenFile::open(path) {
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                return Ok(None);
            }
            // The directory belongs to another user, as with the XDG_CONFIG_HOME of a user who ran `su`.
            Err(error) if error.kind() == ErrorKind::PermissionDenied && path.metadata().is_err() => {
                return Ok(None);
            }
            opened => opened.map_err(|error| file_error(&shown, &error))?,
        };
        let metadata = file.metadata().map_err(|error| file_error(&shown, &error))?;
        let is_trusted = [0, rustix::process::geteuid().as_raw()].contains(&metadata.uid());
        if !is_trusted || metadata.mode() & OTHERS_WRITE != 0 {
            let message = format!("{shown} belongs to somebody else, or others may write to it");
            return Err(UserError::new(message).hint(format!("chmod go-w {shown}, or --no-config")));
        }
        if metadata.len() > BYTES_MAX {
            return Err(file_error(&shown, &io::Error::other("too long for a configuration")));
        }
        let mut text = String::new();
        let read = file.by_ref().take(BYTES_MAX).read_to_string(&mut text);
        read.map_err(|error| file_error(&shown, &error))?;
        ConfigFile::parse(&text, path, carrack).map(Some)
    }

    /// Parses the text of a file.
    ///
    /// # Errors
    /// If the text is invalid, with the line.
    pub fn parse(text: &str, path: &Path, carrack: &Command) -> Result<ConfigFile, UserError> {
        let reader = ConfigReader { text, path, carrack };
        let table = DeTable::parse(text).map_err(|error| {
            let place = reader.line_location(&error.span().unwrap_or_default());
            UserError::new(format!("{place}: {}", error.message())).escaped()
        })?;
        let mut file = ConfigFile::default();
        for (key, value) in table.get_ref() {
            reader.read_top_level_entry(key, value, &mut file)?;
        }
        Ok(file)
    }
}

/// A name in the text, and its position.
type ConfigFileKey<'a> = Spanned<std::borrow::Cow<'a, str>>;

struct ConfigReader<'a> {
    text: &'a str,
    path: &'a Path,
    carrack: &'a Command,
}

impl ConfigReader<'_> {
    fn read_top_level_entry(
        &self,
        key: &ConfigFileKey<'_>,
        value: &Spanned<DeValue<'_>>,
        file: &mut ConfigFile,
    ) -> Result<(), UserError> {
        let name = key.get_ref().as_ref();
        match value.get_ref() {
            DeValue::Table(profiles) if name == PROFILES => {
                for (name, options) in profiles {
                    let options = options.get_ref().as_table().ok_or_else(|| {
                        let place = self.line_location(&name.span());
                        UserError::new(format!("{place}: a profile is a table")).hint("[profile.NAME]")
                    })?;
                    let entries = self.entries(options, &option_names(self.carrack, None))?;
                    file.profiles.insert(name.get_ref().to_string(), entries);
                }
            }
            DeValue::Table(options) => {
                let Some(command) = find_configurable_command(self.carrack, name) else {
                    return Err(self.unknown_name_error("command", key, super::COMMANDS.iter().copied()));
                };
                let entries = self.entries(options, &option_names(self.carrack, Some(command)))?;
                file.commands.insert(name.to_owned(), entries);
            }
            DeValue::String(profile) if name == DEFAULT_PROFILE => {
                file.default_profile = Some((profile.to_string(), self.line_location(&key.span())));
            }
            _ => file.all.push(self.entry(key, value, &option_names(self.carrack, None))?),
        }
        Ok(())
    }

    fn entries(&self, options: &DeTable<'_>, names: &[&str]) -> Result<Vec<ConfigEntry>, UserError> {
        options.iter().map(|(key, value)| self.entry(key, value, names)).collect()
    }

    fn entry(
        &self,
        key: &ConfigFileKey<'_>,
        value: &Spanned<DeValue<'_>>,
        names: &[&str],
    ) -> Result<ConfigEntry, UserError> {
        let option = key.get_ref().as_ref();
        if !names.contains(&option) {
            return Err(self.unknown_name_error(
                "option",
                key,
                names.iter().copied().chain([DEFAULT_PROFILE]),
            ));
        }
        let place = self.line_location(&key.span());
        let values = match value.get_ref() {
            DeValue::Array(values) => values.iter().map(|value| typed_value(value.get_ref())).collect(),
            value => typed_value(value).map(|word| vec![word]),
        };
        let values = values.ok_or_else(|| {
            let kinds = "text, a number, true, false, or a list of them";
            UserError::new(format!("{place}: {option} takes {kinds}"))
        })?;
        Ok(ConfigEntry { option: option.to_owned(), values, place })
    }

    fn unknown_name_error<'n>(
        &self,
        kind: &str,
        key: &ConfigFileKey<'_>,
        names: impl Iterator<Item = &'n str>,
    ) -> UserError {
        let (name, place) = (key.get_ref().as_ref(), self.line_location(&key.span()));
        let trouble = UserError::new(format!("{place}: there is no {kind} {name} here")).escaped();
        match nearest(name, names) {
            Some(near) => trouble.hint(format!("is it {near}?")),
            None => trouble.hint("`carrack config show` lists all options"),
        }
    }

    fn line_location(&self, span: &Range<usize>) -> ConfigLineLocation {
        let before = self.text.as_bytes().iter().take(span.start);
        ConfigLineLocation {
            path: self.path.to_owned(),
            line: 1 + before.filter(|&&byte| byte == b'\n').count(),
        }
    }
}

/// Returns the value as it would be typed; `None` for types that no option takes.
fn typed_value(value: &DeValue<'_>) -> Option<OsString> {
    match value {
        DeValue::String(text) => Some(text.to_string().into()),
        DeValue::Integer(number) => Some(number.to_string().into()),
        DeValue::Float(number) => Some(number.to_string().into()),
        DeValue::Boolean(is) => Some(is.to_string().into()),
        _ => None,
    }
}

/// Returns the known name that is most similar, if it is similar enough.
pub fn nearest<'n>(name: &str, names: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    let alike = names.map(|known| (strsim::jaro(name, known), known)).filter(|(alike, _)| *alike > ALIKE);
    alike.max_by(|(a, _), (b, _)| a.total_cmp(b)).map(|(_, known)| known)
}
