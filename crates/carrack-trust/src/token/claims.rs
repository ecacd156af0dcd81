//! The claims of a token as they are written (RFC 7519, 4.1; RFC 8693, 4.2).

use serde::{Deserialize, Serialize};

/// All claims but `nbf` are required. Others are ignored. Times are whole seconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct TokenClaims {
    /// The issuer.
    pub iss: String,
    /// The subject.
    pub sub: String,
    /// The audience.
    pub aud: TokenAudience,
    /// The token is invalid from then on.
    pub exp: u64,
    /// The token is invalid before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nbf: Option<u64>,
    /// The time of issue.
    pub iat: u64,
    /// The token's ID.
    pub jti: String,
    /// The permissions.
    pub scope: String,
}

/// One or several names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum TokenAudience {
    One(String),
    Several(Vec<String>),
}

impl TokenAudience {
    pub fn has(&self, name: &str) -> bool {
        match self {
            TokenAudience::One(one) => one == name,
            TokenAudience::Several(all) => all.iter().any(|one| one == name),
        }
    }
}
