//! The records of a transfer, or of all, from a server's events, over as many connections as necessary.

use std::time::Duration;

use carrack_register::transfer_operations::TransferOperationError;
use carrack_register::transfer_records::TransferRecord;
use futures_util::StreamExt;
use serde::de::DeserializeOwned;

use super::client::ApiClient;
use super::problem::ApiProblem;
use super::sse::{PROBLEM, SseReader, TRANSFER};

/// The longest event.
const EVENT_BYTES_MAX: usize = 4 << 20;

/// Time without bytes after which a server counts as lost: it sends a comment every 15 seconds.
const SILENCE: Duration = Duration::from_secs(60);

/// Attempts to reconnect to a lost server, which may be restarting, and the pause before each.
const TRIES: u32 = 30;
const TRY_PAUSE: Duration = Duration::from_secs(1);

/// A watcher of one transfer until it is over, or of all.
pub(super) struct TransferWatchClient<'a> {
    client: &'a ApiClient,
    /// `None` for all transfers.
    id: Option<String>,
    body: Option<axum::body::BodyDataStream>,
    reader: SseReader,
    /// Events that were read together, the next one last.
    said: Vec<(String, String)>,
    last: Option<TransferRecord>,
}

type WatchedTransferResult = Result<TransferRecord, TransferOperationError>;

impl<'a> TransferWatchClient<'a> {
    /// Creates a watcher without a connection.
    pub fn new(client: &'a ApiClient, id: Option<&str>) -> TransferWatchClient<'a> {
        TransferWatchClient {
            client,
            id: id.map(str::to_owned),
            body: None,
            reader: SseReader::default(),
            said: Vec::new(),
            last: None,
        }
    }

    /// Returns the next record, and the watcher for the records after it.
    pub async fn next(mut self) -> Option<(WatchedTransferResult, Option<TransferWatchClient<'a>>)> {
        if self.id.is_some() && self.last.as_ref().is_some_and(|last| last.state.is_over()) {
            return None;
        }
        let mut tries = 0;
        loop {
            let record = match self.next_record().await {
                Ok(Some(record)) => record,
                Ok(None) => {
                    // The stream ended before the transfer: the server was lost.
                    self.body = None;
                    continue;
                }
                // A server that was never there is not waited for.
                Err(TransferOperationError::Away(_)) if self.last.is_some() && tries < TRIES => {
                    tries += 1;
                    self.body = None;
                    tokio::time::sleep(TRY_PAUSE).await;
                    continue;
                }
                Err(error) => return Some((Err(error), None)),
            };
            // The first record of a new stream may equal the last one of the stream before.
            if self.last.as_ref() != Some(&record) {
                if let Some(id) = &mut self.id {
                    id.clone_from(&record.id);
                }
                self.last = Some(record.clone());
                return Some((Ok(record), Some(self)));
            }
        }
    }

    fn parsed<T: DeserializeOwned>(&self, data: &str) -> Result<T, TransferOperationError> {
        serde_json::from_str(data)
            .map_err(|error| self.client.unreachable_error(format!("an event that can't be read: {error}")))
    }

    /// Returns the next record; `None` at the stream's end.
    async fn next_record(&mut self) -> Result<Option<TransferRecord>, TransferOperationError> {
        loop {
            while let Some((name, data)) = self.said.pop() {
                match &*name {
                    TRANSFER => return self.parsed(&data).map(Some),
                    PROBLEM => {
                        let problem: ApiProblem = self.parsed(&data)?;
                        return Err(problem.into_error(self.id.as_deref().unwrap_or_default()));
                    }
                    _ => {}
                }
            }
            let body = match &mut self.body {
                Some(body) => body,
                None => {
                    let body = self.client.begin_watch(self.id.as_deref()).await?;
                    self.reader = SseReader::default();
                    self.body.insert(body.into_data_stream())
                }
            };
            let bytes = tokio::time::timeout(SILENCE, body.next()).await;
            match bytes {
                Ok(None) => {
                    // Pause, so that a server which ends its answers at once is not asked in a busy loop.
                    tokio::time::sleep(TRY_PAUSE).await;
                    return Ok(None);
                }
                Ok(Some(Ok(bytes))) => {
                    self.said = self.reader.read(&bytes);
                    self.said.reverse();
                    if self.reader.buffered_bytes() > EVENT_BYTES_MAX {
                        return Err(self.client.unreachable_error("an event without an end"));
                    }
                }
                Ok(Some(Err(error))) => return Err(self.client.unreachable_error(error)),
                Err(_) => return Err(self.client.unreachable_error("silence")),
            }
        }
    }
}
