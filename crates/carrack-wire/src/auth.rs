//! The handshake of a data connection: both ends prove that they hold the session key.
//!
//! The key and the listener's nonce travel over the authenticated control channel. So the dialer speaks
//! first, and the listener reads one message of fixed size from an unauthenticated peer: response (with the
//! dialer's proof) → the listener's proof. Proofs are BLAKE3 keyed hashes of the response: the listener's
//! nonce, the dialer's nonce, and the number of the stream. The bytes are in `docs/formats/wire.md`.
//!
//! One nonce serves all connections to a listener. A replayed response has a valid proof; the listener
//! refuses it because its [`StreamIndex`] is taken.

use std::time::Duration;

/// Bytes of a session key.
pub const KEY_BYTES: usize = 32;

/// Bytes of a nonce.
pub const NONCE_BYTES: usize = 32;

/// Bytes of a proof.
pub const PROOF_BYTES: usize = 32;

/// Bytes of a [`DialerResponse`].
pub const RESPONSE_BYTES: usize = 116;

/// Bytes of a [`DialerResponse`] before its proof.
pub const CLAIM_BYTES: usize = RESPONSE_BYTES - PROOF_BYTES;

/// Bytes of a response up to the end of the listener's nonce: see [`parse_listener_nonce`].
pub const NAMING_BYTES: usize = 52;

const MAGIC: [u8; 8] = *b"carrackd";
const VERSION: u16 = 3;
const DIALER: &[u8] = b"carrack data dialer 3";
const LISTENER: &[u8] = b"carrack data listener 3";
const SESSION_NAME: &[u8] = b"carrack session name 1";

/// 128 bits.
const SESSION_NAME_DIGITS: usize = 32;

/// The secret that both ends of a session share. Never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct SessionKey([u8; KEY_BYTES]);

impl std::fmt::Debug for SessionKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SessionKey(…)")
    }
}

impl SessionKey {
    /// A key from 32 bytes of the system's random source, or from the control channel.
    pub fn new(bytes: [u8; KEY_BYTES]) -> SessionKey {
        SessionKey(bytes)
    }

    /// The key's bytes, for the control channel only.
    pub fn as_bytes(&self) -> &[u8; KEY_BYTES] {
        &self.0
    }

    /// Returns a name of the session: equal at both ends, unique, and without information on the key.
    pub fn session_name(&self) -> String {
        let name = self.prove(SESSION_NAME, &[]);
        name.to_hex()[..SESSION_NAME_DIGITS].to_owned()
    }

    fn prove(&self, side: &[u8], claim: &[u8]) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        hasher.update(side).update(claim);
        hasher.finalize()
    }
}

/// The random value that makes the handshakes of one listener unique. Sent over the control channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListenerNonce([u8; NONCE_BYTES]);

impl ListenerNonce {
    /// A nonce from 32 bytes of the system's random source.
    pub fn new(bytes: [u8; NONCE_BYTES]) -> ListenerNonce {
        ListenerNonce(bytes)
    }

    /// A nonce from the control channel, or `None` for a wrong length.
    pub fn from_slice(bytes: &[u8]) -> Option<ListenerNonce> {
        bytes.try_into().ok().map(ListenerNonce)
    }

    /// The nonce's bytes, for the control channel.
    pub fn as_bytes(&self) -> &[u8; NONCE_BYTES] {
        &self.0
    }
}

/// Reasons to close a data connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DataConnectionAuthError {
    /// The bytes do not belong to this handshake.
    #[error("not a carrack data connection")]
    NotCarrack,
    /// The handshake of another version.
    #[error("a carrack data connection of version {0}, here it is {VERSION}")]
    OtherVersion(u16),
    /// The other end does not hold the session key.
    #[error("the other end does not know the session key")]
    WrongProof,
}

/// Returns true if a connection may be a data connection; `start` may be shorter than [`NAMING_BYTES`].
pub fn may_be_data_connection(start: &[u8]) -> bool {
    let known = start.len().min(MAGIC.len());
    start[..known] == MAGIC[..known]
}

/// Returns the nonce of the listener that a response is for, so that several sessions can share a port. It
/// proves nothing.
pub fn parse_listener_nonce(start: &[u8; NAMING_BYTES]) -> Result<ListenerNonce, DataConnectionAuthError> {
    if start[..8] != MAGIC {
        return Err(DataConnectionAuthError::NotCarrack);
    }
    match u16::from_le_bytes([start[8], start[9]]) {
        VERSION => Ok(ListenerNonce::from_slice(&start[20..]).ok_or(DataConnectionAuthError::NotCarrack)?),
        other => Err(DataConnectionAuthError::OtherVersion(other)),
    }
}

/// The number of a connection among the session's streams. The listener accepts each number once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamIndex {
    /// Counted from 0.
    pub number: u16,
    /// Number of streams that the dialer opens.
    pub count: u16,
}

/// The dialer's message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DialerResponse([u8; RESPONSE_BYTES]);

impl DialerResponse {
    /// A response for the stream `place` of the listener with the nonce `listener`. `nonce` holds fresh
    /// random bytes, `rtt` is the path's round-trip time as the dialer measured it.
    pub fn new(
        key: &SessionKey,
        listener: &ListenerNonce,
        nonce: [u8; NONCE_BYTES],
        place: StreamIndex,
        rtt: Duration,
    ) -> DialerResponse {
        let rtt_us = u32::try_from(rtt.as_micros()).unwrap_or(u32::MAX);
        let mut bytes = [0; RESPONSE_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..10].copy_from_slice(&VERSION.to_le_bytes());
        bytes[10..12].copy_from_slice(&place.number.to_le_bytes());
        bytes[12..14].copy_from_slice(&place.count.to_le_bytes());
        bytes[16..20].copy_from_slice(&rtt_us.to_le_bytes());
        bytes[20..NAMING_BYTES].copy_from_slice(&listener.0);
        bytes[NAMING_BYTES..CLAIM_BYTES].copy_from_slice(&nonce);
        let proof = key.prove(DIALER, &bytes[..CLAIM_BYTES]);
        bytes[CLAIM_BYTES..].copy_from_slice(proof.as_bytes());
        DialerResponse(bytes)
    }

    /// Reads a dialer's message and checks its proof in constant time.
    pub fn verify(
        bytes: &[u8; RESPONSE_BYTES],
        key: &SessionKey,
        listener: &ListenerNonce,
    ) -> Result<DialerResponse, DataConnectionAuthError> {
        let response = DialerResponse(*bytes);
        let named = parse_listener_nonce(bytes.first_chunk().ok_or(DataConnectionAuthError::NotCarrack)?)?;
        if key.prove(DIALER, response.claim()) != bytes[CLAIM_BYTES..] || named != *listener {
            return Err(DataConnectionAuthError::WrongProof);
        }
        Ok(response)
    }

    /// The encoded response.
    pub fn as_bytes(&self) -> &[u8; RESPONSE_BYTES] {
        &self.0
    }

    /// The connection's number among the streams.
    pub fn stream_index(&self) -> StreamIndex {
        StreamIndex { number: self.u16_at(10), count: self.u16_at(12) }
    }

    /// The path's round-trip time.
    pub fn rtt(&self) -> Duration {
        let us = [self.0[16], self.0[17], self.0[18], self.0[19]];
        Duration::from_micros(u32::from_le_bytes(us).into())
    }

    /// The listener's answer: its own proof.
    pub fn listener_proof(&self, key: &SessionKey) -> [u8; PROOF_BYTES] {
        *key.prove(LISTENER, self.claim()).as_bytes()
    }

    /// Checks the listener's proof in constant time.
    pub fn verify_listener(
        &self,
        proof: &[u8; PROOF_BYTES],
        key: &SessionKey,
    ) -> Result<(), DataConnectionAuthError> {
        if key.prove(LISTENER, self.claim()) != *proof {
            return Err(DataConnectionAuthError::WrongProof);
        }
        Ok(())
    }

    /// The bytes that the proof covers. They differ between any two connections, also of different listeners.
    pub fn claim(&self) -> &[u8] {
        &self.0[..CLAIM_BYTES]
    }

    fn u16_at(&self, at: usize) -> u16 {
        u16::from_le_bytes([self.0[at], self.0[at + 1]])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: StreamIndex = StreamIndex { number: 5, count: 8 };
    const RTT: Duration = Duration::from_micros(100_250);
    const LISTENER_NONCE: ListenerNonce = ListenerNonce([1; 32]);

    fn key() -> SessionKey {
        SessionKey::new([7; 32])
    }

    fn ours() -> DialerResponse {
        DialerResponse::new(&key(), &LISTENER_NONCE, [2; 32], PLACE, RTT)
    }

    fn verify(bytes: &[u8; RESPONSE_BYTES]) -> Result<DialerResponse, DataConnectionAuthError> {
        DialerResponse::verify(bytes, &key(), &LISTENER_NONCE)
    }

    #[test]
    fn the_example_of_the_format_document() {
        let response = ours();
        let bytes = response.as_bytes();
        assert_eq!(bytes[..20], *b"carrackd\x03\0\x05\0\x08\0\0\0\x9a\x87\x01\0");
        assert_eq!((&bytes[20..52], &bytes[52..84]), (&[1; 32][..], &[2; 32][..]));
        fn hex(proof: &[u8]) -> String {
            blake3::Hash::from_slice(proof).unwrap().to_hex().to_string()
        }
        assert_eq!(hex(&bytes[84..]), "41209f1f782cd03fec8930032fdf760f40e3bfb2e5525591e3ca908f7695518e");
        let proof = response.listener_proof(&key());
        assert_eq!(hex(&proof), "aee0fd455c21618dff6368f96787e4c87958b8604e20ab4214ef3d4212b79dee");
    }

    #[test]
    fn both_ends_prove_the_key() {
        let sent = ours();
        let seen = verify(sent.as_bytes()).unwrap();
        assert_eq!((seen.stream_index(), seen.rtt()), (PLACE, RTT));
        let proof = seen.listener_proof(&key());
        assert_eq!(sent.verify_listener(&proof, &key()), Ok(()));
    }

    #[test]
    fn a_stranger_proves_nothing() {
        let stranger = DialerResponse::new(&SessionKey::new([8; 32]), &LISTENER_NONCE, [2; 32], PLACE, RTT);
        assert_eq!(verify(stranger.as_bytes()), Err(DataConnectionAuthError::WrongProof));
        assert_eq!(parse_listener_nonce(ours().as_bytes().first_chunk().unwrap()), Ok(LISTENER_NONCE));
        assert!((0..NAMING_BYTES).all(|count| may_be_data_connection(&ours().as_bytes()[..count])));
        assert!(!may_be_data_connection(b"carrackD") && !may_be_data_connection(b"x"));
        let elsewhere = DialerResponse::new(&key(), &ListenerNonce([9; 32]), [2; 32], PLACE, RTT);
        assert_eq!(verify(elsewhere.as_bytes()), Err(DataConnectionAuthError::WrongProof));
        for at in 0..RESPONSE_BYTES {
            let mut changed = *ours().as_bytes();
            changed[at] ^= 1;
            let error = match at {
                0..8 => DataConnectionAuthError::NotCarrack,
                8..10 => DataConnectionAuthError::OtherVersion(u16::from_le_bytes([changed[8], changed[9]])),
                _ => DataConnectionAuthError::WrongProof,
            };
            assert_eq!(verify(&changed), Err(error), "{at}");
        }
        assert_eq!(verify(&[b'G'; RESPONSE_BYTES]), Err(DataConnectionAuthError::NotCarrack));
    }

    #[test]
    fn a_proof_sent_back_is_no_proof() {
        let mut dialers = [0; PROOF_BYTES];
        dialers.copy_from_slice(&ours().as_bytes()[CLAIM_BYTES..]);
        assert_eq!(ours().verify_listener(&dialers, &key()), Err(DataConnectionAuthError::WrongProof));
        let other = DialerResponse::new(&key(), &LISTENER_NONCE, [3; 32], PLACE, RTT);
        let proof = ours().listener_proof(&key());
        assert_eq!(other.verify_listener(&proof, &key()), Err(DataConnectionAuthError::WrongProof));
    }

    #[test]
    fn a_nonce_has_its_length() {
        assert_eq!(ListenerNonce::from_slice(&[1; 32]), Some(LISTENER_NONCE));
        for length in [0, 31, 33, 1000] {
            assert_eq!(ListenerNonce::from_slice(&vec![1; length]), None);
        }
    }

    #[test]
    fn a_round_trip_beyond_the_field_is_the_longest() {
        let slow = DialerResponse::new(&key(), &LISTENER_NONCE, [2; 32], PLACE, Duration::from_secs(100_000));
        assert_eq!(slow.rtt(), Duration::from_micros(u32::MAX.into()));
    }
}
