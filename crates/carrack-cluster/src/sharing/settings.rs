//! What a meta-server is told at its start.

use std::collections::BTreeMap;

use carrack_plan::grants::{Class, GrantSettings};

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
