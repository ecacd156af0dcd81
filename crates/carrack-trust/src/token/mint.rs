//! Issues tokens, for sites without another issuer.

use std::time::{Duration, SystemTime};

use aws_lc_rs::rand;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use rcgen::KeyPair;
use thiserror::Error;

use super::claims::{TokenAudience, TokenClaims};
use super::scope::TokenScope;
use super::{MAX_LIFETIME, MAX_WORD_BYTES, numeric_date};
use crate::certificate::hex;
use crate::name::{IdentityNameError, check_identity_name};
use crate::public_key::{KeySignatureAlgorithm, PublicKey};

/// The reason why a token can't be issued.
#[derive(Debug, Error)]
pub enum MintError {
    /// The issuer's key can't be used.
    #[error("the issuer's private key is no Ed25519 or P-256 key in PEM")]
    Key,
    /// The subject is not a valid name.
    #[error("the subject: {0}")]
    Subject(#[from] IdentityNameError),
    /// The issuer or the audience is empty or too long.
    #[error("issuer and audience need names of at most {MAX_WORD_BYTES} bytes")]
    Name,
    /// Every daemon would refuse this lifetime.
    #[error("a token lives between 1 second and 24 hours")]
    Lifetime,
    /// The system has no random numbers, or the library failed.
    #[error("the token could not be signed")]
    Signing,
}

/// The content of a token to issue.
#[derive(Clone, Debug)]
pub struct IssuedTokenContent {
    /// The token's holder.
    pub subject: String,
    /// The daemons that shall accept the token.
    pub audience: String,
    /// The holder's permissions.
    pub scope: TokenScope,
    /// The lifetime from now on.
    pub lifetime: Duration,
}

/// An issuer's name and private key.
pub struct TokenSigner {
    issuer: String,
    algorithm: Algorithm,
    key: EncodingKey,
}

impl std::fmt::Debug for TokenSigner {
    /// Without the key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TokenSigner").field("issuer", &self.issuer).finish_non_exhaustive()
    }
}

impl TokenSigner {
    /// A signer with the private key of `pem` (PKCS #8).
    ///
    /// # Errors
    /// If the key can't be used, or the name is empty or too long.
    pub fn new(issuer: &str, pem: &str) -> Result<TokenSigner, MintError> {
        if issuer.is_empty() || issuer.len() > MAX_WORD_BYTES {
            return Err(MintError::Name);
        }
        let pair = KeyPair::from_pem(pem).map_err(|_| MintError::Key)?;
        let spki = rcgen::PublicKeyData::subject_public_key_info(&pair);
        let (algorithm, key) = match PublicKey::from_spki(&spki).map(|key| key.kind()) {
            Some(KeySignatureAlgorithm::Ed25519) => {
                (Algorithm::EdDSA, EncodingKey::from_ed_der(pair.serialized_der()))
            }
            Some(KeySignatureAlgorithm::P256) => {
                (Algorithm::ES256, EncodingKey::from_ec_der(pair.serialized_der()))
            }
            None => return Err(MintError::Key),
        };
        Ok(TokenSigner { issuer: issuer.to_owned(), algorithm, key })
    }

    /// Issues a token. Returns the token and its ID (`jti`), by which it can be revoked.
    ///
    /// # Errors
    /// If every daemon would refuse the token, or it can't be signed.
    pub fn mint(&self, grant: &IssuedTokenContent, now: SystemTime) -> Result<(String, String), MintError> {
        check_identity_name(&grant.subject)?;
        if grant.audience.is_empty() || grant.audience.len() > MAX_WORD_BYTES {
            return Err(MintError::Name);
        }
        if grant.lifetime.as_secs() == 0 || grant.lifetime > MAX_LIFETIME {
            return Err(MintError::Lifetime);
        }
        let claims = self.claims(grant, numeric_date(now))?;
        let token = jsonwebtoken::encode(&Header::new(self.algorithm), &claims, &self.key)
            .map_err(|_| MintError::Signing)?;
        Ok((token, claims.jti))
    }

    fn claims(&self, grant: &IssuedTokenContent, now_s: u64) -> Result<TokenClaims, MintError> {
        let mut id = [0; 16];
        rand::fill(&mut id).map_err(|_| MintError::Signing)?;
        Ok(TokenClaims {
            iss: self.issuer.clone(),
            sub: grant.subject.clone(),
            aud: TokenAudience::One(grant.audience.clone()),
            exp: now_s + grant.lifetime.as_secs(),
            nbf: Some(now_s),
            iat: now_s,
            jti: hex(&id),
            scope: grant.scope.to_string(),
        })
    }
}
