//! Making keys, certificates and lists of revoked certificates (RFC 5280): values in, PEM out, no files.

use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use aws_lc_rs::rand;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256,
    PKCS_ED25519, RevocationReason, RevokedCertParams, SanType, SerialNumber, SigningKey,
};
use rustls::pki_types::{CertificateDer, DnsName};
use time::OffsetDateTime;
use x509_parser::prelude::{CertificateRevocationList, FromDer, X509Certificate};

use super::error::AuthorityError;
use super::index::IssuedCertificateRecord;
use super::{AUTHORITY_LIFETIME, CertificateUse, seconds};
use crate::certificate::{Certificate, hex};
use crate::name::check_identity_name;
use crate::pem;
use crate::public_key::KeySignatureAlgorithm;

/// The longest subject of a client's certificate, in bytes: X.520's bound of a common name.
pub const MAX_SUBJECT_BYTES: usize = 64;

/// Certificates are valid from this time before they were made, for hosts whose clocks are behind.
const BACKDATED: Duration = Duration::from_secs(300);

/// A key with its certificate.
pub(super) struct CertificateWithKey {
    certificate: rcgen::Certificate,
    key: KeyPair,
    not_after_s: i64,
}

impl CertificateWithKey {
    pub fn key(&self) -> &KeyPair {
        &self.key
    }

    pub fn key_pem(&self) -> String {
        self.key.serialize_pem()
    }

    pub fn der(&self) -> &CertificateDer<'static> {
        self.certificate.der()
    }

    pub fn certificate_pem(&self) -> String {
        self.certificate.pem()
    }

    pub fn certificate(&self) -> Result<Certificate, AuthorityError> {
        Ok(Certificate::parse(self.der())?)
    }

    pub fn not_after(&self) -> i64 {
        self.not_after_s
    }
}

/// A new key.
pub(super) fn generate(kind: KeySignatureAlgorithm) -> Result<KeyPair, AuthorityError> {
    Ok(KeyPair::generate_for(match kind {
        KeySignatureAlgorithm::Ed25519 => &PKCS_ED25519,
        KeySignatureAlgorithm::P256 => &PKCS_ECDSA_P256_SHA256,
    })?)
}

/// X.520's serialNumber attribute, which tells subjects of one name apart (2.5.4.5).
const NAME_SERIAL: [u64; 4] = [2, 5, 4, 5];

/// An authority that may sign end certificates, but no other authorities. Its name has a random part:
/// verifiers find lists by the issuer's name, so an authority and its successor must not share a name.
pub(super) fn make_authority(
    name: &str,
    kind: KeySignatureAlgorithm,
    now: SystemTime,
) -> Result<CertificateWithKey, AuthorityError> {
    check_subject(name)?;
    let not_after_s = seconds(now + AUTHORITY_LIFETIME);
    let mut params = params(name, now, not_after_s)?;
    params.distinguished_name.push(DnType::CustomDnType(NAME_SERIAL.into()), hex(&random_serial()?[..8]));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let key = generate(kind)?;
    Ok(CertificateWithKey { certificate: params.self_signed(&key)?, key, not_after_s })
}

/// A certificate for a key of the authority's kind.
pub(super) fn make_certificate(
    issuer: &Issuer<'_, impl SigningKey>,
    name: &str,
    purpose: &CertificateUse,
    now: SystemTime,
    not_after_s: i64,
) -> Result<CertificateWithKey, AuthorityError> {
    let mut params = match purpose {
        CertificateUse::Client { subject } => {
            check_subject(subject)?;
            params(subject, now, not_after_s)?
        }
        CertificateUse::Server { names } => {
            let mut params = params(&name[..name.len().min(MAX_SUBJECT_BYTES)], now, not_after_s)?;
            params.subject_alt_names = host_names(names)?;
            params
        }
    };
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![match purpose {
        CertificateUse::Server { .. } => ExtendedKeyUsagePurpose::ServerAuth,
        CertificateUse::Client { .. } => ExtendedKeyUsagePurpose::ClientAuth,
    }];
    params.use_authority_key_identifier_extension = true;
    let key = KeyPair::generate_for(issuer.key().algorithm())?;
    Ok(CertificateWithKey { certificate: params.signed_by(&key, issuer)?, key, not_after_s })
}

/// The list of revoked certificates. Its number grows with every new entry. It is valid until the authority
/// ends: the small CA does not publish an unchanged list again every week.
pub(super) fn make_revocation_list(
    issuer: &Issuer<'_, impl SigningKey>,
    entries: &[IssuedCertificateRecord],
    now: SystemTime,
    not_after_s: i64,
) -> Result<String, AuthorityError> {
    let revoked: Vec<_> = entries.iter().filter_map(revocation).collect::<Result<_, _>>()?;
    let list = CertificateRevocationListParams {
        this_update: moment(seconds(now))?,
        next_update: moment(not_after_s)?,
        crl_number: SerialNumber::from(revoked.len() as u64 + 1),
        issuing_distribution_point: None,
        revoked_certs: revoked,
        key_identifier_method: KeyIdMethod::Sha256,
    };
    Ok(list.signed_by(issuer)?.pem()?)
}

/// The revoked serial numbers of a list, with the time in seconds since 1970. The error is a text with the
/// reason.
pub(super) fn revocations(list: &[u8], authority: &CertificateDer<'_>) -> Result<Vec<(String, i64)>, String> {
    let lists = pem::revocation_lists(list).map_err(|error| error.to_string())?;
    let [list] = &lists[..] else { return Err("it is not one list of revoked certificates".to_owned()) };
    let (_, list) = CertificateRevocationList::from_der(list).map_err(|error| error.to_string())?;
    let (_, authority) = X509Certificate::from_der(authority).map_err(|error| error.to_string())?;
    list.verify_signature(authority.public_key())
        .map_err(|_| "the authority has not signed it".to_owned())?;
    let revoked = list.iter_revoked_certificates();
    Ok(revoked
        .map(|one| (hex(&one.user_certificate.to_bytes_be()), one.revocation_date.timestamp()))
        .collect())
}

fn params(common_name: &str, now: SystemTime, not_after_s: i64) -> Result<CertificateParams, AuthorityError> {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common_name);
    params.not_before = moment(seconds(now).saturating_sub(BACKDATED.as_secs() as i64).max(0))?;
    params.not_after = moment(not_after_s)?;
    params.serial_number = Some(SerialNumber::from_slice(&random_serial()?));
    Ok(params)
}

/// 126 random bits, always of the same length and never negative.
fn random_serial() -> Result<[u8; 16], AuthorityError> {
    let mut serial = [0; 16];
    rand::fill(&mut serial).map_err(|_| AuthorityError::Random)?;
    serial[0] = serial[0] & 0x3f | 0x40;
    Ok(serial)
}

fn check_subject(subject: &str) -> Result<(), AuthorityError> {
    check_identity_name(subject)?;
    if subject.len() > MAX_SUBJECT_BYTES { Err(AuthorityError::SubjectTooLong) } else { Ok(()) }
}

fn host_names(names: &[String]) -> Result<Vec<SanType>, AuthorityError> {
    if names.is_empty() {
        return Err(AuthorityError::NoHostName);
    }
    names.iter().map(|name| host_name(name)).collect()
}

fn host_name(name: &str) -> Result<SanType, AuthorityError> {
    if let Ok(address) = name.parse::<IpAddr>() {
        return Ok(SanType::IpAddress(address));
    }
    DnsName::try_from(name).map_err(|_| AuthorityError::HostName(name.to_owned()))?;
    let lower_case = name.to_ascii_lowercase().try_into();
    lower_case.map(SanType::DnsName).map_err(|_| AuthorityError::HostName(name.to_owned()))
}

fn revocation(entry: &IssuedCertificateRecord) -> Option<Result<RevokedCertParams, AuthorityError>> {
    entry.revoked_s.map(|revoked_s| revoked_params(&entry.serial, revoked_s))
}

fn revoked_params(serial: &str, revoked_s: i64) -> Result<RevokedCertParams, AuthorityError> {
    Ok(RevokedCertParams {
        serial_number: SerialNumber::from_slice(&parse_hex(serial)?),
        revocation_time: moment(revoked_s)?,
        reason_code: Some(RevocationReason::Unspecified),
        invalidity_date: None,
    })
}

fn parse_hex(digits: &str) -> Result<Vec<u8>, AuthorityError> {
    let pairs = digits.as_bytes().chunks(2).map(|pair| {
        let pair = str::from_utf8(pair).ok().filter(|pair| pair.len() == 2);
        pair.and_then(|pair| u8::from_str_radix(pair, 16).ok())
    });
    pairs.collect::<Option<_>>().ok_or_else(|| {
        AuthorityError::damaged(super::INDEX, format!("{digits:?} is no certificate's number"))
    })
}

fn moment(seconds: i64) -> Result<OffsetDateTime, AuthorityError> {
    OffsetDateTime::from_unix_timestamp(seconds).map_err(|error| AuthorityError::damaged(super::INDEX, error))
}
