//! What an administrator says of a server of the API: where it listens, who it is, whose tokens it believes.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use carrack_trust::{ServerTrust, TlsError, TokenKeys, TokenKeysError, read_secret, server_config};
use rustix::process::geteuid;
use thiserror::Error;

use super::auth::ApiAuth;
use super::listeners::{ApiListener, ListenError};

/// The server of a fleet's API, `carrack api`.
#[derive(Clone, Debug, Default)]
pub struct ApiPlan {
    /// Addresses.
    pub listen: Vec<SocketAddr>,
    /// A Unix socket: of everybody where the server is root's, else of its own user.
    pub socket: Option<PathBuf>,
    /// Its certificate and its private key, PEM. Without them it listens on loopback addresses only.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// Who signs the tokens that it believes.
    pub issuers: Vec<ApiIssuer>,
    /// A file with the ids of tokens that were taken back, one a line.
    pub revoked: Option<PathBuf>,
}

/// Somebody who signs tokens.
#[derive(Clone, Debug)]
pub struct ApiIssuer {
    /// What its tokens say in `iss`.
    pub name: String,
    /// What they have to say in `aud`.
    pub audience: String,
    /// Its public keys, PEM.
    pub key: PathBuf,
}

/// Why there is no server.
#[derive(Debug, Error)]
pub enum ApiPlanError {
    /// A file can't be read.
    #[error("{path}: {message}", path = .path.display())]
    File {
        /// Its path.
        path: PathBuf,
        /// Why.
        message: String,
    },
    /// Its certificate or key.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// An issuer's keys.
    #[error(transparent)]
    Tokens(#[from] TokenKeysError),
    /// A place to listen at.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// Nobody could be known.
    #[error("nobody's tokens are believed, and who comes over the network has nothing else")]
    NoIssuer,
    /// There is nowhere to listen.
    #[error("there is nowhere to listen")]
    Nowhere,
}

impl ApiPlanError {
    /// What to do about it; may be empty.
    pub fn hint(&self) -> &'static str {
        match self {
            ApiPlanError::File { .. } | ApiPlanError::Tokens(_) => "",
            ApiPlanError::Tls(error) => error.hint().unwrap_or_default(),
            ApiPlanError::Listen(error) => error.hint(),
            ApiPlanError::NoIssuer => {
                "name an issuer of tokens; `carrack keys init` makes one, `carrack keys token` its tokens"
            }
            ApiPlanError::Nowhere => "name an address or a Unix socket",
        }
    }
}

impl ApiPlan {
    /// Whom the server believes.
    ///
    /// # Errors
    /// What is wrong with the files, or that nobody could come in.
    pub fn auth(&self) -> Result<ApiAuth, ApiPlanError> {
        if self.issuers.is_empty() && !self.listen.is_empty() {
            return Err(ApiPlanError::NoIssuer);
        }
        let mut keys = TokenKeys::default();
        for issuer in &self.issuers {
            keys.add_issuer(&issuer.name, &issuer.audience, &read(&issuer.key)?)?;
        }
        if let Some(path) = &self.revoked {
            keys.revoke(&String::from_utf8_lossy(&read(path)?));
        }
        Ok(ApiAuth::new(keys))
    }

    /// Listens, within a Tokio runtime.
    ///
    /// # Errors
    /// What is wrong with the files, or where it can't.
    pub async fn listen(&self) -> Result<Vec<ApiListener>, ApiPlanError> {
        let tls = match &self.identity {
            None => None,
            Some((chain, key)) => {
                let secret = read_secret(key)
                    .map_err(|error| ApiPlanError::File { path: key.clone(), message: error.to_string() })?;
                // Who comes is known by a token, and needs no certificate.
                let trust =
                    ServerTrust { chain: read(chain)?, key: secret, tokens: true, ..ServerTrust::default() };
                Some(server_config(&trust)?)
            }
        };
        let mut listeners = Vec::new();
        for address in &self.listen {
            listeners.push(ApiListener::tcp(*address, tls.clone()).await?);
        }
        if let Some(path) = &self.socket {
            let mode = if geteuid().is_root() { 0o666 } else { 0o600 };
            listeners.push(ApiListener::unix(path, mode)?);
        }
        if listeners.is_empty() { Err(ApiPlanError::Nowhere) } else { Ok(listeners) }
    }
}

fn read(path: &Path) -> Result<Vec<u8>, ApiPlanError> {
    let told = |error: io::Error| ApiPlanError::File { path: path.to_path_buf(), message: error.to_string() };
    fs::read(path).map_err(told)
}
