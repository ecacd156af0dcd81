//! The end that dials: all streams, to the first address that proves the key.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use carrack_wire::auth::{AuthError, ListenerNonce, PROOF_BYTES, Response, StreamPlace};

use super::{ANSWER_TIMEOUT, Stream, StreamCount, random};
use crate::seal::SessionKeys;
use crate::tcp::{NEAR_RTT, connect, prepare_stream};

/// How long one address may take to be reached. A firewall that drops answers nothing.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

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

/// Dials the streams to the first of `addresses` that answers with the right
/// proofs; goes on to the next one only while `go_on` says so, and no further than to the first right proof: where one
/// place is taken, no address leads to a listener that has them all. Neither end sends larger segments than `segment_bytes`.
pub fn dial(
    addresses: &[SocketAddr],
    keys: &SessionKeys,
    nonce: &ListenerNonce,
    streams: StreamCount,
    segment_bytes: Option<u32>,
    go_on: &dyn Fn() -> bool,
) -> Result<Vec<Stream>, DialError> {
    let mut problem = DialError::NoAddress;
    for &address in addresses.iter().take_while(|_| go_on()) {
        let goal = Goal { address, keys, nonce, segment_bytes };
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
    keys: &'a SessionKeys,
    nonce: &'a ListenerNonce,
    segment_bytes: Option<u32>,
}

/// All streams: on a path that is near one after the other, by this thread.
fn dial_all(goal: &Goal<'_>, streams: StreamCount) -> Vec<Result<Stream, DialError>> {
    match goal.connect(NEAR_RTT) {
        Ok((first, rtt)) if rtt < NEAR_RTT => goal.dial_near(first, rtt, streams.for_rtt(rtt)),
        Err(DialError::Unreachable(address, error)) if error.kind() != ErrorKind::TimedOut => {
            vec![Err(DialError::Unreachable(address, error))]
        }
        _ => dial_at_once(goal, streams),
    }
}

/// All streams at once: on a long path one after the other would cost two round trips each. The first connection that
/// stands shows how long the path is, and what is too much is closed again, or finds the port closed as the others stand
/// already.
fn dial_at_once(goal: &Goal<'_>, streams: StreamCount) -> Vec<Result<Stream, DialError>> {
    let count = OnceLock::new();
    thread::scope(|scope| {
        let dial = |number| {
            let count = &count;
            let dial = move || goal.dial_one(number, streams, count);
            thread::Builder::new().name("carrack-dial".into()).spawn_scoped(scope, dial)
        };
        let dialling: Vec<_> = (0..streams.most()).map(dial).collect();
        let failed = |error| Err(DialError::Unreachable(goal.address, error));
        let dialled = dialling.into_iter().map(|started| match started {
            Ok(thread) => thread.join().unwrap_or_else(|_| failed(ErrorKind::Other.into())),
            Err(error) => failed(error),
        });
        let dialled: Vec<_> = dialled.collect();
        let wanted = count.get().map_or(dialled.len(), |&count| count.into());
        dialled.into_iter().take(wanted).filter_map(Result::transpose).collect()
    })
}

impl Goal<'_> {
    /// A connection, and how long it took.
    fn connect(&self, timeout: Duration) -> Result<(TcpStream, Duration), DialError> {
        let began = Instant::now();
        let connected = connect(self.address, timeout, self.segment_bytes);
        let stream = connected.map_err(|error| DialError::Unreachable(self.address, error))?;
        Ok((stream, began.elapsed()))
    }

    /// The first of `count` streams on this connection, then the others. Where the listener is a stranger there are no others.
    fn dial_near(&self, first: TcpStream, rtt: Duration, count: u16) -> Vec<Result<Stream, DialError>> {
        let first = self.prove(first, rtt, StreamPlace { number: 0, count });
        if first.is_err() {
            return vec![first];
        }
        let others = (1..count).map(|number| {
            let (stream, rtt) = self.connect(CONNECT_TIMEOUT)?;
            self.prove(stream, rtt, StreamPlace { number, count })
        });
        [first].into_iter().chain(others).collect()
    }

    /// Nothing if this stream is one too many.
    fn dial_one(
        &self,
        number: u16,
        streams: StreamCount,
        count: &OnceLock<u16>,
    ) -> Result<Option<Stream>, DialError> {
        let (stream, rtt) = self.connect(CONNECT_TIMEOUT)?;
        let count = *count.get_or_init(|| streams.for_rtt(rtt));
        if number >= count {
            return Ok(None);
        }
        self.prove(stream, rtt, StreamPlace { number, count }).map(Some)
    }

    /// Both ends prove to each other on this connection that they know the session's key.
    fn prove(&self, mut stream: TcpStream, rtt: Duration, place: StreamPlace) -> Result<Stream, DialError> {
        let unreachable = |error| DialError::Unreachable(self.address, error);
        stream.set_read_timeout(Some(ANSWER_TIMEOUT)).map_err(unreachable)?;
        stream.set_nodelay(true).map_err(unreachable)?;

        let nonce = random().map_err(unreachable)?;
        let response = Response::new(self.keys.auth(), self.nonce, nonce, place, rtt);
        stream.write_all(response.as_bytes()).map_err(unreachable)?;
        let mut proof = [0; PROOF_BYTES];
        stream.read_exact(&mut proof).map_err(|error| self.unproven(error))?;
        let stranger = |error| DialError::Stranger(self.address, error);
        response.verify_listener(&proof, self.keys.auth()).map_err(stranger)?;
        prepare_stream(&stream, rtt).map_err(unreachable)?;
        Ok(Stream { socket: stream, secret: self.keys.stream(&response) })
    }

    /// A listener that does not take a response closes the connection; what is unread then becomes a reset.
    fn unproven(&self, error: io::Error) -> DialError {
        match error.kind() {
            ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset => DialError::Closed(self.address),
            _ => DialError::Unreachable(self.address, error),
        }
    }
}
