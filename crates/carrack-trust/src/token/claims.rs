//! The claims of a token as they are written (RFC 7519, 4.1; RFC 8693, 4.2).

use serde::{Deserialize, Serialize};

/// All of them have to be there, but for `nbf`. Others are not looked at. Times are whole seconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Claims {
    /// Who signed it.
    pub iss: String,
    /// Whom it names.
    pub sub: String,
    /// For whom it is.
    pub aud: Audience,
    /// Not good from then on.
    pub exp: u64,
    /// Not good before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nbf: Option<u64>,
    /// When it was made.
    pub iat: u64,
    /// Its own name.
    pub jti: String,
    /// What it allows.
    pub scope: String,
}

/// One or several.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum Audience {
    One(String),
    Several(Vec<String>),
}

impl Audience {
    pub fn has(&self, name: &str) -> bool {
        match self {
            Audience::One(one) => one == name,
            Audience::Several(all) => all.iter().any(|one| one == name),
        }
    }
}
