//! How the data connections come to stand: one end listens, the other dials, both prove the session key.
//!
//! A stranger who connects is challenged before a byte is read from him, answers with at most one message of fixed
//! size, and is closed; others are served meanwhile. When the agreed number of streams stands, the port is closed.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use carrack_model::limits::{STREAMS_FAR, STREAMS_NEAR};
use carrack_wire::auth::{
    AuthError, CHALLENGE_BYTES, Challenge, RESPONSE_BYTES, Response, SessionKey, StreamPlace, listener_proof,
    verify_listener,
};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::rand::{GetRandomFlags, getrandom};
use socket2::{Domain, Protocol, Socket, Type};

use crate::link::to_timespec;
use crate::tcp::{NEAR_RTT, prepare_stream};

/// Strangers that may be answering their challenge at the same time; beyond it the oldest is closed.
const PENDING_MAX: usize = 128;

/// How long a dialer may take to answer its challenge.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// How long one address may take to be reached. A firewall that drops answers nothing.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// Ports that may be listened on; nothing means any that the system gives.
pub type PortRange = Option<RangeInclusive<u16>>;

/// Why no data connection could be made.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// The other end named no address.
    #[error("the other end is not listening")]
    NoAddress,
    /// None of the addresses could be reached; the last reason.
    #[error("{0}: {1}")]
    Unreachable(SocketAddr, #[source] io::Error),
    /// Something answered that does not know the session key.
    #[error("{0}: {1}")]
    Stranger(SocketAddr, #[source] AuthError),
}

/// `N` bytes of the system's random source.
pub(crate) fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    let mut filled = 0;
    while filled < N {
        filled += getrandom(&mut bytes[filled..], GetRandomFlags::empty())?;
    }
    Ok(bytes)
}

/// A port that is open until the session's streams stand.
pub struct Listener {
    listener: TcpListener,
    key: SessionKey,
    pending: Vec<Pending>,
    streams: Vec<Option<TcpStream>>,
    /// How many streams the dialer makes; it tells with the first.
    count: Option<u16>,
}

/// A connection that has its challenge and owes the answer.
struct Pending {
    stream: TcpStream,
    challenge: Challenge,
    since: Instant,
    answer: [u8; RESPONSE_BYTES],
    got: usize,
}

enum Answer {
    Owed,
    Proven(StreamPlace),
    Wrong,
}

impl Listener {
    /// Opens a port, over IPv6 and IPv4 alike where the system has both, for `stream_count` streams (0: as many as the
    /// dialer chooses).
    pub fn open(ports: &PortRange, key: SessionKey, stream_count: u16) -> io::Result<Listener> {
        let listener = match ports {
            None => bind(0)?,
            Some(range) => bind_within(range.clone())?,
        };
        listener.set_nonblocking(true)?;
        let streams = (0..most_streams(stream_count)).map(|_| None).collect();
        Ok(Listener { listener, key, pending: Vec::new(), streams, count: None })
    }

    /// The port.
    pub fn port(&self) -> io::Result<u16> {
        Ok(self.listener.local_addr()?.port())
    }

    /// Whether every stream stands that the dialer makes.
    pub fn is_complete(&self) -> bool {
        let standing = self.streams.iter().flatten().count();
        self.count.is_some_and(|count| standing == usize::from(count))
    }

    /// Serves whoever connects until every stream stands, `also` is readable, or `deadline` is reached, and while
    /// `go_on`, which is asked about once a second, says so.
    pub fn serve(
        &mut self,
        also: BorrowedFd<'_>,
        deadline: Instant,
        go_on: &dyn Fn() -> bool,
    ) -> io::Result<()> {
        while !self.is_complete() && Instant::now() < deadline && go_on() {
            if self.wait(also, deadline)? {
                return Ok(());
            }
            self.accept()?;
            self.hear_answers();
        }
        Ok(())
    }

    /// The streams that stand, in the dialer's order. The port is closed.
    pub fn into_streams(self) -> Vec<TcpStream> {
        self.streams.into_iter().flatten().collect()
    }

    /// Sleeps until something happens; true if `also` became readable.
    fn wait(&self, also: BorrowedFd<'_>, deadline: Instant) -> io::Result<bool> {
        let mut fds = vec![
            PollFd::from_borrowed_fd(also, PollFlags::IN),
            PollFd::from_borrowed_fd(self.listener.as_fd(), PollFlags::IN),
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
            match self.listener.accept() {
                Ok((stream, _)) => self.challenge(stream)?,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                // A connection that broke before it was accepted is its dialer's affair.
                Err(error)
                    if matches!(error.kind(), ErrorKind::ConnectionAborted | ErrorKind::Interrupted) => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn challenge(&mut self, mut stream: TcpStream) -> io::Result<()> {
        let challenge = Challenge { nonce: random()? };
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        // 48 bytes always fit into a fresh socket's buffer; whoever is gone already is forgotten.
        if stream.write_all(&challenge.encode()).is_err() {
            return Ok(());
        }
        if self.pending.len() == PENDING_MAX {
            self.pending.remove(0);
        }
        let since = Instant::now();
        self.pending.push(Pending { stream, challenge, since, answer: [0; RESPONSE_BYTES], got: 0 });
        Ok(())
    }

    fn hear_answers(&mut self) {
        for mut pending in std::mem::take(&mut self.pending) {
            match pending.hear(&self.key) {
                Answer::Owed => self.pending.push(pending),
                Answer::Proven(place) => self.admit(pending, place),
                Answer::Wrong => {}
            }
        }
    }

    fn admit(&mut self, mut pending: Pending, place: StreamPlace) {
        // The first stream's word on their number holds for all.
        if *self.count.get_or_insert(place.count) != place.count || place.number >= place.count {
            return;
        }
        let Some(free @ None) = self.streams.get_mut(usize::from(place.number)) else { return };
        let Ok(response) = Response::verify(&pending.answer, &self.key, &pending.challenge) else { return };
        let proof = listener_proof(&self.key, &pending.challenge, &response);
        let rtt = pending.since.elapsed();
        if pending.stream.write_all(&proof).is_ok() && prepare_stream(&pending.stream, rtt).is_ok() {
            *free = Some(pending.stream);
        }
    }
}

impl Pending {
    fn hear(&mut self, key: &SessionKey) -> Answer {
        while self.got < RESPONSE_BYTES {
            match self.stream.read(&mut self.answer[self.got..]) {
                Ok(0) => return Answer::Wrong,
                Ok(count) => self.got += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    return if self.since.elapsed() < ANSWER_TIMEOUT { Answer::Owed } else { Answer::Wrong };
                }
                Err(_) => return Answer::Wrong,
            }
        }
        match Response::verify(&self.answer, key, &self.challenge) {
            Ok(response) => Answer::Proven(response.place),
            Err(_) => Answer::Wrong,
        }
    }
}

fn bind(port: u16) -> io::Result<TcpListener> {
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

/// Dials `stream_count` streams (0: by the path's round trip) to the first of `addresses` that answers with the right proof; goes on to the next
/// one only while `go_on` says so.
pub fn dial(
    addresses: &[SocketAddr],
    key: &SessionKey,
    stream_count: u16,
    go_on: &dyn Fn() -> bool,
) -> Result<Vec<TcpStream>, DialError> {
    let mut problem = DialError::NoAddress;
    for &address in addresses.iter().take_while(|_| go_on()) {
        match dial_all(address, key, stream_count) {
            Ok(streams) => return Ok(streams),
            Err(error) => problem = error,
        }
    }
    Err(problem)
}

/// All streams at once: on a long path one after the other would cost two round trips each. Where the number is open,
/// the first connection that stands shows how long the path is, and what is too much is closed again.
fn dial_all(address: SocketAddr, key: &SessionKey, stream_count: u16) -> Result<Vec<TcpStream>, DialError> {
    let count = OnceLock::new();
    if stream_count > 0 {
        let _ = count.set(stream_count);
    }
    thread::scope(|scope| {
        let dial = |number| {
            let count = &count;
            scope.spawn(move || dial_one(address, key, number, count))
        };
        let dialling: Vec<_> = (0..most_streams(stream_count)).map(dial).collect();
        let failed = || DialError::Unreachable(address, ErrorKind::Other.into());
        let dialled = dialling.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err(failed())));
        dialled.filter_map(Result::transpose).collect()
    })
}

/// The most streams that a number from the specification can become.
fn most_streams(stream_count: u16) -> u16 {
    if stream_count == 0 { STREAMS_FAR } else { stream_count }
}

/// Nothing if this stream is one too many.
fn dial_one(
    address: SocketAddr,
    key: &SessionKey,
    number: u16,
    count: &OnceLock<u16>,
) -> Result<Option<TcpStream>, DialError> {
    let unreachable = |error| DialError::Unreachable(address, error);
    let stranger = |error| DialError::Stranger(address, error);
    let began = Instant::now();
    let mut stream = TcpStream::connect_timeout(&address, CONNECT_TIMEOUT).map_err(unreachable)?;
    let rtt = began.elapsed();
    let count = *count.get_or_init(|| if rtt < NEAR_RTT { STREAMS_NEAR } else { STREAMS_FAR });
    if number >= count {
        return Ok(None);
    }
    stream.set_read_timeout(Some(ANSWER_TIMEOUT)).map_err(unreachable)?;
    stream.set_nodelay(true).map_err(unreachable)?;

    let mut challenge = [0; CHALLENGE_BYTES];
    stream.read_exact(&mut challenge).map_err(unreachable)?;
    let challenge = Challenge::decode(&challenge).map_err(stranger)?;
    let nonce = random().map_err(unreachable)?;
    let response = Response::new(key, &challenge, nonce, StreamPlace { number, count });
    stream.write_all(&response.encode()).map_err(unreachable)?;
    let mut proof = [0; 32];
    stream.read_exact(&mut proof).map_err(unreachable)?;
    verify_listener(&proof, key, &challenge, &response).map_err(stranger)?;
    prepare_stream(&stream, rtt).map_err(unreachable)?;
    Ok(Some(stream))
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

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> SessionKey {
        SessionKey::new([3; 32])
    }

    fn loopback(port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    fn serve(mut listener: Listener) -> thread::JoinHandle<Vec<TcpStream>> {
        thread::spawn(move || {
            let (never, _keep) = rustix::pipe::pipe().unwrap();
            listener.serve(never.as_fd(), Instant::now() + Duration::from_secs(20), &|| true).unwrap();
            listener.into_streams()
        })
    }

    #[test]
    fn streams_stand_although_strangers_knock() {
        let listener = Listener::open(&None, key(), 3).unwrap();
        let port = listener.port().unwrap();
        let serving = serve(listener);
        let silent: Vec<_> = (0..PENDING_MAX).map(|_| TcpStream::connect(loopback(port)).unwrap()).collect();
        for i in 0..100 {
            let mut stranger = TcpStream::connect(loopback(port)).unwrap();
            let _ = stranger.write_all(&[i; 500]);
        }
        assert!(matches!(
            dial(&[loopback(port)], &SessionKey::new([4; 32]), 1, &|| true),
            Err(DialError::Unreachable(..) | DialError::Stranger(..))
        ));
        let dialled = dial(&[loopback(port)], &key(), 3, &|| true).unwrap();
        assert_eq!((dialled.len(), serving.join().unwrap().len()), (3, 3));
        drop(silent);
        assert!(TcpStream::connect(loopback(port)).is_err(), "the port is closed once the streams stand");
    }

    #[test]
    fn a_dialer_does_not_trust_a_listener_without_the_key() {
        let impostor = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = impostor.local_addr().unwrap();
        let answering = thread::spawn(move || {
            let (mut stream, _) = impostor.accept().unwrap();
            stream.write_all(&Challenge { nonce: [0; 32] }.encode()).unwrap();
            let mut answer = [0; RESPONSE_BYTES];
            stream.read_exact(&mut answer).unwrap();
            stream.write_all(&[0; 32]).unwrap();
        });
        assert!(matches!(
            dial(&[address], &key(), 1, &|| true),
            Err(DialError::Stranger(_, AuthError::WrongProof))
        ));
        answering.join().unwrap();
    }

    #[test]
    fn a_near_path_gets_few_streams() {
        let listener = Listener::open(&None, key(), 0).unwrap();
        let port = listener.port().unwrap();
        let serving = serve(listener);
        let dialled = dial(&[loopback(port)], &key(), 0, &|| true).unwrap();
        assert_eq!((dialled.len(), serving.join().unwrap().len()), (2, 2));
    }

    #[test]
    fn the_port_comes_from_the_range() {
        let taken = bind(0).unwrap();
        let first = taken.local_addr().unwrap().port();
        let Some(last) = first.checked_add(20) else { return };
        let listener = Listener::open(&Some(first..=last), key(), 1).unwrap();
        assert!((first + 1..=last).contains(&listener.port().unwrap()));
        assert!(Listener::open(&Some(first..=first), key(), 1).is_err());
    }

    #[test]
    fn ipv6_works_where_the_system_has_it() {
        if TcpListener::bind("[::1]:0").is_err() {
            eprintln!("skipped: no IPv6 on this machine");
            return;
        }
        let listener = Listener::open(&None, key(), 2).unwrap();
        let port = listener.port().unwrap();
        let serving = serve(listener);
        let address = SocketAddr::from((Ipv6Addr::LOCALHOST, port));
        assert_eq!(dial(&[address], &key(), 2, &|| true).unwrap().len(), 2);
        assert_eq!(serving.join().unwrap().len(), 2);
    }
}
