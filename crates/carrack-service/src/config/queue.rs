//! The queue of this machine, which a daemon may keep beside its exports.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use carrack_cluster::records::is_name;
use serde::{Deserialize, Deserializer};

use super::sharing::SharingConfig;
use super::value::{absolute, optional_absolute, within, wrong};
use crate::queue::QueueSettings;

/// Where a queue answers unless told otherwise.
pub const DEFAULT_SOCKET: &str = "/run/carrack/queue.sock";

/// `[queue]`: transfers that are submitted, kept and carried out here.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QueueConfig {
    /// Where the queue is kept. It is the daemon's user's alone.
    #[serde(deserialize_with = "absolute")]
    pub directory: PathBuf,
    /// Transfers at the same time.
    #[serde(default = "max_running", deserialize_with = "within::<1, 64, _>")]
    max_running: u64,
    /// Days for which a transfer is remembered once it is over.
    #[serde(default = "history_days", deserialize_with = "within::<1, 36_500, _>")]
    history_days: u64,
    /// The Unix socket on which it answers.
    #[serde(default, deserialize_with = "optional_absolute")]
    socket: Option<PathBuf>,
    /// Where the paths of other sites than `local` begin, as `carrack cp` takes them: `user@host:`, `carrack://host/export`.
    #[serde(default, deserialize_with = "sites")]
    sites: BTreeMap<String, String>,
}

impl QueueConfig {
    /// As the queue wants to know it, `sharing` being the Unix socket at which targets are shared out.
    pub fn settings(&self, sharing: Option<PathBuf>) -> QueueSettings {
        QueueSettings {
            directory: self.directory.clone(),
            max_running: usize::try_from(self.max_running).unwrap_or(1),
            history: Duration::from_secs(self.history_days * 24 * 3600),
            sites: self.sites.clone(),
            sharing,
        }
    }

    /// The Unix socket on which it answers.
    pub fn socket(&self) -> PathBuf {
        self.socket.clone().unwrap_or_else(|| DEFAULT_SOCKET.into())
    }

    /// What it is, for people.
    pub fn describe(&self) -> String {
        format!(
            "queue in {}, at {}, {} transfers at a time, history of {} days",
            self.directory.display(),
            self.socket().display(),
            self.max_running,
            self.history_days
        )
    }
}

fn max_running() -> u64 {
    2
}

fn history_days() -> u64 {
    30
}

fn sites<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, String>, D::Error> {
    let sites = BTreeMap::<String, String>::deserialize(deserializer)?;
    for (name, prefix) in &sites {
        if !is_name(name) {
            return Err(wrong(format!("{name:?} can't name a site"), "letters, digits, '-' and '_' can"));
        }
        // Absolute paths follow it, so that it can't become an option or another host's.
        let is_prefix = prefix.contains(':') || prefix.starts_with('/');
        if !is_prefix || prefix.starts_with('-') || prefix.ends_with('/') {
            let hint = "write what comes before an absolute path: \"user@host:\", \"carrack://host/export\" or \"/mount\"";
            return Err(wrong(format!("{prefix:?} can't be where the paths of {name} begin"), hint));
        }
    }
    Ok(sites)
}

/// What a daemon has for the users of its machine; a configuration with nothing else is that of a daemon that answers nobody on the
/// network.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LocalConfig {
    /// Transfers that are submitted.
    #[serde(default)]
    pub queue: Option<QueueConfig>,
    /// How transfers share storage targets.
    #[serde(default)]
    pub sharing: Option<SharingConfig>,
    /// Where the daemon's process id goes.
    #[serde(default, deserialize_with = "optional_absolute")]
    pub pid_file: Option<PathBuf>,
}

impl LocalConfig {
    /// The Unix socket on which targets are asked for; nothing if they are not shared out.
    pub fn sharing_socket(&self) -> Option<PathBuf> {
        Some(self.sharing.as_ref()?.socket())
    }

    /// What it is, for people.
    pub fn describe(&self) -> Vec<String> {
        let sharing = self.sharing.as_ref().map(SharingConfig::describe);
        self.queue.as_ref().map(QueueConfig::describe).into_iter().chain(sharing).collect()
    }
}
