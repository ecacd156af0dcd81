//! Data connections that don't belong to the session.

use std::io::Write;
use std::net::TcpStream;
use std::time::Duration;

use carrack_model::AgreedTransferSpec;
use carrack_transport::seal::SessionKeys;
use carrack_wire::auth::{DialerResponse, ListenerNonce, RESPONSE_BYTES, SessionKey, StreamIndex};
use carrack_wire::message::{ControlMessage, DialFailureMessage};

use super::Attack;
use super::arena::Arena;
use super::client::*;
use crate::daemon::noise;

const PLACE: StreamIndex = StreamIndex { number: 0, count: 2 };

pub const ATTACKS: &[Attack] = &[
    ("a data connection for no session", "closed", |arena| {
        let response = response(&SessionKey::new(SESSION_KEY), &ListenerNonce::new([9; 32]), PLACE);
        end_with(arena, &response)
    }),
    ("a data connection of another version", "closed", |arena| {
        in_a_session(arena, |session| session.changed(8, 2))
    }),
    ("a data connection with another magic", "closed", |arena| {
        in_a_session(arena, |session| session.changed(0, b'C'))
    }),
    ("a data connection without its proof", "closed", |arena| {
        in_a_session(arena, |session| session.changed(RESPONSE_BYTES - 1, 0x5a))
    }),
    ("a data connection with noise behind its name", "closed", |arena| {
        in_a_session(arena, |session| {
            let mut bytes = *session.response(PLACE).as_bytes();
            bytes[52..].copy_from_slice(&noise(RESPONSE_BYTES - 52));
            bytes
        })
    }),
    ("a data connection with the session key as it is", "closed", |arena| {
        in_a_session(arena, |session| response(&SessionKey::new(SESSION_KEY), &session.nonce, PLACE))
    }),
    ("a data connection with keys that know nothing of TLS", "closed", |arena| {
        in_a_session(arena, |session| {
            let terms = carrack_wire::agreed_terms(&spec(), 1);
            let keys = SessionKeys::derive(&SessionKey::new(SESSION_KEY), None, &terms);
            response(keys.auth(), &session.nonce, PLACE)
        })
    }),
    ("a data connection with keys of other terms", "closed", |arena| {
        in_a_session(arena, |session| {
            let keys = session.client.keys(&AgreedTransferSpec { streams: 3, ..spec() }, 1);
            response(keys.auth(), &session.nonce, PLACE)
        })
    }),
    ("a data connection with the keys of another session", "closed", |arena| {
        let other = match Session::begin(arena) {
            Ok(other) => other,
            Err(end) => return end,
        };
        in_a_session(arena, |session| response(other.keys.auth(), &session.nonce, PLACE))
    }),
    ("a data connection with the keys of this session for another's name", "closed", |arena| {
        let other = match Session::begin(arena) {
            Ok(other) => other,
            Err(end) => return end,
        };
        in_a_session(arena, |session| response(session.keys.auth(), &other.nonce, PLACE))
    }),
    ("a place that there isn't", "closed", |arena| {
        in_a_session(arena, |session| *session.response(StreamIndex { number: 2, count: 2 }).as_bytes())
    }),
    ("a captured response, sent again", "closed", replay),
    (
        "objects on a data connection that are not sealed",
        "aborted: the seal of an object does not hold: it was changed, repeated or l",
        |arena| unsealed(arena, &object(1, 1, 0, b"abc")),
    ),
    (
        "a control frame on a data connection",
        "aborted: the seal of an object does not hold: it was changed, repeated or l",
        |arena| {
            let body = finish().to_body();
            unsealed(arena, &(carrack_wire::FrameHeader::control(body.len() as u32), body))
        },
    ),
    ("300 strangers who know a session's name", "closed", many_strangers),
];

/// Attacks that take a while.
pub const SLOW_ATTACKS: &[Attack] = &[("half a response to a session that waits", "closed", |arena| {
    let session = match Session::begin(arena) {
        Ok(session) => session,
        Err(end) => return end,
    };
    let mut slow = dial(arena.address());
    let _ = slow.write_all(&session.response(PLACE).as_bytes()[..100]);
    end_of(&slow)
})];

/// A session of mallory's in which the daemon waits for data connections.
struct Session {
    client: Client,
    keys: SessionKeys,
    nonce: ListenerNonce,
}

impl Session {
    fn begin(arena: &Arena) -> Result<Session, End> {
        let (client, welcome) = calling_source(arena, &spec(), b"/data/in", 0)?;
        let keys = client.keys(&spec(), welcome.lanes);
        let nonce = welcome.listening.and_then(|listening| ListenerNonce::from_slice(&listening.nonce));
        Ok(Session { client, keys, nonce: nonce.expect("it listens") })
    }

    fn response(&self, place: StreamIndex) -> DialerResponse {
        DialerResponse::new(self.keys.auth(), &self.nonce, [3; 32], place, Duration::from_micros(50))
    }

    fn changed(&self, at: usize, change: u8) -> [u8; RESPONSE_BYTES] {
        let mut bytes = *self.response(PLACE).as_bytes();
        bytes[at] ^= change;
        bytes
    }

    /// Opens the true connections, which are accepted after any attack.
    fn take_places(&self, arena: &Arena) -> Result<Vec<TcpStream>, End> {
        let take = |number| {
            let response = self.response(StreamIndex { number, ..PLACE });
            let mut stream = dial(arena.address());
            let _ = stream.write_all(response.as_bytes());
            let proof = proof_on(&stream)?;
            response.verify_listener(&proof, self.keys.auth()).expect("the daemon has the key too");
            Ok(stream)
        };
        (0..PLACE.count).map(take).collect()
    }
}

fn response(key: &SessionKey, listener: &ListenerNonce, place: StreamIndex) -> [u8; RESPONSE_BYTES] {
    *DialerResponse::new(key, listener, [3; 32], place, Duration::from_micros(50)).as_bytes()
}

/// Returns the end of a connection that begins with these bytes. The daemon sends not a byte on it.
fn end_with(arena: &Arena, bytes: &[u8]) -> End {
    let mut stream = dial(arena.address());
    let _ = stream.write_all(bytes);
    match proof_on(&stream) {
        Ok(_) => panic!("it got a proof"),
        Err(end) => end,
    }
}

/// Tries a response on a session that waits for its own, which is not disturbed.
fn in_a_session(arena: &Arena, response: impl FnOnce(&Session) -> [u8; RESPONSE_BYTES]) -> End {
    let attack = || {
        let session = Session::begin(arena)?;
        let end = end_with(arena, &response(&session));
        session.take_places(arena)?;
        Ok(end)
    };
    attack().unwrap_or_else(|end: End| end)
}

fn replay(arena: &Arena) -> End {
    let attack = || {
        let session = Session::begin(arena)?;
        let captured = session.response(PLACE);
        let mut first = dial(arena.address());
        let _ = first.write_all(captured.as_bytes());
        proof_on(&first)?;
        let again = end_with(arena, captured.as_bytes());
        // It is not accepted after the session either.
        drop((first, session));
        assert_eq!(end_with(arena, captured.as_bytes()), End::Closed);
        Ok(again)
    };
    attack().unwrap_or_else(|end: End| end)
}

/// The client has the keys, but does not seal.
fn unsealed(arena: &Arena, (header, body): &(carrack_wire::FrameHeader, Vec<u8>)) -> End {
    let attack = || {
        let mut session = Session::begin(arena)?;
        let mut streams = session.take_places(arena)?;
        session.client.say(open(1, table("", &[(b"never", 3)])));
        let _ = streams[0].write_all(&[&header.encode()[..], &[0; 16], body].concat());
        Ok(session.client.end())
    };
    attack().unwrap_or_else(|end: End| end)
}

/// More strangers than the listener's limit; the session continues without data connections.
fn many_strangers(arena: &Arena) -> End {
    let attack = || {
        let mut session = Session::begin(arena)?;
        let begun = &session.response(PLACE).as_bytes()[..60].to_vec();
        let strangers: Vec<_> = (0..300)
            .filter_map(|_| {
                let mut stream = dial_from(ATTACKER, arena.address()).ok()?;
                stream.write_all(begun).ok()?;
                Some(stream)
            })
            .collect();
        let end = end_of(&strangers[0]);
        session.client.say(ControlMessage::DialFailed(DialFailureMessage::default()));
        assert_eq!(session.client.finish(), End::Finished(0));
        Ok(end)
    };
    attack().unwrap_or_else(|end: End| end)
}
