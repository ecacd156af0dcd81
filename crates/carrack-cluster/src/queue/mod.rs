//! A transfer's work: scans, chunks, and messages for its end.
//!
//! All are in one stream. Movers pull scans, chunks and the ends of large files, one at a time, and
//! unacknowledged ones are redelivered; a file's end does not wait behind the chunks of other files.
//! Directories and the large files' entries are only read. Acknowledged messages are
//! [trimmed](TransferWorkStream::trim) periodically, so that the stream holds only the remaining work.

mod delivery;
mod item_header;
mod publisher;

use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, pull};
use async_nats::jetstream::stream::{DirectGetErrorKind, Stream};
use carrack_plan::fleet::FailedMovers;
use futures_util::future::{join_all, try_join_all};

pub use delivery::{DeliveryAcker, QueueDelivery, QueuePuller};
use item_header::FailedMoversRecord;
pub use item_header::{FilePartRange, QueueItemHeader, ScanWorkHeader, WorkItemHeader, WorkItemKind};
pub use publisher::ItemPublisher;

use crate::bus::NatsBus;
use crate::error::BusError;
use crate::store::{JetStreamPageReader, last_of_each, read_record, write_record};
use crate::subjects::FleetWorkKind;
use crate::transfer_records::{RECORD_VERSION, is_name};

/// The ack deadline: a chunk that is neither extended nor acknowledged within it is redelivered.
pub const ACK_WAIT: Duration = Duration::from_secs(30);

/// Chunks that may be delivered at the same time: more than any fleet has pairs, with a few each.
const OUT_MAX: i64 = 100_000;

/// Pairs that may wait for a chunk at the same time.
const WAITING_MAX: i64 = 20_000;

/// The name of the scan among a transfer's items.
const SCAN_ITEM: &str = "scan";

/// The name for all of a transfer's items: for a mover that can't read or write there at all.
const ALL_ITEMS: &str = "all";

const ATTEMPT: &str = "Carrack-Attempt";

/// Counts of a kind of work. The server counts new messages a moment late: this is for people and for
/// decisions that may be late, and does not tell that everything is done. The log tells that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PendingItemCounts {
    /// Items that were never delivered.
    pub waiting: u64,
    /// Delivered items without an acknowledgement.
    pub out: u64,
    /// All messages of the stream up to this sequence number are acknowledged.
    pub floor: u64,
}

impl PendingItemCounts {
    /// Returns the number of unacknowledged items.
    pub fn unacknowledged(&self) -> u64 {
        self.waiting + self.out
    }
}

/// A reader of one attempt's directories, some messages at a time.
pub struct DirectoryMessageReader {
    pages: JetStreamPageReader,
    attempt: u32,
}

impl DirectoryMessageReader {
    /// Returns the next tables; `None` if there are no more. After an error a further call asks for the same
    /// ones.
    ///
    /// # Errors
    /// If NATS refuses, or does not answer.
    pub async fn next(&mut self) -> Result<Option<Vec<Vec<u8>>>, BusError> {
        let Some(page) = self.pages.next().await? else { return Ok(None) };
        let tables = page.into_iter().filter(|message| {
            let attempt = message.headers.get(ATTEMPT).and_then(|value| value.as_str().parse().ok());
            attempt == Some(self.attempt)
        });
        Ok(Some(tables.map(|message| message.payload.into()).collect()))
    }
}

/// One transfer's work.
#[derive(Clone)]
pub struct TransferWorkStream {
    bus: NatsBus,
    transfer: String,
    stream: Stream<()>,
}

impl TransferWorkStream {
    /// Opens a transfer's work.
    ///
    /// # Errors
    /// If `transfer` is no valid name, or NATS does not answer.
    pub async fn open(bus: &NatsBus, transfer: &str) -> Result<TransferWorkStream, BusError> {
        if !is_name(transfer) {
            return Err(BusError::BadName(transfer.to_owned()));
        }
        let stream = bus.context().get_stream_no_info(bus.names().work_stream()).await;
        let stream = stream.map_err(|error| BusError::refused("the work stream", &error))?;
        Ok(TransferWorkStream { bus: bus.clone(), transfer: transfer.to_owned(), stream })
    }

    /// Returns the transfer's ID.
    pub fn transfer(&self) -> &str {
        &self.transfer
    }

    /// Creates the consumers of scans, chunks and the ends of large files. Further calls change nothing.
    ///
    /// # Errors
    /// If NATS refuses.
    pub async fn create_consumers(&self, ack_wait: Duration) -> Result<(), BusError> {
        let names = self.bus.names();
        let scans = names.work_kind_subject(&self.transfer, FleetWorkKind::Scan);
        let chunks = names.chunk_subject(&self.transfer);
        let ends = names.file_end_subject(&self.transfer);
        let made = [
            (self.scan_consumer(), scans),
            (self.chunk_consumer(), chunks),
            (self.file_end_consumer(), ends),
        ];
        let made = made.map(|(name, subject)| self.make_consumer(name, subject, ack_wait));
        try_join_all(made).await.map(|_| ())
    }

    /// Publishes a scan. The same attempt within two minutes counts as the same message.
    ///
    /// # Errors
    /// If NATS does not take it.
    pub async fn publish_scan(&self, head: &ScanWorkHeader) -> Result<(), BusError> {
        self.publisher().publish_scan(head).await
    }

    /// Returns a publisher for many items at the same time.
    pub fn publisher(&self) -> ItemPublisher {
        ItemPublisher::new(&self.bus, &self.transfer)
    }

    /// Returns the source of scans.
    pub fn scans(&self) -> QueuePuller<ScanWorkHeader> {
        QueuePuller::new(&self.bus, self.scan_consumer())
    }

    /// Returns the source of chunks.
    pub fn chunks(&self) -> QueuePuller<WorkItemHeader> {
        QueuePuller::new(&self.bus, self.chunk_consumer())
    }

    /// Returns the source of the ends of large files.
    pub fn file_ends(&self) -> QueuePuller<WorkItemHeader> {
        QueuePuller::new(&self.bus, self.file_end_consumer())
    }

    /// Returns the counts of scans.
    ///
    /// # Errors
    /// [`BusError::Missing`] if the queue was never prepared, or was removed.
    pub async fn pending_scans(&self) -> Result<PendingItemCounts, BusError> {
        self.pending_of(&self.scan_consumer()).await
    }

    /// Returns the counts of chunks.
    ///
    /// # Errors
    /// [`BusError::Missing`] if the queue was never prepared, or was removed.
    pub async fn pending_chunks(&self) -> Result<PendingItemCounts, BusError> {
        self.pending_of(&self.chunk_consumer()).await
    }

    /// Returns the counts of the ends of large files.
    ///
    /// # Errors
    /// [`BusError::Missing`] if the queue was never prepared, or was removed.
    pub async fn pending_file_ends(&self) -> Result<PendingItemCounts, BusError> {
        self.pending_of(&self.file_end_consumer()).await
    }

    /// Removes acknowledged chunks up to the first unacknowledged one; returns their number.
    ///
    /// # Errors
    /// If NATS refuses, or does not answer.
    pub async fn trim(&self) -> Result<u64, BusError> {
        let chunks = self.bus.names().chunk_subject(&self.transfer);
        self.trim_to(chunks, self.pending_chunks().await?.floor).await
    }

    /// Removes acknowledged ends of large files in the same way.
    ///
    /// # Errors
    /// If NATS refuses, or does not answer.
    pub async fn trim_file_ends(&self) -> Result<u64, BusError> {
        let ends = self.bus.names().file_end_subject(&self.transfer);
        self.trim_to(ends, self.pending_file_ends().await?.floor).await
    }

    async fn trim_to(&self, subject: String, floor: u64) -> Result<u64, BusError> {
        if floor == 0 {
            return Ok(0);
        }
        let purged = self.stream.purge().filter(subject).sequence(floor + 1).await;
        purged.map(|purged| purged.purged).map_err(|error| self.request_error(&error))
    }

    /// Returns the directories that an attempt's scan has published, in its order. Makes no consumer.
    pub fn dirs(&self, attempt: u32) -> DirectoryMessageReader {
        let names = self.bus.names();
        let subject = names.work_kind_subject(&self.transfer, FleetWorkKind::Dirs);
        DirectoryMessageReader {
            pages: JetStreamPageReader::new(&self.bus, names.work_stream(), subject),
            attempt,
        }
    }

    /// Returns a large file's entry, as the scan has published it.
    ///
    /// # Errors
    /// If NATS does not answer.
    pub async fn read_large(&self, attempt: u32, file: u64) -> Result<Option<Vec<u8>>, BusError> {
        let subject = self.bus.names().large_file_subject(&self.transfer, attempt, file);
        match self.stream.direct_get_last_for_subject(subject).await {
            Ok(message) => Ok(Some(message.payload.into())),
            Err(error) if error.kind() == DirectGetErrorKind::NotFound => Ok(None),
            Err(error) => Err(self.request_error(&error)),
        }
    }

    /// Returns the movers that have failed a chunk, or can't serve the transfer at all.
    ///
    /// # Errors
    /// If NATS does not answer.
    pub async fn failed_movers(&self, head: &WorkItemHeader) -> Result<FailedMovers, BusError> {
        self.failed_movers_of_item(&head.item_name()).await
    }

    /// Returns the same for the scan.
    ///
    /// # Errors
    /// If NATS does not answer.
    pub async fn scan_failed_movers(&self) -> Result<FailedMovers, BusError> {
        self.failed_movers_of_item(SCAN_ITEM).await
    }

    /// Stores the movers that have failed a chunk.
    ///
    /// # Errors
    /// If NATS does not take it.
    pub async fn store_failed_movers(
        &self,
        head: &WorkItemHeader,
        tried: &FailedMovers,
    ) -> Result<(), BusError> {
        self.write_failed_movers(&head.item_name(), tried).await
    }

    /// Stores the movers that have failed the scan.
    ///
    /// # Errors
    /// If NATS does not take it.
    pub async fn store_scan_failed_movers(&self, tried: &FailedMovers) -> Result<(), BusError> {
        self.write_failed_movers(SCAN_ITEM, tried).await
    }

    /// Stores that a mover can't read, or write, at the transfer's place: others do not wait for it.
    ///
    /// # Errors
    /// If NATS does not take it.
    pub async fn add_refusing_mover(&self, is_source: bool, mover: &str) -> Result<(), BusError> {
        let mut tried = self.read_failed_movers(ALL_ITEMS).await?;
        tried.add(is_source, mover);
        self.write_failed_movers(ALL_ITEMS, &tried).await
    }

    async fn failed_movers_of_item(&self, item: &str) -> Result<FailedMovers, BusError> {
        let names = self.bus.names();
        let subjects = [item, ALL_ITEMS].map(|item| names.failed_movers_subject(&self.transfer, item));
        let mut tried = FailedMovers::default();
        for message in last_of_each(&self.bus, &names.work_stream(), &subjects).await? {
            let record: FailedMoversRecord = read_record("who has failed an item", &message.payload)?;
            tried.merge(&record.tried);
        }
        Ok(tried)
    }

    async fn read_failed_movers(&self, item: &str) -> Result<FailedMovers, BusError> {
        let subject = self.bus.names().failed_movers_subject(&self.transfer, item);
        match self.stream.direct_get_last_for_subject(subject).await {
            Ok(message) => {
                let record: FailedMoversRecord = read_record("who has failed an item", &message.payload)?;
                Ok(record.tried)
            }
            Err(error) if error.kind() == DirectGetErrorKind::NotFound => Ok(FailedMovers::default()),
            Err(error) => Err(self.request_error(&error)),
        }
    }

    async fn write_failed_movers(&self, item: &str, tried: &FailedMovers) -> Result<(), BusError> {
        let what = "who has failed an item";
        let subject = self.bus.names().failed_movers_subject(&self.transfer, item);
        let record = FailedMoversRecord { version: RECORD_VERSION, tried: tried.clone() };
        self.bus
            .publish_to_stream(what, subject, HeaderMap::new(), write_record(what, &record)?)
            .await
            .map(|_| ())
    }

    /// Removes all of the transfer's work.
    ///
    /// # Errors
    /// If NATS refuses, or does not answer; another call can remove the rest.
    pub async fn remove(&self) -> Result<(), BusError> {
        // Another manager may have been faster.
        let consumers = [self.chunk_consumer(), self.file_end_consumer(), self.scan_consumer()];
        join_all(consumers.iter().map(|name| self.stream.delete_consumer(name))).await;
        let everything = self.bus.names().work_subjects(Some(&self.transfer));
        self.stream.purge().filter(everything).await.map_err(|error| self.request_error(&error))?;
        Ok(())
    }

    async fn make_consumer(
        &self,
        name: String,
        filter_subject: String,
        ack_wait: Duration,
    ) -> Result<(), BusError> {
        let config = pull::Config {
            durable_name: Some(name),
            deliver_policy: DeliverPolicy::All,
            ack_policy: AckPolicy::Explicit,
            ack_wait,
            // Unlimited: a chunk is over when it is settled, and not after some number of attempts.
            max_deliver: -1,
            filter_subject,
            max_ack_pending: OUT_MAX,
            max_waiting: WAITING_MAX,
            ..pull::Config::default()
        };
        self.stream.create_consumer(config).await.map_err(|error| self.request_error(&error))?;
        Ok(())
    }

    async fn pending_of(&self, consumer: &str) -> Result<PendingItemCounts, BusError> {
        use async_nats::jetstream::context::ConsumerInfoErrorKind;
        let info = self.stream.consumer_info(consumer).await.map_err(|error| match error.kind() {
            ConsumerInfoErrorKind::NotFound => BusError::Missing(format!("the queue {consumer}")),
            _ => self.request_error(&error),
        })?;
        Ok(PendingItemCounts {
            waiting: info.num_pending,
            out: info.num_ack_pending as u64,
            floor: info.ack_floor.stream_sequence,
        })
    }

    fn scan_consumer(&self) -> String {
        format!("{}_scan", self.transfer)
    }

    fn chunk_consumer(&self) -> String {
        format!("{}_chunk_0", self.transfer)
    }

    fn file_end_consumer(&self) -> String {
        format!("{}_chunk_1", self.transfer)
    }

    fn request_error(&self, error: &dyn std::fmt::Display) -> BusError {
        self.bus.no_answer_error(&format!("the work of transfer {}", self.transfer), error)
    }
}
