//! The control channel of such a session at either end: messages are written and read without blocking, and
//! both ends sleep in `poll`.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use carrack_machine::SlotPool;
use carrack_transport::{ControlLinkInput, SessionControlLink, TransportError};
use carrack_wire::message::ControlMessage;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::error::SessionError;

/// The interval at which an end that works on a question sends heartbeats.
pub(super) const HEARTBEAT: Duration = Duration::from_secs(10);

/// Writes without blocking. Returns true if nothing is left to write.
pub(super) fn flush(link: &mut SessionControlLink) -> Result<bool, SessionError> {
    link.flush().map_err(|_| SessionError::PeerGone)
}

/// Returns the next message, if it has arrived.
pub(super) fn try_receive_message(
    link: &mut SessionControlLink,
    slots: &SlotPool,
) -> Result<Option<ControlMessage>, SessionError> {
    let body = match link.receive(slots) {
        Ok(ControlLinkInput::Control { lane: 0, body }) => body,
        Ok(ControlLinkInput::Control { .. } | ControlLinkInput::Object(_)) => {
            return Err(SessionError::Protocol("what has no place in this session".into()));
        }
        Ok(ControlLinkInput::Pending) => return Ok(None),
        Ok(ControlLinkInput::Closed) | Err(TransportError::Io(_) | TransportError::Truncated) => {
            return Err(SessionError::PeerGone);
        }
        Err(error) => return Err(error.into()),
    };
    match ControlMessage::from_body(&body)? {
        ControlMessage::Refuse(message) => Err(SessionError::from_refusal(message)),
        ControlMessage::Abort(message) => Err(SessionError::from_abort(message)),
        message => Ok(Some(message)),
    }
}

/// Sleeps until the link or one of the others is ready, until `until` at most.
pub(super) fn wait_for_readiness(
    link: &SessionControlLink,
    is_flushed: bool,
    others: &[BorrowedFd<'_>],
    until: Instant,
) -> Result<(), SessionError> {
    if link.has_unread() {
        return Ok(());
    }
    let output = if is_flushed { PollFlags::empty() } else { PollFlags::OUT };
    let mut fds = vec![
        PollFd::from_borrowed_fd(link.input(), PollFlags::IN),
        PollFd::from_borrowed_fd(link.output(), output),
    ];
    fds.extend(others.iter().map(|&fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
    wait(&mut fds, until)
}

/// Calls `poll` with an end time.
pub(crate) fn wait(fds: &mut [PollFd<'_>], until: Instant) -> Result<(), SessionError> {
    let left = until.saturating_duration_since(Instant::now());
    let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
    match poll(fds, Some(&timeout)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(SessionError::local("waiting")(error.into())),
    }
}
