//! Bearer tokens: JSON web tokens (RFC 7519) with a public-key signature, short-lived, for operations beneath
//! paths.
//!
//! The bearer of a token has its identity: tokens travel over TLS only and appear in no log.

mod claims;
mod mint;
mod scope;
#[cfg(test)]
mod tests;
mod token_verifier;

pub use mint::{IssuedTokenContent, MintError, TokenSigner};
pub use scope::{BadTokenScope, MAX_PERMISSIONS, TokenScope, TokenScopeOperation, TransferApiRight};
pub use token_verifier::{
    MAX_ISSUER_KEYS, MAX_TOKEN_BYTES, TokenError, TokenKeysError, TokenVerifier, ValidToken,
};

use std::time::{Duration, SystemTime};

/// The longest lifetime of a token: a day. A longer task asks for another token.
pub const MAX_LIFETIME: Duration = Duration::from_secs(24 * 3600);

/// The tolerated difference of clocks: half a minute, as hosts that exchange tokens have NTP.
pub const LEEWAY: Duration = Duration::from_secs(30);

/// The longest issuer, subject, audience or ID in a token, in bytes.
const MAX_WORD_BYTES: usize = 512;

/// Seconds since 1970, as in claims (RFC 7519, NumericDate).
fn numeric_date(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
