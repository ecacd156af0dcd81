//! A server's side: its certificate, and whom it accepts.

use std::fmt;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::CertificateDer;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, VerifierBuilderError, WebPkiClientVerifier};
use rustls::time_provider::{DefaultTimeProvider, TimeProvider};

use super::verifier::ClientVerifier;
use super::{ALPN, TlsError, check_lists, provider, roots};
use crate::certificate::Certificate;
use crate::pem;
use crate::public_keys::PublicKeys;

/// What a server is and whom it trusts: the contents of files, which somebody else has read.
#[derive(Clone, Default)]
pub struct ServerTrust {
    /// Its certificate and those between it and a CA, PEM.
    pub chain: Vec<u8>,
    /// Its private key, PEM.
    pub key: Vec<u8>,
    /// The CAs whose certificates clients may have, PEM; may be empty.
    pub client_cas: Vec<u8>,
    /// What those CAs have revoked, PEM; may be empty. A CA without a list has revoked nothing. A list counts beyond
    /// the date of its next update: an old one knows more than none.
    pub crls: Vec<u8>,
    /// The keys of people who have no certificate.
    pub public_keys: Arc<PublicKeys>,
    /// Whether a client may come without a certificate. It is a stranger until it shows a token.
    pub tokens: bool,
}

impl fmt::Debug for ServerTrust {
    /// Without the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerTrust")
            .field("public_keys", &self.public_keys.len())
            .field("tokens", &self.tokens)
            .finish_non_exhaustive()
    }
}

/// The configuration of a server.
///
/// # Errors
/// What is missing or wrong, with a hint.
pub fn server_config(trust: &ServerTrust) -> Result<Arc<ServerConfig>, TlsError> {
    server_config_at(trust, Arc::new(DefaultTimeProvider))
}

/// The same by another clock.
///
/// # Errors
/// As [`server_config`].
pub fn server_config_at(
    trust: &ServerTrust,
    clock: Arc<dyn TimeProvider>,
) -> Result<Arc<ServerConfig>, TlsError> {
    let chain = own_chain(&trust.chain)?;
    let key =
        pem::private_key(&trust.key).map_err(|error| TlsError::Pem { what: "the server's key", error })?;
    let provider = provider();
    let verifier = verifier(trust, &provider)?;
    let mut config = ServerConfig::builder_with_details(provider, clock)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(TlsError::Refused)?
        .with_client_cert_verifier(Arc::new(verifier))
        .with_single_cert(chain, key)
        .map_err(TlsError::Refused)?;
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    config.max_early_data_size = 0;
    Ok(Arc::new(config))
}

fn own_chain(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let chain =
        pem::certificates(pem).map_err(|error| TlsError::Pem { what: "the server's certificate", error })?;
    let own = Certificate::parse(&chain[0]).map_err(TlsError::Certificate)?;
    if own.uses.server { Ok(chain) } else { Err(TlsError::NotForServers { subject: own.subject }) }
}

fn verifier(trust: &ServerTrust, provider: &Arc<CryptoProvider>) -> Result<ClientVerifier, TlsError> {
    let authorities = authorities(trust, provider)?;
    if authorities.is_none() && trust.public_keys.is_empty() && !trust.tokens {
        return Err(TlsError::NobodyAdmitted);
    }
    Ok(ClientVerifier {
        authorities,
        keys: trust.public_keys.clone(),
        tokens: trust.tokens,
        algorithms: ClientVerifier::algorithms_of(provider),
    })
}

fn authorities(
    trust: &ServerTrust,
    provider: &Arc<CryptoProvider>,
) -> Result<Option<Arc<dyn ClientCertVerifier>>, TlsError> {
    let lists = pem::revocation_lists(&trust.crls)
        .map_err(|error| TlsError::Pem { what: "the list of revoked certificates", error })?;
    if trust.client_cas.trim_ascii().is_empty() {
        check_lists(&lists, &[])?;
        return Ok(None);
    }
    let cas = pem::certificates(&trust.client_cas)
        .map_err(|error| TlsError::Pem { what: "the CAs of clients", error })?;
    check_lists(&lists, &cas)?;
    WebPkiClientVerifier::builder_with_provider(roots(&cas)?, provider.clone())
        .with_crls(lists)
        // A CA that gives no list; those that are given are all of trusted CAs.
        .allow_unknown_revocation_status()
        .build()
        .map(Some)
        .map_err(refused)
}

fn refused(error: VerifierBuilderError) -> TlsError {
    match error {
        VerifierBuilderError::InvalidCrl(_) => TlsError::List,
        other => TlsError::Refused(rustls::Error::General(other.to_string())),
    }
}
