//! The configuration of a daemon: a TOML file as values. No I/O: text in, values or a [`ConfigError`] out;
//! [`crate::material`] reads the files that it names.
//!
//! An unknown key is an error, as is a value outside its bounds. Every error names its line.

mod error;
mod export;
mod fleet_site_sharing;
mod limits;
mod queue;
mod sharing;
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
pub use export::{AccessRule, ExportConfig};
pub use limits::DaemonLimits;
pub use queue::{DEFAULT_SOCKET, LocalServicesConfig, QueueConfig};
pub use sharing::{DEFAULT_SHARING_SOCKET, SharingConfig};
pub use spill::SpillConfig;
use value::absolute_path;

/// The default port of carrack's daemons.
pub const DEFAULT_PORT: u16 = 7512;

/// The longest configuration, in bytes: thousands of exports.
pub const MAX_CONFIG_BYTES: usize = 1 << 20;

/// A daemon's configuration.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DaemonConfig {
    /// Addresses for control and data connections alike. Sockets from systemd take precedence.
    #[serde(default = "everywhere", deserialize_with = "value::nonempty_addresses")]
    pub listen: Vec<SocketAddr>,
    /// Path of the audit log; standard error by default.
    #[serde(default, deserialize_with = "value::optional_absolute_path")]
    pub audit: Option<PathBuf>,
    /// Path of the PID file, for systems without systemd.
    #[serde(default, deserialize_with = "value::optional_absolute_path")]
    pub pid_file: Option<PathBuf>,
    /// Time for which running sessions may continue after SIGTERM, in seconds.
    #[serde(default = "drain_seconds")]
    drain_seconds: u32,
    /// The daemon's credentials and the clients that it accepts.
    pub tls: TlsFiles,
    /// Bearer tokens that it accepts.
    #[serde(default)]
    pub tokens: TokenIssuersConfig,
    /// Limits on the work that clients can cause.
    #[serde(default)]
    pub limits: DaemonLimits,
    /// Directories into which sessions may spill objects.
    #[serde(default)]
    pub spill: SpillConfig,
    /// The queue of this machine.
    #[serde(default)]
    pub queue: Option<QueueConfig>,
    /// Sharing of storage targets among transfers.
    #[serde(default)]
    pub sharing: Option<SharingConfig>,
    /// The exports.
    #[serde(rename = "export", deserialize_with = "distinct_exports")]
    pub exports: Vec<ExportConfig>,
}

/// The files of TLS, all PEM except the last.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlsFiles {
    /// The daemon's certificate chain, without the CA.
    #[serde(deserialize_with = "absolute_path")]
    pub certificate: PathBuf,
    /// Its private key.
    #[serde(deserialize_with = "absolute_path")]
    pub key: PathBuf,
    /// CAs of clients' certificates.
    #[serde(default, deserialize_with = "value::absolute_paths")]
    pub client_ca: Vec<PathBuf>,
    /// Revocation lists of these CAs.
    #[serde(default, deserialize_with = "value::absolute_paths")]
    pub revoked: Vec<PathBuf>,
    /// Public keys of users, in the format of ssh's `authorized_keys`; a key's comment is its owner's name.
    #[serde(default, deserialize_with = "value::optional_absolute_path")]
    pub public_keys: Option<PathBuf>,
}

/// Bearer tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenIssuersConfig {
    /// Accepted issuers; without any, no token is accepted.
    #[serde(default)]
    pub issuers: Vec<TrustedTokenIssuer>,
    /// The longest lifetime of an accepted token, in seconds; a day by default.
    #[serde(default, deserialize_with = "value::optional_lifetime")]
    pub max_lifetime_seconds: Option<u64>,
    /// A file with the IDs of revoked tokens, one a line.
    #[serde(default, deserialize_with = "value::optional_absolute_path")]
    pub revoked: Option<PathBuf>,
}

/// An issuer of tokens.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrustedTokenIssuer {
    /// Value of its tokens' `iss`.
    #[serde(deserialize_with = "value::nonempty_text")]
    pub name: String,
    /// Required value of its tokens' `aud`.
    #[serde(deserialize_with = "value::nonempty_text")]
    pub audience: String,
    /// Its public keys, PEM.
    #[serde(deserialize_with = "absolute_path")]
    pub key: PathBuf,
}

impl DaemonConfig {
    /// Parses a file's text.
    ///
    /// # Errors
    /// The first error, with its line.
    pub fn parse(text: &str) -> Result<DaemonConfig, ConfigError> {
        parsed(text)
    }

    /// Returns the part for this machine's users if the configuration has neither exports nor TLS, and `None`
    /// for any other text, even an invalid one.
    ///
    /// # Errors
    /// The first error, with its line.
    pub(crate) fn local_alone(text: &str) -> Result<Option<LocalServicesConfig>, ConfigError> {
        let Ok(table) = text.parse::<toml::Table>() else { return Ok(None) };
        let is_local = table.contains_key("queue") || table.contains_key("sharing");
        if is_local && !table.contains_key("export") && !table.contains_key("tls") {
            parsed(text).map(Some)
        } else {
            Ok(None)
        }
    }

    /// Returns the part for this machine's users, next to the exports.
    pub fn local(&self) -> Option<LocalServicesConfig> {
        let DaemonConfig { queue, sharing, .. } = self;
        let local = LocalServicesConfig { queue: queue.clone(), sharing: sharing.clone(), pid_file: None };
        (queue.is_some() || sharing.is_some()).then_some(local)
    }

    /// Returns the time for which running sessions may continue after SIGTERM.
    pub fn drain(&self) -> Duration {
        Duration::from_secs(self.drain_seconds.into())
    }

    /// Returns the export of this name, and its first rule that matches this identity. `None` if there is no
    /// such export or no such rule: no client learns which.
    pub fn rule(&self, export: &str, identity: &str) -> Option<(&ExportConfig, &AccessRule)> {
        let export = self.exports.iter().find(|known| known.name == export)?;
        Some((export, export.rule(identity)?))
    }

    /// Returns the names of the exports that are open to this identity.
    pub fn open_to(&self, identity: &str) -> impl Iterator<Item = &str> {
        self.exports
            .iter()
            .filter(move |export| export.rule(identity).is_some())
            .map(|export| export.name.as_str())
    }

    /// Returns true if a session may need to become another user.
    pub fn separates_privileges(&self) -> bool {
        self.exports.iter().flat_map(|export| &export.allow).any(|rule| rule.user.is_some())
    }
}

/// Parses a text within the size limit.
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

fn distinct_exports<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<ExportConfig>, D::Error> {
    let exports = Vec::<ExportConfig>::deserialize(deserializer)?;
    for (index, export) in exports.iter().enumerate() {
        if exports[..index].iter().any(|other| other.name == export.name) {
            let name = &export.name;
            return Err(value::error_with_hint(
                format!("two exports have the name {name:?}"),
                "rename one of them",
            ));
        }
    }
    if exports.is_empty() {
        return Err(value::error_with_hint("there is no export", "add an [[export]] with a name and a path"));
    }
    Ok(exports)
}
