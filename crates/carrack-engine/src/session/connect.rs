//! The data connections of a session: who listens, who dials, and what happens if nobody gets through.

use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use carrack_machine::SlotPool;
use carrack_model::DialFrom;
use carrack_transport::{Link, Listener, dial, local_addresses};
use carrack_wire::auth::SessionKey;
use carrack_wire::message::{Control, Dialled, Listening};

use super::handshake::{expect, say};
use crate::error::SessionError;
use crate::settings::{Role, Settings};

/// How long all of the dialling may take: a few addresses, each of them dropped by a firewall.
const DIAL_TIMEOUT: Duration = Duration::from_secs(30);

/// How long connections that the dialer counts may take to be seen here.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(5);

/// Addresses that are tried at most; a peer may name more.
const ADDRESSES_MAX: usize = 8;

/// Which of the two dials first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FirstDialer {
    Initiator,
    Other,
}

pub(crate) fn first_dialer(dial_from: DialFrom, initiator: Role) -> FirstDialer {
    match (dial_from, initiator) {
        (DialFrom::Either, _) | (DialFrom::Source, Role::Source) | (DialFrom::Sink, Role::Sink) => {
            FirstDialer::Initiator
        }
        _ => FirstDialer::Other,
    }
}

/// Opens a port and says where it can be reached.
pub(crate) fn listen(
    settings: &Settings,
    key: &SessionKey,
    stream_count: u16,
    first_addresses: &[IpAddr],
) -> Result<(Listener, Listening), std::io::Error> {
    let listener = Listener::open(&settings.ports, key.clone(), stream_count)?;
    let mut addresses: Vec<IpAddr> = first_addresses.to_vec();
    for address in local_addresses() {
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    let listening = Listening {
        port: listener.port()?.into(),
        addresses: addresses.iter().map(ToString::to_string).collect(),
    };
    Ok((listener, listening))
}

/// The addresses to dial: where `host` resolves to first, as the control channel got there, then what the peer names.
fn candidates(host: Option<&str>, listening: &Listening) -> Vec<SocketAddr> {
    let Ok(port) = u16::try_from(listening.port) else { return Vec::new() };
    let resolved = host.and_then(|host| (host, port).to_socket_addrs().ok()).into_iter().flatten();
    let named = listening.addresses.iter().filter_map(|text| text.parse::<IpAddr>().ok());
    let mut addresses: Vec<SocketAddr> = Vec::new();
    for address in resolved.chain(named.map(|ip| SocketAddr::new(ip, port))) {
        if !addresses.contains(&address) && addresses.len() < ADDRESSES_MAX {
            addresses.push(address);
        }
    }
    addresses
}

/// Dials without a word to the other end.
pub(crate) fn dial_only(
    link: &Link,
    host: Option<&str>,
    listening: &Listening,
    key: &SessionKey,
    stream_count: u16,
) -> Result<Vec<TcpStream>, String> {
    let go_on = || !link.is_interrupted();
    dial(&candidates(host, listening), key, stream_count, &go_on).map_err(|error| error.to_string())
}

/// Tells the other end how dialling went.
pub(crate) fn tell(link: &mut Link, dialled: &Result<Vec<TcpStream>, String>) -> Result<(), SessionError> {
    let message = match dialled {
        Ok(streams) => Dialled { streams: streams.len() as u32, problem: String::new() },
        Err(problem) => Dialled { streams: 0, problem: problem.clone() },
    };
    say(link, Control::Dialled(message))
}

/// Both of them.
pub(crate) fn dial_and_tell(
    link: &mut Link,
    host: Option<&str>,
    listening: &Listening,
    key: &SessionKey,
    stream_count: u16,
) -> Result<Result<Vec<TcpStream>, String>, SessionError> {
    let dialled = dial_only(link, host, listening, key, stream_count);
    tell(link, &dialled)?;
    Ok(dialled)
}

/// What the end that listens came to know.
pub(crate) enum Served {
    /// The streams stand.
    Streams(Vec<TcpStream>),
    /// The other end did not get through; why.
    Failed(String),
    /// The other end did not get through and wants to be dialled.
    DialMe(Listening),
}

/// Waits for the other end to dial, until it tells how that went; without a listener only for what it tells.
pub(crate) fn serve_or_wait(
    link: &mut Link,
    pool: &SlotPool,
    listener: Option<(Listener, Listening)>,
) -> Result<Served, SessionError> {
    match listener {
        Some((listener, _)) => serve(link, pool, listener),
        None => match expect(link, pool, Instant::now() + DIAL_TIMEOUT)? {
            Control::Dialled(told) if told.streams == 0 => Ok(Served::Failed(told.problem)),
            Control::Dial(listening) => Ok(Served::DialMe(listening)),
            _ => Err(SessionError::Protocol("data connections that nobody listened for".into())),
        },
    }
}

/// Waits for the other end to dial, until it tells how that went.
pub(crate) fn serve(
    link: &mut Link,
    pool: &SlotPool,
    mut listener: Listener,
) -> Result<Served, SessionError> {
    let deadline = Instant::now() + DIAL_TIMEOUT;
    let waiting = SessionError::local("waiting for data connections");
    listener.serve(link.input(), deadline, &|| !link.is_interrupted()).map_err(waiting)?;
    match expect(link, pool, deadline)? {
        Control::Dialled(told) if told.streams == 0 => Ok(Served::Failed(told.problem)),
        Control::Dialled(_) => {
            // The message may overtake the last connections' answers.
            let (never, _held) =
                rustix::pipe::pipe().map_err(|e| SessionError::local("making a pipe")(e.into()))?;
            let soon = Instant::now() + SETTLE_TIMEOUT;
            let waiting = SessionError::local("waiting for data connections");
            listener.serve(never.as_fd(), soon, &|| !link.is_interrupted()).map_err(waiting)?;
            if !listener.is_complete() {
                return Err(SessionError::Protocol(
                    "the peer counts data connections that are not there".into(),
                ));
            }
            Ok(Served::Streams(listener.into_streams()))
        }
        Control::Dial(listening) => Ok(Served::DialMe(listening)),
        _ => Err(SessionError::Protocol("something else than the outcome of dialling".into())),
    }
}
