//! The key schedule: from the common secrets of both ends to the key of every object. Pure.
//!
//! ```text
//! session key (32 random bytes of the caller, sent over the control channel)
//! ‖ TLS exporter of the control channel (RFC 8446 §7.5), if it is one TLS connection of both ends
//!      │ HKDF-Extract (RFC 5869), salt = SHA-256 of the agreed values: version, specification, lanes
//!      ▼
//!     root ── Expand "carrack auth" ──► key of the proofs of data connections (carrack-wire `auth`)
//!      │
//!      └── Expand "carrack stream" ‖ the connection's claim (its number, both nonces) ──► traffic secret 0
//!                         traffic secret n ── "key" ──► AEAD key n
//!                                          ── "iv" ──► IV n; nonce = IV xor object number (RFC 8446 §5.3)
//!                                          ── "next" ──► traffic secret n + 1, after [`super::LIMITS`]
//! ```
//!
//! A data connection carries objects in one direction only, so one secret for each connection is one for each
//! direction.

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Prk, Salt};
use carrack_wire::auth::{DialerResponse, KEY_BYTES, SessionKey};

/// Bytes of a TLS exporter's value and of a traffic secret.
pub const SECRET_BYTES: usize = 32;

/// The label under which both ends ask their TLS connection for its exporter (RFC 5705, RFC 8446 §7.5).
pub const EXPORTER_LABEL: &[u8] = b"EXPORTER-carrack-session";

/// The number of bytes to expand to.
struct DerivedKeyLength(usize);

impl KeyType for DerivedKeyLength {
    fn len(&self) -> usize {
        self.0
    }
}

/// HKDF-Expand. `info` is the concatenation of its parts, of which all but the last have a fixed length.
fn expand<const N: usize>(secret: &Prk, info: &[&[u8]]) -> [u8; N] {
    let mut bytes = [0; N];
    let filled = secret.expand(info, DerivedKeyLength(N)).and_then(|okm| okm.fill(&mut bytes));
    filled.expect("HKDF-SHA-256 gives up to 8,160 bytes");
    bytes
}

/// The keys of one session. Never printed.
pub struct SessionKeys {
    root: Prk,
    auth: SessionKey,
}

impl std::fmt::Debug for SessionKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SessionKeys(…)")
    }
}

impl SessionKeys {
    /// Derives the keys from the session key, the TLS exporter if there is one, and the agreed values: if the
    /// two ends differ in any value, none of their keys match.
    pub fn derive(key: &SessionKey, exporter: Option<&[u8; SECRET_BYTES]>, agreed: &[u8]) -> SessionKeys {
        let mut material = key.as_bytes().to_vec();
        material.extend(exporter.into_iter().flatten());
        let root = Salt::new(HKDF_SHA256, digest(&SHA256, agreed).as_ref()).extract(&material);
        let auth = expand::<KEY_BYTES>(&root, &[b"carrack auth"]);
        SessionKeys { auth: SessionKey::new(auth), root }
    }

    /// The key that both ends of a data connection prove to each other.
    pub fn auth(&self) -> &SessionKey {
        &self.auth
    }

    /// The secret of the data connection that began with this response.
    pub fn stream_secret(&self, response: &DialerResponse) -> TrafficSecret {
        TrafficSecret(expand(&self.root, &[b"carrack stream", response.claim()]))
    }
}

/// The secret that the keys of a connection's objects are derived from, until the next secret replaces it.
#[derive(Clone)]
pub struct TrafficSecret([u8; SECRET_BYTES]);

impl std::fmt::Debug for TrafficSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TrafficSecret(…)")
    }
}

impl TrafficSecret {
    /// A secret from its bytes, for tests of transports.
    pub fn new(bytes: [u8; SECRET_BYTES]) -> TrafficSecret {
        TrafficSecret(bytes)
    }

    pub(super) fn key<const N: usize>(&self) -> [u8; N] {
        self.expand(b"key")
    }

    pub(super) fn iv<const N: usize>(&self) -> [u8; N] {
        self.expand(b"iv")
    }

    pub(super) fn next(&self) -> TrafficSecret {
        TrafficSecret(self.expand(b"next"))
    }

    fn expand<const N: usize>(&self, label: &[u8]) -> [u8; N] {
        expand(&Prk::new_less_safe(HKDF_SHA256, &self.0), &[label])
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use carrack_wire::auth::{ListenerNonce, StreamIndex};

    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn response(number: u16) -> DialerResponse {
        let place = StreamIndex { number, count: 8 };
        let rtt = Duration::from_micros(100_250);
        DialerResponse::new(&SessionKey::new([7; 32]), &ListenerNonce::new([1; 32]), [2; 32], place, rtt)
    }

    /// RFC 5869, test case 1, through the same calls.
    #[test]
    fn hkdf_is_the_rfcs() {
        let salt: Vec<u8> = (0..=0x0c).collect();
        let info: Vec<u8> = (0xf0..=0xf9).collect();
        let prk = Salt::new(HKDF_SHA256, &salt).extract(&[0x0b; 22]);
        let okm = expand::<42>(&prk, &[&info]);
        assert_eq!(
            hex(&okm),
            "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865"
        );
    }

    /// The vectors of docs/design/security.md, made by an independent program.
    #[test]
    fn the_vectors_of_the_document() {
        let keys = SessionKeys::derive(&SessionKey::new([7; 32]), Some(&[9; 32]), b"agreed");
        assert_eq!(
            hex(keys.auth().as_bytes()),
            "a86f0d63fa966ea464a91027b513a477c1b5b2d4023c1a50b2ebe182cf585f29"
        );
        let secret = keys.stream_secret(&response(5));
        assert_eq!(hex(&secret.0), "deaed7cb41e662a1d0b5586567c3e89d406bff95d52681fb55ce4ed62b200008");
        assert_eq!(
            hex(&secret.key::<32>()),
            "b45fee0f061e2045a26dafa115f17d43e60149966776a3b43a9bb3635637c1e5"
        );
        assert_eq!(hex(&secret.iv::<12>()), "8245e2734defb4c4d9259c4c");
        assert_eq!(hex(&secret.next().0), "e051d5e234ed13fe782ed352cce0fac482cabfbca33cf5aa74e40591e9ca0fc5");
    }

    #[test]
    fn everything_that_goes_in_changes_what_comes_out() {
        let key = SessionKey::new([7; 32]);
        fn secret(keys: &SessionKeys, number: u16) -> [u8; SECRET_BYTES] {
            keys.stream_secret(&response(number)).0
        }
        let base = SessionKeys::derive(&key, Some(&[9; 32]), b"agreed");
        let others = [
            SessionKeys::derive(&SessionKey::new([8; 32]), Some(&[9; 32]), b"agreed"),
            SessionKeys::derive(&key, Some(&[8; 32]), b"agreed"),
            SessionKeys::derive(&key, None, b"agreed"),
            SessionKeys::derive(&key, Some(&[9; 32]), b"agree"),
        ];
        for other in &others {
            assert_ne!(base.auth(), other.auth());
            assert_ne!(secret(&base, 5), secret(other, 5));
        }
        assert_ne!(secret(&base, 5), secret(&base, 4));
    }
}
