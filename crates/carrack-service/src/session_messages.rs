//! Messages between the parent and a session's process: frames of JSON over a pair of Unix stream sockets.
//!
//! A frame is a length (u32, big endian), followed by this number of bytes. The parent sends the
//! [`SessionProcessSetup`] that all sessions have in common, then the [`SessionConnectionFacts`]; the session
//! reports its client, asks for admission, and reports its end. An admission is followed by one byte that
//! carries the socket for data connections (SCM_RIGHTS). The parent never waits for a session: its frames are
//! queued, and frames of a session may arrive in pieces and are bounded.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use carrack_trust::ProvedIdentity;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::audit::AuditedOutcome;
use crate::log::LogVerbosity;
use crate::material::CredentialMaterial;

/// The longest frame to a session: the configuration and all files that it names.
const TO_SESSION_BYTES_MAX: usize = 512 << 20;

/// The longest frame to the parent: four shortened paths, and a reason.
const TO_PARENT_BYTES_MAX: usize = 64 << 10;

/// Paths that the audit log shows of a session.
pub const PATHS_SHOWN_MAX: usize = 4;

/// The longest path or reason in a session's message, in bytes.
const TEXT_BYTES_MAX: usize = 2 << 10;

/// The data that all sessions have in common until the configuration changes.
#[derive(Debug, Serialize, Deserialize)]
pub struct SessionProcessSetup {
    /// The configuration's text, which the parent has checked.
    pub config: String,
    /// The files that it names.
    pub material: CredentialMaterial,
    /// The log's verbosity.
    pub verbosity: LogVerbosity,
}

/// The data of one session.
#[derive(Debug, Serialize, Deserialize)]
pub struct SessionConnectionFacts {
    /// The daemon's number for the session.
    pub session: u64,
    /// The client's address.
    pub peer: SocketAddr,
    /// The daemon's address that the client connected to.
    pub here: SocketAddr,
}

/// A client's request, as the audit log has it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditedWork {
    /// `read`, `write`, `list`, `make_directory` or `remove`.
    pub deed: String,
    /// The export; `None` if the paths name none.
    pub export: Option<String>,
    /// The first paths, escaped.
    pub paths: Vec<String>,
    /// Number of all paths.
    pub path_count: usize,
    /// The protection level of the data and its cipher, if data is sent at all.
    pub protection: Option<String>,
    /// See above.
    pub cipher: Option<String>,
}

/// A message of a session.
#[derive(Debug, Serialize, Deserialize)]
pub enum SessionProcessMessage {
    /// TLS is established with this client; `None` if a token will identify it.
    Known(Option<ProvedIdentity>),
    /// Asks for the admission of a client.
    Ask {
        /// Its identity.
        who: ProvedIdentity,
        /// Its request.
        work: AuditedWork,
        /// Expiry of its token, seconds since 1970.
        until_s: Option<u64>,
    },
    /// The session has refused this request without asking the parent.
    Wanted {
        /// The client's identity, if it is known.
        who: Option<ProvedIdentity>,
        /// The request.
        work: AuditedWork,
    },
    /// The session's end.
    Done(SessionReport),
}

/// The result of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionReport {
    /// Its kind.
    pub ending: AuditedOutcome,
    /// The reason; may be empty.
    pub reason: String,
    /// Bytes of content.
    pub bytes: u64,
    /// Regular files.
    pub files: u64,
    /// Entries that failed.
    pub failed: u64,
}

/// The parent's answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SessionAdmissionAnswer {
    /// The session is admitted; the socket for data connections follows.
    Admitted {
        /// The name under which the parent knows this session's listener.
        nonce: [u8; 32],
        /// Bytes per second that the session may move; 0 for no limit.
        rate: u64,
    },
    /// The session is refused, for now or for good.
    Refused {
        /// The reason.
        message: String,
        /// A hint for the client.
        hint: String,
        /// Time until another attempt may succeed, in milliseconds; `None` if it can't.
        later_ms: Option<u64>,
    },
}

/// Shortens a text that a peer may have chosen.
pub fn shortened(text: &str) -> String {
    if text.len() <= TEXT_BYTES_MAX {
        return text.to_owned();
    }
    let end = (0..=TEXT_BYTES_MAX).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
    format!("{}…", &text[..end])
}

/// Returns a message as a frame.
pub fn frame(message: &impl Serialize) -> io::Result<Arc<[u8]>> {
    let body = serde_json::to_vec(message)?;
    let length = u32::try_from(body.len()).map_err(io::Error::other)?;
    Ok([&length.to_be_bytes()[..], &body].concat().into())
}

/// Reads a frame within the socket's timeout.
pub fn receive<M: DeserializeOwned>(socket: &mut UnixStream) -> io::Result<M> {
    let mut length = [0; 4];
    socket.read_exact(&mut length)?;
    let length = u32::from_be_bytes(length) as usize;
    if length > TO_SESSION_BYTES_MAX {
        return Err(ErrorKind::InvalidData.into());
    }
    let mut body = vec![0; length];
    socket.read_exact(&mut body)?;
    Ok(serde_json::from_slice(&body)?)
}

/// Sends a frame; may block.
pub fn send(socket: &mut UnixStream, message: &impl Serialize) -> io::Result<()> {
    socket.write_all(&frame(message)?)
}

/// Receives the descriptor that follows an admission.
pub fn receive_descriptor(socket: &UnixStream) -> io::Result<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let descriptor = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    descriptor.ok_or_else(|| ErrorKind::InvalidData.into())
}

/// Sends a byte that carries a descriptor, without blocking.
pub fn send_descriptor(socket: impl AsFd, descriptor: impl AsFd) -> io::Result<()> {
    let descriptors = [descriptor.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(ErrorKind::InvalidInput.into());
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    sendmsg(socket, &[IoSlice::new(b"!")], &mut control, flags)?;
    Ok(())
}

/// Frames that a session has not read yet.
#[derive(Debug, Default)]
pub struct UnreadSessionFrames {
    waiting: VecDeque<SessionProcessOutboxItem>,
    /// Bytes of the first frame that were sent.
    taken: usize,
}

#[derive(Debug)]
enum SessionProcessOutboxItem {
    Bytes(Arc<[u8]>),
    Descriptor(OwnedFd),
}

impl UnreadSessionFrames {
    /// Adds a frame.
    pub fn push_bytes(&mut self, bytes: Arc<[u8]>) {
        self.waiting.push_back(SessionProcessOutboxItem::Bytes(bytes));
    }

    /// Adds a byte that carries a descriptor.
    pub fn push_descriptor(&mut self, descriptor: OwnedFd) {
        self.waiting.push_back(SessionProcessOutboxItem::Descriptor(descriptor));
    }

    /// Returns true if no frame waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Sends as much as the socket takes.
    pub fn flush(&mut self, mut socket: &UnixStream) -> io::Result<()> {
        while let Some(first) = self.waiting.front() {
            let sent = match first {
                SessionProcessOutboxItem::Bytes(bytes) => socket.write(&bytes[self.taken..]).map(|count| {
                    self.taken += count;
                    self.taken == bytes.len()
                }),
                SessionProcessOutboxItem::Descriptor(descriptor) => {
                    send_descriptor(socket, descriptor).map(|()| true)
                }
            };
            match sent {
                Ok(true) => {
                    self.waiting.pop_front();
                    self.taken = 0;
                }
                Ok(false) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Received bytes of a session, possibly with an incomplete frame.
#[derive(Debug, Default)]
pub struct SessionInbox(Vec<u8>);

impl SessionInbox {
    /// Reads the available bytes; returns false once the session has closed its end.
    ///
    /// # Errors
    /// `InvalidData` for a frame that is too long; the socket's errors.
    pub fn fill(&mut self, mut socket: &UnixStream) -> io::Result<bool> {
        let mut buffer = [0; 4096];
        while self.0.len() <= TO_PARENT_BYTES_MAX + 4 {
            match socket.read(&mut buffer) {
                Ok(0) => return Ok(false),
                Ok(count) => self.0.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(true),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Returns the number of bytes that wait for the rest of their frame.
    pub fn buffered_bytes(&self) -> usize {
        self.0.len()
    }

    /// Returns the next complete message.
    ///
    /// # Errors
    /// `InvalidData` for a frame that is no message.
    pub fn next(&mut self) -> io::Result<Option<SessionProcessMessage>> {
        let Some((length, rest)) = self.0.split_first_chunk::<4>() else { return Ok(None) };
        let length = u32::from_be_bytes(*length) as usize;
        if length > TO_PARENT_BYTES_MAX {
            return Err(ErrorKind::InvalidData.into());
        }
        let Some(body) = rest.get(..length) else { return Ok(None) };
        let message = serde_json::from_slice(body)?;
        self.0.drain(..4 + length);
        Ok(Some(message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (UnixStream, UnixStream) {
        let (parent, session) = UnixStream::pair().unwrap();
        parent.set_nonblocking(true).unwrap();
        (parent, session)
    }

    #[test]
    fn what_is_queued_arrives_in_order_whatever_the_socket_takes() {
        let (parent, mut session) = pair();
        let mut outbox = UnreadSessionFrames::default();
        let long = "x".repeat(3 << 20);
        outbox.push_bytes(frame(&long).unwrap());
        outbox.push_bytes(frame(&SessionAdmissionAnswer::Admitted { nonce: [7; 32], rate: 3 }).unwrap());
        let (handed, mut other) = UnixStream::pair().unwrap();
        outbox.push_descriptor(handed.into());
        outbox.flush(&parent).unwrap();
        assert!(!outbox.is_empty(), "a socket takes no three megabytes");
        let reading = std::thread::spawn(move || {
            let long: String = receive(&mut session).unwrap();
            let answer: SessionAdmissionAnswer = receive(&mut session).unwrap();
            (long, answer, receive_descriptor(&session).unwrap())
        });
        while !outbox.is_empty() {
            outbox.flush(&parent).unwrap();
            std::thread::yield_now();
        }
        let (heard, answer, descriptor) = reading.join().unwrap();
        assert_eq!((heard, answer), (long, SessionAdmissionAnswer::Admitted { nonce: [7; 32], rate: 3 }));
        UnixStream::from(descriptor).write_all(b"!").unwrap();
        let mut byte = [0];
        other.read_exact(&mut byte).unwrap();
    }

    #[test]
    fn messages_may_come_in_pieces() {
        let (parent, mut session) = pair();
        let mut inbox = SessionInbox::default();
        let frame = frame(&SessionProcessMessage::Known(None)).unwrap();
        for byte in frame.iter() {
            assert!(inbox.next().unwrap().is_none());
            session.write_all(&[*byte]).unwrap();
            assert!(inbox.fill(&parent).unwrap());
        }
        assert!(matches!(inbox.next().unwrap(), Some(SessionProcessMessage::Known(None))));
        drop(session);
        assert!(!inbox.fill(&parent).unwrap());
    }

    #[test]
    fn a_session_that_talks_too_much_is_not_listened_to() {
        for (said, kind) in [
            (u32::MAX.to_be_bytes().to_vec(), ErrorKind::InvalidData),
            (b"\0\0\0\x04nope".to_vec(), ErrorKind::InvalidData),
        ] {
            let (parent, mut session) = pair();
            session.write_all(&said).unwrap();
            let mut inbox = SessionInbox::default();
            inbox.fill(&parent).unwrap();
            assert_eq!(inbox.next().unwrap_err().kind(), kind);
        }
    }

    #[test]
    fn texts_are_cut_between_characters() {
        assert_eq!(shortened("short"), "short");
        assert!(shortened(&"é".repeat(TEXT_BYTES_MAX)).len() <= TEXT_BYTES_MAX + 3);
    }
}
