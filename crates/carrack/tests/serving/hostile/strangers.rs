//! Messages of unauthenticated clients.

use std::io::Write;
use std::net::TcpStream;
use std::time::Duration;

use carrack_wire::Preamble;

use super::Attack;
use super::arena::{Arena, HANDSHAKE_SECONDS};
use super::client::{Client, End, dial, end_of};
use crate::daemon::noise;

pub const ATTACKS: &[Attack] = &[
    ("plaintext HTTP", "closed", |arena| say(arena, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")),
    ("another protocol's greeting", "closed", |arena| say(arena, b"SSH-2.0-OpenSSH_9.9\r\n")),
    ("zeros", "closed", |arena| say(arena, &[0; 10_000])),
    ("noise", "closed", |arena| say(arena, &noise(10_000))),
    ("the protocol without TLS", "closed", |arena| say(arena, &Preamble::OURS.encode())),
    ("a TLS record that is too long", "closed", |arena| say(arena, b"\x16\x03\x01\xff\xff\x01")),
    ("an empty TLS record", "closed", |arena| say(arena, b"\x16\x03\x01\x00\x00")),
    ("a TLS record of noise", "closed", |arena| {
        say(arena, &[&b"\x16\x03\x01\x02\x00"[..], &noise(512)].concat())
    }),
    ("a TLS record that announces a hello of 16 MB", "closed", |arena| {
        say(arena, &[&b"\x16\x03\x01\x20\x00\x01\xff\xff\xff"[..], &[0; 8188]].concat())
    }),
    ("a client of TLS 1.2", "closed", |arena| say(arena, &hello_of_tls_1_2())),
    ("a TLS alert first", "closed", |arena| say(arena, b"\x15\x03\x03\x00\x02\x02\x28")),
    ("garbage within TLS", "closed", |arena| within_tls(arena, b"GET / HTTP/1.1\r\n\r\n and more of it")),
    ("silence, then gone, at every step", "closed", gone_at_every_step),
];

/// Attacks that take a while.
pub const SLOW_ATTACKS: &[Attack] = &[
    ("silence", "closed", |arena| say(arena, b"")),
    ("half a response of a data connection", "closed", |arena| say(arena, b"carrackd\x03\x00")),
    ("slow-loris on TLS", "closed", |arena| {
        byte_by_byte(arena, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
    }),
    ("slow-loris on a data connection", "closed", |arena| {
        byte_by_byte(arena, b"carrackd\x03\x00\x00\x00\x02\x00")
    }),
    ("a first record and nothing more", "closed", |arena| {
        say(arena, &[&b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc"[..], &[7; 508]].concat())
    }),
    ("TLS and nothing more", "closed", |arena| {
        match Client::connect(arena.address(), arena.config_of("mallory")) {
            Ok(mut client) => client.end(),
            Err(end) => end,
        }
    }),
    ("slow-loris on the preamble", "closed", slow_preamble),
];

fn say(arena: &Arena, bytes: &[u8]) -> End {
    let mut stream = dial(arena.address());
    let _ = stream.write_all(bytes);
    end_of(&stream)
}

fn byte_by_byte(arena: &Arena, bytes: &[u8]) -> End {
    let mut stream = dial(arena.address());
    for byte in bytes {
        // The time since the beginning counts, not that since the last byte.
        std::thread::sleep(Duration::from_millis(HANDSHAKE_SECONDS * 1000 / bytes.len() as u64));
        let _ = stream.write_all(&[*byte]);
    }
    end_of(&stream)
}

fn slow_preamble(arena: &Arena) -> End {
    let mut client = match Client::connect(arena.address(), arena.config_of("mallory")) {
        Ok(client) => client,
        Err(end) => return end,
    };
    for byte in Preamble::OURS.encode().into_iter().chain([0; 24]) {
        std::thread::sleep(Duration::from_millis(300));
        if !client.raw(&[byte]) {
            break;
        }
    }
    client.end()
}

fn within_tls(arena: &Arena, bytes: &[u8]) -> End {
    match Client::connect(arena.address(), arena.config_of("mallory")) {
        Ok(mut client) => {
            client.raw(bytes);
            end_of(&client.tls.sock)
        }
        Err(end) => end,
    }
}

/// Returns a hello without the extension for TLS 1.3, and with a suite of TLS 1.2 (RFC 5246, 7.4.1.2).
fn hello_of_tls_1_2() -> Vec<u8> {
    let body = [&b"\x03\x03"[..], &[9; 32], b"\x00\x00\x02\xc0\x2f\x01\x00\x00\x00"].concat();
    let handshake = [&b"\x01\x00\x00"[..], &[body.len() as u8], &body].concat();
    [&b"\x16\x03\x01\x00"[..], &[handshake.len() as u8], &handshake].concat()
}

/// Connections that break, with a reset and in order, before and within TLS.
fn gone_at_every_step(arena: &Arena) -> End {
    let record = hello_of_tls_1_2();
    for is_rude in [false, true] {
        for count in [0, 1, 4, 5, 6, record.len() - 1, record.len()] {
            let mut stream = dial(arena.address());
            let _ = stream.write_all(&record[..count]);
            leave(&stream, is_rude);
        }
        for step in 0..2 {
            let client = Client::connect(arena.address(), arena.config_of("mallory"));
            let Ok(mut client) = client else { continue };
            if step == 1 {
                client.raw(&Preamble::OURS.encode()[..7]);
            }
            leave(&client.tls.sock, is_rude);
        }
    }
    End::Closed
}

/// Closes the connection once this handle is dropped; rudely with a reset.
pub fn leave(stream: &TcpStream, is_rude: bool) {
    if is_rude {
        let _ = socket2::SockRef::from(stream).set_linger(Some(Duration::ZERO));
    }
}
