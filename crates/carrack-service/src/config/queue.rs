//! The queue of this machine, which a daemon may keep beside its exports.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use carrack_register::records::is_name;
use serde::de::Error;
use serde::{Deserialize, Deserializer};

use super::sharing::SharingConfig;
use super::value::{absolute, optional_absolute, within, wrong};
use crate::queue::{QueueSettings, TurnRules};

/// Where a queue answers unless told otherwise.
pub const DEFAULT_SOCKET: &str = "/run/carrack/queue.sock";

/// Weights of accounts.
const WEIGHT_MIN: f64 = 0.001;
const WEIGHT_MAX: f64 = 1_000.0;

/// `[queue]`: transfers that are submitted, kept and carried out here.
#[derive(Clone, Debug, PartialEq, Deserialize)]
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
    /// The highest priority that users may say.
    #[serde(default = "priority_max", deserialize_with = "priority")]
    priority_max: u8,
    /// The same for users and accounts that are named.
    #[serde(default, deserialize_with = "priorities")]
    priorities: BTreeMap<String, u8>,
    /// What accounts may use, in proportion.
    #[serde(default, deserialize_with = "weights")]
    weights: BTreeMap<String, f64>,
    /// Users who take turns as one account.
    #[serde(default)]
    accounts: BTreeMap<String, String>,
    /// Minutes after which what waits is one class higher.
    #[serde(default = "ages_minutes", deserialize_with = "within::<1, 525_600, _>")]
    ages_minutes: u64,
    /// Minutes after which what was used counts half.
    #[serde(default = "halves_minutes", deserialize_with = "within::<1, 525_600, _>")]
    halves_minutes: u64,
}

impl QueueConfig {
    /// As the queue wants to know it, `sharing` being the Unix socket at which targets are shared out.
    pub fn settings(&self, sharing: Option<PathBuf>) -> QueueSettings {
        QueueSettings {
            directory: self.directory.clone(),
            max_running: usize::try_from(self.max_running).unwrap_or(1),
            history: Duration::from_secs(self.history_days * 24 * 3600),
            sites: self.sites.clone(),
            turns: self.turns(),
            sharing,
        }
    }

    fn turns(&self) -> TurnRules {
        TurnRules {
            priority_max: self.priority_max,
            priorities: self.priorities.clone(),
            weights: self.weights.clone(),
            accounts: self.accounts.clone(),
            ages_every: Duration::from_secs(60 * self.ages_minutes),
            halves_every: Duration::from_secs(60 * self.halves_minutes),
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

fn priority_max() -> u8 {
    TurnRules::PRIORITY_MAX_DEFAULT
}

fn ages_minutes() -> u64 {
    TurnRules::default().ages_every.as_secs() / 60
}

fn halves_minutes() -> u64 {
    TurnRules::default().halves_every.as_secs() / 60
}

fn checked_priority<E: Error>(number: u8) -> Result<u8, E> {
    // Who says nothing has said 5.
    let (least, most) = (TurnRules::PRIORITY_MAX_DEFAULT, TurnRules::PRIORITY_MAX);
    if (least..=most).contains(&number) {
        return Ok(number);
    }
    Err(wrong(format!("{number} is out of range"), format!("it may be {least} to {most}")))
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
        Some((name, weight)) => Err(wrong(
            format!("{weight} can't be the weight of {name}"),
            format!("it may be {WEIGHT_MIN} to {WEIGHT_MAX}; 1 is that of who is not named"),
        )),
    }
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
#[derive(Clone, Debug, PartialEq, Deserialize)]
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
