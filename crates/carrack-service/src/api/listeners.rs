//! Listeners of the API: Unix sockets, whose peers the kernel identifies; TLS; and plain TCP on loopback
//! addresses, where no other host can read the tokens.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use rustls::ServerConfig;
use thiserror::Error;
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::auth::ApiPeer;
use super::unproved_connections::{UnprovedApiStream, UnprovedConnections};

/// Timeout of a TLS handshake. The limit of strangers bounds the handshakes at a time.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// Connections with a finished handshake that wait to be taken.
const SHAKEN_MAX: usize = 64;

/// Pause before another attempt to accept when the system lacks a resource.
const AGAIN: Duration = Duration::from_millis(50);

/// The protocol name of HTTP in a TLS handshake (RFC 7301).
const ALPN: &[u8] = b"http/1.1";

/// An error of listening.
#[derive(Debug, Error)]
pub enum ListenError {
    /// The system's error.
    #[error("listening at {place}: {error}")]
    System {
        /// The path or address.
        place: String,
        /// The system's error.
        error: io::Error,
    },
    /// Another process listens there already.
    #[error("somebody listens at {path} already", path = .0.display())]
    InUse(PathBuf),
    /// The existing file is no socket.
    #[error("{path} is there and is no socket", path = .0.display())]
    NoSocket(PathBuf),
    /// Tokens would travel unencrypted.
    #[error("{0} can be reached by others, and there is no TLS")]
    Plain(SocketAddr),
}

impl ListenError {
    /// Returns a hint for the administrator.
    pub fn hint(&self) -> &'static str {
        match self {
            ListenError::System { .. } => "",
            ListenError::InUse(_) => "is another daemon running? each needs a socket of its own",
            ListenError::NoSocket(_) => "name another path for the socket",
            ListenError::Plain(_) => {
                "give the server a certificate, or have it listen on 127.0.0.1, [::1] or a Unix socket"
            }
        }
    }
}

/// A listening socket.
#[derive(Debug)]
pub struct ApiListener(pub(super) ApiListenerKind);

pub(super) enum ApiListenerKind {
    Unix(UnixListener),
    Plain(ApiTcpListener),
    Tls(TlsListener),
}

impl std::fmt::Debug for ApiListenerKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            ApiListenerKind::Unix(_) => "Unix",
            ApiListenerKind::Plain(_) => "Plain",
            ApiListenerKind::Tls(_) => "Tls",
        })
    }
}

/// For `map_err`: adds the path of a Unix socket.
fn socket_error(path: &Path) -> impl FnOnce(io::Error) -> ListenError {
    move |error| ListenError::System { place: path.display().to_string(), error }
}

impl ApiListener {
    /// Opens a Unix socket with these permissions, and replaces the socket of a dead process. Needs a Tokio
    /// runtime, as the others do.
    ///
    /// # Errors
    /// [`ListenError`] if it can't listen there.
    pub fn unix(path: &Path, mode: u32) -> Result<ApiListener, ListenError> {
        match fs::symlink_metadata(path) {
            Ok(metadata) if !metadata.file_type().is_socket() => {
                return Err(ListenError::NoSocket(path.to_path_buf()));
            }
            Ok(_) if std::os::unix::net::UnixStream::connect(path).is_ok() => {
                return Err(ListenError::InUse(path.to_path_buf()));
            }
            Ok(_) => fs::remove_file(path).map_err(socket_error(path))?,
            Err(_) => {
                if let Some(directory) = path.parent() {
                    fs::create_dir_all(directory).map_err(socket_error(path))?;
                }
            }
        }
        let listener = UnixListener::bind(path).map_err(socket_error(path))?;
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(socket_error(path))?;
        Ok(ApiListener(ApiListenerKind::Unix(listener)))
    }

    /// Listens on TCP, with TLS if there is a configuration, as `carrack_trust::server_config` makes it.
    ///
    /// # Errors
    /// [`ListenError`]; without TLS for every address that is not a loopback address.
    pub async fn tcp(
        address: SocketAddr,
        tls: Option<Arc<ServerConfig>>,
    ) -> Result<ApiListener, ListenError> {
        if tls.is_none() && !address.ip().is_loopback() {
            return Err(ListenError::Plain(address));
        }
        let listener = TcpListener::bind(address).await;
        let listener = listener.map_err(|error| ListenError::System { place: address.to_string(), error })?;
        Ok(ApiListener(match tls {
            None => {
                ApiListenerKind::Plain(ApiTcpListener { listener, strangers: UnprovedConnections::default() })
            }
            Some(tls) => {
                let mut tls = ServerConfig::clone(&tls);
                tls.alpn_protocols = vec![ALPN.to_vec()];
                ApiListenerKind::Tls(TlsListener::new(listener, Arc::new(tls)))
            }
        }))
    }

    /// Returns the address of a TCP listener.
    pub fn address(&self) -> Option<SocketAddr> {
        match &self.0 {
            ApiListenerKind::Unix(_) => None,
            ApiListenerKind::Plain(plain) => plain.listener.local_addr().ok(),
            ApiListenerKind::Tls(listener) => Some(listener.address),
        }
    }
}

/// Accepted TCP connections.
pub(super) struct ApiTcpListener {
    listener: TcpListener,
    strangers: UnprovedConnections,
}

impl Listener for ApiTcpListener {
    type Io = UnprovedApiStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        accept(&self.listener, &self.strangers).await
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

async fn accept(listener: &TcpListener, strangers: &UnprovedConnections) -> (UnprovedApiStream, SocketAddr) {
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => return (strangers.register(stream, peer), peer),
            // Connections that broke before they were accepted (accept(2)).
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(_) => {
                strangers.close_one();
                tokio::time::sleep(AGAIN).await;
            }
        }
    }
}

/// TLS connections with a finished handshake.
pub(super) struct TlsListener {
    address: SocketAddr,
    shaken: mpsc::Receiver<(TlsStream<UnprovedApiStream>, SocketAddr)>,
}

impl TlsListener {
    /// Each handshake runs in a task of its own: a slow client delays no other.
    fn new(listener: TcpListener, tls: Arc<ServerConfig>) -> TlsListener {
        let address = listener.local_addr().unwrap_or(SocketAddr::from(([0, 0, 0, 0], 0)));
        let (sender, shaken) = mpsc::channel(SHAKEN_MAX);
        let acceptor = TlsAcceptor::from(tls);
        let strangers = UnprovedConnections::default();
        tokio::spawn(async move {
            loop {
                let (stream, peer) = tokio::select! {
                    accepted = accept(&listener, &strangers) => accepted,
                    () = sender.closed() => return,
                };
                let (acceptor, sender) = (acceptor.clone(), sender.clone());
                tokio::spawn(async move {
                    // Handshakes of strangers fail here; such failures are no trouble of the server's.
                    if let Ok(Ok(stream)) = tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await {
                        let _ = sender.send((stream, peer)).await;
                    }
                });
            }
        });
        TlsListener { address, shaken }
    }
}

impl Listener for TlsListener {
    type Io = TlsStream<UnprovedApiStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        match self.shaken.recv().await {
            Some(shaken) => shaken,
            // The listening task lives as long as this receiver.
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.address)
    }
}

impl Connected<IncomingStream<'_, UnixListener>> for ApiPeer {
    fn connect_info(stream: IncomingStream<'_, UnixListener>) -> ApiPeer {
        // Without credentials the peer is unknown, and gets no answer but an error.
        stream.io().peer_cred().map_or(ApiPeer::Nameless, |credentials| ApiPeer::User(credentials.uid()))
    }
}

impl Connected<IncomingStream<'_, ApiTcpListener>> for ApiPeer {
    fn connect_info(stream: IncomingStream<'_, ApiTcpListener>) -> ApiPeer {
        ApiPeer::Remote(stream.io().unproved_guard())
    }
}

impl Connected<IncomingStream<'_, TlsListener>> for ApiPeer {
    fn connect_info(stream: IncomingStream<'_, TlsListener>) -> ApiPeer {
        ApiPeer::Remote(stream.io().get_ref().0.unproved_guard())
    }
}
