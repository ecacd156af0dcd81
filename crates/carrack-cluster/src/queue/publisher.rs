//! Publication of many items: each is stored once its answer has arrived, and many wait for their answers at
//! the same time.

use std::time::{Duration, Instant};

use async_nats::HeaderMap;
use serde::Serialize;
use tokio::task::JoinSet;

use super::{ATTEMPT, ScanWorkHeader, WorkItemHeader, WorkItemKind};
use crate::bus::NatsBus;
use crate::error::BusError;
use crate::store::write_record;
use crate::subjects::FleetWorkKind;

/// The header with an item's head.
pub(super) const HEAD: &str = "Carrack-Head";
const MESSAGE_ID: &str = "Nats-Msg-Id";

/// Upper bound of unanswered messages. With tables of 512 KiB that is 32 MiB, and a round trip of 100 ms
/// still permits 640 a second.
const ON_THEIR_WAY: usize = 64;

/// Time for which a message is retried. By its ID the server drops the duplicate of a stored but unanswered
/// message.
const PATIENCE: Duration = Duration::from_secs(60);
const AGAIN_AFTER: Duration = Duration::from_millis(500);

/// Bytes of a message without its body: subject, head, other headers.
const BESIDE_BODY: usize = 4 * 1024;

/// Publishes a transfer's items. An item is only stored for sure after [`ItemPublisher::flush`].
pub struct ItemPublisher {
    bus: NatsBus,
    transfer: String,
    on_their_way: JoinSet<Result<(), BusError>>,
}

impl ItemPublisher {
    pub(super) fn new(bus: &NatsBus, transfer: &str) -> ItemPublisher {
        ItemPublisher { bus: bus.clone(), transfer: transfer.to_owned(), on_their_way: JoinSet::new() }
    }

    /// Returns the size limit of a body.
    pub fn body_max(&self) -> usize {
        self.bus.max_payload().saturating_sub(BESIDE_BODY)
    }

    /// Publishes a scan; it is stored when this returns.
    ///
    /// # Errors
    /// If NATS does not take it, or any item before it.
    pub async fn publish_scan(&mut self, head: &ScanWorkHeader) -> Result<(), BusError> {
        let subject = self.bus.names().work_kind_subject(&self.transfer, FleetWorkKind::Scan);
        let id = format!("{}-{}-scan", self.transfer, head.attempt);
        self.publish(subject, id, Some(write_head(head)?), head.attempt, Vec::new()).await?;
        self.flush().await
    }

    /// Publishes a chunk, or another item for movers. Waits while too many are unanswered.
    ///
    /// # Errors
    /// If the table is too large, or NATS has not taken an earlier item.
    pub async fn publish_chunk(&mut self, head: &WorkItemHeader, table: Vec<u8>) -> Result<(), BusError> {
        let names = self.bus.names();
        let subject = match head.kind {
            WorkItemKind::Finish { .. } | WorkItemKind::Discard { .. } => {
                names.file_end_subject(&self.transfer)
            }
            WorkItemKind::Files | WorkItemKind::Part(_) | WorkItemKind::Delete | WorkItemKind::Close => {
                names.chunk_subject(&self.transfer)
            }
        };
        let id = format!("{}-{}-{}-{}", self.transfer, head.attempt, head.kind.as_str(), head.number);
        self.publish(subject, id, Some(write_head(head)?), head.attempt, table).await
    }

    /// Publishes directories; `number` distinguishes this attempt's messages of them.
    ///
    /// # Errors
    /// If the table is too large, or NATS has not taken an earlier item.
    pub async fn publish_dirs(&mut self, attempt: u32, number: u64, table: Vec<u8>) -> Result<(), BusError> {
        let subject = self.bus.names().work_kind_subject(&self.transfer, FleetWorkKind::Dirs);
        let id = format!("{}-{attempt}-dirs-{number}", self.transfer);
        self.publish(subject, id, None, attempt, table).await
    }

    /// Publishes the entry of a large file, for
    /// [`TransferWorkStream::read_large`](super::TransferWorkStream::read_large).
    ///
    /// # Errors
    /// If the table is too large, or NATS has not taken an earlier item.
    pub async fn publish_large(&mut self, attempt: u32, file: u64, table: Vec<u8>) -> Result<(), BusError> {
        let subject = self.bus.names().large_file_subject(&self.transfer, attempt, file);
        let id = format!("{}-{attempt}-large-{file}", self.transfer);
        self.publish(subject, id, None, attempt, table).await
    }

    /// Waits until all published items are stored.
    ///
    /// # Errors
    /// The first error of any item since the last call.
    pub async fn flush(&mut self) -> Result<(), BusError> {
        let mut first = Ok(());
        while let Some(done) = self.on_their_way.join_next().await {
            first = first.and(outcome(done));
        }
        first
    }

    async fn publish(
        &mut self,
        subject: String,
        id: String,
        head: Option<String>,
        attempt: u32,
        body: Vec<u8>,
    ) -> Result<(), BusError> {
        if body.len() > self.body_max() {
            return Err(BusError::TooLarge { what: id, bytes: body.len(), max: self.body_max() });
        }
        while self.on_their_way.len() >= ON_THEIR_WAY {
            match self.on_their_way.join_next().await {
                Some(done) => outcome(done)?,
                None => break,
            }
        }
        let mut headers = HeaderMap::new();
        headers.insert(MESSAGE_ID, id.as_str());
        headers.insert(ATTEMPT, attempt.to_string().as_str());
        if let Some(head) = head {
            headers.insert(HEAD, head.as_str());
        }
        self.on_their_way.spawn(send(self.bus.clone(), id, subject, headers, body));
        Ok(())
    }
}

async fn send(
    bus: NatsBus,
    what: String,
    subject: String,
    headers: HeaderMap,
    body: Vec<u8>,
) -> Result<(), BusError> {
    let began = Instant::now();
    loop {
        match bus.publish_to_stream(&what, subject.clone(), headers.clone(), body.clone()).await {
            Ok(_) => return Ok(()),
            Err(error) if error.is_transient() && began.elapsed() < PATIENCE => {
                tokio::time::sleep(AGAIN_AFTER).await;
            }
            Err(error) => return Err(error),
        }
    }
}

fn outcome(done: Result<Result<(), BusError>, tokio::task::JoinError>) -> Result<(), BusError> {
    done.unwrap_or_else(|error| Err(BusError::no_answer("an item of work", &error)))
}

fn write_head<H: Serialize>(head: &H) -> Result<String, BusError> {
    let bytes = write_record("an item's head", head)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
