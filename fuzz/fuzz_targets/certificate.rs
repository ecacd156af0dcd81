//! What a certificate says, and who its owner is. Input: the DER of a certificate.
#![no_main]

use std::sync::LazyLock;

use carrack_fuzz::site::Site;
use carrack_trust::{
    SubjectAlternativeName, Certificate, CertificateFingerprint, ProvingCredential, ProvedIdentity, IdentityError, AuthorizedKeys, check_identity_name,
};
use libfuzzer_sys::fuzz_target;
use rustls::pki_types::CertificateDer;

/// Nobody's keys: a certificate that its owner signed is nobody's.
static NO_KEYS: LazyLock<AuthorizedKeys> = LazyLock::new(AuthorizedKeys::default);

/// Somebody's, which no mutation will meet.
static KEYS: LazyLock<AuthorizedKeys> = LazyLock::new(|| AuthorizedKeys::parse(Site::SSH_KEY.as_bytes()).0);

fuzz_target!(|data: &[u8]| {
    let chain = [CertificateDer::from(data)];
    let Ok(certificate) = Certificate::parse(data) else {
        assert!(matches!(ProvedIdentity::of_peer(&chain, &NO_KEYS), Err(IdentityError::Certificate(_))));
        return;
    };
    assert_eq!(certificate.fingerprint, CertificateFingerprint::of(data));
    assert_eq!(Certificate::parse(&[data, b"x"].concat()), Err(carrack_trust::CertificateError::Format));
    // A name is one of those that the certificate has, and can be one.
    let names: Vec<&str> = certificate
        .names
        .iter()
        .filter_map(|name| match name {
            SubjectAlternativeName::Uri(name) | SubjectAlternativeName::Dns(name) | SubjectAlternativeName::Email(name) => {
                Some(&name[..])
            }
            SubjectAlternativeName::Ip(_) | SubjectAlternativeName::Other => None,
        })
        .chain(certificate.common_names.iter().map(String::as_str))
        .collect();
    for keys in [&*NO_KEYS, &*KEYS] {
        match ProvedIdentity::of_peer(&chain, keys) {
            Ok(ProvedIdentity { name, how: ProvingCredential::Certificate { fingerprint, serial } }) => {
                assert!(
                    !certificate.is_self_issued() && names.contains(&name.as_str()),
                    "{name:?} of {names:?}"
                );
                assert_eq!(check_identity_name(&name), Ok(()));
                assert_eq!(
                    (fingerprint, serial),
                    (certificate.fingerprint.to_string(), certificate.serial.clone())
                );
            }
            Ok(ProvedIdentity { name, how: ProvingCredential::Key { .. } }) => {
                assert!(
                    certificate.is_self_issued() && keys.find(&certificate.public_key).is_some(),
                    "{name}"
                );
            }
            Ok(other) => panic!("{other:?} by a certificate"),
            Err(IdentityError::UnknownKey) => assert!(certificate.is_self_issued()),
            Err(IdentityError::Nameless | IdentityError::Name(_)) => assert!(!certificate.is_self_issued()),
            Err(error) => panic!("{error}"),
        }
    }
    // What is shown to people.
    let shown = format!("{} {:?} {:?}", certificate.uses, certificate.names, certificate.fingerprint);
    assert!(!shown.is_empty());
});
