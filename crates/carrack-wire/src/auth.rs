//! The handshake of a data connection: both ends prove that they hold the session key.
//!
//! The listener speaks first, so that nothing has to be read from a stranger beyond one message of fixed size:
//! challenge → response (with the dialer's proof) → the listener's proof. Proofs are BLAKE3 keyed hashes over both
//! nonces; the key came over the authenticated control channel. The bytes are in `docs/formats/wire.md`.

/// Bytes of a session key, and of a nonce and a proof.
pub const KEY_BYTES: usize = 32;

/// Bytes of a [`Challenge`].
pub const CHALLENGE_BYTES: usize = 48;

/// Bytes of a [`Response`].
pub const RESPONSE_BYTES: usize = 72;

const MAGIC: [u8; 8] = *b"carrackd";
const VERSION: u16 = 1;
const DIALER: &[u8] = b"carrack data dialer 1";
const LISTENER: &[u8] = b"carrack data listener 1";

/// The secret that the two ends of one session share. Never printed.
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

    /// The bytes, for the control channel only.
    pub fn as_bytes(&self) -> &[u8; KEY_BYTES] {
        &self.0
    }

    fn prove(
        &self,
        side: &[u8],
        challenge: &Challenge,
        nonce: &[u8; 32],
        place: StreamPlace,
    ) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        hasher.update(side).update(&challenge.nonce).update(nonce).update(&place.encode());
        hasher.finalize()
    }
}

/// Why a data connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuthError {
    /// The bytes are not those of this handshake.
    #[error("not a carrack data connection")]
    NotCarrack,
    /// The other end does not hold the session key.
    #[error("the other end does not know the session key")]
    WrongProof,
}

/// The listener's first message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Challenge {
    /// Fresh random bytes.
    pub nonce: [u8; 32],
}

impl Challenge {
    /// The bytes.
    pub fn encode(&self) -> [u8; CHALLENGE_BYTES] {
        let mut bytes = [0; CHALLENGE_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..10].copy_from_slice(&VERSION.to_le_bytes());
        bytes[16..].copy_from_slice(&self.nonce);
        bytes
    }

    /// Reads a listener's challenge.
    pub fn decode(bytes: &[u8; CHALLENGE_BYTES]) -> Result<Challenge, AuthError> {
        if bytes[..8] != MAGIC || bytes[8..10] != VERSION.to_le_bytes() {
            return Err(AuthError::NotCarrack);
        }
        Ok(Challenge { nonce: first32(&bytes[16..]) })
    }
}

/// Which of the session's streams a connection is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamPlace {
    /// From 0.
    pub number: u16,
    /// How many streams the dialer makes in all.
    pub count: u16,
}

impl StreamPlace {
    fn encode(self) -> [u8; 4] {
        let ([a, b], [c, d]) = (self.number.to_le_bytes(), self.count.to_le_bytes());
        [a, b, c, d]
    }
}

/// The dialer's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Response {
    /// Fresh random bytes.
    pub nonce: [u8; 32],
    /// Which stream this is.
    pub place: StreamPlace,
    proof: [u8; 32],
}

impl Response {
    /// Answers `challenge`.
    pub fn new(key: &SessionKey, challenge: &Challenge, nonce: [u8; 32], place: StreamPlace) -> Response {
        let proof = *key.prove(DIALER, challenge, &nonce, place).as_bytes();
        Response { nonce, place, proof }
    }

    /// The bytes.
    pub fn encode(&self) -> [u8; RESPONSE_BYTES] {
        let mut bytes = [0; RESPONSE_BYTES];
        bytes[..32].copy_from_slice(&self.nonce);
        bytes[32..36].copy_from_slice(&self.place.encode());
        bytes[40..].copy_from_slice(&self.proof);
        bytes
    }

    /// Reads a dialer's answer and checks its proof in constant time.
    pub fn verify(
        bytes: &[u8; RESPONSE_BYTES],
        key: &SessionKey,
        challenge: &Challenge,
    ) -> Result<Response, AuthError> {
        let nonce = first32(bytes);
        let place = StreamPlace {
            number: u16::from_le_bytes([bytes[32], bytes[33]]),
            count: u16::from_le_bytes([bytes[34], bytes[35]]),
        };
        let proof = first32(&bytes[40..]);
        if key.prove(DIALER, challenge, &nonce, place) != proof {
            return Err(AuthError::WrongProof);
        }
        Ok(Response { nonce, place, proof })
    }
}

/// The listener's last message: its own proof.
pub fn listener_proof(key: &SessionKey, challenge: &Challenge, response: &Response) -> [u8; 32] {
    *key.prove(LISTENER, challenge, &response.nonce, response.place).as_bytes()
}

/// Checks the listener's proof in constant time.
pub fn verify_listener(
    proof: &[u8; 32],
    key: &SessionKey,
    challenge: &Challenge,
    response: &Response,
) -> Result<(), AuthError> {
    if key.prove(LISTENER, challenge, &response.nonce, response.place) != *proof {
        return Err(AuthError::WrongProof);
    }
    Ok(())
}

fn first32(bytes: &[u8]) -> [u8; 32] {
    let mut first = [0; 32];
    first.copy_from_slice(&bytes[..32]);
    first
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: StreamPlace = StreamPlace { number: 5, count: 8 };

    #[test]
    fn both_ends_prove_the_key() {
        let key = SessionKey::new([7; 32]);
        let challenge = Challenge::decode(&Challenge { nonce: [1; 32] }.encode()).unwrap();
        let sent = Response::new(&key, &challenge, [2; 32], PLACE);
        let seen = Response::verify(&sent.encode(), &key, &challenge).unwrap();
        assert_eq!(seen.place, PLACE);
        let proof = listener_proof(&key, &challenge, &seen);
        assert_eq!(verify_listener(&proof, &key, &challenge, &sent), Ok(()));
    }

    #[test]
    fn a_stranger_proves_nothing() {
        let key = SessionKey::new([7; 32]);
        let challenge = Challenge { nonce: [1; 32] };
        let stranger = Response::new(&SessionKey::new([8; 32]), &challenge, [2; 32], PLACE);
        assert_eq!(Response::verify(&stranger.encode(), &key, &challenge), Err(AuthError::WrongProof));
        let replayed = Response::new(&key, &Challenge { nonce: [9; 32] }, [2; 32], PLACE);
        assert_eq!(Response::verify(&replayed.encode(), &key, &challenge), Err(AuthError::WrongProof));
        let ours = Response::new(&key, &challenge, [2; 32], PLACE);
        for at in [32, 34] {
            let mut other_place = ours.encode();
            other_place[at] ^= 1;
            assert_eq!(Response::verify(&other_place, &key, &challenge), Err(AuthError::WrongProof));
        }
        assert_eq!(verify_listener(&ours.proof, &key, &challenge, &ours), Err(AuthError::WrongProof));
        assert_eq!(Challenge::decode(&[0; CHALLENGE_BYTES]), Err(AuthError::NotCarrack));
    }
}
