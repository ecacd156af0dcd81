//! The listening end: reads one message of each peer, and accepts the streams that prove the key.

use std::io::{self, ErrorKind, Read, Write};
use std::mem::MaybeUninit;
use std::net::{Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use carrack_model::limits::STREAMS_MAX;
use carrack_wire::auth::{DialerResponse, ListenerNonce, RESPONSE_BYTES, StreamIndex};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use socket2::{Domain, Protocol, Socket, Type};

use super::{ANSWER_TIMEOUT, DataConnection, ListenPoint, random};
use crate::control_link::to_timespec;
use crate::seal::SessionKeys;
use crate::tcp::{limit_segment_size, prepare_stream, set_near_congestion_control};

/// Connections that may owe their response at the same time. Beyond that the oldest is closed.
pub(super) const PENDING_MAX: usize = 128;

/// The origin of incoming connections.
pub(super) enum ListeningMethod {
    Port(TcpListener),
    Handed(OwnedFd),
}

impl ListeningMethod {
    /// The next connection; `WouldBlock` if there is none at present.
    pub(super) fn accept(&self) -> io::Result<TcpStream> {
        match self {
            ListeningMethod::Port(listener) => Ok(listener.accept()?.0),
            ListeningMethod::Handed(socket) => receive_connection(socket.as_fd()),
        }
    }
}

impl AsFd for ListeningMethod {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            ListeningMethod::Port(listener) => listener.as_fd(),
            ListeningMethod::Handed(socket) => socket.as_fd(),
        }
    }
}

/// A connection from the listening process; `UnexpectedEof` if that process is gone.
fn receive_connection(socket: BorrowedFd<'_>) -> io::Result<TcpStream> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let got = recvmsg(socket, &mut [io::IoSliceMut::new(&mut byte)], &mut control, flags)?;
    let handed = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    match handed {
        Some(descriptor) => Ok(TcpStream::from(descriptor)),
        None if got.bytes == 0 => Err(ErrorKind::UnexpectedEof.into()),
        None => Err(ErrorKind::InvalidData.into()),
    }
}

/// Accepts connections until all of the session's streams stand.
pub struct StreamListener {
    pub(super) connections: ListeningMethod,
    port: u16,
    nonce: ListenerNonce,
    pending: Vec<PendingConnection>,
    /// The streams by number. A number is taken once: only that tells a response from a copy.
    streams: Vec<Option<DataConnection>>,
    /// The number of streams that the dialer makes, from its first response.
    count: Option<u16>,
}

/// A connection that owes its response.
struct PendingConnection {
    stream: TcpStream,
    since: Instant,
    heard: [u8; RESPONSE_BYTES],
    got: usize,
}

enum AwaitedDialerResponse {
    Owed,
    Proven(DialerResponse),
    Wrong,
}

impl StreamListener {
    /// Opens a listener. A port is opened over both IPv6 and IPv4 where the system has them. The dialer
    /// chooses the number of streams.
    pub fn open(door: ListenPoint) -> io::Result<StreamListener> {
        let (connections, port, nonce) = match door {
            ListenPoint::Ports(ports) => {
                let listener = ports.map_or_else(|| bind(0), bind_within)?;
                listener.set_nonblocking(true)?;
                let port = listener.local_addr()?.port();
                (ListeningMethod::Port(listener), port, ListenerNonce::new(random()?))
            }
            ListenPoint::Handed { socket, port, nonce } => (ListeningMethod::Handed(socket), port, nonce),
        };
        let streams = (0..STREAMS_MAX).map(|_| None).collect();
        Ok(StreamListener { connections, port, nonce, pending: Vec::new(), streams, count: None })
    }

    /// Bounds the segments of new connections in both directions. Without effect on another process's port.
    pub fn limit_segment_size(&self, bytes: Option<u32>) {
        if let ListeningMethod::Port(listener) = &self.connections {
            limit_segment_size(&listener.into(), bytes);
        }
    }

    /// The port that the dialer connects to.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The nonce that the dialer needs.
    pub fn nonce(&self) -> ListenerNonce {
        self.nonce
    }

    /// Returns true if all of the dialer's streams stand.
    pub fn is_complete(&self) -> bool {
        let standing = self.streams.iter().flatten().count();
        self.count.is_some_and(|count| standing == usize::from(count))
    }

    /// Serves connections until all streams stand, `also` is readable, `deadline` is reached, or `go_on`,
    /// which is called about once a second, returns false. `also` is ignored once all streams stand.
    pub fn accept_streams(
        &mut self,
        keys: &SessionKeys,
        also: BorrowedFd<'_>,
        deadline: Instant,
        go_on: &dyn Fn() -> bool,
    ) -> io::Result<()> {
        while !self.is_complete() && Instant::now() < deadline && go_on() {
            if self.wait(also, deadline)? {
                return Ok(());
            }
            self.accept()?;
            self.read_pending_responses(keys);
        }
        Ok(())
    }

    /// Closes the listener and returns the streams in the dialer's order.
    pub fn into_streams(self) -> Vec<DataConnection> {
        self.streams.into_iter().flatten().collect()
    }

    /// Sleeps until a descriptor is ready. Returns true if `also` is readable.
    fn wait(&self, also: BorrowedFd<'_>, deadline: Instant) -> io::Result<bool> {
        let mut fds = vec![
            PollFd::from_borrowed_fd(also, PollFlags::IN),
            PollFd::from_borrowed_fd(self.connections.as_fd(), PollFlags::IN),
        ];
        fds.extend(self.pending.iter().map(|p| PollFd::from_borrowed_fd(p.stream.as_fd(), PollFlags::IN)));
        let left = deadline.saturating_duration_since(Instant::now()).min(Duration::from_secs(1));
        match poll(&mut fds, Some(&to_timespec(left))) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(!fds[0].revents().is_empty()),
            Err(error) => Err(error.into()),
        }
    }

    fn accept(&mut self) -> io::Result<()> {
        loop {
            match self.connections.accept() {
                Ok(stream) => self.await_response(stream)?,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                // The connection broke before it was accepted. The dialer sees the error.
                Err(error)
                    if matches!(error.kind(), ErrorKind::ConnectionAborted | ErrorKind::Interrupted) => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn await_response(&mut self, stream: TcpStream) -> io::Result<()> {
        stream.set_nonblocking(true)?;
        if self.pending.len() == PENDING_MAX {
            self.pending.remove(0);
        }
        self.pending.push(PendingConnection {
            stream,
            since: Instant::now(),
            heard: [0; RESPONSE_BYTES],
            got: 0,
        });
        Ok(())
    }

    fn read_pending_responses(&mut self, keys: &SessionKeys) {
        for mut pending in std::mem::take(&mut self.pending) {
            match pending.read_response(keys, &self.nonce) {
                AwaitedDialerResponse::Owed => self.pending.push(pending),
                AwaitedDialerResponse::Proven(response) => self.admit(pending.stream, &response, keys),
                AwaitedDialerResponse::Wrong => {}
            }
        }
    }

    /// Stores a proven stream under its number. Otherwise the stream is closed without a proof: a response
    /// for a taken number may be a captured copy.
    fn admit(&mut self, mut stream: TcpStream, response: &DialerResponse, keys: &SessionKeys) {
        let StreamIndex { number, count } = response.stream_index();
        // The count in the first response holds for all.
        if number >= count || *self.count.get_or_insert(count) != count {
            return;
        }
        let Some(free @ None) = self.streams.get_mut(usize::from(number)) else { return };
        let proof = response.listener_proof(keys.auth());
        // The proof last: a dialer with the proof may use the stream. 32 bytes always fit into a fresh
        // socket's buffer.
        if prepare_stream(&stream, response.rtt()).is_ok() && stream.write_all(&proof).is_ok() {
            *free = Some(DataConnection { socket: stream, secret: keys.stream_secret(response) });
        }
    }
}

impl PendingConnection {
    fn read_response(&mut self, keys: &SessionKeys, nonce: &ListenerNonce) -> AwaitedDialerResponse {
        while self.got < RESPONSE_BYTES {
            match self.stream.read(&mut self.heard[self.got..]) {
                Ok(0) => return AwaitedDialerResponse::Wrong,
                Ok(count) => self.got += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    return if self.since.elapsed() < ANSWER_TIMEOUT {
                        AwaitedDialerResponse::Owed
                    } else {
                        AwaitedDialerResponse::Wrong
                    };
                }
                Err(_) => return AwaitedDialerResponse::Wrong,
            }
        }
        DialerResponse::verify(&self.heard, keys.auth(), nonce)
            .map_or(AwaitedDialerResponse::Wrong, AwaitedDialerResponse::Proven)
    }
}

pub(super) fn bind(port: u16) -> io::Result<TcpListener> {
    bind_to(Domain::IPV6, SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)))
        .or_else(|_| bind_to(Domain::IPV4, SocketAddr::from(([0, 0, 0, 0], port))))
}

fn bind_to(domain: Domain, address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(domain, Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if domain == Domain::IPV6 {
        socket.set_only_v6(false)?;
    }
    socket.bind(&address.into())?;
    set_near_congestion_control(&(&socket).into());
    socket.listen(PENDING_MAX as i32)?;
    Ok(socket.into())
}

fn bind_within(range: RangeInclusive<u16>) -> io::Result<TcpListener> {
    let mut last = io::Error::from(ErrorKind::AddrNotAvailable);
    for port in range {
        match bind(port) {
            Ok(listener) => return Ok(listener),
            Err(error) => last = error,
        }
    }
    Err(last)
}
