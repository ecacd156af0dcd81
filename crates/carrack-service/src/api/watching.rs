//! A transfer, or all of them, as a server tells it, over as many connections as that takes.

use std::time::Duration;

use carrack_register::control::ControlError;
use carrack_register::records::TransferRecord;
use futures_util::StreamExt;

use super::client::ApiClient;
use super::problem::Problem;
use super::sse::{PROBLEM, Reader, TRANSFER};

/// The longest event.
const EVENT_BYTES_MAX: usize = 4 << 20;

/// A server that watched transfers are heard from says something every 15 seconds.
const SILENCE: Duration = Duration::from_secs(60);

/// Daemons are started anew: tries to go on watching after one was lost, and the pause before each.
const TRIES: u32 = 30;
const TRY_PAUSE: Duration = Duration::from_secs(1);

/// Somebody who hears how a transfer is until it is over, or how all are.
pub(super) struct Watching<'a> {
    client: &'a ApiClient,
    /// Nothing for all of them.
    id: Option<String>,
    body: Option<axum::body::BodyDataStream>,
    reader: Reader,
    /// Events that were read together, the next one last.
    said: Vec<(String, String)>,
    last: Option<TransferRecord>,
}

type Watched = Result<TransferRecord, ControlError>;

impl<'a> Watching<'a> {
    /// Nobody is asked yet.
    pub fn new(client: &'a ApiClient, id: Option<&str>) -> Watching<'a> {
        Watching {
            client,
            id: id.map(str::to_owned),
            body: None,
            reader: Reader::default(),
            said: Vec::new(),
            last: None,
        }
    }

    /// The next thing to say, and who goes on after it.
    pub async fn next(mut self) -> Option<(Watched, Option<Watching<'a>>)> {
        if self.id.is_some() && self.last.as_ref().is_some_and(|last| last.state.is_over()) {
            return None;
        }
        let mut tries = 0;
        loop {
            let record = match self.event().await {
                Ok(Some(record)) => record,
                Ok(None) => {
                    // The stream ended, and the transfer goes on: the server was lost.
                    self.body = None;
                    continue;
                }
                // Who was never there is not waited for.
                Err(ControlError::Away(_)) if self.last.is_some() && tries < TRIES => {
                    tries += 1;
                    self.body = None;
                    tokio::time::sleep(TRY_PAUSE).await;
                    continue;
                }
                Err(error) => return Some((Err(error), None)),
            };
            // The first one of another stream may be the last one of the one before.
            if self.last.as_ref() != Some(&record) {
                if let Some(id) = &mut self.id {
                    id.clone_from(&record.id);
                }
                self.last = Some(record.clone());
                return Some((Ok(record), Some(self)));
            }
        }
    }

    /// The next record; nothing at the stream's end.
    async fn event(&mut self) -> Result<Option<TransferRecord>, ControlError> {
        loop {
            while let Some((name, data)) = self.said.pop() {
                let unreadable = |error| self.client.away(format!("an event that can't be read: {error}"));
                match &*name {
                    TRANSFER => return serde_json::from_str(&data).map(Some).map_err(unreadable),
                    PROBLEM => {
                        let problem: Problem = serde_json::from_str(&data).map_err(unreadable)?;
                        return Err(problem.into_error(self.id.as_deref().unwrap_or_default()));
                    }
                    _ => {}
                }
            }
            let body = match &mut self.body {
                Some(body) => body,
                None => {
                    let body = self.client.begin_watch(self.id.as_deref()).await?;
                    self.reader = Reader::default();
                    self.body.insert(body.into_data_stream())
                }
            };
            let bytes = tokio::time::timeout(SILENCE, body.next()).await;
            match bytes {
                Ok(None) => {
                    // A server that answers and ends at once is not asked again and again without a pause.
                    tokio::time::sleep(TRY_PAUSE).await;
                    return Ok(None);
                }
                Ok(Some(Ok(bytes))) => {
                    self.said = self.reader.read(&bytes);
                    self.said.reverse();
                    if self.reader.held() > EVENT_BYTES_MAX {
                        return Err(self.client.away("an event without an end"));
                    }
                }
                Ok(Some(Err(error))) => return Err(self.client.away(error)),
                Err(_) => return Err(self.client.away("silence")),
            }
        }
    }
}
