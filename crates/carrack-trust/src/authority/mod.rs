//! The small CA for sites without another CA: a directory with its key, the index of issued certificates and
//! the list of revoked ones.
//!
//! Every file is written atomically, and only the index and the list are ever replaced. The index is written
//! before the certificate, so that every issued certificate can be revoked.

mod ephemeral;
mod error;
mod files;
mod index;
mod new_certificate;
#[cfg(test)]
mod tests;

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

pub use ephemeral::EphemeralAuthority;
pub use error::AuthorityError;
use files::{DirectoryLock, PUBLIC, SECRET, make_directory, replace, write_new};
use index::{IssuedCertificateIndex, IssuedCertificateRecord};
pub use new_certificate::MAX_SUBJECT_BYTES;
use new_certificate::{
    CertificateWithKey, make_authority, make_certificate, make_revocation_list, revocations,
};
use rcgen::{Issuer, KeyPair, PublicKeyData};
use rustls::pki_types::CertificateDer;

use crate::certificate::{Certificate, is_signed_by};
use crate::pem;
use crate::public_key::KeySignatureAlgorithm;
use crate::token::TokenSigner;

/// The lifetime of an authority: ten years.
pub const AUTHORITY_LIFETIME: Duration = days(3652);

/// The default lifetime of a server's certificate: the longest that public CAs gave, 397 days.
pub const SERVER_LIFETIME: Duration = days(397);

/// The default lifetime of a client's certificate.
pub const CLIENT_LIFETIME: Duration = days(90);

const fn days(count: u64) -> Duration {
    Duration::from_secs(count * 24 * 3600)
}

const CERTIFICATE: &str = "ca.pem";
const KEY: &str = "ca-key.pem";
const LIST: &str = "revoked.pem";
const INDEX: &str = "issued.jsonl";
const TOKEN_KEY: &str = "token-key.pem";
const TOKEN_PUBLIC: &str = "token.pem";

/// The largest file of its own that an authority reads: an index of half a million certificates.
const MAX_FILE_BYTES: u64 = 64 << 20;

/// The intended use of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CertificateUse {
    /// A server with these host names and addresses.
    Server {
        /// At least one.
        names: Vec<String>,
    },
    /// A client with this identity.
    Client {
        /// The identity's name, at most [`MAX_SUBJECT_BYTES`] long.
        subject: String,
    },
}

/// An issued certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IssuedCertificate {
    /// The file with the certificate and the authority's.
    pub chain: PathBuf,
    /// The file with the private key.
    pub key: PathBuf,
    /// The certificate's content.
    pub certificate: Certificate,
}

/// A selection of certificates to revoke.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RevokedCertificateSelector {
    /// All certificates that were issued under this name.
    Name(String),
    /// The certificate with this serial number, in hexadecimal digits.
    Serial(String),
    /// This certificate, PEM.
    Certificate(Vec<u8>),
}

/// A revoked certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RevokedCertificate {
    /// The serial number.
    pub serial: String,
    /// The name that it was issued under.
    pub name: String,
    /// True if it had been revoked before.
    pub was_before: bool,
}

/// The status of a certificate at an authority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CertificateStatus {
    /// Another authority signed it.
    Foreign,
    /// The authority's own certificate.
    Own,
    /// Signed by the authority and not on the list.
    Good,
    /// Signed by the authority and on the list.
    Revoked {
        /// The time of revocation, seconds since 1970.
        since_s: i64,
    },
}

/// An authority's directory.
#[derive(Clone, Debug)]
pub struct CertificateAuthority {
    directory: PathBuf,
    der: CertificateDer<'static>,
    certificate: Certificate,
}

impl CertificateAuthority {
    /// Makes a new authority in `directory`, with a key for certificates and a key for tokens.
    ///
    /// # Errors
    /// If any of its files exists, or can't be written.
    pub fn init(
        directory: &Path,
        name: &str,
        kind: KeySignatureAlgorithm,
        now: SystemTime,
    ) -> Result<CertificateAuthority, AuthorityError> {
        let made = make_authority(name, kind, now)?;
        let list = make_revocation_list(&made.issuer()?, &[], now, made.not_after())?;
        let token = new_certificate::generate(kind)?;
        make_directory(directory)?;
        let _lock = DirectoryLock::take(directory)?;
        let files = [
            (KEY, made.key_pem().into_bytes(), SECRET),
            (TOKEN_KEY, token.serialize_pem().into_bytes(), SECRET),
            (TOKEN_PUBLIC, token.public_key_pem().into_bytes(), PUBLIC),
            (INDEX, IssuedCertificateIndex::default().to_text().into_bytes(), SECRET),
            (LIST, list.into_bytes(), PUBLIC),
            // Last: this file makes the directory an authority.
            (CERTIFICATE, made.certificate_pem().into_bytes(), PUBLIC),
        ];
        let taken = files.iter().map(|(file, ..)| directory.join(file)).find(|path| is_there(path));
        if let Some(path) = taken {
            return Err(AuthorityError::Exists(path));
        }
        for (file, content, mode) in files {
            write_new(&directory.join(file), &content, mode)?;
        }
        CertificateAuthority::open(directory)
    }

    /// Opens the authority in `directory`. Its keys are read on first use.
    ///
    /// # Errors
    /// If there is none, or it can't be read.
    pub fn open(directory: &Path) -> Result<CertificateAuthority, AuthorityError> {
        let path = directory.join(CERTIFICATE);
        let pem = match read(&path) {
            Err(AuthorityError::Io { error, .. }) if error.kind() == ErrorKind::NotFound => {
                return Err(AuthorityError::Missing(directory.into()));
            }
            other => other?,
        };
        let der =
            pem::certificates(&pem).map_err(|error| AuthorityError::damaged(&path, error))?.swap_remove(0);
        let certificate = Certificate::parse(&der).map_err(|error| AuthorityError::damaged(&path, error))?;
        Ok(CertificateAuthority { directory: directory.into(), der, certificate })
    }

    /// The authority's certificate.
    pub fn certificate(&self) -> &Certificate {
        &self.certificate
    }

    /// The authority's name, the issuer of its tokens.
    pub fn name(&self) -> &str {
        self.certificate.common_names.first().map_or("", String::as_str)
    }

    /// Makes a key and its certificate, `NAME.pem` and `NAME-key.pem` in `out`, valid for `lifetime` but not
    /// longer than the authority. The certificate's file also holds the authority's certificate.
    ///
    /// # Errors
    /// If one of the files exists, or the request is invalid.
    pub fn issue(
        &self,
        name: &str,
        purpose: &CertificateUse,
        lifetime: Duration,
        out: &Path,
        now: SystemTime,
    ) -> Result<IssuedCertificate, AuthorityError> {
        check_file_name(name)?;
        let _lock = DirectoryLock::take(&self.directory)?;
        let (chain, key) = (out.join(format!("{name}.pem")), out.join(format!("{name}-key.pem")));
        if let Some(path) = [&chain, &key].into_iter().find(|path| is_there(path)) {
            return Err(AuthorityError::Exists(path.clone()));
        }
        let until = self.until(lifetime, now)?;
        let made = make_certificate(&self.issuer()?, name, purpose, now, until)?;
        let certificate = made.certificate()?;
        self.record(name, purpose, &certificate)?;
        write_new(&key, made.key_pem().as_bytes(), SECRET)?;
        let content = [made.certificate_pem().into_bytes(), self.own_pem()?].concat();
        write_new(&chain, &content, PUBLIC)?;
        Ok(IssuedCertificate { chain, key, certificate })
    }

    /// Revokes certificates and writes the list again.
    ///
    /// # Errors
    /// If no such certificate was issued here, or a file can't be written.
    pub fn revoke(
        &self,
        which: &RevokedCertificateSelector,
        now: SystemTime,
    ) -> Result<Vec<RevokedCertificate>, AuthorityError> {
        let _lock = DirectoryLock::take(&self.directory)?;
        let issuer = self.issuer()?;
        let mut index = self.index()?;
        let revoked = mark(&mut index, &self.selected(which)?, seconds(now));
        if revoked.is_empty() {
            return Err(AuthorityError::Unknown(self.selected(which)?.1));
        }
        replace(&self.directory.join(INDEX), index.to_text().as_bytes(), SECRET)?;
        let list = make_revocation_list(&issuer, &index.entries, now, self.certificate.not_after_s)?;
        replace(&self.directory.join(LIST), list.as_bytes(), PUBLIC)?;
        Ok(revoked)
    }

    /// Returns true if a certificate with this serial number was issued here.
    ///
    /// # Errors
    /// If the index can't be read.
    pub fn has_issued(&self, serial: &str) -> Result<bool, AuthorityError> {
        Ok(self.index()?.entries.iter().any(|entry| entry.serial.eq_ignore_ascii_case(serial)))
    }

    /// The status of a certificate by its signature and the list, as verifiers see it.
    ///
    /// # Errors
    /// If the list can't be read.
    pub fn standing(&self, der: &CertificateDer<'_>) -> Result<CertificateStatus, AuthorityError> {
        if der.as_ref() == self.der.as_ref() {
            return Ok(CertificateStatus::Own);
        }
        if !is_signed_by(der, &self.der) {
            return Ok(CertificateStatus::Foreign);
        }
        let serial = Certificate::parse(der)?.serial;
        let path = self.directory.join(LIST);
        let revoked =
            revocations(&read(&path)?, &self.der).map_err(|why| AuthorityError::damaged(&path, why))?;
        let found = revoked.into_iter().find(|(number, _)| *number == serial);
        Ok(found.map_or(CertificateStatus::Good, |(_, since_s)| CertificateStatus::Revoked { since_s }))
    }

    /// The signer of the authority's tokens: its name and its key for tokens.
    ///
    /// # Errors
    /// If that key can't be read.
    pub fn token_signer(&self) -> Result<TokenSigner, AuthorityError> {
        Ok(TokenSigner::new(self.name(), &self.text(TOKEN_KEY)?)?)
    }

    fn issuer(&self) -> Result<Issuer<'static, KeyPair>, AuthorityError> {
        let key = KeyPair::from_pem(&self.text(KEY)?)
            .map_err(|error| AuthorityError::damaged(self.directory.join(KEY), error))?;
        if key.subject_public_key_info() != self.certificate.public_key {
            return Err(AuthorityError::NoPair);
        }
        Ok(Issuer::from_ca_cert_der(&self.der, key)?)
    }

    fn until(&self, lifetime: Duration, now: SystemTime) -> Result<i64, AuthorityError> {
        let lifetime_s = i64::try_from(lifetime.as_secs()).unwrap_or(i64::MAX);
        if lifetime_s == 0 {
            return Err(AuthorityError::Lifetime);
        }
        if seconds(now) >= self.certificate.not_after_s {
            return Err(AuthorityError::Over);
        }
        Ok(seconds(now).saturating_add(lifetime_s).min(self.certificate.not_after_s))
    }

    fn record(&self, name: &str, purpose: &CertificateUse, made: &Certificate) -> Result<(), AuthorityError> {
        let mut index = self.index()?;
        let word = if matches!(purpose, CertificateUse::Server { .. }) { "server" } else { "client" };
        index.entries.push(IssuedCertificateRecord {
            serial: made.serial.clone(),
            name: name.to_owned(),
            r#use: word.to_owned(),
            until_s: made.not_after_s,
            revoked_s: None,
        });
        replace(&self.directory.join(INDEX), index.to_text().as_bytes(), SECRET)
    }

    fn index(&self) -> Result<IssuedCertificateIndex, AuthorityError> {
        IssuedCertificateIndex::parse(&self.text(INDEX)?)
            .map_err(|why| AuthorityError::damaged(self.directory.join(INDEX), why))
    }

    /// The criterion for entries: (true, name) or (false, serial number).
    fn selected(&self, which: &RevokedCertificateSelector) -> Result<(bool, String), AuthorityError> {
        Ok(match which {
            RevokedCertificateSelector::Name(name) => (true, name.clone()),
            RevokedCertificateSelector::Serial(serial) => (false, serial.to_ascii_lowercase()),
            RevokedCertificateSelector::Certificate(pem) => {
                let first = pem::certificates(pem)?.swap_remove(0);
                let certificate = Certificate::parse(&first)?;
                if !is_signed_by(&first, &self.der) {
                    return Err(AuthorityError::Unknown(certificate.subject));
                }
                (false, certificate.serial)
            }
        })
    }

    fn own_pem(&self) -> Result<Vec<u8>, AuthorityError> {
        read(&self.directory.join(CERTIFICATE))
    }

    fn text(&self, file: &str) -> Result<String, AuthorityError> {
        let path = self.directory.join(file);
        String::from_utf8(read(&path)?).map_err(|error| AuthorityError::damaged(&path, error))
    }
}

impl CertificateWithKey {
    fn issuer(&self) -> Result<Issuer<'_, &KeyPair>, AuthorityError> {
        Ok(Issuer::from_ca_cert_der(self.der(), self.key())?)
    }
}

/// Marks the selected entries as revoked, once.
fn mark(
    index: &mut IssuedCertificateIndex,
    (by_name, word): &(bool, String),
    now_s: i64,
) -> Vec<RevokedCertificate> {
    let selected = index
        .entries
        .iter_mut()
        .filter(|entry| *word == if *by_name { &entry.name } else { &entry.serial }[..]);
    let marked = selected.map(|entry| {
        let was_before = entry.revoked_s.is_some();
        entry.revoked_s.get_or_insert(now_s);
        RevokedCertificate { serial: entry.serial.clone(), name: entry.name.clone(), was_before }
    });
    marked.collect()
}

/// Accepts names of files that can't be confused with the authority's own files.
fn check_file_name(name: &str) -> Result<(), AuthorityError> {
    let is_own = ["ca", "revoked", "token"].contains(&name) || name.ends_with("-key");
    let is_good = !name.is_empty()
        && name.len() <= 200
        && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | '@'))
        && !name.starts_with(['.', '-'])
        && !name.ends_with(".pem")
        && !is_own;
    if is_good { Ok(()) } else { Err(AuthorityError::FileName(name.to_owned())) }
}

/// Returns true for a dangling link too.
fn is_there(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok()
}

fn seconds(time: SystemTime) -> i64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    i64::try_from(since).unwrap_or(i64::MAX)
}

fn read(path: &Path) -> Result<Vec<u8>, AuthorityError> {
    let bytes = fs::metadata(path).map_err(AuthorityError::io(path))?.len();
    if bytes > MAX_FILE_BYTES {
        return Err(AuthorityError::damaged(path, "it is too large"));
    }
    fs::read(path).map_err(AuthorityError::io(path))
}
