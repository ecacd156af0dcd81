//! The settings of the meta-scheduler's server.

use std::collections::BTreeMap;

use carrack_plan::grants::{GrantClientClass, GrantSettings};

use super::health::LoadMonitorSettings;

/// The name of the default class in settings. In messages it is empty.
pub const DEFAULT_CLASS: &str = "default";

/// The settings of grants, and the classes of clients.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SharingSettings {
    /// Bursts and privileged users.
    pub grants: GrantSettings,
    /// Classes by name; clients without a class have [`DEFAULT_CLASS`].
    pub classes: BTreeMap<String, GrantClientClass>,
}

/// The settings of a fleet's site whose storage targets a manager grants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteSharing {
    /// The site's name.
    pub site: String,
    /// The settings of its grants.
    pub settings: SharingSettings,
    /// The measurement of computation's load on its targets, if there is one.
    pub health: Option<LoadMonitorSettings>,
}

impl SiteSharing {
    /// The default settings: no classes, no measurement.
    pub fn by_default(site: &str) -> SiteSharing {
        SiteSharing { site: site.to_owned(), settings: SharingSettings::default(), health: None }
    }
}
