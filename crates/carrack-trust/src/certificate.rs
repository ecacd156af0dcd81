//! The content of an X.509 certificate (RFC 5280). This module does not decide whether to trust it.

use std::fmt;
use std::net::IpAddr;

use aws_lc_rs::digest::{SHA256, digest};
use rustls::pki_types::CertificateDer;
use thiserror::Error;
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};
use x509_parser::x509::X509Name;

/// A certificate that can't be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum CertificateError {
    /// The bytes are not a certificate.
    #[error("this is no X.509 certificate")]
    Format,
    /// A required part can't be read.
    #[error("the certificate's extensions can't be read")]
    Extensions,
}

/// SHA-256 of a certificate's DER.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct CertificateFingerprint(pub [u8; 32]);

/// A name that a certificate is valid for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SubjectAlternativeName {
    /// A URI, such as a SPIFFE ID.
    Uri(String),
    /// A host name.
    Dns(String),
    /// A host address.
    Ip(IpAddr),
    /// A mail address.
    Email(String),
    /// A name of another kind.
    Other,
}

/// The permitted uses of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CertificateKeyUsage {
    /// Signing other certificates.
    pub authority: bool,
    /// TLS server.
    pub server: bool,
    /// TLS client.
    pub client: bool,
}

/// The content of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// The subject's name, as RFC 4514 writes names.
    pub subject: String,
    /// The issuer's name.
    pub issuer: String,
    /// The subject's common names; more than one is unusual.
    pub common_names: Vec<String>,
    /// The names that the certificate is valid for.
    pub names: Vec<SubjectAlternativeName>,
    /// The permitted uses.
    pub uses: CertificateKeyUsage,
    /// Valid from, seconds since 1970.
    pub not_before_s: i64,
    /// Valid until, seconds since 1970.
    pub not_after_s: i64,
    /// The serial number, unique for the issuer, in hexadecimal digits.
    pub serial: String,
    /// SHA-256 of the DER.
    pub fingerprint: CertificateFingerprint,
    /// The DER of the key's `SubjectPublicKeyInfo`.
    pub public_key: Vec<u8>,
    subject_der: Vec<u8>,
    issuer_der: Vec<u8>,
}

impl Certificate {
    /// Reads a certificate from its DER.
    ///
    /// # Errors
    /// If any part can't be read.
    pub fn parse(der: &[u8]) -> Result<Certificate, CertificateError> {
        let (rest, x509) = X509Certificate::from_der(der).map_err(|_| CertificateError::Format)?;
        if !rest.is_empty() {
            return Err(CertificateError::Format);
        }
        Ok(Certificate {
            subject: x509.subject().to_string(),
            issuer: x509.issuer().to_string(),
            common_names: common_names(x509.subject()),
            names: names(&x509)?,
            uses: key_usage(&x509)?,
            not_before_s: x509.validity().not_before.timestamp(),
            not_after_s: x509.validity().not_after.timestamp(),
            serial: hex(strip_leading_zero(x509.raw_serial())),
            fingerprint: CertificateFingerprint::of(der),
            public_key: x509.public_key().raw.to_vec(),
            subject_der: x509.subject().as_raw().to_vec(),
            issuer_der: x509.issuer().as_raw().to_vec(),
        })
    }

    /// Returns true if subject and issuer are the same: no other certificate vouches for its content.
    pub fn is_self_issued(&self) -> bool {
        self.subject_der == self.issuer_der
    }

    /// The DER of the subject's name.
    pub(crate) fn subject_der(&self) -> &[u8] {
        &self.subject_der
    }
}

/// Returns true if `authority`'s key signed the certificate, and both have matching names.
pub(crate) fn is_signed_by(certificate: &CertificateDer<'_>, authority: &CertificateDer<'_>) -> bool {
    let (Ok((_, certificate)), Ok((_, authority))) =
        (X509Certificate::from_der(certificate), X509Certificate::from_der(authority))
    else {
        return false;
    };
    certificate.issuer().as_raw() == authority.subject().as_raw()
        && certificate.verify_signature(Some(authority.public_key())).is_ok()
}

impl CertificateFingerprint {
    /// The fingerprint of a certificate's DER.
    pub fn of(der: &[u8]) -> CertificateFingerprint {
        let mut bytes = [0; 32];
        bytes.copy_from_slice(digest(&SHA256, der).as_ref());
        CertificateFingerprint(bytes)
    }
}

impl fmt::Display for CertificateFingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SHA256:{}", hex(&self.0))
    }
}

impl fmt::Debug for CertificateFingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for SubjectAlternativeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SubjectAlternativeName::Uri(uri) => write!(f, "URI:{uri}"),
            SubjectAlternativeName::Dns(name) => write!(f, "DNS:{name}"),
            SubjectAlternativeName::Ip(address) => write!(f, "IP:{address}"),
            SubjectAlternativeName::Email(address) => write!(f, "email:{address}"),
            SubjectAlternativeName::Other => f.write_str("another kind of name"),
        }
    }
}

impl fmt::Display for CertificateKeyUsage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = [(self.authority, "authority"), (self.server, "server"), (self.client, "client")];
        let words: Vec<_> = all.into_iter().filter_map(|(is_so, word)| is_so.then_some(word)).collect();
        f.write_str(if words.is_empty() { "none of carrack's" } else { "" })?;
        f.write_str(&words.join(", "))
    }
}

fn common_names(subject: &X509Name<'_>) -> Vec<String> {
    subject.iter_common_name().filter_map(|name| name.as_str().ok()).map(str::to_owned).collect()
}

fn names(x509: &X509Certificate<'_>) -> Result<Vec<SubjectAlternativeName>, CertificateError> {
    let extension = x509.subject_alternative_name().map_err(|_| CertificateError::Extensions)?;
    Ok(extension.map_or(Vec::new(), |names| names.value.general_names.iter().map(name).collect()))
}

fn name(name: &GeneralName<'_>) -> SubjectAlternativeName {
    match name {
        GeneralName::URI(uri) => SubjectAlternativeName::Uri((*uri).to_owned()),
        GeneralName::DNSName(name) => SubjectAlternativeName::Dns((*name).to_owned()),
        GeneralName::RFC822Name(address) => SubjectAlternativeName::Email((*address).to_owned()),
        GeneralName::IPAddress(bytes) => {
            address(bytes).map_or(SubjectAlternativeName::Other, SubjectAlternativeName::Ip)
        }
        _ => SubjectAlternativeName::Other,
    }
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    v4.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from)).ok()
}

/// A certificate without extended key usage may be used as server and as client (RFC 5280, 4.2.1.12).
fn key_usage(x509: &X509Certificate<'_>) -> Result<CertificateKeyUsage, CertificateError> {
    let basic = x509.basic_constraints().map_err(|_| CertificateError::Extensions)?;
    let extended = x509.extended_key_usage().map_err(|_| CertificateError::Extensions)?;
    let authority = basic.is_some_and(|basic| basic.value.ca);
    let (server, client) =
        extended.map_or((!authority, !authority), |uses| (uses.value.server_auth, uses.value.client_auth));
    Ok(CertificateKeyUsage { authority, server, client })
}

/// Removes the zero that keeps a DER number from being negative.
fn strip_leading_zero(serial: &[u8]) -> &[u8] {
    match serial {
        [0, rest @ ..] if !rest.is_empty() => rest,
        all => all,
    }
}

/// Lower-case hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rcgen::{CertificateParams, DnType, KeyPair, SanType};

    use super::*;

    #[test]
    fn says_what_it_says() {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec!["dtn1.example.org".into(), "10.0.0.7".into()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, "dtn1");
        params.subject_alt_names.push(SanType::URI("spiffe://site/dtn1".try_into().unwrap()));
        params.serial_number = Some(vec![0xab, 1].into());
        let made = params.self_signed(&key).unwrap();
        let read = Certificate::parse(made.der()).unwrap();
        assert_eq!(read.common_names.last().map(String::as_str), Some("dtn1"));
        let names: Vec<_> = read.names.iter().map(ToString::to_string).collect();
        assert_eq!(names, ["DNS:dtn1.example.org", "IP:10.0.0.7", "URI:spiffe://site/dtn1"]);
        assert_eq!(read.serial, "ab01");
        assert!(read.is_self_issued() && read.uses.server && read.uses.client && !read.uses.authority);
        assert!(is_signed_by(made.der(), made.der()));
    }

    #[test]
    fn bytes_after_the_certificate_are_an_error() {
        let made = rcgen::generate_simple_self_signed(vec!["a".into()]).unwrap();
        let longer = [made.cert.der().as_ref(), &[0]].concat();
        assert_eq!(Certificate::parse(&longer), Err(CertificateError::Format));
    }

    proptest! {
        #[test]
        fn a_damaged_certificate_is_read_without_a_panic(at in 0usize..300, value: u8) {
            let mut der = rcgen::generate_simple_self_signed(vec!["a".into()]).unwrap().cert.der().to_vec();
            let at = at % der.len();
            der[at] = value;
            // Either the changed content, or an error.
            let _ = Certificate::parse(&der);
        }
    }
}
