//! What the fuzz targets reach of this crate's inside (`fuzz/`): the bytes that a stranger, and a session's process that
//! somebody took over, say to the parent. No part of the interface.

use std::io;
use std::os::unix::net::UnixStream;

use carrack_wire::auth::ListenerNonce;

use crate::errand::{Charge, Errand, Inbox, ToParent, frame, receive};
use crate::parent::{ConnectionKind, kind_of};

/// What the parent makes of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// It waits for more.
    Waits,
    /// It gets a process.
    Control,
    /// It is handed on.
    Data(ListenerNonce),
    /// It is closed.
    Closed,
}

/// Of a connection that began so, where `there` bytes have come in all.
pub fn judged(start: &[u8], there: usize) -> Judgement {
    match kind_of(start, there) {
        ConnectionKind::Unknown => Judgement::Waits,
        ConnectionKind::Control => Judgement::Control,
        ConnectionKind::Data(nonce) => Judgement::Data(nonce),
        ConnectionKind::Foreign | ConnectionKind::Gone => Judgement::Closed,
    }
}

/// What the parent understands of what a session says on the other end of `socket`, until there is no more: each message
/// as a frame again.
///
/// # Errors
/// What the parent ends the session for.
pub fn heard_by_parent(inbox: &mut ParentInbox, socket: &UnixStream) -> io::Result<(Vec<Vec<u8>>, bool)> {
    let goes_on = inbox.0.fill(socket)?;
    let mut messages = Vec::new();
    while let Some(message) = inbox.0.next()? {
        messages.push(frame(&message)?.to_vec());
    }
    Ok((messages, goes_on))
}

/// What came from one session.
#[derive(Debug, Default)]
pub struct ParentInbox(Inbox);

impl ParentInbox {
    /// Bytes that wait for the rest of their message.
    pub fn waiting(&self) -> usize {
        self.0.waiting()
    }
}

/// Whether the body of a frame is a message to the parent.
pub fn is_to_parent(body: &[u8]) -> bool {
    serde_json::from_slice::<ToParent>(body).is_ok()
}

/// What a session's process makes of what its parent says first.
///
/// # Errors
/// What it gives up for.
pub fn heard_by_session(socket: &mut UnixStream) -> io::Result<(String, u64)> {
    let charge: Charge = receive(socket)?;
    let errand: Errand = receive(socket)?;
    Ok((charge.config, errand.session))
}
