//! Connections over the network that have not shown a token yet. Their number is bounded: beyond it the
//! holder of most of them, by address and prefix, loses its oldest. A connection with a valid token no longer
//! counts.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use carrack_transport::{ConnectionEvictionOrder, PeerAddressPrefix};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::oneshot;

/// Limit for each listener: a server with the usual 1,024 descriptors can spare these, and clients open fewer
/// in a handshake's time.
pub(super) const STRANGERS_MAX: usize = 256;

/// The strangers of a listener.
#[derive(Clone, Debug, Default)]
pub(super) struct UnprovedConnections(Arc<Mutex<UnprovedConnectionTable>>);

#[derive(Debug, Default)]
struct UnprovedConnectionTable {
    shares: ConnectionEvictionOrder<u64>,
    /// Sending to one of these closes its connection.
    closing: HashMap<u64, oneshot::Sender<()>>,
    next: u64,
}

/// A stranger, until it is authenticated or dropped.
#[derive(Debug)]
pub(super) struct UnprovedGuard {
    strangers: UnprovedConnections,
    place: PeerAddressPrefix,
    number: u64,
}

/// A connection that is closed if others need its place.
#[derive(Debug)]
pub(super) struct UnprovedApiStream {
    stream: TcpStream,
    stranger: Arc<UnprovedGuard>,
    /// `None` once the client is authenticated.
    closed: Option<oneshot::Receiver<()>>,
}

impl UnprovedConnections {
    fn lock_table(&self) -> MutexGuard<'_, UnprovedConnectionTable> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a connection; beyond the limit another connection is closed for it.
    pub fn register(&self, stream: TcpStream, peer: SocketAddr) -> UnprovedApiStream {
        let (closing, closed) = oneshot::channel();
        let place = PeerAddressPrefix::of(peer);
        let mut met = self.lock_table();
        if met.closing.len() >= STRANGERS_MAX {
            met.close_one();
        }
        let number = met.next;
        met.next += 1;
        met.shares.add(place, number);
        met.closing.insert(number, closing);
        let stranger = Arc::new(UnprovedGuard { strangers: self.clone(), place, number });
        UnprovedApiStream { stream, stranger, closed: Some(closed) }
    }

    /// Closes the oldest connection of the largest holder, to free a descriptor.
    pub fn close_one(&self) {
        self.lock_table().close_one();
    }
}

impl UnprovedConnectionTable {
    fn close_one(&mut self) {
        let Some((place, number)) = self.shares.eviction_candidate() else { return };
        self.shares.remove(place, number);
        if let Some(closing) = self.closing.remove(&number) {
            // It may be closed already.
            let _ = closing.send(());
        }
    }
}

impl UnprovedGuard {
    /// Stops counting the connection: its client has shown a token.
    pub fn mark_authenticated(&self) {
        let mut met = self.strangers.lock_table();
        met.shares.remove(self.place, self.number);
        met.closing.remove(&self.number);
    }
}

impl Drop for UnprovedGuard {
    fn drop(&mut self) {
        self.mark_authenticated();
    }
}

impl UnprovedApiStream {
    /// Returns the connection's stranger.
    pub fn unproved_guard(&self) -> Arc<UnprovedGuard> {
        Arc::clone(&self.stranger)
    }
}

impl AsyncRead for UnprovedApiStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let Some(closed) = &mut self.closed {
            match Pin::new(closed).poll(context) {
                Poll::Ready(Ok(())) => return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into())),
                Poll::Ready(Err(_)) => self.closed = None,
                Poll::Pending => {}
            }
        }
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for UnprovedApiStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
