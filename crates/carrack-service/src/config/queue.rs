//! The queue of this machine, which a daemon may run in addition to its exports.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use carrack_register::transfer_records::is_name;
use serde::de::Error;
use serde::{Deserialize, Deserializer};

use super::sharing::SharingConfig;
use super::value::{absolute_path, error_with_hint, number_in_range, optional_absolute_path};
use crate::queue::{QueueOrderRules, QueueSettings};

/// The default socket of a queue.
pub const DEFAULT_SOCKET: &str = "/run/carrack/queue.sock";

/// Bounds of accounts' weights.
const WEIGHT_MIN: f64 = 0.001;
const WEIGHT_MAX: f64 = 1_000.0;

/// `[queue]`: transfers that are submitted, kept and carried out here.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QueueConfig {
    /// The directory of the queue, which belongs to the daemon's user alone.
    #[serde(deserialize_with = "absolute_path")]
    pub directory: PathBuf,
    /// Simultaneous transfers.
    #[serde(default = "max_running", deserialize_with = "number_in_range::<1, 64, _>")]
    max_running: u64,
    /// Days for which a transfer stays in the history once it is over.
    #[serde(default = "history_days", deserialize_with = "number_in_range::<1, 36_500, _>")]
    history_days: u64,
    /// The queue's Unix socket.
    #[serde(default, deserialize_with = "optional_absolute_path")]
    socket: Option<PathBuf>,
    /// Prefixes of the paths on sites other than `local`, in the notation of `carrack cp`: `user@host:`,
    /// `carrack://host/export`.
    #[serde(default, deserialize_with = "sites")]
    sites: BTreeMap<String, String>,
    /// The highest priority that users may give.
    #[serde(default = "priority_max", deserialize_with = "priority")]
    priority_max: u8,
    /// The same for named users and accounts.
    #[serde(default, deserialize_with = "priorities")]
    priorities: BTreeMap<String, u8>,
    /// Shares of accounts, in proportion.
    #[serde(default, deserialize_with = "weights")]
    weights: BTreeMap<String, f64>,
    /// Users who take turns as one account.
    #[serde(default)]
    accounts: BTreeMap<String, String>,
    /// Minutes of waiting after which a transfer rises by one class.
    #[serde(default = "ages_minutes", deserialize_with = "number_in_range::<1, 525_600, _>")]
    ages_minutes: u64,
    /// Minutes after which past use counts half.
    #[serde(default = "halves_minutes", deserialize_with = "number_in_range::<1, 525_600, _>")]
    halves_minutes: u64,
}

impl QueueConfig {
    /// Returns the queue's settings; `sharing` is the Unix socket of the meta-server.
    pub fn settings(&self, sharing: Option<PathBuf>) -> QueueSettings {
        QueueSettings {
            directory: self.directory.clone(),
            max_running: usize::try_from(self.max_running).unwrap_or(1),
            history: Duration::from_secs(self.history_days * 24 * 3600),
            sites: self.sites.clone(),
            turns: self.order_rules(),
            sharing,
        }
    }

    fn order_rules(&self) -> QueueOrderRules {
        QueueOrderRules {
            priority_max: self.priority_max,
            priorities: self.priorities.clone(),
            weights: self.weights.clone(),
            accounts: self.accounts.clone(),
            ages_every: Duration::from_secs(60 * self.ages_minutes),
            halves_every: Duration::from_secs(60 * self.halves_minutes),
        }
    }

    /// Returns the queue's Unix socket.
    pub fn socket(&self) -> PathBuf {
        self.socket.clone().unwrap_or_else(|| DEFAULT_SOCKET.into())
    }

    /// Describes the queue for people.
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

fn priority_max() -> u8 {
    QueueOrderRules::PRIORITY_MAX_DEFAULT
}

fn ages_minutes() -> u64 {
    QueueOrderRules::default().ages_every.as_secs() / 60
}

fn halves_minutes() -> u64 {
    QueueOrderRules::default().halves_every.as_secs() / 60
}

fn checked_priority<E: Error>(number: u8) -> Result<u8, E> {
    // The default priority is 5.
    let (least, most) = (QueueOrderRules::PRIORITY_MAX_DEFAULT, QueueOrderRules::PRIORITY_MAX);
    if (least..=most).contains(&number) {
        return Ok(number);
    }
    Err(error_with_hint(format!("{number} is out of range"), format!("it may be {least} to {most}")))
}

fn priority<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u8, D::Error> {
    checked_priority(u8::deserialize(deserializer)?)
}

fn priorities<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, u8>, D::Error> {
    let priorities = BTreeMap::<String, u8>::deserialize(deserializer)?;
    priorities.into_iter().map(|(name, number)| Ok((name, checked_priority(number)?))).collect()
}

fn weights<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, f64>, D::Error> {
    let weights = BTreeMap::<String, f64>::deserialize(deserializer)?;
    match weights.iter().find(|(_, weight)| !(WEIGHT_MIN..=WEIGHT_MAX).contains(*weight)) {
        None => Ok(weights),
        Some((name, weight)) => Err(error_with_hint(
            format!("{weight} can't be the weight of {name}"),
            format!("it may be {WEIGHT_MIN} to {WEIGHT_MAX}; 1 is that of who is not named"),
        )),
    }
}

fn sites<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, String>, D::Error> {
    let sites = BTreeMap::<String, String>::deserialize(deserializer)?;
    for (name, prefix) in &sites {
        if !is_name(name) {
            return Err(error_with_hint(
                format!("{name:?} can't name a site"),
                "letters, digits, '-' and '_' can",
            ));
        }
        // An absolute path follows the prefix, so that the result can't be an option or name another host.
        let is_prefix = prefix.contains(':') || prefix.starts_with('/');
        if !is_prefix || prefix.starts_with('-') || prefix.ends_with('/') {
            let hint = "write what comes before an absolute path: \"user@host:\", \"carrack://host/export\" or \"/mount\"";
            return Err(error_with_hint(
                format!("{prefix:?} can't be where the paths of {name} begin"),
                hint,
            ));
        }
    }
    Ok(sites)
}

/// The part of a configuration for the users of its machine. A daemon with no other part serves no client of
/// the network.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LocalServicesConfig {
    /// The queue.
    #[serde(default)]
    pub queue: Option<QueueConfig>,
    /// Sharing of storage targets among transfers.
    #[serde(default)]
    pub sharing: Option<SharingConfig>,
    /// Path of the PID file.
    #[serde(default, deserialize_with = "optional_absolute_path")]
    pub pid_file: Option<PathBuf>,
}

impl LocalServicesConfig {
    /// Returns the Unix socket of the meta-server; `None` if targets are not shared.
    pub fn sharing_socket(&self) -> Option<PathBuf> {
        Some(self.sharing.as_ref()?.socket())
    }

    /// Describes this part for people.
    pub fn describe(&self) -> Vec<String> {
        let sharing = self.sharing.as_ref().map(SharingConfig::describe);
        self.queue.as_ref().map(QueueConfig::describe).into_iter().chain(sharing).collect()
    }
}
