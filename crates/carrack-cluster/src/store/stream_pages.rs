//! Reading a stream's messages of some subjects without a consumer: a reader needs no permission to make one.
//!
//! A direct get for many messages (NATS 2.11, ADR-31): the server sends them one by one, and at the end a
//! message with status 204.

use std::collections::HashSet;
use std::time::Duration;

use async_nats::jetstream::message::StreamMessage;
use async_nats::{Message, StatusCode};
use futures_util::StreamExt;
use serde_json::json;

use crate::bus::NatsBus;
use crate::error::BusError;

/// Messages of one request: the server's own limit is of this order, and the messages on their way must fit
/// in the buffers.
const AT_ONCE: u64 = 1_000;
const BYTES_AT_ONCE: u64 = 16 * 1024 * 1024;
const QUIET: Duration = Duration::from_secs(5);

/// Subjects whose last messages are requested at once: the server refuses more than 1,024.
const SUBJECTS_AT_ONCE: usize = 512;

/// A reader of pages.
pub(crate) struct JetStreamPageReader {
    bus: NatsBus,
    stream: String,
    filter: String,
    /// The first message of the next page; `None` after the last.
    from: Option<u64>,
}

impl JetStreamPageReader {
    pub(crate) fn new(bus: &NatsBus, stream: String, filter: String) -> JetStreamPageReader {
        JetStreamPageReader { bus: bus.clone(), stream, filter, from: Some(1) }
    }

    /// Starts at this message.
    pub(crate) fn starting(mut self, seq: u64) -> JetStreamPageReader {
        self.from = Some(seq.max(1));
        self
    }

    /// Returns the next messages, in the stream's order; `None` if there are no more.
    pub(crate) async fn next(&mut self) -> Result<Option<Vec<StreamMessage>>, BusError> {
        let Some(from) = self.from else { return Ok(None) };
        let mut page = Vec::new();
        let wanted =
            json!({ "seq": from, "next_by_subj": self.filter, "batch": AT_ONCE, "max_bytes": BYTES_AT_ONCE });
        let more = read_some(&self.bus, &self.stream, &wanted, &mut page).await?;
        self.from = page.last().filter(|_| more).map(|last| last.sequence + 1);
        Ok((!page.is_empty()).then_some(page))
    }

    pub(super) async fn all(mut self) -> Result<Vec<StreamMessage>, BusError> {
        let mut all = Vec::new();
        while let Some(page) = self.next().await? {
            all.extend(page);
        }
        Ok(all)
    }
}

/// Returns the last message of each of these subjects, if there is any, in the stream's order within each of
/// the server's answers.
pub(crate) async fn last_of_each(
    bus: &NatsBus,
    stream: &str,
    subjects: &[String],
) -> Result<Vec<StreamMessage>, BusError> {
    let mut found = Vec::with_capacity(subjects.len());
    for subjects in subjects.chunks(SUBJECTS_AT_ONCE) {
        let mut left: Vec<&String> = subjects.iter().collect();
        loop {
            let before = found.len();
            let wanted = json!({ "multi_last": left, "max_bytes": BYTES_AT_ONCE });
            let more = read_some(bus, stream, &wanted, &mut found).await?;
            if !more || found.len() == before {
                break;
            }
            // The answer had no room for the others.
            let told: HashSet<&str> =
                found[before..].iter().map(|message| message.subject.as_str()).collect();
            left.retain(|subject| !told.contains(subject.as_str()));
        }
    }
    Ok(found)
}

/// Returns the last message under a filter.
pub(super) async fn last_matching_message(
    bus: &NatsBus,
    stream: &str,
    filter: &str,
) -> Result<Option<StreamMessage>, BusError> {
    let subject = format!("{}.DIRECT.GET.{stream}", bus.names().api_prefix());
    let wanted = json!({ "last_by_subj": filter }).to_string();
    let answer = bus
        .client()
        .request(subject, wanted.into())
        .await
        .map_err(|error| bus.no_answer_error(stream, &error))?;
    match answer.status {
        None | Some(StatusCode::OK) => {
            StreamMessage::try_from(answer).map(Some).map_err(|error| bus.no_answer_error(stream, &error))
        }
        Some(StatusCode::NOT_FOUND) => Ok(None),
        Some(status) => Err(refused(stream, status, answer.description)),
    }
}

fn refused(stream: &str, status: StatusCode, reason: Option<String>) -> BusError {
    BusError::refused(stream, &format!("{status} {}", reason.unwrap_or_default()))
}

/// Reads messages into `page`; returns true if there may be more.
async fn read_some(
    bus: &NatsBus,
    stream: &str,
    wanted: &serde_json::Value,
    page: &mut Vec<StreamMessage>,
) -> Result<bool, BusError> {
    let inbox = bus.client().new_inbox();
    let mut answers =
        bus.client().subscribe(inbox.clone()).await.map_err(|error| bus.no_answer_error(stream, &error))?;
    let subject = format!("{}.DIRECT.GET.{stream}", bus.names().api_prefix());
    let sent = bus.client().publish_with_reply(subject, inbox, wanted.to_string().into()).await;
    sent.map_err(|error| bus.no_answer_error(stream, &error))?;
    loop {
        let answer = tokio::time::timeout(QUIET, answers.next())
            .await
            .map_err(|error| bus.no_answer_error(stream, &error))?;
        let answer = answer.ok_or_else(|| bus.no_answer_error(stream, &"the connection has ended"))?;
        match answer.status {
            None | Some(StatusCode::OK) => {
                page.push(
                    StreamMessage::try_from(answer).map_err(|error| bus.no_answer_error(stream, &error))?,
                );
            }
            Some(StatusCode::NOT_FOUND) => return Ok(false),
            Some(status) if status.as_u16() == 204 => return Ok(pending(&answer) > 0),
            Some(StatusCode::NO_RESPONDERS) => {
                return Err(bus.no_answer_error(stream, &"nobody answers for it"));
            }
            Some(status) => return Err(refused(stream, status, answer.description)),
        }
    }
}

fn pending(end: &Message) -> u64 {
    let header = end.headers.as_ref().and_then(|headers| headers.get("Nats-Num-Pending"));
    header.and_then(|value| value.as_str().parse().ok()).unwrap_or(0)
}
