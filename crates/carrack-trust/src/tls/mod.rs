//! The TLS configurations of both ends, from material that is given as bytes.
//!
//! TLS 1.3 only, one application protocol, and no resumption: each session checks anew whether its
//! certificate is valid. rustls does the protocol and aws-lc the cryptography.

mod client;
mod error;
mod server;
mod verifier;

use std::sync::Arc;

pub use client::{ClientCredential, ClientTrust, client_config, client_config_at};
pub use error::{TlsConfigError, handshake_hint};
use rustls::RootCertStore;
use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::{default_provider, kx_group};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer};
pub use server::{TlsServerCredentials, server_config, server_config_at};
use x509_parser::prelude::{CertificateRevocationList, FromDer};

use crate::certificate::Certificate;

/// The application protocol (RFC 7301): carrack's, version 5.
pub const ALPN: &[u8] = b"carrack/5";

/// Returns true if both ends agreed on [`ALPN`]; `agreed` is rustls' `alpn_protocol()` after the handshake.
/// An end whose peer offers no protocol does not refuse, so both ends must check.
pub fn speaks_carrack(agreed: Option<&[u8]>) -> bool {
    agreed == Some(ALPN)
}

/// aws-lc's algorithms. The hybrid with ML-KEM is the first key exchange, so that recorded traffic stays
/// private when there are quantum computers.
fn provider() -> Arc<CryptoProvider> {
    let kx_groups =
        vec![kx_group::X25519MLKEM768, kx_group::X25519, kx_group::SECP256R1, kx_group::SECP384R1];
    Arc::new(CryptoProvider { kx_groups, ..default_provider() })
}

/// The trusted CAs. A certificate that isn't a CA's is refused: its owner could sign any name.
fn roots(cas: &[CertificateDer<'static>]) -> Result<Arc<RootCertStore>, TlsConfigError> {
    let mut roots = RootCertStore::empty();
    for ca in cas {
        let read = Certificate::parse(ca).map_err(TlsConfigError::Certificate)?;
        if !read.uses.authority {
            return Err(TlsConfigError::NoAuthority { subject: read.subject });
        }
        roots.add(ca.clone()).map_err(TlsConfigError::Refused)?;
    }
    Ok(Arc::new(roots))
}

/// Checks that each list comes from one of the CAs. A list of another CA would have no effect.
fn check_revocation_lists(
    lists: &[CertificateRevocationListDer<'static>],
    cas: &[CertificateDer<'static>],
) -> Result<(), TlsConfigError> {
    let cas: Vec<_> = cas.iter().filter_map(|ca| Certificate::parse(ca).ok()).collect();
    for list in lists {
        let (_, list) = CertificateRevocationList::from_der(list).map_err(|_| TlsConfigError::List)?;
        if !cas.iter().any(|ca| ca.subject_der() == list.issuer().as_raw()) {
            return Err(TlsConfigError::ForeignList { issuer: list.issuer().to_string() });
        }
    }
    Ok(())
}

#[cfg(test)]
mod fixture;
#[cfg(test)]
mod tests;
