//! An authority for the lifetime of a process: in memory only, known to the peers that get its certificate.

use std::time::{Duration, SystemTime};

use super::error::AuthorityError;
use super::new_certificate::{make_authority, make_certificate};
use super::{CertificateUse, seconds};
use crate::public_key::KeySignatureAlgorithm;
use crate::tls::ClientCredential;

/// The lifetime of its certificates: longer than its processes run without a restart.
const LIFETIME: Duration = Duration::from_secs(366 * 24 * 3600);

/// A process's certificates, and the CA certificate by which others trust them.
#[derive(Clone)]
pub struct EphemeralAuthority {
    /// The authority's certificate, PEM. It signs certificates of this process only.
    pub ca: Vec<u8>,
    /// The server's chain: its certificate and the authority's, PEM.
    pub server_chain: Vec<u8>,
    /// The server's private key, PEM.
    pub server_key: Vec<u8>,
    /// The client's certificate and key.
    pub client: ClientCredential,
}

impl EphemeralAuthority {
    /// Makes an authority for a process that servers know as the client `name`, and clients as the host
    /// `name`.
    ///
    /// # Errors
    /// If `name` can't be both.
    pub fn make(name: &str, now: SystemTime) -> Result<EphemeralAuthority, AuthorityError> {
        let authority = make_authority(name, KeySignatureAlgorithm::P256, now)?;
        let issuer = authority.issuer()?;
        let until = seconds(now + LIFETIME);
        let server = CertificateUse::Server { names: vec![name.to_owned()] };
        let server = make_certificate(&issuer, name, &server, now, until)?;
        let client = CertificateUse::Client { subject: name.to_owned() };
        let client = make_certificate(&issuer, name, &client, now, until)?;
        let ca = authority.certificate_pem().into_bytes();
        Ok(EphemeralAuthority {
            server_chain: [server.certificate_pem().as_bytes(), &ca].concat(),
            server_key: server.key_pem().into_bytes(),
            client: ClientCredential::Certificate {
                chain: [client.certificate_pem().as_bytes(), &ca].concat(),
                key: client.key_pem().into_bytes(),
            },
            ca,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ClientTrust, TlsServerCredentials, client_config, server_config};

    #[test]
    fn two_of_them_can_be_configured_to_believe_each_other() {
        let [a, b] =
            ["mover-a", "mover-b"].map(|name| EphemeralAuthority::make(name, SystemTime::now()).unwrap());
        let trust = TlsServerCredentials {
            chain: a.server_chain.clone(),
            key: a.server_key.clone(),
            client_cas: [&b.ca[..], &a.ca].concat(),
            ..TlsServerCredentials::default()
        };
        server_config(&trust).unwrap();
        let trust = ClientTrust { cas: Some(a.ca.clone()), crls: Vec::new(), identity: Some(b.client) };
        client_config(&trust).unwrap();
    }
}
