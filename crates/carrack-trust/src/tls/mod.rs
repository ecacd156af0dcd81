//! The TLS configurations of both ends, from material that is given as bytes.
//!
//! TLS 1.3 only, one application protocol, no session is ever resumed: each one asks anew whether its certificate is
//! still good. rustls does the protocol, aws-lc the cryptography; this says what is asked of them.

mod client;
mod error;
mod server;
mod verifier;

use std::sync::Arc;

pub use client::{ClientIdentity, ClientTrust, client_config, client_config_at};
pub use error::{TlsError, handshake_hint};
use rustls::RootCertStore;
use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::{default_provider, kx_group};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer};
pub use server::{ServerTrust, server_config, server_config_at};
use x509_parser::prelude::{CertificateRevocationList, FromDer};

use crate::certificate::Certificate;

/// The application protocol (RFC 7301): carrack's, version 5.
pub const ALPN: &[u8] = b"carrack/5";

/// Whether the ends agreed on [`ALPN`], by what rustls' `alpn_protocol()` says after the handshake. An end that was not
/// asked for one does not refuse, so each has to look.
pub fn speaks_carrack(agreed: Option<&[u8]>) -> bool {
    agreed == Some(ALPN)
}

/// aws-lc's algorithms. First among the key exchanges is the hybrid with ML-KEM, so that what is recorded today stays
/// private when there are quantum computers.
fn provider() -> Arc<CryptoProvider> {
    let kx_groups =
        vec![kx_group::X25519MLKEM768, kx_group::X25519, kx_group::SECP256R1, kx_group::SECP384R1];
    Arc::new(CryptoProvider { kx_groups, ..default_provider() })
}

/// The CAs that are trusted. What isn't a CA's certificate is refused: its owner could sign any name.
fn roots(cas: &[CertificateDer<'static>]) -> Result<Arc<RootCertStore>, TlsError> {
    let mut roots = RootCertStore::empty();
    for ca in cas {
        let read = Certificate::parse(ca).map_err(TlsError::Certificate)?;
        if !read.uses.authority {
            return Err(TlsError::NoAuthority { subject: read.subject });
        }
        roots.add(ca.clone()).map_err(TlsError::Refused)?;
    }
    Ok(Arc::new(roots))
}

/// Each list has to be of one of the CAs: one that is of another would be believed to count, and wouldn't.
fn check_lists(
    lists: &[CertificateRevocationListDer<'static>],
    cas: &[CertificateDer<'static>],
) -> Result<(), TlsError> {
    let cas: Vec<_> = cas.iter().filter_map(|ca| Certificate::parse(ca).ok()).collect();
    for list in lists {
        let (_, list) = CertificateRevocationList::from_der(list).map_err(|_| TlsError::List)?;
        if !cas.iter().any(|ca| ca.subject_der() == list.issuer().as_raw()) {
            return Err(TlsError::ForeignList { issuer: list.issuer().to_string() });
        }
    }
    Ok(())
}

#[cfg(test)]
mod meeting;
#[cfg(test)]
mod tests;
