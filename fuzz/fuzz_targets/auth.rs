//! The handshake of a data connection: whoever lacks the key proves nothing. Input: key (32 bytes), the dialer's nonce
//! (32), the listener's (32), response (116), place and value of a changed byte (2).
#![no_main]

use std::time::Duration;

use carrack_fuzz::Input;
use carrack_wire::auth::{
    DataConnectionAuthError, ListenerNonce, RESPONSE_BYTES, DialerResponse, SessionKey, StreamIndex, parse_listener_nonce,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let _ = attack(&mut Input(data));
});

fn attack(input: &mut Input<'_>) -> Option<()> {
    let (key, nonce) = (SessionKey::new(input.take()?), input.take::<32>()?);
    let listener = ListenerNonce::new(input.take()?);
    let guess: [u8; RESPONSE_BYTES] = input.take()?;
    let [place, change] = input.take()?;

    let is_ours = |offset: usize, bytes: &[u8]| guess[offset..offset + bytes.len()] == *bytes;
    let guessed = match DialerResponse::verify(&guess, &key, &listener).unwrap_err() {
        DataConnectionAuthError::NotCarrack => !is_ours(0, b"carrackd"),
        DataConnectionAuthError::OtherVersion(version) => version != 3 && is_ours(8, &version.to_le_bytes()),
        DataConnectionAuthError::WrongProof => is_ours(0, b"carrackd\x03\0"),
    };
    assert!(guessed, "an error that does not fit");

    let u16_at = |at: usize| u16::from_le_bytes([guess[at], guess[at + 1]]);
    let stream = StreamIndex { number: u16_at(10), count: u16_at(12) };
    let rtt = Duration::from_micros(u32::from_le_bytes([guess[16], guess[17], guess[18], guess[19]]).into());
    let ours = DialerResponse::new(&key, &listener, nonce, stream, rtt);
    assert_eq!((ours.stream_index(), ours.rtt()), (stream, rtt));
    assert_eq!(DialerResponse::verify(ours.as_bytes(), &key, &listener), Ok(ours));
    let proof = ours.listener_proof(&key);
    assert_eq!(ours.verify_listener(&proof, &key), Ok(()));
    assert!(proof != ours.as_bytes()[RESPONSE_BYTES - 32..], "a proof sent back is no proof");

    // No byte of a response can be changed.
    let place = usize::from(place) % RESPONSE_BYTES;
    let mut changed = *ours.as_bytes();
    changed[place] ^= change;
    assert_eq!(DialerResponse::verify(&changed, &key, &listener).is_ok(), change == 0);

    // Neither the key nor the listener's nonce can.
    let mut other = *key.as_bytes();
    other[place % 32] ^= change | 1;
    let other_key = SessionKey::new(other);
    let mut other = *listener.as_bytes();
    other[place % 32] ^= change | 1;
    let other_listener = ListenerNonce::new(other);
    for (key, listener) in [(&other_key, &listener), (&key, &other_listener)] {
        assert!(DialerResponse::verify(ours.as_bytes(), key, listener).is_err());
    }
    assert!(ours.verify_listener(&proof, &other_key).is_err());
    // The listener that is named is the one that is meant.
    let named = parse_listener_nonce(ours.as_bytes().first_chunk().expect("longer"));
    assert_eq!(named, Ok(listener));
    Some(())
}
