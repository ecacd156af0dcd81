//! The handshake of a data connection: whoever lacks the key proves nothing. Input: key (32 bytes), nonce (32),
//! challenge (48), response (72), place and value of a changed byte (2).
#![no_main]

use carrack_fuzz::Input;
use carrack_wire::auth::{
    AuthError, CHALLENGE_BYTES, Challenge, RESPONSE_BYTES, Response, SessionKey, StreamPlace,
    listener_proof, verify_listener,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let _ = attack(&mut Input(data));
});

fn attack(input: &mut Input<'_>) -> Option<()> {
    let (key, nonce) = (SessionKey::new(input.take()?), input.take::<32>()?);
    let heard: [u8; CHALLENGE_BYTES] = input.take()?;
    let guess: [u8; RESPONSE_BYTES] = input.take()?;
    let [place, change] = input.take()?;

    let challenge = Challenge::decode(&heard).unwrap_or(Challenge { nonce });
    assert_eq!(Challenge::decode(&challenge.encode()), Ok(challenge));
    assert_eq!(Response::verify(&guess, &key, &challenge), Err(AuthError::WrongProof));

    let stream = StreamPlace {
        number: u16::from_le_bytes([guess[32], guess[33]]),
        count: u16::from_le_bytes([guess[34], guess[35]]),
    };
    let ours = Response::new(&key, &challenge, nonce, stream);
    assert_eq!(Response::verify(&ours.encode(), &key, &challenge), Ok(ours));
    let proof = listener_proof(&key, &challenge, &ours);
    assert_eq!(verify_listener(&proof, &key, &challenge, &ours), Ok(()));
    assert!(proof != ours.encode()[40..], "a proof sent back is no proof");

    // No byte of a response can be changed, but for the reserved ones, which mean nothing.
    let place = usize::from(place) % RESPONSE_BYTES;
    let mut changed = ours.encode();
    changed[place] ^= change;
    let is_same = change == 0 || (36..40).contains(&place);
    assert_eq!(Response::verify(&changed, &key, &challenge).is_ok(), is_same);

    // Neither the key nor the challenge can.
    let mut other = *key.as_bytes();
    other[place % 32] ^= change | 1;
    let other_key = SessionKey::new(other);
    let mut other_challenge = challenge;
    other_challenge.nonce[place % 32] ^= change | 1;
    assert!(Response::verify(&ours.encode(), &other_key, &challenge).is_err());
    assert!(Response::verify(&ours.encode(), &key, &other_challenge).is_err());
    assert!(verify_listener(&proof, &other_key, &challenge, &ours).is_err());
    assert!(verify_listener(&proof, &key, &other_challenge, &ours).is_err());
    Some(())
}
