//! The configuration of an API server: its listeners, its credentials, the issuers that it accepts.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use carrack_model::text_without_errno;
use carrack_trust::{
    TlsConfigError, TlsServerCredentials, TokenKeysError, TokenVerifier, read_secret, server_config,
};
use rustix::process::geteuid;
use thiserror::Error;

use super::auth::ApiAuth;
use super::listeners::{ApiListener, ListenError};

/// The server of a fleet's API, `carrack api`.
#[derive(Clone, Debug, Default)]
pub struct ApiPlan {
    /// Addresses to listen on.
    pub listen: Vec<SocketAddr>,
    /// A Unix socket: open to all users if the server runs as root, else to its own user.
    pub socket: Option<PathBuf>,
    /// Its certificate and its private key, PEM. Without them it listens on loopback addresses only.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// The issuers whose tokens it accepts.
    pub issuers: Vec<ApiIssuer>,
    /// A file with the IDs of revoked tokens, one a line.
    pub revoked: Option<PathBuf>,
}

/// An issuer of tokens.
#[derive(Clone, Debug)]
pub struct ApiIssuer {
    /// Value of its tokens' `iss`.
    pub name: String,
    /// Required value of their `aud`.
    pub audience: String,
    /// Its public keys, PEM.
    pub key: PathBuf,
}

/// An error that keeps the server from starting.
#[derive(Debug, Error)]
pub enum ApiServerConfigError {
    /// An unreadable file.
    #[error("{path}: {message}", path = .path.display())]
    File {
        /// Its path.
        path: PathBuf,
        /// The reason.
        message: String,
    },
    /// An error of its certificate or key.
    #[error(transparent)]
    Tls(#[from] TlsConfigError),
    /// An error of an issuer's keys.
    #[error(transparent)]
    Tokens(#[from] TokenKeysError),
    /// An error of listening.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// No caller could be authenticated.
    #[error("nobody's tokens are believed, and who comes over the network has nothing else")]
    NoIssuer,
    /// Neither an address nor a socket is given.
    #[error("there is nowhere to listen")]
    Nowhere,
}

impl ApiServerConfigError {
    /// Returns a hint for the administrator; may be empty.
    pub fn hint(&self) -> &'static str {
        match self {
            ApiServerConfigError::File { .. } | ApiServerConfigError::Tokens(_) => "",
            ApiServerConfigError::Tls(error) => error.hint().unwrap_or_default(),
            ApiServerConfigError::Listen(error) => error.hint(),
            ApiServerConfigError::NoIssuer => {
                "name an issuer of tokens; `carrack keys init` makes one, `carrack keys token` its tokens"
            }
            ApiServerConfigError::Nowhere => "name an address or a Unix socket",
        }
    }
}

impl ApiPlan {
    /// Reads the credentials that the server accepts.
    ///
    /// # Errors
    /// An error of the files, or [`ApiServerConfigError::NoIssuer`] if no caller could be authenticated.
    pub fn auth(&self) -> Result<ApiAuth, ApiServerConfigError> {
        if self.issuers.is_empty() && !self.listen.is_empty() {
            return Err(ApiServerConfigError::NoIssuer);
        }
        let mut keys = TokenVerifier::default();
        for issuer in &self.issuers {
            keys.add_issuer(&issuer.name, &issuer.audience, &read(&issuer.key)?)?;
        }
        if let Some(path) = &self.revoked {
            keys.revoke(&String::from_utf8_lossy(&read(path)?));
        }
        Ok(ApiAuth::new(keys))
    }

    /// Opens the listeners, within a Tokio runtime.
    ///
    /// # Errors
    /// An error of the files or of listening.
    pub async fn listen(&self) -> Result<Vec<ApiListener>, ApiServerConfigError> {
        let tls = match &self.identity {
            None => None,
            Some((chain, key)) => {
                let secret = read_secret(key).map_err(|error| ApiServerConfigError::File {
                    path: key.clone(),
                    message: text_without_errno(&error),
                })?;
                // A token identifies the caller, so that no client certificate is needed.
                let trust = TlsServerCredentials {
                    chain: read(chain)?,
                    key: secret,
                    tokens: true,
                    ..TlsServerCredentials::default()
                };
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
        if listeners.is_empty() { Err(ApiServerConfigError::Nowhere) } else { Ok(listeners) }
    }
}

fn read(path: &Path) -> Result<Vec<u8>, ApiServerConfigError> {
    fs::read(path).map_err(|error| ApiServerConfigError::File {
        path: path.to_path_buf(),
        message: text_without_errno(&error),
    })
}
