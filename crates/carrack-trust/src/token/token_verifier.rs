//! The check of tokens: signed by a known issuer, for this daemon, and valid now.

use std::collections::HashSet;
use std::time::{Duration, SystemTime};

use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Algorithm, DecodingKey, Validation};
use thiserror::Error;

use super::claims::TokenClaims;
use super::scope::{BadTokenScope, TokenScope};
use super::{LEEWAY, MAX_LIFETIME, MAX_WORD_BYTES, numeric_date};
use crate::name::{IdentityNameError, check_identity_name};
use crate::pem::{self, PemError};
use crate::proved_identity::{ProvedIdentity, ProvingCredential};
use crate::public_key::{KeySignatureAlgorithm, PublicKey};

/// The longest token, in bytes: one with [`super::MAX_PERMISSIONS`] long paths.
pub const MAX_TOKEN_BYTES: usize = 16 * 1024;

/// The most keys of all issuers together: a token may be tried with each.
pub const MAX_ISSUER_KEYS: usize = 64;

/// The reason why a token is refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TokenError {
    /// Longer than [`MAX_TOKEN_BYTES`].
    #[error("the token is longer than {MAX_TOKEN_BYTES} bytes")]
    TooLong,
    /// The header can't be read, or requires an unsupported feature: another algorithm than EdDSA and ES256,
    /// or `crit`.
    #[error("this is no token that is signed with EdDSA or ES256")]
    Header,
    /// No known issuer signed the token.
    #[error("the token's signature is of no issuer that is known here")]
    Signature,
    /// A claim is missing or malformed.
    #[error("the token's claims can't be read: {0}")]
    Claims(String),
    /// The signer is not the issuer that the token names.
    #[error("the token says it is of another issuer than the one who signed it")]
    Issuer,
    /// The token is for another audience.
    #[error("the token is for another audience")]
    Audience,
    /// The token has expired.
    #[error("the token has expired")]
    Expired,
    /// The token is not valid yet.
    #[error("the token is not valid yet")]
    NotYet,
    /// The token's lifetime is longer than the limit.
    #[error("the token is made to live longer than {limit_s} s")]
    LivesTooLong {
        /// The limit of a token's lifetime, in seconds.
        limit_s: u64,
    },
    /// The token was revoked.
    #[error("the token is revoked")]
    Revoked,
    /// The subject is not a valid name.
    #[error("the token's subject: {0}")]
    Subject(#[from] IdentityNameError),
    /// The scope is invalid.
    #[error("the token's scope: {0}")]
    Scope(#[from] BadTokenScope),
}

impl TokenError {
    /// Advice for the token's holder.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            TokenError::Expired | TokenError::Revoked => Some("ask for a new token"),
            TokenError::NotYet => Some("check the clocks of the issuer's host and the daemon's"),
            TokenError::LivesTooLong { .. } => Some("ask for a token with a shorter life"),
            TokenError::Audience => Some("ask for a token for this daemon's audience"),
            _ => None,
        }
    }
}

/// The reason why an issuer can't be added.
#[derive(Debug, Error)]
pub enum TokenKeysError {
    /// The file can't be read.
    #[error("the keys of issuer {issuer}: {error}")]
    Pem {
        /// The issuer.
        issuer: String,
        /// The problem.
        error: PemError,
    },
    /// A key has an unsupported kind.
    #[error("the keys of issuer {issuer}: only Ed25519 and P-256 keys are known here")]
    Kind {
        /// The issuer.
        issuer: String,
    },
    /// The issuer or its audience has no name.
    #[error("an issuer of tokens and its audience need names")]
    Name,
    /// More than [`MAX_ISSUER_KEYS`].
    #[error("there are more than {MAX_ISSUER_KEYS} keys of issuers")]
    TooMany,
}

/// A valid token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValidToken {
    /// The token's holder.
    pub identity: ProvedIdentity,
    /// The holder's permissions.
    pub scope: TokenScope,
    /// The token's end. A session must not last longer.
    pub expires: SystemTime,
}

struct TokenVerificationKey {
    issuer: String,
    audience: String,
    algorithm: Algorithm,
    key: DecodingKey,
}

/// The trusted issuers of a daemon, and the revoked tokens.
pub struct TokenVerifier {
    keys: Vec<TokenVerificationKey>,
    revoked: HashSet<String>,
    max_lifetime: Duration,
}

impl Default for TokenVerifier {
    fn default() -> Self {
        TokenVerifier { keys: Vec::new(), revoked: HashSet::new(), max_lifetime: MAX_LIFETIME }
    }
}

impl std::fmt::Debug for TokenVerifier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let issuers: Vec<_> = self.keys.iter().map(|key| &key.issuer).collect();
        f.debug_struct("TokenVerifier").field("issuers", &issuers).finish_non_exhaustive()
    }
}

impl TokenVerifier {
    /// Trusts an issuer with the public keys of `pem` (one or several, so that keys can be rotated), for
    /// tokens that name `audience`.
    ///
    /// # Errors
    /// If `pem` has no usable key.
    pub fn add_issuer(&mut self, issuer: &str, audience: &str, pem: &[u8]) -> Result<(), TokenKeysError> {
        if issuer.is_empty() || audience.is_empty() {
            return Err(TokenKeysError::Name);
        }
        let keys = pem::public_keys(pem)
            .map_err(|error| TokenKeysError::Pem { issuer: issuer.to_owned(), error })?;
        if self.keys.len() + keys.len() > MAX_ISSUER_KEYS {
            return Err(TokenKeysError::TooMany);
        }
        for key in keys {
            let key = PublicKey::from_spki(&key)
                .ok_or_else(|| TokenKeysError::Kind { issuer: issuer.to_owned() })?;
            self.keys.push(TokenVerificationKey::new(issuer, audience, &key));
        }
        Ok(())
    }

    /// Refuses these tokens from now on: one `jti` a line; empty lines and lines with `#` are ignored.
    pub fn revoke(&mut self, ids: &str) {
        let ids = ids.lines().map(str::trim).filter(|id| !id.is_empty() && !id.starts_with('#'));
        self.revoked.extend(ids.map(str::to_owned));
    }

    /// Refuses tokens with a longer lifetime. The default is [`MAX_LIFETIME`].
    pub fn limit_lifetime(&mut self, limit: Duration) {
        self.max_lifetime = limit;
    }

    /// Returns true if no issuer is trusted.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// The token's holder and permissions.
    ///
    /// # Errors
    /// The reason of refusal.
    pub fn verify(&self, token: &str, now: SystemTime) -> Result<ValidToken, TokenError> {
        if token.len() > MAX_TOKEN_BYTES {
            return Err(TokenError::TooLong);
        }
        let (key, claims) = self.signed_claims(token)?;
        key.check_issuer_and_audience(&claims)?;
        self.check_times(&claims, numeric_date(now))?;
        check_identity_name(&claims.sub)?;
        if self.revoked.contains(&claims.jti) {
            return Err(TokenError::Revoked);
        }
        let expires = SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(claims.exp));
        Ok(ValidToken {
            scope: TokenScope::parse(&claims.scope)?,
            expires: expires.ok_or_else(|| TokenError::Claims("exp is beyond all time".to_owned()))?,
            identity: ProvedIdentity {
                name: claims.sub,
                how: ProvingCredential::Token { issuer: claims.iss, id: claims.jti },
            },
        })
    }

    /// The claims, with the known key that signed them. The header chooses among algorithms of the keys,
    /// never a key.
    fn signed_claims(&self, token: &str) -> Result<(&TokenVerificationKey, TokenClaims), TokenError> {
        let header = jsonwebtoken::decode_header(token).map_err(|_| TokenError::Header)?;
        let is_done_here = matches!(header.alg, Algorithm::EdDSA | Algorithm::ES256);
        if !is_done_here || header.crit.is_some() {
            return Err(TokenError::Header);
        }
        let candidates = self.keys.iter().filter(|key| key.algorithm == header.alg);
        for key in candidates {
            if let Some(claims) = key.open(token)? {
                return Ok((key, claims));
            }
        }
        Err(TokenError::Signature)
    }

    fn check_times(&self, claims: &TokenClaims, now_s: u64) -> Result<(), TokenError> {
        let leeway_s = LEEWAY.as_secs();
        let begins_s = claims.nbf.unwrap_or(claims.iat).max(claims.iat);
        // While `iat` is in the future, a token's lifetime could begin at any time.
        if begins_s > now_s.saturating_add(leeway_s) {
            return Err(TokenError::NotYet);
        }
        if claims.exp.saturating_add(leeway_s) <= now_s {
            return Err(TokenError::Expired);
        }
        let limit_s = self.max_lifetime.as_secs();
        if claims.exp.saturating_sub(claims.iat) > limit_s {
            return Err(TokenError::LivesTooLong { limit_s });
        }
        Ok(())
    }
}

impl TokenVerificationKey {
    fn new(issuer: &str, audience: &str, key: &PublicKey) -> TokenVerificationKey {
        let (algorithm, key) = match key.kind() {
            KeySignatureAlgorithm::Ed25519 => (Algorithm::EdDSA, DecodingKey::from_ed_der(key.raw())),
            KeySignatureAlgorithm::P256 => (Algorithm::ES256, DecodingKey::from_ec_der(key.raw())),
        };
        TokenVerificationKey { issuer: issuer.to_owned(), audience: audience.to_owned(), algorithm, key }
    }

    /// The claims if this key has signed them. The library checks only the signature, and this crate the
    /// claims.
    fn open(&self, token: &str) -> Result<Option<TokenClaims>, TokenError> {
        let mut only_signature = Validation::new(self.algorithm);
        only_signature.required_spec_claims.clear();
        only_signature.validate_exp = false;
        only_signature.validate_nbf = false;
        only_signature.validate_aud = false;
        match jsonwebtoken::decode::<TokenClaims>(token, &self.key, &only_signature) {
            Ok(data) => Ok(Some(data.claims)),
            Err(error) if matches!(error.kind(), ErrorKind::InvalidSignature) => Ok(None),
            Err(error) => Err(TokenError::Claims(error.to_string())),
        }
    }

    fn check_issuer_and_audience(&self, claims: &TokenClaims) -> Result<(), TokenError> {
        let words = [&claims.iss, &claims.sub, &claims.jti];
        if words.iter().any(|word| word.is_empty() || word.len() > MAX_WORD_BYTES) {
            return Err(TokenError::Claims("iss, sub or jti is empty or too long".to_owned()));
        }
        if claims.iss != self.issuer {
            return Err(TokenError::Issuer);
        }
        if claims.aud.has(&self.audience) { Ok(()) } else { Err(TokenError::Audience) }
    }
}
