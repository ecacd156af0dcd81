//! How the data connections come to stand: one end listens, the other dials, both prove the session key.
//!
//! The control channel tells the dialer the listener's nonce, so that it can prove the key as soon as it is connected:
//! two round trips from dialling to the first payload, one where the listener is the source. A stranger who connects is
//! told nothing; at most one message of fixed size is read from him, then he is closed; others are served meanwhile.
//! When the agreed number of streams stands, the port is closed. A daemon has one port for all its sessions: it hands a
//! connection on to the session whose listener the connection names ([`Door::Handed`]).

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
use carrack_model::{Cipher, Protection};
use carrack_wire::auth::ListenerNonce;
use rustix::rand::{GetRandomFlags, getrandom};
use socket2::SockRef;

pub use dial::{DialError, dial};
pub use listener::Listener;

use crate::fabric::Aside;
use crate::seal::{Seal, TrafficSecret};
use crate::tcp::{NEAR_RTT, TcpReceiver, TcpSender, keep_alive};

/// How long a dialer may take for its response, and a listener for its proof.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Ports that may be listened on; nothing means any that the system gives.
pub type PortRange = Option<RangeInclusive<u16>>;

/// How data connections come in.
#[derive(Debug)]
pub enum Door {
    /// By a port of the session's own.
    Ports(PortRange),
    /// Over a Unix socket, with SCM_RIGHTS (unix(7)): somebody else listens for this session.
    Handed {
        /// Each message on it carries one connection, of which nothing was read.
        socket: OwnedFd,
        /// Where the other one listens.
        port: u16,
        /// The name under which it knows this listener.
        nonce: ListenerNonce,
    },
}

/// A data connection that stands, and what its seals are made from.
#[derive(Debug)]
pub struct Stream {
    socket: TcpStream,
    secret: TrafficSecret,
}

impl Stream {
    /// The connection.
    pub fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// Has the kernel notice within about `patience` that the other end has vanished while nothing is under way. What it
    /// can't set, it does without: the session watches by itself. No TCP_USER_TIMEOUT: that counts a closed window too, which
    /// slow storage at the sink makes.
    pub fn set_patience(&self, patience: Duration) {
        let _ = keep_alive(&SockRef::from(&self.socket), patience);
    }

    /// For objects that go another way: the connection stands by, and its secret seals them.
    pub fn into_aside(self, protection: Protection, cipher: Cipher) -> Aside {
        Aside { socket: self.socket.into(), seal: Seal::new(self.secret, protection, cipher) }
    }

    /// The source's end.
    pub fn into_sender(self, protection: Protection, cipher: Cipher) -> TcpSender {
        TcpSender::sealed(self.socket, Seal::new(self.secret, protection, cipher))
    }

    /// The sink's end; objects may have `slot_bytes` at most.
    pub fn into_receiver(self, slot_bytes: u32, protection: Protection, cipher: Cipher) -> TcpReceiver {
        TcpReceiver::sealed(self.socket, slot_bytes, Seal::new(self.secret, protection, cipher))
    }
}

/// How many streams the dialer makes, and how many of them are used at first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamCount {
    near: Streams,
    far: Streams,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Streams {
    used: u16,
    opened: u16,
}

impl StreamCount {
    /// For `lanes` lanes, the same number for each; `wanted` in all, or, if that is 0, as many as the length of the path
    /// asks for, and if it `may_grow` some that are not used at first.
    pub fn new(wanted: u16, lanes: u16, may_grow: bool) -> StreamCount {
        let lanes = lanes.max(1);
        // Up to a multiple of the lanes, and if those are too many, down to one.
        let for_all = |count: u16| count.div_ceil(lanes).min(STREAMS_MAX as u16 / lanes).max(1) * lanes;
        let streams = |used: u16, most: u16| {
            let opened = if may_grow { most.max(used) } else { used };
            Streams { used: for_all(used), opened: for_all(opened) }
        };
        match wanted {
            0 => {
                let near = STREAMS_NEAR * lanes;
                let far = streams(STREAMS_FAR.max(near), STREAMS_FAR_MOST);
                StreamCount { near: streams(near, STREAMS_NEAR_MOST * lanes), far }
            }
            wanted => StreamCount { near: streams(wanted, wanted), far: streams(wanted, wanted) },
        }
    }

    /// Those that are used at first, of so many that were opened.
    pub fn used(self, opened: usize) -> usize {
        let made = [self.near, self.far].into_iter().find(|streams| usize::from(streams.opened) == opened);
        made.map_or(opened, |streams| streams.used.into())
    }

    /// Whether so many were opened for a near path.
    pub fn is_near(self, opened: usize) -> bool {
        usize::from(self.near.opened) == opened
    }

    /// To be opened for a round trip.
    fn for_rtt(self, rtt: Duration) -> u16 {
        if rtt < NEAR_RTT { self.near.opened } else { self.far.opened }
    }

    fn most(self) -> u16 {
        self.near.opened.max(self.far.opened)
    }
}

/// `N` bytes of the system's random source: for keys and nonces.
///
/// # Errors
/// What getrandom(2) says.
pub fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    let mut filled = 0;
    while filled < N {
        filled += getrandom(&mut bytes[filled..], GetRandomFlags::empty())?;
    }
    Ok(bytes)
}

/// Addresses of this host that another one may reach: global ones before private, link-local and loopback left out.
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
