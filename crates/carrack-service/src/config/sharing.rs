//! The meta-server of this machine or site, which grants storage targets that transfers share.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use carrack_plan::grants::{GrantClientClass, GrantSettings};
use carrack_register::transfer_records::is_name;
use carrack_sharing::health::LoadMonitorSettings;
use carrack_sharing::{DEFAULT_CLASS, SharingSettings};
use serde::{Deserialize, Deserializer};

use super::value::{error_with_hint, number_in_range, optional_absolute_path, optional_rate, size};
use crate::sharing::{ClassUserRules, SharingClassUsers};

/// The default socket of the meta-server.
pub const DEFAULT_SHARING_SOCKET: &str = "/run/carrack/sharing.sock";

/// Upper bound of classes.
const CLASSES_MAX: usize = 64;

/// `[sharing]`: transfers of this machine take turns at storage targets.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SharingConfig {
    /// Transfers that use a target at a time.
    #[serde(deserialize_with = "number_in_range::<1, 64, _>")]
    users: u64,
    /// Length of a burst while other transfers wait, in milliseconds: at least two periods of the clients'
    /// messages, at most a lease.
    #[serde(deserialize_with = "number_in_range::<200, 2_000, _>")]
    burst_ms: u64,
    /// Bytes after which a burst ends, if these come first.
    #[serde(deserialize_with = "size")]
    burst_bytes: u64,
    /// The meta-server's Unix socket.
    #[serde(deserialize_with = "optional_absolute_path")]
    socket: Option<PathBuf>,
    /// Classes by name.
    #[serde(deserialize_with = "classes")]
    classes: BTreeMap<String, ClassConfig>,
    /// `[sharing.health]`: source of the load that computation puts on targets.
    pub health: Option<LoadMonitorSettings>,
}

/// Transfers that are treated alike.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct ClassConfig {
    /// Each transfer's part of a target's time, in proportion to others'.
    #[serde(deserialize_with = "number_in_range::<1, 1_000, _>")]
    weight: u64,
    /// Rate that is guaranteed to each transfer, over all targets.
    #[serde(deserialize_with = "optional_rate")]
    min_rate: Option<u64>,
    /// Rate that is guaranteed to all of its transfers together.
    #[serde(deserialize_with = "optional_rate")]
    min_rate_all: Option<u64>,
    /// Upper bound of the rate for a deadline.
    #[serde(deserialize_with = "optional_rate")]
    deadline_rate: Option<u64>,
    /// Users and groups that may use it; without both, every user.
    users: Option<Vec<String>>,
    groups: Option<Vec<String>>,
}

impl Default for SharingConfig {
    fn default() -> SharingConfig {
        let GrantSettings { users, burst, burst_bytes, .. } = GrantSettings::default();
        let burst_ms = u64::try_from(burst.as_millis()).unwrap_or(u64::MAX);
        SharingConfig {
            users: users.into(),
            burst_ms,
            burst_bytes,
            socket: None,
            classes: BTreeMap::new(),
            health: None,
        }
    }
}

impl Default for ClassConfig {
    fn default() -> ClassConfig {
        ClassConfig {
            weight: 1,
            min_rate: None,
            min_rate_all: None,
            deadline_rate: None,
            users: None,
            groups: None,
        }
    }
}

impl SharingConfig {
    /// Returns the meta-server's settings.
    pub fn settings(&self) -> SharingSettings {
        let grants = GrantSettings {
            users: u32::try_from(self.users).unwrap_or(1),
            burst: Duration::from_millis(self.burst_ms),
            burst_bytes: self.burst_bytes,
            ..GrantSettings::default()
        };
        let classes = self.classes.iter().map(|(name, class)| (name.clone(), class.class())).collect();
        SharingSettings { grants, classes }
    }

    /// Returns the meta-server's Unix socket.
    pub fn socket(&self) -> PathBuf {
        self.socket.clone().unwrap_or_else(|| DEFAULT_SHARING_SOCKET.into())
    }

    /// Returns the rules by which users may use classes.
    pub fn rules(&self) -> ClassUserRules {
        let classes = self.classes.iter().map(|(name, class)| {
            (name.clone(), SharingClassUsers { users: class.users.clone(), groups: class.groups.clone() })
        });
        ClassUserRules::new(classes.collect())
    }

    /// Describes the meta-server for people.
    pub fn describe(&self) -> String {
        let classes: Vec<&str> = self.classes.keys().map(String::as_str).collect();
        let classes = if classes.is_empty() { "no classes".to_owned() } else { classes.join(", ") };
        format!(
            "sharing at {}, {} at a target at a time, bursts of {} ms, classes: {classes}",
            self.socket().display(),
            self.users,
            self.burst_ms
        )
    }
}

impl ClassConfig {
    fn class(&self) -> GrantClientClass {
        GrantClientClass {
            weight: u32::try_from(self.weight).unwrap_or(1),
            client_bytes_per_s: self.min_rate.unwrap_or(0),
            class_bytes_per_s: self.min_rate_all.unwrap_or(0),
            deadline_bytes_per_s: self.deadline_rate.unwrap_or(0),
        }
    }
}

fn classes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, ClassConfig>, D::Error> {
    let classes = BTreeMap::<String, ClassConfig>::deserialize(deserializer)?;
    if classes.len() > CLASSES_MAX {
        return Err(error_with_hint(
            format!("there are {} classes", classes.len()),
            format!("{CLASSES_MAX} can be"),
        ));
    }
    for (name, class) in &classes {
        if !is_name(name) {
            return Err(error_with_hint(
                format!("{name:?} can't name a class"),
                "letters, digits, '-' and '_' can",
            ));
        }
        let lists = [&class.users, &class.groups];
        if name == DEFAULT_CLASS && lists.iter().any(|list| list.is_some()) {
            let hint =
                format!("take users and groups out of {DEFAULT_CLASS}, or give the class another name");
            return Err(error_with_hint("the class of those who name none is everybody's", hint));
        }
        let is_named = lists.iter().any(|list| list.is_some());
        if is_named && lists.iter().all(|list| list.as_ref().is_none_or(Vec::is_empty)) {
            let hint = "name somebody, or take users and groups out: then everybody may use it";
            return Err(error_with_hint(format!("nobody may use the class {name}"), hint));
        }
    }
    Ok(classes)
}
