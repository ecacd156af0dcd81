//! A configuration file: options by the names that they have on the command line, for all commands, for one, or in profiles.

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

use super::command_line::{configurable, option_names};
use crate::trouble::Trouble;

/// The longest file that is read, in bytes, as a daemon's.
const BYTES_MAX: u64 = 1 << 20;

/// Who but its owner could write to it.
const OTHERS_WRITE: u32 = 0o022;

/// Names the profile that counts where none is asked for.
const DEFAULT_PROFILE: &str = "default-profile";

/// The tables of profiles.
const PROFILES: &str = "profile";

/// How alike two names are if one may be meant for the other (`strsim`, 0 to 1); clap's own.
const ALIKE: f64 = 0.7;

/// A line of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The file.
    pub path: PathBuf,
    /// From 1 on.
    pub line: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}", escape(self.path.as_os_str().as_bytes()), self.line)
    }
}

/// An option and what it is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// As on the command line, without the dashes.
    pub option: String,
    /// One, but for options that may be given several times.
    pub values: Vec<OsString>,
    /// Where that stands.
    pub place: Place,
}

/// What a file says.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct File {
    /// The profile that counts where none is asked for.
    pub default_profile: Option<(String, Place)>,
    /// For every command that has the option.
    pub all: Vec<Entry>,
    /// For one command.
    pub commands: BTreeMap<String, Vec<Entry>>,
    /// For every command that has the option, where the profile is asked for.
    pub profiles: BTreeMap<String, Vec<Entry>>,
}

impl File {
    /// What a file says; nothing if there is none. As ssh_config(5), it has to belong to the user or to root, and nobody else may
    /// write to it: it says which programs are started.
    ///
    /// # Errors
    /// Why it can't be read, or what is wrong with it.
    pub fn read(path: &Path, carrack: &Command) -> Result<Option<File>, Trouble> {
        let shown = escape(path.as_os_str().as_bytes());
        let wrong =
            |error: io::Error| Trouble::new(format!("{shown}: {error}")).hint("--no-config goes on without");
        let mut file = match OpenFile::open(path) {
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                return Ok(None);
            }
            // The directory is somebody else's, as with XDG_CONFIG_HOME of the user who started `su`.
            Err(error) if error.kind() == ErrorKind::PermissionDenied && path.metadata().is_err() => {
                return Ok(None);
            }
            opened => opened.map_err(wrong)?,
        };
        let metadata = file.metadata().map_err(wrong)?;
        let is_trusted = [0, rustix::process::geteuid().as_raw()].contains(&metadata.uid());
        if !is_trusted || metadata.mode() & OTHERS_WRITE != 0 {
            let message = format!("{shown} belongs to somebody else, or others may write to it");
            return Err(Trouble::new(message).hint(format!("chmod go-w {shown}, or --no-config")));
        }
        if metadata.len() > BYTES_MAX {
            return Err(wrong(io::Error::other("too long for a configuration")));
        }
        let mut text = String::new();
        file.by_ref().take(BYTES_MAX).read_to_string(&mut text).map_err(wrong)?;
        File::parse(&text, path, carrack).map(Some)
    }

    /// The same of a text.
    ///
    /// # Errors
    /// What is wrong with it, and in which line.
    pub fn parse(text: &str, path: &Path, carrack: &Command) -> Result<File, Trouble> {
        let reader = Reader { text, path, carrack };
        let table = DeTable::parse(text).map_err(|error| {
            let place = reader.place(&error.span().unwrap_or_default());
            Trouble::new(format!("{place}: {}", error.message())).tamed()
        })?;
        let mut file = File::default();
        for (key, value) in table.get_ref() {
            reader.take(key, value, &mut file)?;
        }
        Ok(file)
    }
}

/// A name of the text, and where it stands.
type Key<'a> = Spanned<std::borrow::Cow<'a, str>>;

struct Reader<'a> {
    text: &'a str,
    path: &'a Path,
    carrack: &'a Command,
}

impl Reader<'_> {
    fn take(&self, key: &Key<'_>, value: &Spanned<DeValue<'_>>, file: &mut File) -> Result<(), Trouble> {
        let name = key.get_ref().as_ref();
        match value.get_ref() {
            DeValue::Table(profiles) if name == PROFILES => {
                for (name, options) in profiles {
                    let options = options.get_ref().as_table().ok_or_else(|| {
                        let place = self.place(&name.span());
                        Trouble::new(format!("{place}: a profile is a table")).hint("[profile.NAME]")
                    })?;
                    let entries = self.entries(options, &option_names(self.carrack, None))?;
                    file.profiles.insert(name.get_ref().to_string(), entries);
                }
            }
            DeValue::Table(options) => {
                let Some(command) = configurable(self.carrack, name) else {
                    return Err(self.unknown("command", key, super::COMMANDS.iter().copied()));
                };
                let entries = self.entries(options, &option_names(self.carrack, Some(command)))?;
                file.commands.insert(name.to_owned(), entries);
            }
            DeValue::String(profile) if name == DEFAULT_PROFILE => {
                file.default_profile = Some((profile.to_string(), self.place(&key.span())));
            }
            _ => file.all.push(self.entry(key, value, &option_names(self.carrack, None))?),
        }
        Ok(())
    }

    fn entries(&self, options: &DeTable<'_>, names: &[&str]) -> Result<Vec<Entry>, Trouble> {
        options.iter().map(|(key, value)| self.entry(key, value, names)).collect()
    }

    fn entry(&self, key: &Key<'_>, value: &Spanned<DeValue<'_>>, names: &[&str]) -> Result<Entry, Trouble> {
        let option = key.get_ref().as_ref();
        if !names.contains(&option) {
            return Err(self.unknown("option", key, names.iter().copied().chain([DEFAULT_PROFILE])));
        }
        let place = self.place(&key.span());
        let values = match value.get_ref() {
            DeValue::Array(values) => values.iter().map(|value| word(value.get_ref())).collect(),
            value => word(value).map(|word| vec![word]),
        };
        let values = values.ok_or_else(|| {
            let kinds = "text, a number, true, false, or a list of them";
            Trouble::new(format!("{place}: {option} takes {kinds}"))
        })?;
        Ok(Entry { option: option.to_owned(), values, place })
    }

    fn unknown<'n>(&self, kind: &str, key: &Key<'_>, names: impl Iterator<Item = &'n str>) -> Trouble {
        let (name, place) = (key.get_ref().as_ref(), self.place(&key.span()));
        let trouble = Trouble::new(format!("{place}: there is no {kind} {name} here")).tamed();
        match nearest(name, names) {
            Some(near) => trouble.hint(format!("is it {near}?")),
            None => trouble.hint("`carrack config show` lists all options"),
        }
    }

    fn place(&self, span: &Range<usize>) -> Place {
        let before = self.text.as_bytes().iter().take(span.start);
        Place { path: self.path.to_owned(), line: 1 + before.filter(|&&byte| byte == b'\n').count() }
    }
}

/// As it would be typed; nothing for what can't be.
fn word(value: &DeValue<'_>) -> Option<OsString> {
    match value {
        DeValue::String(text) => Some(text.to_string().into()),
        DeValue::Integer(number) => Some(number.to_string().into()),
        DeValue::Float(number) => Some(number.to_string().into()),
        DeValue::Boolean(is) => Some(is.to_string().into()),
        _ => None,
    }
}

/// The name that may be meant.
pub fn nearest<'n>(name: &str, names: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    let alike = names.map(|known| (strsim::jaro(name, known), known)).filter(|(alike, _)| *alike > ALIKE);
    alike.max_by(|(a, _), (b, _)| a.total_cmp(b)).map(|(_, known)| known)
}
