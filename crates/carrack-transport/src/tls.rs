//! The control channel over TLS 1.3 (RFC 8446): a socket and a rustls connection, which never waits after the
//! handshake.
//!
//! The caller's configuration decides which peers are accepted.

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, Connection, ServerConfig, ServerConnection};
use socket2::SockRef;

use crate::control_link::to_timespec;
use crate::seal::{EXPORTER_LABEL, SECRET_BYTES};
use crate::tcp::keep_alive;

/// Plaintext that may wait for encryption: a few control messages.
const BUFFER_BYTES: usize = 256 << 10;

/// The reason why the handshake failed.
#[derive(Debug, thiserror::Error)]
pub enum TlsHandshakeError {
    /// The connection broke, or closed, or took too long (`ErrorKind::TimedOut`).
    #[error("the TLS handshake was cut short: {0}")]
    Io(#[from] io::Error),
    /// The two ends don't trust each other, or don't speak TLS 1.3.
    #[error("{0}")]
    Tls(#[from] rustls::Error),
}

impl TlsHandshakeError {
    /// The TLS error in an error of reading. With TLS 1.3 a client learns only after the handshake that the
    /// server does not accept it (RFC 8446 §4.4.2.4).
    pub fn from_io_error(error: &io::Error) -> Option<TlsHandshakeError> {
        let inner = error.get_ref()?.downcast_ref::<rustls::Error>()?;
        Some(TlsHandshakeError::Tls(inner.clone()))
    }
}

/// One end of a control channel over TLS.
pub struct TlsChannel {
    socket: TcpStream,
    connection: Connection,
    /// Decrypted bytes that were not read.
    unread: usize,
}

impl std::fmt::Debug for TlsChannel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TlsChannel({:?})", self.socket)
    }
}

impl TlsChannel {
    /// The connecting end. Fails if the handshake is not done by `deadline`.
    pub fn client(
        socket: TcpStream,
        config: Arc<ClientConfig>,
        server: ServerName<'static>,
        deadline: Instant,
    ) -> Result<TlsChannel, TlsHandshakeError> {
        TlsChannel::new(socket, ClientConnection::new(config, server)?.into(), deadline)
    }

    /// The accepting end. Fails if the handshake is not done by `deadline`.
    pub fn server(
        socket: TcpStream,
        config: Arc<ServerConfig>,
        deadline: Instant,
    ) -> Result<TlsChannel, TlsHandshakeError> {
        TlsChannel::new(socket, ServerConnection::new(config)?.into(), deadline)
    }

    fn new(
        socket: TcpStream,
        connection: Connection,
        deadline: Instant,
    ) -> Result<TlsChannel, TlsHandshakeError> {
        socket.set_nodelay(true)?;
        socket.set_nonblocking(true)?;
        let mut channel = TlsChannel { socket, connection, unread: 0 };
        channel.connection.set_buffer_limit(Some(BUFFER_BYTES));
        // The last handshake messages of a server leave after its handshake is complete.
        while channel.connection.is_handshaking() || channel.connection.wants_write() {
            let shaken = channel.handshake_step(deadline);
            if let Err(error) = shaken {
                // An alert tells the other end the reason.
                let _ = channel.push();
                return Err(error);
            }
        }
        Ok(channel)
    }

    /// One step of the handshake.
    fn handshake_step(&mut self, deadline: Instant) -> Result<(), TlsHandshakeError> {
        if !self.push()? {
            return Ok(self.wait_for(PollFlags::OUT, deadline)?);
        }
        if !self.connection.is_handshaking() {
            return Ok(());
        }
        match self.connection.read_tls(&mut self.socket) {
            Ok(0) => Err(io::Error::from(ErrorKind::UnexpectedEof).into()),
            Ok(_) => Ok(self.decrypt()?),
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(()),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                Ok(self.wait_for(PollFlags::IN, deadline)?)
            }
            Err(error) => Err(error.into()),
        }
    }

    fn wait_for(&self, events: PollFlags, deadline: Instant) -> io::Result<()> {
        let left = deadline.saturating_duration_since(Instant::now());
        if left == Duration::ZERO {
            return Err(ErrorKind::TimedOut.into());
        }
        let mut fds = [PollFd::from_borrowed_fd(self.socket.as_fd(), events)];
        match poll(&mut fds, Some(&to_timespec(left))) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// The other end's certificate chain, its own certificate first; `None` if it sent none.
    pub fn peer_certificates(&self) -> Option<&[CertificateDer<'static>]> {
        self.connection.peer_certificates()
    }

    /// The application protocol that both ends agreed on (RFC 7301); `None` without an agreement.
    pub fn protocol(&self) -> Option<&[u8]> {
        self.connection.alpn_protocol()
    }

    /// The socket.
    pub fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// Makes the connection fail when sent bytes stay unacknowledged for `patience` (TCP_USER_TIMEOUT,
    /// tcp(7)), or keepalive probes unanswered. A closed window never causes this, as the other end always
    /// reads.
    pub(crate) fn set_peer_timeout(&self, patience: Duration) {
        let socket = SockRef::from(&self.socket);
        let _ = socket.set_tcp_user_timeout(Some(patience));
        let _ = keep_alive(&socket, patience);
    }

    /// The secret that only the two ends of this channel have (RFC 8446 §7.5).
    pub fn exporter(&self) -> Result<[u8; SECRET_BYTES], rustls::Error> {
        self.connection.export_keying_material([0; SECRET_BYTES], EXPORTER_LABEL, None)
    }

    fn decrypt(&mut self) -> Result<(), rustls::Error> {
        self.unread = self.connection.process_new_packets()?.plaintext_bytes_to_read();
        Ok(())
    }

    /// Returns true if decrypted bytes wait to be read. `poll` does not show them.
    pub(crate) fn has_unread(&self) -> bool {
        self.unread > 0
    }

    pub(crate) fn readiness(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Returns true if encrypted bytes wait for the socket.
    pub(crate) fn has_unsent(&self) -> bool {
        self.connection.wants_write()
    }

    /// Reads without waiting. A connection without a close_notify reads as closed: the session knows from its
    /// own messages whether it was complete.
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.connection.reader().read(buffer) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(0),
                Err(error) => return Err(error),
                Ok(count) => {
                    self.unread = self.unread.saturating_sub(count);
                    return Ok(count);
                }
            }
            self.connection.read_tls(&mut self.socket)?;
            let decrypted = self.decrypt();
            // Sends answers to key updates, and alerts.
            let _ = self.push();
            decrypted.map_err(|error| io::Error::new(ErrorKind::InvalidData, error))?;
        }
    }

    /// Takes as many bytes as fit, and sends as many as the socket takes, without waiting.
    pub(crate) fn write(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let taken = self.connection.writer().write_vectored(parts)?;
        self.push()?;
        if taken == 0 { Err(ErrorKind::WouldBlock.into()) } else { Ok(taken) }
    }

    /// Sends encrypted bytes without waiting. Returns true when none is left.
    pub(crate) fn push(&mut self) -> io::Result<bool> {
        while self.connection.wants_write() {
            match self.connection.write_tls(&mut self.socket) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Closes the channel after the last message. A socket that is closed with unread bytes resets the
    /// connection, and the other end may then lose the last message (RFC 2525 §2.17). So this call discards
    /// input until the other end has closed too, or until the deadline.
    pub(crate) fn close_by(&mut self, deadline: Instant) {
        self.connection.send_close_notify();
        if self.push().is_err() || self.socket.shutdown(Shutdown::Write).is_err() {
            return;
        }
        let mut ignored = [0; 4096];
        loop {
            match self.socket.read(&mut ignored) {
                Ok(1..) if Instant::now() < deadline => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if self.wait_for(PollFlags::IN, deadline).is_err() {
                        return;
                    }
                }
                _ => return,
            }
        }
    }
}

impl Drop for TlsChannel {
    fn drop(&mut self) {
        self.connection.send_close_notify();
        // Fails if the other end is gone.
        let _ = self.push();
    }
}
