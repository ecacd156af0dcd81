//! The files that a configuration names: read at the start and on SIGHUP, by the parent. The processes that
//! face clients get their contents, and need no right to open them.

use std::fmt;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use carrack_trust::{
    AuthorizedKeys, CredentialPathsError, TlsConfigError, TlsServerCredentials, TokenKeysError,
    TokenVerifier, read_secret,
};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::config::DaemonConfig;

/// The longest file, in bytes: twice the size of a list of a million revoked certificates.
const MAX_FILE_BYTES: u64 = 64 << 20;

/// The contents of the files. Bytes that are no UTF-8 are invalid in PEM and in ssh's format too, and become
/// replacement characters.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CredentialMaterial {
    certificate: String,
    key: String,
    client_cas: String,
    crls: String,
    public_keys: String,
    /// In the configuration's order.
    issuer_keys: Vec<String>,
    revoked_tokens: String,
}

impl fmt::Debug for CredentialMaterial {
    /// Leaves the key out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Material(…)")
    }
}

/// An error of these files.
#[derive(Debug, Error)]
pub enum MaterialError {
    /// Missing files.
    #[error("{}", missing(.0))]
    Missing(Vec<MissingCredentialFile>),
    /// An unreadable file.
    #[error("{what}, {path:?}: {error}")]
    Unreadable {
        /// The file's purpose.
        what: &'static str,
        /// Its path.
        path: PathBuf,
        /// The system's error.
        error: std::io::Error,
    },
    /// The key is unreadable, or readable for too many users.
    #[error("the daemon's key: {0}")]
    Key(#[from] CredentialPathsError),
    /// The files make no valid TLS configuration.
    #[error(transparent)]
    Tls(#[from] TlsConfigError),
    /// An issuer's keys are invalid.
    #[error(transparent)]
    Tokens(#[from] TokenKeysError),
}

/// A missing file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingCredentialFile {
    what: &'static str,
    path: PathBuf,
    command: &'static str,
}

fn missing(absent: &[MissingCredentialFile]) -> String {
    let each = absent.iter().map(|file| format!("{} ({})", file.what, file.path.display()));
    format!("not there yet: {}", each.collect::<Vec<_>>().join(", "))
}

const OF_SERVER: &str = "carrack keys issue NAME --server HOST";
const OF_AUTHORITY: &str = "carrack keys init";

impl MaterialError {
    /// Returns a hint for the administrator.
    pub fn hint(&self) -> String {
        match self {
            MaterialError::Missing(absent) => {
                let commands: Vec<_> =
                    absent.iter().map(|file| file.command).filter(|c| !c.is_empty()).collect();
                let mut steps: Vec<String> = [OF_AUTHORITY, OF_SERVER]
                    .into_iter()
                    .filter(|step| commands.contains(step))
                    .map(|step| format!("`{step}`"))
                    .collect();
                if steps.is_empty() {
                    return "make the files, or take their keys out of the configuration".to_owned();
                }
                steps.push("move what they make to these paths".to_owned());
                format!("a site without a CA makes one: {}", steps.join(", then "))
            }
            MaterialError::Key(CredentialPathsError::Exposed(path)) => {
                format!("`chmod 600 {}`", path.display())
            }
            MaterialError::Tls(error) => error.hint().unwrap_or("check the file").to_owned(),
            MaterialError::Tokens(_) => "name files with Ed25519 or P-256 public keys, PEM".to_owned(),
            MaterialError::Unreadable { .. } | MaterialError::Key(_) => {
                "let the user that the daemon runs as read it".to_owned()
            }
        }
    }
}

impl CredentialMaterial {
    /// Reads all files that `config` names. Missing files are reported together.
    ///
    /// # Errors
    /// All missing files, or the first unreadable one.
    pub fn read(config: &DaemonConfig) -> Result<CredentialMaterial, MaterialError> {
        let tls = &config.tls;
        let mut reader = MaterialReader::default();
        let certificate = reader.read_text_file("the daemon's certificate", &tls.certificate, OF_SERVER)?;
        let key = reader.read_secret_file("its key", &tls.key, OF_SERVER)?;
        let client_cas = reader.read_all("the clients' CA", &tls.client_ca, OF_AUTHORITY)?;
        let crls = reader.read_all("the list of revoked certificates", &tls.revoked, OF_AUTHORITY)?;
        let public_keys = reader.read_optional("the public keys", tls.public_keys.as_deref())?;
        let issuers = config.tokens.issuers.iter();
        let issuer_keys = issuers
            .map(|issuer| reader.read_text_file("an issuer's key", &issuer.key, OF_AUTHORITY))
            .collect::<Result<_, _>>()?;
        let revoked_tokens =
            reader.read_optional("the list of revoked tokens", config.tokens.revoked.as_deref())?;
        if !reader.absent.is_empty() {
            return Err(MaterialError::Missing(reader.absent));
        }
        Ok(CredentialMaterial {
            certificate,
            key,
            client_cas,
            crls,
            public_keys,
            issuer_keys,
            revoked_tokens,
        })
    }

    /// Returns the daemon's credentials and trust. `notices` gets the lines of the public keys that can admit
    /// no client.
    pub fn trust(&self, notices: &mut Vec<String>) -> TlsServerCredentials {
        let (public_keys, problems) = AuthorizedKeys::parse(self.public_keys.as_bytes());
        notices.extend(problems.iter().map(|problem| {
            let hint = problem.hint().map(|hint| format!(" ({hint})")).unwrap_or_default();
            format!("the public keys, {problem}{hint}")
        }));
        TlsServerCredentials {
            chain: self.certificate.clone().into_bytes(),
            key: self.key.clone().into_bytes(),
            client_cas: self.client_cas.clone().into_bytes(),
            crls: self.crls.clone().into_bytes(),
            public_keys: Arc::new(public_keys),
            tokens: !self.issuer_keys.is_empty(),
        }
    }

    /// Returns the keys of the accepted issuers.
    ///
    /// # Errors
    /// The first issuer with invalid keys.
    pub fn token_keys(&self, config: &DaemonConfig) -> Result<TokenVerifier, TokenKeysError> {
        let mut keys = TokenVerifier::default();
        for (issuer, pem) in config.tokens.issuers.iter().zip(&self.issuer_keys) {
            keys.add_issuer(&issuer.name, &issuer.audience, pem.as_bytes())?;
        }
        if let Some(seconds) = config.tokens.max_lifetime_seconds {
            keys.limit_lifetime(Duration::from_secs(seconds));
        }
        keys.revoke(&self.revoked_tokens);
        Ok(keys)
    }

    /// Parses the files as every session will; returns notices for the administrator.
    ///
    /// # Errors
    /// The error with which every session would fail.
    pub fn check(&self, config: &DaemonConfig) -> Result<Vec<String>, MaterialError> {
        let mut notices = Vec::new();
        carrack_trust::server_config(&self.trust(&mut notices))?;
        self.token_keys(config)?;
        Ok(notices)
    }
}

#[derive(Default)]
struct MaterialReader {
    absent: Vec<MissingCredentialFile>,
}

impl MaterialReader {
    fn read_text_file(
        &mut self,
        what: &'static str,
        path: &Path,
        command: &'static str,
    ) -> Result<String, MaterialError> {
        match read_text(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(self.record_missing(what, path, command)),
            Err(error) => Err(MaterialError::Unreadable { what, path: path.to_path_buf(), error }),
            Ok(text) => Ok(text),
        }
    }

    fn read_secret_file(
        &mut self,
        what: &'static str,
        path: &Path,
        command: &'static str,
    ) -> Result<String, MaterialError> {
        match read_secret(path) {
            Err(CredentialPathsError::Io { error, .. }) if error.kind() == ErrorKind::NotFound => {
                Ok(self.record_missing(what, path, command))
            }
            Err(error) => Err(error.into()),
            Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        }
    }

    fn read_all(
        &mut self,
        what: &'static str,
        paths: &[PathBuf],
        command: &'static str,
    ) -> Result<String, MaterialError> {
        let texts: Result<Vec<_>, _> =
            paths.iter().map(|path| self.read_text_file(what, path, command)).collect();
        Ok(texts?.join("\n"))
    }

    fn read_optional(&mut self, what: &'static str, path: Option<&Path>) -> Result<String, MaterialError> {
        path.map_or(Ok(String::new()), |path| self.read_text_file(what, path, ""))
    }

    fn record_missing(&mut self, what: &'static str, path: &Path, command: &'static str) -> String {
        self.absent.push(MissingCredentialFile { what, path: path.to_path_buf(), command });
        String::new()
    }
}

fn read_text(path: &Path) -> std::io::Result<String> {
    let mut bytes = Vec::new();
    File::open(path)?.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(std::io::Error::other(format!("it is longer than {MAX_FILE_BYTES} bytes")));
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
