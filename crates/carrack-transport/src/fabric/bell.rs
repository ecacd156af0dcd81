//! The TCP connections of a lane whose objects go another way.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use crate::endpoint::TransportError;

/// How long the last messages of an end that has hung up may take: they come by another way.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// A byte on the first of them says: look at what has come. Whoever hangs up is gone.
pub(super) struct Bell {
    sockets: Vec<OwnedFd>,
    hung_up: Option<Instant>,
}

impl Bell {
    /// At least one socket.
    pub(super) fn new(sockets: Vec<OwnedFd>) -> Bell {
        Bell { sockets, hung_up: None }
    }

    /// Wakes the other end. One that has not heard so many bytes yet will look anyhow, and one that is gone hears nothing.
    pub(super) fn ring(&self) {
        if let Some(socket) = self.sockets.first() {
            let _ = send(socket, &[1], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
        }
    }

    /// Whether it was rung since the last time.
    pub(super) fn listen(&mut self) -> Result<bool, TransportError> {
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

    /// An end that has hung up before all was said and done.
    pub(super) fn check(&self) -> Result<(), TransportError> {
        match self.hung_up {
            Some(moment) if moment.elapsed() > LAST_WORDS => Err(TransportError::ClosedEarly),
            _ => Ok(()),
        }
    }

    /// Readable when it was rung.
    pub(super) fn readiness(&self) -> Option<BorrowedFd<'_>> {
        self.sockets.first().filter(|_| self.hung_up.is_none()).map(AsFd::as_fd)
    }
}
