//! Which tokens a daemon believes: those that an issuer it knows has signed, for it, for now.

use std::collections::HashSet;
use std::time::{Duration, SystemTime};

use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Algorithm, DecodingKey, Validation};
use thiserror::Error;

use super::claims::Claims;
use super::scope::{Scope, ScopeError};
use super::{LEEWAY, MAX_LIFETIME, MAX_WORD_BYTES, numeric_date};
use crate::identity::{How, Identity};
use crate::name::{NameError, check_identity_name};
use crate::pem::{self, PemError};
use crate::public_key::{KeyKind, PublicKey};

/// The longest token, in bytes: one with [`super::MAX_PERMISSIONS`] long paths. Longer ones are not looked at.
pub const MAX_TOKEN_BYTES: usize = 16 * 1024;

/// The most keys of all issuers: a token may be tried with each.
pub const MAX_ISSUER_KEYS: usize = 64;

/// Why a token is refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TokenError {
    /// Longer than [`MAX_TOKEN_BYTES`].
    #[error("the token is longer than {MAX_TOKEN_BYTES} bytes")]
    TooLong,
    /// Its header can't be read, or asks for what isn't done here: another algorithm than EdDSA and ES256, `crit`.
    #[error("this is no token that is signed with EdDSA or ES256")]
    Header,
    /// No issuer that is known here signed it.
    #[error("the token's signature is of no issuer that is known here")]
    Signature,
    /// A claim is missing, or none.
    #[error("the token's claims can't be read: {0}")]
    Claims(String),
    /// Signed by the key of another issuer than it says.
    #[error("the token says it is of another issuer than the one who signed it")]
    Issuer,
    /// For somebody else.
    #[error("the token is for another audience")]
    Audience,
    /// No longer good.
    #[error("the token has expired")]
    Expired,
    /// Not yet good.
    #[error("the token is not valid yet")]
    NotYet,
    /// It lives longer than is believed here.
    #[error("the token is made to live longer than {limit_s} s")]
    LivesTooLong {
        /// How long tokens may live, in seconds.
        limit_s: u64,
    },
    /// It was taken back.
    #[error("the token is revoked")]
    Revoked,
    /// Whom it names.
    #[error("the token's subject: {0}")]
    Subject(#[from] NameError),
    /// What it allows.
    #[error("the token's scope: {0}")]
    Scope(#[from] ScopeError),
}

impl TokenError {
    /// What the one who came with it can do.
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

/// Why an issuer can't be trusted.
#[derive(Debug, Error)]
pub enum TokenKeysError {
    /// Its file can't be read.
    #[error("the keys of issuer {issuer}: {error}")]
    Pem {
        /// Whose keys.
        issuer: String,
        /// What is wrong.
        error: PemError,
    },
    /// A key of another kind.
    #[error("the keys of issuer {issuer}: only Ed25519 and P-256 keys are known here")]
    Kind {
        /// Whose keys.
        issuer: String,
    },
    /// The issuer, or its audience, has no name.
    #[error("an issuer of tokens and its audience need names")]
    Name,
    /// More than [`MAX_ISSUER_KEYS`].
    #[error("there are more than {MAX_ISSUER_KEYS} keys of issuers")]
    TooMany,
}

/// A token that is good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// Who holds it.
    pub identity: Identity,
    /// What they may do.
    pub scope: Scope,
    /// Until when: a session that goes on longer goes beyond what was given.
    pub expires: SystemTime,
}

struct IssuerKey {
    issuer: String,
    audience: String,
    algorithm: Algorithm,
    key: DecodingKey,
}

/// The issuers that a daemon trusts, and what they have taken back.
pub struct TokenKeys {
    keys: Vec<IssuerKey>,
    revoked: HashSet<String>,
    max_lifetime: Duration,
}

impl Default for TokenKeys {
    fn default() -> Self {
        TokenKeys { keys: Vec::new(), revoked: HashSet::new(), max_lifetime: MAX_LIFETIME }
    }
}

impl std::fmt::Debug for TokenKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let issuers: Vec<_> = self.keys.iter().map(|key| &key.issuer).collect();
        f.debug_struct("TokenKeys").field("issuers", &issuers).finish_non_exhaustive()
    }
}

impl TokenKeys {
    /// Trusts an issuer with the public keys of `pem` (one or several, so that they can be changed), for tokens that
    /// name `audience`.
    ///
    /// # Errors
    /// If there is no key in it that can be used.
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
            self.keys.push(IssuerKey::new(issuer, audience, &key));
        }
        Ok(())
    }

    /// Refuses these tokens from now on: one `jti` a line; empty lines and those with `#` don't count.
    pub fn revoke(&mut self, ids: &str) {
        let ids = ids.lines().map(str::trim).filter(|id| !id.is_empty() && !id.starts_with('#'));
        self.revoked.extend(ids.map(str::to_owned));
    }

    /// Believes no token that is made to live longer than this; [`MAX_LIFETIME`] if nobody says.
    pub fn limit_lifetime(&mut self, limit: Duration) {
        self.max_lifetime = limit;
    }

    /// Whether nobody's tokens are believed.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Who holds this token, and what they may do.
    ///
    /// # Errors
    /// Why it is refused.
    pub fn verify(&self, token: &str, now: SystemTime) -> Result<Token, TokenError> {
        if token.len() > MAX_TOKEN_BYTES {
            return Err(TokenError::TooLong);
        }
        let (key, claims) = self.signed_claims(token)?;
        key.check_ends(&claims)?;
        self.check_times(&claims, numeric_date(now))?;
        check_identity_name(&claims.sub)?;
        if self.revoked.contains(&claims.jti) {
            return Err(TokenError::Revoked);
        }
        let expires = SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(claims.exp));
        Ok(Token {
            scope: Scope::parse(&claims.scope)?,
            expires: expires.ok_or_else(|| TokenError::Claims("exp is beyond all time".to_owned()))?,
            identity: Identity { name: claims.sub, how: How::Token { issuer: claims.iss, id: claims.jti } },
        })
    }

    /// What a key that is known here has signed. The header chooses among the algorithms of the keys, never a key.
    fn signed_claims(&self, token: &str) -> Result<(&IssuerKey, Claims), TokenError> {
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

    fn check_times(&self, claims: &Claims, now_s: u64) -> Result<(), TokenError> {
        let leeway_s = LEEWAY.as_secs();
        let begins_s = claims.nbf.unwrap_or(claims.iat).max(claims.iat);
        // Until `iat` is known to be past, a token's life could begin at any time.
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

impl IssuerKey {
    fn new(issuer: &str, audience: &str, key: &PublicKey) -> IssuerKey {
        let (algorithm, key) = match key.kind() {
            KeyKind::Ed25519 => (Algorithm::EdDSA, DecodingKey::from_ed_der(key.raw())),
            KeyKind::P256 => (Algorithm::ES256, DecodingKey::from_ec_der(key.raw())),
        };
        IssuerKey { issuer: issuer.to_owned(), audience: audience.to_owned(), algorithm, key }
    }

    /// The claims if this key has signed them; the library checks the signature alone, this crate the claims.
    fn open(&self, token: &str) -> Result<Option<Claims>, TokenError> {
        let mut only_signature = Validation::new(self.algorithm);
        only_signature.required_spec_claims.clear();
        only_signature.validate_exp = false;
        only_signature.validate_nbf = false;
        only_signature.validate_aud = false;
        match jsonwebtoken::decode::<Claims>(token, &self.key, &only_signature) {
            Ok(data) => Ok(Some(data.claims)),
            Err(error) if matches!(error.kind(), ErrorKind::InvalidSignature) => Ok(None),
            Err(error) => Err(TokenError::Claims(error.to_string())),
        }
    }

    fn check_ends(&self, claims: &Claims) -> Result<(), TokenError> {
        let too_long = |word: &String| word.is_empty() || word.len() > MAX_WORD_BYTES;
        if [&claims.iss, &claims.sub, &claims.jti].into_iter().any(too_long) {
            return Err(TokenError::Claims("iss, sub or jti is empty or too long".to_owned()));
        }
        if claims.iss != self.issuer {
            return Err(TokenError::Issuer);
        }
        if claims.aud.has(&self.audience) { Ok(()) } else { Err(TokenError::Audience) }
    }
}
