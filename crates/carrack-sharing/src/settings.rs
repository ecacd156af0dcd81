//! What a meta-server is told at its start.

use std::collections::BTreeMap;

use carrack_plan::grants::{Class, GrantSettings};

use super::health::HealthSettings;

/// What the class of those who name none is called where it needs a name. In messages it is empty.
pub const DEFAULT_CLASS: &str = "default";

/// How a meta-server grants, and to whom how much.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SharingSettings {
    /// Bursts and privileged users.
    pub grants: GrantSettings,
    /// Classes by name; [`DEFAULT_CLASS`] is that of everybody who names none.
    pub classes: BTreeMap<String, Class>,
}

/// A site of a fleet whose storage targets a manager shares out, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteSharing {
    /// Its name.
    pub site: String,
    /// How its targets are granted.
    pub settings: SharingSettings,
    /// Where is measured what computation does to them, if anywhere.
    pub health: Option<HealthSettings>,
}

impl SiteSharing {
    /// By the defaults: no classes, and nothing is measured.
    pub fn by_default(site: &str) -> SiteSharing {
        SiteSharing { site: site.to_owned(), settings: SharingSettings::default(), health: None }
    }
}
