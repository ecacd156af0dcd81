//! Identities, and the way in which each was proved.
//!
//! All ways lead to names of one kind: `alice` of a certificate, of the public keys file and of a token are
//! the same identity to a daemon's configuration. A trusted issuer of names is trusted with all names; in the
//! audit log, `ProvingCredential` shows the issuer.

use rustls::pki_types::CertificateDer;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::certificate::{Certificate, CertificateError, SubjectAlternativeName};
use crate::name::{IdentityNameError, check_identity_name};
use crate::public_keys::AuthorizedKeys;

/// A proved identity.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProvedIdentity {
    /// The name in the daemon's configuration.
    pub name: String,
    /// The proof.
    #[serde(flatten)]
    pub how: ProvingCredential,
}

/// The proof of an identity.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "how", rename_all = "snake_case")]
pub enum ProvingCredential {
    /// A certificate of one of the CAs.
    Certificate {
        /// The certificate's serial number, in hexadecimal digits.
        serial: String,
        /// SHA-256 of the certificate: `SHA256:` and hexadecimal digits.
        fingerprint: String,
    },
    /// A key of the public keys file.
    Key {
        /// The fingerprint, as `ssh-keygen -l` shows it.
        fingerprint: String,
    },
    /// A bearer token.
    Token {
        /// The token's issuer.
        issuer: String,
        /// The token's `jti`.
        id: String,
    },
}

/// The reason why a certificate proves no identity.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum IdentityError {
    /// There is no certificate.
    #[error("no certificate was shown")]
    NoCertificate,
    /// The certificate can't be read.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    /// The certificate is self-signed, and its key is in no file.
    #[error("the certificate is self-signed and its key is not known here")]
    UnknownKey,
    /// The certificate has neither an alternative name of a known kind nor exactly one common name.
    #[error("the certificate names nobody")]
    Nameless,
    /// The name is not a valid name of an identity.
    #[error(transparent)]
    Name(#[from] IdentityNameError),
}

impl ProvedIdentity {
    /// The identity of a certificate: the first of a chain that a handshake with [`crate::server_config`]
    /// accepted, as `rustls::ServerConnection::peer_certificates` gives it, and the same public keys.
    ///
    /// This does not check the certificate again: without an accepted handshake it proves nothing.
    ///
    /// # Errors
    /// The reason why it proves no identity.
    pub fn of_peer(
        chain: &[CertificateDer<'_>],
        keys: &AuthorizedKeys,
    ) -> Result<ProvedIdentity, IdentityError> {
        let first = chain.first().ok_or(IdentityError::NoCertificate)?;
        ProvedIdentity::of_certificate(&Certificate::parse(first)?, keys)
    }

    /// A self-issued certificate stands for its key alone, and its names are ignored. Any other stands for
    /// the name that its CA put in: the first URI, else DNS name, else mail address, else the common name.
    pub(crate) fn of_certificate(
        certificate: &Certificate,
        keys: &AuthorizedKeys,
    ) -> Result<ProvedIdentity, IdentityError> {
        if certificate.is_self_issued() {
            let known = keys.find(&certificate.public_key).ok_or(IdentityError::UnknownKey)?;
            let how = ProvingCredential::Key { fingerprint: known.fingerprint.clone() };
            return Ok(ProvedIdentity { name: known.name.clone(), how });
        }
        let name = name_in(certificate).ok_or(IdentityError::Nameless)?;
        check_identity_name(name)?;
        let fingerprint = certificate.fingerprint.to_string();
        let how = ProvingCredential::Certificate { serial: certificate.serial.clone(), fingerprint };
        Ok(ProvedIdentity { name: name.to_owned(), how })
    }
}

fn name_in(certificate: &Certificate) -> Option<&str> {
    let names = &certificate.names;
    names
        .iter()
        .find_map(uri)
        .or_else(|| names.iter().find_map(dns))
        .or_else(|| names.iter().find_map(email))
        .or_else(|| common_name(certificate))
}

fn uri(name: &SubjectAlternativeName) -> Option<&str> {
    if let SubjectAlternativeName::Uri(uri) = name { Some(uri) } else { None }
}

fn dns(name: &SubjectAlternativeName) -> Option<&str> {
    if let SubjectAlternativeName::Dns(name) = name { Some(name) } else { None }
}

fn email(name: &SubjectAlternativeName) -> Option<&str> {
    if let SubjectAlternativeName::Email(address) = name { Some(address) } else { None }
}

/// Of two common names, neither takes precedence.
fn common_name(certificate: &Certificate) -> Option<&str> {
    if let [name] = &certificate.common_names[..] { Some(name) } else { None }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DistinguishedName, DnType, Issuer, KeyPair, SanType};

    use super::*;

    /// The identity of a CA's certificate with these common names and alternative names.
    fn of(common_names: &[&str], names: Vec<SanType>) -> Result<ProvedIdentity, IdentityError> {
        let mut ca = CertificateParams::default();
        ca.distinguished_name.push(DnType::CommonName, "a CA");
        let issuer = Issuer::new(ca, KeyPair::generate().unwrap());
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        for name in common_names {
            params.distinguished_name.push(DnType::CommonName, *name);
        }
        params.subject_alt_names = names;
        let made = params.signed_by(&KeyPair::generate().unwrap(), &issuer).unwrap();
        ProvedIdentity::of_peer(&[made.der().clone()], &AuthorizedKeys::default())
    }

    fn uri(text: &str) -> SanType {
        SanType::URI(text.try_into().unwrap())
    }

    fn dns(text: &str) -> SanType {
        SanType::DnsName(text.try_into().unwrap())
    }

    fn email(text: &str) -> SanType {
        SanType::Rfc822Name(text.try_into().unwrap())
    }

    #[test]
    fn the_first_name_counts_in_order_of_kinds() {
        let all = vec![email("a@b"), dns("host"), dns("host2"), uri("spiffe://x/y"), uri("spiffe://x/z")];
        assert_eq!(of(&["cn"], all.clone()).unwrap().name, "spiffe://x/y");
        assert_eq!(of(&["cn"], all[..3].to_vec()).unwrap().name, "host");
        assert_eq!(of(&["cn"], all[..1].to_vec()).unwrap().name, "a@b");
        assert_eq!(of(&["cn"], Vec::new()).unwrap().name, "cn");
    }

    #[test]
    fn an_address_is_no_identity() {
        let address = SanType::IpAddress("10.0.0.1".parse().unwrap());
        assert_eq!(of(&[], vec![address]), Err(IdentityError::Nameless));
    }

    #[test]
    fn names_that_can_not_be_shown_make_nobody_known() {
        assert_eq!(of(&["al\u{0}ice"], Vec::new()), Err(IdentityNameError::Unseen.into()));
        assert_eq!(of(&[], Vec::new()), Err(IdentityError::Nameless));
    }

    #[test]
    fn what_a_self_signed_certificate_says_does_not_count() {
        let made = rcgen::generate_simple_self_signed(vec!["root".into()]).unwrap();
        let chain = [made.cert.der().clone()];
        assert_eq!(
            ProvedIdentity::of_peer(&chain, &AuthorizedKeys::default()),
            Err(IdentityError::UnknownKey)
        );
        assert_eq!(
            ProvedIdentity::of_peer(&[], &AuthorizedKeys::default()),
            Err(IdentityError::NoCertificate)
        );
    }

    #[test]
    fn an_audit_log_can_hold_it() {
        let how = ProvingCredential::Token { issuer: "site".into(), id: "7".into() };
        let identity = ProvedIdentity { name: "alice".into(), how };
        let json = serde_json::to_string(&identity).unwrap();
        assert_eq!(json, r#"{"name":"alice","how":"token","issuer":"site","id":"7"}"#);
        assert_eq!(serde_json::from_str::<ProvedIdentity>(&json).unwrap(), identity);
    }
}
