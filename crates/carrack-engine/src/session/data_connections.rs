//! The data connections of a session: listening, dialling, and the fallbacks when no connection is possible.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use carrack_machine::SlotPool;
use carrack_model::{DialingEnd, text_without_errno};
use carrack_transport::seal::SessionKeys;
use carrack_transport::{
    DataConnection, DialError, ListenPoint, SessionControlLink, StreamCount, StreamListener, dial,
    local_addresses, resolve,
};
use carrack_wire::auth::{ListenerNonce, NONCE_BYTES};
use carrack_wire::message::{ControlMessage, DialFailureMessage, ListenAddresses};

use super::handshake::{receive_message, send_message};
use crate::error::SessionError;
use crate::role::SessionRole;
use crate::settings::EndSettings;

/// The time for all dialling: a few addresses, each of them dropped by a firewall.
pub(super) const DIAL_TIMEOUT: Duration = Duration::from_secs(30);

/// Addresses that are tried at most; a peer may name more.
const ADDRESSES_MAX: usize = 8;

/// The end that dials first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FirstDialer {
    Initiator,
    Responder,
}

pub(crate) fn first_dialer(dial_from: DialingEnd, initiator: SessionRole) -> FirstDialer {
    match (dial_from, initiator) {
        (DialingEnd::Either, _)
        | (DialingEnd::Source, SessionRole::Source)
        | (DialingEnd::Sink, SessionRole::Sink) => FirstDialer::Initiator,
        _ => FirstDialer::Responder,
    }
}

/// Opens a listener, and returns the message with its addresses.
pub(crate) fn listen(
    door: ListenPoint,
    first_addresses: &[IpAddr],
    segment_bytes: Option<u32>,
) -> Result<(StreamListener, ListenAddresses), std::io::Error> {
    let listener = StreamListener::open(door)?;
    listener.limit_segment_size(segment_bytes);
    let mut addresses: Vec<IpAddr> = first_addresses.to_vec();
    for address in local_addresses() {
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    let listening = ListenAddresses {
        port: listener.port().into(),
        addresses: addresses.iter().map(ToString::to_string).collect(),
        nonce: listener.nonce().as_bytes().to_vec(),
    };
    Ok((listener, listening))
}

/// Returns the addresses to dial: first those of `host`, to which the control channel was opened, then those
/// that the peer names.
fn candidates(host: Option<&str>, listening: &ListenAddresses, patience: Duration) -> Vec<SocketAddr> {
    let Ok(port) = u16::try_from(listening.port) else { return Vec::new() };
    let resolved = host.and_then(|host| resolve(host, port, patience).ok()).into_iter().flatten();
    let named = listening.addresses.iter().filter_map(|text| text.parse::<IpAddr>().ok());
    let mut addresses: Vec<SocketAddr> = Vec::new();
    for address in resolved.chain(named.map(|ip| SocketAddr::new(ip, port))) {
        if !addresses.contains(&address) && addresses.len() < ADDRESSES_MAX {
            addresses.push(address);
        }
    }
    addresses
}

/// The established connections, or the reason for their absence.
pub(crate) type DialResult = Result<Vec<DataConnection>, String>;

/// Dials without a message to the other end.
pub(crate) fn dial_without_report(
    link: &SessionControlLink,
    host: Option<&str>,
    listening: Option<&ListenAddresses>,
    keys: &SessionKeys,
    streams: StreamCount,
    settings: &EndSettings,
) -> Result<DialResult, SessionError> {
    let Some(listening) = listening else { return Ok(Err(DialError::NoAddress.to_string())) };
    let nonce = ListenerNonce::from_slice(&listening.nonce).ok_or_else(|| {
        let length = listening.nonce.len();
        SessionError::Protocol(format!("a listener with a nonce of {length} bytes instead of {NONCE_BYTES}"))
    })?;
    let deadline = Instant::now() + settings.stall.min(DIAL_TIMEOUT);
    let addresses = candidates(host, listening, settings.stall.min(DIAL_TIMEOUT));
    let dialling = dial(&addresses, keys, &nonce, streams, settings.segment_bytes, &|| {
        !link.is_interrupted() && Instant::now() < deadline
    });
    Ok(dialling.map_err(|error| text_without_errno(&error)))
}

/// Tells the other end that dialling failed. It sees established connections itself.
pub(crate) fn send_dial_failure(link: &mut SessionControlLink, problem: &str) -> Result<(), SessionError> {
    send_message(link, ControlMessage::DialFailed(DialFailureMessage { problem: problem.into() }))
}

/// The outcome at the listening end.
pub(crate) enum ListenOutcome {
    /// The connections are established.
    Streams(Vec<DataConnection>),
    /// The other end could not connect, for this reason.
    Failed(String),
    /// The other end could not connect and wants to be dialled.
    DialMe(ListenAddresses),
}

/// Waits for the other end to dial, until the connections are established or it reports a failure; without a
/// listener, only for that report.
pub(crate) fn accept_or_await_report(
    link: &mut SessionControlLink,
    pool: &SlotPool,
    listener: Option<StreamListener>,
    keys: &SessionKeys,
) -> Result<ListenOutcome, SessionError> {
    match listener {
        Some(listener) => accept_connections(link, pool, listener, keys),
        None => receive_dial_report(link, pool, Instant::now() + DIAL_TIMEOUT),
    }
}

/// Waits for the other end to dial, until the connections are established or it reports a failure.
pub(crate) fn accept_connections(
    link: &mut SessionControlLink,
    pool: &SlotPool,
    mut listener: StreamListener,
    keys: &SessionKeys,
) -> Result<ListenOutcome, SessionError> {
    let deadline = Instant::now() + DIAL_TIMEOUT;
    let waiting = SessionError::local("waiting for data connections");
    listener.accept_streams(keys, link.input(), deadline, &|| !link.is_interrupted()).map_err(waiting)?;
    // A dialer that received its last proof sends messages of the session, and that proof was sent when all
    // connections were established at this end. So a message after that is left on the link for the session;
    // a message before reports a failure.
    if listener.is_complete() {
        return Ok(ListenOutcome::Streams(listener.into_streams()));
    }
    receive_dial_report(link, pool, deadline)
}

fn receive_dial_report(
    link: &mut SessionControlLink,
    pool: &SlotPool,
    deadline: Instant,
) -> Result<ListenOutcome, SessionError> {
    match receive_message(link, pool, deadline)? {
        ControlMessage::DialFailed(told) => Ok(ListenOutcome::Failed(told.problem)),
        ControlMessage::Dial(listening) => Ok(ListenOutcome::DialMe(listening)),
        _ => Err(SessionError::Protocol("a session without the data connections".into())),
    }
}
