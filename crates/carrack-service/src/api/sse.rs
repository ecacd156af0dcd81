//! Changes of transfers as server-sent events (WHATWG HTML, 9.2): written and read.

use std::convert::Infallible;
use std::time::Duration;

use axum::http::StatusCode;
use axum::http::{HeaderValue, header};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use carrack_register::transfer_records::TransferRecord;
use futures_util::{StreamExt, stream};
use tokio::sync::mpsc;

use super::problem::ApiProblem;
use super::routes::SharedTransferOperations;

/// Events that are queued for a slow reader.
const AHEAD: usize = 4;

/// Interval of comments, by which proxies and clients see that the server lives.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// The name of an event with a record.
pub(super) const TRANSFER: &str = "transfer";

/// The name of an event with the reason for the stream's end.
pub(super) const PROBLEM: &str = "problem";

/// Streams the changes of a transfer until it is over or its reader leaves; of all transfers without an ID.
pub(super) fn response(
    control: SharedTransferOperations,
    id: Option<String>,
    shown: impl Fn(TransferRecord) -> TransferRecord + Send + 'static,
) -> Response {
    let (saying, said) = mpsc::channel(AHEAD);
    tokio::spawn(async move {
        let mut watched = match &id {
            Some(id) => control.watch(id),
            None => control.watch_all(),
        };
        loop {
            // A reader's end is noticed even without changes.
            let next = tokio::select! {
                next = watched.next() => next,
                () = saying.closed() => return,
            };
            let Some(next) = next else { return };
            let event = match next {
                Ok(record) => Event::default().event(TRANSFER).json_data(shown(record)),
                Err(error) => {
                    let problem = ApiProblem::of(error, StatusCode::CONFLICT);
                    Event::default().event(PROBLEM).json_data(problem)
                }
            };
            let Ok(event) = event else { return };
            if saying.send(event).await.is_err() {
                return;
            }
        }
    });
    let events = stream::unfold(said, |mut said| async move {
        let event = said.recv().await?;
        Some((Ok::<_, Infallible>(event), said))
    });
    let mut response = Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response();
    // nginx buffers a proxied answer without this header.
    response.headers_mut().insert("x-accel-buffering", HeaderValue::from_static("no"));
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

/// An event: its name, and its data.
pub(super) type SseEventParts = (String, String);

/// A parser of events from a stream of bytes.
#[derive(Debug, Default)]
pub(super) struct SseReader {
    rest: Vec<u8>,
    name: String,
    data: String,
}

impl SseReader {
    /// Takes bytes; returns the events that are complete with them.
    pub fn read(&mut self, bytes: &[u8]) -> Vec<SseEventParts> {
        self.rest.extend_from_slice(bytes);
        let mut said = Vec::new();
        while let Some(end) = self.rest.iter().position(|&byte| byte == b'\n') {
            let line: Vec<u8> = self.rest.drain(..=end).collect();
            let line = String::from_utf8_lossy(&line);
            self.process_line(line.trim_end_matches(['\n', '\r']), &mut said);
        }
        said
    }

    /// Returns the number of bytes that are held back until their line ends.
    pub fn buffered_bytes(&self) -> usize {
        self.rest.len() + self.data.len()
    }

    fn process_line(&mut self, line: &str, said: &mut Vec<SseEventParts>) {
        if line.is_empty() {
            let (name, data) = (std::mem::take(&mut self.name), std::mem::take(&mut self.data));
            if !data.is_empty() {
                said.push((name, data));
            }
            return;
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => self.name = value.to_owned(),
            "data" => {
                if !self.data.is_empty() {
                    self.data.push('\n');
                }
                self.data.push_str(value);
            }
            // Comments keep the connection alive; IDs and pauses have no effect here.
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_read_however_they_are_cut() {
        let text = b": hello\n\nevent: transfer\ndata: {\"a\":\ndata: 1}\r\n\r\ndata: x\n\n";
        let expected =
            vec![("transfer".to_owned(), "{\"a\":\n1}".to_owned()), (String::new(), "x".to_owned())];
        for size in [1, 2, 7, 100] {
            let mut reader = SseReader::default();
            let said: Vec<SseEventParts> = text.chunks(size).flat_map(|bytes| reader.read(bytes)).collect();
            assert_eq!(said, expected, "{size}");
            assert_eq!(reader.buffered_bytes(), 0);
        }
    }
}
