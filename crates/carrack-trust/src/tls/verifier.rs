//! The server's check of client certificates, which rustls calls in each handshake. Public material only.
//!
//! A certificate with another issuer must come from one of the CAs; a self-issued certificate must hold a key
//! of the public keys file. The handshake's signature proves for both that the client owns the certificate's
//! key (RFC 8446, 4.4.3). An accepted client has an identity ([`ProvedIdentity::of_peer`]).

use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError as Refusal, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};

use crate::certificate::Certificate;
use crate::proved_identity::{IdentityError, ProvedIdentity};
use crate::public_keys::AuthorizedKeys;

/// Accepts or refuses client certificates.
#[derive(Debug)]
pub(super) struct ClientVerifier {
    /// The verifier of the CAs, if there are any.
    pub authorities: Option<Arc<dyn ClientCertVerifier>>,
    /// The public keys file.
    pub keys: Arc<AuthorizedKeys>,
    /// True if a client may connect without a certificate, to show a token.
    pub tokens: bool,
    /// The supported signature algorithms.
    pub algorithms: WebPkiSupportedAlgorithms,
}

impl ClientVerifier {
    pub fn algorithms_of(provider: &CryptoProvider) -> WebPkiSupportedAlgorithms {
        provider.signature_verification_algorithms
    }

    /// A certificate for a key in the file is valid by its dates, which its owner chose.
    fn verify_self_issued(&self, certificate: &Certificate, now: UnixTime) -> Result<(), Error> {
        let now_s = i64::try_from(now.as_secs()).map_err(|_| Error::FailedToGetCurrentTime)?;
        match self.keys.find(&certificate.public_key) {
            None => Err(Refusal::UnknownIssuer.into()),
            Some(_) if now_s < certificate.not_before_s => Err(Refusal::NotValidYet.into()),
            Some(_) if now_s > certificate.not_after_s => Err(Refusal::Expired.into()),
            Some(_) => Ok(()),
        }
    }

    fn verify_issued(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), Error> {
        let authorities = self.authorities.as_ref().ok_or(Error::from(Refusal::UnknownIssuer))?;
        authorities.verify_client_cert(end_entity, intermediates, now).map(|_| ())
    }
}

impl ClientCertVerifier for ClientVerifier {
    fn client_auth_mandatory(&self) -> bool {
        !self.tokens
    }

    /// None: the CAs that a server trusts are not disclosed to unauthenticated peers, and keys of the file
    /// have no issuer.
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let certificate = Certificate::parse(end_entity).map_err(|_| Error::from(Refusal::BadEncoding))?;
        if certificate.is_self_issued() {
            self.verify_self_issued(&certificate, now)?;
        } else {
            self.verify_issued(end_entity, intermediates, now)?;
        }
        ProvedIdentity::of_certificate(&certificate, &self.keys).map_err(refusal_of)?;
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

fn refusal_of(error: IdentityError) -> Error {
    Refusal::Other(rustls::OtherError(Arc::new(error))).into()
}
