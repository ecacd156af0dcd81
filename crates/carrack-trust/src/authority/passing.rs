//! An authority for as long as a process lives: in memory only, known to those who were told its certificate.

use std::time::{Duration, SystemTime};

use super::error::AuthorityError;
use super::making::{make_authority, make_certificate};
use super::{Use, seconds};
use crate::public_key::KeyKind;
use crate::tls::ClientIdentity;

/// What its certificates are valid for: longer than any process that it is for lives without a restart.
const LIFETIME: Duration = Duration::from_secs(366 * 24 * 3600);

/// What a process shows, and what others have to know to believe it.
#[derive(Clone)]
pub struct PassingAuthority {
    /// The authority's certificate, PEM: what it has signed is this process and nobody else.
    pub ca: Vec<u8>,
    /// As a server: the certificate and the authority's, PEM.
    pub server_chain: Vec<u8>,
    /// Its private key, PEM.
    pub server_key: Vec<u8>,
    /// As a client.
    pub client: ClientIdentity,
}

impl PassingAuthority {
    /// Makes one for a process that servers know as the client `name`, and clients as the host `name`.
    ///
    /// # Errors
    /// If `name` can't be both.
    pub fn make(name: &str, now: SystemTime) -> Result<PassingAuthority, AuthorityError> {
        let authority = make_authority(name, KeyKind::P256, now)?;
        let issuer = authority.issuer()?;
        let until = seconds(now + LIFETIME);
        let server = Use::Server { names: vec![name.to_owned()] };
        let server = make_certificate(&issuer, name, &server, now, until)?;
        let client = Use::Client { subject: name.to_owned() };
        let client = make_certificate(&issuer, name, &client, now, until)?;
        let ca = authority.certificate_pem().into_bytes();
        let chain = |certificate: String| [certificate.as_bytes(), &ca].concat();
        Ok(PassingAuthority {
            server_chain: chain(server.certificate_pem()),
            server_key: server.key_pem().into_bytes(),
            client: ClientIdentity::Certificate {
                chain: chain(client.certificate_pem()),
                key: client.key_pem().into_bytes(),
            },
            ca,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ClientTrust, ServerTrust, client_config, server_config};

    #[test]
    fn two_of_them_can_be_configured_to_believe_each_other() {
        let [a, b] =
            ["mover-a", "mover-b"].map(|name| PassingAuthority::make(name, SystemTime::now()).unwrap());
        let trust = ServerTrust {
            chain: a.server_chain.clone(),
            key: a.server_key.clone(),
            client_cas: [&b.ca[..], &a.ca].concat(),
            ..ServerTrust::default()
        };
        server_config(&trust).unwrap();
        let trust = ClientTrust { cas: Some(a.ca.clone()), crls: Vec::new(), identity: Some(b.client) };
        client_config(&trust).unwrap();
    }
}
