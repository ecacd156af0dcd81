//! Who somebody is, and how that is known.
//!
//! All ways lead to names of one kind: `alice` of a certificate, of the public keys file and of a token are the same
//! identity to a daemon's configuration. Whoever is trusted to give names is trusted with all of them; `How` says, in
//! the audit log, who gave it.

use rustls::pki_types::CertificateDer;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::certificate::{AlternativeName, Certificate, CertificateError};
use crate::name::{NameError, check_identity_name};
use crate::public_keys::PublicKeys;

/// Somebody, proved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// What the daemon's configuration calls them.
    pub name: String,
    /// How that is known.
    #[serde(flatten)]
    pub how: How,
}

/// How somebody proved who they are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "how", rename_all = "snake_case")]
pub enum How {
    /// By a certificate of one of the CAs.
    Certificate {
        /// Its number, in hexadecimal digits.
        serial: String,
        /// SHA-256 of it: `SHA256:` and hexadecimal digits.
        fingerprint: String,
    },
    /// By a key of the public keys file.
    Key {
        /// As `ssh-keygen -l` shows it.
        fingerprint: String,
    },
    /// By a bearer token.
    Token {
        /// Who signed it.
        issuer: String,
        /// Its `jti`.
        id: String,
    },
}

/// Why a certificate makes nobody known.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum IdentityError {
    /// There is none.
    #[error("no certificate was shown")]
    NoCertificate,
    /// It can't be understood.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    /// It is self-signed, and its key is in no file.
    #[error("the certificate is self-signed and its key is not known here")]
    UnknownKey,
    /// It has neither a name that counts nor exactly one common name.
    #[error("the certificate names nobody")]
    Nameless,
    /// What it names can't be an identity's name.
    #[error(transparent)]
    Name(#[from] NameError),
}

impl Identity {
    /// Whose certificate this is: the first of a chain that a handshake with [`crate::server_config`] accepted, as
    /// `rustls::ServerConnection::peer_certificates` gives it, and the same public keys.
    ///
    /// It does not check the certificate again: what no handshake accepted proves nothing.
    ///
    /// # Errors
    /// Why nobody is known by it.
    pub fn of_peer(chain: &[CertificateDer<'_>], keys: &PublicKeys) -> Result<Identity, IdentityError> {
        let first = chain.first().ok_or(IdentityError::NoCertificate)?;
        Identity::of_certificate(&Certificate::parse(first)?, keys)
    }

    /// A self-issued certificate stands for its key alone, and what it says of itself is not looked at; any other
    /// stands for the name that its CA put in: the first URI, else DNS name, else mail address, else the common name.
    pub(crate) fn of_certificate(
        certificate: &Certificate,
        keys: &PublicKeys,
    ) -> Result<Identity, IdentityError> {
        if certificate.is_self_issued() {
            let known = keys.find(&certificate.public_key).ok_or(IdentityError::UnknownKey)?;
            let how = How::Key { fingerprint: known.fingerprint.clone() };
            return Ok(Identity { name: known.name.clone(), how });
        }
        let name = name_in(certificate).ok_or(IdentityError::Nameless)?;
        check_identity_name(name)?;
        let fingerprint = certificate.fingerprint.to_string();
        let how = How::Certificate { serial: certificate.serial.clone(), fingerprint };
        Ok(Identity { name: name.to_owned(), how })
    }
}

fn name_in(certificate: &Certificate) -> Option<&str> {
    let first = |of: fn(&AlternativeName) -> Option<&str>| certificate.names.iter().find_map(of);
    first(uri).or_else(|| first(dns)).or_else(|| first(email)).or_else(|| common_name(certificate))
}

fn uri(name: &AlternativeName) -> Option<&str> {
    if let AlternativeName::Uri(uri) = name { Some(uri) } else { None }
}

fn dns(name: &AlternativeName) -> Option<&str> {
    if let AlternativeName::Dns(name) = name { Some(name) } else { None }
}

fn email(name: &AlternativeName) -> Option<&str> {
    if let AlternativeName::Email(address) = name { Some(address) } else { None }
}

/// Of two, nobody could say which one counts.
fn common_name(certificate: &Certificate) -> Option<&str> {
    if let [name] = &certificate.common_names[..] { Some(name) } else { None }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DistinguishedName, DnType, Issuer, KeyPair, SanType};

    use super::*;

    /// The identity of a CA's certificate with these common names and alternative names.
    fn of(common_names: &[&str], names: Vec<SanType>) -> Result<Identity, IdentityError> {
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
        Identity::of_peer(&[made.der().clone()], &PublicKeys::default())
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
        assert_eq!(of(&["al\u{0}ice"], Vec::new()), Err(NameError::Unseen.into()));
        assert_eq!(of(&[], Vec::new()), Err(IdentityError::Nameless));
    }

    #[test]
    fn what_a_self_signed_certificate_says_does_not_count() {
        let made = rcgen::generate_simple_self_signed(vec!["root".into()]).unwrap();
        let chain = [made.cert.der().clone()];
        assert_eq!(Identity::of_peer(&chain, &PublicKeys::default()), Err(IdentityError::UnknownKey));
        assert_eq!(Identity::of_peer(&[], &PublicKeys::default()), Err(IdentityError::NoCertificate));
    }

    #[test]
    fn an_audit_log_can_hold_it() {
        let how = How::Token { issuer: "site".into(), id: "7".into() };
        let identity = Identity { name: "alice".into(), how };
        let json = serde_json::to_string(&identity).unwrap();
        assert_eq!(json, r#"{"name":"alice","how":"token","issuer":"site","id":"7"}"#);
        assert_eq!(serde_json::from_str::<Identity>(&json).unwrap(), identity);
    }
}
