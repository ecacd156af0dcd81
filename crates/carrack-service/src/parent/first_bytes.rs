//! Classification of a connection by its first bytes. They stay in the socket for the process that gets it.

use std::net::TcpStream;

use carrack_wire::auth::{ListenerNonce, NAMING_BYTES, may_be_data_connection, parse_listener_nonce};
use rustix::net::{RecvFlags, recv};

/// The content type of a TLS record with a handshake (RFC 8446, 5.1).
const TLS_HANDSHAKE: u8 = 0x16;

/// Type, version and length of a TLS record.
const TLS_HEADER_BYTES: usize = 5;

/// The longest content of a TLS record that isn't encrypted (RFC 8446, 5.1).
const TLS_RECORD_BYTES_MAX: usize = 1 << 14;

/// The kind of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionKind {
    /// Not known yet.
    Unknown,
    /// A control channel whose first TLS record has arrived completely.
    Control,
    /// A data connection, for the listener with this nonce.
    Data(ListenerNonce),
    /// A connection of another program.
    Foreign,
    /// Closed before it had sent enough.
    Gone,
}

/// Classifies a connection without taking bytes from its socket.
pub fn classify_connection(stream: &TcpStream) -> ConnectionKind {
    let mut start = [0; NAMING_BYTES];
    match recv(stream, &mut start, RecvFlags::PEEK | RecvFlags::DONTWAIT) {
        Ok((0, _)) => ConnectionKind::Gone,
        Ok((count, _)) => {
            let there = rustix::io::ioctl_fionread(stream).unwrap_or(0);
            kind_of(&start[..count.min(NAMING_BYTES)], usize::try_from(there).unwrap_or(usize::MAX))
        }
        Err(rustix::io::Errno::WOULDBLOCK | rustix::io::Errno::INTR) => ConnectionKind::Unknown,
        Err(_) => ConnectionKind::Gone,
    }
}

/// Classifies a connection by its first bytes; `there` is the number of bytes that have arrived in all.
pub(crate) fn kind_of(start: &[u8], there: usize) -> ConnectionKind {
    match start {
        [TLS_HANDSHAKE, ..] => kind_of_record(start, there),
        _ if !may_be_data_connection(start) => ConnectionKind::Foreign,
        _ => match start.first_chunk().map(parse_listener_nonce) {
            None => ConnectionKind::Unknown,
            Some(Ok(nonce)) => ConnectionKind::Data(nonce),
            Some(Err(_)) => ConnectionKind::Foreign,
        },
    }
}

/// Classifies a TLS record. A client that sends its first record byte by byte occupies a socket, and no
/// process.
fn kind_of_record(start: &[u8], there: usize) -> ConnectionKind {
    let Some(header) = start.first_chunk::<TLS_HEADER_BYTES>() else { return ConnectionKind::Unknown };
    let length = usize::from(u16::from_be_bytes([header[3], header[4]]));
    match (header[1], length) {
        (3, 1..=TLS_RECORD_BYTES_MAX) if there >= TLS_HEADER_BYTES + length => ConnectionKind::Control,
        (3, 1..=TLS_RECORD_BYTES_MAX) => ConnectionKind::Unknown,
        _ => ConnectionKind::Foreign,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_bytes_tell() {
        let mut data = [7; NAMING_BYTES];
        data[..8].copy_from_slice(b"carrackd");
        data[8..10].copy_from_slice(&3u16.to_le_bytes());
        let nonce = ListenerNonce::new([7; 32]);
        for (start, there, kind) in [
            (&b"\x16"[..], 1, ConnectionKind::Unknown),
            (b"\x16\x03\x01\x02\x00rest", 516, ConnectionKind::Unknown),
            (b"\x16\x03\x01\x02\x00rest", 517, ConnectionKind::Control),
            (b"\x16\x03\x01\x40\x01", 90_000, ConnectionKind::Foreign),
            (b"\x16\x03\x01\x00\x00", 90, ConnectionKind::Foreign),
            (b"\x16\x02\x01\x02\x00", 900, ConnectionKind::Foreign),
            (b"GET / HTTP/1.1\r\n", 16, ConnectionKind::Foreign),
            (b"SSH-2.0-x", 9, ConnectionKind::Foreign),
            (b"\0", 1, ConnectionKind::Foreign),
            (b"c", 1, ConnectionKind::Unknown),
            (b"carrack\n", 8, ConnectionKind::Foreign),
            (b"carrackd", 8, ConnectionKind::Unknown),
            (&data[..51], 51, ConnectionKind::Unknown),
            (&data, 52, ConnectionKind::Data(nonce)),
            (&data, 5_000, ConnectionKind::Data(nonce)),
        ] {
            assert_eq!(kind_of(start, there), kind, "{start:?} {there}");
        }
        data[8] = 2;
        assert_eq!(kind_of(&data, 52), ConnectionKind::Foreign, "another version");
    }
}
