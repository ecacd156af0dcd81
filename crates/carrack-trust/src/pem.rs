//! The items of PEM files (RFC 7468): certificates, a private key, lists of revoked certificates.

use rustls::pki_types::pem::{Error, PemObject};
use rustls::pki_types::{
    CertificateDer, CertificateRevocationListDer, PrivateKeyDer, SubjectPublicKeyInfoDer,
};
use thiserror::Error as ThisError;

/// The most items of one file: a system has some 150 roots.
pub const MAX_ITEMS: usize = 1000;

/// A PEM file that can't be read.
#[derive(Debug, ThisError)]
pub enum PemError {
    /// The file has no item of this kind.
    #[error("there is no {0} in it")]
    Missing(&'static str),
    /// The file has more than [`MAX_ITEMS`].
    #[error("there are more than {MAX_ITEMS} items in it")]
    TooMany,
    /// The file is not PEM.
    #[error("it is not PEM: {0}")]
    Format(String),
}

/// All certificates of a PEM file's content, at least one, as DER.
///
/// # Errors
/// If there is none, or the content can't be read.
pub fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, PemError> {
    items(pem, "certificate")
}

/// All lists of revoked certificates, possibly none.
pub(crate) fn revocation_lists(pem: &[u8]) -> Result<Vec<CertificateRevocationListDer<'static>>, PemError> {
    match items(pem, "list of revoked certificates") {
        Err(PemError::Missing(_)) if pem.trim_ascii().is_empty() => Ok(Vec::new()),
        other => other,
    }
}

/// All public keys, at least one.
pub(crate) fn public_keys(pem: &[u8]) -> Result<Vec<SubjectPublicKeyInfoDer<'static>>, PemError> {
    items(pem, "public key")
}

/// The first private key.
pub(crate) fn private_key(pem: &[u8]) -> Result<PrivateKeyDer<'static>, PemError> {
    PrivateKeyDer::from_pem_slice(pem).map_err(|error| pem_error(error, "private key"))
}

fn items<T: PemObject>(pem: &[u8], what: &'static str) -> Result<Vec<T>, PemError> {
    let items: Vec<T> = T::pem_slice_iter(pem)
        .take(MAX_ITEMS + 1)
        .collect::<Result<_, _>>()
        .map_err(|error| pem_error(error, what))?;
    match items.len() {
        0 => Err(PemError::Missing(what)),
        count if count > MAX_ITEMS => Err(PemError::TooMany),
        _ => Ok(items),
    }
}

fn pem_error(error: Error, what: &'static str) -> PemError {
    match error {
        Error::NoItemsFound => PemError::Missing(what),
        other => PemError::Format(other.to_string()),
    }
}
