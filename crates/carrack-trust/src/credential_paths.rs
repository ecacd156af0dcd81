//! The default files of a client's credentials. Only this part of a client's side reads files.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::tls::{ClientCredential, ClientTrust};

/// The largest file that is read: all roots of a system take half a MiB.
const MAX_FILE_BYTES: u64 = 16 << 20;

/// The places of a client's credentials.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CredentialPaths {
    /// The file of CAs that the user names (`CARRACK_CA`). It must exist.
    pub ca: Option<PathBuf>,
    /// The file of the user's identity, if named: a certificate and its key in one file, a certificate
    /// `NAME.pem` with its key in `NAME-key.pem`, or an OpenSSH private key. It must exist.
    pub identity: Option<PathBuf>,
    /// The user's directory, `~/.config/carrack`: `ca.pem`, `revoked.pem`, `identity.pem`,
    /// `identity-key.pem`.
    pub user: Option<PathBuf>,
    /// The host's directory: `ca.pem`, `revoked.pem`.
    pub host: PathBuf,
}

/// The reason why the credentials can't be read.
#[derive(Debug, Error)]
pub enum CredentialPathsError {
    /// A file can't be read.
    #[error("{}: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// A file is larger than the limit.
    #[error("{} is too large", .0.display())]
    TooLarge(PathBuf),
    /// A private key that others can read.
    #[error("{} can be read by others", .0.display())]
    Exposed(PathBuf),
    /// One file of a pair is missing.
    #[error("{} is there, but not {}", there.display(), missing.display())]
    Half {
        /// The existing file.
        there: PathBuf,
        /// The missing file.
        missing: PathBuf,
    },
}

impl CredentialPathsError {
    /// Advice for the user.
    pub fn hint(&self) -> Option<String> {
        match self {
            CredentialPathsError::Exposed(path) => Some(format!("chmod 600 {}", path.display())),
            CredentialPathsError::Half { .. } => Some("put both there, or none".to_owned()),
            _ => None,
        }
    }
}

/// Returns false if HOME is another user's directory, as `su` leaves it: it has no file of this user.
fn may_enter(directory: &Path) -> bool {
    !directory.metadata().is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
}

fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

impl CredentialPaths {
    /// The places of this process, from its environment (`CARRACK_CA`, `HOME`).
    pub fn of_process() -> CredentialPaths {
        CredentialPaths {
            ca: variable("CARRACK_CA").map(PathBuf::from),
            identity: None,
            user: variable("HOME")
                .map(|home| PathBuf::from(home).join(".config/carrack"))
                .filter(|directory| may_enter(directory)),
            host: "/etc/carrack".into(),
        }
    }

    /// Reads the first CAs of the three places, or `None` for the system's, and the user's identity.
    ///
    /// # Errors
    /// If a file exists and can't be used.
    pub fn client_trust(&self) -> Result<ClientTrust, CredentialPathsError> {
        let (cas, crls) = self.authorities()?;
        let identity = match &self.identity {
            Some(path) => Some(named_identity(path)?),
            None => self.identity()?,
        };
        Ok(ClientTrust { cas, crls, identity })
    }

    /// The list of revoked certificates is in the directory of the CAs.
    fn authorities(&self) -> Result<(Option<Vec<u8>>, Vec<u8>), CredentialPathsError> {
        if let Some(path) = &self.ca {
            return Ok((Some(read(path)?), read_revocation_list(path)?));
        }
        for directory in self.user.iter().chain([&self.host]) {
            let path = directory.join("ca.pem");
            if let Some(cas) = read_if_exists(&path)? {
                return Ok((Some(cas), read_revocation_list(&path)?));
            }
        }
        Ok((None, Vec::new()))
    }

    fn identity(&self) -> Result<Option<ClientCredential>, CredentialPathsError> {
        let Some(directory) = &self.user else { return Ok(None) };
        let (chain_path, key_path) = (directory.join("identity.pem"), directory.join("identity-key.pem"));
        match (read_if_exists(&chain_path)?, read_secret_if_exists(&key_path)?) {
            (Some(chain), Some(key)) => Ok(Some(ClientCredential::Certificate { chain, key })),
            (None, None) => Ok(None),
            (Some(_), None) => Err(CredentialPathsError::Half { there: chain_path, missing: key_path }),
            (None, Some(_)) => Err(CredentialPathsError::Half { there: key_path, missing: chain_path }),
        }
    }
}

/// Reads an identity by the content of its file. A file with a key must be private.
fn named_identity(path: &Path) -> Result<ClientCredential, CredentialPathsError> {
    const SSH_KEY: &[u8] = b"-----BEGIN OPENSSH PRIVATE KEY-----";
    const KEY: &[u8] = b"PRIVATE KEY-----";
    let content = read(path)?;
    if contains(&content, SSH_KEY) {
        return Ok(ClientCredential::SshKey(read_secret(path)?));
    }
    if contains(&content, KEY) {
        let both = read_secret(path)?;
        return Ok(ClientCredential::Certificate { chain: both.clone(), key: both });
    }
    let key_path = key_beside(path);
    match read_secret_if_exists(&key_path)? {
        Some(key) => Ok(ClientCredential::Certificate { chain: content, key }),
        None => Err(CredentialPathsError::Half { there: path.into(), missing: key_path }),
    }
}

fn contains(content: &[u8], words: &[u8]) -> bool {
    content.windows(words.len()).any(|window| window == words)
}

/// `NAME-key.pem` of `NAME.pem`, as `carrack keys issue` names them.
fn key_beside(path: &Path) -> PathBuf {
    let mut name = path.file_stem().unwrap_or_default().to_owned();
    name.push("-key.pem");
    path.with_file_name(name)
}

/// Reads a private key's file, which only its owner (and root) may read.
///
/// # Errors
/// If others may read it, or it can't be read.
pub fn read_secret(path: &Path) -> Result<Vec<u8>, CredentialPathsError> {
    let file = File::open(path).map_err(|error| io_error(path, error))?;
    // The mode of the open file: the path may lead to another file by the time of the read.
    let mode = file.metadata().map_err(|error| io_error(path, error))?.mode();
    if mode & 0o077 != 0 {
        return Err(CredentialPathsError::Exposed(path.into()));
    }
    read_all(&file, path)
}

fn read_revocation_list(cas: &Path) -> Result<Vec<u8>, CredentialPathsError> {
    Ok(read_if_exists(&cas.with_file_name("revoked.pem"))?.unwrap_or_default())
}

fn read_secret_if_exists(path: &Path) -> Result<Option<Vec<u8>>, CredentialPathsError> {
    none_if_not_found(read_secret(path))
}

fn read_if_exists(path: &Path) -> Result<Option<Vec<u8>>, CredentialPathsError> {
    none_if_not_found(read(path))
}

fn none_if_not_found(
    result: Result<Vec<u8>, CredentialPathsError>,
) -> Result<Option<Vec<u8>>, CredentialPathsError> {
    match result {
        Err(CredentialPathsError::Io { error, .. }) if error.kind() == ErrorKind::NotFound => Ok(None),
        other => other.map(Some),
    }
}

fn read(path: &Path) -> Result<Vec<u8>, CredentialPathsError> {
    read_all(&File::open(path).map_err(|error| io_error(path, error))?, path)
}

fn read_all(file: &File, path: &Path) -> Result<Vec<u8>, CredentialPathsError> {
    let mut content = Vec::new();
    let read = file.take(MAX_FILE_BYTES + 1).read_to_end(&mut content);
    match read.map_err(|error| io_error(path, error))? as u64 {
        bytes if bytes > MAX_FILE_BYTES => Err(CredentialPathsError::TooLarge(path.into())),
        _ => Ok(content),
    }
}

fn io_error(path: &Path, error: io::Error) -> CredentialPathsError {
    CredentialPathsError::Io { path: path.into(), error }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    struct CredentialPathsFixture {
        root: tempfile::TempDir,
        places: CredentialPaths,
    }

    impl CredentialPathsFixture {
        fn new() -> CredentialPathsFixture {
            let root = tempfile::tempdir().unwrap();
            let places = CredentialPaths {
                user: Some(root.path().join("user")),
                host: root.path().join("host"),
                ..CredentialPaths::default()
            };
            fs::create_dir(root.path().join("user")).unwrap();
            fs::create_dir(root.path().join("host")).unwrap();
            CredentialPathsFixture { root, places }
        }

        fn put(&self, path: &str, content: &str, mode: u32) -> PathBuf {
            let path = self.root.path().join(path);
            fs::write(&path, content).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            path
        }
    }

    #[test]
    fn the_users_word_counts_before_the_users_file_before_the_hosts() {
        fn cas(world: &CredentialPathsFixture) -> Option<Vec<u8>> {
            world.places.client_trust().unwrap().cas
        }
        let mut world = CredentialPathsFixture::new();
        assert_eq!(cas(&world), None);
        world.put("host/ca.pem", "host", 0o644);
        assert_eq!(cas(&world), Some(b"host".to_vec()));
        world.put("user/ca.pem", "user", 0o644);
        assert_eq!(cas(&world), Some(b"user".to_vec()));
        world.places.ca = Some(world.put("named", "named", 0o644));
        assert_eq!(cas(&world), Some(b"named".to_vec()));
        world.places.ca = Some(world.root.path().join("nothing"));
        assert!(matches!(world.places.client_trust(), Err(CredentialPathsError::Io { .. })));
    }

    #[test]
    fn the_list_is_the_one_beside_the_cas() {
        let world = CredentialPathsFixture::new();
        world.put("host/revoked.pem", "host's", 0o644);
        world.put("user/ca.pem", "user", 0o644);
        assert_eq!(world.places.client_trust().unwrap().crls, b"");
        world.put("user/revoked.pem", "user's", 0o644);
        assert_eq!(world.places.client_trust().unwrap().crls, b"user's");
    }

    #[test]
    fn an_identity_is_a_pair_of_files() {
        let world = CredentialPathsFixture::new();
        assert!(world.places.client_trust().unwrap().identity.is_none());
        world.put("user/identity.pem", "chain", 0o644);
        assert!(matches!(world.places.client_trust(), Err(CredentialPathsError::Half { .. })));
        world.put("user/identity-key.pem", "key", 0o600);
        let identity = world.places.client_trust().unwrap().identity;
        assert!(matches!(identity, Some(ClientCredential::Certificate { chain, key })
            if chain == b"chain" && key == b"key"));
    }

    #[test]
    fn a_named_identity_is_what_is_in_the_file() {
        let mut world = CredentialPathsFixture::new();
        world.put("user/identity.pem", "the user's own is not asked for", 0o644);
        fn name(
            world: &mut CredentialPathsFixture,
            content: &str,
            mode: u32,
        ) -> Result<ClientCredential, CredentialPathsError> {
            world.places.identity = Some(world.put("alice.pem", content, mode));
            world.places.client_trust().map(|trust| trust.identity.unwrap())
        }
        let both = "-----BEGIN CERTIFICATE-----\n-----BEGIN PRIVATE KEY-----\n";
        assert!(matches!(name(&mut world, both, 0o600), Ok(ClientCredential::Certificate { chain, key })
            if chain == key && chain == both.as_bytes()));
        assert!(matches!(name(&mut world, both, 0o644), Err(CredentialPathsError::Exposed(_))));
        let ssh = "-----BEGIN OPENSSH PRIVATE KEY-----\n";
        let identity = name(&mut world, ssh, 0o600);
        assert!(matches!(identity, Ok(ClientCredential::SshKey(key)) if key == ssh.as_bytes()));
        assert!(matches!(name(&mut world, ssh, 0o640), Err(CredentialPathsError::Exposed(_))));
        let chain = "-----BEGIN CERTIFICATE-----\n";
        assert!(matches!(name(&mut world, chain, 0o644), Err(CredentialPathsError::Half { missing, .. })
            if missing.ends_with("alice-key.pem")));
        world.put("alice-key.pem", "key", 0o600);
        let identity = world.places.client_trust().unwrap().identity;
        assert!(matches!(identity, Some(ClientCredential::Certificate { key, .. }) if key == b"key"));
        world.places.identity = Some("/nonexistent".into());
        assert!(matches!(world.places.client_trust(), Err(CredentialPathsError::Io { .. })));
    }

    #[test]
    fn a_key_that_others_can_read_is_refused() {
        let world = CredentialPathsFixture::new();
        world.put("user/identity.pem", "chain", 0o644);
        for mode in [0o640, 0o604, 0o620] {
            let path = world.put("user/identity-key.pem", "key", mode);
            let error = world.places.client_trust().unwrap_err();
            assert!(matches!(&error, CredentialPathsError::Exposed(exposed) if *exposed == path), "{error}");
            assert!(error.hint().unwrap().starts_with("chmod 600 "));
        }
    }
}
