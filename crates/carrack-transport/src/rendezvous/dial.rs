//! The dialing end: all streams, to the first address that proves the key.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use carrack_wire::auth::{DataConnectionAuthError, DialerResponse, ListenerNonce, PROOF_BYTES, StreamIndex};

use super::{ANSWER_TIMEOUT, DataConnection, StreamCount, random};
use crate::seal::SessionKeys;
use crate::tcp::{NEAR_RTT, connect, prepare_stream};

/// The time limit for a connection to one address. A firewall that drops packets does not answer.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// The reason why no data connection was made.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// The other end named no address.
    #[error("the other end is not listening")]
    NoAddress,
    /// None of the addresses could be reached. Carries the last error.
    #[error("{0}: {1}")]
    Unreachable(SocketAddr, #[source] io::Error),
    /// The answering process does not know the session key.
    #[error("{0}: {1}")]
    Stranger(SocketAddr, #[source] DataConnectionAuthError),
    /// The connection was closed without a proof: not a carrack, the listener of another session, or another
    /// version.
    #[error("{0} closed the connection without a proof that it belongs to this session")]
    Closed(SocketAddr),
}

/// Dials the streams to the first of `addresses` that answers with the right proofs. Tries the next address
/// while `go_on` returns true, and only until the first right proof: if one of the listener's stream numbers
/// is taken, no other address helps. Neither end sends larger segments than `segment_bytes`.
pub fn dial(
    addresses: &[SocketAddr],
    keys: &SessionKeys,
    nonce: &ListenerNonce,
    streams: StreamCount,
    segment_bytes: Option<u32>,
    go_on: &dyn Fn() -> bool,
) -> Result<Vec<DataConnection>, DialError> {
    let mut problem = DialError::NoAddress;
    for &address in addresses.iter().take_while(|_| go_on()) {
        let parameters = DialParameters { address, keys, nonce, segment_bytes };
        let (streams, problems): (Vec<_>, Vec<_>) =
            dial_all(&parameters, streams).into_iter().partition(Result::is_ok);
        match problems.into_iter().find_map(Result::err) {
            None => return Ok(streams.into_iter().flatten().collect()),
            Some(error) if !streams.is_empty() => return Err(error),
            Some(error) => problem = error,
        }
    }
    Err(problem)
}

/// The parameters common to the streams to one address.
struct DialParameters<'a> {
    address: SocketAddr,
    keys: &'a SessionKeys,
    nonce: &'a ListenerNonce,
    segment_bytes: Option<u32>,
}

/// All streams; on a near path one after the other, by this thread.
fn dial_all(parameters: &DialParameters<'_>, streams: StreamCount) -> Vec<Result<DataConnection, DialError>> {
    match parameters.connect(NEAR_RTT) {
        Ok((first, rtt)) if rtt < NEAR_RTT => parameters.dial_sequentially(first, rtt, streams.for_rtt(rtt)),
        Err(DialError::Unreachable(address, error)) if error.kind() != ErrorKind::TimedOut => {
            vec![Err(DialError::Unreachable(address, error))]
        }
        not_near => {
            // A connection without a response would occupy a listener that serves one at a time.
            drop(not_near);
            dial_at_once(parameters, streams)
        }
    }
}

/// All streams at once: on a long path one after the other would cost two round trips each. The round-trip
/// time of the first connection decides the number. Surplus connections are closed, or find the port closed
/// when all streams stand.
fn dial_at_once(
    parameters: &DialParameters<'_>,
    streams: StreamCount,
) -> Vec<Result<DataConnection, DialError>> {
    let count = &OnceLock::new();
    thread::scope(|scope| {
        let mut dialling = Vec::new();
        for number in 0..streams.most() {
            let builder = thread::Builder::new().name("carrack-dial".into());
            dialling.push(builder.spawn_scoped(scope, move || parameters.dial_one(number, streams, count)));
        }
        let mut dialled = Vec::new();
        for started in dialling {
            dialled.push(match started {
                Ok(thread) => {
                    thread.join().unwrap_or_else(|_| Err(parameters.unreachable(ErrorKind::Other.into())))
                }
                Err(error) => Err(parameters.unreachable(error)),
            });
        }
        let wanted = count.get().map_or(dialled.len(), |&count| count.into());
        dialled.into_iter().take(wanted).filter_map(Result::transpose).collect()
    })
}

impl DialParameters<'_> {
    fn unreachable(&self, error: io::Error) -> DialError {
        DialError::Unreachable(self.address, error)
    }

    /// A connection, and the round-trip time of its handshake.
    fn connect(&self, timeout: Duration) -> Result<(TcpStream, Duration), DialError> {
        let began = Instant::now();
        let connected = connect(self.address, timeout, self.segment_bytes);
        let stream = connected.map_err(|error| self.unreachable(error))?;
        Ok((stream, began.elapsed()))
    }

    /// The first of `count` streams on this connection, then the others unless the first failed.
    fn dial_sequentially(
        &self,
        first: TcpStream,
        rtt: Duration,
        count: u16,
    ) -> Vec<Result<DataConnection, DialError>> {
        let first = self.authenticate(first, rtt, StreamIndex { number: 0, count });
        if first.is_err() {
            return vec![first];
        }
        let others = (1..count).map(|number| {
            let (stream, rtt) = self.connect(CONNECT_TIMEOUT)?;
            self.authenticate(stream, rtt, StreamIndex { number, count })
        });
        [first].into_iter().chain(others).collect()
    }

    /// `None` if this stream is surplus.
    fn dial_one(
        &self,
        number: u16,
        streams: StreamCount,
        count: &OnceLock<u16>,
    ) -> Result<Option<DataConnection>, DialError> {
        let (stream, rtt) = self.connect(CONNECT_TIMEOUT)?;
        let count = *count.get_or_init(|| streams.for_rtt(rtt));
        if number >= count {
            return Ok(None);
        }
        self.authenticate(stream, rtt, StreamIndex { number, count }).map(Some)
    }

    /// Proves the session key on this connection, and has the listener prove it.
    fn authenticate(
        &self,
        mut stream: TcpStream,
        rtt: Duration,
        place: StreamIndex,
    ) -> Result<DataConnection, DialError> {
        stream.set_read_timeout(Some(ANSWER_TIMEOUT)).map_err(|error| self.unreachable(error))?;
        stream.set_nodelay(true).map_err(|error| self.unreachable(error))?;

        let nonce = random().map_err(|error| self.unreachable(error))?;
        let response = DialerResponse::new(self.keys.auth(), self.nonce, nonce, place, rtt);
        stream.write_all(response.as_bytes()).map_err(|error| self.unreachable(error))?;
        let mut proof = [0; PROOF_BYTES];
        stream.read_exact(&mut proof).map_err(|error| self.authentication_error(error))?;
        response
            .verify_listener(&proof, self.keys.auth())
            .map_err(|error| DialError::Stranger(self.address, error))?;
        prepare_stream(&stream, rtt).map_err(|error| self.unreachable(error))?;
        Ok(DataConnection { socket: stream, secret: self.keys.stream_secret(&response) })
    }

    /// A listener closes the connection if it rejects the response. Unread bytes then make it a reset.
    fn authentication_error(&self, error: io::Error) -> DialError {
        match error.kind() {
            ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset => DialError::Closed(self.address),
            _ => self.unreachable(error),
        }
    }
}
