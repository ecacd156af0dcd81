//! The TCP connections of a lane whose objects travel by RMA.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use crate::endpoint_interface::TransportError;

/// The time limit for the last messages of an end that has closed its connections: they arrive over the
/// fabric.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Wakes the other end by a byte on the first connection. A closed connection shows that the other end is
/// gone.
pub(super) struct FabricPeerWaker {
    sockets: Vec<OwnedFd>,
    hung_up: Option<Instant>,
}

impl FabricPeerWaker {
    /// At least one socket.
    pub(super) fn new(sockets: Vec<OwnedFd>) -> FabricPeerWaker {
        FabricPeerWaker { sockets, hung_up: None }
    }

    /// Wakes the other end. Errors are ignored: a full socket has unread bytes, which wake the other end
    /// anyway.
    pub(super) fn wake_peer(&self) {
        if let Some(socket) = self.sockets.first() {
            let _ = send(socket, &[1], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
        }
    }

    /// Returns true if the other end has rung since the last call.
    pub(super) fn drain_wakeups(&mut self) -> Result<bool, TransportError> {
        let (mut rung, mut was_rung) = ([0; 64], false);
        while let (Some(socket), None) = (self.sockets.first(), self.hung_up) {
            match recv(socket, &mut rung, RecvFlags::DONTWAIT) {
                Ok((0, _)) => self.hung_up = Some(Instant::now()),
                Ok((count, _)) if count == rung.len() => was_rung = true,
                Ok(_) => return Ok(true),
                Err(Errno::AGAIN | Errno::INTR) => return Ok(was_rung),
                Err(error) => return Err(io::Error::from(error).into()),
            }
        }
        Ok(was_rung)
    }

    /// Fails if the other end closed its connections early.
    pub(super) fn check_peer_open(&self) -> Result<(), TransportError> {
        match self.hung_up {
            Some(moment) if moment.elapsed() > LAST_WORDS => Err(TransportError::ClosedEarly),
            _ => Ok(()),
        }
    }

    /// Readable when the other end has rung.
    pub(super) fn readiness(&self) -> Option<BorrowedFd<'_>> {
        self.sockets.first().filter(|_| self.hung_up.is_none()).map(AsFd::as_fd)
    }
}
