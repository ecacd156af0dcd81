//! The small CA for sites that have none: a directory with its key, what it has issued, what it has revoked.
//!
//! Everything it writes is there whole or not at all, and nothing but the index and the list is ever replaced. The
//! index is written before what it speaks of, so that whatever was issued can be revoked.

mod error;
mod files;
mod index;
mod making;
mod passing;
#[cfg(test)]
mod tests;

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

pub use error::AuthorityError;
use files::{Lock, PUBLIC, SECRET, make_directory, replace, write_new};
use index::{Entry, Index};
pub use making::MAX_SUBJECT_BYTES;
use making::{Made, make_authority, make_certificate, make_list, revocations};
pub use passing::PassingAuthority;
use rcgen::{Issuer, KeyPair, PublicKeyData};
use rustls::pki_types::CertificateDer;

use crate::certificate::{Certificate, is_signed_by};
use crate::pem;
use crate::public_key::KeyKind;
use crate::token::TokenSigner;

/// How long an authority lives: ten years.
pub const AUTHORITY_LIFETIME: Duration = days(3652);

/// How long a server's certificate lives if nobody says: as long as public CAs gave at most, 397 days.
pub const SERVER_LIFETIME: Duration = days(397);

/// How long a client's certificate lives if nobody says.
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

/// What a certificate is to be for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Use {
    /// A server that is called by these host names and addresses.
    Server {
        /// At least one.
        names: Vec<String>,
    },
    /// A client that is this identity.
    Client {
        /// Its name, at most [`MAX_SUBJECT_BYTES`] long.
        subject: String,
    },
}

/// What was issued.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issued {
    /// The file with the certificate and the authority's.
    pub chain: PathBuf,
    /// The file with its private key.
    pub key: PathBuf,
    /// What the certificate says.
    pub certificate: Certificate,
}

/// What is to be revoked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Which {
    /// All that was issued by this name.
    Name(String),
    /// The one with this number, in hexadecimal digits.
    Serial(String),
    /// This one, PEM.
    Certificate(Vec<u8>),
}

/// What was revoked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Revoked {
    /// Its number.
    pub serial: String,
    /// The name that it was issued by.
    pub name: String,
    /// Whether it had been revoked before.
    pub was_before: bool,
}

/// What an authority knows of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It is of somebody else.
    Foreign,
    /// It is the authority's own.
    Own,
    /// It is not on the list.
    Good,
    /// It is on the list.
    Revoked {
        /// Since when, seconds since 1970.
        since_s: i64,
    },
}

/// An authority's directory.
#[derive(Clone, Debug)]
pub struct Authority {
    directory: PathBuf,
    der: CertificateDer<'static>,
    certificate: Certificate,
}

impl Authority {
    /// Makes a new one in `directory`, with a key for certificates and one for tokens.
    ///
    /// # Errors
    /// If any of its files is there already, or can't be written.
    pub fn init(
        directory: &Path,
        name: &str,
        kind: KeyKind,
        now: SystemTime,
    ) -> Result<Authority, AuthorityError> {
        let made = make_authority(name, kind, now)?;
        let list = make_list(&made.issuer()?, &[], now, made.not_after())?;
        let token = making::generate(kind)?;
        make_directory(directory)?;
        let _lock = Lock::take(directory)?;
        let files = [
            (KEY, made.key_pem().into_bytes(), SECRET),
            (TOKEN_KEY, token.serialize_pem().into_bytes(), SECRET),
            (TOKEN_PUBLIC, token.public_key_pem().into_bytes(), PUBLIC),
            (INDEX, Index::default().to_text().into_bytes(), SECRET),
            (LIST, list.into_bytes(), PUBLIC),
            // Last: with it the authority is there.
            (CERTIFICATE, made.certificate_pem().into_bytes(), PUBLIC),
        ];
        let taken = files.iter().map(|(file, ..)| directory.join(file)).find(|path| is_there(path));
        if let Some(path) = taken {
            return Err(AuthorityError::Exists(path));
        }
        for (file, content, mode) in files {
            write_new(&directory.join(file), &content, mode)?;
        }
        Authority::open(directory)
    }

    /// The one in `directory`. Its keys are not read until they are needed.
    ///
    /// # Errors
    /// If there is none, or it can't be read.
    pub fn open(directory: &Path) -> Result<Authority, AuthorityError> {
        let path = directory.join(CERTIFICATE);
        let pem = match read(&path) {
            Err(AuthorityError::Io { error, .. }) if error.kind() == ErrorKind::NotFound => {
                return Err(AuthorityError::Missing(directory.into()));
            }
            other => other?,
        };
        let damaged = |why: String| AuthorityError::damaged(&path, why);
        let der = pem::certificates(&pem).map_err(|error| damaged(error.to_string()))?.swap_remove(0);
        let certificate = Certificate::parse(&der).map_err(|error| damaged(error.to_string()))?;
        Ok(Authority { directory: directory.into(), der, certificate })
    }

    /// What its certificate says.
    pub fn certificate(&self) -> &Certificate {
        &self.certificate
    }

    /// Its name, by which its tokens say who made them.
    pub fn name(&self) -> &str {
        self.certificate.common_names.first().map_or("", String::as_str)
    }

    /// Makes a key and a certificate for it, `NAME.pem` and `NAME-key.pem` in `out`, valid for `lifetime` but not
    /// longer than the authority. The certificate's file holds the authority's too.
    ///
    /// # Errors
    /// If one of the files is there already, or something of the request can't be.
    pub fn issue(
        &self,
        name: &str,
        purpose: &Use,
        lifetime: Duration,
        out: &Path,
        now: SystemTime,
    ) -> Result<Issued, AuthorityError> {
        check_file_name(name)?;
        let _lock = Lock::take(&self.directory)?;
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
        Ok(Issued { chain, key, certificate })
    }

    /// Revokes certificates and writes the list anew.
    ///
    /// # Errors
    /// If nothing like that was issued here, or something can't be written.
    pub fn revoke(&self, which: &Which, now: SystemTime) -> Result<Vec<Revoked>, AuthorityError> {
        let _lock = Lock::take(&self.directory)?;
        let issuer = self.issuer()?;
        let mut index = self.index()?;
        let revoked = mark(&mut index, &self.selected(which)?, seconds(now));
        if revoked.is_empty() {
            return Err(AuthorityError::Unknown(self.selected(which)?.1));
        }
        replace(&self.directory.join(INDEX), index.to_text().as_bytes(), SECRET)?;
        let list = make_list(&issuer, &index.entries, now, self.certificate.not_after_s)?;
        replace(&self.directory.join(LIST), list.as_bytes(), PUBLIC)?;
        Ok(revoked)
    }

    /// Whether a certificate of this number was issued here.
    ///
    /// # Errors
    /// If the index can't be read.
    pub fn has_issued(&self, serial: &str) -> Result<bool, AuthorityError> {
        Ok(self.index()?.entries.iter().any(|entry| entry.serial.eq_ignore_ascii_case(serial)))
    }

    /// What is known of a certificate here, by its signature and the list, as others see it.
    ///
    /// # Errors
    /// If the list can't be read.
    pub fn standing(&self, der: &CertificateDer<'_>) -> Result<Standing, AuthorityError> {
        if der.as_ref() == self.der.as_ref() {
            return Ok(Standing::Own);
        }
        if !is_signed_by(der, &self.der) {
            return Ok(Standing::Foreign);
        }
        let serial = Certificate::parse(der)?.serial;
        let path = self.directory.join(LIST);
        let revoked =
            revocations(&read(&path)?, &self.der).map_err(|why| AuthorityError::damaged(&path, why))?;
        let found = revoked.into_iter().find(|(number, _)| *number == serial);
        Ok(found.map_or(Standing::Good, |(_, since_s)| Standing::Revoked { since_s }))
    }

    /// Who signs its tokens: its name and its key for tokens.
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

    fn record(&self, name: &str, purpose: &Use, made: &Certificate) -> Result<(), AuthorityError> {
        let mut index = self.index()?;
        let word = if matches!(purpose, Use::Server { .. }) { "server" } else { "client" };
        index.entries.push(Entry {
            serial: made.serial.clone(),
            name: name.to_owned(),
            r#use: word.to_owned(),
            until_s: made.not_after_s,
            revoked_s: None,
        });
        replace(&self.directory.join(INDEX), index.to_text().as_bytes(), SECRET)
    }

    fn index(&self) -> Result<Index, AuthorityError> {
        Index::parse(&self.text(INDEX)?)
            .map_err(|why| AuthorityError::damaged(self.directory.join(INDEX), why))
    }

    /// By what an entry is chosen, and the word for it: its name if true, else its number.
    fn selected(&self, which: &Which) -> Result<(bool, String), AuthorityError> {
        Ok(match which {
            Which::Name(name) => (true, name.clone()),
            Which::Serial(serial) => (false, serial.to_ascii_lowercase()),
            Which::Certificate(pem) => {
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

impl Made {
    fn issuer(&self) -> Result<Issuer<'_, &KeyPair>, AuthorityError> {
        Ok(Issuer::from_ca_cert_der(self.der(), self.key())?)
    }
}

/// Marks what was chosen as revoked, once.
fn mark(index: &mut Index, (by_name, word): &(bool, String), now_s: i64) -> Vec<Revoked> {
    let is_meant = |entry: &&mut Entry| *word == if *by_name { &entry.name } else { &entry.serial }[..];
    let marked = index.entries.iter_mut().filter(is_meant).map(|entry| {
        let was_before = entry.revoked_s.is_some();
        entry.revoked_s.get_or_insert(now_s);
        Revoked { serial: entry.serial.clone(), name: entry.name.clone(), was_before }
    });
    marked.collect()
}

/// Names of files beside the authority's own, which they can't be confused with.
fn check_file_name(name: &str) -> Result<(), AuthorityError> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | '@');
    let is_own = ["ca", "revoked", "token"].contains(&name) || name.ends_with("-key");
    let is_good = !name.is_empty()
        && name.len() <= 200
        && name.chars().all(is_plain)
        && !name.starts_with(['.', '-'])
        && !name.ends_with(".pem")
        && !is_own;
    if is_good { Ok(()) } else { Err(AuthorityError::FileName(name.to_owned())) }
}

/// Also a link to nowhere.
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
