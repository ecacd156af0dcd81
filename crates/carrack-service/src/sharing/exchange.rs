//! The client of a meta-server: one connection over a Unix socket, and one batch on it at a time, on a plain
//! thread.
//!
//! HTTP/1.1 without an async runtime: a thread with no other work sends a few batches a second.

use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use carrack_engine::GrantExchange;
use carrack_plan::grants::{GrantClientReport, GrantReply};
use socket2::{Domain, SockAddr, Socket, Type};

use crate::api::ApiProblem;

/// Time from a batch to its answer, including the connection. After it a client continues unmanaged.
const PATIENCE: Duration = Duration::from_secs(1);

/// The longest head of an answer, and the longest answer: thousands of grants.
const HEAD_BYTES_MAX: usize = 16 << 10;
const ANSWER_BYTES_MAX: usize = 4 << 20;

/// Upper bound of fields in a head.
const FIELDS_MAX: usize = 32;

/// A meta-server behind a Unix socket.
#[derive(Debug)]
pub struct GrantServerConnection {
    path: PathBuf,
    connection: Mutex<Option<UnixStream>>,
}

impl GrantServerConnection {
    /// Creates an exchange without a connection.
    pub fn new(path: &Path) -> GrantServerConnection {
        GrantServerConnection { path: path.to_owned(), connection: Mutex::new(None) }
    }

    /// Returns the socket's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Checks that a meta-server answers there. No state remains at the server.
    ///
    /// # Errors
    /// As for an exchange.
    pub fn probe(&self) -> io::Result<()> {
        let client = format!("probe-{}", std::process::id());
        self.exchange(&GrantClientReport { client, number: 1, leaves: true, ..GrantClientReport::default() })
            .map(drop)
    }
}

impl GrantExchange for GrantServerConnection {
    /// Sends a batch and waits for its answer, for a second at most. A lost connection is replaced with the
    /// next batch, and within the same batch if it was lost while idle: a restarted server is no error.
    ///
    /// # Errors
    /// The system's; `TimedOut`; `InvalidData` if this is no meta-server; `Unsupported` with the server's
    /// words if it refuses.
    fn exchange(&self, batch: &GrantClientReport) -> io::Result<GrantReply> {
        let deadline = Instant::now() + PATIENCE;
        let request = request(batch)?;
        let mut connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(stream) = connection.take() {
            match send_and_receive(&stream, &request, deadline) {
                Err(error) if is_connection_lost(&error) => {}
                answered => return finish_exchange(&mut connection, stream, answered),
            }
        }
        let stream = connect(&self.path)?;
        let answered = send_and_receive(&stream, &request, deadline);
        finish_exchange(&mut connection, stream, answered)
    }
}

/// Keeps a connection for the next batch only if its answer was read to the end.
fn finish_exchange(
    connection: &mut Option<UnixStream>,
    stream: UnixStream,
    answered: io::Result<ReceivedHttpResponse>,
) -> io::Result<GrantReply> {
    let ReceivedHttpResponse { status, body, is_last } = answered?;
    if !is_last {
        *connection = Some(stream);
    }
    if status == 200 {
        return serde_json::from_slice(&body).map_err(invalid_data);
    }
    let words = match serde_json::from_slice::<ApiProblem>(&body) {
        Ok(problem) => carrack_model::escape(problem.detail.as_bytes()),
        Err(_) => format!("this is no meta-server: it answered {status}"),
    };
    Err(io::Error::new(ErrorKind::Unsupported, words))
}

fn is_connection_lost(error: &io::Error) -> bool {
    use ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof)
}

/// Connects with a timeout, in case the server does not accept: a Unix socket's timeout for sending also
/// applies to connecting (unix(7), socket(7)).
fn connect(path: &Path) -> io::Result<UnixStream> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_write_timeout(Some(PATIENCE))?;
    socket.connect(&SockAddr::unix(path)?)?;
    Ok(std::os::fd::OwnedFd::from(socket).into())
}

fn request(batch: &GrantClientReport) -> io::Result<Vec<u8>> {
    let body = serde_json::to_vec(batch)?;
    let length = body.len();
    let mut request = format!(
        "POST /v1/grants HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
    )
    .into_bytes();
    request.extend_from_slice(&body);
    Ok(request)
}

/// An answer.
struct ReceivedHttpResponse {
    status: u16,
    body: Vec<u8>,
    /// True if the connection ends with it.
    is_last: bool,
}

fn send_and_receive(
    mut stream: &UnixStream,
    request: &[u8],
    deadline: Instant,
) -> io::Result<ReceivedHttpResponse> {
    stream.set_write_timeout(Some(time_left(deadline)?))?;
    stream.write_all(request).map_err(map_timeout)?;
    let mut heard = Vec::new();
    loop {
        if let Some((head, length)) = head(&heard)? {
            while heard.len() < length + head.bytes {
                read_more(stream, &mut heard, deadline)?;
            }
            let body = heard.split_off(head.bytes);
            // A connection with bytes after the answer is not used again.
            let is_last = head.is_last || body.len() > length;
            return Ok(ReceivedHttpResponse { status: head.status, body: body[..length].to_vec(), is_last });
        }
        if heard.len() > HEAD_BYTES_MAX {
            return Err(invalid_data("a head without an end"));
        }
        read_more(stream, &mut heard, deadline)?;
    }
}

/// A parsed head, with its length in bytes; the length of the body comes with it.
struct HttpResponseHead {
    bytes: usize,
    status: u16,
    is_last: bool,
}

/// Returns a header field's value.
fn field<'a>(response: &httparse::Response<'_, 'a>, name: &str) -> Option<&'a str> {
    let field = response.headers.iter().find(|field| field.name.eq_ignore_ascii_case(name))?;
    std::str::from_utf8(field.value).ok()
}

/// Parses a head; `None` while it is incomplete.
fn head(heard: &[u8]) -> io::Result<Option<(HttpResponseHead, usize)>> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut response = httparse::Response::new(&mut fields);
    let bytes = match response.parse(heard).map_err(invalid_data)? {
        httparse::Status::Complete(bytes) => bytes,
        httparse::Status::Partial => return Ok(None),
    };
    let length = field(&response, "content-length").and_then(|length| length.trim().parse().ok());
    let length: usize = length.ok_or_else(|| invalid_data("an answer without its length"))?;
    if length > ANSWER_BYTES_MAX {
        return Err(invalid_data("an answer that is too long"));
    }
    let is_last = field(&response, "connection").is_some_and(|words| words.eq_ignore_ascii_case("close"));
    let status = response.code.unwrap_or_default();
    Ok(Some((HttpResponseHead { bytes, status, is_last }, length)))
}

fn read_more(mut stream: &UnixStream, heard: &mut Vec<u8>, deadline: Instant) -> io::Result<()> {
    let mut buffer = [0; 8 << 10];
    stream.set_read_timeout(Some(time_left(deadline)?))?;
    match stream.read(&mut buffer) {
        Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
        Ok(count) => {
            heard.extend_from_slice(&buffer[..count]);
            Ok(())
        }
        Err(error) if error.kind() == ErrorKind::Interrupted => Ok(()),
        Err(error) => Err(map_timeout(error)),
    }
}

fn time_left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
}

/// Maps the error of a socket's timeout (socket(7)).
fn map_timeout(error: io::Error) -> io::Error {
    if error.kind() == ErrorKind::WouldBlock { ErrorKind::TimedOut.into() } else { error }
}

fn invalid_data(words: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, words)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;
    use std::thread;

    use super::*;

    /// Accepts connections one after the other, and sends these answers to the requests of each.
    fn answering(path: &Path, connections: Vec<Vec<String>>) {
        let listener = UnixListener::bind(path).unwrap();
        thread::spawn(move || {
            for answers in connections {
                let (mut stream, _) = listener.accept().unwrap();
                for answer in answers {
                    let mut buffer = [0; 4_096];
                    if stream.read(&mut buffer).unwrap() == 0 {
                        break;
                    }
                    // In pieces, as TCP may deliver it.
                    for piece in answer.as_bytes().chunks(7) {
                        stream.write_all(piece).unwrap();
                    }
                }
            }
            // Later connections get no answer.
            thread::park();
            drop(listener);
        });
    }

    fn said(status: u16, fields: &str, body: &str) -> String {
        format!("HTTP/1.1 {status} x\r\nContent-Length: {}\r\n{fields}\r\n{body}", body.len())
    }

    #[test]
    fn a_connection_is_used_again_and_made_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let exchange = GrantServerConnection::new(&path);
        assert_eq!(exchange.exchange(&GrantClientReport::default()).unwrap_err().kind(), ErrorKind::NotFound);
        let good = said(200, "", r#"{"epoch":7,"number":3}"#);
        let problem = r#"{"status":404,"title":"x","detail":"nothing here"}"#;
        let refusal = said(404, "connection: close\r\n", problem);
        answering(&path, vec![vec![good.clone(), good.clone()], vec![good.clone(), refusal], vec![good]]);
        for _ in 0..3 {
            let answer = exchange.exchange(&GrantClientReport::default()).unwrap();
            assert_eq!((answer.epoch, answer.number), (7, 3));
        }
        let refused = exchange.exchange(&GrantClientReport::default()).unwrap_err();
        assert_eq!(
            (refused.kind(), refused.to_string()),
            (ErrorKind::Unsupported, "nothing here".to_owned())
        );
        exchange.exchange(&GrantClientReport::default()).unwrap();
    }

    #[test]
    fn nonsense_and_silence_end_within_a_second() {
        for (said, kind) in [
            ("SSH-2.0\r\n\r\n", ErrorKind::InvalidData),
            ("HTTP/1.1 200 OK\r\n\r\n", ErrorKind::InvalidData),
            ("HTTP/1.1 200 OK\r\ncontent-length: 99999999\r\n\r\n", ErrorKind::InvalidData),
            ("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n[[", ErrorKind::InvalidData),
            ("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{", ErrorKind::UnexpectedEof),
        ] {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("socket");
            answering(&path, vec![vec![said.to_owned()]]);
            let error =
                GrantServerConnection::new(&path).exchange(&GrantClientReport::default()).unwrap_err();
            assert_eq!(error.kind(), kind, "{said}");
        }
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        answering(&path, Vec::new());
        let begun = Instant::now();
        let error = GrantServerConnection::new(&path).exchange(&GrantClientReport::default()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        assert!((PATIENCE..2 * PATIENCE).contains(&begun.elapsed()), "{:?}", begun.elapsed());
    }
}
