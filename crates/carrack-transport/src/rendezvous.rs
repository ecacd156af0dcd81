//! How the data connections come to stand: one end listens, the other dials, both prove the session key.
//!
//! The control channel tells the dialer the listener's nonce, so that it can prove the key as soon as it is connected:
//! two round trips from dialling to the first payload, one where the listener is the source. A stranger who connects is
//! told nothing; at most one message of fixed size is read from him, then he is closed; others are served meanwhile.
//! When the agreed number of streams stands, the port is closed.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use carrack_model::limits::{STREAMS_FAR, STREAMS_MAX, STREAMS_NEAR};
use carrack_wire::auth::{
    AuthError, ListenerNonce, PROOF_BYTES, RESPONSE_BYTES, Response, SessionKey, StreamPlace,
};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::rand::{GetRandomFlags, getrandom};
use socket2::{Domain, Protocol, Socket, Type};

use crate::link::to_timespec;
use crate::tcp::{NEAR_RTT, begin_near, connect, prepare_stream};

/// Strangers that may owe their response at the same time; beyond it the oldest is closed.
const PENDING_MAX: usize = 128;

/// How long a dialer may take for its response, and a listener for its proof.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// How long one address may take to be reached. A firewall that drops answers nothing.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// Ports that may be listened on; nothing means any that the system gives.
pub type PortRange = Option<RangeInclusive<u16>>;

/// How many streams the dialer makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamCount {
    near: u16,
    far: u16,
}

impl StreamCount {
    /// For `lanes` lanes, the same number for each; `wanted` in all, or, if that is 0, as many as the length of the path
    /// asks for.
    pub fn new(wanted: u16, lanes: u16) -> StreamCount {
        let lanes = lanes.max(1);
        let (near, far) = match wanted {
            0 => (STREAMS_NEAR * lanes, STREAMS_FAR.max(STREAMS_NEAR * lanes)),
            wanted => (wanted, wanted),
        };
        // Up to a multiple of the lanes, and if those are too many, down to one.
        let for_each = |count: u16| count.div_ceil(lanes).min(STREAMS_MAX as u16 / lanes).max(1);
        StreamCount { near: for_each(near) * lanes, far: for_each(far) * lanes }
    }

    /// For a round trip.
    fn for_rtt(self, rtt: Duration) -> u16 {
        if rtt < NEAR_RTT { self.near } else { self.far }
    }

    fn most(self) -> u16 {
        self.near.max(self.far)
    }
}

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
    /// Something closed the connection without a proof: no carrack, the listener of another session, or one that
    /// speaks another version.
    #[error("{0} closed the connection without a proof that it belongs to this session")]
    Closed(SocketAddr),
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
    nonce: ListenerNonce,
    pending: Vec<Pending>,
    /// By their number. A place is taken once: nothing else tells a response from a copy of it.
    streams: Vec<Option<TcpStream>>,
    /// How many streams the dialer makes; it tells with the first.
    count: Option<u16>,
}

/// A connection that owes its response.
struct Pending {
    stream: TcpStream,
    since: Instant,
    heard: [u8; RESPONSE_BYTES],
    got: usize,
}

enum Heard {
    Owed,
    Proven(Response),
    Wrong,
}

impl Listener {
    /// Opens a port, over IPv6 and IPv4 alike where the system has both, for as many streams as the dialer chooses.
    pub fn open(ports: &PortRange, key: SessionKey) -> io::Result<Listener> {
        let listener = match ports {
            None => bind(0)?,
            Some(range) => bind_within(range.clone())?,
        };
        listener.set_nonblocking(true)?;
        let nonce = ListenerNonce::new(random()?);
        let streams = (0..STREAMS_MAX).map(|_| None).collect();
        Ok(Listener { listener, key, nonce, pending: Vec::new(), streams, count: None })
    }

    /// The port.
    pub fn port(&self) -> io::Result<u16> {
        Ok(self.listener.local_addr()?.port())
    }

    /// What the dialer has to know beside the port.
    pub fn nonce(&self) -> ListenerNonce {
        self.nonce
    }

    /// Whether every stream stands that the dialer makes.
    pub fn is_complete(&self) -> bool {
        let standing = self.streams.iter().flatten().count();
        self.count.is_some_and(|count| standing == usize::from(count))
    }

    /// Serves whoever connects until every stream stands, `also` is readable, or `deadline` is reached, and while
    /// `go_on`, which is asked about once a second, says so. Once every stream stands, `also` is not looked at.
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
            self.hear_pending();
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
                Ok((stream, _)) => self.await_response(stream)?,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                // A connection that broke before it was accepted is its dialer's affair.
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
        self.pending.push(Pending { stream, since: Instant::now(), heard: [0; RESPONSE_BYTES], got: 0 });
        Ok(())
    }

    fn hear_pending(&mut self) {
        for mut pending in std::mem::take(&mut self.pending) {
            match pending.hear(&self.key, &self.nonce) {
                Heard::Owed => self.pending.push(pending),
                Heard::Proven(response) => self.admit(pending.stream, &response),
                Heard::Wrong => {}
            }
        }
    }

    /// Gives a proven stream its place. Without a proof in return it is closed: where the place is taken, this may be a
    /// response that somebody has captured.
    fn admit(&mut self, mut stream: TcpStream, response: &Response) {
        let StreamPlace { number, count } = response.place();
        // The first stream's word on their number holds for all.
        if number >= count || *self.count.get_or_insert(count) != count {
            return;
        }
        let Some(free @ None) = self.streams.get_mut(usize::from(number)) else { return };
        let proof = response.listener_proof(&self.key, &self.nonce);
        // The proof last: who has it may rely on the stream. 32 bytes always fit into a fresh socket's buffer.
        if prepare_stream(&stream, response.rtt()).is_ok() && stream.write_all(&proof).is_ok() {
            *free = Some(stream);
        }
    }
}

impl Pending {
    fn hear(&mut self, key: &SessionKey, nonce: &ListenerNonce) -> Heard {
        while self.got < RESPONSE_BYTES {
            match self.stream.read(&mut self.heard[self.got..]) {
                Ok(0) => return Heard::Wrong,
                Ok(count) => self.got += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    return if self.since.elapsed() < ANSWER_TIMEOUT { Heard::Owed } else { Heard::Wrong };
                }
                Err(_) => return Heard::Wrong,
            }
        }
        Response::verify(&self.heard, key, nonce).map_or(Heard::Wrong, Heard::Proven)
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
    begin_near(&(&socket).into());
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

/// Dials the streams to the first of `addresses` that answers with the right
/// proofs; goes on to the next one only while `go_on` says so, and no further than to the first right proof: where one
/// place is taken, no address leads to a listener that has them all.
pub fn dial(
    addresses: &[SocketAddr],
    key: &SessionKey,
    nonce: &ListenerNonce,
    streams: StreamCount,
    go_on: &dyn Fn() -> bool,
) -> Result<Vec<TcpStream>, DialError> {
    let mut problem = DialError::NoAddress;
    for &address in addresses.iter().take_while(|_| go_on()) {
        let goal = Goal { address, key, nonce };
        let (streams, problems): (Vec<_>, Vec<_>) =
            dial_all(&goal, streams).into_iter().partition(Result::is_ok);
        match problems.into_iter().find_map(Result::err) {
            None => return Ok(streams.into_iter().flatten().collect()),
            Some(error) if !streams.is_empty() => return Err(error),
            Some(error) => problem = error,
        }
    }
    Err(problem)
}

/// What one connection is dialled for.
struct Goal<'a> {
    address: SocketAddr,
    key: &'a SessionKey,
    nonce: &'a ListenerNonce,
}

/// All streams at once: on a long path one after the other would cost two round trips each. The first connection that
/// stands shows how long the path is, and what is too much is closed again, or finds the port closed as the others stand
/// already.
fn dial_all(goal: &Goal<'_>, streams: StreamCount) -> Vec<Result<TcpStream, DialError>> {
    let count = OnceLock::new();
    thread::scope(|scope| {
        let dial = |number| {
            let count = &count;
            scope.spawn(move || goal.dial_one(number, streams, count))
        };
        let dialling: Vec<_> = (0..streams.most()).map(dial).collect();
        let failed = || DialError::Unreachable(goal.address, ErrorKind::Other.into());
        let dialled = dialling.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err(failed())));
        let dialled: Vec<_> = dialled.collect();
        let wanted = count.get().map_or(dialled.len(), |&count| count.into());
        dialled.into_iter().take(wanted).filter_map(Result::transpose).collect()
    })
}

impl Goal<'_> {
    /// Nothing if this stream is one too many.
    fn dial_one(
        &self,
        number: u16,
        streams: StreamCount,
        count: &OnceLock<u16>,
    ) -> Result<Option<TcpStream>, DialError> {
        let unreachable = |error| DialError::Unreachable(self.address, error);
        let began = Instant::now();
        let mut stream = connect(self.address, CONNECT_TIMEOUT).map_err(unreachable)?;
        let rtt = began.elapsed();
        let count = *count.get_or_init(|| streams.for_rtt(rtt));
        if number >= count {
            return Ok(None);
        }
        stream.set_read_timeout(Some(ANSWER_TIMEOUT)).map_err(unreachable)?;
        stream.set_nodelay(true).map_err(unreachable)?;

        let nonce = random().map_err(unreachable)?;
        let response = Response::new(self.key, self.nonce, nonce, StreamPlace { number, count }, rtt);
        stream.write_all(response.as_bytes()).map_err(unreachable)?;
        let mut proof = [0; PROOF_BYTES];
        stream.read_exact(&mut proof).map_err(|error| self.unproven(error))?;
        let stranger = |error| DialError::Stranger(self.address, error);
        response.verify_listener(&proof, self.key, self.nonce).map_err(stranger)?;
        prepare_stream(&stream, rtt).map_err(unreachable)?;
        Ok(Some(stream))
    }

    /// A listener that does not take a response closes the connection; what is unread then becomes a reset.
    fn unproven(&self, error: io::Error) -> DialError {
        match error.kind() {
            ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset => DialError::Closed(self.address),
            _ => DialError::Unreachable(self.address, error),
        }
    }
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

    /// With a test that hangs; a busy machine gets its time.
    const PATIENCE: Duration = Duration::from_secs(60);

    fn key() -> SessionKey {
        SessionKey::new([3; 32])
    }

    /// A listener, where it is, and its nonce.
    fn listen() -> (Listener, SocketAddr, ListenerNonce) {
        let listener = Listener::open(&None, key()).unwrap();
        let (address, nonce) = (loopback(listener.port().unwrap()), listener.nonce());
        (listener, address, nonce)
    }

    fn loopback(port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    fn serve(mut listener: Listener) -> thread::JoinHandle<Vec<TcpStream>> {
        thread::spawn(move || {
            let (never, _keep) = rustix::pipe::pipe().unwrap();
            listener.serve(never.as_fd(), Instant::now() + PATIENCE, &|| true).unwrap();
            listener.into_streams()
        })
    }

    /// Says `message` to the listener; its answer, which is empty where it closes the connection instead.
    fn ask(address: SocketAddr, message: &[u8]) -> (Vec<u8>, TcpStream) {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(message).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut answer = [0; 100];
        let count = match stream.read(&mut answer) {
            Err(error) if error.kind() == ErrorKind::ConnectionReset => 0,
            read => read.unwrap(),
        };
        (answer[..count].to_vec(), stream)
    }

    fn response(nonce: &ListenerNonce, number: u16, count: u16) -> Response {
        Response::new(&key(), nonce, [2; 32], StreamPlace { number, count }, Duration::ZERO)
    }

    #[test]
    fn streams_stand_although_strangers_knock() {
        let (listener, address, nonce) = listen();
        let serving = serve(listener);
        let silent: Vec<_> = (0..PENDING_MAX).map(|_| TcpStream::connect(address).unwrap()).collect();
        for i in 0..100 {
            let mut stranger = TcpStream::connect(address).unwrap();
            let _ = stranger.write_all(&[i; 500]);
        }
        let (other_key, other_nonce) = (SessionKey::new([4; 32]), ListenerNonce::new([5; 32]));
        for (key, nonce) in [(&other_key, &nonce), (&key(), &other_nonce)] {
            assert!(matches!(
                dial(&[address], key, nonce, StreamCount::new(1, 1), &|| true),
                Err(DialError::Closed(_))
            ));
        }
        let dialled = dial(&[address], &key(), &nonce, StreamCount::new(3, 1), &|| true).unwrap();
        assert_eq!((dialled.len(), serving.join().unwrap().len()), (3, 3));
        drop(silent);
        assert!(TcpStream::connect(address).is_err(), "the port is closed once the streams stand");
    }

    #[test]
    fn a_captured_response_gets_no_proof() {
        let (listener, address, nonce) = listen();
        let serving = serve(listener);
        let captured = response(&nonce, 0, 2);
        let (proof, _first) = ask(address, captured.as_bytes());
        assert_eq!(proof, captured.listener_proof(&key(), &nonce));
        for _ in 0..3 {
            assert_eq!(ask(address, captured.as_bytes()).0, b"");
        }
        // Neither does another true one for that place, nor one that counts otherwise.
        let rival = Response::new(&key(), &nonce, [3; 32], captured.place(), Duration::ZERO);
        for refused in [rival, response(&nonce, 1, 3), response(&nonce, 1, 1), response(&nonce, 2, 2)] {
            assert_eq!(ask(address, refused.as_bytes()).0, b"");
        }
        let last = response(&nonce, 1, 2);
        let (proof, _second) = ask(address, last.as_bytes());
        assert_eq!(proof, last.listener_proof(&key(), &nonce));
        assert_eq!(serving.join().unwrap().len(), 2);
    }

    #[test]
    fn strangers_are_told_nothing() {
        let (listener, address, nonce) = listen();
        let serving = serve(listener);
        let ours = response(&nonce, 0, 1);
        for at in [0, 8, 10, 12, 14, 16, 20, 52] {
            let mut changed = *ours.as_bytes();
            changed[at] ^= 1;
            assert_eq!(ask(address, &changed).0, b"", "{at}");
        }
        let none = response(&nonce, 0, 0);
        assert_eq!(ask(address, none.as_bytes()).0, b"");
        // In pieces, and with a byte too many, which is the stream's.
        let mut slow = TcpStream::connect(address).unwrap();
        for byte in ours.as_bytes() {
            slow.write_all(&[*byte]).unwrap();
        }
        slow.write_all(b"!").unwrap();
        let mut proof = [0; PROOF_BYTES];
        slow.read_exact(&mut proof).unwrap();
        assert_eq!(proof, ours.listener_proof(&key(), &nonce));
        let mut streams = serving.join().unwrap();
        let mut rest = [0; 2];
        assert_eq!((streams[0].read(&mut rest).unwrap(), rest[0]), (1, b'!'));
    }

    /// Answers each connection with what `answer` makes of the response, and closes it if that is nothing.
    fn answer_with(
        count: usize,
        answer: impl Fn(&[u8; RESPONSE_BYTES]) -> Vec<u8> + Send + 'static,
    ) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            let mut kept = Vec::new();
            for _ in 0..count {
                let (mut stream, _) = listener.accept().unwrap();
                let mut heard = [0; RESPONSE_BYTES];
                stream.read_exact(&mut heard).unwrap();
                let said = answer(&heard);
                stream.write_all(&said).unwrap();
                kept.push((!said.is_empty()).then_some(stream));
            }
            thread::sleep(Duration::from_millis(100));
        });
        address
    }

    #[test]
    fn a_dialer_does_not_trust_a_listener_without_the_key() {
        let nonce = ListenerNonce::new([1; 32]);
        let dial = |address| dial(&[address], &key(), &nonce, StreamCount::new(1, 1), &|| true);
        let impostor = answer_with(1, |_| vec![0; PROOF_BYTES]);
        assert!(matches!(dial(impostor), Err(DialError::Stranger(_, AuthError::WrongProof))));
        let mirror = answer_with(1, |heard| heard.to_vec());
        assert!(matches!(dial(mirror), Err(DialError::Stranger(_, AuthError::WrongProof))));
        let closing = answer_with(1, |_| vec![]);
        assert!(matches!(dial(closing), Err(DialError::Closed(_))));
    }

    #[test]
    fn where_one_stream_stood_no_other_address_is_dialled() {
        let nonce = ListenerNonce::new([1; 32]);
        let halfway = answer_with(2, move |heard| match Response::verify(heard, &key(), &nonce) {
            Ok(response) if response.place().number == 0 => response.listener_proof(&key(), &nonce).to_vec(),
            _ => vec![],
        });
        let (listener, address, other) = listen();
        listener.listener.set_nonblocking(true).unwrap();
        let dialled = dial(&[halfway, address], &key(), &nonce, StreamCount::new(2, 1), &|| true);
        assert!(matches!(dialled, Err(DialError::Closed(refusing)) if refusing == halfway));
        assert!(listener.listener.accept().is_err());
        // Where none did, the next one is.
        let serving = serve(listener);
        let closing = answer_with(2, |_| vec![]);
        assert_eq!(
            dial(&[closing, address], &key(), &other, StreamCount::new(2, 1), &|| true).unwrap().len(),
            2
        );
        assert_eq!(serving.join().unwrap().len(), 2);
    }

    #[test]
    fn what_else_is_readable_ends_the_waiting_only_while_streams_are_missing() {
        let (readable, said) = rustix::pipe::pipe().unwrap();
        rustix::io::write(said, b"!").unwrap();
        let soon = || Instant::now() + PATIENCE;
        let (mut listener, address, nonce) = listen();
        listener.serve(readable.as_fd(), soon(), &|| true).unwrap();
        assert!(!listener.is_complete());

        let (silent, _keep) = rustix::pipe::pipe().unwrap();
        let (last, _stream) = thread::scope(|scope| {
            let asking = scope.spawn(|| ask(address, response(&nonce, 0, 1).as_bytes()));
            listener.serve(silent.as_fd(), soon(), &|| true).unwrap();
            asking.join().unwrap()
        });
        assert_eq!(last.len(), PROOF_BYTES);
        listener.serve(readable.as_fd(), soon(), &|| true).unwrap();
        assert!(listener.is_complete());
    }

    #[test]
    fn a_near_path_gets_few_streams() {
        // Those that are one too many may find the port closed. And a busy machine may be far from itself, once.
        let stream_counts = (0..20).map(|_| {
            let (listener, address, nonce) = listen();
            let serving = serve(listener);
            let dialled = dial(&[address], &key(), &nonce, StreamCount::new(0, 1), &|| true).unwrap();
            assert_eq!(dialled.len(), serving.join().unwrap().len());
            dialled.len()
        });
        assert_eq!(stream_counts.min(), Some(2));
    }

    #[test]
    fn every_lane_gets_as_many_streams() {
        let counts = |wanted, lanes| {
            let streams = StreamCount::new(wanted, lanes);
            (streams.near, streams.far)
        };
        assert_eq!(
            (counts(0, 1), counts(0, 2), counts(0, 3), counts(0, 8)),
            ((2, 8), (4, 8), (6, 9), (16, 16))
        );
        assert_eq!(
            (counts(1, 1), counts(1, 4), counts(5, 2), counts(64, 6)),
            ((1, 1), (4, 4), (6, 6), (60, 60))
        );
    }

    #[test]
    fn the_port_comes_from_the_range() {
        let taken = bind(0).unwrap();
        let first = taken.local_addr().unwrap().port();
        let Some(last) = first.checked_add(20) else { return };
        let listener = Listener::open(&Some(first..=last), key()).unwrap();
        assert!((first + 1..=last).contains(&listener.port().unwrap()));
        assert!(Listener::open(&Some(first..=first), key()).is_err());
    }

    #[test]
    fn ipv6_works_where_the_system_has_it() {
        if TcpListener::bind("[::1]:0").is_err() {
            eprintln!("skipped: no IPv6 on this machine");
            return;
        }
        let (listener, address, nonce) = listen();
        let serving = serve(listener);
        let address = SocketAddr::from((Ipv6Addr::LOCALHOST, address.port()));
        assert_eq!(dial(&[address], &key(), &nonce, StreamCount::new(2, 1), &|| true).unwrap().len(), 2);
        assert_eq!(serving.join().unwrap().len(), 2);
    }
}
