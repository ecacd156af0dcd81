//! Entry points of the fuzz targets (`fuzz/`) into this crate: the parent's parsing of bytes from a stranger,
//! and from a compromised session's process. Not a part of the interface.

use std::io;
use std::os::unix::net::UnixStream;

use carrack_wire::auth::ListenerNonce;

use crate::parent::{ConnectionKind, kind_of};
use crate::session_messages::{
    SessionConnectionFacts, SessionInbox, SessionProcessMessage, SessionProcessSetup, frame, receive,
};

/// The parent's decision about a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionRoutingDecision {
    /// It waits for more bytes.
    Waits,
    /// It gets a process.
    Control,
    /// It is passed to a session.
    Data(ListenerNonce),
    /// It is closed.
    Closed,
}

/// Returns the decision about a connection with these first bytes, of `there` bytes received in all.
pub fn routing_decision(start: &[u8], there: usize) -> ConnectionRoutingDecision {
    match kind_of(start, there) {
        ConnectionKind::Unknown => ConnectionRoutingDecision::Waits,
        ConnectionKind::Control => ConnectionRoutingDecision::Control,
        ConnectionKind::Data(nonce) => ConnectionRoutingDecision::Data(nonce),
        ConnectionKind::Foreign | ConnectionKind::Gone => ConnectionRoutingDecision::Closed,
    }
}

/// Parses the messages of a session at the other end of `socket` as the parent does, until there are no more;
/// returns each as a frame again.
///
/// # Errors
/// The error for which the parent ends the session.
pub fn parse_messages_to_parent(
    inbox: &mut FuzzedSessionInbox,
    socket: &UnixStream,
) -> io::Result<(Vec<Vec<u8>>, bool)> {
    let goes_on = inbox.0.fill(socket)?;
    let mut messages = Vec::new();
    while let Some(message) = inbox.0.next()? {
        messages.push(frame(&message)?.to_vec());
    }
    Ok((messages, goes_on))
}

/// Received bytes of one session.
#[derive(Debug, Default)]
pub struct FuzzedSessionInbox(SessionInbox);

impl FuzzedSessionInbox {
    /// Returns the number of bytes that wait for the rest of their frame.
    pub fn buffered_bytes(&self) -> usize {
        self.0.buffered_bytes()
    }
}

/// Returns true if the body of a frame is a message to the parent.
pub fn is_to_parent(body: &[u8]) -> bool {
    serde_json::from_slice::<SessionProcessMessage>(body).is_ok()
}

/// Parses the parent's first messages as a session's process does.
///
/// # Errors
/// The error for which the process ends.
pub fn parse_messages_to_session(socket: &mut UnixStream) -> io::Result<(String, u64)> {
    let charge: SessionProcessSetup = receive(socket)?;
    let errand: SessionConnectionFacts = receive(socket)?;
    Ok((charge.config, errand.session))
}
