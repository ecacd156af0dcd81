//! The seal of an object (AEAD, RFC 5116): made in place before sending, opened in place after the arrival.
//!
//! | level | the bytes on the wire | the tag covers |
//! | --- | --- | --- |
//! | private | the header; the body encrypted; the tag | header and body |
//! | safe | the header; the body; the tag | header and body |
//!
//! Objects of a connection are numbered from 0. The number is in the nonce and is not sent, so that a
//! repeated, missing or exchanged object does not open. `docs/design/security.md` has the reasons.

mod keys;

use aws_lc_rs::aead::{
    self, AES_128_GCM, AES_256_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey,
};
use aws_lc_rs::constant_time::verify_slices_are_equal;
use carrack_model::{ProtectionLevel, SealCipher};
use carrack_wire::HEADER_BYTES;

pub use keys::{EXPORTER_LABEL, SECRET_BYTES, SessionKeys, TrafficSecret};

/// Bytes of a tag, for all three algorithms.
pub const TAG_BYTES: usize = 16;

/// A seal's tag.
pub type SealTag = [u8; TAG_BYTES];

/// The amount of data under one key.
#[derive(Clone, Copy, Debug)]
pub struct SealKeyLimits {
    /// Bytes of headers and bodies.
    pub bytes: u64,
    /// Objects.
    pub objects: u64,
}

/// 2^36 bytes are 2^32 blocks of AES, which give a distinguisher an advantage of about blocks²/2^129 = 2^-65;
/// TLS 1.3 allows 2^24.5 full records for 2^-60 (RFC 8446 §5.5). A forger has one try: a broken seal ends the
/// session.
pub const LIMITS: SealKeyLimits = SealKeyLimits { bytes: 1 << 36, objects: 1 << 24 };

/// The seal of an object is broken: the object was changed, repeated, reordered or lost, or sealed with
/// another key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the seal of an object does not hold: it was changed, repeated or left out on its way")]
pub struct SealBroken;

/// One end's state of a connection's seals. Both ends count alike, so both change the key at the same object.
pub struct ConnectionCipherState {
    is_private: bool,
    cipher: SealCipher,
    limits: SealKeyLimits,
    secret: TrafficSecret,
    key: LessSafeKey,
    iv: [u8; NONCE_LEN],
    /// Objects sealed or opened with this key.
    objects: u64,
    bytes: u64,
}

impl std::fmt::Debug for ConnectionCipherState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Seal({}, object {})", self.cipher, self.objects)
    }
}

impl ConnectionCipherState {
    /// A seal with this secret; `None` at [`ProtectionLevel::Clear`].
    pub fn new(
        secret: TrafficSecret,
        protection: ProtectionLevel,
        cipher: SealCipher,
    ) -> Option<ConnectionCipherState> {
        ConnectionCipherState::with_limits(secret, protection, cipher, LIMITS)
    }

    fn with_limits(
        secret: TrafficSecret,
        protection: ProtectionLevel,
        cipher: SealCipher,
        limits: SealKeyLimits,
    ) -> Option<ConnectionCipherState> {
        let is_private = protection == ProtectionLevel::Private;
        let (key, iv) = (key_of(&secret, cipher), secret.iv());
        let seal =
            ConnectionCipherState { is_private, cipher, limits, secret, key, iv, objects: 0, bytes: 0 };
        protection.seals().then_some(seal)
    }

    /// Returns true if the seal encrypts.
    pub fn encrypts(&self) -> bool {
        self.is_private
    }

    /// Seals an object's body in place and returns the tag.
    pub fn seal(&mut self, header: &[u8; HEADER_BYTES], body: &mut [u8]) -> SealTag {
        let nonce = self.next_nonce(body.len());
        if self.is_private {
            tag_of(self.key.seal_in_place_separate_tag(nonce, Aad::from(header), body))
        } else {
            self.tag_of_plain(nonce, header, body)
        }
    }

    /// Opens the next object's seal in place.
    ///
    /// # Errors
    /// The seal is broken. The body is then garbage, and the connection unusable.
    pub fn open(
        &mut self,
        header: &[u8; HEADER_BYTES],
        body: &mut [u8],
        tag: &SealTag,
    ) -> Result<(), SealBroken> {
        let nonce = self.next_nonce(body.len());
        if self.is_private {
            let opened = self.key.open_in_place_separate_tag(nonce, Aad::from(header), tag, body);
            opened.map(|_| ()).map_err(|_| SealBroken)
        } else {
            let expected = self.tag_of_plain(nonce, header, body);
            verify_slices_are_equal(&expected, tag).map_err(|_| SealBroken)
        }
    }

    /// A readable body is the associated data, and the header is the plaintext, as the library takes one
    /// piece of each. The header's ciphertext is not sent: the other end computes it again, and with it the
    /// tag.
    fn tag_of_plain(&self, nonce: Nonce, header: &[u8; HEADER_BYTES], body: &[u8]) -> SealTag {
        let mut header = *header;
        tag_of(self.key.seal_in_place_separate_tag(nonce, Aad::from(body), &mut header))
    }

    /// The nonce of the next object. Changes the key first if it has reached its limits.
    fn next_nonce(&mut self, body_len: usize) -> Nonce {
        let bytes = (HEADER_BYTES + body_len) as u64;
        if self.objects > 0 && (self.objects >= self.limits.objects || self.bytes + bytes > self.limits.bytes)
        {
            self.secret = self.secret.next();
            (self.key, self.iv) = (key_of(&self.secret, self.cipher), self.secret.iv());
            (self.objects, self.bytes) = (0, 0);
        }
        let mut nonce = self.iv;
        for (byte, number) in nonce[NONCE_LEN - 8..].iter_mut().zip(self.objects.to_be_bytes()) {
            *byte ^= number;
        }
        self.objects += 1;
        self.bytes += bytes;
        Nonce::assume_unique_for_key(nonce)
    }
}

fn key_of(secret: &TrafficSecret, cipher: SealCipher) -> LessSafeKey {
    let key = match cipher {
        SealCipher::Aes256Gcm => UnboundKey::new(&AES_256_GCM, &secret.key::<32>()),
        SealCipher::Aes128Gcm => UnboundKey::new(&AES_128_GCM, &secret.key::<16>()),
        SealCipher::ChaCha20Poly1305 => UnboundKey::new(&CHACHA20_POLY1305, &secret.key::<32>()),
    };
    LessSafeKey::new(key.expect("a key of the algorithm's length"))
}

fn tag_of(sealed: Result<aead::Tag, aws_lc_rs::error::Unspecified>) -> SealTag {
    // An object is far smaller than the 2^36 bytes that GCM can take.
    let tag = sealed.expect("an object within the algorithm's limits");
    tag.as_ref().try_into().expect("a tag of 16 bytes")
}

#[cfg(test)]
mod tests {
    use super::*;

    const CIPHERS: [SealCipher; 3] =
        [SealCipher::Aes256Gcm, SealCipher::Aes128Gcm, SealCipher::ChaCha20Poly1305];
    const LEVELS: [ProtectionLevel; 2] = [ProtectionLevel::Safe, ProtectionLevel::Private];

    fn pair(
        level: ProtectionLevel,
        cipher: SealCipher,
        limits: SealKeyLimits,
    ) -> (ConnectionCipherState, ConnectionCipherState) {
        let ends = [(); 2].map(|()| {
            ConnectionCipherState::with_limits(TrafficSecret::new([5; 32]), level, cipher, limits).unwrap()
        });
        ends.into()
    }

    fn all() -> impl Iterator<Item = (ConnectionCipherState, ConnectionCipherState)> {
        LEVELS.into_iter().flat_map(|level| CIPHERS.map(|cipher| pair(level, cipher, LIMITS)))
    }

    #[test]
    fn what_was_sealed_opens() {
        for (mut source, mut sink) in all() {
            for len in [0, 1, 15, 16, 4096, 100_000] {
                let header = [len as u8; HEADER_BYTES];
                let mut body: Vec<u8> = (0..len).map(|i| i as u8).collect();
                let plain = body.clone();
                let tag = source.seal(&header, &mut body);
                assert_eq!(body != plain, source.is_private && len > 0, "only private hides");
                assert_eq!(sink.open(&header, &mut body, &tag), Ok(()));
                assert_eq!(body, plain);
            }
        }
    }

    #[test]
    fn every_changed_bit_is_noticed() {
        for (mut source, _) in all() {
            let header = [3; HEADER_BYTES];
            let mut body = vec![7; 33];
            let tag = source.seal(&header, &mut body);
            for at in 0..HEADER_BYTES + body.len() + TAG_BYTES {
                let (mut header, mut body, mut tag) = (header, body.clone(), tag);
                let bytes = header.iter_mut().chain(&mut body).chain(&mut tag);
                *bytes.into_iter().nth(at).unwrap() ^= 1 << (at % 8);
                let (_, mut sink) = pair(level_of(&source), source.cipher, LIMITS);
                assert_eq!(sink.open(&header, &mut body, &tag), Err(SealBroken), "{source:?} byte {at}");
            }
        }
    }

    fn level_of(seal: &ConnectionCipherState) -> ProtectionLevel {
        if seal.is_private { ProtectionLevel::Private } else { ProtectionLevel::Safe }
    }

    fn opens(sealed: &[(Vec<u8>, SealTag)], order: &[usize], mut sink: ConnectionCipherState) -> bool {
        order.iter().all(|&i| {
            let (mut body, tag) = sealed[i].clone();
            sink.open(&[1; HEADER_BYTES], &mut body, &tag).is_ok()
        })
    }

    #[test]
    fn objects_open_once_and_in_order() {
        for (mut source, _) in all() {
            let header = [1; HEADER_BYTES];
            let sealed: Vec<_> = (0..3u8)
                .map(|i| {
                    let mut body = vec![i; 100];
                    let tag = source.seal(&header, &mut body);
                    (body, tag)
                })
                .collect();
            for (order, is_right) in [
                (&[0, 1, 2][..], true),
                (&[1], false),
                (&[0, 0], false),
                (&[0, 2], false),
                (&[1, 0], false),
                (&[0, 1, 1], false),
                (&[2, 1, 0], false),
            ] {
                let (_, sink) = pair(level_of(&source), source.cipher, LIMITS);
                assert_eq!(opens(&sealed, order, sink), is_right, "{order:?}");
            }
        }
    }

    #[test]
    fn another_secret_level_or_cipher_does_not_open() {
        let header = [1; HEADER_BYTES];
        let (mut source, _) = pair(ProtectionLevel::Private, SealCipher::Aes256Gcm, LIMITS);
        let mut body = vec![9; 64];
        let tag = source.seal(&header, &mut body);
        let other = ConnectionCipherState::new(
            TrafficSecret::new([6; 32]),
            ProtectionLevel::Private,
            SealCipher::Aes256Gcm,
        );
        let (_, safe) = pair(ProtectionLevel::Safe, SealCipher::Aes256Gcm, LIMITS);
        let (_, chacha) = pair(ProtectionLevel::Private, SealCipher::ChaCha20Poly1305, LIMITS);
        for mut sink in [other.unwrap(), safe, chacha] {
            assert_eq!(sink.open(&header, &mut body.clone(), &tag), Err(SealBroken));
        }
        assert!(
            ConnectionCipherState::new(
                TrafficSecret::new([6; 32]),
                ProtectionLevel::Clear,
                SealCipher::Aes256Gcm
            )
            .is_none()
        );
    }

    /// No two objects of a connection share a key and a nonce, even after a change of the key, and both ends
    /// change together.
    #[test]
    fn keys_change_in_time_and_nonces_never_come_again() {
        for limits in
            [SealKeyLimits { bytes: 1 << 30, objects: 4 }, SealKeyLimits { bytes: 1000, objects: 1 << 20 }]
        {
            let (mut source, mut sink) = pair(ProtectionLevel::Private, SealCipher::Aes256Gcm, limits);
            let header = [1; HEADER_BYTES];
            let mut seen = std::collections::HashSet::new();
            for _ in 0..50 {
                let mut body = vec![0; 200];
                let tag = source.seal(&header, &mut body);
                assert!(seen.insert(body.clone()), "the same keystream twice");
                assert_eq!(sink.open(&header, &mut body, &tag), Ok(()));
            }
            assert!(source.objects <= 4, "{source:?}");
        }
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The first objects of docs/design/security.md's vectors.
    #[test]
    fn the_vectors_of_the_document() {
        let header: [u8; HEADER_BYTES] = std::array::from_fn(|i| i as u8);
        for (level, cipher, body_hex, tag_hex) in [
            (
                ProtectionLevel::Private,
                SealCipher::Aes256Gcm,
                "548fc521c59be7",
                "e8ce77a7f3c74c200ac21d45c12b1dcf",
            ),
            (
                ProtectionLevel::Private,
                SealCipher::Aes128Gcm,
                "846b52427b1bd6",
                "f7068c6c5884c89acd25acf2d0cbaa69",
            ),
            (
                ProtectionLevel::Private,
                SealCipher::ChaCha20Poly1305,
                "e9bf40a1f9af41",
                "716e046ec08bd3e3d0ae0af9647555b3",
            ),
            (
                ProtectionLevel::Safe,
                SealCipher::Aes256Gcm,
                "6361727261636b",
                "e40a071f7420c84a4d3e2cc1532d59e2",
            ),
        ] {
            let (mut source, _) = pair(level, cipher, LIMITS);
            let mut first = *b"first";
            source.seal(&header, &mut first);
            let mut body = *b"carrack";
            let tag = source.seal(&header, &mut body);
            assert_eq!((hex(&body).as_str(), hex(&tag).as_str()), (body_hex, tag_hex), "{level} {cipher}");
        }
    }
}
