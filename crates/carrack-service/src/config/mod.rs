//! What an administrator says of a daemon: a TOML file as values. Pure: text in, values or a [`ConfigError`] out; the
//! files that it names are the matter of [`crate::material`].
//!
//! A key that isn't known is an error, as is a value that could not mean what was meant. Every error names its line.

mod error;
mod export;
mod limits;
mod queue;
mod sharing;
mod site;
mod spill;
mod value;

#[cfg(test)]
mod tests;

use std::net::{Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};

pub use error::ConfigError;
pub use export::{Export, Rule};
pub use limits::Limits;
pub use queue::{DEFAULT_SOCKET, LocalConfig, QueueConfig};
pub use sharing::{DEFAULT_SHARING_SOCKET, SharingConfig};
pub use spill::SpillConfig;
use value::absolute;

/// The port that carrack's daemons listen on unless told otherwise.
pub const DEFAULT_PORT: u16 = 7512;

/// The longest configuration, in bytes: thousands of exports.
pub const MAX_CONFIG_BYTES: usize = 1 << 20;

/// A daemon's configuration.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Where to listen, for control and data connections alike. Sockets that systemd hands over go before it.
    #[serde(default = "everywhere", deserialize_with = "value::some_addresses")]
    pub listen: Vec<SocketAddr>,
    /// Where the audit log goes; without it, to standard error.
    #[serde(default, deserialize_with = "value::optional_absolute")]
    pub audit: Option<PathBuf>,
    /// Where the daemon's process id goes, for those who have no systemd.
    #[serde(default, deserialize_with = "value::optional_absolute")]
    pub pid_file: Option<PathBuf>,
    /// How long running sessions may go on after SIGTERM, in seconds.
    #[serde(default = "drain_seconds")]
    drain_seconds: u32,
    /// Who the daemon is, and whom it knows.
    pub tls: Tls,
    /// Whose bearer tokens it believes.
    #[serde(default)]
    pub tokens: Tokens,
    /// What it lets itself be asked for.
    #[serde(default)]
    pub limits: Limits,
    /// Where sessions may put objects aside.
    #[serde(default)]
    pub spill: SpillConfig,
    /// The queue that it keeps beside.
    #[serde(default)]
    pub queue: Option<QueueConfig>,
    /// How transfers share storage targets.
    #[serde(default)]
    pub sharing: Option<SharingConfig>,
    /// What it gives.
    #[serde(rename = "export", deserialize_with = "distinct_exports")]
    pub exports: Vec<Export>,
}

/// The files of TLS, all PEM but the last.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tls {
    /// The daemon's certificate, and those between it and its CA.
    #[serde(deserialize_with = "absolute")]
    pub certificate: PathBuf,
    /// Its private key.
    #[serde(deserialize_with = "absolute")]
    pub key: PathBuf,
    /// The CAs whose certificates clients may have.
    #[serde(default, deserialize_with = "value::absolutes")]
    pub client_ca: Vec<PathBuf>,
    /// What those CAs have revoked.
    #[serde(default, deserialize_with = "value::absolutes")]
    pub revoked: Vec<PathBuf>,
    /// People's public keys, in the format of ssh's `authorized_keys`; a key's comment is its owner's name.
    #[serde(default, deserialize_with = "value::optional_absolute")]
    pub public_keys: Option<PathBuf>,
}

/// Bearer tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tokens {
    /// Who may sign them; nobody, if empty.
    #[serde(default)]
    pub issuers: Vec<Issuer>,
    /// The longest life of a token that is believed, in seconds; a day if it isn't said.
    #[serde(default, deserialize_with = "value::optional_lifetime")]
    pub max_lifetime_seconds: Option<u64>,
    /// A file with the ids of tokens that were taken back, one a line.
    #[serde(default, deserialize_with = "value::optional_absolute")]
    pub revoked: Option<PathBuf>,
}

/// Somebody who signs tokens.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Issuer {
    /// What its tokens say in `iss`.
    #[serde(deserialize_with = "value::word")]
    pub name: String,
    /// What they have to say in `aud` for this daemon.
    #[serde(deserialize_with = "value::word")]
    pub audience: String,
    /// Its public keys, PEM.
    #[serde(deserialize_with = "absolute")]
    pub key: PathBuf,
}

impl Config {
    /// Reads a file's text.
    ///
    /// # Errors
    /// What is wrong, in which line.
    pub fn parse(text: &str) -> Result<Config, ConfigError> {
        parsed(text)
    }

    /// What a configuration has for this machine's users, if it has neither exports nor TLS; nothing of any other, whatever it is.
    ///
    /// # Errors
    /// What is wrong, in which line.
    pub(crate) fn local_alone(text: &str) -> Result<Option<LocalConfig>, ConfigError> {
        let has = |table: &toml::Table, key| table.contains_key(key);
        let is_local = |table: &toml::Table| has(table, "queue") || has(table, "sharing");
        match text.parse::<toml::Table>() {
            Ok(table) if is_local(&table) && !has(&table, "export") && !has(&table, "tls") => {
                parsed(text).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// What runs beside the exports, for this machine's users.
    pub fn local(&self) -> Option<LocalConfig> {
        let Config { queue, sharing, .. } = self;
        let local = LocalConfig { queue: queue.clone(), sharing: sharing.clone(), pid_file: None };
        (queue.is_some() || sharing.is_some()).then_some(local)
    }

    /// How long running sessions may go on after SIGTERM.
    pub fn drain(&self) -> Duration {
        Duration::from_secs(self.drain_seconds.into())
    }

    /// The export of this name, and the first of its rules that is about this identity. Nothing where there is no such
    /// export, or no such rule: nobody is told which.
    pub fn rule(&self, export: &str, identity: &str) -> Option<(&Export, &Rule)> {
        let export = self.exports.iter().find(|known| known.name == export)?;
        Some((export, export.rule(identity)?))
    }

    /// The names of the exports that are open to this identity.
    pub fn open_to(&self, identity: &str) -> impl Iterator<Item = &str> {
        let is_open = move |export: &&Export| export.rule(identity).is_some();
        self.exports.iter().filter(is_open).map(|export| export.name.as_str())
    }

    /// Whether a session may have to become another user.
    pub fn separates_privileges(&self) -> bool {
        self.exports.iter().flat_map(|export| &export.allow).any(|rule| rule.user.is_some())
    }
}

/// A file's text as values.
fn parsed<T: DeserializeOwned>(text: &str) -> Result<T, ConfigError> {
    if text.len() > MAX_CONFIG_BYTES {
        return Err(ConfigError::too_long());
    }
    toml::from_str(text).map_err(|error| ConfigError::new(text, &error))
}

fn everywhere() -> Vec<SocketAddr> {
    vec![SocketAddr::from((Ipv6Addr::UNSPECIFIED, DEFAULT_PORT))]
}

fn drain_seconds() -> u32 {
    60
}

fn distinct_exports<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Export>, D::Error> {
    let exports = Vec::<Export>::deserialize(deserializer)?;
    for (index, export) in exports.iter().enumerate() {
        if exports[..index].iter().any(|other| other.name == export.name) {
            let name = &export.name;
            return Err(value::wrong(format!("two exports have the name {name:?}"), "rename one of them"));
        }
    }
    if exports.is_empty() {
        return Err(value::wrong("there is no export", "add an [[export]] with a name and a path"));
    }
    Ok(exports)
}
