//! A client's side: the servers that it trusts, and its identity.

use std::fmt;
use std::sync::Arc;

use aws_lc_rs::encoding::{AsDer, Pkcs8V1Der};
use aws_lc_rs::signature::Ed25519KeyPair;
use rcgen::{CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, KeyPair};
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::time_provider::{DefaultTimeProvider, TimeProvider};
use rustls::{ClientConfig, RootCertStore};
use ssh_key::private::KeypairData;

use super::{ALPN, TlsConfigError, check_revocation_lists, provider, roots};
use crate::certificate::Certificate;
use crate::pem;

/// A client's credentials and trusted CAs: the contents of files.
#[derive(Clone, Debug, Default)]
pub struct ClientTrust {
    /// The CAs of trusted servers, PEM; `None` for the system's.
    pub cas: Option<Vec<u8>>,
    /// Those CAs' lists of revoked certificates, PEM. May be empty, and must be with the system's CAs.
    pub crls: Vec<u8>,
    /// The client's identity; `None` if it uses a token.
    pub identity: Option<ClientCredential>,
}

/// The proof of a client's identity.
#[derive(Clone)]
pub enum ClientCredential {
    /// A certificate of a CA, or a self-signed one.
    Certificate {
        /// The certificate and the intermediate ones up to its CA, PEM.
        chain: Vec<u8>,
        /// The private key, PEM.
        key: Vec<u8>,
    },
    /// An ssh key that the server knows: an OpenSSH private key file, not encrypted, of the type ed25519.
    SshKey(Vec<u8>),
}

impl fmt::Debug for ClientCredential {
    /// Without the keys.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ClientCredential::Certificate { .. } => "Certificate",
            ClientCredential::SshKey(_) => "SshKey",
        })
    }
}

/// The TLS configuration of a client.
///
/// # Errors
/// The missing or invalid material. The error has a hint.
pub fn client_config(trust: &ClientTrust) -> Result<Arc<ClientConfig>, TlsConfigError> {
    client_config_at(trust, Arc::new(DefaultTimeProvider))
}

/// The same with another clock.
///
/// # Errors
/// As [`client_config`].
pub fn client_config_at(
    trust: &ClientTrust,
    clock: Arc<dyn TimeProvider>,
) -> Result<Arc<ClientConfig>, TlsConfigError> {
    let provider = provider();
    let verifier = verifier(trust, &provider)?;
    let builder = ClientConfig::builder_with_details(provider, clock)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(TlsConfigError::Refused)?
        .with_webpki_verifier(verifier);
    let mut config = match &trust.identity {
        None => builder.with_no_client_auth(),
        Some(identity) => {
            let (chain, key) = certificate_and_key(identity)?;
            builder.with_client_auth_cert(chain, key).map_err(TlsConfigError::Refused)?
        }
    };
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.resumption = Resumption::disabled();
    config.enable_early_data = false;
    Ok(Arc::new(config))
}

fn verifier(
    trust: &ClientTrust,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<WebPkiServerVerifier>, TlsConfigError> {
    let lists = pem::revocation_lists(&trust.crls)
        .map_err(|error| TlsConfigError::Pem { what: "the list of revoked certificates", error })?;
    let roots = match &trust.cas {
        None => {
            check_revocation_lists(&lists, &[])?;
            system_roots()?
        }
        Some(cas) => {
            let cas =
                pem::certificates(cas).map_err(|error| TlsConfigError::Pem { what: "the CAs", error })?;
            check_revocation_lists(&lists, &cas)?;
            roots(&cas)?
        }
    };
    WebPkiServerVerifier::builder_with_provider(roots, provider.clone())
        .with_crls(lists)
        .allow_unknown_revocation_status()
        .build()
        .map_err(|_| TlsConfigError::List)
}

/// The usable CAs of the system. Some systems have one or two that can't be read.
fn system_roots() -> Result<Arc<RootCertStore>, TlsConfigError> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        let why = found.errors.first().map_or("none was found".to_owned(), ToString::to_string);
        return Err(TlsConfigError::NoRoots(why));
    }
    Ok(Arc::new(roots))
}

type ClientCertificateAndKey = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

fn certificate_and_key(identity: &ClientCredential) -> Result<ClientCertificateAndKey, TlsConfigError> {
    match identity {
        ClientCredential::Certificate { chain, key } => load_certificate_and_key(chain, key),
        ClientCredential::SshKey(file) => self_signed_from_ssh_key(file),
    }
}

fn load_certificate_and_key(chain: &[u8], key: &[u8]) -> Result<ClientCertificateAndKey, TlsConfigError> {
    let chain =
        pem::certificates(chain).map_err(|error| TlsConfigError::Pem { what: "your certificate", error })?;
    let key = pem::private_key(key).map_err(|error| TlsConfigError::Pem { what: "your key", error })?;
    let own = Certificate::parse(&chain[0]).map_err(TlsConfigError::Certificate)?;
    if own.uses.client {
        Ok((chain, key))
    } else {
        Err(TlsConfigError::NotForClients { subject: own.subject })
    }
}

/// A self-signed certificate of the key. The server looks only at the key.
fn self_signed_from_ssh_key(file: &[u8]) -> Result<ClientCertificateAndKey, TlsConfigError> {
    let pkcs8 = pkcs8_of_ssh(file)?;
    let pair = KeyPair::try_from(&PrivatePkcs8KeyDer::from(&pkcs8[..]))?;
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, "carrack ssh key");
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let certificate = params.self_signed(&pair)?;
    Ok((vec![certificate.der().clone()], PrivatePkcs8KeyDer::from(pkcs8).into()))
}

fn pkcs8_of_ssh(file: &[u8]) -> Result<Vec<u8>, TlsConfigError> {
    let key =
        ssh_key::PrivateKey::from_openssh(file).map_err(|error| TlsConfigError::SshKey(error.to_string()))?;
    if key.is_encrypted() {
        return Err(TlsConfigError::EncryptedKey);
    }
    let KeypairData::Ed25519(pair) = key.key_data() else {
        return Err(TlsConfigError::KeyType(key.algorithm().to_string()));
    };
    let pair = Ed25519KeyPair::from_seed_and_public_key(&pair.private.to_bytes(), &pair.public.0)
        .map_err(|error| TlsConfigError::SshKey(error.to_string()))?;
    let der: Pkcs8V1Der<'_> = pair.as_der().map_err(|error| TlsConfigError::SshKey(error.to_string()))?;
    Ok(der.as_ref().to_vec())
}
