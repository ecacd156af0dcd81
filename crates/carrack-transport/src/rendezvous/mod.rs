//! The making of data connections: one end listens, the other dials, and both prove the session key.
//!
//! The dialer knows the listener's nonce from the control channel, so that it can prove the key as soon as it
//! is connected: two round trips from dialling to the first payload, one where the listener is the source.
//! From an unauthenticated peer the listener reads at most one message of fixed size, answers nothing and
//! closes the connection; it serves others meanwhile. The port is closed when all streams stand. A daemon has
//! one port for all sessions: it passes a connection to the session whose listener the connection names
//! ([`ListenPoint::Handed`]).

mod dial;
mod listener;
#[cfg(test)]
mod tests;

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpStream};
use std::ops::RangeInclusive;
use std::os::fd::OwnedFd;
use std::time::Duration;

use carrack_model::limits::{STREAMS_FAR, STREAMS_FAR_MOST, STREAMS_MAX, STREAMS_NEAR, STREAMS_NEAR_MOST};
use carrack_model::{ProtectionLevel, SealCipher};
use carrack_wire::auth::ListenerNonce;
use rustix::rand::{GetRandomFlags, getrandom};
use socket2::SockRef;

pub use dial::{DialError, dial};
pub use listener::StreamListener;

use crate::fabric::FabricStreamTcpConnection;
use crate::seal::{ConnectionCipherState, TrafficSecret};
use crate::tcp::{NEAR_RTT, TcpReceiver, TcpSender, keep_alive};

/// The time limit for a dialer's response and for a listener's proof.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Ports to listen on; `None` for any that the system gives.
pub type PortRange = Option<RangeInclusive<u16>>;

/// The way by which data connections arrive.
#[derive(Debug)]
pub enum ListenPoint {
    /// A port of the session's own.
    Ports(PortRange),
    /// A Unix socket that carries connections with SCM_RIGHTS (unix(7)): another process listens for this
    /// session.
    Handed {
        /// Each message on the socket carries one connection, unread.
        socket: OwnedFd,
        /// The port of the listening process.
        port: u16,
        /// The nonce by which that process knows this listener.
        nonce: ListenerNonce,
    },
}

/// An authenticated data connection, with the secret for its seals.
#[derive(Debug)]
pub struct DataConnection {
    socket: TcpStream,
    secret: TrafficSecret,
}

impl DataConnection {
    /// The connection.
    pub fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// Makes the kernel notice within about `patience` that the other end of an idle connection has vanished.
    /// Errors are ignored, as the session has a watch of its own. TCP_USER_TIMEOUT is not used: it also
    /// counts the time of a closed window, which slow storage at the sink causes.
    pub fn set_patience(&self, patience: Duration) {
        let _ = keep_alive(&SockRef::from(&self.socket), patience);
    }

    /// For objects over RMA: the connection carries none, and its secret seals them.
    pub fn into_aside(self, protection: ProtectionLevel, cipher: SealCipher) -> FabricStreamTcpConnection {
        FabricStreamTcpConnection {
            socket: self.socket.into(),
            seal: ConnectionCipherState::new(self.secret, protection, cipher),
        }
    }

    /// The source's end.
    pub fn into_sender(self, protection: ProtectionLevel, cipher: SealCipher) -> TcpSender {
        TcpSender::with_seal(self.socket, ConnectionCipherState::new(self.secret, protection, cipher))
    }

    /// The sink's end; objects may have `slot_bytes` at most.
    pub fn into_receiver(
        self,
        slot_bytes: u32,
        protection: ProtectionLevel,
        cipher: SealCipher,
    ) -> TcpReceiver {
        TcpReceiver::with_seal(
            self.socket,
            slot_bytes,
            ConnectionCipherState::new(self.secret, protection, cipher),
        )
    }
}

/// The number of streams that the dialer makes, and the number that it uses at first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamCount {
    near: DataConnectionCounts,
    far: DataConnectionCounts,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct DataConnectionCounts {
    used: u16,
    opened: u16,
}

impl StreamCount {
    /// For `lanes` lanes, the same number for each; `wanted` in total. If `wanted` is 0, the length of the
    /// path decides, and with `may_grow` some streams are not used at first.
    pub fn new(wanted: u16, lanes: u16, may_grow: bool) -> StreamCount {
        let lanes = lanes.max(1);
        if wanted > 0 {
            let streams = DataConnectionCounts::new(wanted, wanted, lanes);
            return StreamCount { near: streams, far: streams };
        }
        let near = STREAMS_NEAR * lanes;
        let far = STREAMS_FAR.max(near);
        if may_grow {
            StreamCount {
                near: DataConnectionCounts::new(near, STREAMS_NEAR_MOST * lanes, lanes),
                far: DataConnectionCounts::new(far, STREAMS_FAR_MOST, lanes),
            }
        } else {
            StreamCount {
                near: DataConnectionCounts::new(near, near, lanes),
                far: DataConnectionCounts::new(far, far, lanes),
            }
        }
    }

    /// The number of streams to use at first, of `opened` streams.
    pub fn used(self, opened: usize) -> usize {
        let made = [self.near, self.far].into_iter().find(|streams| usize::from(streams.opened) == opened);
        made.map_or(opened, |streams| streams.used.into())
    }

    /// Returns true if `opened` is the number for a near path.
    pub fn is_near(self, opened: usize) -> bool {
        usize::from(self.near.opened) == opened
    }

    /// The number of streams to open on a path with this round-trip time.
    fn for_rtt(self, rtt: Duration) -> u16 {
        if rtt < NEAR_RTT { self.near.opened } else { self.far.opened }
    }

    fn most(self) -> u16 {
        self.near.opened.max(self.far.opened)
    }
}

impl DataConnectionCounts {
    fn new(used: u16, opened: u16, lanes: u16) -> DataConnectionCounts {
        DataConnectionCounts {
            used: round_to_lanes(used, lanes),
            opened: round_to_lanes(opened.max(used), lanes),
        }
    }
}

/// Rounds up to a multiple of the lanes, or down to one within [`STREAMS_MAX`].
fn round_to_lanes(count: u16, lanes: u16) -> u16 {
    count.div_ceil(lanes).min(STREAMS_MAX as u16 / lanes).max(1) * lanes
}

/// `N` bytes of the system's random source, for keys and nonces.
///
/// # Errors
/// The error of getrandom(2).
pub fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    let mut filled = 0;
    while filled < N {
        filled += getrandom(&mut bytes[filled..], GetRandomFlags::empty())?;
    }
    Ok(bytes)
}

/// Addresses of this host that other hosts may reach, global ones before private ones, without link-local and
/// loopback addresses.
pub fn local_addresses() -> Vec<IpAddr> {
    // A connected UDP socket sends nothing; the kernel fills in the address that the route would use.
    let targets: [(&str, SocketAddr); 2] = [
        ("[::]:0", SocketAddr::from((Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1), 9))),
        ("0.0.0.0:0", SocketAddr::from(([192, 0, 2, 1], 9))),
    ];
    let mut addresses = Vec::new();
    for (local, target) in targets {
        let found = std::net::UdpSocket::bind(local).and_then(|socket| {
            socket.connect(target)?;
            socket.local_addr()
        });
        if let Ok(address) = found
            && !address.ip().is_loopback()
            && !address.ip().is_unspecified()
        {
            addresses.push(address.ip());
        }
    }
    addresses
}
