//! A server's side: its certificate, and the clients that it accepts.

use std::fmt;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::CertificateDer;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, VerifierBuilderError, WebPkiClientVerifier};
use rustls::time_provider::{DefaultTimeProvider, TimeProvider};

use super::verifier::ClientVerifier;
use super::{ALPN, TlsConfigError, check_revocation_lists, provider, roots};
use crate::certificate::Certificate;
use crate::pem;
use crate::public_keys::AuthorizedKeys;

/// A server's credentials and the clients that it trusts: the contents of files, which the caller has read.
#[derive(Clone, Default)]
pub struct TlsServerCredentials {
    /// The server's certificate and the intermediate ones up to a CA, PEM.
    pub chain: Vec<u8>,
    /// The server's private key, PEM.
    pub key: Vec<u8>,
    /// The CAs of client certificates, PEM; may be empty.
    pub client_cas: Vec<u8>,
    /// Those CAs' lists of revoked certificates, PEM; may be empty. A CA without a list has revoked nothing.
    /// A list counts beyond the date of its next update: an old list is better than none.
    pub crls: Vec<u8>,
    /// The keys of identities without a certificate.
    pub public_keys: Arc<AuthorizedKeys>,
    /// True if a client may connect without a certificate. It has no identity until it shows a token.
    pub tokens: bool,
}

impl fmt::Debug for TlsServerCredentials {
    /// Without the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsServerCredentials")
            .field("public_keys", &self.public_keys.len())
            .field("tokens", &self.tokens)
            .finish_non_exhaustive()
    }
}

/// The TLS configuration of a server.
///
/// # Errors
/// The missing or invalid material. The error has a hint.
pub fn server_config(trust: &TlsServerCredentials) -> Result<Arc<ServerConfig>, TlsConfigError> {
    server_config_at(trust, Arc::new(DefaultTimeProvider))
}

/// The same with another clock.
///
/// # Errors
/// As [`server_config`].
pub fn server_config_at(
    trust: &TlsServerCredentials,
    clock: Arc<dyn TimeProvider>,
) -> Result<Arc<ServerConfig>, TlsConfigError> {
    let chain = own_chain(&trust.chain)?;
    let key = pem::private_key(&trust.key)
        .map_err(|error| TlsConfigError::Pem { what: "the server's key", error })?;
    let provider = provider();
    let verifier = verifier(trust, &provider)?;
    let mut config = ServerConfig::builder_with_details(provider, clock)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(TlsConfigError::Refused)?
        .with_client_cert_verifier(Arc::new(verifier))
        .with_single_cert(chain, key)
        .map_err(TlsConfigError::Refused)?;
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    config.max_early_data_size = 0;
    Ok(Arc::new(config))
}

fn own_chain(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsConfigError> {
    let chain = pem::certificates(pem)
        .map_err(|error| TlsConfigError::Pem { what: "the server's certificate", error })?;
    let own = Certificate::parse(&chain[0]).map_err(TlsConfigError::Certificate)?;
    if own.uses.server { Ok(chain) } else { Err(TlsConfigError::NotForServers { subject: own.subject }) }
}

fn verifier(
    trust: &TlsServerCredentials,
    provider: &Arc<CryptoProvider>,
) -> Result<ClientVerifier, TlsConfigError> {
    let authorities = authority_verifier(trust, provider)?;
    if authorities.is_none() && trust.public_keys.is_empty() && !trust.tokens {
        return Err(TlsConfigError::NobodyAdmitted);
    }
    Ok(ClientVerifier {
        authorities,
        keys: trust.public_keys.clone(),
        tokens: trust.tokens,
        algorithms: ClientVerifier::algorithms_of(provider),
    })
}

fn authority_verifier(
    trust: &TlsServerCredentials,
    provider: &Arc<CryptoProvider>,
) -> Result<Option<Arc<dyn ClientCertVerifier>>, TlsConfigError> {
    let lists = pem::revocation_lists(&trust.crls)
        .map_err(|error| TlsConfigError::Pem { what: "the list of revoked certificates", error })?;
    if trust.client_cas.trim_ascii().is_empty() {
        check_revocation_lists(&lists, &[])?;
        return Ok(None);
    }
    let cas = pem::certificates(&trust.client_cas)
        .map_err(|error| TlsConfigError::Pem { what: "the CAs of clients", error })?;
    check_revocation_lists(&lists, &cas)?;
    WebPkiClientVerifier::builder_with_provider(roots(&cas)?, provider.clone())
        .with_crls(lists)
        // For a CA without a list. The given lists all come from trusted CAs.
        .allow_unknown_revocation_status()
        .build()
        .map(Some)
        .map_err(verifier_error)
}

fn verifier_error(error: VerifierBuilderError) -> TlsConfigError {
    match error {
        VerifierBuilderError::InvalidCrl(_) => TlsConfigError::List,
        other => TlsConfigError::Refused(rustls::Error::General(other.to_string())),
    }
}
