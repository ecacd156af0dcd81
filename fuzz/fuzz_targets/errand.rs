//! What a daemon's parent and a session's process say to each other: whoever takes a process over says what he likes to its
//! parent. Input: who hears it (1 byte; bit 0: the session), how long the pieces are (1 byte), then what is said.
#![no_main]

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use carrack_fuzz::Input;
use carrack_service::fuzzing::{FuzzedSessionInbox, parse_messages_to_parent, parse_messages_to_session, is_to_parent};
use libfuzzer_sys::fuzz_target;

/// The longest frame to the parent.
const FRAME_BYTES_MAX: usize = 64 << 10;

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    let Some([who, piece]) = input.take() else { return };
    let (near, mut far) = UnixStream::pair().expect("a pair");
    if who & 1 == 1 {
        session(near, far, input.0);
        return;
    }
    near.set_nonblocking(true).expect("a socket");
    let mut inbox = FuzzedSessionInbox::default();
    let mut expected = bodies(input.0);
    for piece in input.0.chunks(1 + usize::from(piece)) {
        far.write_all(piece).expect("it fits into the socket");
        let Ok((messages, goes_on)) = parse_messages_to_parent(&mut inbox, &near) else {
            // Messages that came with the one that is none are lost with it.
            assert!(expected.any(|body| body.is_none_or(|body| !is_to_parent(body))));
            return;
        };
        assert!(goes_on && inbox.buffered_bytes() < FRAME_BYTES_MAX + 4 + 4096);
        for message in messages {
            assert!(expected.next().flatten().is_some_and(is_to_parent));
            // Said again, it is the same message.
            assert!(is_to_parent(&message[4..]));
        }
    }
    drop(far);
    assert!(matches!(parse_messages_to_parent(&mut inbox, &near), Ok((messages, false)) if messages.is_empty()));
});

/// The bodies of the frames that are whole; nothing for one that is too long.
fn bodies(mut said: &[u8]) -> impl Iterator<Item = Option<&[u8]>> {
    std::iter::from_fn(move || {
        let (length, rest) = said.split_first_chunk::<4>()?;
        let length = u32::from_be_bytes(*length) as usize;
        if length > FRAME_BYTES_MAX {
            return Some(None);
        }
        let (body, rest) = rest.split_at_checked(length)?;
        said = rest;
        Some(Some(body))
    })
}

/// A parent is trusted, but a process that hears nonsense ends.
fn session(mut near: UnixStream, mut far: UnixStream, said: &[u8]) {
    // A length that only the parent vouches for is taken; here it would only cost memory.
    if bodies(said).any(|body| body.is_none()) {
        return;
    }
    near.set_read_timeout(Some(Duration::from_millis(50))).expect("a socket");
    far.write_all(said).expect("it fits into the socket");
    drop(far);
    if let Ok((config, _)) = parse_messages_to_session(&mut near) {
        assert!(config.len() <= said.len());
    }
}
