//! A public key as in certificates: the DER of its `SubjectPublicKeyInfo` (RFC 5280, 4.1.2.7).
//!
//! The files of this crate may hold two kinds: Ed25519 (RFC 8410) and ECDSA on P-256 (RFC 5480).

use ssh_key::public::{EcdsaPublicKey, KeyData};

/// The DER in front of an Ed25519 key's 32 bytes.
const ED25519_HEAD: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];

/// The DER in front of a P-256 key's 65 bytes (an uncompressed point).
const P256_HEAD: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86,
    0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];
const ED25519_BYTES: usize = 32;
const P256_BYTES: usize = 65;

/// The signature algorithm of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeySignatureAlgorithm {
    /// Ed25519 (RFC 8032).
    Ed25519,
    /// ECDSA on the curve P-256 with SHA-256 (FIPS 186-5).
    P256,
}

/// A public key of one of the two kinds.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PublicKey {
    spki: Vec<u8>,
}

impl PublicKey {
    /// The key of a `SubjectPublicKeyInfo`, if its kind is known.
    pub fn from_spki(spki: &[u8]) -> Option<PublicKey> {
        let key = PublicKey { spki: spki.to_vec() };
        let is_ed25519 = spki.starts_with(&ED25519_HEAD) && spki.len() == ED25519_HEAD.len() + ED25519_BYTES;
        // 4: the point's two coordinates follow (SEC 1, 2.3.3).
        let is_p256 = spki.strip_prefix(&P256_HEAD).is_some_and(|p| p.len() == P256_BYTES && p[0] == 4);
        (is_ed25519 || is_p256).then_some(key)
    }

    /// The key in this data of an ssh key.
    pub(crate) fn from_ssh(data: &KeyData) -> Option<PublicKey> {
        match data {
            KeyData::Ed25519(key) => PublicKey::from_spki(&[&ED25519_HEAD, &key.0[..]].concat()),
            KeyData::Ecdsa(EcdsaPublicKey::NistP256(point)) => {
                PublicKey::from_spki(&[&P256_HEAD, point.as_bytes()].concat())
            }
            _ => None,
        }
    }

    /// The key's kind.
    pub fn kind(&self) -> KeySignatureAlgorithm {
        if self.spki.starts_with(&ED25519_HEAD) {
            KeySignatureAlgorithm::Ed25519
        } else {
            KeySignatureAlgorithm::P256
        }
    }

    /// The DER of the key's `SubjectPublicKeyInfo`.
    pub fn spki(&self) -> &[u8] {
        &self.spki
    }

    /// The bytes of the key without DER: 32 of Ed25519, the point's 65 of P-256.
    pub fn raw(&self) -> &[u8] {
        match self.kind() {
            KeySignatureAlgorithm::Ed25519 => &self.spki[ED25519_HEAD.len()..],
            KeySignatureAlgorithm::P256 => &self.spki[P256_HEAD.len()..],
        }
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_ED25519, PublicKeyData};

    use super::*;

    fn spki(algorithm: &'static rcgen::SignatureAlgorithm) -> Vec<u8> {
        KeyPair::generate_for(algorithm).unwrap().subject_public_key_info()
    }

    #[test]
    fn both_kinds_are_known_and_no_other() {
        for (algorithm, kind, bytes) in [
            (&PKCS_ED25519, KeySignatureAlgorithm::Ed25519, 32),
            (&PKCS_ECDSA_P256_SHA256, KeySignatureAlgorithm::P256, 65),
        ] {
            let key = PublicKey::from_spki(&spki(algorithm)).unwrap();
            assert_eq!((key.kind(), key.raw().len()), (kind, bytes));
        }
        assert_eq!(PublicKey::from_spki(&spki(&PKCS_ECDSA_P384_SHA384)), None);
    }

    #[test]
    fn a_key_of_another_length_is_none() {
        let whole = spki(&PKCS_ED25519);
        assert_eq!(PublicKey::from_spki(&whole[..whole.len() - 1]), None);
        assert_eq!(PublicKey::from_spki(&[&whole[..], &[0]].concat()), None);
        assert_eq!(PublicKey::from_spki(&[]), None);
    }
}
