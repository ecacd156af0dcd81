//! The client of the API, with the same commands as the queue itself.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes, to_bytes};
use axum::http::{Method, Request, Response, StatusCode, header};
use carrack_plan::grants::SharedTargetStatus;
use carrack_register::transfer_operations::{
    TransferControlOrder, TransferOperationError, TransferOperations,
};
use carrack_register::transfer_records::{MoverRecord, TransferRecord, TransferSubmission};
use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream};
use futures_util::{FutureExt, StreamExt};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;

use super::problem::ApiProblem;
use super::watch_client::TransferWatchClient;

/// The longest answer: ten thousand records with their failures.
const ANSWER_BYTES_MAX: usize = 256 << 20;

/// Timeouts of the connection and of an answer.
const CONNECT: Duration = Duration::from_secs(10);
const ANSWER: Duration = Duration::from_secs(60);

/// The address of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerAddress {
    /// A Unix socket.
    Unix(PathBuf),
    /// `http://` or `https://`.
    Tcp {
        /// Name or address, an IPv6 address without its brackets.
        host: String,
        /// TCP port.
        port: u16,
        /// `https://`.
        is_tls: bool,
    },
}

/// An error for a text that names no server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no server (write unix:/path, http://host:port or https://host:port)")]
pub struct BadServerAddress(String);

impl FromStr for ServerAddress {
    type Err = BadServerAddress;

    fn from_str(text: &str) -> Result<ServerAddress, BadServerAddress> {
        ServerAddress::parse(text).ok_or_else(|| BadServerAddress(text.to_owned()))
    }
}

impl ServerAddress {
    fn parse(text: &str) -> Option<ServerAddress> {
        if let Some(path) = text.strip_prefix("unix:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            return (!path.is_empty()).then(|| ServerAddress::Unix(path.into()));
        }
        let (rest, is_tls) = match (text.strip_prefix("http://"), text.strip_prefix("https://")) {
            (Some(rest), _) => (rest, false),
            (_, Some(rest)) => (rest, true),
            _ => return None,
        };
        let authority = rest.strip_suffix('/').unwrap_or(rest);
        let default = if is_tls { 443 } else { 80 };
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, port.parse().ok()?),
            _ => (authority, default),
        };
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let is_host = host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-:_".contains(&byte));
        (!host.is_empty() && is_host).then(|| ServerAddress::Tcp { host: host.to_owned(), port, is_tls })
    }
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ServerAddress::Unix(path) => write!(f, "unix:{}", path.display()),
            ServerAddress::Tcp { host, port, is_tls } => {
                f.write_str(if *is_tls { "https://" } else { "http://" })?;
                if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
            }
        }
    }
}

/// A client of one server.
#[derive(Clone, Debug)]
pub struct ApiClient {
    server: ServerAddress,
    /// Sent over the network; on a Unix socket the peer credentials tell the user.
    token: String,
    tls: Option<Arc<ClientConfig>>,
}

impl ApiClient {
    /// Creates a client of `server`. `token` may be empty. `tls` is the trust for `https://`, as
    /// `carrack_trust::client_config` makes it.
    pub fn new(server: ServerAddress, token: String, tls: Option<Arc<ClientConfig>>) -> ApiClient {
        let tls = tls.map(|tls| {
            let mut tls = ClientConfig::clone(&tls);
            tls.alpn_protocols = vec![b"http/1.1".to_vec()];
            Arc::new(tls)
        });
        ApiClient { server, token, tls }
    }

    /// Returns the server's address.
    pub fn server(&self) -> &ServerAddress {
        &self.server
    }

    /// Returns the storage targets that transfers share, of a file system or all.
    ///
    /// # Errors
    /// If the server can't be reached, or shares no targets.
    pub async fn targets(
        &self,
        file_system: &str,
    ) -> Result<Vec<SharedTargetStatus>, TransferOperationError> {
        let path = match file_system {
            "" => "/v1/targets".to_owned(),
            name => format!("/v1/targets?fs={}", quoted(name)),
        };
        self.request_json(Method::GET, path, None, "").await
    }

    pub(super) fn unreachable_error(&self, error: impl fmt::Display) -> TransferOperationError {
        TransferOperationError::Away(format!("{}: {error}", self.server))
    }

    /// Sends a request, and waits for the head of the answer.
    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<Vec<u8>>,
    ) -> Result<Response<Body>, TransferOperationError> {
        let stream = tokio::time::timeout(CONNECT, self.connect()).await;
        let stream = stream.unwrap_or_else(|_| Err(self.unreachable_error("nobody answers")))?;
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|error| self.unreachable_error(error))?;
        // The task ends with the answer's body, or with its reader.
        tokio::spawn(connection);
        let request = self.request(method, path, body)?;
        let answer = tokio::time::timeout(ANSWER, sender.send_request(request)).await;
        match answer {
            Ok(Ok(answer)) => Ok(answer.map(Body::new)),
            Ok(Err(error)) => Err(self.unreachable_error(error)),
            Err(_) => Err(self.unreachable_error("no answer")),
        }
    }

    fn request(
        &self,
        method: Method,
        path: &str,
        body: Option<Vec<u8>>,
    ) -> Result<Request<Body>, TransferOperationError> {
        let host = match &self.server {
            ServerAddress::Unix(_) => "localhost".to_owned(),
            ServerAddress::Tcp { host, port, .. } if host.contains(':') => format!("[{host}]:{port}"),
            ServerAddress::Tcp { host, port, .. } => format!("{host}:{port}"),
        };
        let mut request = Request::builder().method(method).uri(path).header(header::HOST, host);
        if !self.token.is_empty() && !matches!(self.server, ServerAddress::Unix(_)) {
            request = request.header(header::AUTHORIZATION, format!("Bearer {}", self.token));
        }
        if body.is_some() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        request.body(body.map_or_else(Body::empty, Body::from)).map_err(|error| self.unreachable_error(error))
    }

    async fn connect(&self) -> Result<Box<dyn ApiStream>, TransferOperationError> {
        let (host, port, is_tls) = match &self.server {
            ServerAddress::Unix(path) => {
                let stream =
                    UnixStream::connect(path).await.map_err(|error| self.unreachable_error(error))?;
                return Ok(Box::new(stream));
            }
            ServerAddress::Tcp { host, port, is_tls } => (host, *port, *is_tls),
        };
        let stream =
            TcpStream::connect((host.as_str(), port)).await.map_err(|error| self.unreachable_error(error))?;
        if !is_tls {
            let is_near = stream.peer_addr().is_ok_and(|address| address.ip().is_loopback());
            if !is_near && !self.token.is_empty() {
                return Err(TransferOperationError::Refused {
                    message: format!("{}: everybody on the way could read the token", self.server),
                    hint: "write https://".to_owned(),
                });
            }
            return Ok(Box::new(stream));
        }
        let config =
            self.tls.clone().ok_or_else(|| self.unreachable_error("there is nobody to believe it by"))?;
        let name = ServerName::try_from(host.clone())
            .map_err(|_| self.unreachable_error("this is not a name that a certificate could hold"))?;
        let stream = TlsConnector::from(config).connect(name, stream).await;
        Ok(Box::new(stream.map_err(|error| self.unreachable_error(error))?))
    }

    /// Sends a request, and reads the whole answer; `id` is the request's transfer.
    async fn request_json<T: DeserializeOwned>(
        &self,
        method: Method,
        path: String,
        body: Option<Vec<u8>>,
        id: &str,
    ) -> Result<T, TransferOperationError> {
        let answer = self.send(method, &path, body).await?;
        let status = answer.status();
        let body = tokio::time::timeout(ANSWER, to_bytes(answer.into_body(), ANSWER_BYTES_MAX)).await;
        let body = body
            .map_err(|_| self.unreachable_error("no answer"))?
            .map_err(|error| self.unreachable_error(error))?;
        if !status.is_success() {
            return Err(self.problem(status, &body, id));
        }
        serde_json::from_slice(&body)
            .map_err(|error| self.unreachable_error(format!("an answer that can't be read: {error}")))
    }

    fn problem(&self, status: StatusCode, body: &Bytes, id: &str) -> TransferOperationError {
        match serde_json::from_slice::<ApiProblem>(body) {
            Ok(problem) => problem.into_error(id),
            Err(_) => self.unreachable_error(format!("this is no carrack: it answered {status}")),
        }
    }

    async fn post_order(
        &self,
        id: &str,
        order: TransferControlOrder,
    ) -> Result<TransferRecord, TransferOperationError> {
        let verb = match order {
            TransferControlOrder::Cancel => "cancel",
            TransferControlOrder::Pause => "pause",
            TransferControlOrder::Resume => "resume",
        };
        self.request_json(
            Method::POST,
            format!("/v1/transfers/{}/{verb}", checked_path_segment(id)?),
            None,
            id,
        )
        .await
    }

    fn watch_stream(
        &self,
        id: Option<&str>,
    ) -> BoxStream<'_, Result<TransferRecord, TransferOperationError>> {
        stream::unfold(Some(TransferWatchClient::new(self, id)), |watching| async move {
            let (said, watching) = watching?.next().await?;
            Some((said, watching))
        })
        .boxed()
    }

    /// Starts watching one transfer, or all; returns the stream of events.
    pub(super) async fn begin_watch(&self, id: Option<&str>) -> Result<Body, TransferOperationError> {
        let path = match id {
            Some(id) => format!("/v1/transfers/{}/events", checked_path_segment(id)?),
            None => "/v1/events".to_owned(),
        };
        let answer = self.send(Method::GET, &path, None).await?;
        let status = answer.status();
        if status.is_success() {
            return Ok(answer.into_body());
        }
        let body = to_bytes(answer.into_body(), ANSWER_BYTES_MAX).await.unwrap_or_default();
        Err(self.problem(status, &body, id.unwrap_or_default()))
    }
}

/// A connection of any kind.
trait ApiStream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> ApiStream for T {}

/// Escapes a value for a query (RFC 3986, 2.1).
fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/:".contains(&byte) {
            quoted.push(char::from(byte));
        } else {
            quoted.push_str(&format!("%{byte:02X}"));
        }
    }
    quoted
}

/// Returns an ID as a segment of a path.
fn checked_path_segment(id: &str) -> Result<&str, TransferOperationError> {
    let is_id = !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_alphanumeric());
    if is_id { Ok(id) } else { Err(TransferOperationError::Unknown(carrack_model::escape(id.as_bytes()))) }
}

impl TransferOperations for ApiClient {
    fn submit(
        &self,
        _: &str,
        submission: TransferSubmission,
    ) -> BoxFuture<'_, Result<TransferRecord, TransferOperationError>> {
        async move {
            let body = serde_json::to_vec(&submission).map_err(|error| self.unreachable_error(error))?;
            self.request_json(Method::POST, "/v1/transfers".to_owned(), Some(body), "").await
        }
        .boxed()
    }

    fn transfer(&self, id: &str) -> BoxFuture<'_, Result<TransferRecord, TransferOperationError>> {
        let id = id.to_owned();
        async move {
            self.request_json(Method::GET, format!("/v1/transfers/{}", checked_path_segment(&id)?), None, &id)
                .await
        }
        .boxed()
    }

    fn transfers(
        &self,
        limit: usize,
        after: Option<&str>,
    ) -> BoxFuture<'_, Result<Vec<TransferRecord>, TransferOperationError>> {
        let after = after.map(str::to_owned);
        async move {
            let id = after.as_deref().unwrap_or_default();
            let after =
                if id.is_empty() { String::new() } else { format!("&after={}", checked_path_segment(id)?) };
            self.request_json(Method::GET, format!("/v1/transfers?limit={limit}{after}"), None, id).await
        }
        .boxed()
    }

    fn issue_order(
        &self,
        _: &str,
        id: &str,
        order: TransferControlOrder,
    ) -> BoxFuture<'_, Result<TransferRecord, TransferOperationError>> {
        let id = id.to_owned();
        async move { self.post_order(&id, order).await }.boxed()
    }

    /// Reconnects if the server is away, for half a minute at most.
    fn watch(&self, id: &str) -> BoxStream<'_, Result<TransferRecord, TransferOperationError>> {
        self.watch_stream(Some(id))
    }

    /// As [`ApiClient::watch`]; after a reconnection earlier changes may be repeated.
    fn watch_all(&self) -> BoxStream<'_, Result<TransferRecord, TransferOperationError>> {
        self.watch_stream(None)
    }

    fn movers(&self) -> BoxFuture<'_, Result<Vec<MoverRecord>, TransferOperationError>> {
        self.request_json(Method::GET, "/v1/movers".to_owned(), None, "").boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_read_as_they_are_shown() {
        for (text, shown) in [
            ("unix:/run/x.sock", "unix:/run/x.sock"),
            ("unix:///run/x.sock", "unix:/run/x.sock"),
            ("http://localhost:80", "http://localhost:80"),
            ("http://[::1]:7513/", "http://[::1]:7513"),
            ("https://dtn1.site.org", "https://dtn1.site.org:443"),
            ("https://[::1]", "https://[::1]:443"),
        ] {
            assert_eq!(text.parse::<ServerAddress>().unwrap().to_string(), shown, "{text}");
        }
        for wrong in ["", "/run/x", "unix:", "ftp://x", "http://", "http://a/b", "http://a:b", "http://u@h"] {
            assert!(wrong.parse::<ServerAddress>().is_err(), "{wrong}");
        }
    }
}
