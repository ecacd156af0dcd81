//! The options of every command that connects to a daemon: trusted authorities, and the user's credentials.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use carrack_trust::{ClientTrust, CredentialPaths, CredentialPathsError, MAX_TOKEN_BYTES, read_secret};
use clap::{Args, ValueHint};

use crate::lifetime;
use crate::user_error::{UserError, warn};

const DAEMON: &str = "Daemon (carrack://)";

/// The variable with the token, used if no option names one.
const TOKEN_VARIABLE: &str = "CARRACK_TOKEN";

// No documentation comment: clap would take it for the command's.
#[derive(Clone, Debug, Args)]
pub struct DaemonConnectionArgs {
    /// Certificates of the authorities that daemons are trusted by [default: ~/.config/carrack/ca.pem, else
    /// /etc/carrack/ca.pem, else the system's]
    ///
    /// `CARRACK_CA` may name them too. A `revoked.pem` in the same directory counts.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = DAEMON)]
    ca: Option<PathBuf>,

    /// Your identity: NAME.pem with NAME-key.pem in the same directory, both in one file, or an OpenSSH
    /// private key [default: ~/.config/carrack/identity.pem]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = DAEMON)]
    identity: Option<PathBuf>,

    /// File with a bearer token, which grants rights at a daemon; without it `CARRACK_TOKEN` may hold one
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = DAEMON)]
    token_file: Option<PathBuf>,

    /// The token itself, visible to everybody on this host: a file is better
    #[arg(long, value_name = "TOKEN", conflicts_with = "token_file", help_heading = DAEMON)]
    token: Option<String>,

    /// Longest time to wait for each of the daemon's addresses, and for the handshake
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = lifetime::parse, help_heading = DAEMON)]
    pub connect_timeout: Duration,
}

impl DaemonConnectionArgs {
    /// Returns the trusted authorities and the user's identity.
    pub fn trust(&self) -> Result<ClientTrust, UserError> {
        let places = CredentialPaths::of_process();
        let ca = self.ca.clone().or(places.ca);
        let places = CredentialPaths { ca, identity: self.identity.clone(), ..places };
        places.client_trust().map_err(|error| credentials_user_error(&error))
    }

    /// Returns true if the token itself is among the arguments.
    pub fn has_token_argument(&self) -> bool {
        self.token.is_some()
    }

    /// Returns the user's token; empty if there is none, and then only the identity grants rights. Warns of a
    /// token among the arguments.
    pub fn token(&self) -> Result<String, UserError> {
        match (&self.token_file, &self.token) {
            (None, Some(token)) => {
                warn("everybody on this host can see --token while this runs; --token-file FILE is better");
                check_token(token, "--token")
            }
            (file, _) => load_token(file.as_deref()),
        }
    }
}

/// Returns the token of a file, or of `CARRACK_TOKEN`; empty if there is none.
pub fn load_token(file: Option<&Path>) -> Result<String, UserError> {
    if let Some(path) = file {
        return check_token(&read_token(path)?, &format!("--token-file {}", path.display()));
    }
    match std::env::var(TOKEN_VARIABLE) {
        Ok(token) if !token.is_empty() => check_token(&token, TOKEN_VARIABLE),
        _ => Ok(String::new()),
    }
}

/// Reads a token. A regular file must be private; the pipe of a shell's `<(command)` always is.
fn read_token(path: &Path) -> Result<String, UserError> {
    let content = if path.metadata().is_ok_and(|metadata| !metadata.is_file()) {
        read_pipe(path).map_err(|error| CredentialPathsError::Io { path: path.into(), error })
    } else {
        read_secret(path)
    };
    let content = content.map_err(|error| credentials_user_error(&error))?;
    Ok(String::from_utf8_lossy(&content).into_owned())
}

fn read_pipe(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut content = Vec::new();
    File::open(path)?.take(2 * MAX_TOKEN_BYTES as u64).read_to_end(&mut content)?;
    Ok(content)
}

/// Accepts only text that can be a token, so that the contents of a wrong file are never sent.
fn check_token(text: &str, from: &str) -> Result<String, UserError> {
    let token = text.trim();
    let is_token = token.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.+/=".contains(&byte));
    if token.is_empty() || token.len() > MAX_TOKEN_BYTES || !is_token {
        return Err(UserError::new(format!("{from}: this is no bearer token"))
            .hint("`carrack keys token` prints one, as do the issuers of a grid"));
    }
    Ok(token.to_owned())
}

fn credentials_user_error(error: &CredentialPathsError) -> UserError {
    UserError::explained(error, error.hint())
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn parse(words: &[&str]) -> Result<DaemonConnectionArgs, clap::Error> {
        crate::options::tests::parse(words)
    }

    fn token(path: &Path, content: &str, mode: u32) -> Result<String, UserError> {
        fs::write(path, content).unwrap();
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        parse(&["--token-file", path.to_str().unwrap()]).unwrap().token()
    }

    #[test]
    fn a_token_comes_from_a_private_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        assert_eq!(token(&path, "aa.bb-_.cc\n", 0o600).unwrap(), "aa.bb-_.cc");
        assert!(token(&path, "aa.bb.cc", 0o644).unwrap_err().hint.unwrap().contains("chmod"));
        for nonsense in ["", "\n", "two words", "tok\u{e9}n", "a\0b", &"x".repeat(MAX_TOKEN_BYTES + 1)] {
            let trouble = token(&path, nonsense, 0o600).unwrap_err();
            assert!(trouble.message.contains("no bearer token"), "{trouble}");
        }
        assert!(parse(&["--token-file", "/nonexistent"]).unwrap().token().is_err());
    }

    #[test]
    fn a_token_is_named_once() {
        assert_eq!(parse(&["--token", "aa.bb.cc"]).unwrap().token().unwrap(), "aa.bb.cc");
        assert!(parse(&["--token", "a", "--token-file", "b"]).is_err());
    }

    #[test]
    fn patience_has_a_unit() {
        assert_eq!(parse(&[]).unwrap().connect_timeout, Duration::from_secs(10));
        assert_eq!(parse(&["--connect-timeout", "2m"]).unwrap().connect_timeout, Duration::from_secs(120));
        assert!(parse(&["--connect-timeout", "0s"]).is_err());
    }
}
